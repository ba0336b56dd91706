//! Batches, ragged and of one pattern.

use crate::common::{Host, Oracle, View, matrix, read, sddmm, spmm, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::vjp;

pub const ROWS: &[Row] = &[
    ("spmm, ragged", |case| spmm_batched(case, false), 36),
    ("spmm, shared", |case| spmm_batched(case, true), 36),
    ("sddmm, ragged", |case| sddmm_batched(case, false), 16),
    ("sddmm, shared", |case| sddmm_batched(case, true), 16),
    ("convert, ragged", |case| converts_batched(case, false), 12),
    ("convert, shared", |case| converts_batched(case, true), 12),
];

/// Three items of one shape: the matrix, one without entries, and the matrix backwards with other values. Or the matrix with
/// three sets of values.
pub struct Batch {
    pub tensor: SparseTensor<3>,
    pub items: Vec<Host>,
}

impl Case<'_> {
    pub fn batch(&self, shared: bool) -> Batch {
        let device = self.device.clone().autodiff();
        let build = |host: &Host| self.layout.build(host, self.dtype, &device);
        let (first, host) = build(self.host);
        if shared {
            let values: Vec<f64> = self.numbers(20, 3 * host.nnz());
            let items =
                (0..3).map(|item| Host { values: values[item * host.nnz()..][..host.nnz()].to_vec(), ..host.clone() });
            let items = items.collect();
            let values = matrix(&values, [3, host.nnz()], self.dtype, &device);
            let tensor = SparseTensor::shared(first.pattern(), values).expect("values fit");
            return Batch { tensor: tensor.detach().require_grad(), items };
        }
        let empty = Host { rows: vec![], cols: vec![], values: vec![], ..self.host.clone() };
        let mut other = Host { values: self.numbers(21, host.nnz()), ..self.host.clone() };
        other.rows.reverse();
        other.cols.reverse();
        let built = [self.host.clone(), empty, other].map(|host| build(&host));
        let (tensors, items): (Vec<_>, Vec<_>) = built.into_iter().unzip();
        let tensor = SparseTensor::stack(&tensors).expect("one shape");
        Batch { tensor: tensor.detach().require_grad(), items }
    }

    fn tensor3(&self, values: &[f64], [b, n, k]: [usize; 3]) -> Tensor<3> {
        let device = self.device.clone().autodiff();
        // Through a transposed copy, so that the operand is a view.
        let mut swapped = vec![0.0; b * n * k];
        for item in 0..b {
            for i in 0..n {
                for j in 0..k {
                    swapped[(item * k + j) * n + i] = values[(item * n + i) * k + j];
                }
            }
        }
        let data = burn::tensor::TensorData::new(swapped, [b, k, n]);
        Tensor::<3>::from_data(data, (&device, self.dtype)).swap_dims(1, 2)
    }
}

fn joined(parts: impl IntoIterator<Item = Oracle>) -> Oracle {
    parts.into_iter().fold(Oracle::default(), |mut all, part| {
        all.sum.extend(part.sum);
        all.magnitude.extend(part.magnitude);
        all
    })
}

fn added(parts: impl IntoIterator<Item = Oracle>) -> Oracle {
    parts
        .into_iter()
        .reduce(|mut all, part| {
            all.sum.iter_mut().zip(part.sum).for_each(|(a, b)| *a += b);
            all.magnitude.iter_mut().zip(part.magnitude).for_each(|(a, b)| *a += b);
            all
        })
        .expect("items")
}

/// The operand pairs with a batch in them, forward and backward.
fn spmm_batched(case: &Case, shared: bool) -> Outcome {
    let Batch { tensor: a, items } = case.batch(shared);
    let [b, m, n] = a.shape();
    for k in [0, 1, 5, 16] {
        let (x, g) = (case.numbers(30, b * n * k), case.numbers(31, b * m * k));
        let part = |v: &Vec<f64>, item: usize, size: usize| v[item * size..][..size].to_vec();
        let each = || items.iter().enumerate();
        // Every item with its own operand.
        let dense = case.tensor3(&x, [b, n, k]).detach().require_grad();
        let c = a.matmul(dense.clone());
        let product = joined(each().map(|(i, host)| spmm(host, &part(&x, i, n * k), k)));
        product.check("S3 T3", &read(&c), case.dtype)?;
        let grads = vjp::backward(&c, case.tensor3(&g, [b, m, k]));
        let da = a.grad(&grads).ok_or("no gradient of A")?;
        let expected = each().map(|(i, host)| sddmm(host, &part(&g, i, m * k), &part(&x, i, n * k), k));
        joined(expected).check("S3 T3, dA", &read(da.values()), case.dtype)?;
        let db = dense.grad(&grads).ok_or("no gradient of B")?;
        let expected = each().map(|(i, host)| spmm(&host.transposed(), &part(&g, i, m * k), k));
        joined(expected).check("S3 T3, dB", &read(&db), case.dtype)?;
        // One operand for all items.
        let one = part(&x, 0, n * k);
        let dense = View::Contiguous.build(&one, [n, k], case.dtype, &case.device.clone().autodiff());
        let dense = dense.require_grad();
        let c = a.matmul(dense.clone());
        let product = joined(items.iter().map(|host| spmm(host, &one, k)));
        product.check("S3 T2", &read(&c), case.dtype)?;
        let grads = vjp::backward(&c, case.tensor3(&g, [b, m, k]));
        let da = a.grad(&grads).ok_or("no gradient of A")?;
        let expected = each().map(|(i, host)| sddmm(host, &part(&g, i, m * k), &one, k));
        joined(expected).check("S3 T2, dA", &read(da.values()), case.dtype)?;
        let db = dense.grad(&grads).ok_or("no gradient of B")?;
        let expected = each().map(|(i, host)| spmm(&host.transposed(), &part(&g, i, m * k), k));
        added(expected).check("S3 T2, dB", &read(&db), case.dtype)?;
        // One matrix for all operands.
        let (single, host) = (a.item(0).detach().require_grad(), &items[0]);
        let dense = case.tensor3(&x, [b, n, k]).detach().require_grad();
        let c = single.matmul(dense.clone());
        let product = joined(each().map(|(i, _)| spmm(host, &part(&x, i, n * k), k)));
        product.check("S2 T3", &read(&c), case.dtype)?;
        let grads = vjp::backward(&c, case.tensor3(&g, [b, m, k]));
        let da = single.grad(&grads).ok_or("no gradient of A")?;
        let expected = each().map(|(i, _)| sddmm(host, &part(&g, i, m * k), &part(&x, i, n * k), k));
        added(expected).check("S2 T3, dA", &read(da.values()), case.dtype)?;
        let db = dense.grad(&grads).ok_or("no gradient of B")?;
        let expected = each().map(|(i, _)| spmm(&host.transposed(), &part(&g, i, m * k), k));
        joined(expected).check("S2 T3, dB", &read(&db), case.dtype)?;
    }
    Ok(4 * 9)
}

