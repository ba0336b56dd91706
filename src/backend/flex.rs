//! Between Flex tensors and the slices that the CPU kernels take.

use super::alloc;
use super::dense::Dense;
use super::scalar::Scalar;
use burn::backend::TensorMetadata;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, Element, Shape};
use std::mem::MaybeUninit;

/// Calls `$body` with the type `$e` of a floating-point dtype.
macro_rules! with_float {
    ($dtype:expr, $e:ident => $body:expr) => {
        match $dtype {
            burn::tensor::DType::F32 => {
                type $e = f32;
                $body
            }
            burn::tensor::DType::F64 => {
                type $e = f64;
                $body
            }
            burn::tensor::DType::F16 => {
                type $e = half::f16;
                $body
            }
            burn::tensor::DType::BF16 => {
                type $e = half::bf16;
                $body
            }
            other => unreachable!("dtype {other:?} was refused before dispatch"),
        }
    };
}
pub(crate) use with_float;

/// The elements of a 1-D tensor, which is made contiguous in place if it is not.
pub(crate) fn values<E: Scalar + Element>(tensor: &mut FlexTensor) -> &[E] {
    if !tensor.is_contiguous() {
        *tensor = tensor.to_contiguous();
    }
    tensor.as_slice().expect("contiguous and of this dtype")
}

/// A 2-D tensor as the kernels see it: any view with contiguous rows as it is, another is made contiguous in place.
pub(crate) fn matrix<E: Scalar + Element>(tensor: &mut FlexTensor) -> Dense<'_, E> {
    let layout = tensor.layout();
    let [rows, cols] = [layout.shape()[0], layout.shape()[1]];
    let row_stride = match *layout.strides() {
        [row, column] if (column == 1 || cols <= 1) && row >= cols as isize => Some(row as usize),
        _ => None,
    };
    let Some(row_stride) = row_stride else {
        if !tensor.is_contiguous() {
            *tensor = tensor.to_contiguous();
        }
        let elements = tensor.as_slice().expect("contiguous and of this dtype");
        return Dense::contiguous(elements, rows, cols);
    };
    let start = layout.start_offset();
    let elements = &tensor.storage::<E>()[start..];
    Dense::new(elements, rows, cols, row_stride)
}

/// A contiguous tensor that nothing else holds: this one, or a copy.
pub(crate) fn owned<E: Scalar + Element>(tensor: FlexTensor) -> FlexTensor {
    let elements = tensor.shape().num_elements();
    if tensor.is_unique() && tensor.is_contiguous() && tensor.storage::<E>().len() == elements {
        return tensor;
    }
    let shape = tensor.shape();
    let copied = match tensor.as_slice::<E>() {
        Some(elements) => elements.to_vec(),
        // A copy in the order of the elements.
        None => return tensor.to_contiguous(),
    };
    self::tensor(copied, shape)
}

/// The elements of a tensor that is [`owned`].
pub(crate) fn elements_mut<E: Scalar + Element>(tensor: &mut FlexTensor) -> &mut [E] {
    tensor.try_storage_mut().expect("nothing else holds it")
}

/// A new tensor that `fill` writes completely.
///
/// # Safety
/// `fill` must initialise every element.
pub(crate) unsafe fn filled<E: Scalar + Element>(shape: Shape, fill: impl FnOnce(&mut [MaybeUninit<E>])) -> FlexTensor {
    let mut buffer = alloc::output::<E>(shape.num_elements());
    fill(&mut buffer);
    // SAFETY: the caller promises that `fill` has written all of it.
    tensor(unsafe { alloc::finished(buffer) }, shape)
}

/// Two new tensors that `fill` writes completely.
///
/// # Safety
/// `fill` must initialise every element of both.
pub(crate) unsafe fn filled_both<E: Scalar + Element>(
    shapes: (Shape, Shape),
    fill: impl FnOnce(&mut [MaybeUninit<E>], &mut [MaybeUninit<E>]),
) -> (FlexTensor, FlexTensor) {
    let mut left = alloc::output::<E>(shapes.0.num_elements());
    let mut right = alloc::output::<E>(shapes.1.num_elements());
    fill(&mut left, &mut right);
    // SAFETY: the caller promises that `fill` has written all of both.
    let (left, right) = unsafe { (alloc::finished(left), alloc::finished(right)) };
    (tensor(left, shapes.0), tensor(right, shapes.1))
}

/// A tensor around a vector, without a copy.
pub(crate) fn tensor<E: Scalar + Element>(elements: Vec<E>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(elements), Layout::contiguous(shape), E::dtype())
}
