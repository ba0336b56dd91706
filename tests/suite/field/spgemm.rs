//! Products of two sparse matrices.

use super::*;

/// pytorch/pytorch#102493: the gradient of a product of identities had its first value only.
#[test]
fn pytorch_102493_the_gradient_of_every_entry() {
    let a = SparseTensor::eye_of(3, DType::F64, &device()).unwrap().require_grad();
    let b = SparseTensor::eye_of(3, DType::F64, &device()).unwrap().require_grad();
    let grads = a.matmul(&b).values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1.; 3]);
    assert_eq!(read(b.grad(&grads).unwrap().values()), [1.; 3]);
}

/// rusty1s/pytorch_sparse#239: the product was cut off from the graph.
#[test]
fn pytorch_sparse_239_gradients_to_both() {
    let a = coo([3, 3], &[0, 0, 1, 2, 2], &[1, 2, 0, 0, 1], &[1., 2., 3., 4., 5.]);
    let b = coo([3, 2], &[0, 2], &[1, 0], &[2., 4.]);
    let c = spgemm(&a, &b);
    assert_eq!(read(&c.to_dense()), [8., 0., 0., 6., 0., 8.]);
    let grads = c.values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0., 4., 2., 2., 0.]);
    assert_eq!(read(b.grad(&grads).unwrap().values()), [7., 2.]);
}
