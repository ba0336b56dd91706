//! What triangular solves plan: each row in three parts, and the order in which rows can be solved.

use super::build::trusted_csr;
use super::indices::Buffer;
use super::plan::Target;
use super::{Conversion, Index, Pattern, RowView, Rows, Slot, with_rows};
use std::sync::{Arc, OnceLock};

/// A square matrix with the entries of each row in three parts: left of the diagonal, on it, right of it. Within a part, in
/// the order of storage.
#[derive(Debug)]
pub(crate) struct Split<I> {
    /// The row-ordered view in this order: the view's own buffers, if they are in it.
    pub rows: Rows<I>,
    /// Where the diagonal part of each row starts and ends.
    pub diagonal: Vec<[I; 2]>,
    /// The first row without an entry on the diagonal.
    pub missing: Option<usize>,
    /// How many entries there are left of the diagonal, on it and right of it.
    counts: [usize; 3],
    shared: bool,
    /// Of the lower and the upper triangle.
    levels: [OnceLock<Levels<I>>; 2],
}

/// The rows of a triangle in an order of elimination: those of a level depend on earlier levels only.
#[derive(Debug)]
pub(crate) struct Levels<I> {
    /// The rows, level by level, ascending within one.
    pub order: Vec<I>,
    /// Where each level starts, and the number of rows.
    pub bounds: Vec<I>,
}

/// [`Split`] in the index width of its pattern.
#[derive(Debug)]
pub(crate) enum SplitView {
    I32(Split<i32>),
    I64(Split<i64>),
}

/// Calls `$body` with `$split` bound to the `&Split<i32>` or `&Split<i64>` of a [`SplitView`].
macro_rules! with_split {
    ($view:expr, $split:ident => $body:expr) => {
        match $view {
            $crate::pattern::SplitView::I32($split) => $body,
            $crate::pattern::SplitView::I64($split) => $body,
        }
    };
}
pub(crate) use with_split;

/// A width for which there is a [`SplitView`].
pub(crate) trait SplitIndex: Index {
    /// The view, which has this width.
    fn split(view: &SplitView) -> &Split<Self>;
    /// The view, if its indices are 32-bit.
    fn narrow_split(split: &Split<Self>) -> Option<&Split<i32>>;
}

macro_rules! split_index {
    ($t:ty, $variant:ident, $narrow:expr) => {
        impl SplitIndex for $t {
            fn split(view: &SplitView) -> &Split<Self> {
                match view {
                    SplitView::$variant(split) => split,
                    _ => unreachable!("the views of a pattern have one width"),
                }
            }
            fn narrow_split(split: &Split<Self>) -> Option<&Split<i32>> {
                $narrow(split)
            }
        }
    };
}
split_index!(i32, I32, Some);
split_index!(i64, I64, |_| None);

impl<I: Index> Split<I> {
    pub(crate) fn new(rows: &Rows<I>) -> Self {
        let part = |row: usize, entry: usize| rows.columns[entry].get().cmp(&row);
        let mut shared = true;
        let mut diagonal = Vec::with_capacity(rows.n_rows());
        let (mut missing, mut counts) = (None, [0; 3]);
        for row in 0..rows.n_rows() {
            let range = rows.range(row);
            shared &= range.clone().is_sorted_by_key(|entry| part(row, entry));
            let (mut left, mut on) = (0, 0);
            for entry in range.clone() {
                left += usize::from(part(row, entry).is_lt());
                on += usize::from(part(row, entry).is_eq());
            }
            for (count, of_row) in counts.iter_mut().zip([left, on, range.len() - left - on]) {
                *count += of_row;
            }
            if on == 0 {
                missing = missing.or(Some(row));
            }
            diagonal.push([I::of(range.start + left), I::of(range.start + left + on)]);
        }
        let rows = if shared { rows.clone() } else { sorted_by(rows, part) };
        Self { rows, diagonal, missing, counts, shared, levels: Default::default() }
    }

