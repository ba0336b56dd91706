//! The derivative of spmm, for autodiff over any backend.

use super::SpmmOps;
use crate::backend::SparseOps;
use crate::backend::autodiff::{Bilinear, bilinear};
use crate::pattern::Pattern;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: SparseOps, C: CheckpointStrategy> SpmmOps for Autodiff<B, C> {
    fn spmm(pattern: Pattern, values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            pattern,
            values,
            dense,
            B::spmm,
            Bilinear {
                left: |pattern, dense, grad| B::sddmm(pattern, grad, dense),
                right: |pattern, values, grad| B::spmm(pattern.t(), values, grad),
                both: B::spmm_backward,
            },
        )
    }
}
