//! From unchecked buffers to a pattern: every rule is checked once, here.

use super::indices::{IndexWidth, Indices, IntoIndices, RawIndices};
use super::{LevelStorage, Pattern};
use crate::error::{Axis, PatternError};
use crate::format::TensorFormat;
use std::cell::Cell;

/// What the last level of a built pattern turned out to be.
#[derive(Debug, Clone, Copy)]
struct Found {
    unique: bool,
    ordered: bool,
    /// Position of the first entry that breaks uniqueness, and of the first that breaks order.
    duplicate_at: usize,
    unordered_at: usize,
}

impl Pattern {
    /// Compressed sparse rows: row `i` has the columns `columns[offsets[i]..offsets[i + 1]]`.
    ///
    /// Columns may be unsorted and may repeat; the [`format`](Self::format) tells what was found.
    ///
    /// # Errors
    /// If the offsets have the wrong length, do not start at 0, decrease or do not end at the number of columns, or a
    /// column is out of range: each with position, value and bound.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let pattern = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
    /// assert_eq!(pattern.nnz(), 3);
    /// let error = Pattern::csr([0, 1, 3], [2, 0, 7], [2, 3]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "column index 7 at position 2 is out of range for a matrix with 3 columns (shape 2x3, row 1 has entries 1..3)"
    /// );
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn csr(offsets: impl IntoIndices, columns: impl IntoIndices, shape: [usize; 2]) -> Result<Self, PatternError> {
        compressed(offsets.into_indices(), columns.into_indices(), shape, 0)
    }

    /// Compressed sparse columns: column `j` has the rows `rows[offsets[j]..offsets[j + 1]]`.
    ///
    /// # Errors
    /// As [`csr`](Self::csr), with rows and columns exchanged.
    pub fn csc(offsets: impl IntoIndices, rows: impl IntoIndices, shape: [usize; 2]) -> Result<Self, PatternError> {
        compressed(offsets.into_indices(), rows.into_indices(), shape, 1)
    }

    /// Coordinates: entry `e` stands at `(rows[e], columns[e])`, in any order, repeated or not.
    ///
    /// # Errors
    /// If the buffers have different lengths, or an index is out of range.
    pub fn coo(rows: impl IntoIndices, columns: impl IntoIndices, shape: [usize; 2]) -> Result<Self, PatternError> {
        coordinates(rows.into_indices(), columns.into_indices(), shape)
    }

    /// A pattern in the given format, from the buffers of its levels. What the format promises (order, uniqueness)
    /// must hold.
    ///
    /// # Errors
    /// As the constructors of the named formats; if a level's buffers are not those of its kind; if order or uniqueness
    /// is promised and broken; and [`PatternError::Unsupported`] for formats other than COO, CSR and CSC.
    pub fn from_levels(
        format: &TensorFormat,
        shape: [usize; 2],
        levels: Vec<(Option<RawIndices>, Option<RawIndices>)>,
    ) -> Result<Self, PatternError> {
        if format.rank() != 2 {
            return Err(PatternError::Rank { format: format.clone(), shape: shape.to_vec() });
        }
        let wrong = |level, reason| PatternError::Level { level, format: format.clone(), reason };
        if levels.len() != format.levels().len() {
            return Err(wrong(levels.len(), "the format has another number of levels"));
        }
        for (at, (level, (positions, coordinates))) in format.levels().iter().zip(&levels).enumerate() {
            for (stored, given, name) in [
                (level.kind.has_positions(), positions, "positions"),
                (level.kind.has_coordinates(), coordinates, "coordinates"),
            ] {
                match (stored, given, name) {
                    (true, None, "positions") => return Err(wrong(at, "positions are missing")),
                    (true, None, _) => return Err(wrong(at, "coordinates are missing")),
                    (false, Some(_), "positions") => {
                        return Err(wrong(at, "its kind stores no positions"));
                    }
                    (false, Some(_), _) => return Err(wrong(at, "its kind stores no coordinates")),
                    _ => {}
                }
            }
        }
        if format.name().is_none() && format.transposed().name().is_some() {
            let [rows, columns] = shape;
            return Ok(Self::from_levels(&format.transposed(), [columns, rows], levels)?.t());
        }
        let mut buffers = levels.into_iter().flat_map(|(positions, coordinates)| [positions, coordinates]).flatten();
        let mut next = || buffers.next().expect("presence was checked");
        let pattern = match format.name() {
            Some("CSR") => compressed(next(), next(), shape, 0)?,
            Some("CSC") => compressed(next(), next(), shape, 1)?,
            Some("COO") => {
                let (positions, rows) = (next(), next());
                let entries = rows.len();
                if positions.len() != 2 || positions.get(0) != 0 {
                    return Err(wrong(0, "the positions of a root level are [0, entries]"));
                }
                if positions.get(1) != entries as i128 {
                    return Err(PatternError::LastOffset { axis: Axis::Row, value: positions.get(1), entries });
                }
                coordinates(rows, next(), shape)?
            }
            _ => {
                return Err(PatternError::Unsupported { format: format.clone() });
            }
        };
        pattern.keeps_promises(format)
    }

