//! Matrices put together: below each other, beside each other, in blocks.

use super::lists::{Lists, Order};
use super::select::{shape_of, sizes};
use crate::backend::check::{Check, Operand};
use crate::error::{Axis, TensorError};
use crate::ops::gather::gather;
use crate::pattern::{Conversion, Index, Pattern, with_rows};
use crate::tensor::{SparseTensor, reshape};
use burn::tensor::Tensor;

/// Values one after the other.
pub(super) fn joined(values: Vec<Tensor<1>>) -> Tensor<1> {
    let first = values[0].clone();
    match values.iter().map(|part| part.dims()[0]).sum() {
        // Burn's own would be cut off from the graph.
        0usize => reshape(first, [0]),
        _ => Tensor::cat(values, 0),
    }
}

/// A block, and the block row and the block column that it stands in.
type Cell<'a, const D: usize> = (usize, usize, &'a SparseTensor<D>);

/// Blocks of one height in each block row, of one width in each block column.
struct Grid<'a, const D: usize> {
    cells: Vec<Cell<'a, D>>,
    /// Heights of the block rows, widths of the block columns.
    sizes: [Vec<usize>; 2],
    items: usize,
}

impl<'a, const D: usize> Grid<'a, D> {
    /// Checks that the blocks fit, so many below and beside each other.
    fn new(op: &'static str, cells: Vec<Cell<'a, D>>, counts: [usize; 2]) -> Result<Self, TensorError> {
        let Some(&(.., first)) = cells.first() else {
            return Err(TensorError::NoItems);
        };
        let (items, check) = (sizes(first).0, Check { op });
        let operand = |block: &SparseTensor<D>| Operand::sparse(&block.shape(), block.values());
        let mut known = counts.map(|count| vec![None; count]);
        for &(row, column, block) in &cells {
            check.compatible(&operand(first), &operand(block))?;
            let (blocks_items, each) = sizes(block);
            let what = "all must have as many items";
            check.shapes(blocks_items == items, what, &operand(first), &operand(block))?;
            let words = ["blocks of a row must have as many rows", "blocks of a column must have as many columns"];
            for (axis, at) in [row, column].into_iter().enumerate() {
                let before = *known[axis][at].get_or_insert(block);
                let fits = sizes(before).1[axis] == each[axis];
                check.shapes(fits, words[axis], &operand(before), &operand(block))?;
            }
        }
        let all = |axis: Axis| {
            let list = &known[axis as usize];
            let size = |(at, block): (usize, &Option<&SparseTensor<D>>)| match block {
                Some(block) => Ok(sizes(*block).1[axis as usize]),
                None => Err(TensorError::NoBlock { axis, at }),
            };
            list.iter().enumerate().map(size).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { sizes: [all(Axis::Row)?, all(Axis::Column)?], cells, items })
    }

    /// Rows and columns of an item.
    fn each(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.sizes[axis].iter().fold(0usize, |sum, &size| sum.saturating_add(size)))
    }

    /// The pattern, and the gather of the values of all blocks, one after the other.
    fn pattern(&self, shape: [usize; 2]) -> Conversion {
        let order = Order::common(self.cells.iter().map(|(.., block)| block.pattern()));
        let [heights, widths] = order.swap([&self.sizes[0], &self.sizes[1]]);
        let starts: Vec<usize> = before(widths);
        let slots = before(&self.cells.iter().map(|(.., block)| block.nnz()).collect::<Vec<_>>());
        let patterns: Vec<Pattern> = self.cells.iter().map(|(.., block)| order.lines(block.pattern())).collect();
        let mut lines = vec![vec![]; heights.len()];
        for (part, &(row, column, _)) in self.cells.iter().enumerate() {
            let [line, across] = order.swap([row, column]);
            lines[line].push((across, part));
        }
        lines.iter_mut().for_each(|line| line.sort_unstable());
        let width: usize = widths.iter().sum();
        let mut lists = Lists::new();
        for item in 0..self.items {
            for (&height, blocks) in heights.iter().zip(&lines) {
                for line in item * height..(item + 1) * height {
                    for &(across, part) in blocks {
                        let (old, new) = (item * widths[across], item * width + starts[across]);
                        with_rows!(patterns[part].rows(), rows => {
                            for entry in rows.range(line) {
                                lists.push(rows.columns[entry].get() - old + new, slots[part] + rows.slot(entry));
                            }
                        });
                    }
                    lists.end_row();
                }
            }
        }
        lists.finish(order, shape, slots[self.cells.len()])
    }

    fn build(self) -> Result<SparseTensor<D>, TensorError> {
        let first = self.cells[0].2;
        let each = self.each();
        let Conversion { pattern, gather: map } = self.pattern(shape_of(self.items, each)?);
        let all = joined(self.cells.iter().map(|(.., block)| block.values().clone()).collect());
        let values = match &map {
            Some(map) => gather(map, all),
            None => all,
        };
        let mut shape = first.shape();
        (shape[D - 2], shape[D - 1]) = (each[0], each[1]);
        Ok(SparseTensor::from_fitting(pattern, shape, values))
    }
}

