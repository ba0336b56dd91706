//! The sparse tensor: a [`Pattern`] and a 1-D tensor of values.

mod batch;
mod construct;
mod convert;
mod display;
mod param;

pub(crate) use batch::part;
pub use construct::IntoValues;
pub use param::SparseParam;

use crate::backend::check::{device_name, supported};
use crate::error::TensorError;
use crate::ops::gather::gather;
use crate::pattern::Pattern;
use burn::backend::{Dispatch, ops::FloatTensorOps};
use burn::tensor::{DType, Device, FloatDType, Gradients, Tensor};

/// A sparse tensor of `D` dimensions: where values may stand, and the values, tracked by Burn's autodiff like any tensor.
///
/// Its gradient is the gradient of the values: one number for every *stored* entry, explicit zeros included, each duplicate
/// its own, at the same pattern and in the same order. Nothing of size rows x columns is made for it.
///
/// Cheap to clone: pattern and values are shared.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex();
/// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?;
/// assert_eq!((a.shape(), a.nnz()), ([2, 3], 3));
/// assert_eq!(a.get(1, 2)?, Some(5.0));
/// assert_eq!(a.get(0, 0)?, None);
/// # Ok::<(), TensorError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SparseTensor<const D: usize> {
    /// Of a batch: the block-diagonal matrix of its items.
    pattern: Pattern,
    shape: [usize; D],
    values: Tensor<1>,
}

impl SparseTensor<2> {
    /// A sparse matrix from a pattern and its values, in the pattern's order.
    ///
    /// # Errors
    /// If the number of values is not the number of stored entries, or the dtype is not a real one that the device has.
    pub fn new(pattern: Pattern, values: Tensor<1>) -> Result<Self, TensorError> {
        let length = values.dims()[0];
        if length != pattern.nnz() {
            return Err(TensorError::ValuesLength { values: length, stored: pattern.nnz() });
        }
        if !supported(values.dtype(), &values.device()) {
            return Err(TensorError::DType { dtype: values.dtype(), device: device_name(&values.device()) });
        }
        Ok(Self::from_checked(pattern, values))
    }

    /// From parts that fit.
    pub(crate) fn from_checked(pattern: Pattern, values: Tensor<1>) -> Self {
        Self { shape: pattern.shape(), pattern, values }
    }

    /// The value at a position, duplicates summed; `None` where nothing is stored. Reads back from the device.
    ///
    /// # Errors
    /// If the position is outside of the matrix, or reading fails.
    pub fn get(&self, row: usize, column: usize) -> Result<Option<f64>, TensorError> {
        let shape = self.shape();
        if row >= shape[0] || column >= shape[1] {
            return Err(TensorError::Position { row, column, shape });
        }
        let slots = self.pattern.slots_at(row, column);
        if slots.is_empty() {
            return Ok(None);
        }
        let select = Pattern::csr([0, slots.len()], slots, [1, self.nnz()])?;
        Ok(read(gather(&select, self.values.clone()))?.first().copied())
    }

    /// All stored entries as (row, column, value), in the order of the values. Reads back from the device.
    ///
    /// # Errors
    /// If reading fails.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[1, 0], &[0, 1], &[4.0, 3.0], [2, 2], &Device::flex())?;
    /// let entries: Vec<_> = a.triplets()?.collect();
    /// assert_eq!(entries, [(0, 1, 3.0), (1, 0, 4.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn triplets(&self) -> Result<impl ExactSizeIterator<Item = (usize, usize, f64)>, TensorError> {
        let (rows, columns) = self.pattern.coordinates();
        let values = read(self.values.clone())?;
        let entries = rows.into_iter().zip(columns).zip(values);
        Ok(entries.map(|((row, column), value)| (row, column, value)))
    }
}

/// The elements of a vector, in f64, on the host.
pub fn read(values: Tensor<1>) -> Result<Vec<f64>, TensorError> {
    let data = values.try_into_data().map_err(|error| TensorError::Read { reason: format!("{error:?}") })?;
    Ok(data.iter::<f64>().collect())
}

/// A tensor in another shape of as many elements. Burn's own reshape takes a 0 for "as before", here it is nothing.
pub fn reshape<const A: usize, const B: usize>(tensor: Tensor<A>, shape: [usize; B]) -> Tensor<B> {
    debug_assert_eq!(tensor.shape().num_elements(), shape.iter().product::<usize>());
    Tensor::from_dispatch(<Dispatch as FloatTensorOps<Dispatch>>::float_reshape(tensor.into_dispatch(), shape.into()))
}

