//! Triangular solves on the CPU, and both of their gradients.
//!
//! One thread goes through the rows in their order, with up to 64 right-hand sides at once in registers. More threads share the
//! right-hand sides, or the rows of a level where levels are wide. Each element is formed in the same way whoever does it.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar, as_sums};
use crate::backend::simd::{
    self, Entries, Isa, Kernel, Slots, WithEntries, array, by_width, each, for_each, for_each_chunk, is_serial, load,
    store, with_entries,
};
use crate::ops::sddmm::cpu::{TOGETHER, dots, group, zero_unused};
use crate::ops::spmm::cpu::{CHAINS, FUSED, starts, total};
use crate::pattern::{Index, Part, Split, SplitIndex};

/// Fewer multiplications than this in a level are done before another thread has woken up.
const SMALL: usize = 1 << 16;
/// Columns that threads share come in multiples of this.
const SHARE: usize = 16;
/// Columns of a tile.
const TILE: usize = 64;

/// One triangle of a matrix.
pub(super) struct Matrix<'a, E, I> {
    pub split: &'a Split<I>,
    pub part: Part,
    pub values: &'a [E],
}

impl<E, I> Clone for Matrix<'_, E, I> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, I> Copy for Matrix<'_, E, I> {}

impl<'a, E: Scalar, I: Index> Matrix<'a, E, I> {
    fn rows(&self) -> usize {
        self.split.rows.n_rows()
    }

    /// The matrix of what its values are summed in, where that is their own type and indices are 32-bit.
    fn narrow(self) -> Option<Matrix<'a, E::Acc, i32>>
    where
        I: SplitIndex,
    {
        Some(Matrix { split: I::narrow_split(self.split)?, part: self.part, values: as_sums(self.values)? })
    }

    fn check(&self, rhs: Dense<'_, E>, out: usize) {
        let rows = &self.split.rows;
        assert_eq!(rows.n_rows(), rows.n_cols, "a square matrix");
        assert_eq!(rhs.rows(), rows.n_rows(), "rows of the right-hand sides");
        assert_eq!(self.values.len(), rows.n_slots, "values");
        assert_eq!(Some(out), rows.n_rows().checked_mul(rhs.cols()), "elements of the solution");
    }
}

/// The solution of `T x = rhs` in full, T the triangle; the first row whose diagonal is zero, if there is one, comes back.
///
/// # Panics
///
/// If shapes or lengths don't fit.
pub(super) fn solve<E: Scalar, I: SplitIndex>(
    matrix: Matrix<'_, E, I>,
    rhs: Dense<'_, E>,
    out: &mut [MaybeUninit<E>],
) -> Option<usize> {
    by_kernel::<E, I, CHAINS>(matrix, rhs, out)
}

/// [`solve`], with fewer than 16 columns each sum in so many chains.
fn by_kernel<E: Scalar, I: SplitIndex, const CHAINS: usize>(
    matrix: Matrix<'_, E, I>,
    rhs: Dense<'_, E>,
    out: &mut [MaybeUninit<E>],
) -> Option<usize> {
    matrix.check(rhs, out.len());
    let out = Output::new(out);
    let zero = AtomicUsize::new(usize::MAX);
    match (matrix.narrow(), rhs.as_sums(), out.as_sums()) {
        (Some(matrix), Some(rhs), Some(out)) if simd::is_fast() => {
            let rows = &matrix.split.rows;
            with_entries(rows, Solve::<_, _, CHAINS, true> { matrix, rhs, out, zero: &zero });
        }
        _ => with_entries(&matrix.split.rows, Solve::<_, _, 1, false> { matrix, rhs, out, zero: &zero }),
    }
    Some(zero.into_inner()).filter(|&row| row != usize::MAX)
}

