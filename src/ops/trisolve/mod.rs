//! **trisolve**: the solution of a triangular system, `op(A) X = B` with `op(A) = A` or `A^T`.
//!
//! | | |
//! |---|---|
//! | shapes | A is n x n sparse; B and X are n x k, or vectors of length n |
//! | formats | every format: A is read through its row-ordered view; the entries of a row may be unsorted |
//! | reads | one triangle of A, with its diagonal unless that is taken as ones; other stored entries never touch X; duplicates are summed |
//! | dtypes | f32, f64; f16 and bf16 stored, each element accumulated in f32 and rounded once |
//! | gradient | `dB = op(A)^-T dX`, a solve with the transpose; `dA_e = -<dB_i, X_j>` for each entry e at (i, j) that is read, each duplicate in full, exactly 0 for the others |
//! | errors | no entry on the diagonal, or a zero there: typed, with its row |
//! | reproducible | same bits over repeats and numbers of threads: each element of X has one owner, which subtracts in a fixed order and divides last |
//!
//! On the CPU (`cpu.rs`) rows are taken in order, with up to 64 right-hand sides in registers; with few of them one pass computes
//! both gradients. On a GPU (`gpu.rs`) rows are grouped into levels that depend on earlier ones only.
//!
//! References: E. Anderson and Y. Saad, *Solving sparse triangular linear systems on parallel computers*, 1989, for the levels;
//! M. Giles, *Collected matrix derivative results*, 2008, section 2.2.3, restricted to the entries that are read.

