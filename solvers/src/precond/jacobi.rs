use super::steps::{Step, Steps};
use super::{Inverse, Preconditioner, PreconditionerError, with_nonzero_diagonal};
use crate::host::vector;
use crate::operator::{LinearOperator, Tags};

/// The diagonal of A: `M^-1 = D^-1`.
///
/// # Errors
/// A row without a diagonal entry, or with a zero there.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::{Operator, Preconditioner, precond::Jacobi};
///
/// let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[2.0f32, 1.0, 4.0], [2, 2], &Device::flex())?;
/// let inverse = Jacobi.build(&a)?.operator;
/// let y = inverse.apply(Tensor::ones([2, 1], &Device::flex()));
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [0.5, 0.25]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Jacobi;

impl Preconditioner for Jacobi {
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        let (matrix, diagonal) = with_nonzero_diagonal("Jacobi", a)?;
        let inverse: Vec<f64> = diagonal.iter().map(|&entry| matrix.values[entry].recip()).collect();
        let positive = inverse.iter().all(|&value| value > 0.0);
        let tags = if positive { Tags::POSITIVE_DEFINITE } else { Tags::SYMMETRIC };
        let factors = vector(inverse, a.dtype(), &a.device()).unsqueeze_dim(1);
        Ok(Steps::like(a, vec![Step::Scale(factors)], tags).into())
    }
}
