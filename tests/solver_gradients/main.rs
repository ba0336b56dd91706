//! Gradients of solves, direct methods and preconditioners.
#![allow(missing_docs)]

mod choice;
mod direct;
mod gradients;
mod least_squares;
mod parity;
mod precond;
mod second;

use burn::tensor::TensorData;
use sparsegrad::prelude::*;

pub fn vector(values: &[f64], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, DType::F64))
}

pub fn columns(values: &[f64], shape: [usize; 2], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, DType::F64))
}

pub fn sparse(entries: &[(usize, usize, f64)], shape: [usize; 2], device: &Device) -> SparseTensor<2> {
    let rows: Vec<usize> = entries.iter().map(|e| e.0).collect();
    let cols: Vec<usize> = entries.iter().map(|e| e.1).collect();
    let values: Vec<f64> = entries.iter().map(|e| e.2).collect();
    SparseTensor::from_triplets(&rows, &cols, vector(&values, device), shape, device).unwrap()
}

pub fn read<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

#[track_caller]
pub fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?} and {expected:?}");
    for (at, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= tolerance * y.abs().max(1.0), "element {at}: {x} and {y} in {found:?}, {expected:?}");
    }
}

/// Splitmix64: numbers without a pattern in [-1, 1), the same on every machine.
pub fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