    /// The entries of a row in the strict triangle.
    #[inline(always)]
    pub(crate) fn beside(&self, row: usize, upper: bool) -> std::ops::Range<usize> {
        let ([start, end], range) = (self.diagonal[row], self.rows.range(row));
        if upper { end.get()..range.end } else { range.start..start.get() }
    }

    /// The levels of a triangle.
    pub(crate) fn levels(&self, upper: bool) -> &Levels<I> {
        self.levels[usize::from(upper)].get_or_init(|| {
            let n = self.rows.n_rows();
            let mut level = vec![0usize; n];
            let mut bounds = vec![];
            for at in 0..n {
                let row = if upper { n - 1 - at } else { at };
                let before = self.beside(row, upper).map(|entry| level[self.rows.columns[entry].get()] + 1);
                level[row] = before.max().unwrap_or(0);
                if bounds.len() < level[row] + 2 {
                    bounds.resize(level[row] + 2, 0usize);
                }
                bounds[level[row] + 1] += 1;
            }
            for at in 1..bounds.len() {
                bounds[at] += bounds[at - 1];
            }
            let (mut next, mut order) = (bounds.clone(), vec![I::of(0); n]);
            for (row, &level) in level.iter().enumerate() {
                order[next[level]] = I::of(row);
                next[level] += 1;
            }
            Levels { order, bounds: bounds.into_iter().map(I::of).collect() }
        })
    }

    /// Bytes beside the view.
    fn bytes(&self) -> usize {
        let map = |slots: &Slot<I>| match slots {
            Slot::Identity => 0,
            Slot::Map(map) => map.len(),
        };
        let own = if self.shared { 0 } else { self.rows.n_entries() + map(&self.rows.slots) };
        let levels = self.levels.iter().filter_map(OnceLock::get).map(|l| l.order.len() + l.bounds.len());
        (own + levels.sum::<usize>() + 2 * self.diagonal.len()) * size_of::<I>()
    }
}

/// The entries of each row sorted by `key`, stably.
fn sorted_by<I: Index, K: Ord>(rows: &Rows<I>, key: impl Fn(usize, usize) -> K) -> Rows<I> {
    let mut order: Vec<usize> = (0..rows.n_entries()).collect();
    for row in 0..rows.n_rows() {
        order[rows.range(row)].sort_by_key(|&entry| key(row, entry));
    }
    let columns = order.iter().map(|&entry| rows.columns[entry]).collect();
    let slots = order.iter().map(|&entry| I::of(rows.slot(entry))).collect();
    Rows { columns: Arc::new(columns), slots: Slot::Map(Arc::new(slots)), ..rows.clone() }
}

impl SplitView {
    pub(super) fn bytes(&self) -> usize {
        with_split!(self, split => split.bytes())
    }
}

/// The entries that a triangular solve reads: one triangle, with its diagonal unless that is taken as ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub upper: bool,
    pub unit: bool,
}

impl Part {
    /// Of the transposed matrix.
    pub(crate) fn t(self) -> Self {
        Self { upper: !self.upper, ..self }
    }

    /// Whether the entry at (`row`, `column`) is read.
    pub(crate) fn reads(self, row: usize, column: usize) -> bool {
        if row == column { !self.unit } else { self.upper == (row < column) }
    }
}

impl Pattern {
    /// The rows in parts, made on first use. The matrix is square.
    pub(crate) fn triangles(&self) -> &SplitView {
        self.split_plan().get_or_init(|| match self.rows() {
            RowView::I32(rows) => SplitView::I32(Split::new(rows)),
            RowView::I64(rows) => SplitView::I64(Split::new(rows)),
        })
    }

    /// The first row without a stored diagonal entry.
    pub(crate) fn missing_diagonal(&self) -> Option<usize> {
        with_split!(self.triangles(), split => split.missing)
    }

    /// The gather of values that keeps those of a part and puts 0 for the others; `None` where all are kept.
    pub(crate) fn keep(&self, part: Part) -> Option<Pattern> {
        let [left, on, right] = with_split!(self.triangles(), split => split.counts);
        if (if part.upper { left } else { right }) + (if part.unit { on } else { 0 }) == 0 {
            return None;
        }
        Some(
            self.convert(Target::Part(part), || {
                let mut kept = vec![false; self.nnz()];
                self.for_each_entry(|row, column, entry| kept[entry] = part.reads(row, column));
                Conversion { pattern: selection(&kept, self), gather: None }
            })
            .pattern,
        )
    }

