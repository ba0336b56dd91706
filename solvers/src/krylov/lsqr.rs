//! The backward pass of least squares.

use super::descent::{Descent, Truth, Unknowns, descend, norms, project};
use super::lsmr::{Added, Combine, rotation};
use super::space::{Axpby, AxpyNorm, Map, Numbers, Plain, Scale, Side, Space, formula};
use super::watch::Watch;
use super::{Found, Krylov, Problem};

/// LSQR for A^T w = g, of whose solutions it finds the one of minimum norm, w = A z: it is run on z, and w made of that. With
/// damping it is [A^T, damp] applied to (w, damp z) that is g, so that z = (A^T A + damp^2)^-1 g in any case.
///
/// A preconditioner N^-1 of the forward solve is one of z: [A; damp] N^-1 is what is transposed.
///
/// It ends by the first rule of the reference, |g - A^T w - damp^2 z| <= tolerance (|g| + |A| |w|): w is that of an operator
/// within tolerance |A| of A, as a least-squares solution x is that ends by its gradient. And by the gradient,
/// |A p| <= tolerance |A| |p|, if a part p of g is none of the rows' span: w and z are those of the rest then.
///
/// It runs in the space of A^T: w on the side of solutions, g and z on that of right-hand sides.
///
/// Reference: C. Paige and M. Saunders, *LSQR: an algorithm for sparse linear equations and sparse least squares*, ACM
/// Transactions on Mathematical Software 8, 1982.
#[derive(Clone)]
pub(super) struct Lsqr {
    pub damp: f64,
}

formula!(
    /// z += a d, d = b t - c d
    Step [a b c] [t] [d z] => [b * t - c * d.clone(), z + a * d] []
);

struct Backward<'p, 'a, S: Space> {
    problem: &'p Problem<'a, S>,
    damp: f64,
    z: &'p mut S::Vector,
    /// A z.
    w: &'p mut S::Vector,
    /// g - A^T w - damp^2 z, and its norms.
    rest: S::Vector,
    lengths: Vec<f64>,
    /// A times that.
    gradient: S::Vector,
}

