//! Gradients against finite differences, with and without gradient checkpointing, and second derivatives.

use crate::common::{Host, Layout, Numbers, vector};
use sparsegrad::prelude::*;
use sparsegrad::testing::{GradcheckError, gradcheck};
use sparsegrad::vjp;

const TOLERANCE: f64 = 1e-8;

fn host() -> Host {
    Host::random("9x7", [9, 7], 3, 77)
}

/// The pattern of a matrix in a layout, and its values in that order.
fn parts(layout: Layout) -> (Pattern, Vec<f64>) {
    let (a, host) = layout.build(&host(), DType::F64, &Device::flex());
    (a.pattern().clone(), host.values)
}

fn devices() -> [Device; 2] {
    [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
}

#[test]
fn spmm() {
    for device in devices() {
        for layout in Layout::ALL {
            for k in [1, 3, 20] {
                let (pattern, values) = parts(layout);
                let b = Numbers(3).values(7 * k);
                gradcheck(&device, &[values, b], TOLERANCE, |x| {
                    let a = SparseTensor::new(pattern.clone(), x[0].clone()).unwrap();
                    // Not linear, so that the product's own gradient varies.
                    sparse_mm(&a, x[1].clone().reshape([7, k])).powi_scalar(2).reshape([9 * k])
                })
                .unwrap_or_else(|error| panic!("{layout:?}, {k} columns, {device:?}: {error}"));
            }
        }
    }
}

#[test]
fn sddmm() {
    for device in devices() {
        for layout in Layout::ALL {
            let (pattern, values) = parts(layout);
            let (x, y) = (Numbers(4).values(9 * 5), Numbers(5).values(7 * 5));
            gradcheck(&device, &[values, x, y], TOLERANCE, |inputs| {
                let c = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
                let x = inputs[1].clone().reshape([9, 5]);
                let y = inputs[2].clone().reshape([7, 5]);
                let s = sddmm_with(&c, x, y, -1.5, 0.75);
                s.values().clone().powi_scalar(2)
            })
            .unwrap_or_else(|error| panic!("{layout:?}, {device:?}: {error}"));
        }
    }
}

#[test]
fn a_network_of_operations() {
    // Conversions, a product, a sampled product at the same pattern, a coalesced square: one graph, the matrix used twice.
    let (pattern, values) = parts(Layout::Coo);
    let x = Numbers(6).values(7 * 4);
    for device in devices() {
        gradcheck(&device, &[values.clone(), x.clone()], TOLERANCE, |inputs| {
            let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
            let x = inputs[1].clone().reshape([7, 4]);
            let h = a.to_csc().matmul(x.clone()).tanh();
            let weights = sparsegrad::sddmm(a.pattern(), h.clone(), x).map_values(|v| v.sigmoid());
            let again = weights.t().to_csr().matmul(h);
            let square = a.coalesce().map_values(|v| v.powi_scalar(2)).to_dense();
            Tensor::cat(vec![again.reshape([28]), square.reshape([63])], 0)
        })
        .unwrap_or_else(|error| panic!("{device:?}: {error}"));
    }
}

trait Sigmoid {
    fn sigmoid(self) -> Self;
}
impl Sigmoid for Tensor<1> {
    fn sigmoid(self) -> Self {
        burn::tensor::activation::sigmoid(self)
    }
}

/// f(v, B) = sum over elements of tanh(A(v) B) has the gradient (sddmm(1 - tanh^2, B), A^T (1 - tanh^2)): its product with
/// fixed directions, differentiated again, is a Hessian-vector product.
#[test]
fn hessian_vector_products_of_spmm() {
    let (pattern, values) = parts(Layout::Csr);
    let k = 3;
    let b = Numbers(8).values(7 * k);
    let device = Device::flex().autodiff();
    gradcheck(&device, &[values, b], 1e-7, |inputs| {
        let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
        let b = inputs[1].clone().reshape([7, k]);
        let upstream = 1.0 - a.matmul(b.clone()).tanh().powi_scalar(2);
        let (da, db) = vjp::spmm(&a, b, upstream);
        Tensor::cat(vec![da.values().clone(), db.reshape([7 * k])], 0)
    })
    .unwrap();
}

#[test]
fn hessian_vector_products_of_sddmm() {
    let (pattern, _) = parts(Layout::Csc);
    let (x, y) = (Numbers(9).values(9 * 2), Numbers(10).values(7 * 2));
    let device = Device::flex().autodiff();
    gradcheck(&device, &[x, y], 1e-7, |inputs| {
        let (x, y) = (inputs[0].clone().reshape([9, 2]), inputs[1].clone().reshape([7, 2]));
        let s = sparsegrad::sddmm(&pattern, x.clone(), y.clone());
        let upstream = s.map_values(|v| v.powi_scalar(3));
        let (dx, dy) = vjp::sddmm(&upstream, x, y);
        Tensor::cat(vec![dx.reshape([18]), dy.reshape([14])], 0)
    })
    .unwrap();
}

/// The gradient functions agree with what autodiff finds for the forward.
#[test]
fn vjp_is_the_gradient() {
    let (pattern, values) = parts(Layout::CooSorted);
    let device = Device::flex().autodiff();
    let a = SparseTensor::new(pattern, vector(&values, DType::F64, &device)).unwrap().require_grad();
    let b = vector(&Numbers(11).values(7 * 4), DType::F64, &device).reshape([7, 4]).detach().require_grad();
    let g = vector(&Numbers(12).values(9 * 4), DType::F64, &device).reshape([9, 4]);
    let grads = vjp::backward(&a.matmul(b.clone()), g.clone());
    let (da, db) = vjp::spmm(&a, b.clone(), g);
    let close = |x: &[f64], y: &[f64]| x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-14);
    let read = crate::common::read::<1>;
    assert!(close(&read(da.values()), &read(a.grad(&grads).unwrap().values())));
    assert!(close(&crate::common::read(&db), &crate::common::read(&b.grad(&grads).unwrap())));
}

#[test]
fn gradcheck_finds_what_is_wrong() {
    let device = Device::flex();
    // A graph that is cut: the gradient of the second factor is missing.
    let cut = gradcheck(&device, &[vec![1., 2.], vec![3., 4.]], TOLERANCE, |x| x[0].clone() * x[1].clone().detach());
    assert!(matches!(cut, Err(GradcheckError::NoGradient { input: 1 })), "{cut:?}");
    // A gradient that lacks a term: d(x * stop(x)) = x, not 2x.
    let wrong = gradcheck(&device, &[vec![1., 2.]], TOLERANCE, |x| x[0].clone() * x[0].clone().detach());
    assert!(matches!(wrong, Err(GradcheckError::Differs { .. })), "{wrong:?}");
}
