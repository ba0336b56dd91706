//! Reductions and softmaxes that are made of exponentials: through buffers that hold the elements of as many rows as fit, so that
//! exponentials of short rows share vectors, and so do their sums and logarithms.

use super::cpu::{is_nan, load_row, longest, store_row};
use super::exp::{LANES, LARGEST, Real, exp_all, ln_all};
use crate::backend::dense::Output;
use crate::backend::scalar::{Accumulator, Scalar, as_sums};
use crate::backend::simd::{self, Entries, Isa, Kernel, Slots, WithEntries, for_each_chunk, load, store, with_entries};
use crate::pattern::{Index, Rows};
use std::ops::Range;

/// Elements and rows that the buffers have room for, or the elements of one longer row.
const BLOCK: usize = 1024;
/// No exponential of a size up to this one vanishes beside another.
const MODERATE: usize = 32;
/// Rows whose sums are formed together.
const TOGETHER: usize = 4;

/// What is made of the exponentials.
#[derive(Clone, Copy)]
pub(super) enum Exps<'a, E> {
    /// The logarithm of the sum of a row.
    Log {
        out: Output<'a, E>,
    },
    /// Its gradient.
    Weights {
        grad: &'a [E],
        out: Output<'a, E>,
    },
    Softmax {
        out: Output<'a, E>,
    },
    LogSoftmax {
        out: Output<'a, E>,
    },
    SoftmaxBackward {
        grad: &'a [E],
        log: bool,
        out: Output<'a, E>,
    },
}

impl<'a, E: Scalar> Exps<'a, E> {
    /// The same of what is summed in, where that is the type itself.
    fn as_sums(self) -> Option<Exps<'a, E::Acc>> {
        Some(match self {
            Self::Log { out } => Exps::Log { out: out.as_sums()? },
            Self::Weights { grad, out } => Exps::Weights { grad: as_sums(grad)?, out: out.as_sums()? },
            Self::Softmax { out } => Exps::Softmax { out: out.as_sums()? },
            Self::LogSoftmax { out } => Exps::LogSoftmax { out: out.as_sums()? },
            Self::SoftmaxBackward { grad, log, out } => {
                Exps::SoftmaxBackward { grad: as_sums(grad)?, log, out: out.as_sums()? }
            }
        })
    }
}

/// Does the task with the rows, of so many positions if their absent ones are zeros. Lengths were compared.
pub(super) fn run<E, I: Index>(rows: &Rows<I>, values: &[E], positions: Option<usize>, task: Exps<'_, E>)
where
    E: Scalar<Acc: Real>,
{
    match (I::narrow(rows), as_sums(values), task.as_sums()) {
        (Some(rows), Some(values), Some(task)) if simd::is_fast() => {
            with_entries(rows, Run::<_, _, true> { rows, values, positions, task });
        }
        _ => with_entries(rows, Run::<_, _, false> { rows, values, positions, task }),
    }
}

struct Run<'a, E, I, const FAST: bool> {
    rows: &'a Rows<I>,
    values: &'a [E],
    positions: Option<usize>,
    task: Exps<'a, E>,
}

impl<E: Scalar<Acc: Real>, I: Index, const FAST: bool> WithEntries<I> for Run<'_, E, I, FAST> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, values, positions, task } = self;
        // An exponential is worth some multiplications.
        for_each_chunk(rows, 8 * rows.n_entries(), |range| {
            let chunk = Chunk { range, entries, values, positions, task };
            if FAST { simd::run_fast(chunk) } else { simd::run(chunk) }
        });
    }
}

/// The rows of one chunk.
struct Chunk<'a, E, I, M> {
    range: Range<usize>,
    entries: Entries<'a, I, M>,
    values: &'a [E],
    positions: Option<usize>,
    task: Exps<'a, E>,
}

