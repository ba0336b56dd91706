//! **sddmm**: dense times dense, sampled at a sparse pattern (sampled dense-dense matrix multiplication).
//!
//! | | |
//! |---|---|
//! | computes | `v_e = <X_i, Y_j>` for each stored entry e at (i, j); with [`sddmm_with`], `beta c_e + alpha <X_i, Y_j>` |
//! | shapes | pattern m x n; X is m x k, Y is n x k (the rows of Y are the columns of the product); `nnz` values; k = 0 gives zeros |
//! | formats | every format, read through its row-ordered view; duplicates each get the full product |
//! | dtypes | f32, f64; f16 and bf16 stored, accumulated in f32 and rounded once |
//! | gradient | `dX = S Y` and `dY = S^T X`, where S is the pattern with the values' gradient ([spmm](super::spmm)); of c: `beta dv` |
//! | reproducible | same bits over repeats and numbers of threads: each value has one owner |

mod backward;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use crate::backend::check::{Check, Operand, device_can, device_name, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use crate::tensor::{SparseTensor, reshape};
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The primitive, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SddmmOps: Backend {
    /// `<X_i, Y_j>` at each stored entry: X `[m, k]`, Y `[n, k]`, result `[nnz]`.
    #[fusion(dtype = x, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn sddmm(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// Where products can be sampled, and what comes out: a pattern, or the pattern of a sparse tensor.
pub trait SampledProduct<X, Y> {
    /// The sampled products.
    type Output;

    /// The sampled products, or why the operands do not fit.
    ///
    /// # Errors
    /// If the shapes do not match, or dtypes or devices differ.
    fn try_sddmm(&self, x: X, y: Y) -> Result<Self::Output, OpError>;
}

const CHECK: Check = Check { op: "sddmm" };

/// What every pair of operands is checked for: `items` of X and Y, if any, then rows and columns against a pattern's shape.
fn check<const A: usize, const B: usize>(shape: [usize; 2], x: &Tensor<A>, y: &Tensor<B>) -> Result<(), OpError> {
    let (left, right) = (Operand::from(x), Operand::from(y));
    let ([m, k], [n, l]) = (matrix(x.dims()), matrix(y.dims()));
    let at = left.with_shape(&shape);
    let what = "columns of X and columns of Y must agree";
    CHECK.shapes(k == l, what, &left, &right)?;
    let what = "rows of the pattern and rows of X must agree";
    CHECK.shapes(m == shape[0], what, &at, &left)?;
    let what = "columns of the pattern and rows of Y must agree";
    CHECK.shapes(n == shape[1], what, &at, &right)?;
    CHECK.compatible(&left, &right)
}

fn matrix<const D: usize>(dims: [usize; D]) -> [usize; 2] {
    [dims[D - 2], dims[D - 1]]
}

/// The primitive at a pattern, on operands that fit.
fn sample(pattern: &Pattern, x: Tensor<2>, y: Tensor<2>) -> Result<Tensor<1>, OpError> {
    device_can(CHECK.op, &x, pattern, &[("X", x.dims()), ("Y", y.dims())])?;
    Ok(Tensor::from_dispatch(<Dispatch as SddmmOps>::sddmm(pattern.clone(), x.into_dispatch(), y.into_dispatch())))
}

impl SampledProduct<Tensor<2>, Tensor<2>> for Pattern {
    type Output = SparseTensor<2>;

    fn try_sddmm(&self, x: Tensor<2>, y: Tensor<2>) -> Result<SparseTensor<2>, OpError> {
        check(self.shape(), &x, &y)?;
        let values = sample(self, x, y)?;
        Ok(SparseTensor::from_checked(self.clone(), values))
    }
}

/// One pattern for all items.
impl SampledProduct<Tensor<3>, Tensor<3>> for Pattern {
    type Output = SparseTensor<3>;

    fn try_sddmm(&self, x: Tensor<3>, y: Tensor<3>) -> Result<SparseTensor<3>, OpError> {
        let [items, ..] = x.dims();
        let [m, n] = self.shape();
        let repeated = self.repeat(items).map_err(|_| OpError::TooLarge {
            op: CHECK.op,
            what: "rows or columns of all items",
            size: items as u128 * m.max(n) as u128,
            limit: i64::MAX as u128,
            device: device_name(&x.device()),
        })?;
        sample_batch(&repeated, [items, m, n], x, y)
    }
}

/// Item by item, in one product of the block-diagonal matrix.
fn sample_batch(
    block_diagonal: &Pattern,
    shape: [usize; 3],
    x: Tensor<3>,
    y: Tensor<3>,
) -> Result<SparseTensor<3>, OpError> {
    let [items, m, n] = shape;
    let (left, right) = (Operand::from(&x), Operand::from(&y));
    let fits = [x.dims()[0], y.dims()[0]] == [items; 2];
    CHECK.shapes(fits, "all must have as many items", &left, &right)?;
    check([m, n], &x, &y)?;
    let k = x.dims()[2];
    let (x, y) = (reshape(x, [items * m, k]), reshape(y, [items * n, k]));
    let values = sample(block_diagonal, x, y)?;
    Ok(SparseTensor::from_blocks(shape, block_diagonal.clone(), values))
}

impl SampledProduct<Tensor<3>, Tensor<3>> for SparseTensor<3> {
    type Output = Self;

    fn try_sddmm(&self, x: Tensor<3>, y: Tensor<3>) -> Result<Self, OpError> {
        sample_batch(self.pattern(), self.shape(), x, y)
    }
}

/// One Y for all items, which lie below each other.
impl SampledProduct<Tensor<3>, Tensor<2>> for SparseTensor<3> {
    type Output = Self;

    fn try_sddmm(&self, x: Tensor<3>, y: Tensor<2>) -> Result<Self, OpError> {
        let [items, m, n] = self.shape();
        let at = Operand::from(&x).with_shape(&self.shape());
        let fits = x.dims()[0] == items;
        CHECK.shapes(fits, "all must have as many items", &at, &Operand::from(&x))?;
        check([m, n], &x, &y)?;
        let k = x.dims()[2];
        let stacked = self.pattern().stacked(items);
        let values = sample(&stacked, reshape(x, [items * m, k]), y)?;
        Ok(self.rebuilt(self.pattern().clone(), values))
    }
}

/// One X for all items: the same of the transposed.
impl SampledProduct<Tensor<2>, Tensor<3>> for SparseTensor<3> {
    type Output = Self;

    fn try_sddmm(&self, x: Tensor<2>, y: Tensor<3>) -> Result<Self, OpError> {
        Ok(self.t().try_sddmm(y, x)?.t())
    }
}

impl<X, Y> SampledProduct<X, Y> for SparseTensor<2>
where
    Pattern: SampledProduct<X, Y>,
{
    type Output = <Pattern as SampledProduct<X, Y>>::Output;

    fn try_sddmm(&self, x: X, y: Y) -> Result<Self::Output, OpError> {
        self.pattern().try_sddmm(x, y)
    }
}

/// The products of rows of `x` and rows of `y` at stored entries: those of a pattern, or of a sparse tensor, whose values are
/// not read.
///
/// # Shapes
/// | at | `x` | `y` | result |
/// |---|---|---|---|
/// | m x n | m x k | n x k | m x n |
/// | pattern m x n, for all items | items x m x k | items x n x k | items x m x n |
/// | items x m x n | items x m x k, or m x k for all | items x n x k, or n x k for all | items x m x n |
///
/// Entry (i, j) gets the dot product of row i of `x` and row j of `y`. Both may be any view; for a second factor given as k x n
/// pass its `transpose()`.
///
/// # Gradient
/// Of `x` and `y`: dense, `S y` and `S^T x`, where S holds the gradient of the result.
///
/// # Panics
/// Where [`try_sddmm`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex();
/// let pattern = Pattern::csr([0, 2, 2, 4], [0, 3, 1, 2], [3, 4])?;
/// let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device);
/// let y = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]], &device);
/// let s = sddmm(&pattern, x, y);
/// assert_eq!(s.values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 0.0, 6.0, 11.0]);
/// # Ok::<(), PatternError>(())
/// ```
#[track_caller]
pub fn sddmm<A: SampledProduct<X, Y>, X, Y>(at: &A, x: X, y: Y) -> A::Output {
    expect(at.try_sddmm(x, y))
}

/// [`sddmm`], with operands that do not fit as an error.
///
/// # Errors
/// If rows of `x` or `y` do not match the pattern, their columns each other, or items, dtypes or devices differ.
pub fn try_sddmm<A: SampledProduct<X, Y>, X, Y>(at: &A, x: X, y: Y) -> Result<A::Output, OpError> {
    at.try_sddmm(x, y)
}

/// `beta C + alpha X Y^T` at the stored entries of `c`.
///
/// With `beta` 0 the values of `c` are not read, so that a NaN among them does not show.
///
/// # Gradient
/// Of `x` and `y` as in [`sddmm`], times `alpha`; of `c`: that of the result, times `beta`.
///
/// # Panics
/// Where [`try_sddmm_with`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex();
/// let c = SparseTensor::eye(5, &device)?;
/// let nothing = || Tensor::<2>::zeros([5, 0], &device);
/// let s = sddmm_with(&c, nothing(), nothing(), 0.6, 0.2);
/// assert_eq!(s.values().to_data().try_to_vec::<f32>().unwrap(), [0.2; 5]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn sddmm_with<const D: usize, X, Y>(c: &SparseTensor<D>, x: X, y: Y, alpha: f64, beta: f64) -> SparseTensor<D>
where
    SparseTensor<D>: SampledProduct<X, Y, Output = SparseTensor<D>>,
{
    expect(try_sddmm_with(c, x, y, alpha, beta))
}

/// [`sddmm_with`], with operands that do not fit as an error.
///
/// # Errors
/// As [`try_sddmm`], and if `c` has another dtype or device.
pub fn try_sddmm_with<const D: usize, X, Y>(
    c: &SparseTensor<D>,
    x: X,
    y: Y,
    alpha: f64,
    beta: f64,
) -> Result<SparseTensor<D>, OpError>
where
    SparseTensor<D>: SampledProduct<X, Y, Output = SparseTensor<D>>,
{
    let scaled = |values: Tensor<1>, factor: f64| match factor {
        1.0 => values,
        _ => values.mul_scalar(factor),
    };
    let products = c.try_sddmm(x, y)?;
    let operand = |tensor: &SparseTensor<D>| Operand::sparse(&tensor.shape(), tensor.values());
    CHECK.compatible(&operand(c), &operand(&products))?;
    let products = products.map_values(|v| scaled(v, alpha));
    if beta == 0.0 {
        return Ok(products);
    }
    Ok(products.map_values(|v| v + scaled(c.values().clone(), beta)))
}

#[cfg(feature = "flex")]
impl SddmmOps for burn::backend::Flex {
    fn sddmm(pattern: Pattern, mut x: FloatTensor<Self>, mut y: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(x.dtype(), E => {
            let (x, y) = (flex::matrix::<E>(&mut x), flex::matrix::<E>(&mut y));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every value, those without an entry too.
                unsafe { flex::filled([pattern.nnz()].into(), |out| cpu::sddmm(rows, x, y, out)) }
            })
        })
    }
}
