//! Sparse times dense on the CPU, and both of its gradients.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar, as_sums};
use crate::backend::simd::{
    self, Entries, Isa, Kernel, Slots, WithEntries, by_width, each, for_each_chunk, is_serial, load, prefetch, store,
    with_entries,
};
use crate::ops::sddmm::cpu::{TOGETHER, dots, group, sddmm, zero_unused};
use crate::pattern::{Index, Rows};

/// `out_i = sum of v_e * dense_j` over the entries `e = (i, j)` of row `i`, written in full.
///
/// # Panics
///
/// If `dense` has not as many rows as the pattern has columns, `values` not as many elements as it has values, or `out`
/// is not of the size of the product.
pub fn spmm<E: Scalar, I: Index>(rows: &Rows<I>, values: &[E], dense: Dense<'_, E>, out: &mut [MaybeUninit<E>]) {
    multiply::<E, I, CHAINS>(rows, values, dense, out);
}

/// [`spmm`], by the fast kernels where they are compiled for these types and this processor.
fn multiply<E: Scalar, I: Index, const CHAINS: usize>(
    rows: &Rows<I>,
    values: &[E],
    dense: Dense<'_, E>,
    out: &mut [MaybeUninit<E>],
) {
    check(rows, values, dense, out.len());
    let out = Output::new(out);
    match (I::narrow(rows), as_sums(values), dense.as_sums(), out.as_sums()) {
        (Some(rows), Some(values), Some(dense), Some(out)) if simd::is_fast() => {
            product::<E::Acc, CHAINS>(rows, values, dense, out);
        }
        _ => with_entries(rows, Plain { rows, values, dense, out }),
    }
}

fn check<E, I: Index>(rows: &Rows<I>, values: &[E], dense: Dense<'_, E>, out: usize) {
    assert_eq!(dense.rows(), rows.n_cols, "rows of the dense operand");
    assert_eq!(values.len(), rows.n_slots, "values");
    assert_eq!(Some(out), rows.n_rows().checked_mul(dense.cols()), "elements of the output");
}

/// The gradients of [`spmm`], given that of its output: `d_values[slot(e)] = <grad_i, dense_j>` (the rest of `d_values`,
/// if it is longer, is zero) and `d_dense_j = sum of v_e * grad_i` over the entries of column `j`.
///
/// `transposed` gives the same entries by columns, with slots in the same values; it is asked for only where that is
/// faster. Where it isn't, a single thread adds to `d_dense` row by row: only if each column's entries are `in_order`, in
/// that of `rows`, so that both ways add the same numbers in the same order.
///
/// # Panics
///
/// If shapes or lengths don't fit, as for [`spmm`].
#[expect(clippy::too_many_arguments, reason = "two inputs and an output for each of two gradients")]
pub fn spmm_backward<E: Scalar, I: Index>(
    rows: &Rows<I>,
    transposed: impl FnOnce() -> Rows<I>,
    in_order: bool,
    values: &[E],
    dense: Dense<'_, E>,
    grad: Dense<'_, E>,
    d_values: &mut [MaybeUninit<E>],
    d_dense: &mut [MaybeUninit<E>],
) {
    check(rows, values, dense, grad.rows() * grad.cols());
    assert_eq!(Some(d_dense.len()), dense.rows().checked_mul(dense.cols()), "elements of the dense gradient");
    if let (Some(narrow), Some(values), Some(dense), Some(grad)) =
        (I::narrow(rows), as_sums(values), dense.as_sums(), grad.as_sums())
        && in_order
        && is_fused(narrow, dense.cols())
    {
        assert_eq!(d_values.len(), rows.n_slots, "values of the gradient");
        zero_unused(rows, d_values);
        d_dense.fill(MaybeUninit::new(E::zeroed()));
        let (d_values, d_dense) = (Output::new(d_values), Output::new(d_dense));
        let (d_values, d_dense) = (d_values.as_sums(), d_dense.as_sums());
        let same = "the values are their own sums";
        return scatter(narrow, values, dense, grad, d_values.expect(same), d_dense.expect(same));
    }
    sddmm(rows, grad, dense, d_values);
    let transposed = transposed();
    if dense.cols() <= FUSED {
        // In one chain, as the scatter adds.
        multiply::<E, I, 1>(&transposed, values, grad, d_dense);
    } else {
        multiply::<E, I, CHAINS>(&transposed, values, grad, d_dense);
    }
}

