//! **segment reductions**: one row from the rows of each segment of a dense tensor, or from the features of the edges of each row
//! of a pattern; and **segment softmax**, which normalises them. Graph networks call them between products.
//!
//! | reduction f of the rows x of a segment, column by column | its derivative at x_e | an empty segment |
//! |---|---|---|
//! | sum | 1 | 0 |
//! | mean | 1 / length | 0 |
//! | max, min | 1 for the first extreme in the order of the rows, else 0 | 0 |
//! | softmax `w_e = exp(x_e) / sum exp(x)` | `w_e (g_e - sum w g)` | |
//! | log softmax `x_e - log sum exp(x)` | `g_e - w_e sum g` | |
//!
//! | | |
//! |---|---|
//! | shapes | x is N x ..., its first dimension is that of the [`Segments`]; reductions are segments x ..., softmaxes as x |
//! | segments | consecutive, or by index: the rows of a segment need not lie together |
//! | dtypes | f32, f64; f16 and bf16 stored, computed in f32 and rounded once |
//! | empty segments | get 0 from every reduction, max and min included (as in DGL and PyG), and no row has a gradient of them: nothing is NaN. ([`max_stored`](crate::SparseTensor::max_stored) of a sparse matrix is -inf there) |
//! | NaN | a NaN among the elements makes the result NaN, and has the gradient of an extreme |
//! | infinities | a segment of -inf alone has softmax weights 0, and stays -inf under the logarithm, both with gradient 0; one with +inf is NaN |
//! | memory | outputs, and a few numbers a column for each 4096 rows of a long segment |
//! | reproducible | each result has one owner, in the order of the rows; long segments are cut into pieces of a fixed length, merged in order |
//!
//! With one column the kernels are those of [reductions](super::reduce), which share vectors among short rows. [`segment_expand`]
//! is the way back, from segments to rows: the gradient of the sum, and a gather whose own gradient adds up repeats in order.
//!
//! Reference for the shifted exponentials: P. Blanchard, D. Higham, N. Higham, *Accurately computing the log-sum-exp and
//! softmax functions*, 2021.

mod backward;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use super::reduce::{self as reductions, ReduceOps, Reduction, Softmax};
use crate::backend::check::{Check, Operand, device_can, device_has_exp, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use crate::segments::Segments;
use crate::tensor::reshape;
#[cfg(feature = "flex")]
use burn::backend::TensorMetadata;
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{Shape, Tensor};

/// What is made of the rows of a segment, column by column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reducer {
    /// The sum.
    Sum,
    /// The sum divided by the number of rows.
    Mean,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
}

/// The primitives, on backend tensors, at a pattern m x n with `nnz` values: features are `[nnz, k]`, a row for each value.
/// Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SegmentOps: Backend {
    /// The reduction of each row of the pattern, `[m, k]`.
    #[fusion(dtype = features, shape = rows_shape(pattern, features))]
    fn segment_reduce(pattern: Pattern, features: FloatTensor<Self>, reducer: Reducer) -> FloatTensor<Self>;

    /// The gradient of the features from that of their largest or smallest elements, `[m, k]`.
    #[fusion(dtype = features, shape = features_shape(pattern, features))]
    fn segment_extreme_backward(
        pattern: Pattern,
        features: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reducer: Reducer,
    ) -> FloatTensor<Self>;

    /// Features from the rows, `[m, k]`, of the pattern, divided by the number of entries of the row if it's that of a `mean`.
    #[fusion(dtype = rows, shape = features_shape(pattern, rows))]
    fn segment_expand(pattern: Pattern, rows: FloatTensor<Self>, mean: bool) -> FloatTensor<Self>;

    /// The softmax over each row of the pattern.
    #[fusion(dtype = features, shape = features_shape(pattern, features))]
    fn segment_softmax(pattern: Pattern, features: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self>;

    /// The gradient of the features from their softmax and its gradient.
    #[fusion(dtype = result, shape = features_shape(pattern, result))]
    fn segment_softmax_backward(
        pattern: Pattern,
        result: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self>;
}

/// A row for each row of the pattern, as wide as these.
pub(crate) fn rows_shape(pattern: &Pattern, like: &Shape) -> Shape {
    Shape::from([pattern.shape()[0], like[1]])
}

/// A row for each value of the pattern, as wide as these.
pub(crate) fn features_shape(pattern: &Pattern, like: &Shape) -> Shape {
    Shape::from([pattern.nnz(), like[1]])
}

/// The sum of the rows of each segment. See [`segment_reduce`].
///
/// # Panics
/// Where [`try_segment_reduce`] returns an error.
///
/// ```
/// use sparsegrad::{prelude::*, segment_sum};
///
/// let device = Device::flex();
/// let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device);
/// let sums = segment_sum(x, &Segments::from_ids([2, 0, 2], 3)?);
/// assert_eq!(sums.to_data().try_to_vec::<f32>().unwrap(), [3.0, 4.0, 0.0, 0.0, 6.0, 8.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_sum<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    segment_reduce(x, segments, Reducer::Sum)
}

