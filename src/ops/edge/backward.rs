//! The derivatives of edge operations: each other, and sums over rows and columns.

use super::{EdgeOp, EdgeOps};
use crate::backend::SparseOps;
use crate::backend::autodiff::{Bilinear, bilinear};
use crate::ops::segment::{Reducer, SegmentOps};
use crate::pattern::Pattern;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{TensorMetadata, ops::FloatTensorOps, tensor::FloatTensor};

/// Sums and differences, whose derivatives need nothing but the pattern.
#[derive(Debug)]
struct Linear;

impl<B: SparseOps> Backward<B, 2> for Linear {
    /// Whether the right operand is subtracted.
    type State = (Pattern, bool);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (pattern, subtracted) = ops.state;
        let [left, right] = ops.parents;
        if let Some(left) = left {
            grads.register::<B>(left.id, sum::<B>(pattern.clone(), grad.clone()));
        }
        if let Some(right) = right {
            let grad = sum::<B>(pattern.t(), grad);
            // There is nothing to negate in an empty tensor, and CubeCL backends can't.
            let negate = subtracted && grad.shape().num_elements() > 0;
            grads.register::<B>(right.id, if negate { B::float_neg(grad) } else { grad });
        }
    }
}

fn sum<B: SparseOps>(pattern: Pattern, grad: FloatTensor<B>) -> FloatTensor<B> {
    B::segment_reduce(pattern, grad, Reducer::Sum)
}

impl<B: SparseOps, C: CheckpointStrategy> EdgeOps for Autodiff<B, C> {
    fn edge_op(pattern: Pattern, left: FloatTensor<Self>, right: FloatTensor<Self>, op: EdgeOp) -> FloatTensor<Self> {
        match op {
            EdgeOp::Add | EdgeOp::Sub => {
                let state = (pattern.clone(), op == EdgeOp::Sub);
                match Linear.prepare::<C>([left.node(), right.node()]).compute_bound().stateful() {
                    OpsKind::Tracked(prep) => {
                        let out = B::edge_op(pattern, left.into_primitive(), right.into_primitive(), op);
                        prep.finish(state, out)
                    }
                    OpsKind::UnTracked(prep) => {
                        prep.finish(B::edge_op(pattern, left.into_primitive(), right.into_primitive(), op))
                    }
                }
            }
            EdgeOp::Mul => bilinear::<B, C, _>(
                pattern,
                left,
                right,
                |pattern, left, right| B::edge_op(pattern, left, right, EdgeOp::Mul),
                Bilinear {
                    left: |pattern, right, grad| B::edge_mm(pattern, grad, right),
                    right: |pattern, left, grad| B::edge_mm(pattern.t(), grad, left),
                    both: |pattern, left, right, grad| {
                        (B::edge_mm(pattern.clone(), grad.clone(), right), B::edge_mm(pattern.t(), grad, left))
                    },
                },
            ),
            // At the edges, so that what no edge reaches is not divided by.
            EdgeOp::Div => {
                let (left, right) = (
                    Self::segment_expand(pattern.clone(), left, false),
                    Self::segment_expand(pattern.t(), right, false),
                );
                Self::float_div(left, right)
            }
        }
    }

    fn edge_dot(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            pattern,
            x,
            y,
            |pattern, x, y| B::edge_dot(pattern, x, y, heads),
            Bilinear {
                left: |pattern, y, grad| B::edge_mm(pattern, grad, y),
                right: |pattern, x, grad| B::edge_mm(pattern.t(), grad, x),
                both: |pattern, x, y, grad| {
                    (B::edge_mm(pattern.clone(), grad.clone(), y), B::edge_mm(pattern.t(), grad, x))
                },
            },
        )
    }

    fn edge_mm(pattern: Pattern, weights: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let heads = weights.shape()[1];
        bilinear::<B, C, _>(
            (pattern, heads),
            weights,
            dense,
            |(pattern, _), weights, dense| B::edge_mm(pattern, weights, dense),
            Bilinear {
                left: |(pattern, heads), dense, grad| B::edge_dot(pattern, grad, dense, heads),
                right: |(pattern, _), weights, grad| B::edge_mm(pattern.t(), weights, grad),
                both: |(pattern, heads), weights, dense, grad| {
                    (B::edge_dot(pattern.clone(), grad.clone(), dense, heads), B::edge_mm(pattern.t(), weights, grad))
                },
            },
        )
    }
}
