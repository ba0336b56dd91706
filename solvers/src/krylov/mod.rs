//! Krylov methods: they see an operator only through its products.
//!
//! | method | operator | products an iteration |
//! |---|---|---|
//! | [`Cg`] | symmetric positive definite | 1 |
//! | [`MinRes`] | symmetric; indefinite or singular, too | 1 |
//! | [`BiCgStab`] | square | 2 |
//! | [`Cgs`] | square | 2 |
//! | [`Gmres`] | square; a basis is kept; flexible, too | 1 |
//! | [`Lsmr`] | any shape, least squares | 1, and 1 with the transpose |
//!
//! # What they have in common
//!
//! * **Right-hand sides** are the columns of b, m x k, and of a batch those of each item: each has its own norms, tolerance
//!   and end, and what is done is frozen, so that a column's bits don't depend on how long the others take.
//! * **Tolerance**: |b - A x| <= max(tolerance |b|, absolute), in the 2-norm, whatever the preconditioner. Nothing else in them is
//!   absolute: problems are scaled by powers of two, so that neither tiny nor huge numbers are lost.
//! * **The residual is recomputed** from x at the end. Where the method's own recursion was wrong, it begins anew from there, as
//!   long as that helps; where it doesn't, the outcome says so. A report tells the recomputed residual of each right-hand side.
//! * **b = 0** has the solution 0, after 0 iterations, whatever the guess; an exact guess needs none either.
//! * If the residual has grown, what a round began with is returned: x is the best of what was recomputed.
//!
//! On the CPU the vectors are updated in place, a pass for each formula, in f64 or f32, with sums whose order depends on
//! nothing but the shape. On GPUs iterations wait for the device only every 16 iterations.

mod bicgstab;
mod cg;
mod cgs;
mod descent;
mod device;
mod gmres;
#[cfg(feature = "flex")]
mod host;
mod lsmr;
mod lsqr;
mod minres;
pub(crate) mod settings;
mod space;
mod watch;

pub use bicgstab::BiCgStab;
pub use cg::{Cg, Tridiagonal};
pub use cgs::Cgs;
pub use gmres::Gmres;
pub use lsmr::Lsmr;
pub use minres::MinRes;
pub use settings::Progress;

use crate::operator::{LinearOperator, Operator};
use crate::outcome::{Outcome, Report, Solution};
use crate::precond::PreconditionerError;
use burn::tensor::{DType, Device, Tensor};
use settings::Settings;
use space::{Map, Numbers, Plain, Residual, Scale, Side, Space};
use watch::{Ending, Log, Stop, Watch};

/// A method, as the common driver sees it.
pub(crate) trait Krylov: Clone {
    /// In reports.
    const NAME: &'static str;
    /// Whether it needs the transposed operator, too.
    const BOTH: bool = false;
    /// Whether it finds the solution of minimum norm where there are several.
    const MINIMUM_NORM: bool = false;
    /// Whether its preconditioner maps right-hand sides (as they are of a transposed solve), not solutions.
    const LEFT: bool = false;
    /// A residual that shrinks by less than this between two roundings off of the recursion is out of reach.
    const PROGRESS: f64 = 0.5;

    /// The damping of a least-squares method.
    fn damping(&self) -> f64 {
        0.0
    }

    /// Solves from the guess in `x`. If a multiplier is asked for, y such that x = A^T y, it is 0 to begin with: least squares only.
    fn drive<S: Space>(
        &self,
        problem: &Problem<'_, S>,
        x: &mut S::Vector,
        multiplier: Option<&mut S::Vector>,
    ) -> Found {
        debug_assert!(multiplier.is_none(), "{} has no multipliers", Self::NAME);
        problem.in_rounds(x, Self::PROGRESS, |x, r, watch| self.round(problem.space, x, r, watch))
    }

    /// Iterates until all are done: `r` is the residual of `x`, and both are updated.
    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>);

    /// As [`Method::run_with_multiplier`](crate::Method::run_with_multiplier).
    fn run_with_multiplier(
        &self,
        settings: &Settings,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        (run(self, settings, a, b, x0, transpose), None)
    }
}

/// A problem in its space, scaled.
pub(crate) struct Problem<'a, S: Space> {
    pub space: &'a S,
    pub settings: &'a Settings,
    pub b: S::Vector,
    /// Norms of the right-hand sides.
    pub norms: Vec<f64>,
    /// Largest residual norms to end with.
    pub goals: Vec<f64>,
    pub tolerance: f64,
    /// What the operator is multiplied by.
    pub operator_scale: f64,
    pub limit: usize,
    /// Whether x is a guess that is not 0.
    pub guessed: bool,
    /// Of right-hand sides that need no method.
    pub decided: Vec<Option<Outcome>>,
    /// What solutions in this scale are multiplied by, of each right-hand side.
    pub unscale: Vec<f64>,
}

