//! Multiples, and scaling of rows and columns.

use crate::backend::check::{Check, Operand, expect};
use crate::error::OpError;
use crate::ops::sddmm::try_sddmm;
use crate::tensor::{SparseTensor, reshape};
use burn::tensor::Tensor;

const OP: &str = "scale";

impl<const D: usize> SparseTensor<D> {
    /// Every stored entry times a number.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::eye(2, &Device::flex())?.mul_scalar(3.0);
    /// assert_eq!(a.get(1, 1)?, Some(3.0));
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn mul_scalar(&self, factor: f64) -> Self {
        self.map_values(|values| values.mul_scalar(factor))
    }

    /// Every stored entry divided by a number. Absent entries stay absent, also where it is 0.
    pub fn div_scalar(&self, divisor: f64) -> Self {
        if self.nnz() == 0 {
            return self.clone();
        }
        // By a tensor: the gradient of Burn's `div_scalar` is a multiple in f32, whatever the dtype.
        let divisor = Tensor::full([1], divisor, (&self.device(), self.dtype()));
        self.map_values(|values| values / divisor)
    }

    /// `diag(r) self diag(c)` of the block-diagonal matrix, with vectors of its rows and columns, ones where there are none.
    fn scaled_by(&self, rows: Option<Tensor<1>>, columns: Option<Tensor<1>>) -> Result<Self, OpError> {
        let [m, n] = self.pattern().shape();
        let column = |vector: Option<Tensor<1>>, length: usize| match vector {
            Some(vector) => reshape(vector, [length, 1]),
            // There is nothing to fill, and Burn's own would try.
            None if length == 0 => Tensor::empty([0, 1], (&self.device(), self.dtype())),
            None => Tensor::ones([length, 1], (&self.device(), self.dtype())),
        };
        let factors = try_sddmm(self.pattern(), column(rows, m), column(columns, n))?;
        Ok(self.rebuilt(self.pattern().clone(), self.values().clone() * factors.values().clone()))
    }

    fn check_vector<const E: usize>(
        &self,
        what: &'static str,
        vector: &Tensor<E>,
        shape: &[usize],
    ) -> Result<(), OpError> {
        let (check, left, right) =
            (Check { op: OP }, Operand::sparse(&self.shape(), self.values()), Operand::from(vector));
        check.shapes(vector.dims()[..] == *shape, what, &left, &right)?;
        check.compatible(&left, &right)
    }
}

macro_rules! scale {
    ($d:literal, $v:literal, $shapes:literal, $rows:expr, $columns:expr) => {
        impl SparseTensor<$d> {
            #[doc = concat!("`diag(r) A diag(c)`: row i times `r_i`, column j times `c_j`. ", $shapes)]
            ///
            /// # Gradient
            /// Of the entries: `r_i c_j` times that of the result. Of `r` and `c`: dense, `dr_i` = the sum over row i of the gradient
            /// times `a_ij c_j`, `dc_j` likewise.
            ///
            /// # Panics
            /// Where [`try_scale`](Self::try_scale) returns an error.
            #[track_caller]
            pub fn scale(&self, r: Tensor<$v>, c: Tensor<$v>) -> Self {
                expect(self.try_scale(r, c))
            }

            /// [`scale`](Self::scale), with operands that do not fit as an error.
            ///
            /// # Errors
            /// If a vector has another length, dtype or device.
            pub fn try_scale(&self, r: Tensor<$v>, c: Tensor<$v>) -> Result<Self, OpError> {
                self.check_vector("a number for each row", &r, &$rows(self.shape()))?;
                self.check_vector("a number for each column", &c, &$columns(self.shape()))?;
                let [m, n] = self.pattern().shape();
                self.scaled_by(Some(reshape(r, [m])), Some(reshape(c, [n])))
            }

            #[doc = concat!("`diag(r) A`: row i times `r_i`. ", $shapes)]
            ///
            /// # Panics
            /// Where [`try_scale_rows`](Self::try_scale_rows) returns an error.
            #[track_caller]
            pub fn scale_rows(&self, r: Tensor<$v>) -> Self {
                expect(self.try_scale_rows(r))
            }

            /// [`scale_rows`](Self::scale_rows), with operands that do not fit as an error.
            ///
            /// # Errors
            /// If the vector has another length, dtype or device.
            pub fn try_scale_rows(&self, r: Tensor<$v>) -> Result<Self, OpError> {
                self.check_vector("a number for each row", &r, &$rows(self.shape()))?;
                let [m, _] = self.pattern().shape();
                self.scaled_by(Some(reshape(r, [m])), None)
            }

            #[doc = concat!("`A diag(c)`: column j times `c_j`. ", $shapes)]
            ///
            /// # Panics
            /// Where [`try_scale_columns`](Self::try_scale_columns) returns an error.
            #[track_caller]
            pub fn scale_columns(&self, c: Tensor<$v>) -> Self {
                expect(self.try_scale_columns(c))
            }

            /// [`scale_columns`](Self::scale_columns), with operands that do not fit as an error.
            ///
            /// # Errors
            /// If the vector has another length, dtype or device.
            pub fn try_scale_columns(&self, c: Tensor<$v>) -> Result<Self, OpError> {
                self.check_vector("a number for each column", &c, &$columns(self.shape()))?;
                let [_, n] = self.pattern().shape();
                self.scaled_by(None, Some(reshape(c, [n])))
            }
        }
    };
}
scale!(2, 1, "`r` has m elements, `c` has n.", |[m, _]: [usize; 2]| [m], |[_, n]: [usize; 2]| [n]);
scale!(3, 2, "`r` is items x m, `c` is items x n.", |[b, m, _]: [usize; 3]| [b, m], |[b, _, n]: [usize; 3]| [b, n]);
