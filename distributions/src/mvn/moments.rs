//! Mean, variance, and the matrices themselves.

use super::layout::expand;
use super::{Factor, Form, MvnError, SparseMultivariateNormal};
use burn::tensor::Tensor;
use sparsegrad::internals::reshape;
use sparsegrad::{SparseTensor, sparse_add, spgemm};

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The mean, of the shape `[*batch, n]`: the location.
    pub fn mean(&self) -> Tensor<D> {
        self.loc.clone()
    }

    /// The mode, of the shape `[*batch, n]`: the location.
    pub fn mode(&self) -> Tensor<D> {
        self.loc.clone()
    }

    /// The variance of each number, of the location's shape: the diagonal of the covariance.
    ///
    /// # Errors
    /// For a precision form: its covariance isn't sparse.
    pub fn variance(&self) -> Result<Tensor<D>, MvnError> {
        let squares = match self.form {
            Form::CovarianceLlt | Form::CovarianceLdlt => self.factor.matrix().coalesce().powi(2),
            form => {
                let reason = "is that of a dense inverse: take samples, or solve for the entries that are needed";
                return Err(MvnError::Form { what: "the variance", form, reason });
            }
        };
        // Rows of L o L, summed with the weights D.
        let weights = self.diagonal_columns().unwrap_or_else(|| {
            let [m, _, _] = self.column_shape(1);
            Tensor::ones([m, 1, 1], (&self.device(), self.dtype()))
        });
        let [m, _, i] = weights.dims();
        let flat = reshape(weights.clone(), [m, i]);
        let sums = reshape(squares.matmul(flat), [m, 1, i]);
        let variance = if self.form.is_ldlt() { sums + weights } else { sums };
        let [_, _, items] = self.column_shape(1);
        let variance = self.rows(expand(variance, [m, 1, items]));
        Ok(reshape(variance, self.loc.dims()))
    }

    /// The covariance of a covariance form, as a sparse matrix: n x n, or the batch as items x n x n.
    ///
    /// # Errors
    /// For a precision form: its covariance isn't sparse. For items with a diagonal of their own and a common factor.
    pub fn covariance(&self) -> Result<Factor, MvnError> {
        if self.form.is_precision() {
            let reason = "is a dense inverse: ask for the precision";
            return Err(MvnError::Form { what: "the covariance", form: self.form, reason });
        }
        self.product("the covariance")
    }

    /// The precision of a precision form, as a sparse matrix: n x n, or the batch as items x n x n.
    ///
    /// # Errors
    /// For a covariance form: its precision isn't sparse. For items with a diagonal of their own and a common factor.
    pub fn precision(&self) -> Result<Factor, MvnError> {
        if !self.form.is_precision() {
            let reason = "is a dense inverse: ask for the covariance";
            return Err(MvnError::Form { what: "the precision", form: self.form, reason });
        }
        self.product("the precision")
    }

    /// `L L^T`, or `(I + L) D (I + L)^T`.
    fn product(&self, what: &'static str) -> Result<Factor, MvnError> {
        let root = self.root(what)?;
        let product = spgemm(&root, &root.t());
        Ok(match &self.factor {
            Factor::Shared(_) => Factor::Shared(product),
            Factor::Each(_) => Factor::Each(SparseTensor::from_block_diagonal(product, self.items())?),
        })
    }

    /// The matrix R with `R R^T` = covariance or precision, sparse: L, or `(I + L) sqrt(D)`. Of a batch, block-diagonal.
    pub(super) fn root(&self, what: &'static str) -> Result<SparseTensor<2>, MvnError> {
        let factor = self.factor.matrix();
        let Some(diagonal) = self.diagonal_columns() else {
            return Ok(factor);
        };
        let [m, _, i] = diagonal.dims();
        if i > 1 {
            let reason = "is another for each item: give each item its own factor";
            return Err(MvnError::Form { what, form: self.form, reason });
        }
        let identity = SparseTensor::eye_of(m, self.dtype(), &self.device())?;
        let unit = sparse_add(&identity, &factor.to_csr());
        Ok(unit.scale_columns(reshape(diagonal.sqrt(), [m])))
    }
}
