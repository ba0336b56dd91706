//! The derivatives of the reductions, for autodiff over any backend. They are made again from the values, so that
//! nothing is kept but those.
//!
//! A gradient is an operation too, `J(x)^T g`, which is linear in g: with the gradient u of its result, that of g is `J(x) u`, and
//! that of x contracts the second derivative with g and u. Both are written with the primitives again.

use super::{Norm, ReduceOps, Reduction, Softmax};
use crate::backend::SparseOps;
use crate::backend::autodiff::linear;
use crate::pattern::Pattern;
use burn::backend::autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings, tensor::FloatTensor};
use burn::tensor::Shape;
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

    fn row_reduce_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reduction: Reduction,
    ) -> FloatTensor<Self> {
        let rule = Second { values: reduction_values::<B>, grad: reduction_grad::<B> };
        gradient::<B, C, _>(pattern, values, grad, reduction, B::row_reduce_backward, rule)
    }

    fn row_expand(pattern: Pattern, rows: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(pattern, rows, B::row_expand, |pattern, grad| B::row_reduce(pattern, grad, Reduction::Sum))
    }

    fn row_softmax(pattern: Pattern, values: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        of_values::<B, C, _>(pattern, values, softmax, B::row_softmax, B::row_softmax_backward)
    }

    fn row_softmax_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self> {
        let rule = Second { values: softmax_values::<B>, grad: softmax_grad::<B> };
        gradient::<B, C, _>(pattern, values, grad, softmax, B::row_softmax_backward, rule)
    }
}

/// The derivatives of a gradient.
#[derive(Debug)]
struct Second<B: Backend, X> {
    /// By the values: from them, the gradient that was propagated and that of its result.
    #[allow(clippy::type_complexity, reason = "the signature is the documentation")]
    values: fn(Pattern, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, X) -> FloatTensor<B>,
    /// By the gradient that was propagated: from the values and the gradient of the result.
    grad: Derivative<B, X>,
}

impl<B: Backend, X> Clone for Second<B, X> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Backend, X> Copy for Second<B, X> {}

#[derive(Debug, Clone)]
struct SecondState<B: Backend, X> {
    pattern: Pattern,
    how: X,
    rule: Second<B, X>,
    values: NodeId,
    /// Kept if the values are tracked.
    grad: Option<NodeId>,
}

#[derive(Debug)]
struct SecondStep<X>(PhantomData<X>);

impl<B: Backend, X: Copy + Debug + Send + Sync + 'static> Backward<B, 2> for SecondStep<X> {
    type State = SecondState<B, X>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let upstream = grads.consume::<B>(&ops.node);
        let SecondState { pattern, how, rule, values, grad } = ops.state;
        let [of_values, of_grad] = ops.parents;
        let values = checkpointer.retrieve_node_output::<FloatTensor<B>>(values);
        if let (Some(node), Some(grad)) = (of_values, grad) {
            let grad = checkpointer.retrieve_node_output::<FloatTensor<B>>(grad);
            let found = (rule.values)(pattern.clone(), values.clone(), grad, upstream.clone(), how);
            grads.register::<B>(node.id, found);
        }
        if let Some(node) = of_grad {
            grads.register::<B>(node.id, (rule.grad)(pattern, values, upstream, how));
        }
    }
}

/// A gradient, `forward`, of `grad` at the values of a pattern, with its derivatives.
fn gradient<B: Backend, C: CheckpointStrategy, X: Copy + Debug + Send + Sync + 'static>(
    pattern: Pattern,
    values: FloatTensor<Autodiff<B, C>>,
    grad: FloatTensor<Autodiff<B, C>>,
    how: X,
    forward: Derivative<B, X>,
    rule: Second<B, X>,
) -> FloatTensor<Autodiff<B, C>> {
    match SecondStep(PhantomData::<X>).prepare::<C>([values.node(), grad.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let kept = values.is_tracked().then(|| prep.checkpoint(&grad));
            let values_kept = prep.checkpoint(&values);
            let state = SecondState { pattern: pattern.clone(), how, rule, values: values_kept, grad: kept };
            prep.finish(state, forward(pattern, values.into_primitive(), grad.into_primitive(), how))
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(pattern, values.into_primitive(), grad.into_primitive(), how)),
    }
}

/// The sum of `x y` over each row.
fn row_products<B: SparseOps>(pattern: &Pattern, x: FloatTensor<B>, y: FloatTensor<B>) -> FloatTensor<B> {
    B::row_reduce(pattern.clone(), B::float_mul(x, y), Reduction::Sum)
}

/// `x times y_i` at each entry (i, j).
fn times_rows<B: SparseOps>(pattern: &Pattern, x: FloatTensor<B>, y: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul(x, B::row_expand(pattern.clone(), y))
}

/// `x`, and 0 where `of` is 0.
fn zero_with<B: Backend>(x: FloatTensor<B>, of: FloatTensor<B>) -> FloatTensor<B> {
    let dtype = get_or_init_device_settings::<B>(&of.device()).bool_dtype;
    B::float_mask_fill(x, B::float_equal_elem(of, 0.into(), dtype), 0.into())
}

