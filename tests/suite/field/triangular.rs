//! Triangular solves and their gradients.

use super::*;
use sparsegrad::error::TriangularError;
use sparsegrad::{Triangular, sparse_triangular_solve as solve, vjp};

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-8 * expected.abs().max(1.0), "{found} for {expected}");
    }
}

/// pytorch/pytorch#88890: unit diagonal, lower, transposed, several right-hand sides.
#[test]
fn pytorch_88890_unit_transposed_several_columns() {
    let a = coo([4, 4], &[1, 2, 3], &[0, 1, 1], &[2.6085, 0.1871, 0.9922]);
    let b = || dense([[1., 2.], [3., 4.], [5., 6.], [7., 8.]]);
    let x = solve(&a, b(), Triangular::lower().unit_diagonal().transpose()).unwrap();
    close(&read(&x), &[13.73182765, 15.1995317, -4.8809, -5.0602, 5., 6., 7., 8.]);
    let x = solve(&a, b(), Triangular::lower().unit_diagonal()).unwrap();
    close(&read(&x), &[1., 2., 0.3915, -1.217, 4.92675035, 6.2277007, 6.6115537, 9.2075074]);
}

/// scipy/scipy#15199: a unit diagonal that is not stored.
#[test]
fn scipy_15199_a_unit_diagonal_needs_not_be_stored() {
    let a = coo([3, 3], &[1, 2, 2], &[0, 0, 1], &[1., 1., 1.]);
    let options = Triangular::lower().unit_diagonal();
    assert_eq!(read(&solve(&a, vector(&[1., 2., 3.]), options).unwrap()), [1., 1., 1.]);
    assert_eq!(read(&solve(&a, vector(&[1., 2., 3.]), options.transpose()).unwrap()), [-1., -1., 3.]);
}

fn full() -> SparseTensor<2> {
    coo([2, 2], &[0, 0, 1, 1], &[0, 1, 0, 1], &[1., 2., 3., 4.])
}

/// scipy/scipy#14091: the other triangle was not ignored.
#[test]
fn scipy_14091_the_other_triangle_is_ignored() {
    assert_eq!(read(&solve(&full(), vector(&[1., 1.]), Triangular::upper()).unwrap()), [0.5, 0.25]);
    assert_eq!(read(&solve(&full(), vector(&[1., 1.]), Triangular::lower()).unwrap()), [1., -0.5]);
}

/// pymc-devs/pytensor#1230, torchsparsegradutils: the gradient leaks onto what is ignored.
#[test]
fn pytensor_1230_what_is_ignored_has_gradient_zero() {
    let a = full();
    let grads = solve(&a, vector(&[1., 1.]), Triangular::upper()).unwrap().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [-0.5, -0.25, 0., 0.0625]);
    let a = coo([2, 2], &[0, 0, 1], &[0, 1, 1], &[5., 2., 7.]);
    let x = solve(&a, vector(&[9., 7.]), Triangular::upper().unit_diagonal()).unwrap();
    assert_eq!(read(&x), [-5., 7.]);
    let grads = x.sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0., -7., 0.]);
    // Infinite values there change nothing.
    let a = coo([2, 2], &[0, 0, 1, 1], &[0, 1, 0, 1], &[1., 2., f64::INFINITY, 4.]);
    let x = solve(&a, vector(&[1., 1.]), Triangular::upper()).unwrap();
    assert_eq!(read(&x), [0.5, 0.25]);
    assert_eq!(read(a.grad(&x.sum().backward()).unwrap().values()), [-0.5, -0.25, 0., 0.0625]);
}

/// pytorch/pytorch#71304 and PR 76590, hypre-space/hypre PR 256, ROCm/hipSPARSE#575: nothing stored on the diagonal, or a zero.
#[test]
fn pytorch_71304_a_singular_diagonal_is_an_error() {
    let a = coo([3, 3], &[0, 1, 2, 2, 2], &[0, 0, 0, 1, 2], &[1., 2., 3., 4., 5.]);
    for options in [Triangular::lower(), Triangular::lower().transpose(), Triangular::upper()] {
        let error = solve(&a, vector(&[1., 1., 1.]), options).unwrap_err();
        assert_eq!(error, TriangularError::MissingDiagonal { row: 1, item: None });
        assert_eq!(
            error.to_string(),
            "no diagonal entry in row 1: a triangular solve needs one in every row (or unit_diagonal)"
        );
    }
    let zero = coo([2, 2], &[0, 1, 1], &[0, 0, 1], &[1., 2., 0.]);
    let error = solve(&zero, vector(&[1., 1.]), Triangular::lower()).unwrap_err();
    assert_eq!(error, TriangularError::ZeroDiagonal { row: 1, item: None, value: 0. });
    assert_eq!(error.to_string(), "the diagonal entry in row 1 is 0: a triangular solve divides by it");
    let nothing = coo([2, 2], &[], &[], &[]);
    let error = solve(&nothing, vector(&[1., 1.]), Triangular::lower()).unwrap_err();
    assert_eq!(error, TriangularError::MissingDiagonal { row: 0, item: None });
    assert_eq!(read(&solve(&nothing, vector(&[1., 2.]), Triangular::lower().unit_diagonal()).unwrap()), [1., 2.]);
    let none = coo([0, 0], &[], &[], &[]);
    assert_eq!(solve(&none, vector(&[]), Triangular::lower()).unwrap().dims(), [0]);
}

/// scipy/scipy#7449: an integer right-hand side truncated the solution. Here numbers are of the matrix's type, or refused.
#[test]
fn scipy_7449_nothing_is_truncated() {
    let a = coo([2, 2], &[0, 1, 1], &[0, 0, 1], &[3., 1., 2.]);
    let x = solve(&a, vector(&[1., 2.]), Triangular::lower()).unwrap();
    close(&read(&x), &[1. / 3., 5. / 6.]);
    let single = Tensor::<1>::ones([2], (&device(), DType::F32));
    let error = solve(&a, single, Triangular::lower()).unwrap_err();
    assert!(matches!(error, TriangularError::Operands(OpError::DTypes { .. })), "{error}");
}

/// Duplicates on the diagonal are summed, and each has the full gradient.
#[test]
fn duplicates_on_the_diagonal() {
    let a = coo([2, 2], &[0, 0, 1], &[0, 0, 1], &[1., 1., 4.]);
    let x = solve(&a, vector(&[2., 4.]), Triangular::lower()).unwrap();
    assert_eq!(read(&x), [1., 1.]);
    assert_eq!(read(a.grad(&x.sum().backward()).unwrap().values()), [-0.5, -0.5, -0.25]);
    // A sum of zero is one, too.
    let a = coo([1, 1], &[0, 0], &[0, 0], &[1., -1.]);
    let error = solve(&a, vector(&[2.]), Triangular::lower()).unwrap_err();
    assert_eq!(error, TriangularError::ZeroDiagonal { row: 0, item: None, value: 0. });
}

/// dgl/dgl#5045, torchsparsegradutils#81: the second derivative.
#[test]
fn tsgu_81_second_derivatives_of_a_solve() {
    let a = coo([2, 2], &[0, 1], &[0, 1], &[2., 4.]);
    let ones = dense([[1.], [1.]]);
    let x = solve(&a, ones.clone(), Triangular::lower()).unwrap();
    let (gradient, _) = vjp::sparse_triangular_solve(&a, x, ones, Triangular::lower()).unwrap();
    assert_eq!(read(gradient.values()), [-0.25, -0.0625]);
    let grads = gradient.values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0.25, 0.03125]);
}
