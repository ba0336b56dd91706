#!/bin/sh
# Compiles every CubeCL kernel of this crate to CUDA C++, then with NVRTC and ptxas for sm_80 and sm_90: no GPU, no CUDA
# installation. NVIDIA's compilers come as wheels from PyPI (some 130 MB, kept in the target folder).
set -eu
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/target}"
cuda="$target/nvidia"
if [ ! -x "$cuda/nvidia/cuda_nvcc/bin/ptxas" ]; then
    mkdir -p "$cuda/wheels"
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$cuda/wheels" \
        nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86
    for wheel in "$cuda"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$cuda"
    done
    rm -r "$cuda/wheels"
    chmod +x "$cuda"/nvidia/cuda_nvcc/bin/*
fi
cargo run --quiet -- "$cuda/nvidia"