impl<E: Scalar<Acc: Real>, I: Index, M: Slots> Kernel for Chunk<'_, E, I, M> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { range, entries, values, positions, task } = self;
        let longest = longest(&entries, range.clone());
        // Then each row has a zero, and what vanishes beside its exponential may do so.
        let all_absent = positions.is_some_and(|positions| positions > longest);
        // Vectors may end behind the last element.
        let room = (BLOCK.max(longest + 1) + LANES).next_multiple_of(LANES);
        let (mut x, mut of_entries) = (vec![E::Acc::ZERO; room], vec![E::Acc::ZERO; room]);
        let (mut sums, mut shifts) = ([E::Acc::ZERO; BLOCK], [E::Acc::ZERO; BLOCK]);
        let mut rows = range.start..range.start;
        while rows.end < range.end {
            // SAFETY: rows of the pattern.
            let of_row = |row: usize| unsafe { entries.of_row(row) };
            let (first, start) = (rows.end, of_row(rows.end).start);
            rows = first..first + 1;
            while rows.end < range.end && of_row(rows.end).end - start + rows.end + 1 - first <= BLOCK {
                rows.end += 1;
            }
            let elements = of_row(rows.end - 1).end - start;
            let block = Block { entries, rows: rows.clone(), start };
            let (sums, shifts) = (&mut sums[..rows.len()], &mut shifts[..rows.len()]);
            // SAFETY: rows of the pattern, whose lengths were compared with those of the slices: the entries of consecutive
            // rows are consecutive. The buffers have room for elements and rows, and for a vector more.
            unsafe {
                load_row(&entries, values, start..start + elements, &mut x);
                // Nothing is to be shifted where no exponential, and no sum of a block, overflows or vanishes.
                let moderate = match all_absent {
                    true => is_below::<E::Acc, false>(&x[..elements], LARGEST),
                    false => is_below::<E::Acc, true>(&x[..elements], MODERATE),
                };
                let mut filled = elements;
                if !moderate {
                    block.shifts::<E::Acc>(&x, positions, shifts);
                    block.spread(shifts, &mut of_entries);
                    let (of_elements, absent) = x.split_at_mut(elements);
                    of_elements.iter_mut().zip(&of_entries).for_each(|(x, &shift)| *x = *x - shift);
                    absent.iter_mut().zip(&*shifts).for_each(|(absent, &shift)| *absent = -shift);
                    filled += rows.len();
                }
                exp_all::<S, E::Acc>(&mut x[..filled.next_multiple_of(LANES)]);
                block.sums::<S, E::Acc>(&x, sums);
                if let Some(positions) = positions {
                    let absents = |i| E::Acc::of(positions.saturating_sub(block.entries(i).len()));
                    if moderate {
                        sums.iter_mut().enumerate().for_each(|(i, sum)| *sum = *sum + absents(i));
                    } else {
                        for (i, (sum, &one)) in sums.iter_mut().zip(&x[elements..]).enumerate() {
                            // Where there is none its exponential may be infinite.
                            let absents = absents(i);
                            *sum = if absents == E::Acc::ZERO { *sum } else { *sum + absents * one };
                        }
                    }
                }
                let shifts = if moderate { None } else { Some(&*shifts) };
                task.finish::<S, I, M>(&block, values, &mut x[..elements], &mut of_entries, shifts, sums);
            }
            rows.start = first;
        }
    }
}

/// Consecutive rows whose elements are in a buffer.
struct Block<'a, I, M> {
    entries: Entries<'a, I, M>,
    rows: Range<usize>,
    /// The first entry.
    start: usize,
}

