//! Reductions and softmax on the CPU. What is made of exponentials is in [`exps`].

use super::exp::Real;
use super::exps::{self, Exps};
use super::{Norm, Reduction, Softmax};
use crate::backend::dense::Output;
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::simd::{self, Entries, Isa, Kernel, Slots, WithEntries, for_each_chunk, with_entries};
use crate::ops::sddmm::cpu::zero_unused;
use crate::pattern::{Index, Rows};
use std::mem::MaybeUninit;
use std::ops::Range;

/// One number for each row, written in full.
///
/// # Panics
///
/// If the values are not as many as the pattern has, or the output not as long as it has rows.
pub(super) fn reduce<E, I: Index>(rows: &Rows<I>, values: &[E], reduction: Reduction, out: &mut [MaybeUninit<E>])
where
    E: Scalar<Acc: Real>,
{
    assert_eq!((values.len(), out.len()), (rows.n_slots, rows.n_rows()), "values and rows");
    let out = Output::new(out);
    match reduction {
        Reduction::LogSumExp { positions } => exps::run(rows, values, positions, Exps::Log { out }),
        _ => with_entries(rows, Run { rows, values, task: Elements::Reduce { reduction, out } }),
    }
}

/// The gradient of the values from that of each row's number. Values that no entry has get 0.
///
/// # Panics
///
/// If lengths are not those of the pattern.
pub(super) fn derive<E, I: Index>(
    rows: &Rows<I>,
    values: &[E],
    grad: &[E],
    reduction: Reduction,
    out: &mut [MaybeUninit<E>],
) where
    E: Scalar<Acc: Real>,
{
    assert_eq!((values.len(), grad.len(), out.len()), (rows.n_slots, rows.n_rows(), rows.n_slots), "lengths");
    zero_unused(rows, out);
    let out = Output::new(out);
    match reduction {
        Reduction::LogSumExp { positions } => exps::run(rows, values, positions, Exps::Weights { grad, out }),
        _ => with_entries(rows, Run { rows, values, task: Elements::Derive { reduction, grad, out } }),
    }
}

/// The number of its row for each value.
///
/// # Panics
///
/// If lengths are not those of the pattern.
pub(super) fn expand<E, I: Index>(rows: &Rows<I>, of_rows: &[E], out: &mut [MaybeUninit<E>])
where
    E: Scalar<Acc: Real>,
{
    assert_eq!((of_rows.len(), out.len()), (rows.n_rows(), rows.n_slots), "lengths");
    zero_unused(rows, out);
    with_entries(rows, Expand { rows, of_rows, out: Output::new(out) });
}

/// The softmax of each row or its logarithm.
///
/// # Panics
///
/// If lengths are not those of the pattern.
pub(super) fn softmax<E, I: Index>(rows: &Rows<I>, values: &[E], how: Softmax, out: &mut [MaybeUninit<E>])
where
    E: Scalar<Acc: Real>,
{
    assert_eq!((values.len(), out.len()), (rows.n_slots, rows.n_slots), "lengths");
    zero_unused(rows, out);
    let out = Output::new(out);
    let task = if how.log { Exps::LogSoftmax { out } } else { Exps::Softmax { out } };
    exps::run(rows, values, None, task);
}

/// The gradient of the values from that of their softmax.
///
/// # Panics
///
/// If lengths are not those of the pattern.
pub(super) fn softmax_backward<E, I: Index>(
    rows: &Rows<I>,
    values: &[E],
    grad: &[E],
    how: Softmax,
    out: &mut [MaybeUninit<E>],
) where
    E: Scalar<Acc: Real>,
{
    assert_eq!((values.len(), grad.len(), out.len()), (rows.n_slots, rows.n_slots, rows.n_slots), "lengths");
    zero_unused(rows, out);
    let out = Output::new(out);
    let log = how.log;
    exps::run(rows, values, None, Exps::SoftmaxBackward { grad, log, out });
}

#[derive(Clone, Copy)]
enum Elements<'a, E> {
    Reduce { reduction: Reduction, out: Output<'a, E> },
    Derive { reduction: Reduction, grad: &'a [E], out: Output<'a, E> },
}

struct Run<'a, E, I> {
    rows: &'a Rows<I>,
    values: &'a [E],
    task: Elements<'a, E>,
}

