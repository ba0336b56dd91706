//! Minimal residuals for symmetric operators.

use super::Krylov;
use super::settings::{Settings, settings};
use super::space::{AxpbyDot, AxpyNorm, Map, Numbers, Side, Space, WithDot, formula};
use super::watch::{Stop, Watch};
use crate::operator::{LinearOperator, Operator};
use crate::outcome::{Breakdown, Solution};
use burn::tensor::{DType, Device, Tensor, TensorData};
use std::sync::Arc;

/// The minimal residual method, for symmetric operators: positive definite, indefinite or singular.
///
/// # Requirements
/// A symmetric; the preconditioner symmetric and positive definite.
///
/// # Singular operators
/// Of a consistent system it finds the solution that is nearest to the guess: from 0, the one of minimum norm. Of an inconsistent
/// one the outcome is [`Inconsistent`](crate::Outcome::Inconsistent): x minimises the residual, without being the
/// shortest that does, which [`Lsmr`](super::Lsmr) finds.
///
/// # Reference
/// C. Paige and M. Saunders, *Solution of sparse indefinite systems of linear equations*, SIAM J. Numer. Anal. 12, 1975. The
/// recursion of the residual: S.-C. Choi, C. Paige and M. Saunders, *MINRES-QLP*, SIAM J. Sci. Comput. 33, 2011, equation 3.6.
///
/// # Differences from SciPy
/// It stops on |r| / |b|, where SciPy stops on |r| / (|A| |x|), which is met long before. With a preconditioner it stops on the
/// same norm of the same residual. Many right-hand sides, batches, and [shifts](Self::solve_shifted).
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::krylov::MinRes;
///
/// // Indefinite: eigenvalues 1 and -1.
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[1.0, 1.0], [2, 2], &Device::flex())?;
/// let b = Tensor::<2>::from_data([[1.0], [0.0]], (&Device::flex(), DType::F64));
/// let x = MinRes::new().solve(&a, b).into_result()?;
/// assert_eq!(x.to_data().try_to_vec::<f64>()?, [0.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MinRes {
    settings: Settings,
}
settings!(MinRes);

impl MinRes {
    /// Solves (A + s I) x = b for each shift s, without a graph: x is shifts x n x k. All of them go through the operator
    /// together, as columns, each to its own tolerance; the report's right-hand sides are those of the first shift, then those of
    /// the second.
    ///
    /// # Panics
    /// If shapes, dtypes or devices do not fit, or `a` is a batch.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    /// use sparsegrad_solvers::{krylov::MinRes, operator::Diagonal};
    ///
    /// let device = (&Device::flex(), DType::F64);
    /// let a = Diagonal::new(Tensor::from_data([2.0, 4.0, 8.0], device));
    /// let x = MinRes::new().solve_shifted(&a, Tensor::ones([3, 1], device), &[0.0, 1.0]).into_result()?;
    /// let x = x.to_data().try_to_vec::<f64>()?;
    /// for (x, expected) in x.into_iter().zip([1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 9.0]) {
    ///     assert!((x - expected).abs() < 1e-8);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn solve_shifted(
        &self,
        a: &(impl LinearOperator + ?Sized),
        b: Tensor<2>,
        shifts: &[f64],
    ) -> Solution<Tensor<3>> {
        assert_eq!(a.items(), 1, "solve_shifted: batches are not shifted");
        let ([n, k], b) = (b.dims(), b.inner());
        let columns = b.repeat_dim(1, shifts.len());
        let of_columns: Vec<f64> = shifts.iter().flat_map(|shift| vec![*shift; k]).collect();
        let data = TensorData::new(of_columns, [1, shifts.len() * k]);
        let a = a.detach();
        let shifts_of = Tensor::from_data(data, (&a.device(), a.dtype()));
        let shifted: Operator = Arc::new(ColumnShifts { a, shifts: shifts_of });
        let Solution { x, report } = super::run(self, &self.settings, &shifted, columns, None, false);
        Solution { x: x.reshape([n, shifts.len(), k]).swap_dims(0, 1), report }
    }
}

/// A + s I, with a shift of its own for each column.
#[derive(Debug, Clone)]
struct ColumnShifts {
    a: Operator,
    shifts: Tensor<2>,
}

impl LinearOperator for ColumnShifts {
    fn shape(&self) -> [usize; 2] {
        self.a.shape()
    }

    fn dtype(&self) -> DType {
        self.a.dtype()
    }

    fn device(&self) -> Device {
        self.a.device()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.a.apply(x.clone()) + x * self.shifts.clone()
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.a.apply_transpose(y.clone()) + y * self.shifts.clone()
    }

    fn detach(&self) -> Operator {
        Arc::new(self.clone())
    }
}

formula!(
    /// w_new = (z / beta - epsilon w_old - delta w) / gamma, in the place of w_old, and x += phi w_new
    Step [inverse epsilon delta phi] [z w] [w_old x] => [
        inverse.clone() * z.clone() - (epsilon.clone() * w_old.clone() + delta.clone() * w.clone()),
        x + phi * (inverse * z - (epsilon * w_old + delta * w))
    ] []
);
formula!(
    /// r = s^2 r + c v, and its squared norm
    ResidualStep [square c] [v] [r] => [square * r + c * v] [r.clone() * r]
);

