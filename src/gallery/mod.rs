//! Matrices by construction: model problems of differential equations, graphs, bands, and random matrices that have the
//! properties they are asked for.
//!
//! | function | matrix | differentiable in |
//! |---|---|---|
//! | [`poisson`] | -Δ with unit coefficients on a grid of any dimension | |
//! | [`grid_laplacian`] | -div(k grad) with a conductivity for each cell | `k` |
//! | [`convection_diffusion`] | the same plus v · grad, upwind | `k`, `v` |
//! | [`adjacency`] | symmetric adjacency matrix of a list of edges | the weights |
//! | [`normalized_adjacency`] | D^-1/2 A D^-1/2 or D^-1 A, at A's pattern | A's values |
//! | [`graph_laplacian`] | D - A, I - D^-1/2 A D^-1/2 or I - D^-1 A | A's values |
//! | [`banded`], [`diagonals`] | given diagonals | the diagonals |
//! | [`rand_sparse`] | random, with exactly `nnz` entries | |
//! | [`rand_sparse_tri`] | random triangular | |
//! | [`make_spd_sparse`] | random symmetric positive definite | |
//! | [`rmat`] | random graph with power-law degrees | |
//!
//! All are CSR matrices with sorted rows and each position once. Those that are made of numbers take where to put them as
//! Burn's own constructors do: `&device` for the device's float type, `(&device, DType::F64)` for another. Those that are
//! made of tensors live where these live, and are differentiable in them: the values are computed with Burn's and this
//! crate's operations. Random ones take a generator from [`rand`], which is re-exported: one seed, one matrix.
//!
//! ```
//! use sparsegrad::{gallery, prelude::*};
//!
//! let device = Device::flex();
//! let a = gallery::poisson([30, 20], &device)?;
//! assert_eq!((a.shape(), a.nnz()), ([600, 600], 5 * 600 - 2 * (30 + 20)));
//! # Ok::<(), gallery::GalleryError>(())
//! ```

mod banded;
mod error;
mod graph;
mod grid;
mod random;
mod rmat;

pub use banded::{banded, diagonals};
pub use error::GalleryError;
pub use graph::{GraphLaplacian, Normalization, adjacency, graph_laplacian, normalized_adjacency};
pub use grid::{Grid, convection_diffusion, grid_laplacian, poisson};
pub use rand;
pub use random::{RandSparse, RandSparseTri, RandSpd, make_spd_sparse, rand_sparse, rand_sparse_tri};
pub use rmat::{Rmat, rmat};

use crate::SparseTensor;
use crate::backend::check::{device_name, supported};
use crate::error::{PatternError, TensorError};
use crate::pattern::Pattern;
use burn::tensor::{Tensor, TensorCreationOptions, TensorData};

/// A vector of these numbers where, and in the type that, the options say.
fn vector(values: Vec<f64>, options: &TensorCreationOptions) -> Result<Tensor<1>, TensorError> {
    if let Some(dtype) = options.dtype.filter(|&dtype| !supported(dtype, &options.device)) {
        let device = device_name(&options.device);
        return Err(TensorError::DType { dtype, device });
    }
    let length = values.len();
    Ok(Tensor::from_data(TensorData::new(values, [length]), options.clone()))
}

/// The pattern that selects these elements of a vector of length `of`, for a gather.
fn selection(elements: Vec<usize>, of: usize) -> Result<Pattern, PatternError> {
    let rows = elements.len();
    let offsets: Vec<usize> = (0..=rows).collect();
    Pattern::csr(offsets, elements, [rows, of])
}

/// Contributions, any number to a position, as the CSR matrix of their sums. The plans stay with `pattern`.
fn assembled(pattern: &Pattern, values: Tensor<1>) -> Result<SparseTensor<2>, TensorError> {
    // In this order only the sums are gathered: a sorted COO matrix has the values of CSR.
    Ok(SparseTensor::new(pattern.clone(), values)?.coalesce().to_csr())
}
