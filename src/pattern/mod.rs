//! Where values may stand: the index buffers of a format, checked once, immutable, shared, with the plans that operations
//! make on them.

mod batch;
mod build;
mod indices;
mod pairs;
mod plan;
mod rows;
mod serde;
mod sort;
mod triangle;

pub use indices::{IndexWidth, Indices, IntoIndices, RawIndices};
pub use plan::{Conversion, MemoryUsage};
pub(crate) use rows::{Index, Rows, Slot, chunks, partition_point};

pub(crate) use self::serde::assemble_items;
pub(crate) use build::{csr_of, trusted_csr};
pub(crate) use indices::{Buffer, with_indices};
pub(crate) use pairs::PairPlan;
pub(crate) use plan::{RowView, Target, of_view, with_rows};
pub(crate) use triangle::{Part, Split, SplitIndex, SplitView, with_split};

use crate::error::PatternError;
use crate::format::TensorFormat;
use plan::Plans;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The buffers of one level.
#[derive(Debug, Clone, Default)]
pub struct LevelStorage {
    /// Where the coordinates of each parent start and end, for levels that compress.
    pub positions: Option<Indices>,
    /// The coordinates, for levels that store them.
    pub coordinates: Option<Indices>,
}

/// Which entries of a matrix are stored, and in which order. Cheap to clone, never changed after it was checked.
///
/// Every operation reads a pattern through its *row-ordered view*, and keeps what it plans with it: the transposed order,
/// the buffers on each device. The plans belong to the buffers: [`t`](Self::t), which only reads the same buffers as the
/// transposed matrix, shares them, and the second step of a training loop plans nothing.
#[derive(Clone)]
pub struct Pattern {
    inner: Arc<Inner>,
    transposed: bool,
}

struct Inner {
    format: TensorFormat,
    shape: [usize; 2],
    stored: usize,
    levels: Vec<LevelStorage>,
    plans: Plans,
}

impl Inner {
    fn for_each_entry(&self, mut visit: impl FnMut(usize, usize, usize)) {
        match self.format.name() {
            Some("COO") => {
                let [rows, columns] = self.coordinate_buffers();
                with_indices!(rows, rows => with_indices!(columns, columns => {
                    for (entry, (row, column)) in rows.iter().zip(columns.iter()).enumerate() {
                        visit(row.get(), column.get(), entry);
                    }
                }));
            }
            name => {
                let (positions, coordinates) = self.compressed_buffers();
                let by_column = name == Some("CSC");
                with_indices!(positions, offsets => with_indices!(coordinates, coordinates => {
                    for outer in 0..offsets.len() - 1 {
                        for entry in offsets[outer].get()..offsets[outer + 1].get() {
                            let inner = coordinates[entry].get();
                            if by_column {
                                visit(inner, outer, entry);
                            } else {
                                visit(outer, inner, entry);
                            }
                        }
                    }
                }));
            }
        }
    }

    /// Rows and columns of COO.
    fn coordinate_buffers(&self) -> [&Indices; 2] {
        [0, 1].map(|level: usize| {
            let coordinates = self.levels[level].coordinates.as_ref();
            coordinates.expect("COO stores two coordinates")
        })
    }

    /// Offsets and indices of CSR or CSC.
    fn compressed_buffers(&self) -> (&Indices, &Indices) {
        let LevelStorage { positions: Some(positions), coordinates: Some(coordinates) } = &self.levels[1] else {
            unreachable!("the second level of CSR and CSC is compressed")
        };
        (positions, coordinates)
    }
}

impl Pattern {
    /// Takes buffers that were checked.
    fn unchecked(format: TensorFormat, shape: [usize; 2], stored: usize, levels: Vec<LevelStorage>) -> Self {
        Self { inner: Arc::new(Inner { format, shape, stored, levels, plans: Plans::default() }), transposed: false }
    }

    /// The identity's pattern, n x n, in CSR.
    ///
    /// # Errors
    /// If `n` is beyond what indices can count.
    pub fn eye(n: usize) -> Result<Self, PatternError> {
        if n >= i64::MAX as usize {
            return Err(PatternError::TooLarge { rows: n, columns: n });
        }
        let offsets = RawIndices::I64((0..=n as i64).collect());
        let columns = RawIndices::I64((0..n as i64).collect());
        Self::csr(offsets, columns, [n, n])
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        let [rows, columns] = self.inner.shape;
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }

    /// The number of stored entries, explicit zeros and duplicates included: the length of the values.
    pub fn nnz(&self) -> usize {
        self.inner.stored
    }

    /// The format, with the properties (ordered, unique) that the entries were found to have.
    pub fn format(&self) -> TensorFormat {
        if self.transposed { self.inner.format.transposed() } else { self.inner.format.clone() }
    }

    /// The buffers of each level of the [`format`](Self::format).
    pub fn levels(&self) -> &[LevelStorage] {
        &self.inner.levels
    }

