//! What a solver found, and how far it can be trusted.

use std::fmt;

/// A solution with its report. Nothing in it is an error yet: [`into_result`](Self::into_result) makes it one.
#[derive(Debug, Clone)]
#[must_use = "a solution that did not converge is only seen in its report"]
pub struct Solution<X> {
    /// The solution, or the best that was found.
    pub x: X,
    /// How it was found.
    pub report: Report,
}

impl<X> Solution<X> {
    /// The solution if it converged.
    ///
    /// # Errors
    /// With the report, if it did not.
    pub fn into_result(self) -> Result<X, SolveError> {
        if self.report.outcome.is_converged() { Ok(self.x) } else { Err(SolveError { report: Box::new(self.report) }) }
    }
}

/// A solve that did not converge, as an error.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{report}")]
pub struct SolveError {
    /// What happened.
    pub report: Box<Report>,
}

/// How a solution was found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The method.
    pub method: &'static str,
    /// The outcome: the worst of all right-hand sides.
    pub outcome: Outcome,
    /// The number of iterations: the largest of all right-hand sides.
    pub iterations: usize,
    /// |b - A x| / |b| of each right-hand side, recomputed from x: of a batch item by item. Where b is 0, |A x|.
    pub relative_residuals: Vec<f64>,
    /// The relative residual norms that the method saw, an iteration each: the largest of all right-hand sides.
    pub history: Vec<f64>,
    /// What else there is to tell: the method chosen, a preconditioner's shift.
    pub notes: Vec<String>,
}

/// How a solve ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Every right-hand side meets its tolerance, by the recomputed residual.
    Converged,
    /// The iterations ran out.
    IterationLimit {
        /// The limit.
        limit: usize,
    },
}

impl Outcome {
    /// Whether every right-hand side meets its tolerance.
    pub fn is_converged(&self) -> bool {
        matches!(self, Self::Converged)
    }

    /// What to try next.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Converged => "",
            Self::IterationLimit { .. } => "try a preconditioner, or more iterations",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Converged => f.write_str("converged"),
            Self::IterationLimit { limit } => write!(f, "no convergence within {limit} iterations"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worst = self.relative_residuals.iter().copied().fold(0.0, f64::max);
        write!(
            f,
            "{}: {} in {} iterations, true relative residual {worst:.1e}",
            self.method, self.outcome, self.iterations
        )?;
        if !self.outcome.is_converged() {
            write!(f, "; {}", self.outcome.advice())?;
        }
        Ok(())
    }
}