/// The mean of the rows of each segment, 0 of none. See [`segment_reduce`].
///
/// # Panics
/// Where [`try_segment_reduce`] returns an error.
#[track_caller]
pub fn segment_mean<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    segment_reduce(x, segments, Reducer::Mean)
}

/// The largest element of each column of the rows of each segment, 0 of none. See [`segment_reduce`].
///
/// # Panics
/// Where [`try_segment_reduce`] returns an error.
///
/// ```
/// use sparsegrad::{prelude::*, segment_max};
///
/// let x = Tensor::<1>::from_data([-0.1f32, -0.2, -0.3], &Device::flex());
/// let largest = segment_max(x, &Segments::from_ids([0, 1, 0], 3)?);
/// assert_eq!(largest.to_data().try_to_vec::<f32>().unwrap(), [-0.1, -0.2, 0.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_max<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    segment_reduce(x, segments, Reducer::Max)
}

/// The smallest element of each column of the rows of each segment, 0 of none. See [`segment_reduce`].
///
/// # Panics
/// Where [`try_segment_reduce`] returns an error.
#[track_caller]
pub fn segment_min<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    segment_reduce(x, segments, Reducer::Min)
}

/// One row from the rows of each segment of `x`, column by column.
///
/// # Shapes
/// `x` is N x ... with a row for each row of the segments; the result is segments x .... Empty segments get 0.
///
/// # Gradient
/// Of `x`: that of the row's segment, divided by its length for a mean; for extremes to the first row that has the element, 0 to
/// the others. The gradient of an empty segment goes nowhere.
///
/// # Panics
/// Where [`try_segment_reduce`] returns an error.
///
/// ```
/// use sparsegrad::{Reducer, prelude::*, segment_reduce};
///
/// let device = Device::flex().autodiff();
/// let x = Tensor::<2>::from_data([[1.0, 6.0], [3.0, 4.0], [3.0, 2.0]], &device).require_grad();
/// let segments = Segments::from_lengths([1, 0, 2])?;
/// let means = segment_reduce(x.clone(), &segments, Reducer::Mean);
/// assert_eq!(means.to_data().try_to_vec::<f32>().unwrap(), [1.0, 6.0, 0.0, 0.0, 3.0, 3.0]);
///
/// let grads = segment_reduce(x.clone(), &segments, Reducer::Max).sum().backward();
/// let dx = x.grad(&grads).unwrap();
/// assert_eq!(dx.to_data().try_to_vec::<f32>().unwrap(), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_reduce<const D: usize>(x: Tensor<D>, segments: &Segments, reducer: Reducer) -> Tensor<D> {
    expect(try_segment_reduce(x, segments, reducer))
}

