//! Sparse matrices as operators.

use super::{LinearOperator, Operator};
use burn::tensor::{DType, Device, Tensor};
use sparsegrad::SparseTensor;
use std::sync::Arc;

/// In any format: products with the matrix and its transpose, whose plans are cached on the pattern.
impl LinearOperator for SparseTensor<2> {
    fn shape(&self) -> [usize; 2] {
        self.shape()
    }

    fn dtype(&self) -> DType {
        self.dtype()
    }

    fn device(&self) -> Device {
        self.device()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.matmul(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.t().matmul(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(self.map_values(Tensor::inner))
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        Some(self.clone())
    }
}

/// A batch: the block-diagonal matrix of its items.
impl LinearOperator for SparseTensor<3> {
    fn shape(&self) -> [usize; 2] {
        let [items, m, n] = self.shape();
        [items * m, items * n]
    }

    fn items(&self) -> usize {
        self.shape()[0]
    }

    fn dtype(&self) -> DType {
        self.dtype()
    }

    fn device(&self) -> Device {
        self.device()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.to_block_diagonal().matmul(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.to_block_diagonal().t().matmul(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(self.map_values(Tensor::inner))
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        Some(self.to_block_diagonal())
    }
}
