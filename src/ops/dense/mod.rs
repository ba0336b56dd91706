//! Between sparse and dense: the dense matrix of a sparse one, the sum of both, and the values of a dense one at a pattern.
//!
//! | | to dense | add to dense | sample |
//! |---|---|---|---|
//! | computes | `D_ij` = the sum of the values stored at (i, j), 0 where none is | `D_ij` plus that sum, where there is one | `v_e = D_ij` for each stored entry e at (i, j) |
//! | shapes | pattern m x n, `nnz` values; D is m x n | the same | D is m x n; `nnz` values |
//! | memory | D | nothing if D is not used elsewhere, a copy of it otherwise | the values |
//! | gradient | sample of `dD`: each duplicate gets the full gradient | that, and `dD` as it is | to dense of `dv` |
//! | reproducible | each element has one owner and adds in storage order | the same | each value has one owner |

#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use crate::backend::SparseOps;
use crate::backend::autodiff::linear;
use crate::backend::check::{device_can, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The primitives, on backend tensors.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait DenseOps: Backend {
    /// Values `[nnz]`, result `[m, n]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from(pattern.shape()))]
    fn to_dense(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `D + A`: values `[nnz]`, D and result `[m, n]`. In place if nothing else holds D.
    #[fusion(dtype = dense, shape = dense.clone())]
    fn add_to_dense(pattern: Pattern, values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Dense `[m, n]`, result `[nnz]`.
    #[fusion(dtype = dense, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn sample(pattern: Pattern, dense: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// The dense matrix with these values at the pattern, duplicates summed.
///
/// # Panics
/// If the device lacks the dtype or is too small.
#[track_caller]
pub(crate) fn to_dense(pattern: &Pattern, values: Tensor<1>) -> Tensor<2> {
    let result = ("the dense matrix", pattern.shape());
    expect(device_can("to_dense", &values, pattern, &[result]));
    Tensor::from_dispatch(<Dispatch as DenseOps>::to_dense(pattern.clone(), values.into_dispatch()))
}

/// `dense` plus the values at the pattern, in place if nothing else holds `dense`.
///
/// # Panics
/// If the device lacks the dtype or is too small.
#[track_caller]
pub(crate) fn add_to_dense(pattern: &Pattern, values: Tensor<1>, dense: Tensor<2>) -> Tensor<2> {
    debug_assert_eq!(pattern.shape(), dense.dims());
    expect(device_can("csr_add", &values, pattern, &[("the dense matrix", pattern.shape())]));
    let [values, dense] = [values.into_dispatch(), dense.into_dispatch()];
    Tensor::from_dispatch(<Dispatch as DenseOps>::add_to_dense(pattern.clone(), values, dense))
}

/// The elements of a dense matrix at the pattern, in the order of its values.
///
/// # Panics
/// If the device lacks the dtype or is too small.
#[track_caller]
pub(crate) fn sample(pattern: &Pattern, dense: Tensor<2>) -> Tensor<1> {
    debug_assert_eq!(pattern.shape(), dense.dims());
    let operand = ("the dense matrix", dense.dims());
    expect(device_can("sample", &dense, pattern, &[operand]));
    Tensor::from_dispatch(<Dispatch as DenseOps>::sample(pattern.clone(), dense.into_dispatch()))
}

impl<B: SparseOps, C: CheckpointStrategy> DenseOps for Autodiff<B, C> {
    fn to_dense(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(pattern, values, B::to_dense, B::sample)
    }

    fn add_to_dense(pattern: Pattern, values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        match Sum.prepare::<C>([values.node(), dense.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let sum = B::add_to_dense(pattern.clone(), values.into_primitive(), dense.into_primitive());
                prep.finish(pattern, sum)
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::add_to_dense(pattern, values.into_primitive(), dense.into_primitive()))
            }
        }
    }

    fn sample(pattern: Pattern, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(pattern, dense, B::sample, B::to_dense)
    }
}

/// The step of a sum: nothing is kept.
#[derive(Debug)]
struct Sum;

impl<B: SparseOps> Backward<B, 2> for Sum {
    type State = Pattern;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [values, dense] = ops.parents;
        if let Some(node) = values {
            grads.register::<B>(node.id, B::sample(ops.state, grad.clone()));
        }
        if let Some(node) = dense {
            grads.register::<B>(node.id, grad);
        }
    }
}

#[cfg(feature = "flex")]
impl DenseOps for burn::backend::Flex {
    fn to_dense(pattern: Pattern, mut values: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            let dense = with_rows!(pattern.rows(), rows => cpu::to_dense(rows, values));
            flex::tensor(dense, pattern.shape().into())
        })
    }

    fn add_to_dense(pattern: Pattern, mut values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let mut dense = flex::owned::<E>(dense);
            let values = flex::values::<E>(&mut values);
            with_rows!(pattern.rows(), rows => cpu::add_to(rows, values, flex::elements_mut::<E>(&mut dense)));
            dense
        })
    }

    fn sample(pattern: Pattern, mut dense: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(dense.dtype(), E => {
            let dense = flex::matrix::<E>(&mut dense);
            let values = with_rows!(pattern.rows(), rows => cpu::sample(rows, dense, pattern.nnz()));
            flex::tensor(values, [pattern.nnz()].into())
        })
    }
}
