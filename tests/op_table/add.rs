//! Sums, entrywise products, scalings and maps.

use crate::batches::Batch;
use crate::common::{Host, Layout, Oracle, epsilon, matrix, read, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::ops::add::{csr_add, sparse_add, sparse_mul};
use sparsegrad::prelude::*;
use sparsegrad::vjp;

pub const ROWS: &[Row] = &[
    ("add, dense", dense, 4),
    ("add, sparse", |case| sparse(case, true), 3 * 3),
    ("multiply, sparse", |case| sparse(case, false), 3 * 3),
    ("multiply, dense", multiply_dense, 3),
    ("scale", scale, 4),
    ("maps", maps, 4),
    ("add, ragged", |case| batched(case, false), 4),
    ("add, shared", |case| batched(case, true), 4),
];

/// Like [`Oracle::check`], with room for a rounding of each of the parts that a result is made of: Burn rounds every step.
pub fn check_steps(oracle: &Oracle, what: &str, found: &[f64], dtype: DType) -> Result<(), String> {
    let room = epsilon(dtype) / (32.0 * epsilon(dtype).min(epsilon(DType::F32)));
    let magnitude = oracle.magnitude.iter().map(|m| m * (1.0 + 2.0 * room)).collect();
    Oracle { sum: oracle.sum.clone(), magnitude }.check(what, found, dtype)
}

fn entries(tensor: &SparseTensor<2>) -> Vec<(usize, usize)> {
    let (rows, columns) = tensor.pattern().coordinates();
    rows.into_iter().zip(columns).collect()
}

fn dense(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = host.shape;
    let (d, g) = (case.numbers(70, m * n), case.numbers(71, m * n));
    let mut sum = Oracle::zeros(m * n);
    d.iter().enumerate().for_each(|(at, &d)| sum.add(at, d));
    let mut gradient = Oracle::zeros(host.nnz());
    for e in 0..host.nnz() {
        let at = host.rows[e] * n + host.cols[e];
        sum.add(at, host.values[e]);
        gradient.add(e, g[at]);
    }
    let td = matrix(&d, [m, n], case.dtype, &a.device()).require_grad();
    let found = csr_add(&a, td.clone());
    check_steps(&sum, "A + D", &read(&found), case.dtype)?;
    check_steps(&sum, "&A + D", &read(&(&a + td.clone())), case.dtype)?;
    let grads = vjp::backward(&found, matrix(&g, [m, n], case.dtype, &a.device()));
    gradient.check("dA", &read(a.grad(&grads).ok_or("no gradient of A")?.values()), case.dtype)?;
    if read(&td.grad(&grads).ok_or("no gradient of D")?) != g {
        return Err("the gradient of D is another".into());
    }
    Ok(4)
}

/// The sum over the union, or the product over the intersection, and both gradients.
fn sparse(case: &Case, sum: bool) -> Outcome {
    let mut held = 0;
    for partner in 0..3 {
        let (a, host) = case.build(true);
        let b = match partner {
            0 => Layout::Coo.build(&other(host.shape), case.dtype, &a.device()).0,
            1 => a.map_values(|v| v * 0.5),
            _ => a.coalesce().to_csc(),
        };
        let b = b.detach().require_grad();
        let (left, right) = (host, Host { values: read(b.values()), ..located(&b) });
        let c = if sum { sparse_add(&a, &b) } else { sparse_mul(&a, &b) };
        let stored = |at: (usize, usize)| [&left, &right].map(|h| has(h, at));
        let places = entries(&c);
        let expected: Vec<_> = match partner == 1 && sum {
            true => entries(&a),
            false => all_places(left.shape)
                .filter(|&at| if sum { stored(at) != [false; 2] } else { stored(at) == [true; 2] })
                .collect(),
        };
        let mut sorted = places.clone();
        sorted.sort_unstable();
        let mut sorted_expected = expected.clone();
        sorted_expected.sort_unstable();
        if sorted != sorted_expected {
            return Err(format!("partner {partner}: entries {sorted:?}"));
        }
        let g = case.numbers(72, c.nnz());
        // With one pattern, duplicates are added one by one.
        let one_by_one = partner == 1 && sum;
        let (da, db) = (left.dense(), right.dense());
        let mut result = Oracle::zeros(c.nnz());
        let [mut dl, mut dr] = [Oracle::zeros(left.nnz()), Oracle::zeros(right.nnz())];
        for (at, &(i, j)) in places.iter().enumerate() {
            let place = i * left.shape[1] + j;
            let [x, y] = if one_by_one { [left.values[at], right.values[at]] } else { [da[place], db[place]] };
            if sum {
                result.add(at, x);
                result.add(at, y);
            } else {
                result.add(at, x * y);
            }
            for (host, gradient, other) in [(&left, &mut dl, y), (&right, &mut dr, x)] {
                let slots = (0..host.nnz()).filter(|&e| (host.rows[e], host.cols[e]) == (i, j));
                for e in slots.filter(|&e| !one_by_one || e == at) {
                    gradient.add(e, g[at] * if sum { 1.0 } else { other });
                }
            }
        }
        // What duplicates sum to is rounded before it is used.
        for e in 0..result.sum.len() {
            let (i, j) = places[e];
            result.magnitude[e] += magnitude(&left, (i, j)) + magnitude(&right, (i, j));
            if !sum {
                result.magnitude[e] += magnitude(&left, (i, j)) * magnitude(&right, (i, j));
            }
        }
        check_steps(&result, "result", &read(c.values()), case.dtype)?;
        let grads = vjp::backward(c.values(), vector(&g, case.dtype, &a.device()));
        for (what, tensor, oracle, other) in [("dA", &a, &mut dl, &right), ("dB", &b, &mut dr, &left)] {
            let mine = located(tensor);
            for e in 0..oracle.sum.len() {
                oracle.magnitude[e] += magnitude(other, (mine.rows[e], mine.cols[e]));
            }
            let found = tensor.grad(&grads).ok_or(format!("no {what}"))?;
            check_steps(oracle, what, &read(found.values()), case.dtype)?;
        }
        held += 3;
    }
    Ok(held)
}

fn other(shape: [usize; 2]) -> Host {
    if shape.contains(&0) { Host::new("other", shape, &[]) } else { Host::random("other", shape, 3, 80) }
}

fn located(tensor: &SparseTensor<2>) -> Host {
    let (rows, cols) = tensor.pattern().coordinates();
    let values = vec![0.0; rows.len()];
    Host { name: "located", shape: tensor.shape(), rows, cols, values }
}

fn has(host: &Host, at: (usize, usize)) -> bool {
    (0..host.nnz()).any(|e| (host.rows[e], host.cols[e]) == at)
}

fn magnitude(host: &Host, at: (usize, usize)) -> f64 {
    (0..host.nnz()).filter(|&e| (host.rows[e], host.cols[e]) == at).map(|e| host.values[e].abs()).sum()
}

fn all_places([m, n]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..m).flat_map(move |i| (0..n).map(move |j| (i, j)))
}

