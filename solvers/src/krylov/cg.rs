//! Conjugate gradients.

use super::settings::{Settings, settings};
use super::space::{AxpyNorm, Map, Side, Space, WithDot, formula};
use super::watch::Watch;
use super::{Found, Krylov, Problem};
use crate::operator::LinearOperator;
use crate::outcome::{Breakdown, Solution};
use burn::tensor::Tensor;

/// The conjugate gradient method, for symmetric positive definite operators.
///
/// # Requirements
/// A symmetric and positive definite, and the preconditioner, too. An operator that turns out not to be so is an
/// [`Indefinite`](Breakdown::Indefinite) breakdown; one that is not symmetric, and not seen to be so, is told by the residual.
///
/// # Reference
/// Y. Saad, *Iterative methods for sparse linear systems*, 2nd edition, 2003, algorithm 9.1. The tridiagonal matrix: section
/// 6.7.3.
///
/// # Differences from SciPy
/// Many right-hand sides and batches. The residual is recomputed at the end, and the iteration goes on where it was wrong
/// (SciPy returns what the recursion says). An operator that is not positive definite is reported. The tolerance has a meaning for
/// any scale of b; b = 0 gives 0 whatever the guess.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::krylov::Cg;
///
/// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[4.0, 1.0, 1.0, 3.0], [2, 2], &Device::flex())?;
/// let b = Tensor::<2>::from_data([[1.0], [2.0]], (&Device::flex(), DType::F64));
/// let solution = Cg::new().tolerance(1e-12).solve(&a, b);
/// println!("{}", solution.report);
/// let x = solution.into_result()?.to_data().try_to_vec::<f64>()?;
/// assert!((x[0] - 1.0 / 11.0).abs() < 1e-12 && (x[1] - 7.0 / 11.0).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cg {
    settings: Settings,
}
settings!(Cg);

/// The symmetric tridiagonal matrix that the conjugate gradient method makes of an operator, for one right-hand side: its
/// eigenvalues approach those of the (preconditioned) operator, and quadrature with it gives log-determinants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tridiagonal {
    /// The diagonal.
    pub diagonal: Vec<f64>,
    /// What is beside it: one less.
    pub off_diagonal: Vec<f64>,
}

formula!(
    /// x += alpha p, then p = z + beta p
    Step [alpha beta] [z] [x p] => [x + alpha * p.clone(), z + beta * p] []
);

impl Cg {
    /// Solves, and gives the tridiagonal matrix of each right-hand side (of a batch, item by item), of at most `size` rows.
    ///
    /// With A of n x n, exact arithmetic and n iterations, it has A's eigenvalues. Of a solve that is restarted it is that of the
    /// first part.
    ///
    /// # Panics
    /// As [`solve`](Self::solve).
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    /// use sparsegrad_solvers::krylov::Cg;
    ///
    /// let (rows, columns) = ([0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 2, 1, 2]);
    /// let values = [4.0, 1.0, 1.0, 3.0, 1.0, 1.0, 2.0];
    /// let a = SparseTensor::from_triplets(&rows, &columns, &values, [3, 3], &Device::flex())?;
    /// let b = Tensor::<2>::from_data([[1.0], [0.0], [0.0]], (&Device::flex(), DType::F64));
    /// let (_, t) = Cg::new().solve_tridiagonal(&a, b, 20);
    /// assert!((t[0].diagonal[1] - 3.0).abs() < 1e-12); // of e_1 it is A itself
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn solve_tridiagonal(
        &self,
        a: &(impl LinearOperator + ?Sized),
        b: Tensor<2>,
        size: usize,
    ) -> (Solution<Tensor<2>>, Vec<Tridiagonal>) {
        let method = Recording { size, made: std::rc::Rc::default() };
        let solution = super::run(&method, &self.settings, &a.detach(), b.inner(), None, false);
        let made = method.made.take();
        (solution, made)
    }
}

/// The method, with a record of its coefficients.
#[derive(Clone)]
struct Recording {
    size: usize,
    made: std::rc::Rc<std::cell::RefCell<Vec<Tridiagonal>>>,
}

impl Krylov for Cg {
    const NAME: &'static str = "CG";

    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>) {
        iterate(space, x, r, watch, |_, _| {});
    }
}

impl Krylov for Recording {
    const NAME: &'static str = Cg::NAME;

    fn drive<S: Space>(&self, problem: &Problem<'_, S>, x: &mut S::Vector, _: Option<&mut S::Vector>) -> Found {
        let found = problem.in_rounds(x, Self::PROGRESS, |x, r, watch| self.round(problem.space, x, r, watch));
        // Of the operator as it is, not as it was scaled.
        for matrix in self.made.borrow_mut().iter_mut() {
            let numbers = matrix.diagonal.iter_mut().chain(&mut matrix.off_diagonal);
            numbers.for_each(|number| *number /= problem.operator_scale);
        }
        found
    }

    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>) {
        let mut made = self.made.borrow_mut();
        if !made.is_empty() {
            return iterate(space, x, r, watch, |_, _| {});
        }
        *made = vec![Tridiagonal::default(); space.groups()];
        let mut last = vec![(0.0, 0.0); space.groups()];
        iterate(space, x, r, watch, |alpha, beta| {
            let read = space.read(&[alpha.clone(), beta.clone()]);
            for (group, matrix) in made.iter_mut().enumerate() {
                let ((alpha, beta), (last_alpha, last_beta)) = ((read[0][group], read[1][group]), last[group]);
                // A step of 0: it is done.
                if alpha == 0.0 || matrix.diagonal.len() >= self.size {
                    continue;
                }
                let first = matrix.diagonal.is_empty();
                let carried = if first { 0.0 } else { last_beta / last_alpha };
                matrix.diagonal.push(1.0 / alpha + carried);
                if !first {
                    matrix.off_diagonal.push(f64::sqrt(last_beta) / last_alpha);
                }
                last[group] = (alpha, beta);
            }
        });
    }
}

fn iterate<S: Space>(
    space: &S,
    x: &mut S::Vector,
    r: &mut S::Vector,
    watch: &mut Watch<'_, S>,
    mut record: impl FnMut(&S::Numbers, &S::Numbers),
) {
    let preconditioned = space.is_preconditioned();
    let mut z = space.zeros(Side::Domain);
    let mut q = space.zeros(Side::Domain);
    let precondition = |r: &S::Vector, z: &mut S::Vector| {
        let [rho] = space.apply(Map::Preconditioner, WithDot, [], r, [r], z);
        rho
    };
    let mut rho = if preconditioned { precondition(r, &mut z) } else { space.dot(r, r) };
    let mut p = space.copy(Side::Domain, if preconditioned { &z } else { r });
    loop {
        watch.require(&rho, Breakdown::IndefinitePreconditioner);
        let [curvature] = space.apply(Map::Operator, WithDot, [], &p, [&p], &mut q);
        watch.require(&curvature, Breakdown::Indefinite);
        let alpha = watch.masked(rho.clone() / curvature);
        let [squares] = space.update(AxpyNorm, [&-alpha.clone()], [&q], [&mut *r]);
        let next = if preconditioned { precondition(r, &mut z) } else { squares.clone() };
        let beta = watch.masked(next.clone() / rho);
        record(&alpha, &beta);
        space.update(Step, [&alpha, &beta], [if preconditioned { &z } else { r }], [&mut *x, &mut p]);
        rho = next;
        if !watch.step(squares) {
            break;
        }
    }
}
