//! Gradients of least squares against dense pseudoinverses, and what they cost.

use crate::{assert_near, numbers, read};
use burn::tensor::TensorData;
use sparsegrad::prelude::*;
use sparsegrad_solvers::operator::{Diagonal, FnOperator, LinearOperator};
use sparsegrad_solvers::{BackwardWatch, Direct, Lsmr, Method, Operator, Outcome, Solution, sparse_lstsq};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A dense matrix on the host.
#[derive(Clone)]
struct Matrix {
    shape: [usize; 2],
    numbers: Vec<f64>,
}

impl Matrix {
    fn new([m, n]: [usize; 2], element: impl Fn(usize, usize) -> f64) -> Self {
        Self { shape: [m, n], numbers: (0..m * n).map(|at| element(at / n, at % n)).collect() }
    }

    fn random(seed: u64, [m, n]: [usize; 2]) -> Self {
        Self { shape: [m, n], numbers: numbers(seed, m * n) }
    }

    fn eye(n: usize, diagonal: f64) -> Self {
        Self::new([n, n], |i, j| if i == j { diagonal } else { 0.0 })
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.numbers[i * self.shape[1] + j]
    }

    fn t(&self) -> Self {
        Self::new([self.shape[1], self.shape[0]], |i, j| self.at(j, i))
    }

    fn times(&self, other: &Self) -> Self {
        let inner = self.shape[1];
        let product = |i: usize, j: usize| (0..inner).map(|k| self.at(i, k) * other.at(k, j)).sum();
        Self::new([self.shape[0], other.shape[1]], product)
    }

    fn plus(&self, other: &Self, factor: f64) -> Self {
        Self::new(self.shape, |i, j| self.at(i, j) + factor * other.at(i, j))
    }

    /// By Gauss and Jordan, with pivots.
    fn inverse(&self) -> Self {
        let n = self.shape[0];
        let (mut a, mut b) = (self.clone(), Self::eye(n, 1.0));
        for column in 0..n {
            let pivot = (column..n).max_by(|&i, &j| a.at(i, column).abs().total_cmp(&a.at(j, column).abs())).unwrap();
            for of in [&mut a, &mut b] {
                (0..n).for_each(|j| of.numbers.swap(pivot * n + j, column * n + j));
            }
            let inverse = 1.0 / a.at(column, column);
            for of in [&mut a, &mut b] {
                (0..n).for_each(|j| of.numbers[column * n + j] *= inverse);
            }
            for i in (0..n).filter(|&i| i != column) {
                let factor = a.at(i, column);
                for of in [&mut a, &mut b] {
                    (0..n).for_each(|j| of.numbers[i * n + j] -= factor * of.numbers[column * n + j]);
                }
            }
        }
        b
    }
}

/// The values of the solution and of the gradients to A and b, for the gradient g of the solution.
struct Expected {
    x: Matrix,
    of_a: Matrix,
    of_b: Matrix,
}

/// Of the pseudoinverse of `left right`, both of full rank.
fn pseudoinverse(left: &Matrix, right: &Matrix, b: &Matrix, g: &Matrix) -> Expected {
    let a = left.times(right);
    let of_left = left.t().times(left).inverse().times(&left.t());
    let of_right = right.t().times(&right.times(&right.t()).inverse());
    let inverse = of_right.times(&of_left);
    let (x, w) = (inverse.times(b), inverse.t().times(g));
    let (y, z) = (inverse.t().times(&x), inverse.times(&w));
    let (r, p) = (b.plus(&a.times(&x), -1.0), g.plus(&a.t().times(&w), -1.0));
    let of_a = r.times(&z.t()).plus(&w.times(&x.t()), -1.0).plus(&y.times(&p.t()), 1.0);
    Expected { x, of_a, of_b: w }
}

