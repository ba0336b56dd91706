use super::value;
use crate::io::HostMatrix;
use crate::pattern::Pattern;
use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The format that a matrix is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Coordinates.
    Coo,
    /// Compressed sparse rows.
    Csr,
    /// Compressed sparse columns.
    Csc,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 3] = [Layout::Coo, Layout::Csr, Layout::Csc];
}

/// Any matrix in COO, CSR or CSC, or the transpose of one, with sizes from these ranges and [`value`]s.
///
/// Up to twice as many entries as the larger size; some rows and columns are empty, some matrices too. Entries stand in any
/// order that the format allows and may repeat a position, zeros are stored: each of this often, none of it always.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::matrix(0..9, 0..9), |a| {
///     prop_assert_eq!(a.pattern().t().t(), a.pattern().clone());
///     Ok(())
/// }).unwrap();
/// ```
pub fn matrix(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    matrix_with(rows, columns, value())
}

/// [`matrix`] with values of another strategy, [`hostile`](super::hostile) for instance.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::matrix_with(0..9, 0..9, strategies::hostile()), |a| {
///     prop_assert_eq!(a.values().len(), a.nnz());
///     Ok(())
/// }).unwrap();
/// ```
pub fn matrix_with(
    rows: impl Into<SizeRange>,
    columns: impl Into<SizeRange>,
    values: impl Strategy<Value = f64>,
) -> impl Strategy<Value = HostMatrix> {
    let (rows, columns) = (rows.into(), columns.into());
    (select(&Layout::ALL), any::<bool>(), entries(rows, columns, values, true)).prop_map(
        |(layout, transposed, entries)| match transposed {
            true => {
                let a = entries.transposed().stored(layout);
                HostMatrix::new(a.pattern().t(), a.values().to_vec()).expect("as many values")
            }
            false => entries.stored(layout),
        },
    )
}

/// [`matrix`], in coordinates only.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::coo(0..9, 0..9), |a| {
///     prop_assert_eq!(a.pattern().format().name(), Some("COO"));
///     Ok(())
/// }).unwrap();
/// ```
pub fn coo(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    entries(rows.into(), columns.into(), value(), true).prop_map(|e| e.stored(Layout::Coo))
}

/// [`matrix`], in compressed sparse rows only.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::csr(0..9, 0..9), |a| {
///     prop_assert_eq!(a.pattern().format().name(), Some("CSR"));
///     Ok(())
/// }).unwrap();
/// ```
pub fn csr(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    entries(rows.into(), columns.into(), value(), true).prop_map(|e| e.stored(Layout::Csr))
}

/// [`matrix`], in compressed sparse columns only.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::csc(0..9, 0..9), |a| {
///     prop_assert_eq!(a.pattern().format().name(), Some("CSC"));
///     Ok(())
/// }).unwrap();
/// ```
pub fn csc(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    entries(rows.into(), columns.into(), value(), true).prop_map(|e| e.stored(Layout::Csc))
}

/// A matrix in CSR with sorted rows and each position at most once.
///
/// ```
/// use sparsegrad::{prelude::*, testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}}};
///
/// TestRunner::default().run(&strategies::canonical(0..9, 0..9), |a| {
///     prop_assert_eq!(a.pattern().format(), TensorFormat::csr());
///     Ok(())
/// }).unwrap();
/// ```
pub fn canonical(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    entries(rows.into(), columns.into(), value(), false).prop_map(|e| e.sorted().stored(Layout::Csr))
}

