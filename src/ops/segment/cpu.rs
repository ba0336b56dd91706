//! Segment reductions and softmaxes on the CPU: each row of the result has one owner, which walks the entries of its segment in
//! order, columns in vectors. Long segments are cut into pieces of a fixed length, whose results are merged in their order.

use super::Reducer;
use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::simd::{self, Isa, Kernel, for_each_chunk, load};
use crate::ops::reduce::Softmax;
use crate::ops::reduce::exp::{LANES, Real, exp_all};
use crate::pattern::{Index, Rows};
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Entries of a piece, and of the longest segment that is not cut.
const PIECE: usize = 4096;
/// Exponentials that are made together.
const BLOCK: usize = 1024;

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
    let (x, out) = (Features { rows, x }, Output::new(out));
    match reducer {
        Reducer::Sum => fold_rows(rows, &Sum { x, mean: false, out }),
        Reducer::Mean => fold_rows(rows, &Sum { x, mean: true, out }),
        Reducer::Max => fold_rows(rows, &Extreme::<_, _, false> { x, to: To::Rows(out) }),
        Reducer::Min => fold_rows(rows, &Extreme::<_, _, true> { x, to: To::Rows(out) }),
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
    min: bool,
    out: &mut [MaybeUninit<E>],
) where
    E: Scalar<Acc: Real>,
{
    assert_eq!((x.rows(), grad.rows(), x.cols()), (rows.n_slots, rows.n_rows(), grad.cols()), "shapes");
    let to = To::Entries { grad, out: entries(rows, x.cols(), out) };
    let x = Features { rows, x };
    if min {
        fold_rows(rows, &Extreme::<_, _, true> { x, to });
    } else {
        fold_rows(rows, &Extreme::<_, _, false> { x, to });
    }
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
    fold_rows(rows, &Exps { x: Features { rows, x }, log: how.log, out });
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
    let [y, grad] = [y, grad].map(|x| Features { rows, x });
    fold_rows(rows, &ExpsBackward { y, grad, log: how.log, out });
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

/// What is worked out over the entries of a segment: a state of some numbers a column, by which pieces of a segment can be
/// merged, and what follows from that of the whole.
trait Fold: Sync {
    /// What is computed in.
    type Acc: Real;
    /// Numbers of a column.
    const STATE: usize;
    /// Multiplications that an element is worth.
    const WORK: usize;

    fn columns(&self) -> usize;

    /// Elements of memory that is given to work in.
    fn scratch(&self) -> usize {
        self.columns()
    }

    /// Overwrites the state with that of some entries.
    fn fold<S: Isa>(&self, entries: Range<usize>, state: &mut [Self::Acc], scratch: &mut [Self::Acc]);

    /// Adds the state of the next piece.
    fn merge(&self, state: &mut [Self::Acc], piece: &[Self::Acc]);

    /// Writes the results of a row of `length` entries.
    ///
    /// # Safety
    ///
    /// There is such a row.
    unsafe fn write_row(&self, _row: usize, _length: usize, _state: &[Self::Acc]) {}

    /// Writes the results of entries: of a whole row right after it was folded with the same scratch, or of one of several
    /// pieces, of which the `earlier` ones had these states.
    ///
    /// # Safety
    ///
    /// There are such entries in the row.
    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        _row: usize,
        _entries: Range<usize>,
        _state: &[Self::Acc],
        _earlier: &[Self::Acc],
        _scratch: &mut [Self::Acc],
    ) {
    }
}

/// Folds every row.
fn fold_rows<I: Index, F: Fold>(rows: &Rows<I>, fold: &F) {
    let columns = fold.columns();
    if columns == 0 {
        return;
    }
    let work = F::WORK * rows.n_entries() * columns;
    for_each_chunk(rows, work, |range| simd::run(ShortRows { rows, range, fold }));
    if rows.n_entries() > PIECE {
        fold_long_rows(rows, fold, F::STATE * columns);
    }
}

