//! **gather**: sums of selected values, `out_e = sum of v_s over the slots s that belong to e`.
//!
//! The primitive under conversions between formats and under coalescing. Which slots belong to which output is itself a
//! pattern, outputs x values, so that the transposed gather is the same operation on the transposed pattern: a selection and
//! a sum of segments are each other's gradient, and neither needs an atomic addition.
//!
//! | | |
//! |---|---|
//! | shapes | pattern m x n, values of length n, result of length m; an output without slots is 0 |
//! | dtypes | f32, f64; f16 and bf16 stored, accumulated in f32 and rounded once |
//! | gradient | gather of the gradient by the transposed pattern |
//! | reproducible | each output has one owner and adds in storage order |

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
use crate::pattern::{Slot, with_rows};
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The primitive, on backend tensors.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait GatherOps: Backend {
    /// Row sums of the pattern with the values at its columns: values `[n]`, result `[m]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from([pattern.shape()[0]]))]
    fn gather(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The values in the pattern's row order; `back`, from there in the order of storage. Values and result `[nnz]`.
    ///
    /// A gather by a permutation, for which a backend that overrides it needs no pattern.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn reorder(pattern: Pattern, values: FloatTensor<Self>, back: bool) -> FloatTensor<Self> {
        match pattern.to_csr().gather {
            Some(map) => Self::gather(if back { map.t() } else { map }, values),
            None => values,
        }
    }
}

/// Sums the values that each row of `pattern` selects.
///
/// # Panics
/// If the device lacks the dtype or is too small.
#[track_caller]
pub(crate) fn gather(pattern: &Pattern, values: Tensor<1>) -> Tensor<1> {
    debug_assert_eq!(pattern.shape()[1], values.dims()[0]);
    expect(device_can("gather", &values, pattern, &[]));
    Tensor::from_dispatch(<Dispatch as GatherOps>::gather(pattern.clone(), values.into_dispatch()))
}

/// The values in the pattern's row order.
///
/// # Panics
/// If the device lacks the dtype or is too small.
#[track_caller]
pub(crate) fn in_row_order(pattern: &Pattern, values: Tensor<1>) -> Tensor<1> {
    expect(device_can("transpose", &values, pattern, &[]));
    Tensor::from_dispatch(<Dispatch as GatherOps>::reorder(pattern.clone(), values.into_dispatch(), false))
}

impl<B: SparseOps, C: CheckpointStrategy> GatherOps for Autodiff<B, C> {
    fn gather(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(pattern, values, B::gather, |pattern, grad| B::gather(pattern.t(), grad))
    }

    fn reorder(pattern: Pattern, values: FloatTensor<Self>, back: bool) -> FloatTensor<Self> {
        linear::<B, C, _>(
            (pattern, back),
            values,
            |(pattern, back), values| B::reorder(pattern, values, back),
            |(pattern, back), grad| B::reorder(pattern, grad, !back),
        )
    }
}

#[cfg(feature = "flex")]
impl GatherOps for burn::backend::Flex {
    fn gather(pattern: Pattern, mut values: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes one value for every row.
                unsafe { flex::filled([rows.n_rows()].into(), |out| cpu::gather(rows, values, out)) }
            })
        })
    }

    fn reorder(pattern: Pattern, mut values: FloatTensor<Self>, back: bool) -> FloatTensor<Self> {
        let in_order = || with_rows!(pattern.rows(), rows => matches!(rows.slots, Slot::Identity));
        if !pattern.is_across() && in_order() {
            return values;
        }
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            let reorder = |out: &mut [_]| {
                if back || !pattern.sort_with(values, out) {
                    with_rows!(pattern.rows(), rows => cpu::reorder(rows, values, back, out));
                }
            };
            // SAFETY: entries have different slots, as many as there are values, so that all are written.
            unsafe { flex::filled([values.len()].into(), reorder) }
        })
    }
}
