//! Iterative solvers.

use crate::cases::{Case, Prepared, Results, grad, results, values_grad};
use crate::problem::Problem;
use burn::tensor::TensorData;
use serde_json::{Value, json};
use sparsegrad::prelude::*;
use sparsegrad::vjp;
use sparsegrad_solvers::{BiCgStab, Cg, Lsmr, Method, MinRes, sparse_lstsq, sparse_solve};
use std::error::Error;
use std::sync::Arc;

/// cg, bicgstab, minres and lsmr, from 0.
pub fn iterative(problem: &Problem) -> Prepared {
    let least_squares = problem.op == "lsmr";
    let a = problem.matrix()?;
    let a = if least_squares { a } else { jacobi_scaled(&a)? };
    let number = |name: &str| problem.params[name].as_f64().ok_or(format!("{name} is needed"));
    let (rtol, limit) = (number("rtol")?, number("maxiter")? as usize);
    let method: Arc<dyn Method> = match problem.op.as_str() {
        "cg" => Arc::new(Cg::new().tolerance(rtol).max_iterations(limit)),
        "bicgstab" => Arc::new(BiCgStab::new().tolerance(rtol).max_iterations(limit)),
        "minres" => Arc::new(MinRes::new().tolerance(rtol).max_iterations(limit)),
        _ => Arc::new(Lsmr::new().tolerance(rtol).max_iterations(limit)),
    };
    let ([m, n], nnz) = (a.shape(), a.nnz());
    let b = problem.dense::<2>(1, [m, 1]);
    let (a, b, upstream) = match problem.backward() {
        true => (a.require_grad(), b.require_grad(), Some(problem.dense::<2>(2, [n, 1]))),
        false => (a, b, None),
    };
    Ok((Box::new(Solve { a, b, upstream, method, least_squares, iterations: 0 }), nnz))
}

struct Solve {
    a: SparseTensor<2>,
    b: Tensor<2>,
    /// For the backward pass, if there is one.
    upstream: Option<Tensor<2>>,
    method: Arc<dyn Method>,
    least_squares: bool,
    iterations: usize,
}

impl Case for Solve {
    fn run(&mut self) -> Results {
        let (a, b, method) = (&self.a, self.b.clone(), self.method.clone());
        let solution = if self.least_squares { sparse_lstsq(a, b, method) } else { sparse_solve(a, b, method) };
        self.iterations = solution.report.iterations;
        let Some(upstream) = &self.upstream else {
            return results(solution.x, []);
        };
        let grads = vjp::backward(&solution.x, upstream.clone());
        let gradients = [("grad_values", values_grad(a, &grads)), ("grad_dense", grad(&self.b, &grads))];
        results(solution.x, gradients)
    }

    fn info(&self, results: &Results) -> Value {
        json!({"iterations": self.iterations, "true_residual": self.residual(results)})
    }
}

impl Solve {
    /// Recomputed in f64: |b - A x| / |b|; of least squares |A^T r| / (|A| |r|).
    fn residual(&self, results: &Results) -> Option<f64> {
        let x = results[0].1.matrix()?.clone().cast(DType::F64);
        let a = self.a.clone().cast(burn::tensor::FloatDType::F64);
        let b = self.b.clone().cast(DType::F64);
        let norm = |numbers: Vec<f64>| numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
        let read = |tensor: Tensor<2>| norm(tensor.into_data().iter::<f64>().collect());
        let r = b.clone() - a.matmul(x);
        if !self.least_squares {
            return Some(read(r) / read(b));
        }
        let size = norm(a.values().clone().into_data().iter::<f64>().collect());
        Some(read(a.t().matmul(r.clone())) / (size * read(r)))
    }
}

/// J of the protocol: a_ij / sqrt(d_i d_j), d_i = |a_ii|, or 1 where that is 0 or absent.
fn jacobi_scaled(a: &SparseTensor<2>) -> Result<SparseTensor<2>, Box<dyn Error>> {
    let mut scales = vec![0.0; a.shape()[0]];
    for (row, column, value) in a.triplets()? {
        if row == column {
            scales[row] += value;
        }
    }
    for scale in &mut scales {
        *scale = if *scale == 0.0 { 1.0 } else { 1.0 / scale.abs().sqrt() };
    }
    let values: Vec<f64> = a.triplets()?.map(|(row, column, value)| value * (scales[row] * scales[column])).collect();
    let count = values.len();
    Ok(a.with_values(Tensor::from_data(TensorData::new(values, [count]), (&a.device(), a.dtype())))?)
}