impl<E: Scalar<Acc: Real>, I: Index> WithEntries<I> for Run<'_, E, I> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, values, task } = self;
        for_each_chunk(rows, rows.n_entries(), |range| simd::run(Chunk { range, entries, values, task }));
    }
}

/// The rows of one chunk.
struct Chunk<'a, E, I, M> {
    range: Range<usize>,
    entries: Entries<'a, I, M>,
    values: &'a [E],
    task: Elements<'a, E>,
}

/// The longest of some rows.
pub(super) fn longest<I: Index, M: Slots>(entries: &Entries<'_, I, M>, rows: Range<usize>) -> usize {
    // SAFETY: rows of the pattern.
    rows.map(|row| unsafe { entries.of_row(row) }.len()).max().unwrap_or(0)
}

/// Loads the values of a row.
///
/// # Safety
///
/// The entries are of the pattern whose values these are.
#[inline(always)]
pub(super) unsafe fn load_row<E: Scalar, I: Index, M: Slots>(
    entries: &Entries<'_, I, M>,
    values: &[E],
    of_row: Range<usize>,
    to: &mut [E::Acc],
) {
    for (to, entry) in to.iter_mut().zip(of_row) {
        // SAFETY: the caller's promise.
        *to = unsafe { values.get_unchecked(entries.slot(entry)) }.widen();
    }
}

/// Stores numbers at the values of a row.
///
/// # Safety
///
/// The entries are of the pattern that has the values of the output.
#[inline(always)]
pub(super) unsafe fn store_row<E: Scalar, I: Index, M: Slots>(
    entries: &Entries<'_, I, M>,
    of_row: Range<usize>,
    from: impl Iterator<Item = E::Acc>,
    out: Output<'_, E>,
) {
    for (entry, x) in of_row.zip(from) {
        // SAFETY: the caller's promise.
        unsafe { out.at(entries.slot(entry)).write(E::narrow(x)) };
    }
}

impl<E: Scalar<Acc: Real>, I: Index, M: Slots> Kernel for Chunk<'_, E, I, M> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { range, entries, values, task } = self;
        let mut buffer = vec![E::Acc::ZERO; longest(&entries, range.clone())];
        for row in range {
            // SAFETY: rows of the pattern, whose lengths were compared with those of the slices.
            unsafe {
                let of_row = entries.of_row(row);
                let x = &mut buffer[..of_row.len()];
                match task {
                    Elements::Reduce { reduction, out } => {
                        load_row(&entries, values, of_row, x);
                        out.at(row).write(E::narrow(reduced(reduction, x)));
                    }
                    Elements::Derive { reduction, grad, out } => {
                        load_row(&entries, values, of_row.clone(), x);
                        derived(reduction, x, grad[row].widen());
                        store_row(&entries, of_row, x.iter().copied(), out);
                    }
                }
            }
        }
    }
}

struct Expand<'a, E, I> {
    rows: &'a Rows<I>,
    of_rows: &'a [E],
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> WithEntries<I> for Expand<'_, E, I> {
    fn call<M: Slots>(self, entries: Entries<'_, I, M>) {
        let Self { rows, of_rows, out } = self;
        for_each_chunk(rows, rows.n_entries(), |range| {
            for row in range {
                // SAFETY: rows of the pattern; `expand` has compared the lengths.
                unsafe {
                    for entry in entries.of_row(row) {
                        out.at(entries.slot(entry)).write(of_rows[row]);
                    }
                }
            }
        });
    }
}

#[inline(always)]
pub(super) fn is_nan<A: Real>(x: A) -> bool {
    x.partial_cmp(&x).is_none()
}

/// The largest, NaN left out; -inf of none.
#[inline(always)]
fn largest<A: Real>(x: &[A]) -> A {
    let greater = |a: A, b: A| if b > a { b } else { a };
    let mut lanes = [-A::INFINITY; 8];
    let mut chunks = x.chunks_exact(8);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = greater(*lane, x);
        }
    }
    let rest = chunks.remainder().iter().copied();
    lanes.into_iter().chain(rest).reduce(greater).expect("eight lanes")
}