/// What was found of each right-hand side.
pub(crate) struct Found {
    pub outcomes: Vec<Outcome>,
    /// Recomputed residual norms.
    pub residuals: Vec<f64>,
    pub log: Log,
}

/// The settings with the preconditioner of `a` made.
pub(crate) fn prepared(settings: &Settings, a: &Operator) -> Result<Settings, PreconditionerError> {
    let mut settings = settings.clone();
    if let Some(preconditioner) = &settings.preconditioner {
        settings.inverse = Some(preconditioner.build(&**a)?);
    }
    Ok(settings)
}

/// Solves with `a`, or its transpose, in the space of its device.
#[track_caller]
pub(crate) fn run<M: Krylov>(
    method: &M,
    settings: &Settings,
    a: &Operator,
    b: Tensor<2>,
    x0: Option<Tensor<2>>,
    transpose: bool,
) -> Solution<Tensor<2>> {
    run_for(method, settings, a, b, x0, transpose, false).0
}

/// [`run`], and the multiplier if that is asked for.
#[track_caller]
fn run_for<M: Krylov>(
    method: &M,
    settings: &Settings,
    a: &Operator,
    b: Tensor<2>,
    x0: Option<Tensor<2>>,
    transpose: bool,
    multiplier: bool,
) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
    let [m, n] = a.shape();
    let [m, n] = if transpose { [n, m] } else { [m, n] };
    let k = b.dims()[1];
    let x0 = x0.or_else(|| settings.guess.clone().filter(|_| !transpose));
    fits(M::NAME, "the right-hand side", a, &b, m);
    if let Some(x0) = &x0 {
        fits(M::NAME, "the guess", a, x0, n);
        assert_eq!(x0.dims()[1], k, "{}: the guess has as many columns as the right-hand side", M::NAME);
    }
    assert!(M::BOTH || m == n, "{}: the operator must be square, and is {m}x{n}", M::NAME);
    let settings = match (&settings.preconditioner, &settings.inverse) {
        (Some(_), None) => match prepared(settings, a) {
            Ok(settings) => settings,
            Err(error) => return (without_preconditioner(M::NAME, error, x0, [n, k], &b), None),
        },
        _ => settings.clone(),
    };
    let inverse = settings.inverse.as_ref().map(|inverse| &inverse.operator);
    let fits = inverse.is_none() || m == n || transpose == M::LEFT;
    assert!(
        fits,
        "{}: the preconditioner is for A, and not for its transpose: A must have no fewer rows than columns",
        M::NAME
    );
    let scale = operator_scale(a);
    macro_rules! solve_in {
        ($space:expr) => {{
            let space = $space;
            let (b, guess) = (space.vector(Side::Range, b), x0.map(|x0| space.vector(Side::Domain, x0)));
            let (x, y, mut report) = solve(method, &settings, &space, a.dtype(), n, scale, b, guess, multiplier);
            report.notes.extend(settings.inverse.as_ref().and_then(|inverse| inverse.note.clone()));
            (Solution { x: space.tensor(x), report }, y.map(|y| space.tensor(y)))
        }};
    }
    #[cfg(feature = "flex")]
    if a.device() == Device::flex() {
        match a.dtype() {
            DType::F32 => return solve_in!(host::Host::<f32>::new(a, inverse, transpose, k, scale, M::BOTH)),
            DType::F64 => return solve_in!(host::Host::<f64>::new(a, inverse, transpose, k, scale, M::BOTH)),
            _ => {}
        }
    }
    solve_in!(device::OnDevice::new(a, inverse, transpose, k, scale, M::BOTH))
}

#[track_caller]
fn fits(method: &str, what: &str, a: &Operator, tensor: &Tensor<2>, rows: usize) {
    let [m, n] = a.shape();
    let [found, columns] = tensor.dims();
    assert_eq!(found, rows, "{method}: {what} is {found}x{columns}, and the operator {m}x{n}");
    assert_eq!(tensor.dtype(), a.dtype(), "{method}: the dtypes of {what} and of the operator differ (use `cast`)");
    assert_eq!(tensor.device(), a.device(), "{method}: the devices of {what} and of the operator differ");
}

