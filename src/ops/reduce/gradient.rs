//! The gradients of reductions and softmaxes as functions of their own, differentiable again.

use super::{Per, Reduce, ReduceOps, Reduction, Softmax, can, row_reduce};
use crate::backend::check::{Check, Operand, device_can, device_has_exp};
use crate::error::OpError;
use crate::ops::gather::gather;
use crate::pattern::Pattern;
use crate::tensor::SparseTensor;
use burn::backend::Dispatch;
use burn::tensor::{DType, FloatDType, Tensor};

/// The gradient of `a` from that of its reduction, which is not a sum or mean: duplicates are summed first.
pub(crate) fn gradient<const D: usize>(
    op: &'static str,
    a: &SparseTensor<D>,
    per: Per,
    grad: <SparseTensor<D> as Reduce>::Output,
    of: impl Fn(usize) -> Reduction,
) -> Result<SparseTensor<D>, OpError>
where
    SparseTensor<D>: Reduce,
{
    let (shape, grad) = SparseTensor::<D>::flat(grad);
    let (items, [m, n]) = (&a.shape()[..D - 2], [a.shape()[D - 2], a.shape()[D - 1]]);
    let each = match per {
        Per::Row => m,
        Per::Column => n,
        Per::Matrix => 1,
    };
    let left = Operand::sparse(&a.shape(), a.values());
    let right = Operand::from(&grad).with_shape(&shape);
    let fits = shape == [items, &[each]].concat();
    Check { op }.shapes(fits, "the gradient must have the shape of the result", &left, &right)?;
    Check { op }.compatible(&left, &right)?;
    let merged = a.pattern().coalesce();
    can(op, a.values(), &merged.pattern, per, of(0))?;
    let values = match &merged.gather {
        Some(map) => gather(map, a.values().clone()),
        None => a.values().clone(),
    };
    let gradient = match per {
        Per::Row => reduce_backward(&merged.pattern, values, grad, of(n)),
        Per::Column => reduce_backward(&merged.pattern.t(), values, grad, of(m)),
        Per::Matrix => through_rows(&merged.pattern, items.iter().product(), values, grad, of(n)),
    };
    let gradient = match &merged.gather {
        Some(map) => gather(&map.t(), gradient),
        None => gradient,
    };
    Ok(a.rebuilt(a.pattern().clone(), gradient))
}

/// Of a matrix that is reduced by rows, then over their results, which are not rounded on the way.
fn through_rows(
    pattern: &Pattern,
    items: usize,
    values: Tensor<1>,
    grad: Tensor<1>,
    reduction: Reduction,
) -> Tensor<1> {
    let dtype = values.dtype();
    let narrow = matches!(dtype, DType::F16 | DType::BF16);
    let [values, grad] = [values, grad].map(|x| if narrow { x.cast(FloatDType::F32) } else { x });
    let of_rows = row_reduce(pattern, values.clone(), reduction);
    let of_rows = reduce_backward(&pattern.rows_together(items), of_rows, grad, reduction.over_rows());
    let gradient = reduce_backward(pattern, values, of_rows, reduction);
    if narrow { gradient.cast(FloatDType::from(dtype)) } else { gradient }
}

/// The gradient of `a` from that of its softmax per row, or per column.
pub(crate) fn softmax_gradient<const D: usize>(
    op: &'static str,
    a: &SparseTensor<D>,
    grad: &SparseTensor<D>,
    per: Per,
    softmax: Softmax,
) -> Result<SparseTensor<D>, OpError> {
    if !grad.same_pattern(a) {
        let (planned, given) = (a.pattern().to_string(), grad.pattern().to_string());
        return Err(OpError::OtherPattern { op, operand: "the gradient", planned, given });
    }
    let [left, right] = [a, grad].map(|operand| Operand::sparse(&operand.shape(), operand.values()));
    Check { op }.compatible(&left, &right)?;
    device_can(op, a.values(), a.pattern(), &[])?;
    device_has_exp(op, a.values())?;
    let pattern = if per == Per::Column { a.pattern().t() } else { a.pattern().clone() };
    let [values, grad] = [a, grad].map(|operand| operand.values().clone().into_dispatch());
    let gradient = <Dispatch as ReduceOps>::row_softmax_backward(pattern, values, grad, softmax);
    Ok(a.rebuilt(a.pattern().clone(), Tensor::from_dispatch(gradient)))
}

fn reduce_backward(pattern: &Pattern, values: Tensor<1>, grad: Tensor<1>, reduction: Reduction) -> Tensor<1> {
    let [values, grad] = [values, grad].map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as ReduceOps>::row_reduce_backward(pattern.clone(), values, grad, reduction))
}
