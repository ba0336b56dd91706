//! Numbers of the reference system.

use crate::{assert_near, read, sparse, vector};
use sparsegrad::prelude::*;
use sparsegrad_solvers::{Direct, Method, sparse_lstsq, sparse_solve};

fn generic_solve(method: impl Method) {
    let device = Device::flex().autodiff();
    let entries = [(0, 0, 4.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 4.0), (2, 2, 2.0)];
    let a = sparse(&entries, [3, 3], &device).require_grad();
    let b = vector(&[1.0, 2.0, 3.0], &device).require_grad();
    let x = sparse_solve(&a, b.clone(), method).into_result().unwrap();
    assert_near(&read(&x), &[0.4, 0.6, 1.5], 1e-9);
    let grads = x.sum().backward();
    let expected = [-0.133_333_333, -0.2, -0.133_333_333, -0.2, -0.75];
    assert_near(&read(a.grad(&grads).unwrap().values()), &expected, 1e-8);
    assert_near(&read(&b.grad(&grads).unwrap()), &[1.0 / 3.0, 1.0 / 3.0, 0.5], 1e-8);
}

#[test]
fn sparse_generic_solve() {
    for method in [Direct::llt(), Direct::ldlt(), Direct::lu(), Direct::qr()] {
        generic_solve(method);
    }
}

fn generic_lstsq(method: impl Method) {
    let device = Device::flex().autodiff();
    let entries = [(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0), (1, 2, 1.0), (2, 0, 5.0), (2, 2, 6.0), (3, 2, 1.0)];
    let a = sparse(&entries, [4, 3], &device).require_grad();
    let b = vector(&[1.0, 2.0, 3.0, 5.0], &device).require_grad();
    let x = sparse_lstsq(&a, b.clone(), method).into_result().unwrap();
    assert_near(&read(&x), &[-1.5456171735, 0.4275491950, 1.8443649374], 1e-8);
    let grads = x.sum().backward();
    let expected =
        [0.5651335601, 0.0187899424, -0.1550430266, -0.2349966878, 0.1960967227, -0.2549355001, -0.0797552491];
    assert_near(&read(a.grad(&grads).unwrap().values()), &expected, 1e-8);
    let expected = [0.2531305903, 0.1645796064, 0.1493738819, -0.0608228980];
    assert_near(&read(&b.grad(&grads).unwrap()), &expected, 1e-8);
}

#[test]
fn sparse_generic_lstsq() {
    generic_lstsq(Direct::qr());
}
