//! What is chosen, and what a plan remembers.

use crate::{assert_near, numbers, read, sparse, vector};
use sparsegrad::gallery::{self, Grid};
use sparsegrad::prelude::*;
use sparsegrad_solvers::operator::{Compose, FnOperator};
use sparsegrad_solvers::precond::Ic0;
use sparsegrad_solvers::{Auto, Cg, Direct, LinearOperator, Lsmr, Plan, Tags, solve, sparse_lstsq, sparse_solve};

fn chosen(a: &SparseTensor<2>) -> String {
    let ones = Tensor::<1>::ones([a.shape()[1]], (&a.device(), a.dtype()));
    let solution = solve(a, a.matvec(ones));
    assert!(solution.report.outcome.is_converged(), "{}", solution.report);
    solution.report.notes.join("; ")
}

#[test]
fn the_choice_fits_the_matrix() {
    let device = Device::flex();
    let poisson = gallery::poisson([8, 8], (&device, DType::F64)).unwrap();
    assert!(chosen(&poisson).starts_with("chose LLT: symmetric, positive diagonal"));
    let indefinite = sparse(&[(0, 0, 1.0), (0, 1, 3.0), (1, 0, 3.0), (1, 1, 1.0)], [2, 2], &device);
    let note = chosen(&indefinite);
    assert!(note.starts_with("chose LDLT") && note.contains("LLT was tried: not positive definite"), "{note}");
    let exchange = sparse(&[(0, 1, 1.0), (1, 0, 1.0)], [2, 2], &device);
    assert!(chosen(&exchange).starts_with("chose L"), "{}", chosen(&exchange));
    let triangle = sparse(&[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 2.0)], [2, 2], &device);
    assert!(chosen(&triangle).starts_with("chose LU: not symmetric"));
    // Singular and consistent.
    let singular = sparse(&[(0, 0, 1.0), (1, 1, 2.0), (2, 2, 0.0)], [3, 3], &device);
    let note = chosen(&singular);
    assert!(note.starts_with("chose MINRES"), "{note}");
    let nilpotent = sparse(&[(0, 1, 1.0), (1, 1, 1.0)], [3, 3], &device);
    assert!(chosen(&nilpotent).starts_with("chose "), "{}", chosen(&nilpotent));
}

#[test]
fn least_squares_are_chosen_by_shape_and_rank() {
    let device = Device::flex();
    let tall = sparse(&[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 1, 2.0)], [3, 2], &device);
    let b = vector(&[1.0, 0.0, 3.0], &device);
    let solution = sparse_lstsq(&tall, b.clone(), Auto::new());
    assert!(solution.report.notes[0].starts_with("chose QR"), "{:?}", solution.report.notes);
    let deficient = sparse(&[(0, 0, 1.0), (1, 0, 1.0), (0, 1, 2.0), (1, 1, 2.0)], [3, 2], &device);
    let solution = sparse_lstsq(&deficient, b, Auto::new().tolerance(1e-12));
    assert!(solution.report.notes[0].starts_with("chose LSMR"), "{:?}", solution.report.notes);
    // The solution of minimum norm: x is a multiple of (1, 2).
    assert_near(&read(&solution.x), &[0.1, 0.2], 1e-10);
}

#[test]
fn matrix_free_operators_are_chosen_by_tags() {
    let device = Device::flex();
    let scale = || FnOperator::symmetric(3, DType::F64, &device, (), |_: &(), x| x * 2.0);
    let b = vector(&[2.0, 4.0, 6.0], &device);
    for (operator, name) in [
        (scale().tagged(Tags::POSITIVE_DEFINITE), "chose CG: matrix-free, positive definite"),
        (scale(), "chose MINRES: matrix-free, symmetric"),
        (scale().tagged(Tags::NONE), "chose GMRES: matrix-free"),
    ] {
        let solution = solve(&operator, b.clone());
        assert_eq!(solution.report.notes[0], name);
        assert_near(&read(&solution.x), &[1.0, 2.0, 3.0], 1e-8);
    }
}

/// The backward pass goes on with what the forward pass has found to work.
#[test]
fn gradients_of_a_chosen_method() {
    let device = Device::flex().autodiff();
    let a = sparse(&[(0, 0, 1.0), (0, 1, 3.0), (1, 0, 3.0), (1, 1, 1.0)], [2, 2], &device).require_grad();
    let b = vector(&[4.0, 4.0], &device);
    let by = |x: Tensor<1>| read(a.grad(&x.sum().backward()).unwrap().values());
    let auto = by(solve(&a, b.clone()).into_result().unwrap());
    let lu = by(sparse_solve(&a, b, Direct::lu()).into_result().unwrap());
    assert_near(&auto, &lu, 1e-12);
}

#[test]
fn plans_remember() {
    let device = Device::flex();
    let b = vector(&numbers(1, 256), &device);
    let system = |step: usize| {
        let k = Tensor::<2>::ones([16, 16], (&device, DType::F64)) * (1.0 + 1e-10 * step as f64);
        Grid::new([16, 16]).unwrap().laplacian(k).unwrap()
    };
    let cold = sparse_solve(&system(0), b.clone(), Cg::new().precondition(Ic0)).report.iterations;
    let plan = Plan::new(Cg::new().precondition(Ic0)).warm_start().refresh_every(3);
    for step in 0..5 {
        let solution = plan.solve(&system(step), b.clone());
        let iterations = solution.report.iterations;
        assert!(if step == 0 { iterations == cold } else { iterations < cold }, "step {step}: {iterations} of {cold}");
        let _ = solution.into_result().unwrap();
    }
    plan.forget();
    assert_eq!(plan.solve(&system(0), b.clone()).report.iterations, cold);
    // Another shape, and another number of columns.
    let small = gallery::poisson([4], (&device, DType::F64)).unwrap();
    let _ = plan.solve(&small, Tensor::<2>::ones([4, 3], (&device, DType::F64))).into_result().unwrap();
    let _ = plan.solve(&small, Tensor::<2>::ones([4, 2], (&device, DType::F64))).into_result().unwrap();
}

/// A plan's gradients are those of its method, in least squares as well, whose backward pass solves forwards, too.
#[test]
fn plans_are_differentiable() {
    let device = Device::flex().autodiff();
    let a = sparse(&[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 1, 2.0)], [3, 2], &device).require_grad();
    let b = vector(&[1.0, 0.0, 3.0], &device);
    let by = |x: Tensor<1>| read(a.grad(&x.sum().backward()).unwrap().values());
    let alone = by(sparse_lstsq(&a, b.clone(), Lsmr::new().tolerance(1e-12)).into_result().unwrap());
    let plan = Plan::new(Lsmr::new().tolerance(1e-12)).warm_start();
    for _ in 0..3 {
        assert_near(&by(sparse_lstsq(&a, b.clone(), &plan).into_result().unwrap()), &alone, 1e-9);
    }
}

#[test]
fn composed_operators_are_solved_with() {
    let device = Device::flex();
    let a = sparse(&[(0, 0, 1.0), (0, 1, 2.0), (1, 1, 1.0)], [2, 2], &device);
    let gram = a.clone().transposed().times(a).shifted(0.5);
    let expected = vector(&[1.0, -2.0], &device);
    let b: Tensor<1> = gram.apply(expected.clone().unsqueeze_dim(1)).flatten(0, 1);
    let x = sparse_solve(&gram, b, Cg::new().tolerance(1e-12)).into_result().unwrap();
    assert_near(&read(&x), &read(&expected), 1e-10);
}
