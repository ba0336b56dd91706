//! Sparse matrices in files.

pub mod matrix_market;
mod triplets;

pub use triplets::{Field, Symmetry, Triplets};
