//! Vector-Jacobian products: the gradient of each primitive as a function that can be differentiated again.
//!
//! Burn's tensors have no gradient of a gradient. The primitives of this crate are closed under differentiation, so
//! their derivatives can be offered as what they are, more of the same primitives: write a loss with [`spmm`](spmm()) or
//! [`sddmm`](sddmm()) from this module and call `backward` on it, for Hessian-vector products, meta-learning or influence functions.
//!
//! Sums and means are linear: the gradient of a sum is [`edge_gather`](crate::edge_gather), which is differentiable as it is.
//!
//! [`backward`](backward()) starts a backward pass from a given gradient, where Burn only starts from ones.

use crate::backend::SparseOps;
use crate::backend::autodiff::linear;
use crate::backend::check::{Check, Operand, expect};
use crate::error::TriangularError;
use crate::ops::reduce::{self, Norm, Per, Reduce, Reduction, Softmax};
use crate::ops::trisolve::{self, Triangular};
use crate::ops::{
    edge as edge_op, sddmm as sddmm_op, segment as segment_op, segment_mm as product_op, spgemm as spgemm_op,
    spmm as spmm_op,
};
use crate::pattern::Pattern;
use crate::segments::Segments;
use crate::tensor::SparseTensor;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::{Backend, Dispatch, TensorMetadata, backend_extension, tensor::FloatTensor};
use burn::tensor::{Gradients, Shape, Tensor};

/// The gradients of [`sparse_mm`](crate::sparse_mm): from that of the product, `grad`, those of `a` and `b`.
///
/// `dA_e = <grad_i, b_j>` at `a`'s pattern, and `dB = A^T grad`: both differentiable in `a`, `b` and `grad`.
///
/// # Panics
/// If the shapes of `a` (m x n), `b` (n x k) and `grad` (m x k), dtypes or devices do not fit.
///
/// ```
/// use sparsegrad::{prelude::*, vjp};
///
/// // f(v) = |A(v) b|^2 / 2 has the gradient A(v) b at the pattern of A times b: differentiate it once more.
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1], &[0, 1], &[2.0f32, 3.0], [2, 2], &device)?.require_grad();
/// let b = Tensor::<2>::from_data([[1.0], [2.0]], &device);
/// let (gradient, _) = vjp::spmm(&a, b.clone(), a.matmul(b));
/// let direction = Tensor::<1>::from_data([1.0, 10.0], &device);
/// let grads = (gradient.values().clone() * direction).sum().backward();
/// let product = a.grad(&grads).unwrap(); // the Hessian is diag(b_j^2)
/// assert_eq!(product.values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 40.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn spmm(a: &SparseTensor<2>, b: Tensor<2>, grad: Tensor<2>) -> (SparseTensor<2>, Tensor<2>) {
    (sddmm_op::sddmm(a.pattern(), grad.clone(), b), spmm_op::sparse_mm(&a.t(), grad))
}

/// The gradients of [`sddmm`](crate::sddmm): from that of the values, `grad`, those of `x` and `y`.
///
/// `dX = S y` and `dY = S^T x` with S = `grad`: both differentiable in `x`, `y` and `grad`.
///
/// # Panics
/// If the shapes of `grad` (m x n), `x` (m x k) and `y` (n x k), dtypes or devices do not fit.
#[track_caller]
pub fn sddmm(grad: &SparseTensor<2>, x: Tensor<2>, y: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    (spmm_op::sparse_mm(grad, y), spmm_op::sparse_mm(&grad.t(), x))
}

/// The gradients of [`segment_mm`](crate::segment_mm) and of [`gather_mm`](crate::gather_mm): from that of the product, `grad`,
/// those of `x` and `weight`.
///
/// `dX_i = grad_i W_s^T` and `dW_s = sum of x_i^T grad_i`: both differentiable in `x`, `weight` and `grad`.
///
/// # Panics
/// If the shapes of `x` (rows x k), `weight` (segments x k x m), `grad` (rows x m) and the segments, dtypes or devices do not fit.
///
/// ```
/// use sparsegrad::{prelude::*, vjp};
///
/// // f(w) = |x w|^2 / 2 has the gradient x^T x w and the Hessian x^T x: here 9 in the one segment that has a row.
/// let device = Device::flex().autodiff();
/// let x = Tensor::<2>::from_data([[3.0]], &device);
/// let weight = Tensor::<3>::from_data([[[1.0]], [[1.0]]], &device).require_grad();
/// let segments = Segments::from_ids([1], 2)?;
/// let (_, gradient) = vjp::segment_mm(x.clone(), weight.clone(), &segments, segment_mm(x, weight.clone(), &segments));
/// let hessian = weight.grad(&gradient.sum().backward()).unwrap();
/// assert_eq!(hessian.to_data().try_to_vec::<f32>().unwrap(), [0.0, 9.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_mm(x: Tensor<2>, weight: Tensor<3>, segments: &Segments, grad: Tensor<2>) -> (Tensor<2>, Tensor<3>) {
    let of_x = product_op::segment_mm(grad.clone(), weight.swap_dims(1, 2), segments);
    (of_x, product_op::segment_outer(x, grad, segments))
}

