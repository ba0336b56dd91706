//! The CubeCL kernels, on whatever device wgpu finds (in CI, Vulkan in software), against plain loops in f64 on the host.
//!
//! Results are compared element by element on the host: a software device may cut loops at 65,535 iterations, and with them
//! Burn's large sums.
#![cfg(feature = "wgpu")]

use sparsegrad::burn::tensor::{DeviceKind, TensorData};
use sparsegrad::error::TriangularError;
use sparsegrad::ops::trisolve::Check;
use sparsegrad::prelude::*;
use sparsegrad::{Triangular, csr_add, sparse_triangular_solve, vjp};

/// Column counts around every choice of kernel, vector size and tile.
const COLUMNS: [usize; 17] = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 31, 33, 64, 100, 132, 300];

fn device() -> Device {
    Device::wgpu(DeviceKind::DefaultDevice)
}

/// Small numbers without a pattern, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// Multiples of 1/64 in -2..2: exact in every dtype.
    fn values(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| (self.next() % 256) as f64 / 64.0 - 2.0).collect()
    }
}

/// A matrix on the host, entry by entry in storage order, and its pattern.
struct Matrix {
    pattern: Pattern,
    rows: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
}

impl Matrix {
    fn of(pattern: Pattern, seed: u64) -> Self {
        let (rows, columns) = pattern.coordinates();
        let values = Numbers(seed).values(pattern.nnz());
        Self { pattern, rows, columns, values }
    }

    /// Rows of these lengths, columns at random: unordered, with duplicates.
    fn with_rows(lengths: &[usize], n_columns: usize, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let mut offsets = vec![0];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length);
        }
        let columns: Vec<usize> = (0..offsets[lengths.len()]).map(|_| numbers.below(n_columns)).collect();
        let pattern = Pattern::csr(offsets, columns, [lengths.len(), n_columns]).unwrap();
        Self::of(pattern, seed + 1)
    }

    fn t(&self) -> Self {
        Self {
            pattern: self.pattern.t(),
            rows: self.columns.clone(),
            columns: self.rows.clone(),
            values: self.values.clone(),
        }
    }

    fn entries(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        (0..self.values.len()).map(|e| (self.rows[e], self.columns[e], e))
    }

    fn tensor(&self, dtype: DType, device: &Device) -> SparseTensor<2> {
        SparseTensor::new(self.pattern.clone(), vector(&self.values, dtype, device)).unwrap()
    }

    /// The product, and the sum of magnitudes that bounds its error.
    fn times(&self, dense: &[f64], k: usize) -> Vec<(f64, f64)> {
        let mut out = vec![(0.0, 0.0); self.pattern.shape()[0] * k];
        for (row, column, e) in self.entries() {
            for j in 0..k {
                let term = self.values[e] * dense[column * k + j];
                let (sum, magnitude) = &mut out[row * k + j];
                *sum += term;
                *magnitude += term.abs();
            }
        }
        out
    }

    fn sampled(&self, x: &[f64], y: &[f64], k: usize) -> Vec<(f64, f64)> {
        let product = |(row, column, _): (usize, usize, usize)| {
            let terms = (0..k).map(|j| x[row * k + j] * y[column * k + j]);
            (terms.clone().sum(), terms.map(f64::abs).sum())
        };
        self.entries().map(product).collect()
    }
}

fn vector(values: &[f64], dtype: DType, device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, dtype))
}

fn dense(values: &[f64], shape: [usize; 2], dtype: DType, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, dtype))
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u8> {
    tensor.into_data().as_bytes().to_vec()
}

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON.into(),
        _ => 2f64.powi(-10),
    }
}

