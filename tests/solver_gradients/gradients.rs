//! Gradients against central differences.

use crate::{numbers, sparse, vector};
use burn::tensor::Tensor;
use sparsegrad::{prelude::*, testing::gradcheck};
use sparsegrad_solvers::operator::{Compose, FnOperator};
use sparsegrad_solvers::precond::{BlockJacobi, Ic0, Ilu0, Jacobi, Ssor};
use sparsegrad_solvers::{Auto, BiCgStab, Cg, Cgs, Direct, Gmres, Lsmr, Method, MinRes, sparse_lstsq, sparse_solve};

fn reshaped<const D: usize>(x: &Tensor<1>, shape: [usize; D]) -> Tensor<D> {
    x.clone().reshape(shape)
}

fn flat<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    x.flatten(0, D - 1)
}

/// A square pattern with a duplicate on the diagonal, an absent mirror and unsorted rows; diagonally dominant values.
fn square() -> (Pattern, Vec<f64>) {
    let pattern = Pattern::coo([0, 0, 1, 1, 2, 2, 3, 3, 3], [0, 2, 1, 0, 2, 2, 3, 1, 0], [4, 4]).unwrap();
    (pattern, vec![4.0, 1.0, 3.0, -0.5, 1.5, 2.0, 5.0, 1.0, 0.7])
}

/// Symmetric values at a full symmetric pattern, from those of its lower triangle.
fn symmetric(lower: &Tensor<1>) -> SparseTensor<2> {
    let pattern = Pattern::coo([0, 1, 1, 2, 2, 0, 1], [0, 0, 1, 1, 2, 1, 2], [3, 3]).unwrap();
    let mirrored = lower.clone().select(0, Tensor::from_data([0, 1, 2, 3, 4, 1, 3], &lower.device()));
    SparseTensor::new(pattern, mirrored).unwrap()
}

fn check_square(method: impl Method + Clone) {
    let (pattern, values) = square();
    gradcheck(&Device::flex(), &[values, numbers(1, 8)], 1e-7, |inputs| {
        let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
        flat(sparse_solve(&a, reshaped(&inputs[1], [4, 2]), method.clone()).into_result().unwrap())
    })
    .unwrap();
}

fn check_symmetric(method: impl Method + Clone) {
    let lower = vec![4.0, 1.0, 5.0, -2.0, 6.0];
    gradcheck(&Device::flex(), &[lower, numbers(2, 3)], 1e-7, |inputs| {
        sparse_solve(&symmetric(&inputs[0]), inputs[1].clone(), method.clone()).into_result().unwrap()
    })
    .unwrap();
}

#[test]
fn direct_methods() {
    check_square(Direct::lu());
    check_square(Direct::qr());
    check_symmetric(Direct::llt());
    check_symmetric(Direct::ldlt());
    check_symmetric(Direct::lu());
    check_symmetric(Direct::qr());
}

/// Pairs of batch and shared operands.
#[test]
fn batches() {
    let (pattern, values) = square();
    let pattern = pattern.to_csr().pattern;
    let twice: Vec<f64> = values.iter().chain(values.iter().rev()).map(|v| v + 0.1).collect();
    let batch = |v: &Tensor<1>| SparseTensor::shared(&pattern, reshaped(v, [2, 9])).unwrap();
    let one = |v: &Tensor<1>| SparseTensor::new(pattern.clone(), v.clone()).unwrap();
    let device = Device::flex();
    gradcheck(&device, &[twice.clone(), numbers(3, 16)], 1e-7, |inputs| {
        flat(sparse_solve(&batch(&inputs[0]), reshaped(&inputs[1], [2, 4, 2]), Direct::lu()).into_result().unwrap())
    })
    .unwrap();
    gradcheck(&device, &[twice, numbers(4, 8)], 1e-7, |inputs| {
        flat(sparse_solve(&batch(&inputs[0]), reshaped(&inputs[1], [4, 2]), Direct::lu()).into_result().unwrap())
    })
    .unwrap();
    gradcheck(&device, &[values, numbers(5, 24)], 1e-7, |inputs| {
        flat(sparse_solve(&one(&inputs[0]), reshaped(&inputs[1], [3, 4, 2]), Direct::lu()).into_result().unwrap())
    })
    .unwrap();
}

/// A batch gives what its items give.
#[test]
fn a_batch_is_its_items() {
    let device = Device::flex();
    let items = [
        sparse(&[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)], [2, 2], &device),
        sparse(&[(0, 1, 2.0), (1, 0, 1.0)], [2, 2], &device),
    ];
    let b = Tensor::<3>::from_data([[[1.0], [2.0]], [[3.0], [4.0]]], (&device, DType::F64));
    let batch = SparseTensor::stack(&items).unwrap();
    let solution = sparse_solve(&batch, b.clone(), Direct::lu());
    assert_eq!(solution.report.relative_residuals.len(), 2);
    let x = crate::read(&solution.x);
    for (item, a) in items.iter().enumerate() {
        let alone = sparse_solve(a, reshaped(&flat(b.clone()).slice_dim(0, 2 * item..2 * item + 2), [2]), Direct::lu());
        crate::assert_near(&x[2 * item..2 * item + 2], &crate::read(&alone.x), 1e-15);
    }
}