    /// The gather of the values on the diagonal, summed for each row.
    pub(crate) fn diagonal(&self) -> Pattern {
        fn slots<I: Buffer>(split: &Split<I>, nnz: usize) -> Pattern {
            let (mut offsets, mut slots) = (vec![I::of(0)], vec![]);
            for &[start, end] in &split.diagonal {
                slots.extend((start.get()..end.get()).map(|entry| I::of(split.rows.slot(entry))));
                offsets.push(I::of(slots.len()));
            }
            let shape = [split.diagonal.len(), nnz];
            trusted_csr(I::to_indices(&Arc::new(offsets)), I::to_indices(&Arc::new(slots)), shape, true, false)
        }
        let make = || with_split!(self.triangles(), split => slots(split, self.nnz()));
        self.convert(Target::Diagonal, || Conversion { pattern: make(), gather: None }).pattern
    }
}

/// The square pattern with a one on the diagonal wherever `kept`.
fn selection(kept: &[bool], like: &Pattern) -> Pattern {
    fn buffers<I: Buffer>(kept: &[bool], _like: &Rows<I>) -> Pattern {
        let (mut offsets, mut slots) = (vec![I::of(0)], vec![]);
        for (slot, &kept) in kept.iter().enumerate() {
            if kept {
                slots.push(I::of(slot));
            }
            offsets.push(I::of(slots.len()));
        }
        let shape = [kept.len(); 2];
        trusted_csr(I::to_indices(&Arc::new(offsets)), I::to_indices(&Arc::new(slots)), shape, true, true)
    }
    with_rows!(like.rows(), rows => buffers(kept, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows 0: (0,0); 1: (1,2) (1,1) (1,0); 2: (2,0) (2,1), no diagonal; unsorted.
    fn pattern() -> Pattern {
        Pattern::csr([0, 1, 4, 6], [0, 2, 1, 0, 0, 1], [3, 3]).unwrap()
    }

    #[test]
    fn rows_are_split_in_order_of_storage() {
        let pattern = pattern();
        let SplitView::I32(split) = pattern.triangles() else { panic!("32-bit") };
        assert_eq!(*split.rows.columns, [0, 0, 1, 2, 0, 1]);
        assert_eq!((0..6).map(|e| split.rows.slot(e)).collect::<Vec<_>>(), [0, 3, 2, 1, 4, 5]);
        assert_eq!(split.diagonal, [[0, 1], [2, 3], [6, 6]]);
        assert_eq!((split.missing, pattern.t().missing_diagonal()), (Some(2), Some(2)));
        assert_eq!((split.beside(1, false), split.beside(1, true)), (1..2, 3..4));
    }

    #[test]
    fn levels_are_an_order_of_elimination() {
        let pattern = pattern();
        let SplitView::I32(split) = pattern.triangles() else { panic!("32-bit") };
        assert_eq!(
            (&split.levels(false).order[..], &split.levels(false).bounds[..]),
            (&[0, 1, 2][..], &[0, 1, 2, 3][..])
        );
        assert_eq!((&split.levels(true).order[..], &split.levels(true).bounds[..]), (&[0, 2, 1][..], &[0, 2, 3][..]));
        let nothing = Pattern::csr([0i64], [0i64; 0], [0, 0]).unwrap();
        with_split!(nothing.triangles(), split => assert!(split.levels(false).bounds.len() <= 1));
    }

    #[test]
    fn a_sorted_pattern_shares_its_buffers() {
        let pattern = Pattern::eye(4).unwrap();
        let SplitView::I32(split) = pattern.triangles() else { panic!("32-bit") };
        assert!(split.shared && pattern.keep(Part { upper: true, unit: false }).is_none());
        assert_eq!(pattern.keep(Part { upper: true, unit: true }).unwrap().nnz(), 0);
    }
}
