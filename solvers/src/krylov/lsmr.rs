//! Least squares.

use super::settings::{Settings, settings};
use super::space::{Axpby, Axpy, Epilogue, Field, Map, Numbers, Plain, Scale, Side, Space, formula};
use super::watch::{Ending, Log, Stop, Watch};
use super::{Found, Krylov, Problem};
use crate::outcome::Outcome;

/// The LSMR method for least squares, min |A x - b|, of any shape and rank, with damping, min |A x - b|^2 + damp^2 |x|^2.
///
/// # Requirements
/// None of A but its transpose. A preconditioner is an operator N^-1, n x n, applied from the right: the condition of A N^-1 is what
/// counts.
///
/// # When it ends
/// If |b - A x| <= max(tolerance |b|, absolute): [`Converged`](Outcome::Converged). If |A^T r| <= tolerance |A| |r|:
/// [`LeastSquares`](Outcome::LeastSquares), for a right-hand side out of A's range (or with damping). Both are recomputed from
/// x. |A| is the Frobenius norm where A's entries are at hand, and its estimate from the iteration otherwise.
///
/// # Rank deficiency
/// Of all minimisers it finds the one that is nearest to the guess: from 0, the one of minimum norm. (With a preconditioner: in
/// the norm |N x|.) With damping there is one minimiser only, and the guess does not shift it.
///
/// # Reference
/// D. Fong and M. Saunders, *LSMR: an iterative algorithm for sparse least-squares problems*, SIAM J. Sci. Comput. 33, 2011.
///
/// # Differences from SciPy
/// With damping and a guess SciPy minimises damp^2 |x - x0|^2. The residual and its gradient are recomputed, and the iteration goes
/// on where the estimates were wrong. Many right-hand sides, batches, preconditioners. No limit on the condition: what can't be
/// reached is told.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::krylov::Lsmr;
///
/// let (rows, columns, values) = ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let a = SparseTensor::from_triplets(&rows, &columns, &values, [3, 2], &Device::flex())?;
/// let b = Tensor::<2>::from_data([[1.0], [2.0], [3.5]], (&Device::flex(), DType::F64));
/// let x = Lsmr::new().tolerance(1e-12).solve(&a, b).into_result()?.to_data().try_to_vec::<f64>()?;
/// assert!((x[0] - 1.0 / 3.0).abs() < 1e-9 && (x[1] - 7.0 / 24.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Lsmr {
    settings: Settings,
    damp: f64,
}
settings!(Lsmr);

impl Lsmr {
    /// Tikhonov damping: adds damp^2 |x|^2 to what is minimised. Default: 0.
    #[must_use]
    pub fn damp(mut self, damp: f64) -> Self {
        self.damp = damp;
        self
    }
}

formula!(
    /// h_bar = h - a h_bar, x += b h_bar, h = c v - d h
    Step [a b c d] [v] [h h_bar x] => [
        c * v - d * h.clone(),
        h.clone() - a.clone() * h_bar.clone(),
        x + b * (h - a * h_bar)
    ] []
);
formula!(
    /// y = a x + b y, and its squared norm
    Combine [a b] [x] [y] => [a * x + b * y] [y.clone() * y]
);

/// out = a product + b y, and its squared norm.
struct Added;
impl Epilogue<2, 1, 1> for Added {
    #[inline(always)]
    fn eval<T: Field>([a, b]: [T; 2], product: T, [y]: [T; 1], _: T) -> (T, [T; 1]) {
        let new = a * product + b * y;
        (new.clone(), [new.clone() * new])
    }
}

/// A plane rotation that takes (a, b) to (r, 0): c, s, r.
fn rotation<N: Numbers>(a: N, b: N) -> [N; 3] {
    let r = (a.clone().square() + b.clone().square()).sqrt();
    let inverse = r.clone().recip();
    let c = N::choose(&r, a * inverse.clone(), r.like(1.0));
    [c, b * inverse, r]
}

/// What is known of x, by its residual.
struct Truth {
    /// |b - A x|.
    residuals: Vec<f64>,
    /// The same with damp x below it.
    lengths: Vec<f64>,
    /// |A^T r - damp^2 x|.
    gradients: Vec<f64>,
}

/// The bidiagonalisation of A N^-1 with damp N^-1 below it.
struct Bidiagonal<'a, S: Space> {
    space: &'a S,
    damp: f64,
    /// Left vector times beta, in its upper part.
    u: S::Vector,
    /// And in its lower part, if there is damping.
    below: Option<S::Vector>,
    beta: S::Numbers,
    /// Right vector times alpha.
    v: S::Vector,
    alpha: S::Numbers,
    /// N^-1 of it, if there is a preconditioner, and room for its transpose.
    image: Option<(S::Vector, S::Vector)>,
}

