//! Sparse matrices in files.

mod host;
pub mod matrix_market;
mod triplets;

pub use host::HostMatrix;
pub use triplets::{Field, Symmetry, Triplets};
