//! The derivative of sddmm, for autodiff over any backend.

use super::SddmmOps;
use crate::backend::SparseOps;
use crate::backend::autodiff::{Bilinear, bilinear};
use crate::pattern::Pattern;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: SparseOps, C: CheckpointStrategy> SddmmOps for Autodiff<B, C> {
    fn sddmm(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            pattern,
            x,
            y,
            B::sddmm,
            Bilinear {
                left: |pattern, y, grad| B::spmm(pattern, grad, y),
                right: |pattern, x, grad| B::spmm(pattern.t(), grad, x),
                both: |pattern, x, y, grad| (B::spmm(pattern.clone(), grad.clone(), y), B::spmm(pattern.t(), grad, x)),
            },
        )
    }
}