impl<I: Index, M: Slots> Block<'_, I, M> {
    /// The elements of the i-th row in the buffer.
    ///
    /// # Safety
    ///
    /// There are so many rows.
    #[inline(always)]
    unsafe fn of_row(&self, i: usize) -> Range<usize> {
        // SAFETY: the caller's promise.
        let of_row = unsafe { self.entries.of_row(self.rows.start + i) };
        of_row.start - self.start..of_row.end - self.start
    }

    /// The entries of the i-th row.
    ///
    /// # Safety
    ///
    /// There are so many rows.
    #[inline(always)]
    unsafe fn entries(&self, i: usize) -> Range<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.entries.of_row(self.rows.start + i) }
    }

    /// What is taken from the elements of each row before the exponential: the largest, so that none overflows.
    ///
    /// # Safety
    ///
    /// There are as many `shifts` as rows, and `x` has their elements and room for a vector behind.
    #[inline(always)]
    unsafe fn shifts<A: Real>(&self, x: &[A], positions: Option<usize>, shifts: &mut [A]) {
        let greater = |a: A, b: A| if b > a { b } else { a };
        for (i, shift) in shifts.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let of_row = unsafe { self.of_row(i) };
            let any_absent = positions.is_some_and(|positions| positions > of_row.len());
            let mut lanes = [-A::INFINITY; LANES];
            let rest = of_row.len() % LANES;
            // SAFETY: the caller's promise; there is a vector in the tables from each lane on.
            unsafe {
                let table = |table: &[A; 2 * LANES]| load::<A, LANES>(table.as_ptr().add(LANES - rest));
                let (mask, fill) = (table(&A::MASKS), table(&A::FILL));
                let vector = |at: usize| load::<A, LANES>(x.as_ptr().add(at));
                let first = vector(of_row.start);
                for lane in 0..LANES {
                    lanes[lane] = greater(lanes[lane], first[lane].masked(mask[lane]) + fill[lane]);
                }
                for at in (of_row.start + rest..of_row.end).step_by(LANES) {
                    let next = vector(at);
                    for lane in 0..LANES {
                        lanes[lane] = greater(lanes[lane], next[lane]);
                    }
                }
            }
            let largest = lanes.into_iter().reduce(greater).expect("lanes");
            *shift = match any_absent && largest < A::ZERO || largest == -A::INFINITY {
                true => A::ZERO,
                false => largest,
            };
        }
    }

    /// The sum of the elements of each row.
    ///
    /// # Safety
    ///
    /// There are as many `sums` as rows, and `x` has their elements and room for a vector behind.
    #[inline(always)]
    unsafe fn sums<S: Isa, A: Real>(&self, x: &[A], sums: &mut [A]) {
        for (group, sums) in sums.chunks_mut(TOGETHER).enumerate() {
            let mut lanes = [[A::ZERO; LANES]; TOGETHER];
            for (i, lanes) in lanes.iter_mut().enumerate().take(sums.len()) {
                // SAFETY: the caller's promise; there is a vector in the table from each lane on.
                unsafe {
                    let of_row = self.of_row(TOGETHER * group + i);
                    let rest = of_row.len() % LANES;
                    let mask = load::<A, LANES>(A::MASKS.as_ptr().add(LANES - rest));
                    *lanes = S::select(mask, load::<A, LANES>(x.as_ptr().add(of_row.start)));
                    let mut at = of_row.start + rest;
                    while at < of_row.end {
                        *lanes = S::add(*lanes, load::<A, LANES>(x.as_ptr().add(at)));
                        at += LANES;
                    }
                }
            }
            sums.copy_from_slice(&S::sums(lanes)[..sums.len()]);
        }
    }

    /// Writes for each element the number of its row.
    ///
    /// # Safety
    ///
    /// There are as many numbers as rows, and `to` has room for their elements and a vector behind.
    #[inline(always)]
    unsafe fn spread<A: Real>(&self, of_rows: &[A], to: &mut [A]) {
        for (i, &x) in of_rows.iter().enumerate() {
            // SAFETY: the caller's promise. The next row writes over what is too much.
            unsafe {
                let of_row = self.of_row(i);
                let mut at = of_row.start;
                loop {
                    store::<A, LANES>([x; LANES], to.as_mut_ptr().add(at));
                    at += LANES;
                    if at >= of_row.end {
                        break;
                    }
                }
            }
        }
    }
}