/// Up to this many columns one pass over the entries beats two, the second of them in transposed order.
pub(crate) const FUSED: usize = 16;
/// How many rows are done with one tile of columns before the next tile: few enough for what they share of the dense
/// operand to stay in the cache.
const BLOCK: usize = 16;
/// Up to this many columns, too, there are too few sums to keep the adders busy: each is made of several.
pub(crate) const CHAINS: usize = 4;

/// Whether [`spmm_backward`] does without the transposed entries.
fn is_fused(rows: &Rows<i32>, cols: usize) -> bool {
    (1..=FUSED).contains(&cols) && is_serial(rows) && simd::is_fast()
}

/// [`spmm`], checked; with up to [`FUSED`] columns each sum is made of `CHAINS` chains of additions.
fn product<E: Accumulator, const CHAINS: usize>(
    rows: &Rows<i32>,
    values: &[E],
    dense: Dense<'_, E>,
    out: Output<'_, E>,
) {
    with_entries(rows, Product::<E, i32, CHAINS> { rows, values, dense, out });
}

/// The plain loops over blocks of columns: for 16-bit types, 64-bit indices and old processors.
struct Plain<'a, E, I> {
    rows: &'a Rows<I>,
    values: &'a [E],
    dense: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> WithEntries<I> for Plain<'_, E, I> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, values, dense, out } = self;
        for_each_chunk(rows, rows.n_entries() * dense.cols(), |range| {
            simd::run(PlainRows(Chunk { range, entries, values, dense, out }));
        });
    }
}

struct PlainRows<'a, E, I, M>(Chunk<'a, E, I, M>);

impl<E: Scalar, I: Index, M: Slots> Kernel for PlainRows<'_, E, I, M> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        const BLOCK: usize = 16;
        let cols = self.0.dense.cols();
        for row in self.0.range.clone() {
            let mut first = 0;
            // SAFETY: rows of the pattern, and vectors within the columns.
            unsafe {
                while first + BLOCK <= cols {
                    self.0.rows::<S, BLOCK, 1, 1, false>(row..row + 1, [first]);
                    first += BLOCK;
                }
                for column in first..cols {
                    self.0.rows::<S, 1, 1, 1, false>(row..row + 1, [column]);
                }
            }
        }
    }
}

struct Product<'a, E, I, const CHAINS: usize> {
    rows: &'a Rows<I>,
    values: &'a [E],
    dense: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index, const CHAINS: usize> WithEntries<I> for Product<'_, E, I, CHAINS> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, values, dense, out } = self;
        for_each_chunk(rows, rows.n_entries() * dense.cols(), |range| {
            macro_rules! chunk {
                () => {
                    Chunk { range, entries, values, dense, out }
                };
            }
            macro_rules! narrow {
                ($n:literal x $v:literal) => {
                    simd::run_fast(Narrow::<E, I, M, $n, $v, CHAINS>(chunk!()))
                };
            }
            match dense.cols() {
                0 => {}
                1 if CHAINS > 1 && dense.as_vector().is_some() => simd::run_fast(Vector::<_, _, _, true>(chunk!())),
                1 if CHAINS > 1 => simd::run_fast(Vector::<_, _, _, false>(chunk!())),
                1 => narrow!(1 x 1),
                2 => narrow!(2 x 1),
                3 => narrow!(2 x 2),
                4 => narrow!(4 x 1),
                5..8 => narrow!(4 x 2),
                8 => narrow!(8 x 1),
                9..16 => narrow!(8 x 2),
                16 => narrow!(16 x 1),
                _ => simd::run_fast(Wide(chunk!())),
            }
        });
    }
}

/// The rows of one chunk.
struct Chunk<'a, E, I, M> {
    range: Range<usize>,
    entries: Entries<'a, I, M>,
    values: &'a [E],
    dense: Dense<'a, E>,
    out: Output<'a, E>,
}

/// One column, `UNIT`: whose elements are contiguous. The sums are the same if they are not.
struct Vector<'a, E, I, M, const UNIT: bool>(Chunk<'a, E, I, M>);

