//! Block matrices of operators.

use super::algebra::{fitting, shapes};
use super::{LinearOperator, Operator};
use burn::tensor::{DType, Device, Tensor};
use sparsegrad::SparseTensor;
use sparsegrad::error::OpError;
use std::ops::Range;
use std::sync::Arc;

/// A matrix of operators, `None` where a block is zero.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::operator::{Blocks, Compose, Diagonal, LinearOperator, Operator};
/// use std::sync::Arc;
///
/// let device = Device::flex();
/// let a: Operator = Arc::new(Diagonal::new(Tensor::from_data([2.0, 4.0], &device)));
/// let b: Operator = Arc::new(SparseTensor::from_triplets(&[0, 0], &[0, 1], &[1.0f32, 1.0], [1, 2], &device)?);
/// // A saddle point: [A, B^T; B, 0].
/// let k = Blocks::new(vec![vec![Some(a), Some(Arc::new(b.clone().transposed()))], vec![Some(b), None]]);
/// let y = k.apply(Tensor::from_data([[1.0], [1.0], [1.0]], &device));
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [3.0, 5.0, 2.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Blocks {
    blocks: Vec<Vec<Option<Operator>>>,
    rows: Vec<Range<usize>>,
    columns: Vec<Range<usize>>,
    dtype: DType,
    device: Device,
}

impl Blocks {
    /// The block matrix of these rows of blocks.
    ///
    /// # Panics
    /// Where [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(blocks: Vec<Vec<Option<Operator>>>) -> Self {
        fitting(Self::try_new(blocks))
    }

    /// [`new`](Self::new), with blocks that do not fit as an error.
    ///
    /// # Errors
    /// If blocks in a row differ in height, blocks in a column in width, or any in dtype or device; if rows of blocks have
    /// different lengths; if a row or a column of blocks holds none, so that its size is not known.
    pub fn try_new(blocks: Vec<Vec<Option<Operator>>>) -> Result<Self, OpError> {
        const OP: &str = "block operator";
        let error = |what, left: usize, right: usize| {
            Err(OpError::Shapes { op: OP, what, left: vec![left], right: vec![right] })
        };
        let (height, width) = (blocks.len(), blocks.first().map_or(0, Vec::len));
        if let Some(row) = blocks.iter().find(|row| row.len() != width) {
            return error("rows of blocks must be equally long", width, row.len());
        }
        let Some(first) = blocks.iter().flatten().flatten().next().cloned() else {
            return error("one block at least is needed", height, width);
        };
        for block in blocks.iter().flatten().flatten() {
            shapes(OP, "batches have no blocks", block.items() == 1, &*first, &**block)?;
        }
        let at = |i: usize, j: usize| blocks[i][j].as_deref();
        let mut rows = Vec::with_capacity(height);
        for i in 0..height {
            let mut row = (0..width).filter_map(|j| at(i, j));
            let Some(one) = row.next() else {
                return error("a row of blocks without any has no known height: row", i, width);
            };
            for other in row {
                shapes(OP, "blocks of a row must be equally high", one.shape()[0] == other.shape()[0], one, other)?;
            }
            rows.push(one.shape()[0]);
        }
        let mut columns = Vec::with_capacity(width);
        for j in 0..width {
            let mut column = (0..height).filter_map(|i| at(i, j));
            let Some(one) = column.next() else {
                return error("a column of blocks without any has no known width: column", j, height);
            };
            for other in column {
                shapes(OP, "blocks of a column must be equally wide", one.shape()[1] == other.shape()[1], one, other)?;
            }
            columns.push(one.shape()[1]);
        }
        let (dtype, device) = (first.dtype(), first.device());
        Ok(Self { rows: ranges(&rows), columns: ranges(&columns), blocks, dtype, device })
    }

    /// Sums of blocks, `block(to, from)` of parts of `x`, below each other.
    fn multiply(
        &self,
        x: Tensor<2>,
        [to, from]: [&[Range<usize>]; 2],
        block: impl Fn(usize, usize) -> Option<Operator>,
        apply: impl Fn(&Operator, Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let [_, k] = x.dims();
        let parts = to.iter().enumerate().filter(|(_, rows)| !rows.is_empty()).map(|(i, rows)| {
            let terms = from.iter().enumerate().filter(|(_, part)| !part.is_empty());
            let terms = terms.filter_map(|(j, part)| Some(apply(&block(i, j)?, x.clone().slice(part.clone()))));
            let zeros = || Tensor::zeros([rows.len(), k], (&x.device(), x.dtype()));
            terms.reduce(|sum, term| sum + term).unwrap_or_else(zeros)
        });
        let parts: Vec<_> = parts.collect();
        match parts.is_empty() {
            true => Tensor::zeros([0, k], (&x.device(), x.dtype())),
            false => Tensor::cat(parts, 0),
        }
    }

    /// The matrix of blocks that are made of the operators, if each has one.
    fn made(&self, of: impl Fn(&Operator) -> Option<SparseTensor<2>>) -> Option<SparseTensor<2>> {
        let mut matrices = Vec::with_capacity(self.blocks.len());
        for row in &self.blocks {
            let block = |block: &Option<Operator>| match block {
                Some(a) => of(a).map(Some),
                None => Some(None),
            };
            matrices.push(row.iter().map(block).collect::<Option<Vec<_>>>()?);
        }
        let rows: Vec<Vec<_>> = matrices.iter().map(|row| row.iter().map(Option::as_ref).collect()).collect();
        SparseTensor::block_matrix(&rows).ok()
    }
}

fn ranges(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    let range = |&size: &usize| {
        let range = start..start + size;
        start += size;
        range
    };
    sizes.iter().map(range).collect()
}

impl LinearOperator for Blocks {
    fn shape(&self) -> [usize; 2] {
        [&self.rows, &self.columns].map(|ranges| ranges.last().map_or(0, |last| last.end))
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        let block = |i: usize, j: usize| self.blocks[i][j].clone();
        self.multiply(x, [&self.rows, &self.columns], block, |a, x| a.apply(x))
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        let block = |j: usize, i: usize| self.blocks[i][j].clone();
        self.multiply(y, [&self.columns, &self.rows], block, |a, y| a.apply_transpose(y))
    }

    fn detach(&self) -> Operator {
        let detach = |block: &Option<Operator>| block.as_ref().map(|a| a.detach());
        let blocks = self.blocks.iter().map(|row| row.iter().map(detach).collect()).collect();
        Arc::new(Self { blocks, device: self.device.clone().inner(), ..self.clone() })
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        self.made(|a| a.matrix())
    }

    fn stored(&self) -> Option<SparseTensor<2>> {
        self.made(|a| a.stored())
    }
}
