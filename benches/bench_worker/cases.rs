//! The operations on offer. To add one: a function from the problem to its case, and its line in [`prepare`].

use crate::mvn::Asked;
use crate::problem::Problem;
use crate::streams;
use burn::tensor::{Gradients, TensorData};
use serde::Deserialize;
use serde_json::{Value, json};
use sparsegrad::prelude::*;
use sparsegrad::{Triangular, sparse_triangular_solve, vjp};
use std::error::Error;

/// A prepared problem. A closure is one whose check is a run.
pub trait Case {
    /// Executes the operation, and its backward pass if the problem has one.
    fn run(&mut self) -> Results;

    /// The same from the same start: for cases whose runs go on from each other, or are random.
    fn check(&mut self) -> Results {
        self.run()
    }

    /// What a solver knows of its solution.
    fn info(&self, _results: &Results) -> Value {
        json!({})
    }
}

impl<F: FnMut() -> Results> Case for F {
    fn run(&mut self) -> Results {
        self()
    }
}

/// Results by their names in the protocol.
pub type Results = Vec<(&'static str, Output)>;

/// A dense result, or the values of a sparse one in CSR order.
pub enum Output {
    Vector(Tensor<1>),
    Matrix(Tensor<2>),
}

impl Output {
    /// The matrix, if it is one.
    pub fn matrix(&self) -> Option<&Tensor<2>> {
        match self {
            Self::Matrix(matrix) => Some(matrix),
            Self::Vector(_) => None,
        }
    }

    /// The numbers in row-major order.
    pub fn into_vec(self) -> Result<Vec<f64>, Box<dyn Error>> {
        let data = match self {
            Self::Vector(vector) => vector.into_data(),
            Self::Matrix(matrix) => matrix.into_data(),
        };
        Ok(data.iter::<f64>().collect())
    }
}

impl From<Tensor<3>> for Output {
    fn from(stack: Tensor<3>) -> Self {
        Self::Vector(stack.flatten(0, 2))
    }
}

impl From<Tensor<1>> for Output {
    fn from(vector: Tensor<1>) -> Self {
        Self::Vector(vector)
    }
}

impl From<Tensor<2>> for Output {
    fn from(matrix: Tensor<2>) -> Self {
        Self::Matrix(matrix)
    }
}

/// A case, and the number of stored entries of its matrix.
pub type Prepared = Result<(Box<dyn Case>, usize), Box<dyn Error>>;

/// The case of a problem, and the number of stored entries of its matrix.
pub fn prepare(problem: &Problem) -> Prepared {
    match problem.op.as_str() {
        _ if !problem.supported() => Err("unsupported".into()),
        "spmv" => spmv(problem),
        "spmm" => spmm(problem),
        "sddmm" => sddmm_at(problem),
        "transpose" if !problem.backward() => transpose(problem),
        "logsumexp" => logsumexp(problem),
        "trisolve" => trisolve(problem),
        "segment_mm" => by_segments(problem, true),
        "gather_mm" => by_segments(problem, false),
        "cg" | "bicgstab" | "minres" | "lsmr" => crate::solvers::iterative(problem),
        "mvn_rsample" => crate::mvn::of_distribution(problem, Asked::Samples),
        "mvn_log_prob" => crate::mvn::of_distribution(problem, Asked::LogProb),
        "pairwise_encode" => crate::encoder::pairwise(problem),
        _ => Err("unsupported".into()),
    }
}

fn spmv(problem: &Problem) -> Prepared {
    let a = problem.matrix()?;
    let ([m, n], nnz) = (a.shape(), a.nnz());
    let x = problem.dense(1, [n]);
    if !problem.backward() {
        return Ok((forward(move || a.matvec(x.clone())), nnz));
    }
    let (a, x, upstream) = (a.require_grad(), x.require_grad(), problem.dense(2, [m]));
    let case = move || {
        let out = a.matvec(x.clone());
        let grads = vjp::backward(&out, upstream.clone());
        results(out, [("grad_values", values_grad(&a, &grads)), ("grad_dense", grad(&x, &grads))])
    };
    Ok((Box::new(case), nnz))
}

fn spmm(problem: &Problem) -> Prepared {
    let a = problem.matrix()?;
    let ([m, n], nnz, k) = (a.shape(), a.nnz(), problem.cols);
    let b = problem.dense(1, [n, k]);
    if !problem.backward() {
        return Ok((forward(move || a.matmul(b.clone())), nnz));
    }
    let (a, b, upstream) = (a.require_grad(), b.require_grad(), problem.dense(2, [m, k]));
    let case = move || {
        let out = a.matmul(b.clone());
        let grads = vjp::backward(&out, upstream.clone());
        results(out, [("grad_values", values_grad(&a, &grads)), ("grad_dense", grad(&b, &grads))])
    };
    Ok((Box::new(case), nnz))
}

fn sddmm_at(problem: &Problem) -> Prepared {
    let pattern = problem.matrix()?.pattern().clone();
    let ([m, n], nnz, k) = (pattern.shape(), pattern.nnz(), problem.cols);
    let (x, y) = (problem.dense(1, [m, k]), problem.dense(3, [n, k]));
    if !problem.backward() {
        return Ok((forward(move || sddmm(&pattern, x.clone(), y.clone()).values().clone()), nnz));
    }
    let (x, y, upstream) = (x.require_grad(), y.require_grad(), problem.dense(2, [nnz]));
    let case = move || {
        let out = sddmm(&pattern, x.clone(), y.clone()).values().clone();
        let grads = vjp::backward(&out, upstream.clone());
        results(out, [("grad_x", grad(&x, &grads)), ("grad_y", grad(&y, &grads))])
    };
    Ok((Box::new(case), nnz))
}

fn trisolve(problem: &Problem) -> Prepared {
    let a = lower_factor(&problem.matrix()?, Some(2.0), 1.0)?;
    let ([n, _], nnz, k) = (a.shape(), a.nnz(), problem.cols);
    let b = problem.dense(1, [n, k]);
    let solve = |a: &SparseTensor<2>, b: &Tensor<2>| {
        sparse_triangular_solve(a, b.clone(), Triangular::lower()).expect("a diagonal of twos")
    };
    if !problem.backward() {
        return Ok((forward(move || solve(&a, &b)), nnz));
    }
    let (a, b, upstream) = (a.require_grad(), b.require_grad(), problem.dense(2, [n, k]));
    let case = move || {
        let out = solve(&a, &b);
        let grads = vjp::backward(&out, upstream.clone());
        results(out, [("grad_values", values_grad(&a, &grads)), ("grad_dense", grad(&b, &grads))])
    };
    Ok((Box::new(case), nnz))
}

/// Sizes of products by segments.
#[derive(Deserialize)]
struct Sizes {
    segments: usize,
    rows: usize,
    d_in: usize,
    d_out: usize,
}

/// Rows times the matrices that an index names: in its order, or `sorted`, as segments of as many rows.
fn by_segments(problem: &Problem, sorted: bool) -> Prepared {
    let Sizes { segments: count, rows, d_in, d_out } = serde_json::from_value(problem.params.clone())?;
    let ids = streams::unit(problem.seed, 5).take(rows).map(|unit| (unit * unit * count as f64) as usize);
    let index = Segments::from_ids(ids.collect::<Vec<_>>(), count)?;
    let segments = if sorted { Segments::from_offsets(index.offsets().clone())? } else { index };
    let (x, weight) = (problem.dense(1, [rows, d_in]), problem.dense(3, [count, d_in, d_out]));
    if !problem.backward() {
        return Ok((forward(move || gather_mm(x.clone(), weight.clone(), &segments)), 0));
    }
    let (x, weight, upstream) = (x.require_grad(), weight.require_grad(), problem.dense(2, [rows, d_out]));
    let case = move || {
        let out = gather_mm(x.clone(), weight.clone(), &segments);
        let grads = vjp::backward(&out, upstream.clone());
        results(out, [("grad_x", grad(&x, &grads)), ("grad_weight", grad(&weight, &grads))])
    };
    Ok((Box::new(case), 0))
}

/// L(d, s) of the protocol: strictly lower rows scaled to s in absolute sum, and d, if there is one, on the diagonal.
pub fn lower_factor(
    a: &SparseTensor<2>,
    diagonal: Option<f64>,
    row_sum: f64,
) -> Result<SparseTensor<2>, Box<dyn Error>> {
    let ([n, _], dtype) = (a.shape(), a.dtype());
    let mut rows = vec![Vec::new(); n];
    for (row, column, value) in a.triplets()?.filter(|&(row, column, _)| column < row) {
        rows[row].push((column, value));
    }
    let (mut at, mut columns, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (row, mut entries) in rows.into_iter().enumerate() {
        let sum: f64 = entries.iter().map(|(_, value)| value.abs()).sum();
        let scale = if sum == 0.0 { 1.0 } else { row_sum / sum };
        entries.iter_mut().for_each(|(_, value)| *value *= scale);
        entries.extend(diagonal.map(|value| (row, value)));
        entries.sort_by_key(|entry| entry.0);
        for (column, value) in entries {
            at.push(row);
            columns.push(column);
            values.push(value);
        }
    }
    let values = Tensor::<1>::from_data(TensorData::new(values, [at.len()]), (&a.device(), dtype));
    Ok(SparseTensor::new(Pattern::coo(at, columns, [n, n])?, values)?.to_csr())
}

/// Sorted anew in every run.
fn transpose(problem: &Problem) -> Prepared {
    let (pattern, values) = problem.matrix()?.into_parts();
    let nnz = pattern.nnz();
    let case = move || {
        let a = SparseTensor::new(pattern.without_plans(), values.clone()).expect("the pattern's values");
        a.transpose().values().clone()
    };
    Ok((forward(case), nnz))
}

fn logsumexp(problem: &Problem) -> Prepared {
    let a = problem.matrix()?;
    let ([m, _], nnz) = (a.shape(), a.nnz());
    if !problem.backward() {
        return Ok((forward(move || a.logsumexp(Per::Row)), nnz));
    }
    let (a, upstream) = (a.require_grad(), problem.dense(2, [m]));
    let case = move || {
        let out = a.logsumexp(Per::Row);
        let grads = vjp::backward(&out, upstream.clone());
        results(out, [("grad_values", values_grad(&a, &grads))])
    };
    Ok((Box::new(case), nnz))
}

pub fn forward<T: Into<Output>>(operation: impl Fn() -> T + 'static) -> Box<dyn Case> {
    Box::new(move || results(operation(), []))
}

/// The result and its gradients.
pub fn results<const N: usize>(out: impl Into<Output>, gradients: [(&'static str, Output); N]) -> Results {
    [("out", out.into())].into_iter().chain(gradients).collect()
}

/// The gradient of a dense operand.
pub fn grad<const D: usize>(operand: &Tensor<D>, grads: &Gradients) -> Output
where
    Output: From<Tensor<D>>,
{
    operand.grad(grads).expect("a tracked operand").into()
}

/// The gradient of a matrix at its stored entries.
pub fn values_grad(matrix: &SparseTensor<2>, grads: &Gradients) -> Output {
    matrix.grad(grads).expect("a tracked matrix").values().clone().into()
}