    /// The same, moved out of the pattern if nobody else holds it: each buffer then has one owner.
    pub fn into_levels(self) -> Vec<LevelStorage> {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner.levels,
            Err(shared) => shared.levels.clone(),
        }
    }

    /// Whether a position is stored more than once.
    pub fn has_duplicates(&self) -> bool {
        !self.inner.format.is_unique()
    }

    /// The width of the indices.
    pub fn index_width(&self) -> IndexWidth {
        self.inner
            .levels
            .iter()
            .flat_map(|level| [&level.positions, &level.coordinates])
            .flatten()
            .map(Indices::width)
            .max()
            .unwrap_or(IndexWidth::I32)
    }

    /// Whether this is the transpose of the stored buffers.
    #[cfg(feature = "cube")]
    pub(crate) fn is_transposed(&self) -> bool {
        self.transposed
    }

    /// The same pattern with indices of another width.
    ///
    /// # Errors
    /// If 32 bits are asked for and the shape or the number of entries needs more.
    pub fn with_index_width(&self, width: IndexWidth) -> Result<Self, PatternError> {
        if width == self.index_width() {
            return Ok(self.clone());
        }
        if width == IndexWidth::I32 {
            let [rows, columns] = self.shape();
            for (what, value) in [("rows", rows), ("columns", columns), ("entries", self.nnz())] {
                if value > i32::MAX as usize {
                    return Err(PatternError::IndexWidth { what, value });
                }
            }
        }
        let change = |buffer: &Option<Indices>| buffer.as_ref().map(|b| b.to_width(width));
        let levels = self
            .levels()
            .iter()
            .map(|level| LevelStorage { positions: change(&level.positions), coordinates: change(&level.coordinates) });
        let Inner { format, shape, stored, .. } = &*self.inner;
        Ok(Self { transposed: self.transposed, ..Self::unchecked(format.clone(), *shape, *stored, levels.collect()) })
    }

    /// The transposed matrix in the same buffers: CSR becomes CSC, and the plans are shared.
    pub fn t(&self) -> Self {
        Self { inner: self.inner.clone(), transposed: !self.transposed }
    }

    /// Whether both store the same entries in the same order and format: their values can be exchanged.
    ///
    /// A pointer test first, then a fingerprint, then the buffers themselves.
    pub fn same_pattern(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.inner, &other.inner) && self.transposed == other.transposed {
            return true;
        }
        let buffers = |pattern: &Self| -> Vec<Indices> {
            let levels = pattern.levels().iter();
            let level = |l: &LevelStorage| [l.positions.clone(), l.coordinates.clone()];
            levels.flat_map(level).flatten().collect()
        };
        self.shape() == other.shape()
            && self.nnz() == other.nnz()
            && self.format() == other.format()
            && self.fingerprint() == other.fingerprint()
            && buffers(self) == buffers(other)
    }

    /// A hash of the buffers, computed once. A square matrix and its transpose share it.
    fn fingerprint(&self) -> u64 {
        *self.inner.plans.fingerprint.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            for level in &self.inner.levels {
                for buffer in [&level.positions, &level.coordinates].into_iter().flatten() {
                    buffer.as_bytes().hash(&mut hasher);
                }
            }
            hasher.finish()
        })
    }

    /// Calls `visit(row, column, entry)` for every stored entry in storage order.
    pub(crate) fn for_each_entry(&self, mut visit: impl FnMut(usize, usize, usize)) {
        if self.transposed {
            self.inner.for_each_entry(|row, column, entry| visit(column, row, entry));
        } else {
            self.inner.for_each_entry(visit);
        }
    }

    /// Row and column of every stored entry, in the order of the values.
    pub fn coordinates(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut rows, mut columns) = (vec![0; self.nnz()], vec![0; self.nnz()]);
        self.for_each_entry(|row, column, entry| {
            rows[entry] = row;
            columns[entry] = column;
        });
        (rows, columns)
    }

    /// Row and column of stored entry `entry`.
    fn position(&self, entry: usize) -> (usize, usize) {
        let mut found = (0, 0);
        self.for_each_entry(|row, column, e| {
            if e == entry {
                found = (row, column);
            }
        });
        found
    }

    /// The places in the values of the entries stored at (`row`, `column`), none if that is not stored or out of range.
    pub fn slots_at(&self, row: usize, column: usize) -> Vec<usize> {
        let mut slots = Vec::new();
        if self.format().name() == Some("CSR") && row < self.shape()[0] {
            with_rows!(self.rows(), rows => {
                slots.extend(rows.range(row).filter(|&e| rows.columns[e].get() == column));
            });
        } else {
            // No view is made for a look.
            self.for_each_entry(|r, c, entry| {
                if (r, c) == (row, column) {
                    slots.push(entry);
                }
            });
        }
        slots
    }
}

/// The same as [`same_pattern`](Pattern::same_pattern).
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.same_pattern(other)
    }
}
impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({self})")
    }
}

impl fmt::Display for Pattern {
    /// `2x3, 3 stored (50 %), CSR i32`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = self.shape();
        write!(f, "{rows}x{columns}, {} stored", self.nnz())?;
        let positions = rows as f64 * columns as f64;
        if positions > 0.0 {
            let percent = 100.0 * self.nnz() as f64 / positions;
            match percent {
                _ if percent >= 10.0 || percent == 0.0 => write!(f, " ({percent:.0} %)")?,
                _ if percent >= 0.01 => write!(f, " ({percent:.2} %)")?,
                _ => write!(f, " ({percent:.0e} %)")?,
            }
        }
        let format = self.format();
        match format.name() {
            Some(name) => write!(f, ", {name}")?,
            None => write!(f, ", {format}")?,
        }
        f.write_str(match self.index_width() {
            IndexWidth::I32 => " i32",
            IndexWidth::I64 => " i64",
        })?;
        if !format.is_unique() {
            f.write_str(", with duplicates")?;
        }
        if !format.is_ordered() {
            f.write_str(", unordered")?;
        }
        Ok(())
    }
}