/// The gradients of [`segment_outer`](crate::segment_outer): from that of the sums, `grad`, those of `x` and `y`.
///
/// `dX_i = y_i grad_s^T` and `dY_i = x_i grad_s`: both differentiable in `x`, `y` and `grad`.
///
/// # Panics
/// If the shapes of `x` (rows x k), `y` (rows x m), `grad` (segments x k x m) and the segments, dtypes or devices do not fit.
#[track_caller]
pub fn segment_outer(x: Tensor<2>, y: Tensor<2>, segments: &Segments, grad: Tensor<3>) -> (Tensor<2>, Tensor<2>) {
    let of_x = product_op::segment_mm(y, grad.clone().swap_dims(1, 2), segments);
    (of_x, product_op::segment_mm(x, grad, segments))
}

/// The gradients of [`spgemm`](crate::spgemm): from that of the product, `grad`, at the product's pattern, those of `a` and `b`.
///
/// `dA_e = <grad_i., B_k.>` at `a`'s pattern, and `dB_e = <A_.k, grad_.j>` at `b`'s: both differentiable in `a`, `b` and `grad`.
///
/// # Panics
/// If `grad` has another pattern than `spgemm(a, b)`, or shapes, dtypes or devices do not fit.
///
/// ```
/// use sparsegrad::{prelude::*, vjp};
///
/// let a = SparseTensor::eye(2, &Device::flex())?.map_values(|v| v * 3);
/// let c = spgemm(&a, &a);
/// let (left, right) = vjp::spgemm(&a, &a, &c);
/// assert_eq!(left.get(0, 0)?, Some(27.0));
/// assert_eq!(right.get(1, 1)?, Some(27.0));
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn spgemm(a: &SparseTensor<2>, b: &SparseTensor<2>, grad: &SparseTensor<2>) -> (SparseTensor<2>, SparseTensor<2>) {
    expect(spgemm_op::gradients(a, b, grad))
}

/// The gradients of [`sparse_triangular_solve`](crate::sparse_triangular_solve): from the solution `x` and its gradient, `grad`,
/// those of `a` and of the right-hand side.
///
/// `dB = op(A)^-T grad`, and `dA_e = -<dB_i, x_j>` at the entries that are read, 0 at others: both differentiable in `a`, `x`
/// and `grad`. For a second derivative of a solve, `x` is to be the solution itself, not a copy that is cut off from its graph.
///
/// # Errors
/// As the solve.
///
/// ```
/// use sparsegrad::{Triangular, prelude::*, sparse_triangular_solve, vjp};
///
/// // f(v) = sum of 1 / v_i has the gradient -1 / v^2 and the Hessian diag(2 / v^3).
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 1], &[0, 1], &[2.0f32, 4.0], [2, 2], &device)?.require_grad();
/// let ones = Tensor::<2>::ones([2, 1], &device);
/// let x = sparse_triangular_solve(&a, ones.clone(), Triangular::lower())?;
/// let (gradient, _) = vjp::sparse_triangular_solve(&a, x, ones, Triangular::lower())?;
/// assert_eq!(gradient.values().to_data().try_to_vec::<f32>().unwrap(), [-0.25, -0.0625]);
/// let hessian = a.grad(&gradient.values().clone().sum().backward()).unwrap();
/// assert_eq!(hessian.values().to_data().try_to_vec::<f32>().unwrap(), [0.25, 0.03125]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sparse_triangular_solve(
    a: &SparseTensor<2>,
    x: Tensor<2>,
    grad: Tensor<2>,
    options: Triangular,
) -> Result<(SparseTensor<2>, Tensor<2>), TriangularError> {
    trisolve::gradients(a, x, grad, options)
}

/// The gradient of [`segment_sum`](crate::segment_sum): from that of the sums, `grad`, that of the rows, which is the
/// [`segment_expand`](crate::segment_expand) of it. Differentiable in `grad`.
///
/// # Panics
/// If `grad` has not one row for each segment, or the device lacks the dtype or is too small.
#[track_caller]
pub fn segment_sum<const D: usize>(grad: Tensor<D>, segments: &Segments) -> Tensor<D> {
    segment_op::segment_expand(grad, segments)
}

