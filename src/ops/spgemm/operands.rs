//! Which sparse operands can be multiplied: matrices, batches item by item, and a batch with a matrix that all items share.
//!
//! Each pair is brought to two matrices whose product holds all items, so that a shared operand's gradient is the sum over
//! them, in their order.

use super::OP;
use crate::backend::check::{Check, Operand, device_can};
use crate::error::{OpError, PatternError};
use crate::ops::gather::gather;
use crate::pattern::Pattern;
use crate::tensor::SparseTensor;
use burn::tensor::Tensor;

/// Sparse operands that can be multiplied with each other.
pub trait SparseProduct<B> {
    /// The product: a matrix of two matrices, a batch otherwise.
    type Output;

    /// Two matrices whose product holds that of all items.
    ///
    /// # Errors
    /// If the operands do not fit.
    #[doc(hidden)]
    fn operands(&self, b: &B) -> Result<Operands, OpError>;

    /// The product from that of the two.
    ///
    /// # Errors
    /// If it is too large to index.
    #[doc(hidden)]
    fn product(&self, b: &B, pattern: &Pattern, values: Tensor<1>) -> Result<Self::Output, OpError>;
}

/// Two matrices to be multiplied.
#[derive(Debug)]
pub struct Operands {
    pub(super) left: SparseTensor<2>,
    pub(super) right: SparseTensor<2>,
}

impl<const D: usize> SparseProduct<SparseTensor<D>> for SparseTensor<D> {
    type Output = SparseTensor<D>;

    fn operands(&self, b: &SparseTensor<D>) -> Result<Operands, OpError> {
        check(self, b)?;
        Ok(Operands { left: one_matrix(self), right: one_matrix(b) })
    }

    fn product(&self, b: &SparseTensor<D>, pattern: &Pattern, values: Tensor<1>) -> Result<Self::Output, OpError> {
        let mut shape = self.shape();
        shape[D - 1] = b.shape()[D - 1];
        Ok(SparseTensor::from_fitting(pattern.clone(), shape, values))
    }
}

/// One matrix for all items on the right: along the diagonal as often as there are items.
impl SparseProduct<SparseTensor<3>> for SparseTensor<2> {
    type Output = SparseTensor<3>;

    fn operands(&self, b: &SparseTensor<3>) -> Result<Operands, OpError> {
        check(self, b)?;
        Ok(Operands { left: repeated(self, b.shape()[0])?, right: one_matrix(b) })
    }

    fn product(&self, b: &SparseTensor<3>, pattern: &Pattern, values: Tensor<1>) -> Result<Self::Output, OpError> {
        let ([m, _], [items, _, n]) = (self.shape(), b.shape());
        Ok(SparseTensor::from_fitting(pattern.clone(), [items, m, n], values))
    }
}

/// One matrix for all items on the left, which lie below each other.
impl SparseProduct<SparseTensor<2>> for SparseTensor<3> {
    type Output = SparseTensor<3>;

    fn operands(&self, b: &SparseTensor<2>) -> Result<Operands, OpError> {
        check(self, b)?;
        let items = self.shape()[0];
        if items == 0 {
            return Ok(Operands { left: one_matrix(self), right: repeated(b, items)? });
        }
        let left = SparseTensor::from_checked(self.pattern().stacked(items), self.values().clone());
        Ok(Operands { left, right: b.clone() })
    }

    fn product(&self, b: &SparseTensor<2>, pattern: &Pattern, values: Tensor<1>) -> Result<Self::Output, OpError> {
        let ([items, m, _], [_, n]) = (self.shape(), b.shape());
        let pattern = pattern.spread(items, n).map_err(too_large)?;
        Ok(SparseTensor::from_fitting(pattern, [items, m, n], values))
    }
}

/// That two operands can be multiplied.
pub(super) fn check<const D: usize, const E: usize>(a: &SparseTensor<D>, b: &SparseTensor<E>) -> Result<(), OpError> {
    let (left, right) = (Operand::sparse(&a.shape(), a.values()), Operand::sparse(&b.shape(), b.values()));
    let check = Check { op: OP };
    let items = D != E || a.shape()[..D - 2] == b.shape()[..E - 2];
    check.shapes(items, "A and B must have as many items", &left, &right)?;
    let what = "columns of A and rows of B must agree";
    check.shapes(a.shape()[D - 1] == b.shape()[E - 2], what, &left, &right)?;
    check.compatible(&left, &right)
}

/// The items of a batch along the diagonal.
fn one_matrix<const D: usize>(tensor: &SparseTensor<D>) -> SparseTensor<2> {
    SparseTensor::from_checked(tensor.pattern().clone(), tensor.values().clone())
}

/// The same matrix so many times along the diagonal.
fn repeated(matrix: &SparseTensor<2>, items: usize) -> Result<SparseTensor<2>, OpError> {
    let repeated = matrix.pattern().repeated(items).map_err(too_large)?;
    let Some(map) = repeated.gather else {
        return Ok(matrix.clone());
    };
    device_can(OP, matrix.values(), &map, &[])?;
    Ok(SparseTensor::from_checked(repeated.pattern, gather(&map, matrix.values().clone())))
}

fn too_large(error: PatternError) -> OpError {
    let size = match error {
        PatternError::TooLarge { rows, columns } => rows.max(columns) as u128,
        other => unreachable!("a valid pattern stays one: {other}"),
    };
    OpError::Memory { op: OP, what: "rows and columns of all items", size }
}