/// [`segment_reduce`], with operands that do not fit as an error.
///
/// # Errors
/// If `x` has not one row for each row of the segments, or the device lacks the dtype or is too small.
pub fn try_segment_reduce<const D: usize>(
    x: Tensor<D>,
    segments: &Segments,
    reducer: Reducer,
) -> Result<Tensor<D>, OpError> {
    let mut shape = x.dims();
    let x = features("segment_reduce", x, segments.rows())?;
    shape[0] = segments.len();
    Ok(reshape(reduce("segment_reduce", &segments.entries(), x, reducer)?, shape))
}

/// The softmax of each column over the rows of each segment.
///
/// # Shapes
/// `x` is N x ... with a row for each row of the segments; so is the result.
///
/// # Gradient
/// `w_e (g_e - sum of w g over the segment)`, from the weights w, which are kept. 0 in segments of -inf alone.
///
/// # Panics
/// Where [`try_segment_softmax`] returns an error.
///
/// ```
/// use sparsegrad::{prelude::*, segment_softmax};
///
/// let scores = Tensor::<1>::from_data([1000.0f32, -4.0, 1000.0], &Device::flex());
/// let weights = segment_softmax(scores, &Segments::from_ids([2, 0, 2], 3)?);
/// assert_eq!(weights.to_data().try_to_vec::<f32>().unwrap(), [0.5, 1.0, 0.5]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_softmax<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    expect(try_segment_softmax(x, segments))
}

/// [`segment_softmax`], with operands that do not fit as an error.
///
/// # Errors
/// If `x` has not one row for each row of the segments, or the device lacks the dtype, exponentials of it, or is too small.
pub fn try_segment_softmax<const D: usize>(x: Tensor<D>, segments: &Segments) -> Result<Tensor<D>, OpError> {
    normalise("segment_softmax", x, segments, Softmax { log: false })
}

/// The logarithm of [`segment_softmax`], without the rounding of a softmax near 0.
///
/// # Gradient
/// `g_e - w_e (sum of g over the segment)` with the weights w of the softmax. 0 in segments of -inf alone.
///
/// # Panics
/// Where [`try_segment_log_softmax`] returns an error.
///
/// ```
/// use sparsegrad::{prelude::*, segment_log_softmax};
///
/// let scores = Tensor::<1>::from_data([0.0f32, 7.0, 1000.0], &Device::flex());
/// let logs = segment_log_softmax(scores, &Segments::from_lengths([1, 2])?);
/// assert_eq!(logs.to_data().try_to_vec::<f32>().unwrap(), [0.0, -993.0, 0.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_log_softmax<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    expect(try_segment_log_softmax(x, segments))
}

/// [`segment_log_softmax`], with operands that do not fit as an error.
///
/// # Errors
/// As [`try_segment_softmax`].
pub fn try_segment_log_softmax<const D: usize>(x: Tensor<D>, segments: &Segments) -> Result<Tensor<D>, OpError> {
    normalise("segment_log_softmax", x, segments, Softmax { log: true })
}

/// The row of its segment for each row: `x_s` at row `i` of segment `s`, from a graph to its nodes.
///
/// # Shapes
/// `x` is segments x ...; the result is N x ... with a row for each row of the segments.
///
/// # Gradient
/// Of `x`: the [`segment_sum`] of that of the result.
///
/// # Panics
/// Where [`try_segment_expand`] returns an error.
///
/// ```
/// use sparsegrad::{prelude::*, segment_expand};
///
/// let of_graphs = Tensor::<1>::from_data([10.0f32, 20.0, 30.0], &Device::flex());
/// let of_nodes = segment_expand(of_graphs, &Segments::from_ids([2, 0, 2], 3)?);
/// assert_eq!(of_nodes.to_data().try_to_vec::<f32>().unwrap(), [30.0, 10.0, 30.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_expand<const D: usize>(x: Tensor<D>, segments: &Segments) -> Tensor<D> {
    expect(try_segment_expand(x, segments))
}

