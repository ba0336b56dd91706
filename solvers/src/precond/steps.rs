//! What preconditioners are made of: triangular solves, scalings and products, one after the other.

use crate::operator::{LinearOperator, Operator, Tags};
use burn::tensor::{DType, Device, Tensor};
use sparsegrad::{SparseTensor, Triangular, sparse_mm, sparse_triangular_solve};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Solves with a triangle, whose diagonal was checked.
    Solve(SparseTensor<2>, Triangular),
    /// Multiplies each row by its number, n x 1.
    Scale(Tensor<2>),
    /// Multiplies by a matrix.
    Multiply(SparseTensor<2>),
}

impl Step {
    fn apply(&self, x: Tensor<2>, transpose: bool) -> Tensor<2> {
        match self {
            Self::Solve(matrix, triangle) => {
                let triangle = if transpose { triangle.transpose() } else { *triangle };
                sparse_triangular_solve(matrix, x, triangle).unwrap_or_else(|error| panic!("preconditioner: {error}"))
            }
            Self::Scale(factors) => x * factors.clone(),
            Self::Multiply(matrix) if transpose => sparse_mm(&matrix.t(), x),
            Self::Multiply(matrix) => sparse_mm(matrix, x),
        }
    }
}

/// M^-1 as steps, the first one first.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    steps: Vec<Step>,
    n: usize,
    items: usize,
    dtype: DType,
    device: Device,
    tags: Tags,
}

impl Steps {
    /// An inverse of the shape of `a`.
    pub fn like(a: &dyn LinearOperator, steps: Vec<Step>, tags: Tags) -> Operator {
        Arc::new(Self { steps, n: a.shape()[0], items: a.items(), dtype: a.dtype(), device: a.device(), tags })
    }
}

impl LinearOperator for Steps {
    fn shape(&self) -> [usize; 2] {
        [self.n; 2]
    }

    fn items(&self) -> usize {
        self.items
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn tags(&self) -> Tags {
        self.tags
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.steps.iter().fold(x, |x, step| step.apply(x, false))
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.steps.iter().rev().fold(y, |y, step| step.apply(y, true))
    }

    fn detach(&self) -> Operator {
        // Made of an untracked operator.
        Arc::new(self.clone())
    }
}
