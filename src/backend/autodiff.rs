//! The shapes of a derivative: a primitive is linear in one operand, or bilinear in two, or its derivative follows from its
//! result.

use burn::backend::{
    Backend,
    autodiff::{
        Autodiff, NodeId,
        checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind},
    },
    tensor::FloatTensor,
};
use std::fmt::Debug;
use std::marker::PhantomData;

/// What an operation needs besides tensors: a pattern, usually.
pub(crate) trait Context: Clone + Debug + Send + 'static {}
impl<T: Clone + Debug + Send + 'static> Context for T {}

/// The transpose of a linear operation: from the gradient of its result to that of its operand.
type Transposed<B, X> = fn(X, FloatTensor<B>) -> FloatTensor<B>;

#[derive(Debug)]
struct Linear<X>(PhantomData<X>);

impl<B: Backend, X: Context + Sync> Backward<B, 1> for Linear<X> {
    type State = (X, Transposed<B, X>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (context, transposed) = ops.state;
        if let Some(node) = node {
            grads.register::<B>(node.id, transposed(context, grad));
        }
    }
}

/// A linear operation, `forward`, on `operand`, differentiated by `transposed`.
pub(crate) fn linear<B: Backend, C: CheckpointStrategy, X: Context + Sync>(
    context: X,
    operand: FloatTensor<Autodiff<B, C>>,
    forward: impl FnOnce(X, FloatTensor<B>) -> FloatTensor<B>,
    transposed: Transposed<B, X>,
) -> FloatTensor<Autodiff<B, C>> {
    match Linear(PhantomData::<X>).prepare::<C>([operand.node()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let out = forward(context.clone(), operand.into_primitive());
            prep.finish((context, transposed), out)
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(context, operand.into_primitive())),
    }
}

/// From the result of an operation and its gradient to the gradient of the operand.
type FromResult<B, X> = fn(X, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>;

#[derive(Debug)]
struct OfResult<X>(PhantomData<X>);

impl<B: Backend, X: Context + Sync> Backward<B, 1> for OfResult<X> {
    type State = (X, FromResult<B, X>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (context, derivative, result) = ops.state;
        if let Some(node) = node {
            grads.register::<B>(node.id, derivative(context, result, grad));
        }
    }
}

/// An operation, `forward`, on `operand`, whose derivative follows from its result, which is kept.
pub(crate) fn of_result<B: Backend, C: CheckpointStrategy, X: Context + Sync>(
    context: X,
    operand: FloatTensor<Autodiff<B, C>>,
    forward: impl FnOnce(X, FloatTensor<B>) -> FloatTensor<B>,
    derivative: FromResult<B, X>,
) -> FloatTensor<Autodiff<B, C>> {
    match OfResult(PhantomData::<X>).prepare::<C>([operand.node()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let out = forward(context.clone(), operand.into_primitive());
            prep.finish((context, derivative, out.clone()), out)
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(context, operand.into_primitive())),
    }
}

/// The derivatives of a bilinear operation. Each is asked for only if its operand is tracked.
#[derive(Debug)]
pub(crate) struct Bilinear<B: Backend, X> {
    /// Gradient of the left operand, from the right operand and the gradient of the result.
    pub left: fn(X, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    /// Gradient of the right operand, from the left operand and the gradient of the result.
    pub right: fn(X, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    /// Both at once, from left, right and the gradient of the result.
    #[allow(clippy::type_complexity, reason = "the signature is the documentation")]
    pub both: fn(X, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>),
}

impl<B: Backend, X> Clone for Bilinear<B, X> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Backend, X> Copy for Bilinear<B, X> {}

#[derive(Debug, Clone)]
struct BilinearState<B: Backend, X> {
    context: X,
    rule: Bilinear<B, X>,
    left: Option<NodeId>,
    right: Option<NodeId>,
}

#[derive(Debug)]
struct BilinearStep<X>(PhantomData<X>);

impl<B: Backend, X: Context + Sync> Backward<B, 2> for BilinearStep<X> {
    type State = BilinearState<B, X>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let BilinearState { context, rule, left, right } = ops.state;
        let mut saved = |id: Option<NodeId>| id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        let (left, right) = (saved(left), saved(right));
        match (ops.parents, left, right) {
            ([Some(l), Some(r)], Some(left), Some(right)) => {
                let (grad_left, grad_right) = (rule.both)(context, left, right, grad);
                grads.register::<B>(l.id, grad_left);
                grads.register::<B>(r.id, grad_right);
            }
            ([Some(l), None], _, Some(right)) => {
                grads.register::<B>(l.id, (rule.left)(context, right, grad));
            }
            ([None, Some(r)], Some(left), _) => {
                grads.register::<B>(r.id, (rule.right)(context, left, grad));
            }
            _ => {}
        }
    }
}

/// A bilinear operation, `forward`, on `left` and `right`. An operand is kept only if the other one's gradient needs it.
pub(crate) fn bilinear<B: Backend, C: CheckpointStrategy, X: Context + Sync>(
    context: X,
    left: FloatTensor<Autodiff<B, C>>,
    right: FloatTensor<Autodiff<B, C>>,
    forward: impl FnOnce(X, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    rule: Bilinear<B, X>,
) -> FloatTensor<Autodiff<B, C>> {
    match BilinearStep(PhantomData::<X>).prepare::<C>([left.node(), right.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let state = BilinearState {
                context: context.clone(),
                rule,
                left: right.is_tracked().then(|| prep.checkpoint(&left)),
                right: left.is_tracked().then(|| prep.checkpoint(&right)),
            };
            let out = forward(context, left.into_primitive(), right.into_primitive());
            prep.finish(state, out)
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(context, left.into_primitive(), right.into_primitive())),
    }
}
