//! Public bug reports of people who do this job, as tests named after their threads. All on the embedded CPU backend;
//! the op table covers the others.

mod duplicates;
mod empties;
mod layout;
mod products;
mod reductions;
mod segment_products;
mod segments;
mod spgemm;
mod structure;
mod triangular;

use sparsegrad::prelude::*;

fn device() -> Device {
    Device::flex().autodiff()
}

/// A sparse f64 matrix from coordinates, kept in their order, tracked.
fn coo(shape: [usize; 2], rows: &[usize], cols: &[usize], values: &[f64]) -> SparseTensor<2> {
    SparseTensor::from_coo(rows, cols, values, shape, &device()).expect("valid coordinates").require_grad()
}

fn dense<const R: usize, const C: usize>(rows: [[f64; C]; R]) -> Tensor<2> {
    Tensor::from_data(rows, (&device(), DType::F64)).require_grad()
}

fn vector(values: &[f64]) -> Tensor<1> {
    crate::common::vector(values, DType::F64, &device()).require_grad()
}

fn read<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    crate::common::read(tensor)
}