/// The gradients of [`solve`], given its solution and that of it: `d_rhs = T^-T grad`, and `d_values[slot(e)] = -<d_rhs_i, x_j>`
/// for the entries of the triangle, 0 for others.
///
/// `transposed` gives the same entries by columns; it is asked for only where that is faster. Where it isn't, a single thread
/// subtracts from `d_rhs` row by row: only if each column's entries are `in_order`, so that both ways subtract in the same order.
///
/// # Panics
///
/// If shapes or lengths don't fit.
pub(super) fn backward<'a, E: Scalar, I: SplitIndex>(
    matrix: Matrix<'a, E, I>,
    transposed: impl FnOnce() -> &'a Split<I>,
    in_order: bool,
    x: Dense<'_, E>,
    grad: Dense<'_, E>,
    d_values: &mut [MaybeUninit<E>],
    d_rhs: &mut [MaybeUninit<E>],
) {
    matrix.check(grad, d_rhs.len());
    matrix.check(x, d_rhs.len());
    let (rows, cols) = (&matrix.split.rows, x.cols());
    assert_eq!(d_values.len(), rows.n_slots, "values of the gradient");
    zero_unused(rows, d_values);
    if let (Some(narrow), Some(x_sums)) = (matrix.narrow(), x.as_sums())
        && in_order
        && (1..=FUSED).contains(&cols)
        && is_serial(rows)
        && simd::is_fast()
    {
        for (row, out) in d_rhs.chunks_exact_mut(cols).enumerate() {
            for (out, &grad) in out.iter_mut().zip(grad.row(row)) {
                out.write(grad);
            }
        }
        let (d_values, d_rhs) = (Output::new(d_values).as_sums(), Output::new(d_rhs).as_sums());
        let same = "the values are their own sums";
        return scatter(narrow, x_sums, d_values.expect(same), d_rhs.expect(same));
    }
    let by_columns = Matrix { split: transposed(), part: matrix.part.t(), ..matrix };
    if cols <= FUSED {
        // In one chain, as the scatter subtracts.
        by_kernel::<E, I, 1>(by_columns, grad, d_rhs);
    } else {
        by_kernel::<E, I, CHAINS>(by_columns, grad, d_rhs);
    }
    // SAFETY: the solution was written in full just now.
    let d_rhs = unsafe { &*(std::ptr::from_ref::<[MaybeUninit<E>]>(d_rhs) as *const [E]) };
    products(matrix, Dense::contiguous(d_rhs, rows.n_rows(), cols), x, Output::new(d_values));
}

/// A solve, on the way to its kernel: a tile of columns at a time, `FAST` or by the plain loops (for 16-bit types, 64-bit indices
/// and old processors).
struct Solve<'a, E, I, const CHAINS: usize, const FAST: bool> {
    matrix: Matrix<'a, E, I>,
    rhs: Dense<'a, E>,
    out: Output<'a, E>,
    zero: &'a AtomicUsize,
}

impl<E: Scalar, I: Index, const CHAINS: usize, const FAST: bool> WithEntries<I> for Solve<'_, E, I, CHAINS, FAST> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { matrix, rhs, out, zero } = self;
        let (n, cols, upper) = (matrix.rows(), rhs.cols(), matrix.part.upper);
        let run = |range: Range<usize>, order: Option<&[I]>, columns: Range<usize>| {
            let rows = Rows { range, order, entries, matrix, rhs, out };
            rows.solve::<CHAINS, FAST>(columns, zero);
        };
        let work = matrix.split.rows.n_entries() * cols;
        if work < SMALL || is_serial(&matrix.split.rows) {
            return run(0..n, None, 0..cols);
        }
        let shares = (cols / SHARE).min(rayon::current_num_threads());
        if shares > 1 {
            let start = |share: usize| cols / SHARE * share / shares * SHARE;
            let end = |share: usize| if share + 1 == shares { cols } else { start(share + 1) };
            return for_each(shares, work, &|share| run(0..n, None, start(share)..end(share)));
        }
        let levels = matrix.split.levels(upper);
        let n_levels = levels.bounds.len() - 1;
        if work / n_levels.max(1) < SMALL {
            return run(0..n, None, 0..cols);
        }
        for bounds in levels.bounds.windows(2) {
            let (start, end) = (bounds[0].get(), bounds[1].get());
            let pieces = (work / n * (end - start) / SMALL).clamp(1, end - start);
            let bound = |piece: usize| start + (end - start) * piece / pieces;
            for_each(pieces, work, &|piece| run(bound(piece)..bound(piece + 1), Some(&levels.order), 0..cols));
        }
    }
}

