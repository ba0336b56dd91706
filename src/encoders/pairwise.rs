//! Pairwise relations between the voxels of a grid as a sparse matrix.

use super::neighbourhood;
use super::relations::{Relations, encode};
use crate::error::{PatternError, TensorError};
use crate::pattern::Pattern;
use crate::tensor::{SparseTensor, reshape};
use burn::module::Module;
use burn::tensor::Tensor;

/// Which neighbours a voxel is related to across channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channels {
    /// Those of its own channel.
    #[default]
    Independent,
    /// Those, and its own place in later channels.
    Intra,
    /// Those, and the neighbours of its place in later channels.
    Inter,
}

/// Which side of the diagonal is kept: by the sign of the first step that isn't 0, the channel's before those in space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// Both. Relations between channels are below the diagonal.
    #[default]
    Both,
    /// Entries below the diagonal.
    Lower,
    /// Entries above the diagonal: none between channels.
    Upper,
}

/// What a [`PairwiseEncoder`] is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct PairwiseEncoderConfig {
    radius: f64,
    volume: Vec<usize>,
    diagonal: bool,
    channels: Channels,
    side: Side,
    coo: bool,
}

/// Why there is no such encoder, or encoding.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// A radius without neighbours.
    #[error("the radius must be a finite number of at least 1 and is {radius}")]
    Radius {
        /// The radius.
        radius: f64,
    },
    /// A volume that isn't one.
    #[error("a volume has a channel dimension and at least one spatial one, all positive, and this is {volume:?}")]
    Volume {
        /// Its shape.
        volume: Vec<usize>,
    },
    /// A relation between channels where there is one channel.
    #[error("{channels:?} relates channels, and the volume {volume:?} has one")]
    OneChannel {
        /// The relation.
        channels: Channels,
        /// The volume.
        volume: Vec<usize>,
    },
    /// Values of another shape.
    #[error("values must be of shape {expected:?} ({}) and are of shape {found:?}", if expected.len() > volume.len() + 1 { "items, steps, channels, space" } else { "steps, channels, space" })]
    Shape {
        /// The volume.
        volume: Vec<usize>,
        /// The shape that the encoder takes.
        expected: Vec<usize>,
        /// The shape of the values.
        found: Vec<usize>,
    },
    /// A matrix to decode that is not at the encoder's pattern.
    #[error("the matrix is not at the encoder's pattern: {found}, and the encoder's has {expected} entries")]
    OtherPattern {
        /// Entries of the encoder's.
        expected: usize,
        /// The matrix, in words.
        found: String,
    },
    /// A matrix beyond what can be indexed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Values in a dtype that the device lacks.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The matrix of the relations between the voxels of a grid and their neighbours, from a value for every relation: what a
/// network predicts in as many channels as there are steps to a neighbour.
///
/// For a volume of C channels and the spatial shape S, P = C x prod(S) voxels and N steps, values of shape `[N, C, *S]`
/// become a P x P matrix with `A[p, p - step] = values[step, p]`: each value is read at the voxel of its row. Steps that lead out of the
/// volume have no entry.
///
/// Steps are all vectors of integers within the radius, in the same channel, and those that [`Channels`] adds; of them, those
/// on the [`Side`] that is kept; sorted by length, a channel counting as 10 voxels; with [`diagonal`](PairwiseEncoderConfig::diagonal)
/// the voxel itself comes first. [`steps`](Self::steps) lists them.
///
/// # Gradient
/// Of the values: that of their entry, 0 where a step leads out of the volume. Nothing else is made.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use sparsegrad::encoders::{PairwiseEncoder, Side};
///
/// // Three voxels in a row, each related to itself and to the one before it.
/// let encoder = PairwiseEncoder::of(1.0, &[1, 3]).diagonal().side(Side::Lower).build()?;
/// assert_eq!(encoder.steps(), [[0, 0], [0, 1]]);
///
/// let values = Tensor::<3>::from_data([[[1.0, 2.0, 3.0]], [[10.0, 20.0, 30.0]]], &Device::flex());
/// let a = encoder.encode(values);
/// let dense = a.to_dense().to_data().try_to_vec::<f32>().unwrap();
/// assert_eq!(dense, [1.0, 0.0, 0.0, 20.0, 2.0, 0.0, 0.0, 30.0, 3.0]);
/// # Ok::<(), sparsegrad::encoders::EncoderError>(())
/// ```
#[derive(Module, Debug)]
pub struct PairwiseEncoder {
    #[module(skip)]
    relations: Relations,
}

impl PairwiseEncoderConfig {
    /// Relates each voxel to itself.
    pub fn diagonal(self) -> Self {
        Self { diagonal: true, ..self }
    }

    /// Relates channels.
    pub fn channels(self, channels: Channels) -> Self {
        Self { channels, ..self }
    }

    /// Keeps one side of the diagonal.
    pub fn side(self, side: Side) -> Self {
        Self { side, ..self }
    }

    /// Encodes to COO instead of CSR: the same entries in the same order.
    pub fn coo(self) -> Self {
        Self { coo: true, ..self }
    }

