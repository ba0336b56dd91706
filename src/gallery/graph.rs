//! Matrices of graphs.

use super::{GalleryError, assembled, selection};
use crate::SparseTensor;
use crate::ops::{gather::gather, sddmm::try_sddmm};
use crate::pattern::Pattern;
use burn::tensor::{Bool, Tensor};

/// How degrees enter a matrix of a graph with adjacency matrix A and row sums D.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    /// Not: the adjacency matrix A, the combinatorial Laplacian D - A.
    None,
    /// From both sides: D^-1/2 A D^-1/2, and I - D^-1/2 A D^-1/2. Symmetric if A is.
    Symmetric,
    /// From the left: D^-1 A, whose rows sum to 1 (the steps of a random walk), and I - D^-1 A.
    RandomWalk,
}

/// The symmetric adjacency matrix of an undirected graph: the weight of each edge stands at both of its places, that of a
/// loop once. Weights of an edge that is given twice are summed.
///
/// # Gradient
/// Of `weights`: for each edge the sum over its two places.
///
/// # Errors
/// If a vertex is not below `vertices`, or there are not as many weights as edges.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
///
/// let edges = [(0, 1), (1, 2)];
/// let a = gallery::adjacency(3, &edges, Tensor::ones([2], &Device::flex()))?;
/// let dense = [0., 1., 0., 1., 0., 1., 0., 1., 0.];
/// assert_eq!(a.to_dense().into_data().try_to_vec::<f32>().unwrap(), dense);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn adjacency(
    vertices: usize,
    edges: &[(usize, usize)],
    weights: Tensor<1>,
) -> Result<SparseTensor<2>, GalleryError> {
    if weights.dims() != [edges.len()] {
        let (expected, found) = (vec![edges.len()], weights.dims().to_vec());
        return Err(GalleryError::Shape { what: "the weights", expected, found });
    }
    let is_loop = |&edge: &usize| edges[edge].0 == edges[edge].1;
    let mirrored: Vec<usize> = (0..edges.len()).filter(|edge| !is_loop(edge)).collect();
    let (mut rows, mut columns): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
    for &edge in &mirrored {
        rows.push(edges[edge].1);
        columns.push(edges[edge].0);
    }
    let pattern = Pattern::coo(rows, columns, [vertices, vertices])?;
    let mirror = gather(&selection(mirrored, edges.len())?, weights.clone());
    Ok(assembled(&pattern, Tensor::cat(vec![weights, mirror], 0))?)
}

/// A matrix divided by its row sums (degrees): D^-1/2 A D^-1/2 or D^-1 A, at A's own pattern. Rows that sum to 0 become 0.
///
/// With a loop at each vertex, the symmetric form is the propagation of a graph convolutional network.
///
/// # Gradient
/// Of the values of A, through the degrees too.
///
/// Source: T. N. Kipf, M. Welling, *Semi-Supervised Classification with Graph Convolutional Networks*, ICLR 2017, eq. 2.
///
/// # Errors
/// If the matrix is not square.
///
/// ```
/// use sparsegrad::{gallery::{self, Normalization}, prelude::*};
///
/// let a = gallery::adjacency(3, &[(0, 1), (1, 2)], Tensor::ones([2], &Device::flex()))?;
/// let walk = gallery::normalized_adjacency(&a, Normalization::RandomWalk)?;
/// assert_eq!(walk.values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 0.5, 0.5, 1.0]);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn normalized_adjacency(
    a: &SparseTensor<2>,
    normalization: Normalization,
) -> Result<SparseTensor<2>, GalleryError> {
    Degrees::of(a, "a normalized adjacency matrix")?.divide(a, normalization)
}

