//! Linear operators: what a solver needs of a matrix, and nothing more.

mod tags;

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
}