#[track_caller]
fn close<const D: usize>(found: Tensor<D>, expected: &[(f64, f64)], what: &str) {
    let epsilon = epsilon(found.dtype());
    let found = host(found);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, (expected, magnitude))) in found.iter().zip(expected).enumerate() {
        let tolerance = 32.0 * epsilon * magnitude + epsilon * 1e-3;
        let error = (found - expected).abs();
        assert!(error <= tolerance, "{what}: {found} for {expected} at {i} (error {error:.1e})");
    }
}

/// Lengths around the widths of groups of lanes and of pieces.
fn lengths() -> Vec<usize> {
    let mut lengths = vec![0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 0, 511, 512, 513];
    lengths.extend(std::iter::repeat_n(3, 300));
    lengths
}

/// Product, sddmm and all gradients of both for one matrix.
fn check_all(a: &Matrix, k: usize, dtype: DType, what: &str) {
    let device = device().autodiff();
    let [m, n] = a.pattern.shape();
    let mut numbers = Numbers(k as u64);
    let (b, grad) = (numbers.values(n * k), numbers.values(m * k));
    let what = format!("{what}, k = {k}, {dtype:?}");

    let sparse = a.tensor(dtype, &device).require_grad();
    let operand = dense(&b, [n, k], dtype, &device).require_grad();
    let out = sparse_mm(&sparse, operand.clone());
    close(out.clone(), &a.times(&b, k), &format!("product: {what}"));
    let grads = vjp::backward(&out, dense(&grad, [m, k], dtype, &device));
    let d_values = sparse.grad(&grads).unwrap();
    close(d_values.values().clone(), &a.sampled(&grad, &b, k), &format!("dA: {what}"));
    let d_dense = operand.grad(&grads).unwrap();
    close(d_dense, &a.t().times(&grad, k), &format!("dB: {what}"));

    let x = dense(&grad, [m, k], dtype, &device).require_grad();
    let y = dense(&b, [n, k], dtype, &device).require_grad();
    let s = sddmm(&a.pattern, x.clone(), y.clone());
    let d_s = vector(&a.values, dtype, &device);
    let grads = vjp::backward(s.values(), d_s);
    close(x.grad(&grads).unwrap(), &a.times(&b, k), &format!("dX: {what}"));
    close(y.grad(&grads).unwrap(), &a.t().times(&grad, k), &format!("dY: {what}"));
}

#[test]
fn every_number_of_columns_in_f32() {
    let a = Matrix::with_rows(&lengths(), 77, 1);
    for k in COLUMNS {
        check_all(&a, k, DType::F32, "csr");
    }
}

#[test]
fn other_dtypes_and_the_transpose() {
    let a = Matrix::with_rows(&lengths(), 77, 2);
    for k in [1, 3, 8, 16, 33, 64] {
        for dtype in [DType::F64, DType::F16] {
            if device().supports_dtype(dtype) {
                check_all(&a, k, dtype, "csr");
            }
        }
        check_all(&a.t(), k, DType::F32, "csc");
    }
}

#[test]
fn unsorted_coordinates() {
    let mut numbers = Numbers(3);
    let (m, n) = (61, 43);
    let rows: Vec<usize> = (0..500).map(|_| numbers.below(m)).collect();
    let columns: Vec<usize> = (0..500).map(|_| numbers.below(n)).collect();
    let a = Matrix::of(Pattern::coo(rows, columns, [m, n]).unwrap(), 4);
    for k in [1, 4, 9, 32] {
        check_all(&a, k, DType::F32, "coo");
        check_all(&a.t(), k, DType::F32, "coo, transposed");
    }
}

#[test]
fn wide_indices_are_narrowed() {
    let a = Matrix::with_rows(&[3, 0, 700, 2], 50, 5);
    let wide = a.pattern.with_index_width(sparsegrad::pattern::IndexWidth::I64).unwrap();
    check_all(&Matrix { pattern: wide, ..a }, 5, DType::F32, "i64");
}

