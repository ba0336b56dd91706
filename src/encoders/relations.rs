//! **encode**: the values of the relations of a volume as those of its matrix, and back.
//!
//! | | |
//! |---|---|
//! | shapes | values of `[items, steps, *volume]`, flat; entries of `[items, nnz]`, flat |
//! | dtypes | those of the backend; the bits are kept |
//! | gradient | back, or forth, by the same relations; 0 where a step leads out of the volume |
//!
//! Each value goes to one entry, so that both ways are permutations but for values without an entry. On the CPU they follow from the
//! geometry, line by line of the volume, and nothing is looked up; elsewhere they are a gather.

#[cfg(feature = "flex")]
mod cpu;

use crate::backend::SparseOps;
use crate::backend::autodiff::linear;
use crate::backend::check::{device_can_at, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::PatternError;
use crate::ops::gather::GatherOps;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{Shape, Tensor};
use std::sync::{Arc, OnceLock};

/// The relations between the voxels of a volume: shared, and cheap to clone.
#[derive(Debug, Clone)]
pub struct Relations(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    volume: Vec<usize>,
    steps: Vec<Vec<isize>>,
    /// The steps in the order of the columns of a row: those of the largest distance in memory first.
    in_order: Vec<usize>,
    pattern: Pattern,
    /// Row e has a one at the value of entry e. Made on first use.
    select: OnceLock<Pattern>,
}

impl Relations {
    /// The relations by these steps in a volume of so many voxels, as a matrix in CSR or COO.
    pub(super) fn new(
        volume: Vec<usize>,
        voxels: usize,
        steps: Vec<Vec<isize>>,
        coo: bool,
    ) -> Result<Self, PatternError> {
        let mut strides = vec![1isize; volume.len()];
        for axis in (1..volume.len()).rev() {
            strides[axis - 1] = strides[axis] * volume[axis] as isize;
        }
        let shift = |step: &[isize]| -> isize { step.iter().zip(&strides).map(|(x, stride)| x * stride).sum() };
        let mut in_order: Vec<usize> = (0..steps.len()).collect();
        in_order.sort_by_key(|&at| (std::cmp::Reverse(shift(&steps[at])), at));

        let (mut offsets, mut columns) = (vec![0usize], Vec::new());
        for_each_voxel(&volume, voxels, |voxel, place| {
            let of_row = in_order.iter().map(|&at| &steps[at]).filter(|step| stays(place, step, &volume));
            columns.extend(of_row.map(|step| (voxel as isize - shift(step)) as i64));
            offsets.push(columns.len());
        });
        let pattern = if coo {
            let row = |voxel: usize| std::iter::repeat_n(voxel, offsets[voxel + 1] - offsets[voxel]);
            Pattern::coo((0..voxels).flat_map(row).collect::<Vec<_>>(), columns, [voxels; 2])?
        } else {
            Pattern::csr(offsets, columns, [voxels; 2])?
        };
        Ok(Self(Arc::new(Inner { volume, steps, in_order, pattern, select: OnceLock::new() })))
    }

    pub(super) fn volume(&self) -> &[usize] {
        &self.0.volume
    }

    pub(super) fn steps(&self) -> &[Vec<isize>] {
        &self.0.steps
    }

    pub(super) fn pattern(&self) -> &Pattern {
        &self.0.pattern
    }

    /// The number of voxels.
    fn voxels(&self) -> usize {
        self.pattern().shape()[0]
    }

    /// The number of values of an item.
    fn values(&self) -> usize {
        self.steps().len() * self.voxels()
    }

    /// The elements of a result for so many items.
    fn elements(&self, items: usize, back: bool) -> usize {
        items * if back { self.values() } else { self.pattern().nnz() }
    }

    /// The places of the values of entries, for so many items.
    fn selects(&self, items: usize) -> Pattern {
        let select = self.0.select.get_or_init(|| {
            let Inner { volume, steps, in_order, pattern, .. } = &*self.0;
            let voxels = self.voxels();
            let mut taken = Vec::with_capacity(pattern.nnz());
            for_each_voxel(volume, voxels, |voxel, place| {
                let of_row = in_order.iter().filter(|&&at| stays(place, &steps[at], volume));
                taken.extend(of_row.map(|at| (at * voxels + voxel) as i64));
            });
            let offsets: Vec<usize> = (0..=taken.len()).collect();
            let shape = [taken.len(), self.values()];
            Pattern::csr(offsets, taken, shape).expect("a place for each entry")
        });
        select.repeat(items).expect("the batch was found to fit")
    }
}

/// Whether a step to a place comes from within the volume.
fn stays(place: &[usize], step: &[isize], volume: &[usize]) -> bool {
    let within = |((&x, &by), &size): ((&usize, &isize), &usize)| (0..size as isize).contains(&(x as isize - by));
    place.iter().zip(step).zip(volume).all(within)
}

/// Visits the voxels of a volume and their places, in row-major order.
fn for_each_voxel(volume: &[usize], voxels: usize, mut visit: impl FnMut(usize, &[usize])) {
    let mut place = vec![0; volume.len()];
    for voxel in 0..voxels {
        visit(voxel, &place);
        for (x, &size) in place.iter_mut().zip(volume).rev() {
            *x += 1;
            if *x < size {
                break;
            }
            *x = 0;
        }
    }
}

/// The primitive, on backend tensors.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait EncodeOps: Backend + GatherOps {
    /// The entries of the matrices of so many items from their values; `back`, the values from the entries.
    #[fusion(dtype = values, shape = Shape::from([relations.elements(*items, *back)]))]
    fn encode(relations: Relations, items: usize, back: bool, values: FloatTensor<Self>) -> FloatTensor<Self> {
        let select = relations.selects(items);
        Self::gather(if back { select.t() } else { select }, values)
    }
}

/// See [`EncodeOps::encode`].
///
/// # Panics
/// If the device lacks the dtype or is too small.
#[track_caller]
pub(super) fn encode(relations: &Relations, items: usize, back: bool, values: Tensor<1>) -> Tensor<1> {
    expect(device_can_at("PairwiseEncoder", &values, || relations.selects(items), &[]));
    let values = values.into_dispatch();
    Tensor::from_dispatch(<Dispatch as EncodeOps>::encode(relations.clone(), items, back, values))
}

impl<B: SparseOps, C: CheckpointStrategy> EncodeOps for Autodiff<B, C> {
    fn encode(relations: Relations, items: usize, back: bool, values: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(
            (relations, items, back),
            values,
            |(relations, items, back), values| B::encode(relations, items, back, values),
            |(relations, items, back), grad| B::encode(relations, items, !back, grad),
        )
    }
}

#[cfg(feature = "cube")]
impl EncodeOps for burn_cubecl::CubeBackend {}

#[cfg(feature = "flex")]
impl EncodeOps for burn::backend::Flex {
    fn encode(relations: Relations, items: usize, back: bool, mut values: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            let shape = Shape::from([relations.elements(items, back)]);
            with_rows!(relations.pattern().rows(), rows => {
                // SAFETY: every element is that of a voxel's entry, or of a step to a voxel, and those of all are written.
                unsafe { flex::filled(shape, |out| cpu::transfer(&relations, rows, items, back, values, out)) }
            })
        })
    }
}
