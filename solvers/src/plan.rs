//! Many solves with matrices that have one pattern.

use crate::method::Method;
use crate::operator::{LinearOperator, Operator};
use crate::outcome::{Report, Solution};
use crate::pairing::SolveFor;
use crate::precond::PreconditionerError;
use burn::tensor::Tensor;
use sparsegrad::{Pattern, SparseTensor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A method that remembers, for loops that solve with one operator after another: with new values, on the same pattern.
///
/// What it keeps from step to step:
/// * the pattern, and what is planned on it: the levels of triangular solves, the order and symbolic part of direct methods. A
///   matrix whose pattern was built anew, but is the same, is treated as if it had the old one;
/// * the last solution, as the first guess of the next solve with as many columns ([`warm_start`](Self::warm_start));
/// * the preconditioner or the factors themselves, for so many steps ([`refresh_every`](Self::refresh_every)).
///
/// A plan is a [`Method`] and can be given wherever one is asked for; clones share what they remember. Gradients are as ever.
///
/// ```
/// use sparsegrad::{gallery::Grid, prelude::*};
/// use sparsegrad_solvers::{Cg, Plan, precond::Ic0, sparse_solve};
///
/// let device = Device::flex();
/// let plan = Plan::new(Cg::new().precondition(Ic0)).warm_start();
/// let b = Tensor::<1>::ones([64], (&device, DType::F64));
/// let mut iterations = vec![];
/// for step in 0..3 {
///     let k = Tensor::<2>::ones([8, 8], (&device, DType::F64)) * (1.0 + 1e-9 * step as f64);
///     let a = Grid::new([8, 8])?.laplacian(k)?; // a new pattern, the same as before
///     iterations.push(sparse_solve(&a, b.clone(), &plan).report.iterations);
/// }
/// assert!(iterations[2] < iterations[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    method: Arc<dyn Method>,
    warm: bool,
    refresh: usize,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    pattern: Option<Pattern>,
    solution: Option<Tensor<2>>,
    prepared: Option<Arc<dyn Method>>,
    /// Steps since the last preparation.
    age: usize,
}

impl Plan {
    /// Solves by this method.
    pub fn new(method: impl Method + 'static) -> Self {
        Self { method: Arc::new(method), warm: false, refresh: 1, memory: Arc::default() }
    }

    /// Starts each solve from the last solution.
    #[must_use]
    pub fn warm_start(self) -> Self {
        Self { warm: true, ..self }
    }

    /// Makes the preconditioner anew at every `steps`-th matrix only. Right for iterative methods, whose solutions do not depend
    /// on it; a direct method's do.
    ///
    /// # Panics
    /// If `steps` is 0.
    #[must_use]
    pub fn refresh_every(self, steps: usize) -> Self {
        assert!(steps > 0, "a plan refreshes every 0 steps");
        Self { refresh: steps, ..self }
    }

    /// Forgets the solution and the preconditioner.
    pub fn forget(&self) {
        *self.memory() = Memory::default();
    }

    /// [`sparse_solve`](crate::sparse_solve) by this plan.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn solve<A: SolveFor<B>, B>(&self, a: &A, b: B) -> Solution<A::Output> {
        crate::sparse_solve(a, b, self)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The operator, on the pattern that is known.
    fn known(&self, a: &Operator) -> Operator {
        let Some(matrix) = a.stored() else {
            return a.clone();
        };
        let mut memory = self.memory();
        match &memory.pattern {
            Some(pattern) if *pattern == *matrix.pattern() => {
                let matrix = SparseTensor::new(pattern.clone(), matrix.values().clone()).expect("the same pattern");
                Arc::new(OnPattern { operator: a.clone(), matrix })
            }
            _ => {
                memory.pattern = Some(matrix.pattern().clone());
                (memory.solution, memory.prepared) = (None, None);
                a.clone()
            }
        }
    }
}

