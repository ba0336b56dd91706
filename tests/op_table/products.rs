//! spmm and sddmm.

use crate::common::{Host, View, matrix, read, sddmm, spmm, vector};
use crate::{Case, Outcome, Row};
use sparsegrad::prelude::*;
use sparsegrad::vjp;

pub const ROWS: &[Row] = &[
    ("spmm", spmm_forward, 4 * 8),
    ("spmm backward", spmm_backward, 4 * 8),
    ("matvec, both ways", matvec, 3),
    ("sddmm, both ways", sddmm_both, 3 * 8),
];

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
