//! Sampled products on the CPU.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::simd::{
    self, Entries, Isa, Kernel, Slots, WithEntries, array, by_width, each, for_each_chunk, load, prefetch, with_entries,
};
use crate::pattern::{Index, Rows};

/// `out[slot(e)] = <x_i, y_j>` for each entry `e = (i, j)`; the rest of `out`, if it is longer, is zero.
///
/// The products of a dot product are added in lanes, the lanes in a tree: an order that depends on the number of
/// columns alone.
///
/// # Panics
///
/// If `x` has not as many rows as the pattern has rows, `y` as it has columns, if their columns differ in number or
/// `out` has not as many elements as the pattern has values.
pub fn sddmm<E: Scalar, I: Index>(rows: &Rows<I>, x: Dense<'_, E>, y: Dense<'_, E>, out: &mut [MaybeUninit<E>]) {
    assert_eq!(x.rows(), rows.n_rows(), "rows of x");
    assert_eq!(y.rows(), rows.n_cols, "rows of y");
    assert_eq!(x.cols(), y.cols(), "columns of x and y");
    assert_eq!(out.len(), rows.n_slots, "values");
    zero_unused(rows, out);
    let out = Output::new(out);
    match (I::narrow(rows), x.as_sums(), y.as_sums(), out.as_sums()) {
        (Some(rows), Some(x), Some(y), Some(out)) if simd::is_fast() => fast(rows, x, y, out),
        _ => with_entries(rows, Plain { rows, x, y, out }),
    }
}

/// [`sddmm`], checked, by a kernel for the number of columns.
fn fast<E: Accumulator>(rows: &Rows<i32>, x: Dense<'_, E>, y: Dense<'_, E>, out: Output<'_, E>) {
    macro_rules! sddmm {
        ($n:literal x $v:literal) => {
            with_entries(rows, Sddmm::<E, i32, $n, $v> { rows, x, y, out })
        };
    }
    by_width!(x.cols(), sddmm, cols => if cols == 0 { sddmm!(1 x 2) } else { sddmm!(16 x 2) })
}

/// The plain loop over entries: for 16-bit types, 64-bit indices and old processors.
struct Plain<'a, E, I> {
    rows: &'a Rows<I>,
    x: Dense<'a, E>,
    y: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> WithEntries<I> for Plain<'_, E, I> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, x, y, out } = self;
        for_each_chunk(rows, rows.n_entries() * x.cols(), |range| {
            macro_rules! run {
                ($n:literal) => {
                    simd::run(Chunk::<E, I, M, $n, 2> { range, entries, x, y, out })
                };
            }
            if x.cols() < 8 { run!(1) } else { run!(8) }
        });
    }
}

/// Zeros the slots that no entry has. Entries have different slots, so as many slots as entries are all used.
pub(crate) fn zero_unused<E: Scalar, I: Index>(rows: &Rows<I>, out: &mut [MaybeUninit<E>]) {
    if out.len() > rows.n_entries() {
        out.fill(MaybeUninit::new(E::zeroed()));
    }
}

/// How many dot products are formed together: their chains of additions overlap, and their last sums share vectors.
pub(crate) const TOGETHER: usize = 4;

/// By vectors of `N` columns: just one of them if `V` is 1, any number otherwise.
struct Sddmm<'a, E, I, const N: usize, const V: usize> {
    rows: &'a Rows<I>,
    x: Dense<'a, E>,
    y: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index, const N: usize, const V: usize> WithEntries<I> for Sddmm<'_, E, I, N, V> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, x, y, out } = self;
        let work = rows.n_entries() * x.cols();
        for_each_chunk(rows, work, |range| {
            simd::run_fast(Chunk::<E, I, M, N, V> { range, entries, x, y, out });
        });
    }
}

