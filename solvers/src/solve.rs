//! Solving A x = b, with gradients.

use crate::implicit::{deliver, implicit};
use crate::method::Method;
use crate::operator::{LinearOperator, Operator};
use crate::outcome::{Outcome, Report, Solution};
use crate::pairing::SolveFor;
use burn::tensor::{Device, Tensor};
use sparsegrad::error::OpError;
use std::sync::Arc;

const OP: &str = "sparse_solve";

/// The solution x of `A x = b`, found by a method, with gradients to b, to the entries of A and to the parameters of a
/// matrix-free operator.
///
/// # Shapes
/// As [`SolveFor`]: A is square; vectors, columns, items of columns, batches.
///
/// # Gradient
/// One more solve, with the transposed operator and what the method prepared for the forward one (the transposed
/// preconditioner, the same factors): for the gradient g of x, `w = A^-T g`. Of b: w. Of A: `-w_i x_j` at each stored entry
/// (i, j), each duplicate in full. Of an operator's own parameters: what their [`apply`](LinearOperator::apply) makes of it.
/// Nothing is assumed of A: it may well be non-symmetric. The iterations leave no graph.
///
/// The derivative is that of the exact solution: it is as good as the two solves are accurate. A backward solve that does not
/// converge panics with its report, or leaves it with a [`BackwardWatch`](crate::BackwardWatch).
///
/// # Panics
/// If shapes, dtypes or devices don't fit each other. Whatever else goes wrong is in the report: an operator for which the
/// method can't be prepared is [`Outcome::Unprepared`], with a solution of NaN.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
/// use sparsegrad_solvers::{Cg, precond::Ic0, sparse_solve};
///
/// let device = Device::flex().autodiff();
/// let conductivity = Tensor::<2>::ones([8, 8], (&device, DType::F64)).require_grad();
/// let laplacian = gallery::grid_laplacian(conductivity.clone())?;
/// let heat = Tensor::<1>::ones([64], (&device, DType::F64));
///
/// let solution = sparse_solve(&laplacian, heat, Cg::new().tolerance(1e-8).precondition(Ic0));
/// println!("{}", solution.report);
/// let grads = solution.into_result()?.mean().backward(); // one more solve
/// assert_eq!(conductivity.grad(&grads).unwrap().dims(), [8, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn sparse_solve<A: SolveFor<B>, B>(a: &A, b: B, method: impl Method) -> Solution<A::Output> {
    try_sparse_solve(a, b, method).unwrap_or_else(|error| panic!("{error}"))
}

/// [`sparse_solve`], or why the operands don't fit.
///
/// # Errors
/// If shapes, dtypes or devices don't fit each other.
pub fn try_sparse_solve<A: SolveFor<B>, B>(a: &A, b: B, method: impl Method) -> Result<Solution<A::Output>, OpError> {
    from(a, b, None, &method)
}

/// [`sparse_solve`] from a guess of the solution, which methods that iterate start from. The guess is a constant.
///
/// # Panics
/// If shapes, dtypes or devices don't fit each other.
#[track_caller]
pub fn sparse_solve_from<A: SolveFor<B>, B>(a: &A, b: B, guess: A::Output, method: impl Method) -> Solution<A::Output> {
    from(a, b, Some(guess), &method).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn from<A: SolveFor<B>, B>(
    a: &A,
    b: B,
    guess: Option<A::Output>,
    method: &dyn Method,
) -> Result<Solution<A::Output>, OpError> {
    let operator = a.operator();
    let [m, n] = operator.shape();
    let (b, layout) = a.columns(OP, b)?;
    if m != n {
        let (what, left, right) = ("A must be square", vec![m, n], b.dims().to_vec());
        return Err(OpError::Shapes { op: OP, what, left, right });
    }
    let guess = guess.map(|guess| a.guess(OP, guess, layout)).transpose()?;
    let Solution { x, report } = columns(&Problem::new(operator), b, guess, method);
    Ok(Solution { x: a.output(x, layout), report })
}

/// An operator, and the same without a graph.
pub(crate) struct Problem<'a> {
    pub tracked: &'a dyn LinearOperator,
    pub plain: Operator,
}

impl<'a> Problem<'a> {
    pub fn new(tracked: &'a dyn LinearOperator) -> Self {
        Self { tracked, plain: tracked.detach() }
    }

    /// Nothing to solve for: zeros, in the graph of both operands.
    pub fn trivial(&self, b: Tensor<2>, name: &'static str) -> Option<Solution<Tensor<2>>> {
        let ([_, n], [m, k]) = (self.tracked.shape(), b.dims());
        (n == 0 || m == 0 || k == 0).then(|| {
            let report = Report::immediate(name, vec![0.0; self.tracked.items().max(1) * k]);
            Solution { x: self.tracked.apply_transpose(b), report }
        })
    }

    /// The prepared method and what it makes of `b`, with the multiplier if that is asked for and found.
    pub fn run(
        &self,
        b: &Tensor<2>,
        guess: Option<Tensor<2>>,
        method: &dyn Method,
        multiplier: bool,
    ) -> (Option<Arc<dyn Method>>, Solution<Tensor<2>>, Option<Tensor<2>>) {
        let (b, guess) = (plain(b.clone()), guess.map(plain));
        match method.prepare(&self.plain) {
            Ok(prepared) => {
                let (solution, y) = match multiplier {
                    true => prepared.run_with_multiplier(&self.plain, b, guess, false),
                    false => (prepared.run(&self.plain, b, guess, false), None),
                };
                (Some(prepared), solution, y)
            }
            Err(error) => {
                let ([_, n], items) = (self.plain.shape(), self.plain.items().max(1));
                let outcome = Outcome::Unprepared { error };
                (None, crate::direct::impossible(method.name(), outcome, &b, n, items), None)
            }
        }
    }
}

/// Cut off from the graph, on the device without autodiff.
pub fn plain<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.inner() } else { tensor }
}

/// Back on the device of the operands, as a constant.
pub fn lifted<const D: usize>(tensor: Tensor<D>, device: &Device) -> Tensor<D> {
    if device.is_autodiff() { Tensor::from_inner(tensor) } else { tensor }
}

/// The device with autodiff, if one of the operands is on it.
pub(crate) fn device_of(problem: &Problem, b: &Tensor<2>) -> Device {
    if b.device().is_autodiff() { b.device() } else { problem.tracked.device() }
}

fn columns(problem: &Problem, b: Tensor<2>, guess: Option<Tensor<2>>, method: &dyn Method) -> Solution<Tensor<2>> {
    if let Some(solution) = problem.trivial(b.clone(), method.name()) {
        return solution;
    }
    let device = device_of(problem, &b);
    let (prepared, Solution { x, report }, _) = problem.run(&b, guess, method, false);
    let x = lifted(x, &device);
    let Some(prepared) = prepared.filter(|_| device.is_autodiff()) else {
        return Solution { x, report };
    };
    let b = if b.device().is_autodiff() { b } else { Tensor::from_inner(b) };
    let residual = b - problem.tracked.apply(x.clone());
    let (plain, watch) = (problem.plain.clone(), method.watch().cloned());
    let node = implicit(x.dims()[0], residual, move |grad| {
        let Solution { x, report } = prepared.run(&plain, grad, None, true);
        deliver(watch.as_ref(), report);
        x
    });
    Solution { x: x + node, report }
}
