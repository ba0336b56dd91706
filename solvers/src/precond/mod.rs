//! Preconditioners: recipes that make an approximate inverse of an operator.

use crate::operator::{LinearOperator, Operator};
use std::fmt::Debug;

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
}