    /// The pattern, if it is as ordered and as unique as the format promises.
    fn keeps_promises(self, format: &TensorFormat) -> Result<Self, PatternError> {
        let found = self.format();
        let breaks = |position: usize| {
            let (row, column) = self.position(position);
            (position, row, column, format.clone())
        };
        if format.is_ordered() && !found.is_ordered() {
            let (position, row, column, format) = breaks(scan(&self).unordered_at);
            return Err(PatternError::Unordered { position, row, column, format });
        }
        if format.is_unique() && !found.is_unique() {
            let (position, row, column, format) = breaks(scan(&self).duplicate_at);
            return Err(PatternError::Duplicate { position, row, column, format });
        }
        Ok(self)
    }
}

/// The narrowest width for these sizes.
fn width_for(shape: [usize; 2], entries: usize) -> IndexWidth {
    let largest = shape[0].max(shape[1]).max(entries);
    if largest <= i32::MAX as usize { IndexWidth::I32 } else { IndexWidth::I64 }
}

fn check_shape(shape: [usize; 2]) -> Result<(), PatternError> {
    // Rows and columns are counted in i64 on every device; one is kept free for the offsets' length.
    if shape.iter().any(|&n| n >= i64::MAX as usize) {
        return Err(PatternError::TooLarge { rows: shape[0], columns: shape[1] });
    }
    Ok(())
}

fn out_of_range(axis: Axis, shape: [usize; 2], indices: &RawIndices) -> Option<(usize, PatternError)> {
    let bound = shape[axis as usize];
    let position = indices.position(|i| i < 0 || i as u64 >= bound as u64)?;
    let error =
        PatternError::IndexOutOfRange { axis, position, value: indices.get(position), bound, shape, group: None };
    Some((position, error))
}

fn compressed(
    offsets: RawIndices,
    inner: RawIndices,
    shape: [usize; 2],
    outer: usize,
) -> Result<Pattern, PatternError> {
    check_shape(shape)?;
    let (outer_axis, inner_axis) = if outer == 0 { (Axis::Row, Axis::Column) } else { (Axis::Column, Axis::Row) };
    check_offsets(&offsets, shape[outer], inner.len(), outer_axis)?;
    if let Some((position, mut error)) = out_of_range(inner_axis, shape, &inner) {
        if let PatternError::IndexOutOfRange { group, .. } = &mut error {
            let at = (0..shape[outer]).rfind(|&i| offsets.get(i) <= position as i128).expect("offsets start at 0");
            *group = Some((at, offsets.get(at) as usize, offsets.get(at + 1) as usize));
        }
        return Err(error);
    }
    let width = width_for(shape, inner.len());
    let offsets = offsets.into_width(width);
    let inner = inner.into_width(width);
    let build = |unique, ordered| {
        Pattern::unchecked(
            TensorFormat::compressed(outer, 1 - outer, unique, ordered),
            shape,
            inner.len(),
            vec![
                LevelStorage::default(),
                LevelStorage { positions: Some(offsets.clone()), coordinates: Some(inner.clone()) },
            ],
        )
    };
    let pattern = build(false, false);
    let found = scan(&pattern);
    Ok(if found.unique || found.ordered { build(found.unique, found.ordered) } else { pattern })
}