/// Some rows of a solve: places in an order, or in that of elimination.
#[derive(Clone)]
struct Rows<'a, E, I, M> {
    range: Range<usize>,
    order: Option<&'a [I]>,
    entries: Entries<'a, I, M>,
    matrix: Matrix<'a, E, I>,
    rhs: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index, M: Slots> Rows<'_, E, I, M> {
    /// Some columns of the rows.
    fn solve<const CHAINS: usize, const FAST: bool>(self, columns: Range<usize>, zero: &AtomicUsize) {
        macro_rules! tile {
            ($n:literal x $v:literal, $chains:expr, $start:expr) => {{
                let starts = starts::<$n, $v>($start, columns.end);
                let tile = Tile::<E, I, M, $n, $v, { $chains }> { rows: &self, starts, zero };
                if FAST { simd::run_fast(tile) } else { simd::run(tile) }
            }};
        }
        let first = columns.start;
        match columns.len() {
            0 => {}
            cols if !FAST => {
                let tiled = cols / 16 * 16;
                (first..first + tiled).step_by(16).for_each(|start| tile!(16 x 1, 1, start));
                (first + tiled..columns.end).for_each(|start| tile!(1 x 1, 1, start));
            }
            1 => tile!(1 x 1, CHAINS, first),
            2 => tile!(2 x 1, CHAINS, first),
            3 => tile!(2 x 2, CHAINS, first),
            4 => tile!(4 x 1, CHAINS, first),
            5..8 => tile!(4 x 2, CHAINS, first),
            8 => tile!(8 x 1, CHAINS, first),
            9..16 => tile!(8 x 2, CHAINS, first),
            _ => {
                for first in columns.clone().step_by(TILE) {
                    match (columns.end - first).min(TILE).div_ceil(16) {
                        1 => tile!(16 x 1, 1, first),
                        2 => tile!(16 x 2, 1, first),
                        3 => tile!(16 x 3, 1, first),
                        _ => tile!(16 x 4, 1, first),
                    }
                }
            }
        }
    }
}

/// `V` vectors of `N` columns, of which the last may overlap the one before: there it repeats the solution to the bit.
struct Tile<'a, E, I, M, const N: usize, const V: usize, const CHAINS: usize> {
    rows: &'a Rows<'a, E, I, M>,
    starts: [usize; V],
    zero: &'a AtomicUsize,
}

impl<E: Scalar, I: Index, M: Slots, const N: usize, const V: usize, const CHAINS: usize> Kernel
    for Tile<'_, E, I, M, N, V, CHAINS>
{
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { rows: Rows { range, order, entries, matrix, rhs, out }, starts, zero } = self;
        let (Part { upper, unit }, n, cols) = (matrix.part, matrix.rows(), rhs.cols());
        let mut first_zero = usize::MAX;
        for at in range.clone() {
            let row = match order {
                Some(order) => order[at].get(),
                None if upper => n - 1 - at,
                None => at,
            };
            // SAFETY: `solve` has checked the shapes, `Rows` its columns and slots; the vectors are within the columns, and
            // rows that are read were written before.
            unsafe {
                let subtract = |entry: usize, sums: &mut [[E::Acc; N]; V]| {
                    let value = -matrix.values.get_unchecked(entries.slot(entry)).widen();
                    let x = out.at(entries.column(entry) * cols).cast_const();
                    for (sum, start) in sums.iter_mut().zip(starts) {
                        *sum = S::mul_add([value; N], load::<E, N>(x.add(start)), *sum);
                    }
                };
                let beside = beside(entries, matrix.split, row, upper);
                // The row that was solved last is read last.
                let (mut entry, step) = if upper { (beside.end.wrapping_sub(1), !0) } else { (beside.start, 1usize) };
                let mut left = beside.len();
                let mut sums = [[[E::Acc::ZERO; N]; V]; CHAINS];
                let from = rhs.row_ptr(row);
                sums[0] = each(starts, |start| load::<E, N>(from.add(start)));
                while left > CHAINS {
                    for sums in &mut sums {
                        subtract(entry, sums);
                        entry = entry.wrapping_add(step);
                    }
                    left -= CHAINS;
                }
                let mut sums = array(|v| total::<S, E::Acc, N, V, CHAINS>(&sums, v));
                for _ in 0..left {
                    subtract(entry, &mut sums);
                    entry = entry.wrapping_add(step);
                }
                if !unit {
                    let divisor = diagonal(entries, matrix, row);
                    first_zero = if divisor == E::Acc::ZERO { first_zero.min(row) } else { first_zero };
                    sums = each(sums, |sum| S::div(sum, [divisor; N]));
                }
                let to = out.at(row * cols);
                for (sum, start) in sums.into_iter().zip(starts) {
                    store::<E, N>(sum, to.add(start));
                }
            }
        }
        if first_zero != usize::MAX {
            zero.fetch_min(first_zero, Ordering::Relaxed);
        }
    }
}

