//! What the suites share: small host matrices, their forms on a device, and dense products in f64 as the oracle.
#![allow(dead_code, missing_docs)] // each suite uses its part

use burn::tensor::TensorData;
use sparsegrad::prelude::*;

/// Splitmix64: numbers without a pattern, the same on every machine.
#[derive(Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn raw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// In `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.raw() % bound as u64) as usize
    }

    /// In [-1, 1).
    pub fn value(&mut self) -> f64 {
        (self.raw() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn values(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.value()).collect()
    }
}

/// A sparse matrix on the host: entries in storage order.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: &'static str,
    pub shape: [usize; 2],
    pub rows: Vec<usize>,
    pub cols: Vec<usize>,
    pub values: Vec<f64>,
}

impl Host {
    pub fn new(name: &'static str, shape: [usize; 2], entries: &[(usize, usize, f64)]) -> Self {
        Self {
            name,
            shape,
            rows: entries.iter().map(|e| e.0).collect(),
            cols: entries.iter().map(|e| e.1).collect(),
            values: entries.iter().map(|e| e.2).collect(),
        }
    }

    /// About `per_row` entries a row, some rows empty, in any order, with duplicates and explicit zeros among them.
    pub fn random(name: &'static str, shape: [usize; 2], per_row: usize, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let mut entries = Vec::new();
        for row in 0..shape[0] {
            if row % 5 != 3 {
                for _ in 0..numbers.below(2 * per_row + 1) {
                    let value = if numbers.below(9) == 0 { 0.0 } else { numbers.value() };
                    entries.push((row, numbers.below(shape[1]), value));
                }
            }
        }
        for at in (1..entries.len()).rev() {
            entries.swap(at, numbers.below(at + 1));
        }
        Self::new(name, shape, &entries)
    }

    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// The same entries sorted by row (stable), or by column.
    pub fn sorted(&self, by_column: bool) -> Self {
        let mut order: Vec<usize> = (0..self.nnz()).collect();
        let keys = if by_column { &self.cols } else { &self.rows };
        order.sort_by_key(|&e| keys[e]);
        let pick = |from: &Vec<usize>| order.iter().map(|&e| from[e]).collect();
        Self {
            rows: pick(&self.rows),
            cols: pick(&self.cols),
            values: order.iter().map(|&e| self.values[e]).collect(),
            ..*self
        }
    }

    /// Values as the dtype stores them.
    pub fn rounded(&self, dtype: DType) -> Self {
        let values = self.values.iter().map(|&v| round(v, dtype)).collect();
        Self { values, ..self.clone() }
    }

    pub fn transposed(&self) -> Self {
        Self { shape: [self.shape[1], self.shape[0]], rows: self.cols.clone(), cols: self.rows.clone(), ..self.clone() }
    }

    pub fn dense(&self) -> Vec<f64> {
        let mut dense = vec![0.0; self.shape[0] * self.shape[1]];
        for e in 0..self.nnz() {
            dense[self.rows[e] * self.shape[1] + self.cols[e]] += self.values[e];
        }
        dense
    }
}

/// The layouts that every operation is tried in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Coo,
    CooSorted,
    Csr,
    Csc,
    CsrT,
    CscT,
}

impl Layout {
    pub const ALL: [Layout; 6] = [Layout::Coo, Layout::CooSorted, Layout::Csr, Layout::Csc, Layout::CsrT, Layout::CscT];

    /// The matrix in this layout on a device, and its entries in the order of the layout's values.
    pub fn build(self, host: &Host, dtype: DType, device: &Device) -> (SparseTensor<2>, Host) {
        let t = |(tensor, host): (SparseTensor<2>, Host)| (tensor.t(), host.transposed());
        let ordered = match self {
            Layout::CsrT => return t(Layout::Csr.build(&host.transposed(), dtype, device)),
            Layout::CscT => return t(Layout::Csc.build(&host.transposed(), dtype, device)),
            Layout::Coo => host.clone(),
            Layout::CooSorted | Layout::Csr => host.sorted(false),
            Layout::Csc => host.sorted(true),
        }
        .rounded(dtype);
        let offsets = |keys: &[usize], n: usize| -> Vec<usize> {
            (0..=n).map(|i| keys.iter().filter(|&&k| k < i).count()).collect()
        };
        let values = vector(&ordered.values, dtype, device);
        let Host { shape, rows, cols, .. } = &ordered;
        let tensor = match self {
            Layout::Csr => SparseTensor::from_csr(offsets(rows, shape[0]), cols, values, *shape, device),
            Layout::Csc => SparseTensor::from_csc(offsets(cols, shape[1]), rows, values, *shape, device),
            _ => SparseTensor::from_coo(rows, cols, values, *shape, device),
        };
        (tensor.expect("a valid matrix"), ordered)
    }
}

pub fn round(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => value,
        DType::F32 => (value as f32).into(),
        DType::F16 => half::f16::from_f64(value).into(),
        DType::BF16 => half::bf16::from_f64(value).into(),
        _ => unreachable!(),
    }
}

pub fn rounded(values: &[f64], dtype: DType) -> Vec<f64> {
    values.iter().map(|&v| round(v, dtype)).collect()
}

pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON.into(),
        DType::F16 => half::f16::EPSILON.into(),
        DType::BF16 => half::bf16::EPSILON.into(),
        _ => unreachable!(),
    }
}

/// The distance of the numbers next to 0.
pub fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 5e-324,
        DType::F32 => 1.5e-45,
        DType::F16 => 6e-8,
        DType::BF16 => 1e-40,
        _ => unreachable!(),
    }
}

pub fn vector(values: &[f64], dtype: DType, device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, dtype))
}

pub fn matrix(values: &[f64], shape: [usize; 2], dtype: DType, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, dtype))
}

pub fn read<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

/// Sums of products with the sums of their absolute values, which scale the rounding error.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub sum: Vec<f64>,
    pub magnitude: Vec<f64>,
}

impl Oracle {
    pub fn zeros(len: usize) -> Self {
        Self { sum: vec![0.0; len], magnitude: vec![0.0; len] }
    }

    pub fn add(&mut self, at: usize, product: f64) {
        self.sum[at] += product;
        self.magnitude[at] += product.abs();
    }

    /// Compares within `32 eps` of the magnitude: what a sum in any order, rounded to the dtype, may be off by.
    pub fn check(&self, what: &str, found: &[f64], dtype: DType) -> Result<(), String> {
        if found.len() != self.sum.len() {
            return Err(format!("{what}: {} elements for {}", found.len(), self.sum.len()));
        }
        for (at, (&found, (&sum, &magnitude))) in found.iter().zip(self.sum.iter().zip(&self.magnitude)).enumerate() {
            let tolerance = 32.0 * epsilon(dtype).min(epsilon(DType::F32)) * magnitude
                + epsilon(dtype) * sum.abs()
                + smallest(dtype);
            if found.is_nan() || (found - sum).abs() > tolerance {
                return Err(format!("{what}: element {at} is {found}, expected {sum} +- {tolerance:e}"));
            }
        }
        Ok(())
    }
}

/// `A B`, B n x k in row-major order.
pub fn spmm(a: &Host, b: &[f64], k: usize) -> Oracle {
    let mut out = Oracle::zeros(a.shape[0] * k);
    for e in 0..a.nnz() {
        for c in 0..k {
            out.add(a.rows[e] * k + c, a.values[e] * b[a.cols[e] * k + c]);
        }
    }
    out
}

/// `<X_i, Y_j>` at the entries of a pattern.
pub fn sddmm(a: &Host, x: &[f64], y: &[f64], k: usize) -> Oracle {
    let mut out = Oracle::zeros(a.nnz());
    for e in 0..a.nnz() {
        for c in 0..k {
            out.add(e, x[a.rows[e] * k + c] * y[a.cols[e] * k + c]);
        }
    }
    out
}

/// Dense operands of every kind of layout that hold the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Contiguous,
    Transposed,
    ColumnSlice,
    RowStep,
}

impl View {
    pub const ALL: [View; 4] = [View::Contiguous, View::Transposed, View::ColumnSlice, View::RowStep];

    pub fn build(self, values: &[f64], [n, k]: [usize; 2], dtype: DType, device: &Device) -> Tensor<2> {
        let at = |i: usize, j: usize| values[i * k + j];
        let filled = |rows: usize, cols: usize, f: &dyn Fn(usize, usize) -> f64| {
            let mut data = Vec::with_capacity(rows * cols);
            for i in 0..rows {
                data.extend((0..cols).map(|j| f(i, j)));
            }
            matrix(&data, [rows, cols], dtype, device)
        };
        match self {
            View::Contiguous => filled(n, k, &at),
            View::Transposed => filled(k, n, &|i, j| at(j, i)).transpose(),
            View::ColumnSlice => filled(n, k + 3, &|i, j| {
                if (1..=k).contains(&j) { at(i, j - 1) } else { f64::NAN }
            })
            .slice([0..n, 1..k + 1]),
            View::RowStep => filled(2 * n, k, &|i, j| {
                if i >= n { at(i - n, j) } else { f64::NAN }
            })
            .slice([n..2 * n, 0..k]),
        }
    }
}

/// Small matrices of every awkward kind.
pub fn matrices() -> Vec<Host> {
    vec![
        Host::new("3x4", [3, 4], &[(0, 0, 1.0), (0, 3, 2.0), (2, 1, -1.0), (2, 2, 0.5)]),
        Host::new("0x0", [0, 0], &[]),
        Host::new("0x5", [0, 5], &[]),
        Host::new("5x0", [5, 0], &[]),
        Host::new("nothing stored", [4, 3], &[]),
        Host::new("1x1", [1, 1], &[(0, 0, -2.5)]),
        Host::new("only zeros", [3, 3], &[(0, 1, 0.0), (2, 2, 0.0)]),
        Host::new("duplicates", [3, 2], &[(2, 1, 1.0), (0, 0, 5.0), (2, 1, 3.0), (2, 1, -4.0)]),
        Host::random("17x23", [17, 23], 4, 1),
        Host::random("65x33", [65, 33], 9, 2),
        Host::random("one long row", [3, 300], 200, 3),
        Host::random("300x2", [300, 2], 1, 4),
    ]
}
