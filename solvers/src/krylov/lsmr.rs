//! Least squares.

use super::descent::{Descent, Truth, Unknowns, descend, norms, project};
use super::lsqr::Lsqr;
use super::settings::{Settings, settings};
use super::space::{Axpby, Axpy, Epilogue, Field, Formula, Map, Numbers, Plain, Scale, Side, Space, formula};
use super::watch::Watch;
use super::{Found, Krylov, Problem};
use crate::operator::Operator;
use crate::outcome::Solution;
use burn::tensor::Tensor;

/// The LSMR method for least squares, min |A x - b|, of any shape and rank, with damping, min |A x - b|^2 + damp^2 |x|^2.
///
/// # Requirements
/// None of A but its transpose. A preconditioner is an operator N^-1, n x n, applied from the right: the condition of A N^-1 is what
/// counts. It serves gradients of [`sparse_lstsq`](crate::sparse_lstsq) as well, at full column rank.
///
/// # When it ends
/// If |b - A x| <= max(tolerance |b|, absolute): [`Converged`](crate::Outcome::Converged). If |A^T r| <= tolerance |A| |r|:
/// [`LeastSquares`](crate::Outcome::LeastSquares), for a right-hand side out of A's range (or with damping). Both are recomputed from
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
/// [`Step`] of the multiplier, whose direction is s = e u + f s.
#[inline(always)]
fn multiplier_step<T: Field>([e, f, a, b, c, d]: [T; 6], u: T, [s, h, h_bar, y]: [T; 4]) -> [T; 4] {
    let s = e * u + f * s;
    let h_bar = h.clone() - a * h_bar;
    [s.clone(), c * s - d * h, h_bar.clone(), y + b * h_bar]
}

struct MultiplierStep;
impl Formula<6, 1, 4, 0> for MultiplierStep {
    #[inline(always)]
    fn eval<T: Field>(c: [T; 6], [u]: [T; 1], w: [T; 4]) -> ([T; 4], [T; 0]) {
        (multiplier_step(c, u, w), [])
    }
}

/// Two of them in one pass, which waits for memory.
struct MultiplierSteps;
impl Formula<12, 2, 4, 0> for MultiplierSteps {
    #[inline(always)]
    fn eval<T: Field>([e, f, a, b, c, d, rest @ ..]: [T; 12], [u, next]: [T; 2], w: [T; 4]) -> ([T; 4], [T; 0]) {
        (multiplier_step(rest, next, multiplier_step([e, f, a, b, c, d], u, w)), [])
    }
}

formula!(
    /// y = a x + b y, and its squared norm
    Combine [a b] [x] [y] => [a * x + b * y] [y.clone() * y]
);

/// out = a product + b y, and its squared norm.
pub(super) struct Added;
impl Epilogue<2, 1, 1> for Added {
    #[inline(always)]
    fn eval<T: Field>([a, b]: [T; 2], product: T, [y]: [T; 1], _: T) -> (T, [T; 1]) {
        let new = a * product + b * y;
        (new.clone(), [new.clone() * new])
    }
}

/// A plane rotation that takes (a, b) to (r, 0): c, s, r.
pub(super) fn rotation<N: Numbers>(a: N, b: N) -> [N; 3] {
    let r = (a.clone().square() + b.clone().square()).sqrt();
    let inverse = r.clone().recip();
    let c = N::choose(&r, a * inverse.clone(), r.like(1.0));
    [c, b * inverse, r]
}

/// The bidiagonalisation of A N^-1 with damp N^-1 below it.
struct Bidiagonal<'a, S: Space> {
    space: &'a S,
    damp: f64,
    /// Left vector times beta, in its upper part, and the one before.
    u: S::Vector,
    u_old: S::Vector,
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
        let u_old = space.zeros(Side::Range);
        let mut new = Self { space, damp, u, u_old, below, beta, v, alpha, image };
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
        std::mem::swap(&mut self.u, &mut self.u_old);
        let [mut square] =
            space.apply(Map::Operator, Added, [&inverse, &carried], direction, [&self.u_old], &mut self.u);
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

