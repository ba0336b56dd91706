//! Triangular solves: errors, gradients of gradients, bits, and golden vectors. Numbers in every layout are in the op table.

use crate::common::{Host, Layout, Numbers, matrix, read, vector};
use sparsegrad::error::TriangularError;
use sparsegrad::ops::trisolve::Check;
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use sparsegrad::{Triangular, sparse_triangular_solve as solve, vjp};

fn device() -> Device {
    Device::flex().autodiff()
}

fn all_options() -> impl Iterator<Item = Triangular> {
    (0..8).map(|at| {
        let side = if at & 1 == 0 { Triangular::lower() } else { Triangular::upper() };
        let side = if at & 2 == 0 { side } else { side.unit_diagonal() };
        if at & 4 == 0 { side } else { side.transpose() }
    })
}

/// Both triangles, unsorted, with duplicates; the diagonal away from zero.
fn host(n: usize) -> Host {
    let mut host = Host::random("square", [n, n], 3, 5);
    host.values.iter_mut().for_each(|v| *v *= 0.25);
    for i in 0..n {
        host.rows.insert(i, i);
        host.cols.insert(i, i);
        host.values.insert(i, 4.0 + i as f64 / n as f64);
    }
    host
}

/// torchsparsegradutils 0.2.5, sparse_triangular_solve.
#[test]
fn tsgu_sparse_triangular_solve() {
    let full = ([0, 1, 1, 2, 2], [0, 0, 1, 1, 2], [2., 1., 3., 4., 5.]);
    let strict = ([1, 2], [0, 1], [1., 4.]);
    let b = || matrix(&[1., 2., 3., 4., 5., 6.], [3, 2], DType::F64, &device()).require_grad();
    let g = matrix(&[1., 0., 2., 1., 3., -1.], [3, 2], DType::F64, &device());
    let check = |a: SparseTensor<2>, options, expected: [&[f64]; 3]| {
        let (a, b) = (a.require_grad(), b());
        let x = solve(&a, b.clone(), options).unwrap();
        let grads = vjp::backward(&x, g.clone());
        let found = [read(&x), read(a.grad(&grads).unwrap().values()), read(&b.grad(&grads).unwrap())];
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 2e-6, "{options:?}: {found} for {expected}");
            }
        }
    };
    let full = || SparseTensor::from_triplets(full.0, full.1, full.2, [3, 3], &device()).unwrap();
    let strict = || SparseTensor::from_triplets(strict.0, strict.1, strict.2, [3, 3], &device()).unwrap();
    let lower = Triangular::lower();
    check(
        full(),
        lower,
        [
            &[0.5, 1., 0.833333, 1., 0.333333, 0.4],
            &[0.0166667, -0.533333, -0.488889, -0.3, -0.12],
            &[0.566667, -0.3, -0.133333, 0.6, 0.6, -0.2],
        ],
    );
    check(strict(), lower.unit_diagonal(), [&[1., 2., 2., 2., -3., -2.], &[0., -4.], &[11., -5., -10., 5., 3., -1.]]);
    check(
        full(),
        lower.transpose(),
        [
            &[0.666667, 1.133333, -0.333333, -0.266667, 1., 1.2],
            &[-0.333333, 0.166667, 0.255556, -0.9, 0.36],
            &[0.5, 0., 0.5, 0.333333, 0.2, -0.466667],
        ],
    );
    check(
        strict(),
        lower.unit_diagonal().transpose(),
        [&[18., 22., -17., -20., 5., 6.], &[17., -11.], &[1., 0., 1., 1., -1., -5.]],
    );
}

#[test]
fn gradients_and_second_derivatives() {
    let k = 2;
    for layout in Layout::ALL {
        let (a, host) = layout.build(&host(7), DType::F64, &Device::flex());
        let (pattern, b) = (a.pattern().clone(), Numbers(3).values(7 * k));
        for options in all_options() {
            for device in [device(), device().gradient_checkpointing()] {
                gradcheck(&device, &[host.values.clone(), b.clone()], 1e-7, |x| {
                    let a = SparseTensor::new(pattern.clone(), x[0].clone()).unwrap();
                    let x = solve(&a, x[1].clone().reshape([7, k]), options).unwrap();
                    x.powi_scalar(2).reshape([7 * k])
                })
                .unwrap_or_else(|error| panic!("{layout:?} {options:?}: {error}"));
            }
            // The gradient of |tanh x|^2 / 2 as a function, differentiated once more.
            gradcheck(&device(), &[host.values.clone(), b.clone()], 1e-6, |inputs| {
                let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
                let x = solve(&a, inputs[1].clone().reshape([7, k]), options).unwrap();
                let upstream = x.clone().tanh();
                let (da, db) = vjp::sparse_triangular_solve(&a, x, upstream, options).unwrap();
                Tensor::cat(vec![da.values().clone(), db.reshape([7 * k])], 0)
            })
            .unwrap_or_else(|error| panic!("{layout:?} {options:?}, twice: {error}"));
        }
    }
}

