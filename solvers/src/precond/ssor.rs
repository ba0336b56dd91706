use super::steps::{Step, Steps};
use super::{Inverse, Preconditioner, PreconditionerError, with_nonzero_diagonal};
use crate::host::vector;
use crate::operator::{LinearOperator, Tags};
use sparsegrad::Triangular;

/// Symmetric successive over-relaxation: `M = w / (2 - w) (D/w + L) D^-1 (D/w + U)` for `A = L + D + U`.
///
/// Symmetric and positive definite if A is. For `w = 1`, symmetric Gauss-Seidel.
///
/// # Errors
/// A row without a diagonal entry, or with a zero there.
///
/// Source: Y. Saad, *Iterative Methods for Sparse Linear Systems*, 2nd ed., 2003, section 10.2.
#[derive(Debug, Clone, Copy)]
pub struct Ssor {
    relaxation: f64,
}

impl Default for Ssor {
    fn default() -> Self {
        Self::new(1.0)
    }
}

impl Ssor {
    /// With the relaxation factor `w`.
    ///
    /// # Panics
    /// If it is not between 0 and 2: the preconditioner would not be positive definite.
    pub fn new(relaxation: f64) -> Self {
        assert!(relaxation > 0.0 && relaxation < 2.0, "SSOR: relaxation {relaxation}, which must be between 0 and 2");
        Self { relaxation }
    }
}

impl Preconditioner for Ssor {
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        let (matrix, diagonal) = with_nonzero_diagonal("SSOR", a)?;
        let (mut values, omega) = (matrix.values.clone(), self.relaxation);
        let mut middle = Vec::with_capacity(diagonal.len());
        for &entry in &diagonal {
            middle.push(values[entry] * (2.0 - omega) / omega);
            values[entry] /= omega;
        }
        let sweeps = matrix.upload(values, a);
        let steps = vec![
            Step::Solve(sweeps.clone(), Triangular::lower()),
            Step::Scale(vector(middle, a.dtype(), &a.device()).unsqueeze_dim(1)),
            Step::Solve(sweeps, Triangular::upper()),
        ];
        let tags = Tags { symmetric: a.tags().symmetric, positive_definite: a.tags().positive_definite, ..Tags::NONE };
        Ok(Steps::like(a, steps, tags).into())
    }
}
