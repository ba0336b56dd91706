//! **add**: sums, entrywise products and scalings of sparse matrices, and functions of their entries.
//!
//! | operation | computes | pattern of the result |
//! |---|---|---|
//! | [`csr_add`], [`add_dense`](SparseTensor::add_dense), `&a + d` | `D + A` | dense |
//! | [`sparse_add`], `&a + &b`, `&a - &b`, [`linear_combination`](SparseTensor::linear_combination) | `alpha A + beta B` | the union |
//! | [`sparse_mul`], `&a * &b` | `a_ij b_ij` (Hadamard) | the intersection |
//! | [`mul_dense`](SparseTensor::mul_dense), [`div_dense`](SparseTensor::div_dense), `&a * d` | `a_ij d_ij`, `a_ij / d_ij` | A's own |
//! | [`mul_scalar`](SparseTensor::mul_scalar), [`div_scalar`](SparseTensor::div_scalar), `-&a` | `alpha A` | A's own |
//! | [`scale`](SparseTensor::scale), [`scale_rows`](SparseTensor::scale_rows), [`scale_columns`](SparseTensor::scale_columns) | `diag(r) A diag(c)` | A's own |
//! | [`map_coalesced`](SparseTensor::map_coalesced), [`abs`](SparseTensor::abs), [`powi`](SparseTensor::powi), ... | `f(a_ij)` | A's, each position once |
//!
//! | | |
//! |---|---|
//! | formats | every format; unions and intersections are sorted, each position once, in CSC if both operands are, in CSR otherwise; operands of one pattern keep it |
//! | duplicates | count as the one entry that they sum to, wherever the operation is not linear |
//! | absent entries | are 0 in a sum and stay absent elsewhere: `0 * inf` and `0 / 0` arise from stored zeros only |
//! | pattern | structural: nothing is dropped where numbers cancel |
//! | dtypes | f32, f64; f16 and bf16, each step rounded |
//! | gradient | to every operand: of sparse ones at their own pattern, of dense ones and of vectors dense |
//! | reproducible | each value has one owner and adds in storage order |
//!
//! Unions and intersections are planned on the host once for two patterns, and kept with the first. All else is written with
//! other primitives: [gather](super::gather), [dense], [sddmm](super::sddmm) with one column.

mod maps;
mod merge;
mod operators;
mod scale;

use super::dense;
use crate::backend::check::{Check, Operand, expect};
use crate::error::OpError;
use crate::pattern::Pattern;
use crate::tensor::{SparseTensor, reshape};
use burn::tensor::Tensor;

fn operand<const D: usize>(tensor: &SparseTensor<D>) -> Operand {
    Operand::sparse(&tensor.shape(), tensor.values())
}

/// That `a` and an operand of this shape fit.
fn check<const D: usize>(
    op: &'static str,
    a: &SparseTensor<D>,
    shape: [usize; D],
    right: &Operand,
) -> Result<(), OpError> {
    let (check, left) = (Check { op }, operand(a));
    check.shapes(a.shape() == shape, "both must have the same shape", &left, right)?;
    check.compatible(&left, right)
}

fn scaled(values: &Tensor<1>, factor: f64) -> Tensor<1> {
    match factor {
        1.0 => values.clone(),
        -1.0 => values.clone().neg(),
        _ => values.clone().mul_scalar(factor),
    }
}

/// `a + b`: see [`SparseTensor::linear_combination`].
///
/// # Panics
/// Where [`try_sparse_add`] returns an error.
///
/// ```
/// use sparsegrad::{ops::add::sparse_add, prelude::*};
///
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1], &[0, 1], &[1.0f32, 2.0], [2, 2], &device)?.require_grad();
/// let b = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[5.0f32, 7.0], [2, 2], &device)?.require_grad();
/// let sum = sparse_add(&a, &b); // or &a + &b
/// assert_eq!(sum.triplets()?.collect::<Vec<_>>(), [(0, 0, 6.0), (0, 1, 7.0), (1, 1, 2.0)]);
/// let grads = sum.map_values(|v| v.powi_scalar(2)).values().clone().sum().backward();
/// assert_eq!(b.grad(&grads).unwrap().values().to_data().try_to_vec::<f32>().unwrap(), [12.0, 14.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn sparse_add<const D: usize>(a: &SparseTensor<D>, b: &SparseTensor<D>) -> SparseTensor<D> {
    expect(try_sparse_add(a, b))
}

