//! What operations work out about a pattern once and keep with it.

use super::build::trusted_csr;
use super::indices::Buffer;
use super::pairs::Pairs;
use super::{Index, IndexWidth, Indices, Inner, LevelStorage, Part, Pattern, Rows, Slot, SplitView};
use crate::format::TensorFormat;
use burn::tensor::Device;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The row-ordered view in the index width of its pattern.
#[derive(Debug, Clone)]
pub(crate) enum RowView {
    I32(Rows<i32>),
    I64(Rows<i64>),
}

/// Calls `$body` with `$rows` bound to the `&Rows<i32>` or `&Rows<i64>` of a [`RowView`].
macro_rules! with_rows {
    ($view:expr, $rows:ident => $body:expr) => {
        match $view {
            $crate::pattern::RowView::I32($rows) => $body,
            $crate::pattern::RowView::I64($rows) => $body,
        }
    };
}
pub(crate) use with_rows;

/// The rows of another view of the same pattern, in the width of `like`.
pub(crate) fn of_view<'a, I: Buffer>(view: &'a RowView, _like: &Rows<I>) -> &'a Rows<I> {
    I::rows(view)
}

/// The plans of one set of buffers; `by_rows` and `by_columns` serve the pattern and its transpose.
#[derive(Default)]
pub(super) struct Plans {
    by_rows: OnceLock<RowView>,
    by_columns: OnceLock<RowView>,
    /// For triangular solves, of the pattern and of its transpose.
    splits: [OnceLock<SplitView>; 2],
    pub(super) fingerprint: OnceLock<u64>,
    conversions: Mutex<Vec<((bool, Target), Conversion)>>,
    pub(super) pairs: Pairs,
    /// Pieces of long rows, of the pattern and of its transpose.
    #[cfg(feature = "cube")]
    pieces: [OnceLock<Option<crate::backend::gpu::Pieces>>; 2],
    #[cfg(feature = "cube")]
    device: crate::backend::gpu::DeviceBuffers,
}

/// What a pattern is converted to.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Target {
    Csr,
    Coo,
    Coalesced,
    /// So many items of a batch below each other.
    Stacked(usize),
    /// So many items that lie below each other, along the diagonal.
    Spread(usize),
    /// So many times along the diagonal.
    Repeated(usize),
    /// So many times along the diagonal, and the gather of its values from those of one.
    RepeatedValues(usize),
    /// A row for each of so many items, of its rows.
    Together(usize),
    /// A selection of values: those that a triangular solve reads.
    Part(Part),
    /// A gather of values: the sums on the diagonal.
    Diagonal,
    /// The entries of a triangle of each of so many items, from a diagonal on.
    Triangle {
        items: usize,
        upper: bool,
        offset: isize,
    },
    /// A gather of values: the sums on a diagonal of each of so many items.
    DiagonalAt {
        items: usize,
        offset: isize,
    },
    /// A gather of values and new ones for a diagonal.
    SetDiagonal {
        items: usize,
        offset: isize,
    },
    /// The pattern with all of a diagonal, and the gather of its values.
    InsertDiagonal {
        items: usize,
        offset: isize,
    },
    /// One entry a column, in the order of columns.
    ColumnOrder,
    /// All entries in one row.
    OneRow,
}

/// The pattern that a conversion leads to, and how its values follow from those before.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The pattern of the result.
    pub pattern: Pattern,
    /// Row `e` has a one at each old value that new value `e` sums; `None` if the values stay as they are.
    pub gather: Option<Pattern>,
}

/// Bytes of memory that a pattern holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// The index buffers of the format.
    pub indices: usize,
    /// Plans on the host: the row-ordered views that are not the buffers themselves.
    pub plans: usize,
    /// Index buffers on devices.
    pub device: usize,
}

impl Conversion {
    fn t(self) -> Self {
        Self { pattern: self.pattern.t(), ..self }
    }
}

/// Entries sorted by position, those of equal position merged.
struct Merged<I> {
    offsets: Vec<I>,
    columns: Vec<I>,
    /// Where the slots of each merged entry start.
    groups: Vec<I>,
    slots: Vec<I>,
}

