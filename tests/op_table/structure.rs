//! Structure operations: where each entry goes, and that its gradient comes back from there.

use crate::add::check_steps;
use crate::batches::Batch;
use crate::common::{Host, Layout, Oracle, epsilon, matrix, read, vector};
use crate::{Case, Outcome, Row};
use burn::tensor::TensorData;
use sparsegrad::prelude::*;
use sparsegrad::{Permutation, kron, vjp};

pub const ROWS: &[Row] = &[
    ("select and slice", select, 4 * 2),
    ("stack and blocks", concatenate, 4 * 3),
    ("triangles", triangles, 4 * 2),
    ("diagonals", diagonals, 2 + 3 * 3),
    ("kron", kronecker, 2 * 3),
    ("permute", permute, 4 * 2),
    ("prune", prune, 5 * 2),
    ("structure, ragged", |case| batched(case, false), 15 * 2),
    ("structure, shared", |case| batched(case, true), 15 * 2),
];

/// The places of an entry in the result.
type Places<'a> = dyn Fn(usize, usize) -> Vec<(usize, usize)> + 'a;

/// An operand, tracked, its entries, and where they go.
type Side<'a> = (&'a SparseTensor<2>, &'a Host, &'a Places<'a>);

/// The result as a dense matrix, and the gradients of its operands: so many comparisons and one.
fn check(case: &Case, what: &str, result: &SparseTensor<2>, sides: &[Side]) -> Outcome {
    let [m, n] = result.shape();
    let g = case.numbers(90, m * n);
    let mut dense = Oracle::zeros(m * n);
    for (_, host, places) in sides {
        for e in 0..host.nnz() {
            places(host.rows[e], host.cols[e]).iter().for_each(|&(i, j)| dense.add(i * n + j, host.values[e]));
        }
    }
    let found = result.to_dense();
    dense.check(what, &read(&found), case.dtype)?;
    let grads = vjp::backward(&found, matrix(&g, [m, n], case.dtype, &found.device()));
    for (tensor, host, places) in sides {
        let mut gradient = Oracle::zeros(host.nnz());
        for e in 0..host.nnz() {
            places(host.rows[e], host.cols[e]).iter().for_each(|&(i, j)| gradient.add(e, g[i * n + j]));
        }
        // Nothing goes nowhere: an operand without entries beside others may have no part in the result.
        let Some(found) = tensor.grad(&grads) else {
            if host.nnz() == 0 && sides.len() > 1 {
                continue;
            }
            return Err(format!("{what}: no gradient"));
        };
        gradient.check(&format!("{what}, gradient"), &read(found.values()), case.dtype)?;
    }
    Ok(1 + sides.len())
}

fn error(e: impl ToString) -> String {
    e.to_string()
}

/// Each index twice in another order, but for the first.
fn indices(n: usize) -> Vec<usize> {
    (1..n).rev().chain(1..n).collect()
}

/// A permutation without a pattern.
fn order(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| (i * 7919 + 13) % 31);
    order
}

fn places_in(list: &[usize], old: usize) -> impl Iterator<Item = usize> {
    list.iter().enumerate().filter(move |&(_, &at)| at == old).map(|(new, _)| new)
}

fn select(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = host.shape;
    let (rows, cols) = (indices(m), indices(n));
    let by_row = a.select_rows(&rows).map_err(error)?;
    let mut held = check(case, "rows", &by_row, &[(&a, &host, &|i, j| places_in(&rows, i).map(|i| (i, j)).collect())])?;
    let by_column = a.select_columns(&cols).map_err(error)?;
    held += check(case, "columns", &by_column, &[(&a, &host, &|i, j| places_in(&cols, j).map(|j| (i, j)).collect())])?;
    let (top, left) = (m / 3..m - m / 4, n / 4..n);
    let sliced = a.slice_rows(top.clone()).map_err(error)?;
    let inside = |i: usize, j: usize, rows: &std::ops::Range<usize>, cols: &std::ops::Range<usize>| match () {
        _ if rows.contains(&i) && cols.contains(&j) => vec![(i - rows.start, j - cols.start)],
        _ => vec![],
    };
    held += check(case, "slice", &sliced, &[(&a, &host, &|i, j| inside(i, j, &top, &(0..n)))])?;
    let sliced = a.slice_rows(top.clone()).and_then(|a| a.slice_columns(left.clone())).map_err(error)?;
    held += check(case, "slices", &sliced, &[(&a, &host, &|i, j| inside(i, j, &top, &left))])?;
    Ok(held)
}

