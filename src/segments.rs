//! Segments: which rows of a dense tensor belong together.

use crate::error::SegmentsError;
use crate::pattern::{Index, IndexWidth, Indices, IntoIndices, MemoryUsage, Pattern, trusted_csr, with_indices};
use burn::tensor::Device;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A partition of the rows of a dense tensor into numbered segments, each row in exactly one of them; segments may be empty.
///
/// Checked once, immutable, shared, and cheap to clone. What operations plan on it (the rows of each segment, buffers on
/// devices) is kept with it: make it once, outside of the training loop.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let lengths = Segments::from_lengths([1, 0, 2])?;
/// assert_eq!((lengths.len(), lengths.rows()), (3, 3));
/// assert!(lengths.is_sorted());
///
/// let by_index = Segments::from_ids([2, 0, 2], 3)?; // in any order
/// assert_eq!(by_index.lengths().collect::<Vec<_>>(), [1, 0, 2]);
/// assert_eq!(by_index.order().unwrap().iter().collect::<Vec<_>>(), [1, 0, 2]);
///
/// let error = Segments::from_ids([2, 0, 3], 3).unwrap_err();
/// assert_eq!(error.to_string(), "segment id 3 at position 2 is out of range for 3 segments");
/// # Ok::<(), SegmentsError>(())
/// ```
#[derive(Clone)]
pub struct Segments(Arc<Inner>);

struct Inner {
    /// Where each segment starts among the rows in the order of segments, and where the last ends.
    offsets: Indices,
    /// The rows in the order of segments; `None` if they lie so.
    order: Option<Indices>,
    rows: usize,
    ids: OnceLock<Indices>,
    pattern: OnceLock<Pattern>,
}

impl Segments {
    fn new(offsets: Indices, order: Option<Indices>, rows: usize) -> Self {
        let (ids, pattern) = Default::default();
        Self(Arc::new(Inner { offsets, order, rows, ids, pattern }))
    }

    /// Consecutive segments of so many rows each.
    ///
    /// # Errors
    /// If a length is negative, or they add up to more than can be counted.
    pub fn from_lengths(lengths: impl IntoIndices) -> Result<Self, SegmentsError> {
        let lengths = lengths.into_indices();
        if let Some(position) = lengths.position(|length| length < 0) {
            return Err(SegmentsError::NegativeLength { position, value: lengths.get(position) });
        }
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        let mut end = 0_i128;
        offsets.push(0);
        for segment in 0..lengths.len() {
            end += lengths.get(segment);
            if end >= i64::MAX.into() {
                return Err(SegmentsError::TooManyRows { rows: end as u128 });
            }
            offsets.push(end as usize);
        }
        let rows = end as usize;
        Ok(Self::new(Indices::of_width(width(lengths.len(), rows), &offsets), None, rows))
    }

    /// Consecutive segments: segment `s` has the rows `offsets[s]..offsets[s + 1]`, and the last offset is the number of rows.
    ///
    /// # Errors
    /// If there is no offset, the first is not 0, or one is below its predecessor.
    pub fn from_offsets(offsets: impl IntoIndices) -> Result<Self, SegmentsError> {
        let offsets = offsets.into_indices();
        if offsets.len() == 0 {
            return Err(SegmentsError::NoOffsets);
        }
        if offsets.get(0) != 0 {
            return Err(SegmentsError::FirstOffset { value: offsets.get(0) });
        }
        for position in 1..offsets.len() {
            let (previous, value) = (offsets.get(position - 1), offsets.get(position));
            if value < previous {
                return Err(SegmentsError::OffsetsDecrease { position, previous, value });
            }
        }
        let last = offsets.get(offsets.len() - 1);
        if last >= i64::MAX.into() {
            return Err(SegmentsError::TooManyRows { rows: last as u128 });
        }
        let width = width(offsets.len() - 1, last as usize);
        Ok(Self::new(offsets.into_width(width), None, last as usize))
    }

    /// Row `i` belongs to segment `ids[i]`, one of `segments`. The ids may stand in any order and repeat.
    ///
    /// Ids that do not ascend are sorted here, once, by counting; rows of one segment stay in their order.
    ///
    /// # Errors
    /// If an id is negative, or not below `segments`.
    pub fn from_ids(ids: impl IntoIndices, segments: usize) -> Result<Self, SegmentsError> {
        let ids = ids.into_indices();
        if segments >= i64::MAX as usize {
            return Err(SegmentsError::TooManySegments { segments });
        }
        if let Some(position) = ids.position(|id| id < 0 || id as u64 >= segments as u64) {
            return Err(SegmentsError::IdOutOfRange { position, value: ids.get(position), segments });
        }
        let rows = ids.len();
        let width = width(segments, rows);
        let ids = ids.into_width(width);
        let (offsets, order) = with_indices!(&ids, ids => count_and_sort(ids, segments));
        let made =
            Self::new(Indices::of_width(width, &offsets), order.map(|order| Indices::of_width(width, &order)), rows);
        made.0.ids.get_or_init(|| ids);
        Ok(made)
    }

