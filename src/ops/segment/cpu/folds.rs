//! What is folded: sums, extremes, exponentials.

use super::pieces::Fold;
use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::simd::{Isa, load};
use crate::ops::reduce::exp::{LANES, Real, exp_all};

/// Exponentials that are made together.
const BLOCK: usize = 1024;

/// Elements of entries that are accumulated.
trait Source: Copy {
    type Acc: Real;

    /// Elements of a row from a column on.
    ///
    /// # Safety
    ///
    /// There is such a row, and it has so many.
    unsafe fn load<const N: usize>(&self, row: usize, column: usize) -> [Self::Acc; N];
}

impl<E: Scalar<Acc: Real>> Source for Dense<'_, E> {
    type Acc = E::Acc;

    #[inline(always)]
    unsafe fn load<const N: usize>(&self, row: usize, column: usize) -> [E::Acc; N] {
        // SAFETY: the caller's promise.
        unsafe { load::<E, N>(self.row_ptr(row).add(column)) }
    }
}

/// The elements times a number.
#[derive(Clone, Copy)]
struct Scaled<T: Source>(T, T::Acc);

impl<T: Source> Source for Scaled<T> {
    type Acc = T::Acc;

    #[inline(always)]
    unsafe fn load<const N: usize>(&self, row: usize, column: usize) -> [T::Acc; N] {
        // SAFETY: the caller's promise.
        let mut x = unsafe { self.0.load::<N>(row, column) };
        for x in &mut x {
            *x = *x * self.1;
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
    unsafe fn load<const N: usize>(&self, row: usize, column: usize) -> [T::Acc; N] {
        // SAFETY: the caller's promise.
        let (mut x, y) = unsafe { (self.0.load::<N>(row, column), self.1.load::<N>(row, column)) };
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
            largest[lane] = larger::<A, NAN>(sums[lane], x[lane]);
        }
        largest
    }
}

#[inline(always)]
fn larger<A: Real, const NAN: bool>(largest: A, x: A) -> A {
    if x > largest || (NAN && is_nan(x)) { x } else { largest }
}

#[inline(always)]
fn is_nan<A: Real>(x: A) -> bool {
    x.partial_cmp(&x).is_none()
}

/// Accumulates the columns of entries, in their order, into `to`.
///
/// # Safety
///
/// There are such slots, and as many columns.
#[inline(always)]
unsafe fn accumulate<P: Step, S: Isa, T: Source>(slots: &[usize], source: T, to: &mut [T::Acc]) {
    let columns = to.len();
    let mut first = 0;
    macro_rules! tile {
        ($n:literal x $v:literal) => {{
            // The last of the vectors may repeat some columns, to the same bits.
            first = first.min(columns - $n * $v);
            let mut sums = [[P::start::<T::Acc>(); $n]; $v];
            for &slot in slots {
                for v in 0..$v {
                    // SAFETY: the caller's promise.
                    let x = unsafe { source.load::<$n>(slot, first + $n * v) };
                    sums[v] = P::step::<S, T::Acc, $n>(sums[v], x);
                }
            }
            to[first..first + $n * $v].copy_from_slice(sums.as_flattened());
            first += $n * $v;
        }};
    }
    while first < columns {
        if first + 64 <= columns {
            tile!(16 x 4);
        } else if columns >= 16 {
            tile!(16 x 1);
        } else if columns >= 4 {
            tile!(4 x 1);
        } else {
            tile!(1 x 1);
        }
    }
}

/// The sum or the mean.
pub(super) struct Sum<'a, E> {
    pub x: Dense<'a, E>,
    pub mean: bool,
    pub out: Output<'a, E>,
}

impl<E: Scalar<Acc: Real>> Fold for Sum<'_, E> {
    type Acc = E::Acc;
    const STATE: usize = 1;
    const WORK: usize = 1;

    fn columns(&self) -> usize {
        self.x.cols()
    }

    #[inline(always)]
    unsafe fn fold<S: Isa>(&self, slots: &[usize], state: &mut [E::Acc], _: &mut [E::Acc]) {
        // SAFETY: the caller's promise.
        unsafe { accumulate::<Add, S, _>(slots, self.x, state) };
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
pub(super) enum To<'a, E> {
    /// They themselves.
    Rows(Output<'a, E>),
    /// Their gradient, to the first entry that has one.
    Entries { grad: Dense<'a, E>, out: Output<'a, E> },
}

/// The largest, after a change of sign. A NaN is the one.
pub(super) struct Extreme<'a, E: Scalar> {
    pub x: Dense<'a, E>,
    pub sign: E::Acc,
    pub to: To<'a, E>,
}

