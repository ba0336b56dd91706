//! Preconditioners: recipes that make an approximate inverse of an operator.
//!
//! | recipe | M | for |
//! |---|---|---|
//! | [`Jacobi`] | the diagonal | anything with a diagonal; costs next to nothing |
//! | [`BlockJacobi`] | dense blocks along the diagonal | several unknowns a node |
//! | [`Ssor`] | `w / (2 - w) (D/w + L) D^-1 (D/w + U)` | symmetric matrices, without a factorisation |
//! | [`Ic0`] | `L L^T`, L at the pattern of A | symmetric positive definite |
//! | [`Ilu0`] | `L U`, both at the pattern of A | any square matrix with a diagonal |
//! | an [`Operator`] | its inverse | what you know better |
//!
//! The numbers are made on the host, in double precision, from the entries of the operator (duplicates summed), and applied
//! where the operator lives, by products and by the level-scheduled triangular solves of `sparsegrad`. What depends on the
//! pattern alone (its sums of duplicates, the levels) is kept with the pattern: the next matrix at it costs only its numbers.
//! A batch is one block-diagonal matrix, and needs no recipe of its own.
//!
//! References: Y. Saad, *Iterative Methods for Sparse Linear Systems*, 2nd ed., 2003, chapter 10; T. A. Manteuffel, *An
//! incomplete factorization technique for positive definite linear systems*, 1980, for the shift.

mod block_jacobi;
mod incomplete;
mod jacobi;
mod ssor;
mod steps;

pub use block_jacobi::BlockJacobi;
pub use incomplete::{Ic0, Ilu0};
pub use jacobi::Jacobi;
pub use ssor::Ssor;

use crate::host::{HostCsr, NotFinite};
use crate::operator::{LinearOperator, Operator};
use std::fmt::Debug;
use std::sync::Arc;

/// A recipe for an approximate inverse of an operator, M^-1. What it makes is an operator like any other, whose transpose
/// is that of M^-1: the backward pass of a solve uses it.
pub trait Preconditioner: Debug + Send + Sync {
    /// Makes M^-1 for the (untracked) operator `a`.
    ///
    /// # Errors
    /// If the operator can't be preconditioned so: it has no matrix, or lacks a diagonal.
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError>;
}

/// An approximate inverse.
#[derive(Debug, Clone)]
pub struct Inverse {
    /// M^-1.
    pub operator: Operator,
    /// What the report should tell of it: a shift that a breakdown made necessary, say.
    pub note: Option<String>,
}

impl From<Operator> for Inverse {
    fn from(operator: Operator) -> Self {
        Self { operator, note: None }
    }
}

/// The user's own: an operator that applies M^-1.
impl Preconditioner for Operator {
    fn build(&self, _: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        Ok(self.clone().into())
    }
}

/// A recipe that is chosen at run time.
impl Preconditioner for Arc<dyn Preconditioner> {
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        (**self).build(a)
    }
}

/// Why there is no such preconditioner of an operator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PreconditionerError {
    /// The operator is matrix-free.
    #[error("{preconditioner} needs the entries of the operator, and {operator} has none at hand")]
    NoMatrix {
        /// The recipe.
        preconditioner: &'static str,
        /// The operator.
        operator: String,
    },
    /// The operator is not square.
    #[error("{preconditioner} needs a square operator, and this one is {rows}x{columns}")]
    NotSquare {
        /// The recipe.
        preconditioner: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// Blocks that don't divide the matrix.
    #[error("{preconditioner}: blocks of {block} do not divide {rows} rows")]
    BlockSize {
        /// The recipe.
        preconditioner: &'static str,
        /// The size of the blocks.
        block: usize,
        /// The rows, of a batch those of an item.
        rows: usize,
    },
    /// NaN or infinity among the entries.
    #[error("{preconditioner}: entry ({row}, {column}) is {value}")]
    NotFinite {
        /// The recipe.
        preconditioner: &'static str,
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A row that stores nothing on the diagonal.
    #[error("{preconditioner}: no diagonal entry in row {row}")]
    NoDiagonal {
        /// The recipe.
        preconditioner: &'static str,
        /// The row, the first of its kind.
        row: usize,
    },
    /// A diagonal entry that the recipe can't use.
    #[error("{preconditioner}: the diagonal entry in row {row} is {value}, and must be {must}")]
    Diagonal {
        /// The recipe.
        preconditioner: &'static str,
        /// The row, the first of its kind.
        row: usize,
        /// The value, duplicates summed.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// A block of the diagonal is singular.
    #[error("{preconditioner}: the block of rows {row}..{} is singular", row + block)]
    SingularBlock {
        /// The recipe.
        preconditioner: &'static str,
        /// Its first row.
        row: usize,
        /// Its size.
        block: usize,
    },
    /// A factorisation that broke down, however much of the diagonal was added.
    #[error("{preconditioner} breaks down in row {row}, even with {shift:e} of the diagonal added")]
    Breakdown {
        /// The recipe.
        preconditioner: &'static str,
        /// The row.
        row: usize,
        /// The largest shift that was tried.
        shift: f64,
    },
}

/// The entries of a square operator, all of them finite.
fn entries(preconditioner: &'static str, a: &dyn LinearOperator) -> Result<HostCsr, PreconditionerError> {
    let [rows, columns] = a.shape();
    if rows != columns {
        return Err(PreconditionerError::NotSquare { preconditioner, rows, columns });
    }
    let Some(matrix) = HostCsr::of(a) else {
        let operator = format!("an operator of {rows}x{columns} without a matrix");
        return Err(PreconditionerError::NoMatrix { preconditioner, operator });
    };
    match matrix.not_finite() {
        Some(NotFinite { row, column, value }) => {
            Err(PreconditionerError::NotFinite { preconditioner, row, column, value })
        }
        None => Ok(matrix),
    }
}

/// The entries, and where the diagonal is.
fn with_diagonal(
    preconditioner: &'static str,
    a: &dyn LinearOperator,
) -> Result<(HostCsr, Vec<usize>), PreconditionerError> {
    let matrix = entries(preconditioner, a)?;
    let diagonal = matrix.diagonal().map_err(|row| PreconditionerError::NoDiagonal { preconditioner, row })?;
    Ok((matrix, diagonal))
}

/// The entries, and where the diagonal is, which has no zero.
fn with_nonzero_diagonal(
    preconditioner: &'static str,
    a: &dyn LinearOperator,
) -> Result<(HostCsr, Vec<usize>), PreconditionerError> {
    let (matrix, diagonal) = with_diagonal(preconditioner, a)?;
    match diagonal.iter().position(|&entry| matrix.values[entry] == 0.0) {
        Some(row) => Err(PreconditionerError::Diagonal { preconditioner, row, value: 0.0, must: "other than 0" }),
        None => Ok((matrix, diagonal)),
    }
}