/// Folds the rows that are cut, `size` numbers a state.
fn fold_long_rows<I: Index, F: Fold>(rows: &Rows<I>, fold: &F, size: usize) {
    // A piece: which of the long rows, and its entries. A long row: which it is, and its pieces.
    let (mut pieces, mut long) = (Vec::new(), Vec::new());
    for row in 0..rows.n_rows() {
        let range = rows.range(row);
        if range.len() > PIECE {
            let first = pieces.len();
            let starts = range.clone().step_by(PIECE);
            pieces.extend(starts.map(|start| (long.len(), start..range.end.min(start + PIECE))));
            long.push((row, first..pieces.len()));
        }
    }
    let mut states = vec![F::Acc::ZERO; pieces.len() * size];
    let fold_piece = |(state, (_, entries)): (&mut [F::Acc], &(usize, Range<usize>))| {
        simd::run(FoldPiece { fold, entries: entries.clone(), state });
    };
    let serial = rayon::current_num_threads() == 1;
    if serial {
        states.chunks_mut(size).zip(&pieces).for_each(fold_piece);
    } else {
        states.par_chunks_mut(size).zip(&pieces).for_each(fold_piece);
    }
    let mut totals = Vec::with_capacity(long.len() * size);
    for (row, of_row) in &long {
        let mut parts = states[of_row.start * size..of_row.end * size].chunks(size);
        let mut total = parts.next().expect("long rows have pieces").to_vec();
        parts.for_each(|part| fold.merge(&mut total, part));
        // SAFETY: a row of the pattern.
        unsafe { fold.write_row(*row, rows.range(*row).len(), &total) };
        totals.extend(total);
    }
    let write_piece = |(piece, (at, entries)): (usize, &(usize, Range<usize>))| {
        let (row, of_row) = &long[*at];
        let state = &totals[at * size..][..size];
        let earlier = &states[of_row.start * size..piece * size];
        simd::run(WritePiece { fold, row: *row, entries: entries.clone(), state, earlier });
    };
    if serial {
        pieces.iter().enumerate().for_each(write_piece);
    } else {
        pieces.par_iter().enumerate().for_each(write_piece);
    }
}

/// The rows of a chunk that are not cut.
struct ShortRows<'a, I, F> {
    rows: &'a Rows<I>,
    range: Range<usize>,
    fold: &'a F,
}

impl<I: Index, F: Fold> Kernel for ShortRows<'_, I, F> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { rows, range, fold } = self;
        let mut state = vec![F::Acc::ZERO; F::STATE * fold.columns()];
        let mut scratch = vec![F::Acc::ZERO; fold.scratch()];
        for row in range {
            let entries = rows.range(row);
            if entries.len() > PIECE {
                continue;
            }
            fold.fold::<S>(entries.clone(), &mut state, &mut scratch);
            // SAFETY: a row of the pattern and its entries.
            unsafe {
                fold.write_row(row, entries.len(), &state);
                fold.write_entries::<S>(row, entries, &state, &[], &mut scratch);
            }
        }
    }
}

struct FoldPiece<'a, F: Fold> {
    fold: &'a F,
    entries: Range<usize>,
    state: &'a mut [F::Acc],
}

impl<F: Fold> Kernel for FoldPiece<'_, F> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let mut scratch = vec![F::Acc::ZERO; self.fold.scratch()];
        self.fold.fold::<S>(self.entries, self.state, &mut scratch);
    }
}

struct WritePiece<'a, F: Fold> {
    fold: &'a F,
    row: usize,
    entries: Range<usize>,
    state: &'a [F::Acc],
    earlier: &'a [F::Acc],
}

impl<F: Fold> Kernel for WritePiece<'_, F> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { fold, row, entries, state, earlier } = self;
        let mut scratch = vec![F::Acc::ZERO; fold.scratch()];
        // SAFETY: a piece of a row of the pattern.
        unsafe { fold.write_entries::<S>(row, entries, state, earlier, &mut scratch) };
    }
}

/// The rows of a dense operand that the entries of a pattern have.
struct Features<'a, E, I> {
    rows: &'a Rows<I>,
    x: Dense<'a, E>,
}

impl<E: Copy, I> Clone for Features<'_, E, I> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Copy, I> Copy for Features<'_, E, I> {}

impl<'a, E: Scalar, I: Index> Features<'a, E, I> {
    #[inline(always)]
    fn of(&self, entry: usize) -> &'a [E] {
        self.x.row(self.rows.slot(entry))
    }
}

