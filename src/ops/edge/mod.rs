//! **edge operations**: numbers and features of the stored entries of a pattern, taken as the edges of a graph: from those of
//! their rows and columns, and back.
//!
//! | | computes, for the edge e at (i, j) | DGL calls it | gradient |
//! |---|---|---|---|
//! | [`edge_gather`] | `u_i`, or `u_j` per column | `copy_u`, `copy_v` | the sum of each row (column) |
//! | [`edge_op`] | `u_i + v_j`, `u_i - v_j`, `u_i v_j`, `u_i / v_j` | `u_add_v`, ... | sums over rows and columns, with a factor as `edge_mm` has |
//! | [`edge_dot`] | `<x_i, y_j>` for each head | `u_dot_v` | `edge_mm` with the gradient as weights |
//! | [`edge_reduce`] | sum, mean, max or min of the features of each row's (column's) edges | `copy_e_sum`, ... | that of the [segment reductions](super::segment) |
//! | [`edge_softmax`] | softmax of the features over each row's (column's) edges | `edge_softmax` | its own |
//! | [`edge_mm`] | `z_i = sum of w_e y_j` over the row's edges, for each head | `u_mul_e_sum` | `edge_dot`, and `edge_mm` with the transpose |
//!
//! | | |
//! |---|---|
//! | shapes | pattern m x n with `nnz` edges; numbers u `[m]`, v `[n]` become the values of a [`SparseTensor`]; features u `[m, k]`, v `[n, k]` become a dense `[nnz, k]`, rows in the order of the values |
//! | formats | every format; rows are those of the row-ordered view, columns those of its transpose |
//! | dtypes | f32, f64; f16 and bf16 stored, computed in f32 and rounded once |
//! | duplicates | each is an edge of its own |
//! | batches | the pattern of a batch is block-diagonal: rows (columns) of all items below each other |
//! | memory | features of edges are made only where they are the result or were given: [`edge_mm`], [`edge_dot`] and their gradients hold nothing of size nnz x columns of the dense operand |
//! | reproducible | each result has one owner, which adds in the order of its row |
//!
//! One number an edge is the common case, and has the faster kernels: `u_dot_v` is [`sddmm`](crate::sddmm), attention is
//! [`row_softmax`](SparseTensor::row_softmax) of it, and `u_mul_e_sum` is [`sparse_mm`](crate::sparse_mm). Several heads are
//! then a batch of sparse tensors, which share a pattern:
//!
//! ```
//! use sparsegrad::prelude::*;
//!
//! /// softmax(Q K^T / sqrt d) V on the edges of a graph, for each head. Q, K, V: heads x nodes x d.
//! fn attention(graph: &Pattern, q: Tensor<3>, k: Tensor<3>, v: Tensor<3>) -> Tensor<3> {
//!     let scale = (q.dims()[2] as f64).sqrt().recip();
//!     let scores = sddmm(graph, q.mul_scalar(scale), k); // a batch: one matrix a head, all at the graph's pattern
//!     scores.row_softmax().matmul(v)
//! }
//!
//! let device = Device::flex().autodiff();
//! let graph = Pattern::csr([0, 2, 3, 5], [0, 2, 1, 0, 1], [3, 3])?;
//! let heads = || Tensor::<3>::random([4, 3, 8], Distribution::Default, &device).require_grad();
//! let (q, k, v) = (heads(), heads(), heads());
//! let grads = attention(&graph, q.clone(), k, v).sum().backward();
//! assert_eq!(q.grad(&grads).unwrap().dims(), [4, 3, 8]);
//! # Ok::<(), PatternError>(())
//! ```
//!
//! With the features of heads beside each other, as DGL and PyG have them, the same is [`edge_dot`], [`edge_softmax`] and
//! [`edge_mm`]: one walk over the edges serves all heads.
//!
//! Reference: M. Wang et al., *Deep Graph Library: towards efficient and scalable deep learning on graphs*, 2019 (generalised
//! SpMM and SDDMM).

