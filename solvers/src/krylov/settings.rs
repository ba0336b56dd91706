//! What all Krylov methods can be told.

use crate::precond::{Inverse, Preconditioner};
use burn::tensor::{DType, Tensor};
use std::fmt;
use std::sync::Arc;

/// What a callback is told after each iteration.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The iteration, counted from 1.
    pub iteration: usize,
    /// The relative residual norm of each right-hand side, as the method sees it: of a batch item by item.
    pub relative_residuals: &'a [f64],
}

/// A function that is told of each iteration.
#[derive(Clone)]
pub(crate) struct Callback(Arc<dyn Fn(&Progress<'_>) + Send + Sync>);

impl Callback {
    pub(crate) fn new(callback: impl Fn(&Progress<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn call(&self, progress: &Progress<'_>) {
        (self.0)(progress);
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub tolerance: Option<f64>,
    pub absolute: f64,
    pub max_iterations: Option<usize>,
    pub preconditioner: Option<Arc<dyn Preconditioner>>,
    /// Made by the preconditioner, of the operator that the method was prepared for.
    pub inverse: Option<Inverse>,
    pub guess: Option<Tensor<2>>,
    pub callback: Option<Callback>,
}

impl Settings {
    /// The relative tolerance.
    pub(crate) fn tolerance(&self, dtype: DType) -> f64 {
        self.tolerance.unwrap_or(if dtype == DType::F64 { 1e-8 } else { 1e-5 })
    }

    /// The most iterations for `n` unknowns.
    pub(crate) fn limit(&self, n: usize) -> usize {
        self.max_iterations.unwrap_or(n.saturating_mul(10).clamp(100, 10_000))
    }
}

/// The constructor and the settings of a method, whose field `settings` they are kept in.
macro_rules! settings {
    ($method:ident) => {
        impl $method {
            /// The method with its defaults.
            pub fn new() -> Self {
                Self::default()
            }

            /// The relative tolerance: every right-hand side is to have |b - A x| <= tolerance |b|. Default: 1e-8 in f64, 1e-5
            /// in other types.
            #[must_use]
            pub fn tolerance(mut self, tolerance: f64) -> Self {
                self.settings.tolerance = Some(tolerance);
                self
            }

            /// The absolute tolerance: |b - A x| <= absolute is enough, too. Default: 0.
            #[must_use]
            pub fn absolute(mut self, absolute: f64) -> Self {
                self.settings.absolute = absolute;
                self
            }

            /// The most iterations. Default: 10 times the number of unknowns, at least 100, at most 10 000.
            #[must_use]
            pub fn max_iterations(mut self, max_iterations: usize) -> Self {
                self.settings.max_iterations = Some(max_iterations);
                self
            }

            /// With a preconditioner: a recipe, or an operator that applies M^-1.
            #[must_use]
            pub fn precondition(mut self, preconditioner: impl $crate::precond::Preconditioner + 'static) -> Self {
                self.settings.preconditioner = Some(std::sync::Arc::new(preconditioner));
                self.settings.inverse = None;
                self
            }

            /// Where to begin, n x k, if the solve is not given another guess. Default: 0. Transposed solves begin at 0.
            #[must_use]
            pub fn guess(mut self, guess: burn::tensor::Tensor<2>) -> Self {
                self.settings.guess = Some(guess.inner());
                self
            }

            /// Calls a function after each iteration. On a GPU it is told of several at once.
            #[must_use]
            pub fn callback(
                mut self,
                callback: impl Fn(&$crate::krylov::Progress<'_>) + Send + Sync + 'static,
            ) -> Self {
                self.settings.callback = Some($crate::krylov::settings::Callback::new(callback));
                self
            }

            /// Solves without a graph: `a` m x n, `b` m x k.
            ///
            /// # Panics
            /// If shapes, dtypes or devices do not fit.
            #[track_caller]
            pub fn solve(
                &self,
                a: &(impl $crate::operator::LinearOperator + ?Sized),
                b: burn::tensor::Tensor<2>,
            ) -> $crate::Solution<burn::tensor::Tensor<2>> {
                $crate::Method::run(self, &a.detach(), b.inner(), None, false)
            }
        }

        impl $crate::Method for $method {
            fn name(&self) -> &'static str {
                <Self as $crate::krylov::Krylov>::NAME
            }

            fn prepare(
                &self,
                a: &$crate::operator::Operator,
            ) -> Result<std::sync::Arc<dyn $crate::Method>, $crate::precond::PreconditionerError> {
                let mut prepared = self.clone();
                prepared.settings = $crate::krylov::prepared(&self.settings, a)?;
                Ok(std::sync::Arc::new(prepared))
            }

            #[track_caller]
            fn run(
                &self,
                a: &$crate::operator::Operator,
                b: burn::tensor::Tensor<2>,
                x0: Option<burn::tensor::Tensor<2>>,
                transpose: bool,
            ) -> $crate::Solution<burn::tensor::Tensor<2>> {
                $crate::krylov::run(self, &self.settings, a, b, x0, transpose)
            }

            #[track_caller]
            fn run_with_multiplier(
                &self,
                a: &$crate::operator::Operator,
                b: burn::tensor::Tensor<2>,
                x0: Option<burn::tensor::Tensor<2>>,
                transpose: bool,
            ) -> ($crate::Solution<burn::tensor::Tensor<2>>, Option<burn::tensor::Tensor<2>>) {
                $crate::krylov::Krylov::run_with_multiplier(self, &self.settings, a, b, x0, transpose)
            }

            fn damping(&self) -> f64 {
                $crate::krylov::Krylov::damping(self)
            }

            fn finds_minimum_norm(&self) -> bool {
                // With a preconditioner it is another norm.
                <Self as $crate::krylov::Krylov>::MINIMUM_NORM && self.settings.preconditioner.is_none()
            }
        }
    };
}
pub(crate) use settings;