mod backward;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use super::gather::{GatherOps, gather};
use super::sddmm::{SddmmOps, try_sddmm};
use crate::backend::check::{self, Operand, device_can};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::{TensorError, TriangularError};
use crate::pattern::{Part, Pattern};
#[cfg(feature = "flex")]
use crate::pattern::{SplitIndex, with_split};
use crate::tensor::{SparseTensor, read, reshape};
use burn::backend::{Dispatch, TensorMetadata, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which triangle of which square pattern a primitive reads. Its diagonal is stored, unless it is taken as ones.
#[derive(Debug, Clone)]
pub struct Triangle {
    pattern: Pattern,
    part: Part,
    /// The first row where the CPU found a zero on the diagonal.
    zero: Arc<AtomicUsize>,
}

impl Triangle {
    fn new(pattern: Pattern, part: Part) -> Self {
        Self { pattern, part, zero: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    /// Of the transposed matrix.
    fn t(&self) -> Self {
        Self::new(self.pattern.t(), self.part.t())
    }

    /// The gather of values that puts 0 for those that are not read, `None` if all are.
    fn keep(&self) -> Option<Pattern> {
        self.pattern.keep(self.part)
    }
}

/// The primitive, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait TrisolveOps: SddmmOps + GatherOps {
    /// `T^-1 B` for the triangle T: values `[nnz]`, B `[n, k]`, result `[n, k]`.
    #[fusion(dtype = rhs, shape = rhs.clone())]
    fn trisolve(triangle: Triangle, values: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Both gradients, `[nnz]` and `[n, k]`, from the solution and its gradient, `[n, k]`.
    ///
    /// A backend overrides it where one pass is faster than several.
    #[fusion(meta = |_triangle, values, solution, _grad| (values.clone(), solution.clone()))]
    fn trisolve_backward(
        triangle: Triangle,
        values: FloatTensor<Self>,
        solution: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let d_rhs = Self::trisolve(triangle.t(), values, grad);
        let products = Self::sddmm(triangle.pattern.clone(), d_rhs.clone(), solution);
        let products = match triangle.keep() {
            Some(keep) => Self::gather(keep, products),
            None => products,
        };
        (Self::float_neg(products), d_rhs)
    }
}

/// What is looked at before a solve. A missing diagonal always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Check {
    /// A zero on the diagonal is found where that costs nothing: on the CPU. On a GPU it gives infinities.
    #[default]
    Usual,
    /// A zero on the diagonal is found on every device. On a GPU that waits for n numbers to be read back.
    Zeros,
    /// That, and stored entries that would be ignored are refused: those of the other triangle, and the diagonal where it
    /// is taken as ones.
    Strict,
}

/// Which triangle to solve with, and how.
///
/// ```
/// use sparsegrad::Triangular;
///
/// let l_transposed = Triangular::lower().transpose(); // L^T x = b, where L is what is stored
/// let unit = Triangular::upper().unit_diagonal();
/// # let _ = (l_transposed, unit);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triangular {
    upper: bool,
    unit_diagonal: bool,
    transpose: bool,
    check: Check,
}

impl Triangular {
    /// The lower triangle of the stored matrix.
    pub const fn lower() -> Self {
        Self { upper: false, unit_diagonal: false, transpose: false, check: Check::Usual }
    }

    /// The upper triangle of the stored matrix.
    pub const fn upper() -> Self {
        Self { upper: true, ..Self::lower() }
    }

    /// The diagonal is taken as ones, and needs not be stored.
    pub const fn unit_diagonal(self) -> Self {
        Self { unit_diagonal: true, ..self }
    }

    /// Solves with the transposed matrix (called again, with the matrix itself). Which triangle is meant still speaks of the stored one.
    pub const fn transpose(self) -> Self {
        Self { transpose: !self.transpose, ..self }
    }

    /// What to look at before the solve.
    pub const fn check(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// Of this pattern: the triangle of the matrix that is solved with.
    fn of(self, pattern: &Pattern) -> Triangle {
        let part = Part { upper: self.upper, unit: self.unit_diagonal };
        match self.transpose {
            true => Triangle::new(pattern.t(), part.t()),
            false => Triangle::new(pattern.clone(), part),
        }
    }
}

const OP: &str = "sparse_triangular_solve";

/// What is wrong with a matrix of so many equal blocks on the diagonal, each `n x n`, as far as its pattern says.
fn check_pattern(
    pattern: &Pattern,
    n: usize,
    items: Option<usize>,
    options: Triangular,
) -> Result<(), TriangularError> {
    let place = |row: usize| Place::of(row, n, items);
    if !options.unit_diagonal
        && let Some(row) = pattern.missing_diagonal()
    {
        let Place { item, at } = place(row);
        return Err(TriangularError::MissingDiagonal { row: at, item });
    }
    if options.check < Check::Strict {
        return Ok(());
    }
    let part = Part { upper: options.upper, unit: options.unit_diagonal };
    if pattern.keep(part).is_none() {
        return Ok(());
    }
    let mut ignored = None;
    pattern.for_each_entry(|row, column, position| {
        if ignored.is_none() && !part.reads(row, column) {
            ignored = Some((row, column, position));
        }
    });
    let Some((row, column, position)) = ignored else {
        return Ok(());
    };
    let Place { item, at } = place(row);
    Err(TriangularError::Ignored { position, row: at, column: column - (row - at), item })
}

/// A row, in a batch that of an item.
struct Place {
    item: Option<usize>,
    at: usize,
}

impl Place {
    fn of(row: usize, n: usize, items: Option<usize>) -> Self {
        match items {
            Some(_) => Self { item: Some(row / n), at: row % n },
            None => Self { item: None, at: row },
        }
    }
}

/// The primitive on operands that fit: a matrix of so many blocks, if it is a batch, each `n x n`.
fn run(
    pattern: &Pattern,
    values: &Tensor<1>,
    rhs: Tensor<2>,
    n: usize,
    items: Option<usize>,
    options: Triangular,
) -> Result<Tensor<2>, TriangularError> {
    check_pattern(pattern, n, items, options)?;
    device_can(OP, &rhs, pattern, &[("B", rhs.dims())])?;
    let zero = |row: usize, value: f64| {
        let Place { item, at } = Place::of(row, n, items);
        TriangularError::ZeroDiagonal { row: at, item, value }
    };
    if options.check >= Check::Zeros && !options.unit_diagonal {
        let diagonal = read(gather(&pattern.diagonal(), values.clone().detach())).map_err(|error| match error {
            TensorError::Read { reason } => TriangularError::Read { reason },
            other => unreachable!("reading fails as such: {other}"),
        })?;
        if let Some(row) = diagonal.iter().position(|&value| value == 0.0) {
            return Err(zero(row, diagonal[row]));
        }
    }
    let triangle = options.of(pattern);
    let found = triangle.zero.clone();
    let solution = <Dispatch as TrisolveOps>::trisolve(triangle, values.clone().into_dispatch(), rhs.into_dispatch());
    match found.load(Ordering::Relaxed) {
        usize::MAX => Ok(Tensor::from_dispatch(solution)),
        row => Err(zero(row, 0.0)),
    }
}

/// What a triangular system can be solved for, and what comes out.
pub trait TriangularSolve<Rhs> {
    /// The solution.
    type Output;

    /// The solution, or why there is none.
    ///
    /// # Errors
    /// As [`sparse_triangular_solve`].
    fn triangular_solve(&self, rhs: Rhs, options: Triangular) -> Result<Self::Output, TriangularError>;
}

/// What every pair of operands is checked for: the matrix is square, and the right-hand side has as many rows.
fn check_operands<const D: usize>(a: &SparseTensor<D>, rhs: &Operand, rows: usize) -> Result<(), TriangularError> {
    let shape = a.shape();
    let [m, n] = [shape[D - 2], shape[D - 1]];
    if m != n {
        return Err(TriangularError::NotSquare { rows: m, columns: n });
    }
    let (check, left) = (check::Check { op: OP }, Operand::sparse(&shape, a.values()));
    check.shapes(n == rows, "A and B must have as many rows", &left, rhs)?;
    Ok(check.compatible(&left, rhs)?)
}

impl TriangularSolve<Tensor<2>> for SparseTensor<2> {
    type Output = Tensor<2>;

    fn triangular_solve(&self, rhs: Tensor<2>, options: Triangular) -> Result<Tensor<2>, TriangularError> {
        let [n, _] = rhs.dims();
        check_operands(self, &Operand::from(&rhs), n)?;
        run(self.pattern(), self.values(), rhs, n, None, options)
    }
}

impl TriangularSolve<Tensor<1>> for SparseTensor<2> {
    type Output = Tensor<1>;

    fn triangular_solve(&self, rhs: Tensor<1>, options: Triangular) -> Result<Tensor<1>, TriangularError> {
        let [n] = rhs.dims();
        check_operands(self, &Operand::from(&rhs), n)?;
        let solution = run(self.pattern(), self.values(), reshape(rhs, [n, 1]), n, None, options)?;
        Ok(reshape(solution, [n]))
    }
}

/// One matrix for all items: their columns side by side.
impl TriangularSolve<Tensor<3>> for SparseTensor<2> {
    type Output = Tensor<3>;

    fn triangular_solve(&self, rhs: Tensor<3>, options: Triangular) -> Result<Tensor<3>, TriangularError> {
        let [items, n, k] = rhs.dims();
        check_operands(self, &Operand::from(&rhs), n)?;
        let side_by_side = reshape(rhs.swap_dims(0, 1), [n, items * k]);
        let solution = run(self.pattern(), self.values(), side_by_side, n, None, options)?;
        Ok(reshape(solution, [n, items, k]).swap_dims(0, 1))
    }
}

/// Item by item, in one solve with the block-diagonal matrix.
impl TriangularSolve<Tensor<3>> for SparseTensor<3> {
    type Output = Tensor<3>;

    fn triangular_solve(&self, rhs: Tensor<3>, options: Triangular) -> Result<Tensor<3>, TriangularError> {
        let [items, n, k] = rhs.dims();
        let right = Operand::from(&rhs);
        let left = Operand::sparse(&self.shape(), self.values());
        let what = "A and B must have as many items";
        check::Check { op: OP }.shapes(items == self.shape()[0], what, &left, &right)?;
        check_operands(self, &right, n)?;
        let below = reshape(rhs, [items * n, k]);
        let solution = run(self.pattern(), self.values(), below, n, Some(items), options)?;
        Ok(reshape(solution, [items, n, k]))
    }
}

/// The solution X of `A X = B` or `A^T X = B`, A triangular and sparse, with gradients to both.
///
/// One triangle of A is read, as the options say; entries of the other, and a stored diagonal that is taken as ones, are as if
/// they weren't there ([`Check::Strict`] refuses them). Duplicates are summed, on the diagonal too.
///
/// # Shapes
/// | `a` | `b`, result |
/// |---|---|
/// | n x n | n |
/// | n x n | n x k |
/// | n x n, for all items | items x n x k |
/// | items x n x n | items x n x k |
///
/// `b` may be any view: transposed, sliced, broadcast.
///
/// # Gradient
/// Of `b`: dense, the solution with the transposed matrix. Of `a`: one number per stored entry, at `a`'s own pattern; exactly 0
/// for entries that are not read.
///
/// # Errors
/// * A row without a diagonal entry, unless that is taken as ones; a zero there (on a GPU, if [`Check::Zeros`] asks for it).
/// * A matrix that isn't square.
/// * Shapes, dtypes or devices that don't fit each other, or are beyond the device.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad::{Triangular, sparse_triangular_solve};
///
/// let device = Device::flex().autodiff();
/// // [2 .] [x0]   [4]
/// // [1 4] [x1] = [10]
/// let l = SparseTensor::from_triplets(&[0, 1, 1], &[0, 0, 1], &[2.0f32, 1.0, 4.0], [2, 2], &device)?.require_grad();
/// let b = Tensor::<1>::from_data([4.0, 10.0], &device);
/// let x = sparse_triangular_solve(&l, b, Triangular::lower())?;
/// assert_eq!(x.to_data().try_to_vec::<f32>().unwrap(), [2.0, 2.0]);
///
/// let grads = x.sum().backward();
/// let dl = l.grad(&grads).unwrap();
/// assert_eq!(dl.values().to_data().try_to_vec::<f32>().unwrap(), [-0.75, -0.5, -0.5]);
///
/// // Without its diagonal the matrix is singular: row 1 says so.
/// let l = SparseTensor::from_triplets(&[0, 1], &[0, 0], &[2.0f32, 1.0], [2, 2], &device)?;
/// let error = sparse_triangular_solve(&l, Tensor::<1>::ones([2], &device), Triangular::lower()).unwrap_err();
/// assert!(error.to_string().starts_with("no diagonal entry in row 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sparse_triangular_solve<A: TriangularSolve<B>, B>(
    a: &A,
    b: B,
    options: Triangular,
) -> Result<A::Output, TriangularError> {
    a.triangular_solve(b, options)
}

/// The gradients of a solve, by operations that are differentiable themselves.
pub(crate) fn gradients(
    a: &SparseTensor<2>,
    x: Tensor<2>,
    grad: Tensor<2>,
    options: Triangular,
) -> Result<(SparseTensor<2>, Tensor<2>), TriangularError> {
    let fits = x.dims() == grad.dims();
    let (left, right) = (Operand::from(&x), Operand::from(&grad));
    check::Check { op: OP }.shapes(fits, "the solution and its gradient must agree", &left, &right)?;
    let d_rhs = sparse_triangular_solve(a, grad, options.transpose())?;
    let triangle = options.of(a.pattern());
    let products = try_sddmm(&triangle.pattern, d_rhs.clone().neg(), x)?.into_parts().1;
    let d_values = match triangle.keep() {
        Some(keep) => gather(&keep, products),
        None => products,
    };
    Ok((SparseTensor::from_checked(a.pattern().clone(), d_values), d_rhs))
}

#[cfg(feature = "flex")]
impl TrisolveOps for burn::backend::Flex {
    fn trisolve(triangle: Triangle, mut values: FloatTensor<Self>, mut rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        let (shape, Triangle { pattern, part, zero }) = (rhs.shape(), triangle);
        with_float!(values.dtype(), E => {
            let (values, rhs) = (flex::values::<E>(&mut values), flex::matrix::<E>(&mut rhs));
            with_split!(pattern.triangles(), split => {
                let matrix = cpu::Matrix { split, part, values };
                // SAFETY: the kernel writes every row of the solution.
                unsafe {
                    flex::filled(shape, |out| {
                        if let Some(row) = cpu::solve(matrix, rhs, out) {
                            zero.store(row, Ordering::Relaxed);
                        }
                    })
                }
            })
        })
    }

    fn trisolve_backward(
        triangle: Triangle,
        mut values: FloatTensor<Self>,
        mut solution: FloatTensor<Self>,
        mut grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let shapes = (values.shape(), solution.shape());
        let (pattern, by_columns, part) = (&triangle.pattern, triangle.pattern.t(), triangle.part);
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            let (x, grad) = (flex::matrix::<E>(&mut solution), flex::matrix::<E>(&mut grad));
            with_split!(pattern.triangles(), split => {
                let matrix = cpu::Matrix { split, part, values };
                let transposed = || SplitIndex::split(by_columns.triangles());
                let in_order = pattern.format().is_ordered();
                // SAFETY: the kernel writes every value and every element of the dense gradient.
                unsafe {
                    flex::filled_both(shapes, |d_values, d_rhs| {
                        cpu::backward(matrix, transposed, in_order, x, grad, d_values, d_rhs)
                    })
                }
            })
        })
    }
}