impl<I: Index> Rows<I> {
    /// The place of entry `entry` in the values.
    #[inline(always)]
    pub fn slot(&self, entry: usize) -> usize {
        match &self.slots {
            Slot::Identity => entry,
            Slot::Map(map) => map[entry].get(),
        }
    }

    /// The entries of a row.
    #[inline(always)]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row].get()..self.offsets[row + 1].get()
    }

    /// The row of each entry.
    pub fn row_of_entry(&self) -> Vec<I> {
        let mut rows = Vec::with_capacity(self.n_entries());
        for row in 0..self.n_rows() {
            rows.resize(self.offsets[row + 1].get(), I::of(row));
        }
        rows
    }

    /// Whether columns never descend within a row.
    fn is_sorted(&self) -> bool {
        (0..self.n_rows()).all(|row| self.columns[self.range(row)].is_sorted())
    }

    fn sort_and_merge(&self) -> Merged<I> {
        let mut merged = Merged {
            offsets: vec![I::of(0)],
            columns: Vec::new(),
            groups: Vec::new(),
            slots: Vec::with_capacity(self.n_entries()),
        };
        let mut order = Vec::new();
        for row in 0..self.n_rows() {
            order.clear();
            order.extend(self.range(row));
            order.sort_by_key(|&entry| self.columns[entry]); // stable: duplicates are summed in the order of storage
            let start = merged.columns.len();
            for &entry in &order {
                let column = self.columns[entry];
                if merged.columns.len() == start || merged.columns.last() != Some(&column) {
                    merged.columns.push(column);
                    merged.groups.push(I::of(merged.slots.len()));
                }
                merged.slots.push(I::of(self.slot(entry)));
            }
            merged.offsets.push(I::of(merged.columns.len()));
        }
        merged.groups.push(I::of(merged.slots.len()));
        merged
    }

    /// Bytes of the buffers that do not start at one of these addresses.
    fn bytes_beside(&self, shared: &[*const u8]) -> usize {
        let slots = match &self.slots {
            Slot::Identity => None,
            Slot::Map(map) => Some(map),
        };
        [Some(&self.offsets), Some(&self.columns), slots]
            .into_iter()
            .flatten()
            .filter(|buffer| !shared.contains(&buffer.as_ptr().cast()))
            .map(|buffer| size_of_val(buffer.as_slice()))
            .sum()
    }
}

impl Pattern {
    /// The row-ordered view, made on first use.
    pub(crate) fn rows(&self) -> &RowView {
        self.view().get_or_init(|| match self.index_width() {
            IndexWidth::I32 => RowView::I32(self.build_rows()),
            IndexWidth::I64 => RowView::I64(self.build_rows()),
        })
    }

    /// Where the row-ordered view is kept.
    pub(super) fn view(&self) -> &OnceLock<RowView> {
        let plans = &self.inner.plans;
        if self.transposed { &plans.by_columns } else { &plans.by_rows }
    }

    fn build_rows<I: Buffer>(&self) -> Rows<I> {
        let [n_rows, n_cols] = self.shape();
        match self.inner.format.name() {
            Some("CSR") if !self.transposed => self.borrow_rows(n_cols),
            Some("CSC") if self.transposed => self.borrow_rows(n_cols),
            Some("COO") if self.is_row_sorted() => {
                let level = if self.transposed { 0 } else { 1 };
                let columns = self.inner.levels[level].coordinates.as_ref();
                let columns = I::share(columns.expect("COO stores two coordinates"));
                let offsets = self.count_rows::<I>(n_rows);
                Rows::new(Arc::new(offsets), columns, Slot::Identity, n_cols, self.nnz())
            }
            _ => self.sort_by_row(n_rows, n_cols),
        }
    }

    /// The view of a compressed pattern along its offsets: its own buffers.
    fn borrow_rows<I: Buffer>(&self, n_cols: usize) -> Rows<I> {
        let (positions, coordinates) = self.inner.compressed_buffers();
        Rows::new(I::share(positions), I::share(coordinates), Slot::Identity, n_cols, self.nnz())
    }

