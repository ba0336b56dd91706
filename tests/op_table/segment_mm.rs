//! Products by segments and sums of outer products. The rows of the case's matrix are the segments: sorted in some layouts, by
//! index in others.

use crate::common::{Host, Oracle, View, matrix, read};
use crate::{Case, Outcome, Row};
use burn::tensor::TensorData;
use sparsegrad::prelude::*;
use sparsegrad::vjp;

pub const ROWS: &[Row] = &[
    ("segment_mm", |case| each(case, forward), SIZES.len() * 2),
    ("segment_mm backward", |case| each(case, backward), SIZES.len() * 3),
    ("segment_outer", |case| each(case, outer), SIZES.len() * 3),
];

const SIZES: [[usize; 2]; 6] = [[1, 1], [3, 17], [16, 5], [0, 4], [20, 33], [70, 65]];

struct Problem<'a> {
    case: &'a Case<'a>,
    device: Device,
    segments: Segments,
    /// The segment of each row.
    ids: Vec<usize>,
    view: View,
    inner: usize,
    cols: usize,
}

fn each(case: &Case, work: fn(&Problem) -> Outcome) -> Outcome {
    let (_, Host { rows: ids, shape, .. }) = case.build(false);
    let segments = Segments::from_ids(&ids, shape[0]).map_err(|error| error.to_string())?;
    let mut held = 0;
    for (at, [inner, cols]) in SIZES.into_iter().enumerate() {
        let (device, view) = (case.device.clone().autodiff(), View::ALL[at % 4]);
        held += work(&Problem { case, device, segments: segments.clone(), ids: ids.clone(), view, inner, cols })?;
    }
    Ok(held)
}

impl Problem<'_> {
    fn rows(&self, seed: u64, cols: usize) -> (Vec<f64>, Tensor<2>) {
        let values = self.case.numbers(seed, self.ids.len() * cols);
        let tensor = self.view.build(&values, [self.ids.len(), cols], self.case.dtype, &self.device);
        (values, tensor.require_grad())
    }

    /// A matrix for each segment; in every second size stored transposed.
    fn weight(&self, seed: u64) -> (Vec<f64>, Tensor<3>) {
        let Self { inner, cols, .. } = *self;
        let (count, options) = (self.segments.len(), (&self.device, self.case.dtype));
        let values = self.case.numbers(seed, count * inner * cols);
        let tensor = if self.inner.is_multiple_of(2) {
            let at = |at: usize| values[at / (inner * cols) * inner * cols + at % inner * cols + at / inner % cols];
            let transposed: Vec<f64> = (0..values.len()).map(at).collect();
            Tensor::<3>::from_data(TensorData::new(transposed, [count, cols, inner]), options).swap_dims(1, 2)
        } else {
            Tensor::<3>::from_data(TensorData::new(values.clone(), [count, inner, cols]), options)
        };
        (values, tensor.require_grad())
    }

    /// Calls `visit(row, place in a matrix of each segment, k, j)` for all of them.
    fn for_each(&self, mut visit: impl FnMut(usize, usize, usize, usize)) {
        for (row, segment) in self.ids.iter().enumerate() {
            for k in 0..self.inner {
                for j in 0..self.cols {
                    visit(row, (segment * self.inner + k) * self.cols + j, k, j);
                }
            }
        }
    }
}

fn forward(problem: &Problem) -> Outcome {
    let Problem { case, segments, ids, inner, cols, device, .. } = problem;
    let ((x, tx), (w, tw)) = (problem.rows(80, *inner), problem.weight(81));
    let b = case.numbers(82, segments.len() * cols);
    let mut out = Oracle::zeros(ids.len() * cols);
    problem.for_each(|row, at, k, j| out.add(row * cols + j, x[row * inner + k] * w[at]));
    out.check("X W", &read(&segment_mm(tx.clone(), tw.clone(), segments)), case.dtype)?;
    for (row, segment) in ids.iter().enumerate() {
        (0..*cols).for_each(|j| out.add(row * cols + j, b[segment * cols + j]));
    }
    let tb = matrix(&b, [segments.len(), *cols], case.dtype, device);
    out.check("X W + b", &read(&gather_mm_bias(tx, tw, tb, segments)), case.dtype)?;
    Ok(2)
}

fn backward(problem: &Problem) -> Outcome {
    let Problem { case, segments, ids, inner, cols, device, .. } = problem;
    let ((x, tx), (w, tw), (g, tg)) = (problem.rows(83, *inner), problem.weight(84), problem.rows(85, *cols));
    let tb = Tensor::<2>::zeros([segments.len(), *cols], (device, case.dtype)).require_grad();
    let mut dx = Oracle::zeros(x.len());
    let mut dw = Oracle::zeros(w.len());
    let mut db = Oracle::zeros(segments.len() * cols);
    problem.for_each(|row, at, k, j| {
        dx.add(row * inner + k, g[row * cols + j] * w[at]);
        dw.add(at, x[row * inner + k] * g[row * cols + j]);
    });
    for (row, segment) in ids.iter().enumerate() {
        (0..*cols).for_each(|j| db.add(segment * cols + j, g[row * cols + j]));
    }
    let y = segment_mm_bias(tx.clone(), tw.clone(), tb.clone(), segments);
    let grads = vjp::backward(&y, tg.inner().autodiff());
    dx.check("dX", &read(&tx.grad(&grads).ok_or("no gradient of X")?), case.dtype)?;
    dw.check("dW", &read(&tw.grad(&grads).ok_or("no gradient of W")?), case.dtype)?;
    db.check("db", &read(&tb.grad(&grads).ok_or("no gradient of b")?), case.dtype)?;
    Ok(3)
}

fn outer(problem: &Problem) -> Outcome {
    let Problem { case, segments, inner, cols, .. } = problem;
    let ((x, tx), (y, ty), (g, tg)) = (problem.rows(86, *inner), problem.rows(87, *cols), problem.weight(88));
    let mut sums = Oracle::zeros(g.len());
    let (mut dx, mut dy) = (Oracle::zeros(x.len()), Oracle::zeros(y.len()));
    problem.for_each(|row, at, k, j| {
        sums.add(at, x[row * inner + k] * y[row * cols + j]);
        dx.add(row * inner + k, y[row * cols + j] * g[at]);
        dy.add(row * cols + j, x[row * inner + k] * g[at]);
    });
    let found = segment_outer(tx.clone(), ty.clone(), segments);
    sums.check("X^T Y", &read(&found), case.dtype)?;
    let grads = vjp::backward(&found, tg.inner().autodiff());
    dx.check("dX", &read(&tx.grad(&grads).ok_or("no gradient of X")?), case.dtype)?;
    dy.check("dY", &read(&ty.grad(&grads).ok_or("no gradient of Y")?), case.dtype)?;
    Ok(3)
}
