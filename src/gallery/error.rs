use crate::error::{PatternError, TensorError};

/// A matrix that the gallery cannot make.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GalleryError {
    /// The parts do not make a tensor: a vertex or a size out of range, a dtype that the device lacks.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// No such matrix has so many entries.
    #[error("{matrix} of shape {}x{} stores {least} to {most} entries, not {nnz}", shape[0], shape[1])]
    Nnz {
        /// The kind of matrix.
        matrix: &'static str,
        /// Its shape.
        shape: [usize; 2],
        /// How many entries were asked for.
        nnz: usize,
        /// The fewest that it can have.
        least: usize,
        /// The most that it can have.
        most: usize,
    },
    /// A symmetric matrix with a full diagonal stores pairs beside it.
    #[error("a symmetric matrix of size {n} stores its diagonal and pairs of entries: {nnz} entries leave {} over, an odd number", nnz - n)]
    OddPairs {
        /// The size.
        n: usize,
        /// How many entries were asked for.
        nnz: usize,
    },
    /// The construction is for square matrices.
    #[error("{what} needs a square matrix, and this one is {}x{}", shape[0], shape[1])]
    NotSquare {
        /// What was to be made.
        what: &'static str,
        /// The shape found.
        shape: [usize; 2],
    },
    /// A tensor of coefficients has the wrong shape.
    #[error("{what} must have shape {expected:?} and has {found:?}")]
    Shape {
        /// Which tensor.
        what: &'static str,
        /// The shape it must have.
        expected: Vec<usize>,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// A number outside of its range.
    #[error("{what} must be {range} and is {value}")]
    Parameter {
        /// Which parameter.
        what: &'static str,
        /// What it may be.
        range: &'static str,
        /// What it is.
        value: f64,
    },
    /// Sizes whose product no index can hold.
    #[error("{sizes:?} is too large to index")]
    TooLarge {
        /// The sizes.
        sizes: Vec<usize>,
    },
}

impl From<PatternError> for GalleryError {
    fn from(error: PatternError) -> Self {
        Self::Tensor(error.into())
    }
}
