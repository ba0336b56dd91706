//! What every solver is.

use crate::implicit::BackwardWatch;
use crate::operator::Operator;
use crate::outcome::{Report, Solution};
use crate::precond::PreconditionerError;
use burn::tensor::Tensor;
use std::fmt::Debug;
use std::sync::Arc;

/// A way to solve A x = b, or min |A x - b|, without a graph: gradients are made by one rule for all of them.
pub trait Method: Debug + Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The method with all that depends on the operator's values made once: a preconditioner, a factorisation. The backward
    /// pass runs what the forward pass prepared.
    ///
    /// # Errors
    /// If the preconditioner can't be made.
    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError>;

    /// Solves with the untracked operator `a` (m x n) for the untracked `b` (m x k), from the guess `x0` (n x k) or zero.
    /// With `transpose`, solves A^T x = b for b of n x k: with the transposed preconditioner, too.
    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>>;

    /// [`run`](Self::run), and the multiplier y of its solution x, if the method finds both at once. Without damping, of A x = b
    /// it is that of the shortest solution, `x = A^T y` with `y = A^+T x`; with `transpose` likewise, `x = A y`. With a damping d and
    /// `transpose`, `x = A y` with `y = (A^T A + d^2)^-1 b`.
    ///
    /// What the gradient of least squares needs of both: other methods are run twice.
    fn run_with_multiplier(
        &self,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        (self.run(a, b, x0, transpose), None)
    }

    /// The damping d of a least-squares method, which solves `min |A x - b|^2 + d^2 |x|^2`.
    fn damping(&self) -> f64 {
        0.0
    }

    /// Whether it finds the solution of minimum norm where there are several: the gradient of such a method is that of the
    /// pseudoinverse at any rank, that of others at full rank.
    fn finds_minimum_norm(&self) -> bool {
        false
    }

    /// Where reports of backward passes go. Without such a place, a backward solve that does not converge panics.
    fn watch(&self) -> Option<&BackwardWatch> {
        None
    }
}

impl<M: Method + ?Sized> Method for Arc<M> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        (**self).prepare(a)
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        (**self).run(a, b, x0, transpose)
    }

    fn run_with_multiplier(
        &self,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        (**self).run_with_multiplier(a, b, x0, transpose)
    }

    fn damping(&self) -> f64 {
        (**self).damping()
    }

    fn finds_minimum_norm(&self) -> bool {
        (**self).finds_minimum_norm()
    }

    fn watch(&self) -> Option<&BackwardWatch> {
        (**self).watch()
    }
}

/// A report is made by the method that it tells of.
impl Report {
    /// A report without iterations: of a direct method, or of a problem that needed none.
    pub fn immediate(method: &'static str, relative_residuals: Vec<f64>) -> Self {
        Self {
            method,
            outcome: crate::Outcome::Converged,
            outcomes: vec![],
            iterations: 0,
            relative_residuals,
            history: vec![],
            notes: vec![],
        }
    }
}