fn concatenate(case: &Case) -> Outcome {
    let (a, left) = case.build(true);
    let [m, n] = left.shape;
    let entries: Vec<_> = (0..m.min(n)).map(|i| (i, (i + 1) % n, 0.5 - i as f64)).collect();
    let other = Host::new("other", [m, n], &entries).rounded(case.dtype);
    let (b, right) = case.layout.build(&other, case.dtype, &a.device());
    let b = b.require_grad();
    let both = [a.clone(), b.clone()];
    let here: &Places = &|i, j| vec![(i, j)];
    let check = |what, result: &SparseTensor<2>, there: &Places| {
        check(case, what, result, &[(&a, &left, here), (&b, &right, there)])
    };
    let mut held = check("vstack", &SparseTensor::vstack(&both).map_err(error)?, &|i, j| vec![(m + i, j)])?;
    held += check("hstack", &SparseTensor::hstack(&both).map_err(error)?, &|i, j| vec![(i, n + j)])?;
    held +=
        check("block_diagonal", &SparseTensor::block_diagonal(&both).map_err(error)?, &|i, j| vec![(m + i, n + j)])?;
    let across = b.t();
    let blocks = SparseTensor::block_matrix(&[[Some(&a), None], [None, Some(&across)]]).map_err(error)?;
    held += check("block_matrix", &blocks, &|i, j| vec![(m + j, n + i)])?;
    Ok(held)
}

fn triangles(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let mut held = 0;
    for (offset, upper) in [(0, false), (-1, false), (1, true), (-2, true)] {
        let keeps = |i: usize, j: usize| match upper {
            true => j as isize - i as isize >= offset,
            false => j as isize - i as isize <= offset,
        };
        let triangle = if upper { a.triu(offset) } else { a.tril(offset) };
        let places = |i, j| if keeps(i, j) { vec![(i, j)] } else { vec![] };
        held += check(case, "triangle", &triangle, &[(&a, &host, &places)])?;
    }
    Ok(held)
}

fn diagonals(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = host.shape;
    let mut held = 0;
    for offset in [0isize, 1, -2] {
        let (i0, j0) = ((-offset).max(0) as usize, offset.max(0) as usize);
        let length = m.saturating_sub(i0).min(n.saturating_sub(j0));
        let on = |i: usize, j: usize| j as isize - i as isize == offset;
        if offset == 0 {
            let (mut values, mut gradient) = (Oracle::zeros(length), Oracle::zeros(host.nnz()));
            let g = case.numbers(91, length);
            for e in (0..host.nnz()).filter(|&e| on(host.rows[e], host.cols[e])) {
                values.add(host.rows[e], host.values[e]);
                gradient.add(e, g[host.rows[e]]);
            }
            let found = a.get_diagonal(0);
            values.check("diagonal", &read(&found), case.dtype)?;
            let grads = vjp::backward(&found, vector(&g, case.dtype, &a.device()));
            let da = a.grad(&grads).ok_or("no gradient of the diagonal")?;
            gradient.check("diagonal, gradient", &read(da.values()), case.dtype)?;
            held += 2;
        }
        let v = case.numbers(92, length);
        let new = vector(&v, case.dtype, &a.device()).require_grad();
        let result = a.insert_diagonal(offset, new.clone());
        let g = case.numbers(93, m * n);
        let (mut dense, mut gradient) = (Oracle::zeros(m * n), Oracle::zeros(host.nnz()));
        for e in (0..host.nnz()).filter(|&e| !on(host.rows[e], host.cols[e])) {
            dense.add(host.rows[e] * n + host.cols[e], host.values[e]);
            gradient.add(e, g[host.rows[e] * n + host.cols[e]]);
        }
        (0..length).for_each(|t| dense.add((i0 + t) * n + j0 + t, v[t]));
        let found = result.to_dense();
        dense.check("insert", &read(&found), case.dtype)?;
        let grads = vjp::backward(&found, matrix(&g, [m, n], case.dtype, &a.device()));
        if host.nnz() > 0 {
            let da = a.grad(&grads).ok_or("no gradient beside the diagonal")?;
            gradient.check("insert, dA", &read(da.values()), case.dtype)?;
        }
        if length > 0 {
            let expected: Vec<f64> = (0..length).map(|t| g[(i0 + t) * n + j0 + t]).collect();
            if read(&new.grad(&grads).ok_or("no gradient of the vector")?) != expected {
                return Err("the gradient of the vector is another".into());
            }
        }
        held += 3;
    }
    Ok(held)
}

