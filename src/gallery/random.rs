//! Random matrices with exactly as many entries as asked for, and with the properties asked for.

use super::{GalleryError, vector};
use crate::SparseTensor;
use burn::tensor::TensorCreationOptions;
use rand::{Rng, RngExt, seq::index};
use std::ops::Range;

/// A random matrix with exactly `nnz` entries at different positions, all choices equally likely, and values in [0, 1).
///
/// Call [`build`](RandSparse::build) to draw it.
///
/// ```
/// use sparsegrad::gallery::{self, rand::{SeedableRng, rngs::StdRng}};
/// use sparsegrad::prelude::*;
///
/// let mut rng = StdRng::seed_from_u64(0);
/// let a = gallery::rand_sparse([20, 30], 50).values(-1.0..1.0).build(&mut rng, &Device::flex())?;
/// assert_eq!((a.shape(), a.nnz()), ([20, 30], 50));
///
/// let error = gallery::rand_sparse([2, 3], 7).build(&mut rng, &Device::flex()).unwrap_err();
/// assert_eq!(error.to_string(), "a matrix of shape 2x3 stores 0 to 6 entries, not 7");
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn rand_sparse(shape: [usize; 2], nnz: usize) -> RandSparse {
    RandSparse { shape, nnz, values: 0.0..1.0, min_diagonal: None }
}

/// A random triangular matrix of size `n`, upper unless [`lower`](RandSparseTri::lower) is called, with exactly `nnz`
/// entries: the whole diagonal, and others at different positions, all choices equally likely. Values are in [0, 1).
///
/// Call [`build`](RandSparseTri::build) to draw it.
///
/// ```
/// use sparsegrad::gallery::{self, rand::{SeedableRng, rngs::StdRng}};
/// use sparsegrad::prelude::*;
///
/// let mut rng = StdRng::seed_from_u64(0);
/// let l = gallery::rand_sparse_tri(100, 500).lower().well_conditioned(1.0).build(&mut rng, &Device::flex())?;
/// assert!(l.triplets()?.all(|(row, column, _)| column <= row));
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn rand_sparse_tri(n: usize, nnz: usize) -> RandSparseTri {
    RandSparseTri { n, nnz, upper: true, diagonal: Diagonal::Drawn, values: 0.0..1.0, min_diagonal: None }
}

/// A random symmetric positive definite matrix of size `n` with exactly `nnz` entries: the whole diagonal, and pairs at
/// different positions beside it, all choices equally likely, with values in [-1, 1).
///
/// Each diagonal entry exceeds the sum of the absolute values of its row, so that no eigenvalue is below the
/// [`margin`](RandSpd::margin) (Gershgorin's theorem). Call [`build`](RandSpd::build) to draw it.
///
/// ```
/// use sparsegrad::gallery::{self, rand::{SeedableRng, rngs::StdRng}};
/// use sparsegrad::prelude::*;
///
/// let mut rng = StdRng::seed_from_u64(0);
/// let a = gallery::make_spd_sparse(100, 500).build(&mut rng, (&Device::flex(), DType::F64))?;
/// assert_eq!(a.nnz(), 500);
/// assert_eq!(a.get(3, 4)?, a.get(4, 3)?);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn make_spd_sparse(n: usize, nnz: usize) -> RandSpd {
    RandSpd { n, nnz, values: -1.0..1.0, margin: 1.0 }
}

/// What [`rand_sparse`] is to draw.
#[derive(Debug, Clone)]
#[must_use = "nothing is drawn before `build`"]
pub struct RandSparse {
    shape: [usize; 2],
    nnz: usize,
    values: Range<f64>,
    min_diagonal: Option<f64>,
}

/// What [`rand_sparse_tri`] is to draw.
#[derive(Debug, Clone)]
#[must_use = "nothing is drawn before `build`"]
pub struct RandSparseTri {
    n: usize,
    nnz: usize,
    upper: bool,
    diagonal: Diagonal,
    values: Range<f64>,
    min_diagonal: Option<f64>,
}

