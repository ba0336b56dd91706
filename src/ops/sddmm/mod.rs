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

use crate::backend::check::{Check, Operand, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use crate::tensor::SparseTensor;
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The primitive, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SddmmOps: Backend {
    /// `<X_i, Y_j>` at each stored entry: X `[m, k]`, Y `[n, k]`, result `[nnz]`.
    #[fusion(dtype = x, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn sddmm(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// The products of rows of `x` and rows of `y` at the stored entries of a pattern.
///
/// # Shapes
/// The pattern is m x n, `x` is m x k, `y` is n x k: entry (i, j) gets the dot product of row i of `x` and row j of `y`.
/// Both may be any view; for a second factor given as k x n pass its `transpose()`.
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
pub fn sddmm(pattern: &Pattern, x: Tensor<2>, y: Tensor<2>) -> SparseTensor<2> {
    expect(try_sddmm(pattern, x, y))
}

/// [`sddmm`], with operands that do not fit as an error.
///
/// # Errors
/// If rows of `x` or `y` do not match the pattern, their columns each other, or dtypes or devices differ.
pub fn try_sddmm(
    pattern: &Pattern,
    x: Tensor<2>,
    y: Tensor<2>,
) -> Result<SparseTensor<2>, OpError> {
    let check = Check { op: "sddmm" };
    let (left, right) = (Operand::from(&x), Operand::from(&y));
    let [m, n] = pattern.shape();
    check.shapes(
        x.dims()[1] == y.dims()[1],
        "columns of X and columns of Y must agree",
        &left,
        &right,
    )?;
    let matrix = left.with_shape(&[m, n]);
    check.shapes(
        x.dims()[0] == m,
        "rows of the pattern and rows of X must agree",
        &matrix,
        &left,
    )?;
    check.shapes(
        y.dims()[0] == n,
        "columns of the pattern and rows of Y must agree",
        &matrix,
        &right,
    )?;
    check.compatible(&left, &right)?;
    let values = <Dispatch as SddmmOps>::sddmm(
        pattern.clone(),
        x.into_dispatch(),
        y.into_dispatch(),
    );
    Ok(SparseTensor::from_checked(
        pattern.clone(),
        Tensor::from_dispatch(values),
    ))
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
pub fn sddmm_with(
    c: &SparseTensor<2>,
    x: Tensor<2>,
    y: Tensor<2>,
    alpha: f64,
    beta: f64,
) -> SparseTensor<2> {
    expect(try_sddmm_with(c, x, y, alpha, beta))
}

/// [`sddmm_with`], with operands that do not fit as an error.
///
/// # Errors
/// As [`try_sddmm`], and if `c` has another dtype or device.
pub fn try_sddmm_with(
    c: &SparseTensor<2>,
    x: Tensor<2>,
    y: Tensor<2>,
    alpha: f64,
    beta: f64,
) -> Result<SparseTensor<2>, OpError> {
    let sparse = Operand::sparse(&c.shape(), c.values());
    Check { op: "sddmm" }.compatible(&sparse, &Operand::from(&x))?;
    let scaled = |values: Tensor<1>, factor: f64| match factor {
        1.0 => values,
        _ => values.mul_scalar(factor),
    };
    let products = try_sddmm(c.pattern(), x, y)?.map_values(|v| scaled(v, alpha));
    if beta == 0.0 {
        return Ok(products);
    }
    Ok(products.map_values(|v| v + scaled(c.values().clone(), beta)))
}

#[cfg(feature = "flex")]
impl SddmmOps for burn::backend::Flex {
    fn sddmm(
        pattern: Pattern,
        mut x: FloatTensor<Self>,
        mut y: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        with_float!(x.dtype(), E => {
            let (x, y) = (flex::matrix::<E>(&mut x), flex::matrix::<E>(&mut y));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every value, those without an entry too.
                unsafe { flex::filled([pattern.nnz()].into(), |out| cpu::sddmm(rows, x, y, out)) }
            })
        })
    }
}
