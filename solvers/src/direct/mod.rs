//! Direct methods: sparse factorisations by [faer](https://docs.rs/faer), with a fill-reducing ordering.
//!
//! | method | factors | for | ordering |
//! |---|---|---|---|
//! | [`Direct::llt`] | `L L^T` | symmetric positive definite | AMD |
//! | [`Direct::ldlt`] | `L D L^T`, no pivoting | symmetric, with nonzero leading minors | AMD |
//! | [`Direct::lu`] | `P A = L U`, partial pivoting | square | COLAMD |
//! | [`Direct::qr`] | `A = Q R`, Householder | least squares, minimum norm, of full rank | COLAMD |
//!
//! Factorisation and solution are done on the host, in double precision whatever the dtype, on one thread (the same bits
//! everywhere): on a GPU the entries and the right-hand sides are read back, and the solutions uploaded. The ordering and the
//! symbolic factorisation depend on the pattern alone; a [`Direct`] and its clones keep those of the pattern that they met last.
//!
//! All right-hand sides are solved for at once. One step of iterative refinement follows where it makes the residual smaller.
//! Reports hold the residual that was recomputed from the solution in its own dtype.
//!
//! Whatever makes a factorisation fail is an [`Outcome`] that names the place: a pivot that is zero
//! ([`Singular`](Outcome::Singular)), one that is not positive ([`NotPositiveDefinite`](Outcome::NotPositiveDefinite)), an
//! entry that is not finite ([`EntryNotFinite`](Outcome::EntryNotFinite)). The solution is NaN then.
//!
//! References: T. A. Davis, *Direct Methods for Sparse Linear Systems*, 2006; N. J. Higham, *Accuracy and Stability of Numerical
//! Algorithms*, 2nd ed., 2002, chapter 12 for the refinement; Å. Björck, *Stability analysis of the method of seminormal
//! equations*, 1987, for the transposed QR.

mod cholesky;
mod lu;
mod qr;
mod structure;

use crate::host::{HostColumns, HostCsr, NotFinite, norm};
use crate::method::Method;
use crate::operator::{LinearOperator, Operator};
use crate::outcome::{Outcome, Report, Solution};
use crate::precond::PreconditionerError;
use burn::tensor::{DType, Tensor};
use sparsegrad::Pattern;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Llt,
    Ldlt,
    Lu,
    Qr,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Llt => "LLT",
            Self::Ldlt => "LDLT",
            Self::Lu => "LU",
            Self::Qr => "QR",
        }
    }
}

/// A direct method.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::{Direct, Outcome, sparse_solve};
///
/// let device = Device::flex();
/// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[4.0f32, 1.0, 2.0, 3.0], [2, 2], &device)?;
/// let b = Tensor::<1>::from_data([6.0, 8.0], &device);
/// let x = sparse_solve(&a, b.clone(), Direct::lu()).into_result()?;
/// assert_eq!(x.into_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0]);
///
/// let singular = SparseTensor::from_triplets(&[0, 1], &[0, 0], &[4.0f32, 1.0], [2, 2], &device)?;
/// let solution = sparse_solve(&singular, b, Direct::lu());
/// assert!(matches!(solution.report.outcome, Outcome::Singular { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Direct {
    kind: Kind,
    tolerance: Option<f64>,
    /// What is known of the pattern that came last.
    known: Arc<Mutex<Option<(Pattern, Analysis)>>>,
}

impl Direct {
    fn new(kind: Kind) -> Self {
        Self { kind, tolerance: None, known: Arc::default() }
    }

    /// Cholesky's factorisation `A = L L^T` of a symmetric positive definite matrix, of which the lower triangle is read.
    pub fn llt() -> Self {
        Self::new(Kind::Llt)
    }

    /// `A = L D L^T` with D diagonal, without pivoting, of a symmetric matrix, of which the lower triangle is read.
    ///
    /// Exists where the leading minors (in the order of elimination) are not zero; how accurate it is on an indefinite matrix
    /// the residual tells.
    pub fn ldlt() -> Self {
        Self::new(Kind::Ldlt)
    }

    /// `P A = L U` with partial pivoting, of any square matrix.
    pub fn lu() -> Self {
        Self::new(Kind::Lu)
    }

