//! Samples.

use super::{MvnError, SampleShape, SparseMultivariateNormal};
use crate::NormalRng;
use burn::tensor::{DType, Tensor};

impl<const D: usize> SparseMultivariateNormal<D> {
    /// Samples of the shape `[*shape, *batch, n]`, reparameterised: `loc + A e` with `A A^T` the covariance (the
    /// [table](super) of forms has A) and e standard normal. Differentiable in location, diagonal and factor.
    ///
    /// On the CPU, in f32 and f64, the graph keeps no noise: the backward pass makes it again. Beside samples and gradients, memory
    /// is taken for 16 vectors at a time on each thread. The samples of a seed are the same on any number of threads.
    ///
    /// # Panics
    /// If the factor has a zero on its diagonal, where nothing looked at it before.
    #[track_caller]
    pub fn rsample<S: SampleShape<D>>(&self, shape: S, rng: &mut NormalRng) -> S::Samples {
        self.try_rsample(shape, rng).unwrap_or_else(|error| panic!("rsample: {error}"))
    }

    fn try_rsample<S: SampleShape<D>>(&self, shape: S, rng: &mut NormalRng) -> Result<S::Samples, MvnError> {
        let count = shape.sizes().iter().product();
        match self.dtype() {
            DType::F32 if self.is_in_blocks(count) => Ok(shape.shaped(self, self.drawn::<f32>(count, rng)?)),
            DType::F64 if self.is_in_blocks(count) => Ok(shape.shaped(self, self.drawn::<f64>(count, rng)?)),
            dtype => self.coloured(shape, rng.tensor(self.column_shape(count), dtype, &self.device())),
        }
    }

    /// Samples as those of [`rsample`](Self::rsample), as constants: no gradient flows back from them.
    ///
    /// # Panics
    /// As [`rsample`](Self::rsample).
    #[track_caller]
    pub fn sample<S: SampleShape<D>>(&self, shape: S, rng: &mut NormalRng) -> S::Samples {
        self.clone().detached().rsample(shape, rng)
    }

    /// The samples of given noise: standard normal vectors of `[*shape, *batch, n]`. Differentiable in the noise, too.
    ///
    /// # Errors
    /// If the noise is of another shape, dtype or device.
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