impl<'a, S: Space> Bidiagonal<'a, S> {
    /// From a residual, its lower part, and its gradient.
    fn new(space: &'a S, damp: f64, u: S::Vector, below: Option<S::Vector>, gradient: &S::Vector) -> Self {
        let mut square = space.dot(&u, &u);
        if let Some(below) = &below {
            square = square + space.dot(below, below);
        }
        let beta = square.sqrt();
        let zeros = || space.zeros(Side::Domain);
        let mut image = space.is_preconditioned().then(|| (zeros(), zeros()));
        let mut v = zeros();
        let inverse = beta.clone().recip();
        match &mut image {
            Some((_, room)) => {
                space.apply(Map::PreconditionerTransposed, Plain, [], gradient, [], room);
                space.update(Scale, [&inverse], [room], [&mut v]);
            }
            None => {
                space.update(Scale, [&inverse], [gradient], [&mut v]);
            }
        }
        let alpha = space.dot(&v, &v).sqrt();
        let mut new = Self { space, damp, u, below, beta, v, alpha, image };
        new.map_right();
        new
    }

    fn map_right(&mut self) {
        if let Some((image, _)) = &mut self.image {
            self.space.apply(Map::Preconditioner, Plain, [], &self.v, [], image);
        }
    }

    /// The right vector times alpha, as it is added to x.
    fn direction(&self) -> &S::Vector {
        self.image.as_ref().map_or(&self.v, |(image, _)| image)
    }

    fn step(&mut self) {
        let space = self.space;
        let (inverse, carried) = (self.alpha.clone().recip(), -(self.alpha.clone() * self.beta.clone().recip()));
        let direction = self.image.as_ref().map_or(&self.v, |(image, _)| image);
        let [mut square] = space.apply(Map::Operator, Axpby, [&inverse, &carried], direction, [], &mut self.u);
        if let Some(below) = &mut self.below {
            let damped = inverse.times(self.damp);
            let [more] = space.update(Combine, [&damped, &carried], [direction], [below]);
            square = square + more;
        }
        self.beta = square.sqrt();
        let (inverse, carried) = (self.beta.clone().recip(), -(self.beta.clone() * self.alpha.clone().recip()));
        let [square] = match (&mut self.image, &self.below) {
            (None, None) => space.apply(Map::Transposed, Axpby, [&inverse, &carried], &self.u, [], &mut self.v),
            (None, Some(below)) => {
                space.apply(Map::Transposed, Axpby, [&inverse, &carried], &self.u, [], &mut self.v);
                let (damped, one) = (inverse.clone().times(self.damp), inverse.like(1.0));
                space.update(Combine, [&damped, &one], [below], [&mut self.v])
            }
            (Some((room, t)), below) => {
                match below {
                    Some(below) => {
                        let damped = inverse.clone().times(self.damp);
                        space.apply(Map::Transposed, Added, [&inverse, &damped], &self.u, [below], t);
                    }
                    None => {
                        space.apply(Map::Transposed, Axpby, [&inverse, &inverse.like(0.0)], &self.u, [], t);
                    }
                }
                space.apply(Map::PreconditionerTransposed, Plain, [], t, [], room);
                let one = inverse.like(1.0);
                space.update(Combine, [&one, &carried], [room], [&mut self.v])
            }
        };
        self.alpha = square.sqrt();
        self.map_right();
    }
}

impl Lsmr {
    /// Recomputes what is known of `x`; puts its residual into `r` and the gradient, A^T r - damp^2 x.
    fn truth<S: Space>(
        problem: &Problem<'_, S>,
        damp: f64,
        x: &S::Vector,
        r: &mut S::Vector,
        gradient: &mut S::Vector,
    ) -> Truth {
        let space = problem.space;
        let residuals = problem.residual(x, r);
        space.apply(Map::Transposed, Plain, [], r, [], gradient);
        let mut lengths = residuals.clone();
        if damp != 0.0 {
            let roots = |numbers: S::Numbers| space.read(&[numbers])[0].iter().map(|x| x.sqrt()).collect::<Vec<_>>();
            for (length, x) in lengths.iter_mut().zip(roots(space.dot(x, x))) {
                *length = length.hypot(damp * x);
            }
            space.update(Axpy, [&space.number(-damp * damp)], [x], [gradient]);
        }
        let squares = space.dot(gradient, gradient);
        let gradients = space.read(&[squares])[0].iter().map(|square| square.sqrt()).collect();
        Truth { residuals, lengths, gradients }
    }

