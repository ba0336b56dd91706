//! The derivative of a triangular solve, for autodiff over any backend.

use super::{Triangle, TrisolveOps};
use crate::backend::SparseOps;
use burn::backend::autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{Backend, tensor::FloatTensor};

#[derive(Debug)]
struct Step;

#[derive(Debug, Clone)]
struct State<B: Backend> {
    triangle: Triangle,
    values: NodeId,
    /// Kept if the values are tracked.
    solution: Option<FloatTensor<B>>,
}

impl<B: SparseOps> Backward<B, 2> for Step {
    type State = State<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let State { triangle, values, solution } = ops.state;
        let values = checkpointer.retrieve_node_output::<FloatTensor<B>>(values);
        match (ops.parents, solution) {
            ([Some(left), right], Some(solution)) => {
                let (d_values, d_rhs) = B::trisolve_backward(triangle, values, solution, grad);
                grads.register::<B>(left.id, d_values);
                if let Some(right) = right {
                    grads.register::<B>(right.id, d_rhs);
                }
            }
            ([None, Some(right)], _) => {
                grads.register::<B>(right.id, B::trisolve(triangle.t(), values, grad));
            }
            _ => {}
        }
    }
}

impl<B: SparseOps, C: CheckpointStrategy> TrisolveOps for Autodiff<B, C> {
    fn trisolve(triangle: Triangle, values: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        match Step.prepare::<C>([values.node(), rhs.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let tracked = values.is_tracked();
                let saved = prep.checkpoint(&values);
                let out = B::trisolve(triangle.clone(), values.into_primitive(), rhs.into_primitive());
                let state = State { triangle, values: saved, solution: tracked.then(|| out.clone()) };
                prep.finish(state, out)
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::trisolve(triangle, values.into_primitive(), rhs.into_primitive()))
            }
        }
    }
}
