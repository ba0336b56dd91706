//! Sorting CSR and CSC across their offsets: their transpose.

use super::indices::Buffer;
use super::{IndexWidth, Pattern, RowView, Rows, Slot};
use crate::backend::{alloc, simd};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// What goes with the entries when they are sorted.
pub(super) trait Follow {
    /// Something is soon written at this place, or near it.
    fn expect(&self, at: usize);
    /// Entry `entry` comes to `at`.
    ///
    /// # Safety
    ///
    /// Both are below the number of entries.
    unsafe fn place(&mut self, at: usize, entry: usize);
}

/// Nothing.
impl Follow for () {
    #[inline(always)]
    fn expect(&self, _: usize) {}
    #[inline(always)]
    unsafe fn place(&mut self, _: usize, _: usize) {}
}

/// Values and where they are moved to, each as long as there are entries.
struct Values<'a, E> {
    from: &'a [E],
    to: &'a mut [MaybeUninit<E>],
}

impl<E: Copy> Follow for Values<'_, E> {
    #[inline(always)]
    fn expect(&self, at: usize) {
        simd::prefetch(self.to.as_ptr().wrapping_add(at), 1);
    }
    #[inline(always)]
    unsafe fn place(&mut self, at: usize, entry: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.to.get_unchecked_mut(at).write(*self.from.get_unchecked(entry)) };
    }
}

/// The slots and what else there is.
struct All<'a, I, V> {
    slots: &'a mut [MaybeUninit<I>],
    values: &'a mut V,
}

impl<I: Buffer, V: Follow> Follow for All<'_, I, V> {
    #[inline(always)]
    fn expect(&self, at: usize) {
        simd::prefetch(self.slots.as_ptr().wrapping_add(at), 1);
        self.values.expect(at);
    }
    #[inline(always)]
    unsafe fn place(&mut self, at: usize, entry: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            self.slots.get_unchecked_mut(at).write(I::of(entry));
            self.values.place(at, entry);
        }
    }
}

/// So many entries ahead memory is asked for where they will be written.
const AHEAD: usize = 16;
/// More rows than this, and the lines being written at the ends of all of them outgrow a near cache.
const MANY_ROWS: usize = 1 << 13;

impl Pattern {
    /// Whether this is CSR or CSC to be read across its offsets.
    pub(crate) fn is_across(&self) -> bool {
        matches!((self.inner.format.name(), self.transposed), (Some("CSR"), true) | (Some("CSC"), false))
    }

    /// Makes the row-ordered view of what [`is_across`](Self::is_across) and moves values into its order in the same pass.
    /// Returns false, with nothing done, if there is a view already or it is not made so.
    ///
    /// # Panics
    ///
    /// If values or places are not as many as the entries.
    pub(crate) fn sort_with<E: Copy>(&self, values: &[E], to: &mut [MaybeUninit<E>]) -> bool {
        assert_eq!((values.len(), to.len()), (self.nnz(), self.nnz()), "values");
        let mut moved = false;
        if self.is_across() {
            let mut values = Values { from: values, to };
            self.view().get_or_init(|| {
                moved = true;
                match self.index_width() {
                    IndexWidth::I32 => RowView::I32(self.sort_across(&mut values)),
                    IndexWidth::I64 => RowView::I64(self.sort_across(&mut values)),
                }
            });
        }
        moved
    }

    /// The row-ordered view of CSR and CSC across their offsets, by counting: columns come out ascending, and what is stored
    /// at one position stays in the order of storage.
    pub(super) fn sort_across<I: Buffer>(&self, values: &mut impl Follow) -> Rows<I> {
        let (positions, coordinates) = self.inner.compressed_buffers();
        let (positions, coordinates) = (I::share(positions), I::share(coordinates));
        let ([n_rows, n_cols], entries) = (self.shape(), coordinates.len());
        let mut next = starts(&coordinates, n_rows);
        let (mut columns, mut slots) = (alloc::output::<I>(entries), alloc::output::<I>(entries));
        let is_far = n_rows > MANY_ROWS && simd::are_irregular(&positions, &coordinates, &(0..positions.len() - 1));
        let mut all = All { slots: &mut slots, values };
        // SAFETY: the pattern was checked: coordinates are below the number of rows, and positions ascend to the number of
        // entries. So each entry gets a place of its own, and all are written.
        let [columns, slots] = unsafe {
            if is_far && self.inner.format.is_ordered() {
                // A place in one buffer is far enough. What the others hold follows in the order of the rows: in each column
                // entries are stored with rows ascending.
                scatter(&positions, &coordinates, &mut next, &mut columns, &mut ());
                let mut next = positions.to_vec();
                for at in 0..entries {
                    let column = columns.get_unchecked(at).assume_init();
                    all.place(at, advance(next.get_unchecked_mut(column.get())));
                }
            } else {
                scatter(&positions, &coordinates, &mut next, &mut columns, &mut all);
            }
            [columns, slots].map(|buffer| alloc::finished(buffer))
        };
        // Each row's end now stands where it started: these are the offsets.
        next.truncate(n_rows + 1);
        Rows::new(Arc::new(next), Arc::new(columns), Slot::Map(Arc::new(slots)), n_cols, entries)
    }
}

