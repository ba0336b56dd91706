//! Direct methods: what they solve, and what they say of what they can't.

use crate::{assert_near, columns, numbers, read, sparse, vector};
use sparsegrad::{gallery, prelude::*};
use sparsegrad_solvers::{Direct, Outcome, SolveFor, sparse_lstsq, sparse_solve};

fn outcome(a: &SparseTensor<2>, method: Direct) -> Outcome {
    let b = Tensor::<1>::ones([a.shape()[0]], (&Device::flex(), a.dtype()));
    let solution = sparse_solve(a, b, method);
    if !solution.report.outcome.is_converged() {
        assert!(read(&solution.x).iter().all(|x| x.is_nan()), "no numbers without a solution");
    }
    solution.report.outcome
}

/// A dense random matrix, large enough for the supernodal factorisations.
fn random(n: usize, seed: u64) -> Vec<(usize, usize, f64)> {
    let values = numbers(seed, n * n);
    (0..n * n).map(|at| (at / n, at % n, values[at])).collect()
}

#[test]
fn all_methods_on_a_laplacian() {
    let device = Device::flex();
    let a = gallery::poisson([20, 20], (&device, DType::F64)).unwrap();
    let expected = columns(&numbers(1, 1200), [400, 3], &device);
    let b = a.matmul(expected.clone());
    for method in [Direct::llt(), Direct::ldlt(), Direct::lu(), Direct::qr()] {
        let x = sparse_solve(&a, b.clone(), method).into_result().unwrap();
        assert_near(&read(&x), &read(&expected), 1e-11);
    }
}

#[test]
fn dense_blocks_and_transposes() {
    let device = Device::flex();
    let n = 150;
    let a = sparse(&random(n, 2), [n, n], &device);
    let expected = vector(&numbers(3, n), &device);
    for a in [a.clone(), a.t()] {
        for method in [Direct::lu(), Direct::qr()] {
            let x = sparse_solve(&a, a.matvec(expected.clone()), method).into_result().unwrap();
            assert_near(&read(&x), &read(&expected), 1e-9);
        }
    }
    let gram = {
        let dense = a.to_dense();
        SparseTensor::from_dense(dense.clone().transpose().matmul(dense), 0.0).unwrap()
    };
    for method in [Direct::llt(), Direct::ldlt()] {
        let x = sparse_solve(&gram, gram.matvec(expected.clone()), method).into_result().unwrap();
        assert_near(&read(&x), &read(&expected), 1e-6);
    }
}

/// The symbolic part of a pattern serves new values on it, and another pattern.
#[test]
fn symbolic_parts_are_used_again() {
    let device = Device::flex();
    for method in [Direct::llt(), Direct::ldlt(), Direct::lu(), Direct::qr()] {
        for size in [[7, 9], [7, 9], [5, 5], [7, 9]] {
            let k =
                Tensor::<1>::from_data(numbers(size[0] as u64, size[0] * size[1]).as_slice(), (&device, DType::F64));
            let k = (k * 0.4 + 1.0).reshape(size);
            let a = gallery::grid_laplacian(k).unwrap();
            let expected = vector(&numbers(5, size[0] * size[1]), &device);
            let x = sparse_solve(&a, a.matvec(expected.clone()), method.clone()).into_result().unwrap();
            assert_near(&read(&x), &read(&expected), 1e-11);
        }
    }
}

#[test]
fn duplicates_and_formats() {
    let device = Device::flex();
    let values = vector(&[1.0, 1.0, 4.0, 2.0], &device);
    let a = SparseTensor::from_coo([0, 0, 1, 0], [0, 0, 1, 1], values, [2, 2], &device).unwrap();
    let x = sparse_solve(&a, vector(&[6.0, 4.0], &device), Direct::lu()).into_result().unwrap();
    assert_near(&read(&x), &[2.0, 1.0], 1e-15);
    let x = sparse_solve(&a.to_csc().t(), vector(&[2.0, 10.0], &device), Direct::lu()).into_result().unwrap();
    assert_near(&read(&x), &[1.0, 2.0], 1e-15);
}

