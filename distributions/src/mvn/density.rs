//! Densities, distances and entropy.

use super::check::compatible;
use super::layout::expand;
use super::{Factor, MvnError, SparseMultivariateNormal, Vectors};
use burn::tensor::{DType, Tensor};
use sparsegrad::internals::reshape;
use std::f64::consts::TAU;

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The logarithm of the density at vectors of `[*samples, *batch, n]`: `[*samples, *batch]`, or one number for one vector.
    ///
    /// `-(n log 2 pi + log det + |whitened|^2) / 2`, see the [table](super) of forms. Differentiable in the vectors, too. Squares
    /// are summed in f64 on the CPU.
    ///
    /// # Panics
    /// Where [`try_log_prob`](Self::try_log_prob) returns an error.
    #[track_caller]
    pub fn log_prob<const R: usize>(&self, vectors: Tensor<R>) -> <Tensor<R> as Vectors>::Reduced
    where
        Tensor<R>: Vectors,
    {
        self.try_log_prob(vectors).unwrap_or_else(|error| panic!("log_prob: {error}"))
    }

    /// [`log_prob`](Self::log_prob), with vectors that do not fit as an error.
    ///
    /// # Errors
    /// If the shape does not end with that of the location; if the dtype or the device is another.
    pub fn try_log_prob<const R: usize>(&self, vectors: Tensor<R>) -> Result<<Tensor<R> as Vectors>::Reduced, MvnError>
    where
        Tensor<R>: Vectors,
    {
        let (distances, leading) = self.distances("log_prob", vectors)?;
        let constant = self.event_size() as f64 * TAU.ln();
        let log_prob = (distances + self.log_dets().unsqueeze::<2>()).add_scalar(constant).mul_scalar(-0.5);
        Ok(Tensor::<R>::reduced(flattened(log_prob), &leading))
    }

    /// The Mahalanobis distance of vectors of `[*samples, *batch, n]` from the location: the square root of
    /// `d^T precision d`, d = x - loc. Of one vector, one number.
    ///
    /// Reference: P. C. Mahalanobis, *On the generalized distance in statistics*, 1936.
    ///
    /// # Panics
    /// If the shape does not end with that of the location; if the dtype or the device is another.
    #[track_caller]
    pub fn mahalanobis<const R: usize>(&self, vectors: Tensor<R>) -> <Tensor<R> as Vectors>::Reduced
    where
        Tensor<R>: Vectors,
    {
        let (distances, leading) =
            self.distances("mahalanobis", vectors).unwrap_or_else(|error| panic!("mahalanobis: {error}"));
        Tensor::<R>::reduced(flattened(distances.sqrt()), &leading)
    }

    /// The logarithm of the determinant of the covariance: of the batch's shape, one number without a batch.
    pub fn log_det(&self) -> <Tensor<D> as Vectors>::Reduced
    where
        Tensor<D>: Vectors,
    {
        self.of_items(self.log_dets())
    }

    /// The entropy, `(n (1 + log 2 pi) + log det) / 2`: of the batch's shape, one number without a batch.
    pub fn entropy(&self) -> <Tensor<D> as Vectors>::Reduced
    where
        Tensor<D>: Vectors,
    {
        let constant = self.event_size() as f64 * (1.0 + TAU.ln());
        self.of_items(self.log_dets().add_scalar(constant).mul_scalar(0.5))
    }

    /// Numbers of all items (or one for all) in the batch's shape.
    pub(super) fn of_items(&self, numbers: Tensor<1>) -> <Tensor<D> as Vectors>::Reduced
    where
        Tensor<D>: Vectors,
    {
        Tensor::<D>::reduced(expand(numbers, [self.items()]), &self.batch_shape())
    }

    /// The logarithms of the determinants of the covariances: one for each item, or one for all.
    pub(super) fn log_dets(&self) -> Tensor<1> {
        let sums = match (&self.diagonal, &self.factor) {
            (Some(diagonal), _) => {
                let [_, items, _] = diagonal.dims();
                reshape(diagonal.clone().log().sum_dim(2), [items])
            }
            (None, Factor::Shared(factor)) => factor.get_diagonal(0).log().sum().mul_scalar(2.0),
            (None, Factor::Each(factor)) => {
                let diagonals = factor.get_diagonal(0);
                let [items, _] = diagonals.dims();
                reshape(diagonals.log().sum_dim(1), [items]).mul_scalar(2.0)
            }
        };
        if self.form.is_precision() { -sums } else { sums }
    }

    /// The squares of the vectors' distances, S x items, and the leading dimensions that they are of.
    pub(super) fn distances<const R: usize>(
        &self,
        op: &'static str,
        vectors: Tensor<R>,
    ) -> Result<(Tensor<2>, Vec<usize>), MvnError> {
        let (samples, leading) = self.samples_of(op, vectors)?;
        let [count, _, _] = samples.dims();
        let distances = match self.dtype() {
            DType::F32 if self.is_in_blocks(count) => self.distances_in_blocks::<f32>(samples)?,
            DType::F64 if self.is_in_blocks(count) => self.distances_in_blocks::<f64>(samples)?,
            _ => self.squares(self.whiten(self.columns(samples - self.locations()))?),
        };
        Ok((distances, leading))
    }

    /// Vectors of `[*samples, *batch, n]` as S x items x n, and the leading dimensions.
    pub(super) fn samples_of<const R: usize>(
        &self,
        op: &'static str,
        vectors: Tensor<R>,
    ) -> Result<(Tensor<3>, Vec<usize>), MvnError> {
        let (dims, own) = (vectors.dims(), self.loc.dims());
        if !dims.ends_with(&own) {
            return Err(MvnError::Vectors { op, found: dims.to_vec(), expected: own.to_vec() });
        }
        compatible(&self.loc, &vectors)?;
        let samples = dims[..R - D].iter().product();
        let vectors = reshape(vectors, [samples, self.items(), self.event_size()]);
        Ok((vectors, dims[..R - 1].to_vec()))
    }
}

/// S x items as a vector, samples slowest.
fn flattened(numbers: Tensor<2>) -> Tensor<1> {
    let [s, items] = numbers.dims();
    reshape(numbers, [s * items])
}