#[test]
fn one_very_long_row_among_short_ones() {
    let mut lengths = vec![2; 5000];
    lengths[1234] = 60_000;
    lengths[17] = 513;
    let a = Matrix::with_rows(&lengths, 900, 6);
    for k in [1, 5, 16, 33, 100] {
        check_all(&a, k, DType::F32, "skewed");
    }
    // On average over the columns the transpose has many entries, and one column (a row of it) has most.
    check_all(&Matrix::with_rows(&[60_000, 1, 0, 7], 3000, 7).t(), 16, DType::F32, "skewed columns");
    if device().supports_dtype(DType::F16) {
        let partial_sums_in_f32 = Matrix::with_rows(&[5_000, 1], 50, 8);
        check_all(&partial_sums_in_f32, 3, DType::F16, "skewed");
        check_all(&partial_sums_in_f32, 64, DType::F16, "skewed");
    }
}

#[test]
fn numbers_of_rows_around_a_cube() {
    for rows in [1, 255, 256, 257] {
        let a = Matrix::with_rows(&vec![1; rows], 10, 26);
        for k in [1, 20] {
            check_all(&a, k, DType::F32, "rows around a cube");
        }
    }
}

#[test]
fn more_rows_than_cubes_in_one_dimension() {
    let (m, k) = (1_900_000, 9);
    let rows = [0usize, 1, 65_535, 1_834_979, 1_834_980, 1_834_981, m - 1];
    let a = Matrix::of(Pattern::coo(rows, [0usize, 1, 2, 0, 1, 2, 0], [m, 3]).unwrap(), 9);
    let b = Numbers(10).values(3 * k);
    let device = device();
    let out = sparse_mm(&a.tensor(DType::F32, &device), dense(&b, [3, k], DType::F32, &device));
    close(out, &a.times(&b, k), "many rows");
}

#[test]
fn empty_in_every_way() {
    for (lengths, n, k) in
        [(vec![], 5, 3), (vec![0, 0, 0], 5, 3), (vec![0, 0], 5, 64), (vec![], 0, 2), (vec![2, 1], 5, 0), (vec![], 0, 0)]
    {
        let a = if n == 0 {
            Matrix::of(Pattern::csr([0], [0i32; 0], [0, 0]).unwrap(), 1)
        } else {
            Matrix::with_rows(&lengths, n, 11)
        };
        let device = device();
        let [m, n] = a.pattern.shape();
        let sparse = a.tensor(DType::F32, &device);
        let b = Tensor::<2>::ones([n, k], &device);
        let x = Tensor::<2>::ones([m, k], &device);
        let product = sparse_mm(&sparse, b.clone());
        assert_eq!(product.dims(), [m, k]);
        close(product, &a.times(&vec![1.0; n * k], k), "empty");
        let s = sddmm(&a.pattern, x, b);
        assert_eq!(host(s.values().clone()), vec![k as f64; a.pattern.nnz()]);
        assert_eq!(sparse.to_dense().dims(), [m, n]);
    }
}

#[test]
fn operands_may_be_any_view() {
    let device = device();
    let a = Matrix::with_rows(&[3, 0, 9, 40, 1], 24, 12);
    let sparse = a.tensor(DType::F32, &device);
    for k in [1, 6, 16, 20] {
        let large = Numbers(13).values(40 * 60);
        let whole = dense(&large, [40, 60], DType::F32, &device);
        let at = |row: usize, column: usize| large[row * 60 + column];
        let views: [(&str, Tensor<2>, Vec<f64>); 4] = [
            (
                "columns cut out",
                whole.clone().slice([8..32, 4..4 + k]),
                (0..24 * k).map(|i| at(8 + i / k, 4 + i % k)).collect(),
            ),
            (
                "rows cut out",
                whole.clone().slice([16..40, 0..60]).slice([0..24, 0..k]),
                (0..24 * k).map(|i| at(16 + i / k, i % k)).collect(),
            ),
            (
                "transposed",
                whole.clone().slice([0..k, 30..54]).transpose(),
                (0..24 * k).map(|i| at(i % k, 30 + i / k)).collect(),
            ),
            (
                "repeated",
                whole.clone().slice([5..6, 0..k]).expand([24, k]),
                (0..24 * k).map(|i| at(5, i % k)).collect(),
            ),
        ];
        for (what, view, values) in views {
            close(sparse_mm(&sparse, view.clone()), &a.times(&values, k), what);
            let x = Numbers(14).values(5 * k);
            let s = sddmm(&a.pattern, dense(&x, [5, k], DType::F32, &device), view);
            close(s.values().clone(), &a.sampled(&x, &values, k), what);
        }
    }
}