fn without_preconditioner(
    method: &'static str,
    error: PreconditionerError,
    x0: Option<Tensor<2>>,
    shape: [usize; 2],
    b: &Tensor<2>,
) -> Solution<Tensor<2>> {
    let x = x0.unwrap_or_else(|| Tensor::zeros(shape, (&b.device(), b.dtype())));
    let outcome = Outcome::Unprepared { error };
    Solution { x, report: Report { outcome, ..Report::immediate(method, vec![]) } }
}

/// The power of two that brings the largest entry of the operator near 1; 1 if the entries are not at hand.
fn operator_scale(a: &Operator) -> f64 {
    let Some(matrix) = a.stored().filter(|matrix| matrix.nnz() > 0) else {
        return 1.0;
    };
    let values = matrix.values().clone();
    #[cfg(feature = "flex")]
    if values.device() == Device::flex() {
        // On the host one pass over the slice is the fastest.
        let data = values.into_data();
        let largest = match (data.as_slice::<f64>(), data.as_slice::<f32>()) {
            (Ok(values), _) => values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs())),
            (_, Ok(values)) => values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs())).into(),
            _ => 1.0,
        };
        return power_of_two(largest);
    }
    values.abs().max().into_data().iter::<f64>().next().map_or(1.0, power_of_two)
}

/// The power of two whose product with a size is in [1/2, 2); 1 for what has none.
fn power_of_two(size: f64) -> f64 {
    if size > 0.0 && size.is_finite() { 2f64.powi((-size.log2().floor()).clamp(-1000.0, 1000.0) as i32) } else { 1.0 }
}

/// Scales, solves, and scales back.
#[allow(clippy::too_many_arguments, reason = "a problem and its parts")]
fn solve<M: Krylov, S: Space>(
    method: &M,
    settings: &Settings,
    space: &S,
    dtype: DType,
    n: usize,
    operator_scale: f64,
    mut b: S::Vector,
    guess: Option<S::Vector>,
    multiplier: bool,
) -> (S::Vector, Option<S::Vector>, Report) {
    let groups = space.groups();
    let mut decided = vec![None; groups];
    let largest = space.max_abs(&b);
    let scales: Vec<f64> = largest.iter().copied().map(power_of_two).collect();
    let guessed = guess.is_some();
    let mut x = guess.unwrap_or_else(|| space.zeros(Side::Domain));
    let guess_sizes = if guessed { space.max_abs(&x) } else { vec![0.0; groups] };
    for group in 0..groups {
        let not_finite = |what| Some(Outcome::NotFinite { what });
        if !largest[group].is_finite() {
            decided[group] = not_finite("the right-hand side");
        } else if !guess_sizes[group].is_finite() {
            decided[group] = not_finite("the guess");
        } else if largest[group] == 0.0 {
            decided[group] = Some(Outcome::Converged);
        }
    }
    // What is decided is 0, and does not disturb the others.
    if decided.iter().any(Option::is_some) {
        let keep: Vec<f64> = decided.iter().map(|decided| if decided.is_some() { 0.0 } else { 1.0 }).collect();
        space.restore(&keep, &space.zeros(Side::Range), &mut b);
        space.restore(&keep, &space.zeros(Side::Domain), &mut x);
    }
    rescale(space, &scales, Side::Range, &mut b);
    let to_x: Vec<f64> = scales.iter().map(|scale| scale / operator_scale).collect();
    if guessed {
        rescale(space, &to_x, Side::Domain, &mut x);
    }
    let norms: Vec<f64> = space.read(&[space.dot(&b, &b)])[0].iter().map(|square| square.sqrt()).collect();
    let tolerance = settings.tolerance(dtype);
    let goal = |(norm, scale): (&f64, &f64)| (tolerance * norm).max(settings.absolute * scale);
    let goals = norms.iter().zip(&scales).map(goal).collect();
    let unscale: Vec<f64> = to_x.iter().map(|to_x| 1.0 / to_x).collect();
    let limit = settings.limit(n);
    let problem =
        Problem { space, settings, b, norms, goals, tolerance, operator_scale, limit, guessed, decided, unscale };
    let mut y = multiplier.then(|| space.zeros(Side::Range));
    let Found { outcomes, residuals, log } = method.drive(&problem, &mut x, y.as_mut());
    rescale(space, &problem.unscale, Side::Domain, &mut x);
    if let Some(y) = &mut y {
        let unscale: Vec<f64> = problem.unscale.iter().map(|unscale| unscale * operator_scale).collect();
        rescale(space, &unscale, Side::Range, y);
    }
    let relative = |(residual, norm): (&f64, &f64)| if *norm > 0.0 { residual / norm } else { *residual };
    let relative_residuals: Vec<f64> = residuals.iter().zip(&problem.norms).map(relative).collect();
    debug_assert_eq!(relative_residuals.len(), groups);
    let outcome = outcomes.iter().max_by_key(|outcome| outcome.severity()).cloned().unwrap_or(Outcome::Converged);
    let Log { history, iterations } = log;
    let report = Report { method: M::NAME, outcome, outcomes, iterations, relative_residuals, history, notes: vec![] };
    (x, y, report)
}