    /// Whether entries are stored with rows ascending, whatever their columns.
    fn is_row_sorted(&self) -> bool {
        let (mut sorted, mut previous) = (true, 0);
        self.for_each_entry(|row, _, _| {
            sorted &= previous <= row;
            previous = row;
        });
        sorted
    }

    /// Offsets of the rows by counting.
    fn count_rows<I: Index>(&self, n_rows: usize) -> Vec<I> {
        let mut offsets = vec![I::of(0); n_rows + 1];
        self.for_each_entry(|row, _, _| offsets[row + 1] = I::of(offsets[row + 1].get() + 1));
        for row in 0..n_rows {
            offsets[row + 1] = I::of(offsets[row].get() + offsets[row + 1].get());
        }
        offsets
    }

    /// Stable counting sort by row: within a row, the order of storage stays.
    fn sort_by_row<I: Buffer>(&self, n_rows: usize, n_cols: usize) -> Rows<I> {
        if self.inner.format.name() != Some("COO") {
            return self.sort_across(&mut ());
        }
        let offsets = self.count_rows::<I>(n_rows);
        let mut next = offsets.clone();
        let mut columns = vec![I::of(0); self.nnz()];
        let mut slots = vec![I::of(0); self.nnz()];
        self.for_each_entry(|row, column, entry| {
            let at = next[row].get();
            next[row] = I::of(at + 1);
            columns[at] = I::of(column);
            slots[at] = I::of(entry);
        });
        Rows::new(Arc::new(offsets), Arc::new(columns), Slot::Map(Arc::new(slots)), n_cols, self.nnz())
    }

    /// In CSR: rows ascending, and the order of storage within a row.
    pub fn to_csr(&self) -> Conversion {
        if self.format().name() == Some("CSR") {
            return self.unchanged();
        }
        self.convert(Target::Csr, || {
            let gather = with_rows!(self.rows(), rows => self.permutation(rows));
            Conversion { pattern: self.in_row_order(), gather }
        })
    }

    /// The entries in CSR, in the order of the row-ordered view, whose buffers it shares.
    fn in_row_order(&self) -> Self {
        with_rows!(self.rows(), rows => trusted_csr(
            Buffer::to_indices(&rows.offsets),
            Buffer::to_indices(&rows.columns),
            self.shape(),
            !self.has_duplicates(),
            // Sorted across its offsets, a compressed format is in order.
            self.is_across() || rows.is_sorted(),
        ))
    }

    /// The pattern in whose row order the values are those of [`transposed`](Self::transposed).
    pub(crate) fn transposed_order(&self) -> Self {
        if self.format().name() == Some("CSC") { self.clone() } else { self.t() }
    }

    /// The transpose with its entries in the order of its own format, the one of this pattern.
    pub(crate) fn transposed(&self) -> Self {
        match self.format().name() {
            Some("CSC") => self.in_row_order().t(),
            Some("CSR") => self.t().in_row_order(),
            _ => self.t().to_coo().pattern,
        }
    }

    /// The same buffers without what has been planned on them: the next operation plans anew. Plans that clones still
    /// hold are theirs.
    pub fn without_plans(&self) -> Self {
        let Inner { format, shape, stored, levels, .. } = &*self.inner;
        let pattern = Self::unchecked(format.clone(), *shape, *stored, levels.clone());
        Self { transposed: self.transposed, ..pattern }
    }

    /// In CSC: columns ascending, and the order of storage within a column.
    pub fn to_csc(&self) -> Conversion {
        self.t().to_csr().t()
    }

