//! faer's sparse matrices, with values or symbolic, owned or borrowed.

use super::parts::{Along, Compressed};
use super::{FromParts, IntoParts};
use crate::Pattern;
use crate::error::{InteropError, PatternError};
use crate::pattern::{IntoIndices, LevelStorage, RawIndices};
use burn::tensor::Element;
use faer::Index;
use faer::sparse::{
    SparseColMat, SparseColMatRef, SparseRowMat, SparseRowMatRef, SymbolicSparseColMat, SymbolicSparseColMatRef,
    SymbolicSparseRowMat, SymbolicSparseRowMatRef,
};

/// Rows, columns, where each column (or row) starts, how many of its entries are used, indices.
type Owned<I> = (usize, usize, Vec<I>, Option<Vec<I>>, Vec<I>);
type Borrowed<'a, I> = (usize, usize, &'a [I], Option<&'a [I]>, &'a [I]);

/// Makes a pattern of checked or unchecked buffers, in CSR or CSC.
type Build = fn(RawIndices, RawIndices, [usize; 2]) -> Result<Pattern, PatternError>;

macro_rules! matrices {
    ($owned:ident, $view:ident, $symbolic:ident, $symbolic_view:ident, $along:expr, $name:literal, $build:expr) => {
        impl<I: Index, E> IntoParts for $owned<I, E>
        where
            Vec<I>: IntoIndices,
        {
            type Value = E;
            fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
                let (symbolic, values) = self.into_parts();
                packed(symbolic.into_parts(), values, $build)
            }
        }

        impl<I: Index, E: Clone> IntoParts for $view<'_, I, E>
        where
            Vec<I>: IntoIndices,
        {
            type Value = E;
            fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
                let (symbolic, values) = self.parts();
                packed(copied(symbolic.parts()), values.to_vec(), $build)
            }
        }

        impl<I: Index> IntoParts for $symbolic<I>
        where
            Vec<I>: IntoIndices,
        {
            type Value = ();
            fn into_parts(self) -> Result<(Pattern, Vec<()>), PatternError> {
                let parts = self.into_parts();
                let values = vec![(); parts.4.len()];
                packed(parts, values, $build)
            }
        }

        impl<I: Index> IntoParts for $symbolic_view<'_, I>
        where
            Vec<I>: IntoIndices,
        {
            type Value = ();
            fn into_parts(self) -> Result<(Pattern, Vec<()>), PatternError> {
                let parts = copied(self.parts());
                let values = vec![(); parts.4.len()];
                packed(parts, values, $build)
            }
        }

        impl<I: Index + TryFrom<i32> + TryFrom<i64>, E: Copy> FromParts for $owned<I, E> {
            type Value = E;
            fn from_parts(pattern: Pattern, values: Vec<E>) -> Result<Self, InteropError> {
                let Compressed { shape: [rows, columns], offsets, inner, values } =
                    Compressed::of(pattern, values, $along, concat!("faer::sparse::", stringify!($owned)))?;
                Ok(Self::new($symbolic::new_checked(rows, columns, offsets, None, inner), values))
            }
        }

        impl<I: Index + TryFrom<i32> + TryFrom<i64>> FromParts for $symbolic<I> {
            type Value = ();
            fn from_parts(pattern: Pattern, values: Vec<()>) -> Result<Self, InteropError> {
                let Compressed { shape: [rows, columns], offsets, inner, .. } =
                    Compressed::of(pattern, values, $along, concat!("faer::sparse::", stringify!($symbolic)))?;
                Ok(Self::new_checked(rows, columns, offsets, None, inner))
            }
        }

        try_from_tensors! {
            [I: Index + TryFrom<i32> + TryFrom<i64>, E: Element] $owned<I, E>;
        }

        views! { $symbolic_view, $name: u32 u64 }
        #[cfg(target_pointer_width = "64")]
        views! { $symbolic_view, $name: usize }
    };
}

macro_rules! views {
    ($view:ident, $name:literal: $($index:ty)*) => {$(
        /// The buffers of a pattern, borrowed: of one in the layout and of the index width of the view, sorted, each position
        /// stored once.
        impl<'a> TryFrom<&'a Pattern> for $view<'a, $index> {
            type Error = InteropError;
            fn try_from(pattern: &'a Pattern) -> Result<Self, InteropError> {
                let [rows, columns] = pattern.shape();
                let (offsets, inner) = borrowed(pattern, $name)?;
                Ok(Self::new_checked(rows, columns, offsets, None, inner))
            }
        }
    )*};
}

matrices!(
    SparseRowMat,
    SparseRowMatRef,
    SymbolicSparseRowMat,
    SymbolicSparseRowMatRef,
    Along::Rows,
    "CSR",
    Pattern::csr
);
matrices!(
    SparseColMat,
    SparseColMatRef,
    SymbolicSparseColMat,
    SymbolicSparseColMatRef,
    Along::Columns,
    "CSC",
    Pattern::csc
);

fn copied<I: Copy>((rows, columns, starts, lengths, inner): Borrowed<'_, I>) -> Owned<I> {
    (rows, columns, starts.to_vec(), lengths.map(<[I]>::to_vec), inner.to_vec())
}

/// The pattern of faer's buffers and its values, without the room that faer may leave before, between and behind the columns.
fn packed<I: Index, E>(
    (rows, columns, mut starts, lengths, mut inner): Owned<I>,
    mut values: Vec<E>,
    build: Build,
) -> Result<(Pattern, Vec<E>), PatternError>
where
    Vec<I>: IntoIndices,
{
    let end = starts.last().map_or(0, |end| end.zx());
    if lengths.is_none() && starts.first().is_none_or(|start| start.zx() == 0) {
        inner.truncate(end);
        values.truncate(end);
    } else {
        let mut used = vec![false; inner.len()];
        let mut total = 0;
        for at in 0..starts.len().saturating_sub(1) {
            let start = starts[at].zx();
            let length = lengths.as_ref().map_or(starts[at + 1].zx() - start, |lengths| lengths[at].zx());
            used[start..start + length].fill(true);
            starts[at] = I::truncate(total);
            total += length;
        }
        if let Some(last) = starts.last_mut() {
            *last = I::truncate(total);
        }
        let mut at = used.iter();
        inner.retain(|_| *at.next().expect("as many as indices"));
        let mut at = used.iter();
        values.retain(|_| *at.next().expect("as many as indices"));
    }
    Ok((build(starts.into_indices(), inner.into_indices(), [rows, columns])?, values))
}

/// Offsets and indices of a pattern that faer can read where they are.
fn borrowed<'a, I: bytemuck::Pod>(
    pattern: &'a Pattern,
    name: &'static str,
) -> Result<(&'a [I], &'a [I]), InteropError> {
    let format = pattern.format();
    if let Some(LevelStorage { positions: Some(offsets), coordinates: Some(inner) }) = pattern.levels().last()
        && format.name() == Some(name)
        && format.is_ordered()
        && format.is_unique()
        && pattern.index_width().bytes() == size_of::<I>()
    {
        return Ok((bytemuck::cast_slice(offsets.as_bytes()), bytemuck::cast_slice(inner.as_bytes())));
    }
    Err(InteropError::View { format: name, bits: 8 * size_of::<I>(), found: pattern.to_string() })
}
