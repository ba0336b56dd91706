//! Matrices of other libraries: [faer](https://docs.rs/faer), [sprs](https://docs.rs/sprs) and
//! [nalgebra-sparse](https://docs.rs/nalgebra-sparse), each behind a feature of its name.
//!
//! ```
//! # #[cfg(feature = "sprs")] {
//! use sparsegrad::prelude::*;
//! use sprs::{CsMatI, TriMatI};
//!
//! let mut entries = TriMatI::<f64, i32>::new((2, 3));
//! entries.add_triplet(0, 2, 3.0);
//! entries.add_triplet(1, 0, 4.0);
//! let theirs: CsMatI<f64, i32> = entries.to_csr();
//!
//! let ours = SparseTensor::from_foreign(theirs.clone(), &Device::flex()).unwrap();
//! assert_eq!(ours.get(1, 0).unwrap(), Some(4.0));
//!
//! let back: CsMatI<f64, i32> = ours.to_foreign().unwrap();
//! assert_eq!(back, theirs);
//! # }
//! ```
//!
//! [`from_foreign`](SparseTensor::from_foreign), [`to_foreign`](SparseTensor::to_foreign) and
//! [`into_foreign`](SparseTensor::into_foreign) exist of [`SparseTensor<2>`](SparseTensor), with values on a device; of
//! [`HostMatrix`], with values in double precision on the host; and of [`Pattern`], without values. The types that can be made
//! of a tensor also have `TryFrom<SparseTensor<2>>` and `TryFrom<&SparseTensor<2>>`. Other types join in by implementing
//! [`IntoParts`] and [`FromParts`].
//!
//! # What is kept
//!
//! Explicit zeros, always; the order of the entries and entries at the same place, wherever the target can hold them. The
//! compressed types of all three libraries hold each place once and in order: an unsorted tensor is sorted for them (a copy),
//! and one with duplicates is [an error](InteropError::Duplicate) that says where (coalesce it first). Coordinate types take
//! everything as it is.
//!
//! Values keep their type: that of the tensor must be that of the matrix, which is an [error](InteropError::DType) otherwise
//! (use `cast`). A tensor made from a foreign matrix is not tracked (call `require_grad`); of a tracked one the values are read.
//! Batches are not offered, as no other library has them: convert their items one by one.
//!
//! # What is moved and what is copied
//!
//! Here, indices have 32 bits wherever shape and number of entries allow it, and 64 bits otherwise.
//!
//! | type | index type | to here | from here |
//! |---|---|---|---|
//! | faer `SparseColMat`, `SparseRowMat` | `u32` | moved, values too | moved |
//! | the same | `u64`, `usize` | widths differ: copied; values moved | copied |
//! | the same with unused room between columns | any | copied | |
//! | faer `SparseColMatRef`, `SparseRowMatRef` | any | copied | |
//! | faer `SymbolicSparseColMat`, `SymbolicSparseRowMat` | as of the matrices | pattern only | pattern only |
//! | faer `SymbolicSparseColMatRef`, `SymbolicSparseRowMatRef` | `u32` (`u64`, `usize` if wide) | copied | borrowed: `TryFrom<&Pattern>` |
//! | sprs `CsMatI` | `i32`, `u32` | moved, values too | moved |
//! | sprs `CsMat`, `CsMatI` | `i64`, `u64`, `usize` | widths differ: copied; values moved | copied |
//! | sprs `CsMatViewI` | any | copied | |
//! | sprs `TriMatI` | any | copied: sprs lends its buffers only | `i32`, `u32`: moved |
//! | nalgebra-sparse `CsrMatrix`, `CscMatrix`, `CooMatrix` | `usize` | copied; values moved | copied |
//!
//! "Moved" from here is for [`into_foreign`](SparseTensor::into_foreign) of a tensor whose pattern nobody else holds, in the
//! layout of the target; otherwise buffers are copied. Values come from the device: from Flex without a copy if nobody else holds them.
//! With wide patterns the columns exchange: 64-bit types are moved, and narrower ones are an [error](InteropError::Index) where
//! an index does not fit.

