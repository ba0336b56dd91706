//! The one rule by which solves are differentiated: implicitly, without a graph of the iterations.
//!
//! A solve runs untracked and gives numbers x*. The function that they are the value of is put back into the graph as
//! `x = x* + N(b - A x*)`, where N is a node whose value is 0 and whose transposed derivative is `g -> A^-T g`: the solve with
//! the transposed operator, run when the gradient comes. The ordinary derivative of the residual `b - A x*` does the rest: it
//! carries `w = A^-T g` to b, `-w x*^T` to the entries of A, and the same to the parameters of a matrix-free operator. No
//! solver has a derivative of its own.
//!
//! Least squares are `x = x* + N(b - A x*, A^T r*, A^T y*)`, with the pseudoinverse's rule (see [`sparse_lstsq`](crate::sparse_lstsq)).
//!
//! References: S. G. Krantz and H. R. Parks, *The Implicit Function Theorem*, 2003; M. Blondel et al., *Efficient and modular
//! implicit differentiation*, 2022.

use crate::method::Method;
use crate::operator::Operator;
use crate::outcome::{Report, Solution};
use crate::precond::PreconditionerError;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchKindConversion, DispatchTensor, backend_extension, tensor::FloatTensor,
};
use burn::tensor::Tensor;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Reports of the solves of backward passes.
///
/// A backward pass has no place for a report: where its solve does not converge, it panics with it, since the gradients would
/// be wrong. With a watch over the method it does not: the gradients are what was reached, and the reports are here to be
/// looked at.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::{BackwardWatch, Direct, sparse_solve};
///
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1], &[0, 1], &[2.0f32, 4.0], [2, 2], &device)?.require_grad();
/// let watch = BackwardWatch::new();
/// let x = sparse_solve(&a, Tensor::<1>::ones([2], &device), watch.over(Direct::llt())).into_result()?;
/// let grads = x.sum().backward();
/// assert!(watch.reports()[0].outcome.is_converged());
/// # let _ = grads;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BackwardWatch {
    reports: Arc<Mutex<Vec<Report>>>,
}

impl BackwardWatch {
    /// A watch that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A method whose backward passes report here.
    pub fn over(&self, method: impl Method + 'static) -> Watched {
        Watched { method: Arc::new(method), watch: self.clone() }
    }

    /// The reports so far, in the order of the solves.
    pub fn reports(&self) -> Vec<Report> {
        self.lock().clone()
    }

    /// The reports so far, which are forgotten.
    pub fn take(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Report>> {
        self.reports.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A method with a [`BackwardWatch`] over it.
#[derive(Debug, Clone)]
pub struct Watched {
    method: Arc<dyn Method>,
    watch: BackwardWatch,
}

impl Method for Watched {
    fn name(&self) -> &'static str {
        self.method.name()
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        Ok(Arc::new(Self { method: self.method.prepare(a)?, watch: self.watch.clone() }))
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        self.method.run(a, b, x0, transpose)
    }

    fn run_with_multiplier(
        &self,
        a: &Operator,
        b: Tensor<2>,
        x0: Option<Tensor<2>>,
        transpose: bool,
    ) -> (Solution<Tensor<2>>, Option<Tensor<2>>) {
        self.method.run_with_multiplier(a, b, x0, transpose)
    }

    fn damping(&self) -> f64 {
        self.method.damping()
    }

    fn finds_minimum_norm(&self) -> bool {
        self.method.finds_minimum_norm()
    }

    fn watch(&self) -> Option<&BackwardWatch> {
        Some(&self.watch)
    }
}

/// Where a backward solve's report goes: to the watch, or, if it tells of a failure, into a panic.
pub(crate) fn deliver(watch: Option<&BackwardWatch>, report: Report) {
    match watch {
        Some(watch) => watch.lock().push(report),
        None if report.outcome.is_converged() => {}
        None => panic!(
            "the solve of a backward pass failed, and its gradients would be wrong: {report} (BackwardWatch takes the report instead)"
        ),
    }
}

/// The transposed derivative of a node, untracked: from the gradient of its result to that of its operand.
#[derive(Clone)]
pub struct Transposed(Arc<dyn Fn(Tensor<2>) -> Tensor<2> + Send + Sync>);

impl fmt::Debug for Transposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transposed")
    }
}