/// Where row `r` starts, at `r + 1`.
fn starts<I: Buffer>(row_of_entry: &[I], n_rows: usize) -> Vec<I> {
    let mut starts = vec![I::of(0); n_rows + 2];
    for row in row_of_entry {
        // SAFETY: rows of entries are below the number of rows.
        advance(unsafe { starts.get_unchecked_mut(row.get() + 2) });
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += start.get();
        *start = I::of(sum);
    }
    starts
}

/// Adds one, and returns what it was.
#[inline(always)]
fn advance<I: Buffer>(next: &mut I) -> usize {
    let at = next.get();
    *next = I::of(at + 1);
    at
}

/// Puts entries with their columns where their rows go on.
///
/// # Safety
///
/// The offsets of the columns ascend to the number of entries; for each row, `next` has the place of its first entry at
/// `row + 1`.
unsafe fn scatter<I: Buffer>(
    offsets: &[I],
    rows: &[I],
    next: &mut [I],
    columns: &mut [MaybeUninit<I>],
    follow: &mut impl Follow,
) {
    for column in 0..offsets.len() - 1 {
        for entry in offsets[column].get()..offsets[column + 1].get() {
            // SAFETY: the caller's promise; there is an entry, so there is a last.
            unsafe {
                let soon = rows.get_unchecked((entry + AHEAD).min(rows.len() - 1)).get();
                let soon = next.get_unchecked(soon + 1).get();
                simd::prefetch(columns.as_ptr().wrapping_add(soon), 1);
                follow.expect(soon);
                let at = advance(next.get_unchecked_mut(rows.get_unchecked(entry).get() + 1));
                columns.get_unchecked_mut(at).write(I::of(column));
                follow.place(at, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::with_rows;
    use super::*;
    use crate::pattern::Index;

    /// Compares the view with a stable sort of the entries by row.
    fn check(pattern: &Pattern) {
        assert!(pattern.is_across());
        let (rows, columns) = pattern.coordinates();
        let mut order: Vec<usize> = (0..pattern.nnz()).collect();
        order.sort_by_key(|&entry| rows[entry]);
        let values: Vec<f64> = (0..pattern.nnz()).map(|entry| entry as f64 + 0.5).collect();
        let mut moved = vec![MaybeUninit::new(f64::NAN); values.len()];
        let pattern = pattern.without_plans();
        assert!(pattern.sort_with(&values, &mut moved));
        // SAFETY: initialised from the start.
        let moved: Vec<f64> = moved.into_iter().map(|x| unsafe { x.assume_init() }).collect();
        assert_eq!(moved, order.iter().map(|&entry| values[entry]).collect::<Vec<_>>());
        for view in [pattern.rows(), pattern.without_plans().rows()] {
            with_rows!(view, view => {
                assert_eq!(order, (0..order.len()).map(|at| view.slot(at)).collect::<Vec<_>>());
                assert!(view.columns.iter().map(|c| c.get()).eq(order.iter().map(|&entry| columns[entry])));
                let mut sorted = rows.clone();
                sorted.sort_unstable();
                let ends = (0..=view.n_rows()).map(|row| sorted.partition_point(|&r| r < row));
                assert!(view.offsets.iter().map(|o| o.get()).eq(ends));
            });
        }
        assert!(!pattern.sort_with(&values, &mut vec![MaybeUninit::uninit(); values.len()]), "there is a view");
    }

    /// `n` rows with a few entries each, anywhere or near the diagonal.
    fn csr(n: usize, anywhere: bool, ordered: bool, width: IndexWidth) -> Pattern {
        let (mut offsets, mut columns) = (vec![0i64], Vec::new());
        for row in 0..n {
            let at = |e: usize| ((if anywhere { row * 7919 + e * 104_729 } else { row + e * e }) % n) as i64;
            let mut of_row: Vec<i64> = (0..row % 4).map(at).collect();
            of_row.extend_from_within(..of_row.len() / 3); // duplicates
            if ordered {
                of_row.sort_unstable();
            }
            columns.extend(of_row);
            offsets.push(columns.len() as i64);
        }
        Pattern::csr(offsets, columns, [n, n]).unwrap().with_index_width(width).unwrap()
    }

    #[test]
    fn a_stable_sort_by_row() {
        for n in [0, 1, 5, MANY_ROWS + 3] {
            for (anywhere, ordered) in [(true, true), (true, false), (false, true)] {
                let pattern = csr(n, anywhere, ordered, IndexWidth::I32);
                check(&pattern.t());
                let (positions, coordinates) = pattern.inner.compressed_buffers();
                check(&Pattern::csc(positions.clone(), coordinates.clone(), [n, n]).unwrap());
            }
        }
        check(&csr(MANY_ROWS + 3, true, true, IndexWidth::I64).t());
    }
}