/// [`sparse_add`], with operands that do not fit as an error.
///
/// # Errors
/// If shapes, dtypes or devices differ.
pub fn try_sparse_add<const D: usize>(a: &SparseTensor<D>, b: &SparseTensor<D>) -> Result<SparseTensor<D>, OpError> {
    combine("sparse_add", a, 1.0, b, 1.0)
}

fn combine<const D: usize>(
    op: &'static str,
    a: &SparseTensor<D>,
    alpha: f64,
    b: &SparseTensor<D>,
    beta: f64,
) -> Result<SparseTensor<D>, OpError> {
    check(op, a, b.shape(), &operand(b))?;
    let (left, right) = (scaled(a.values(), alpha), scaled(b.values(), beta));
    if a.same_pattern(b) {
        return Ok(a.rebuilt(a.pattern().clone(), left + right));
    }
    let union = merge::union(a.pattern(), b.pattern());
    let values = union.values(0, &left) + union.values(1, &right);
    Ok(a.rebuilt(union.pattern, values))
}

/// The entrywise (Hadamard) product of two sparse matrices, or batches, at the positions that both store.
///
/// # Gradient
/// Of each: the gradient of the result times the other's entry; 0 where the other stores nothing. Each duplicate of a
/// position has the position's.
///
/// # Panics
/// Where [`try_sparse_mul`] returns an error.
///
/// ```
/// use sparsegrad::{ops::add::sparse_mul, prelude::*};
///
/// let device = Device::flex();
/// let a = SparseTensor::from_triplets(&[0, 1], &[0, 1], &[3.0f32, 2.0], [2, 2], &device)?;
/// let b = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[5.0f32, 7.0], [2, 2], &device)?;
/// let product = sparse_mul(&a, &b); // or &a * &b
/// assert_eq!(product.triplets()?.collect::<Vec<_>>(), [(0, 0, 15.0)]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn sparse_mul<const D: usize>(a: &SparseTensor<D>, b: &SparseTensor<D>) -> SparseTensor<D> {
    expect(try_sparse_mul(a, b))
}

/// [`sparse_mul`], with operands that do not fit as an error.
///
/// # Errors
/// If shapes, dtypes or devices differ.
pub fn try_sparse_mul<const D: usize>(a: &SparseTensor<D>, b: &SparseTensor<D>) -> Result<SparseTensor<D>, OpError> {
    check("sparse_mul", a, b.shape(), &operand(b))?;
    if a.same_pattern(b) && !a.pattern().has_duplicates() {
        return Ok(a.rebuilt(a.pattern().clone(), a.values().clone() * b.values().clone()));
    }
    let common = merge::common(a.pattern(), b.pattern());
    let values = common.values(0, a.values()) * common.values(1, b.values());
    Ok(a.rebuilt(common.pattern, values))
}

/// `d + a`, dense: as a method, [`SparseTensor::add_dense`]. In place where `d` is given away, otherwise one copy of it is made.
///
/// # Panics
/// Where [`try_csr_add`] returns an error.
///
/// ```
/// use sparsegrad::{ops::add::csr_add, prelude::*};
///
/// let device = Device::flex();
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[3.0f32, 2.0], [2, 2], &device)?;
/// let sum = csr_add(&a, Tensor::ones([2, 2], &device));
/// assert_eq!(sum.to_data().try_to_vec::<f32>().unwrap(), [1.0, 4.0, 3.0, 1.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn csr_add<const D: usize>(a: &SparseTensor<D>, d: Tensor<D>) -> Tensor<D> {
    expect(try_csr_add(a, d))
}

