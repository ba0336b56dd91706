//! Stabilised biconjugate gradients.

use super::settings::{Settings, settings};
use super::space::{Axpy, Axpy2, Map, Numbers, Plain, Side, Space, WithDot, WithDots, formula};
use super::watch::Watch;
use super::{Krylov, away_from_zero};
use crate::outcome::Breakdown;

/// The stabilised biconjugate gradient method, for square operators.
///
/// # Requirements
/// A square. Two products an iteration, no transpose. The preconditioner is applied from the right: the residual is that of
/// the system itself.
///
/// # Reference
/// H. van der Vorst, *Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of nonsymmetric linear
/// systems*, SIAM J. Sci. Stat. Comput. 13, 1992.
///
/// # Differences from SciPy
/// Many right-hand sides and batches; the residual is recomputed. A breakdown is relative to the size of what it is made of
/// (SciPy's is absolute, and takes a small right-hand side for one), it begins anew where that helps, and it has a name.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::krylov::BiCgStab;
///
/// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[4.0, 1.0, -1.0, 3.0], [2, 2], &Device::flex())?;
/// let b = Tensor::<2>::from_data([[5.0], [2.0]], (&Device::flex(), DType::F64));
/// let x = BiCgStab::new().solve(&a, b).into_result()?.to_data().try_to_vec::<f64>()?;
/// assert!((x[0] - 1.0).abs() < 1e-8 && (x[1] - 1.0).abs() < 1e-8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BiCgStab {
    settings: Settings,
}
settings!(BiCgStab);

formula!(
    /// p = r + beta (p - omega v)
    Direction [beta omega] [r v] [p] => [r + beta * (p - omega * v)] []
);
formula!(
    /// r += a t, its dot product with the shadow, and its squared norm
    AxpyDots [a] [t shadow] [r] => [r + a * t] [shadow * r.clone(), r.clone() * r]
);

impl Krylov for BiCgStab {
    const NAME: &'static str = "BiCGSTAB";

    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>) {
        let preconditioned = space.is_preconditioned();
        let zeros = || space.zeros(Side::Domain);
        let shadow = space.copy(Side::Domain, r);
        let mut p = space.copy(Side::Domain, r);
        let (mut v, mut t) = (zeros(), zeros());
        // Without a preconditioner they are p and s themselves.
        let mut hats = preconditioned.then(|| (zeros(), zeros()));
        let mut rho = space.dot(r, r);
        let size = rho.clone();
        loop {
            if let Some((p_hat, _)) = &mut hats {
                space.apply(Map::Preconditioner, Plain, [], &p, [], p_hat);
            }
            let direction = hats.as_ref().map_or(&p, |(p_hat, _)| p_hat);
            let [shadowed] = space.apply(Map::Operator, WithDot, [], direction, [&shadow], &mut v);
            watch.require(&shadowed.clone().abs(), Breakdown::Orthogonal);
            let alpha = watch.masked(rho.clone() / shadowed);
            // From here on r is s, half a step further.
            space.update(Axpy, [&-alpha.clone()], [&v], [&mut *r]);
            if let Some((_, s_hat)) = &mut hats {
                space.apply(Map::Preconditioner, Plain, [], r, [], s_hat);
            }
            let (direction, step) = hats.as_ref().map_or((&p, &*r), |(p_hat, s_hat)| (p_hat, s_hat));
            let [ts, tt] = space.apply(Map::Operator, WithDots, [], step, [&*r], &mut t);
            // Where t is 0, so is s: half a step was all that was needed.
            let omega = watch.masked(ts * tt.recip());
            space.update(Axpy2, [&alpha, &omega], [direction, step], [&mut *x]);
            let [next, squares] = space.update(AxpyDots, [&-omega.clone()], [&t, &shadow], [&mut *r]);
            if !watch.step(squares.clone()) {
                break;
            }
            watch.require(&omega.clone().abs(), Breakdown::NoStep);
            let sizes = (squares.clone() * size.clone()).sqrt();
            watch.require(&away_from_zero(space, &next, sizes), Breakdown::Orthogonal);
            let beta = watch.masked((next.clone() / rho) * (alpha / omega.clone()));
            let omega = watch.masked(omega);
            space.update(Direction, [&beta, &omega], [&*r, &v], [&mut p]);
            rho = next;
        }
    }
}