impl<E: Scalar, I: Index, M: Slots, const UNIT: bool> Kernel for Vector<'_, E, I, M, UNIT> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Chunk { range, entries, values, dense, out } = self.0;
        let start = dense.row_ptr(0);
        for row in range {
            // SAFETY: `product` has checked the shapes, `Rows` its columns and slots.
            unsafe {
                let value = |entry| values.get_unchecked(entries.slot(entry)).widen();
                // Volatile: otherwise four of them become a gather instruction, which takes longer.
                let x = |entry| {
                    let column = entries.column(entry);
                    let from = if UNIT { start.add(column) } else { dense.row_ptr(column) };
                    from.read_volatile().widen()
                };
                let four = |entry: usize, sums| {
                    let at = [entry, entry + 1, entry + 2, entry + 3];
                    S::mul_add(each(at, value), each(at, x), sums)
                };
                let mut sums = [[E::Acc::ZERO; 4]; 2];
                let of_row = entries.of_row(row);
                let mut entry = of_row.start;
                while entry + 8 <= of_row.end {
                    sums[0] = four(entry, sums[0]);
                    sums[1] = four(entry + 4, sums[1]);
                    entry += 8;
                }
                if entry + 4 <= of_row.end {
                    sums[0] = four(entry, sums[0]);
                    entry += 4;
                }
                let mut rest = [E::Acc::ZERO];
                for entry in entry..of_row.end {
                    rest = S::mul_add([value(entry)], [x(entry)], rest);
                }
                let [a, b, c, d] = S::add(sums[0], sums[1]);
                out.at(row).write(E::narrow(((a + b) + (c + d)) + rest[0]));
            }
        }
    }
}

/// All columns at once, in `V` vectors of `N`, of which the last may overlap the one before: there it repeats the sums
/// to the bit.
struct Narrow<'a, E, I, M, const N: usize, const V: usize, const CHAINS: usize>(Chunk<'a, E, I, M>);

impl<E: Scalar, I: Index, M: Slots, const N: usize, const V: usize, const CHAINS: usize> Kernel
    for Narrow<'_, E, I, M, N, V, CHAINS>
{
    #[inline(always)]
    fn run<S: Isa>(self) {
        let starts = starts::<N, V>(0, self.0.dense.cols());
        // SAFETY: rows of the pattern, and all of their columns.
        unsafe { self.0.rows::<S, N, V, CHAINS, false>(self.0.range.clone(), starts) };
    }
}

/// More columns than 16, up to 128 of them at once, in vectors of 16 of which the last may overlap the one before.
struct Wide<'a, E, I, M>(Chunk<'a, E, I, M>);

impl<E: Scalar, I: Index, M: Slots> Kernel for Wide<'_, E, I, M> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let cols = self.0.dense.cols();
        let Chunk { range, entries, dense, .. } = &self.0;
        // Where rows of the pattern are short, the processor mispredicts the end of one every few entries, and looks
        // ahead less far itself.
        let fetch = dense.is_far() && (entries.are_short(range) || entries.are_irregular(range));
        for block in self.0.range.clone().step_by(BLOCK) {
            let block = block..self.0.range.end.min(block + BLOCK);
            let mut first = 0;
            while first < cols {
                macro_rules! tile {
                    ($v:literal) => {{
                        let starts = starts::<16, $v>(first, cols);
                        // SAFETY: rows of the pattern; the vectors end at the last column at the latest.
                        unsafe {
                            if fetch {
                                self.0.rows::<S, 16, $v, 1, true>(block.clone(), starts);
                            } else {
                                self.0.rows::<S, 16, $v, 1, false>(block.clone(), starts);
                            }
                        }
                        first += 16 * $v;
                    }};
                }
                match (cols - first).div_ceil(16) {
                    1 => tile!(1),
                    2 => tile!(2),
                    3 => tile!(3),
                    4..8 => tile!(4),
                    _ => tile!(8),
                }
            }
        }
    }
}

impl<E: Scalar, I: Index, M: Slots> Chunk<'_, E, I, M> {
    /// The columns of some rows of the output, in the vectors that begin at `starts`. Each sum is made of `CHAINS` chains of
    /// additions.
    ///
    /// # Safety
    ///
    /// There are such rows, and the vectors are within them.
    #[inline(always)]
    unsafe fn rows<S: Isa, const N: usize, const V: usize, const CHAINS: usize, const FETCH: bool>(
        &self,
        rows: Range<usize>,
        starts: [usize; V],
    ) {
        let Self { entries, values, dense, out, .. } = *self;
        for row in rows {
            let mut sums = [[[E::Acc::ZERO; N]; V]; CHAINS];
            // SAFETY: `product` has checked the shapes, `Rows` its columns and slots.
            unsafe {
                let add = |entry: usize, sums: &mut [[E::Acc; N]; V]| {
                    let value = values.get_unchecked(entries.slot(entry)).widen();
                    let from = dense.row_ptr(entries.column(entry));
                    if FETCH {
                        let ahead = dense.row_ptr(entries.column_ahead(entry));
                        prefetch(ahead.wrapping_add(starts[0]), N * V);
                    }
                    for (sum, start) in sums.iter_mut().zip(starts) {
                        *sum = S::mul_add([value; N], load::<E, N>(from.add(start)), *sum);
                    }
                };
                let of_row = entries.of_row(row);
                let mut entry = of_row.start;
                while entry + CHAINS <= of_row.end {
                    for (chain, sums) in sums.iter_mut().enumerate() {
                        add(entry + chain, sums);
                    }
                    entry += CHAINS;
                }
                for sums in &mut sums[..CHAINS - 1] {
                    if entry < of_row.end {
                        add(entry, sums);
                        entry += 1;
                    }
                }
                let to = out.at(row * dense.cols());
                for (v, start) in starts.into_iter().enumerate() {
                    store::<E, N>(total::<S, E::Acc, N, V, CHAINS>(&sums, v), to.add(start));
                }
            }
        }
    }
}