/// Elements of entries that are accumulated.
trait Source: Copy {
    type Acc: Real;

    /// Elements of an entry from a column on.
    ///
    /// # Safety
    ///
    /// It has so many.
    unsafe fn load<const N: usize>(&self, entry: usize, column: usize) -> [Self::Acc; N];
}

impl<E: Scalar<Acc: Real>, I: Index> Source for Features<'_, E, I> {
    type Acc = E::Acc;

    #[inline(always)]
    unsafe fn load<const N: usize>(&self, entry: usize, column: usize) -> [E::Acc; N] {
        // SAFETY: the caller's promise; a slot is a row.
        unsafe { load::<E, N>(self.x.row_ptr(self.rows.slot(entry)).add(column)) }
    }
}

/// The elements with the other sign, if `NEGATIVE`.
#[derive(Clone, Copy)]
struct Signed<T, const NEGATIVE: bool>(T);

impl<T: Source, const NEGATIVE: bool> Source for Signed<T, NEGATIVE> {
    type Acc = T::Acc;

    #[inline(always)]
    unsafe fn load<const N: usize>(&self, entry: usize, column: usize) -> [T::Acc; N] {
        // SAFETY: the caller's promise.
        let mut x = unsafe { self.0.load::<N>(entry, column) };
        if NEGATIVE {
            for lane in 0..N {
                x[lane] = -x[lane];
            }
        }
        x
    }
}

/// The products of the elements of two.
#[derive(Clone, Copy)]
struct Product<T>(T, T);

impl<T: Source> Source for Product<T> {
    type Acc = T::Acc;

    #[inline(always)]
    unsafe fn load<const N: usize>(&self, entry: usize, column: usize) -> [T::Acc; N] {
        // SAFETY: the caller's promise.
        let (mut x, y) = unsafe { (self.0.load::<N>(entry, column), self.1.load::<N>(entry, column)) };
        for lane in 0..N {
            x[lane] = x[lane] * y[lane];
        }
        x
    }
}

/// How elements are accumulated.
trait Step {
    fn start<A: Real>() -> A;
    fn step<S: Isa, A: Real, const N: usize>(sums: [A; N], x: [A; N]) -> [A; N];
}

struct Add;

impl Step for Add {
    #[inline(always)]
    fn start<A: Real>() -> A {
        A::ZERO
    }

    #[inline(always)]
    fn step<S: Isa, A: Real, const N: usize>(sums: [A; N], x: [A; N]) -> [A; N] {
        S::add(sums, x)
    }
}

/// The largest. A NaN is the largest, or, if it is left out, the smallest.
struct Largest<const NAN: bool>;

impl<const NAN: bool> Step for Largest<NAN> {
    #[inline(always)]
    fn start<A: Real>() -> A {
        -A::INFINITY
    }

    #[inline(always)]
    fn step<S: Isa, A: Real, const N: usize>(sums: [A; N], x: [A; N]) -> [A; N] {
        let mut largest = sums;
        for lane in 0..N {
            largest[lane] = if x[lane] > sums[lane] || (NAN && is_nan(x[lane])) { x[lane] } else { sums[lane] };
        }
        largest
    }
}

#[inline(always)]
fn is_nan<A: Real>(x: A) -> bool {
    x.partial_cmp(&x).is_none()
}

/// Accumulates the columns of entries, in their order, into `to`.
#[inline(always)]
fn accumulate<P: Step, S: Isa, T: Source>(entries: Range<usize>, source: T, to: &mut [T::Acc]) {
    let mut first = 0;
    macro_rules! tile {
        ($n:literal x $v:literal at $first:expr) => {{
            let first = $first;
            let mut sums = [[P::start::<T::Acc>(); $n]; $v];
            for entry in entries.clone() {
                for v in 0..$v {
                    // SAFETY: the columns are within the state, which is as wide as the features.
                    let x = unsafe { source.load::<$n>(entry, first + $n * v) };
                    sums[v] = P::step::<S, T::Acc, $n>(sums[v], x);
                }
            }
            to[first..first + $n * $v].copy_from_slice(sums.as_flattened());
        }};
    }
    let columns = to.len();
    while first + 64 <= columns {
        tile!(16 x 4 at first);
        first += 64;
    }
    while first + 16 <= columns {
        tile!(16 x 1 at first);
        first += 16;
    }
    if first < columns && columns >= 16 {
        // Some columns once more, to the same bits.
        tile!(16 x 1 at columns - 16);
        return;
    }
    while first + 4 <= columns {
        tile!(4 x 1 at first);
        first += 4;
    }
    if first < columns && columns >= 4 {
        tile!(4 x 1 at columns - 4);
        return;
    }
    while first < columns {
        tile!(1 x 1 at first);
        first += 1;
    }
}