    /// `A = Q R` by Householder reflections, of a matrix of full rank: least squares where it has more rows than columns, the
    /// solution of minimum norm where it has fewer.
    ///
    /// A rank that is not full is found where a diagonal entry of R is negligible, and is
    /// [`Singular`](Outcome::Singular).
    pub fn qr() -> Self {
        Self::new(Kind::Qr)
    }

    /// The largest `|b - A x| / |b|` that counts as converged: 1e-8 by default in f64, 1e-4 in f32, 1e-2 in half precision. Of
    /// least squares, `|A^T r| / (|A| |r|)` with the Frobenius norm of A, or that.
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance: Some(tolerance), ..self }
    }

    /// The factors of a matrix, or why there are none.
    fn factorise(&self, a: &dyn LinearOperator) -> Result<Factored, PreconditionerError> {
        let [rows, columns] = a.shape();
        let preconditioner = self.kind.name();
        if rows != columns && self.kind != Kind::Qr {
            return Err(PreconditionerError::NotSquare { preconditioner, rows, columns });
        }
        let Some(matrix) = HostCsr::of(a) else {
            let operator = format!("an operator of {rows}x{columns} without a matrix");
            return Err(PreconditionerError::NoMatrix { preconditioner, operator });
        };
        let factor = match matrix.not_finite() {
            Some(NotFinite { row, column, value }) => Err(Outcome::EntryNotFinite { row, column, value }),
            None => self.analysis(&matrix).and_then(|analysis| analysis.factorise(&matrix)),
        };
        let tolerance = self.tolerance.unwrap_or(match a.dtype() {
            DType::F64 => 1e-8,
            DType::F32 => 1e-4,
            _ => 1e-2,
        });
        Ok(Factored { method: self.clone(), factor, matrix, tolerance })
    }

    fn analysis(&self, matrix: &HostCsr) -> Result<Analysis, Outcome> {
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((pattern, analysis)) = &*known
            && *pattern == matrix.pattern
        {
            return Ok(analysis.clone());
        }
        let analysis = match self.kind {
            Kind::Llt | Kind::Ldlt => Analysis::Cholesky(cholesky::analyse(matrix)?, self.kind == Kind::Ldlt),
            Kind::Lu => Analysis::Lu(lu::analyse(matrix)?),
            Kind::Qr => Analysis::Qr(qr::analyse(matrix)?),
        };
        *known = Some((matrix.pattern.clone(), analysis.clone()));
        Ok(analysis)
    }
}

/// What a pattern alone decides.
#[derive(Debug, Clone)]
enum Analysis {
    /// And whether D stands apart.
    Cholesky(Arc<cholesky::Symbolic>, bool),
    Lu(Arc<lu::Symbolic>),
    Qr(Arc<qr::Symbolic>),
}

impl Analysis {
    fn factorise(&self, matrix: &HostCsr) -> Result<Box<dyn Factor>, Outcome> {
        Ok(match self {
            Self::Cholesky(symbolic, ldlt) => Box::new(cholesky::factorise(symbolic, matrix, *ldlt)?),
            Self::Lu(symbolic) => Box::new(lu::factorise(symbolic, matrix)?),
            Self::Qr(symbolic) => Box::new(qr::factorise(symbolic, matrix)?),
        })
    }
}

/// A factorisation of A.
trait Factor: Debug + Send + Sync {
    /// `op(A)^-1 b`, or with the pseudoinverse.
    fn solve(&self, b: &HostColumns, transpose: bool) -> HostColumns;
}

/// A matrix with its factors.
#[derive(Debug)]
struct Factored {
    method: Direct,
    matrix: HostCsr,
    factor: Result<Box<dyn Factor>, Outcome>,
    tolerance: f64,
}

impl Factored {
    /// `b - op(A) x`.
    fn residual(&self, b: &HostColumns, x: &HostColumns, transpose: bool) -> HostColumns {
        let mut residual = b.clone();
        for column in 0..b.columns {
            self.matrix.accumulate(-1.0, x.column(column), residual.column_mut(column), transpose);
        }
        residual
    }

    /// One step of refinement for the columns that become better by it.
    fn refine(&self, factor: &dyn Factor, b: &HostColumns, x: &mut HostColumns, transpose: bool) {
        let residual = self.residual(b, x, transpose);
        let correction = factor.solve(&residual, transpose);
        let mut better = x.clone();
        better.values.iter_mut().zip(&correction.values).for_each(|(x, d)| *x += d);
        let after = self.residual(b, &better, transpose);
        for column in 0..b.columns {
            if self.misfit(residual.column(column), transpose) > self.misfit(after.column(column), transpose) {
                x.column_mut(column).copy_from_slice(better.column(column));
            }
        }
    }