/// Multiplies each column by its number.
fn rescale<S: Space>(space: &S, numbers: &[f64], side: Side, x: &mut S::Vector) {
    if numbers.iter().any(|number| *number != 1.0) {
        let old = space.copy(side, x);
        space.update(Scale, [&space.upload(numbers)], [&old], [x]);
    }
}

impl<S: Space> Problem<'_, S> {
    /// Puts the residual of `x` into `r`: its norms.
    pub(crate) fn residual(&self, x: &S::Vector, r: &mut S::Vector) -> Vec<f64> {
        self.space.apply(Map::Operator, Plain, [], x, [], r);
        let [squares] = self.space.update(Residual, [], [&self.b], [r]);
        self.space.read(&[squares])[0].iter().map(|square| square.sqrt()).collect()
    }

    /// Rounds of a method for square systems. Each begins with the recomputed residual; there is another one as long as that is
    /// above its goal, and below `progress` times what the last round began with.
    pub(crate) fn in_rounds(
        &self,
        x: &mut S::Vector,
        progress: f64,
        mut round: impl FnMut(&mut S::Vector, &mut S::Vector, &mut Watch<'_, S>),
    ) -> Found {
        let Self { space, settings, goals, limit, .. } = self;
        let groups = space.groups();
        let mut log = Log::default();
        let mut outcomes = self.decided.clone();
        let mut counts = vec![0; groups];
        let mut residuals = self.norms.clone();
        let mut endings: Vec<Ending> = vec![];
        let mut r = if self.guessed { space.zeros(Side::Range) } else { space.copy(Side::Range, &self.b) };
        let mut saved = None;
        loop {
            let before = std::mem::take(&mut residuals);
            residuals = match (&saved, self.guessed) {
                (None, false) => self.norms.clone(),
                _ => self.residual(x, &mut r),
            };
            let mut keep = vec![1.0; groups];
            for group in 0..groups {
                if let Some(ending) = endings.get(group) {
                    counts[group] += ending.iterations;
                }
                if outcomes[group].is_some() {
                    continue;
                }
                let now = residuals[group];
                if now <= goals[group] {
                    outcomes[group] = Some(Outcome::Converged);
                    continue;
                }
                let Some(ending) = endings.get(group) else {
                    continue;
                };
                let (better, helped) = (now < before[group], now < progress * before[group]);
                if !better {
                    // Worse, or not a number.
                    keep[group] = 0.0;
                    residuals[group] = before[group];
                }
                outcomes[group] = match ending.stop {
                    Stop::Inconsistent => Some(Outcome::Inconsistent),
                    Stop::Running => Some(Outcome::IterationLimit { limit: *limit }),
                    Stop::Restart if now < before[group] * (1.0 - 1e-6) => None,
                    _ if helped && log.iterations < *limit => None,
                    Stop::Broken(kind) => Some(Outcome::Breakdown { kind, iteration: counts[group] + 1 }),
                    _ => Some(Outcome::Stagnated),
                };
            }
            if let Some(saved) = saved.as_ref().filter(|_| keep.contains(&0.0)) {
                space.restore(&keep, saved, x);
            }
            let live: Vec<f64> = outcomes.iter().map(|outcome| if outcome.is_none() { 1.0 } else { 0.0 }).collect();
            if live.iter().all(|live| *live == 0.0) || log.iterations >= *limit {
                break;
            }
            saved = Some(space.copy(Side::Domain, x));
            let mut watch = Watch::new(*space, settings, &live, &residuals, goals, &self.norms, *limit, &mut log);
            round(x, &mut r, &mut watch);
            endings = watch.finish();
        }
        let limited = || Outcome::IterationLimit { limit: *limit };
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(limited)).collect();
        Found { outcomes, residuals, log }
    }
}

/// A breakdown that is only seen where a number is exactly 0, relative to what it is made of.
pub(crate) fn away_from_zero<S: Space>(space: &S, number: &S::Numbers, size: S::Numbers) -> S::Numbers {
    let negligible = space.epsilon() * space.epsilon();
    number.clone().abs() - size.times(negligible)
}
