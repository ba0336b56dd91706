//! Entries of a new matrix, row by row, before they are a pattern.

use crate::format::{Expr, LevelKind};
use crate::pattern::{Conversion, Index, Pattern, csr_of, with_rows};

/// How the entries of a pattern stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    /// Column by column instead of row by row.
    pub by_columns: bool,
    /// As coordinates instead of compressed.
    pub coordinates: bool,
}

impl Order {
    const CSR: Self = Self { by_columns: false, coordinates: false };

    pub(super) fn of(pattern: &Pattern) -> Self {
        let first = pattern.format().levels()[0];
        Self { by_columns: first.expr == Expr::Dim(1), coordinates: first.kind == LevelKind::Compressed }
    }

    /// That of all, CSR if they differ.
    pub(super) fn common<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Self {
        let mut orders = patterns.into_iter().map(Self::of);
        let first = orders.next().unwrap_or(Self::CSR);
        if orders.all(|order| order == first) { first } else { Self::CSR }
    }

    /// The matrix, or its transpose, whose rows stand one after the other.
    pub(super) fn lines(self, pattern: &Pattern) -> Pattern {
        if self.by_columns { pattern.t() } else { pattern.clone() }
    }

    /// What belongs to rows and columns, or to lines and what is across.
    pub(super) fn swap<T>(self, [rows, columns]: [T; 2]) -> [T; 2] {
        if self.by_columns { [columns, rows] } else { [rows, columns] }
    }
}

/// The slot of an entry that has no old value: it is 0.
pub(super) const ABSENT: usize = usize::MAX;

/// Columns, and slots of the old values, of new entries row by row.
#[derive(Debug)]
pub(super) struct Lists {
    offsets: Vec<usize>,
    columns: Vec<usize>,
    slots: Vec<usize>,
}

impl Lists {
    pub(super) fn new() -> Self {
        Self { offsets: vec![0], columns: vec![], slots: vec![] }
    }

    #[inline]
    pub(super) fn push(&mut self, column: usize, slot: usize) {
        self.columns.push(column);
        self.slots.push(slot);
    }

    pub(super) fn end_row(&mut self) {
        self.offsets.push(self.columns.len());
    }

    /// Ends a row whose entries are to stand by column, those of one column as they were pushed.
    pub(super) fn end_sorted_row(&mut self) {
        let start = self.offsets[self.offsets.len() - 1];
        let (columns, slots) = (&mut self.columns[start..], &mut self.slots[start..]);
        if !columns.is_sorted() {
            let mut row: Vec<_> = columns.iter().copied().zip(slots.iter().copied()).collect();
            row.sort_by_key(|&(column, _)| column);
            for (at, (column, slot)) in row.into_iter().enumerate() {
                (columns[at], slots[at]) = (column, slot);
            }
        }
        self.end_row();
    }

    pub(super) fn slots(&self) -> &[usize] {
        &self.slots
    }

    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether no position stands twice, and whether columns ascend in all rows.
    fn properties(&self) -> (bool, bool) {
        let (mut unique, mut ordered) = (true, true);
        let mut sorted = Vec::new();
        for bounds in self.offsets.windows(2) {
            let row = &self.columns[bounds[0]..bounds[1]];
            let in_order = row.is_sorted();
            ordered &= in_order;
            if unique && in_order {
                unique = row.windows(2).all(|pair| pair[0] != pair[1]);
            } else if unique {
                sorted.clear();
                sorted.extend_from_slice(row);
                sorted.sort_unstable();
                unique = sorted.windows(2).all(|pair| pair[0] != pair[1]);
            }
        }
        (unique, ordered)
    }

    /// The pattern of this shape, whose rows (columns, if that is the order) are those of the lists, and the gather of so many
    /// old values.
    pub(super) fn finish(self, order: Order, shape: [usize; 2], stored: usize) -> Conversion {
        let (unique, ordered) = self.properties();
        let mut pattern = csr_of(&self.offsets, &self.columns, order.swap(shape), unique, ordered);
        if order.coordinates {
            pattern = pattern.to_coo().pattern;
        }
        let kept = self.slots.len();
        let is_identity = kept == stored && self.slots.iter().enumerate().all(|(at, &slot)| at == slot);
        Conversion { pattern: order.lines(&pattern), gather: (!is_identity).then(|| slots_of(self.slots, stored)) }
    }
}

/// The gather that takes these slots of so many values, and 0 for those that are absent.
pub(super) fn slots_of(slots: Vec<usize>, stored: usize) -> Pattern {
    let mut offsets = Vec::with_capacity(slots.len() + 1);
    offsets.push(0);
    let mut present = 0;
    for &slot in &slots {
        present += usize::from(slot != ABSENT);
        offsets.push(present);
    }
    let rows = slots.len();
    let columns: Vec<usize> = slots.into_iter().filter(|&slot| slot != ABSENT).collect();
    csr_of(&offsets, &columns, [rows, stored], true, true)
}

/// The entries for which `keep(row, column, slot)` holds; `None` if it does for all.
pub(super) fn filter(pattern: &Pattern, keep: impl Fn(usize, usize, usize) -> bool) -> Option<Conversion> {
    let order = Order::of(pattern);
    let mut lists = Lists::new();
    with_rows!(order.lines(pattern).rows(), rows => {
        for line in 0..rows.n_rows() {
            for entry in rows.range(line) {
                let (across, slot) = (rows.columns[entry].get(), rows.slot(entry));
                let [row, column] = order.swap([line, across]);
                if keep(row, column, slot) {
                    lists.push(across, slot);
                }
            }
            lists.end_row();
        }
    });
    (lists.len() < pattern.nnz()).then(|| lists.finish(order, pattern.shape(), pattern.nnz()))
}
