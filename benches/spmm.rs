//! C = A B on one thread, A sparse and B dense with 1, 8 or 64 columns: sparsegrad, sprs and faer.
//!
//! Each library gets its own preferred layout of A and B, and allocates its C anew. `cargo bench --bench spmm`

use burn::tensor::{Element, TensorData};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use faer::sparse::{SparseColMat, Triplet, linalg::matmul::sparse_dense_matmul};
use faer::{Accum, Mat, Par};
use ndarray::{Array2, ShapeBuilder};
use sparsegrad::io::Triplets;
use sparsegrad::prelude::*;
use sprs::{CsMatI, TriMatI};
use std::time::Duration;

/// A grid operator on `size`^3 nodes: 7 points, or 27 with the `corners`.
fn stencil(size: usize, corners: bool) -> Triplets {
    let split = |i: usize, base: usize| [i / base / base, i / base % base, i % base];
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for row in 0..size.pow(3) {
        let here = split(row, size);
        for step in (0..27).map(|i| split(i, 3)) {
            // Steps of 0, 1 or 2 nodes, from one node before.
            let inside = here.iter().zip(step).all(|(at, step)| (1..=size).contains(&(at + step)));
            if inside && (corners || step.iter().filter(|&&step| step != 1).count() <= 1) {
                rows.push(row);
                cols.push((0..3).fold(0, |node, axis| node * size + here[axis] + step[axis] - 1));
            }
        }
    }
    weighted(size.pow(3), rows, cols)
}

/// A random graph with a power law: R-MAT with the quadrants of Graph500, `2^levels` nodes.
fn power_law(levels: u32, edges: usize) -> Triplets {
    let mut uniform = uniform();
    let edge = |_| {
        (0..levels).fold((0, 0), |(row, col), _| {
            let u = uniform();
            (2 * row + usize::from(u >= 0.76), 2 * col + usize::from((0.57..0.76).contains(&u) || u >= 0.95))
        })
    };
    let mut places: Vec<(usize, usize)> = (0..edges).map(edge).collect();
    places.sort_unstable();
    places.dedup();
    let (rows, cols) = places.into_iter().unzip();
    weighted(1 << levels, rows, cols)
}

fn weighted(n: usize, rows: Vec<usize>, cols: Vec<usize>) -> Triplets {
    let mut uniform = uniform();
    let values = rows.iter().map(|_| uniform() - 0.5).collect();
    Triplets::new([n, n], rows, cols, values)
}

/// Numbers in [0, 1), by xorshift64.
fn uniform() -> impl FnMut() -> f64 {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 * 2f64.powi(-53)
    }
}

/// Times the three libraries on one matrix, once it is sure that they agree.
macro_rules! compare {
    ($criterion:ident, $float:ident, $name:expr, $matrix:expr) => {{
        let matrix: &Triplets = $matrix;
        let [n, _] = matrix.shape;
        let values: Vec<$float> = matrix.values.iter().map(|&value| value as $float).collect();
        let device = (&Device::flex(), <$float as Element>::dtype());

        let pattern = Pattern::coo(&matrix.rows, &matrix.cols, matrix.shape).unwrap();
        let ours = SparseTensor::new(pattern, Tensor::from_data(&values[..], device)).unwrap().to_csr();
        let index = |places: &[usize]| places.iter().map(|&place| place as u32).collect::<Vec<_>>();
        let (rows, cols) = (index(&matrix.rows), index(&matrix.cols));
        let entries: Vec<_> =
            rows.iter().zip(&cols).zip(&values).map(|((&row, &col), &value)| Triplet::new(row, col, value)).collect();
        let sprs: CsMatI<$float, u32> = TriMatI::from_triplets((n, n), rows, cols, values).to_csr();
        let faer = SparseColMat::try_new_from_triplets(n, n, &entries).unwrap();
        let faer_product = |b: &Mat<$float>| {
            let mut c = Mat::zeros(n, b.ncols());
            sparse_dense_matmul(c.as_mut(), Accum::Replace, faer.as_ref(), b.as_ref(), 1.0, Par::Seq);
            c
        };

        let mut group = $criterion.benchmark_group(format!("spmm_{}_{}", stringify!($float), $name));
        for k in [1, 8, 64] {
            let element = |i: usize, j: usize| ((i * 31 + j * 17) % 101) as $float / 101.0 - 0.5;
            let by_rows: Vec<$float> = (0..n * k).map(|at| element(at / k, at % k)).collect();
            let b = Tensor::<2>::from_data(TensorData::new(by_rows, [n, k]), device);
            // sprs takes columns one by one where there are few.
            let b_sprs = Array2::from_shape_fn((n, k).set_f(k < 8), |(i, j)| element(i, j));
            let b_faer = Mat::from_fn(n, k, element);

            let c: Vec<$float> = ours.matmul(b.clone()).into_data().try_to_vec().unwrap();
            let (c_sprs, c_faer) = (&sprs * &b_sprs, faer_product(&b_faer));
            for (at, &c) in c.iter().enumerate() {
                let (i, j) = (at / k, at % k);
                assert!((c - c_sprs[[i, j]]).abs() < 1e-3 && (c - c_faer[(i, j)]).abs() < 1e-3, "c[{i}, {j}]");
            }

            group.throughput(Throughput::Elements(2 * (matrix.nnz() * k) as u64)); // flops
            group.bench_function(BenchmarkId::new("sparsegrad", k), |bench| bench.iter(|| ours.matmul(b.clone())));
            group.bench_function(BenchmarkId::new("sprs", k), |bench| bench.iter(|| &sprs * &b_sprs));
            group.bench_function(BenchmarkId::new("faer", k), |bench| bench.iter(|| faer_product(&b_faer)));
        }
        group.finish();
    }};
}

fn spmm(criterion: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("there is no pool yet");
    for (name, matrix) in
        [("stencil7", stencil(48, false)), ("stencil27", stencil(36, true)), ("power_law", power_law(16, 1_000_000))]
    {
        compare!(criterion, f32, name, &matrix);
        compare!(criterion, f64, name, &matrix);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = spmm
}
criterion_main!(benches);