impl<E: Scalar<Acc: Real>> Exps<'_, E> {
    /// What follows from the exponentials of a block, and their sum for each row; where they were shifted, so that the
    /// largest of a row is 1, by how much.
    ///
    /// # Safety
    ///
    /// The slices have the lengths of the pattern, the elements of the block and its rows; `of_entries` has room as in
    /// [`Block::spread`].
    #[inline(always)]
    unsafe fn finish<S: Isa, I: Index, M: Slots>(
        self,
        block: &Block<'_, I, M>,
        values: &[E],
        exps: &mut [E::Acc],
        of_entries: &mut [E::Acc],
        shifts: Option<&[E::Acc]>,
        sums: &mut [E::Acc],
    ) {
        let (entries, first, zero) = (&block.entries, block.rows.start, E::Acc::ZERO);
        let all = block.start..block.start + exps.len();
        // Where all are -inf, or there are none, nothing has a weight.
        let over_sum = |x: E::Acc, sum: E::Acc| if sum == zero { zero } else { x / sum };
        let shift_of = |i: usize| shifts.map_or(zero, |shifts| shifts[i]);
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            let value = |entry: usize| values.get_unchecked(entries.slot(entry)).widen();
            match self {
                Self::Log { out } => {
                    logarithms::<S, E::Acc>(sums);
                    for (i, &log) in sums.iter().enumerate() {
                        let shift = shift_of(i);
                        let infinite = shift == E::Acc::INFINITY && !block.entries(i).any(|e| is_nan(value(e)));
                        out.at(first + i).write(E::narrow(if infinite { shift } else { shift + log }));
                    }
                }
                Self::Weights { grad, out } => {
                    let grad = &grad[block.rows.clone()];
                    sums.iter_mut().zip(grad).for_each(|(sum, grad)| *sum = over_sum(grad.widen(), *sum));
                    block.spread(sums, of_entries);
                    store_row(entries, all, exps.iter().zip(&*of_entries).map(|(&x, &scale)| x * scale), out);
                }
                Self::Softmax { out } => {
                    sums.iter_mut().for_each(|sum| *sum = over_sum(E::Acc::ONE, *sum));
                    block.spread(sums, of_entries);
                    store_row(entries, all, exps.iter().zip(&*of_entries).map(|(&x, &scale)| x * scale), out);
                }
                Self::LogSoftmax { out } => {
                    // -inf stays so.
                    sums.iter_mut().for_each(|sum| *sum = if *sum == zero { E::Acc::ONE } else { *sum });
                    logarithms::<S, E::Acc>(sums);
                    for (i, &log) in sums.iter().enumerate() {
                        let (of_row, shift) = (block.entries(i), shift_of(i));
                        store_row(entries, of_row.clone(), of_row.map(|e| (value(e) - shift) - log), out);
                    }
                }
                Self::SoftmaxBackward { grad, log, out } => {
                    let grad = |entry: usize| grad.get_unchecked(entries.slot(entry)).widen();
                    for (i, &sum) in sums.iter().enumerate() {
                        let (of_row, exps) = (block.entries(i), &mut exps[block.of_row(i)]);
                        let scale = over_sum(E::Acc::ONE, sum);
                        exps.iter_mut().for_each(|x| *x = *x * scale);
                        let mut mean = zero;
                        for (entry, &weight) in of_row.clone().zip(&*exps) {
                            mean = mean + if log { grad(entry) } else { weight * grad(entry) };
                        }
                        let of_entries = of_row.clone().zip(&*exps).map(|(entry, &weight)| match log {
                            true if sum == zero => zero,
                            true => grad(entry) - weight * mean,
                            false => weight * (grad(entry) - mean),
                        });
                        store_row(entries, of_row, of_entries, out);
                    }
                }
            }
        }
    }
}

