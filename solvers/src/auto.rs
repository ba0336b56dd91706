//! The method that is chosen by what is known of the operator.

use crate::direct::{Direct, impossible, predicted_fill};
use crate::host::HostCsr;
use crate::krylov::{BiCgStab, Cg, Gmres, Lsmr, MinRes};
use crate::method::Method;
use crate::operator::{LinearOperator, Operator};
use crate::outcome::{Outcome, Solution};
use crate::pairing::SolveFor;
use crate::precond::{Ic0, Ilu0, PreconditionerError};
use burn::tensor::Tensor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The solution x of `A x = b` by the method that fits A, with gradients as of [`sparse_solve`](crate::sparse_solve): [`Auto`]
/// with its defaults. The report's notes say what was chosen, and why.
///
/// # Panics
/// If shapes, dtypes or devices don't fit each other.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
/// use sparsegrad_solvers::solve;
///
/// let device = Device::flex();
/// let a = gallery::poisson([20, 20], (&device, DType::F64))?;
/// let solution = solve(&a, Tensor::<1>::ones([400], (&device, DType::F64)));
/// assert!(solution.report.notes[0].starts_with("chose LLT"));
/// println!("{}", solution.report);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn solve<A: SolveFor<B>, B>(a: &A, b: B) -> Solution<A::Output> {
    crate::sparse_solve(a, b, Auto::new())
}

/// The method that fits the operator.
///
/// What is looked at: the [tags](LinearOperator::tags) of the operator; whether its entries are at hand, and then whether they
/// are symmetric, what is on the diagonal, and how many entries the factors of a direct method would have.
///
/// | operator | first | then |
/// |---|---|---|
/// | symmetric, positive diagonal, small factors | LLT | LDLT, LU, MINRES |
/// | symmetric, positive diagonal | CG with IC(0) | MINRES |
/// | symmetric, small factors | LDLT | LU, MINRES |
/// | symmetric | MINRES | |
/// | square, small factors | LU | GMRES with ILU(0), LSMR |
/// | square | BiCGSTAB with ILU(0) | GMRES with ILU(0), LSMR |
/// | square, matrix-free | GMRES | BiCGSTAB, LSMR |
/// | of another shape, small | QR | LSMR |
/// | of another shape | LSMR | |
///
/// The next one is tried where one does not converge; the transposed solve of a backward pass starts with the one that did. If
/// none converges, the solution is that with the smallest residual.
///
/// A clone shares what is known of a pattern: use one again for a matrix with the same pattern.
#[derive(Debug, Clone)]
pub struct Auto {
    tolerance: Option<f64>,
    max_iterations: Option<usize>,
    llt: Direct,
    ldlt: Direct,
    lu: Direct,
    qr: Direct,
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

/// Factors with at most so many entries are "small": a second or two of work, and 80 MB.
const SMALL_FACTORS: usize = 10_000_000;
/// The pattern of A + A^T, whose factors are counted, has so many times more than LU with an ordering of columns needs.
const LU_MARGIN: usize = 5;
/// Least squares with at most so many columns (or rows, of a wide matrix) have small factors, too.
const SMALL_SIDE: usize = 2_000;

impl Auto {
    /// With the methods' own tolerances and limits.
    pub fn new() -> Self {
        let (llt, ldlt, lu, qr) = (Direct::llt(), Direct::ldlt(), Direct::lu(), Direct::qr());
        Self { tolerance: None, max_iterations: None, llt, ldlt, lu, qr }
    }

    /// The tolerance of whichever method is chosen.
    #[must_use]
    pub fn tolerance(self, tolerance: f64) -> Self {
        let with = |method: Direct| method.tolerance(tolerance);
        Self {
            tolerance: Some(tolerance),
            llt: with(self.llt),
            ldlt: with(self.ldlt),
            lu: with(self.lu),
            qr: with(self.qr),
            ..self
        }
    }

    /// The most iterations of each iterative method.
    #[must_use]
    pub fn max_iterations(self, max_iterations: usize) -> Self {
        Self { max_iterations: Some(max_iterations), ..self }
    }

