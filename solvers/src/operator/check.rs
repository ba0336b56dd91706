//! Whether what is claimed of an operator holds.

use super::LinearOperator;
use burn::tensor::{Tensor, TensorData};
use sparsegrad::SparseTensor;
use sparsegrad::error::TensorError;

/// A claim that does not hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// Two entries that should be equal.
    #[error(
        "the operator is tagged symmetric, and element ({row}, {column}) is {value} while ({column}, {row}) is {mirrored}"
    )]
    NotSymmetric {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The element.
        value: f64,
        /// The element on the other side of the diagonal.
        mirrored: f64,
    },
    /// Two products that should be equal, of a matrix-free operator.
    #[error("{claim}, and a random probe gives {left} on one side and {right} on the other")]
    Probe {
        /// What was claimed.
        claim: &'static str,
        /// One side.
        left: f64,
        /// The other.
        right: f64,
    },
    /// An entry where there should be none.
    #[error("the operator is tagged {tag} triangular, and element ({row}, {column}) is {value}")]
    NotTriangular {
        /// Lower or upper.
        tag: &'static str,
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The element.
        value: f64,
    },
    /// A diagonal element that is not 1.
    #[error("the operator is tagged to have a unit diagonal, and element ({row}, {row}) is {value}")]
    NotUnit {
        /// The row.
        row: usize,
        /// The element.
        value: f64,
    },
    /// A direction in which the operator is not positive.
    #[error("the operator is tagged positive definite, and x^T A x is {value} for {x}")]
    NotPositive {
        /// The quadratic form.
        value: f64,
        /// The direction, in words.
        x: String,
    },
    /// Shape against tag.
    #[error("the operator is tagged symmetric or triangular, and it is {rows}x{columns}")]
    NotSquare {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// A property of single elements, and they are not at hand.
    #[error("whether the operator is {tag} can't be seen: it is matrix-free")]
    NotVisible {
        /// The property.
        tag: &'static str,
    },
    /// Reading the operator failed.
    #[error(transparent)]
    Read(#[from] TensorError),
}

/// Random columns that a matrix-free operator is probed with.
const PROBES: usize = 8;

/// Checks the claims of an operator: where its entries are at hand element by element, else with random columns (always
/// the same ones). Numbers may differ by rounding: 1000 units in the last place of the largest.
///
/// Positive definiteness is only ever probed: the diagonal and random columns. A factorisation is what proves it.
///
/// # Errors
/// The first claim that does not hold, with the place.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::operator::{Compose, Tags, check_tags};
///
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[1.0, 2.0], [2, 2], &Device::flex())?;
/// let error = check_tags(&a.tagged(Tags::SYMMETRIC)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the operator is tagged symmetric, and element (0, 1) is 1 while (1, 0) is 2"
/// );
/// # Ok::<(), TensorError>(())
/// ```
pub fn check_tags(a: &dyn LinearOperator) -> Result<(), TagError> {
    let tags = a.tags();
    let [rows, columns] = a.shape();
    if tags == super::Tags::NONE {
        return Ok(());
    }
    if rows != columns {
        return Err(TagError::NotSquare { rows, columns });
    }
    let a = &*a.detach();
    match a.matrix() {
        Some(matrix) => check_entries(&matrix, a)?,
        None => {
            let single = [
                (tags.lower_triangular, "lower triangular"),
                (tags.upper_triangular, "upper triangular"),
                (tags.unit_diagonal, "of unit diagonal"),
            ];
            if let Some((_, tag)) = single.into_iter().find(|(tagged, _)| *tagged) {
                return Err(TagError::NotVisible { tag });
            }
            if tags.symmetric || tags.positive_definite {
                let apply = |x| a.apply(x);
                probe(a, rows, columns, apply, apply, "the operator is tagged symmetric")?;
            }
        }
    }
    if tags.positive_definite {
        let x = random(1, columns, a);
        let forms = column_dots(x.clone(), a.apply(x))?;
        if let Some(value) = forms.into_iter().find(|form| *form <= 0.0 || form.is_nan()) {
            return Err(TagError::NotPositive { value, x: "a random x".into() });
        }
    }
    Ok(())
}

