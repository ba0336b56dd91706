//! From a pattern and values to the buffers that another library takes.

use crate::Pattern;
use crate::error::{InteropError, TensorError};
use crate::pattern::{Conversion, Indices, IntoIndices, LevelStorage, RawIndices};
use std::any::type_name;
use std::collections::HashSet;

/// Whose entries stand together in a compressed matrix.
#[derive(Clone, Copy)]
pub(super) enum Along {
    Rows,
    Columns,
}

/// The buffers of a compressed matrix, each position stored once, in order.
pub(super) struct Compressed<O, I, E> {
    pub shape: [usize; 2],
    pub offsets: Vec<O>,
    pub inner: Vec<I>,
    pub values: Vec<E>,
}

impl<O, I, E> Compressed<O, I, E>
where
    O: TryFrom<i32> + TryFrom<i64>,
    I: TryFrom<i32> + TryFrom<i64>,
    E: Copy,
{
    /// For a matrix type of this name.
    pub(super) fn of(
        pattern: Pattern,
        values: Vec<E>,
        along: Along,
        matrix: &'static str,
    ) -> Result<Self, InteropError> {
        check_length(&pattern, &values)?;
        if pattern.has_duplicates() {
            return Err(duplicate(&pattern, matrix));
        }
        let shape = pattern.shape();
        check_shape::<I>(shape)?;
        let (pattern, values) = match along {
            Along::Rows => converted(pattern, values, Pattern::to_csr),
            Along::Columns => converted(pattern, values, Pattern::to_csc),
        };
        // Of unique entries, this only sorts.
        let (pattern, values) = converted(pattern, values, Pattern::coalesce);
        let Some(LevelStorage { positions: Some(offsets), coordinates: Some(inner) }) = pattern.into_levels().pop()
        else {
            unreachable!("the last level of CSR and CSC is compressed")
        };
        Ok(Self { shape, offsets: indices(offsets)?, inner: indices(inner)?, values })
    }
}

/// The parts in another order. Lets go of the pattern, so that its buffers can be moved if they are those of the result.
fn converted<E: Copy>(pattern: Pattern, values: Vec<E>, convert: impl Fn(&Pattern) -> Conversion) -> (Pattern, Vec<E>) {
    let Conversion { pattern, gather } = convert(&pattern);
    let Some(gather) = gather else {
        return (pattern, values);
    };
    let mut moved = Vec::with_capacity(values.len());
    gather.for_each_entry(|_, old, _| moved.push(values[old]));
    (pattern, moved)
}

/// Row and column indices, in the order of the values.
#[cfg(any(feature = "nalgebra-sparse", feature = "sprs"))]
pub(super) fn coordinates<I: TryFrom<i32> + TryFrom<i64>, E>(
    pattern: Pattern,
    values: &[E],
) -> Result<[Vec<I>; 2], InteropError> {
    check_length(&pattern, values)?;
    check_shape::<I>(pattern.shape())?;
    let (rows, columns) = match pattern.format().name() {
        Some("COO") => {
            let mut levels = pattern.into_levels().into_iter().filter_map(|level| level.coordinates);
            let mut next = || levels.next().expect("COO stores two coordinates");
            (next(), next())
        }
        _ => {
            let (width, (rows, columns)) = (pattern.index_width(), pattern.coordinates());
            (Indices::of_width(width, &rows), Indices::of_width(width, &columns))
        }
    };
    Ok([indices(rows)?, indices(columns)?])
}

/// In the index type of another library; in place if the widths are the same and nobody else holds the buffer.
fn indices<I: TryFrom<i32> + TryFrom<i64>>(buffer: Indices) -> Result<Vec<I>, InteropError> {
    let misfit = |value| InteropError::Index { value, index: type_name::<I>() };
    match buffer.into_indices() {
        RawIndices::I32(buffer) => buffer.into_iter().map(|i| I::try_from(i).map_err(|_| misfit(i.into()))).collect(),
        RawIndices::I64(buffer) => buffer.into_iter().map(|i| I::try_from(i).map_err(|_| misfit(i))).collect(),
    }
}

/// The libraries want more of a shape than that its indices fit: it has to fit the signed type of the same width.
fn check_shape<I>(shape: [usize; 2]) -> Result<(), InteropError> {
    let limit = (1u128 << (8 * size_of::<I>() - 1)) - 1;
    match shape.into_iter().find(|&size| size as u128 > limit) {
        // A pattern's shape is below the largest i64.
        Some(size) => Err(InteropError::Index { value: size as i64, index: type_name::<I>() }),
        None => Ok(()),
    }
}

fn check_length<E>(pattern: &Pattern, values: &[E]) -> Result<(), TensorError> {
    let (values, stored) = (values.len(), pattern.nnz());
    if values == stored { Ok(()) } else { Err(TensorError::ValuesLength { values, stored }) }
}

/// The first entry whose position an earlier one has stored.
fn duplicate(pattern: &Pattern, matrix: &'static str) -> InteropError {
    let (rows, columns) = pattern.coordinates();
    let mut seen = HashSet::new();
    let again = rows.iter().zip(&columns).position(|place| !seen.insert(place));
    let position = again.expect("the pattern has duplicates");
    InteropError::Duplicate { position, row: rows[position], column: columns[position], matrix }
}

/// Another library refuses what was checked here by its own rules.
#[cfg(any(feature = "nalgebra-sparse", feature = "sprs"))]
pub(super) fn refused(reason: impl ToString) -> InteropError {
    InteropError::Refused { reason: reason.to_string() }
}