    /// In coordinates, rows ascending, and the order of storage within a row.
    pub fn to_coo(&self) -> Conversion {
        if !self.transposed && self.inner.format.name() == Some("COO") && self.is_row_sorted() {
            return self.unchanged();
        }
        self.convert(Target::Coo, || {
            with_rows!(self.rows(), rows => {
                let entries = rows.n_entries();
                let positions = Indices::of_width(self.index_width(), &[0, entries]);
                let level = |positions, coordinates| LevelStorage {
                    positions,
                    coordinates: Some(coordinates),
                };
                let levels = vec![
                    level(
                        Some(positions),
                        Buffer::to_indices(&Arc::new(rows.row_of_entry())),
                    ),
                    level(None, Buffer::to_indices(&rows.columns)),
                ];
                let format = TensorFormat::coo_with(!self.has_duplicates(), rows.is_sorted());
                Conversion {
                    pattern: Pattern::unchecked(format, self.shape(), entries, levels),
                    gather: self.permutation(rows),
                }
            })
        })
    }

    /// Sorted and without duplicates, in CSR, CSC or COO as before: the values of a repeated position are summed.
    pub fn coalesce(&self) -> Conversion {
        let format = self.format();
        if format.is_ordered() && format.is_unique() {
            return self.unchanged();
        }
        match format.name() {
            Some("CSR") => self.coalesced_rows(),
            Some("COO") => {
                let Conversion { pattern, gather } = self.coalesced_rows();
                let pattern = pattern.to_coo().pattern;
                Conversion { pattern, gather }
            }
            _ => self.t().coalesce().t(),
        }
    }

    fn coalesced_rows(&self) -> Conversion {
        self.convert(Target::Coalesced, || {
            with_rows!(self.rows(), rows => {
                let merged = rows.sort_and_merge();
                let kept = merged.columns.len();
                Conversion {
                    pattern: trusted_csr(
                        Buffer::to_indices(&Arc::new(merged.offsets)),
                        Buffer::to_indices(&Arc::new(merged.columns)),
                        self.shape(),
                        true,
                        true,
                    ),
                    gather: Some(trusted_csr(
                        Buffer::to_indices(&Arc::new(merged.groups)),
                        Buffer::to_indices(&Arc::new(merged.slots)),
                        [kept, self.nnz()],
                        true,
                        true,
                    )),
                }
            })
        })
    }

    /// Of a pattern with one entry in each column: the same with the entries in the order of columns, so that values are those
    /// of columns. `rows` are those of the columns.
    pub(crate) fn in_column_order(&self, rows: &Indices) -> Self {
        let made = self.convert(Target::ColumnOrder, || {
            let [m, n] = self.shape();
            let offsets = Indices::of_width(self.index_width(), &(0..=n).collect::<Vec<_>>());
            Conversion { pattern: trusted_csr(offsets, rows.clone(), [n, m], true, true).t(), gather: None }
        });
        made.pattern
    }

    fn unchanged(&self) -> Conversion {
        Conversion { pattern: self.clone(), gather: None }
    }

    /// The gather of values into the order of a view, `None` for the identity.
    fn permutation<I: Buffer>(&self, rows: &Rows<I>) -> Option<Pattern> {
        let Slot::Map(map) = &rows.slots else {
            return None;
        };
        let offsets: Vec<I> = (0..=map.len()).map(I::of).collect();
        Some(trusted_csr(I::to_indices(&Arc::new(offsets)), I::to_indices(map), [map.len(), self.nnz()], true, true))
    }

    /// A conversion from the cache, or made and kept. Never one that shares the buffers, which would keep itself alive.
    pub(crate) fn convert(&self, target: Target, make: impl FnOnce() -> Conversion) -> Conversion {
        self.convert_unless_same(target, || Some(make()))
    }

    /// The same where nothing may be left to do: `make` returns `None` then, and is asked again the next time.
    pub(crate) fn convert_unless_same(&self, target: Target, make: impl FnOnce() -> Option<Conversion>) -> Conversion {
        if let Some(kept) = self.converted_to(target) {
            return kept;
        }
        let Some(made) = make() else {
            return self.unchanged();
        };
        self.conversions().push(((self.transposed, target), made.clone()));
        made
    }

    /// A conversion that is in the cache.
    pub(super) fn converted_to(&self, target: Target) -> Option<Conversion> {
        let key = (self.transposed, target);
        self.conversions().iter().find(|(k, _)| *k == key).map(|(_, kept)| kept.clone())
    }

