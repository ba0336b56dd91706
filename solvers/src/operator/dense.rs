//! Dense matrices and diagonals as operators.

use super::{LinearOperator, Operator, Tags};
use burn::tensor::{DType, Device, Tensor};
use sparsegrad::SparseTensor;
use std::sync::Arc;

/// A dense matrix as an operator.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::operator::{Dense, LinearOperator};
///
/// let a = Dense::new(Tensor::from_data([[1.0, 2.0], [0.0, 3.0]], &Device::flex()));
/// let y = a.apply(Tensor::from_data([[1.0], [1.0]], &Device::flex()));
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [3.0, 3.0]);
/// ```
#[derive(Debug, Clone)]
pub struct Dense {
    matrix: Tensor<2>,
}

impl Dense {
    /// The operator that multiplies by `matrix`, which may be tracked.
    pub fn new(matrix: Tensor<2>) -> Self {
        Self { matrix }
    }
}

impl LinearOperator for Dense {
    fn shape(&self) -> [usize; 2] {
        self.matrix.dims()
    }

    fn dtype(&self) -> DType {
        self.matrix.dtype()
    }

    fn device(&self) -> Device {
        self.matrix.device()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.matrix.clone().matmul(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.matrix.clone().transpose().matmul(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { matrix: self.matrix.clone().inner() })
    }

    /// Its elements that are not 0.
    fn matrix(&self) -> Option<SparseTensor<2>> {
        SparseTensor::from_dense(self.matrix.clone(), 0.0).ok()
    }
}

/// A diagonal matrix, or a batch of them, as an operator: x is multiplied row by row.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::operator::{Diagonal, LinearOperator};
///
/// let d = Diagonal::new(Tensor::from_data([2.0, 4.0], &Device::flex()));
/// let y = d.apply(Tensor::from_data([[1.0], [1.0]], &Device::flex()));
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [2.0, 4.0]);
/// ```
#[derive(Debug, Clone)]
pub struct Diagonal {
    /// Those of all items, one after another.
    elements: Tensor<1>,
    items: usize,
}

impl Diagonal {
    /// The operator with these numbers on its diagonal, which may be tracked.
    pub fn new(elements: Tensor<1>) -> Self {
        Self { elements, items: 1 }
    }

    /// A batch: row `i` is the diagonal of item `i`.
    pub fn batched(elements: Tensor<2>) -> Self {
        let [items, n] = elements.dims();
        Self { elements: elements.reshape([items * n]), items }
    }

    fn scale(&self, x: Tensor<2>) -> Tensor<2> {
        if x.shape().num_elements() == 0 {
            return x;
        }
        x * self.elements.clone().unsqueeze_dim(1)
    }
}

impl LinearOperator for Diagonal {
    fn shape(&self) -> [usize; 2] {
        let [n] = self.elements.dims();
        [n, n]
    }

    fn items(&self) -> usize {
        self.items
    }

    fn dtype(&self) -> DType {
        self.elements.dtype()
    }

    fn device(&self) -> Device {
        self.elements.device()
    }

    fn tags(&self) -> Tags {
        Tags { lower_triangular: true, upper_triangular: true, ..Tags::SYMMETRIC }
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.scale(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.scale(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { elements: self.elements.clone().inner(), items: self.items })
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        SparseTensor::diagonal(self.elements.clone()).ok()
    }
}
