//! Constructors from host data, from the parts of a format, and from dense tensors.

use super::{SparseTensor, read, reshape};
use crate::backend::check::{Check, Operand};
use crate::error::{OpError, TensorError};
use crate::ops::dense::sample;
use crate::pattern::{IntoIndices, Pattern};
use burn::tensor::{DType, Device, Element, Tensor, TensorData};

/// What can be given as values: slices, arrays and vectors of a floating-point type, which keep it, and 1-D tensors, which
/// stay in their graph.
pub trait IntoValues {
    /// The values on a device.
    fn into_values(self, device: &Device) -> Tensor<1>;
}

fn upload<E: Element>(values: Vec<E>, device: &Device) -> Tensor<1> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), (device, E::dtype()))
}

macro_rules! values {
    ($($e:ty),*) => { $(
        impl IntoValues for Vec<$e> {
            fn into_values(self, device: &Device) -> Tensor<1> {
                upload(self, device)
            }
        }
    )* };
}
values!(f32, f64, half::f16, half::bf16);

impl<T: Copy> IntoValues for &[T]
where
    Vec<T>: IntoValues,
{
    fn into_values(self, device: &Device) -> Tensor<1> {
        self.to_vec().into_values(device)
    }
}
impl<T: Copy> IntoValues for &Vec<T>
where
    Vec<T>: IntoValues,
{
    fn into_values(self, device: &Device) -> Tensor<1> {
        self.clone().into_values(device)
    }
}
impl<T: Copy, const N: usize> IntoValues for &[T; N]
where
    Vec<T>: IntoValues,
{
    fn into_values(self, device: &Device) -> Tensor<1> {
        self.to_vec().into_values(device)
    }
}
impl<T: Copy, const N: usize> IntoValues for [T; N]
where
    Vec<T>: IntoValues,
{
    fn into_values(self, device: &Device) -> Tensor<1> {
        self.to_vec().into_values(device)
    }
}
impl IntoValues for Tensor<1> {
    fn into_values(self, device: &Device) -> Tensor<1> {
        if self.device() == *device { self } else { self.to_device(device) }
    }
}

impl SparseTensor<2> {
    /// From coordinates and values in any order, as CSR: rows ascending, within a row in the order given. Duplicates are kept.
    ///
    /// # Errors
    /// If the three have different lengths or an index is out of range.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?;
    /// println!("{a}");
    ///
    /// let error = SparseTensor::from_triplets(&[0, 2], &[0, 0], &[1.0f32, 2.0], [2, 3], &device).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "row index 2 at position 1 is out of range for a matrix with 2 rows (shape 2x3)"
    /// );
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn from_triplets(
        rows: impl IntoIndices,
        columns: impl IntoIndices,
        values: impl IntoValues,
        shape: [usize; 2],
        device: &Device,
    ) -> Result<Self, TensorError> {
        Ok(Self::from_coo(rows, columns, values, shape, device)?.to_csr())
    }

    /// From coordinates, kept as they are: entry `e` stands at `(rows[e], columns[e])`.
    ///
    /// # Errors
    /// As [`Pattern::coo`] and [`new`](Self::new).
    pub fn from_coo(
        rows: impl IntoIndices,
        columns: impl IntoIndices,
        values: impl IntoValues,
        shape: [usize; 2],
        device: &Device,
    ) -> Result<Self, TensorError> {
        Self::new(Pattern::coo(rows, columns, shape)?, values.into_values(device))
    }

    /// From compressed sparse rows: row `i` has `columns[offsets[i]..offsets[i + 1]]`.
    ///
    /// # Errors
    /// As [`Pattern::csr`] and [`new`](Self::new).
    pub fn from_csr(
        offsets: impl IntoIndices,
        columns: impl IntoIndices,
        values: impl IntoValues,
        shape: [usize; 2],
        device: &Device,
    ) -> Result<Self, TensorError> {
        Self::new(Pattern::csr(offsets, columns, shape)?, values.into_values(device))
    }

