//! Generalised minimal residuals.

use super::Krylov;
use super::settings::{Settings, settings};
use super::space::{Axpy, AxpyNorm, Map, Numbers, Plain, Scale, Side, Space, WithDot, formula};
use super::watch::{Ending, Stop, Watch};
use crate::outcome::Breakdown;

/// The generalised minimal residual method, for square operators: begun anew every so many iterations, GMRES(m).
///
/// # Requirements
/// A square. Memory for [`restart`](Self::restart) + 1 vectors, twice as many if [flexible](Self::flexible). The preconditioner is
/// applied from the right, so that what is minimised is the residual of the system itself.
///
/// # Reference
/// Y. Saad and M. Schultz, *GMRES*, SIAM J. Sci. Stat. Comput. 7, 1986; Y. Saad, *A flexible inner-outer preconditioned GMRES
/// algorithm*, SIAM J. Sci. Comput. 14, 1993; both in Y. Saad, *Iterative methods for sparse linear systems*, 2nd edition, 2003,
/// algorithms 6.9 and 9.6.
///
/// # Differences from SciPy
/// Preconditioned from the right (SciPy: from the left, and stops on the preconditioned residual's norm). Iterations count
/// products (SciPy's count restarts). Many right-hand sides, batches, flexible.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::krylov::Gmres;
///
/// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[4.0, 1.0, -1.0, 3.0], [2, 2], &Device::flex())?;
/// let b = Tensor::<2>::from_data([[5.0], [2.0]], (&Device::flex(), DType::F64));
/// let x = Gmres::new().restart(10).solve(&a, b).into_result()?.to_data().try_to_vec::<f64>()?;
/// assert!((x[0] - 1.0).abs() < 1e-8 && (x[1] - 1.0).abs() < 1e-8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gmres {
    settings: Settings,
    restart: usize,
    flexible: bool,
}
settings!(Gmres);

impl Default for Gmres {
    fn default() -> Self {
        Self { settings: Settings::default(), restart: 30, flexible: false }
    }
}

impl Gmres {
    /// How many vectors the basis grows to before it is begun anew. Default: 30.
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    #[track_caller]
    pub fn restart(mut self, restart: usize) -> Self {
        assert!(restart > 0, "GMRES needs a basis of one vector at least");
        self.restart = restart;
        self
    }

    /// The flexible form: the preconditioner may be another map in each iteration, such as an iteration itself.
    #[must_use]
    pub fn flexible(mut self) -> Self {
        self.flexible = true;
        self
    }
}

formula!(
    /// w += a v, and its dot product with the next basis vector
    AxpyDot [a] [v next] [w] => [w + a * v] [w * next]
);

/// The least-squares problem of one right-hand side: the Hessenberg matrix, made triangular column by column.
struct Hessenberg {
    /// Columns of the triangular matrix.
    columns: Vec<Vec<f64>>,
    rotations: Vec<(f64, f64)>,
    /// The right-hand side, rotated: its last element is the residual norm.
    rhs: Vec<f64>,
    ending: Option<Stop>,
}

impl Hessenberg {
    fn new(residual: f64) -> Self {
        Self { columns: vec![], rotations: vec![], rhs: vec![residual], ending: None }
    }

    fn residual(&self) -> f64 {
        self.rhs.last().map_or(0.0, |last| last.abs())
    }

    /// Takes the next column, with what is below the diagonal at its end.
    fn push(&mut self, mut column: Vec<f64>, goal: f64, epsilon: f64) {
        let size = column.iter().map(|x| x * x).sum::<f64>().sqrt();
        if !size.is_finite() {
            self.ending = Some(Stop::Broken(Breakdown::NotFinite));
            return;
        }
        for (at, (c, s)) in self.rotations.iter().enumerate() {
            let (x, y) = (column[at], column[at + 1]);
            (column[at], column[at + 1]) = (c * x + s * y, c * y - s * x);
        }
        let below = column.pop().expect("a column and what is below it");
        let last = column.last_mut().expect("a column is not empty");
        let length = last.hypot(below);
        if length <= epsilon * size {
            self.ending = Some(Stop::Broken(Breakdown::Singular));
            return;
        }
        let (c, s) = (*last / length, below / length);
        *last = length;
        self.rotations.push((c, s));
        let end = self.rhs.pop().expect("a right-hand side is not empty");
        self.rhs.extend([c * end, -s * end]);
        self.columns.push(column);
        if self.residual() <= goal {
            self.ending = Some(Stop::Converged);
        }
    }

    /// The coefficients of the basis.
    fn solve(&self) -> Vec<f64> {
        let mut y = self.rhs[..self.columns.len()].to_vec();
        for at in (0..y.len()).rev() {
            y[at] /= self.columns[at][at];
            for row in 0..at {
                y[row] -= self.columns[at][row] * y[at];
            }
        }
        y
    }
}

