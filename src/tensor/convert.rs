//! Conversions: all differentiable in the values, and none drops a stored zero or a duplicate.

use super::SparseTensor;
use crate::ops::{
    dense,
    gather::{gather, in_row_order},
};
use crate::pattern::Conversion;
use burn::tensor::Tensor;

impl<const D: usize> SparseTensor<D> {
    /// In compressed sparse rows; as it is, if it is that already.
    pub fn to_csr(&self) -> Self {
        self.converted(self.pattern().to_csr())
    }

    /// In compressed sparse columns.
    pub fn to_csc(&self) -> Self {
        self.converted(self.pattern().to_csc())
    }

    /// In coordinates, rows ascending.
    pub fn to_coo(&self) -> Self {
        self.converted(self.pattern().to_coo())
    }

    /// Sorted, each position stored once: duplicates are summed in the order of storage. Stored zeros stay, sums that
    /// cancel too. The gradient of a sum goes to each of its duplicates in full.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::from_coo(&[2, 0, 2], &[1, 0, 1], &[1.0f32, 5.0, 3.0], [3, 2], &device)?;
    /// let c = a.coalesce();
    /// assert_eq!(c.values().to_data().try_to_vec::<f32>().unwrap(), [5.0, 4.0]);
    /// assert_eq!(c.pattern().format(), TensorFormat::coo());
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn coalesce(&self) -> Self {
        self.converted(self.pattern().coalesce())
    }

    /// The transposed matrix, or matrices, with entries in the order of its own format, which is that of this tensor:
    /// [`t`](Self::t), sorted. Stored zeros and duplicates stay.
    ///
    /// # Gradient
    /// Each entry's, at its old place.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 2, 1], &[1.0f32, 0.0, 3.0], [2, 3], &Device::flex())?;
    /// let t = a.transpose();
    /// assert_eq!(t.pattern().format(), a.pattern().format());
    /// assert_eq!(t.values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0, 0.0]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn transpose(&self) -> Self {
        // In this order: sorting takes the values along.
        let values = in_row_order(&self.pattern().transposed_order(), self.values().clone());
        self.t().rebuilt(self.pattern().transposed(), values)
    }

    fn converted(&self, conversion: Conversion) -> Self {
        self.converted_to(conversion, self.shape())
    }

    /// At the pattern of a conversion, which is of this shape.
    pub(crate) fn converted_to(&self, Conversion { pattern, gather: map }: Conversion, shape: [usize; D]) -> Self {
        let values = self.values().clone();
        let values = match &map {
            Some(map) => gather(map, values),
            None => values,
        };
        Self::from_fitting(pattern, shape, values)
    }
}

impl SparseTensor<2> {
    /// The dense matrix, duplicates summed.
    ///
    /// # Gradient
    /// Of each stored entry: that of its element.
    pub fn to_dense(&self) -> Tensor<2> {
        dense::to_dense(self.pattern(), self.values().clone())
    }
}
