//! The solver table: property x solver x operator, as a person reads it, and the public bug reports on solvers.
//!
//! `cargo test --test solver_table -- --nocapture` prints it. Every cell passes, or does not apply; their number is asserted.
//! `SOLVER_TABLE_BACKENDS` names the backends to try, of those that are built: `wgpu`, say, with `--features wgpu`;
//! `SOLVER_TABLE_OPERATORS` what operators are made of: `CSR`, say, a third of what a GPU is asked for.
#![allow(missing_docs)]

#[path = "../common/asked.rs"]
mod asked;
mod field;
mod operators;
mod table;

use asked::asked;
use burn::tensor::TensorData;
use sparsegrad::prelude::*;
use sparsegrad_solvers::operator::Operator;
use sparsegrad_solvers::{Method, Solution};
use std::sync::Arc;

/// The devices that this build has, with the dtypes to try: GPUs in f32, which all of them have.
fn backends() -> Vec<(&'static str, Device, Vec<DType>)> {
    let mut backends = vec![("flex", Device::flex(), vec![DType::F64, DType::F32])];
    #[cfg(feature = "wgpu")]
    backends.push(("wgpu", Device::wgpu(burn::tensor::DeviceKind::DefaultDevice), vec![DType::F32]));
    #[cfg(feature = "cuda")]
    backends.push(("cuda", Device::cuda(0), vec![DType::F32]));
    backends.retain(|(name, ..)| asked("SOLVER_TABLE_BACKENDS", name));
    backends
}

/// Numbers in [-1, 1) without a pattern, the same on every machine: splitmix64.
fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let number = |at: u64| {
        let mut bits = (seed << 32).wrapping_add(at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (1..=count as u64).map(number).collect()
}

/// Numbers in row-major order on a device.
fn dense<const D: usize>(numbers: &[f64], shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers.to_vec(), shape), (device, dtype))
}

/// A column on the CPU, in f64.
fn column(numbers: &[f64]) -> Tensor<2> {
    dense(numbers, [numbers.len(), 1], DType::F64, &Device::flex())
}

/// The elements that are not 0, in CSR on the CPU, in f64.
fn sparse<const M: usize, const N: usize>(rows: [[f64; N]; M]) -> SparseTensor<2> {
    sparse_of(rows, DType::F64)
}

fn sparse_of<const M: usize, const N: usize>(rows: [[f64; N]; M], dtype: DType) -> SparseTensor<2> {
    SparseTensor::from_dense(dense(rows.as_flattened(), [M, N], dtype, &Device::flex()), 0.0).unwrap()
}

fn read<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

fn solve(
    method: &dyn Method,
    a: impl sparsegrad_solvers::LinearOperator + 'static,
    b: Tensor<2>,
) -> Solution<Tensor<2>> {
    let a: Operator = Arc::new(a);
    method.run(&a, b, None, false)
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(0.0f64, |size, x| size.max(x.abs()));
    for (found, right) in found.iter().zip(expected) {
        assert!((found - right).abs() <= tolerance * size, "{found} for {right} in {expected:?}");
    }
}