#[test]
fn singular_matrices_name_the_pivot() {
    let device = Device::flex();
    // Row 1 is empty.
    let empty_row = sparse(&[(0, 0, 1.0), (2, 2, 1.0)], [3, 3], &device);
    assert_eq!(outcome(&empty_row, Direct::lu()), Outcome::Singular { pivot: 1, what: "row" });
    // Two rows with one column between them: no pattern of pivots.
    let structural = sparse(&[(0, 0, 1.0), (1, 0, 2.0), (2, 1, 1.0), (2, 2, 1.0)], [3, 3], &device);
    assert!(matches!(outcome(&structural, Direct::lu()), Outcome::Singular { pivot: 0 | 1, what: "row" }));
    // A stored zero, and rows that are equal.
    let zero = sparse(&[(0, 0, 1.0), (1, 1, 0.0), (2, 2, 1.0)], [3, 3], &device);
    for method in [Direct::ldlt(), Direct::lu()] {
        assert_eq!(outcome(&zero, method), Outcome::Singular { pivot: 1, what: "row" });
    }
    assert_eq!(outcome(&zero, Direct::llt()), Outcome::NotPositiveDefinite { row: 1 });
    assert_eq!(outcome(&zero, Direct::qr()), Outcome::Singular { pivot: 1, what: "column" });
    let equal = sparse(&[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)], [2, 2], &device);
    for method in [Direct::ldlt(), Direct::lu(), Direct::qr()] {
        assert!(matches!(outcome(&equal, method), Outcome::Singular { pivot: 0 | 1, .. }));
    }
}

/// The same where the factorisation works by blocks.
#[test]
fn singular_dense_matrices() {
    let device = Device::flex();
    let n = 120;
    let mut entries = random(n, 7);
    for at in 0..n {
        entries[17 * n + at].2 = 0.0;
    }
    let a = sparse(&entries, [n, n], &device);
    assert_eq!(outcome(&a, Direct::lu()), Outcome::Singular { pivot: 17, what: "row" });
    let indefinite: Vec<_> = (0..n * n)
        .map(|at| (at / n, at % n, if at / n == at % n { if at / n == 40 { -1.0 } else { 200.0 } } else { 1.0 }))
        .collect();
    let a = sparse(&indefinite, [n, n], &device);
    assert!(matches!(outcome(&a, Direct::llt()), Outcome::NotPositiveDefinite { .. }));
    assert_eq!(outcome(&a, Direct::ldlt()), Outcome::Converged);
}

#[test]
fn not_finite() {
    let device = Device::flex();
    let a = sparse(&[(0, 0, 1.0), (1, 0, f64::NAN), (1, 1, 1.0)], [2, 2], &device);
    for method in [Direct::llt(), Direct::ldlt(), Direct::lu(), Direct::qr()] {
        assert!(matches!(outcome(&a, method), Outcome::EntryNotFinite { row: 1, column: 0, .. }));
    }
    let a = sparse(&[(0, 0, 1.0), (1, 1, 1.0)], [2, 2], &device);
    let solution = sparse_solve(&a, vector(&[1.0, f64::INFINITY], &device), Direct::lu());
    assert!(!solution.report.outcome.is_converged());
}

/// linear_operator#58, scipy#8163: the residual is the true one, of ill-conditioned matrices too.
#[test]
fn field_55_ill_conditioned() {
    let device = Device::flex();
    let n = 12;
    let hilbert: Vec<_> = (0..n * n).map(|at| (at / n, at % n, 1.0 / (at / n + at % n + 1) as f64)).collect();
    let a = sparse(&hilbert, [n, n], &device);
    let b = vector(&numbers(11, n), &device);
    for method in [Direct::llt(), Direct::ldlt(), Direct::lu(), Direct::qr()] {
        let solution = sparse_solve(&a, b.clone(), method);
        let (x, b) = (read(&solution.x), read(&b));
        if x.iter().any(|x| x.is_nan()) {
            assert!(!solution.report.outcome.is_converged());
            continue;
        }
        // Rounding errors are all that is left of it: the same sums in the same order.
        let row = |i: usize| (0..n).fold(b[i], |r, j| r - 1.0 / (i + j + 1) as f64 * x[j]);
        let r: Vec<f64> = (0..n).map(row).collect();
        let size = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
        let (truth, said) = (size(&r) / size(&b), solution.report.relative_residuals[0]);
        assert!((truth - said).abs() <= 1e-12 * truth, "{truth} and {said}");
        assert_eq!(solution.report.outcome.is_converged(), said <= 1e-8);
    }
}

