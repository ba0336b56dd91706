//! Blocks along the diagonal, put together and taken apart.

use super::concat::{along_diagonal, joined};
use super::select::{Pick, pick};
use crate::backend::check::{Check, Operand};
use crate::error::{PatternError, TensorError};
use crate::pattern::Pattern;
use crate::tensor::{SparseTensor, part};

impl<const D: usize> SparseTensor<D> {
    /// One matrix with the given ones along its diagonal, in their order; shapes may differ. In their format if they have one,
    /// in CSR otherwise. Of batches: item by item.
    ///
    /// # Gradient
    /// Of each block: that of its entries.
    ///
    /// # Errors
    /// If dtypes, devices or numbers of items differ, there is no block, or the result is too large to index.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let b = SparseTensor::from_triplets(&[0], &[2], &[7.0f32], [1, 3], &device)?;
    /// let both = SparseTensor::block_diagonal(&[SparseTensor::eye(2, &device)?, b])?;
    /// assert_eq!((both.shape(), both.get(2, 4)?), ([3, 5], Some(7.0)));
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn block_diagonal(blocks: &[Self]) -> Result<Self, TensorError> {
        if D > 2 {
            return along_diagonal(blocks);
        }
        let Some(first) = blocks.first() else {
            return Err(TensorError::NoItems);
        };
        let check = Check { op: "block_diagonal" };
        let operand = |block: &Self| Operand::sparse(&block.shape(), block.values());
        for block in blocks {
            check.compatible(&operand(first), &operand(block))?;
        }
        let name = |block: &Self| block.pattern().format().name();
        let blocks = match blocks.iter().all(|block| name(block) == name(first)) {
            true => blocks.to_vec(),
            false => blocks.iter().map(Self::to_csr).collect(),
        };
        let patterns: Vec<_> = blocks.iter().map(|block| block.pattern().clone()).collect();
        let pattern = Pattern::block_diagonal(&patterns)?;
        let values = joined(blocks.into_iter().map(|block| block.values().clone()).collect());
        let mut shape = first.shape();
        shape.copy_from_slice(&pattern.shape());
        Ok(Self::from_fitting(pattern, shape, values))
    }
}

impl SparseTensor<2> {
    /// The blocks of these shapes along the diagonal, in the format of the matrix: the inverse of
    /// [`block_diagonal`](Self::block_diagonal). Entries may stand in any order.
    ///
    /// # Gradient
    /// Of each entry: that of its copy.
    ///
    /// # Errors
    /// If the shapes do not sum to that of the matrix, or an entry lies beside the blocks, with its place
    /// ([`diagonal_blocks`](Self::diagonal_blocks) drops it).
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::eye(3, &Device::flex())?;
    /// let blocks = a.split_block_diagonal(&[[1, 1], [2, 2]])?;
    /// assert_eq!(blocks[1].shape(), [2, 2]);
    ///
    /// let error = a.split_block_diagonal(&[[1, 2], [2, 1]]).unwrap_err();
    /// assert_eq!(error.to_string(), "entry 1 (1, 1) lies outside of block 1, that of its row");
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn split_block_diagonal(&self, shapes: &[[usize; 2]]) -> Result<Vec<Self>, TensorError> {
        match self.pattern().split(shapes) {
            Ok(parts) => {
                let tensor = |(pattern, entries)| Self::from_checked(pattern, part(self.values(), entries));
                Ok(parts.into_iter().map(tensor).collect())
            }
            Err(PatternError::BlocksMixed { .. }) => self.blocks(shapes),
            Err(error) => Err(error.into()),
        }
    }

    /// The blocks of these shapes along the diagonal, in the format of the matrix, without the entries beside them.
    ///
    /// # Gradient
    /// Of each entry in a block: that of its copy; 0 for the others.
    ///
    /// # Errors
    /// If the shapes do not sum to that of the matrix.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[1.0f32, 2.0, 3.0], [2, 2], &Device::flex())?;
    /// let blocks = a.diagonal_blocks(&[[1, 1], [1, 1]])?;
    /// assert_eq!((blocks[0].get(0, 0)?, blocks[1].get(0, 0)?), (Some(1.0), Some(3.0))); // 2 is dropped
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn diagonal_blocks(&self, shapes: &[[usize; 2]]) -> Result<Vec<Self>, TensorError> {
        match self.pattern().split(shapes) {
            Err(error @ PatternError::BlockShapes { .. }) => Err(error.into()),
            _ => self.blocks(shapes),
        }
    }

    /// The entries of each block. The shapes are known to sum to that of the matrix.
    fn blocks(&self, shapes: &[[usize; 2]]) -> Result<Vec<Self>, TensorError> {
        let mut start = [0, 0];
        let block = |&shape: &[usize; 2]| {
            let ranges = [0, 1].map(|axis| start[axis]..start[axis] + shape[axis]);
            start = [ranges[0].end, ranges[1].end];
            let conversion = pick(self.pattern(), 1, ranges.map(Pick::Range))?;
            Ok(self.converted_to(conversion, shape))
        };
        shapes.iter().map(block).collect()
    }
}