/// The Laplacian of a graph with this adjacency matrix: D - A, I - D^-1/2 A D^-1/2 or I - D^-1 A, where D holds the row sums.
/// Of a vertex without edges the row is 0.
///
/// A may be weighted, have loops, and be unsymmetric (then D holds the outgoing weights). For the normalized forms the
/// degrees may not be negative. The diagonal is stored in full.
///
/// # Gradient
/// Of the values of A. For a loop over many values keep a [`GraphLaplacian`], which plans once.
///
/// Source: F. R. K. Chung, *Spectral Graph Theory*, 1997, section 1.2.
///
/// # Errors
/// If the matrix is not square.
///
/// ```
/// use sparsegrad::{gallery::{self, Normalization}, prelude::*};
///
/// let a = gallery::adjacency(3, &[(0, 1), (1, 2)], Tensor::ones([2], &Device::flex()))?;
/// let l = gallery::graph_laplacian(&a, Normalization::None)?;
/// let dense = [1., -1., 0., -1., 2., -1., 0., -1., 1.];
/// assert_eq!(l.to_dense().into_data().try_to_vec::<f32>().unwrap(), dense);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn graph_laplacian(a: &SparseTensor<2>, normalization: Normalization) -> Result<SparseTensor<2>, GalleryError> {
    GraphLaplacian::new(a.pattern())?.of(a, normalization)
}

/// The plan of [`graph_laplacian`] for one pattern and any number of values.
#[derive(Debug, Clone)]
pub struct GraphLaplacian {
    /// The entries of the adjacency matrix, then the diagonal.
    contributions: Pattern,
}

impl GraphLaplacian {
    /// Plans for adjacency matrices of this pattern.
    ///
    /// # Errors
    /// If it is not square.
    pub fn new(adjacency: &Pattern) -> Result<Self, GalleryError> {
        let shape = square(adjacency.shape(), "a graph Laplacian")?;
        let (mut rows, mut columns) = adjacency.coordinates();
        rows.extend(0..shape[0]);
        columns.extend(0..shape[0]);
        Ok(Self { contributions: Pattern::coo(rows, columns, shape)? })
    }

    /// [`graph_laplacian`] of a matrix with the planned pattern.
    ///
    /// # Errors
    /// If the matrix has not as many entries as the planned pattern.
    pub fn of(&self, a: &SparseTensor<2>, normalization: Normalization) -> Result<SparseTensor<2>, GalleryError> {
        let degrees = Degrees::of(a, "a graph Laplacian")?;
        let diagonal = match normalization {
            Normalization::None => degrees.sums.clone(),
            _ => degrees.sums.ones_like().mask_fill(degrees.empty.clone(), 0.0),
        };
        let entries = degrees.divide(a, normalization)?.values().clone().neg();
        Ok(assembled(&self.contributions, Tensor::cat(vec![entries, diagonal], 0))?)
    }
}

/// Row sums, and where they are 0.
struct Degrees {
    sums: Tensor<1>,
    empty: Tensor<1, Bool>,
}

impl Degrees {
    fn of(a: &SparseTensor<2>, what: &'static str) -> Result<Self, GalleryError> {
        let [n, _] = square(a.shape(), what)?;
        let sums = a.matvec(Tensor::ones([n], (&a.device(), a.dtype())));
        let empty = sums.clone().equal_elem(0.0);
        Ok(Self { sums, empty })
    }

    fn divide(&self, a: &SparseTensor<2>, normalization: Normalization) -> Result<SparseTensor<2>, GalleryError> {
        let n = a.shape()[0];
        // A 1 under the root and the fraction, so that the gradient of an empty row is 0 and not NaN.
        let degrees = self.sums.clone().mask_fill(self.empty.clone(), 1.0);
        let (left, right) = match normalization {
            Normalization::None => return Ok(a.clone()),
            Normalization::RandomWalk => (degrees.recip(), self.sums.ones_like()),
            Normalization::Symmetric => {
                let root = degrees.sqrt().recip();
                (root.clone(), root)
            }
        };
        let left = left.mask_fill(self.empty.clone(), 0.0);
        // One factor for each entry: the outer product of both sides, sampled at the pattern.
        let factors = try_sddmm(a.pattern(), left.reshape([n, 1]), right.reshape([n, 1]))
            .expect("vectors of the matrix's own size, dtype and device");
        let values = a.values().clone() * factors.values().clone();
        Ok(a.with_values(values)?)
    }
}

fn square(shape: [usize; 2], what: &'static str) -> Result<[usize; 2], GalleryError> {
    match shape[0] == shape[1] {
        true => Ok(shape),
        false => Err(GalleryError::NotSquare { what, shape }),
    }
}
