//! Golden vectors of the reference systems.

use crate::common::{matrix, read, vector};
use sparsegrad::prelude::*;

fn device() -> Device {
    Device::flex().autodiff()
}

/// torchsparsegradutils 0.2.5, sparse_mm.
#[test]
fn tsgu_sparse_mm() {
    let (rows, cols) = ([0, 0, 1, 1, 2, 2], [0, 2, 1, 3, 0, 2]);
    let values = [1., 2., 3., 4., 5., 6.];
    let a = SparseTensor::from_coo(rows, cols, values, [3, 4], &device()).unwrap().require_grad();
    let b: Vec<f64> = (0..8).map(f64::from).collect();
    let b = matrix(&b, [4, 2], DType::F64, &device()).require_grad();
    let c = sparse_mm(&a, b.clone());
    assert_eq!(read(&c), [8., 11., 30., 37., 24., 35.]);
    let g = matrix(&[1., 2., 3., 4., 5., 6.], [3, 2], DType::F64, &device());
    // Both ways to start from a given gradient.
    for grads in [sparsegrad::vjp::backward(&c, g.clone()), (sparse_mm(&a, b.clone()) * g).sum().backward()] {
        assert_eq!(read(a.grad(&grads).unwrap().values()), [2., 14., 18., 46., 6., 50.]);
        assert_eq!(read(&b.grad(&grads).unwrap()), [26., 32., 9., 12., 32., 40., 12., 16.]);
    }
}

/// spops: spmm, sddmm, and the transpose in CSR.
#[test]
fn spops() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let device = Device::flex();
        let pattern = Pattern::csr([0, 2, 2, 4], [0, 3, 1, 2], [3, 4]).unwrap();
        let a = SparseTensor::new(pattern.clone(), vector(&[1., 2., -1., 0.5], dtype, &device)).unwrap();
        let b: Vec<f64> = (0..8).map(f64::from).collect();
        let c = a.matmul(matrix(&b, [4, 2], dtype, &device));
        assert_eq!(read(&c), [12., 15., 0., 0., 0., -0.5], "{dtype:?}");

        let x = matrix(&[1., 2., 3., 4., 5., 6.], [3, 2], dtype, &device);
        let y = matrix(&[1., 0., 0., 1., 1., 1., 2., -1.], [4, 2], dtype, &device);
        assert_eq!(read(sddmm(&pattern, x, y).values()), [1., 0., 6., 11.], "{dtype:?}");

        for t in [a.t().to_csr(), a.transpose()] {
            assert_eq!(read(t.values()), [1., -1., 0.5, 2.], "{dtype:?}");
            let levels = t.pattern().levels();
            let indices =
                |i: &Option<sparsegrad::pattern::Indices>| -> Vec<usize> { i.as_ref().unwrap().iter().collect() };
            assert_eq!(indices(&levels[1].positions), [0, 1, 2, 3, 4]);
            assert_eq!(indices(&levels[1].coordinates), [0, 2, 2, 0]);
        }
    }
}