#[test]
fn absent_entries_touch_nothing_and_stored_zeros_do() {
    let device = device();
    // Column 0 is not stored anywhere: whatever pads the kernels must not read it.
    let pattern = Pattern::csr([0, 2, 3, 3], [1, 2, 2], [3, 3]).unwrap();
    for k in [1, 3, 16, 40] {
        let a = SparseTensor::new(pattern.clone(), vector(&[0.0, 1.0, 2.0], DType::F32, &device)).unwrap();
        let mut b = vec![1.0; 3 * k];
        b[..k].fill(f64::NAN);
        let c = host(sparse_mm(&a, dense(&b, [3, k], DType::F32, &device)));
        let expected = [1.0, 2.0, 0.0].map(|row| vec![row; k]).concat();
        assert_eq!(c, expected, "k = {k}");
        b[k..2 * k].fill(f64::INFINITY);
        let c = host(sparse_mm(&a, dense(&b, [3, k], DType::F32, &device)));
        assert!(c[..k].iter().all(|c| c.is_nan()), "0 * inf, k = {k}");
        assert_eq!(c[k..], expected[k..], "k = {k}");
        let s = sddmm(&pattern, Tensor::ones([3, k], &device), dense(&b, [3, k], DType::F32, &device));
        assert_eq!(host(s.values().clone()), [f64::INFINITY, k as f64, k as f64], "k = {k}");
    }
}

#[test]
fn dense_and_back() {
    let device = device();
    for (what, a) in [
        ("csr with duplicates", Matrix::with_rows(&lengths(), 40, 15)),
        ("csc with duplicates", Matrix::with_rows(&lengths(), 40, 15).t()),
        ("unique", Matrix::of(Pattern::coo([4usize, 0, 2], [1usize, 3, 0], [5, 4]).unwrap(), 16)),
    ] {
        let [m, n] = a.pattern.shape();
        let mut expected = vec![(0.0, 0.0); m * n];
        for (row, column, e) in a.entries() {
            expected[row * n + column].0 += a.values[e];
            expected[row * n + column].1 += a.values[e].abs();
        }
        for dtype in [DType::F32, DType::F16, DType::F64] {
            if !device.supports_dtype(dtype) {
                continue;
            }
            let device = device.clone().autodiff();
            let sparse = a.tensor(dtype, &device).require_grad();
            let out = sparse.to_dense();
            close(out.clone(), &expected, what);
            let grad = Numbers(17).values(m * n);
            let grads = vjp::backward(&out, dense(&grad, [m, n], dtype, &device));
            let sampled: Vec<f64> = a.entries().map(|(row, column, _)| grad[row * n + column]).collect();
            assert_eq!(host(sparse.grad(&grads).unwrap().values().clone()), sampled, "{what}");
        }
    }
}

