//! Least squares, with gradients.

use crate::implicit::{BackwardWatch, deliver, implicit, is_tracked};
use crate::method::Method;
use crate::operator::Operator;
use crate::outcome::Solution;
use crate::pairing::SolveFor;
use crate::solve::{Problem, device_of, lifted, plain};
use burn::tensor::Tensor;
use sparsegrad::error::OpError;
use std::sync::Arc;

const OP: &str = "sparse_lstsq";

/// The solution of `min |A x - b|`, found by a method, with gradients to b, to the entries of A and to the parameters of a
/// matrix-free operator. Of a method with damping d, that of `min |A x - b|^2 + d^2 |x|^2`.
///
/// # Shapes
/// As [`SolveFor`]; A may have any shape.
///
/// # Gradient
/// With the gradient g of x, `w = A^+T g`, `z = A^+ w` and the residual `r = b - A x`: of b, w; of A, at each stored entry,
/// `-w x^T + r z^T + y p^T`, with `y = A^+T x` and `p = g - A^T w`. This is the derivative of the pseudoinverse at constant rank;
/// in directions that change the rank there is none. The last term is 0 where A has full column rank. It is taken of wide
/// operators and of methods that [find the solution of minimum norm](Method::finds_minimum_norm) (LSMR). With damping,
/// `w = A z` with `z = (A^T A + d^2)^-1 g`, of any rank.
///
/// With [`Lsmr`](crate::Lsmr) one iteration backwards finds w and z at once, and y comes with the forward one, if that starts
/// from 0. Backwards it is LSQR's, which ends where `|g - A^T w| <= tolerance (|g| + |A| |w|)`, if g is made of rows of A: w is that
/// of an operator within tolerance |A| of A, as x is; of wide operators it is LSMR's own. Other methods solve for each of the
/// three.
///
/// A backward solve that does not converge panics with its report, or leaves it with a
/// [`BackwardWatch`](crate::BackwardWatch).
///
/// Source: G. H. Golub and V. Pereyra, *The differentiation of pseudo-inverses and nonlinear least squares problems whose
/// variables separate*, 1973, equation 4.12.
///
/// # Panics
/// If shapes, dtypes or devices don't fit each other. Whatever else goes wrong is in the report.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::{Direct, sparse_lstsq};
///
/// // A line through (0, 1), (1, 3), (2, 5).
/// let device = Device::flex();
/// let a = SparseTensor::from_dense(Tensor::from_data([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], &device), 0.0)?;
/// let x = sparse_lstsq(&a, Tensor::<1>::from_data([1.0, 3.0, 5.0], &device), Direct::qr()).into_result()?;
/// let x = x.into_data().try_to_vec::<f32>().unwrap();
/// assert!((x[0] - 1.0).abs() < 1e-5 && (x[1] - 2.0).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn sparse_lstsq<A: SolveFor<B>, B>(a: &A, b: B, method: impl Method) -> Solution<A::Output> {
    try_sparse_lstsq(a, b, method).unwrap_or_else(|error| panic!("{error}"))
}

/// [`sparse_lstsq`], or why the operands don't fit.
///
/// # Errors
/// If shapes, dtypes or devices don't fit each other.
pub fn try_sparse_lstsq<A: SolveFor<B>, B>(a: &A, b: B, method: impl Method) -> Result<Solution<A::Output>, OpError> {
    from(a, b, None, &method)
}

