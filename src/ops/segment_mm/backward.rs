//! The derivatives of segment_mm and of its weight gradient, for autodiff over any backend.

use super::SegmentMmOps;
use crate::backend::SparseOps;
use crate::backend::autodiff::{Bilinear, bilinear};
use crate::segments::Segments;
use burn::backend::autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

/// `x_i -> x_i W_s^T`, the transposed product.
fn transposed<B: SparseOps>(segments: Segments, x: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
    B::segment_mm(segments, x, B::float_swap_dims(weight, 1, 2))
}

/// The sum of the rows of each segment: outer products with ones.
fn sum<B: SparseOps>(segments: Segments, rows: FloatTensor<B>) -> FloatTensor<B> {
    let [count, cols] = [segments.len(), rows.shape()[1]];
    let ones = B::float_ones(Shape::from([segments.rows(), 1]), &rows.device(), rows.dtype().into());
    B::float_reshape(B::segment_outer(segments, ones, rows), Shape::from([count, cols]))
}

#[derive(Debug)]
struct WithBias;

/// What the gradients need: of x the weight, of the weight x.
#[derive(Debug, Clone)]
struct WithBiasState {
    segments: Segments,
    x: Option<NodeId>,
    weight: Option<NodeId>,
}

impl<B: SparseOps> Backward<B, 3> for WithBias {
    type State = WithBiasState;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let WithBiasState { segments, x, weight } = ops.state;
        let mut saved = |id: Option<NodeId>| id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        let (x, weight) = (saved(x), saved(weight));
        let [of_x, of_weight, of_bias] = ops.parents;
        if let (Some(node), Some(weight)) = (of_x, weight) {
            grads.register::<B>(node.id, transposed::<B>(segments.clone(), grad.clone(), weight));
        }
        if let (Some(node), Some(x)) = (of_weight, x) {
            grads.register::<B>(node.id, B::segment_outer(segments.clone(), x, grad.clone()));
        }
        if let Some(node) = of_bias {
            grads.register::<B>(node.id, sum::<B>(segments, grad));
        }
    }
}

impl<B: SparseOps, C: CheckpointStrategy> SegmentMmOps for Autodiff<B, C> {
    fn segment_mm(segments: Segments, x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            segments,
            x,
            weight,
            B::segment_mm,
            Bilinear {
                left: |segments, weight, grad| transposed::<B>(segments, grad, weight),
                right: B::segment_outer,
                both: |segments, x, weight, grad| {
                    let of_x = transposed::<B>(segments.clone(), grad.clone(), weight);
                    (of_x, B::segment_outer(segments, x, grad))
                },
            },
        )
    }

    fn segment_mm_bias(
        segments: Segments,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), bias.node()];
        match WithBias.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = WithBiasState {
                    segments: segments.clone(),
                    x: weight.is_tracked().then(|| prep.checkpoint(&x)),
                    weight: x.is_tracked().then(|| prep.checkpoint(&weight)),
                };
                let (x, weight, bias) = (x.into_primitive(), weight.into_primitive(), bias.into_primitive());
                prep.finish(state, B::segment_mm_bias(segments, x, weight, bias))
            }
            OpsKind::UnTracked(prep) => {
                let (x, weight, bias) = (x.into_primitive(), weight.into_primitive(), bias.into_primitive());
                prep.finish(B::segment_mm_bias(segments, x, weight, bias))
            }
        }
    }

    fn segment_outer(segments: Segments, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            segments,
            x,
            y,
            B::segment_outer,
            Bilinear {
                left: |segments, y, grad| transposed::<B>(segments, y, grad),
                right: B::segment_mm,
                both: |segments, x, y, grad| {
                    let of_x = transposed::<B>(segments.clone(), y, grad.clone());
                    (of_x, B::segment_mm(segments, x, grad))
                },
            },
        )
    }
}