/// An operator whose matrix is on a pattern that has plans.
#[derive(Debug)]
struct OnPattern {
    operator: Operator,
    matrix: SparseTensor<2>,
}

impl LinearOperator for OnPattern {
    fn shape(&self) -> [usize; 2] {
        self.operator.shape()
    }

    fn items(&self) -> usize {
        self.operator.items()
    }

    fn dtype(&self) -> burn::tensor::DType {
        self.operator.dtype()
    }

    fn device(&self) -> burn::tensor::Device {
        self.operator.device()
    }

    fn tags(&self) -> crate::Tags {
        self.operator.tags()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.matrix.matmul(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.matrix.t().matmul(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { operator: self.operator.clone(), matrix: self.matrix.clone() })
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        Some(self.matrix.clone())
    }
}

impl Method for &Plan {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        (*self).clone().prepare(a)
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        Method::run(*self, a, b, x0, transpose)
    }

    fn run_with_multiplier(
        &self,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        Method::run_with_multiplier(*self, a, b, x0, transpose)
    }
}

impl Method for Plan {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        let operator = self.known(a);
        let mut memory = self.memory();
        let kept = memory.prepared.clone().filter(|_| memory.age < self.refresh);
        let prepared = match kept {
            Some(prepared) => prepared,
            None => {
                memory.age = 0;
                self.method.prepare(&operator)?
            }
        };
        memory.age += 1;
        memory.prepared = (self.refresh > 1).then(|| prepared.clone());
        drop(memory);
        Ok(Arc::new(Step { plan: self.clone(), operator, prepared, done: AtomicBool::new(false) }))
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        match self.prepare(a) {
            Ok(step) => step.run(a, b, x0, transpose),
            Err(_) => self.method.run(a, b, x0, transpose),
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
            Ok(step) => step.run_with_multiplier(a, b, x0, transpose),
            Err(_) => self.method.run_with_multiplier(a, b, x0, transpose),
        }
    }

    fn damping(&self) -> f64 {
        self.method.damping()
    }

    fn finds_minimum_norm(&self) -> bool {
        self.method.finds_minimum_norm()
    }

    fn watch(&self) -> Option<&crate::BackwardWatch> {
        self.method.watch()
    }
}

/// A plan at one operator.
#[derive(Debug)]
struct Step {
    plan: Plan,
    operator: Operator,
    prepared: Arc<dyn Method>,
    /// Whether the solve of the forward pass is done: others, of a backward pass, are for other solutions.
    done: AtomicBool,
}

impl Step {
    /// Runs, from the last solution if the plan remembers that, and remembers this one.
    fn warmed<T>(
        &self,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
        run: impl FnOnce(Tensor<2>, Option<Tensor<2>>) -> (Solution<Tensor<2>>, T),
    ) -> (Solution<Tensor<2>>, T) {
        let warm = self.plan.warm && !transpose && !self.done.swap(true, Ordering::Relaxed);
        if !warm {
            return run(b, x0);
        }
        let fits = |x: &Tensor<2>| x.dims()[1] == b.dims()[1] && x.dtype() == b.dtype() && x.device() == b.device();
        let last = self.plan.memory().solution.clone().filter(fits);
        let (solution, more) = run(b, x0.or(last));
        if usable(&solution.report) {
            self.plan.memory().solution = Some(solution.x.clone());
        }
        (solution, more)
    }
}

impl Method for Step {
    fn name(&self) -> &'static str {
        self.prepared.name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        self.plan.prepare(a)
    }

    fn run(&self, _: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        self.warmed(b, x0, transpose, |b, x0| (self.prepared.run(&self.operator, b, x0, transpose), ())).0
    }

    fn run_with_multiplier(
        &self,
        _: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        self.warmed(b, x0, transpose, |b, x0| self.prepared.run_with_multiplier(&self.operator, b, x0, transpose))
    }
}

fn usable(report: &Report) -> bool {
    report.relative_residuals.iter().all(|residual| residual.is_finite())
}