struct Chunk<'a, E, I, M, const N: usize, const V: usize> {
    range: Range<usize>,
    entries: Entries<'a, I, M>,
    x: Dense<'a, E>,
    y: Dense<'a, E>,
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index, M: Slots, const N: usize, const V: usize> Kernel for Chunk<'_, E, I, M, N, V> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { range, entries, x, y, out } = self;
        // A constant where it can be one.
        let cols = if V == 1 { N } else { x.cols() };
        // For fewer columns it takes longer to ask than what it saves.
        let fetch = cols > 16 && y.is_far() && entries.are_irregular(&range);
        for row in range {
            // SAFETY: `sddmm` has checked the shapes, `Rows` its columns and slots.
            unsafe {
                let (x, of_row) = (x.row_ptr(row), entries.of_row(row));
                for first in of_row.clone().step_by(TOGETHER) {
                    let group = group(first..of_row.end);
                    if fetch {
                        for entry in group {
                            let ahead = y.row_ptr(entries.column_ahead(entry));
                            for at in (0..cols.min(64)).step_by(N) {
                                prefetch(ahead.wrapping_add(at), N);
                            }
                        }
                    }
                    let dots = dots::<S, E, N>(x, each(group, |entry| y.row_ptr(entries.column(entry))), cols);
                    for (entry, dot) in group.into_iter().zip(dots) {
                        out.at(entries.slot(entry)).write(E::narrow(dot));
                    }
                }
            }
        }
    }
}

/// The first entries of a range, the last of it repeated if they are too few: it does not matter that its product is
/// formed and written again.
#[inline(always)]
pub(crate) fn group(entries: Range<usize>) -> [usize; TOGETHER] {
    array(|i| (entries.start + i).min(entries.end - 1))
}

/// The dot products of `x` with each of the `rows`: products are added in `N` lanes, then the lanes.
///
/// # Safety
///
/// All point to `cols` elements, at least `N` unless there are none.
#[inline(always)]
pub(crate) unsafe fn dots<S: Isa, E: Scalar, const N: usize>(
    x: *const E,
    rows: [*const E; TOGETHER],
    cols: usize,
) -> [E::Acc; TOGETHER] {
    let mut sums = [[E::Acc::ZERO; N]; TOGETHER];
    let mut at = 0;
    while at + N <= cols {
        // SAFETY: within the row.
        let x = unsafe { load::<E, N>(x.add(at)) };
        for (sum, row) in sums.iter_mut().zip(rows) {
            // SAFETY: within the row.
            *sum = S::mul_add(x, unsafe { load::<E, N>(row.add(at)) }, *sum);
        }
        at += N;
    }
    if at < cols {
        // The last lanes once more, without those that have been added. Both factors are cleared: zero times an
        // infinity would not be nothing.
        let start = cols - N;
        let fresh = array(|lane| if start + lane < at { E::Acc::ZERO } else { E::Acc::ONES });
        // SAFETY: there are `N` columns or more.
        let x = S::select(fresh, unsafe { load::<E, N>(x.add(start)) });
        for (sum, row) in sums.iter_mut().zip(rows) {
            // SAFETY: as above.
            let y = S::select(fresh, unsafe { load::<E, N>(row.add(start)) });
            *sum = S::mul_add(x, y, *sum);
        }
    }
    S::sums(sums)
}

/// The plain loops, in f64, which the tests compare with, and the problems they compare on.
#[cfg(test)]
pub(crate) mod reference {
    use std::sync::Arc;

    use super::*;
    use crate::pattern::Slot;

    /// The row, column and slot of each entry.
    pub(crate) fn entries<I: Index>(rows: &Rows<I>) -> impl Iterator<Item = (usize, usize, usize)> {
        let of_row = |i: usize| rows.offsets[i].get()..rows.offsets[i + 1].get();
        (0..rows.n_rows()).flat_map(move |i| of_row(i).map(move |e| (i, e))).map(|(i, e)| match &rows.slots {
            Slot::Identity => (i, rows.columns[e].get(), e),
            Slot::Map(map) => (i, rows.columns[e].get(), map[e].get()),
        })
    }

