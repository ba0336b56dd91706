//! Pairwise relations between the voxels of a grid as a sparse matrix.

use super::neighbourhood;
use crate::error::{PatternError, TensorError};
use crate::ops::gather::gather;
use crate::pattern::Pattern;
use crate::tensor::{SparseTensor, reshape};
use burn::module::Module;
use burn::tensor::Tensor;
use std::sync::Arc;

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
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    volume: Vec<usize>,
    steps: Vec<Vec<isize>>,
    pattern: Pattern,
    /// Row e has a one at the value of entry e.
    select: Pattern,
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
        let (pattern, select) = patterns(&volume, voxels, &steps, coo)?;
        Ok(PairwiseEncoder { plan: Arc::new(Plan { volume, steps, pattern, select }) })
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
        &self.plan.steps
    }

    /// The shape of the volume: channels, and the sizes of the spatial dimensions.
    pub fn volume(&self) -> &[usize] {
        &self.plan.volume
    }

    /// The pattern of the matrices, P x P.
    pub fn pattern(&self) -> &Pattern {
        &self.plan.pattern
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
        let Plan { pattern, select, .. } = &*self.plan;
        let values = gather(select, reshape(values, [select.shape()[1]]));
        Ok(SparseTensor::new(pattern.clone(), values)?)
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
        let Plan { pattern, select, .. } = &*self.plan;
        let select = select.repeat(items)?;
        let values = gather(&select, reshape(values, [select.shape()[1]]));
        Ok(SparseTensor::shared(pattern, reshape(values, [items, pattern.nnz()]))?)
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
        let Plan { volume, steps, pattern, select } = &*self.plan;
        if !matrix.pattern().same_pattern(pattern) {
            let expected = pattern.nnz();
            return Err(EncoderError::OtherPattern { expected, found: matrix.pattern().to_string() });
        }
        let shape: Vec<_> = std::iter::once(steps.len()).chain(volume.iter().copied()).collect();
        let shape: [usize; R] =
            shape.try_into().unwrap_or_else(|shape| panic!("decode: values are of shape {shape:?}, not of rank {R}"));
        Ok(reshape(gather(&select.t(), matrix.values().clone()), shape))
    }

    fn check<const R: usize>(&self, values: &Tensor<R>, items: &[usize]) -> Result<(), EncoderError> {
        let Plan { volume, steps, .. } = &*self.plan;
        let expected = [items, &[steps.len()], volume].concat();
        if values.dims().as_slice() == expected {
            return Ok(());
        }
        Err(EncoderError::Shape { volume: volume.clone(), expected, found: values.dims().to_vec() })
    }
}

/// The pattern of the matrices, and the values that its entries take.
fn patterns(
    volume: &[usize],
    voxels: usize,
    steps: &[Vec<isize>],
    coo: bool,
) -> Result<(Pattern, Pattern), PatternError> {
    let mut strides = vec![1isize; volume.len()];
    for axis in (1..volume.len()).rev() {
        strides[axis - 1] = strides[axis] * volume[axis] as isize;
    }
    // In the order of the columns of a row: those of the largest steps first.
    let shift = |step: &[isize]| -> isize { step.iter().zip(&strides).map(|(x, stride)| x * stride).sum() };
    let mut in_order: Vec<_> = steps.iter().enumerate().map(|(at, step)| (shift(step), at, step)).collect();
    in_order.sort_by_key(|&(shift, at, _)| (std::cmp::Reverse(shift), at));

    let fits = |place: &[usize], step: &[isize]| {
        place.iter().zip(step).zip(volume).all(|((&x, &by), &size)| {
            let from = x as isize - by;
            (0..size as isize).contains(&from)
        })
    };
    let (mut offsets, mut columns, mut taken) = (vec![0usize], Vec::new(), Vec::new());
    let mut place = vec![0; volume.len()];
    for voxel in 0..voxels {
        for &(shift, at, step) in &in_order {
            if fits(&place, step) {
                columns.push((voxel as isize - shift) as i64);
                taken.push((at * voxels + voxel) as i64);
            }
        }
        offsets.push(columns.len());
        advance(&mut place, volume);
    }
    let select = Pattern::csr((0..=taken.len()).collect::<Vec<_>>(), taken, [columns.len(), steps.len() * voxels])?;
    if coo {
        let rows: Vec<usize> = (0..voxels).flat_map(|v| std::iter::repeat_n(v, offsets[v + 1] - offsets[v])).collect();
        return Ok((Pattern::coo(rows, columns, [voxels; 2])?, select));
    }
    Ok((Pattern::csr(offsets, columns, [voxels; 2])?, select))
}

/// The next place in a volume, in row-major order.
fn advance(place: &mut [usize], volume: &[usize]) {
    for (x, &size) in place.iter_mut().zip(volume).rev() {
        *x += 1;
        if *x < size {
            return;
        }
        *x = 0;
    }
}