/// Checks with random columns that `apply_transpose` is the transpose of `apply`: y^T (A x) = (A^T y)^T x, to 1000 units in
/// the last place.
///
/// # Errors
/// If it is not, or reading fails.
pub fn check_transpose(a: &dyn LinearOperator) -> Result<(), TagError> {
    let ([rows, columns], a) = (a.shape(), a.detach());
    let claim = "apply_transpose should be the transpose of apply";
    probe(&*a, rows, columns, |x| a.apply(x), |y| a.apply_transpose(y), claim)
}

fn probe(
    a: &dyn LinearOperator,
    rows: usize,
    columns: usize,
    apply: impl Fn(Tensor<2>) -> Tensor<2>,
    transpose: impl Fn(Tensor<2>) -> Tensor<2>,
    claim: &'static str,
) -> Result<(), TagError> {
    let (x, y) = (random(1, columns, a), random(2, rows, a));
    let (ax, aty) = (apply(x.clone()), transpose(y.clone()));
    let scales = column_dots(y.clone().abs(), ax.clone().abs())?;
    let (lefts, rights) = (column_dots(y, ax)?, column_dots(aty, x)?);
    for ((left, right), scale) in lefts.into_iter().zip(rights).zip(scales) {
        let difference = (left - right).abs();
        if difference > rounding(a) * scale || difference.is_nan() {
            return Err(TagError::Probe { claim, left, right });
        }
    }
    Ok(())
}

fn rounding(a: &dyn LinearOperator) -> f64 {
    a.dtype().finfo().map_or(f64::EPSILON, |info| info.epsilon) * 1000.0
}

fn check_entries(matrix: &SparseTensor<2>, a: &dyn LinearOperator) -> Result<(), TagError> {
    let tags = a.tags();
    let mut entries: Vec<_> = matrix.coalesce().triplets()?.collect();
    entries.sort_unstable_by_key(|&(row, column, _)| (row, column));
    let at = |row: usize, column: usize| match entries.binary_search_by_key(&(row, column), |e| (e.0, e.1)) {
        Ok(found) => entries[found].2,
        Err(_) => 0.0,
    };
    let largest = entries.iter().map(|e| e.2.abs()).fold(0.0, f64::max);
    let tolerance = rounding(a) * largest;
    for &(row, column, value) in &entries {
        if tags.symmetric || tags.positive_definite {
            let mirrored = at(column, row);
            let difference = (value - mirrored).abs();
            if difference > tolerance || difference.is_nan() {
                return Err(TagError::NotSymmetric { row, column, value, mirrored });
            }
        }
        let outside =
            [(tags.lower_triangular && column > row, "lower"), (tags.upper_triangular && column < row, "upper")];
        if let Some((_, tag)) = outside.into_iter().find(|(outside, _)| *outside && value != 0.0) {
            return Err(TagError::NotTriangular { tag, row, column, value });
        }
    }
    for row in 0..matrix.shape()[0] {
        let value = at(row, row);
        if tags.unit_diagonal && value != 1.0 {
            return Err(TagError::NotUnit { row, value });
        }
        if tags.positive_definite && (value <= 0.0 || value.is_nan()) {
            return Err(TagError::NotPositive { value, x: format!("unit vector {row}") });
        }
    }
    Ok(())
}

/// Numbers in [-1, 1) without a pattern, by splitmix64.
fn random(seed: u64, rows: usize, a: &dyn LinearOperator) -> Tensor<2> {
    let number = |at: usize| {
        let mut bits = (seed << 40 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ bits >> 31) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let numbers: Vec<f64> = (1..=rows * PROBES).map(number).collect();
    Tensor::from_data(TensorData::new(numbers, [rows, PROBES]), (&a.device(), a.dtype()))
}

/// The dot product of each pair of columns, in f64.
fn column_dots(x: Tensor<2>, y: Tensor<2>) -> Result<Vec<f64>, TagError> {
    let [_, k] = x.dims();
    let read = |tensor: Tensor<2>| match tensor.try_into_data() {
        Ok(data) => Ok(data.iter::<f64>().collect::<Vec<_>>()),
        Err(error) => Err(TensorError::Read { reason: format!("{error:?}") }),
    };
    let (x, y) = (read(x)?, read(y)?);
    let mut dots = vec![0.0; k];
    for (at, (x, y)) in x.into_iter().zip(y).enumerate() {
        dots[at % k] += x * y;
    }
    Ok(dots)
}
