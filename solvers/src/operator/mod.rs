//! Linear operators: what a solver needs of a matrix, and nothing more.
//!
//! | operator | of |
//! |---|---|
//! | [`SparseTensor`] | a sparse matrix in any format; a batch of them |
//! | [`Dense`], [`Diagonal`] | a dense matrix; a vector |
//! | [`FnOperator`] | two functions and the parameters that receive gradients: matrix-free |
//! | [`Compose`] | sums, products, multiples, shifts and transposes of operators |
//! | [`Blocks`] | operators in rows and columns |
//!
//! [`check_tags`] says whether what is claimed of an operator holds, [`check_transpose`] whether its transpose is one.

mod algebra;
mod blocks;
mod check;
mod dense;
mod function;
mod sparse;
mod tags;

pub use algebra::{Compose, Factor, Product, Scaled, Shifted, Sum, Tagged, Transposed};
pub use blocks::Blocks;
pub use check::{TagError, check_tags, check_transpose};
pub use dense::{Dense, Diagonal};
pub use function::{FnOperator, Parameters};
pub use tags::Tags;

use burn::tensor::{DType, Device, Tensor};
use sparsegrad::SparseTensor;
use std::fmt::Debug;
use std::sync::Arc;

/// An operator, shared.
pub type Operator = Arc<dyn LinearOperator>;

/// A linear map A, m x n, on dense columns.
///
/// A batch is one block-diagonal operator of [`items`](Self::items) blocks of equal shape: its columns are those of the
/// items below each other. Solvers judge every block of every column by itself.
pub trait LinearOperator: Debug + Send + Sync {
    /// Rows and columns: of a batch, those of the block-diagonal operator.
    fn shape(&self) -> [usize; 2];

    /// The number of diagonal blocks, all of one shape.
    fn items(&self) -> usize {
        1
    }

    /// The type of its numbers.
    fn dtype(&self) -> DType;

    /// Where it works.
    fn device(&self) -> Device;

    /// What is known of it.
    fn tags(&self) -> Tags {
        Tags::default()
    }

    /// A x, for x of n x k: m x k. Differentiable in x and in the operator's own parameters.
    fn apply(&self, x: Tensor<2>) -> Tensor<2>;

    /// A^T y, for y of m x k: n x k. Differentiable likewise.
    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2>;

    /// The same operator, cut off from the graph and on the device without autodiff: what a solver iterates with.
    fn detach(&self) -> Operator;

    /// The operator as a sparse matrix (of a batch, the block-diagonal one), if its entries are at hand: what
    /// preconditioners and direct methods need.
    fn matrix(&self) -> Option<SparseTensor<2>> {
        None
    }

    /// The [`matrix`](Self::matrix) if no product of matrices is formed for it, which could have any number of entries: what
    /// iterations on the CPU multiply by.
    fn stored(&self) -> Option<SparseTensor<2>> {
        self.matrix()
    }
}

/// A shared operator is an operator.
impl<A: LinearOperator + ?Sized> LinearOperator for Arc<A> {
    fn shape(&self) -> [usize; 2] {
        (**self).shape()
    }

    fn items(&self) -> usize {
        (**self).items()
    }

    fn dtype(&self) -> DType {
        (**self).dtype()
    }

    fn device(&self) -> Device {
        (**self).device()
    }

    fn tags(&self) -> Tags {
        (**self).tags()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        (**self).apply(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        (**self).apply_transpose(y)
    }

    fn detach(&self) -> Operator {
        (**self).detach()
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        (**self).matrix()
    }

    fn stored(&self) -> Option<SparseTensor<2>> {
        (**self).stored()
    }
}
