//! Conjugate gradients squared.

use super::settings::{Settings, settings};
use super::space::{Axpy, AxpyNorm, Map, Numbers, Plain, Side, Space, WithDot, formula};
use super::watch::Watch;
use super::{Krylov, away_from_zero};
use crate::outcome::Breakdown;

/// The conjugate gradient squared method, for square operators: fast where it works, and less smooth than [`BiCgStab`](super::BiCgStab).
///
/// # Requirements
/// A square. Two products an iteration, no transpose. The preconditioner is applied from the right.
///
/// # Reference
/// P. Sonneveld, *CGS, a fast Lanczos-type solver for nonsymmetric linear systems*, SIAM J. Sci. Stat. Comput. 10, 1989.
///
/// # Differences from SciPy
/// As of [`BiCgStab`](super::BiCgStab): its recursion loses more digits, and is begun anew where the recomputed residual says so.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::krylov::Cgs;
///
/// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[4.0, 1.0, -1.0, 3.0], [2, 2], &Device::flex())?;
/// let b = Tensor::<2>::from_data([[5.0], [2.0]], (&Device::flex(), DType::F64));
/// let x = Cgs::new().solve(&a, b).into_result()?.to_data().try_to_vec::<f64>()?;
/// assert!((x[0] - 1.0).abs() < 1e-8 && (x[1] - 1.0).abs() < 1e-8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cgs {
    settings: Settings,
}
settings!(Cgs);

formula!(
    /// q = u - alpha v, then u += q: the step is u.
    Step [alpha] [v] [u q] => [u.clone() + (u.clone() - alpha.clone() * v.clone()), u - alpha * v] []
);
formula!(
    /// u = r + beta q, then p = u + beta (q + beta p)
    Direction [beta] [r q] [u p] => [
        r.clone() + beta.clone() * q.clone(),
        r + beta.clone() * q.clone() + beta.clone() * (q + beta * p)
    ] []
);

impl Krylov for Cgs {
    const NAME: &'static str = "CGS";

    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>) {
        let zeros = || space.zeros(Side::Domain);
        let shadow = space.copy(Side::Domain, r);
        let (mut u, mut p) = (space.copy(Side::Domain, r), space.copy(Side::Domain, r));
        let (mut q, mut v) = (zeros(), zeros());
        let mut hat = space.is_preconditioned().then(zeros);
        let mut rho = space.dot(r, r);
        let size = rho.clone();
        let precondition = |x: &S::Vector, hat: &mut Option<S::Vector>| {
            if let Some(hat) = hat {
                space.apply(Map::Preconditioner, Plain, [], x, [], hat);
            }
        };
        loop {
            precondition(&p, &mut hat);
            let [shadowed] = space.apply(Map::Operator, WithDot, [], hat.as_ref().unwrap_or(&p), [&shadow], &mut v);
            watch.require(&shadowed.clone().abs(), Breakdown::Orthogonal);
            let alpha = watch.masked(rho.clone() / shadowed);
            space.update(Step, [&alpha], [&v], [&mut u, &mut q]);
            precondition(&u, &mut hat);
            let step = hat.as_ref().unwrap_or(&u);
            space.update(Axpy, [&alpha], [step], [&mut *x]);
            space.apply(Map::Operator, Plain, [], step, [], &mut v);
            let [squares] = space.update(AxpyNorm, [&-alpha], [&v], [&mut *r]);
            let next = space.dot(&shadow, r);
            if !watch.step(squares.clone()) {
                break;
            }
            let sizes = (squares * size.clone()).sqrt();
            watch.require(&away_from_zero(space, &next, sizes), Breakdown::Orthogonal);
            let beta = watch.masked(next.clone() / rho);
            space.update(Direction, [&beta], [&*r, &q], [&mut u, &mut p]);
            rho = next;
        }
    }
}