    /// The same as [`super::sddmm`], not rounded; the sums of absolute values beside it.
    pub(crate) fn sddmm<E: Scalar, I: Index>(
        rows: &Rows<I>,
        x: Dense<'_, E>,
        y: Dense<'_, E>,
        len: usize,
    ) -> Vec<(f64, f64)> {
        let mut out = vec![(0.0, 0.0); len];
        for (i, j, slot) in entries(rows) {
            for (x, y) in x.row(i).iter().zip(y.row(j)) {
                add(&mut out[slot], *x, *y);
            }
        }
        out
    }

    pub(crate) fn add<E: Scalar>(sum: &mut (f64, f64), x: E, y: E) {
        let term: f64 = x.widen().into() * y.widen().into();
        *sum = (sum.0 + term, sum.1 + term.abs());
    }

    /// Whether results are the sums to within the rounding of their type and of its sums.
    #[track_caller]
    pub(crate) fn assert_close<E: Scalar>(ours: &[E], sums: &[(f64, f64)]) {
        assert_eq!(ours.len(), sums.len());
        let acc = if size_of::<E>() == 8 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        // The spacing of the numbers after one.
        let own = (1..).map(|bits| 0.5_f64.powi(bits)).find(|x| one_plus::<E>(x / 2.0) == 1.0).unwrap();
        for (i, (&ours, &(sum, size))) in ours.iter().zip(sums).enumerate() {
            let ours: f64 = ours.widen().into();
            let bound = 30.0 * acc * size + own * sum.abs() + 1e-7 * own;
            let same = ours == sum || (ours.is_nan() && sum.is_nan()) || (ours - sum).abs() <= bound;
            assert!(same, "element {i}: {ours} instead of {sum}");
        }
    }

    fn one_plus<E: Scalar>(x: f64) -> f64 {
        if size_of::<E>() == 8 { 1.0 + x } else { E::narrow((1.0 + x as f32).into()).widen().into() }
    }

    /// A sequence of numbers without an obvious pattern.
    pub(crate) struct Random(u64);

    impl Random {
        pub(crate) fn new(seed: u64) -> Self {
            Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
        }

        pub(crate) fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize % bound
        }

        /// Small multiples of a power of two, of both signs.
        pub(crate) fn elements<E: Scalar>(&mut self, len: usize) -> Vec<E> {
            (0..len).map(|_| E::narrow(((self.below(2001) as f32 - 1000.0) / 512.0).into())).collect()
        }