    /// Iterates until all are done, or nothing is left to gain.
    #[allow(clippy::too_many_arguments, reason = "a problem and its state")]
    fn descend<S: Space>(
        problem: &Problem<'_, S>,
        damp: f64,
        x: &mut S::Vector,
        r: S::Vector,
        gradient: &S::Vector,
        known: Option<&[f64]>,
        sizes: &mut [f64],
        watch: &mut Watch<'_, S>,
    ) {
        let Problem { space, tolerance, .. } = *problem;
        let below = (damp != 0.0).then(|| {
            let mut below = space.zeros(Side::Domain);
            space.update(Scale, [&space.number(-damp)], [&*x], [&mut below]);
            below
        });
        let mut basis = Bidiagonal::new(space, damp, r, below, gradient);
        let (zero, one) = (space.number(0.0), space.number(1.0));
        let mut h = space.zeros(Side::Domain);
        space.update(Scale, [&basis.alpha.clone().recip()], [basis.direction()], [&mut h]);
        let mut h_bar = space.zeros(Side::Domain);
        let known = known.map(|known| space.upload(&known.iter().map(|size| size.hypot(damp)).collect::<Vec<_>>()));
        let mut size_squares = basis.alpha.clone().square();

        let (mut zeta_bar, mut alpha_bar) = (basis.alpha.clone() * basis.beta.clone(), basis.alpha.clone());
        let (mut rho, mut rho_bar, mut c_bar, mut s_bar) = (one.clone(), one.clone(), one.clone(), zero.clone());
        let mut zeta = zero.clone();
        // For the norm of the residual.
        let (mut beta_dd, mut beta_d) = (basis.beta.clone(), zero.clone());
        let (mut rho_d, mut tau_tilde, mut theta_tilde) = (one.clone(), zero.clone(), zero.clone());
        loop {
            basis.step();
            let (alpha, beta) = (basis.alpha.clone(), basis.beta.clone());
            size_squares = size_squares + beta.clone().square();

            let [c, s, rho_new] = rotation(alpha_bar, beta);
            let theta_new = s.clone() * alpha.clone();
            alpha_bar = c.clone() * alpha.clone();
            let (rho_old, rho_bar_old, zeta_old) = (rho, rho_bar, zeta);
            rho = rho_new;
            let theta_bar = s_bar * rho.clone();
            let [c_bar_new, s_bar_new, rho_bar_new] = rotation(c_bar * rho.clone(), theta_new.clone());
            (c_bar, s_bar, rho_bar) = (c_bar_new, s_bar_new, rho_bar_new);
            zeta = c_bar.clone() * zeta_bar.clone();
            zeta_bar = -(s_bar.clone() * zeta_bar);

            let inverse_rho = rho.clone().recip();
            let a = theta_bar.clone() * rho.clone() * (rho_old * rho_bar_old).recip();
            let b = watch.masked(zeta.clone() * (rho.clone() * rho_bar.clone()).recip());
            let d = theta_new * inverse_rho;
            let direction = basis.direction();
            space.update(Step, [&a, &b, &alpha.clone().recip(), &d], [direction], [&mut h, &mut h_bar, &mut *x]);

            let beta_hat = c * beta_dd.clone();
            beta_dd = -(s * beta_dd);
            let theta_tilde_old = theta_tilde;
            let [c_tilde, s_tilde, rho_tilde] = rotation(rho_d, theta_bar);
            theta_tilde = s_tilde.clone() * rho_bar.clone();
            rho_d = c_tilde.clone() * rho_bar.clone();
            beta_d = c_tilde * beta_hat - s_tilde * beta_d;
            tau_tilde = (zeta_old - theta_tilde_old * tau_tilde) * rho_tilde.recip();
            let inverse = rho_d.clone().abs().recip();
            let sign = rho_d.clone() * inverse.clone();
            let tau = (zeta.clone() - theta_tilde.clone() * tau_tilde.clone()) * inverse * sign;
            let squares = (beta_d.clone() - tau).square() + beta_dd.clone().square();

            // The gradient, next to what it may be; both are 0 in the end.
            let size = known.clone().unwrap_or_else(|| size_squares.clone().sqrt());
            let steep = zeta_bar.clone().abs();
            let allowed = size.times(tolerance) * squares.clone().sqrt();
            let goes_on = S::Numbers::choose(&steep, steep.clone() - allowed, zero.clone());
            size_squares = size_squares + alpha.square();
            if !watch.step_unless(squares, Some(&goes_on)) {
                break;
            }
        }
        if known.is_none() {
            let seen = space.read(&[size_squares.sqrt()]).remove(0);
            for (size, seen) in sizes.iter_mut().zip(seen) {
                *size = size.max(seen);
            }
        }
    }
}