/// The sum of those before each, and of all.
fn before(sizes: &[usize]) -> Vec<usize> {
    let mut sum = 0;
    let mut sums = vec![0];
    sums.extend(sizes.iter().map(|size| {
        sum += size;
        sum
    }));
    sums
}

/// Blocks along the diagonal, of each item by itself.
pub(super) fn along_diagonal<const D: usize>(blocks: &[SparseTensor<D>]) -> Result<SparseTensor<D>, TensorError> {
    let cells = blocks.iter().enumerate().map(|(at, block)| (at, at, block)).collect();
    Grid::new("block_diagonal", cells, [blocks.len(); 2])?.build()
}

impl<const D: usize> SparseTensor<D> {
    /// Matrices below each other, in their format if they have one, in CSR otherwise. Of batches: item by item.
    ///
    /// | | shape |
    /// |---|---|
    /// | parts | m1 x n, m2 x n, ...; or as many items of such |
    /// | result | (m1 + m2 + ...) x n |
    ///
    /// [`stack`](SparseTensor::stack) makes a batch of matrices, [`unstack`](SparseTensor::unstack) takes it apart.
    ///
    /// # Gradient
    /// Of each part: that of its entries.
    ///
    /// # Errors
    /// If there is no part, numbers of columns or items, dtypes or devices differ, or the result is too large to index.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::from_triplets(&[0], &[1], &[2.0f32], [1, 3], &device)?;
    /// let both = SparseTensor::vstack(&[SparseTensor::eye(3, &device)?, a.clone()])?;
    /// assert_eq!((both.shape(), both.get(3, 1)?), ([4, 3], Some(2.0)));
    ///
    /// let error = SparseTensor::vstack(&[SparseTensor::eye(2, &device)?, a]).unwrap_err();
    /// assert_eq!(error.to_string(), "vstack: blocks of a column must have as many columns: [2, 2] and [1, 3]");
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn vstack(parts: &[Self]) -> Result<Self, TensorError> {
        let cells = parts.iter().enumerate().map(|(at, part)| (at, 0, part)).collect();
        Grid::new("vstack", cells, [parts.len(), 1])?.build()
    }

    /// Matrices beside each other: as [`vstack`](Self::vstack), with rows and columns exchanged.
    ///
    /// # Errors
    /// If there is no part, numbers of rows or items, dtypes or devices differ, or the result is too large to index.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let eye = SparseTensor::eye(2, &Device::flex())?;
    /// let both = SparseTensor::hstack(&[eye.clone(), eye])?;
    /// assert_eq!(both.triplets()?.collect::<Vec<_>>(), [(0, 0, 1.0), (0, 2, 1.0), (1, 1, 1.0), (1, 3, 1.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn hstack(parts: &[Self]) -> Result<Self, TensorError> {
        let cells = parts.iter().enumerate().map(|(at, part)| (0, at, part)).collect();
        Grid::new("hstack", cells, [1, parts.len()])?.build()
    }

    /// A matrix of blocks, `None` for a block without entries. Of batches: item by item.
    ///
    /// # Gradient
    /// Of each block: that of its entries.
    ///
    /// # Errors
    /// If there is no block, a row or a column of blocks has none, which would say how large it is, blocks of a row (a column)
    /// have different heights (widths), items, dtypes or devices differ, or the result is too large to index.
    ///
    /// # Panics
    /// If the rows have different numbers of blocks.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// // A saddle point: [[A, B^T], [B, 0]].
    /// let device = Device::flex();
    /// let a = SparseTensor::eye(3, &device)?;
    /// let b = SparseTensor::from_triplets(&[0], &[2], &[7.0f32], [1, 3], &device)?;
    /// let kkt = SparseTensor::block_matrix(&[[Some(&a), Some(&b.transpose())], [Some(&b), None]])?;
    /// assert_eq!(kkt.shape(), [4, 4]);
    /// assert_eq!((kkt.get(3, 2)?, kkt.get(2, 3)?, kkt.get(3, 3)?), (Some(7.0), Some(7.0), None));
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn block_matrix<'a>(blocks: &[impl AsRef<[Option<&'a Self>]>]) -> Result<Self, TensorError> {
        let width = blocks.first().map_or(0, |row| row.as_ref().len());
        let mut cells = Vec::new();
        for (row, blocks) in blocks.iter().enumerate() {
            let blocks = blocks.as_ref();
            assert_eq!(blocks.len(), width, "block_matrix: row {row} has another number of blocks than row 0");
            cells.extend(blocks.iter().enumerate().filter_map(|(column, &block)| Some((row, column, block?))));
        }
        Grid::new("block_matrix", cells, [blocks.len(), width])?.build()
    }
}