    fn conversions(&self) -> MutexGuard<'_, Vec<((bool, Target), Conversion)>> {
        self.inner.plans.conversions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pieces of long rows, if there are rows to be cut.
    #[cfg(feature = "cube")]
    pub(crate) fn pieces(&self) -> Option<&crate::backend::gpu::Pieces> {
        let pieces = &self.inner.plans.pieces[usize::from(self.transposed)];
        let make = || with_rows!(self.rows(), rows => crate::backend::gpu::Pieces::of(rows));
        pieces.get_or_init(make).as_ref()
    }

    /// Where [`triangles`](Self::triangles) are kept.
    pub(super) fn split_plan(&self) -> &OnceLock<SplitView> {
        &self.inner.plans.splits[usize::from(self.transposed)]
    }

    /// The patterns that conversions have led to.
    #[cfg(feature = "cube")]
    fn converted(&self) -> Vec<Pattern> {
        let conversions = self.conversions();
        let patterns = |(_, made): &(_, Conversion)| [Some(made.pattern.clone()), made.gather.clone()];
        conversions.iter().flat_map(patterns).flatten().collect()
    }

    /// The index buffers on devices.
    #[cfg(feature = "cube")]
    pub(crate) fn device_buffers(&self) -> &crate::backend::gpu::DeviceBuffers {
        &self.inner.plans.device
    }

    /// Plans now what products with this pattern, its transpose and their gradients need, and copies it to the device, instead
    /// of at first use.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let pattern = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
    /// pattern.prepare(&device);
    /// assert!(pattern.memory_usage().plans > 0); // the transposed order
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn prepare(&self, device: &Device) {
        let _ = (self.rows(), self.t().rows());
        #[cfg(feature = "cube")]
        crate::backend::gpu::prepare(self, device);
        #[cfg(not(feature = "cube"))]
        let _ = device;
    }

    /// Lets go of the index buffers on a device, those of conversions included. They are copied again when they are needed;
    /// operations under way keep theirs.
    pub fn release(&self, device: &Device) {
        #[cfg(feature = "cube")]
        {
            crate::backend::gpu::release(self, device);
            self.converted().iter().for_each(|pattern| pattern.release(device));
            self.inner.plans.pairs.patterns().iter().for_each(|pattern| pattern.release(device));
        }
        #[cfg(not(feature = "cube"))]
        let _ = device;
    }

    /// What the pattern holds in memory at the moment, plans apart from the buffers of the format.
    pub fn memory_usage(&self) -> MemoryUsage {
        let plans = &self.inner.plans;
        let indices = |pattern: &Pattern| -> usize {
            let levels = pattern.levels().iter();
            let buffers = levels.flat_map(|l| [&l.positions, &l.coordinates]);
            buffers.flatten().map(Indices::bytes).sum()
        };
        let own: Vec<*const u8> = self
            .levels()
            .iter()
            .flat_map(|l| [&l.positions, &l.coordinates])
            .flatten()
            .map(|b| b.as_bytes().as_ptr())
            .collect();
        let views = [&plans.by_rows, &plans.by_columns]
            .into_iter()
            .filter_map(OnceLock::get)
            .map(|view| with_rows!(view, rows => rows.bytes_beside(&own)))
            .sum::<usize>();
        let splits = plans.splits.iter().filter_map(OnceLock::get).map(SplitView::bytes).sum::<usize>();
        #[cfg(feature = "cube")]
        let device: usize = self.converted().iter().map(|pattern| pattern.memory_usage().device).sum();
        let conversions = self.conversions();
        let converted = conversions
            .iter()
            .map(|(_, conversion)| indices(&conversion.pattern) + conversion.gather.as_ref().map_or(0, indices));
        let pairs = self.pair_usage();
        MemoryUsage {
            indices: indices(self),
            plans: views + splits + converted.sum::<usize>() + pairs.plans,
            #[cfg(feature = "cube")]
            device: device + plans.device.bytes() + pairs.device,
            #[cfg(not(feature = "cube"))]
            device: 0,
        }
    }
}
