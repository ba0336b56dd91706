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

/// `out[e] = values[slot of e]`, or `out[slot of e] = values[e]`, where there are as many values as entries.
///
/// # Panics
///
/// If lengths differ.
pub(super) fn reorder<E: Scalar, I: Index>(rows: &Rows<I>, values: &[E], back: bool, out: &mut [MaybeUninit<E>]) {
    assert_eq!((values.len(), out.len()), (rows.n_slots, rows.n_slots), "lengths");
    assert_eq!(rows.n_entries(), rows.n_slots, "a slot for each entry");
    for entry in 0..rows.n_entries() {
        let slot = rows.slot(entry);
        // SAFETY: slots are places in the values, as the pattern was checked, and so are entries, which are as many.
        unsafe {
            let (from, to) = if back { (entry, slot) } else { (slot, entry) };
            out.get_unchecked_mut(to).write(*values.get_unchecked(from));
        }
    }
}