    /// The number of segments, empty ones included.
    pub fn len(&self) -> usize {
        self.0.offsets.len() - 1
    }

    /// Whether there is no segment at all, not even an empty one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows in all.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// Where each segment starts in the [`order`](Self::order) of segments; one more than there are segments.
    pub fn offsets(&self) -> &Indices {
        &self.0.offsets
    }

    /// The places of a segment's rows in the [`order`](Self::order) of segments.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn range(&self, segment: usize) -> Range<usize> {
        self.0.offsets.get(segment)..self.0.offsets.get(segment + 1)
    }

    /// The number of rows of each segment.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        (0..self.len()).map(|segment| self.range(segment).len())
    }

    /// The rows, segment after segment, ascending in each; `None` if they lie in that order.
    pub fn order(&self) -> Option<&Indices> {
        self.0.order.as_ref()
    }

    /// Whether the rows lie segment after segment.
    pub fn is_sorted(&self) -> bool {
        self.0.order.is_none()
    }

    /// The segment of each row. Made on first use, unless these segments were made of it.
    pub fn ids(&self) -> &Indices {
        self.0.ids.get_or_init(|| {
            // Segments that were made of ids have kept them, so that the rows lie in order here.
            let mut ids = Vec::with_capacity(self.rows());
            for segment in 0..self.len() {
                ids.resize(self.range(segment).end, segment);
            }
            Indices::of_width(self.0.offsets.width(), &ids)
        })
    }

    /// The segments as a pattern in CSR, segments x rows, with an entry where a row belongs to a segment. Made on first use.
    pub fn pattern(&self) -> &Pattern {
        self.0.pattern.get_or_init(|| {
            let in_order = || Indices::of_width(self.0.offsets.width(), &(0..self.rows()).collect::<Vec<_>>());
            let columns = self.0.order.clone().unwrap_or_else(in_order);
            trusted_csr(self.0.offsets.clone(), columns, [self.len(), self.rows()], true, true)
        })
    }

    /// Copies to a device, now instead of at first use, what operations read there.
    pub fn prepare(&self, device: &Device) {
        self.pattern().prepare(device);
    }

    /// Lets go of the buffers on a device. They are copied again when they are needed.
    pub fn release(&self, device: &Device) {
        if let Some(pattern) = self.0.pattern.get() {
            pattern.release(device);
        }
    }

    /// What the segments hold in memory at the moment, plans apart from offsets and order.
    pub fn memory_usage(&self) -> MemoryUsage {
        let Inner { offsets, order, ids, pattern, .. } = &*self.0;
        let bytes = |indices: Option<&Indices>| indices.map_or(0, Indices::bytes);
        let indices = offsets.bytes() + bytes(order.as_ref());
        let planned = pattern.get().map(Pattern::memory_usage).unwrap_or_default();
        // The pattern shares what it can.
        let beside = planned.indices - planned.indices.min(indices);
        MemoryUsage { indices, plans: bytes(ids.get()) + beside + planned.plans, device: planned.device }
    }

    /// Whether both put the same rows into the same segments.
    pub fn same_segments(&self, other: &Self) -> bool {
        let [a, b] = [&self.0, &other.0];
        Arc::ptr_eq(a, b) || (a.offsets == b.offsets && a.order == b.order)
    }
}

/// The same as [`same_segments`](Segments::same_segments).
impl PartialEq for Segments {
    fn eq(&self, other: &Self) -> bool {
        self.same_segments(other)
    }
}
impl Eq for Segments {}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments({self})")
    }
}

impl fmt::Display for Segments {
    /// `3 segments of 3 rows, 1 empty, the longest 2, in order`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} segments of {} rows", self.len(), self.rows())?;
        let empty = self.lengths().filter(|&length| length == 0).count();
        if empty > 0 {
            write!(f, ", {empty} empty")?;
        }
        if let Some(longest) = self.lengths().max() {
            write!(f, ", the longest {longest}")?;
        }
        f.write_str(if self.is_sorted() { ", in order" } else { ", by index" })
    }
}