/// The natural logarithm of each, in place.
#[inline(always)]
fn logarithms<S: Isa, A: Real>(x: &mut [A]) {
    let vectors = x.len() / LANES * LANES;
    let (vectors, rest) = x.split_at_mut(vectors);
    ln_all::<S, A>(vectors);
    let mut padded = [A::ONE; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    ln_all::<S, A>(&mut padded);
    rest.copy_from_slice(&padded[..rest.len()]);
}

/// Whether all numbers, or all their sizes, are at most this; NaN left out.
#[inline(always)]
fn is_below<A: Real, const SIZES: bool>(x: &[A], limit: usize) -> bool {
    let greater = |a: A, b: A| if b > a { b } else { a };
    let of = |x: A| if SIZES { x.abs() } else { x };
    let mut lanes = [-A::INFINITY; LANES];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for vector in vectors {
        for lane in 0..LANES {
            lanes[lane] = greater(lanes[lane], of(vector[lane]));
        }
    }
    lanes.into_iter().chain(rest.iter().map(|&x| of(x))).reduce(greater).expect("lanes") <= A::of(limit)
}

#[cfg(test)]
#[allow(clippy::needless_range_loop, reason = "plain loops over rows, as the oracle")]
mod tests {
    use super::super::{Reduction, Softmax, cpu};
    use crate::backend::scalar::Scalar;
    use crate::ops::reduce::exp::Real;
    use crate::pattern::{Index, Rows, Slot};
    use std::mem::MaybeUninit;
    use std::sync::Arc;

    /// Around the lengths of vectors and buffers, with many short rows and none among them.
    const LENGTHS: [usize; 24] =
        [0, 1, 0, 3, 15, 16, 17, 0, 0, 31, 32, 33, 2, 1, 1, 500, 600, 1023, 1024, 1025, 3000, 1, 0, 5];

    fn rows<I: Index>(shuffled: bool) -> Rows<I> {
        let mut offsets = vec![I::of(0)];
        for length in LENGTHS {
            offsets.push(I::of(offsets[offsets.len() - 1].get() + length));
        }
        let entries = offsets[LENGTHS.len()].get();
        let columns = vec![I::of(0); entries]; // not looked at
        let slots = (0..entries).map(|entry| I::of((entry * 7 + 3) % entries)).collect();
        let slots = if shuffled { Slot::Map(Arc::new(slots)) } else { Slot::Identity };
        Rows::new(Arc::new(offsets), Arc::new(columns), slots, 4000, entries)
    }

    fn written<E: Scalar>(len: usize, fill: impl FnOnce(&mut [MaybeUninit<E>])) -> Vec<f64> {
        let mut out = vec![MaybeUninit::new(E::narrow(f32::NAN.into())); len];
        fill(&mut out);
        // SAFETY: initialised from the start.
        out.iter().map(|x| unsafe { x.assume_init() }.widen().into()).collect()
    }

    /// Compares all that is made of exponentials with plain loops in `f64`.
    fn check<E: Scalar<Acc: Real>, I: Index>(shuffled: bool, scale: f32, special: &[(usize, f32)], bound: f64) {
        let rows = rows::<I>(shuffled);
        assert!(!rows.n_entries().is_multiple_of(7), "slots are a permutation");
        let number = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 504.5 - 1.0;
        let mut values: Vec<E> = (0..rows.n_slots).map(|i| E::narrow((number(i) * scale).into())).collect();
        for &(entry, value) in special {
            values[rows.slot(entry)] = E::narrow(value.into());
        }
        let of_rows: Vec<E> = (0..rows.n_rows()).map(|i| E::narrow(number(i + 5).into())).collect();
        let of_values: Vec<E> = (0..rows.n_slots).map(|i| E::narrow(number(i + 9).into())).collect();
        let close = |what: &str, found: &[f64], expected: &[f64]| {
            for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                let same = f == e || f.is_nan() && e.is_nan() || (f - e).abs() <= bound * (1.0 + e.abs());
                assert!(same, "{what} {i}: {f} instead of {e}");
            }
        };
        for positions in [None, Some(3000), Some(4000)] {
            let (mut logs, mut weights) = (vec![], vec![0.0; rows.n_slots]);
            for row in 0..rows.n_rows() {
                let x: Vec<f64> = rows.range(row).map(|e| values[rows.slot(e)].widen().into()).collect();
                let absents = positions.map_or(0, |positions| positions - x.len()) as f64;
                let zero = if absents > 0.0 { 0.0 } else { f64::NEG_INFINITY };
                let largest = x.iter().copied().fold(zero, f64::max);
                let largest = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
                let exps: Vec<f64> = x.iter().map(|x| (x - largest).exp()).collect();
                let sum = exps.iter().sum::<f64>() + if absents > 0.0 { absents * (-largest).exp() } else { 0.0 };
                let infinite = largest == f64::INFINITY && !x.iter().any(|x| x.is_nan());
                logs.push(if infinite { largest } else { largest + sum.ln() });
                for (entry, exp) in rows.range(row).zip(exps) {
                    weights[rows.slot(entry)] = if sum == 0.0 { 0.0 } else { exp / sum };
                }
            }
            let reduction = Reduction::LogSumExp { positions };
            let found = written::<E>(rows.n_rows(), |out| cpu::reduce(&rows, &values, reduction, out));
            close("log", &found, &logs);
            let mut expected = vec![0.0; rows.n_slots];
            for row in 0..rows.n_rows() {
                let grad: f64 = of_rows[row].widen().into();
                rows.range(row).map(|e| rows.slot(e)).for_each(|slot| expected[slot] = weights[slot] * grad);
            }
            let found = written::<E>(rows.n_slots, |out| cpu::derive(&rows, &values, &of_rows, reduction, out));
            close("weights", &found, &expected);
            if positions.is_some() {
                continue;
            }
            for log in [false, true] {
                let (mut expected, mut derived) = (vec![0.0; rows.n_slots], vec![0.0; rows.n_slots]);
                for row in 0..rows.n_rows() {
                    let grad = |slot: usize| -> f64 { of_values[slot].widen().into() };
                    let slots = || rows.range(row).map(|e| rows.slot(e));
                    let mean: f64 = slots().map(|slot| if log { grad(slot) } else { weights[slot] * grad(slot) }).sum();
                    let none = slots().all(|slot| values[slot].widen() == -E::Acc::INFINITY);
                    for slot in slots() {
                        let (value, weight): (f64, f64) = (values[slot].widen().into(), weights[slot]);
                        (expected[slot], derived[slot]) = match log {
                            _ if none => (if log { value } else { 0.0 }, 0.0),
                            true if logs[row] == f64::INFINITY => (f64::NAN, f64::NAN),
                            true => (value - logs[row], grad(slot) - weight * mean),
                            false => (weight, weight * (grad(slot) - mean)),
                        };
                    }
                }
                let how = Softmax { log };
                let found = written::<E>(rows.n_slots, |out| cpu::softmax(&rows, &values, how, out));
                close("softmax", &found, &expected);
                let found = written::<E>(rows.n_slots, |out| {
                    cpu::softmax_backward(&rows, &values, &of_values, how, out);
                });
                close("its gradient", &found, &derived);
            }
        }
    }

    fn check_all<E: Scalar<Acc: Real>>(bound: f64) {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for shuffled in [false, true] {
            // Nothing is to be shifted; no exponential may overflow; none may vanish with all of its row.
            for scale in [1.0, 30.0, 70.0, 400.0, 30_000.0] {
                check::<E, i32>(shuffled, scale, &[], bound);
                check::<E, i64>(shuffled, scale, &[(0, -inf), (1, -inf), (20, nan), (40, inf), (60, -inf)], bound);
                check::<E, i32>(shuffled, scale, &[(1, -inf), (2, -inf), (3, -inf), (100, inf), (101, nan)], bound);
            }
        }
    }

    #[test]
    fn blocks_agree_with_plain_loops() {
        check_all::<f32>(2e-5);
        check_all::<f64>(1e-13);
        check_all::<half::f16>(2e-2);
    }
}