/// With damping.
fn damped(a: &Matrix, damp: f64, b: &Matrix, g: &Matrix) -> Expected {
    let inverse = a.t().times(a).plus(&Matrix::eye(a.shape[1], damp * damp), 1.0).inverse();
    let (x, z) = (inverse.times(&a.t()).times(b), inverse.times(g));
    let (w, r) = (a.times(&z), b.plus(&a.times(&x), -1.0));
    let of_a = r.times(&z.t()).plus(&w.times(&x.t()), -1.0);
    Expected { x, of_a, of_b: w }
}

fn tensor(matrix: &Matrix, dtype: DType, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(matrix.numbers.clone(), matrix.shape), (device, dtype))
}

/// A as a sparse matrix and as two functions; right-hand sides as columns and as a batch of itself twice.
fn check(a: &Matrix, expected: &Expected, b: &Matrix, g: &Matrix, dtype: DType, method: &dyn Fn() -> Lsmr) {
    let device = Device::flex().autodiff();
    let tolerance = if dtype == DType::F64 { 1e-8 } else { 2e-3 };
    let near = |found: Vec<f64>, expected: &Matrix| {
        let size = expected.numbers.iter().fold(0.0f64, |size, x| size.max(x.abs()));
        let scaled = |numbers: &[f64]| numbers.iter().map(|x| x / size).collect::<Vec<_>>();
        assert_near(&scaled(&found), &scaled(&expected.numbers), tolerance);
    };
    let upstream = || tensor(g, dtype, &device);

    let sparse = SparseTensor::from_dense(tensor(a, dtype, &device), 0.0).unwrap().require_grad();
    let rhs = tensor(b, dtype, &device).require_grad();
    let x = sparse_lstsq(&sparse, rhs.clone(), method()).into_result().unwrap();
    near(read(&x), &expected.x);
    let grads = (x * upstream()).sum().backward();
    let of_sparse = sparse.grad(&grads).unwrap();
    let stored = a.numbers.iter().zip(&expected.of_a.numbers).map(|(a, of_a)| if *a == 0.0 { 0.0 } else { *of_a });
    near(read(&of_sparse.clone().to_dense()), &Matrix { shape: a.shape, numbers: stored.collect() });
    near(read(&rhs.grad(&grads).unwrap()), &expected.of_b);

    let matrix = tensor(a, dtype, &device).require_grad();
    let apply = |a: &Tensor<2>, x: Tensor<2>| a.clone().matmul(x);
    let transposed = |a: &Tensor<2>, y: Tensor<2>| a.clone().transpose().matmul(y);
    let function = FnOperator::new(a.shape, dtype, &device, matrix.clone(), apply, transposed);
    let x = sparse_lstsq(&function, rhs.clone(), method()).into_result().unwrap();
    let grads = (x * upstream()).sum().backward();
    near(read(&matrix.grad(&grads).unwrap()), &expected.of_a);
    near(read(&rhs.grad(&grads).unwrap()), &expected.of_b);

    let item = SparseTensor::from_dense(tensor(a, dtype, &Device::flex()), 0.0).unwrap();
    let batch = SparseTensor::stack(&[item.clone(), item]).unwrap().map_values(Tensor::from_inner).require_grad();
    let both = |x: Tensor<2>, factor: f64| Tensor::stack::<3>(vec![x.clone(), x * factor], 0);
    let x = sparse_lstsq(&batch, both(rhs, 2.0), method()).into_result().unwrap();
    // The second solution is twice the first one: with half the gradient, that to the matrix is the same.
    let grads = (x * both(upstream(), 0.5)).sum().backward();
    let of_item = read(of_sparse.values());
    let size = of_item.iter().fold(0.0f64, |size, x| size.max(x.abs()));
    for found in read(batch.grad(&grads).unwrap().values()).chunks(of_item.len()) {
        for (found, expected) in found.iter().zip(&of_item) {
            assert!((found - expected).abs() <= tolerance * size, "{found} for {expected}");
        }
    }
}