#[test]
fn what_cannot_be_solved_is_refused() {
    let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[1., 2., 3., 4.], [2, 2], &device()).unwrap();
    let b = vector(&[1., 1.], DType::F64, &device());
    let strict = |options: Triangular| solve(&a, b.clone(), options.check(Check::Strict));
    assert_eq!(
        strict(Triangular::lower()).unwrap_err(),
        TriangularError::Ignored { position: 1, row: 0, column: 1, item: None }
    );
    assert_eq!(
        strict(Triangular::upper().unit_diagonal().transpose()).unwrap_err().to_string(),
        "entry 0 (0, 0) would be ignored: it is in the other triangle, or on a diagonal that is taken as ones"
    );
    let upper = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[1., 2., 4.], [2, 2], &device()).unwrap();
    assert!(solve(&upper, b.clone(), Triangular::upper().check(Check::Strict)).is_ok());
    let wide = SparseTensor::from_triplets(&[0], &[2], &[1.], [2, 3], &device()).unwrap();
    let error = solve(&wide, b.clone(), Triangular::upper()).unwrap_err();
    assert_eq!(error.to_string(), "a triangular solve needs a square matrix, and this is 2x3");
    let long = vector(&[1., 1., 1.], DType::F64, &device());
    let error = solve(&upper, long, Triangular::upper()).unwrap_err();
    assert_eq!(error.to_string(), "sparse_triangular_solve: A and B must have as many rows: [2, 2] and [3]");
}

#[test]
fn errors_of_a_batch_name_the_item() {
    let item = |rows: &[usize], values: &[f64]| {
        let device = device();
        SparseTensor::from_triplets(rows, rows, values, [2, 2], &device).unwrap()
    };
    let b = Tensor::<3>::ones([2, 2, 1], (&device(), DType::F64));
    let batch = SparseTensor::stack(&[item(&[0, 1], &[1., 1.]), item(&[0], &[1.])]).unwrap();
    let error = solve(&batch, b.clone(), Triangular::lower()).unwrap_err();
    assert_eq!(error, TriangularError::MissingDiagonal { row: 1, item: Some(1) });
    assert!(error.to_string().starts_with("no diagonal entry in row 1 of item 1: "));
    for check in [Check::Usual, Check::Zeros] {
        let batch = SparseTensor::stack(&[item(&[0, 1], &[1., 1.]), item(&[0, 1], &[1., 0.])]).unwrap();
        let error = solve(&batch, b.clone(), Triangular::lower().check(check)).unwrap_err();
        assert_eq!(error, TriangularError::ZeroDiagonal { row: 1, item: Some(1), value: 0. });
    }
    let few = Tensor::<3>::ones([1, 2, 1], (&device(), DType::F64));
    assert!(matches!(solve(&batch, few, Triangular::lower()), Err(TriangularError::Operands(_))));
}

#[test]
fn numbers_that_are_not_finite_stay_where_they_belong() {
    // Row 2 does not depend on row 0; a stored zero of row 1 does.
    let a = SparseTensor::from_triplets(&[0, 1, 1, 2], &[0, 0, 1, 2], &[1., 0., 1., 2.], [3, 3], &device()).unwrap();
    let x = solve(&a, vector(&[f64::INFINITY, 1., 4.], DType::F64, &device()), Triangular::lower()).unwrap();
    let x = read(&x);
    assert!(x[0] == f64::INFINITY && x[1].is_nan() && x[2] == 2., "{x:?}");
}

#[test]
fn bits_do_not_depend_on_threads() {
    let n = 9000;
    let host = host(n);
    for layout in [Layout::Coo, Layout::Csr, Layout::Csc] {
        for (dtype, k) in [(DType::F64, 1), (DType::F64, 8), (DType::F32, 13), (DType::F64, 40), (DType::F16, 8)] {
            let bits = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let values = crate::common::vector(&host.values, dtype, &device());
                    let coo = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device()).unwrap();
                    let a = match layout {
                        Layout::Csr => coo.to_csr(),
                        Layout::Csc => coo.to_csc(),
                        _ => coo,
                    };
                    let a = a.detach().require_grad();
                    let b = matrix(&Numbers(2).values(n * k), [n, k], dtype, &device()).require_grad();
                    let x = solve(&a, b.clone(), Triangular::lower()).unwrap();
                    let grads = vjp::backward(&x, matrix(&Numbers(4).values(n * k), [n, k], dtype, &device()));
                    let all = [read(&x), read(a.grad(&grads).unwrap().values()), read(&b.grad(&grads).unwrap())];
                    all.concat().into_iter().map(f64::to_bits).collect::<Vec<_>>()
                })
            };
            let one = bits(1);
            for threads in [2, 3, 4] {
                assert!(bits(threads) == one, "{layout:?} {dtype:?}, {k} columns, {threads} threads");
            }
        }
    }
}