#[test]
fn coalescing_sums_duplicates_and_keeps_single_values() {
    let device = device();
    let pattern = Pattern::coo([1usize, 0, 1, 1], [2usize, 0, 0, 2], [2, 3]).unwrap();
    let values = Tensor::<1>::from_data([1.5f32, -0.0, f32::NAN, 2.25], &device);
    let merged = SparseTensor::new(pattern, values).unwrap().coalesce();
    let found = merged.values().to_data().try_to_vec::<f32>().unwrap();
    assert_eq!(found[0].to_bits(), (-0.0f32).to_bits());
    assert!(found[1].is_nan());
    assert_eq!(found[2], 3.75);

    let many = Matrix::of(Pattern::coo(vec![0usize; 3000], vec![1usize; 3000], [1, 2]).unwrap(), 18);
    let sum: f64 = many.values.iter().sum();
    let magnitude: f64 = many.values.iter().map(|v| v.abs()).sum();
    let merged = many.tensor(DType::F32, &device).coalesce();
    close(merged.values().clone(), &[(sum, magnitude)], "3000 duplicates");
}

#[test]
fn ten_runs_give_the_same_bits() {
    let mut lengths = lengths();
    lengths.push(20_000);
    let a = Matrix::with_rows(&lengths, 200, 19);
    let device = device().autodiff();
    for k in [1, 4, 16, 33] {
        let b = Numbers(20).values(200 * k).iter().map(|v| v / 3.0).collect::<Vec<_>>();
        let grad = Numbers(21).values(lengths.len() * k).iter().map(|v| v / 7.0).collect::<Vec<_>>();
        let run = || {
            let sparse = a.tensor(DType::F32, &device).require_grad();
            let operand = dense(&b, [200, k], DType::F32, &device).require_grad();
            let out = sparse_mm(&sparse, operand.clone());
            let grads = vjp::backward(&out, dense(&grad, [lengths.len(), k], DType::F32, &device));
            let d_values = sparse.grad(&grads).unwrap().values().clone();
            [bits(out), bits(d_values), bits(operand.grad(&grads).unwrap())]
        };
        let first = run();
        for _ in 1..10 {
            assert!(run() == first, "k = {k}");
        }
    }
}

#[test]
fn threads_share_a_fresh_pattern() {
    for round in 0..5 {
        let a = Matrix::with_rows(&[4, 0, 900, 31, 2], 64, 22 + round);
        let b = Numbers(23).values(64 * 5);
        let expected = a.times(&b, 5);
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let device = device();
                    let sparse = a.tensor(DType::F32, &device);
                    let operand = dense(&b, [64, 5], DType::F32, &device);
                    barrier.wait();
                    let product = sparse_mm(&sparse, operand * 2.0) / 2.0;
                    close(product, &expected, "several threads");
                });
            }
        });
    }
}

#[test]
fn buffers_are_kept_and_let_go() {
    let device = device();
    let a = Matrix::with_rows(&[3, 1, 0, 7], 6, 24); // seven entries in six columns: duplicates
    let b = Numbers(25).values(6 * 4);
    let product = || {
        let operand = dense(&b, [6, 4], DType::F32, &device);
        close(sparse_mm(&a.tensor(DType::F32, &device), operand), &a.times(&b, 4), "product");
    };
    let bytes = || a.pattern.memory_usage().device;
    assert_eq!(bytes(), 0);
    product();
    let forward = bytes();
    assert_eq!(forward, 4 * (5 + 11), "offsets and columns, no slots");
    product();
    assert_eq!(bytes(), forward, "nothing new");

    a.pattern.prepare(&device);
    assert_eq!(bytes(), forward + 4 * (7 + 11 + 11) + 4 * 11, "the transpose, and the row of each entry");
    let other_device = Device::flex();
    a.pattern.release(&other_device);
    assert!(bytes() > forward);
    host(a.tensor(DType::F32, &device).to_dense()); // through the conversion that sums duplicates
    assert!(bytes() > forward + 4 * (7 + 11 + 11) + 4 * 11);
    a.pattern.t().release(&device);
    assert_eq!(bytes(), 0);
    product();
    assert_eq!(bytes(), forward);
}