/// The conversions of the standard library for types that can be made of a tensor.
#[cfg(any(feature = "faer", feature = "nalgebra-sparse", feature = "sprs"))]
macro_rules! try_from_tensors {
    ($([$($generics:tt)*] $matrix:ty;)*) => {$(
        /// The same as `into_foreign`.
        impl<$($generics)*> TryFrom<$crate::SparseTensor<2>> for $matrix {
            type Error = $crate::error::InteropError;
            fn try_from(tensor: $crate::SparseTensor<2>) -> Result<Self, Self::Error> {
                tensor.into_foreign()
            }
        }

        /// The same as `to_foreign`.
        impl<$($generics)*> TryFrom<&$crate::SparseTensor<2>> for $matrix {
            type Error = $crate::error::InteropError;
            fn try_from(tensor: &$crate::SparseTensor<2>) -> Result<Self, Self::Error> {
                tensor.to_foreign()
            }
        }
    )*};
}

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra-sparse")]
mod nalgebra_sparse;
#[cfg(any(feature = "faer", feature = "nalgebra-sparse", feature = "sprs"))]
mod parts;
#[cfg(feature = "sprs")]
mod sprs;

use crate::error::{InteropError, PatternError, TensorError};
use crate::io::HostMatrix;
use crate::{IntoValues, Pattern, SparseTensor};
use burn::tensor::{Device, Element};

/// A sparse matrix of another library that can be taken apart into a checked pattern and its values.
pub trait IntoParts {
    /// The type of the values; `()` of a matrix without values.
    type Value;

    /// The pattern, and a value for each of its entries, in their order. Moves what can be moved.
    ///
    /// # Errors
    /// If the buffers are no valid pattern.
    fn into_parts(self) -> Result<(Pattern, Vec<Self::Value>), PatternError>;
}

/// A sparse matrix of another library that can be made of a pattern and its values.
pub trait FromParts: Sized {
    /// The type of the values; `()` of a matrix without values.
    type Value;

    /// The matrix, whose buffers are those of the parts where it can hold them.
    ///
    /// # Errors
    /// If the number of values is not the number of stored entries, the pattern has duplicates that the type can't hold, or an
    /// index does not fit.
    fn from_parts(pattern: Pattern, values: Vec<Self::Value>) -> Result<Self, InteropError>;
}

impl SparseTensor<2> {
    /// A matrix of [another library](crate::interop), in its format, on a device. Not tracked.
    ///
    /// # Errors
    /// If the matrix is not what its own library promises, or the device lacks the type of the values.
    ///
    /// ```
    /// # #[cfg(feature = "nalgebra-sparse")] {
    /// use nalgebra_sparse::CooMatrix;
    /// use sparsegrad::prelude::*;
    ///
    /// let mut theirs = CooMatrix::new(2, 3);
    /// theirs.push(1, 0, 4.0f32);
    /// theirs.push(1, 0, 0.5); // stays an entry of its own
    /// let ours = SparseTensor::from_foreign(theirs, &Device::flex()).unwrap();
    /// assert_eq!((ours.shape(), ours.nnz()), ([2, 3], 2));
    /// # }
    /// ```
    pub fn from_foreign<M: IntoParts>(matrix: M, device: &Device) -> Result<Self, TensorError>
    where
        Vec<M::Value>: IntoValues,
    {
        let (pattern, values) = matrix.into_parts()?;
        Self::new(pattern, values.into_values(device))
    }

    /// As a matrix of [another library](crate::interop). Reads the values back from the device, and moves the index buffers if
    /// nobody else holds the pattern.
    ///
    /// # Errors
    /// If the type of the values differs, the matrix type can't hold duplicates that the tensor has, an index does not fit
    /// its index type, or reading fails.
    ///
    /// ```
    /// # #[cfg(feature = "faer")] {
    /// use faer::sparse::SparseColMat;
    /// use sparsegrad::prelude::*;
    ///
    /// let ours = SparseTensor::eye_of(3, DType::F64, &Device::flex()).unwrap();
    /// let theirs: SparseColMat<u32, f64> = ours.into_foreign().unwrap();
    /// assert_eq!(theirs.val(), [1.0; 3]);
    /// # }
    /// ```
    pub fn into_foreign<M: FromParts>(self) -> Result<M, InteropError>
    where
        M::Value: Element,
    {
        let (dtype, matrix) = (self.dtype(), M::Value::dtype());
        if dtype != matrix {
            return Err(InteropError::DType { values: dtype, matrix });
        }
        let (pattern, values) = self.into_parts();
        M::from_parts(pattern, read_as(values)?)
    }

