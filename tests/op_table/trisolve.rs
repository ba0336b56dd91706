//! Triangular solves, single and batched.

use crate::common::{Host, Oracle, View, epsilon, matrix, read, rounded, sddmm, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::{Triangular, TriangularSolve, vjp};

pub const ROWS: &[Row] = &[
    ("trisolve", |case| each(case, forward), 8 * 5),
    ("trisolve backward", |case| each(case, backward), 8 * 5),
    ("trisolve, vector", |case| each(case, vectors), 8 * 3),
    ("trisolve, batches", |case| each(case, batches), 8 * 6),
];

const COLUMNS: [usize; 5] = [0, 1, 7, 16, 33];

/// How a triangle is solved with.
#[derive(Clone, Copy, Debug)]
struct How {
    upper: bool,
    unit: bool,
    transpose: bool,
}

impl How {
    fn options(self) -> Triangular {
        let side = if self.upper { Triangular::upper() } else { Triangular::lower() };
        let side = if self.unit { side.unit_diagonal() } else { side };
        if self.transpose { side.transpose() } else { side }
    }

    /// Whether the stored entry at (i, j) is read.
    fn reads(self, i: usize, j: usize) -> bool {
        if i == j { !self.unit } else { self.upper == (i < j) }
    }

    /// The entries that are read, of the matrix that is solved with, and their places.
    fn entries(self, host: &Host) -> Vec<(usize, usize, f64, usize)> {
        let all = (0..host.nnz()).map(|e| (host.rows[e], host.cols[e], host.values[e], e));
        let read = all.filter(|&(i, j, ..)| self.reads(i, j));
        read.map(|(i, j, v, e)| if self.transpose { (j, i, v, e) } else { (i, j, v, e) }).collect()
    }

    /// Substitution in f64, each element rounded as it would be stored. With it the sizes that scale rounding errors, those of
    /// earlier elements included.
    fn solve(self, host: &Host, b: &[f64], k: usize, dtype: DType) -> Oracle {
        let n = host.shape[0];
        let entries = self.entries(host);
        let mut x = Oracle { sum: b.to_vec(), magnitude: b.iter().map(|b| b.abs()).collect() };
        for at in 0..n {
            let row = if self.upper != self.transpose { n - 1 - at } else { at };
            let mut divisor = if self.unit { 1.0 } else { 0.0 };
            for &(i, j, v, _) in entries.iter().filter(|entry| entry.0 == row) {
                if i == j {
                    divisor += v;
                    continue;
                }
                for c in 0..k {
                    x.sum[i * k + c] -= v * x.sum[j * k + c];
                    x.magnitude[i * k + c] += v.abs() * x.magnitude[j * k + c];
                }
            }
            for c in row * k..(row + 1) * k {
                x.sum[c] = rounded(&[x.sum[c] / divisor], dtype)[0];
                x.magnitude[c] /= divisor.abs();
            }
        }
        x
    }
}

/// A square matrix like the case's, with the diagonal stored, in all parts: small beside the diagonal, of which one entry is in two
/// parts. Runs `work` in every way to solve.
fn each(case: &Case, work: fn(&Case, How) -> Outcome) -> Outcome {
    let n = case.host.shape[0].min(40);
    let mut host = Host::new(case.host.name, [n, n], &[]);
    for e in 0..case.host.nnz() {
        let (i, j) = (case.host.rows[e], case.host.cols[e]);
        if i < n && i != j % n {
            host.rows.push(i);
            host.cols.push(j % n);
            host.values.push(case.host.values[e] / 64.0);
        }
    }
    for i in 0..n {
        // Not at the end of its row.
        let at = (i * 7) % (host.nnz() + 1);
        for (place, value) in if i == 2 { vec![(at, 1.5), (0, 0.5)] } else { vec![(at, 2.0 + i as f64 / 64.0)] } {
            host.rows.insert(place, i);
            host.cols.insert(place, i);
            host.values.insert(place, value);
        }
    }
    let case = Case { host: &host, ..*case };
    let mut held = 0;
    for at in 0..8 {
        let how = How { upper: at & 1 != 0, unit: at & 2 != 0, transpose: at & 4 != 0 };
        held += work(&case, how).map_err(|why| format!("{how:?}: {why}"))?;
    }
    Ok(held)
}

fn forward(case: &Case, how: How) -> Outcome {
    let (a, host) = case.build(false);
    let n = host.shape[0];
    for k in COLUMNS {
        let b = case.numbers(k as u64, n * k);
        let dense = View::ALL[k % 4].build(&b, [n, k], case.dtype, case.device);
        let x = a.triangular_solve(dense, how.options()).map_err(|e| e.to_string())?;
        assert_eq!(x.dims(), [n, k]);
        how.solve(&host, &b, k, case.dtype).check_stored(&format!("{k} columns"), &read(&x), case.dtype)?;
    }
    Ok(COLUMNS.len())
}

/// The gradient of the values, given what was found for x and for the gradient of b.
fn products(how: How, host: &Host, d: &[f64], x: &[f64], k: usize) -> Oracle {
    let at = if how.transpose { host.transposed() } else { host.clone() };
    let mut products = sddmm(&at, d, x, k);
    for e in 0..host.nnz() {
        let read = f64::from(how.reads(host.rows[e], host.cols[e]));
        products.sum[e] *= -read;
        products.magnitude[e] *= read;
    }
    products
}

fn backward(case: &Case, how: How) -> Outcome {
    let other = How { transpose: !how.transpose, ..how };
    let mut held = 0;
    // Which operands are tracked decides which gradients are computed, and how.
    let ways = [(0, true, true), (1, true, true), (1, true, false), (7, false, true), (33, true, true)];
    for (k, track_a, track_b) in ways {
        let (a, host) = case.build(track_a);
        let n = host.shape[0];
        let device = case.device.clone().autodiff();
        let (b, g) = (case.numbers(k as u64, n * k), case.numbers(99, n * k));
        let dense = matrix(&b, [n, k], case.dtype, &device);
        let dense = if track_b { dense.require_grad() } else { dense };
        let x = a.triangular_solve(dense.clone(), how.options()).map_err(|e| e.to_string())?;
        let grads = vjp::backward(&x, matrix(&g, [n, k], case.dtype, &device));
        let expected = other.solve(&host, &g, k, case.dtype);
        let d_b = dense.grad(&grads).map(|found| read(&found));
        if track_b {
            expected.check_stored(&format!("dB, {k} columns"), d_b.as_ref().ok_or("no gradient of B")?, case.dtype)?;
        }
        if track_a {
            let found = a.grad(&grads).ok_or("no gradient of A")?;
            if !found.same_pattern(&a) {
                return Err("the gradient has another pattern".into());
            }
            let found = read(found.values());
            // From the very numbers that the products are made of, if they are known: then only these round.
            let d = match d_b {
                Some(d) => d,
                None => {
                    let up = matrix(&g, [n, k], case.dtype, case.device);
                    read(&case.build(false).0.triangular_solve(up, other.options()).map_err(|e| e.to_string())?)
                }
            };
            products(how, &host, &d, &read(&x), k).check_stored(&format!("dA, {k} columns"), &found, case.dtype)?;
            for e in 0..host.nnz() {
                if !how.reads(host.rows[e], host.cols[e]) && (found[e] != 0.0 || found[e].is_nan()) {
                    return Err(format!("dA, {k} columns: entry {e} is not read, and its gradient {}", found[e]));
                }
            }
        }
        held += 1;
    }
    Ok(held)
}

trait Stored {
    fn check_stored(&self, what: &str, found: &[f64], dtype: DType) -> Result<(), String>;
}

impl Stored for Oracle {
    /// Within `32 eps` of the dtype itself: what a number is made of has been rounded to it before.
    fn check_stored(&self, what: &str, found: &[f64], dtype: DType) -> Result<(), String> {
        let factor = (epsilon(dtype) / epsilon(DType::F32)).max(1.0);
        let magnitude = self.magnitude.iter().map(|m| m * factor).collect();
        Oracle { magnitude, ..self.clone() }.check(what, found, dtype)
    }
}

fn vectors(case: &Case, how: How) -> Outcome {
    let (a, host) = case.build(true);
    let n = host.shape[0];
    let device = case.device.clone().autodiff();
    let (b, g) = (case.numbers(3, n), case.numbers(4, n));
    let dense = vector(&b, case.dtype, &device).require_grad();
    let x = a.triangular_solve(dense.clone(), how.options()).map_err(|e| e.to_string())?;
    how.solve(&host, &b, 1, case.dtype).check_stored("x", &read(&x), case.dtype)?;
    let grads = vjp::backward(&x, vector(&g, case.dtype, &device));
    let d = read(&dense.grad(&grads).ok_or("no gradient of b")?);
    How { transpose: !how.transpose, ..how }.solve(&host, &g, 1, case.dtype).check_stored("db", &d, case.dtype)?;
    let found = a.grad(&grads).ok_or("no gradient of A")?;
    products(how, &host, &d, &read(&x), 1).check_stored("dA", &read(found.values()), case.dtype)?;
    Ok(3)
}

/// Several right-hand sides with one matrix, and several matrices: the second with other values at the same pattern, the third
/// with its entries the other way round.
fn batches(case: &Case, how: How) -> Outcome {
    let device = case.device.clone().autodiff();
    let n = case.host.shape[0];
    let scaled = |by: f64| Host { values: case.host.values.iter().map(|v| v * by).collect(), ..case.host.clone() };
    let mut reversed = scaled(1.5);
    reversed.rows.reverse();
    reversed.cols.reverse();
    reversed.values.reverse();
    let built = [scaled(1.0), scaled(0.75), reversed].map(|host| case.layout.build(&host, case.dtype, &device));
    let (tensors, hosts): (Vec<_>, Vec<_>) = built.into_iter().unzip();
    let stacked = SparseTensor::stack(&tensors).map_err(|e| e.to_string())?.detach().require_grad();
    let mut held = 0;
    for k in [1, 5] {
        let (b, g) = (case.numbers(5, 3 * n * k), case.numbers(6, 3 * n * k));
        let part = |v: &[f64], item: usize| v[item * n * k..][..n * k].to_vec();
        let dense = |v: &[f64]| {
            let data = burn::tensor::TensorData::new(v.to_vec(), [3, n, k]);
            Tensor::<3>::from_data(data, (&device, case.dtype))
        };
        let rhs = dense(&b).require_grad();
        let x = stacked.triangular_solve(rhs.clone(), how.options()).map_err(|e| e.to_string())?;
        let expected = (0..3).map(|i| how.solve(&hosts[i], &part(&b, i), k, case.dtype));
        joined(expected).check_stored("S3 T3", &read(&x), case.dtype)?;
        let grads = vjp::backward(&x, dense(&g));
        let d = read(&rhs.grad(&grads).ok_or("no gradient of B")?);
        let found = stacked.grad(&grads).ok_or("no gradient of A")?;
        let x = read(&x);
        let expected = (0..3).map(|i| products(how, &hosts[i], &part(&d, i), &part(&x, i), k));
        joined(expected).check_stored("S3 T3, dA", &read(found.values()), case.dtype)?;
        let single = &tensors[0];
        let x = single.triangular_solve(dense(&b), how.options()).map_err(|e| e.to_string())?;
        let expected = (0..3).map(|i| how.solve(&hosts[0], &part(&b, i), k, case.dtype));
        joined(expected).check_stored("S2 T3", &read(&x), case.dtype)?;
        held += 3;
    }
    Ok(held)
}

fn joined(parts: impl IntoIterator<Item = Oracle>) -> Oracle {
    parts.into_iter().fold(Oracle::default(), |mut all, part| {
        all.sum.extend(part.sum);
        all.magnitude.extend(part.magnitude);
        all
    })
}