fn check_offsets(offsets: &RawIndices, count: usize, entries: usize, axis: Axis) -> Result<(), PatternError> {
    // `count + 1` may not wrap for a shape that check_shape has passed.
    if offsets.len() != count + 1 {
        return Err(PatternError::OffsetsLength { axis, found: offsets.len(), count });
    }
    if offsets.get(0) != 0 {
        return Err(PatternError::FirstOffset { axis, value: offsets.get(0) });
    }
    let previous = Cell::new(0);
    if let Some(position) = offsets.position(|value| value < previous.replace(value)) {
        return Err(PatternError::OffsetsDecrease {
            axis,
            position,
            previous: offsets.get(position - 1),
            value: offsets.get(position),
        });
    }
    if offsets.get(count) != entries as i128 {
        return Err(PatternError::LastOffset { axis, value: offsets.get(count), entries });
    }
    Ok(())
}

fn coordinates(rows: RawIndices, columns: RawIndices, shape: [usize; 2]) -> Result<Pattern, PatternError> {
    check_shape(shape)?;
    if rows.len() != columns.len() {
        return Err(PatternError::Lengths {
            first: "row indices",
            first_length: rows.len(),
            second: "column indices",
            second_length: columns.len(),
        });
    }
    let faults = [out_of_range(Axis::Row, shape, &rows), out_of_range(Axis::Column, shape, &columns)];
    if let Some((_, error)) = faults.into_iter().flatten().min_by_key(|fault| fault.0) {
        return Err(error);
    }
    let entries = rows.len();
    let width = width_for(shape, entries);
    let rows = rows.into_width(width);
    let columns = columns.into_width(width);
    let build = |unique, ordered| {
        let positions = Indices::of_width(width, &[0, entries]);
        Pattern::unchecked(
            TensorFormat::coo_with(unique, ordered),
            shape,
            entries,
            vec![
                LevelStorage { positions: Some(positions), coordinates: Some(rows.clone()) },
                LevelStorage { positions: None, coordinates: Some(columns.clone()) },
            ],
        )
    };
    let found = scan(&build(false, false));
    Ok(build(found.unique, found.ordered))
}

/// Order and uniqueness in storage order. Ordered entries are compared with their predecessor; others are marked
/// per row of the row-ordered view.
fn scan(pattern: &Pattern) -> Found {
    let mut found = Found { unique: true, ordered: true, duplicate_at: 0, unordered_at: 0 };
    // In CSC the outer coordinate is the column: compare in the order of the levels.
    let by_column = pattern.inner.format.name() == Some("CSC");
    let mut previous = None;
    pattern.for_each_entry(|row, column, entry| {
        let key = if by_column { (column, row) } else { (row, column) };
        if let Some(before) = previous {
            if found.ordered && key < before {
                found.ordered = false;
                found.unordered_at = entry;
            }
            if found.unique && key == before {
                found.unique = false;
                found.duplicate_at = entry;
            }
        }
        previous = Some(key);
    });
    if !found.ordered
        && found.unique
        && let Some(entry) = first_duplicate(pattern)
    {
        found.unique = false;
        found.duplicate_at = entry;
    }
    found
}

/// The smallest storage position whose entry an earlier one has stored already.
fn first_duplicate(pattern: &Pattern) -> Option<usize> {
    let mut keyed = Vec::with_capacity(pattern.nnz());
    pattern.for_each_entry(|row, column, entry| keyed.push((row, column, entry)));
    keyed.sort_unstable();
    keyed.windows(2).filter(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)).map(|pair| pair[1].2).min()
}

/// CSR from lists that hold by construction, in the narrowest width, without a scan.
pub(crate) fn csr_of(offsets: &[usize], columns: &[usize], shape: [usize; 2], unique: bool, ordered: bool) -> Pattern {
    let width = width_for(shape, columns.len());
    let [offsets, columns] = [offsets, columns].map(|indices| Indices::of_width(width, indices));
    trusted_csr(offsets, columns, shape, unique, ordered)
}

/// Takes buffers that hold by construction, without a scan.
pub(crate) fn trusted_csr(
    offsets: Indices,
    columns: Indices,
    shape: [usize; 2],
    unique: bool,
    ordered: bool,
) -> Pattern {
    let entries = columns.len();
    Pattern::unchecked(
        TensorFormat::compressed(0, 1, unique, ordered),
        shape,
        entries,
        vec![LevelStorage::default(), LevelStorage { positions: Some(offsets), coordinates: Some(columns) }],
    )
}