/// [`Split::beside`], unchecked.
///
/// # Safety
///
/// There is such a row.
#[inline(always)]
unsafe fn beside<I: Index, M: Slots>(
    entries: &Entries<'_, I, M>,
    split: &Split<I>,
    row: usize,
    upper: bool,
) -> Range<usize> {
    // SAFETY: the caller's promise.
    let (of_row, [start, end]) = unsafe { (entries.of_row(row), *split.diagonal.get_unchecked(row)) };
    if upper { end.get()..of_row.end } else { of_row.start..start.get() }
}

/// The diagonal of a row, duplicates summed.
///
/// # Safety
///
/// There is such a row; the entries are those of the matrix.
#[inline(always)]
unsafe fn diagonal<E: Scalar, I: Index, M: Slots>(
    entries: &Entries<'_, I, M>,
    matrix: &Matrix<'_, E, I>,
    row: usize,
) -> E::Acc {
    // SAFETY: the caller's promise.
    unsafe {
        let value = |entry: usize| matrix.values.get_unchecked(entries.slot(entry)).widen();
        let [start, end] = matrix.split.diagonal.get_unchecked(row).map(Index::get);
        if end - start == 1 {
            return value(start);
        }
        (start..end).fold(E::Acc::ZERO, |sum, entry| sum + value(entry))
    }
}

/// Both gradients in one pass over the entries, from the last row that was solved to the first: `d_rhs` is the gradient of the
/// solution at first, and what a row comes to is subtracted from the rows that it depends on.
fn scatter<E: Accumulator>(matrix: Matrix<'_, E, i32>, x: Dense<'_, E>, d_values: Output<'_, E>, d_rhs: Output<'_, E>) {
    macro_rules! scatter {
        ($n:literal x $v:literal) => {
            with_entries(&matrix.split.rows, Scatter::<E, i32, $n, $v> { matrix, x, d_values, d_rhs })
        };
    }
    by_width!(x.cols(), scatter, cols => unreachable!("{cols} columns are not fused"))
}

struct Scatter<'a, E, I, const N: usize, const V: usize> {
    matrix: Matrix<'a, E, I>,
    x: Dense<'a, E>,
    d_values: Output<'a, E>,
    d_rhs: Output<'a, E>,
}

impl<E: Scalar, I: Index, const N: usize, const V: usize> WithEntries<I> for Scatter<'_, E, I, N, V> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        simd::run_fast(ScatterAll { entries, scatter: self });
    }
}

struct ScatterAll<'a, E, I, M, const N: usize, const V: usize> {
    entries: Entries<'a, I, M>,
    scatter: Scatter<'a, E, I, N, V>,
}