/// [`sparse_lstsq`] from a guess of the solution, which methods that iterate start from. The guess is a constant; where there are
/// several solutions LSMR finds the one that is nearest to it, and the gradient stays that of the one of minimum norm.
///
/// # Panics
/// If shapes, dtypes or devices don't fit each other.
#[track_caller]
pub fn sparse_lstsq_from<A: SolveFor<B>, B>(a: &A, b: B, guess: A::Output, method: impl Method) -> Solution<A::Output> {
    from(a, b, Some(guess), &method).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn from<A: SolveFor<B>, B>(
    a: &A,
    b: B,
    guess: Option<A::Output>,
    method: &dyn Method,
) -> Result<Solution<A::Output>, OpError> {
    let (b, layout) = a.columns(OP, b)?;
    let guess = guess.map(|guess| a.guess(OP, guess, layout)).transpose()?;
    let Solution { x, report } = columns(&Problem::new(a.operator()), b, guess, method);
    Ok(Solution { x: a.output(x, layout), report })
}

/// What a backward pass needs to know: whether A is tracked, and which of the terms are there.
#[derive(Debug, Clone, Copy)]
struct Terms {
    operator: bool,
    null_space: bool,
    damping: f64,
}

fn columns(problem: &Problem, b: Tensor<2>, guess: Option<Tensor<2>>, method: &dyn Method) -> Solution<Tensor<2>> {
    if let Some(solution) = problem.trivial(b.clone(), method.name()) {
        return solution;
    }
    let device = device_of(problem, &b);
    let ([m, n], damping) = (problem.tracked.shape(), method.damping());
    let null_space = damping == 0.0 && (m < n || method.finds_minimum_norm());
    let multiplier = null_space && problem.tracked.device().is_autodiff();
    let (prepared, Solution { x, mut report }, y) = problem.run(&b, guess, method, multiplier);
    let Some(prepared) = prepared.filter(|_| device.is_autodiff()) else {
        return Solution { x: lifted(x, &device), report };
    };
    let constant = x.clone();
    let x = lifted(x, &device);
    let b = if b.device().is_autodiff() { b } else { Tensor::from_inner(b) };
    let image = problem.tracked.apply(x.clone());
    let operator = is_tracked(&image);
    let null_space = operator && null_space;
    let terms = Terms { operator, null_space, damping };

    let residual = b - image;
    let mut operands = vec![residual.clone()];
    if operator {
        let r = lifted(plain(residual), &device);
        operands.push(problem.tracked.apply_transpose(r));
    }
    if null_space {
        let y = y.unwrap_or_else(|| {
            let y = prepared.run(&problem.plain, constant, None, true);
            if !y.report.outcome.is_converged() {
                report.notes.push(format!("for the gradient: {}", y.report));
            }
            y.x
        });
        operands.push(problem.tracked.apply_transpose(lifted(y, &device)));
    }
    let backward = Backward { prepared, a: problem.plain.clone(), watch: method.watch().cloned(), terms };
    let node = implicit(n, Tensor::cat(operands, 0), move |grad| Tensor::cat(backward.gradients(grad), 0));
    Solution { x: x + node, report }
}

/// What is done when the gradient comes.
struct Backward {
    prepared: Arc<dyn Method>,
    a: Operator,
    watch: Option<BackwardWatch>,
    terms: Terms,
}

impl Backward {
    fn solve(&self, b: Tensor<2>, transpose: bool) -> Tensor<2> {
        let ([_, n], [_, k]) = (self.a.shape(), b.dims());
        // From zero, whatever guess the method was given: it is one of x.
        let zero = (!transpose).then(|| Tensor::zeros([n, k], (&b.device(), b.dtype())));
        let Solution { x, report } = self.prepared.run(&self.a, b, zero, transpose);
        deliver(self.watch.as_ref(), report);
        x
    }

    /// What comes to the operands: w, z and p.
    fn gradients(&self, grad: Tensor<2>) -> Vec<Tensor<2>> {
        let Terms { operator, null_space, damping } = self.terms;
        let (Solution { x: w, report }, z) = self.prepared.run_with_multiplier(&self.a, grad.clone(), None, true);
        deliver(self.watch.as_ref(), report);
        if !operator {
            return vec![w];
        }
        let rest = |w: &Tensor<2>, g: Tensor<2>| g - self.a.apply_transpose(w.clone());
        let z = z.unwrap_or_else(|| {
            let z = self.solve(w.clone(), false);
            if damping == 0.0 {
                return z;
            }
            // (A^T A + d^2)^-1 of g, whose part A^T w the solve has treated: the rest is treated by a solve of its own, and what
            // remains then is d^2 times its image. Dividing the first rest by d^2 instead would blow up its errors.
            let rest_of_grad = rest(&w, grad.clone());
            let remaining = rest(&self.solve(rest_of_grad.clone(), true), rest_of_grad);
            z + remaining / (damping * damping)
        });
        let p = null_space.then(|| rest(&w, grad));
        [w, z].into_iter().chain(p).collect()
    }
}