/// What a device makes of something, beside what the CPU makes of it.
#[track_caller]
fn as_on_the_cpu(what: &str, tolerance: f64, run: impl Fn(&Device) -> Vec<Vec<f64>>) {
    let (found, expected) = (run(&device().autodiff()), run(&Device::flex().autodiff()));
    assert_eq!(found.len(), expected.len());
    for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}, part {part}");
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let same = found == expected || (found - expected).abs() <= tolerance * (1.0 + expected.abs());
            assert!(same, "{what}, part {part}: {found} for {expected} at {at}");
        }
    }
}

type Reduction = fn(&SparseTensor<2>, Per) -> Tensor<1>;

const REDUCTIONS: [(&str, Reduction); 7] = [
    ("sum", SparseTensor::sum),
    ("mean", SparseTensor::mean),
    ("max", SparseTensor::max),
    ("min_stored", SparseTensor::min_stored),
    ("norm", |a, per| a.norm(per, Norm::L2)),
    ("logsumexp", SparseTensor::logsumexp),
    ("logsumexp_stored", SparseTensor::logsumexp_stored),
];

/// Rows in several pieces among short ones, and one result of more rows than are reduced at once.
#[test]
fn reductions_of_long_rows() {
    let mut lengths = vec![2; 5000];
    lengths[1234] = 60_000;
    (lengths[17], lengths[18], lengths[4999]) = (513, 0, 1024);
    let a = Matrix::with_rows(&lengths, 70_000, 30);
    for (a, layout) in [(&a, "csr"), (&a.t(), "csc")] {
        for (name, run) in REDUCTIONS {
            as_on_the_cpu(&format!("{name}, {layout}"), 2e-5, |device| {
                let a = a.tensor(DType::F32, device).require_grad();
                let of_per = [Per::Row, Per::Column, Per::Matrix].map(|per| {
                    let result = run(&a, per);
                    let g = vector(&Numbers(31).values(result.dims()[0]), DType::F32, device);
                    let grads = vjp::backward(&result, g);
                    [host(result), host(a.grad(&grads).unwrap().values().clone())]
                });
                of_per.concat()
            });
        }
        as_on_the_cpu(&format!("softmax, {layout}"), 2e-5, |device| {
            let a = a.tensor(DType::F32, device).require_grad();
            let g = vector(&Numbers(32).values(a.nnz()), DType::F32, device);
            let softmaxes = [a.row_softmax(), a.column_softmax(), a.row_log_softmax(), a.column_log_softmax()];
            let parts = softmaxes.map(|s| {
                let grads = vjp::backward(s.values(), g.clone());
                [host(s.values().clone()), host(a.grad(&grads).unwrap().values().clone())]
            });
            parts.concat()
        });
    }
}

#[test]
fn long_rows_give_the_same_bits_and_any_dtype() {
    let a = Matrix::with_rows(&[20_000, 3, 700], 30_000, 33);
    for dtype in [DType::F32, DType::F16] {
        if !device().supports_dtype(dtype) {
            continue;
        }
        let device = device().autodiff();
        let run = || {
            let a = a.tensor(dtype, &device).require_grad();
            let (lse, softmax) = (a.logsumexp(Per::Row), a.row_softmax());
            let grads = (lse.clone().sum() + softmax.values().clone().powi_scalar(2).sum()).backward();
            [bits(lse), bits(softmax.values().clone()), bits(a.grad(&grads).unwrap().values().clone())]
        };
        let first = run();
        for _ in 1..10 {
            assert!(run() == first, "{dtype:?}");
        }
    }
    // In f64, sums: there are no exponentials.
    if device().supports_dtype(DType::F64) {
        as_on_the_cpu("f64", 1e-13, |device| {
            let a = a.tensor(DType::F64, device);
            vec![host(a.sum(Per::Row)), host(a.sum(Per::Matrix)), host(a.norm(Per::Row, Norm::L2))]
        });
    }
}