/// Where the vectors of a tile begin that begins at column `first`.
#[inline(always)]
pub(crate) fn starts<const N: usize, const V: usize>(first: usize, cols: usize) -> [usize; V] {
    let mut starts = [0; V];
    for (v, start) in starts.iter_mut().enumerate() {
        *start = first + v * N;
    }
    starts[V - 1] = starts[V - 1].min(cols - N);
    starts
}

/// The sum of a vector's chains, by halves.
#[inline(always)]
pub(crate) fn total<S: Isa, A: Accumulator, const N: usize, const V: usize, const CHAINS: usize>(
    sums: &[[[A; N]; V]; CHAINS],
    v: usize,
) -> [A; N] {
    let mut sums = each(*sums, |sums: [[A; N]; V]| sums[v]);
    let mut width = CHAINS;
    while width > 1 {
        width /= 2;
        for chain in 0..width {
            sums[chain] = S::add(sums[chain], sums[chain + width]);
        }
    }
    sums[0]
}

/// Both gradients in one pass over the entries, which adds to `d_dense` in place.
fn scatter<E: Accumulator>(
    rows: &Rows<i32>,
    values: &[E],
    dense: Dense<'_, E>,
    grad: Dense<'_, E>,
    d_values: Output<'_, E>,
    d_dense: Output<'_, E>,
) {
    macro_rules! scatter {
        ($n:literal x $v:literal) => {
            with_entries(rows, Scatter::<E, $n, $v> { values, dense, grad, d_values, d_dense })
        };
    }
    by_width!(dense.cols(), scatter, cols => unreachable!("{cols} columns are not fused"))
}

struct Scatter<'a, E, const N: usize, const V: usize> {
    values: &'a [E],
    dense: Dense<'a, E>,
    grad: Dense<'a, E>,
    d_values: Output<'a, E>,
    d_dense: Output<'a, E>,
}

impl<E: Scalar, I: Index, const N: usize, const V: usize> WithEntries<I> for Scatter<'_, E, N, V> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        simd::run_fast(ScatterAll { entries, scatter: self });
    }
}

struct ScatterAll<'a, E, I, M, const N: usize, const V: usize> {
    entries: Entries<'a, I, M>,
    scatter: Scatter<'a, E, N, V>,
}

impl<E: Scalar, I: Index, M: Slots, const N: usize, const V: usize> Kernel for ScatterAll<'_, E, I, M, N, V> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { entries, scatter: Scatter { values, dense, grad, d_values, d_dense } } = self;
        let cols = if V == 1 { N } else { dense.cols() };
        let starts = starts::<N, V>(0, cols);
        for row in 0..grad.rows() {
            // SAFETY: `scatter` has checked the shapes, `Rows` its columns and slots; the vectors end within a row.
            unsafe {
                let grad = grad.row_ptr(row);
                let grads = each(starts, |start| load::<E, N>(grad.add(start)));
                let of_row = entries.of_row(row);
                for first in of_row.clone().step_by(TOGETHER) {
                    let group = group(first..of_row.end);
                    let rows = each(group, |entry| dense.row_ptr(entries.column(entry)));
                    let dots = dots::<S, E, N>(grad, rows, cols);
                    for (entry, dot) in group.into_iter().zip(dots) {
                        d_values.at(entries.slot(entry)).write(E::narrow(dot));
                    }
                    for entry in first..of_row.end.min(first + TOGETHER) {
                        let value = values.get_unchecked(entries.slot(entry)).widen();
                        let to = d_dense.at(entries.column(entry) * cols);
                        // All are read before the first is written: vectors may overlap.
                        let mut sums = each(starts, |start| load::<E, N>(to.add(start)));
                        for (sum, grad) in sums.iter_mut().zip(grads) {
                            *sum = S::mul_add([value; N], grad, *sum);
                        }
                        for (sum, start) in sums.into_iter().zip(starts) {
                            store::<E, N>(sum, to.add(start));
                        }
                    }
                }
            }
        }
    }
}

