//! Batches: a batch of matrices is one matrix with the items along its diagonal.
//!
//! So nothing that reads a pattern knows of batches: one row-ordered view serves all items, ragged or not, and no operation
//! loops over them. What belongs to a batch is only here: how items are put together and taken apart.

use super::build::trusted_csr;
use super::plan::{Target, with_rows};
use super::rows::{Index, partition_point};
use super::{Conversion, IndexWidth, Indices, Pattern};
use crate::error::PatternError;
use std::ops::Range;

impl Pattern {
    /// One pattern with the given ones along its diagonal, in their order; shapes may differ. Entries keep their order, block by
    /// block.
    ///
    /// # Errors
    /// If the formats differ (convert to one of them first), or the sum of the shapes is too large.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = Pattern::csr([0, 1], [2], [1, 3])?;
    /// let b = Pattern::csr([0, 0, 1], [0], [2, 1])?;
    /// let both = Pattern::block_diagonal(&[a, b])?;
    /// assert_eq!(both.shape(), [3, 4]);
    /// assert_eq!(both.coordinates(), (vec![0, 2], vec![2, 3]));
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn block_diagonal(blocks: &[Pattern]) -> Result<Self, PatternError> {
        let Some(first) = blocks.first() else {
            return Self::csr([0i64], [0i64; 0], [0, 0]);
        };
        let name = first.format().name();
        if let Some(other) = blocks.iter().find(|block| block.format().name() != name) {
            return Err(PatternError::Formats { first: first.format(), other: other.format() });
        }
        if !matches!(name, Some("CSR" | "COO")) {
            let transposed: Vec<_> = blocks.iter().map(Pattern::t).collect();
            return Ok(Self::block_diagonal(&transposed)?.t());
        }
        let mut shape = [0usize; 2];
        let (mut offsets, mut rows, mut columns) = (vec![0i64], Vec::new(), Vec::new());
        for block in blocks {
            let before = columns.len() as i64;
            match name {
                Some("CSR") => {
                    let (positions, _) = block.inner.compressed_buffers();
                    offsets.extend(positions.iter().skip(1).map(|at| before + at as i64));
                    block.for_each_entry(|_, column, _| columns.push((shape[1] + column) as i64));
                }
                _ => block.for_each_entry(|row, column, _| {
                    rows.push((shape[0] + row) as i64);
                    columns.push((shape[1] + column) as i64);
                }),
            }
            for axis in [0, 1] {
                let sum = shape[axis].checked_add(block.shape()[axis]);
                let fits = sum.filter(|&sum| sum < i64::MAX as usize);
                shape[axis] = fits.ok_or(PatternError::TooLarge { rows: shape[0], columns: shape[1] })?;
            }
        }
        match name {
            Some("CSR") => Self::csr(offsets, columns, shape),
            _ => Self::coo(rows, columns, shape),
        }
    }

    /// This pattern `count` times along the diagonal.
    ///
    /// # Errors
    /// If that is too large to index.
    pub fn repeat(&self, count: usize) -> Result<Self, PatternError> {
        match count {
            0 => return Ok(self.part(0..0, 0..0).0),
            1 => return Ok(self.clone()),
            _ => {}
        }
        if let Some(kept) = self.converted_to(Target::Repeated(count)) {
            return Ok(kept.pattern);
        }
        let pattern = Self::block_diagonal(&vec![self.clone(); count])?;
        Ok(self.convert(Target::Repeated(count), || Conversion { pattern, gather: None }).pattern)
    }

    /// The same, planned once, and how values are repeated. `gather` is `None` if they stay as they are.
    pub(crate) fn repeated(&self, count: usize) -> Result<Conversion, PatternError> {
        if count == 1 {
            return Ok(Conversion { pattern: self.clone(), gather: None });
        }
        let stored = self.nnz();
        self.fits(self.shape().into_iter().chain([stored]), count)?;
        Ok(self.convert(Target::RepeatedValues(count), || {
            let offsets: Vec<usize> = (0..=count * stored).collect();
            let columns: Vec<usize> = (0..count * stored).map(|entry| entry % stored).collect();
            let [offsets, columns] = [offsets, columns].map(|i| Indices::of_width(width_of(count * stored), &i));
            Conversion {
                pattern: self.repeat(count).expect("its size was checked"),
                gather: Some(trusted_csr(offsets, columns, [count * stored, stored], true, true)),
            }
        }))
    }