/// A matrix that a method is not for: the residual says so.
#[test]
fn field_55_wrong_class() {
    let a = sparse(&[(0, 0, 4.0), (0, 1, 3.0), (1, 0, 1.0), (1, 1, 4.0)], [2, 2], &Device::flex());
    let solution = sparse_solve(&a, vector(&[1.0, 2.0], &Device::flex()), Direct::llt());
    assert!(matches!(solution.report.outcome, Outcome::Inaccurate { .. }), "{}", solution.report);
}

#[test]
fn zero_right_hand_sides_and_scales() {
    let device = Device::flex();
    let a = sparse(&[(0, 0, 4.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 5.0)], [2, 2], &device);
    for scale in [0.0, 1.0, 1e-300, 1e300] {
        let b = vector(&[scale * 6.0, scale * 12.0], &device);
        let solution = sparse_solve(&a, b, Direct::lu());
        assert!(solution.report.outcome.is_converged(), "{scale:e}: {}", solution.report);
        assert_near(&read(&solution.x), &[scale, 2.0 * scale], 1e-14);
    }
    let tiny = sparse(&[(0, 0, 1e-12)], [1, 1], &device);
    assert_near(&read(&sparse_solve(&tiny, vector(&[1.0], &device), Direct::llt()).x), &[1e12], 1e-15);
}

#[test]
fn single_precision_is_solved_in_double() {
    let device = Device::flex();
    let a = gallery::poisson([30, 30], (&device, DType::F32)).unwrap();
    let x = Tensor::<1>::ones([900], (&device, DType::F32));
    let solution = sparse_solve(&a, a.matvec(x), Direct::llt());
    assert!(solution.report.relative_residuals[0] < 1e-6, "{}", solution.report);
    assert_near(&read(&solution.into_result().unwrap()), &[1.0; 900], 1e-5);
}

#[test]
fn least_squares_of_every_shape() {
    let device = Device::flex();
    let tall = sparse(&[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 1, 2.0)], [3, 2], &device);
    let x = sparse_lstsq(&tall, vector(&[1.0, 0.0, 3.0], &device), Direct::qr()).into_result().unwrap();
    // The normal equations: [2 1; 1 5] x = [1; 6].
    assert_near(&read(&x), &[-1.0 / 9.0, 11.0 / 9.0], 1e-14);
    let x = sparse_lstsq(&tall.t(), vector(&[1.0, 2.0], &device), Direct::qr()).into_result().unwrap();
    // A (A^T A)^-1 b with the same matrix: y = [3; 3] / 9.
    assert_near(&read(&x), &[1.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0], 1e-14);
    let deficient = sparse(&[(0, 0, 1.0), (1, 0, 1.0), (0, 1, 2.0), (1, 1, 2.0)], [3, 2], &device);
    let solution = sparse_lstsq(&deficient, vector(&[1.0; 3], &device), Direct::qr());
    assert!(matches!(solution.report.outcome, Outcome::Singular { what: "column", .. }));
}

#[test]
#[should_panic(expected = "A must be square")]
fn rectangular_systems_are_refused() {
    let a = sparse(&[(0, 0, 1.0)], [3, 2], &Device::flex());
    let _ = sparse_solve(&a, vector(&[1.0; 3], &Device::flex()), Direct::lu());
}

#[test]
#[should_panic(expected = "as many rows")]
fn misfits_are_refused() {
    let a = sparse(&[(0, 0, 1.0)], [2, 2], &Device::flex());
    let _ = sparse_solve(&a, vector(&[1.0; 3], &Device::flex()), Direct::lu());
}

/// What is solved for by columns is what stands in the documentation.
#[allow(dead_code)]
fn pairings(a: SparseTensor<2>, batch: SparseTensor<3>) {
    fn is<A: SolveFor<B, Output = C>, B, C>(_: &A) {}
    is::<_, Tensor<1>, Tensor<1>>(&a);
    is::<_, Tensor<2>, Tensor<2>>(&a);
    is::<_, Tensor<3>, Tensor<3>>(&a);
    is::<_, Tensor<3>, Tensor<3>>(&batch);
    is::<_, Tensor<2>, Tensor<3>>(&batch);
}
