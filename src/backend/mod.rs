//! What all operations share: the traits that a backend fulfils, checks before dispatch, and the machinery of each backend.

pub mod alloc;
pub(crate) mod autodiff;
pub(crate) mod check;
pub(crate) mod dense;
#[cfg(feature = "flex")]
pub(crate) mod flex;
#[cfg(feature = "cube")]
pub(crate) mod gpu;
pub(crate) mod scalar;
pub(crate) mod simd;

use crate::encoders::relations::EncodeOps;
use crate::ops::{
    dense::DenseOps, edge::EdgeOps, gather::GatherOps, reduce::ReduceOps, sddmm::SddmmOps, segment_mm::SegmentMmOps,
    spgemm::SpgemmOps, spmm::SpmmOps, trisolve::TrisolveOps,
};
use crate::vjp::SeedOps;

/// A Burn backend that offers every primitive of this crate: Flex, the CubeCL backends with and without fusion, and
/// autodiff over any of them.
pub trait SparseOps:
    SpmmOps
    + SpgemmOps
    + SddmmOps
    + GatherOps
    + DenseOps
    + ReduceOps
    + SeedOps
    + SegmentMmOps
    + TrisolveOps
    + EdgeOps
    + EncodeOps
{
}
impl<B> SparseOps for B where
    B: SpmmOps
        + SpgemmOps
        + SddmmOps
        + GatherOps
        + DenseOps
        + ReduceOps
        + SeedOps
        + SegmentMmOps
        + TrisolveOps
        + EdgeOps
        + EncodeOps
{
}