    /// That these sizes can be multiplied.
    fn fits(&self, sizes: impl IntoIterator<Item = usize>, count: usize) -> Result<(), PatternError> {
        let fits = |size: usize| size.checked_mul(count).is_some_and(|size| size < i64::MAX as usize);
        if sizes.into_iter().all(fits) {
            return Ok(());
        }
        let [rows, columns] = self.shape().map(|size| size.saturating_mul(count));
        Err(PatternError::TooLarge { rows, columns })
    }

    /// The blocks of these shapes along the diagonal, and the range of entries of each.
    ///
    /// # Errors
    /// If the shapes do not sum to that of the pattern, an entry lies outside of the blocks, or, where that is not so, one of an
    /// earlier block stands after one of a later.
    pub(crate) fn split(&self, shapes: &[[usize; 2]]) -> Result<Vec<(Self, Range<usize>)>, PatternError> {
        let total = |axis| shapes.iter().fold(0usize, |sum, s| sum.saturating_add(s[axis]));
        if [total(0), total(1)] != self.shape() {
            return Err(PatternError::BlockShapes { shape: self.shape(), blocks: [total(0), total(1)] });
        }
        // The block that each row belongs to, and where its columns lie.
        let mut block_of_row = Vec::with_capacity(self.shape()[0]);
        let mut columns = Vec::with_capacity(shapes.len());
        let mut at = 0;
        for (block, &[m, n]) in shapes.iter().enumerate() {
            block_of_row.resize(block_of_row.len() + m, block);
            columns.push(at..at + n);
            at += n;
        }
        let (mut outside, mut mixed, mut previous) = (None, None, 0);
        self.for_each_entry(|row, column, position| {
            let block = block_of_row[row];
            if !columns[block].contains(&column) {
                outside.get_or_insert(PatternError::OutsideBlock { position, row, column, block });
            } else if block < previous {
                mixed.get_or_insert(PatternError::BlocksMixed { position, row, column, block });
            }
            previous = block;
        });
        if let Some(fault) = outside.or(mixed) {
            return Err(fault);
        }
        let mut at = 0;
        let parts = shapes.iter().zip(columns).map(|(&[m, _], columns)| {
            let rows = at..at + m;
            at += m;
            self.part(rows, columns)
        });
        Ok(parts.collect())
    }

    /// Block `item` of `items` equal ones, and its range of entries.
    pub(crate) fn item(&self, item: usize, items: usize) -> (Self, Range<usize>) {
        let [m, n] = self.shape().map(|size| size / items);
        self.part(item * m..(item + 1) * m, item * n..(item + 1) * n)
    }

    /// The block of these rows and columns, of a pattern whose entries stand block by block.
    fn part(&self, rows: Range<usize>, columns: Range<usize>) -> (Self, Range<usize>) {
        let shape = [rows.len(), columns.len()];
        let (pattern, entries) = match self.format().name() {
            Some("CSR") => {
                let (positions, coordinates) = self.inner.compressed_buffers();
                let entries = positions.get(rows.start)..positions.get(rows.end);
                let offsets: Vec<i64> =
                    (rows.start..=rows.end).map(|row| (positions.get(row) - entries.start) as i64).collect();
                let local = shifted(coordinates, entries.clone(), columns.start);
                (Self::csr(offsets, local, shape), entries)
            }
            Some("COO") => {
                let [row_of, column_of] = self.inner.coordinate_buffers();
                let first = |bound| partition_point(row_of.len(), |at| row_of.get(at) < bound);
                let entries = first(rows.start)..first(rows.end);
                let local = |buffer, start| shifted(buffer, entries.clone(), start);
                let pattern = Self::coo(local(row_of, rows.start), local(column_of, columns.start), shape);
                (pattern, entries)
            }
            _ => {
                let (pattern, entries) = self.t().part(columns, rows);
                return (pattern.t(), entries);
            }
        };
        (pattern.expect("part of a valid pattern"), entries)
    }