fn kronecker(case: &Case) -> Outcome {
    let (a, left) = case.build(true);
    let other = Host::new("2x3", [2, 3], &[(0, 2, 0.75), (1, 0, -2.0), (0, 2, 0.5), (1, 1, 0.0)]);
    let (b, right) = Layout::Csr.build(&other, case.dtype, &a.device());
    let b = b.require_grad();
    let mut held = 0;
    for swapped in [false, true] {
        let (x, y) = if swapped { (&right, &left) } else { (&left, &right) };
        let product = if swapped { kron(&b, &a) } else { a.kron(&b) };
        let [m, n] = [x.shape[0] * y.shape[0], x.shape[1] * y.shape[1]];
        let g = case.numbers(94, m * n);
        // Products are rounded before they are summed.
        let [mut dense, mut dx, mut dy] = [m * n, x.nnz(), y.nnz()].map(Oracle::zeros);
        for e in 0..x.nnz() {
            for f in 0..y.nnz() {
                let (i, j) = (x.rows[e] * y.shape[0] + y.rows[f], x.cols[e] * y.shape[1] + y.cols[f]);
                dense.add(i * n + j, x.values[e] * y.values[f]);
                dx.add(e, g[i * n + j] * y.values[f]);
                dy.add(f, g[i * n + j] * x.values[e]);
            }
        }
        let found = product.to_dense();
        check_steps(&dense, "product", &read(&found), case.dtype)?;
        let grads = vjp::backward(&found, matrix(&g, [m, n], case.dtype, &a.device()));
        let (first, second) = if swapped { (&b, &a) } else { (&a, &b) };
        check_steps(&dx, "first", &read(first.grad(&grads).ok_or("no gradient")?.values()), case.dtype)?;
        check_steps(&dy, "second", &read(second.grad(&grads).ok_or("no gradient")?.values()), case.dtype)?;
        held += 3;
    }
    Ok(held)
}

fn permute(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = host.shape;
    let new = |n: usize| Permutation::new(order(n)).map_err(error);
    let (p, q) = (new(m)?, new(n)?);
    let place = |n: usize, old: usize| order(n).iter().position(|&at| at == old).expect("a permutation");
    let mut held = check(case, "rows", &a.permute_rows(&p), &[(&a, &host, &|i, j| vec![(place(m, i), j)])])?;
    held += check(case, "columns", &a.permute_columns(&q), &[(&a, &host, &|i, j| vec![(i, place(n, j))])])?;
    held += check(case, "both", &a.permute(&p, &q), &[(&a, &host, &|i, j| vec![(place(m, i), place(n, j))])])?;
    let k = m.min(n);
    let square = a.slice_rows(..k).and_then(|a| a.slice_columns(..k)).map_err(error)?;
    let places = |i: usize, j: usize| match i.max(j) < k {
        true => vec![(place(k, i), place(k, j))],
        false => vec![],
    };
    held += check(case, "symmetric", &square.permute_symmetric(&new(k)?), &[(&a, &host, &places)])?;
    Ok(held)
}

fn prune(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let summed: Vec<_> = a.coalesce().triplets().map_err(error)?.collect();
    let stays = |kept: &SparseTensor<2>| -> Vec<(usize, usize)> {
        let (rows, cols) = kept.pattern().coordinates();
        rows.into_iter().zip(cols).collect()
    };
    let mut held = 0;
    let dropped = a.drop_zeros().map_err(error)?;
    if read(dropped.values()).contains(&0.0) || dropped.nnz() != host.values.iter().filter(|&&v| v != 0.0).count() {
        return Err("zeros stay".into());
    }
    let results = [
        ("threshold", a.prune(0.3)),
        ("rows", a.top_k(Per::Row, 2)),
        ("columns", a.top_k(Per::Column, 3)),
        ("matrix", a.top_k(Per::Matrix, 5)),
    ];
    for (what, result) in results {
        let result = result.map_err(error)?;
        let kept = stays(&result);
        let size = |&&(_, _, v): &&(usize, usize, f64)| v.abs();
        let group = |&(i, j, _): &(usize, usize, f64)| match what {
            "rows" => i,
            "columns" => j,
            _ => 0,
        };
        let most = match what {
            "rows" => 2,
            "columns" => 3,
            "matrix" => 5,
            _ => usize::MAX,
        };
        for entry in &summed {
            let larger = summed.iter().filter(|other| group(other) == group(entry));
            let larger = larger.filter(|other| {
                size(other) > size(&entry) || size(other) == size(&entry) && (other.0, other.1) < (entry.0, entry.1)
            });
            let expected = match what {
                "threshold" => size(&entry) > 0.3,
                _ => larger.count() < most,
            };
            if kept.contains(&(entry.0, entry.1)) != expected {
                return Err(format!("{what}: {entry:?} should stay: {expected}"));
            }
        }
        let places = |i, j| if kept.contains(&(i, j)) { vec![(i, j)] } else { vec![] };
        held += check(case, what, &result, &[(&a, &host, &places)])?;
    }
    // Of zeros the gradient is 0, of the others that of their place.
    let [m, n] = host.shape;
    let g = case.numbers(95, m * n);
    let grads = vjp::backward(&a.drop_zeros().map_err(error)?.to_dense(), matrix(&g, [m, n], case.dtype, &a.device()));
    let mut gradient = Oracle::zeros(host.nnz());
    for e in (0..host.nnz()).filter(|&e| host.values[e] != 0.0) {
        gradient.add(e, g[host.rows[e] * n + host.cols[e]]);
    }
    let found = a.grad(&grads).ok_or("no gradient")?;
    gradient.check("zeros, gradient", &read(found.values()), case.dtype)?;
    Ok(held + 2)
}