/// The gradient of [`segment_mean`](crate::segment_mean): from that of the means, `grad`, that of the rows, each divided by the
/// length of its segment. Differentiable in `grad`.
///
/// # Panics
/// If `grad` has not one row for each segment, or the device lacks the dtype or is too small.
///
/// ```
/// use sparsegrad::{prelude::*, vjp};
///
/// let grad = Tensor::<1>::from_data([1.0f32, 10.0, 100.0], &Device::flex());
/// let of_rows = vjp::segment_mean(grad, &Segments::from_lengths([1, 0, 2])?);
/// assert_eq!(of_rows.to_data().try_to_vec::<f32>().unwrap(), [1.0, 50.0, 50.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_mean<const D: usize>(grad: Tensor<D>, segments: &Segments) -> Tensor<D> {
    expect(segment_op::mean_gradient(grad, segments))
}

/// The gradients of [`edge_dot`](crate::edge_dot): from that of the products, `grad` (nnz x heads), those of `x` and `y`.
///
/// `dx_i = sum of grad_e y_j` and `dy_j = sum of grad_e x_i` for each head: both differentiable in `x`, `y` and `grad`.
///
/// # Panics
/// If shapes, dtypes or devices do not fit.
#[track_caller]
pub fn edge_dot(pattern: &Pattern, x: Tensor<3>, y: Tensor<3>, grad: Tensor<2>) -> (Tensor<3>, Tensor<3>) {
    (edge_op::edge_mm(pattern, grad.clone(), y), edge_op::edge_mm(&pattern.t(), grad, x))
}

/// The gradients of [`edge_mm`](crate::edge_mm): from that of the sums, `grad` (m x heads x d), those of `weights` and `y`.
///
/// `dw_e = <grad_i, y_j>` and `dy_j = sum of w_e grad_i` for each head: both differentiable in `weights`, `y` and `grad`.
///
/// # Panics
/// If shapes, dtypes or devices do not fit.
#[track_caller]
pub fn edge_mm(pattern: &Pattern, weights: Tensor<2>, y: Tensor<3>, grad: Tensor<3>) -> (Tensor<2>, Tensor<3>) {
    (edge_op::edge_dot(pattern, grad.clone(), y), edge_op::edge_mm(&pattern.t(), weights, grad))
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident $(, $norm:ident)?: $of:expr;)*) => {
        $($(#[$doc])*
        ///
        /// Duplicates are summed before the reduction, and each gets the gradient of its sum.
        ///
        /// # Panics
        /// If `grad` has not the shape of the reduction's result, dtypes or devices differ, or the device lacks the dtype.
        #[track_caller]
        pub fn $name<const D: usize>(
            a: &SparseTensor<D>,
            per: Per,
            $($norm: Norm,)?
            grad: <SparseTensor<D> as Reduce>::Output,
        ) -> SparseTensor<D>
        where
            SparseTensor<D>: Reduce,
        {
            expect(reduce::gradient(concat!("vjp::", stringify!($name)), a, per, grad, $of))
        })*
    };
}
reductions! {
    /// The gradient of [`SparseTensor::max`] from that of its result: at the entries that are chosen, `grad`. Differentiable in
    /// `grad`; the derivative by `a` is 0.
    max: |n| Reduction::Max { positions: Some(n) };
    /// The gradient of [`SparseTensor::max_stored`], as [`max`].
    max_stored: |_| Reduction::Max { positions: None };
    /// The gradient of [`SparseTensor::min`], as [`max`].
    min: |n| Reduction::Min { positions: Some(n) };
    /// The gradient of [`SparseTensor::min_stored`], as [`max`].
    min_stored: |_| Reduction::Min { positions: None };
    /// The gradient of [`SparseTensor::norm`] from that of its result, `grad`: of the Euclidean length f, `x_e / f` times it.
    /// Differentiable in `grad` and `a`, at 0 with derivative 0 (the others have none by `a`: it is 0).
    ///
    /// ```
    /// use sparsegrad::{prelude::*, vjp};
    ///
    /// // The Hessian of the length of (3, 4), times (1, 0): what is across, over 5.
    /// let device = Device::flex().autodiff();
    /// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[3.0f64, 4.0], [1, 2], &device)?.require_grad();
    /// let ones = Tensor::<1>::from_data([1.0f64], (&device, DType::F64));
    /// let gradient = vjp::norm(&a, Per::Row, Norm::L2, ones);
    /// let grads = gradient.values().clone().slice([0..1]).sum().backward();
    /// let hessian = a.grad(&grads).unwrap().values().to_data().try_to_vec::<f64>().unwrap();
    /// assert!((hessian[0] - 0.128).abs() < 1e-15 && (hessian[1] + 0.096).abs() < 1e-15);
    /// # Ok::<(), TensorError>(())
    /// ```
    norm, norm: |_| Reduction::Norm(norm);
    /// The gradient of [`SparseTensor::logsumexp`] from that of its result, `grad`: `exp(x_e - result)` times it. Differentiable in
    /// `grad` and `a`.
    ///
    /// ```
    /// use sparsegrad::{prelude::*, vjp};
    ///
    /// let device = Device::flex().autodiff();
    /// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[1.0f64, 1.0], [1, 2], &device)?.require_grad();
    /// let ones = Tensor::<1>::from_data([1.0f64], (&device, DType::F64));
    /// let gradient = vjp::logsumexp(&a, Per::Row, ones); // the weights, 1/2 and 1/2
    /// let grads = gradient.values().clone().slice([0..1]).sum().backward();
    /// let hessian = a.grad(&grads).unwrap().values().to_data().try_to_vec::<f64>().unwrap();
    /// assert!((hessian[0] - 0.25).abs() < 1e-15 && (hessian[1] + 0.25).abs() < 1e-15);
    /// # Ok::<(), TensorError>(())
    /// ```
    logsumexp: |n| Reduction::LogSumExp { positions: Some(n) };
    /// The gradient of [`SparseTensor::logsumexp_stored`], as [`logsumexp`].
    logsumexp_stored: |_| Reduction::LogSumExp { positions: None };
}

