//! Samples.

use super::{MvnError, SampleShape, SparseMultivariateNormal};
use crate::NormalRng;
use burn::tensor::Tensor;

impl<const D: usize> SparseMultivariateNormal<D> {
    /// Samples of the shape `[*shape, *batch, n]`, reparameterised: differentiable in location, diagonal and factor.
    ///
    /// # Panics
    /// If the factor has a zero on its diagonal, where nothing looked at it before.
    #[track_caller]
    pub fn rsample<S: SampleShape<D>>(&self, shape: S, rng: &mut NormalRng) -> S::Samples {
        let count = shape.sizes().iter().product();
        let noise = rng.tensor(self.column_shape(count), self.dtype(), &self.device());
        self.coloured(shape, noise).unwrap_or_else(|error| panic!("rsample: {error}"))
    }

    /// Samples that are constants.
    ///
    /// # Panics
    /// As [`rsample`](Self::rsample).
    #[track_caller]
    pub fn sample<S: SampleShape<D>>(&self, shape: S, rng: &mut NormalRng) -> S::Samples {
        self.clone().detached().rsample(shape, rng)
    }

    /// The samples of given noise: standard normal vectors of `[*shape, *batch, n]`.
    ///
    /// # Errors
    /// If the noise is of another shape.
    pub fn rsample_of<S: SampleShape<D>, const R: usize>(
        &self,
        shape: S,
        noise: Tensor<R>,
    ) -> Result<S::Samples, MvnError> {
        let (noise, leading) = self.samples_of("rsample_of", noise)?;
        if leading != [shape.sizes(), &self.batch_shape()].concat() {
            let expected = [&leading[..leading.len() - (D - 1)], &self.loc.dims()].concat();
            return Err(MvnError::Vectors { op: "rsample_of", found: expected, expected: self.loc.dims().to_vec() });
        }
        self.coloured(shape, self.columns(noise))
    }

    fn coloured<S: SampleShape<D>>(&self, shape: S, noise: Tensor<3>) -> Result<S::Samples, MvnError> {
        let samples = self.colour(noise)? + self.columns(self.locations());
        Ok(shape.samples(self, samples))
    }

    /// Cut off from the graph.
    fn detached(self) -> Self {
        let Self { form, loc, factor, diagonal } = self;
        let factor = factor.map(|factor| factor.clone().detach(), |factor| factor.clone().detach());
        Self { form, loc: loc.detach(), factor, diagonal: diagonal.map(Tensor::detach) }
    }
}