/// Gradients as functions, and those of their gradients.
#[test]
fn second_derivatives_of_reductions() {
    let a = Matrix::of(Pattern::coo([0, 2, 1, 2, 0, 2], [1, 0, 3, 1, 0, 1], [4, 4]).unwrap(), 34);
    as_on_the_cpu("second derivatives", 1e-4, |device| {
        let a = a.tensor(DType::F32, device).require_grad();
        let ones = || Tensor::<1>::ones([4], (device, DType::F32));
        let g = a.with_values(vector(&[1., 2., 3., 5., 7., 11.], DType::F32, device)).unwrap();
        let gradients = [
            vjp::logsumexp(&a, Per::Row, ones()),
            vjp::norm(&a, Per::Column, Norm::L2, ones()),
            vjp::max(&a, Per::Row, ones() * a.sum(Per::Row)),
            vjp::row_softmax(&a, &g),
            vjp::column_log_softmax(&a, &g),
        ];
        let parts = gradients.map(|gradient| {
            let grads = vjp::backward(gradient.values(), vector(&[1., 3., 2., 4., 5., 6.], DType::F32, device));
            [host(gradient.values().clone()), host(a.grad(&grads).unwrap().values().clone())]
        });
        parts.concat()
    });
}

#[test]
fn sums_with_dense_operands_in_place_and_not() {
    for a in [Matrix::with_rows(&[3, 0, 9, 40, 1], 24, 35), Matrix::with_rows(&[3, 0, 9, 40, 1], 24, 36).t()] {
        let [m, n] = a.pattern.shape();
        let d = Numbers(37).values(2 * m * n);
        as_on_the_cpu("csr_add", 1e-6, |device| {
            let a = a.tensor(DType::F32, device).require_grad();
            let whole = dense(&d, [m, 2 * n], DType::F32, device).require_grad();
            let view = whole.clone().slice([0..m, 3..3 + n]);
            let kept = view.clone();
            let sums = [csr_add(&a, view.clone()), csr_add(&a, view * 1.0), csr_add(&a.t(), kept.clone().transpose())];
            let total = sums[0].clone() + sums[1].clone() * 2.0 + sums[2].clone().transpose() * 3.0;
            let grads = vjp::backward(&total, dense(&d[..m * n], [m, n], DType::F32, device));
            let gradients = [host(a.grad(&grads).unwrap().values().clone()), host(whole.grad(&grads).unwrap())];
            sums.map(host).into_iter().chain([host(kept)]).chain(gradients).collect()
        });
    }
}

/// Wide levels, which have a launch each, between runs of small ones, and more small ones than one launch takes.
#[test]
fn triangular_solves_in_several_launches() {
    let n = 26_000;
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for row in 0..n {
        let before = match row {
            0..3000 => None,                // a wide level
            3000..6000 => Some(row - 3000), // another one
            _ => Some(row - 1),             // a chain
        };
        for column in before.into_iter().chain([row]) {
            rows.push(row);
            columns.push(column);
        }
    }
    let pattern = Pattern::coo(rows, columns, [n, n]).unwrap();
    let mut a = Matrix::of(pattern, 38);
    for e in 0..a.values.len() {
        a.values[e] = if a.rows[e] == a.columns[e] { 2.0 } else { a.values[e] / 4.0 };
    }
    for k in [1, 3, 8] {
        let (b, g) = (Numbers(39).values(n * k), Numbers(40).values(n * k));
        as_on_the_cpu(&format!("triangular solve, {k} columns"), 1e-5, |device| {
            let a = a.tensor(DType::F32, device).require_grad();
            let b = dense(&b, [n, k], DType::F32, device).require_grad();
            let x = sparse_triangular_solve(&a, b.clone(), Triangular::lower()).unwrap();
            let grads = vjp::backward(&x, dense(&g, [n, k], DType::F32, device));
            vec![host(x), host(b.grad(&grads).unwrap()), host(a.grad(&grads).unwrap().values().clone())]
        });
    }
}

