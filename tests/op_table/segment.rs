//! Segment reductions and softmaxes, and edge operations, against plain loops. The entries of a case are the rows: their segment is
//! their row, in whatever order the layout stores them.

use crate::common::{Oracle, View, epsilon, read, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::{
    EdgeOp, Reducer, edge_dot, edge_mm, edge_op, edge_reduce, edge_softmax, segment_expand, segment_log_softmax,
    segment_reduce, segment_softmax, vjp,
};

pub const ROWS: &[Row] = &[
    ("segment reductions", reductions, 2 * 3 * 4),
    ("segment softmax", softmaxes, 2 * 3 * 2),
    ("segment_expand", expansions, 2 * 3),
    ("edge_gather, features", gathers, 2 * 3),
    ("edge_reduce", edge_reductions, 2 * 3 * 4),
    ("edge softmax", edge_softmaxes, 2 * 3),
    ("edge_op", edge_ops, 3 * 2 * 4),
    ("edge_dot, edge_mm", products, 2 * 3 * 3),
];

/// One column, a few, and more than a vector with a rest.
const COLUMNS: [usize; 3] = [1, 3, 18];
const REDUCERS: [Reducer; 4] = [Reducer::Sum, Reducer::Mean, Reducer::Max, Reducer::Min];
const PER: [Per; 3] = [Per::Row, Per::Column, Per::Matrix];

/// The entries of each group, in the order of storage.
type Groups = Vec<Vec<usize>>;

fn groups(keys: &[usize], count: usize) -> Groups {
    let mut groups = vec![vec![]; count];
    keys.iter().enumerate().for_each(|(entry, &key)| groups[key].push(entry));
    groups
}

/// How much coarser a dtype is than what it is computed in.
fn coarseness(dtype: DType) -> f64 {
    (epsilon(dtype) / epsilon(DType::F32)).max(1.0)
}

/// A tracked operand in one kind of layout.
fn tracked(case: &Case, values: &[f64], shape: [usize; 2], device: &Device) -> Tensor<2> {
    let view = View::ALL[shape[1] % View::ALL.len()];
    view.build(values, shape, case.dtype, device).require_grad()
}

/// Compares a result and the gradient of its operand, that of `g`.
fn compare<const D: usize>(
    case: &Case,
    what: &str,
    found: &Tensor<D>,
    operands: &[&Tensor<D>],
    g: &[f64],
    expected: &[&Oracle],
) -> Result<(), String> {
    expected[0].check(what, &read(found), case.dtype)?;
    let upstream: Tensor<D> = vector(g, case.dtype, &found.device()).reshape(found.dims());
    let grads = vjp::backward(found, upstream);
    for (at, (operand, expected)) in operands.iter().zip(&expected[1..]).enumerate() {
        let gradient = operand.grad(&grads).ok_or("no gradient")?;
        expected.check(&format!("{what}, gradient {at}"), &read(&gradient), case.dtype)?;
    }
    Ok(())
}

/// What a reduction of groups gives, and the gradient of x.
fn reduced(groups: &Groups, x: &[f64], k: usize, reducer: Reducer, g: &[f64]) -> (Oracle, Oracle) {
    let (mut value, mut gradient) = (Oracle::zeros(groups.len() * k), Oracle::zeros(x.len()));
    for (group, entries) in groups.iter().enumerate() {
        let count = entries.len() as f64;
        for c in 0..k {
            let at = group * k + c;
            let of = |e: &usize| x[e * k + c];
            let chosen = match reducer {
                Reducer::Max => entries.iter().copied().reduce(|a, b| if of(&b) > of(&a) { b } else { a }),
                Reducer::Min => entries.iter().copied().reduce(|a, b| if of(&b) < of(&a) { b } else { a }),
                _ => None,
            };
            for e in entries {
                let weight = match reducer {
                    Reducer::Sum => 1.0,
                    Reducer::Mean => 1.0 / count,
                    _ => f64::from(u8::from(chosen == Some(*e))),
                };
                value.add(at, weight * of(e));
                gradient.add(e * k + c, weight * g[at]);
            }
        }
    }
    (value, gradient)
}

fn reductions(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    let segments = Segments::from_ids(&host.rows, host.shape[0]).map_err(|e| e.to_string())?;
    for k in COLUMNS {
        for reducer in REDUCERS {
            let x = case.numbers(60, a.nnz() * k);
            let g = case.numbers(61, segments.len() * k);
            let operand = tracked(case, &x, [a.nnz(), k], &device);
            let (value, gradient) = reduced(&groups(&host.rows, host.shape[0]), &x, k, reducer, &g);
            let found = segment_reduce(operand.clone(), &segments, reducer);
            compare(case, &format!("{reducer:?}, {k} columns"), &found, &[&operand], &g, &[&value, &gradient])?;
        }
    }
    Ok(2 * 3 * 4)
}

/// What a softmax over groups gives, and the gradient of x.
fn normalised(groups: &Groups, x: &[f64], k: usize, log: bool, g: &[f64], dtype: DType) -> (Oracle, Oracle) {
    let (mut value, mut gradient) = (Oracle::zeros(x.len()), Oracle::zeros(x.len()));
    for entries in groups {
        for c in 0..k {
            let at = |e: &usize| e * k + c;
            let sum: f64 = entries.iter().map(|e| x[at(e)].exp()).sum();
            let weight = |e: &usize| x[at(e)].exp() / sum;
            let mean: f64 = entries.iter().map(|e| if log { g[at(e)] } else { weight(e) * g[at(e)] }).sum();
            let size: f64 = entries.iter().map(|e| if log { g[at(e)].abs() } else { weight(e) * g[at(e)].abs() }).sum();
            for e in entries {
                let (x, g, w) = (x[at(e)], g[at(e)], weight(e));
                if log {
                    value.sum[at(e)] = x - sum.ln();
                    value.magnitude[at(e)] = x.abs() + sum.ln().abs() + 1.0;
                    gradient.sum[at(e)] = g - w * mean;
                    gradient.magnitude[at(e)] = g.abs() + 4.0 * w * size;
                } else {
                    value.add(at(e), w);
                    gradient.sum[at(e)] = w * (g - mean);
                    gradient.magnitude[at(e)] = 4.0 * w * (g.abs() + size);
                }
                // The weights of a gradient are those that were rounded; the logarithm's error counts in full.
                gradient.magnitude[at(e)] *= coarseness(dtype) * if log { 1.0 + value.sum[at(e)].abs() } else { 1.0 };
            }
        }
    }
    (value, gradient)
}

fn softmaxes(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    let segments = Segments::from_ids(&host.rows, host.shape[0]).map_err(|e| e.to_string())?;
    for k in COLUMNS {
        for log in [false, true] {
            let x = case.numbers(62, a.nnz() * k);
            let g = case.numbers(63, a.nnz() * k);
            let operand = tracked(case, &x, [a.nnz(), k], &device);
            let (value, gradient) = normalised(&groups(&host.rows, host.shape[0]), &x, k, log, &g, case.dtype);
            let run = if log { segment_log_softmax } else { segment_softmax };
            let found = run(operand.clone(), &segments);
            compare(case, &format!("log: {log}, {k} columns"), &found, &[&operand], &g, &[&value, &gradient])?;
        }
    }
    Ok(2 * 3 * 2)
}

/// The features of its group for each entry, and their gradient.
fn expanded(keys: &[usize], count: usize, x: &[f64], k: usize, g: &[f64]) -> (Oracle, Oracle) {
    let (mut value, mut gradient) = (Oracle::zeros(keys.len() * k), Oracle::zeros(count * k));
    for (e, key) in keys.iter().enumerate() {
        for c in 0..k {
            value.add(e * k + c, x[key * k + c]);
            gradient.add(key * k + c, g[e * k + c]);
        }
    }
    (value, gradient)
}

fn expansions(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    let segments = Segments::from_ids(&host.rows, host.shape[0]).map_err(|e| e.to_string())?;
    for k in COLUMNS {
        let x = case.numbers(64, segments.len() * k);
        let g = case.numbers(65, a.nnz() * k);
        let operand = tracked(case, &x, [segments.len(), k], &device);
        let (value, gradient) = expanded(&host.rows, host.shape[0], &x, k, &g);
        let found = segment_expand(operand.clone(), &segments);
        compare(case, &format!("{k} columns"), &found, &[&operand], &g, &[&value, &gradient])?;
    }
    Ok(2 * 3)
}

fn gathers(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    let (m, n, k, all) = (host.shape[0], host.shape[1], 18, vec![0; host.nnz()]);
    for (per, keys, count) in [(Per::Row, &host.rows, m), (Per::Column, &host.cols, n), (Per::Matrix, &all, 1)] {
        let (u, g) = (case.numbers(66, count * k), case.numbers(67, a.nnz() * k));
        let operand = tracked(case, &u, [count, k], &device);
        let (value, mut gradient) = expanded(keys, count, &u, k, &g);
        if per == Per::Matrix {
            // The sums of rows are rounded.
            gradient.magnitude.iter_mut().for_each(|size| *size *= coarseness(case.dtype));
        }
        let found = edge_gather(a.pattern(), per, operand.clone());
        compare(case, &format!("{per:?}"), &found, &[&operand], &g, &[&value, &gradient])?;
    }
    Ok(2 * 3)
}

/// The groups of edges of a reduction.
fn of_edges(host: &crate::Host, per: Per) -> Groups {
    match per {
        Per::Row => groups(&host.rows, host.shape[0]),
        Per::Column => groups(&host.cols, host.shape[1]),
        Per::Matrix => vec![(0..host.nnz()).collect()],
    }
}

fn edge_reductions(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    for (per, k) in PER.into_iter().zip(COLUMNS) {
        for reducer in REDUCERS {
            let groups = of_edges(&host, per);
            let x = case.numbers(68, a.nnz() * k);
            let g = case.numbers(69, groups.len() * k);
            let operand = tracked(case, &x, [a.nnz(), k], &device);
            let (value, gradient) = reduced(&groups, &x, k, reducer, &g);
            let found = edge_reduce(a.pattern(), per, operand.clone(), reducer);
            compare(case, &format!("{reducer:?} {per:?}"), &found, &[&operand], &g, &[&value, &gradient])?;
        }
    }
    Ok(2 * 3 * 4)
}

fn edge_softmaxes(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    for (per, k) in PER.into_iter().zip([18, 1, 3]) {
        let (x, g) = (case.numbers(70, a.nnz() * k), case.numbers(71, a.nnz() * k));
        let operand = tracked(case, &x, [a.nnz(), k], &device);
        let (value, gradient) = normalised(&of_edges(&host, per), &x, k, false, &g, case.dtype);
        let found = edge_softmax(a.pattern(), per, operand.clone());
        compare(case, &format!("{per:?}"), &found, &[&operand], &g, &[&value, &gradient])?;
    }
    Ok(2 * 3)
}

fn edge_ops(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    let [m, n] = host.shape;
    for k in [1, 18] {
        for op in [EdgeOp::Add, EdgeOp::Sub, EdgeOp::Mul, EdgeOp::Div] {
            let (u, mut v) = (case.numbers(72, m * k), case.numbers(73, n * k));
            if op == EdgeOp::Div {
                v.iter_mut().for_each(|v| *v = crate::common::round(1.5 + *v, case.dtype)); // away from 0
            }
            let g = case.numbers(74, a.nnz() * k);
            let (mut value, mut of_u, mut of_v) =
                (Oracle::zeros(a.nnz() * k), Oracle::zeros(m * k), Oracle::zeros(n * k));
            for e in 0..a.nnz() {
                for c in 0..k {
                    let (i, j) = (host.rows[e] * k + c, host.cols[e] * k + c);
                    let (result, [du, dv]) = match op {
                        EdgeOp::Add => (u[i] + v[j], [1.0, 1.0]),
                        EdgeOp::Sub => (u[i] - v[j], [1.0, -1.0]),
                        EdgeOp::Mul => (u[i] * v[j], [v[j], u[i]]),
                        EdgeOp::Div => (u[i] / v[j], [1.0 / v[j], -u[i] / v[j] / v[j]]),
                    };
                    value.add(e * k + c, result);
                    value.magnitude[e * k + c] += u[i].abs() + v[j].abs();
                    of_u.add(i, g[e * k + c] * du);
                    of_v.add(j, g[e * k + c] * dv);
                }
            }
            if op == EdgeOp::Div {
                // What is summed is rounded.
                for size in of_u.magnitude.iter_mut().chain(&mut of_v.magnitude) {
                    *size *= coarseness(case.dtype);
                }
            }
            let (x, y) = (tracked(case, &u, [m, k], &device), tracked(case, &v, [n, k], &device));
            let what = format!("{op:?}, {k} columns");
            if k == 1 {
                let [x, y] = [x, y].map(|x| {
                    let [length, _] = x.dims();
                    x.detach().reshape([length as i32]).detach().require_grad()
                });
                let found = edge_op(a.pattern(), op, x.clone(), y.clone());
                compare(case, &what, found.values(), &[&x, &y], &g, &[&value, &of_u, &of_v])?;
            } else {
                let found = edge_op(a.pattern(), op, x.clone(), y.clone());
                compare(case, &what, &found, &[&x, &y], &g, &[&value, &of_u, &of_v])?;
            }
        }
    }
    Ok(3 * 2 * 4)
}

fn products(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let device = case.device.clone().autodiff();
    let [m, n] = host.shape;
    for (heads, d) in [(1, 5), (4, 8), (3, 1)] {
        let k = heads * d;
        let (x, y, w) = (case.numbers(75, m * k), case.numbers(76, n * k), case.numbers(77, a.nnz() * heads));
        let (mut dots, mut of_x, mut of_y) =
            (Oracle::zeros(a.nnz() * heads), Oracle::zeros(m * k), Oracle::zeros(n * k));
        let (mut sums, mut of_w, mut of_z) =
            (Oracle::zeros(m * k), Oracle::zeros(a.nnz() * heads), Oracle::zeros(n * k));
        for e in 0..a.nnz() {
            for c in 0..k {
                let (i, j, h) = (host.rows[e] * k + c, host.cols[e] * k + c, e * heads + c / d);
                dots.add(h, x[i] * y[j]);
                of_x.add(i, w[h] * y[j]);
                of_y.add(j, w[h] * x[i]);
                sums.add(i, w[h] * y[j]);
                of_w.add(h, x[i] * y[j]);
                of_z.add(j, w[h] * x[i]);
            }
        }
        let three = |values: &[f64], rows: usize| {
            let flat = vector(values, case.dtype, &device);
            flat.reshape([rows, heads, d]).detach().require_grad()
        };
        let (tx, ty) = (three(&x, m), three(&y, n));
        let tw = tracked(case, &w, [a.nnz(), heads], &device);
        let found = edge_dot(a.pattern(), tx.clone(), ty.clone());
        dots.check("edge_dot", &read(&found), case.dtype)?;
        let grads = vjp::backward(&found, tw.clone().detach());
        of_x.check("edge_dot, x", &read(&tx.grad(&grads).ok_or("no gradient")?), case.dtype)?;
        of_y.check("edge_dot, y", &read(&ty.grad(&grads).ok_or("no gradient")?), case.dtype)?;
        let found = edge_mm(a.pattern(), tw.clone(), ty.clone());
        sums.check("edge_mm", &read(&found), case.dtype)?;
        let grads = vjp::backward(&found, tx.detach());
        of_w.check("edge_mm, weights", &read(&tw.grad(&grads).ok_or("no gradient")?), case.dtype)?;
        of_z.check("edge_mm, y", &read(&ty.grad(&grads).ok_or("no gradient")?), case.dtype)?;
    }
    Ok(2 * 3 * 3)
}