impl<const D: usize> SparseTensor<D> {
    /// From parts that fit: of a batch, the pattern of its block-diagonal matrix.
    pub(crate) fn from_fitting(pattern: Pattern, shape: [usize; D], values: Tensor<1>) -> Self {
        Self { pattern, shape, values }
    }

    /// With another pattern of the same shape, and its values.
    pub(crate) fn rebuilt(&self, pattern: Pattern, values: Tensor<1>) -> Self {
        Self { pattern, shape: self.shape, values }
    }

    /// Rows and columns; of a batch, items, rows and columns.
    pub fn shape(&self) -> [usize; D] {
        self.shape
    }

    /// The transposed matrix, or matrices, in the same buffers: CSR becomes CSC. Values and their gradient stay in their order.
    pub fn t(&self) -> Self {
        let mut shape = self.shape;
        shape.swap(D - 2, D - 1);
        Self { pattern: self.pattern.t(), shape, values: self.values.clone() }
    }

    /// Where values are stored. Of a batch: the pattern of the block-diagonal matrix of its items.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The stored values, in the pattern's order.
    pub fn values(&self) -> &Tensor<1> {
        &self.values
    }

    /// The parts.
    pub fn into_parts(self) -> (Pattern, Tensor<1>) {
        (self.pattern, self.values)
    }

    /// The number of stored entries, explicit zeros and duplicates included.
    pub fn nnz(&self) -> usize {
        self.pattern.nnz()
    }

    /// The type of the values.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// Where the values live.
    pub fn device(&self) -> Device {
        self.values.device()
    }

    /// Other values at the same pattern, whose plans stay.
    ///
    /// # Errors
    /// If the number of values is another.
    pub fn with_values(&self, values: Tensor<1>) -> Result<Self, TensorError> {
        let (length, stored) = (values.dims()[0], self.nnz());
        if length != stored {
            return Err(TensorError::ValuesLength { values: length, stored });
        }
        Ok(self.rebuilt(self.pattern.clone(), values))
    }

    /// A function of the values, at the same pattern: absent entries stay absent, whatever it makes of 0, and each
    /// duplicate is mapped by itself: for functions that are linear. Others act on coalesced values, see
    /// [`map_coalesced`](SparseTensor::map_coalesced).
    ///
    /// # Panics
    /// If the function changes the length.
    #[track_caller]
    pub fn map_values(&self, map: impl FnOnce(Tensor<1>) -> Tensor<1>) -> Self {
        let values = map(self.values.clone());
        self.with_values(values).unwrap_or_else(|error| panic!("map_values: {error}"))
    }

    /// Whether values and gradients of the two can be exchanged: the same entries in the same order and format.
    pub fn same_pattern<const E: usize>(&self, other: &SparseTensor<E>) -> bool {
        self.pattern.same_pattern(&other.pattern)
    }

    /// Tracks the values, so that [`grad`](Self::grad) gives their gradient after a backward pass.
    ///
    /// # Panics
    /// If the device does not do autodiff: make the tensor on `device.autodiff()`.
    #[track_caller]
    pub fn require_grad(self) -> Self {
        assert!(
            self.device().is_autodiff(),
            "require_grad needs a device with autodiff, and {:?} has none: create the tensor on `device.autodiff()`",
            self.device()
        );
        Self { values: self.values.require_grad(), ..self }
    }

    /// The gradient of the values, at this pattern. `None` if they were not tracked or had no part in the loss.
    pub fn grad(&self, grads: &Gradients) -> Option<Self> {
        let values = self.values.grad(grads)?;
        Some(self.rebuilt(self.pattern.clone(), values))
    }

    /// The same numbers, cut off from the graph.
    pub fn detach(self) -> Self {
        Self { values: self.values.detach(), ..self }
    }

    /// The values in another floating-point type.
    ///
    /// # Panics
    /// If the device does not have it.
    #[track_caller]
    pub fn cast(self, dtype: FloatDType) -> Self {
        let device = self.device();
        assert!(supported(dtype.into(), &device), "cast: {dtype:?} is not supported on {}", device_name(&device));
        Self { values: self.values.cast(dtype), ..self }
    }

    /// The values on another device; the pattern's buffers follow on first use.
    pub fn to_device(self, device: &Device) -> Self {
        Self { values: self.values.to_device(device), ..self }
    }
}