/// The plain loops, in f64: what the tests compare with.
#[cfg(test)]
pub(crate) mod reference {
    use super::*;
    use crate::ops::sddmm::cpu::reference::{add, entries};

    /// The same as [`super::spmm`], not rounded; the sums of absolute values beside it.
    pub(crate) fn spmm<E: Scalar, I: Index>(rows: &Rows<I>, values: &[E], dense: Dense<'_, E>) -> Vec<(f64, f64)> {
        let cols = dense.cols();
        let mut out = vec![(0.0, 0.0); rows.n_rows() * cols];
        for (i, j, slot) in entries(rows) {
            for (out, x) in out[i * cols..][..cols].iter_mut().zip(dense.row(j)) {
                add(out, values[slot], *x);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::ops::sddmm::cpu::reference::{
        self as sampled, COLS, Random, assert_close, filled, on_threads, transposed,
    };

    fn check<E: Scalar, I: Index>(rows: &Rows<I>, cols: usize, gap: usize) {
        let mut random = Random::new(cols as u64);
        let stride = cols + gap;
        let rows = &Rows { n_slots: rows.n_entries() + gap, ..rows.clone() };
        let values = random.elements::<E>(rows.n_slots);
        let dense = random.elements::<E>(rows.n_cols * stride);
        let grad = random.elements::<E>(rows.n_rows() * stride);
        let dense = Dense::new(&dense, rows.n_cols, cols, stride);
        let grad = Dense::new(&grad, rows.n_rows(), cols, stride);
        let [ours] = on_threads(|| [filled(rows.n_rows() * cols, |out| spmm(rows, &values, dense, out))]);
        assert_close(&ours, &reference::spmm(rows, &values, dense));

        let by_columns = transposed(rows);
        let [d_values, d_dense] = on_threads(|| {
            let mut d_dense = vec![];
            let d_values = filled(values.len(), |d_values| {
                d_dense = filled(rows.n_cols * cols, |d_dense| {
                    spmm_backward(rows, || by_columns.clone(), true, &values, dense, grad, d_values, d_dense);
                });
            });
            [d_values, d_dense]
        });
        assert_close(&d_values, &sampled::sddmm(rows, grad, dense, values.len()));
        assert_close(&d_dense, &reference::spmm(&by_columns, &values, grad));
    }

    #[test]
    fn agrees_with_the_plain_loops() {
        let rows = Random::new(1).rows::<i32>(150, 90, 8);
        let wide = Random::new(1).rows::<i64>(150, 90, 8);
        for cols in COLS {
            check::<f32, _>(&rows, cols, 0);
            check::<f64, _>(&transposed(&rows), cols, 3);
            check::<f16, _>(&wide, cols, 1);
            check::<bf16, _>(&transposed(&wide), cols, 0);
        }
    }

    /// With more than one chunk, more than one thread takes the way through the transposed entries.
    #[test]
    fn large_and_empty_patterns() {
        let large = Random::new(2).rows::<i32>(9000, 7000, 4);
        assert!(large.chunks.len() > 3);
        for cols in COLS.into_iter().filter(|&cols| cols <= 33) {
            check::<f32, _>(&large, cols, 0);
            check::<f64, _>(&transposed(&large), cols, 2);
            for (n_rows, n_cols) in [(0, 0), (0, 20_000), (4, 0), (1, 1)] {
                check::<f32, _>(&Random::new(3).rows::<i32>(n_rows, n_cols, 2), cols, 1);
            }
        }
    }

    #[test]
    fn stored_zeros_touch_the_operand_and_absent_entries_do_not() {
        let rows = Random::new(4).rows::<i32>(40, 30, 5);
        for cols in COLS.into_iter().filter(|&cols| cols > 0) {
            let mut random = Random::new(5);
            let mut values = random.elements::<f32>(rows.n_entries());
            values.iter_mut().step_by(3).for_each(|value| *value = 0.0);
            let mut dense = random.elements::<f32>(30 * cols);
            dense[11 * cols + cols / 2] = f32::INFINITY;
            dense[17 * cols + cols - 1] = f32::NAN;
            let dense = Dense::contiguous(&dense, 30, cols);
            let ours = filled(40 * cols, |out| spmm(&rows, &values, dense, out));
            assert_close(&ours, &reference::spmm(&rows, &values, dense));
        }
    }
}