/// What [`make_spd_sparse`] is to draw.
#[derive(Debug, Clone)]
#[must_use = "nothing is drawn before `build`"]
pub struct RandSpd {
    n: usize,
    nnz: usize,
    values: Range<f64>,
    margin: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Diagonal {
    Drawn,
    Ones,
    /// Not stored, and read as ones.
    Implied,
}

/// By how much a dominant diagonal exceeds its row's sum: more than rounding to bf16 (twice 2^-9) takes away.
const DOMINANCE: f64 = 1.01;

impl RandSparse {
    /// Values from this range, uniformly.
    pub fn values(self, values: Range<f64>) -> Self {
        Self { values, ..self }
    }

    /// A square matrix whose condition number is small. The whole diagonal is stored, with values in
    /// `[min_diagonal, min_diagonal + 0.5)`, and the other entries of a row are scaled down where their absolute values sum to
    /// more than half of its diagonal entry.
    ///
    /// In the maximum norm the condition number is then at most `3 (1 + 0.5 / min_diagonal)`, since a row dominant by `alpha`
    /// has an inverse of at most `1 / alpha`. Source: J. M. Varah, *A lower bound for the smallest singular value of a
    /// matrix*, Linear Algebra and its Applications 11, 1975.
    pub fn well_conditioned(self, min_diagonal: f64) -> Self {
        Self { min_diagonal: Some(min_diagonal), ..self }
    }

    /// Draws the matrix.
    ///
    /// # Errors
    /// If no such matrix has `nnz` entries; if a well-conditioned one is not square or its `min_diagonal` not positive; if the
    /// values' range is empty or not finite; if the shape is too large or the device lacks the dtype.
    pub fn build(
        &self,
        rng: &mut (impl Rng + ?Sized),
        options: impl Into<TensorCreationOptions>,
    ) -> Result<SparseTensor<2>, GalleryError> {
        let [n, m] = self.shape;
        let Some(min_diagonal) = self.min_diagonal else {
            let most = product(n, m)?;
            check_nnz("a matrix", self.shape, self.nnz, 0, most)?;
            let mut entries = Entries::default();
            for place in places(rng, most, self.nnz) {
                entries.push(place / m, place % m);
            }
            entries.values = draw(rng, &self.values, self.nnz)?;
            return entries.build(self.shape, options);
        };
        if n != m {
            let what = "a well-conditioned matrix";
            return Err(GalleryError::NotSquare { what, shape: self.shape });
        }
        let most = product(n, m)?;
        check_nnz("a well-conditioned matrix", self.shape, self.nnz, n, most)?;
        let mut entries = Entries::default();
        for place in places(rng, most - n, self.nnz - n) {
            // The places of a row without its diagonal.
            let (row, column) = (place / (n - 1), place % (n - 1));
            entries.push(row, column + usize::from(column >= row));
        }
        entries.values = draw(rng, &self.values, entries.rows.len())?;
        let diagonal = strong_diagonal(rng, n, min_diagonal)?;
        entries.shrink(&diagonal);
        entries.push_diagonal(diagonal);
        entries.build(self.shape, options)
    }
}

impl RandSparseTri {
    /// Entries on and above the diagonal.
    pub fn upper(self) -> Self {
        Self { upper: true, ..self }
    }

    /// Entries on and below the diagonal.
    pub fn lower(self) -> Self {
        Self { upper: false, ..self }
    }

    /// No entries on the diagonal, which a solver with an implied unit diagonal reads as ones.
    pub fn strict(self) -> Self {
        Self { diagonal: Diagonal::Implied, ..self }
    }

    /// Ones on the diagonal, stored.
    pub fn unit(self) -> Self {
        Self { diagonal: Diagonal::Ones, ..self }
    }