/// Whether a tensor was found to be tracked.
#[derive(Debug, Clone, Default)]
pub struct Tracked(Arc<AtomicBool>);

/// The primitives, on backend tensors.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
pub trait ImplicitOps: Backend {
    /// The value, with a given transposed derivative in `operand`.
    fn node(derivative: Transposed, value: FloatTensor<Self>, operand: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The derivative itself, for backward passes.
    fn transposed_derivative(derivative: Transposed, grad: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The operand, and in `tracked` whether it is tracked.
    fn look(tracked: Tracked, operand: FloatTensor<Self>) -> FloatTensor<Self>;
}

fn call<B: Backend>(derivative: Transposed, grad: FloatTensor<B>) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let grad = <DispatchTensor as DispatchKindConversion<B>>::from_backend(BackendTensor::Float(grad));
    let result = (derivative.0)(Tensor::from_dispatch(grad)).into_dispatch();
    <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(result)
        .expect("a solve stays on its device")
        .float()
}

macro_rules! untracked {
    ($backend:ty) => {
        impl ImplicitOps for $backend {
            fn node(_: Transposed, value: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
                value
            }

            fn transposed_derivative(derivative: Transposed, grad: FloatTensor<Self>) -> FloatTensor<Self> {
                call::<Self>(derivative, grad)
            }

            fn look(_: Tracked, operand: FloatTensor<Self>) -> FloatTensor<Self> {
                operand
            }
        }
    };
}
#[cfg(feature = "flex")]
untracked!(burn::backend::Flex);
#[cfg(feature = "cube")]
untracked!(burn::backend::Cube);

#[derive(Debug)]
struct Node;

impl<B: ImplicitOps> Backward<B, 1> for Node {
    type State = Transposed;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        if let Some(node) = node {
            grads.register::<B>(node.id, B::transposed_derivative(ops.state, grad));
        }
    }
}

impl<B: ImplicitOps, C: CheckpointStrategy> ImplicitOps for Autodiff<B, C> {
    fn node(derivative: Transposed, value: FloatTensor<Self>, operand: FloatTensor<Self>) -> FloatTensor<Self> {
        let value = value.into_primitive();
        match Node.prepare::<C>([operand.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(derivative, value),
            OpsKind::UnTracked(prep) => prep.finish(value),
        }
    }

    fn transposed_derivative(_: Transposed, _: FloatTensor<Self>) -> FloatTensor<Self> {
        unreachable!("gradients of gradients are made by the functions of vjp")
    }

    fn look(tracked: Tracked, operand: FloatTensor<Self>) -> FloatTensor<Self> {
        tracked.0.store(operand.is_tracked(), Ordering::Relaxed);
        operand
    }
}

/// The value, with this transposed derivative in `operand`: both on the same device, the value a constant.
///
/// The derivative runs within a backward pass: on tensors without a graph.
#[doc(hidden)]
pub fn node(
    value: Tensor<2>,
    operand: Tensor<2>,
    derivative: impl Fn(Tensor<2>) -> Tensor<2> + Send + Sync + 'static,
) -> Tensor<2> {
    let derivative = Transposed(Arc::new(derivative));
    let node = <Dispatch as ImplicitOps>::node(derivative, value.into_dispatch(), operand.into_dispatch());
    Tensor::from_dispatch(node)
}

/// The node N: zeros, `[rows, k]`, with this transposed derivative in `operand`.
pub(crate) fn implicit(
    rows: usize,
    operand: Tensor<2>,
    derivative: impl Fn(Tensor<2>) -> Tensor<2> + Send + Sync + 'static,
) -> Tensor<2> {
    let [_, k] = operand.dims();
    node(Tensor::zeros([rows, k], (&operand.device(), operand.dtype())), operand, derivative)
}

/// Whether gradients flow back from a tensor.
#[doc(hidden)]
pub fn is_tracked(tensor: &Tensor<2>) -> bool {
    let tracked = Tracked::default();
    <Dispatch as ImplicitOps>::look(tracked.clone(), tensor.clone().into_dispatch());
    tracked.0.load(Ordering::Relaxed)
}