/// [`csr_add`], with operands that do not fit as an error.
///
/// # Errors
/// If shapes, dtypes or devices differ.
pub fn try_csr_add<const D: usize>(a: &SparseTensor<D>, d: Tensor<D>) -> Result<Tensor<D>, OpError> {
    check("csr_add", a, d.dims(), &Operand::from(&d))?;
    let (stacked, shape) = a.stacked();
    let sum = dense::add_to_dense(&stacked, a.values().clone(), reshape(d, shape));
    Ok(reshape(sum, a.shape()))
}

impl<const D: usize> SparseTensor<D> {
    /// `alpha self + beta b`, at every position that one of the two stores: sorted, each position once, unless both have one
    /// pattern, which stays.
    ///
    /// # Gradient
    /// Of each: the gradient of the result at its entries, times its factor. Each duplicate has it in full.
    ///
    /// # Panics
    /// Where [`try_linear_combination`](Self::try_linear_combination) returns an error.
    #[track_caller]
    pub fn linear_combination(&self, alpha: f64, b: &Self, beta: f64) -> Self {
        expect(self.try_linear_combination(alpha, b, beta))
    }

    /// [`linear_combination`](Self::linear_combination), with operands that do not fit as an error.
    ///
    /// # Errors
    /// If shapes, dtypes or devices differ.
    pub fn try_linear_combination(&self, alpha: f64, b: &Self, beta: f64) -> Result<Self, OpError> {
        combine("linear_combination", self, alpha, b, beta)
    }

    /// `self + d`, dense. Of a batch: item by item.
    ///
    /// # Gradient
    /// Of `d`: that of the result; of `self`: the same at its entries.
    ///
    /// # Panics
    /// If shapes, dtypes or devices differ ([`try_csr_add`] returns that as an error).
    #[track_caller]
    pub fn add_dense(&self, d: Tensor<D>) -> Tensor<D> {
        csr_add(self, d)
    }

    /// `a_ij d_ij` at this pattern: absent entries never touch `d`.
    ///
    /// # Gradient
    /// Of each stored entry: the gradient times its element of `d`. Of `d`: dense, 0 outside of the pattern.
    ///
    /// # Panics
    /// Where [`try_mul_dense`](Self::try_mul_dense) returns an error.
    #[track_caller]
    pub fn mul_dense(&self, d: Tensor<D>) -> Self {
        expect(self.try_mul_dense(d))
    }

    /// [`mul_dense`](Self::mul_dense), with operands that do not fit as an error.
    ///
    /// # Errors
    /// If shapes, dtypes or devices differ.
    pub fn try_mul_dense(&self, d: Tensor<D>) -> Result<Self, OpError> {
        let d = self.sampled("mul_dense", d)?;
        Ok(self.rebuilt(self.pattern().clone(), self.values().clone() * d))
    }

    /// `a_ij / d_ij` at this pattern: absent entries never touch `d`.
    ///
    /// # Panics
    /// Where [`try_div_dense`](Self::try_div_dense) returns an error.
    #[track_caller]
    pub fn div_dense(&self, d: Tensor<D>) -> Self {
        expect(self.try_div_dense(d))
    }

    /// [`div_dense`](Self::div_dense), with operands that do not fit as an error.
    ///
    /// # Errors
    /// If shapes, dtypes or devices differ.
    pub fn try_div_dense(&self, d: Tensor<D>) -> Result<Self, OpError> {
        let d = self.sampled("div_dense", d)?;
        Ok(self.rebuilt(self.pattern().clone(), self.values().clone() / d))
    }

    /// The elements of a dense operand at the entries.
    fn sampled(&self, op: &'static str, d: Tensor<D>) -> Result<Tensor<1>, OpError> {
        check(op, self, d.dims(), &Operand::from(&d))?;
        let (stacked, shape) = self.stacked();
        Ok(dense::sample(&stacked, reshape(d, shape)))
    }

    /// The pattern with the items of a batch below each other, and its shape: as dense tensors lie.
    fn stacked(&self) -> (Pattern, [usize; 2]) {
        let items: usize = self.shape()[..D - 2].iter().product();
        let pattern = if D == 2 { self.pattern().clone() } else { self.pattern().stacked(items) };
        (pattern, [items * self.shape()[D - 2], self.shape()[D - 1]])
    }
}