/// Factors of full rank of matrices of any shape and rank, half of the entries of full-rank ones 0, those of others whole
/// multiples of 1 / 64: rounding to f32 keeps their rank.
fn factors() -> Vec<(Matrix, Matrix)> {
    let sparse = |seed: u64, shape: [usize; 2]| {
        let full = Matrix::random(seed, shape);
        Matrix::new(shape, |i, j| match (i * 5 + j * 3) % 4 {
            _ if i == j => 2.0 + full.at(i, j),
            0 | 1 => full.at(i, j),
            _ => 0.0,
        })
    };
    let random = |seed: u64, shape: [usize; 2]| {
        let full = Matrix::random(seed, shape);
        Matrix::new(shape, |i, j| (full.at(i, j) * 8.0).round() / 8.0)
    };
    vec![
        (sparse(1, [23, 9]), Matrix::eye(9, 1.0)),
        (sparse(2, [8, 8]), Matrix::eye(8, 1.0)),
        (Matrix::eye(7, 1.0), sparse(3, [7, 16])),
        (random(4, [19, 5]), random(5, [5, 8])),
        (random(6, [10, 6]), random(7, [6, 10])),
        (random(8, [9, 4]), random(9, [4, 17])),
    ]
}

#[test]
fn against_the_pseudoinverse() {
    for (left, right) in factors() {
        let a = left.times(&right);
        for k in [1, 3] {
            let (b, g) = (Matrix::random(20, [a.shape[0], k]), Matrix::random(21, [a.shape[1], k]));
            let expected = pseudoinverse(&left, &right, &b, &g);
            check(&a, &expected, &b, &g, DType::F64, &|| Lsmr::new().tolerance(1e-13));
            check(&a, &expected, &b, &g, DType::F32, &|| Lsmr::new().tolerance(1e-6));
        }
    }
}

#[test]
fn against_the_damped_inverse() {
    for (left, right) in factors() {
        let a = left.times(&right);
        let (b, g) = (Matrix::random(22, [a.shape[0], 2]), Matrix::random(23, [a.shape[1], 2]));
        for damp in [1.0, 0.1] {
            let expected = damped(&a, damp, &b, &g);
            check(&a, &expected, &b, &g, DType::F64, &|| Lsmr::new().tolerance(1e-13).damp(damp));
        }
        let expected = damped(&a, 1.0, &b, &g);
        check(&a, &expected, &b, &g, DType::F32, &|| Lsmr::new().tolerance(1e-6).damp(1.0));
    }
}

/// An item that is done after three iterations, next to one that takes a hundred: its vectors, of rounding errors by then, rest.
#[test]
fn an_early_end() {
    let (n, device) = (100, Device::flex().autodiff());
    let early = Matrix::new([n, n], |i, j| if i == j && j < 3 { 1.0 + 0.37 * j as f64 } else { 0.0 });
    let late = Matrix::new([n, n], |i, j| if i == j { 1.0 + j as f64 } else { 0.0 });
    let item = |a: &Matrix| SparseTensor::from_dense(tensor(a, DType::F32, &Device::flex()), 0.0).unwrap();
    let batch = SparseTensor::stack(&[item(&early), item(&late)]).unwrap();
    let batch = batch.map_values(Tensor::from_inner).require_grad();
    let (b, g) = (Matrix::random(26, [n, 1]), Matrix::random(27, [n, 1]));
    let both = |x: &Matrix| Tensor::stack::<3>(vec![tensor(x, DType::F32, &device); 2], 0);
    let Solution { x, report } = sparse_lstsq(&batch, both(&b), Lsmr::new().tolerance(1e-6));
    assert!(report.iterations > 80 && report.outcome.is_converged(), "{report}");
    let of_a = read(batch.grad(&(x * both(&g)).sum().backward()).unwrap().values());
    // Of x = b / a it is -g b / a^2.
    let expected = |(a, i): (&Matrix, usize)| -g.at(i, 0) * b.at(i, 0) / a.at(i, i).powi(2);
    let stored = (0..3).map(|i| (&early, i)).chain((0..n).map(|i| (&late, i)));
    assert_near(&of_a, &stored.map(expected).collect::<Vec<_>>(), 1e-4);
}