impl<S: Space> Descent<S> for Backward<'_, '_, S> {
    fn unknowns(&mut self) -> Unknowns<'_, S> {
        vec![(Side::Range, &mut *self.z)]
    }

    fn truth(&mut self, sizes: &[f64]) -> Truth {
        let (space, damp, tolerance) = (self.problem.space, self.damp, self.problem.tolerance);
        space.apply(Map::Transposed, Plain, [], self.z, [], self.w);
        let mut squares = space.dot(self.w, self.w);
        let mut residuals = self.problem.residual(self.w, &mut self.rest);
        if damp != 0.0 {
            squares = squares + space.dot(self.z, self.z).times(damp * damp);
            let [rest] = space.update(AxpyNorm, [&space.number(-damp * damp)], [self.z], [&mut self.rest]);
            residuals = norms(space, rest);
        }
        space.apply(Map::Transposed, Plain, [], &self.rest, [], &mut self.gradient);
        let gradients = norms(space, space.dot(&self.gradient, &self.gradient));
        let sizes = || sizes.iter().map(|size| tolerance * size.hypot(damp));
        let solutions = norms(space, squares);
        let allowed = sizes().zip(&solutions).map(|(size, w)| size * w);
        let goals = allowed.zip(&self.problem.goals).map(|(allowed, goal)| goal + allowed).collect();
        // With damping every g has its z.
        let level = |(size, length): (f64, &f64)| if damp == 0.0 { size * length } else { f64::NEG_INFINITY };
        let level = sizes().zip(&residuals).map(level).collect();
        self.lengths.clone_from(&residuals);
        Truth { lengths: residuals.clone(), residuals, goals, gradients, level }
    }

    fn round(&mut self, known: Option<&[f64]>, sizes: &mut [f64], watch: &mut Watch<'_, S>) {
        let (problem, damp) = (self.problem, self.damp);
        let Problem { space, tolerance, .. } = *problem;
        let one = space.number(1.0);
        let zeros = || space.zeros(Side::Range);
        // Left vector times beta; with a preconditioner, N^-1 of it and room.
        let mut u = zeros();
        let mut images = space.is_preconditioned().then(|| (zeros(), zeros()));
        // Right vector times alpha, and the t that it is A times.
        let (mut v, mut t) = (space.zeros(Side::Domain), zeros());
        let mut beta;
        match &mut images {
            None => {
                space.update(Scale, [&one], [&self.rest], [&mut u]);
                beta = space.dot(&u, &u).sqrt();
                space.update(Scale, [&beta.clone().recip()], [&self.gradient], [&mut v]);
            }
            Some((image, _)) => {
                space.apply(Map::Preconditioner, Plain, [], &self.rest, [], &mut u);
                beta = space.dot(&u, &u).sqrt();
                space.apply(Map::PreconditionerTransposed, Plain, [], &u, [], image);
                let inverse = beta.clone().recip();
                space.apply(Map::Transposed, Axpby, [&inverse, &one.like(0.0)], image, [], &mut v);
            }
        }
        let direction = images.as_ref().map_or(&u, |(image, _)| image);
        space.update(Scale, [&beta.clone().recip()], [direction], [&mut t]);
        // Of squared norms of v and of the damped t.
        let stacked = |v: S::Numbers, t: S::Numbers| match damp == 0.0 {
            true => v.sqrt(),
            false => (v + t.times(damp * damp)).sqrt(),
        };
        let mut alpha = stacked(space.dot(&v, &v), space.dot(&t, &t));
        let mut d = zeros();
        space.update(Scale, [&alpha.clone().recip()], [&t], [&mut d]);

        // What a norm of the iteration is of the same vector's own: a preconditioner changes it.
        let unit = match images {
            None => one.clone(),
            Some(_) => space.upload(&self.lengths) * beta.clone().recip(),
        };
        let known = known.map(|known| space.upload(&known.iter().map(|size| size.hypot(damp)).collect::<Vec<_>>()));
        let mut size_squares = alpha.clone().square();
        let goals = space.upload(&problem.goals);
        let (mut rho_bar, mut phi_bar) = (alpha.clone(), beta.clone());
        // For the norm of (w, damp z), by another factorisation: see the reference.
        let (mut squares, mut zeta) = (space.number(0.0), space.number(0.0));
        let (mut c_w, mut s_w) = (-one.clone(), space.number(0.0));
        loop {
            let (inverse, carried) = (alpha.clone().recip(), -(alpha.clone() * beta.clone().recip()));
            let damped = inverse.clone().times(damp * damp);
            let square = match &mut images {
                None => {
                    let [square] = space.apply(Map::Operator, Axpby, [&inverse, &carried], &v, [], &mut u);
                    if damp == 0.0 {
                        square
                    } else {
                        let [square] = space.update(Combine, [&damped, &one], [&t], [&mut u]);
                        square
                    }
                }
                Some((image, room)) => {
                    space.apply(Map::Operator, Added, [&inverse, &damped], &v, [&t], room);
                    space.apply(Map::Preconditioner, Plain, [], room, [], image);
                    let [square] = space.update(Combine, [&one, &carried], [image], [&mut u]);
                    space.apply(Map::PreconditionerTransposed, Plain, [], &u, [], image);
                    square
                }
            };
            beta = square.sqrt();
            size_squares = size_squares + beta.clone().square();
            let (inverse, carried) = (beta.clone().recip(), -(beta.clone() * alpha.recip()));
            let direction = images.as_ref().map_or(&u, |(image, _)| image);
            let [of_v] = space.apply(Map::Transposed, Axpby, [&inverse, &carried], direction, [], &mut v);
            // Nothing keeps t small, when it is made of rounding errors.
            let [inverse, carried] = [inverse, carried].map(|number| watch.masked(number));
            let [of_t] = space.update(Combine, [&inverse, &carried], [direction], [&mut t]);
            alpha = stacked(of_v, of_t);

            let [c, s, rho] = rotation(rho_bar, beta.clone());
            rho_bar = -(c.clone() * alpha.clone());
            let inverse_rho = rho.clone().recip();
            let (phi, theta) = (c.clone() * phi_bar.clone(), s.clone() * alpha.clone());
            phi_bar = s * phi_bar;
            let step = watch.masked(phi.clone() * inverse_rho.clone());
            let back = watch.masked(theta.clone() * inverse_rho);
            space.update(Step, [&step, &alpha.clone().recip(), &back], [&t], [&mut d, &mut *self.z]);

            let (rest, gamma_bar) = (phi - s_w * rho.clone() * zeta, -(c_w * rho));
            let norm = (squares.clone() + (rest.clone() * gamma_bar.clone().abs().recip()).square()).sqrt();
            let inverse_gamma = (gamma_bar.clone().square() + theta.clone().square()).sqrt().recip();
            (c_w, s_w, zeta) = (gamma_bar * inverse_gamma.clone(), theta * inverse_gamma.clone(), rest * inverse_gamma);
            squares = squares + zeta.clone().square();

            let size = known.clone().unwrap_or_else(|| size_squares.clone().sqrt()).times(tolerance);
            let length = phi_bar.clone() * unit.clone();
            let goes_on = length.clone() - (goals.clone() + size.clone() * norm);
            let goes_on = match damp == 0.0 {
                // By the gradient, next to what it may be; both are 0 in the end.
                true => {
                    let steep = phi_bar.clone() * alpha.clone() * c.abs();
                    let above = steep.clone() - size * phi_bar.clone();
                    let above = S::Numbers::choose(&steep, above, steep.like(0.0));
                    S::Numbers::choose(&goes_on, above, steep.like(0.0))
                }
                false => goes_on,
            };
            size_squares = size_squares + alpha.clone().square();
            if !watch.step_unless(length.square(), Some(&goes_on)) {
                break;
            }
        }
        if known.is_none() {
            let seen = space.read(&[size_squares.sqrt()]).remove(0);
            sizes.iter_mut().zip(seen).for_each(|(size, seen)| *size = size.max(seen));
        }
    }
}

impl Krylov for Lsqr {
    const NAME: &'static str = "LSQR";
    const BOTH: bool = true;
    const LEFT: bool = true;

    fn drive<S: Space>(&self, problem: &Problem<'_, S>, w: &mut S::Vector, z: Option<&mut S::Vector>) -> Found {
        let (space, z) = (problem.space, z.expect("it is run for the sake of its multiplier"));
        let damp = self.damp * problem.operator_scale;
        let (rest, gradient) = (space.zeros(Side::Range), space.zeros(Side::Domain));
        let mut backward = Backward { problem, damp, z, w, rest, lengths: vec![], gradient };
        let found = descend(problem, &problem.goals, &mut backward);
        project(space, &found.outcomes, &backward.rest, backward.z);
        found
    }

    fn round<S: Space>(&self, _: &S, _: &mut S::Vector, _: &mut S::Vector, _: &mut Watch<'_, S>) {
        unreachable!("least squares are driven by their gradient")
    }
}