macro_rules! softmaxes {
    ($($(#[$doc:meta])* $name:ident: $per:expr, $log:expr;)*) => {
        $($(#[$doc])*
        ///
        /// Differentiable in `grad` and `a`.
        ///
        /// # Panics
        /// If `grad` has another pattern than `a`, dtypes or devices differ, or the device lacks the dtype.
        #[track_caller]
        pub fn $name<const D: usize>(a: &SparseTensor<D>, grad: &SparseTensor<D>) -> SparseTensor<D> {
            let name = concat!("vjp::", stringify!($name));
            expect(reduce::softmax_gradient(name, a, grad, $per, Softmax { log: $log }))
        })*
    };
}
softmaxes! {
    /// The gradient of [`SparseTensor::row_softmax`] from that of its result: `w_e (grad_e - sum of w grad over the row)` with
    /// the weights w.
    row_softmax: Per::Row, false;
    /// The gradient of [`SparseTensor::column_softmax`], as [`row_softmax`].
    column_softmax: Per::Column, false;
    /// The gradient of [`SparseTensor::row_log_softmax`] from that of its result: `grad_e - w_e (sum of grad over the row)` with
    /// the weights w of the softmax.
    row_log_softmax: Per::Row, true;
    /// The gradient of [`SparseTensor::column_log_softmax`], as [`row_log_softmax`].
    column_log_softmax: Per::Column, true;
}

/// The primitive under [`backward`](backward()), on backend tensors.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SeedOps: Backend {
    /// One zero, whose derivative with respect to `output` is `gradient`.
    #[fusion(dtype = output, shape = Shape::from([1]))]
    fn seed_gradient(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// A backward pass from a given gradient of `output`: what `(output * gradient).sum().backward()` gives, without computing
/// the sum.
///
/// `gradient` is taken as a constant.
///
/// # Panics
/// If shapes, dtypes or devices differ, or `output` is not tracked.
///
/// ```
/// use sparsegrad::{prelude::*, vjp};
///
/// let device = Device::flex().autodiff();
/// let x = Tensor::<1>::from_data([1.0, 2.0], &device).require_grad();
/// let grads = vjp::backward(&(x.clone() * 3.0), Tensor::from_data([10.0, 100.0], &device));
/// assert_eq!(x.grad(&grads).unwrap().to_data().try_to_vec::<f32>().unwrap(), [30.0, 300.0]);
/// ```
#[track_caller]
pub fn backward<const D: usize>(output: &Tensor<D>, gradient: Tensor<D>) -> Gradients {
    let check = Check { op: "backward" };
    let (left, right) = (Operand::from(output), Operand::from(&gradient));
    let fits = output.dims() == gradient.dims();
    expect(check.shapes(fits, "output and gradient must agree", &left, &right));
    expect(check.compatible(&left, &right));
    let seed = <Dispatch as SeedOps>::seed_gradient(output.clone().into_dispatch(), gradient.into_dispatch());
    Tensor::<1>::from_dispatch(seed).backward()
}

fn zero<B: Backend>(like: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_zeros(Shape::from([1]), &like.device(), like.dtype().into())
}

#[cfg(feature = "flex")]
impl SeedOps for burn::backend::Flex {
    fn seed_gradient(output: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        zero::<Self>(&output)
    }
}

#[cfg(feature = "cube")]
impl SeedOps for burn_cubecl::CubeBackend {
    fn seed_gradient(output: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        zero::<Self>(&output)
    }
}

impl<B: SparseOps, C: CheckpointStrategy> SeedOps for Autodiff<B, C> {
    fn seed_gradient(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::<B, C, _>(
            gradient.into_primitive(),
            output,
            |gradient, output| B::seed_gradient(output, gradient),
            |gradient, _one| gradient,
        )
    }
}
