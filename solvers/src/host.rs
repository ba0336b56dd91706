//! Matrices and columns on the host, in double precision: what factorisations are made of.

use crate::operator::LinearOperator;
use burn::tensor::{DType, Device, Tensor, TensorData};
use sparsegrad::{Pattern, SparseTensor};
use std::ops::Range;

/// A matrix in CSR on the host: sorted, each position once.
#[derive(Debug, Clone)]
pub(crate) struct HostCsr {
    /// The pattern of these buffers: derived from the operator's and cached there, so that equal patterns stay one.
    pub pattern: Pattern,
    pub offsets: Vec<usize>,
    pub columns: Vec<usize>,
    pub values: Vec<f64>,
    /// How many blocks there are on the diagonal.
    pub items: usize,
}

/// An entry that no factorisation can start from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NotFinite {
    pub row: usize,
    pub column: usize,
    pub value: f64,
}

impl HostCsr {
    /// The entries of an operator, read back from its device, if it has any at hand.
    pub fn of(a: &dyn LinearOperator) -> Option<Self> {
        let matrix = a.matrix()?.coalesce().to_csr();
        let (pattern, values) = matrix.into_parts();
        let [_, rows] = pattern.levels() else { unreachable!("CSR has two levels") };
        let buffer = |indices: &Option<sparsegrad::pattern::Indices>| indices.iter().flat_map(|i| i.iter()).collect();
        let (offsets, columns) = (buffer(&rows.positions), buffer(&rows.coordinates));
        Some(Self { offsets, columns, values: read(values), items: a.items().max(1), pattern })
    }

    pub fn shape(&self) -> [usize; 2] {
        self.pattern.shape()
    }

    pub fn row(&self, row: usize) -> Range<usize> {
        self.offsets[row]..self.offsets[row + 1]
    }

    /// The place of the diagonal entry of each row, or the first row without one.
    pub fn diagonal(&self) -> Result<Vec<usize>, usize> {
        let at = |row: usize| self.columns[self.row(row)].binary_search(&row).map(|place| self.offsets[row] + place);
        (0..self.shape()[0]).map(|row| at(row).map_err(|_| row)).collect()
    }

    /// The first entry that is NaN or infinite.
    pub fn not_finite(&self) -> Option<NotFinite> {
        let at = self.values.iter().position(|value| !value.is_finite())?;
        let row = self.offsets.partition_point(|&offset| offset <= at) - 1;
        Some(NotFinite { row, column: self.columns[at], value: self.values[at] })
    }

    /// Whether A = A^T, entry by entry. Absent entries are zeros.
    pub fn is_symmetric(&self) -> bool {
        let [m, n] = self.shape();
        let mirrored = |row: usize, entry: usize| {
            let column = self.columns[entry];
            let value = match self.columns[self.row(column)].binary_search(&row) {
                Ok(place) => self.values[self.offsets[column] + place],
                Err(_) => 0.0,
            };
            value == self.values[entry]
        };
        m == n && (0..m).all(|row| self.row(row).all(|entry| mirrored(row, entry)))
    }

    /// The transposed matrix, by a stable counting sort.
    pub fn transposed(&self) -> (Vec<usize>, Vec<usize>, Vec<f64>) {
        let [m, n] = self.shape();
        let mut next = vec![0; n + 1];
        for &column in &self.columns {
            next[column + 1] += 1;
        }
        for column in 0..n {
            next[column + 1] += next[column];
        }
        let offsets = next.clone();
        let (mut rows, mut values) = (vec![0; self.values.len()], vec![0.0; self.values.len()]);
        for row in 0..m {
            for entry in self.row(row) {
                let at = &mut next[self.columns[entry]];
                (rows[*at], values[*at]) = (row, self.values[entry]);
                *at += 1;
            }
        }
        (offsets, rows, values)
    }

    /// `y += factor * op(A) x`, for one column.
    pub fn accumulate(&self, factor: f64, x: &[f64], y: &mut [f64], transpose: bool) {
        for row in 0..self.shape()[0] {
            for entry in self.row(row) {
                let (column, value) = (self.columns[entry], factor * self.values[entry]);
                match transpose {
                    false => y[row] += value * x[column],
                    true => y[column] += value * x[row],
                }
            }
        }
    }

    /// The matrix with these values at this pattern, where `a` lives and in its type.
    pub fn upload(&self, values: Vec<f64>, a: &dyn LinearOperator) -> SparseTensor<2> {
        let values = vector(values, a.dtype(), &a.device());
        SparseTensor::new(self.pattern.clone(), values).expect("one value for each entry")
    }
}

/// The elements of a tensor in double precision, on the host.
pub(crate) fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

pub(crate) fn vector(values: Vec<f64>, dtype: DType, device: &Device) -> Tensor<1> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), (device, dtype))
}

/// Columns on the host, each in one piece.
#[derive(Debug, Clone)]
pub(crate) struct HostColumns {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f64>,
}

impl HostColumns {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    pub fn of(tensor: Tensor<2>) -> Self {
        let [rows, columns] = tensor.dims();
        let by_rows = read(tensor);
        let mut all = Self::zeros(rows, columns);
        for (at, value) in by_rows.into_iter().enumerate() {
            all.values[at % columns * rows + at / columns] = value;
        }
        all
    }

    pub fn column(&self, column: usize) -> &[f64] {
        &self.values[column * self.rows..][..self.rows]
    }

    pub fn column_mut(&mut self, column: usize) -> &mut [f64] {
        &mut self.values[column * self.rows..][..self.rows]
    }

    pub fn upload(&self, dtype: DType, device: &Device) -> Tensor<2> {
        let mut by_rows = Vec::with_capacity(self.values.len());
        for row in 0..self.rows {
            by_rows.extend((0..self.columns).map(|column| self.values[column * self.rows + row]));
        }
        Tensor::from_data(TensorData::new(by_rows, [self.rows, self.columns]), (device, dtype))
    }
}

/// The Euclidean norm, by the largest element, so that no square over- or underflows.
pub(crate) fn norm(x: &[f64]) -> f64 {
    let largest =
        x.iter().fold(0.0, |largest: f64, value| if value.is_nan() { f64::NAN } else { largest.max(value.abs()) });
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    let squares: f64 = x.iter().map(|value| (value / largest).powi(2)).sum();
    largest * squares.sqrt()
}
