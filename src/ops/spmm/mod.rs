//! **spmm**: the product of a sparse matrix and dense columns, `C = A B`.
//!
//! | | |
//! |---|---|
//! | shapes | A is m x n sparse; B is n x k, or a vector of length n; C is m x k, or of length m |
//! | formats | every format: A is read through its row-ordered view; `a.t()` is the product with the transpose |
//! | dtypes | f32, f64; f16 and bf16 stored, accumulated in f32 and rounded once |
//! | gradient | `dA_e = <dC_i, B_j>` for each stored entry e at (i, j), at A's own pattern (an [sddmm](super::sddmm)); `dB = A^T dC` |
//! | absent entries | never touch B: `0 * inf` arises from stored zeros only |
//! | reproducible | same bits over repeats and numbers of threads: each element of C has one owner and adds in storage order of A's row |
//!
//! On the CPU (`cpu.rs`) rows are split by their number of entries, columns go through register tiles, and with few
//! columns one pass computes both gradients. On a GPU (`gpu.rs`) lanes own columns or share rows, and long rows are cut into pieces.
//!
//! Reference for the derivative: M. Giles, *Collected matrix derivative results*, 2008, section 2.2.2, restricted to the
//! stored entries.

mod backward;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use super::sddmm::SddmmOps;
use crate::backend::check::{Check, Operand, device_can, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::{of_view, with_rows};
use crate::tensor::{SparseTensor, reshape};
use burn::backend::{Dispatch, TensorMetadata, backend_extension, tensor::FloatTensor};
use burn::tensor::{Shape, Tensor};

/// The primitive, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SpmmOps: SddmmOps {
    /// `A B`: values of A `[nnz]`, B `[n, k]`, result `[m, k]`.
    #[fusion(dtype = dense, shape = product_shape(pattern, dense))]
    fn spmm(pattern: Pattern, values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Both gradients, `[nnz]` and `[n, k]`, from that of the product, `[m, k]`.
    ///
    /// A backend overrides it where one pass is faster than two.
    #[fusion(meta = |_pattern, values, dense, _grad| (values.clone(), dense.clone()))]
    fn spmm_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        dense: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        (Self::sddmm(pattern.clone(), grad.clone(), dense), Self::spmm(pattern.t(), values, grad))
    }
}

pub(crate) fn product_shape(pattern: &Pattern, dense: &Shape) -> Shape {
    Shape::from([pattern.shape()[0], dense[1]])
}

/// What a sparse tensor can be multiplied with, and what comes out.
pub trait SparseMatmul<Rhs> {
    /// The product.
    type Output;

    /// The product, or why the operands do not fit.
    ///
    /// # Errors
    /// If the inner dimensions, dtypes or devices differ, or the device lacks the dtype.
    fn try_matmul(&self, rhs: Rhs) -> Result<Self::Output, OpError>;
}

const OP: &str = "sparse_mm";

/// What every pair of operands is checked for; `columns` are A's and `rows` B's.
fn check(left: &Operand, columns: usize, right: &Operand, rows: usize) -> Result<(), OpError> {
    let what = "columns of A and rows of B must agree";
    Check { op: OP }.shapes(columns == rows, what, left, right)?;
    Check { op: OP }.compatible(left, right)
}

impl SparseMatmul<Tensor<2>> for SparseTensor<2> {
    type Output = Tensor<2>;

    fn try_matmul(&self, rhs: Tensor<2>) -> Result<Tensor<2>, OpError> {
        let left = Operand::sparse(&self.shape(), self.values());
        let [m, n] = self.shape();
        let [rows, k] = rhs.dims();
        check(&left, n, &Operand::from(&rhs), rows)?;
        device_can(OP, &rhs, self.pattern(), &[("B", [n, k]), ("C", [m, k])])?;
        Ok(Tensor::from_dispatch(<Dispatch as SpmmOps>::spmm(
            self.pattern().clone(),
            self.values().clone().into_dispatch(),
            rhs.into_dispatch(),
        )))
    }
}

impl SparseMatmul<Tensor<1>> for SparseTensor<2> {
    type Output = Tensor<1>;

    fn try_matmul(&self, rhs: Tensor<1>) -> Result<Tensor<1>, OpError> {
        let [rows, columns] = self.shape();
        let left = Operand::sparse(&self.shape(), self.values());
        check(&left, columns, &Operand::from(&rhs), rhs.dims()[0])?;
        let product = self.try_matmul(reshape(rhs, [columns, 1]))?;
        Ok(reshape(product, [rows]))
    }
}

/// One matrix for all items: their columns side by side.
impl SparseMatmul<Tensor<3>> for SparseTensor<2> {
    type Output = Tensor<3>;

    fn try_matmul(&self, rhs: Tensor<3>) -> Result<Tensor<3>, OpError> {
        let [m, n] = self.shape();
        let [items, rows, k] = rhs.dims();
        let left = Operand::sparse(&self.shape(), self.values());
        check(&left, n, &Operand::from(&rhs), rows)?;
        let side_by_side = reshape(rhs.swap_dims(0, 1), [n, items * k]);
        let product = self.try_matmul(side_by_side)?;
        Ok(reshape(product, [m, items, k]).swap_dims(0, 1))
    }
}

/// Item by item, in one product of the block-diagonal matrix.
impl SparseMatmul<Tensor<3>> for SparseTensor<3> {
    type Output = Tensor<3>;