/// The narrowest width for these sizes.
fn width(segments: usize, rows: usize) -> IndexWidth {
    if segments.max(rows) <= i32::MAX as usize { IndexWidth::I32 } else { IndexWidth::I64 }
}

/// Offsets of the segments, and the rows in their order unless that is their own. The ids are in range.
fn count_and_sort<I: Index>(ids: &[I], segments: usize) -> (Vec<usize>, Option<Vec<usize>>) {
    let mut offsets = vec![0; segments + 1];
    for id in ids {
        offsets[id.get() + 1] += 1;
    }
    for segment in 0..segments {
        offsets[segment + 1] += offsets[segment];
    }
    if ids.is_sorted() {
        return (offsets, None);
    }
    let mut next = offsets.clone();
    let mut order = vec![0; ids.len()];
    for (row, id) in ids.iter().enumerate() {
        let at = &mut next[id.get()];
        order[*at] = row;
        *at += 1;
    }
    (offsets, Some(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_ways_agree() {
        let lengths = Segments::from_lengths([1, 0, 2]).unwrap();
        let offsets = Segments::from_offsets([0_i64, 1, 1, 3]).unwrap();
        let ids = Segments::from_ids([0_usize, 2, 2], 3).unwrap();
        for segments in [&lengths, &offsets, &ids] {
            assert_eq!(segments, &lengths);
            assert_eq!(segments.offsets().iter().collect::<Vec<_>>(), [0, 1, 1, 3]);
            assert_eq!(segments.ids().iter().collect::<Vec<_>>(), [0, 2, 2]);
            assert_eq!(segments.pattern().shape(), [3, 3]);
            assert_eq!(segments.offsets().width(), IndexWidth::I32);
        }
        assert_eq!(lengths.to_string(), "3 segments of 3 rows, 1 empty, the longest 2, in order");
    }

    #[test]
    fn unsorted_ids_are_sorted_stably() {
        let segments = Segments::from_ids([3, 1, 3, 0, 1], 5).unwrap();
        assert!(!segments.is_sorted());
        assert_eq!(segments.order().unwrap().iter().collect::<Vec<_>>(), [3, 1, 4, 0, 2]);
        assert_eq!(segments.lengths().collect::<Vec<_>>(), [1, 2, 0, 2, 0]);
        assert_eq!(segments.ids().iter().collect::<Vec<_>>(), [3, 1, 3, 0, 1]);
        assert_ne!(segments, Segments::from_lengths([1, 2, 0, 2, 0]).unwrap());
    }

    #[test]
    fn nothing_is_valid() {
        for (segments, n) in [
            (Segments::from_lengths([0_i32; 0]).unwrap(), 0),
            (Segments::from_offsets([0]).unwrap(), 0),
            (Segments::from_ids([0_i64; 0], 4).unwrap(), 4),
            (Segments::from_lengths([0, 0]).unwrap(), 2),
        ] {
            assert_eq!((segments.len(), segments.rows(), segments.is_sorted()), (n, 0, true));
            assert_eq!(segments.is_empty(), n == 0);
            assert_eq!(segments.ids().len(), 0);
        }
    }

    #[test]
    fn faults_are_named() {
        use SegmentsError::*;
        assert_eq!(Segments::from_lengths([1, -2]).unwrap_err(), NegativeLength { position: 1, value: -2 });
        let rows = 2 * (i64::MAX as u128);
        assert_eq!(Segments::from_lengths([i64::MAX, i64::MAX]).unwrap_err(), TooManyRows { rows: rows / 2 });
        assert_eq!(Segments::from_offsets([0_i32; 0]).unwrap_err(), NoOffsets);
        assert_eq!(Segments::from_offsets([1, 2]).unwrap_err(), FirstOffset { value: 1 });
        let decrease = OffsetsDecrease { position: 2, previous: 3, value: 2 };
        assert_eq!(Segments::from_offsets([0, 3, 2]).unwrap_err(), decrease);
        for value in [-1, 3] {
            let error = IdOutOfRange { position: 2, value: value.into(), segments: 3 };
            assert_eq!(Segments::from_ids([2, 0, value], 3).unwrap_err(), error);
        }
        assert!(matches!(Segments::from_ids([u64::MAX], 3).unwrap_err(), IdOutOfRange { position: 0, .. }));
        assert!(matches!(Segments::from_ids([0], usize::MAX).unwrap_err(), TooManySegments { .. }));
    }
}