/// The sum or the mean.
struct Sum<'a, E, I> {
    x: Features<'a, E, I>,
    mean: bool,
    out: Output<'a, E>,
}

impl<E: Scalar<Acc: Real>, I: Index> Fold for Sum<'_, E, I> {
    type Acc = E::Acc;
    const STATE: usize = 1;
    const WORK: usize = 1;

    fn columns(&self) -> usize {
        self.x.x.cols()
    }

    #[inline(always)]
    fn fold<S: Isa>(&self, entries: Range<usize>, state: &mut [E::Acc], _: &mut [E::Acc]) {
        accumulate::<Add, S, _>(entries, self.x, state);
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        state.iter_mut().zip(piece).for_each(|(sum, &part)| *sum = *sum + part);
    }

    #[inline(always)]
    unsafe fn write_row(&self, row: usize, length: usize, state: &[E::Acc]) {
        let count = E::Acc::of(length.max(1));
        for (column, &sum) in state.iter().enumerate() {
            let x = if self.mean { sum / count } else { sum };
            // SAFETY: the caller's promise, and a column of the output.
            unsafe { self.out.at(row * state.len() + column).write(E::narrow(x)) };
        }
    }
}

/// Where what is known of extremes goes.
enum To<'a, E> {
    /// They themselves.
    Rows(Output<'a, E>),
    /// Their gradient, to the first entry that has one.
    Entries { grad: Dense<'a, E>, out: Output<'a, E> },
}

/// The largest, or the smallest if `MIN`, whose state is negated. A NaN is the one.
struct Extreme<'a, E, I, const MIN: bool> {
    x: Features<'a, E, I>,
    to: To<'a, E>,
}

/// Whether an element is the extreme.
#[inline(always)]
fn is_extreme<A: Real>(x: A, extreme: A) -> bool {
    x == extreme || (is_nan(x) && is_nan(extreme))
}

impl<E: Scalar<Acc: Real>, I: Index, const MIN: bool> Fold for Extreme<'_, E, I, MIN> {
    type Acc = E::Acc;
    const STATE: usize = 1;
    const WORK: usize = 2;

    fn columns(&self) -> usize {
        self.x.x.cols()
    }

    #[inline(always)]
    fn fold<S: Isa>(&self, entries: Range<usize>, state: &mut [E::Acc], _: &mut [E::Acc]) {
        accumulate::<Largest<true>, S, _>(entries, Signed::<_, MIN>(self.x), state);
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        for (largest, &x) in state.iter_mut().zip(piece) {
            *largest = if x > *largest || is_nan(x) { x } else { *largest };
        }
    }

    #[inline(always)]
    unsafe fn write_row(&self, row: usize, length: usize, state: &[E::Acc]) {
        let To::Rows(out) = self.to else {
            return;
        };
        for (column, &largest) in state.iter().enumerate() {
            let x = match length {
                0 => E::Acc::ZERO,
                _ if MIN => -largest,
                _ => largest,
            };
            // SAFETY: the caller's promise, and a column of the output.
            unsafe { out.at(row * state.len() + column).write(E::narrow(x)) };
        }
    }

    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        row: usize,
        entries: Range<usize>,
        state: &[E::Acc],
        earlier: &[E::Acc],
        found: &mut [E::Acc],
    ) {
        let To::Entries { grad, out } = &self.to else {
            return;
        };
        let columns = state.len();
        found.fill(E::Acc::ZERO);
        for piece in earlier.chunks(columns) {
            for ((found, &x), &extreme) in found.iter_mut().zip(piece).zip(state) {
                if is_extreme(x, extreme) {
                    *found = E::Acc::ONE;
                }
            }
        }
        let grad = grad.row(row);
        for entry in entries {
            let x = self.x.of(entry);
            // SAFETY: a slot is a row of the output.
            let to = unsafe { out.at(self.x.rows.slot(entry) * columns) };
            for column in 0..columns {
                let x = x[column].widen();
                let x = if MIN { -x } else { x };
                let first = is_extreme(x, state[column]) && found[column] == E::Acc::ZERO;
                found[column] = if first { E::Acc::ONE } else { found[column] };
                let grad = if first { grad[column] } else { E::zeroed() };
                // SAFETY: a column of the output.
                unsafe { to.add(column).write(grad) };
            }
        }
    }
}

