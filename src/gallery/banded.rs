//! Matrices by their diagonals.

use super::{GalleryError, assembled, selection, vector};
use crate::SparseTensor;
use crate::ops::gather::gather;
use crate::pattern::Pattern;
use burn::tensor::{Tensor, TensorCreationOptions};

/// The matrix with a constant on each of the given diagonals, `A[i, i + offset] = value`. Offsets are negative below the main
/// diagonal; values of an offset that is given twice are summed.
///
/// # Errors
/// If the shape is too large, or the device lacks the dtype.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
///
/// let a = gallery::banded([2, 3], &[(0, 4.0), (1, -1.0)], &Device::flex())?;
/// let dense = [4., -1., 0., 0., 4., -1.];
/// assert_eq!(a.to_dense().into_data().try_to_vec::<f32>().unwrap(), dense);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn banded(
    shape: [usize; 2],
    bands: &[(isize, f64)],
    options: impl Into<TensorCreationOptions>,
) -> Result<SparseTensor<2>, GalleryError> {
    let offsets: Vec<_> = bands.iter().map(|band| band.0).collect();
    let values = bands.iter().flat_map(|band| std::iter::repeat_n(band.1, shape[0]));
    from_elements(shape, &offsets, vector(values.collect(), &options.into())?)
}

/// The matrix with the given diagonals, `A[i, i + offsets[d]] = values[d, i]`. Diagonals of equal offset are summed.
///
/// # Shapes
/// `values` has a row for each offset and a column for each row of the matrix. Elements beside the matrix are ignored, as in
/// the DIA format (which SciPy aligns by columns: there `values[d, j]` stands in column `j`).
///
/// # Gradient
/// Of `values`: dense, 0 for elements beside the matrix.
///
/// # Errors
/// If `values` has another shape, or that of the matrix is too large.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
///
/// let values = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &Device::flex());
/// let a = gallery::diagonals([2, 2], &[0, -1], values)?;
/// assert_eq!(a.to_dense().into_data().try_to_vec::<f32>().unwrap(), [1., 0., 4., 2.]);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn diagonals(shape: [usize; 2], offsets: &[isize], values: Tensor<2>) -> Result<SparseTensor<2>, GalleryError> {
    let (expected, found) = ([offsets.len(), shape[0]], values.dims());
    if expected != found {
        let (expected, found) = (expected.to_vec(), found.to_vec());
        return Err(GalleryError::Shape { what: "the diagonals", expected, found });
    }
    from_elements(shape, offsets, values.flatten(0, 1))
}

/// From the elements of the diagonals one after the other.
fn from_elements(shape: [usize; 2], offsets: &[isize], values: Tensor<1>) -> Result<SparseTensor<2>, GalleryError> {
    let [n, m] = shape;
    let (mut rows, mut columns, mut elements) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..n {
        for (diagonal, &offset) in offsets.iter().enumerate() {
            if let Some(column) = row.checked_add_signed(offset).filter(|&column| column < m) {
                rows.push(row);
                columns.push(column);
                elements.push(diagonal * n + row);
            }
        }
    }
    let values = gather(&selection(elements, offsets.len() * n)?, values);
    Ok(assembled(&Pattern::coo(rows, columns, shape)?, values)?)
}
