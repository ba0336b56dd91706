//! What a solver found, and how far it can be trusted.

use crate::precond::PreconditionerError;
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
    /// The outcome of each right-hand side, of a batch item by item: empty if all are as good as the worst.
    pub outcomes: Vec<Outcome>,
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
    /// Of a least-squares problem whose right-hand side is out of reach: x minimises the residual to the tolerance, by the
    /// recomputed gradient |A^T r|.
    LeastSquares,
    /// The system has no solution: the operator is singular. x minimises the residual, as far as it could be seen.
    Inconsistent,
    /// The iterations ran out.
    IterationLimit {
        /// The limit.
        limit: usize,
    },
    /// The tolerance is out of reach: the recomputed residual stays above it, whatever the method does.
    Stagnated,
    /// The method can't go on.
    Breakdown {
        /// Why.
        kind: Breakdown,
        /// In which iteration, counted from 1.
        iteration: usize,
    },
    /// A right-hand side or a guess holds what is not a finite number.
    NotFinite {
        /// Which.
        what: &'static str,
    },
    /// The method can't be prepared for this operator: it has no such preconditioner, or no factors.
    Unprepared {
        /// Why.
        error: PreconditionerError,
    },
    /// A direct method found no pivot: the matrix is singular, or not of full rank.
    Singular {
        /// The row or column.
        pivot: usize,
        /// Which of the two it is.
        what: &'static str,
    },
    /// Cholesky's factorisation met a pivot that is not positive.
    NotPositiveDefinite {
        /// The row.
        row: usize,
    },
    /// A stored entry is NaN or infinite.
    EntryNotFinite {
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// Its value.
        value: f64,
    },
    /// The solution of a direct method misses the tolerance.
    Inaccurate {
        /// The tolerance.
        tolerance: f64,
    },
    /// A factorisation failed for another reason: no memory, indices or numbers that overflow.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// Why a method can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breakdown {
    /// p^T A p is not positive, for a direction p.
    Indefinite,
    /// r^T M^-1 r is not positive: for a residual r that is not 0.
    IndefinitePreconditioner,
    /// The residual is orthogonal to its shadow.
    Orthogonal,
    /// The minimal residual step has length 0.
    NoStep,
    /// The operator is singular: it maps a direction to 0 that the solution needs.
    Singular,
    /// The iteration met what is not a finite number: of the operator or the preconditioner, or by overflow.
    NotFinite,
}

impl Breakdown {
    /// Why, in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Indefinite => "p^T A p <= 0: the operator is not positive definite",
            Self::IndefinitePreconditioner => "r^T M^-1 r <= 0: the preconditioner is not positive definite",
            Self::Orthogonal => "rho = 0: the residual is orthogonal to its shadow",
            Self::NoStep => "omega = 0: the residual is orthogonal to its image",
            Self::Singular => "the operator maps a direction to 0",
            Self::NotFinite => "a number is not finite",
        }
    }
}

impl Outcome {
    /// Whether every right-hand side meets its tolerance.
    pub fn is_converged(&self) -> bool {
        matches!(self, Self::Converged | Self::LeastSquares)
    }

    /// What to try next.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Converged | Self::LeastSquares => "",
            Self::Inconsistent => "x is a least-squares solution; LSMR gives the one of minimum norm",
            Self::IterationLimit { .. } => "try a preconditioner, or more iterations",
            Self::Stagnated => "try a larger tolerance, a preconditioner, f64, or a direct method",
            Self::Breakdown { kind, .. } => match kind {
                Breakdown::Indefinite => "try MinRes if it is symmetric, BiCgStab or Gmres if it is not",
                Breakdown::IndefinitePreconditioner => "try another preconditioner, or one with a shift",
                Breakdown::Orthogonal | Breakdown::NoStep => "try Gmres, or another x0",
                Breakdown::Singular => "try Lsmr, which finds a least-squares solution",
                Breakdown::NotFinite => "look for entries that are not finite, or scale the problem",
            },
            Self::NotFinite { .. } => "look for NaN and infinity in the input",
            Self::Unprepared { .. } => "try another method, another preconditioner, or none",
            Self::Singular { .. } => "for a solution of least squares and minimum norm try Lsmr",
            Self::NotPositiveDefinite { .. } => "try LDLT or LU, MinRes or Gmres",
            Self::EntryNotFinite { .. } => "look at what made it",
            Self::Inaccurate { .. } => {
                "the matrix is ill-conditioned, or not of the method's kind: try LU, or a larger tolerance"
            }
            Self::Failed { .. } => "try an iterative method",
        }
    }

    /// How bad it is, next to others: the report's outcome is that of the worst right-hand side.
    pub(crate) fn severity(&self) -> usize {
        match self {
            Self::Converged => 0,
            Self::LeastSquares => 1,
            Self::Inconsistent => 2,
            Self::Stagnated => 3,
            Self::IterationLimit { .. } => 4,
            Self::Breakdown { .. } => 5,
            Self::NotFinite { .. } | Self::EntryNotFinite { .. } => 6,
            Self::Inaccurate { .. } => 3,
            Self::Unprepared { .. }
            | Self::Singular { .. }
            | Self::NotPositiveDefinite { .. }
            | Self::Failed { .. } => 7,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Converged => f.write_str("converged"),
            Self::LeastSquares => f.write_str("converged to a least-squares solution"),
            Self::Inconsistent => {
                f.write_str("no solution: the operator is singular, and the right-hand side out of its range")
            }
            Self::IterationLimit { limit } => write!(f, "no convergence within {limit} iterations"),
            Self::Stagnated => f.write_str("no convergence: the tolerance is out of reach"),
            Self::Breakdown { kind, iteration } => write!(f, "breakdown at iteration {iteration}, {}", kind.reason()),
            Self::NotFinite { what } => write!(f, "{what} is not finite"),
            Self::Unprepared { error } => write!(f, "could not be prepared: {error}"),
            Self::Singular { pivot, what } => write!(f, "singular: no pivot for {what} {pivot}"),
            Self::NotPositiveDefinite { row } => {
                write!(f, "not positive definite: the pivot of row {row} is not positive")
            }
            Self::EntryNotFinite { row, column, value } => write!(f, "entry ({row}, {column}) is {value}"),
            Self::Inaccurate { tolerance } => write!(f, "the solution is not within the tolerance {tolerance:.1e}"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
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
