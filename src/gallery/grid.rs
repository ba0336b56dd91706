//! Finite volumes on rectangular grids of any dimension.

use super::{GalleryError, assembled, selection, vector};
use crate::SparseTensor;
use crate::ops::gather::gather;
use crate::pattern::Pattern;
use burn::tensor::{Tensor, TensorCreationOptions, activation::relu};

/// The Laplacian -Δ on a grid of unit spacing with value 0 around it: 2 D on the diagonal, -1 for each neighbour. Divide by
/// the square of the spacing for another one.
///
/// `size` is the number of cells along each axis; cells are numbered with the last axis fastest, as in a dense tensor. In
/// two dimensions this is the 5-point stencil, in three the 7-point one. The matrix is symmetric and positive definite, with
/// eigenvalues `sum over axes of 4 sin^2(pi k / (2 (n + 1)))`, k = 1..n.
///
/// Source: R. J. LeVeque, *Finite Difference Methods for Ordinary and Partial Differential Equations*, 2007, section 3.2.
///
/// # Errors
/// If the grid has too many cells, or the device lacks the dtype.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
///
/// let a = gallery::poisson([3], (&Device::flex(), DType::F64))?;
/// let dense = [2., -1., 0., -1., 2., -1., 0., -1., 2.];
/// assert_eq!(a.to_dense().into_data().try_to_vec::<f64>().unwrap(), dense);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn poisson<const D: usize>(
    size: [usize; D],
    options: impl Into<TensorCreationOptions>,
) -> Result<SparseTensor<2>, GalleryError> {
    let grid = Grid::new(size)?;
    grid.assemble(vector(vec![1.0; grid.cells()], &options.into())?, Vec::new())
}

/// The operator -div(k grad) on a grid of unit spacing with value 0 around it, from the conductivity of each cell.
///
/// # Shapes
/// `conductivity` has the shape of the grid, of D dimensions; the matrix is n x n for n cells, numbered as the elements.
///
/// The flux between two cells goes through their conductivities in series: its coefficient is their harmonic mean
/// `2 a b / (a + b)`. Outer walls are one spacing away and have the conductivity of their cell, so that ones give
/// [`poisson`]. Conductivities must be positive (between two zeros the coefficient is NaN): then the matrix is symmetric
/// and positive definite.
///
/// # Gradient
/// Of `conductivity`: dense, in its shape. For a loop over many conductivities keep a [`Grid`], which plans once.
///
/// Source: S. V. Patankar, *Numerical Heat Transfer and Fluid Flow*, 1980, section 4.2-3.
///
/// # Errors
/// If the grid has too many cells.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
///
/// let device = Device::flex().autodiff();
/// let k = Tensor::<2>::from_data([[1.0, 3.0], [1.0, 1.0]], &device).require_grad();
/// let a = gallery::grid_laplacian(k.clone())?;
/// assert_eq!(a.get(0, 1)?, Some(-1.5)); // 2 * 1 * 3 / (1 + 3)
///
/// let grads = a.matvec(Tensor::ones([4], &device)).sum().backward();
/// assert_eq!(k.grad(&grads).unwrap().dims(), [2, 2]);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn grid_laplacian<const D: usize>(conductivity: Tensor<D>) -> Result<SparseTensor<2>, GalleryError> {
    Grid::new(conductivity.dims())?.laplacian(conductivity)
}

/// The operator -div(k grad) + v · grad on a grid of unit spacing with value 0 around it.
///
/// # Shapes
/// `conductivity` and each of the D components of `velocity` have the shape of the grid.
///
/// Diffusion is that of [`grid_laplacian`]. The derivative along each axis is taken upwind: to the neighbour that the flow
/// comes from. So every off-diagonal entry is negative or zero and the rows are diagonally dominant (an M-matrix), however
/// strong the convection; the matrix is not symmetric. All 2 D + 1 entries of the stencil are stored, those that are 0 too.
///
/// # Gradient
/// Of `conductivity` and of each velocity: dense. Where a velocity is 0 the upwind direction changes: the gradient there is
/// taken as 0.
///
/// Source: S. V. Patankar, *Numerical Heat Transfer and Fluid Flow*, 1980, section 5.2-3.
///
/// # Errors
/// If the shapes differ, or the grid has too many cells.
///
/// ```
/// use sparsegrad::{gallery, prelude::*};
///
/// let device = Device::flex();
/// let wind = Tensor::<1>::from_data([0.5, 0.5, -0.5], &device);
/// let a = gallery::convection_diffusion(Tensor::ones([3], &device), [wind])?;
/// let dense = [2.5, -1., 0., -1.5, 2.5, -1., 0., -1., 2.5];
/// assert_eq!(a.to_dense().into_data().try_to_vec::<f32>().unwrap(), dense);
/// # Ok::<(), gallery::GalleryError>(())
/// ```
pub fn convection_diffusion<const D: usize>(
    conductivity: Tensor<D>,
    velocity: [Tensor<D>; D],
) -> Result<SparseTensor<2>, GalleryError> {
    Grid::new(conductivity.dims())?.convection_diffusion(conductivity, velocity)
}

