//! What the CubeCL kernels share: index buffers on devices, launch sizes, operands, checks before dispatch.
//!
//! Which kernel runs, and in which partition, is a function of the pattern, the shapes, the dtype and the device's
//! properties: nothing is timed, so the same input gives the same bits on the same device.

mod buffers;
mod check;
pub(crate) mod lanes;
mod launch;
mod operand;
mod pieces;
#[cfg(all(test, feature = "wgpu"))]
pub(crate) mod testing;
mod tiles;

pub(crate) use buffers::{DeviceBuffers, View, prepare, release};
pub(crate) use check::{check, is_cube, is_wgpu};
pub(crate) use launch::Gpu;
pub(crate) use operand::{Matrix, any_view, output_values, vector_size};
pub(crate) use pieces::{PIECE, Pieces};
pub(crate) use tiles::{Parts, tiles};

use burn::tensor::DType;

/// The type that sums of `dtype` are made in.
pub(crate) fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}
