//! Patterns as data: format, shape and the buffers of each level.

use super::{IndexWidth, Indices, LevelStorage, Pattern, RawIndices};
use crate::error::PatternError;
use crate::format::TensorFormat;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

#[derive(serde::Serialize)]
#[serde(rename = "Pattern")]
struct Written<'a> {
    format: TensorFormat,
    shape: &'a [usize],
    index_bits: Option<u8>,
    levels: Vec<WrittenLevel<'a>>,
}

#[derive(serde::Serialize)]
#[serde(rename = "Level")]
struct WrittenLevel<'a> {
    positions: Option<WrittenIndices<'a>>,
    coordinates: Option<WrittenIndices<'a>>,
}

impl<'a> From<&'a LevelStorage> for WrittenLevel<'a> {
    fn from(level: &'a LevelStorage) -> Self {
        Self {
            positions: level.positions.as_ref().map(Into::into),
            coordinates: level.coordinates.as_ref().map(Into::into),
        }
    }
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum WrittenIndices<'a> {
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl<'a> From<&'a Indices> for WrittenIndices<'a> {
    fn from(indices: &'a Indices) -> Self {
        match indices {
            Indices::I32(indices) => WrittenIndices::I32(indices),
            Indices::I64(indices) => WrittenIndices::I64(indices),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(rename = "Pattern", deny_unknown_fields)]
struct Read {
    format: TensorFormat,
    shape: Vec<usize>,
    #[serde(default)]
    index_bits: Option<u8>,
    levels: Vec<ReadLevel>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "Level", deny_unknown_fields)]
struct ReadLevel {
    #[serde(default)]
    positions: Option<Vec<i64>>,
    #[serde(default)]
    coordinates: Option<Vec<i64>>,
}

/// As `format` (its text), `shape`, `index_bits` (32 or 64), and for each of the `levels` its `positions` and
/// `coordinates`, null where the level stores none.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let pattern = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
/// assert_eq!(
///     serde_json::to_value(&pattern).unwrap(),
///     serde_json::json!({
///         "format": "(i, j) -> (i : dense, j : compressed)",
///         "shape": [2, 3],
///         "index_bits": 32,
///         "levels": [
///             { "positions": null, "coordinates": null },
///             { "positions": [0, 1, 3], "coordinates": [2, 0, 2] },
///         ],
///     })
/// );
/// # Ok::<(), PatternError>(())
/// ```
impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = Written {
            format: self.format(),
            shape: &self.shape(),
            index_bits: Some(match self.index_width() {
                IndexWidth::I32 => 32,
                IndexWidth::I64 => 64,
            }),
            levels: self.levels().iter().map(WrittenLevel::from).collect(),
        };
        written.serialize(serializer)
    }
}

/// From the same. `index_bits` may be left out: the pattern then has the narrowest indices that hold it. So may buffers that a
/// level does not store.
///
/// # Errors
/// If the data is no valid pattern, with the message of the [`PatternError`]: everything that [`Pattern::from_levels`]
/// checks is checked.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let hostile = r#"{
///     "format": "(i, j) -> (i : dense, j : compressed)",
///     "shape": [2, 3],
///     "levels": [{}, { "positions": [0, 1, 3], "coordinates": [2, 0, 7] }]
/// }"#;
/// let error = serde_json::from_str::<Pattern>(hostile).unwrap_err();
/// assert!(error.to_string().starts_with("column index 7 at position 2 is out of range"));
/// ```
impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        let read = Read::deserialize(deserializer)?;
        let width = match read.index_bits {
            None => None,
            Some(32) => Some(IndexWidth::I32),
            Some(64) => Some(IndexWidth::I64),
            Some(bits) => {
                let fault = format!("indices have 32 or 64 bits, not {bits}");
                return Err(De::Error::custom(fault));
            }
        };
        let levels = read.levels.into_iter().map(|level| {
            let ReadLevel { positions, coordinates } = level;
            (positions.map(RawIndices::I64), coordinates.map(RawIndices::I64))
        });
        assemble(read.format, read.shape, levels.collect(), width).map_err(De::Error::custom)
    }
}

/// The pattern of parts that nobody has checked; without a width, in the narrowest.
fn assemble(
    format: TensorFormat,
    shape: Vec<usize>,
    levels: Vec<(Option<RawIndices>, Option<RawIndices>)>,
    width: Option<IndexWidth>,
) -> Result<Pattern, PatternError> {
    let Ok(shape) = shape.as_slice().try_into() else {
        return Err(PatternError::Rank { format, shape });
    };
    let pattern = Pattern::from_levels(&format, shape, levels)?;
    match width {
        Some(width) => pattern.with_index_width(width),
        None => Ok(pattern),
    }
}

/// The same for a tensor of this shape: of a batch, the pattern of its block-diagonal matrix.
pub(crate) fn assemble_items(
    format: TensorFormat,
    shape: &[usize],
    levels: Vec<(Option<RawIndices>, Option<RawIndices>)>,
    width: Option<IndexWidth>,
) -> Result<Pattern, PatternError> {
    let [batch @ .., rows, columns] = shape else {
        return Err(PatternError::Rank { format, shape: shape.to_vec() });
    };
    let whole = |size: usize| batch.iter().try_fold(size, |all, &items| all.checked_mul(items));
    let (Some(all_rows), Some(all_columns)) = (whole(*rows), whole(*columns)) else {
        let most = |size: usize| batch.iter().fold(size, |all, &items| all.saturating_mul(items));
        return Err(PatternError::TooLarge { rows: most(*rows), columns: most(*columns) });
    };
    let pattern = assemble(format, vec![all_rows, all_columns], levels, width)?;
    check_items(&pattern, [*rows, *columns])?;
    Ok(pattern)
}

/// That each entry stands in a block of this shape on the diagonal, and none after one of a later block.
fn check_items(pattern: &Pattern, [rows, columns]: [usize; 2]) -> Result<(), PatternError> {
    let (mut fault, mut previous) = (None, 0);
    pattern.for_each_entry(|row, column, position| {
        let block = row / rows;
        if block != column / columns || block < previous {
            fault.get_or_insert(PatternError::OutsideBlock { position, row, column, block });
        }
        previous = block;
    });
    fault.map_or(Ok(()), Err)
}