#[test]
fn tall_least_squares() {
    let pattern = Pattern::coo([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 2, 0, 2, 2, 2], [4, 3]).unwrap();
    let values = vec![1.0, 2.0, 3.0, 1.0, 5.0, 6.0, 0.3, 0.7];
    gradcheck(&Device::flex(), &[values, vec![1.0, 2.0, 3.0, 5.0]], 1e-7, |inputs| {
        let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
        sparse_lstsq(&a, inputs[1].clone(), Direct::qr()).into_result().unwrap()
    })
    .unwrap();
}

#[test]
fn wide_least_squares() {
    let pattern = Pattern::coo([0, 0, 0, 1, 1], [0, 1, 3, 1, 2], [2, 4]).unwrap();
    let values = vec![1.0, 2.0, -1.0, 3.0, 0.5];
    gradcheck(&Device::flex(), &[values, numbers(6, 4)], 1e-7, |inputs| {
        let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
        flat(sparse_lstsq(&a, reshaped(&inputs[1], [2, 2]), Direct::qr()).into_result().unwrap())
    })
    .unwrap();
}

/// Only what is asked for is computed, and constants stay constants.
#[test]
fn untracked_operands() {
    let device = Device::flex().autodiff();
    let a = sparse(&[(0, 0, 2.0), (1, 0, 1.0), (1, 1, 4.0)], [2, 2], &device);
    let b = vector(&[2.0, 4.0], &device);
    let x = sparse_solve(&a, b.clone().require_grad(), Direct::lu()).x;
    let grads = x.sum().backward();
    assert!(a.grad(&grads).is_none());
    let tracked = a.clone().require_grad();
    let grads = sparse_solve(&tracked, b.clone(), Direct::lu()).x.sum().backward();
    assert!(b.grad(&grads).is_none() && tracked.grad(&grads).is_some());
    // A plain right-hand side with a tracked matrix, and without any autodiff.
    let plain = vector(&[2.0, 4.0], &Device::flex());
    let grads = sparse_solve(&tracked, plain.clone(), Direct::lu()).x.sum().backward();
    assert!(tracked.grad(&grads).is_some());
    assert!(!sparse_solve(&a.detach().map_values(Tensor::inner), plain, Direct::lu()).x.device().is_autodiff());
}

/// Nothing to solve for leaves the graph whole.
#[test]
fn empty_operands() {
    let device = Device::flex().autodiff();
    let a = sparse(&[(0, 0, 2.0), (1, 1, 4.0)], [2, 2], &device).require_grad();
    let b = Tensor::<2>::zeros([2, 0], (&device, DType::F64));
    let x = sparse_solve(&a, b, Direct::lu()).into_result().unwrap();
    assert_eq!(x.dims(), [2, 0]);
    let nothing = sparse(&[], [0, 0], &device);
    let x = sparse_solve(&nothing, Tensor::<1>::zeros([0], (&device, DType::F64)), Direct::lu());
    assert_eq!(x.into_result().unwrap().dims(), [0]);
}

/// Tight enough for the differences to be those of the exact solution.
const TIGHT: f64 = 1e-13;

#[test]
fn krylov_methods() {
    check_symmetric(Cg::new().tolerance(TIGHT));
    check_symmetric(Cg::new().tolerance(TIGHT).precondition(Ic0));
    check_symmetric(Cg::new().tolerance(TIGHT).precondition(Jacobi));
    check_symmetric(MinRes::new().tolerance(TIGHT));
    check_square(BiCgStab::new().tolerance(TIGHT));
    check_square(BiCgStab::new().tolerance(TIGHT).precondition(Ilu0));
    check_square(Gmres::new().tolerance(TIGHT));
    check_square(Gmres::new().tolerance(TIGHT).precondition(Ssor::new(1.2)));
    check_square(Cgs::new().tolerance(TIGHT).precondition(BlockJacobi::new(2)));
    check_square(Lsmr::new().tolerance(TIGHT));
    check_square(Auto::new().tolerance(1e-12));
}

