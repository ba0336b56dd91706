//! What is checked before an operation is dispatched: under fusion, a kernel's failure would surface late and elsewhere.

use crate::error::OpError;
use crate::pattern::Pattern;
use crate::segments::Segments;
use burn::tensor::{DType, Device, Tensor};

/// An operand: its shape, dtype and device.
pub(crate) struct Operand {
    shape: Vec<usize>,
    dtype: DType,
    device: Device,
}

impl<const D: usize> From<&Tensor<D>> for Operand {
    fn from(tensor: &Tensor<D>) -> Self {
        Self { shape: tensor.dims().to_vec(), dtype: tensor.dtype(), device: tensor.device() }
    }
}

impl Operand {
    /// The values of a sparse operand, with the shape of the matrix.
    pub(crate) fn sparse(shape: &[usize], values: &Tensor<1>) -> Self {
        Self::from(values).with_shape(shape)
    }

    /// The same in another shape.
    pub(crate) fn with_shape(&self, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), dtype: self.dtype, device: self.device.clone() }
    }
}

/// Checks of one call, in the words of one operation.
pub(crate) struct Check {
    pub op: &'static str,
}

impl Check {
    /// Same dtype, one that the device has, and the same device.
    pub(crate) fn compatible(&self, left: &Operand, right: &Operand) -> Result<(), OpError> {
        let op = self.op;
        if left.dtype != right.dtype {
            return Err(OpError::DTypes { op, left: left.dtype, right: right.dtype });
        }
        if left.device.clone().inner() != right.device.clone().inner() {
            return Err(OpError::Devices { op, left: device_name(&left.device), right: device_name(&right.device) });
        }
        self.dtype(left)
    }

    /// A real floating-point dtype that the device has.
    pub(crate) fn dtype(&self, operand: &Operand) -> Result<(), OpError> {
        if supported(operand.dtype, &operand.device) {
            return Ok(());
        }
        Err(OpError::UnsupportedDType { op: self.op, dtype: operand.dtype, device: device_name(&operand.device) })
    }

    /// `left` and `right` shape, in words, unless `fits`.
    pub(crate) fn shapes(
        &self,
        fits: bool,
        what: &'static str,
        left: &Operand,
        right: &Operand,
    ) -> Result<(), OpError> {
        if fits {
            return Ok(());
        }
        Err(OpError::Shapes { op: self.op, what, left: left.shape.clone(), right: right.shape.clone() })
    }
}

/// Whether the kernels can run at this pattern on the device of `tensor`, with dense operands and results of these named
/// shapes: cubecl itself launches what a device lacks, and returns garbage.
pub(crate) fn device_can<const D: usize>(
    op: &'static str,
    tensor: &Tensor<D>,
    pattern: &Pattern,
    dense: &[(&'static str, [usize; 2])],
) -> Result<(), OpError> {
    #[cfg(feature = "cube")]
    super::gpu::check(op, &tensor.device(), tensor.dtype(), pattern, dense)?;
    let _ = (op, tensor, pattern, dense);
    Ok(())
}

/// [`device_can`] at a pattern that is made for devices only.
pub(crate) fn device_can_at<const D: usize>(
    op: &'static str,
    tensor: &Tensor<D>,
    pattern: impl FnOnce() -> Pattern,
    dense: &[(&'static str, [usize; 2])],
) -> Result<(), OpError> {
    #[cfg(feature = "cube")]
    if super::gpu::is_cube(&tensor.device()) {
        return device_can(op, tensor, &pattern(), dense);
    }
    let _ = (op, tensor, pattern, dense);
    Ok(())
}

/// [`device_can`] at these segments.
pub(crate) fn device_can_segments<const D: usize>(
    op: &'static str,
    tensor: &Tensor<D>,
    segments: &Segments,
    dense: &[(&'static str, [usize; 2])],
) -> Result<(), OpError> {
    device_can_at(op, tensor, || segments.pattern().clone(), dense)
}

/// Whether the device has exponentials and logarithms of the dtype: shaders of wgpu have none in f64, and what comes out of
/// them is not refused but wrong.
pub(crate) fn device_has_exp<const D: usize>(op: &'static str, values: &Tensor<D>) -> Result<(), OpError> {
    #[cfg(feature = "cube")]
    if values.dtype() == DType::F64 && super::gpu::is_wgpu(&values.device()) {
        return Err(OpError::UnsupportedDType { op, dtype: values.dtype(), device: device_name(&values.device()) });
    }
    let _ = (op, values);
    Ok(())
}

/// Whether values of this dtype can be computed with on the device.
pub(crate) fn supported(dtype: DType, device: &Device) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) && device.supports_dtype(dtype)
}

/// The device in a word or two, without the autodiff around it.
pub(crate) fn device_name(device: &Device) -> String {
    format!("{:?}", device.clone().inner())
}

/// Unwraps for the functions that panic where their `try_` twins return an error.
#[track_caller]
pub(crate) fn expect<T>(result: Result<T, OpError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