/// Two ones a row, one in each half of the columns: the halves have one sum, and the rank is not full by one. A g that is nearly
/// made of rows is not taken for one that is.
#[test]
fn nearly_made_of_rows() {
    let chosen = Matrix::random(54, [400, 2]);
    let column = |i: usize, half: usize| half * 30 + ((chosen.at(i, half) + 1.0) * 15.0) as usize;
    let a = Matrix::new([400, 60], |i, j| f64::from(j == column(i, 0) || j == column(i, 1)));
    let operator = SparseTensor::from_dense(tensor(&a, DType::F64, &Device::flex()), 0.0).unwrap();
    let operator: Operator = Arc::new(operator);
    let apart = |j: usize| if j < 30 { 1.0 } else { -1.0 };
    let g = a.t().times(&Matrix::random(55, [400, 1]));
    for part in [1e-1, 1e-3, 1e-5] {
        let g = Matrix::new([60, 1], |j, _| g.at(j, 0) + part * apart(j));
        let lsmr = Lsmr::new().tolerance(1e-9);
        let (Solution { x: w, report }, z) =
            lsmr.run_with_multiplier(&operator, tensor(&g, DType::F64, &Device::flex()), None, true);
        assert_eq!((report.method, &report.outcome), ("LSQR", &Outcome::LeastSquares), "{report}");
        let w = Matrix { shape: [400, 1], numbers: read(&w) };
        let left: Vec<f64> = g.plus(&a.t().times(&w), -1.0).numbers;
        let expected: Vec<f64> = (0..60).map(|j| part * apart(j)).collect();
        assert_near(&left, &expected, 1e-6);
        let z = read(&z.unwrap());
        assert!((0..60).map(|j| z[j] * apart(j)).sum::<f64>().abs() < 1e-6, "{z:?}");
    }
}

/// Where z, with what A maps to 0 in it, is so large that w = A z is lost in rounding, it is w that is iterated on.
#[test]
fn a_large_multiplier() {
    let [left, right] = [(50, [60, 12]), (51, [12, 30])].map(|(seed, shape)| {
        let full = Matrix::random(seed, shape);
        Matrix::new(shape, |i, j| (full.at(i, j) * 8.0).round() / 8.0)
    });
    let left = Matrix::new(left.shape, |i, j| left.at(i, j) * 0.5f64.powi(j as i32 * 6 / 11));
    let a = left.times(&right);
    let (b, g) = (Matrix::random(52, [60, 1]), Matrix::random(53, [30, 1]));
    let expected = pseudoinverse(&left, &right, &b, &g);
    let device = Device::flex().autodiff();
    for (dtype, tolerance, iteration) in [(DType::F32, 1e-5, "LSMR"), (DType::F64, 1e-10, "LSQR")] {
        let sparse = SparseTensor::from_dense(tensor(&a, dtype, &device), 0.0).unwrap().require_grad();
        let watch = BackwardWatch::new();
        let method = watch.over(Lsmr::new().tolerance(tolerance));
        let x = sparse_lstsq(&sparse, tensor(&b, dtype, &device), method).into_result().unwrap();
        let grads = (x * tensor(&g, dtype, &device)).sum().backward();
        let reports = watch.take();
        assert_eq!((reports.len(), reports[0].method), (1, iteration), "{reports:?}");
        let size = expected.of_a.numbers.iter().fold(0.0f64, |size, x| size.max(x.abs()));
        for (found, expected) in read(&sparse.grad(&grads).unwrap().to_dense()).iter().zip(&expected.of_a.numbers) {
            assert!((found - expected).abs() <= 100.0 * tolerance * size, "{found} for {expected}");
        }
    }
}

