//! The op table: operation x layout x dtype x backend, forward and backward against dense f64 products.
//!
//! Every cell passes, or is a refusal that is expected and typed. `cargo test --test op_table -- --nocapture` prints it.
#![allow(missing_docs)]

mod common;

use common::{Host, Layout, Numbers, Oracle, View, matrices, matrix, read, rounded, sddmm, spmm, vector};
use sparsegrad::prelude::*;
use sparsegrad::vjp;
use std::collections::BTreeMap;

/// A case of a row: one matrix in one layout and dtype on one device.
struct Case<'a> {
    host: &'a Host,
    layout: Layout,
    dtype: DType,
    device: &'a Device,
}

/// `Ok(n)`: n comparisons held.
type Outcome = Result<usize, String>;

impl Case<'_> {
    fn build(&self, tracked: bool) -> (SparseTensor<2>, Host) {
        let device = if tracked { self.device.clone().autodiff() } else { self.device.clone() };
        let (tensor, host) = self.layout.build(self.host, self.dtype, &device);
        (if tracked { tensor.require_grad() } else { tensor }, host)
    }

    fn numbers(&self, seed: u64, count: usize) -> Vec<f64> {
        rounded(&Numbers(seed).values(count), self.dtype)
    }
}

const COLUMNS: [usize; 8] = [0, 1, 2, 7, 8, 16, 33, 64];

fn spmm_forward(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let [_, n] = a.shape();
    let mut held = 0;
    for k in COLUMNS {
        let b = case.numbers(k as u64, n * k);
        for view in View::ALL {
            let dense = view.build(&b, [n, k], case.dtype, case.device);
            let c = sparse_mm(&a, dense);
            assert_eq!(c.dims(), [host.shape[0], k]);
            let what = format!("{k} columns, {view:?}");
            spmm(&host, &b, k).check(&what, &read(&c), case.dtype)?;
            held += 1;
        }
    }
    Ok(held)
}

fn spmm_backward(case: &Case) -> Outcome {
    let mut held = 0;
    for k in COLUMNS {
        // Which operands are tracked decides which gradients are computed, and how.
        for (track_a, track_b) in [(true, true), (true, false), (false, true)] {
            let (a, host) = case.build(track_a);
            let [m, n] = a.shape();
            let device = case.device.clone().autodiff();
            let (b, g) = (case.numbers(k as u64, n * k), case.numbers(99, m * k));
            let dense = View::Contiguous.build(&b, [n, k], case.dtype, &device);
            let dense = if track_b { dense.require_grad() } else { dense };
            let upstream = matrix(&g, [m, k], case.dtype, &device);
            let grads = vjp::backward(&sparse_mm(&a, dense.clone()), upstream);
            if track_a {
                let found = a.grad(&grads).ok_or("no gradient of A")?;
                if !found.same_pattern(&a) {
                    return Err("the gradient has another pattern".into());
                }
                sddmm(&host, &g, &b, k).check(&format!("dA, {k} columns"), &read(found.values()), case.dtype)?;
                held += 1;
            }
            if track_b {
                let found = dense.grad(&grads).ok_or("no gradient of B")?;
                spmm(&host.transposed(), &g, k).check(&format!("dB, {k} columns"), &read(&found), case.dtype)?;
                held += 1;
            }
        }
    }
    Ok(held)
}

fn matvec(case: &Case) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = a.shape();
    let device = case.device.clone().autodiff();
    let (x, g) = (case.numbers(5, n), case.numbers(6, m));
    let dense = vector(&x, case.dtype, &device).require_grad();
    let y = a.matvec(dense.clone());
    spmm(&host, &x, 1).check("y", &read(&y), case.dtype)?;
    let grads = vjp::backward(&y, vector(&g, case.dtype, &device));
    let da = a.grad(&grads).ok_or("no gradient of A")?;
    sddmm(&host, &g, &x, 1).check("dA", &read(da.values()), case.dtype)?;
    let dx = dense.grad(&grads).ok_or("no gradient of x")?;
    spmm(&host.transposed(), &g, 1).check("dx", &read(&dx), case.dtype)?;
    Ok(3)
}