/// [`segment_expand`], with operands that do not fit as an error.
///
/// # Errors
/// If `x` has not one row for each segment, or the device lacks the dtype or is too small.
pub fn try_segment_expand<const D: usize>(x: Tensor<D>, segments: &Segments) -> Result<Tensor<D>, OpError> {
    let mut shape = x.dims();
    let x = features("segment_expand", x, segments.len())?;
    shape[0] = segments.rows();
    Ok(reshape(expand("segment_expand", &segments.entries(), x, false)?, shape))
}

/// What the mean's gradient is: each row of segments, divided by the length of its segment, at the rows of `segments`.
pub(crate) fn mean_gradient<const D: usize>(x: Tensor<D>, segments: &Segments) -> Result<Tensor<D>, OpError> {
    let mut shape = x.dims();
    let x = features("segment_mean", x, segments.len())?;
    shape[0] = segments.rows();
    Ok(reshape(expand("segment_mean", &segments.entries(), x, true)?, shape))
}

fn normalise<const D: usize>(
    op: &'static str,
    x: Tensor<D>,
    segments: &Segments,
    how: Softmax,
) -> Result<Tensor<D>, OpError> {
    let shape = x.dims();
    let x = features(op, x, segments.rows())?;
    Ok(reshape(softmax(op, &segments.entries(), x, how)?, shape))
}

impl Segments {
    /// A pattern of segments x rows, whose values are those of the rows, in their order.
    pub(crate) fn entries(&self) -> Pattern {
        if self.is_sorted() { self.pattern().clone() } else { self.pattern().in_column_order(self.ids()) }
    }
}

/// A tensor of so many rows as a matrix.
fn features<const D: usize>(op: &'static str, x: Tensor<D>, rows: usize) -> Result<Tensor<2>, OpError> {
    let operand = Operand::from(&x);
    let mut wanted = x.dims();
    wanted[0] = rows;
    let what = "there must be a row for each row (each segment) of the segments";
    Check { op }.shapes(x.dims()[0] == rows, what, &operand.with_shape(&wanted), &operand)?;
    let columns = wanted[1..].iter().product();
    Ok(if D == 2 { Tensor::from_dispatch(x.into_dispatch()) } else { reshape(x, [rows, columns]) })
}

/// Whether the features of entries, and the results of rows, fit the device.
fn check(op: &'static str, pattern: &Pattern, x: &Tensor<2>) -> Result<(), OpError> {
    let columns = x.dims()[1];
    Check { op }.dtype(&Operand::from(x))?;
    let named = [("the rows of entries", [pattern.nnz(), columns]), ("the results", [pattern.shape()[0], columns])];
    device_can(op, x, pattern, &named)
}

/// One column as a vector, if there is one.
fn as_vector(x: &Tensor<2>) -> Option<Tensor<1>> {
    let [rows, columns] = x.dims();
    (columns == 1).then(|| reshape(x.clone(), [rows]))
}

fn as_column(x: Tensor<1>) -> Tensor<2> {
    let [rows] = x.dims();
    reshape(x, [rows, 1])
}

/// The reduction of the features of the entries of each row: `[nnz, k]` to `[m, k]`.
pub(crate) fn reduce(
    op: &'static str,
    pattern: &Pattern,
    x: Tensor<2>,
    reducer: Reducer,
) -> Result<Tensor<2>, OpError> {
    check(op, pattern, &x)?;
    let pattern = pattern.clone();
    let of_vector = match reducer {
        Reducer::Sum => Some(Reduction::Sum),
        Reducer::Mean => Some(Reduction::Mean { positions: None }),
        // Those of reductions are infinite where there is nothing.
        Reducer::Max | Reducer::Min => None,
    };
    if let (Some(reduction), Some(x)) = (of_vector, as_vector(&x)) {
        let rows = <Dispatch as ReduceOps>::row_reduce(pattern, x.into_dispatch(), reduction);
        return Ok(as_column(Tensor::from_dispatch(rows)));
    }
    Ok(Tensor::from_dispatch(<Dispatch as SegmentOps>::segment_reduce(pattern, x.into_dispatch(), reducer)))
}