/// The sum: of eight interleaved ones if there are many.
#[inline(always)]
fn total<A: Real>(x: &[A]) -> A {
    let mut chunks = x.chunks_exact(8);
    let mut sum = A::ZERO;
    if x.len() >= 8 {
        let mut lanes = [A::ZERO; 8];
        for chunk in &mut chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = *lane + x;
            }
        }
        let [a, b, c, d, e, f, g, h] = lanes;
        sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
    }
    chunks.remainder().iter().fold(sum, |sum, &x| sum + x)
}

/// The place of the first of the largest; of the first NaN if there is one; `None` of none.
fn first_largest<A: Real>(x: &[A]) -> Option<usize> {
    let largest = largest(x);
    let nan = x.iter().position(|&x| is_nan(x));
    nan.or_else(|| x.iter().position(|&x| x == largest))
}

/// A reduction of elements in the order of their row, of all but exponentials.
fn reduced<A: Real>(reduction: Reduction, x: &mut [A]) -> A {
    let any_absent = |positions: Option<usize>| positions.is_some_and(|positions| positions > x.len());
    match reduction {
        Reduction::Sum => total(x),
        Reduction::Mean { positions } => total(x) / A::of(positions.unwrap_or(x.len()).max(1)),
        Reduction::Max { positions } => match first_largest(x).map(|at| x[at]) {
            Some(largest) if any_absent(positions) && largest < A::ZERO => A::ZERO,
            None if any_absent(positions) => A::ZERO,
            largest => largest.unwrap_or(-A::INFINITY),
        },
        Reduction::Min { positions } => {
            x.iter_mut().for_each(|x| *x = -*x);
            // 0 - x, so that an absent zero is not -0.
            A::ZERO - reduced(Reduction::Max { positions }, x)
        }
        Reduction::Norm(norm) => {
            x.iter_mut().for_each(|x| *x = x.abs());
            let largest = first_largest(x).map_or(A::ZERO, |at| x[at]);
            match norm {
                Norm::L1 => total(x),
                Norm::Max => largest,
                // Of 0, inf or NaN nothing is to be scaled.
                Norm::L2 if largest == A::ZERO || largest == A::INFINITY || is_nan(largest) => largest,
                Norm::L2 => {
                    x.iter_mut().for_each(|x| {
                        let scaled = *x / largest;
                        *x = scaled * scaled;
                    });
                    largest * total(x).sqrt()
                }
            }
        }
        Reduction::LogSumExp { .. } => unreachable!("made of exponentials"),
    }
}

/// The gradient of each element, in its place, from that of their reduction.
fn derived<A: Real>(reduction: Reduction, x: &mut [A], grad: A) {
    let only = |x: &mut [A], at: Option<usize>, grad: A| {
        x.fill(A::ZERO);
        if let Some(at) = at {
            x[at] = grad;
        }
    };
    let sign = |x: A| match () {
        () if x > A::ZERO => A::ONE,
        () if x < A::ZERO => -A::ONE,
        // 0, or NaN.
        () => x,
    };
    match reduction {
        Reduction::Sum => x.fill(grad),
        Reduction::Mean { positions } => x.fill(grad / A::of(positions.unwrap_or(x.len()).max(1))),
        Reduction::Max { positions } => {
            let absent = positions.is_some_and(|positions| positions > x.len());
            let at = first_largest(x).filter(|&at| !(absent && x[at] < A::ZERO));
            only(x, at, grad);
        }
        Reduction::Min { positions } => {
            x.iter_mut().for_each(|x| *x = -*x);
            derived(Reduction::Max { positions }, x, grad);
        }
        Reduction::Norm(Norm::L1) => x.iter_mut().for_each(|x| *x = sign(*x) * grad),
        Reduction::Norm(Norm::Max) => {
            let sizes: Vec<A> = x.iter().map(|x| x.abs()).collect();
            let at = first_largest(&sizes);
            only(x, at, at.map_or(A::ZERO, |at| sign(x[at]) * grad));
        }
        Reduction::Norm(Norm::L2) => {
            let mut copy = x.to_vec();
            let norm = reduced(reduction, &mut copy);
            x.iter_mut().for_each(|x| *x = if norm == A::ZERO { A::ZERO } else { *x / norm * grad });
        }
        Reduction::LogSumExp { .. } => unreachable!("made of exponentials"),
    }
}
