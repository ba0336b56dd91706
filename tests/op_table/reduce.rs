//! Reductions per row, column and matrix, and softmax, against plain loops over the dense matrix or its stored positions.

use crate::common::{Host, Oracle, read, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::vjp;
use std::collections::BTreeMap;

pub const ROWS: &[Row] = &[
    ("sum, mean", |case| reductions(case, &LINEAR), 2 * 3 * 3),
    ("max, min", |case| reductions(case, &EXTREME), 2 * 3 * 4),
    ("norms", |case| reductions(case, &NORMS), 2 * 3 * 3),
    ("logsumexp", |case| reductions(case, &LOGSUMEXP), 2 * 3 * 2),
    ("reductions, batched", batched, 2 * 3 * 6),
    ("softmax", softmax, 4 * 2),
    ("edge_gather", edges, 3 * 2),
];

/// Values of a group and what of the dense matrix is in no entry: its value, and derivative at each.
type Oracles = fn(&[f64], usize) -> (f64, Vec<f64>);
/// A reduction of a matrix and of a batch, and whether absent entries are zeros.
struct Kind {
    name: &'static str,
    run: fn(&SparseTensor<2>, Per) -> Tensor<1>,
    batched: fn(&SparseTensor<3>, Per) -> Tensor<2>,
    oracle: Oracles,
    zeros: bool,
}

macro_rules! kind {
    ($name:ident($($arg:expr)*), $oracle:expr, $zeros:expr) => {
        Kind {
            name: stringify!($name),
            run: |a, per| a.$name(per $(, $arg)*),
            batched: |a, per| a.$name(per $(, $arg)*),
            oracle: $oracle,
            zeros: $zeros,
        }
    };
}

const LINEAR: [Kind; 3] = [
    kind!(sum(), |x, _| (x.iter().sum(), vec![1.0; x.len()]), true),
    kind!(mean(), mean, true),
    kind!(mean_stored(), mean, false),
];
const EXTREME: [Kind; 4] = [
    kind!(max(), |x, absent| extreme(x, absent, 1.0), true),
    kind!(max_stored(), |x, absent| extreme(x, absent, 1.0), false),
    kind!(min(), |x, absent| extreme(x, absent, -1.0), true),
    kind!(min_stored(), |x, absent| extreme(x, absent, -1.0), false),
];
const NORMS: [Kind; 3] = [
    kind!(norm(Norm::L1), |x, _| (x.iter().map(|x| x.abs()).sum(), x.iter().map(|&x| sign(x)).collect()), false),
    kind!(norm(Norm::L2), norm, false),
    kind!(norm(Norm::Max), largest_size, false),
];
const LOGSUMEXP: [Kind; 2] = [kind!(logsumexp(), logsumexp, true), kind!(logsumexp_stored(), logsumexp, false)];

fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

fn mean(x: &[f64], absent: usize) -> (f64, Vec<f64>) {
    let count = (x.len() + absent).max(1) as f64;
    (x.iter().sum::<f64>() / count, vec![1.0 / count; x.len()])
}

fn extreme(x: &[f64], absent: usize, sign: f64) -> (f64, Vec<f64>) {
    let mut best = if absent > 0 { 0.0 } else { f64::NEG_INFINITY };
    best = x.iter().fold(best, |best: f64, &x| best.max(sign * x));
    let first = x.iter().position(|&x| sign * x == best);
    (sign * best, (0..x.len()).map(|at| f64::from(u8::from(Some(at) == first))).collect())
}

fn largest_size(x: &[f64], _: usize) -> (f64, Vec<f64>) {
    let sizes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
    let (size, first) = extreme(&sizes, 0, 1.0);
    (size.max(0.0), first.iter().zip(x).map(|(first, &x)| first * sign(x)).collect())
}

fn norm(x: &[f64], _: usize) -> (f64, Vec<f64>) {
    let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
    (norm, x.iter().map(|x| if norm == 0.0 { 0.0 } else { x / norm }).collect())
}

fn logsumexp(x: &[f64], absent: usize) -> (f64, Vec<f64>) {
    let lse = (x.iter().map(|x| x.exp()).sum::<f64>() + absent as f64).ln();
    (lse, x.iter().map(|x| (x - lse).exp()).collect())
}

/// The entries of each result in its order: stored positions with their slots, duplicates together.
fn groups(host: &Host, per: Per) -> Vec<Vec<Vec<usize>>> {
    let count = match per {
        Per::Row => host.shape[0],
        Per::Column => host.shape[1],
        Per::Matrix => 1,
    };
    let mut groups = vec![BTreeMap::new(); count];
    for e in 0..host.nnz() {
        let (row, column) = (host.rows[e], host.cols[e]);
        let group = match per {
            Per::Row => row,
            Per::Column => column,
            Per::Matrix => 0,
        };
        groups[group].entry((row, column)).or_insert_with(Vec::new).push(e);
    }
    // Ties: by the order of the first entry, as storage has it if there are no duplicates to be sorted.
    let sorted = host.has_duplicates();
    let in_order = |group: BTreeMap<_, Vec<usize>>| {
        let mut positions: Vec<((usize, usize), Vec<usize>)> = group.into_iter().collect();
        if !sorted {
            positions.sort_by_key(|(at, entries)| (if per == Per::Matrix { at.0 } else { 0 }, entries[0]));
        }
        positions.into_iter().map(|(_, entries)| entries).collect()
    };
    groups.into_iter().map(in_order).collect()
}

trait Duplicates {
    fn has_duplicates(&self) -> bool;
}
impl Duplicates for Host {
    fn has_duplicates(&self) -> bool {
        let mut positions: Vec<_> = self.rows.iter().zip(&self.cols).collect();
        positions.sort_unstable();
        positions.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// What a reduction gives, and the gradient of the values for the upstream gradient `g`.
fn expected(host: &Host, kind: &Kind, per: Per, dtype: DType, g: &[f64]) -> (Oracle, Oracle) {
    let [m, n] = host.shape;
    let positions = match per {
        Per::Row => n,
        Per::Column => m,
        Per::Matrix => m * n,
    };
    let groups = groups(host, per);
    let (mut out, mut gradient) = (Oracle::zeros(groups.len()), Oracle::zeros(host.nnz()));
    for (at, group) in groups.iter().enumerate() {
        // Duplicates are summed in the dtype before all but sums.
        let summed = |entries: &Vec<usize>| {
            let sum = entries.iter().map(|&e| host.values[e]).sum();
            if entries.len() > 1 && !matches!(kind.name, "sum" | "mean") {
                crate::common::round(sum, dtype)
            } else {
                sum
            }
        };
        let x: Vec<f64> = group.iter().map(summed).collect();
        let absent = if kind.zeros { positions - x.len() } else { 0 };
        let (value, mut weights) = (kind.oracle)(&x, absent);
        if per == Per::Matrix && matches!(kind.name, "max" | "min") && value == 0.0 && !x.is_empty() {
            // The gradient goes to the first row that reaches the extreme, where it may be an absent zero.
            let row_of = |at: usize| host.rows[group[at][0]];
            let of_row = |row: usize| x.iter().enumerate().filter(move |(at, _)| row_of(*at) == row).map(|(_, &x)| x);
            let reaches = |row: usize| {
                let stored: Vec<f64> = of_row(row).collect();
                (kind.oracle)(&stored, n - stored.len()).0 == value
            };
            let first = (0..m).find(|&row| reaches(row));
            for (at, weight) in weights.iter_mut().enumerate() {
                *weight = if Some(row_of(at)) == first { *weight } else { 0.0 };
            }
        }
        out.sum[at] = value;
        out.magnitude[at] = group.iter().flatten().map(|&e| host.values[e].abs()).sum::<f64>();
        if kind.name.starts_with("logsumexp") {
            out.magnitude[at] += value.abs().max(1.0);
        }
        for (entries, weight) in group.iter().zip(weights) {
            for &e in entries {
                gradient.add(e, g[at] * weight);
                // A weight is as uncertain as the sum behind it.
                gradient.magnitude[e] *= 4.0;
            }
        }
    }
    (out, gradient)
}

/// As [`Oracle::check`], with infinities.
fn check(oracle: &Oracle, what: &str, found: &[f64], dtype: DType) -> Result<(), String> {
    let finite = |at: &usize| oracle.sum[*at].is_finite();
    for at in (0..oracle.sum.len()).filter(|at| !finite(at)) {
        if found.get(at) != Some(&oracle.sum[at]) {
            return Err(format!("{what}: element {at} is {:?}, expected {}", found.get(at), oracle.sum[at]));
        }
    }
    let pick = |from: &[f64]| (0..oracle.sum.len()).filter(finite).map(|at| from[at]).collect::<Vec<f64>>();
    if found.len() != oracle.sum.len() {
        return Err(format!("{what}: {} elements for {}", found.len(), oracle.sum.len()));
    }
    Oracle { sum: pick(&oracle.sum), magnitude: pick(&oracle.magnitude) }.check(what, &pick(found), dtype)
}

const PER: [Per; 3] = [Per::Row, Per::Column, Per::Matrix];

fn reductions(case: &Case, kinds: &[Kind]) -> Outcome {
    for kind in kinds {
        for per in PER {
            let (a, host) = case.build(true);
            let found = (kind.run)(&a, per);
            let g = case.numbers(50, found.dims()[0]);
            let (value, gradient) = expected(&host, kind, per, case.dtype, &g);
            let what = format!("{} {per:?}", kind.name);
            check(&value, &what, &read(&found), case.dtype)?;
            let grads = vjp::backward(&found, vector(&g, case.dtype, &a.device()));
            let da = a.grad(&grads).ok_or("no gradient")?;
            check(&gradient, &format!("{what}, gradient"), &read(da.values()), case.dtype)?;
        }
    }
    Ok(2 * 3 * kinds.len())
}

/// Two items: the matrix, and the matrix with other values.
fn batched(case: &Case) -> Outcome {
    let kinds = [&LINEAR[0], &LINEAR[1], &LINEAR[2], &EXTREME[0], &NORMS[1], &LOGSUMEXP[0]];
    for kind in kinds {
        for per in PER {
            let device = case.device.clone().autodiff();
            let other = Host { values: case.numbers(51, case.host.nnz()), ..case.host.clone() };
            let ((a, first), (b, second)) =
                (case.layout.build(case.host, case.dtype, &device), case.layout.build(&other, case.dtype, &device));
            let batch = SparseTensor::stack(&[a, b]).map_err(|e| e.to_string())?.detach().require_grad();
            let found = (kind.batched)(&batch, per);
            let [items, each] = found.dims();
            assert_eq!(items, 2);
            let g = case.numbers(52, 2 * each);
            let oracles = [
                expected(&first, kind, per, case.dtype, &g[..each]),
                expected(&second, kind, per, case.dtype, &g[each..]),
            ];
            let join = |part: fn(&(Oracle, Oracle)) -> &Oracle| Oracle {
                sum: oracles.iter().flat_map(|o| part(o).sum.clone()).collect(),
                magnitude: oracles.iter().flat_map(|o| part(o).magnitude.clone()).collect(),
            };
            let what = format!("{} {per:?}, batched", kind.name);
            check(&join(|o| &o.0), &what, &read(&found), case.dtype)?;
            let upstream = crate::common::matrix(&g, [2, each], case.dtype, &device);
            let grads = vjp::backward(&found, upstream);
            let da = batch.grad(&grads).ok_or("no gradient")?;
            check(&join(|o| &o.1), &format!("{what}, gradient"), &read(da.values()), case.dtype)?;
        }
    }
    Ok(2 * 3 * kinds.len())
}

fn softmax(case: &Case) -> Outcome {
    type Run = fn(&SparseTensor<2>) -> SparseTensor<2>;
    let ways: [(Run, bool, bool); 4] = [
        (SparseTensor::row_softmax, false, false),
        (SparseTensor::column_softmax, true, false),
        (SparseTensor::row_log_softmax, false, true),
        (SparseTensor::column_log_softmax, true, true),
    ];
    for (run, by_column, log) in ways {
        let (a, host) = case.build(true);
        let s = run(&a);
        if !s.same_pattern(&a) {
            return Err("the softmax has another pattern".into());
        }
        let g = case.numbers(53, host.nnz());
        let keys = if by_column { &host.cols } else { &host.rows };
        let (mut value, mut gradient) = (Oracle::zeros(host.nnz()), Oracle::zeros(host.nnz()));
        for e in 0..host.nnz() {
            let of_group = (0..host.nnz()).filter(|&f| keys[f] == keys[e]);
            let sum: f64 = of_group.clone().map(|f| host.values[f].exp()).sum();
            let weight = |f: usize| host.values[f].exp() / sum;
            if log {
                value.add(e, host.values[e] - sum.ln());
                value.magnitude[e] += host.values[e].abs() + sum.ln().abs() + 1.0;
                gradient.add(e, g[e]);
                for f in of_group {
                    gradient.add(e, -4.0 * weight(e) * g[f]);
                    gradient.sum[e] += 3.0 * weight(e) * g[f];
                }
            } else {
                value.add(e, weight(e));
                gradient.add(e, 4.0 * weight(e) * g[e]);
                gradient.sum[e] -= 3.0 * weight(e) * g[e];
                for f in of_group {
                    gradient.add(e, -4.0 * weight(e) * weight(f) * g[f]);
                    gradient.sum[e] += 3.0 * weight(e) * weight(f) * g[f];
                }
            }
        }
        let what = format!("by column: {by_column}, log: {log}");
        value.check(&what, &read(s.values()), case.dtype)?;
        let grads = vjp::backward(s.values(), vector(&g, case.dtype, &a.device()));
        let da = a.grad(&grads).ok_or("no gradient")?;
        gradient.check(&format!("{what}, gradient"), &read(da.values()), case.dtype)?;
    }
    Ok(4 * 2)
}

fn edges(case: &Case) -> Outcome {
    let device = case.device.clone().autodiff();
    let (a, host) = case.build(false);
    for per in PER {
        let [count, group]: [usize; 2] = match per {
            Per::Row => [host.shape[0], 0],
            Per::Column => [host.shape[1], 1],
            Per::Matrix => [1, 2],
        };
        let u = case.numbers(54, count);
        let tracked = vector(&u, case.dtype, &device).require_grad();
        let s = edge_gather(a.pattern(), per, tracked.clone());
        let g = case.numbers(55, host.nnz());
        let (mut value, mut gradient) = (Oracle::zeros(host.nnz()), Oracle::zeros(count));
        // Sums over a matrix round those of its rows.
        let mut size = 0.0;
        for e in 0..host.nnz() {
            let at = [host.rows[e], host.cols[e], 0][group];
            value.add(e, u[at]);
            gradient.add(at, g[e]);
            size += g[e].abs();
        }
        if per == Per::Matrix {
            gradient.magnitude[0] += size * crate::common::epsilon(case.dtype) / crate::common::epsilon(DType::F32);
        }
        value.check(&format!("{per:?}"), &read(s.values()), case.dtype)?;
        let grads = vjp::backward(s.values(), vector(&g, case.dtype, &device));
        let du = tracked.grad(&grads).ok_or("no gradient")?;
        gradient.check(&format!("{per:?}, gradient"), &read(&du), case.dtype)?;
    }
    Ok(3 * 2)
}
