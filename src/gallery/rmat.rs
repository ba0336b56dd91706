//! The recursive matrix model of graphs.

use super::{GalleryError, vector};
use crate::SparseTensor;
use burn::tensor::TensorCreationOptions;
use rand::{Rng, RngExt};

/// A random directed graph with power-law degrees and communities within communities: `2^scale` vertices and `edges` edges,
/// each placed by `scale` random choices of a quadrant of the adjacency matrix.
///
/// The value of an entry is how often its edge was drawn: values sum to `edges`, and `nnz` is somewhat smaller. Call
/// [`build`](Rmat::build) to draw it.
///
/// Source: D. Chakrabarti, Y. Zhan, C. Faloutsos, *R-MAT: A Recursive Model for Graph Mining*, SIAM Data Mining 2004.
///
/// ```
/// use sparsegrad::gallery::{self, rand::{SeedableRng, rngs::StdRng}};
/// use sparsegrad::prelude::*;
///
/// let mut rng = StdRng::seed_from_u64(0);
/// let a = gallery::rmat(10, 8_000).build(&mut rng, &Device::flex())?;
/// assert_eq!(a.shape(), [1024, 1024]);
/// assert_eq!(a.values().clone().sum().into_scalar::<f32>(), 8_000.0);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn rmat(scale: u32, edges: usize) -> Rmat {
    Rmat { scale, edges, probabilities: [0.57, 0.19, 0.19, 0.05], noise: 0.1 }
}

/// What [`rmat`] is to draw.
#[derive(Debug, Clone)]
#[must_use = "nothing is drawn before `build`"]
pub struct Rmat {
    scale: u32,
    edges: usize,
    probabilities: [f64; 4],
    noise: f64,
}

impl Rmat {
    /// The weights of the quadrants: upper left, upper right, lower left, lower right. They need not sum to 1. Those of the
    /// Graph 500 benchmark (0.57, 0.19, 0.19, 0.05) unless they are set.
    pub fn probabilities(self, probabilities: [f64; 4]) -> Self {
        Self { probabilities, ..self }
    }

    /// Each choice of a quadrant multiplies the weights by random factors in `1 - noise ..= 1 + noise`, which smooths the
    /// steps in the distribution of degrees. 0.1 unless it is set.
    pub fn noise(self, noise: f64) -> Self {
        Self { noise, ..self }
    }

    /// Draws the graph.
    ///
    /// # Errors
    /// If a weight is negative or all are 0, if the noise is not in 0..=1, if the scale is above 62, or if the device lacks
    /// the dtype.
    pub fn build(
        &self,
        rng: &mut (impl Rng + ?Sized),
        options: impl Into<TensorCreationOptions>,
    ) -> Result<SparseTensor<2>, GalleryError> {
        let parameter = |what, range, value| Err(GalleryError::Parameter { what, range, value });
        let total: f64 = self.probabilities.iter().sum();
        if let Some(&value) = self.probabilities.iter().find(|weight| weight.is_nan() || **weight < 0.0) {
            return parameter("a quadrant's weight", "0 or more", value);
        }
        if !(total > 0.0 && total.is_finite()) {
            return parameter("the sum of the quadrants' weights", "positive and finite", total);
        }
        if !(0.0..=1.0).contains(&self.noise) {
            return parameter("the noise", "in 0..=1", self.noise);
        }
        if self.scale > 62 {
            return parameter("the scale", "at most 62", self.scale.into());
        }
        let n = 1usize << self.scale;
        let mut edges: Vec<_> = (0..self.edges).map(|_| self.edge(rng)).collect();
        edges.sort_unstable();
        let groups = || edges.chunk_by(|a, b| a == b);
        let (rows, columns): (Vec<_>, Vec<_>) = groups().map(|group| group[0]).unzip();
        let options = options.into();
        let values = vector(groups().map(|group| group.len() as f64).collect(), &options)?;
        Ok(SparseTensor::from_triplets(rows, columns, values, [n, n], &options.device)?)
    }

    fn edge(&self, rng: &mut (impl Rng + ?Sized)) -> (usize, usize) {
        let (mut row, mut column) = (0, 0);
        for _ in 0..self.scale {
            let weights =
                self.probabilities.map(|weight| weight * (1.0 + self.noise * (2.0 * rng.random::<f64>() - 1.0)));
            let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
            let mut quadrant = 0;
            while quadrant < 3 && left >= weights[quadrant] {
                left -= weights[quadrant];
                quadrant += 1;
            }
            row = 2 * row + quadrant / 2;
            column = 2 * column + quadrant % 2;
        }
        (row, column)
    }
}
