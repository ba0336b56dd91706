//! Second derivatives, and what backward passes report.

use crate::{assert_near, numbers, read, sparse, vector};
use sparsegrad::prelude::*;
use sparsegrad_solvers::precond::PreconditionerError;
use sparsegrad_solvers::{BackwardWatch, Direct, Method, Operator, Outcome, Report, Solution, sparse_solve, vjp};
use std::sync::Arc;

/// dgl#5045: x = 1 / v, g = -1 / v^2, and the diagonal of the Hessian 2 / v^3.
#[test]
fn field_39_second_order() {
    let device = Device::flex().autodiff();
    let a = sparse(&[(0, 0, 2.0), (1, 1, 4.0)], [2, 2], &device).require_grad();
    let ones = Tensor::<2>::ones([2, 1], (&device, DType::F64));
    let x = sparse_solve(&a, ones.clone(), Direct::lu()).into_result().unwrap();
    let (gradient, _) = vjp::solve(&a, x, ones, Direct::lu()).unwrap();
    assert_near(&read(gradient.values()), &[-0.25, -0.0625], 1e-15);
    let hessian = a.grad(&gradient.values().clone().sum().backward()).unwrap();
    assert_near(&read(hessian.values()), &[0.25, 0.03125], 1e-15);
}

/// The Hessian of |x|^2 / 2 times a direction, against central differences of the gradient.
#[test]
fn hessian_vector_products() {
    let pattern = Pattern::csr([0, 2, 4, 7], [0, 1, 1, 2, 0, 1, 2], [3, 3]).unwrap();
    let values = [4.0, 1.0, 3.0, -0.5, 0.7, 1.0, 5.0];
    let direction = numbers(8, values.len());
    let b = [1.0, -2.0, 0.5];
    // The gradient of the loss at these values; with a direction, the Hessian times it.
    let run = |values: &[f64], direction: Option<&[f64]>| -> Vec<f64> {
        let device = Device::flex().autodiff();
        let a = SparseTensor::new(pattern.clone(), vector(values, &device)).unwrap().require_grad();
        let b = vector(&b, &device).reshape([3, 1]);
        let x = sparse_solve(&a, b, Direct::lu()).into_result().unwrap();
        let (gradient, _) = vjp::solve(&a, x.clone(), x, Direct::lu()).unwrap();
        match direction {
            None => read(gradient.values()),
            Some(direction) => {
                let product = gradient.values().clone() * vector(direction, &device);
                read(a.grad(&product.sum().backward()).unwrap().values())
            }
        }
    };
    let step = 1e-5;
    let moved = |sign: f64| -> Vec<f64> {
        let at: Vec<f64> = values.iter().zip(&direction).map(|(v, d)| v + sign * step * d).collect();
        run(&at, None)
    };
    let differences: Vec<f64> =
        moved(1.0).iter().zip(moved(-1.0)).map(|(up, down)| (up - down) / (2.0 * step)).collect();
    assert_near(&run(&values, Some(&direction)), &differences, 1e-8);
}

/// LU forwards; backwards it gives up.
#[derive(Debug, Clone)]
struct Tired(Arc<dyn Method>);

impl Method for Tired {
    fn name(&self) -> &'static str {
        "tired"
    }

    fn prepare(&self, a: &Operator) -> Result<Arc<dyn Method>, PreconditionerError> {
        Ok(Arc::new(Self(self.0.prepare(a)?)))
    }

    fn run(&self, a: &Operator, b: Tensor<2>, x0: Option<Tensor<2>>, transpose: bool) -> Solution<Tensor<2>> {
        let Solution { x, report } = self.0.run(a, b, x0, transpose);
        let report = match transpose {
            true => Report { outcome: Outcome::IterationLimit { limit: 3 }, ..report },
            false => report,
        };
        Solution { x, report }
    }
}

fn tired() -> (SparseTensor<2>, Tensor<1>, Tired) {
    let device = Device::flex().autodiff();
    let a = sparse(&[(0, 0, 2.0), (1, 1, 4.0)], [2, 2], &device).require_grad();
    (a, vector(&[2.0, 4.0], &device), Tired(Arc::new(Direct::lu())))
}

#[test]
#[should_panic(expected = "no convergence within 3 iterations")]
fn a_backward_solve_that_fails_panics() {
    let (a, b, method) = tired();
    let _ = sparse_solve(&a, b, method).into_result().unwrap().sum().backward();
}

#[test]
fn a_watch_takes_the_report_instead() {
    let (a, b, method) = tired();
    let watch = BackwardWatch::new();
    let x = sparse_solve(&a, b, watch.over(method)).into_result().unwrap();
    assert!(watch.reports().is_empty());
    let grads = x.sum().backward();
    assert_eq!(watch.take()[0].outcome, Outcome::IterationLimit { limit: 3 });
    assert!(watch.reports().is_empty() && a.grad(&grads).is_some());
}
