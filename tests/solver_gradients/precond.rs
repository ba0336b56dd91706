//! Preconditioners: against dense inverses, transposes, breakdowns.

use crate::{assert_near, columns, numbers, read, sparse};
use burn::tensor::Tensor;
use sparsegrad::{gallery, prelude::*};
use sparsegrad_solvers::operator::LinearOperator;
use sparsegrad_solvers::precond::{BlockJacobi, Ic0, Ilu0, Jacobi, PreconditionerError, Ssor};
use sparsegrad_solvers::{Operator, Preconditioner, Tags};
use std::sync::Arc;

/// The operator as a dense matrix, row by row, by its columns.
fn dense(n: usize, apply: impl Fn(Tensor<2>) -> Tensor<2>) -> Vec<f64> {
    let mut identity = vec![0.0; n * n];
    (0..n).for_each(|i| identity[i * n + i] = 1.0);
    read(&apply(columns(&identity, [n, n], &Device::flex())))
}

fn transposed(a: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|at| a[at % n * n + at / n]).collect()
}

fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|at| (0..n).map(|k| a[at / n * n + k] * b[k * n + at % n]).sum()).collect()
}

/// A non-symmetric tridiagonal matrix: its incomplete factors are complete.
fn tridiagonal(n: usize) -> SparseTensor<2> {
    let mut entries = vec![];
    for i in 0..n {
        entries.push((i, i, 4.0 + i as f64));
        if i > 0 {
            entries.extend([(i, i - 1, -1.0), (i - 1, i, -0.5)]);
        }
    }
    sparse(&entries, [n, n], &Device::flex())
}

fn check_transpose(a: &SparseTensor<2>, recipe: &dyn Preconditioner) -> Vec<f64> {
    let n = a.shape()[0];
    let inverse = recipe.build(a).unwrap().operator;
    let forward = dense(n, |x| inverse.apply(x));
    assert_near(&dense(n, |x| inverse.apply_transpose(x)), &transposed(&forward, n), 1e-13);
    forward
}

#[test]
fn every_preconditioner_has_its_transpose() {
    let a = tridiagonal(6);
    let entries = sparse(&[(0, 2, 0.3), (5, 0, 0.7)], [6, 6], &Device::flex());
    let a = sparsegrad::sparse_add(&a, &entries);
    check_transpose(&a, &Jacobi);
    check_transpose(&a, &BlockJacobi::new(3));
    check_transpose(&a, &Ssor::new(1.3));
    check_transpose(&a, &Ilu0);
    check_transpose(&gallery::poisson([3, 2], (&Device::flex(), DType::F64)).unwrap(), &Ic0);
    check_transpose(&a, &(Arc::new(a.clone()) as Operator));
}

#[test]
fn jacobi_and_blocks() {
    let a = tridiagonal(4);
    let inverse = check_transpose(&a, &Jacobi);
    let diagonal: Vec<f64> = (0..4).map(|i| inverse[i * 5]).collect();
    assert_near(&diagonal, &[1.0 / 4.0, 1.0 / 5.0, 1.0 / 6.0, 1.0 / 7.0], 1e-15);
    // One block is the inverse itself.
    let inverse = check_transpose(&a, &BlockJacobi::new(4));
    let identity = product(&read(&a.to_dense()), &inverse, 4);
    assert_near(&identity, &dense(4, |x| x), 1e-14);
    // A permutation has zeros on its diagonal, its blocks are regular.
    let swap = sparse(&[(0, 1, 2.0), (1, 0, 4.0)], [2, 2], &Device::flex());
    assert_near(&check_transpose(&swap, &BlockJacobi::new(2)), &[0.0, 0.25, 0.5, 0.0], 1e-15);
}

#[test]
fn ssor_is_its_formula() {
    let (a, n, omega) = (tridiagonal(5), 5, 1.2);
    let d = read(&a.to_dense());
    let part = |keep: fn(usize, usize) -> bool, diagonal: f64| -> Vec<f64> {
        (0..n * n)
            .map(|at| match (at / n, at % n) {
                (i, j) if i == j => d[at] * diagonal,
                (i, j) if keep(i, j) => d[at],
                _ => 0.0,
            })
            .collect()
    };
    let lower = part(|i, j| i > j, 1.0 / omega);
    let upper = part(|i, j| i < j, 1.0 / omega);
    let middle: Vec<f64> =
        (0..n * n).map(|at| if at / n == at % n { omega / (2.0 - omega) / d[at] } else { 0.0 }).collect();
    let m = product(&product(&lower, &middle, n), &upper, n);
    let inverse = check_transpose(&a, &Ssor::new(omega));
    assert_near(&product(&m, &inverse, n), &dense(n, |x| x), 1e-13);
}

/// Where there is no fill the incomplete factors are complete.
#[test]
fn incomplete_factors_without_fill_are_complete() {
    let a = tridiagonal(7);
    let inverse = check_transpose(&a, &Ilu0);
    assert_near(&product(&read(&a.to_dense()), &inverse, 7), &dense(7, |x| x), 1e-13);
    let a = gallery::poisson([7], (&Device::flex(), DType::F64)).unwrap();
    let inverse = check_transpose(&a, &Ic0);
    assert_near(&product(&read(&a.to_dense()), &inverse, 7), &dense(7, |x| x), 1e-13);
}

