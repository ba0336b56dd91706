//! The derivatives of segment reductions and softmaxes, for autodiff over any backend.

use super::{Reducer, SegmentOps};
use crate::backend::SparseOps;
use crate::backend::autodiff::{linear, of_result};
use crate::ops::reduce::Softmax;
use crate::ops::reduce::backward::of_values;
use crate::pattern::Pattern;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: SparseOps, C: CheckpointStrategy> SegmentOps for Autodiff<B, C> {
    fn segment_reduce(pattern: Pattern, features: FloatTensor<Self>, reducer: Reducer) -> FloatTensor<Self> {
        match reducer {
            Reducer::Sum | Reducer::Mean => linear::<B, C, _>(
                (pattern, reducer),
                features,
                |(pattern, reducer), features| B::segment_reduce(pattern, features, reducer),
                |(pattern, reducer), grad| B::segment_expand(pattern, grad, reducer == Reducer::Mean),
            ),
            Reducer::Max | Reducer::Min => {
                of_values::<B, C, _>(pattern, features, reducer, B::segment_reduce, B::segment_extreme_backward)
            }
        }
    }

    fn segment_extreme_backward(
        _: Pattern,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Reducer,
    ) -> FloatTensor<Self> {
        unreachable!("a backward pass runs on the backend inside: extremes have no second derivative here")
    }

    fn segment_expand(pattern: Pattern, rows: FloatTensor<Self>, mean: bool) -> FloatTensor<Self> {
        linear::<B, C, _>(
            (pattern, mean),
            rows,
            |(pattern, mean), rows| B::segment_expand(pattern, rows, mean),
            |(pattern, mean), grad| B::segment_reduce(pattern, grad, if mean { Reducer::Mean } else { Reducer::Sum }),
        )
    }

    fn segment_softmax(pattern: Pattern, features: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        of_result::<B, C, _>(
            (pattern, softmax),
            features,
            |(pattern, softmax), features| B::segment_softmax(pattern, features, softmax),
            |(pattern, softmax), result, grad| B::segment_softmax_backward(pattern, result, grad, softmax),
        )
    }

    fn segment_softmax_backward(
        _: Pattern,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Softmax,
    ) -> FloatTensor<Self> {
        unreachable!("a backward pass runs on the backend inside: softmaxes have no second derivative here")
    }
}