/// Whether an element is the extreme.
#[inline(always)]
fn is_extreme<A: Real>(x: A, extreme: A) -> bool {
    x == extreme || (is_nan(x) && is_nan(extreme))
}

impl<E: Scalar<Acc: Real>> Fold for Extreme<'_, E> {
    type Acc = E::Acc;
    const STATE: usize = 1;
    const WORK: usize = 2;

    fn columns(&self) -> usize {
        self.x.cols()
    }

    #[inline(always)]
    unsafe fn fold<S: Isa>(&self, slots: &[usize], state: &mut [E::Acc], _: &mut [E::Acc]) {
        // SAFETY: the caller's promise.
        unsafe { accumulate::<Largest<true>, S, _>(slots, Scaled(self.x, self.sign), state) };
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        state.iter_mut().zip(piece).for_each(|(largest, &x)| *largest = larger::<_, true>(*largest, x));
    }

    #[inline(always)]
    unsafe fn write_row(&self, row: usize, length: usize, state: &[E::Acc]) {
        let To::Rows(out) = self.to else {
            return;
        };
        for (column, &largest) in state.iter().enumerate() {
            let x = if length == 0 { E::Acc::ZERO } else { largest * self.sign };
            // SAFETY: the caller's promise, and a column of the output.
            unsafe { out.at(row * state.len() + column).write(E::narrow(x)) };
        }
    }

    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        row: usize,
        slots: &[usize],
        state: &[E::Acc],
        earlier: &[E::Acc],
        found: &mut [E::Acc],
    ) {
        let To::Entries { grad, out } = &self.to else {
            return;
        };
        let (columns, zero, one) = (state.len(), E::Acc::ZERO, E::Acc::ONE);
        found.fill(zero);
        for piece in earlier.chunks(columns) {
            for ((found, &x), &extreme) in found.iter_mut().zip(piece).zip(state) {
                *found = if is_extreme(x, extreme) { one } else { *found };
            }
        }
        let grad = grad.row(row);
        for &slot in slots {
            let x = self.x.row(slot);
            for column in 0..columns {
                let first = is_extreme(x[column].widen() * self.sign, state[column]) && found[column] == zero;
                found[column] = if first { one } else { found[column] };
                let grad = if first { grad[column] } else { E::zeroed() };
                // SAFETY: an element of the output.
                unsafe { out.at(slot * columns + column).write(grad) };
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
pub(super) struct Exps<'a, E> {
    pub x: Dense<'a, E>,
    pub log: bool,
    pub out: Output<'a, E>,
}

impl<E: Scalar<Acc: Real>> Exps<'_, E> {
    /// The exponentials of entries of a block, shifted by the largest.
    #[inline(always)]
    fn exps<S: Isa>(&self, slots: &[usize], largest: &[E::Acc], exps: &mut [E::Acc]) {
        let columns = largest.len();
        for (&slot, exps) in slots.iter().zip(exps.chunks_exact_mut(columns)) {
            for ((exp, x), &largest) in exps.iter_mut().zip(self.x.row(slot)).zip(largest) {
                *exp = x.widen() - shift(largest);
            }
        }
        let filled = slots.len() * columns;
        let whole = filled.next_multiple_of(LANES);
        exps[filled..whole].fill(E::Acc::ZERO);
        exp_all::<S, E::Acc>(&mut exps[..whole]);
    }
}

impl<E: Scalar<Acc: Real>> Fold for Exps<'_, E> {
    type Acc = E::Acc;
    const STATE: usize = 2;
    const WORK: usize = 8;

    fn columns(&self) -> usize {
        self.x.cols()
    }

    /// A block, then a number a column.
    fn scratch(&self) -> usize {
        block(self.columns()) + self.columns()
    }

    #[inline(always)]
    unsafe fn fold<S: Isa>(&self, slots: &[usize], state: &mut [E::Acc], scratch: &mut [E::Acc]) {
        let (largest, sums) = state.split_at_mut(state.len() / 2);
        // SAFETY: the caller's promise.
        unsafe { accumulate::<Largest<false>, S, _>(slots, self.x, largest) };
        sums.fill(E::Acc::ZERO);
        let columns = sums.len();
        for block in slots.chunks(entries_of_a_block(columns)) {
            self.exps::<S>(block, largest, scratch);
            for exps in scratch[..block.len() * columns].chunks_exact(columns) {
                sums.iter_mut().zip(exps).for_each(|(sum, &exp)| *sum = *sum + exp);
            }
        }
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        let (largest, sums) = state.split_at_mut(state.len() / 2);
        let (other, parts) = piece.split_at(piece.len() / 2);
        for column in 0..sums.len() {
            let all = larger::<_, false>(largest[column], other[column]);
            // Of equal ones nothing is to be scaled: the difference of infinities is no number.
            let scaled = |largest: E::Acc, sum: E::Acc| if largest == all { sum } else { sum * (largest - all).exp() };
            sums[column] = scaled(largest[column], sums[column]) + scaled(other[column], parts[column]);
            largest[column] = all;
        }
    }

    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        _: usize,
        slots: &[usize],
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
        // A row of one block was folded just now: its exponentials are still there.
        let kept = earlier.is_empty() && slots.len() <= step;
        for block in slots.chunks(step) {
            if !kept && !self.log {
                self.exps::<S>(block, largest, exps);
            }
            for (&slot, exps) in block.iter().zip(exps.chunks_exact(columns)) {
                let x = self.x.row(slot);
                for column in 0..columns {
                    let y = match self.log {
                        true => (x[column].widen() - shift(largest[column])) - factors[column],
                        false => exps[column] * factors[column],
                    };
                    // SAFETY: an element of the output.
                    unsafe { self.out.at(slot * columns + column).write(E::narrow(y)) };
                }
            }
        }
    }
}