/// At A's pattern the product of the factors is A.
#[test]
fn incomplete_factors_agree_at_the_pattern() {
    let a = gallery::poisson([4, 4], (&Device::flex(), DType::F64)).unwrap();
    for recipe in [&Ic0 as &dyn Preconditioner, &Ilu0] {
        let n = 16;
        let m = {
            // M by columns: the inverse of the inverse.
            let inverse = check_transpose(&a, recipe);
            let m = SparseTensor::from_dense(columns(&inverse, [n, n], &Device::flex()), 0.0).unwrap();
            let identity = columns(&dense(n, |x| x), [n, n], &Device::flex());
            read(&sparsegrad_solvers::sparse_solve(&m, identity, sparsegrad_solvers::Direct::lu()).x)
        };
        for (row, column, value) in a.triplets().unwrap() {
            assert!((m[row * n + column] - value).abs() < 1e-12);
        }
    }
}

#[test]
fn breakdowns_are_shifted_and_reported() {
    // Positive definite, and yet IC(0) meets a negative pivot (Kershaw 1978).
    let entries = [
        (0, 0, 3.0),
        (0, 1, -2.0),
        (0, 3, 2.0),
        (1, 0, -2.0),
        (1, 1, 3.0),
        (1, 2, -2.0),
        (2, 1, -2.0),
        (2, 2, 3.0),
        (2, 3, -2.0),
        (3, 0, 2.0),
        (3, 2, -2.0),
        (3, 3, 3.0),
    ];
    let a = sparse(&entries, [4, 4], &Device::flex());
    let note = Ic0.build(&a).unwrap().note.unwrap();
    assert!(note.contains("broke down in row 3") && note.contains("shifted"), "{note}");
    check_transpose(&a, &Ic0);
    let a = sparse(&[(0, 0, 0.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)], [2, 2], &Device::flex());
    let note = Ilu0.build(&a).unwrap().note.unwrap();
    assert!(note.contains("ILU(0) broke down in row 0"), "{note}");
}

#[test]
fn what_cannot_be_preconditioned_is_said() {
    let device = Device::flex();
    let hollow = sparse(&[(0, 0, 1.0), (1, 0, 1.0)], [2, 2], &device);
    for recipe in [&Jacobi as &dyn Preconditioner, &Ssor::new(1.0), &Ic0, &Ilu0] {
        assert!(matches!(recipe.build(&hollow), Err(PreconditionerError::NoDiagonal { row: 1, .. })));
    }
    let zero = sparse(&[(0, 0, 1.0), (1, 1, 0.0)], [2, 2], &device);
    for recipe in [&Jacobi as &dyn Preconditioner, &Ssor::new(1.0), &Ic0] {
        assert!(matches!(recipe.build(&zero), Err(PreconditionerError::Diagonal { row: 1, .. })));
    }
    assert!(matches!(Ilu0.build(&zero), Err(PreconditionerError::Breakdown { row: 1, .. })));
    let singular = BlockJacobi::new(2).build(&hollow).unwrap_err();
    assert_eq!(singular.to_string(), "block Jacobi: the block of rows 0..2 is singular");
    assert!(matches!(BlockJacobi::new(3).build(&zero), Err(PreconditionerError::BlockSize { rows: 2, .. })));
    let nan = sparse(&[(0, 0, f64::NAN)], [1, 1], &device);
    assert!(matches!(Ilu0.build(&nan), Err(PreconditionerError::NotFinite { row: 0, column: 0, .. })));
    let wide = sparse(&[(0, 0, 1.0)], [1, 2], &device);
    assert!(matches!(Jacobi.build(&wide), Err(PreconditionerError::NotSquare { rows: 1, columns: 2, .. })));
    let free = sparsegrad_solvers::operator::FnOperator::symmetric(2, DType::F64, &device, (), |_, x| x);
    assert!(matches!(Ic0.build(&free), Err(PreconditionerError::NoMatrix { .. })));
}

/// A batch is preconditioned item by item; f32 in its own type.
#[test]
fn batches_and_single_precision() {
    let items: Vec<_> =
        [[3, 2], [2, 3]].map(|size| gallery::poisson(size, (&Device::flex(), DType::F32)).unwrap()).into();
    let batch = SparseTensor::stack(&items).unwrap();
    let b = Tensor::<2>::ones([12, 1], (&Device::flex(), DType::F32));
    for recipe in [&Jacobi as &dyn Preconditioner, &BlockJacobi::new(3), &Ssor::new(1.1), &Ic0, &Ilu0] {
        let inverse = recipe.build(&batch).unwrap().operator;
        assert_eq!((inverse.items(), inverse.dtype()), (2, DType::F32));
        let together = read(&inverse.apply(b.clone()));
        for (item, a) in items.iter().enumerate() {
            let alone = recipe.build(a).unwrap().operator.apply(b.clone().slice_dim(0, 0..6));
            assert_eq!(together[6 * item..6 * item + 6], read(&alone));
        }
    }
    assert_eq!(Ic0.build(&items[0]).unwrap().operator.tags(), Tags::POSITIVE_DEFINITE);
    let _ = numbers(0, 1);
}