impl Krylov for MinRes {
    const NAME: &'static str = "MINRES";

    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>) {
        let zeros = || space.zeros(Side::Domain);
        let preconditioned = space.is_preconditioned();
        let (zero, one) = (space.number(0.0), space.number(1.0));
        // The Lanczos vectors are v = u / beta, of which u is kept; z = M^-1 u, which is u without a preconditioner.
        let mut u = space.copy(Side::Domain, r);
        let mut u_old = zeros();
        let precondition = |u: &S::Vector, z: &mut S::Vector| {
            let [square] = space.apply(Map::Preconditioner, WithDot, [], u, [u], z);
            square
        };
        let mut zs = preconditioned.then(|| (zeros(), zeros()));
        let start = match &mut zs {
            Some((z, _)) => precondition(&u, z),
            None => space.dot(&u, &u),
        };
        watch.require(&start, Breakdown::IndefinitePreconditioner);
        let mut beta = start.sqrt();
        let mut beta_old = beta.clone();
        let (mut w, mut w_old) = (zeros(), zeros());
        let (mut cs, mut sn) = (-one.clone(), zero.clone());
        let (mut delta_bar, mut epsilon) = (zero.clone(), zero.clone());
        let mut phi_bar = beta.clone();
        let mut norm_squares = zero.clone();
        let mut first = true;
        loop {
            let inverse = beta.clone().recip();
            let carried = if first { zero.clone() } else { -(beta.clone() * beta_old.clone().recip()) };
            let z = zs.as_ref().map_or(&u, |(z, _)| z);
            let [product] = space.apply(Map::Operator, AxpbyDot, [&inverse, &carried], z, [z], &mut u_old);
            let alpha = product * inverse.clone();
            let step = -(alpha.clone() * inverse.clone());
            let [mut square] = space.update(AxpyNorm, [&step], [&u], [&mut u_old]);
            std::mem::swap(&mut u, &mut u_old);
            if let Some((_, z_new)) = &mut zs {
                square = precondition(&u, z_new);
                // 0 at the end, by rounding slightly less: of what it is a difference of.
                let rounding = (norm_squares.clone() + alpha.clone().square()).times(1e3 * space.epsilon());
                let positive = square.clone() + rounding + square.like(f64::from(f32::MIN_POSITIVE));
                watch.require(&positive, Breakdown::IndefinitePreconditioner);
                square = S::Numbers::choose(&square, square.clone(), zero.clone());
            }
            if !first {
                norm_squares = norm_squares + beta.clone().square();
            }
            norm_squares = norm_squares + alpha.clone().square() + square.clone();
            beta_old = beta;
            beta = square.sqrt();

            // The last rotation, and the one that removes the new element below the diagonal.
            let old_epsilon = epsilon;
            let delta = cs.clone() * delta_bar.clone() + sn.clone() * alpha.clone();
            let gamma_bar = sn.clone() * delta_bar.clone() - cs.clone() * alpha;
            epsilon = sn.clone() * beta.clone();
            delta_bar = -(cs.clone() * beta.clone());
            let image = (gamma_bar.clone().square() + delta_bar.clone().square()).sqrt();
            let gamma = (gamma_bar.clone().square() + beta.clone().square()).sqrt();
            watch.require(&(image.clone() + one.clone()), Breakdown::NotFinite);
            // |A r| / (|A| |r|) of the residual before: 0 if nothing more can be gained.
            watch.stop(&(image - norm_squares.clone().sqrt().times(4.0 * space.epsilon())), Stop::Inconsistent);
            watch.require(&gamma, Breakdown::Singular);
            let inverse_gamma = gamma.recip();
            cs = gamma_bar * inverse_gamma.clone();
            sn = beta.clone() * inverse_gamma.clone();
            let phi = watch.masked(cs.clone() * phi_bar.clone());
            phi_bar = sn.clone() * phi_bar;

            let old = [inverse * inverse_gamma.clone(), old_epsilon * inverse_gamma.clone(), delta * inverse_gamma];
            // What z was before this iteration.
            let z = zs.as_ref().map_or(&u_old, |(z, _)| z);
            space.update(Step, [&old[0], &old[1], &old[2], &phi], [z, &w], [&mut w_old, &mut *x]);
            std::mem::swap(&mut w, &mut w_old);
            let squares = if let Some((z, z_new)) = &mut zs {
                std::mem::swap(z, z_new);
                // In the norm of the preconditioner it would be phi_bar.
                let c = -(phi_bar.clone() * cs.clone() * beta.clone().recip());
                let [squares] = space.update(ResidualStep, [&sn.clone().square(), &c], [&u], [&mut *r]);
                squares
            } else {
                phi_bar.clone().square()
            };
            first = false;
            if !watch.step(squares) {
                break;
            }
        }
    }
}
