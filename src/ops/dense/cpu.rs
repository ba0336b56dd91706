//! Sparse to dense and back on the CPU: memory-bound, so the plain loop is the fast one.

use crate::backend::dense::Dense;
use crate::backend::scalar::{Accumulator, Scalar};
use crate::pattern::{Index, Rows};

/// Row-major, duplicates summed in storage order in the accumulator's precision.
pub(super) fn to_dense<E: Scalar, I: Index>(rows: &Rows<I>, values: &[E]) -> Vec<E> {
    let mut dense = vec![E::zeroed(); rows.n_rows() * rows.n_cols];
    add_to(rows, values, &mut dense);
    dense
}

/// Adds the values to a row-major matrix, those of a position as their rounded sum. Other elements stay as they are.
///
/// # Panics
///
/// If lengths are not those of the pattern.
pub(super) fn add_to<E: Scalar, I: Index>(rows: &Rows<I>, values: &[E], dense: &mut [E]) {
    let (n_rows, n_cols) = (rows.n_rows(), rows.n_cols);
    assert_eq!((dense.len(), values.len()), (n_rows * n_cols, rows.n_slots), "lengths");
    // -0: added to anything, it changes nothing.
    let nothing = -E::Acc::ZERO;
    let mut sums = vec![nothing; n_cols];
    for row in 0..n_rows {
        let columns = &rows.columns[rows.range(row)];
        let line = &mut dense[row * n_cols..][..n_cols];
        for (entry, column) in rows.range(row).zip(columns) {
            sums[column.get()] = sums[column.get()] + values[rows.slot(entry)].widen();
        }
        for column in columns {
            let sum = std::mem::replace(&mut sums[column.get()], nothing);
            line[column.get()] = E::narrow(line[column.get()].widen() + E::narrow(sum).widen());
        }
    }
}

/// The elements of `dense` at the entries; 0 for values that no entry has.
pub(super) fn sample<E: Scalar, I: Index>(rows: &Rows<I>, dense: Dense<'_, E>, nnz: usize) -> Vec<E> {
    let mut values = vec![E::zeroed(); nnz];
    for row in 0..rows.n_rows() {
        let line = dense.row(row);
        for entry in rows.range(row) {
            values[rows.slot(entry)] = line[rows.columns[entry].get()];
        }
    }
    values
}