    /// From compressed sparse columns: column `j` has `rows[offsets[j]..offsets[j + 1]]`.
    ///
    /// # Errors
    /// As [`Pattern::csc`] and [`new`](Self::new).
    pub fn from_csc(
        offsets: impl IntoIndices,
        rows: impl IntoIndices,
        values: impl IntoValues,
        shape: [usize; 2],
        device: &Device,
    ) -> Result<Self, TensorError> {
        Self::new(Pattern::csc(offsets, rows, shape)?, values.into_values(device))
    }

    /// The elements of a dense matrix whose absolute value is above `threshold`, in CSR. NaN is kept. Reads the matrix back
    /// to find them; the values stay in its graph, with gradient 0 for what was left out.
    ///
    /// # Errors
    /// If reading fails, or the dtype is not a real one.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let d = Tensor::<2>::from_data([[0.0, 3.0], [0.1, 0.0]], &Device::flex());
    /// assert_eq!(SparseTensor::from_dense(d.clone(), 0.0)?.nnz(), 2);
    /// assert_eq!(SparseTensor::from_dense(d, 0.5)?.nnz(), 1);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn from_dense(dense: Tensor<2>, threshold: f64) -> Result<Self, TensorError> {
        let [rows, columns] = dense.dims();
        let elements = read(reshape(dense.clone(), [rows * columns]))?;
        let mut offsets = vec![0i64];
        let mut kept = Vec::new();
        for row in 0..rows {
            let line = &elements[row * columns..][..columns];
            let stored = |value: f64| value.is_nan() || value.abs() > threshold;
            kept.extend((0..columns as i64).filter(|&column| stored(line[column as usize])));
            offsets.push(kept.len() as i64);
        }
        let pattern = Pattern::csr(offsets, kept, [rows, columns])?;
        let values = sample(&pattern, dense);
        Self::new(pattern, values)
    }

    /// The elements of a dense matrix at the entries of a pattern: each duplicate gets its element in full.
    ///
    /// The transpose of [`to_dense`](Self::to_dense), not its inverse. The gradient of an element is the sum of those of
    /// its entries, 0 outside of the pattern.
    ///
    /// # Errors
    /// If the shapes differ, or the dtype is not a real one.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let d = Tensor::<2>::from_data([[1.0, 3.0], [0.0, 2.0]], &Device::flex());
    /// let upper = Pattern::csr([0, 1, 2], [1, 1], [2, 2])?;
    /// let a = SparseTensor::sample(&upper, d)?;
    /// assert_eq!(a.values().to_data().try_to_vec::<f32>().unwrap(), [3.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sample(pattern: &Pattern, dense: Tensor<2>) -> Result<Self, OpError> {
        let check = Check { op: "sample" };
        let operand = Operand::from(&dense);
        check.shapes(
            pattern.shape() == dense.dims(),
            "pattern and matrix must have the same shape",
            &operand.with_shape(&pattern.shape()),
            &operand,
        )?;
        check.dtype(&operand)?;
        Ok(Self::from_checked(pattern.clone(), sample(pattern, dense)))
    }

    /// The n x n identity in CSR, in the device's float type.
    ///
    /// # Errors
    /// If `n` is beyond what indices can count.
    pub fn eye(n: usize, device: &Device) -> Result<Self, TensorError> {
        Self::new(Pattern::eye(n)?, Tensor::ones([n], device))
    }

    /// The identity in another float type.
    ///
    /// # Errors
    /// As [`eye`](Self::eye), and if the device lacks the type.
    pub fn eye_of(n: usize, dtype: DType, device: &Device) -> Result<Self, TensorError> {
        Self::new(Pattern::eye(n)?, Tensor::ones([n], (device, dtype)))
    }

    /// The diagonal matrix of a vector, in CSR. Zeros are stored. The gradient of the vector is that of the values.
    ///
    /// # Errors
    /// If the vector's dtype is not a real one.
    pub fn diagonal(values: Tensor<1>) -> Result<Self, TensorError> {
        Self::new(Pattern::eye(values.dims()[0])?, values)
    }
}