impl Krylov for Lsmr {
    const NAME: &'static str = "LSMR";
    const BOTH: bool = true;
    const MINIMUM_NORM: bool = true;

    fn damping(&self) -> f64 {
        self.damp
    }

    fn drive<S: Space>(&self, problem: &Problem<'_, S>, x: &mut S::Vector) -> Found {
        let Problem { space, settings, norms, limit, .. } = problem;
        let (space, groups) = (*space, norms.len());
        let damp = self.damp * problem.operator_scale;
        // With damping a residual says nothing.
        let goals: Vec<f64> = problem.goals.iter().map(|goal| if damp == 0.0 { *goal } else { 0.0 }).collect();
        // Norms of the operator: of its entries, or as iterations see them.
        let known = space.frobenius();
        let mut sizes = known.clone().unwrap_or_else(|| vec![0.0; groups]);
        let mut outcomes = problem.decided.clone();
        let mut log = Log::default();
        let (mut r, mut gradient) = (space.zeros(Side::Range), space.zeros(Side::Domain));
        let mut now = Self::truth(problem, damp, x, &mut r, &mut gradient);
        let mut counts = vec![0; groups];
        // What the last round began with, and how it ended.
        let mut last: Option<(S::Vector, Truth, Vec<Ending>)> = None;
        loop {
            let mut keep = vec![1.0; groups];
            for group in 0..groups {
                let ending = last.as_ref().map(|(.., endings)| endings[group]);
                counts[group] += ending.map_or(0, |ending| ending.iterations);
                if outcomes[group].is_some() {
                    continue;
                }
                let allowed = problem.tolerance * sizes[group].hypot(damp) * now.lengths[group];
                if damp == 0.0 && now.residuals[group] <= goals[group] {
                    outcomes[group] = Some(Outcome::Converged);
                } else if now.gradients[group] <= allowed {
                    outcomes[group] = Some(Outcome::LeastSquares);
                } else if let Some((_, before, endings)) = &last {
                    let (length, steep) = (before.lengths[group], before.gradients[group]);
                    let helped = now.lengths[group] < 0.5 * length || now.gradients[group] < 0.5 * steep;
                    // Worse, or not a number.
                    if !(now.lengths[group] <= length || now.gradients[group] <= steep) {
                        keep[group] = 0.0;
                        now.residuals[group] = before.residuals[group];
                    }
                    outcomes[group] = match endings[group].stop {
                        Stop::Running => Some(Outcome::IterationLimit { limit: *limit }),
                        Stop::Broken(kind) => Some(Outcome::Breakdown { kind, iteration: counts[group] + 1 }),
                        _ if helped => None,
                        _ => Some(Outcome::Stagnated),
                    };
                }
            }
            if let Some((saved, ..)) = last.as_ref().filter(|_| keep.contains(&0.0)) {
                space.restore(&keep, saved, x);
            }
            let live: Vec<f64> = outcomes.iter().map(|outcome| if outcome.is_none() { 1.0 } else { 0.0 }).collect();
            if live.iter().all(|live| *live == 0.0) || log.iterations >= *limit {
                break;
            }
            let saved = space.copy(Side::Domain, x);
            let mut watch = Watch::new(space, settings, &live, &now.lengths, &goals, norms, *limit, &mut log);
            let u = std::mem::replace(&mut r, space.zeros(Side::Range));
            Self::descend(problem, damp, x, u, &gradient, known.as_deref(), &mut sizes, &mut watch);
            let endings = watch.finish();
            last = Some((saved, now, endings));
            now = Self::truth(problem, damp, x, &mut r, &mut gradient);
        }
        let limited = || Outcome::IterationLimit { limit: *limit };
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(limited)).collect();
        Found { outcomes, residuals: now.residuals, log }
    }

    fn round<S: Space>(&self, _: &S, _: &mut S::Vector, _: &mut S::Vector, _: &mut Watch<'_, S>) {
        unreachable!("least squares are driven by their gradient")
    }
}
