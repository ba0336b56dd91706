//! The derivatives of the reductions, for autodiff over any backend. They are made again from the values, so that
//! nothing is kept but those.

use super::{ReduceOps, Reduction, Softmax};
use crate::backend::SparseOps;
use crate::backend::autodiff::linear;
use crate::pattern::Pattern;
use burn::backend::autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{Backend, tensor::FloatTensor};
use std::fmt::Debug;
use std::marker::PhantomData;

/// From the values and the gradient of the result to the gradient of the values.
pub(crate) type Derivative<B, X> = fn(Pattern, FloatTensor<B>, FloatTensor<B>, X) -> FloatTensor<B>;

#[derive(Debug)]
struct State<B: Backend, X> {
    pattern: Pattern,
    how: X,
    derivative: Derivative<B, X>,
    values: NodeId,
}

impl<B: Backend, X: Clone> Clone for State<B, X> {
    fn clone(&self) -> Self {
        let Self { pattern, how, derivative, values } = self;
        Self { pattern: pattern.clone(), how: how.clone(), derivative: *derivative, values: *values }
    }
}

#[derive(Debug)]
struct Step<X>(PhantomData<X>);

impl<B: Backend, X: Copy + Debug + Send + Sync + 'static> Backward<B, 1> for Step<X> {
    type State = State<B, X>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let State { pattern, how, derivative, values } = ops.state;
        let values = checkpointer.retrieve_node_output::<FloatTensor<B>>(values);
        if let Some(node) = node {
            grads.register::<B>(node.id, derivative(pattern, values, grad, how));
        }
    }
}

/// A function of the values of a pattern, `forward`, with its derivative.
pub(crate) fn of_values<B: Backend, C: CheckpointStrategy, X: Copy + Debug + Send + Sync + 'static>(
    pattern: Pattern,
    values: FloatTensor<Autodiff<B, C>>,
    how: X,
    forward: fn(Pattern, FloatTensor<B>, X) -> FloatTensor<B>,
    derivative: Derivative<B, X>,
) -> FloatTensor<Autodiff<B, C>> {
    match Step(PhantomData::<X>).prepare::<C>([values.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let state = State { pattern: pattern.clone(), how, derivative, values: prep.checkpoint(&values) };
            prep.finish(state, forward(pattern, values.into_primitive(), how))
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(pattern, values.into_primitive(), how)),
    }
}

impl<B: SparseOps, C: CheckpointStrategy> ReduceOps for Autodiff<B, C> {
    fn row_reduce(pattern: Pattern, values: FloatTensor<Self>, reduction: Reduction) -> FloatTensor<Self> {
        if reduction == Reduction::Sum {
            return linear::<B, C, _>(
                pattern,
                values,
                |pattern, values| B::row_reduce(pattern, values, Reduction::Sum),
                B::row_expand,
            );
        }
        of_values::<B, C, _>(pattern, values, reduction, B::row_reduce, B::row_reduce_backward)
    }

    fn row_reduce_backward(_: Pattern, _: FloatTensor<Self>, _: FloatTensor<Self>, _: Reduction) -> FloatTensor<Self> {
        unreachable!(
            "a backward pass runs on the backend inside: `vjp` has the gradients that are differentiable again"
        )
    }

    fn row_expand(pattern: Pattern, rows: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(pattern, rows, B::row_expand, |pattern, grad| B::row_reduce(pattern, grad, Reduction::Sum))
    }

    fn row_softmax(pattern: Pattern, values: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        of_values::<B, C, _>(pattern, values, softmax, B::row_softmax, B::row_softmax_backward)
    }

    fn row_softmax_backward(_: Pattern, _: FloatTensor<Self>, _: FloatTensor<Self>, _: Softmax) -> FloatTensor<Self> {
        unreachable!("a backward pass runs on the backend inside: softmaxes have no second derivative here")
    }
}
