//! Products and their gradients.

use super::*;

/// pytorch/pytorch#172550 and PR 173997: gradients to both operands.
#[test]
fn pytorch_172550_gradients_to_both() {
    let a = coo([2, 3], &[0, 0, 1], &[0, 2, 1], &[1., 2., 3.]);
    let b = dense([[0., 1.], [2., 0.], [0., 0.]]);
    let c = a.matmul(b.clone());
    assert_eq!(read(&c), [0., 1., 6., 0.]);
    let grads = c.sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1., 0., 2.]);
    assert_eq!(read(&b.grad(&grads).unwrap()), [1., 1., 3., 3., 2., 2.]);
}

/// pytorch/pytorch#41128, #49683, #118883, tensorflow/tensorflow#11036: dense gradients of sparse matrices. The memory
/// suite measures; here a gradient exists where a dense one of 80 GB could not.
#[test]
fn pytorch_41128_the_gradient_has_nnz_values() {
    let n = 100_000;
    let a = coo([n, n], &[77], &[5], &[2.]);
    let x = Tensor::<1>::ones([n], (&device(), DType::F64)).require_grad();
    let grads = a.matvec(x.clone()).sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1.]);
    let dx = read(&x.grad(&grads).unwrap());
    assert_eq!((dx.len(), dx[5], dx.iter().sum::<f64>()), (n, 2., 2.));
}

/// pytorch/pytorch#1631: the gradient of a gather with repeats accumulates.
#[test]
fn pytorch_1631_a_gather_with_repeats_accumulates() {
    // Both rows of the pattern select column 0.
    let select = SparseTensor::from_csr([0, 1, 2], [0, 0], [1., 1.], [2, 1], &device()).unwrap();
    let x = vector(&[7.]);
    let y = select.matvec(x.clone());
    let grads = sparsegrad::vjp::backward(&y, vector(&[0.2, 0.3]).detach());
    assert_eq!(read(&x.grad(&grads).unwrap()), [0.5]);
}

/// pytorch/pytorch#95550, #96095, PR 92979: each of a pair of duplicates has the full gradient.
#[test]
fn pytorch_95550_duplicates_have_the_full_gradient() {
    let a = coo([1, 1], &[0, 0], &[0, 0], &[1., 2.]);
    let sum = a.to_dense().sum();
    let grads = sum.backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1., 1.]);
    // Through coalesce as well.
    let a = coo([1, 1], &[0, 0], &[0, 0], &[1., 2.]);
    let grads = a.coalesce().values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1., 1.]);
}

/// dgl/dgl#5045, torchsparsegradutils#81: a second derivative that was silently wrong.
#[test]
fn tsgu_81_second_derivatives_are_right() {
    // L(v) = |diag(v) x|^2 / 2 has the gradient v x^2 and the Hessian diag(x^2).
    let a = coo([2, 2], &[0, 1], &[0, 1], &[2., 4.]);
    let x = dense([[3.], [5.]]);
    let y = a.matmul(x.clone());
    let (gradient, _) = sparsegrad::vjp::spmm(&a, x, y);
    assert_eq!(read(gradient.values()), [18., 100.]);
    let grads = gradient.values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [9., 25.]);
}
