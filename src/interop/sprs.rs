//! sprs' compressed matrices and its triplets.

use super::parts::{Along, Compressed, coordinates, refused};
use super::{FromParts, IntoParts};
use crate::Pattern;
use crate::error::{InteropError, PatternError};
use crate::pattern::IntoIndices;
use burn::tensor::Element;
use sprs::{CsMatI, CsMatViewI, SpIndex, TriMatI};

impl<E, I: SpIndex, O: SpIndex> IntoParts for CsMatI<E, I, O>
where
    Vec<I>: IntoIndices,
    Vec<O>: IntoIndices,
{
    type Value = E;
    fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
        let ((rows, columns), by_row) = (self.shape(), self.is_csr());
        // Offsets of a slice of a matrix start where it did.
        let shifted = (!self.indptr().is_proper()).then(|| self.proper_indptr().into_owned());
        let (offsets, inner, values) = self.into_raw_storage();
        let pattern = compressed(by_row, shifted.unwrap_or(offsets), inner, [rows, columns])?;
        Ok((pattern, values))
    }
}

impl<E: Clone, I: SpIndex, O: SpIndex> IntoParts for CsMatViewI<'_, E, I, O>
where
    Vec<I>: IntoIndices,
    Vec<O>: IntoIndices,
{
    type Value = E;
    fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
        let (rows, columns) = self.shape();
        let (offsets, inner) = (self.proper_indptr().into_owned(), self.indices().to_vec());
        let pattern = compressed(self.is_csr(), offsets, inner, [rows, columns])?;
        Ok((pattern, self.data().to_vec()))
    }
}

fn compressed(
    by_row: bool,
    offsets: impl IntoIndices,
    inner: impl IntoIndices,
    shape: [usize; 2],
) -> Result<Pattern, PatternError> {
    if by_row { Pattern::csr(offsets, inner, shape) } else { Pattern::csc(offsets, inner, shape) }
}

impl<E: Clone, I: SpIndex> IntoParts for TriMatI<E, I>
where
    Vec<I>: IntoIndices,
{
    type Value = E;
    fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
        let (rows, columns) = self.shape();
        let pattern = Pattern::coo(self.row_inds(), self.col_inds(), [rows, columns])?;
        Ok((pattern, self.data().to_vec()))
    }
}

/// CSC of a pattern in CSC, CSR of all others.
impl<E: Copy, I: SpIndex, O: SpIndex> FromParts for CsMatI<E, I, O>
where
    I: TryFrom<i32> + TryFrom<i64>,
    O: TryFrom<i32> + TryFrom<i64>,
{
    type Value = E;
    fn from_parts(pattern: Pattern, values: Vec<E>) -> Result<Self, InteropError> {
        let by_column = pattern.format().name() == Some("CSC");
        let along = if by_column { Along::Columns } else { Along::Rows };
        let Compressed { shape: [rows, columns], offsets, inner, values } =
            Compressed::of(pattern, values, along, "sprs::CsMatI")?;
        let shape = (rows, columns);
        let made = if by_column {
            Self::try_new_csc(shape, offsets, inner, values)
        } else {
            Self::try_new(shape, offsets, inner, values)
        };
        made.map_err(|(_, _, _, error)| refused(error))
    }
}

impl<E, I: SpIndex + TryFrom<i32> + TryFrom<i64>> FromParts for TriMatI<E, I> {
    type Value = E;
    fn from_parts(pattern: Pattern, values: Vec<E>) -> Result<Self, InteropError> {
        let [m, n] = pattern.shape();
        let [rows, columns] = coordinates(pattern, &values)?;
        Ok(Self::from_triplets((m, n), rows, columns, values))
    }
}

try_from_tensors! {
    [E: Element, I: SpIndex + TryFrom<i32> + TryFrom<i64>, O: SpIndex + TryFrom<i32> + TryFrom<i64>] CsMatI<E, I, O>;
    [E: Element, I: SpIndex + TryFrom<i32> + TryFrom<i64>] TriMatI<E, I>;
}