impl<E: Scalar, I: Index, M: Slots, const N: usize, const V: usize> Kernel for ScatterAll<'_, E, I, M, N, V> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { entries, scatter: Scatter { matrix, x, d_values, d_rhs } } = self;
        let (n, Part { upper, unit }) = (matrix.rows(), matrix.part);
        let cols = if V == 1 { N } else { x.cols() };
        let starts = starts::<N, V>(0, cols);
        for at in 0..n {
            let row = if upper { at } else { n - 1 - at };
            // SAFETY: `backward` has checked the shapes, `Rows` its columns and slots; the vectors end within a row.
            unsafe {
                let own = d_rhs.at(row * cols);
                let mut grads = each(starts, |start| load::<E, N>(own.add(start)));
                if !unit {
                    let divisor = diagonal(&entries, &matrix, row);
                    grads = each(grads, |grad| S::div(grad, [divisor; N]));
                    for (grad, start) in grads.into_iter().zip(starts) {
                        store::<E, N>(grad, own.add(start));
                    }
                }
                let beside = beside(&entries, matrix.split, row, upper);
                for entry in beside.clone() {
                    // Duplicates in the order in which the transposed row meets them.
                    let entry = if upper { entry } else { beside.end - 1 - (entry - beside.start) };
                    let value = -matrix.values.get_unchecked(entries.slot(entry)).widen();
                    let to = d_rhs.at(entries.column(entry) * cols);
                    // All are read before the first is written: vectors may overlap.
                    let mut sums = each(starts, |start| load::<E, N>(to.add(start)));
                    for (sum, grad) in sums.iter_mut().zip(grads) {
                        *sum = S::mul_add([value; N], grad, *sum);
                    }
                    for (sum, start) in sums.into_iter().zip(starts) {
                        store::<E, N>(sum, to.add(start));
                    }
                }
                row_products::<S, E, I, M, N>(&entries, &matrix, row, own, x, d_values);
            }
        }
    }
}

/// The gradient of the values of a row, given that of its right-hand sides.
///
/// # Safety
///
/// There is such a row; `d_rhs` points to as many elements as `x` has columns, at least `N` unless there are none; columns and
/// slots are within `x` and `d_values`.
#[inline(always)]
unsafe fn row_products<S: Isa, E: Scalar, I: Index, M: Slots, const N: usize>(
    entries: &Entries<'_, I, M>,
    matrix: &Matrix<'_, E, I>,
    row: usize,
    d_rhs: *const E,
    x: Dense<'_, E>,
    d_values: Output<'_, E>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (Part { upper, unit }, of_row) = (matrix.part, entries.of_row(row));
        let [start, end] = matrix.split.diagonal.get_unchecked(row).map(Index::get);
        let read = match (upper, unit) {
            (false, false) => of_row.start..end,
            (false, true) => of_row.start..start,
            (true, false) => start..of_row.end,
            (true, true) => end..of_row.end,
        };
        for first in read.clone().step_by(TOGETHER) {
            let group = group(first..read.end);
            let dots = dots::<S, E, N>(d_rhs, each(group, |entry| x.row_ptr(entries.column(entry))), x.cols());
            for (entry, dot) in group.into_iter().zip(dots) {
                d_values.at(entries.slot(entry)).write(E::narrow(-dot));
            }
        }
        for entry in (of_row.start..read.start).chain(read.end..of_row.end) {
            d_values.at(entries.slot(entry)).write(E::zeroed());
        }
    }
}

/// [`row_products`] of all rows.
fn products<E: Scalar, I: SplitIndex>(
    matrix: Matrix<'_, E, I>,
    d_rhs: Dense<'_, E>,
    x: Dense<'_, E>,
    d_values: Output<'_, E>,
) {
    macro_rules! products {
        ($n:literal, $fast:literal, $matrix:expr, $d_rhs:expr, $x:expr, $out:expr) => {{
            let (matrix, d_rhs, x, d_values) = ($matrix, $d_rhs, $x, $out);
            with_entries(&matrix.split.rows, Products::<_, _, $n, $fast> { matrix, d_rhs, x, d_values })
        }};
    }
    match (matrix.narrow(), d_rhs.as_sums(), x.as_sums(), d_values.as_sums()) {
        (Some(matrix), Some(d_rhs), Some(x), Some(d_values)) if simd::is_fast() => match x.cols() {
            0..2 => products!(1, true, matrix, d_rhs, x, d_values),
            2..4 => products!(2, true, matrix, d_rhs, x, d_values),
            4..8 => products!(4, true, matrix, d_rhs, x, d_values),
            8..16 => products!(8, true, matrix, d_rhs, x, d_values),
            _ => products!(16, true, matrix, d_rhs, x, d_values),
        },
        _ if x.cols() < 8 => products!(1, false, matrix, d_rhs, x, d_values),
        _ => products!(8, false, matrix, d_rhs, x, d_values),
    }
}

