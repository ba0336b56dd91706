//! **spgemm**: the product of two sparse matrices, `C = A B`, sparse.
//!
//! | | |
//! |---|---|
//! | computes | `c_ij` = the sum of `a_ik b_kj` over the pairs of stored entries that meet there |
//! | shapes | A is m x k, B is k x n, C is m x n; or as many of each in batches, or one of the two for all items of the other |
//! | formats | every format of A and B, `a.t()` and batches too; C is CSR, sorted, each position once |
//! | pattern of C | structural: every position where entries meet, though they cancel or are stored zeros |
//! | dtypes | f32, f64; f16 and bf16 stored, accumulated in f32 and rounded once |
//! | gradient | `dA_e = <dC_i., B_k.>` for each stored entry e at (i, k), over the pattern of C; `dB_e = <A_.k, dC_.j>`: each duplicate its own |
//! | absent entries | never meet anything: `0 * inf` arises from stored zeros only |
//! | reproducible | same bits over repeats and numbers of threads: each value has one owner and adds in the order of A's row, then of B's |
//!
//! The pattern of C and all else that takes a search is a [`SpgemmPlan`], made once for two patterns. On the CPU the numbers
//! come row by row through a row of accumulators (F. Gustavson, *Two fast algorithms for sparse matrices*, ACM TOMS 4, 1978); on a
//! GPU each value walks a list of the pairs that meet there, or searches for them where they are too many to be listed.
//!
//! With [`SparseTensor::diagonal`] the products that assemble systems and Hessians, `A^T D A`, have gradients to the diagonal and
//! to A:
//!
//! ```
//! use sparsegrad::prelude::*;
//!
//! let device = Device::flex().autodiff();
//! let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[1.0f32, -1.0, 2.0], [2, 2], &device)?.require_grad();
//! let d = Tensor::<1>::from_data([3.0, 5.0], &device).require_grad();
//! let h = a.t().matmul(&SparseTensor::diagonal(d.clone())?).matmul(&a);
//! assert_eq!(h.to_dense().to_data().try_to_vec::<f32>().unwrap(), [3.0, -3.0, -3.0, 23.0]);
//! let grads = h.values().clone().sum().backward();
//! assert_eq!(d.grad(&grads).unwrap().to_data().try_to_vec::<f32>().unwrap(), [0.0, 4.0]);
//! # Ok::<(), TensorError>(())
//! ```

mod backward;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;
mod operands;
mod plan;

pub use operands::SparseProduct;
pub use plan::SpgemmPlan;