    /// Whether op(A) has more rows than columns: its residuals do not vanish.
    fn is_tall(&self, transpose: bool) -> bool {
        let [m, n] = self.matrix.shape();
        if transpose { n > m } else { m > n }
    }

    /// What a solution makes small: the residual, or of least squares its image under op(A)^T.
    fn misfit(&self, residual: &[f64], transpose: bool) -> f64 {
        if !self.is_tall(transpose) {
            return norm(residual);
        }
        let mut gradient = vec![0.0; self.matrix.shape()[usize::from(!transpose)]];
        self.matrix.accumulate(1.0, residual, &mut gradient, !transpose);
        norm(&gradient)
    }

    /// The relative residual of each right-hand side, item by item, and the outcome of each.
    fn judge(&self, b: &HostColumns, residual: &HostColumns, transpose: bool) -> (Vec<f64>, Vec<Outcome>) {
        let (items, tall) = (self.matrix.items, self.is_tall(transpose));
        let (rows, frobenius) = (b.rows / items, norm(&self.matrix.values));
        let outcome = |column: usize, relative: f64| {
            let r = residual.column(column);
            match () {
                () if relative <= self.tolerance => Outcome::Converged,
                () if tall && self.misfit(r, transpose) <= self.tolerance * frobenius * norm(r) => {
                    Outcome::LeastSquares
                }
                () => Outcome::Inaccurate { tolerance: self.tolerance },
            }
        };
        let of = |(item, column): (usize, usize)| {
            let part = item * rows..(item + 1) * rows;
            let (r, size) = (norm(&residual.column(column)[part.clone()]), norm(&b.column(column)[part]));
            let relative = if size == 0.0 { r } else { r / size };
            (relative, outcome(column, relative))
        };
        (0..items).flat_map(|item| (0..b.columns).map(move |column| (item, column))).map(of).unzip()
    }
}

/// A solution of NaNs, and a report of what made it impossible.
pub(crate) fn impossible(
    method: &'static str,
    outcome: Outcome,
    b: &Tensor<2>,
    rows: usize,
    items: usize,
) -> Solution<Tensor<2>> {
    let [_, columns] = b.dims();
    let report = Report { outcome, ..Report::immediate(method, vec![f64::NAN; items * columns]) };
    let x = Tensor::full([rows, columns], f64::NAN, (&b.device(), b.dtype()));
    Solution { x, report }
}

impl Method for Factored {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        self.method.prepare(a)
    }

    fn run(&self, _: &Operator, b: Tensor<2>, _: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        let rows = self.matrix.shape()[usize::from(!transpose)];
        let factor = match &self.factor {
            Ok(factor) => &**factor,
            Err(outcome) => return impossible(self.name(), outcome.clone(), &b, rows, self.matrix.items),
        };
        let (dtype, device) = (b.dtype(), b.device());
        let b = HostColumns::of(b);
        let mut x = factor.solve(&b, transpose);
        self.refine(factor, &b, &mut x, transpose);
        let solution = x.upload(dtype, &device);
        if dtype != DType::F64 {
            x = HostColumns::of(solution.clone());
        }
        let residual = self.residual(&b, &x, transpose);
        let (relative, outcomes) = self.judge(&b, &residual, transpose);
        let mut report = Report::immediate(self.name(), relative);
        if let Some(worst) = outcomes.iter().max_by_key(|outcome| outcome.severity()) {
            report.outcome = worst.clone();
        }
        report.outcomes = outcomes;
        Solution { x: solution, report }
    }
}

impl Method for Direct {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        Ok(Arc::new(self.factorise(&**a)?))
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        match self.factorise(&**a) {
            Ok(factored) => factored.run(a, b, x0, transpose),
            Err(error) => {
                let rows = a.shape()[usize::from(!transpose)];
                impossible(self.name(), Outcome::Unprepared { error }, &b, rows, a.items())
            }
        }
    }
}

/// How many entries the factors of a square matrix would have: those of Cholesky's factor of its symmetrised pattern.
pub(crate) fn predicted_fill(matrix: &HostCsr) -> usize {
    cholesky::fill(matrix).unwrap_or(usize::MAX)
}