    /// The same of a tensor that stays: index buffers are copied.
    ///
    /// # Errors
    /// As [`into_foreign`](Self::into_foreign).
    pub fn to_foreign<M: FromParts>(&self) -> Result<M, InteropError>
    where
        M::Value: Element,
    {
        self.clone().into_foreign()
    }
}

impl HostMatrix {
    /// A matrix of [another library](crate::interop), values widened to double precision.
    ///
    /// # Errors
    /// If the matrix is not what its own library promises.
    pub fn from_foreign<M: IntoParts<Value: Into<f64>>>(matrix: M) -> Result<Self, TensorError> {
        let (pattern, values) = matrix.into_parts()?;
        Self::new(pattern, values.into_iter().map(Into::into).collect())
    }

    /// As a matrix of [another library](crate::interop). Moves the index buffers if nobody else holds the pattern, and the values.
    ///
    /// # Errors
    /// If the matrix type can't hold duplicates that this one has, or an index does not fit its index type.
    pub fn into_foreign<M: FromParts<Value = f64>>(self) -> Result<M, InteropError> {
        let (pattern, values) = self.into_parts();
        M::from_parts(pattern, values)
    }

    /// The same of a matrix that stays.
    ///
    /// # Errors
    /// As [`into_foreign`](Self::into_foreign).
    pub fn to_foreign<M: FromParts<Value = f64>>(&self) -> Result<M, InteropError> {
        self.clone().into_foreign()
    }
}

impl Pattern {
    /// The pattern of a matrix of [another library](crate::interop), whatever its values.
    ///
    /// # Errors
    /// If the matrix is not what its own library promises.
    pub fn from_foreign<M: IntoParts>(matrix: M) -> Result<Self, PatternError> {
        Ok(matrix.into_parts()?.0)
    }

    /// As a matrix without values of [another library](crate::interop): faer's symbolic ones, or `CsMatI<(), I>` of sprs and
    /// `CsrMatrix<()>` of nalgebra-sparse. Moves the buffers if nobody else holds the pattern.
    ///
    /// # Errors
    /// If the pattern has duplicates that the type can't hold, or an index does not fit its index type.
    ///
    /// ```
    /// # #[cfg(feature = "faer")] {
    /// use faer::sparse::{SymbolicSparseRowMat, SymbolicSparseRowMatRef};
    /// use sparsegrad::prelude::*;
    ///
    /// let ours = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap();
    /// let view: SymbolicSparseRowMatRef<'_, u32> = (&ours).try_into().unwrap(); // borrows the buffers
    /// assert_eq!(view.col_idx_of_row(1).collect::<Vec<_>>(), [0, 2]);
    /// let theirs: SymbolicSparseRowMat<u32> = ours.into_foreign().unwrap();
    /// # }
    /// ```
    pub fn into_foreign<M: FromParts<Value = ()>>(self) -> Result<M, InteropError> {
        let values = vec![(); self.nnz()];
        M::from_parts(self, values)
    }

    /// The same of a pattern that stays.
    ///
    /// # Errors
    /// As [`into_foreign`](Self::into_foreign).
    pub fn to_foreign<M: FromParts<Value = ()>>(&self) -> Result<M, InteropError> {
        self.clone().into_foreign()
    }
}

/// The elements of a vector on the host, in the type that they have.
fn read_as<E: Element>(values: burn::tensor::Tensor<1>) -> Result<Vec<E>, TensorError> {
    let failed = |error: &dyn std::fmt::Debug| TensorError::Read { reason: format!("{error:?}") };
    let data = values.try_into_data().map_err(|error| failed(&error))?;
    data.try_into_vec().map_err(|error| failed(&error))
}