    /// Values from this range, uniformly.
    pub fn values(self, values: Range<f64>) -> Self {
        Self { values, ..self }
    }

    /// A small condition number, as [`RandSparse::well_conditioned`]: entries beside the diagonal are scaled down in the same
    /// way, also where the diagonal is made of ones, stored or implied (`min_diagonal` has no effect then).
    pub fn well_conditioned(self, min_diagonal: f64) -> Self {
        Self { min_diagonal: Some(min_diagonal), ..self }
    }

    /// Draws the matrix.
    ///
    /// # Errors
    /// If no such matrix has `nnz` entries; if `min_diagonal` is not positive; if the values' range is empty or not finite; if
    /// the size is too large or the device lacks the dtype.
    pub fn build(
        &self,
        rng: &mut (impl Rng + ?Sized),
        options: impl Into<TensorCreationOptions>,
    ) -> Result<SparseTensor<2>, GalleryError> {
        let (n, shape) = (self.n, [self.n, self.n]);
        let beside = product(n, n.saturating_sub(1))? / 2;
        let (kind, stored) = match self.diagonal {
            Diagonal::Implied => ("a strictly triangular matrix", 0),
            _ => ("a triangular matrix with its diagonal", n),
        };
        check_nnz(kind, shape, self.nnz, stored, beside + stored)?;
        let mut entries = Entries::default();
        for place in places(rng, beside, self.nnz - stored) {
            let (row, column) = below_diagonal(place);
            match self.upper {
                true => entries.push(column, row),
                false => entries.push(row, column),
            }
        }
        entries.values = draw(rng, &self.values, entries.rows.len())?;
        let diagonal = match (self.diagonal, self.min_diagonal) {
            (Diagonal::Drawn, Some(min_diagonal)) => strong_diagonal(rng, n, min_diagonal)?,
            (Diagonal::Drawn, None) => draw(rng, &self.values, n)?,
            _ => vec![1.0; n],
        };
        if self.min_diagonal.is_some() {
            entries.shrink(&diagonal);
        }
        if self.diagonal != Diagonal::Implied {
            entries.push_diagonal(diagonal);
        }
        entries.build(shape, options)
    }
}

impl RandSpd {
    /// Values beside the diagonal from this range, uniformly.
    pub fn values(self, values: Range<f64>) -> Self {
        Self { values, ..self }
    }

    /// A lower bound of the eigenvalues: 1 unless it is set.
    pub fn margin(self, margin: f64) -> Self {
        Self { margin, ..self }
    }

    /// Draws the matrix.
    ///
    /// # Errors
    /// If `nnz` is below `n` or above `n^2`, or `nnz - n` is odd; if the margin is not positive; if the values' range is
    /// empty or not finite; if the size is too large or the device lacks the dtype.
    pub fn build(
        &self,
        rng: &mut (impl Rng + ?Sized),
        options: impl Into<TensorCreationOptions>,
    ) -> Result<SparseTensor<2>, GalleryError> {
        let (n, nnz, shape) = (self.n, self.nnz, [self.n, self.n]);
        let most = product(n, n)?;
        check_nnz("a symmetric positive definite matrix", shape, nnz, n, most)?;
        if (nnz - n) % 2 == 1 {
            return Err(GalleryError::OddPairs { n, nnz });
        }
        check_positive("the margin", self.margin)?;
        let pairs = (nnz - n) / 2;
        let lower: Vec<_> = places(rng, (most - n) / 2, pairs).into_iter().map(below_diagonal).collect();
        let drawn = draw(rng, &self.values, pairs)?;
        let mut entries = Entries::default();
        for &(row, column) in &lower {
            entries.push(row, column);
        }
        for &(row, column) in &lower {
            entries.push(column, row);
        }
        entries.values = [drawn.clone(), drawn].concat();
        let sums = entries.row_sums(n);
        entries.push_diagonal(sums.iter().map(|sum| self.margin + DOMINANCE * sum).collect());
        entries.build(shape, options)
    }
}

/// Entries at different positions, in any order.
#[derive(Default)]
struct Entries {
    rows: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
}

impl Entries {
    /// A position; its value follows.
    fn push(&mut self, row: usize, column: usize) {
        self.rows.push(row);
        self.columns.push(column);
    }

