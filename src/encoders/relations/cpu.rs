//! Values and entries on the CPU, by lines of voxels along the last axis. In a line the same steps are there for all voxels but
//! those at its ends, so that what moves is a small matrix, steps x voxels, which is transposed.

use super::Relations;
use crate::backend::dense::Output;
use crate::backend::scalar::Scalar;
use crate::backend::simd::for_each;
use crate::pattern::{Index, Rows};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Lines that a thread does at a time.
const LINES: usize = 64;

/// Values to entries, or `back`, all of them.
///
/// # Panics
///
/// If there are not as many values and entries as the relations have.
pub(super) fn transfer<E: Scalar, I: Index>(
    relations: &Relations,
    rows: &Rows<I>,
    items: usize,
    back: bool,
    from: &[E],
    out: &mut [MaybeUninit<E>],
) {
    let elements = [!back, back].map(|values| relations.elements(items, values));
    assert_eq!([from.len(), out.len()], elements, "values and entries");
    let width = relations.volume()[relations.volume().len() - 1];
    let lines = relations.voxels() / width;
    let out = Output::new(out);
    for_each((items * lines).div_ceil(LINES), from.len(), &|chunk| {
        for at in chunk * LINES..(items * lines).min((chunk + 1) * LINES) {
            let (item, line) = (at / lines, Line::new(relations, at % lines));
            let values = item * relations.values() + line.first;
            let entries = |x: usize| item * rows.n_entries() + rows.range(line.first + x).start;
            // SAFETY: values and entries of this line, as many as were checked; no other line has them.
            unsafe {
                if back {
                    line.back(values, entries, from, out);
                } else {
                    line.forth(values, entries, from, out);
                }
            }
        }
    });
}

/// A line of voxels.
struct Line {
    /// Its first voxel.
    first: usize,
    width: usize,
    /// From the values of a step to those of the next.
    voxels: usize,
    /// The steps that some of its voxels have, in the order of columns: which, and how far along the line.
    steps: Vec<(usize, isize)>,
    /// Those that none has.
    absent: Vec<usize>,
    /// The voxels that have all of the steps.
    inner: Range<usize>,
}

impl Line {
    fn new(relations: &Relations, line: usize) -> Self {
        let (volume, voxels) = (relations.volume(), relations.voxels());
        let last = volume.len() - 1;
        let width = volume[last];
        let mut place = vec![0; last];
        let mut rest = line;
        for axis in (0..last).rev() {
            (place[axis], rest) = (rest % volume[axis], rest / volume[axis]);
        }
        let (mut steps, mut absent, mut inner) = (Vec::new(), Vec::new(), 0..width);
        for &at in &relations.0.in_order {
            let step = &relations.steps()[at];
            let along = step[last];
            if !super::stays(&place, step, volume) || along.unsigned_abs() >= width {
                absent.push(at);
                continue;
            }
            steps.push((at, along));
            let there = Self::there(along, width);
            inner = inner.start.max(there.start)..inner.end.min(there.end);
        }
        inner.end = inner.end.max(inner.start);
        Self { first: line * width, width, voxels, steps, absent, inner }
    }

    /// The voxels that a step comes to from within the line.
    fn there(along: isize, width: usize) -> Range<usize> {
        along.max(0) as usize..width - (-along).max(0) as usize
    }

    /// The voxels that may lack some of the steps.
    fn ends(&self) -> impl Iterator<Item = usize> {
        (0..self.inner.start).chain(self.inner.end..self.width)
    }

    /// The steps to a voxel.
    fn steps_to(&self, x: usize) -> impl Iterator<Item = usize> {
        self.steps.iter().filter(move |(_, along)| Self::there(*along, self.width).contains(&x)).map(|&(at, _)| at)
    }

    /// Entries from values, which begin at `values` for the first step; those of a voxel begin at `entries` of it.
    ///
    /// # Safety
    ///
    /// There are so many of both, and nobody else writes the entries.
    unsafe fn forth<E: Copy>(&self, values: usize, entries: impl Fn(usize) -> usize, from: &[E], out: Output<'_, E>) {
        let count = self.steps.len();
        if !self.inner.is_empty() {
            let start = entries(self.inner.start);
            for (column, &(at, _)) in self.steps.iter().enumerate() {
                let values = values + at * self.voxels + self.inner.start;
                for (x, &value) in from[values..values + self.inner.len()].iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { out.at(start + x * count + column).write(value) };
                }
            }
        }
        for x in self.ends() {
            for (entry, at) in (entries(x)..).zip(self.steps_to(x)) {
                // SAFETY: the caller's promise.
                unsafe { out.at(entry).write(from[values + at * self.voxels + x]) };
            }
        }
    }

    /// Values from entries, as in [`forth`](Self::forth); zeros where there is no entry.
    ///
    /// # Safety
    ///
    /// There are so many of both, and nobody else writes the values.
    unsafe fn back<E: Scalar>(&self, values: usize, entries: impl Fn(usize) -> usize, from: &[E], out: Output<'_, E>) {
        let count = self.steps.len();
        // SAFETY: the caller's promise.
        let write = |at: usize, x: usize, value: E| unsafe { out.at(values + at * self.voxels + x).write(value) };
        for &at in &self.absent {
            (0..self.width).for_each(|x| write(at, x, E::zeroed()));
        }
        let inner =
            if self.inner.is_empty() { &[] } else { &from[entries(self.inner.start)..][..self.inner.len() * count] };
        for (column, &(at, _)) in self.steps.iter().enumerate() {
            self.ends().for_each(|x| write(at, x, E::zeroed()));
            for x in 0..self.inner.len() {
                // SAFETY: a row of these entries and a column.
                write(at, self.inner.start + x, unsafe { *inner.get_unchecked(x * count + column) });
            }
        }
        for x in self.ends() {
            for (entry, at) in (entries(x)..).zip(self.steps_to(x)) {
                write(at, x, from[entry]);
            }
        }
    }
}