        /// A pattern with empty rows, one long row, unsorted and repeated columns.
        pub(crate) fn rows<I: Index>(&mut self, n_rows: usize, n_cols: usize, per_row: usize) -> Rows<I> {
            let (mut offsets, mut columns) = (vec![I::of(0)], vec![]);
            for row in 0..n_rows {
                let len = if row == n_rows / 2 { 20 * per_row } else { self.below(2 * per_row + 1) };
                let len = if n_cols == 0 || row % 5 == 3 { 0 } else { len };
                columns.extend((0..len).map(|_| I::of(self.below(n_cols))));
                offsets.push(I::of(columns.len()));
            }
            let entries = columns.len();
            Rows::new(Arc::new(offsets), Arc::new(columns), Slot::Identity, n_cols, entries)
        }
    }

    /// The same entries by columns, with slots in the same values.
    pub(crate) fn transposed<I: Index>(rows: &Rows<I>) -> Rows<I> {
        let mut sorted: Vec<_> = entries(rows).collect();
        sorted.sort_by_key(|&(_, j, _)| j);
        let offsets = (0..=rows.n_cols).map(|j| I::of(sorted.partition_point(|entry| entry.1 < j))).collect();
        let columns = sorted.iter().map(|entry| I::of(entry.0)).collect();
        let map = sorted.iter().map(|entry| I::of(entry.2)).collect();
        Rows::new(Arc::new(offsets), Arc::new(columns), Slot::Map(Arc::new(map)), rows.n_rows(), rows.n_slots)
    }

    /// Runs `kernel` on an output full of garbage.
    pub(crate) fn filled<E: Scalar>(len: usize, kernel: impl FnOnce(&mut [MaybeUninit<E>])) -> Vec<E> {
        let garbage = E::narrow(f32::NAN.into());
        let mut out = vec![MaybeUninit::new(garbage); len];
        kernel(&mut out);
        // SAFETY: initialised from the start.
        out.into_iter().map(|x| unsafe { x.assume_init() }).collect()
    }

    /// The results of `run`, which have to be the same to the bit on one thread and on more of them.
    pub(crate) fn on_threads<E: Scalar, const N: usize>(run: impl Fn() -> [Vec<E>; N] + Sync) -> [Vec<E>; N] {
        let on = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(&run);
        let one = on(1);
        for n in 2..=4 {
            for (several, one) in on(n).iter().zip(&one) {
                assert!(bytemuck::cast_slice::<E, u8>(several) == bytemuck::cast_slice::<E, u8>(one), "{n} threads");
            }
        }
        one
    }

    /// The numbers of columns that take different ways through the kernels.
    pub(crate) const COLS: [usize; 19] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 128, 257];
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::reference::{self, COLS, Random, assert_close, filled, on_threads, transposed};
    use super::*;

    fn check<E: Scalar, I: Index>(rows: &Rows<I>, cols: usize, gap: usize, unused: usize) {
        let mut random = Random::new(cols as u64);
        let stride = cols + gap;
        let (x, y) = (random.elements::<E>(rows.n_rows() * stride), random.elements::<E>(rows.n_cols * stride));
        let x = Dense::new(&x, rows.n_rows(), cols, stride);
        let y = Dense::new(&y, rows.n_cols, cols, stride);
        let len = rows.n_entries() + unused;
        let rows = &Rows { n_slots: len, ..rows.clone() };
        let [ours] = on_threads(|| [filled(len, |out| sddmm(rows, x, y, out))]);
        assert_close::<E>(&ours, &reference::sddmm(rows, x, y, len));
    }

    #[test]
    fn agrees_with_the_plain_loops() {
        let rows = Random::new(1).rows::<i32>(150, 90, 8);
        let wide = Random::new(1).rows::<i64>(150, 90, 8);
        for cols in COLS {
            check::<f32, _>(&rows, cols, 0, 0);
            check::<f64, _>(&transposed(&rows), cols, 3, 5);
            check::<f16, _>(&wide, cols, 1, 2);
            check::<bf16, _>(&transposed(&wide), cols, 0, 0);
        }
    }

    #[test]
    fn large_and_empty_patterns() {
        let large = Random::new(2).rows::<i32>(9000, 7000, 4);
        assert!(large.chunks.len() > 3);
        for cols in [1, 8, 33] {
            check::<f32, _>(&large, cols, 0, 0);
            check::<f32, _>(&transposed(&large), cols, 0, 9);
            for (n_rows, n_cols) in [(0, 0), (0, 20_000), (4, 0), (1, 1)] {
                check::<f32, _>(&Random::new(3).rows::<i32>(n_rows, n_cols, 2), cols, 0, 3);
            }
        }
    }

    #[test]
    fn only_what_an_entry_touches_spoils_it() {
        let rows = Random::new(4).rows::<i32>(40, 30, 5);
        for cols in COLS.into_iter().filter(|&cols| cols > 0) {
            let mut random = Random::new(5);
            let (mut x, y) = (random.elements::<f32>(40 * cols), random.elements::<f32>(30 * cols));
            let mut zeros = y.clone();
            zeros[7 * cols..8 * cols].fill(0.0);
            x[11 * cols + cols / 2] = f32::INFINITY;
            let (x, y) = (Dense::contiguous(&x, 40, cols), Dense::contiguous(&zeros, 30, cols));
            let ours = filled(rows.n_entries(), |out| sddmm(&rows, x, y, out));
            assert_close(&ours, &reference::sddmm(&rows, x, y, rows.n_entries()));
        }
    }
}
