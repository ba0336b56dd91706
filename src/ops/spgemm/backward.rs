//! The derivatives, for autodiff over any backend. Product, left and right factor are the three derivatives of one form
//! that is linear in each, `sum of a_ik b_kj c_ij`, so that they are closed under differentiation.

use super::{SpgemmOps, SpgemmPlan};
use crate::backend::SparseOps;
use crate::backend::autodiff::{Bilinear, bilinear};
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: SparseOps, C: CheckpointStrategy> SpgemmOps for Autodiff<B, C> {
    fn spgemm(plan: SpgemmPlan, left: FloatTensor<Self>, right: FloatTensor<Self>) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            plan,
            left,
            right,
            B::spgemm,
            Bilinear {
                left: |plan, right, grad| B::spgemm_left(plan, right, grad),
                right: |plan, left, grad| B::spgemm_left(plan.t(), left, grad),
                both: |plan, left, right, grad| {
                    (B::spgemm_left(plan.clone(), right, grad.clone()), B::spgemm_left(plan.t(), left, grad))
                },
            },
        )
    }

    fn spgemm_left(plan: SpgemmPlan, right: FloatTensor<Self>, product: FloatTensor<Self>) -> FloatTensor<Self> {
        bilinear::<B, C, _>(
            plan,
            right,
            product,
            B::spgemm_left,
            Bilinear {
                left: |plan, product, grad| B::spgemm_left(plan.t(), grad, product),
                right: |plan, right, grad| B::spgemm(plan, grad, right),
                both: |plan, right, product, grad| {
                    (B::spgemm_left(plan.t(), grad.clone(), product), B::spgemm(plan, grad, right))
                },
            },
        )
    }
}