fn sddmm_both(case: &Case) -> Outcome {
    let (a, host) = case.build(false);
    let [m, n] = a.shape();
    let device = case.device.clone().autodiff();
    let mut held = 0;
    for k in COLUMNS {
        let (x, y) = (case.numbers(7, m * k), case.numbers(8, n * k));
        let g = Host { values: case.numbers(9, host.nnz()), ..host.clone() };
        let tx = View::ColumnSlice.build(&x, [m, k], case.dtype, &device).detach().require_grad();
        let ty = View::Transposed.build(&y, [n, k], case.dtype, &device).detach().require_grad();
        let s = sparsegrad::sddmm(a.pattern(), tx.clone(), ty.clone());
        sddmm(&host, &x, &y, k).check(&format!("values, {k} columns"), &read(s.values()), case.dtype)?;
        let grads = vjp::backward(s.values(), vector(&g.values, case.dtype, &device));
        let dx = tx.grad(&grads).ok_or("no gradient of X")?;
        spmm(&g, &y, k).check(&format!("dX, {k} columns"), &read(&dx), case.dtype)?;
        let dy = ty.grad(&grads).ok_or("no gradient of Y")?;
        spmm(&g.transposed(), &x, k).check(&format!("dY, {k} columns"), &read(&dy), case.dtype)?;
        held += 3;
    }
    Ok(held)
}

/// Values and gradient of a conversion: the dense matrix is the same, and the gradient of each entry is that of its element.
fn converts(case: &Case, convert: fn(&SparseTensor<2>) -> SparseTensor<2>) -> Outcome {
    let (a, host) = case.build(true);
    let [m, n] = a.shape();
    let g = case.numbers(10, m * n);
    let converted = convert(&a);
    let dense = converted.to_dense();
    let mut expected = Oracle::zeros(m * n);
    let mut gradient = Oracle::zeros(host.nnz());
    for e in 0..host.nnz() {
        let at = host.rows[e] * n + host.cols[e];
        expected.add(at, host.values[e]);
        gradient.add(e, g[at]);
    }
    expected.check("dense", &read(&dense), case.dtype)?;
    let upstream = matrix(&g, [m, n], case.dtype, &a.device());
    let grads = vjp::backward(&dense, upstream);
    let found = a.grad(&grads).ok_or("no gradient")?;
    gradient.check("gradient", &read(found.values()), case.dtype)?;
    Ok(2)
}

fn from_dense(case: &Case) -> Outcome {
    let device = case.device.clone().autodiff();
    let host = case.host.rounded(case.dtype);
    let [m, n] = host.shape;
    let elements = rounded(&host.dense(), case.dtype);
    let dense = matrix(&elements, [m, n], case.dtype, &device).require_grad();
    let sparse = SparseTensor::from_dense(dense.clone(), 0.25).map_err(|e| e.to_string())?;
    let kept = |v: f64| if v.abs() > 0.25 { v } else { 0.0 };
    let oracle = |values: Vec<f64>| Oracle { magnitude: values.iter().map(|v| v.abs()).collect(), sum: values };
    let expected = oracle(elements.iter().map(|&v| kept(v)).collect());
    let back = sparse.to_dense();
    expected.check("dense", &read(&back), case.dtype)?;
    let g = case.numbers(11, m * n);
    let grads = vjp::backward(&back, matrix(&g, [m, n], case.dtype, &device));
    let masked = elements.iter().zip(&g).map(|(&v, &g)| if kept(v) != 0.0 { g } else { 0.0 });
    let found = dense.grad(&grads).ok_or("no gradient")?;
    oracle(masked.collect()).check("gradient", &read(&found), case.dtype)?;
    Ok(2)
}

/// Three items of one shape: the matrix, one without entries, and the matrix backwards with other values. Or the matrix with
/// three sets of values.
struct Batch {
    tensor: SparseTensor<3>,
    items: Vec<Host>,
}