    /// The items below each other instead of along the diagonal, entries in the same order: for operands that all items share.
    pub(crate) fn stacked(&self, items: usize) -> Self {
        let [m, n] = self.shape();
        let width = n / items.max(1);
        let made = self.convert(Target::Stacked(items), || {
            let local = |column: usize| (column % width) as i64;
            let pattern = if self.format().name() == Some("CSR") {
                let (positions, coordinates) = self.inner.compressed_buffers();
                let columns: Vec<i64> = coordinates.iter().map(local).collect();
                Self::csr(positions.clone(), columns, [m, width])
            } else {
                let (rows, columns) = self.coordinates();
                let columns: Vec<i64> = columns.into_iter().map(local).collect();
                Self::coo(rows, columns, [m, width])
            };
            Conversion { pattern: pattern.expect("part of a valid pattern"), gather: None }
        });
        made.pattern
    }
}

impl Pattern {
    /// The inverse of [`stacked`](Self::stacked) for a pattern in CSR: items that lie below each other, with `n` columns each, along
    /// the diagonal.
    pub(crate) fn spread(&self, items: usize, n: usize) -> Result<Self, PatternError> {
        debug_assert_eq!(self.format().name(), Some("CSR"));
        if items == 0 {
            return Ok(self.clone()); // nothing in either form
        }
        self.fits([n], items)?;
        let rows = self.shape()[0];
        let made = self.convert(Target::Spread(items), || {
            let (positions, _) = self.inner.compressed_buffers();
            let width = self.index_width().max(width_of(items * n));
            let offsets: Vec<usize> = positions.iter().collect();
            let mut columns = Vec::with_capacity(self.nnz());
            self.for_each_entry(|row, column, _| columns.push(row / (rows / items) * n + column));
            let [offsets, columns] = [offsets, columns].map(|indices| Indices::of_width(width, &indices));
            let format = self.format();
            let pattern = trusted_csr(offsets, columns, [rows, items * n], format.is_unique(), format.is_ordered());
            Conversion { pattern, gather: None }
        });
        Ok(made.pattern)
    }

    /// As many rows as there are items, the entries of each being the rows of an item: what the results of rows are reduced by.
    pub(crate) fn rows_together(&self, items: usize) -> Self {
        let rows = self.shape()[0];
        let made = self.convert(Target::Together(items), || {
            let each = rows / items.max(1);
            let offsets: Vec<usize> = (0..=items).map(|item| item * each).collect();
            let columns: Vec<usize> = (0..offsets[items]).collect();
            let width = self.index_width();
            let [offsets, columns] = [offsets, columns].map(|indices| Indices::of_width(width, &indices));
            Conversion { pattern: trusted_csr(offsets, columns, [items, rows], true, true), gather: None }
        });
        made.pattern
    }

    /// A row of as many entries: what all values are reduced by, in their order.
    pub(crate) fn in_one_row(&self) -> Self {
        let made = self.convert(Target::OneRow, || {
            let (width, entries) = (self.index_width(), self.nnz());
            let columns = Indices::of_width(width, &(0..entries).collect::<Vec<_>>());
            let offsets = Indices::of_width(width, &[0, entries]);
            Conversion { pattern: trusted_csr(offsets, columns, [1, entries], true, true), gather: None }
        });
        made.pattern
    }

    /// How many entries each of so many equal blocks has.
    pub(crate) fn entries_of_items(&self, items: usize) -> Vec<usize> {
        let each = self.shape()[0] / items.max(1);
        with_rows!(self.rows(), rows => {
            let at = |item: usize| rows.offsets[item * each].get();
            (0..items).map(|item| at(item + 1) - at(item)).collect()
        })
    }
}

/// The narrowest width for indices up to `largest`.
fn width_of(largest: usize) -> IndexWidth {
    if largest <= i32::MAX as usize { IndexWidth::I32 } else { IndexWidth::I64 }
}

fn shifted(buffer: &Indices, range: Range<usize>, by: usize) -> Vec<i64> {
    range.map(|at| (buffer.get(at) - by) as i64).collect()
}