fn multiply_dense(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = host.shape;
    let (d, g) = (case.numbers(73, m * n), case.numbers(74, host.nnz()));
    let [mut product, mut da, mut dd] = [Oracle::zeros(host.nnz()), Oracle::zeros(host.nnz()), Oracle::zeros(m * n)];
    for e in 0..host.nnz() {
        let at = host.rows[e] * n + host.cols[e];
        product.add(e, host.values[e] * d[at]);
        da.add(e, g[e] * d[at]);
        dd.add(at, g[e] * host.values[e]);
    }
    let td = matrix(&d, [m, n], case.dtype, &a.device()).require_grad();
    let found = &a * td.clone();
    product.check("A * D", &read(found.values()), case.dtype)?;
    let grads = vjp::backward(found.values(), vector(&g, case.dtype, &a.device()));
    da.check("dA", &read(a.grad(&grads).ok_or("no gradient of A")?.values()), case.dtype)?;
    check_steps(&dd, "dD", &read(&td.grad(&grads).ok_or("no gradient of D")?), case.dtype)?;
    Ok(3)
}

fn scale(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = host.shape;
    let (r, c, g) = (case.numbers(75, m), case.numbers(76, n), case.numbers(77, host.nnz()));
    let [mut scaled, mut da] = [Oracle::zeros(host.nnz()), Oracle::zeros(host.nnz())];
    let [mut dr, mut dc] = [Oracle::zeros(m), Oracle::zeros(n)];
    for e in 0..host.nnz() {
        let (i, j, v) = (host.rows[e], host.cols[e], host.values[e]);
        scaled.add(e, r[i] * v * c[j]);
        da.add(e, r[i] * g[e] * c[j]);
        dr.add(i, g[e] * v * c[j]);
        dc.add(j, g[e] * v * r[i]);
    }
    let [tr, tc] = [&r, &c].map(|v| vector(v, case.dtype, &a.device()).require_grad());
    let found = a.scale(tr.clone(), tc.clone());
    check_steps(&scaled, "D1 A D2", &read(found.values()), case.dtype)?;
    let one_by_one = a.scale_rows(tr.clone()).scale_columns(tc.clone());
    check_steps(&scaled, "one by one", &read(one_by_one.values()), case.dtype)?;
    let grads = vjp::backward(found.values(), vector(&g, case.dtype, &a.device()));
    check_steps(&da, "dA", &read(a.grad(&grads).ok_or("no gradient of A")?.values()), case.dtype)?;
    let found = [&tr, &tc].map(|v| v.grad(&grads).map(|v| read(&v)).unwrap_or_default());
    check_steps(&dr, "dr", &found[0], case.dtype)?;
    check_steps(&dc, "dc", &found[1], case.dtype)?;
    Ok(4)
}