/// How many entries of so many columns a block of exponentials takes.
#[inline(always)]
fn entries_of_a_block(columns: usize) -> usize {
    (BLOCK / columns).max(1)
}

/// Elements of memory for a block of exponentials.
fn block(columns: usize) -> usize {
    (entries_of_a_block(columns) * columns).next_multiple_of(LANES)
}

/// What is taken from elements before the exponential, given the largest of them, so that none overflows.
#[inline(always)]
fn shift<A: Real>(largest: A) -> A {
    if largest == -A::INFINITY { A::ZERO } else { largest }
}

/// The softmax. Its state is the largest of each column, then the sums of exponentials.
struct Exps<'a, E, I> {
    x: Features<'a, E, I>,
    log: bool,
    out: Output<'a, E>,
}

impl<E: Scalar<Acc: Real>, I: Index> Exps<'_, E, I> {
    /// The exponentials of entries of a block, shifted by the largest.
    #[inline(always)]
    fn exps<S: Isa>(&self, entries: Range<usize>, largest: &[E::Acc], exps: &mut [E::Acc]) {
        let columns = largest.len();
        let filled = entries.len() * columns;
        for (entry, exps) in entries.zip(exps.chunks_exact_mut(columns)) {
            for ((exp, x), &largest) in exps.iter_mut().zip(self.x.of(entry)).zip(largest) {
                *exp = x.widen() - shift(largest);
            }
        }
        exp_all::<S, E::Acc>(&mut exps[..filled.next_multiple_of(LANES)]);
    }
}

impl<E: Scalar<Acc: Real>, I: Index> Fold for Exps<'_, E, I> {
    type Acc = E::Acc;
    const STATE: usize = 2;
    const WORK: usize = 8;

    fn columns(&self) -> usize {
        self.x.x.cols()
    }

    /// A block, then a number a column.
    fn scratch(&self) -> usize {
        block(self.columns()) + self.columns()
    }

    #[inline(always)]
    fn fold<S: Isa>(&self, entries: Range<usize>, state: &mut [E::Acc], scratch: &mut [E::Acc]) {
        let (largest, sums) = state.split_at_mut(state.len() / 2);
        accumulate::<Largest<false>, S, _>(entries.clone(), self.x, largest);
        sums.fill(E::Acc::ZERO);
        let columns = sums.len();
        let step = entries_of_a_block(columns);
        for start in entries.clone().step_by(step) {
            let block = start..entries.end.min(start + step);
            let filled = block.len() * columns;
            self.exps::<S>(block, largest, scratch);
            for exps in scratch[..filled].chunks_exact(columns) {
                sums.iter_mut().zip(exps).for_each(|(sum, &exp)| *sum = *sum + exp);
            }
        }
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        let (largest, sums) = state.split_at_mut(state.len() / 2);
        let (other, parts) = piece.split_at(piece.len() / 2);
        for column in 0..sums.len() {
            let all = if other[column] > largest[column] { other[column] } else { largest[column] };
            let scaled = |largest: E::Acc, sum: E::Acc| {
                // Nothing is to be scaled where all are -inf.
                let distance = if largest == all { E::Acc::ZERO } else { largest - all };
                sum * E::Acc::exp(distance)
            };
            sums[column] = scaled(largest[column], sums[column]) + scaled(other[column], parts[column]);
            largest[column] = all;
        }
    }

    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        _: usize,
        entries: Range<usize>,
        state: &[E::Acc],
        earlier: &[E::Acc],
        scratch: &mut [E::Acc],
    ) {
        let (largest, sums) = state.split_at(state.len() / 2);
        let columns = sums.len();
        let (exps, factors) = scratch.split_at_mut(block(columns));
        for (factor, &sum) in factors.iter_mut().zip(sums) {
            // Where all are -inf nothing has a weight, and the logarithm stays so.
            *factor = match (sum == E::Acc::ZERO, self.log) {
                (true, _) => E::Acc::ZERO,
                (false, true) => sum.ln(),
                (false, false) => E::Acc::ONE / sum,
            };
        }
        let step = entries_of_a_block(columns);
        // A short row was folded just now: its exponentials are still there.
        let kept = earlier.is_empty() && entries.len() <= step;
        for start in entries.clone().step_by(step) {
            let block = start..entries.end.min(start + step);
            if !kept && !self.log {
                self.exps::<S>(block.clone(), largest, exps);
            }
            for (entry, exps) in block.zip(exps.chunks_exact(columns)) {
                // SAFETY: a slot is a row of the output.
                let to = unsafe { self.out.at(self.x.rows.slot(entry) * columns) };
                let x = self.x.of(entry);
                for column in 0..columns {
                    let y = match self.log {
                        true => (x[column].widen() - shift(largest[column])) - factors[column],
                        false => exps[column] * factors[column],
                    };
                    // SAFETY: a column of the output.
                    unsafe { to.add(column).write(E::narrow(y)) };
                }
            }
        }
    }
}