/// Iterations on tensors, as on a GPU: what half precision takes on the CPU, too.
#[test]
fn in_half_precision() {
    let (left, right) = factors().swap_remove(0);
    let a = left.times(&right);
    let (b, g) = (Matrix::random(24, [a.shape[0], 2]), Matrix::random(25, [a.shape[1], 2]));
    let device = Device::flex().autodiff();
    for damp in [0.0, 1.0] {
        let expected = if damp == 0.0 { pseudoinverse(&left, &right, &b, &g) } else { damped(&a, damp, &b, &g) };
        let matrix = SparseTensor::from_dense(tensor(&a, DType::F16, &device), 0.0).unwrap().require_grad();
        let rhs = tensor(&b, DType::F16, &device).require_grad();
        let x = sparse_lstsq(&matrix, rhs.clone(), Lsmr::new().tolerance(1e-2).damp(damp)).into_result().unwrap();
        let grads = (x * tensor(&g, DType::F16, &device)).sum().backward();
        // The tolerance times a condition of 3, squared.
        assert_near(&read(&rhs.grad(&grads).unwrap()), &expected.of_b.numbers, 0.1);
        let of_a = read(&matrix.grad(&grads).unwrap().to_dense());
        for (found, expected) in of_a.iter().zip(&expected.of_a.numbers).filter(|(found, _)| **found != 0.0) {
            assert!((found - expected).abs() <= 0.1, "{found} for {expected}");
        }
    }
}

/// A matrix of which only products are seen, and counted.
#[derive(Debug)]
struct Counting {
    a: SparseTensor<2>,
    products: Arc<AtomicUsize>,
}

impl LinearOperator for Counting {
    fn shape(&self) -> [usize; 2] {
        self.a.shape()
    }

    fn dtype(&self) -> DType {
        self.a.dtype()
    }

    fn device(&self) -> Device {
        self.a.device()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.products.fetch_add(1, Ordering::Relaxed);
        self.a.matmul(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.products.fetch_add(1, Ordering::Relaxed);
        self.a.t().matmul(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.map_values(Tensor::inner), products: self.products.clone() })
    }
}

/// Rows of a scattered few, above those of a diagonal: of full rank.
fn tall(m: usize, n: usize) -> Matrix {
    let random = Matrix::random(30, [m, n]);
    let chosen = Matrix::random(31, [m, n]);
    Matrix::new([m + n, n], |i, j| match i {
        _ if i < m && chosen.at(i, j) > 0.9 => random.at(i, j) + 0.5,
        _ if i == m + j => 1.0,
        _ => 0.0,
    })
}

/// At full rank: what A being tracked adds to the forward pass, and what the backward one takes, in products.
#[test]
fn a_backward_pass_costs_a_forward_one() {
    for (a, tolerance) in [(tall(300, 120), 1e-6), (tall(300, 120), 1e-10), (tall(300, 120).t(), 1e-6)] {
        let [m, n] = a.shape;
        let device = Device::flex().autodiff();
        let sparse = SparseTensor::from_dense(tensor(&a, DType::F64, &device), 0.0).unwrap();
        let products = Arc::new(AtomicUsize::new(0));
        let count = || products.swap(0, Ordering::Relaxed);
        let operator = |a: SparseTensor<2>| -> Operator { Arc::new(Counting { a, products: products.clone() }) };
        let b = crate::vector(&numbers(32, m), &device);
        let method = || Lsmr::new().tolerance(tolerance);
        let plain = operator(sparse.map_values(Tensor::inner));
        let _ = sparse_lstsq(&plain, b.clone().inner(), method()).into_result().unwrap();
        let untracked = count();
        let x = sparse_lstsq(&operator(sparse.require_grad()), b, method()).into_result().unwrap();
        let forward = count();
        let _ = (x * crate::vector(&numbers(33, n), &device)).sum().backward();
        let backward = count();
        println!("{m}x{n}, products at {tolerance:e}: {untracked} untracked, {forward} tracked, {backward} backward");
        assert!(untracked > 20 && forward <= untracked + 3, "{untracked} and {forward}");
        assert!(backward as f64 <= 1.3 * untracked as f64, "{backward} after {untracked}");
    }
}