/// Squares of sums, and linear functions of each.
fn maps(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let n = host.shape[1];
    let square = a.powi(2);
    let g = case.numbers(78, square.nnz());
    let dense = host.dense();
    let [mut squares, mut da] = [Oracle::zeros(square.nnz()), Oracle::zeros(host.nnz())];
    for (at, &(i, j)) in entries(&square).iter().enumerate() {
        let (sum, all) = (dense[i * n + j], magnitude(&host, (i, j)));
        squares.add(at, sum * sum);
        squares.magnitude[at] += 2.0 * all * all;
        for e in (0..host.nnz()).filter(|&e| (host.rows[e], host.cols[e]) == (i, j)) {
            da.add(e, 2.0 * g[at] * sum);
            da.magnitude[e] += 2.0 * all;
        }
    }
    if square.pattern().has_duplicates() {
        return Err("duplicates are left".into());
    }
    check_steps(&squares, "squares", &read(square.values()), case.dtype)?;
    let grads = vjp::backward(square.values(), vector(&g, case.dtype, &a.device()));
    check_steps(&da, "dA", &read(a.grad(&grads).ok_or("no gradient")?.values()), case.dtype)?;
    let oracle = |factor: f64| {
        let mut oracle = Oracle::zeros(host.nnz());
        host.values.iter().enumerate().for_each(|(e, v)| oracle.add(e, factor * v));
        oracle
    };
    oracle(-1.5).check("multiple", &read((&(-&a) * 1.5).values()), case.dtype)?;
    oracle(0.25).check("quotient", &read((&a / 4.0).values()), case.dtype)?;
    Ok(4)
}

/// A batch is its block-diagonal matrix, and dense operands are stacked.
fn batched(case: &Case, shared: bool) -> Outcome {
    let Batch { tensor: a, .. } = case.batch(shared);
    let b = a.coalesce().map_values(|v| v * 0.5);
    let blocks = |t: &SparseTensor<3>| t.to_block_diagonal();
    let same = |what: &str, found: &SparseTensor<3>, expected: &SparseTensor<2>| {
        let equal = found.pattern() == expected.pattern() && read(found.values()) == read(expected.values());
        if equal { Ok(()) } else { Err(format!("{what} differs from that of the block-diagonal matrix")) }
    };
    same("sum", &(&a + &b), &(&blocks(&a) + &blocks(&b)))?;
    same("product", &(&a * &b), &(&blocks(&a) * &blocks(&b)))?;
    let [items, m, n] = a.shape();
    let d = case.numbers(79, items * m * n);
    let dense = burn::tensor::TensorData::new(d, [items, m, n]);
    let dense = Tensor::<3>::from_data(dense, (&a.device(), case.dtype));
    let product = (&a * dense.clone()).to_dense();
    let expected = read(&(a.to_dense() * dense.clone()));
    let mut oracle = Oracle::zeros(expected.len());
    let room = read(&a.abs().to_dense());
    for (at, &value) in expected.iter().enumerate() {
        oracle.add(at, value);
        oracle.magnitude[at] += 4.0 + 4.0 * room[at];
    }
    check_steps(&oracle, "dense product", &read(&product), case.dtype)?;
    let sum = read(&(&a + dense.clone()));
    if sum != read(&(dense + a.to_dense())) {
        return Err("the dense sum is another".into());
    }
    Ok(4)
}