    /// Makes the encoder, and the pattern of its matrices.
    ///
    /// # Errors
    /// A radius below 1, a volume without a spatial dimension or with an empty one, related channels where there is one, or a
    /// matrix that is too large to index.
    pub fn build(self) -> Result<PairwiseEncoder, EncoderError> {
        let Self { radius, volume, diagonal, channels, side, coo } = self;
        if !(radius >= 1.0 && radius.is_finite()) {
            return Err(EncoderError::Radius { radius });
        }
        let voxels = volume.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if volume.len() < 2 || volume.contains(&0) {
            return Err(EncoderError::Volume { volume });
        }
        if volume[0] == 1 && channels != Channels::Independent {
            return Err(EncoderError::OneChannel { channels, volume });
        }
        let Some(voxels) = voxels else {
            return Err(PatternError::TooLarge { rows: usize::MAX, columns: usize::MAX }.into());
        };
        let steps = neighbourhood::steps(radius, &volume, diagonal, channels, side);
        Ok(PairwiseEncoder { relations: Relations::new(volume, voxels, steps, coo)? })
    }
}

impl PairwiseEncoder {
    /// An encoder of the neighbours within `radius` in a volume of shape `[channels, *space]`: of both sides, without the
    /// diagonal, channels independent, to CSR.
    pub fn of(radius: f64, volume: &[usize]) -> PairwiseEncoderConfig {
        PairwiseEncoderConfig {
            radius,
            volume: volume.to_vec(),
            diagonal: false,
            channels: Channels::Independent,
            side: Side::Both,
            coo: false,
        }
    }

    /// The steps from a voxel to its neighbours, in channels and space: one value each.
    pub fn steps(&self) -> &[Vec<isize>] {
        self.relations.steps()
    }

    /// The shape of the volume: channels, and the sizes of the spatial dimensions.
    pub fn volume(&self) -> &[usize] {
        self.relations.volume()
    }

    /// The pattern of the matrices, P x P.
    pub fn pattern(&self) -> &Pattern {
        self.relations.pattern()
    }

    /// The P x P matrix of values of shape `[N, C, *S]`.
    ///
    /// # Panics
    /// Where [`try_encode`](Self::try_encode) returns an error.
    #[track_caller]
    pub fn encode<const R: usize>(&self, values: Tensor<R>) -> SparseTensor<2> {
        self.try_encode(values).unwrap_or_else(|error| panic!("PairwiseEncoder: {error}"))
    }

    /// [`encode`](Self::encode), with values that do not fit as an error.
    ///
    /// # Errors
    /// If the values are of another shape.
    pub fn try_encode<const R: usize>(&self, values: Tensor<R>) -> Result<SparseTensor<2>, EncoderError> {
        self.check(&values, &[])?;
        let entries = encode(&self.relations, 1, false, flat(values));
        Ok(SparseTensor::new(self.pattern().clone(), entries)?)
    }

    /// A batch of P x P matrices, of values of shape `[items, N, C, *S]`.
    ///
    /// # Panics
    /// Where [`try_encode_batch`](Self::try_encode_batch) returns an error.
    #[track_caller]
    pub fn encode_batch<const R: usize>(&self, values: Tensor<R>) -> SparseTensor<3> {
        self.try_encode_batch(values).unwrap_or_else(|error| panic!("PairwiseEncoder: {error}"))
    }

    /// [`encode_batch`](Self::encode_batch), with values that do not fit as an error.
    ///
    /// # Errors
    /// If the values are of another shape, or the batch is too large to index.
    pub fn try_encode_batch<const R: usize>(&self, values: Tensor<R>) -> Result<SparseTensor<3>, EncoderError> {
        let items = values.dims()[0];
        self.check(&values, &[items])?;
        // All that can fail, before anything is computed.
        self.pattern().repeat(items)?;
        let entries = encode(&self.relations, items, false, flat(values));
        Ok(SparseTensor::shared(self.pattern(), reshape(entries, [items, self.pattern().nnz()]))?)
    }

    /// The values of shape `[N, C, *S]` of a matrix at the encoder's pattern: what [`encode`](Self::encode) makes it of, 0 where a
    /// step leads out of the volume.
    ///
    /// # Errors
    /// If the matrix is at another pattern.
    ///
    /// # Panics
    /// If the rank `R` is not that of the values.
    #[track_caller]
    pub fn decode<const R: usize>(&self, matrix: &SparseTensor<2>) -> Result<Tensor<R>, EncoderError> {
        if !matrix.pattern().same_pattern(self.pattern()) {
            let expected = self.pattern().nnz();
            return Err(EncoderError::OtherPattern { expected, found: matrix.pattern().to_string() });
        }
        let shape: Vec<_> = std::iter::once(self.steps().len()).chain(self.volume().iter().copied()).collect();
        let shape: [usize; R] =
            shape.try_into().unwrap_or_else(|shape| panic!("decode: values are of shape {shape:?}, not of rank {R}"));
        Ok(reshape(encode(&self.relations, 1, true, matrix.values().clone()), shape))
    }

    fn check<const R: usize>(&self, values: &Tensor<R>, items: &[usize]) -> Result<(), EncoderError> {
        let expected = [items, &[self.steps().len()], self.volume()].concat();
        if values.dims().as_slice() == expected {
            return Ok(());
        }
        Err(EncoderError::Shape { volume: self.volume().to_vec(), expected, found: values.dims().to_vec() })
    }
}

/// Values in one row.
fn flat<const R: usize>(values: Tensor<R>) -> Tensor<1> {
    let count = values.shape().num_elements();
    reshape(values, [count])
}