#[derive(Clone, Copy)]
struct Products<'a, E, I, const N: usize, const FAST: bool> {
    matrix: Matrix<'a, E, I>,
    d_rhs: Dense<'a, E>,
    x: Dense<'a, E>,
    d_values: Output<'a, E>,
}

impl<E: Scalar, I: Index, const N: usize, const FAST: bool> WithEntries<I> for Products<'_, E, I, N, FAST> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let rows = &self.matrix.split.rows;
        for_each_chunk(rows, rows.n_entries() * self.x.cols(), |range| {
            let chunk = ProductsOf { range, entries, all: self };
            if FAST { simd::run_fast(chunk) } else { simd::run(chunk) }
        });
    }
}

struct ProductsOf<'a, E, I, M, const N: usize, const FAST: bool> {
    range: Range<usize>,
    entries: Entries<'a, I, M>,
    all: Products<'a, E, I, N, FAST>,
}

impl<E: Scalar, I: Index, M: Slots, const N: usize, const FAST: bool> Kernel for ProductsOf<'_, E, I, M, N, FAST> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { range, entries, all: Products { matrix, d_rhs, x, d_values } } = self;
        for row in range {
            // SAFETY: `backward` has checked the shapes, `Rows` its columns and slots.
            unsafe { row_products::<S, E, I, M, N>(&entries, &matrix, row, d_rhs.row_ptr(row), x, d_values) };
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::ops::sddmm::cpu::reference::{COLS, Random, assert_close, entries, filled, on_threads, transposed};

    /// Lower or upper, unit or not: the solution, and both gradients, against substitution by plain loops in f64.
    fn check<E: Scalar, I: SplitIndex>(rows: &crate::pattern::Rows<I>, cols: usize, part: Part) {
        let mut random = Random::new(cols as u64);
        let n = rows.n_rows();
        let rows = &crate::pattern::Rows { n_slots: rows.n_entries() + 3, ..rows.clone() };
        let mut values = random.elements::<E>(rows.n_slots);
        // Diagonally dominant, in powers of two where that matters.
        let stored: Vec<_> = entries(rows).collect();
        for &(i, j, slot) in &stored {
            let value: f64 = values[slot].widen().into();
            values[slot] = E::narrow((if i == j { 2.0 } else { value as f32 / 16.0 }).into());
        }
        let rhs = random.elements::<E>(n * cols);
        let grad = random.elements::<E>(n * cols);
        let wide = |v: &[E]| v.iter().map(|v| v.widen().into()).collect::<Vec<f64>>();
        let plain = |part: Part, flip: bool, b: &[E]| {
            let mut x = wide(b);
            for at in 0..n {
                let row = if part.upper { n - 1 - at } else { at };
                let mut divisor = 0.0;
                for &(i, j, slot) in &stored {
                    let (i, j) = if flip { (j, i) } else { (i, j) };
                    let value: f64 = values[slot].widen().into();
                    if i == row && i == j {
                        divisor += value;
                    } else if i == row && part.reads(i, j) {
                        for c in 0..cols {
                            x[i * cols + c] -= value * x[j * cols + c];
                        }
                    }
                }
                if !part.unit {
                    x[row * cols..][..cols].iter_mut().for_each(|x| *x /= divisor);
                }
            }
            x
        };
        let (split, by_columns) = (Split::new(rows), Split::new(&transposed(rows)));
        let matrix = Matrix { split: &split, part, values: &values };
        let dense = |v| Dense::contiguous(v, n, cols);
        let [x] = on_threads(|| [filled(n * cols, |out| assert_eq!(solve(matrix, dense(&rhs), out), None))]);
        // Entries are small beside the diagonal: errors do not grow.
        let close = |found: &[E], expected: &[f64]| {
            assert_close(found, &expected.iter().map(|&v| (v, v.abs() + 8.0)).collect::<Vec<_>>());
        };
        let exact = plain(part, false, &rhs);
        if size_of::<E>() > 2 {
            close(&x, &exact);
        }
        let [d_values, d_rhs] = on_threads(|| {
            let mut d_rhs = vec![];
            let d_values = filled(values.len(), |d_values| {
                d_rhs = filled(n * cols, |d_rhs| {
                    backward(matrix, || &by_columns, true, dense(&x), dense(&grad), d_values, d_rhs);
                });
            });
            [d_values, d_rhs]
        });
        if size_of::<E>() > 2 {
            close(&d_rhs, &plain(part.t(), true, &grad));
        }
        let (x, d) = (wide(&x), wide(&d_rhs));
        let mut expected = vec![(0.0, 0.0); values.len()];
        for &(i, j, slot) in stored.iter().filter(|&&(i, j, _)| part.reads(i, j)) {
            for c in 0..cols {
                let product: f64 = d[i * cols + c] * x[j * cols + c];
                expected[slot].0 -= product;
                expected[slot].1 += product.abs();
            }
        }
        assert_close(&d_values, &expected);
    }

    /// A pattern with a diagonal, some of it twice, both triangles, unsorted.
    fn square<I: Index>(n: usize, per_row: usize) -> crate::pattern::Rows<I> {
        let mut random = Random::new(9);
        let (mut offsets, mut columns) = (vec![I::of(0)], vec![]);
        for row in 0..n {
            columns.extend((0..random.below(per_row)).map(|_| I::of(random.below(n))));
            columns.push(I::of(row));
            columns.extend((0..random.below(per_row)).map(|_| I::of(random.below(n))));
            offsets.push(I::of(columns.len()));
        }
        let entries = columns.len();
        crate::pattern::Rows::new(offsets.into(), columns.into(), crate::pattern::Slot::Identity, n, entries)
    }

    const PARTS: [Part; 4] = [
        Part { upper: false, unit: false },
        Part { upper: false, unit: true },
        Part { upper: true, unit: false },
        Part { upper: true, unit: true },
    ];

    #[test]
    fn agrees_with_the_plain_loops() {
        let (rows, wide) = (square::<i32>(60, 5), square::<i64>(60, 5));
        for part in PARTS {
            for cols in COLS {
                check::<f32, _>(&rows, cols, part);
                check::<f64, _>(&transposed(&rows), cols, part);
            }
            for cols in [0, 1, 7, 16, 33] {
                check::<f64, _>(&wide, cols, part);
                check::<f16, _>(&wide, cols, part);
                check::<bf16, _>(&transposed(&rows), cols, part);
            }
            check::<f32, _>(&square::<i32>(0, 3), 4, part);
            check::<f32, _>(&square::<i32>(1, 1), 4, part);
        }
    }

    /// Enough work for several threads: wide levels, and many columns.
    #[test]
    fn threads_give_the_same_bits() {
        let n = 60_000;
        let columns: Vec<i32> = (0..n).flat_map(|row| [row % 500, row]).collect();
        let offsets: Vec<i32> = (0..=n).map(|row| 2 * row).collect();
        let rows = crate::pattern::Rows::new(
            offsets.into(),
            columns.into(),
            crate::pattern::Slot::Identity,
            n as usize,
            2 * n as usize,
        );
        let split = Split::new(&rows);
        assert!(split.levels(false).bounds.len() <= 4 && rows.chunks.len() > 3);
        let values: Vec<f64> = (0..2 * n).map(|e| if e % 2 == 0 { 0.25 } else { 3.0 }).collect();
        for cols in [1, 3, 16, 33, 40] {
            let rhs = Random::new(2).elements::<f64>(n as usize * cols);
            for part in [PARTS[0], PARTS[1]] {
                let matrix = Matrix { split: &split, part, values: &values };
                on_threads(|| {
                    let rhs = Dense::contiguous(&rhs, n as usize, cols);
                    [filled(n as usize * cols, |out| assert_eq!(solve(matrix, rhs, out), None))]
                });
            }
        }
    }

    #[test]
    fn the_first_zero_on_the_diagonal_is_found() {
        let rows = square::<i32>(40, 1);
        let split = Split::new(&rows);
        let mut values = vec![1.0f32; 40];
        (values[7], values[30]) = (0.0, -0.0);
        let rhs = vec![1.0; 40 * 5];
        for part in PARTS {
            let matrix = Matrix { split: &split, part, values: &values };
            filled(40 * 5, |out| {
                let found = solve(matrix, Dense::contiguous(&rhs, 40, 5), out);
                assert_eq!(found, (!part.unit).then_some(7));
            });
        }
    }
}