/// The gradient of softmax, given its result `y`. Its state is the sum of the gradients, weighted by the softmax unless it's
/// that of the logarithm, then the largest of `y`.
struct ExpsBackward<'a, E, I> {
    y: Features<'a, E, I>,
    grad: Features<'a, E, I>,
    log: bool,
    out: Output<'a, E>,
}

impl<E: Scalar<Acc: Real>, I: Index> Fold for ExpsBackward<'_, E, I> {
    type Acc = E::Acc;
    const STATE: usize = 2;
    const WORK: usize = 4;

    fn columns(&self) -> usize {
        self.y.x.cols()
    }

    fn scratch(&self) -> usize {
        self.columns().next_multiple_of(LANES)
    }

    #[inline(always)]
    fn fold<S: Isa>(&self, entries: Range<usize>, state: &mut [E::Acc], _: &mut [E::Acc]) {
        let (sums, largest) = state.split_at_mut(state.len() / 2);
        if self.log {
            accumulate::<Add, S, _>(entries.clone(), self.grad, sums);
            accumulate::<Largest<true>, S, _>(entries, self.y, largest);
        } else {
            accumulate::<Add, S, _>(entries, Product(self.y, self.grad), sums);
        }
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        let (sums, largest) = state.split_at_mut(state.len() / 2);
        let (parts, other) = piece.split_at(piece.len() / 2);
        sums.iter_mut().zip(parts).for_each(|(sum, &part)| *sum = *sum + part);
        for (largest, &x) in largest.iter_mut().zip(other) {
            *largest = if x > *largest || is_nan(x) { x } else { *largest };
        }
    }

    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        _: usize,
        entries: Range<usize>,
        state: &[E::Acc],
        _: &[E::Acc],
        weights: &mut [E::Acc],
    ) {
        let (sums, largest) = state.split_at(state.len() / 2);
        let columns = sums.len();
        for entry in entries {
            weights.iter_mut().zip(self.y.of(entry)).for_each(|(weight, y)| *weight = y.widen());
            if self.log {
                exp_all::<S, E::Acc>(weights);
            }
            let grad = self.grad.of(entry);
            // SAFETY: a slot is a row of the output.
            let to = unsafe { self.out.at(self.y.rows.slot(entry) * columns) };
            for column in 0..columns {
                let (grad, weight) = (grad[column].widen(), weights[column]);
                let x = match self.log {
                    false => weight * (grad - sums[column]),
                    true if largest[column] == -E::Acc::INFINITY => E::Acc::ZERO,
                    true => grad - weight * sums[column],
                };
                // SAFETY: a column of the output.
                unsafe { to.add(column).write(E::narrow(x)) };
            }
        }
    }
}