/// The gradient of softmax, given its result `y`. Its state is the sum of the gradients, weighted by the softmax unless it's
/// that of the logarithm, then the largest of `y`.
pub(super) struct ExpsBackward<'a, E> {
    pub y: Dense<'a, E>,
    pub grad: Dense<'a, E>,
    pub log: bool,
    pub out: Output<'a, E>,
}

impl<E: Scalar<Acc: Real>> Fold for ExpsBackward<'_, E> {
    type Acc = E::Acc;
    const STATE: usize = 2;
    const WORK: usize = 4;

    fn columns(&self) -> usize {
        self.y.cols()
    }

    fn scratch(&self) -> usize {
        self.columns().next_multiple_of(LANES)
    }

    #[inline(always)]
    unsafe fn fold<S: Isa>(&self, slots: &[usize], state: &mut [E::Acc], _: &mut [E::Acc]) {
        let (sums, largest) = state.split_at_mut(state.len() / 2);
        // SAFETY: the caller's promise.
        unsafe {
            if self.log {
                accumulate::<Add, S, _>(slots, self.grad, sums);
            } else {
                accumulate::<Add, S, _>(slots, Product(self.y, self.grad), sums);
            }
        }
        largest.fill(-E::Acc::INFINITY);
        if self.log {
            for &slot in slots {
                let of_entry = largest.iter_mut().zip(self.y.row(slot));
                of_entry.for_each(|(largest, y)| *largest = larger::<_, true>(*largest, y.widen()));
            }
        }
    }

    fn merge(&self, state: &mut [E::Acc], piece: &[E::Acc]) {
        let (sums, largest) = state.split_at_mut(state.len() / 2);
        let (parts, other) = piece.split_at(piece.len() / 2);
        sums.iter_mut().zip(parts).for_each(|(sum, &part)| *sum = *sum + part);
        largest.iter_mut().zip(other).for_each(|(largest, &y)| *largest = larger::<_, true>(*largest, y));
    }

    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        _: usize,
        slots: &[usize],
        state: &[E::Acc],
        _: &[E::Acc],
        weights: &mut [E::Acc],
    ) {
        let (sums, largest) = state.split_at(state.len() / 2);
        let columns = sums.len();
        for &slot in slots {
            weights.iter_mut().zip(self.y.row(slot)).for_each(|(weight, y)| *weight = y.widen());
            if self.log {
                weights[columns..].fill(E::Acc::ZERO);
                exp_all::<S, E::Acc>(weights);
            }
            let grad = self.grad.row(slot);
            for column in 0..columns {
                let (grad, weight) = (grad[column].widen(), weights[column]);
                let x = match self.log {
                    false => weight * (grad - sums[column]),
                    true if largest[column] == -E::Acc::INFINITY => E::Acc::ZERO,
                    true => grad - weight * sums[column],
                };
                // SAFETY: an element of the output.
                unsafe { self.out.at(slot * columns + column).write(E::narrow(x)) };
            }
        }
    }
}