use super::spmm::SparseMatmul;
use crate::backend::check::{Check, Operand, device_can, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
use crate::tensor::SparseTensor;
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;
use operands::{Operands, check};

const OP: &str = "spgemm";

/// The primitives, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SpgemmOps: Backend {
    /// The values of the product from those of its operands.
    #[fusion(dtype = left, shape = burn::tensor::Shape::from([plan.nnz()]))]
    fn spgemm(plan: SpgemmPlan, left: FloatTensor<Self>, right: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Values at the left operand's pattern, `<P_i., R_k.>` for each entry at (i, k), from those of the right operand and
    /// of the product.
    #[fusion(dtype = right, shape = burn::tensor::Shape::from([plan.operands()[0].nnz()]))]
    fn spgemm_left(plan: SpgemmPlan, right: FloatTensor<Self>, product: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl SpgemmPlan {
    /// The plan for a product of these operands, of which only the patterns matter: [`new`](Self::new) for matrices and batches, and
    /// for a batch with a matrix that all items share.
    ///
    /// # Errors
    /// As [`try_spgemm`].
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    /// use sparsegrad::ops::spgemm::SpgemmPlan;
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::eye(2, &device)?;
    /// let batch = SparseTensor::stack(&[a.clone(), a.map_values(|v| v * 2)])?;
    /// let plan = SpgemmPlan::for_operands(&batch, &a)?;
    /// assert_eq!(plan.execute(&batch, &a).shape(), [2, 2, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_operands<A: SparseProduct<B>, B>(a: &A, b: &B) -> Result<Self, OpError> {
        let operands = a.operands(b)?;
        Self::new(operands.left.pattern(), operands.right.pattern())
    }

    /// The product of matrices, or batches, with the plan's patterns and any values.
    ///
    /// # Panics
    /// Where [`try_execute`](Self::try_execute) returns an error.
    #[track_caller]
    pub fn execute<A: SparseProduct<B>, B>(&self, a: &A, b: &B) -> A::Output {
        expect(self.try_execute(a, b))
    }

    /// [`execute`](Self::execute), with operands that do not fit as an error.
    ///
    /// # Errors
    /// If an operand has another pattern than the plan was made for, items, dtypes or devices differ, or the device lacks the dtype
    /// or the memory.
    pub fn try_execute<A: SparseProduct<B>, B>(&self, a: &A, b: &B) -> Result<A::Output, OpError> {
        let Operands { left, right } = a.operands(b)?;
        let planned = self.operands();
        self.expects("A", planned[0], &left)?;
        self.expects("B", planned[1], &right)?;
        a.product(b, self.pattern(), self.run(left, right)?)
    }

    /// The values of the product of operands that fit.
    fn run(&self, a: SparseTensor<2>, b: SparseTensor<2>) -> Result<Tensor<1>, OpError> {
        self.device_can(a.values())?;
        let [a, b] = [a, b].map(|operand| operand.into_parts().1.into_dispatch());
        Ok(Tensor::from_dispatch(<Dispatch as SpgemmOps>::spgemm(self.clone(), a, b)))
    }

    fn device_can(&self, values: &Tensor<1>) -> Result<(), OpError> {
        for pattern in self.operands().into_iter().chain([self.pattern()]) {
            // Two indices an entry, or one and those of the rows, may have to be in one buffer: as many values.
            let [rows, _] = pattern.shape();
            let index = if pattern.nnz().max(rows) <= i32::MAX as usize { 4 } else { 8 };
            let packed = pattern.nnz() + pattern.nnz().max(rows + 1);
            let indices = ("indices", [packed.div_ceil(values.dtype().size()), index]);
            device_can(OP, values, pattern, &[indices])?;
        }
        Ok(())
    }

    /// The gradient of the left operand, at its pattern: differentiable in the right operand's values and the product's.
    fn left_values(&self, right: Tensor<1>, product: Tensor<1>) -> Tensor<1> {
        Tensor::from_dispatch(<Dispatch as SpgemmOps>::spgemm_left(
            self.clone(),
            right.into_dispatch(),
            product.into_dispatch(),
        ))
    }

    /// That a tensor has the pattern that is planned for.
    fn expects(&self, operand: &'static str, planned: &Pattern, given: &SparseTensor<2>) -> Result<(), OpError> {
        if planned == given.pattern() {
            return Ok(());
        }
        let (planned, given) = (planned.to_string(), given.pattern().to_string());
        Err(OpError::OtherPattern { op: OP, operand, planned, given })
    }
}

/// The gradients of `a` and `b` from that of their product.
pub(crate) fn gradients(
    a: &SparseTensor<2>,
    b: &SparseTensor<2>,
    grad: &SparseTensor<2>,
) -> Result<(SparseTensor<2>, SparseTensor<2>), OpError> {
    check(a, b)?;
    let plan = SpgemmPlan::cached(a.pattern(), b.pattern())?;
    plan.expects("the gradient", plan.pattern(), grad)?;
    let [left, right] = [a, grad].map(|operand| Operand::sparse(&operand.shape(), operand.values()));
    Check { op: OP }.compatible(&left, &right)?;
    plan.device_can(a.values())?;
    let da = plan.left_values(b.values().clone(), grad.values().clone());
    let db = plan.t().left_values(a.values().clone(), grad.values().clone());
    Ok((a.rebuilt(a.pattern().clone(), da), b.rebuilt(b.pattern().clone(), db)))
}

/// The product of two sparse matrices, or item by item of two batches, with gradients to both.
///
/// The result is CSR, sorted, with each position once. Its pattern depends on those of `a` and `b` alone: nothing is dropped where
/// numbers cancel. What is planned for the two patterns is kept with `a`'s, so that the next call computes numbers only (see
/// [`SpgemmPlan`] to hold a plan instead).
///
/// # Shapes
/// | `a` | `b` | result |
/// |---|---|---|
/// | m x k | k x n | m x n |
/// | items x m x k | items x k x n | items x m x n |
/// | m x k, for all items | items x k x n | items x m x n |
/// | items x m x k | k x n, for all items | items x m x n |
///
/// # Gradient
/// Of `a` and `b`: one number per stored entry, each at its own pattern. That of an operand for all items is the sum over them.
///
/// # Panics
/// Where [`try_spgemm`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[2.0f32, 3.0], [2, 2], &device)?.require_grad();
/// let b = SparseTensor::from_triplets(&[0, 1], &[0, 2], &[5.0f32, 7.0], [2, 3], &device)?.require_grad();
/// let c = spgemm(&a, &b); // or a.matmul(&b)
/// assert_eq!(c.triplets()?.collect::<Vec<_>>(), [(0, 2, 14.0), (1, 0, 15.0)]);
/// let grads = c.values().clone().sum().backward();
/// assert_eq!(a.grad(&grads).unwrap().values().to_data().try_to_vec::<f32>().unwrap(), [7.0, 5.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn spgemm<A: SparseProduct<B>, B>(a: &A, b: &B) -> A::Output {
    expect(try_spgemm(a, b))
}

/// [`spgemm`], with operands that do not fit as an error.
///
/// # Errors
/// If inner dimensions, items, dtypes or devices differ, or the host or the device has no memory for the product.
pub fn try_spgemm<A: SparseProduct<B>, B>(a: &A, b: &B) -> Result<A::Output, OpError> {
    let Operands { left, right } = a.operands(b)?;
    let plan = SpgemmPlan::cached(left.pattern(), right.pattern())?;
    a.product(b, plan.pattern(), plan.run(left, right)?)
}

/// Sparse times sparse: [`spgemm`].
impl<const D: usize, const E: usize> SparseMatmul<&SparseTensor<E>> for SparseTensor<D>
where
    Self: SparseProduct<SparseTensor<E>>,
{
    type Output = <Self as SparseProduct<SparseTensor<E>>>::Output;

    fn try_matmul(&self, rhs: &SparseTensor<E>) -> Result<Self::Output, OpError> {
        try_spgemm(self, rhs)
    }
}

#[cfg(feature = "flex")]
impl SpgemmOps for burn::backend::Flex {
    fn spgemm(plan: SpgemmPlan, mut left: FloatTensor<Self>, mut right: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(left.dtype(), E => {
            let (left, right) = (flex::values::<E>(&mut left), flex::values::<E>(&mut right));
            // SAFETY: the kernel writes every value.
            unsafe { flex::filled([plan.nnz()].into(), |out| plan.with_parts(cpu::Product { left, right, out })) }
        })
    }

    fn spgemm_left(
        plan: SpgemmPlan,
        mut right: FloatTensor<Self>,
        mut product: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        with_float!(right.dtype(), E => {
            let (right, product) = (flex::values::<E>(&mut right), flex::values::<E>(&mut product));
            let shape = [plan.operands()[0].nnz()].into();
            // SAFETY: the kernel writes every value.
            unsafe { flex::filled(shape, |out| plan.with_parts(cpu::Left { right, product, out })) }
        })
    }
}
