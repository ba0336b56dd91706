//! NaN, zeros and empties.

use super::*;

/// scipy/scipy#7532, JuliaSparse/SparseArrays.jl#55: absent entries never touch the operand, stored zeros do.
#[test]
fn scipy_7532_nan_meets_stored_entries_only() {
    let nan = f64::NAN;
    // [[nan, 1], [2, 3]] times sparse [[0, 0], [0, 1]] is the transposed product of its transpose.
    let s = coo([2, 2], &[1], &[1], &[1.]);
    let left = dense([[nan, 1.], [2., 3.]]);
    let product = s.t().matmul(left.transpose()).transpose();
    assert_eq!(read(&product), [0., 1., 0., 3.]);

    let eye = SparseTensor::eye_of(2, DType::F64, &device()).unwrap();
    let y = read(&eye.matvec(vector(&[nan, 1.])));
    assert!(y[0].is_nan() && y[1] == 1.0);

    let stored_zero = coo([1, 2], &[0], &[0], &[0.]);
    assert!(read(&stored_zero.matvec(vector(&[f64::INFINITY, 1.])))[0].is_nan());
    let absent = coo([1, 2], &[0], &[1], &[1.]);
    assert_eq!(read(&absent.matvec(vector(&[f64::INFINITY, 1.]))), [1.]);
}

/// pytorch/pytorch#16543, #19546: a matrix without entries gave uninitialised numbers.
#[test]
fn pytorch_16543_nothing_stored_is_zero() {
    let a = coo([3, 10], &[], &[], &[]);
    let b = Tensor::<2>::ones([10, 150], (&device(), DType::F64)).require_grad();
    let c = a.matmul(b.clone());
    assert_eq!(c.dims(), [3, 150]);
    assert!(read(&c).iter().all(|&x| x == 0.0));
    let grads = c.sum().backward();
    assert_eq!(a.grad(&grads).unwrap().values().dims(), [0]);
    assert!(read(&b.grad(&grads).unwrap()).iter().all(|&x| x == 0.0));
}

/// pytorch/pytorch#85169: a product over nothing still has its beta.
#[test]
fn pytorch_85169_sddmm_with_no_columns() {
    let c = SparseTensor::eye_of(5, DType::F64, &device()).unwrap();
    let nothing = || Tensor::<2>::zeros([5, 0], (&device(), DType::F64));
    let s = sddmm_with(&c, nothing(), nothing(), 0.6, 0.2);
    assert_eq!(read(s.values()), [0.2; 5]);
}

/// pytorch/pytorch#55917: alpha and beta.
#[test]
fn pytorch_55917_alpha_and_beta() {
    let a = coo([2, 2], &[0, 1], &[0, 1], &[1., 2.]);
    let b = dense([[1., 2.], [3., 4.]]);
    let c = dense([[10., 20.], [30., 40.]]);
    let addmm = c.clone() * 0.5 + a.matmul(b.clone()) * 2.0;
    assert_eq!(read(&addmm), [7., 14., 27., 36.]);
    let s = sddmm_with(&a, b, c.transpose(), 2.0, 0.5);
    assert_eq!(read(s.values()), [140.5, 441.]);
}

/// The beta of 0 reads nothing: a NaN in C does not show.
#[test]
fn sddmm_with_a_beta_of_zero_ignores_c() {
    let c = coo([1, 1], &[0], &[0], &[f64::NAN]);
    let s = sddmm_with(&c, dense([[2.]]), dense([[3.]]), 1.0, 0.0);
    assert_eq!(read(s.values()), [6.]);
}
