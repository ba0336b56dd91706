//! Between layouts, and between sparse and dense.

use crate::common::{Oracle, matrix, read, rounded};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::vjp;

pub const ROWS: &[Row] = &[
    ("to_dense", |case| converts(case, Clone::clone), 2),
    ("to_csr", |case| converts(case, SparseTensor::to_csr), 2),
    ("to_csc", |case| converts(case, SparseTensor::to_csc), 2),
    ("to_coo", |case| converts(case, SparseTensor::to_coo), 2),
    ("coalesce", |case| converts(case, SparseTensor::coalesce), 2),
    ("transpose", |case| converts(case, |a| a.transpose().t()), 2),
    ("from_dense", from_dense, 2),
];

/// Values and gradient of a conversion: the dense matrix is the same, and the gradient of each entry is that of its element.
fn converts(case: &Case, convert: fn(&SparseTensor<2>) -> SparseTensor<2>) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = a.shape();
    let g = case.numbers(10, m * n);
    let converted = convert(&a);
    let dense = converted.to_dense();
    let mut expected = Oracle::zeros(m * n);
    let mut gradient = Oracle::zeros(host.nnz());
    for e in 0..host.nnz() {
        let at = host.rows[e] * n + host.cols[e];
        expected.add(at, host.values[e]);
        gradient.add(e, g[at]);
    }
    expected.check("dense", &read(&dense), case.dtype)?;
    let upstream = matrix(&g, [m, n], case.dtype, &a.device());
    let grads = vjp::backward(&dense, upstream);
    let found = a.grad(&grads).ok_or("no gradient")?;
    gradient.check("gradient", &read(found.values()), case.dtype)?;
    Ok(2)
}

fn from_dense(case: &Case) -> Outcome {
    let device = case.device.clone().autodiff();
    let host = case.host.rounded(case.dtype);
    let [m, n] = host.shape;
    let elements = rounded(&host.dense(), case.dtype);
    let dense = matrix(&elements, [m, n], case.dtype, &device).require_grad();
    let sparse = SparseTensor::from_dense(dense.clone(), 0.25).map_err(|e| e.to_string())?;
    let kept = |v: f64| if v.abs() > 0.25 { v } else { 0.0 };
    let oracle = |values: Vec<f64>| Oracle { magnitude: values.iter().map(|v| v.abs()).collect(), sum: values };
    let expected = oracle(elements.iter().map(|&v| kept(v)).collect());
    let back = sparse.to_dense();
    expected.check("dense", &read(&back), case.dtype)?;
    let g = case.numbers(11, m * n);
    let grads = vjp::backward(&back, matrix(&g, [m, n], case.dtype, &device));
    let masked = elements.iter().zip(&g).map(|(&v, &g)| if kept(v) != 0.0 { g } else { 0.0 });
    let found = dense.grad(&grads).ok_or("no gradient")?;
    oracle(masked.collect()).check("gradient", &read(&found), case.dtype)?;
    Ok(2)
}