    fn push_diagonal(&mut self, values: Vec<f64>) {
        self.rows.extend(0..values.len());
        self.columns.extend(0..values.len());
        self.values.extend(values);
    }

    /// The sum of the absolute values of each row.
    fn row_sums(&self, n: usize) -> Vec<f64> {
        let mut sums = vec![0.0; n];
        for (&row, value) in self.rows.iter().zip(&self.values) {
            sums[row] += value.abs();
        }
        sums
    }

    /// Scales rows down to at most half of the diagonal.
    fn shrink(&mut self, diagonal: &[f64]) {
        let sums = self.row_sums(diagonal.len());
        for (&row, value) in self.rows.iter().zip(&mut self.values) {
            *value *= (0.5 * diagonal[row] / sums[row]).min(1.0);
        }
    }

    fn build(
        self,
        shape: [usize; 2],
        options: impl Into<TensorCreationOptions>,
    ) -> Result<SparseTensor<2>, GalleryError> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_unstable_by_key(|&e| (self.rows[e], self.columns[e]));
        let pick = |from: &[usize]| -> Vec<usize> { order.iter().map(|&e| from[e]).collect() };
        let values = order.iter().map(|&e| self.values[e]).collect();
        let options = options.into();
        let values = vector(values, &options)?;
        let (rows, columns) = (pick(&self.rows), pick(&self.columns));
        Ok(SparseTensor::from_triplets(rows, columns, values, shape, &options.device)?)
    }
}

/// So many different numbers below `most`, in ascending order.
fn places(rng: &mut (impl Rng + ?Sized), most: usize, count: usize) -> Vec<usize> {
    let mut places = index::sample(rng, most, count).into_vec();
    places.sort_unstable();
    places
}

/// Position `place` below the diagonal, counted row by row: row i has i of them, after the `i (i - 1) / 2` above it.
fn below_diagonal(place: usize) -> (usize, usize) {
    let row = ((8 * place as u128 + 1).isqrt() as usize).div_ceil(2);
    (row, place - row * (row - 1) / 2)
}

fn draw(rng: &mut (impl Rng + ?Sized), range: &Range<f64>, count: usize) -> Result<Vec<f64>, GalleryError> {
    let width = range.end - range.start;
    if !(width > 0.0 && width.is_finite()) {
        let (what, range) = ("the width of the values' range", "positive and finite");
        return Err(GalleryError::Parameter { what, range, value: width });
    }
    Ok((0..count).map(|_| range.start + width * rng.random::<f64>()).collect())
}

fn strong_diagonal(rng: &mut (impl Rng + ?Sized), n: usize, least: f64) -> Result<Vec<f64>, GalleryError> {
    check_positive("the smallest diagonal entry", least)?;
    Ok((0..n).map(|_| least + 0.5 * rng.random::<f64>()).collect())
}

fn check_positive(what: &'static str, value: f64) -> Result<(), GalleryError> {
    match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => Err(GalleryError::Parameter { what, range: "positive and finite", value }),
    }
}

fn check_nnz(
    matrix: &'static str,
    shape: [usize; 2],
    nnz: usize,
    least: usize,
    most: usize,
) -> Result<(), GalleryError> {
    match (least..=most).contains(&nnz) {
        true => Ok(()),
        false => Err(GalleryError::Nnz { matrix, shape, nnz, least, most }),
    }
}

fn product(n: usize, m: usize) -> Result<usize, GalleryError> {
    n.checked_mul(m).ok_or_else(|| GalleryError::TooLarge { sizes: vec![n, m] })
}