/// A preconditioner of x serves backwards as well, where A isn't square; one iteration is all that a backward pass is.
#[test]
fn preconditioned_least_squares() {
    let a = tall(40, 15);
    let scaled = Matrix::new(a.shape, |i, j| a.at(i, j) * 10f64.powi(j as i32 % 3));
    let [m, n] = a.shape;
    let (b, g) = (Matrix::random(34, [m, 2]), Matrix::random(35, [n, 2]));
    let expected = pseudoinverse(&scaled, &Matrix::eye(n, 1.0), &b, &g);
    let inverse: Vec<f64> = (0..n).map(|i| 0.1f64.powi(i as i32 % 3)).collect();
    let inverse: Operator = Arc::new(Diagonal::new(crate::vector(&inverse, &Device::flex())));
    let device = Device::flex().autodiff();
    let sparse = SparseTensor::from_dense(tensor(&scaled, DType::F64, &device), 0.0).unwrap().require_grad();
    let rhs = tensor(&b, DType::F64, &device).require_grad();
    let lsmr = || Lsmr::new().tolerance(1e-12);
    let mut iterations = vec![];
    for method in [lsmr().precondition(inverse.clone()), lsmr()] {
        let watch = BackwardWatch::new();
        let x = sparse_lstsq(&sparse, rhs.clone(), watch.over(method)).into_result().unwrap();
        let grads = (x * tensor(&g, DType::F64, &device)).sum().backward();
        let reports = watch.take();
        assert_eq!((reports.len(), &reports[0].outcome), (1, &Outcome::Converged), "{reports:?}");
        iterations.push(reports[0].iterations);
        let found = read(&sparse.grad(&grads).unwrap().to_dense());
        let size = expected.of_a.numbers.iter().fold(0.0f64, |size, x| size.max(x.abs()));
        for (found, expected) in found.iter().zip(&expected.of_a.numbers).filter(|(found, _)| **found != 0.0) {
            assert!((found - expected).abs() <= 1e-8 * size, "{found} for {expected}");
        }
    }
    assert!(iterations[0] < iterations[1], "{iterations:?}");
}

/// A multiplier is what its solution is the image of, without what is mapped to 0; other methods have none.
#[test]
fn multipliers() {
    for (left, right) in factors() {
        let a = left.times(&right);
        let [m, n] = a.shape;
        let operator: Operator =
            Arc::new(SparseTensor::from_dense(tensor(&a, DType::F64, &Device::flex()), 0.0).unwrap());
        let (b, g) = (Matrix::random(40, [m, 2]), Matrix::random(41, [n, 2]));
        let expected = pseudoinverse(&left, &right, &b, &g);
        let inverse_t = pseudoinverse(&left, &right, &b, &expected.x).of_b;
        let lsmr = Lsmr::new().tolerance(1e-13);
        let (_, y) = lsmr.run_with_multiplier(&operator, tensor(&b, DType::F64, &Device::flex()), None, false);
        assert_near(&read(&y.unwrap()), &inverse_t.numbers, 1e-8);
        let (w, z) = lsmr.run_with_multiplier(&operator, tensor(&g, DType::F64, &Device::flex()), None, true);
        assert_near(&read(&w.x), &expected.of_b.numbers, 1e-8);
        let of_w = pseudoinverse(&left, &right, &expected.of_b, &g).x;
        assert_near(&read(&z.unwrap()), &of_w.numbers, 1e-8);
        // Started from a guess, x is not made of b alone.
        let guess = tensor(&expected.x, DType::F64, &Device::flex());
        let b = tensor(&b, DType::F64, &Device::flex());
        assert!(lsmr.run_with_multiplier(&operator, b.clone(), Some(guess), false).1.is_none());
        assert!(Direct::qr().run_with_multiplier(&operator, b, None, false).1.is_none());
    }
}