/// The problem, and what is solved for.
struct Forward<'p, 'a, S: Space> {
    problem: &'p Problem<'a, S>,
    damp: f64,
    x: &'p mut S::Vector,
    /// The y of which x is A^T y, if that is asked for.
    multiplier: Option<&'p mut S::Vector>,
    r: S::Vector,
    /// A^T r - damp^2 x.
    gradient: S::Vector,
}

impl<S: Space> Descent<S> for Forward<'_, '_, S> {
    fn unknowns(&mut self) -> Unknowns<'_, S> {
        let multiplier = self.multiplier.as_deref_mut().map(|y| (Side::Range, y));
        [(Side::Domain, &mut *self.x)].into_iter().chain(multiplier).collect()
    }

    fn truth(&mut self, sizes: &[f64]) -> Truth {
        let (space, damp, tolerance) = (self.problem.space, self.damp, self.problem.tolerance);
        let residuals = self.problem.residual(self.x, &mut self.r);
        space.apply(Map::Transposed, Plain, [], &self.r, [], &mut self.gradient);
        let (mut lengths, mut goals) = (residuals.clone(), self.problem.goals.clone());
        if damp != 0.0 {
            for (length, x) in lengths.iter_mut().zip(norms(space, space.dot(self.x, self.x))) {
                *length = length.hypot(damp * x);
            }
            space.update(Axpy, [&space.number(-damp * damp)], [self.x], [&mut self.gradient]);
            // A residual says nothing.
            goals.fill(f64::NEG_INFINITY);
        }
        let gradients = norms(space, space.dot(&self.gradient, &self.gradient));
        let level = sizes.iter().zip(&lengths).map(|(size, length)| tolerance * size.hypot(damp) * length).collect();
        Truth { residuals, goals, lengths, gradients, level }
    }

    fn round(&mut self, known: Option<&[f64]>, sizes: &mut [f64], watch: &mut Watch<'_, S>) {
        let (x, damp) = (&mut *self.x, self.damp);
        let Problem { space, tolerance, .. } = *self.problem;
        let below = (damp != 0.0).then(|| {
            let mut below = space.zeros(Side::Domain);
            space.update(Scale, [&space.number(-damp)], [&*x], [&mut below]);
            below
        });
        let r = std::mem::replace(&mut self.r, space.zeros(Side::Range));
        let mut basis = Bidiagonal::new(space, damp, r, below, &self.gradient);
        let (zero, one) = (space.number(0.0), space.number(1.0));
        let mut h = space.zeros(Side::Domain);
        space.update(Scale, [&basis.alpha.clone().recip()], [basis.direction()], [&mut h]);
        let mut h_bar = space.zeros(Side::Domain);
        // The same of the multiplier, whose directions s are such that A^T s = v.
        let mut dual = self.multiplier.as_deref_mut().map(|y| {
            let [mut s, mut h, h_bar] = [(); 3].map(|()| space.zeros(Side::Range));
            space.update(Scale, [&basis.beta.clone().recip()], [&basis.u], [&mut s]);
            space.update(Scale, [&basis.alpha.clone().recip()], [&s], [&mut h]);
            ([s, h, h_bar], y)
        });
        // The numbers of a step of it that is not done yet.
        let mut waiting: Option<[S::Numbers; 6]> = None;
        let known = known.map(|known| space.upload(&known.iter().map(|size| size.hypot(damp)).collect::<Vec<_>>()));
        let mut size_squares = basis.alpha.clone().square();

        let (mut zeta_bar, mut alpha_bar) = (basis.alpha.clone() * basis.beta.clone(), basis.alpha.clone());
        let (mut rho, mut rho_bar, mut c_bar, mut s_bar) = (one.clone(), one.clone(), one.clone(), zero.clone());
        let mut zeta = zero.clone();
        // For the norm of the residual.
        let (mut beta_dd, mut beta_d) = (basis.beta.clone(), zero.clone());
        let (mut rho_d, mut tau_tilde, mut theta_tilde) = (one.clone(), zero.clone(), zero.clone());
        loop {
            let alpha_old = basis.alpha.clone();
            basis.step();
            let (alpha, beta) = (basis.alpha.clone(), basis.beta.clone());
            size_squares = size_squares + beta.clone().square();

            let [c, s, rho_new] = rotation(alpha_bar, beta.clone());
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
            let (inverse, d) = (alpha.clone().recip(), theta_new * inverse_rho);
            space.update(Step, [&a, &b, &inverse, &d], [basis.direction()], [&mut h, &mut h_bar, &mut *x]);
            if let Some(([s, h, h_bar], y)) = &mut dual {
                // Nothing keeps s small, when it is made of rounding errors.
                let [e, f] = [beta.clone().recip(), -(beta * alpha_old.recip())].map(|number| watch.masked(number));
                let now = [e, f, watch.masked(a), b, inverse, watch.masked(d)];
                waiting = match &waiting {
                    None => Some(now),
                    Some([e, f, a, b, c, d]) => {
                        let [e2, f2, a2, b2, c2, d2] = &now;
                        let numbers = [e, f, a, b, c, d, e2, f2, a2, b2, c2, d2];
                        space.update(MultiplierSteps, numbers, [&basis.u_old, &basis.u], [s, h, h_bar, &mut **y]);
                        None
                    }
                };
            }

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
        if let (Some(([s, h, h_bar], y)), Some(numbers)) = (&mut dual, &waiting) {
            space.update(MultiplierStep, numbers.each_ref(), [&basis.u], [s, h, h_bar, &mut **y]);
        }
        if known.is_none() {
            let seen = space.read(&[size_squares.sqrt()]).remove(0);
            sizes.iter_mut().zip(seen).for_each(|(size, seen)| *size = size.max(seen));
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

    fn drive<S: Space>(
        &self,
        problem: &Problem<'_, S>,
        x: &mut S::Vector,
        multiplier: Option<&mut S::Vector>,
    ) -> Found {
        let space = problem.space;
        let damp = self.damp * problem.operator_scale;
        let goals: Vec<f64> = problem.goals.iter().map(|goal| if damp == 0.0 { *goal } else { 0.0 }).collect();
        let (r, gradient) = (space.zeros(Side::Range), space.zeros(Side::Domain));
        let mut forward = Forward { problem, damp, x, multiplier, r, gradient };
        let found = descend(problem, &goals, &mut forward);
        let Forward { multiplier, r, .. } = forward;
        if let Some(y) = multiplier {
            project(space, &found.outcomes, &r, y);
        }
        found
    }

    fn round<S: Space>(&self, _: &S, _: &mut S::Vector, _: &mut S::Vector, _: &mut Watch<'_, S>) {
        unreachable!("least squares are driven by their gradient")
    }

    fn run_with_multiplier(
        &self,
        settings: &Settings,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        let guessed = x0.is_some() || !transpose && settings.guess.is_some();
        let (preconditioned, [m, n]) = (settings.preconditioner.is_some(), a.shape());
        let both = !preconditioned && self.damp == 0.0;
        if guessed || !transpose && !both {
            return (super::run(self, settings, a, b, x0, transpose), None);
        }
        // Of a wide A, b is hardly ever made of rows alone, and y large by what A maps to 0: better make no x of it.
        if transpose && !(both && m < n) {
            let lsqr = Lsqr { damp: self.damp };
            let found = super::run_for(&lsqr, settings, a, b.clone(), None, true, true);
            // A preconditioner of A is none of its transpose.
            if found.0.report.outcome.is_converged() || preconditioned && m != n {
                return found;
            }
        }
        super::run_for(self, settings, a, b, None, transpose, both)
    }
}
