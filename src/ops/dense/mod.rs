//! Between sparse and dense: the dense matrix of a sparse one, and the values of a dense one at a pattern.
//!
//! | | to dense | sample |
//! |---|---|---|
//! | computes | `D_ij` = the sum of the values stored at (i, j), 0 where none is | `v_e = D_ij` for each stored entry e at (i, j) |
//! | shapes | pattern m x n, `nnz` values; D is m x n | D is m x n; `nnz` values |
//! | gradient | sample of `dD`: each duplicate gets the full gradient | to dense of `dv` |
//! | reproducible | each element has one owner and adds in storage order | each value has one owner |

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
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The primitives, on backend tensors.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait DenseOps: Backend {
    /// Values `[nnz]`, result `[m, n]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from(pattern.shape()))]
    fn to_dense(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self>;

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

    fn sample(pattern: Pattern, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(pattern, dense, B::sample, B::to_dense)
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

    fn sample(pattern: Pattern, mut dense: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(dense.dtype(), E => {
            let dense = flex::matrix::<E>(&mut dense);
            let values = with_rows!(pattern.rows(), rows => cpu::sample(rows, dense, pattern.nnz()));
            flex::tensor(values, [pattern.nnz()].into())
        })
    }
}
