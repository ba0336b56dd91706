//! From the entries of a file to a checked matrix, and from there to a device.

use super::Triplets;
use crate::SparseTensor;
use crate::backend::check::{device_name, supported};
use crate::error::TensorError;
use crate::pattern::Pattern;
use crate::tensor::read;
use burn::tensor::{DType, Tensor, TensorCreationOptions, TensorData};
use std::fmt;

/// A sparse matrix in host memory: a checked [`Pattern`], and a value in double precision for each of its entries.
///
/// What stands between a file and a device, and what oracles of tests compute with.
///
/// ```
/// use sparsegrad::{io::{HostMatrix, Triplets}, prelude::*};
///
/// let a: HostMatrix = Triplets::new([2, 3], vec![1, 0], vec![0, 2], vec![4.0, 3.0]).to_csr()?;
/// assert_eq!(a.entries().collect::<Vec<_>>(), [(0, 2, 3.0), (1, 0, 4.0)]);
///
/// let a: SparseTensor<2> = a.on((&Device::flex(), DType::F32))?;
/// assert_eq!(a.get(0, 2)?, Some(3.0));
/// # Ok::<(), TensorError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct HostMatrix {
    pattern: Pattern,
    values: Vec<f64>,
}

impl HostMatrix {
    /// A matrix from a pattern and its values, in the pattern's order.
    ///
    /// # Errors
    /// If the number of values is not the number of stored entries.
    pub fn new(pattern: Pattern, values: Vec<f64>) -> Result<Self, TensorError> {
        let (length, stored) = (values.len(), pattern.nnz());
        if length != stored {
            return Err(TensorError::ValuesLength { values: length, stored });
        }
        Ok(Self { pattern, values })
    }

    /// The parts.
    pub fn into_parts(self) -> (Pattern, Vec<f64>) {
        (self.pattern, self.values)
    }

    /// Where values are stored.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The stored values, in the pattern's order.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.pattern.shape()
    }

    /// The number of stored entries, explicit zeros and duplicates included.
    pub fn nnz(&self) -> usize {
        self.pattern.nnz()
    }

    /// All stored entries as (row, column, value), in the order of the values.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        let (rows, columns) = self.pattern.coordinates();
        let places = rows.into_iter().zip(columns);
        places.zip(&self.values).map(|((row, column), &value)| (row, column, value))
    }

    /// The elements of the dense matrix, row by row, duplicates summed.
    pub fn to_dense(&self) -> Vec<f64> {
        let [rows, columns] = self.shape();
        let mut dense = vec![0.0; rows * columns];
        for (row, column, value) in self.entries() {
            dense[row * columns + column] += value;
        }
        dense
    }

    /// The matrix on a device: `on(&device)` keeps double precision, `on((&device, DType::F32))` rounds to another type.
    ///
    /// # Errors
    /// If the device lacks the dtype.
    pub fn on(&self, options: impl Into<TensorCreationOptions>) -> Result<SparseTensor<2>, TensorError> {
        let TensorCreationOptions { device, dtype } = options.into();
        let dtype = dtype.unwrap_or(DType::F64);
        if !supported(dtype, &device) {
            return Err(TensorError::DType { dtype, device: device_name(&device) });
        }
        let values = TensorData::new(self.values.clone(), [self.nnz()]);
        SparseTensor::new(self.pattern.clone(), Tensor::from_data(values, (&device, dtype)))
    }
}

impl SparseTensor<2> {
    /// The matrix in host memory, at the same pattern. Reads the values back from the device, exact in double precision.
    ///
    /// # Errors
    /// If reading fails.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 1], &[2, 0], &[3.0f32, 4.0], [2, 3], &Device::flex())?;
    /// assert_eq!(a.to_host()?.values(), [3.0, 4.0]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn to_host(&self) -> Result<HostMatrix, TensorError> {
        HostMatrix::new(self.pattern().clone(), read(self.values().clone())?)
    }
}

/// All entries, for the reports of tests.
impl fmt::Debug for HostMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMatrix({}) ", self.pattern)?;
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Triplets {
    /// The checked matrix in compressed sparse rows, sorted by row and column; duplicates stay, in their order.
    ///
    /// # Errors
    /// If the lists have different lengths, or an index is out of range; never for what a reader returned.
    ///
    /// ```no_run
    /// use sparsegrad::{io, prelude::*};
    ///
    /// let a = io::matrix_market::read("bcsstk16.mtx")?.to_csr()?.on(&Device::flex())?;
    /// println!("{a}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_csr(&self) -> Result<HostMatrix, TensorError> {
        let HostMatrix { pattern, values } = self.sorted_by(|row, column| (row, column))?;
        HostMatrix::new(pattern.to_csr().pattern, values)
    }

    /// The checked matrix in compressed sparse columns, sorted by column and row; duplicates stay, in their order.
    ///
    /// # Errors
    /// As [`to_csr`](Self::to_csr).
    pub fn to_csc(&self) -> Result<HostMatrix, TensorError> {
        let HostMatrix { pattern, values } = self.sorted_by(|row, column| (column, row))?;
        HostMatrix::new(pattern.to_csc().pattern, values)
    }

    /// The checked matrix in coordinates, in the order of the entries.
    ///
    /// # Errors
    /// As [`to_csr`](Self::to_csr).
    pub fn to_coo(&self) -> Result<HostMatrix, TensorError> {
        let pattern = Pattern::coo(&self.rows, &self.cols, self.shape)?;
        HostMatrix::new(pattern, self.values.clone())
    }

    /// In coordinates, entries ascending by a key of their place. The conversion to the compressed form that has this order
    /// leaves the values as they are.
    fn sorted_by(&self, key: impl Fn(usize, usize) -> (usize, usize)) -> Result<HostMatrix, TensorError> {
        let checked = self.to_coo()?;
        let place = |&e: &usize| key(self.rows[e], self.cols[e]);
        let mut order: Vec<usize> = (0..self.nnz()).collect();
        if order.is_sorted_by_key(place) {
            return Ok(checked);
        }
        order.sort_by_key(place);
        let pick = |from: &[usize]| -> Vec<usize> { order.iter().map(|&e| from[e]).collect() };
        let pattern = Pattern::coo(pick(&self.rows), pick(&self.cols), self.shape)?;
        HostMatrix::new(pattern, order.iter().map(|&e| self.values[e]).collect())
    }
}
