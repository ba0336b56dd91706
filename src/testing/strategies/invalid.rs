use super::matrices::{Layout, entries, offsets};
use super::value;
use crate::error::{Axis, PatternError};
use crate::format::TensorFormat;
use crate::pattern::{Pattern, RawIndices};
use proptest::collection::SizeRange;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The parts of a matrix, unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The format.
    pub layout: Layout,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Row indices in COO, offsets in CSR and CSC.
    pub outer: Vec<i64>,
    /// Column indices in COO and CSR, row indices in CSC.
    pub inner: Vec<i64>,
    /// Whether they are said to be sorted and unique.
    pub canonical: bool,
}

impl Parts {
    /// What the constructor makes of them: [`Pattern::coo`], [`csr`](Pattern::csr) or [`csc`](Pattern::csc), and for parts that
    /// are said to be sorted and unique [`Pattern::from_levels`].
    ///
    /// # Errors
    /// If they are not valid.
    pub fn build(&self) -> Result<Pattern, PatternError> {
        let (outer, inner) = (self.outer.clone(), self.inner.clone());
        if !self.canonical {
            return match self.layout {
                Layout::Coo => Pattern::coo(outer, inner, self.shape),
                Layout::Csr => Pattern::csr(outer, inner, self.shape),
                Layout::Csc => Pattern::csc(outer, inner, self.shape),
            };
        }
        let entries = inner.len() as i64;
        let [outer, inner] = [outer, inner].map(|indices| Some(RawIndices::I64(indices)));
        let levels = match self.layout {
            Layout::Coo => {
                vec![(Some(RawIndices::I64(vec![0, entries])), outer), (None, inner)]
            }
            _ => vec![(None, None), (outer, inner)],
        };
        Pattern::from_levels(&self.format(), self.shape, levels)
    }

    /// The format with its promises.
    fn format(&self) -> TensorFormat {
        match self.layout {
            Layout::Coo => TensorFormat::coo(),
            Layout::Csr => TensorFormat::csr(),
            Layout::Csc => TensorFormat::csc(),
        }
    }
}

/// What can be wrong.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Length,
    FirstOffset,
    OffsetsDecrease,
    LastOffset,
    OuterIndex,
    InnerIndex,
    Unordered,
    Duplicate,
    TooLarge,
}

/// Parts with one fault, and the error that their constructor must return: offsets too few or too many, not from 0, decreasing,
/// or not to the end; indices that are negative, just beyond the end or far beyond; lists of different lengths; order or
/// uniqueness promised and broken; a shape that can't be indexed.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::invalid(1..9, 1..9), |(parts, error)| {
///     prop_assert_eq!(parts.build().unwrap_err(), error);
///     Ok(())
/// }).unwrap();
/// ```
pub fn invalid(
    rows: impl Into<SizeRange>,
    columns: impl Into<SizeRange>,
) -> impl Strategy<Value = (Parts, PatternError)> {
    use Fault::*;
    let faults =
        vec![Length, FirstOffset, OffsetsDecrease, LastOffset, OuterIndex, InnerIndex, Unordered, Duplicate, TooLarge];
    let beyond = prop_oneof![Just(0i64), 1i64..9, Just(i64::MAX)];
    (
        entries(rows.into(), columns.into(), value(), false),
        select(&Layout::ALL),
        select(faults),
        any::<Index>(),
        beyond,
        any::<bool>(),
    )
        .prop_filter_map("no such fault in so small a matrix", |drawn| {
            let (entries, layout, fault, at, beyond, below) = drawn;
            // All three from sorted and unique entries, so that the fault is the only one.
            let entries = match layout {
                Layout::Csc => entries.transposed().sorted().transposed(),
                _ => entries.sorted(),
            };
            let [rows, columns]: [Vec<usize>; 2] = [
                entries.list.iter().map(|entry| entry.0).collect(),
                entries.list.iter().map(|entry| entry.1).collect(),
            ];
            let (outer, inner) = match layout {
                Layout::Coo => (rows, columns),
                Layout::Csr => (offsets(&rows, entries.shape[0]), columns),
                Layout::Csc => (offsets(&columns, entries.shape[1]), rows),
            };
            let wide = |indices: Vec<usize>| indices.into_iter().map(|i| i as i64).collect();
            let (outer, inner) = (wide(outer), wide(inner));
            let parts = Parts { layout, shape: entries.shape, outer, inner, canonical: false };
            parts.break_by(fault, at, beyond, below)
        })
}

impl Parts {
    /// The axes of the outer and of the inner list.
    fn axes(&self) -> [Axis; 2] {
        match self.layout {
            Layout::Csc => [Axis::Column, Axis::Row],
            _ => [Axis::Row, Axis::Column],
        }
    }