/// The pattern of a [`matrix`].
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::pattern(0..9, 0..9), |pattern| {
///     prop_assert_eq!(pattern.coordinates().0.len(), pattern.nnz());
///     Ok(())
/// }).unwrap();
/// ```
pub fn pattern(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = Pattern> {
    matrix(rows, columns).prop_map(|a| a.pattern().clone())
}

/// A symmetric positive definite matrix in canonical CSR: each diagonal entry exceeds the sum of its row by at least 1, which
/// bounds the eigenvalues from below.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::spd(0..9), |a| {
///     let (dense, n) = (a.to_dense(), a.shape()[0]);
///     for (row, column, value) in a.entries() {
///         prop_assert_eq!(value, dense[column * n + row]);
///     }
///     Ok(())
/// }).unwrap();
/// ```
pub fn spd(sizes: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    let sizes = sizes.into();
    entries(sizes.clone(), sizes, value(), false).prop_map(|mut e| {
        let n = e.shape[0].min(e.shape[1]);
        e.shape = [n, n];
        e.list.retain(|&(row, column, _)| row > column && row < n);
        let mirror = |&(row, column, value): &(usize, usize, f64)| (column, row, value);
        e.list.extend(e.list.iter().map(mirror).collect::<Vec<_>>());
        e.with_diagonal(1.0)
    })
}

/// A lower triangular matrix in canonical CSR: each diagonal entry exceeds the sum of its row by at least 1, so that solving
/// with it amplifies nothing.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::lower_triangular(0..9), |a| {
///     prop_assert!(a.entries().all(|(row, column, _)| column <= row));
///     Ok(())
/// }).unwrap();
/// ```
pub fn lower_triangular(sizes: impl Into<SizeRange>) -> impl Strategy<Value = HostMatrix> {
    let sizes = sizes.into();
    entries(sizes.clone(), sizes, value(), false).prop_map(|mut e| {
        let n = e.shape[0].min(e.shape[1]);
        e.shape = [n, n];
        e.list.retain(|&(row, column, _)| row > column && row < n);
        e.with_diagonal(1.0)
    })
}

/// Entries in an order of their own, before they are stored in a format.
#[derive(Debug, Clone)]
pub(super) struct Entries {
    pub shape: [usize; 2],
    pub list: Vec<(usize, usize, f64)>,
}

/// Entries of matrices with these sizes. Without `duplicates` each position stands at most once.
pub(super) fn entries(
    rows: SizeRange,
    columns: SizeRange,
    values: impl Strategy<Value = f64>,
    duplicates: bool,
) -> impl Strategy<Value = Entries> {
    let most = 2 * rows.end_incl().max(columns.end_incl());
    let size = |range: SizeRange| range.start()..=range.end_incl();
    // A position as a fraction of the sizes, so that it need not be drawn anew when they shrink.
    let entry = (any::<Index>(), any::<Index>(), values, prop::bool::weighted(0.1));
    let flags = (any::<bool>(), any::<bool>());
    (size(rows), size(columns), vec(entry, 0..=most), flags).prop_map(
        move |(rows, columns, drawn, (sorted, unique))| {
            let mut entries = Entries { shape: [rows, columns], list: Vec::new() };
            if rows == 0 || columns == 0 {
                return entries;
            }
            for (row, column, value, repeats) in drawn {
                let place = match entries.list.last() {
                    Some(&(row, column, _)) if repeats => (row, column),
                    _ => (row.index(rows), column.index(columns)),
                };
                entries.list.push((place.0, place.1, value));
            }
            if unique || !duplicates {
                let mut seen = std::collections::HashSet::new();
                entries.list.retain(|&(row, column, _)| seen.insert((row, column)));
            }
            if sorted { entries.sorted() } else { entries }
        },
    )
}

impl Entries {
    pub(super) fn sorted(mut self) -> Self {
        self.list.sort_by_key(|&(row, column, _)| (row, column));
        self
    }

    pub(super) fn transposed(self) -> Self {
        let [rows, columns] = self.shape;
        let list = self.list.into_iter().map(|(row, column, value)| (column, row, value));
        Self { shape: [columns, rows], list: list.collect() }
    }

    /// In this format: compressed ones sort by row or by column, and by nothing else.
    pub(super) fn stored(mut self, layout: Layout) -> HostMatrix {
        match layout {
            Layout::Coo => {}
            Layout::Csr => self.list.sort_by_key(|entry| entry.0),
            Layout::Csc => self.list.sort_by_key(|entry| entry.1),
        }
        let rows: Vec<usize> = self.list.iter().map(|entry| entry.0).collect();
        let columns: Vec<usize> = self.list.iter().map(|entry| entry.1).collect();
        let values = self.list.iter().map(|entry| entry.2).collect();
        let pattern = match layout {
            Layout::Coo => Pattern::coo(rows, columns, self.shape),
            Layout::Csr => Pattern::csr(offsets(&rows, self.shape[0]), columns, self.shape),
            Layout::Csc => Pattern::csc(offsets(&columns, self.shape[1]), rows, self.shape),
        };
        let pattern = pattern.expect("positions inside the shape");
        HostMatrix::new(pattern, values).expect("a value for each position")
    }

    /// With a diagonal that exceeds the sum of the absolute values of its row by `margin`.
    fn with_diagonal(mut self, margin: f64) -> HostMatrix {
        let mut diagonal = vec![margin; self.shape[0]];
        for &(row, _, value) in &self.list {
            diagonal[row] += value.abs();
        }
        self.list.extend(diagonal.into_iter().enumerate().map(|(at, value)| (at, at, value)));
        self.sorted().stored(Layout::Csr)
    }
}

/// Where each of `n` groups starts in ascending keys.
pub(super) fn offsets(keys: &[usize], n: usize) -> Vec<usize> {
    (0..=n).map(|group| keys.partition_point(|&key| key < group)).collect()
}
