//! Sparse times sparse.

use crate::batches::Batch;
use crate::common::{Host, Oracle, epsilon, read, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::vjp;

pub const ROWS: &[Row] = &[
    ("spgemm, both ways", |case| both_ways(case, false), 3 * 3),
    ("spgemm, planned", |case| both_ways(case, true), 3 * 3),
    ("spgemm, ragged", |case| batched(case, false), 3),
    ("spgemm, shared", |case| batched(case, true), 3),
    ("spgemm, one for all", |case| Ok(one_for_all(case, true)? + one_for_all(case, false)?), 2 * 3),
];

/// `A B` and both gradients from that of the product, `g` in the order of its sorted positions.
struct Expected {
    positions: Vec<(usize, usize)>,
    product: Oracle,
    left: Oracle,
    right: Oracle,
}

fn expected(a: &Host, b: &Host, g: impl Fn(usize) -> f64) -> Expected {
    let meets: Vec<(usize, usize)> =
        (0..a.nnz()).flat_map(|e| (0..b.nnz()).filter(move |&f| a.cols[e] == b.rows[f]).map(move |f| (e, f))).collect();
    let mut positions: Vec<_> = meets.iter().map(|&(e, f)| (a.rows[e], b.cols[f])).collect();
    positions.sort_unstable();
    positions.dedup();
    let mut all = Expected {
        product: Oracle::zeros(positions.len()),
        left: Oracle::zeros(a.nnz()),
        right: Oracle::zeros(b.nnz()),
        positions,
    };
    for (e, f) in meets {
        let at = all.positions.binary_search(&(a.rows[e], b.cols[f])).unwrap();
        all.product.add(at, a.values[e] * b.values[f]);
        all.left.add(e, g(at) * b.values[f]);
        all.right.add(f, g(at) * a.values[e]);
    }
    all
}

/// The transpose, a matrix of another layout, and the square of what is square.
fn both_ways(case: &Case, planned: bool) -> Outcome {
    let mut held = 0;
    for partner in 0..3 {
        let (a, host) = case.build(true);
        let [m, n] = host.shape;
        let (b, other) = match partner {
            0 => (a.t().detach().require_grad(), host.transposed()),
            1 => {
                let other = Host::random("other", [n, 9], 3, 50);
                let (b, other) = crate::common::Layout::Coo.build(&other, case.dtype, &a.device());
                (b.require_grad(), other)
            }
            _ if m == n => (a.clone().detach().require_grad(), host.clone()),
            _ => (a.t().to_csr().detach().require_grad(), host.transposed().sorted(false)),
        };
        // Conversions keep the order within rows: the oracle's entries are in the order of the values.
        let other = Host { values: read(b.values()), ..in_order(&b, &other) };
        let c = match planned {
            true => SpgemmPlan::new(a.pattern(), b.pattern()).map_err(|e| e.to_string())?.execute(&a, &b),
            false => a.matmul(&b),
        };
        let g = case.numbers(60, c.nnz());
        let expected = expected(&host, &other, |at| g[at]);
        let (rows, columns) = c.pattern().coordinates();
        if rows.into_iter().zip(columns).collect::<Vec<_>>() != expected.positions || c.pattern().has_duplicates() {
            return Err("the product has another pattern".into());
        }
        expected.product.check("C", &read(c.values()), case.dtype)?;
        let grads = vjp::backward(c.values(), vector(&g, case.dtype, &a.device()));
        let da = a.grad(&grads).ok_or("no gradient of A")?;
        expected.left.check("dA", &read(da.values()), case.dtype)?;
        let db = b.grad(&grads).ok_or("no gradient of B")?;
        expected.right.check("dB", &read(db.values()), case.dtype)?;
        held += 3;
    }
    Ok(held)
}

fn in_order<const D: usize>(tensor: &SparseTensor<D>, host: &Host) -> Host {
    let (rows, cols) = tensor.pattern().coordinates();
    Host { rows, cols, ..host.clone() }
}

/// Item by item: the same as one product of the block-diagonal matrices.
fn batched(case: &Case, shared: bool) -> Outcome {
    let Batch { tensor: a, items } = case.batch(shared);
    let b = a.t().map_values(|v| v * 0.5).detach().require_grad();
    let c = spgemm(&a, &b);
    let [count, m, n] = a.shape();
    if c.shape() != [count, m, m] {
        return Err(format!("the product has shape {:?}", c.shape()));
    }
    let _ = (items, n);
    let host = |tensor: &SparseTensor<3>| {
        let blocks = tensor.to_block_diagonal();
        let nothing = Host::new("blocks", blocks.shape(), &[]);
        Host { values: read(blocks.values()), ..in_order(&blocks, &nothing) }
    };
    let g = case.numbers(61, c.nnz());
    let expected = expected(&host(&a), &host(&b), |at| g[at]);
    expected.product.check("C", &read(c.values()), case.dtype)?;
    let grads = vjp::backward(c.values(), vector(&g, case.dtype, &a.device()));
    let da = a.grad(&grads).ok_or("no gradient of A")?;
    expected.left.check("dA", &read(da.values()), case.dtype)?;
    let db = b.grad(&grads).ok_or("no gradient of B")?;
    expected.right.check("dB", &read(db.values()), case.dtype)?;
    Ok(3)
}

/// A matrix for all items of a batch, on the right or on the left: its gradient is the sum over them.
fn one_for_all(case: &Case, on_the_right: bool) -> Outcome {
    let Batch { tensor: batch, items } = case.batch(false);
    let [count, m, n] = batch.shape();
    let shape = if on_the_right { [n, 4] } else { [3, m] };
    let one = match shape[1] {
        0 => Host::new("for all", shape, &[]),
        _ => Host::random("for all", shape, 2, 62),
    };
    let (one, host) = crate::common::Layout::Coo.build(&one, case.dtype, &batch.device());
    let one = one.require_grad();
    let (c, shape) = match on_the_right {
        true => (batch.matmul(&one), [count, m, 4]),
        false => (one.matmul(&batch), [count, 3, n]),
    };
    if c.shape() != shape {
        return Err(format!("the product has shape {:?}", c.shape()));
    }
    let g = case.numbers(63, c.nnz());
    let (mut product, mut of_items, mut of_one) = (Oracle::default(), Oracle::default(), Oracle::zeros(host.nnz()));
    for item in &items {
        let (left, right) = if on_the_right { (item, &host) } else { (&host, item) };
        let before = product.sum.len();
        let expected = expected(left, right, |at| g[before + at]);
        let (own, shared) =
            if on_the_right { (expected.left, expected.right) } else { (expected.right, expected.left) };
        for (all, part) in [(&mut product, expected.product), (&mut of_items, own)] {
            all.sum.extend(part.sum);
            all.magnitude.extend(part.magnitude);
        }
        // On the left the gradient of each item is rounded before they are added.
        let roundings = if on_the_right { 0.0 } else { epsilon(case.dtype) / epsilon(DType::F32) };
        for at in 0..host.nnz() {
            of_one.sum[at] += shared.sum[at];
            of_one.magnitude[at] += shared.magnitude[at] * (1.0 + roundings);
        }
    }
    product.check("C", &read(c.values()), case.dtype)?;
    let grads = vjp::backward(c.values(), vector(&g, case.dtype, &batch.device()));
    let gradient = batch.grad(&grads).ok_or("no gradient of the batch")?;
    of_items.check("the items' gradient", &read(gradient.values()), case.dtype)?;
    let gradient = one.grad(&grads).ok_or("no gradient of the matrix")?;
    of_one.check("the matrix' gradient", &read(gradient.values()), case.dtype)?;
    Ok(3)
}