/// By option: it waits for the diagonal.
#[test]
fn zeros_on_a_diagonal_are_found_if_asked_for() {
    let device = device();
    let zero =
        SparseTensor::from_triplets(&[0, 1, 1, 2, 2], &[0, 0, 1, 2, 2], &[1f32, 5., 2., 3., -3.], [3, 3], &device);
    let (zero, b) = (zero.unwrap(), Tensor::<2>::ones([3, 2], &device));
    let solve = |check| sparse_triangular_solve(&zero, b.clone(), Triangular::lower().check(check));
    for check in [Check::Zeros, Check::Strict] {
        assert_eq!(solve(check).unwrap_err(), TriangularError::ZeroDiagonal { row: 2, item: None, value: 0. });
    }
    let found = host(solve(Check::Usual).unwrap());
    assert_eq!(found[..4], [1., 1., -2., -2.]);
    assert!(found[4..].iter().all(|x| x.is_infinite()), "{found:?}");
    let unit = Triangular::lower().unit_diagonal().check(Check::Zeros);
    assert_eq!(host(sparse_triangular_solve(&zero, b.clone(), unit).unwrap()), [1., 1., -4., -4., 1., 1.]);
    let good = zero.map_values(|v| v.abs());
    assert!(sparse_triangular_solve(&good, b, Triangular::lower().check(Check::Zeros)).is_ok());
}

/// More pairs than are listed: each value searches for its own.
#[test]
fn sparse_products_beyond_a_list() {
    let full = |rows: usize, columns: usize, seed: u64| {
        let offsets: Vec<usize> = (0..=rows).map(|row| row * columns).collect();
        let all: Vec<usize> = (0..rows * columns).map(|e| e % columns).collect();
        Matrix::of(Pattern::csr(offsets, all, [rows, columns]).unwrap(), seed)
    };
    let (a, b) = (full(40, 6000, 41), full(6000, 70, 42));
    assert!(SpgemmPlan::new(&a.pattern, &b.pattern).unwrap().products() > 1 << 24);
    as_on_the_cpu("spgemm", 1e-3, |device| {
        let (a, b) = (a.tensor(DType::F32, device).require_grad(), b.tensor(DType::F32, device).require_grad());
        let c = spgemm(&a, &b);
        let grads = vjp::backward(c.values(), vector(&Numbers(43).values(c.nnz()), DType::F32, device));
        let gradients = [a.grad(&grads).unwrap(), b.grad(&grads).unwrap()];
        [&c].into_iter().chain(&gradients).map(|t| host(t.values().clone())).collect()
    });
}

/// One matrix for all items, on either side.
#[test]
fn sparse_products_of_a_matrix_and_a_batch() {
    let (l, r) = (Matrix::with_rows(&[3, 0, 2, 5], 6, 44), Matrix::with_rows(&[1, 4, 0, 2, 3], 7, 45));
    let items = [Matrix::with_rows(&[2, 0, 1, 3, 0, 1], 5, 46), Matrix::with_rows(&[0, 0, 5, 1, 2, 2], 5, 47)];
    as_on_the_cpu("spgemm of a batch", 1e-5, |device| {
        let [l, r] = [&l, &r].map(|matrix| matrix.tensor(DType::F32, device).require_grad());
        let batch = SparseTensor::stack(&items.each_ref().map(|item| item.tensor(DType::F32, device))).unwrap();
        let batch = batch.detach().require_grad();
        let products = [spgemm(&l, &batch), spgemm(&batch, &r)];
        let parts = products.map(|c| {
            let grads = vjp::backward(c.values(), vector(&Numbers(48).values(c.nnz()), DType::F32, device));
            let mut parts = vec![host(c.values().clone()), host(batch.grad(&grads).unwrap().values().clone())];
            parts.extend([&l, &r].into_iter().filter_map(|m| Some(host(m.grad(&grads)?.values().clone()))));
            parts
        });
        parts.concat()
    });
}