    /// What is to be tried, in order.
    fn candidates(&self, a: &dyn LinearOperator) -> (String, Vec<Arc<dyn Method>>) {
        macro_rules! iterative {
            ($method:ident $(, $preconditioner:expr)?) => {{
                let mut method = $method::new()$(.precondition($preconditioner))?;
                if let Some(tolerance) = self.tolerance {
                    method = method.tolerance(tolerance);
                }
                if let Some(limit) = self.max_iterations {
                    method = method.max_iterations(limit);
                }
                Arc::new(method) as Arc<dyn Method>
            }};
        }
        let direct = |method: &Direct| Arc::new(method.clone()) as Arc<dyn Method>;
        let ([m, n], tags) = (a.shape(), a.tags());
        let Some(matrix) = HostCsr::of(a) else {
            return match () {
                () if m != n => ("matrix-free, not square".into(), vec![iterative!(Lsmr)]),
                () if tags.positive_definite => {
                    ("matrix-free, positive definite".into(), vec![iterative!(Cg), iterative!(MinRes)])
                }
                () if tags.symmetric => ("matrix-free, symmetric".into(), vec![iterative!(MinRes)]),
                () => {
                    let all = vec![iterative!(Gmres), iterative!(BiCgStab), iterative!(Lsmr)];
                    ("matrix-free".into(), all)
                }
            };
        };
        if m != n {
            let side = m.min(n) / matrix.items;
            return match side <= SMALL_SIDE {
                true => ("not square, small".into(), vec![direct(&self.qr), iterative!(Lsmr)]),
                false => ("not square".into(), vec![iterative!(Lsmr)]),
            };
        }
        let fill = predicted_fill(&matrix);
        let positive = matrix.diagonal().is_ok_and(|diagonal| diagonal.iter().all(|&at| matrix.values[at] > 0.0));
        let symmetric = tags.symmetric || tags.positive_definite || matrix.is_symmetric();
        let small = fill <= if symmetric { SMALL_FACTORS } else { LU_MARGIN * SMALL_FACTORS };
        let all = match (symmetric, positive, small) {
            (true, true, true) => vec![direct(&self.llt), direct(&self.ldlt), direct(&self.lu), iterative!(MinRes)],
            (true, true, false) => vec![iterative!(Cg, Ic0), iterative!(MinRes)],
            (true, false, true) => vec![direct(&self.ldlt), direct(&self.lu), iterative!(MinRes)],
            (true, false, false) => vec![iterative!(MinRes)],
            (false, _, true) => vec![direct(&self.lu), iterative!(Gmres, Ilu0), iterative!(Lsmr)],
            (false, _, false) => vec![iterative!(BiCgStab, Ilu0), iterative!(Gmres, Ilu0), iterative!(Lsmr)],
        };
        let kind = match (symmetric, positive) {
            (true, true) => "symmetric, positive diagonal",
            (true, false) => "symmetric",
            _ => "not symmetric",
        };
        (format!("{kind}, factors of about {fill} entries"), all)
    }
}

impl Method for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        let (reason, candidates) = self.candidates(&**a);
        let candidates = candidates.into_iter().map(|method| Candidate { method, prepared: OnceLock::new() });
        Ok(Arc::new(Chosen { reason, candidates: candidates.collect(), first: AtomicUsize::new(0) }))
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        match self.prepare(a) {
            Ok(chosen) => chosen.run(a, b, x0, transpose),
            Err(_) => unreachable!("nothing is prepared before it is tried"),
        }
    }

    fn run_with_multiplier(
        &self,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        match self.prepare(a) {
            Ok(chosen) => chosen.run_with_multiplier(a, b, x0, transpose),
            Err(_) => unreachable!("nothing is prepared before it is tried"),
        }
    }

    fn finds_minimum_norm(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Candidate {
    method: Arc<dyn Method>,
    prepared: OnceLock<Result<Arc<dyn Method>, PreconditionerError>>,
}

/// The candidates for one operator.
#[derive(Debug)]
struct Chosen {
    reason: String,
    candidates: Vec<Candidate>,
    /// The one that converged last.
    first: AtomicUsize,
}

impl Chosen {
    /// Tries the candidates, beginning with the one that converged last.
    fn first_that_converges<T: Default>(
        &self,
        a: &Operator,
        b: &Tensor<2>,
        transpose: bool,
        run: impl Fn(&dyn Method) -> (Solution<Tensor<2>>, T),
    ) -> (Solution<Tensor<2>>, T) {
        let first = self.first.load(Ordering::Relaxed);
        let order = (first..self.candidates.len()).chain(0..first);
        let mut tried = vec![];
        let mut best: Option<(Solution<Tensor<2>>, T)> = None;
        for at in order {
            let candidate = &self.candidates[at];
            let (mut solution, more) = match candidate.prepared.get_or_init(|| candidate.method.prepare(a)) {
                Ok(method) => run(&**method),
                Err(error) => {
                    let rows = a.shape()[usize::from(!transpose)];
                    let outcome = Outcome::Unprepared { error: error.clone() };
                    (impossible(candidate.method.name(), outcome, b, rows, a.items().max(1)), T::default())
                }
            };
            let name = solution.report.method;
            if solution.report.outcome.is_converged() {
                self.first.store(at, Ordering::Relaxed);
                solution.report.notes.insert(0, format!("chose {name}: {}", self.reason));
                solution.report.notes.append(&mut tried);
                return (solution, more);
            }
            tried.push(format!("{name} was tried: {}", solution.report.outcome));
            if matches!(solution.report.outcome, Outcome::NotFinite { .. } | Outcome::EntryNotFinite { .. }) {
                // No other method gets over that.
                best = Some((solution, more));
                break;
            }
            let better = |(best, _): &(_, T)| worst(&solution) < worst(best) || worst(best).is_nan();
            if best.as_ref().is_none_or(better) {
                best = Some((solution, more));
            }
        }
        let (mut solution, more) = best.expect("there is a candidate");
        let name = solution.report.method;
        solution.report.notes.insert(0, format!("{name} came closest: {}", self.reason));
        solution.report.notes.append(&mut tried);
        (solution, more)
    }
}

impl Method for Chosen {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        let candidates = self.candidates.iter().map(|candidate| candidate.method.clone());
        let candidates = candidates.map(|method| Candidate { method, prepared: OnceLock::new() });
        let reason = self.reason.clone();
        let chosen = Self { reason, candidates: candidates.collect(), first: AtomicUsize::new(0) };
        let _ = a;
        Ok(Arc::new(chosen))
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        let run = |method: &dyn Method| (method.run(a, b.clone(), x0.clone(), transpose), ());
        self.first_that_converges(a, &b, transpose, run).0
    }

    fn run_with_multiplier(
        &self,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        let run = |method: &dyn Method| method.run_with_multiplier(a, b.clone(), x0.clone(), transpose);
        self.first_that_converges(a, &b, transpose, run)
    }

    fn finds_minimum_norm(&self) -> bool {
        true
    }
}

/// The largest relative residual.
fn worst(solution: &Solution<Tensor<2>>) -> f64 {
    let all = solution.report.relative_residuals.iter();
    all.fold(0.0, |worst: f64, &residual| if residual.is_nan() { f64::NAN } else { worst.max(residual) })
}