    /// With one fault, and the error for it; `None` where there is no place for it.
    fn break_by(mut self, fault: Fault, at: Index, beyond: i64, below: bool) -> Option<(Self, PatternError)> {
        let [axis, inner_axis] = self.axes();
        let entries = self.inner.len();
        let compressed = self.layout != Layout::Coo;
        let outside = |bound: usize| match below {
            true => (-1 - beyond).min(-1),
            false => beyond.saturating_add(bound as i64),
        };
        let error = match fault {
            Fault::Length if compressed => {
                let count = self.outer.len() - 1;
                match below {
                    true => drop(self.outer.pop()),
                    false => self.outer.push(entries as i64),
                }
                PatternError::OffsetsLength { axis, found: self.outer.len(), count }
            }
            Fault::Length => {
                match below {
                    true => drop(self.outer.pop()?),
                    false => self.outer.push(0),
                }
                PatternError::Lengths {
                    first: "row indices",
                    first_length: self.outer.len(),
                    second: "column indices",
                    second_length: entries,
                }
            }
            Fault::FirstOffset if compressed => {
                let value = if below { -1 - beyond.min(9) } else { 1 + beyond.min(9) };
                self.outer[0] = value;
                PatternError::FirstOffset { axis, value: value.into() }
            }
            Fault::OffsetsDecrease if compressed && self.outer.len() > 1 => {
                let position = 1 + at.index(self.outer.len() - 1);
                let previous = self.outer[position - 1];
                let value = previous.saturating_sub(1).saturating_sub(beyond);
                self.outer[position] = value;
                let (previous, value) = (previous.into(), value.into());
                PatternError::OffsetsDecrease { axis, position, previous, value }
            }
            Fault::LastOffset if compressed && self.outer.len() > 1 => {
                let last = self.outer.last_mut()?;
                *last = last.saturating_add(1).saturating_add(beyond);
                let value = (*last).into();
                PatternError::LastOffset { axis, value, entries }
            }
            Fault::OuterIndex if !compressed && entries > 0 => {
                let (position, bound) = (at.index(entries), self.shape[0]);
                self.outer[position] = outside(bound);
                self.out_of_range(Axis::Row, position, self.outer[position], None)
            }
            Fault::InnerIndex if entries > 0 => {
                let position = at.index(entries);
                self.inner[position] = outside(self.shape[inner_axis as usize]);
                let group = compressed.then(|| {
                    let next = self.outer.partition_point(|&start| start <= position as i64);
                    (next - 1, self.outer[next - 1] as usize, self.outer[next] as usize)
                });
                self.out_of_range(inner_axis, position, self.inner[position], group)
            }
            Fault::Unordered | Fault::Duplicate => return self.break_promise(fault, at),
            Fault::TooLarge => {
                let large = if below { usize::MAX } else { i64::MAX as usize };
                self.shape[at.index(2)] = large;
                let [rows, columns] = self.shape;
                PatternError::TooLarge { rows, columns }
            }
            _ => return None,
        };
        Some((self, error))
    }

    fn out_of_range(
        &self,
        axis: Axis,
        position: usize,
        value: i64,
        group: Option<(usize, usize, usize)>,
    ) -> PatternError {
        let (shape, bound, value) = (self.shape, self.shape[axis as usize], value.into());
        PatternError::IndexOutOfRange { axis, position, value, bound, shape, group }
    }

    /// Two neighbours of one row (column) exchanged, or made equal.
    fn break_promise(mut self, fault: Fault, at: Index) -> Option<(Self, PatternError)> {
        let compressed = self.layout != Layout::Coo;
        let line = |entry: usize| match compressed {
            true => self.outer.partition_point(|&start| start <= entry as i64) - 1,
            false => self.outer[entry] as usize,
        };
        let seconds = 1..self.inner.len().max(1);
        let seconds: Vec<usize> = seconds.filter(|&e| line(e - 1) == line(e)).collect();
        let position = *seconds.get(at.index(seconds.len().max(1)))?;
        let outer = line(position);
        match fault {
            Fault::Duplicate => self.inner[position] = self.inner[position - 1],
            _ => self.inner.swap(position - 1, position),
        }
        let inner = self.inner[position] as usize;
        let (row, column) = match self.layout {
            Layout::Csc => (inner, outer),
            _ => (outer, inner),
        };
        self.canonical = true;
        let format = self.format();
        let error = match fault {
            Fault::Duplicate => PatternError::Duplicate { position, row, column, format },
            _ => PatternError::Unordered { position, row, column, format },
        };
        Some((self, error))
    }
}