/// The derivative of each reduction at its elements, `None` where there are no rows.
fn derivative<B: SparseOps>(
    pattern: &Pattern,
    values: &FloatTensor<B>,
    reduction: Reduction,
) -> Option<FloatTensor<B>> {
    let rows = pattern.shape()[0];
    (rows > 0).then(|| {
        let ones = B::float_ones(Shape::from([rows]), &values.device(), values.dtype().into());
        B::row_reduce_backward(pattern.clone(), values.clone(), ones, reduction)
    })
}

fn reduction_grad<B: SparseOps>(
    pattern: Pattern,
    values: FloatTensor<B>,
    upstream: FloatTensor<B>,
    reduction: Reduction,
) -> FloatTensor<B> {
    match derivative::<B>(&pattern, &values, reduction) {
        Some(derivative) => row_products::<B>(&pattern, derivative, upstream),
        None => B::row_reduce(pattern, upstream, Reduction::Sum),
    }
}

fn reduction_values<B: SparseOps>(
    pattern: Pattern,
    values: FloatTensor<B>,
    grad: FloatTensor<B>,
    upstream: FloatTensor<B>,
    reduction: Reduction,
) -> FloatTensor<B> {
    if pattern.nnz() == 0 {
        return upstream; // nothing
    }
    match reduction {
        Reduction::LogSumExp { .. } => {
            let weights = derivative::<B>(&pattern, &values, reduction).expect("entries are in rows");
            // g w_e (u_e - sum of w u)
            let products = B::float_mul(weights.clone(), upstream);
            let sums = B::row_reduce(pattern.clone(), products.clone(), Reduction::Sum);
            let centred = B::float_sub(products, times_rows::<B>(&pattern, weights, sums));
            times_rows::<B>(&pattern, centred, grad)
        }
        Reduction::Norm(Norm::L2) => {
            let unit = derivative::<B>(&pattern, &values, reduction).expect("entries are in rows");
            let norms = B::row_reduce(pattern.clone(), values, reduction);
            // g / f (u_e - x_e / f sum of x / f u), 0 where f is
            let sums = row_products::<B>(&pattern, unit.clone(), upstream.clone());
            let across = B::float_sub(upstream, times_rows::<B>(&pattern, unit, sums));
            let scale = zero_with::<B>(B::float_div(grad, norms.clone()), norms);
            times_rows::<B>(&pattern, across, scale)
        }
        // Linear, piece by piece.
        Reduction::Sum
        | Reduction::Mean { .. }
        | Reduction::Max { .. }
        | Reduction::Min { .. }
        | Reduction::Norm(Norm::L1 | Norm::Max) => {
            B::float_zeros(values.shape(), &values.device(), values.dtype().into())
        }
    }
}

fn softmax_grad<B: SparseOps>(
    pattern: Pattern,
    values: FloatTensor<B>,
    upstream: FloatTensor<B>,
    softmax: Softmax,
) -> FloatTensor<B> {
    if !softmax.log {
        // Its matrix is symmetric.
        return B::row_softmax_backward(pattern, values, upstream, softmax);
    }
    // u_e - sum of w u; 0 in rows without weights.
    let weights = B::row_softmax(pattern.clone(), values, Softmax { log: false });
    let sums = row_products::<B>(&pattern, weights.clone(), upstream.clone());
    let total = B::row_reduce(pattern.clone(), weights, Reduction::Sum);
    let centred = B::float_sub(upstream, B::row_expand(pattern.clone(), sums));
    zero_with::<B>(centred, B::row_expand(pattern, total))
}

fn softmax_values<B: SparseOps>(
    pattern: Pattern,
    values: FloatTensor<B>,
    grad: FloatTensor<B>,
    upstream: FloatTensor<B>,
    softmax: Softmax,
) -> FloatTensor<B> {
    // The gradient of the weights w in the product of u with what was propagated, then that of the values.
    let plain = Softmax { log: false };
    let of_weights = if softmax.log {
        // - sum of w u, times the sum of g
        let sums = B::row_reduce(pattern.clone(), grad, Reduction::Sum);
        B::float_neg(times_rows::<B>(&pattern, upstream, sums))
    } else {
        // sum of w u g - (sum of w u) (sum of w g)
        let weights = B::row_softmax(pattern.clone(), values.clone(), plain);
        let [of_grad, of_upstream] =
            [&grad, &upstream].map(|x| row_products::<B>(&pattern, weights.clone(), x.clone()));
        let crossed = [(upstream.clone(), of_grad), (grad.clone(), of_upstream)];
        let [left, right] = crossed.map(|(x, sums)| times_rows::<B>(&pattern, x, sums));
        B::float_sub(B::float_sub(B::float_mul(upstream, grad), left), right)
    };
    B::row_softmax_backward(pattern, values, of_weights, plain)
}
