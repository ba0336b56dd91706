//! The gather on the CPU: memory-bound, so the plain loop is the fast one.

use crate::backend::scalar::{Accumulator, Scalar};
use crate::pattern::{Index, Rows};
use std::mem::MaybeUninit;

/// `out[e]` = the sum of `values` at the columns of row `e`, in their order; 0 without columns.
pub(super) fn gather<E: Scalar, I: Index>(rows: &Rows<I>, values: &[E], out: &mut [MaybeUninit<E>]) {
    for (row, out) in out.iter_mut().enumerate() {
        out.write(match &rows.columns[rows.range(row)] {
            // As it is, so that a selection keeps the bits, -0 and NaN payloads included.
            [column] => values[column.get()],
            columns => {
                let values = columns.iter().map(|column| values[column.get()].widen());
                E::narrow(values.fold(E::Acc::ZERO, |sum, value| sum + value))
            }
        });
    }
}

/// `out[e] = values[slots[e]]`, or `out[slots[e]] = values[e]`, for a permutation.
///
/// # Panics
///
/// If lengths differ.
pub(super) fn reorder<E: Scalar, I: Index>(slots: &[I], values: &[E], back: bool, out: &mut [MaybeUninit<E>]) {
    assert_eq!((slots.len(), out.len()), (values.len(), values.len()), "lengths");
    for (e, slot) in slots.iter().enumerate() {
        // SAFETY: slots are places in the values, as the pattern was checked, and out is as long.
        unsafe {
            if back {
                out.get_unchecked_mut(slot.get()).write(values[e]);
            } else {
                out[e].write(*values.get_unchecked(slot.get()));
            }
        }
    }
}
