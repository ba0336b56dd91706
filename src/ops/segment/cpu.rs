//! Segment reductions and softmaxes on the CPU: each row of the result has one owner, which walks the entries of its segment in
//! order, columns in vectors. Long segments are cut into pieces of a fixed length, whose results are merged in their order.

mod folds;
mod pieces;

use super::Reducer;
use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::Scalar;
use crate::backend::simd::for_each_chunk;
use crate::ops::reduce::Softmax;
use crate::ops::reduce::exp::Real;
use crate::pattern::{Index, Rows};
use folds::{Exps, ExpsBackward, Extreme, Sum, To};
use pieces::fold_rows;
use std::mem::MaybeUninit;

/// One row of results for each row of the pattern.
///
/// # Panics
///
/// If the features or the output have other rows or columns than the pattern and each other.
pub(super) fn reduce<E, I: Index>(rows: &Rows<I>, x: Dense<'_, E>, reducer: Reducer, out: &mut [MaybeUninit<E>])
where
    E: Scalar<Acc: Real>,
{
    assert_eq!((x.rows(), Some(out.len())), (rows.n_slots, rows.n_rows().checked_mul(x.cols())), "rows and results");
    let out = Output::new(out);
    match reducer {
        Reducer::Sum | Reducer::Mean => fold_rows(rows, &Sum { x, mean: reducer == Reducer::Mean, out }),
        Reducer::Max | Reducer::Min => fold_rows(rows, &Extreme { x, sign: sign(reducer), to: To::Rows(out) }),
    }
}

/// The gradient of the features from that of their largest or smallest: to the first of each column.
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn extreme_backward<E, I: Index>(
    rows: &Rows<I>,
    x: Dense<'_, E>,
    grad: Dense<'_, E>,
    reducer: Reducer,
    out: &mut [MaybeUninit<E>],
) where
    E: Scalar<Acc: Real>,
{
    assert_eq!((x.rows(), grad.rows(), x.cols()), (rows.n_slots, rows.n_rows(), grad.cols()), "shapes");
    let to = To::Entries { grad, out: entries(rows, x.cols(), out) };
    fold_rows(rows, &Extreme { x, sign: sign(reducer), to });
}

/// The row of its segment for each entry, divided by the number of its entries if it's that of a `mean`.
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn expand<E: Scalar, I: Index>(rows: &Rows<I>, of_rows: Dense<'_, E>, mean: bool, out: &mut [MaybeUninit<E>])
where
    E::Acc: Real,
{
    assert_eq!(of_rows.rows(), rows.n_rows(), "rows");
    let cols = of_rows.cols();
    let out = entries(rows, cols, out);
    for_each_chunk(rows, rows.n_entries() * cols, |range| {
        let mut divided = Vec::with_capacity(cols);
        for row in range {
            let of_row = rows.range(row);
            let mut from = of_rows.row(row);
            if mean {
                let count = E::Acc::of(of_row.len().max(1));
                divided.clear();
                divided.extend(from.iter().map(|x| E::narrow(x.widen() / count)));
                from = &divided;
            }
            for entry in of_row {
                // SAFETY: slots are below their number, and each is one entry's.
                unsafe { from.as_ptr().copy_to_nonoverlapping(out.at(rows.slot(entry) * cols), cols) };
            }
        }
    });
}

/// The softmax of each column over the entries of each row, or its logarithm.
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn softmax<E, I: Index>(rows: &Rows<I>, x: Dense<'_, E>, how: Softmax, out: &mut [MaybeUninit<E>])
where
    E: Scalar<Acc: Real>,
{
    assert_eq!(x.rows(), rows.n_slots, "rows");
    let out = entries(rows, x.cols(), out);
    fold_rows(rows, &Exps { x, log: how.log, out });
}

/// The gradient of the features from their softmax, `y`, and its gradient.
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn softmax_backward<E, I: Index>(
    rows: &Rows<I>,
    y: Dense<'_, E>,
    grad: Dense<'_, E>,
    how: Softmax,
    out: &mut [MaybeUninit<E>],
) where
    E: Scalar<Acc: Real>,
{
    assert_eq!((y.rows(), grad.rows(), y.cols()), (rows.n_slots, rows.n_slots, grad.cols()), "shapes");
    let out = entries(rows, y.cols(), out);
    fold_rows(rows, &ExpsBackward { y, grad, log: how.log, out });
}

/// What elements are multiplied with, so that the largest is the one.
fn sign<A: Real>(reducer: Reducer) -> A {
    if reducer == Reducer::Min { -A::ONE } else { A::ONE }
}

/// An output with a row for each slot; zeros where there are slots that no entry has.
///
/// # Panics
///
/// If it has another size.
pub(crate) fn entries<'a, E: Scalar, I: Index>(
    rows: &Rows<I>,
    cols: usize,
    out: &'a mut [MaybeUninit<E>],
) -> Output<'a, E> {
    assert_eq!(Some(out.len()), rows.n_slots.checked_mul(cols), "elements of the output");
    if rows.n_slots > rows.n_entries() {
        out.fill(MaybeUninit::new(E::zeroed()));
    }
    Output::new(out)
}
