//! Standard normal numbers: fast, reproducible whatever the number of threads, and in independent streams.
//!
//! Sampling from a sparse Gaussian costs less than the noise it starts from, unless that is made quickly. Here it is made by
//! a counter-based generator: number `i` of a draw depends on the seed, the stream and `i` alone. So all of them can be made at
//! once, in vectors and in threads, and come out the same.
//!
//! References: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, *Parallel random numbers: as easy as 1, 2, 3*, 2011
//! (Philox4x32-10); G. E. P. Box and M. E. Muller, *A note on the generation of random normal deviates*, 1958.

mod boxmuller;
mod philox;

use crate::mvn::blocks;
use crate::threads;
use boxmuller::{Normal, TILE};
use burn::tensor::{DType, Device, Distribution, Element, FloatDType, Shape, Tensor, TensorData};
use philox::Philox;
use sparsegrad::internals::alloc;
use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A generator of standard normal numbers.
///
/// On the CPU, the numbers are those of Philox4x32-10 by the method of Box and Muller, the same on every processor and with
/// any number of threads. They reach 6.7 standard deviations in f32 and 8.5 in f64. On a GPU they are those of Burn's own
/// generator, which is seeded before each draw.
///
/// ```
/// use burn::tensor::{DType, Device};
/// use sparsegrad_distributions::NormalRng;
///
/// let mut rng = NormalRng::seeded(1);
/// let first = rng.tensor::<2>([3, 4], DType::F64, &Device::flex());
/// let second = rng.tensor::<2>([3, 4], DType::F64, &Device::flex()); // others
/// assert_ne!(first.to_data(), second.to_data());
/// let again = NormalRng::seeded(1).tensor::<2>([3, 4], DType::F64, &Device::flex());
/// assert_eq!(first.to_data(), again.to_data());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalRng {
    seed: u64,
    stream: u64,
    /// The next counter.
    counter: u64,
}

impl NormalRng {
    /// The generator of this seed: its stream 0.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, stream: 0, counter: 0 }
    }

    /// A generator that is seeded by another.
    pub fn from_rng(rng: &mut (impl rand::Rng + ?Sized)) -> Self {
        Self::seeded(rng.next_u64())
    }

    /// The beginning of a stream of this seed: streams are independent.
    pub fn stream(&self, stream: u64) -> Self {
        Self { seed: self.seed, stream, counter: 0 }
    }

    /// Fills a slice.
    pub fn fill<E: NormalElement>(&mut self, numbers: &mut [E]) {
        // SAFETY: `MaybeUninit<E>` has the layout of `E`, and every element is written.
        let numbers = unsafe { &mut *(std::ptr::from_mut(numbers) as *mut [MaybeUninit<E>]) };
        self.write(numbers);
    }

    /// A tensor of standard normal numbers. Those of f16 and bf16 are rounded f32 ones.
    ///
    /// # Panics
    /// If the device lacks the dtype.
    pub fn tensor<const D: usize>(&mut self, shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
        if !is_cpu(device) {
            device.seed(self.draw_seed());
            return Tensor::random(shape, Distribution::Normal(0.0, 1.0), (device, dtype));
        }
        match dtype {
            DType::F64 => Tensor::from_data(self.data::<f64>(shape.into()), (device, dtype)),
            _ => {
                let single = Tensor::<D>::from_data(self.data::<f32>(shape.into()), (device, DType::F32));
                single.cast(FloatDType::from(dtype))
            }
        }
    }

    fn data<E: NormalElement>(&mut self, shape: Shape) -> TensorData {
        let mut buffer = alloc::output::<E>(shape.num_elements());
        self.write(&mut buffer);
        // SAFETY: all of it has been written.
        TensorData::new(unsafe { alloc::finished(buffer) }, shape)
    }

    /// The numbers of a matrix, to be made block by block on the CPU, in f32 or f64. Blocks of long columns are so `wide`.
    pub(crate) fn blocks<E: NormalElement>(&mut self, [rows, columns]: [usize; 2], wide: usize, cpu: Device) -> Blocks {
        let of_block = |range: Range<usize>| counters::<E>(rows * range.len());
        let counters = blocks::ranges(rows, columns, wide).next().map_or(0, of_block);
        let blocks = Blocks { rng: self.clone(), rows, columns, wide, counters, dtype: E::dtype(), cpu };
        self.counter += blocks.ranges().map(of_block).sum::<u64>();
        blocks
    }

    /// Writes every element.
    fn write<E: NormalElement>(&mut self, out: &mut [MaybeUninit<E>]) {
        /// Tiles that a thread makes at a time.
        const TILES: usize = 32;
        let source = Philox { seed: self.seed, stream: self.stream };
        let first = self.counter;
        self.counter += counters::<E>(out.len());
        let Ok(()) = threads::write(out, TILES * E::PER_TILE, |chunk, out| {
            boxmuller::fill(&source, first + (chunk * TILES * TILE) as u64, out);
            Ok::<_, Infallible>(())
        });
    }

    /// A seed for a generator that is not ours.
    fn draw_seed(&mut self) -> u64 {
        let [a, b, ..] = Philox { seed: self.seed, stream: self.stream }.block(self.counter);
        self.counter += 1;
        u64::from(a) << 32 | u64::from(b)
    }
}

/// How many counters so many numbers take.
fn counters<E: NormalElement>(numbers: usize) -> u64 {
    (numbers.div_ceil(E::PER_TILE) * TILE) as u64
}

/// The numbers of a matrix, rows x columns, in blocks of its columns: any block, as often as it is needed.
///
/// They are those of one draw after another: each block is what [`NormalRng::tensor`] makes next, of the shape rows x its columns.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    /// Before the first block.
    rng: NormalRng,
    rows: usize,
    columns: usize,
    wide: usize,
    /// That each block but the last takes.
    counters: u64,
    dtype: DType,
    cpu: Device,
}

impl Blocks {
    /// The columns of each block. The numbers of a seed depend on them.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        blocks::ranges(self.rows, self.columns, self.wide)
    }

    /// The numbers of the block that begins at a column.
    pub fn block(&self, columns: &Range<usize>) -> Tensor<2> {
        let mut rng = self.rng.clone();
        let earlier = self.ranges().next().map_or(0, |first| columns.start / first.len());
        rng.counter += earlier as u64 * self.counters;
        rng.tensor([self.rows, columns.len()], self.dtype, &self.cpu)
    }
}

/// Numbers that are made directly: f32 and f64.
pub trait NormalElement: Normal + Element {}
impl<E: Normal + Element> NormalElement for E {}

/// Whether tensors of the device are in the memory of the host.
pub(crate) fn is_cpu(device: &Device) -> bool {
    #[cfg(feature = "flex")]
    let cpu = Some(Device::flex());
    #[cfg(not(feature = "flex"))]
    let cpu: Option<Device> = None;
    cpu.is_some_and(|cpu| device.clone().inner() == cpu)
}
