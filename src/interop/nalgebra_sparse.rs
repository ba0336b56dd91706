//! nalgebra-sparse's matrices: compressed rows, compressed columns, coordinates.

use super::parts::{Along, Compressed, coordinates, refused};
use super::{FromParts, IntoParts};
use crate::Pattern;
use crate::error::{InteropError, PatternError};
use burn::tensor::Element;
use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};

macro_rules! matrices {
    ($matrix:ident, $build:ident, $take:ident, $along:expr) => {
        impl<E> IntoParts for $matrix<E> {
            type Value = E;
            fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
                let shape = [self.nrows(), self.ncols()];
                let (offsets, inner, values) = self.disassemble();
                Ok((Pattern::$build(offsets, inner, shape)?, values))
            }
        }

        impl<E: Copy> FromParts for $matrix<E> {
            type Value = E;
            fn from_parts(pattern: Pattern, values: Vec<E>) -> Result<Self, InteropError> {
                let Compressed { shape: [rows, columns], offsets, inner, values } =
                    Compressed::of(pattern, values, $along, concat!("nalgebra_sparse::", stringify!($matrix)))?;
                Self::$take(rows, columns, offsets, inner, values).map_err(refused)
            }
        }
    };
}
matrices!(CsrMatrix, csr, try_from_csr_data, Along::Rows);
matrices!(CscMatrix, csc, try_from_csc_data, Along::Columns);

impl<E> IntoParts for CooMatrix<E> {
    type Value = E;
    fn into_parts(self) -> Result<(Pattern, Vec<E>), PatternError> {
        let shape = [self.nrows(), self.ncols()];
        let (rows, columns, values) = self.disassemble();
        Ok((Pattern::coo(rows, columns, shape)?, values))
    }
}

impl<E> FromParts for CooMatrix<E> {
    type Value = E;
    fn from_parts(pattern: Pattern, values: Vec<E>) -> Result<Self, InteropError> {
        let [m, n] = pattern.shape();
        let [rows, columns] = coordinates(pattern, &values)?;
        Self::try_from_triplets(m, n, rows, columns, values).map_err(refused)
    }
}

try_from_tensors! {
    [E: Element] CsrMatrix<E>;
    [E: Element] CscMatrix<E>;
    [E: Element] CooMatrix<E>;
}