impl Krylov for Gmres {
    const NAME: &'static str = "GMRES";

    /// One cycle.
    fn round<S: Space>(&self, space: &S, x: &mut S::Vector, r: &mut S::Vector, watch: &mut Watch<'_, S>) {
        let zeros = || space.zeros(Side::Domain);
        let preconditioned = space.is_preconditioned();
        let size = self.restart.min(watch.left());
        let start = space.dot(r, r).sqrt();
        let mut basis = vec![zeros()];
        space.update(Scale, [&start.clone().recip()], [&*r], [&mut basis[0]]);
        let mut images = vec![];
        let mut z = zeros();
        let mut problems: Vec<Hessenberg> = vec![];
        let mut pending: Vec<Vec<S::Numbers>> = vec![];
        for at in 0..size {
            let v = &basis[at];
            if preconditioned {
                space.apply(Map::Preconditioner, Plain, [], v, [], &mut z);
            }
            let mut w = zeros();
            let step = if preconditioned { &z } else { v };
            let [first] = space.apply(Map::Operator, WithDot, [], step, [&basis[0]], &mut w);
            let mut column = vec![first];
            for next in 1..=at {
                let last = -column[next - 1].clone();
                let [dot] = space.update(AxpyDot, [&last], [&basis[next - 1], &basis[next]], [&mut w]);
                column.push(dot);
            }
            let [square] = space.update(AxpyNorm, [&-column[at].clone()], [&basis[at]], [&mut w]);
            let norm = square.sqrt();
            let mut next = zeros();
            space.update(Scale, [&norm.clone().recip()], [&w], [&mut next]);
            basis.push(next);
            if preconditioned && self.flexible {
                images.push(std::mem::replace(&mut z, zeros()));
            }
            column.push(norm);
            pending.push(column);
            let last = at + 1 == size;
            if last || (at + 1) % space.look_every() == 0 {
                if problems.is_empty() {
                    let start = space.read(std::slice::from_ref(&start)).remove(0);
                    let problem = |(start, alive): (&f64, bool)| {
                        let mut problem = Hessenberg::new(*start);
                        problem.ending = (!alive).then_some(Stop::Converged);
                        problem
                    };
                    problems = start.iter().zip(watch.alive()).map(problem).collect();
                }
                if !take(space, &mut problems, &mut pending, watch) {
                    break;
                }
            }
        }
        let solutions: Vec<Vec<f64>> = problems.iter().map(Hessenberg::solve).collect();
        let used = solutions.iter().map(Vec::len).max().unwrap_or(0);
        let coefficients =
            |at: usize| -> Vec<f64> { solutions.iter().map(|y| y.get(at).copied().unwrap_or(0.0)).collect() };
        let from = if images.is_empty() { &basis } else { &images };
        let indirect = preconditioned && images.is_empty();
        let mut sum = zeros();
        let to = if indirect { &mut sum } else { &mut *x };
        for (at, vector) in from.iter().enumerate().take(used) {
            space.update(Axpy, [&space.upload(&coefficients(at))], [vector], [to]);
        }
        if indirect {
            space.apply(Map::Preconditioner, Plain, [], &sum, [], &mut z);
            let alive = watch.alive().into_iter().map(|alive| if alive { 1.0 } else { 0.0 }).collect::<Vec<_>>();
            space.update(Axpy, [&space.upload(&alive)], [&z], [x]);
        }
        let ending = |problem: &Hessenberg| Ending {
            stop: problem.ending.unwrap_or(Stop::Restart),
            iterations: problem.columns.len(),
        };
        watch.conclude(&problems.iter().map(ending).collect::<Vec<_>>());
    }
}

/// Reads the columns that were not looked at. Whether any goes on.
fn take<S: Space>(
    space: &S,
    problems: &mut [Hessenberg],
    pending: &mut Vec<Vec<S::Numbers>>,
    watch: &mut Watch<'_, S>,
) -> bool {
    let lengths: Vec<usize> = pending.iter().map(Vec::len).collect();
    let numbers: Vec<S::Numbers> = pending.drain(..).flatten().collect();
    let mut read = space.read(&numbers).into_iter();
    for length in lengths {
        let column: Vec<Vec<f64>> = read.by_ref().take(length).collect();
        if problems.iter().all(|problem| problem.ending.is_some()) {
            break;
        }
        for (group, problem) in problems.iter_mut().enumerate() {
            if problem.ending.is_none() {
                let column = column.iter().map(|numbers| numbers[group]).collect();
                problem.push(column, watch.goals()[group], space.epsilon());
            }
        }
        watch.step_on_host(problems.iter().map(Hessenberg::residual).collect());
    }
    problems.iter().any(|problem| problem.ending.is_none())
}