    fn try_matmul(&self, rhs: Tensor<3>) -> Result<Tensor<3>, OpError> {
        let [items, m, n] = self.shape();
        let [batch, rows, k] = rhs.dims();
        let (left, right) = (Operand::sparse(&self.shape(), self.values()), Operand::from(&rhs));
        let what = "A and B must have as many items";
        Check { op: OP }.shapes(items == batch, what, &left, &right)?;
        check(&left, n, &right, rows)?;
        let product = self.to_block_diagonal().try_matmul(reshape(rhs, [items * n, k]))?;
        Ok(reshape(product, [items, m, k]))
    }
}

/// One dense matrix for all items, in one product with the items below each other.
impl SparseMatmul<Tensor<2>> for SparseTensor<3> {
    type Output = Tensor<3>;

    fn try_matmul(&self, rhs: Tensor<2>) -> Result<Tensor<3>, OpError> {
        let [items, m, n] = self.shape();
        let [rows, k] = rhs.dims();
        let left = Operand::sparse(&self.shape(), self.values());
        check(&left, n, &Operand::from(&rhs), rows)?;
        let stacked = self.pattern().stacked(items);
        let stacked = SparseTensor::from_checked(stacked, self.values().clone());
        Ok(reshape(stacked.try_matmul(rhs)?, [items, m, k]))
    }
}

/// The product of a sparse tensor and a dense vector, matrix or batch, with gradients to both.
///
/// # Shapes
/// | `a` | `b` | result |
/// |---|---|---|
/// | m x n | n | m |
/// | m x n | n x k | m x k |
/// | m x n, for all items | items x n x k | items x m x k |
/// | items x m x n | items x n x k | items x m x k |
/// | items x m x n | n x k, for all items | items x m x k |
///
/// `b` may be any view: transposed, sliced, broadcast.
///
/// # Gradient
/// Of `a`: one number per stored entry, at `a`'s own pattern. Of `b`: dense.
///
/// # Panics
/// Where [`try_sparse_mm`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?
///     .require_grad();
/// let b = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device).require_grad();
///
/// let c = sparse_mm(&a, b.clone());
/// assert_eq!(c.to_data().try_to_vec::<f32>().unwrap(), [15.0, 18.0, 29.0, 38.0]);
///
/// let grads = c.sum().backward();
/// let da = a.grad(&grads).unwrap();
/// assert_eq!(da.values().to_data().try_to_vec::<f32>().unwrap(), [11.0, 3.0, 11.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn sparse_mm<A: SparseMatmul<B>, B>(a: &A, b: B) -> A::Output {
    expect(a.try_matmul(b))
}

/// [`sparse_mm`], with operands that do not fit as an error.
///
/// # Errors
/// If the inner dimensions, dtypes or devices differ, or the device lacks the dtype.
pub fn try_sparse_mm<A: SparseMatmul<B>, B>(a: &A, b: B) -> Result<A::Output, OpError> {
    a.try_matmul(b)
}

impl<const D: usize> SparseTensor<D> {
    /// [`sparse_mm`] as a method.
    ///
    /// # Panics
    /// If the operands do not fit.
    #[track_caller]
    pub fn matmul<B>(&self, b: B) -> <Self as SparseMatmul<B>>::Output
    where
        Self: SparseMatmul<B>,
    {
        sparse_mm(self, b)
    }
}

impl SparseTensor<2> {
    /// The product with a vector: [`sparse_mm`] of one.
    ///
    /// # Panics
    /// If the operands do not fit.
    #[track_caller]
    pub fn matvec(&self, x: Tensor<1>) -> Tensor<1> {
        sparse_mm(self, x)
    }
}

impl SparseTensor<3> {
    /// The product of each item with its vector: `x` is items x n, the result items x m.
    ///
    /// # Panics
    /// If the operands do not fit.
    #[track_caller]
    pub fn matvec(&self, x: Tensor<2>) -> Tensor<2> {
        let [items, n] = x.dims();
        let product = sparse_mm(self, reshape(x, [items, n, 1]));
        reshape(product, [items, self.shape()[1]])
    }
}

#[cfg(feature = "flex")]
impl SpmmOps for burn::backend::Flex {
    fn spmm(pattern: Pattern, mut values: FloatTensor<Self>, mut dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = product_shape(&pattern, &dense.shape());
        with_float!(values.dtype(), E => {
            let (values, dense) = (flex::values::<E>(&mut values), flex::matrix::<E>(&mut dense));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every row of the product, empty ones too.
                unsafe { flex::filled(shape, |out| cpu::spmm(rows, values, dense, out)) }
            })
        })
    }

    fn spmm_backward(
        pattern: Pattern,
        mut values: FloatTensor<Self>,
        mut dense: FloatTensor<Self>,
        mut grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let shapes = (values.shape(), dense.shape());
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            let (dense, grad) = (flex::matrix::<E>(&mut dense), flex::matrix::<E>(&mut grad));
            with_rows!(pattern.rows(), rows => {
                let transposed = || of_view(pattern.t().rows(), rows).clone();
                let in_order = pattern.format().is_ordered();
                // SAFETY: the kernel writes every value and every element of the dense gradient.
                unsafe {
                    flex::filled_both(shapes, |d_values, d_dense| {
                        cpu::spmm_backward(rows, transposed, in_order, values, dense, grad, d_values, d_dense)
                    })
                }
            })
        })
    }
}