/// The row of each entry: `[m, k]` to `[nnz, k]`; divided by the number of entries of the row for the gradient of a `mean`.
pub(crate) fn expand(op: &'static str, pattern: &Pattern, x: Tensor<2>, mean: bool) -> Result<Tensor<2>, OpError> {
    check(op, pattern, &x)?;
    if let (false, Some(x)) = (mean, as_vector(&x)) {
        return Ok(as_column(reductions::expand(pattern, x)));
    }
    Ok(Tensor::from_dispatch(<Dispatch as SegmentOps>::segment_expand(pattern.clone(), x.into_dispatch(), mean)))
}

/// The softmax of the features of the entries of each row.
pub(crate) fn softmax(op: &'static str, pattern: &Pattern, x: Tensor<2>, how: Softmax) -> Result<Tensor<2>, OpError> {
    check(op, pattern, &x)?;
    device_has_exp(op, &x)?;
    let pattern = pattern.clone();
    if let Some(x) = as_vector(&x) {
        let entries = <Dispatch as ReduceOps>::row_softmax(pattern, x.into_dispatch(), how);
        return Ok(as_column(Tensor::from_dispatch(entries)));
    }
    Ok(Tensor::from_dispatch(<Dispatch as SegmentOps>::segment_softmax(pattern, x.into_dispatch(), how)))
}

#[cfg(feature = "flex")]
impl SegmentOps for burn::backend::Flex {
    fn segment_reduce(pattern: Pattern, mut features: FloatTensor<Self>, reducer: Reducer) -> FloatTensor<Self> {
        let shape = rows_shape(&pattern, &features.shape());
        with_float!(features.dtype(), E => {
            let features = flex::matrix::<E>(&mut features);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every row, those of empty segments too.
                unsafe { flex::filled(shape, |out| cpu::reduce(rows, features, reducer, out)) }
            })
        })
    }

    fn segment_extreme_backward(
        pattern: Pattern,
        mut features: FloatTensor<Self>,
        mut grad: FloatTensor<Self>,
        reducer: Reducer,
    ) -> FloatTensor<Self> {
        let shape = features_shape(&pattern, &features.shape());
        with_float!(features.dtype(), E => {
            let (features, grad) = (flex::matrix::<E>(&mut features), flex::matrix::<E>(&mut grad));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every element.
                unsafe { flex::filled(shape, |out| cpu::extreme_backward(rows, features, grad, reducer, out)) }
            })
        })
    }

    fn segment_expand(pattern: Pattern, mut rows: FloatTensor<Self>, mean: bool) -> FloatTensor<Self> {
        let shape = features_shape(&pattern, &rows.shape());
        with_float!(rows.dtype(), E => {
            let of_rows = flex::matrix::<E>(&mut rows);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every element.
                unsafe { flex::filled(shape, |out| cpu::expand(rows, of_rows, mean, out)) }
            })
        })
    }

    fn segment_softmax(pattern: Pattern, mut features: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        let shape = features_shape(&pattern, &features.shape());
        with_float!(features.dtype(), E => {
            let features = flex::matrix::<E>(&mut features);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every element.
                unsafe { flex::filled(shape, |out| cpu::softmax(rows, features, softmax, out)) }
            })
        })
    }

    fn segment_softmax_backward(
        pattern: Pattern,
        mut result: FloatTensor<Self>,
        mut grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self> {
        let shape = features_shape(&pattern, &result.shape());
        with_float!(result.dtype(), E => {
            let (result, grad) = (flex::matrix::<E>(&mut result), flex::matrix::<E>(&mut grad));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every element.
                unsafe { flex::filled(shape, |out| cpu::softmax_backward(rows, result, grad, softmax, out)) }
            })
        })
    }
}
