//! Batches of sparse matrices: ragged, each item with its own pattern, or all with one.
//!
//! A batch is one sparse matrix with the items along its diagonal, and knows how many they are. Values are one flat tensor,
//! item after item. Whatever works on a matrix works on a batch, at once for all items.

use super::{SparseTensor, read, reshape};
use crate::backend::check::{Check, Operand};
use crate::error::{OpError, TensorError};
use crate::ops::{dense, gather::gather};
use crate::pattern::{IntoIndices, Pattern};
use crate::tensor::IntoValues;
use burn::tensor::{Device, Tensor};
use std::ops::Range;

impl SparseTensor<3> {
    /// Puts matrices of one shape together; patterns, nnz and order are the items' own, and items may be empty.
    ///
    /// The batch is in the items' format if they have one, in CSR otherwise. The gradient of the batch is that of the items.
    ///
    /// # Errors
    /// If there is no item, or shapes, dtypes or devices differ.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[1.0f32, 2.0], [2, 2], &device)?;
    /// let b = SparseTensor::from_triplets(&[1], &[1], &[3.0f32], [2, 2], &device)?;
    /// let batch = SparseTensor::stack(&[a, b])?;
    /// assert_eq!((batch.shape(), batch.nnz()), ([2, 2, 2], 3));
    /// assert_eq!(batch.item(1).get(1, 1)?, Some(3.0));
    ///
    /// let x = Tensor::<3>::ones([2, 2, 1], &device);
    /// assert_eq!(batch.matmul(x).to_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0, 0.0, 3.0]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn stack(items: &[SparseTensor<2>]) -> Result<Self, TensorError> {
        let Some(first) = items.first() else {
            return Err(TensorError::NoItems);
        };
        for (item, tensor) in items.iter().enumerate() {
            if tensor.shape() != first.shape() {
                return Err(TensorError::ItemShape { item, shape: tensor.shape(), first: first.shape() });
            }
        }
        let [m, n] = first.shape();
        let block_diagonal = SparseTensor::block_diagonal(items)?;
        Ok(Self::from_parts([items.len(), m, n], block_diagonal))
    }

    /// A batch of values at one pattern: row b of `values` (items x nnz) are the values of item b.
    ///
    /// # Errors
    /// If a row has another length than the pattern, or the dtype is not a real one that the device has.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let pattern = Pattern::eye(2)?;
    /// let values = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::flex());
    /// let batch = SparseTensor::shared(&pattern, values)?;
    /// assert_eq!(batch.shape(), [3, 2, 2]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn shared(pattern: &Pattern, values: Tensor<2>) -> Result<Self, TensorError> {
        let [items, length] = values.dims();
        if length != pattern.nnz() {
            return Err(TensorError::ValuesLength { values: length, stored: pattern.nnz() });
        }
        let [m, n] = pattern.shape();
        let values = reshape(values, [items * length]);
        let matrix = SparseTensor::new(pattern.repeat(items)?, values)?;
        Ok(Self::from_parts([items, m, n], matrix))
    }

    /// From coordinates in any order, as CSR: items ascending, then rows, then in the order given. Duplicates are kept.
    ///
    /// # Errors
    /// If the four have different lengths, or an index is out of range.
    pub fn from_batched_triplets(
        batch: impl IntoIndices,
        rows: impl IntoIndices,
        columns: impl IntoIndices,
        values: impl IntoValues,
        shape: [usize; 3],
        device: &Device,
    ) -> Result<Self, TensorError> {
        let [items, m, n] = shape;
        let batch = batch.into_indices();
        // Rows and columns are checked as those of one item, in their own words.
        let item = Pattern::coo(rows, columns, [m, n])?;
        if batch.len() != item.nnz() {
            return Err(crate::error::PatternError::Lengths {
                first: "batch indices",
                first_length: batch.len(),
                second: "row indices",
                second_length: item.nnz(),
            }
            .into());
        }
        if let Some(position) = batch.position(|b| b < 0 || b as u64 >= items as u64) {
            return Err(TensorError::BatchIndex { position, value: batch.get(position), items });
        }
        let (mut rows, mut columns) = item.coordinates();
        for entry in 0..rows.len() {
            let item = batch.get(entry) as usize;
            rows[entry] += item * m;
            columns[entry] += item * n;
        }
        let size = |length: usize| items.checked_mul(length);
        let (Some(height), Some(width)) = (size(m), size(n)) else {
            return Err(crate::error::PatternError::TooLarge {
                rows: m.saturating_mul(items),
                columns: n.saturating_mul(items),
            }
            .into());
        };
        let matrix = SparseTensor::from_triplets(rows, columns, values, [height, width], device)?;
        Ok(Self::from_parts(shape, matrix))
    }

    /// The matrix of `items` equal blocks along its diagonal as a batch.
    ///
    /// # Errors
    /// If it does not divide into equal blocks, an entry lies outside of them, or entries don't stand block by block.
    pub fn from_block_diagonal(matrix: SparseTensor<2>, items: usize) -> Result<Self, TensorError> {
        let shape = matrix.shape();
        if items == 0 || shape.iter().any(|size| size % items != 0) {
            return Err(TensorError::Items { items, shape });
        }
        let [m, n] = shape.map(|size| size / items);
        matrix.pattern().split(&vec![[m, n]; items])?;
        Ok(Self::from_parts([items, m, n], matrix))
    }

    fn from_parts(shape: [usize; 3], matrix: SparseTensor<2>) -> Self {
        let (pattern, values) = matrix.into_parts();
        Self::from_blocks(shape, pattern, values)
    }

    /// From a block-diagonal pattern of so many equal blocks, and its values.
    pub(crate) fn from_blocks(shape: [usize; 3], pattern: Pattern, values: Tensor<1>) -> Self {
        Self { pattern, shape, values }
    }

    /// The batch as one matrix with the items along its diagonal, in the same values.
    pub fn to_block_diagonal(&self) -> SparseTensor<2> {
        SparseTensor::from_checked(self.pattern.clone(), self.values.clone())
    }

    /// Item `item`, in the batch's format.
    ///
    /// # Panics
    /// If there is no such item.
    #[track_caller]
    pub fn item(&self, item: usize) -> SparseTensor<2> {
        let [items, m, n] = self.shape;
        assert!(item < items, "item {item} of a batch of shape {items}x{m}x{n}");
        let (pattern, entries) = self.pattern.item(item, items);
        let values = part(&self.values, entries);
        SparseTensor::from_checked(pattern, values)
    }

    /// All items.
    pub fn unstack(&self) -> Vec<SparseTensor<2>> {
        (0..self.shape[0]).map(|item| self.item(item)).collect()
    }

    /// The dense matrices, items x rows x columns, duplicates summed.
    ///
    /// # Gradient
    /// Of each stored entry: that of its element.
    pub fn to_dense(&self) -> Tensor<3> {
        let stacked = self.pattern.stacked(self.shape[0]);
        reshape(dense::to_dense(&stacked, self.values.clone()), self.shape)
    }

    /// The elements of dense matrices (items x rows x columns) at this batch's pattern.
    ///
    /// # Errors
    /// If the shapes differ, or the dtype is not a real one.
    pub fn sample_at(&self, dense: Tensor<3>) -> Result<Self, OpError> {
        let check = Check { op: "sample" };
        let operand = Operand::from(&dense);
        check.shapes(
            self.shape == dense.dims(),
            "batch and dense tensor must have the same shape",
            &operand.with_shape(&self.shape),
            &operand,
        )?;
        check.dtype(&operand)?;
        let [items, m, n] = self.shape;
        let stacked = self.pattern.stacked(items);
        let values = dense::sample(&stacked, reshape(dense, [items * m, n]));
        Ok(self.rebuilt(self.pattern.clone(), values))
    }

    /// All stored entries as (item, row, column, value), in the order of the values. Reads back from the device.
    ///
    /// # Errors
    /// If reading fails.
    pub fn triplets(&self) -> Result<impl ExactSizeIterator<Item = (usize, usize, usize, f64)>, TensorError> {
        let [_, m, n] = self.shape;
        let (rows, columns) = self.pattern.coordinates();
        let values = read(self.values.clone())?;
        let entries = rows.into_iter().zip(columns).zip(values);
        Ok(entries.map(move |((row, column), value)| (row / m, row % m, column % n, value)))
    }
}

/// A range of the values; the gradient of the others is 0.
pub(crate) fn part(values: &Tensor<1>, entries: Range<usize>) -> Tensor<1> {
    if !entries.is_empty() {
        return values.clone().slice([entries]);
    }
    // Burn's own slice would be cut off from the graph.
    let nothing = Pattern::csr([0i64], [0i64; 0], [0, values.dims()[0]]);
    gather(&nothing.expect("a valid pattern"), values.clone())
}
