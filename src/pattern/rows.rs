//! The row-ordered view: what every format lowers to, and all that a kernel needs to know of a pattern.

use std::sync::Arc;

/// An index type of the buffers: `i32` where shape and number of entries allow it, `i64` otherwise.
pub trait Index: Copy + Send + Sync + Ord + bytemuck::Pod + std::fmt::Debug + 'static {
    /// The largest value.
    const LIMIT: usize;
    /// As a `usize`. The buffers hold nothing negative, they were checked at construction.
    fn get(self) -> usize;
    /// From a `usize` that is known to be at most [`LIMIT`](Self::LIMIT).
    fn of(value: usize) -> Self;
    /// The rows, if their indices are 32-bit.
    fn narrow(rows: &Rows<Self>) -> Option<&Rows<i32>>;
}

macro_rules! index {
    ($signed:ty, $unsigned:ty, $narrow:expr) => {
        impl Index for $signed {
            const LIMIT: usize = <$signed>::MAX as usize;
            #[inline(always)]
            fn get(self) -> usize {
                self as $unsigned as usize
            }
            #[inline(always)]
            fn of(value: usize) -> Self {
                debug_assert!(value <= Self::LIMIT);
                value as $signed
            }
            fn narrow(rows: &Rows<Self>) -> Option<&Rows<i32>> {
                $narrow(rows)
            }
        }
    };
}
index!(i32, u32, Some);
index!(i64, u64, |_| None);

/// Where the value of an entry lies in the values tensor.
#[derive(Debug, Clone)]
pub enum Slot<I> {
    /// Entry `e` of the view has value `e`: kernels load nothing.
    Identity,
    /// Entry `e` has value `map[e]`.
    Map(Arc<Vec<I>>),
}

/// The entries of a matrix ordered by row; within a row, in the order of storage.
///
/// Entries of one row may be unsorted and may repeat a column: kernels add what they find.
#[derive(Debug, Clone)]
pub struct Rows<I> {
    /// Where each row starts: one more than there are rows.
    pub offsets: Arc<Vec<I>>,
    /// The column of each entry.
    pub columns: Arc<Vec<I>>,
    /// The place of each entry in the values.
    pub slots: Slot<I>,
    /// The number of columns of the matrix.
    pub n_cols: usize,
    /// The number of values; every slot is below it, and no two entries have the same.
    pub n_slots: usize,
    /// Bounds of consecutive row ranges with about the same number of entries, first 0, last the number of rows.
    /// A function of the pattern alone, so that nothing depends on the number of threads.
    pub chunks: Arc<Vec<usize>>,
}

impl<I: Index> Rows<I> {
    /// Takes checked buffers and cuts them into chunks.
    pub(crate) fn new(
        offsets: Arc<Vec<I>>,
        columns: Arc<Vec<I>>,
        slots: Slot<I>,
        n_cols: usize,
        n_slots: usize,
    ) -> Self {
        let chunks = Arc::new(chunks(&offsets));
        Self { offsets, columns, slots, n_cols, n_slots, chunks }
    }

    /// The number of rows.
    pub fn n_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The number of entries.
    pub fn n_entries(&self) -> usize {
        self.columns.len()
    }
}

/// How many ranges the rows are cut into: enough to balance any usual number of cores.
const CHUNKS: usize = 64;
/// Fewer entries and rows than this are not worth a range of their own.
const SMALLEST_CHUNK: usize = 4096;

/// Bounds of consecutive row ranges with about the same number of what the offsets count.
pub(crate) fn chunks<I: Index>(offsets: &[I]) -> Vec<usize> {
    let rows = offsets.len() - 1;
    // A row without entries still has its output written: it counts as one.
    let weight = |row: usize| offsets[row].get() + row;
    let total = weight(rows);
    let n = (total / SMALLEST_CHUNK).clamp(1, CHUNKS);
    let mut bounds: Vec<usize> = (0..n)
        .map(|chunk| {
            let target = (total as u128 * chunk as u128 / n as u128) as usize;
            partition_point(rows, |row| weight(row) < target)
        })
        .collect();
    bounds.push(rows);
    bounds.dedup();
    if bounds.len() == 1 {
        bounds.push(rows);
    }
    bounds
}

/// The first index below `len` that is not `before`, which holds for a prefix.
pub(crate) fn partition_point(len: usize, mut before: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