fn sddmm_batched(case: &Case, shared: bool) -> Outcome {
    let Batch { tensor: a, items } = case.batch(shared);
    let [b, m, n] = a.shape();
    for k in [0, 1, 5, 16] {
        let (x, y) = (case.numbers(32, b * m * k), case.numbers(33, b * n * k));
        let part = |v: &Vec<f64>, item: usize, size: usize| v[item * size..][..size].to_vec();
        let each = || items.iter().enumerate();
        let tx = case.tensor3(&x, [b, m, k]).detach().require_grad();
        let ty = case.tensor3(&y, [b, n, k]).detach().require_grad();
        let s = sparsegrad::sddmm(&a, tx.clone(), ty.clone());
        let expected = each().map(|(i, host)| sddmm(host, &part(&x, i, m * k), &part(&y, i, n * k), k));
        joined(expected).check("S3 T3 T3", &read(s.values()), case.dtype)?;
        let g: Vec<f64> = case.numbers(34, a.nnz());
        let mut start = 0;
        let weighted: Vec<Host> = items
            .iter()
            .map(|host| {
                let values = g[start..start + host.nnz()].to_vec();
                start += host.nnz();
                Host { values, ..host.clone() }
            })
            .collect();
        let upstream = vector(&g, case.dtype, &case.device.clone().autodiff());
        let grads = vjp::backward(s.values(), upstream.clone());
        let dx = tx.grad(&grads).ok_or("no gradient of X")?;
        let expected = weighted.iter().enumerate().map(|(i, host)| spmm(host, &part(&y, i, n * k), k));
        joined(expected).check("S3 T3 T3, dX", &read(&dx), case.dtype)?;
        // One Y for all items.
        let one = part(&y, 0, n * k);
        let ty = View::Contiguous.build(&one, [n, k], case.dtype, &case.device.clone().autodiff()).require_grad();
        let s = sparsegrad::sddmm(&a, tx.clone(), ty.clone());
        let expected = each().map(|(i, host)| sddmm(host, &part(&x, i, m * k), &one, k));
        joined(expected).check("S3 T3 T2", &read(s.values()), case.dtype)?;
        let grads = vjp::backward(s.values(), upstream);
        let dy = ty.grad(&grads).ok_or("no gradient of Y")?;
        let expected = weighted.iter().enumerate().map(|(i, host)| spmm(&host.transposed(), &part(&x, i, m * k), k));
        added(expected).check("S3 T3 T2, dY", &read(&dy), case.dtype)?;
    }
    Ok(4 * 4)
}

/// Conversions of a batch keep its dense form and the gradient of every entry; so does going through its items.
fn converts_batched(case: &Case, shared: bool) -> Outcome {
    type Convert = fn(&SparseTensor<3>) -> SparseTensor<3>;
    let ways: [Convert; 6] =
        [Clone::clone, SparseTensor::to_csr, SparseTensor::to_csc, SparseTensor::to_coo, SparseTensor::coalesce, |a| {
            SparseTensor::stack(&a.unstack()).expect("items of one shape")
        }];
    for convert in ways {
        let Batch { tensor: a, items } = case.batch(shared);
        let [b, m, n] = a.shape();
        let g = case.numbers(35, b * m * n);
        let (mut dense, mut gradient) = (Oracle::zeros(b * m * n), Oracle::zeros(a.nnz()));
        let mut at = 0;
        for (item, host) in items.iter().enumerate() {
            for e in 0..host.nnz() {
                let place = (item * m + host.rows[e]) * n + host.cols[e];
                dense.add(place, host.values[e]);
                gradient.add(at, g[place]);
                at += 1;
            }
        }
        let found = convert(&a).to_dense();
        dense.check("dense", &read(&found), case.dtype)?;
        let grads = vjp::backward(&found, case.tensor3(&g, [b, m, n]));
        let da = a.grad(&grads).ok_or("no gradient")?;
        gradient.check("gradient", &read(da.values()), case.dtype)?;
    }
    Ok(12)
}