impl Case<'_> {
    fn batch(&self, shared: bool) -> Batch {
        let device = self.device.clone().autodiff();
        let build = |host: &Host| self.layout.build(host, self.dtype, &device);
        let (first, host) = build(self.host);
        if shared {
            let values: Vec<f64> = self.numbers(20, 3 * host.nnz());
            let items = (0..3).map(|item| Host {
                values: values[item * host.nnz()..][..host.nnz()].to_vec(),
                ..host.clone()
            });
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
    parts.into_iter().reduce(|mut all, part| {
        all.sum.iter_mut().zip(part.sum).for_each(|(a, b)| *a += b);
        all.magnitude.iter_mut().zip(part.magnitude).for_each(|(a, b)| *a += b);
        all
    }).expect("items")
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
        let weighted: Vec<Host> = items.iter().map(|host| {
            let values = g[start..start + host.nnz()].to_vec();
            start += host.nnz();
            Host { values, ..host.clone() }
        }).collect();
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
    let ways: [Convert; 6] = [
        Clone::clone,
        SparseTensor::to_csr,
        SparseTensor::to_csc,
        SparseTensor::to_coo,
        SparseTensor::coalesce,
        |a| SparseTensor::stack(&a.unstack()).expect("items of one shape"),
    ];
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

type Row = (&'static str, fn(&Case) -> Outcome);

/// Every later operation adds its rows here.
const ROWS: &[Row] = &[
    ("spmm", spmm_forward),
    ("spmm backward", spmm_backward),
    ("matvec, both ways", matvec),
    ("sddmm, both ways", sddmm_both),
    ("to_dense", |case| converts(case, Clone::clone)),
    ("to_csr", |case| converts(case, SparseTensor::to_csr)),
    ("to_csc", |case| converts(case, SparseTensor::to_csc)),
    ("to_coo", |case| converts(case, SparseTensor::to_coo)),
    ("coalesce", |case| converts(case, SparseTensor::coalesce)),
    ("from_dense", from_dense),
    ("spmm, ragged", |case| spmm_batched(case, false)),
    ("spmm, shared", |case| spmm_batched(case, true)),
    ("sddmm, ragged", |case| sddmm_batched(case, false)),
    ("sddmm, shared", |case| sddmm_batched(case, true)),
    ("convert, ragged", |case| converts_batched(case, false)),
    ("convert, shared", |case| converts_batched(case, true)),
];

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// The devices that this build has.
fn backends() -> Vec<(&'static str, Device, Vec<DType>)> {
    #[allow(unused_mut)]
    let mut backends = Vec::new();
    #[cfg(feature = "flex")]
    backends.push(("flex", Device::flex(), vec![]));
    #[cfg(feature = "wgpu")]
    {
        let device = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice);
        // WGSL has no bf16, and a device may lack f16 or f64.
        let lacks = DTYPES.into_iter().filter(|&dtype| !device.supports_dtype(dtype)).collect();
        backends.push(("wgpu", device, lacks));
    }
    #[cfg(feature = "cuda")]
    backends.push(("cuda", Device::cuda(0), vec![]));
    backends
}

#[test]
fn every_cell_holds_or_is_a_typed_refusal() {
    let matrices = matrices();
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for (backend, device, refused) in backends() {
        println!("\n{backend:<20}{}", DTYPES.map(|d| format!("{:>10}", format!("{d:?}"))).concat());
        for (row, run) in ROWS {
            print!("{row:<20}");
            for dtype in DTYPES {
                let mut held = 0;
                let mut bad = 0;
                if refused.contains(&dtype) {
                    let host = &matrices[0];
                    let pattern = Pattern::coo(&host.rows, &host.cols, host.shape).unwrap();
                    let refusal = SparseTensor::new(pattern, vector(&host.values, dtype, &device));
                    assert!(
                        matches!(refusal, Err(TensorError::DType { dtype: named, .. }) if named == dtype),
                        "{refusal:?}"
                    );
                    *counts.entry((backend, "refused")).or_insert(0) += 1;
                    print!("{:>10}", "refused");
                    continue;
                }
                for layout in Layout::ALL {
                    for host in &matrices {
                        let case = Case { host, layout, dtype, device: &device };
                        match run(&case) {
                            Ok(n) => held += n,
                            Err(why) => {
                                bad += 1;
                                failures.push(format!(
                                    "{backend} {row} {dtype:?} {layout:?} {}: {why}",
                                    host.name
                                ));
                            }
                        }
                    }
                }
                *counts.entry((backend, "held")).or_insert(0) += held;
                print!("{:>10}", if bad == 0 { format!("{held} ok") } else { format!("{bad} BAD") });
            }
            println!();
        }
    }
    println!("\n{counts:?}");
    assert!(failures.is_empty(), "{} cells fail:\n{}", failures.len(), failures[..failures.len().min(20)].join("\n"));
    for (backend, _, refused) in backends() {
        let dtypes = DTYPES.len() - refused.len();
        let cells = dtypes * Layout::ALL.len() * matrices.len();
        assert_eq!(counts[&(backend, "held")], cells * COMPARISONS, "{backend}");
        assert_eq!(
            counts.get(&(backend, "refused")).copied().unwrap_or(0),
            refused.len() * ROWS.len(),
            "{backend}"
        );
    }
}

/// What the rows compare in one layout of one matrix.
const COMPARISONS: usize = 4 * 8 + 4 * 8 + 3 + 3 * 8 + 2 * 6 + 2 * (36 + 16 + 12);
