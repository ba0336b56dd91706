//! Encoders: sparse matrices from what a network predicts.
//!
//! [`PairwiseEncoder`] makes the matrix of the relations between the voxels of a grid and their neighbours.

mod neighbourhood;
mod pairwise;
pub(crate) mod relations;

pub use pairwise::{Channels, EncoderError, PairwiseEncoder, PairwiseEncoderConfig, Side};
