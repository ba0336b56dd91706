//! Edge operations on the CPU: row after row, whose own features stay in the cache, and in parallel over rows.

use super::EdgeOp;
use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::simd::{self, Isa, Kernel, for_each_chunk, load};
use crate::ops::segment::cpu::entries;
use crate::pattern::{Index, Rows};
use std::mem::MaybeUninit;
use std::ops::Range;

/// `out_e = left_i op right_j` for each entry e at (i, j).
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn combine<E: Scalar, I: Index>(
    rows: &Rows<I>,
    left: Dense<'_, E>,
    right: Dense<'_, E>,
    op: EdgeOp,
    out: &mut [MaybeUninit<E>],
) {
    check(rows, left, right);
    let out = entries(rows, left.cols(), out);
    for_each_chunk(rows, rows.n_entries() * left.cols(), |range| {
        simd::run(Combine { rows, range, left, right, op, out });
    });
}

/// `out_eh = <x_i, y_j>` over the columns of head h.
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn dot<E: Scalar, I: Index>(
    rows: &Rows<I>,
    x: Dense<'_, E>,
    y: Dense<'_, E>,
    heads: usize,
    out: &mut [MaybeUninit<E>],
) {
    check(rows, x, y);
    let out = entries(rows, heads, out);
    for_each_chunk(rows, rows.n_entries() * x.cols(), |range| {
        simd::run(Dot { rows, range, x, y, heads, out });
    });
}

/// `out_i = sum of weights_eh * dense_j` over the entries of row i, for the columns of each head h.
///
/// # Panics
///
/// If shapes are not those of the pattern and each other.
pub(super) fn weighted<E: Scalar, I: Index>(
    rows: &Rows<I>,
    weights: Dense<'_, E>,
    dense: Dense<'_, E>,
    out: &mut [MaybeUninit<E>],
) {
    assert_eq!((weights.rows(), dense.rows()), (rows.n_slots, rows.n_cols), "rows of weights and dense operand");
    assert_eq!(Some(out.len()), rows.n_rows().checked_mul(dense.cols()), "elements of the output");
    let out = Output::new(out);
    for_each_chunk(rows, rows.n_entries() * dense.cols(), |range| {
        simd::run(Weighted { rows, range, weights, dense, out });
    });
}

fn check<E, I: Index>(rows: &Rows<I>, left: Dense<'_, E>, right: Dense<'_, E>) {
    assert_eq!((left.rows(), right.rows()), (rows.n_rows(), rows.n_cols), "rows of the operands");
    assert_eq!(left.cols(), right.cols(), "columns of the operands");
}

struct Combine<'a, E, I> {
    rows: &'a Rows<I>,
    range: Range<usize>,
    left: Dense<'a, E>,
    right: Dense<'a, E>,
    op: EdgeOp,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> Kernel for Combine<'_, E, I> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        match self.op {
            EdgeOp::Add => self.apply(|u, v| u + v),
            EdgeOp::Sub => self.apply(|u, v| u + -v),
            EdgeOp::Mul => self.apply(|u, v| u * v),
            EdgeOp::Div => self.apply(|u, v| u / v),
        }
    }
}

impl<E: Scalar, I: Index> Combine<'_, E, I> {
    #[inline(always)]
    fn apply(self, op: impl Fn(E::Acc, E::Acc) -> E::Acc) {
        let Self { rows, range, left, right, out, .. } = self;
        let columns = left.cols();
        for row in range {
            let u = left.row(row);
            for entry in rows.range(row) {
                let v = right.row(rows.columns[entry].get());
                // SAFETY: a slot is a row of the output.
                let to = unsafe { out.at(rows.slot(entry) * columns) };
                for (column, (u, v)) in u.iter().zip(v).enumerate() {
                    // SAFETY: a column of the output.
                    unsafe { to.add(column).write(E::narrow(op(u.widen(), v.widen()))) };
                }
            }
        }
    }
}

struct Dot<'a, E, I> {
    rows: &'a Rows<I>,
    range: Range<usize>,
    x: Dense<'a, E>,
    y: Dense<'a, E>,
    heads: usize,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> Kernel for Dot<'_, E, I> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { rows, range, x, y, heads, out } = self;
        let d = x.cols().checked_div(heads).unwrap_or(0);
        for row in range {
            let own = x.row_ptr(row);
            for entry in rows.range(row) {
                let other = y.row_ptr(rows.columns[entry].get());
                for head in 0..heads {
                    // SAFETY: the columns of a head are within the rows; a slot is a row of the output.
                    unsafe {
                        let product = product::<S, E>(own.add(head * d), other.add(head * d), d);
                        out.at(rows.slot(entry) * heads + head).write(E::narrow(product));
                    }
                }
            }
        }
    }
}

/// The dot product of so many elements.
///
/// # Safety
///
/// There are as many.
#[inline(always)]
unsafe fn product<S: Isa, E: Scalar>(x: *const E, y: *const E, d: usize) -> E::Acc {
    let mut lanes = [E::Acc::ZERO; 8];
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + 8 <= d {
            lanes = S::mul_add(load::<E, 8>(x.add(at)), load::<E, 8>(y.add(at)), lanes);
            at += 8;
        }
        let mut rest = [E::Acc::ZERO];
        for at in at..d {
            rest = S::mul_add([(*x.add(at)).widen()], [(*y.add(at)).widen()], rest);
        }
        let [a, b, c, d, e, f, g, h] = lanes;
        (((a + e) + (c + g)) + ((b + f) + (d + h))) + rest[0]
    }
}

struct Weighted<'a, E, I> {
    rows: &'a Rows<I>,
    range: Range<usize>,
    weights: Dense<'a, E>,
    dense: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> Kernel for Weighted<'_, E, I> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { rows, range, weights, dense, out } = self;
        let columns = dense.cols();
        let d = columns.checked_div(weights.cols()).unwrap_or(0);
        let mut sums = vec![E::Acc::ZERO; columns];
        for row in range {
            sums.fill(E::Acc::ZERO);
            for entry in rows.range(row) {
                let weights = weights.row(rows.slot(entry));
                let from = dense.row_ptr(rows.columns[entry].get());
                for (head, weight) in weights.iter().enumerate() {
                    // SAFETY: the columns of a head are within the row and the sums.
                    unsafe {
                        let (from, sums) = (from.add(head * d), sums.as_mut_ptr().add(head * d));
                        add_scaled::<S, E>(weight.widen(), from, sums, d);
                    }
                }
            }
            for (column, &sum) in sums.iter().enumerate() {
                // SAFETY: an element of the output.
                unsafe { out.at(row * columns + column).write(E::narrow(sum)) };
            }
        }
    }
}

/// Adds so many elements, times a number, to the sums.
///
/// # Safety
///
/// There are as many.
#[inline(always)]
unsafe fn add_scaled<S: Isa, E: Scalar>(factor: E::Acc, from: *const E, sums: *mut E::Acc, d: usize) {
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + 8 <= d {
            let sum = sums.add(at).cast::<[E::Acc; 8]>();
            sum.write(S::mul_add([factor; 8], load::<E, 8>(from.add(at)), sum.read()));
            at += 8;
        }
        for at in at..d {
            let sum = sums.add(at);
            let [added] = S::mul_add([factor], [(*from.add(at)).widen()], [sum.read()]);
            sum.write(added);
        }
    }
}