#[test]
fn krylov_least_squares() {
    let pattern = Pattern::coo([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 2, 0, 2, 2, 2], [4, 3]).unwrap();
    let values = vec![1.0, 2.0, 3.0, 1.0, 5.0, 6.0, 0.3, 0.7];
    for transposed in [false, true] {
        let (m, method) = (if transposed { 3 } else { 4 }, Lsmr::new().tolerance(TIGHT));
        gradcheck(&Device::flex(), &[values.clone(), numbers(7, 2 * m)], 1e-7, |inputs| {
            let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
            let a = if transposed { a.t() } else { a };
            flat(sparse_lstsq(&a, reshaped(&inputs[1], [m, 2]), method.clone()).into_result().unwrap())
        })
        .unwrap();
    }
}

/// The third column is the sum of the others, whatever the inputs: the rank stays 2.
#[test]
fn rank_deficient_least_squares() {
    let pattern =
        Pattern::coo([0, 1, 2, 0, 2, 3, 0, 1, 2, 0, 2, 3], [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2], [4, 3]).unwrap();
    for transposed in [false, true] {
        let m = if transposed { 3 } else { 4 };
        gradcheck(&Device::flex(), &[vec![1.0, 2.0, -1.0, 3.0, 0.5, 1.5], numbers(9, m)], 1e-6, |inputs| {
            let values = Tensor::cat(vec![inputs[0].clone(), inputs[0].clone()], 0);
            let a = SparseTensor::new(pattern.clone(), values).unwrap();
            let a = if transposed { a.t() } else { a };
            sparse_lstsq(&a, inputs[1].clone(), Lsmr::new().tolerance(TIGHT)).into_result().unwrap()
        })
        .unwrap();
    }
}

/// With damping, of any rank.
#[test]
fn damped_least_squares() {
    for damp in [0.1, 1e-3] {
        let pattern = Pattern::coo([0, 1, 2, 0, 2, 0, 1], [0, 0, 0, 1, 1, 2, 2], [3, 3]).unwrap();
        let values = vec![1.0, 2.0, -1.0, 3.0, 0.5, 1.5, 0.7];
        gradcheck(&Device::flex(), &[values, numbers(10, 3)], 1e-6, |inputs| {
            let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
            sparse_lstsq(&a, inputs[1].clone(), Lsmr::new().tolerance(1e-11).damp(damp)).into_result().unwrap()
        })
        .unwrap();
    }
}

/// The parameters of a matrix-free operator get their gradients.
#[test]
fn matrix_free() {
    // (D + shift P) x, with the diagonal D and P the cyclic permutation.
    let roll = |x: Tensor<2>, down: bool| {
        let order = if down { [2, 0, 1] } else { [1, 2, 0] };
        x.clone().select(0, Tensor::from_data(order, &x.device()))
    };
    gradcheck(&Device::flex(), &[vec![4.0, 5.0, 6.0], vec![1.5], numbers(11, 3)], 1e-7, |inputs| {
        let device = inputs[0].device();
        let parameters = (inputs[0].clone(), inputs[1].clone());
        let diagonal = |d: &Tensor<1>, x: Tensor<2>| x * d.clone().unsqueeze_dim(1);
        let shift = |s: &Tensor<1>, x: Tensor<2>| x * s.clone().unsqueeze_dim(1);
        let a = FnOperator::new(
            [3, 3],
            DType::F64,
            &device,
            parameters,
            move |(d, s): &(Tensor<1>, Tensor<1>), x: Tensor<2>| diagonal(d, x.clone()) + shift(s, roll(x, true)),
            move |(d, s): &(Tensor<1>, Tensor<1>), y: Tensor<2>| diagonal(d, y.clone()) + shift(s, roll(y, false)),
        );
        sparse_solve(&a, inputs[2].clone(), Gmres::new().tolerance(TIGHT)).into_result().unwrap()
    })
    .unwrap();
}

/// Composed operators pass gradients to all of their parts.
#[test]
fn composed() {
    let (pattern, values) = square();
    gradcheck(&Device::flex(), &[values, vec![0.5], numbers(12, 4)], 1e-7, |inputs| {
        let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
        let gram = a.clone().transposed().times(a).shifted(inputs[1].clone());
        sparse_solve(&gram, inputs[2].clone(), Cg::new().tolerance(1e-12)).into_result().unwrap()
    })
    .unwrap();
}

/// Batches by an iteration.
#[test]
fn batches_by_an_iteration() {
    let (pattern, values) = square();
    let pattern = pattern.to_csr().pattern;
    let twice: Vec<f64> = values.iter().chain(values.iter()).map(|v| v + 0.1).collect();
    gradcheck(&Device::flex(), &[twice, numbers(13, 16)], 1e-7, |inputs| {
        let a = SparseTensor::shared(&pattern, reshaped(&inputs[0], [2, 9])).unwrap();
        let method = BiCgStab::new().tolerance(TIGHT).precondition(Ilu0);
        flat(sparse_solve(&a, reshaped(&inputs[1], [2, 4, 2]), method).into_result().unwrap())
    })
    .unwrap();
}