/// A rectangular grid: the pattern of its operators, planned once for any number of coefficients.
///
/// ```
/// use sparsegrad::{gallery::Grid, prelude::*};
///
/// let device = Device::flex().autodiff();
/// let grid = Grid::new([4, 5, 6])?;
/// let mut k = Tensor::<3>::ones([4, 5, 6], &device);
/// for _ in 0..3 {
///     k = k.detach().require_grad();
///     let a = grid.laplacian(k.clone())?; // the same pattern each time
///     let grads = a.matvec(Tensor::ones([120], &device)).powi_scalar(2).mean().backward();
///     k = k.clone() - Tensor::from_inner(k.grad(&grads).unwrap()) * 0.1;
/// }
/// # Ok::<(), sparsegrad::gallery::GalleryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Grid<const D: usize> {
    size: [usize; D],
    /// For each axis, the lower and the upper cell of every inner face, as selections of cells.
    faces: Vec<[Pattern; 2]>,
    /// How many outer walls each cell has.
    walls: Vec<f64>,
    /// Where the contributions of faces and cells go, in the order of `assemble`.
    contributions: Pattern,
}

impl<const D: usize> Grid<D> {
    /// A grid with so many cells along each axis.
    ///
    /// # Errors
    /// If there are too many cells.
    pub fn new(size: [usize; D]) -> Result<Self, GalleryError> {
        let too_large = || GalleryError::TooLarge { sizes: size.to_vec() };
        let product = |sizes: &[usize]| sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
        let cells = match size.contains(&0) {
            true => 0,
            false => product(&size).ok_or_else(too_large)?,
        };
        let mut faces = Vec::with_capacity(D);
        let mut walls = vec![2.0 * D as f64; cells];
        let (mut rows, mut columns) = (Vec::new(), Vec::new());
        for axis in 0..D {
            let stride: usize = size[axis + 1..].iter().product();
            let is_last = |cell: &usize| cell / stride % size[axis] + 1 == size[axis];
            let lower: Vec<usize> = (0..cells).filter(|cell| !is_last(cell)).collect();
            let upper: Vec<usize> = lower.iter().map(|cell| cell + stride).collect();
            for &cell in lower.iter().chain(&upper) {
                walls[cell] -= 1.0;
            }
            for (row, column) in [(&lower, &lower), (&upper, &upper), (&lower, &upper), (&upper, &lower)] {
                rows.extend_from_slice(row);
                columns.extend_from_slice(column);
            }
            faces.push([selection(lower, cells)?, selection(upper, cells)?]);
        }
        rows.extend(0..cells);
        columns.extend(0..cells);
        Ok(Self { size, faces, walls, contributions: Pattern::coo(rows, columns, [cells, cells])? })
    }

    /// The number of cells: the rows and columns of the operators.
    pub fn cells(&self) -> usize {
        self.walls.len()
    }

    /// [`grid_laplacian`].
    ///
    /// # Errors
    /// If the conductivity has not the shape of the grid.
    pub fn laplacian(&self, conductivity: Tensor<D>) -> Result<SparseTensor<2>, GalleryError> {
        self.assemble(self.by_cell("the conductivity", conductivity)?, Vec::new())
    }

    /// [`convection_diffusion`](fn@convection_diffusion).
    ///
    /// # Errors
    /// If one of the tensors has not the shape of the grid.
    pub fn convection_diffusion(
        &self,
        conductivity: Tensor<D>,
        velocity: [Tensor<D>; D],
    ) -> Result<SparseTensor<2>, GalleryError> {
        let conductivity = self.by_cell("the conductivity", conductivity)?;
        let velocity = velocity.into_iter().map(|v| self.by_cell("a velocity", v));
        self.assemble(conductivity, velocity.collect::<Result<_, _>>()?)
    }

    fn by_cell(&self, what: &'static str, field: Tensor<D>) -> Result<Tensor<1>, GalleryError> {
        if field.dims() == self.size {
            return Ok(field.flatten(0, D - 1));
        }
        let (expected, found) = (self.size.to_vec(), field.dims().to_vec());
        Err(GalleryError::Shape { what, expected, found })
    }

    /// From a conductivity for each cell, and for each axis a velocity or none.
    fn assemble(&self, k: Tensor<1>, velocity: Vec<Tensor<1>>) -> Result<SparseTensor<2>, GalleryError> {
        let walls = vector(self.walls.clone(), &(&k.device(), k.dtype()).into())?;
        let mut cells = k.clone() * walls;
        let mut values = Vec::with_capacity(4 * D + 1);
        for (axis, [lower, upper]) in self.faces.iter().enumerate() {
            let (a, b) = (gather(lower, k.clone()), gather(upper, k.clone()));
            // The quotient first, which does not overflow in half precision.
            let face = a.clone() * (b.clone() / (a + b)) * 2.0;
            let (mut to_upper, mut to_lower) = (face.clone(), face.clone());
            if let Some(v) = velocity.get(axis) {
                to_upper = to_upper + relu(gather(lower, v.clone().neg()));
                to_lower = to_lower + relu(gather(upper, v.clone()));
                cells = cells + v.clone().abs();
            }
            values.extend([face.clone(), face, to_upper.neg(), to_lower.neg()]);
        }
        values.push(cells);
        Ok(assembled(&self.contributions, Tensor::cat(values, 0))?)
    }
}