mod backward;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use super::reduce::{Per, Softmax, expand};
use super::segment::{self, Reducer, SegmentOps, features_shape};
use crate::backend::check::{Check, Operand, device_can, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use crate::tensor::{SparseTensor, reshape};
#[cfg(feature = "flex")]
use burn::backend::TensorMetadata;
use burn::backend::{Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{Shape, Tensor};

/// What is made of the features of an edge's row, u, and column, v.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeOp {
    /// `u_i + v_j`.
    Add,
    /// `u_i - v_j`.
    Sub,
    /// `u_i v_j`.
    Mul,
    /// `u_i / v_j`.
    Div,
}

/// The primitives, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait EdgeOps: SegmentOps {
    /// Features of edges from those of their rows, `[m, k]`, and columns, `[n, k]`.
    #[fusion(dtype = left, shape = features_shape(pattern, left))]
    fn edge_op(pattern: Pattern, left: FloatTensor<Self>, right: FloatTensor<Self>, op: EdgeOp) -> FloatTensor<Self>;

    /// Dot products of `d` columns, for each of so many heads: x `[m, heads d]`, y `[n, heads d]`, result `[nnz, heads]`.
    #[fusion(dtype = x, shape = heads_shape(pattern, *heads))]
    fn edge_dot(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self>;

    /// Sums over the edges of each row, weighted for each head: weights `[nnz, heads]`, y `[n, heads d]`, result
    /// `[m, heads d]`.
    #[fusion(dtype = dense, shape = segment::rows_shape(pattern, dense))]
    fn edge_mm(pattern: Pattern, weights: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self>;
}

pub(crate) fn heads_shape(pattern: &Pattern, heads: usize) -> Shape {
    Shape::from([pattern.nnz(), heads])
}

/// Numbers or features of rows, or of columns, that edges can take, and what comes out.
pub trait OnEdges: Sized {
    /// The values of a [`SparseTensor`] from numbers; a dense tensor of a row an edge from features.
    type Output;

    /// The numbers or features of the edges, or why the operand does not fit.
    ///
    /// # Errors
    /// As [`try_edge_gather`].
    fn try_edge_gather(self, pattern: &Pattern, per: Per) -> Result<Self::Output, OpError>;

    /// What is made of the two ends of each edge, or why the operands do not fit.
    ///
    /// # Errors
    /// As [`try_edge_op`].
    fn try_edge_op(self, pattern: &Pattern, op: EdgeOp, v: Self) -> Result<Self::Output, OpError>;
}

impl OnEdges for Tensor<1> {
    type Output = SparseTensor<2>;

    fn try_edge_gather(self, pattern: &Pattern, per: Per) -> Result<SparseTensor<2>, OpError> {
        check_ends(GATHER, pattern, per, &self)?;
        let values = match per {
            Per::Row => expand(pattern, self),
            Per::Column => expand(&pattern.t(), self),
            Per::Matrix => expand(pattern, expand(&pattern.rows_together(1), self)),
        };
        Ok(SparseTensor::from_checked(pattern.clone(), values))
    }

    fn try_edge_op(self, pattern: &Pattern, op: EdgeOp, v: Self) -> Result<SparseTensor<2>, OpError> {
        let [m, n] = [self.dims()[0], v.dims()[0]];
        let features = reshape::<1, 2>(self, [m, 1]).try_edge_op(pattern, op, reshape(v, [n, 1]))?;
        Ok(SparseTensor::from_checked(pattern.clone(), reshape(features, [pattern.nnz()])))
    }
}

impl OnEdges for Tensor<2> {
    type Output = Tensor<2>;

    fn try_edge_gather(self, pattern: &Pattern, per: Per) -> Result<Tensor<2>, OpError> {
        check_ends(GATHER, pattern, per, &self)?;
        match per {
            Per::Row => segment::expand(GATHER, pattern, self, false),
            Per::Column => segment::expand(GATHER, &pattern.t(), self, false),
            Per::Matrix => {
                let of_rows = segment::expand(GATHER, &pattern.rows_together(1), self, false)?;
                segment::expand(GATHER, pattern, of_rows, false)
            }
        }
    }

    fn try_edge_op(self, pattern: &Pattern, op: EdgeOp, v: Self) -> Result<Tensor<2>, OpError> {
        let name = "edge_op";
        let (left, right) = (Operand::from(&self), Operand::from(&v));
        let what = "columns of u and columns of v must agree";
        Check { op: name }.shapes(self.dims()[1] == v.dims()[1], what, &left, &right)?;
        check_ends(name, pattern, Per::Row, &self)?;
        check_ends(name, pattern, Per::Column, &v)?;
        Check { op: name }.compatible(&left, &right)?;
        let (u, v) = (self.into_dispatch(), v.into_dispatch());
        Ok(Tensor::from_dispatch(<Dispatch as EdgeOps>::edge_op(pattern.clone(), u, v, op)))
    }
}

const GATHER: &str = "edge_gather";

/// Whether there is a row of `u` for each row (column) of the pattern, and the device can hold features of edges from it.
fn check_ends<const D: usize>(op: &'static str, pattern: &Pattern, per: Per, u: &Tensor<D>) -> Result<(), OpError> {
    let [m, n] = pattern.shape();
    let wanted = match per {
        Per::Row => m,
        Per::Column => n,
        Per::Matrix => 1,
    };
    let operand = Operand::from(u);
    let what = if D == 1 {
        "pattern and vector must agree: a number for each row (column)"
    } else {
        "pattern and features must agree: features for each row (column)"
    };
    Check { op }.shapes(u.dims()[0] == wanted, what, &operand.with_shape(&[m, n]), &operand)?;
    Check { op }.dtype(&operand)?;
    let columns = u.dims()[1..].iter().product();
    device_can(op, u, pattern, &[("the operand", [wanted, columns]), ("the edges", [pattern.nnz(), columns])])
}

/// The number, or the features, of its row (of its column, of the whole) for each edge: `u_i` (`u_j`) at each stored entry (i, j).
///
/// # Shapes
/// `u` is `[m]`, `[n]` per column, `[1]` per matrix, and the result is a [`SparseTensor`] of the pattern; or `u` is `[m, k]`,
/// `[n, k]`, `[1, k]`, and the result is dense, `[nnz, k]`, with rows in the order of the values.
///
/// # Gradient
/// Of `u`: the sum over each row (column), in order: what is repeated adds up.
///
/// # Panics
/// Where [`try_edge_gather`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let pattern = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
/// let u = Tensor::<1>::from_data([10.0f32, 20.0], &Device::flex());
/// let edges = edge_gather(&pattern, Per::Row, u);
/// assert_eq!(edges.values().to_data().try_to_vec::<f32>().unwrap(), [10.0, 20.0, 20.0]);
///
/// let u = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::flex());
/// let edges = edge_gather(&pattern, Per::Column, u);
/// assert_eq!(edges.to_data().try_to_vec::<f32>().unwrap(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
/// # Ok::<(), PatternError>(())
/// ```
#[track_caller]
pub fn edge_gather<U: OnEdges>(pattern: &Pattern, per: Per, u: U) -> U::Output {
    expect(try_edge_gather(pattern, per, u))
}

/// [`edge_gather`], with operands that do not fit as an error.
///
/// # Errors
/// If `u` has not one row for each row (for each column; one in all), or the device lacks the dtype or is too small.
pub fn try_edge_gather<U: OnEdges>(pattern: &Pattern, per: Per, u: U) -> Result<U::Output, OpError> {
    u.try_edge_gather(pattern, per)
}

/// What is made of the two ends of each edge: `u_i op v_j` at each stored entry (i, j).
///
/// # Shapes
/// `u` is `[m]` and `v` is `[n]`, and the result is a [`SparseTensor`] of the pattern; or they are `[m, k]` and `[n, k]`, and the
/// result is dense, `[nnz, k]`, with rows in the order of the values. Both may be any view.
///
/// # Gradient
/// With g that of the result: `sum of g_e` over rows for `u` and over columns for `v` (with a minus for a difference);
/// `sum of g_e v_j` and `sum of g_e u_i` for a product; `sum of g_e / v_j` and `-(sum of g_e u_i) / v_j^2` for a quotient. What
/// no edge reaches has the gradient 0.
///
/// # Panics
/// Where [`try_edge_op`] returns an error.
///
/// ```
/// use sparsegrad::{EdgeOp, prelude::*, edge_op};
///
/// // Scores of a graph attention network: leaky_relu(a u_i + b v_j), softmax over the neighbours.
/// let device = Device::flex();
/// let graph = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
/// let (u, v) = (Tensor::<1>::from_data([1.0f32, 2.0], &device), Tensor::from_data([10.0f32, 20.0, 30.0], &device));
/// let scores = edge_op(&graph, EdgeOp::Add, u, v);
/// assert_eq!(scores.values().to_data().try_to_vec::<f32>().unwrap(), [31.0, 12.0, 32.0]);
/// let weights = scores.row_softmax();
/// assert_eq!(weights.get(0, 2)?, Some(1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn edge_op<U: OnEdges>(pattern: &Pattern, op: EdgeOp, u: U, v: U) -> U::Output {
    expect(try_edge_op(pattern, op, u, v))
}

/// [`edge_op`], with operands that do not fit as an error.
///
/// # Errors
/// If rows of `u` do not match the rows of the pattern, those of `v` its columns, or columns, dtypes or devices differ.
pub fn try_edge_op<U: OnEdges>(pattern: &Pattern, op: EdgeOp, u: U, v: U) -> Result<U::Output, OpError> {
    u.try_edge_op(pattern, op, v)
}

/// The sum, mean, largest or smallest features of the edges of each row (column), or of all.
///
/// # Shapes
/// `features` are `[nnz, k]`, rows in the order of the values; the result is `[m, k]`, `[n, k]` per column, `[1, k]` per matrix.
/// Rows without edges get 0.
///
/// # Gradient
/// That of [`segment_reduce`](crate::segment_reduce). Ties: to the first edge in the order of storage.
///
/// # Panics
/// Where [`try_edge_reduce`] returns an error.
///
/// ```
/// use sparsegrad::{Reducer, edge_reduce, prelude::*};
///
/// let graph = Pattern::coo([1, 0, 1], [0, 2, 2], [3, 3])?;
/// let features = Tensor::<2>::from_data([[1.0, 6.0], [2.0, 5.0], [3.0, 4.0]], &Device::flex());
/// let largest = edge_reduce(&graph, Per::Row, features, Reducer::Max);
/// assert_eq!(largest.to_data().try_to_vec::<f32>().unwrap(), [2.0, 5.0, 3.0, 6.0, 0.0, 0.0]);
/// # Ok::<(), PatternError>(())
/// ```
#[track_caller]
pub fn edge_reduce(pattern: &Pattern, per: Per, features: Tensor<2>, reducer: Reducer) -> Tensor<2> {
    expect(try_edge_reduce(pattern, per, features, reducer))
}

/// [`edge_reduce`], with operands that do not fit as an error.
///
/// # Errors
/// If there is not one row of features for each edge, or the device lacks the dtype or is too small.
pub fn try_edge_reduce(
    pattern: &Pattern,
    per: Per,
    features: Tensor<2>,
    reducer: Reducer,
) -> Result<Tensor<2>, OpError> {
    let op = "edge_reduce";
    check_edges(op, pattern, &features)?;
    segment::reduce(op, &grouped(pattern, per), features, reducer)
}

/// The softmax of each feature over the edges of each row (column), or over all.
///
/// # Shapes
/// `features` and result are `[nnz, k]`, rows in the order of the values.
///
/// # Gradient
/// That of [`segment_softmax`](crate::segment_softmax).
///
/// # Panics
/// Where [`try_edge_softmax`] returns an error.
///
/// ```
/// use sparsegrad::{edge_softmax, prelude::*};
///
/// let graph = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
/// let scores = Tensor::<2>::from_data([[1.0, 6.0], [2.0, 500.0], [2.0, 0.0]], &Device::flex());
/// let weights = edge_softmax(&graph, Per::Row, scores);
/// assert_eq!(weights.to_data().try_to_vec::<f32>().unwrap(), [1.0, 1.0, 0.5, 1.0, 0.5, 0.0]);
/// # Ok::<(), PatternError>(())
/// ```
#[track_caller]
pub fn edge_softmax(pattern: &Pattern, per: Per, features: Tensor<2>) -> Tensor<2> {
    expect(try_edge_softmax(pattern, per, features))
}

/// [`edge_softmax`], with operands that do not fit as an error.
///
/// # Errors
/// If there is not one row of features for each edge, or the device lacks the dtype, exponentials of it, or is too small.
pub fn try_edge_softmax(pattern: &Pattern, per: Per, features: Tensor<2>) -> Result<Tensor<2>, OpError> {
    let op = "edge_softmax";
    check_edges(op, pattern, &features)?;
    segment::softmax(op, &grouped(pattern, per), features, Softmax { log: false })
}

/// The pattern whose rows are what is reduced to one, with values in the same order.
fn grouped(pattern: &Pattern, per: Per) -> Pattern {
    match per {
        Per::Row => pattern.clone(),
        Per::Column => pattern.t(),
        Per::Matrix => pattern.in_one_row(),
    }
}

/// Whether there are features for each edge.
fn check_edges(op: &'static str, pattern: &Pattern, features: &Tensor<2>) -> Result<(), OpError> {
    let operand = Operand::from(features);
    let what = "pattern and features must agree: a row of features for each stored entry";
    let wanted = operand.with_shape(&[pattern.nnz(), features.dims()[1]]);
    Check { op }.shapes(features.dims()[0] == pattern.nnz(), what, &wanted, &operand)
}

/// The dot products of the two ends of each edge, for each head: `<x_i, y_j>` over `d` columns. With one head it is
/// [`sddmm`](crate::sddmm).
///
/// # Shapes
/// `x` is m x heads x d, `y` is n x heads x d, the result `[nnz, heads]`, rows in the order of the values.
///
/// # Gradient
/// With g that of the result: `dx_i = sum of g_e y_j` and `dy_j = sum of g_e x_i` for each head, [`edge_mm`] with the pattern and
/// with its transpose.
///
/// # Panics
/// Where [`try_edge_dot`] returns an error.
///
/// ```
/// use sparsegrad::{edge_dot, edge_mm, edge_softmax, prelude::*};
///
/// // softmax(Q K^T / sqrt d) V on the edges of a graph. Q, K, V: nodes x heads x d.
/// let device = Device::flex();
/// let graph = Pattern::csr([0, 2, 3, 5], [0, 2, 1, 0, 1], [3, 3])?;
/// let heads = || Tensor::<3>::random([3, 4, 8], Distribution::Default, &device);
/// let scores = edge_dot(&graph, heads(), heads()).div_scalar(8f64.sqrt()); // nnz x heads
/// let z = edge_mm(&graph, edge_softmax(&graph, Per::Row, scores), heads());
/// assert_eq!(z.dims(), [3, 4, 8]);
/// # Ok::<(), PatternError>(())
/// ```
#[track_caller]
pub fn edge_dot(pattern: &Pattern, x: Tensor<3>, y: Tensor<3>) -> Tensor<2> {
    expect(try_edge_dot(pattern, x, y))
}

/// [`edge_dot`], with operands that do not fit as an error.
///
/// # Errors
/// If rows of `x` do not match the rows of the pattern, those of `y` its columns, or heads, columns, dtypes or devices differ.
pub fn try_edge_dot(pattern: &Pattern, x: Tensor<3>, y: Tensor<3>) -> Result<Tensor<2>, OpError> {
    let op = "edge_dot";
    let (left, right) = (Operand::from(&x), Operand::from(&y));
    let fits = x.dims()[1..] == y.dims()[1..];
    Check { op }.shapes(fits, "heads and columns of x and y must agree", &left, &right)?;
    let heads = x.dims()[1];
    check_ends(op, pattern, Per::Row, &x)?;
    check_ends(op, pattern, Per::Column, &y)?;
    Check { op }.compatible(&left, &right)?;
    let [x, y] = [x, y].map(|x| side_by_side(x).into_dispatch());
    if heads == 1 {
        let values = <Dispatch as super::sddmm::SddmmOps>::sddmm(pattern.clone(), x, y);
        return Ok(reshape(Tensor::<1>::from_dispatch(values), [pattern.nnz(), 1]));
    }
    Ok(Tensor::from_dispatch(<Dispatch as EdgeOps>::edge_dot(pattern.clone(), x, y, heads)))
}

/// Sums over the edges of each row, weighted: `z_i = sum of w_e y_j` for each head. With one head it is
/// [`sparse_mm`](crate::sparse_mm); with one column a head it weighs each feature on its own.
///
/// # Shapes
/// `weights` are `[nnz, heads]`, rows in the order of the values, `y` is n x heads x d, the result m x heads x d.
///
/// # Gradient
/// With g that of the result: `dw_e = <g_i, y_j>` for each head, an [`edge_dot`]; `dy_j = sum of w_e g_i`, an `edge_mm` with the
/// transpose.
///
/// # Panics
/// Where [`try_edge_mm`] returns an error.
///
/// ```
/// use sparsegrad::{edge_mm, prelude::*};
///
/// let device = Device::flex();
/// let graph = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
/// let weights = Tensor::<2>::from_data([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], &device); // two heads
/// let z = edge_mm(&graph, weights, Tensor::ones([3, 2, 1], &device));
/// assert_eq!(z.to_data().try_to_vec::<f32>().unwrap(), [1.0, 10.0, 5.0, 50.0]);
/// # Ok::<(), PatternError>(())
/// ```
#[track_caller]
pub fn edge_mm(pattern: &Pattern, weights: Tensor<2>, y: Tensor<3>) -> Tensor<3> {
    expect(try_edge_mm(pattern, weights, y))
}

/// [`edge_mm`], with operands that do not fit as an error.
///
/// # Errors
/// If there is not one row of weights for each edge, rows of `y` do not match the columns of the pattern, or heads, dtypes or
/// devices differ.
pub fn try_edge_mm(pattern: &Pattern, weights: Tensor<2>, y: Tensor<3>) -> Result<Tensor<3>, OpError> {
    let op = "edge_mm";
    check_edges(op, pattern, &weights)?;
    let (left, right) = (Operand::from(&weights), Operand::from(&y));
    let [n, heads, d] = y.dims();
    Check { op }.shapes(weights.dims()[1] == heads, "heads of weights and y must agree", &left, &right)?;
    let at = right.with_shape(&pattern.shape());
    let what = "columns of the pattern and rows of y must agree";
    Check { op }.shapes(n == pattern.shape()[1], what, &at, &right)?;
    Check { op }.compatible(&left, &right)?;
    let [m, _] = pattern.shape();
    let dense = [("y", [n, heads * d]), ("the weights", weights.dims()), ("the result", [m, heads * d])];
    device_can(op, &y, pattern, &dense)?;
    let dense = side_by_side(y).into_dispatch();
    let product = if heads == 1 {
        let values = reshape::<2, 1>(weights, [pattern.nnz()]).into_dispatch();
        <Dispatch as super::spmm::SpmmOps>::spmm(pattern.clone(), values, dense)
    } else {
        <Dispatch as EdgeOps>::edge_mm(pattern.clone(), weights.into_dispatch(), dense)
    };
    Ok(reshape(Tensor::<2>::from_dispatch(product), [m, heads, d]))
}

/// The columns of all heads beside each other.
fn side_by_side(x: Tensor<3>) -> Tensor<2> {
    let [rows, heads, d] = x.dims();
    reshape(x, [rows, heads * d])
}

#[cfg(feature = "flex")]
impl EdgeOps for burn::backend::Flex {
    fn edge_op(
        pattern: Pattern,
        mut left: FloatTensor<Self>,
        mut right: FloatTensor<Self>,
        op: EdgeOp,
    ) -> FloatTensor<Self> {
        let shape = features_shape(&pattern, &left.shape());
        with_float!(left.dtype(), E => {
            let (left, right) = (flex::matrix::<E>(&mut left), flex::matrix::<E>(&mut right));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every element.
                unsafe { flex::filled(shape, |out| cpu::combine(rows, left, right, op, out)) }
            })
        })
    }

    fn edge_dot(
        pattern: Pattern,
        mut x: FloatTensor<Self>,
        mut y: FloatTensor<Self>,
        heads: usize,
    ) -> FloatTensor<Self> {
        with_float!(x.dtype(), E => {
            let (x, y) = (flex::matrix::<E>(&mut x), flex::matrix::<E>(&mut y));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every element.
                unsafe { flex::filled(heads_shape(&pattern, heads), |out| cpu::dot(rows, x, y, heads, out)) }
            })
        })
    }

    fn edge_mm(pattern: Pattern, mut weights: FloatTensor<Self>, mut dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = segment::rows_shape(&pattern, &dense.shape());
        with_float!(dense.dtype(), E => {
            let (weights, dense) = (flex::matrix::<E>(&mut weights), flex::matrix::<E>(&mut dense));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every row.
                unsafe { flex::filled(shape, |out| cpu::weighted(rows, weights, dense, out)) }
            })
        })
    }
}
