//! Gradients of solves as functions that can be differentiated again.
//!
//! See [`sparsegrad::vjp`]: Burn has no gradient of a gradient, but the derivative of a solve is a solve and a sampled product,
//! which have derivatives themselves.

use crate::method::Method;
use crate::outcome::SolveError;
use crate::solve::sparse_solve;
use burn::tensor::Tensor;
use sparsegrad::{SparseTensor, sddmm};

/// The gradients of [`sparse_solve`]: from the solution `x` and its gradient, `grad` (both n x k), those of
/// `a`, at its pattern, and of b.
///
/// `dB = A^-T grad`, and `dA_e = -<dB_i, x_j>`: both differentiable in `a`, `x` and `grad`. For a second derivative of a solve,
/// `x` is to be the solution itself, not a copy that is cut off from its graph. The method is prepared for A^T.
///
/// # Errors
/// If the transposed solve does not converge.
///
/// # Panics
/// If shapes, dtypes or devices don't fit each other.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::{Direct, sparse_solve, vjp};
///
/// // f(v) = sum of 1 / v_i has the gradient -1 / v^2 and the Hessian diag(2 / v^3).
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1], &[0, 1], &[2.0f32, 4.0], [2, 2], &device)?.require_grad();
/// let ones = Tensor::<2>::ones([2, 1], &device);
/// let x = sparse_solve(&a, ones.clone(), Direct::lu()).into_result()?;
/// let (gradient, _) = vjp::solve(&a, x, ones, Direct::lu())?;
/// assert_eq!(gradient.values().to_data().try_to_vec::<f32>().unwrap(), [-0.25, -0.0625]);
/// let hessian = a.grad(&gradient.values().clone().sum().backward()).unwrap();
/// assert_eq!(hessian.values().to_data().try_to_vec::<f32>().unwrap(), [0.25, 0.03125]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn solve(
    a: &SparseTensor<2>,
    x: Tensor<2>,
    grad: Tensor<2>,
    method: impl Method,
) -> Result<(SparseTensor<2>, Tensor<2>), SolveError> {
    let d_b = sparse_solve(&a.t(), grad, method).into_result()?;
    Ok((sddmm(a.pattern(), d_b.clone().neg(), x), d_b))
}