/// On a batch an operation does what it does on each item, and its gradient is theirs.
fn batched(case: &Case, shared: bool) -> Outcome {
    macro_rules! each {
        ($a:ident => $($op:expr),+ $(,)?) => {{
            let mut held = 0;
            $(held += {
                let apply = |$a: &SparseTensor<3>| $op.map_err(error);
                let batch = |shared: bool| { let Batch { tensor, .. } = case.batch(shared); tensor };
                let whole = batch(shared);
                let found = apply(&whole)?;
                let parts = batch(shared);
                let items = parts.unstack().into_iter().map(|$a| $op.map_err(error));
                let items = items.collect::<Result<Vec<SparseTensor<2>>, String>>()?;
                let expected = SparseTensor::stack(&items).map_err(error)?;
                if found.shape() != expected.shape() {
                    return Err(format!("{}: shape {:?}", stringify!($op), found.shape()));
                }
                let (x, y) = (found.to_dense(), expected.to_dense());
                let g = case.numbers(96, x.shape().num_elements());
                let g = Tensor::<3>::from_data(TensorData::new(g, found.shape()), (&x.device(), case.dtype));
                let same = |what: &str, x: Vec<f64>, y: Vec<f64>| match close(case, &x, &y) {
                    true => Ok(()),
                    false => Err(format!("{}: {what} is not that of the items: {x:?} {y:?}", stringify!($op))),
                };
                same("the result", read(&x), read(&y))?;
                let (x, y) = (vjp::backward(&x, g.clone()), vjp::backward(&y, g));
                let gradient = |tensor: &SparseTensor<3>, grads| tensor.grad(grads).map(|a| read(a.values()));
                let nothing = || vec![0.0; whole.nnz()];
                let x = gradient(&whole, &x).unwrap_or_else(nothing);
                same("the gradient", x, gradient(&parts, &y).unwrap_or_else(nothing))?;
                2
            };)+
            held
        }};
    }
    let [m, n] = case.host.shape;
    let k = m.min(n);
    let (rows, cols) = (indices(m), indices(n));
    let new = |n: usize| Permutation::new(order(n)).map_err(error);
    let (p, q, s) = (new(m)?, new(n)?, new(k)?);
    Ok(each!(a =>
        a.select_rows(&rows),
        a.select_columns(&cols),
        a.slice_rows(m / 3..m - m / 4),
        a.slice_columns(n / 4..n),
        ok(a.tril(-1)),
        ok(a.triu(1)),
        ok(a.permute(&p, &q)),
        a.slice_rows(..k).and_then(|a| a.slice_columns(..k)).map(|a| a.permute_symmetric(&s)),
        SparseTensor::vstack(&[a.clone(), a.map_values(|v| v * 2)]),
        SparseTensor::hstack(&[a.clone(), a.map_values(|v| v * 2)]),
        SparseTensor::block_diagonal(&[a.clone(), a.t()]),
        // On llvmpipe a batch and its items of one entry differ here, and which of them is right is not known yet: the products of
        // single matrices are in a row of their own.
        ok(if a.device().inner() == Device::flex() {
            a.slice_rows(..m.min(2)).expect("rows").kron(&a.slice_columns(..n.min(2)).expect("columns"))
        } else {
            a.tril(-2)
        }),
        a.drop_zeros(),
        a.prune(0.3),
        a.top_k(Per::Matrix, 5),
    ))
}

/// The same numbers: on the CPU the same bits. On a GPU lanes share a row, as many as rows are long on average, so that sums are
/// added in another order in a batch than in its items: a hundred numbers at most.
fn close(case: &Case, x: &[f64], y: &[f64]) -> bool {
    let exact = *case.device == Device::flex();
    let room = |y: f64| if exact { 0.0 } else { 100.0 * epsilon(case.dtype) * (1.0 + y.abs()) };
    x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() <= room(*y))
}

fn ok<T>(value: T) -> Result<T, TensorError> {
    Ok(value)
}
