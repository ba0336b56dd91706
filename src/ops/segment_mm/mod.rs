//! **segment_mm**, **gather_mm**: each row times the matrix of its segment, `Y_i = X_i W_s(i) + b_s(i)`; and the sums of outer
//! products `sum of X_i^T Y_i` over the rows of each segment, the gradient of the matrices.
//!
//! The linear layers of typed graphs and of mixtures of experts: a weight for each type, and many rows of each.
//!
//! | | |
//! |---|---|
//! | segments | [`Segments`]: consecutive, by lengths or offsets; or by an index for each row, in any order. Both names compute the same |
//! | shapes | X is rows x k, W is segments x k x m, b is segments x m; Y is rows x m. Sums of outer products: segments x k x m |
//! | layouts | every dense layout: sliced, transposed, broadcast. Rows that are contiguous, and any weight, are read where they lie |
//! | dtypes | f32, f64; f16 and bf16 stored, accumulated in f32 and rounded once |
//! | gradient | `dX_i = dY_i W_s^T`, `dW_s = sum of X_i^T dY_i`, `db_s = sum of dY_i`, zeros for segments without rows |
//! | reproducible | each element of Y has one owner, which adds in the order of k. Sums over more than 4096 rows (on a GPU 256) are made of parts, added in order |
//!
//! On the CPU (`cpu.rs`) blocks that fit the near caches go through register tiles of this crate, larger ones through the
//! `gemm` crate. On a GPU (`gpu.rs`) one launch does all segments.
//!
//! Reference: M. Schlichtkrull and others, *Modeling relational data with graph convolutional networks*, 2018; for the
//! derivative, M. Giles, *Collected matrix derivative results*, 2008, section 2.2.2.

mod backward;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod gpu;

use crate::backend::check::{Check, Operand, device_can_segments, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::segments::Segments;
use crate::tensor::reshape;
#[cfg(feature = "flex")]
use burn::backend::flex::FlexTensor;
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{Shape, Tensor};

/// The primitives, on backend tensors. Shapes, dtypes and devices were checked.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SegmentMmOps: Backend {
    /// `X_i W_s`: X `[rows, k]`, W `[segments, k, m]`, result `[rows, m]`.
    #[fusion(dtype = x, shape = product_shape(x, weight))]
    fn segment_mm(segments: Segments, x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `X_i W_s + b_s`: the same with a bias `[segments, m]`.
    #[fusion(dtype = x, shape = product_shape(x, weight))]
    fn segment_mm_bias(
        segments: Segments,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// `sum of X_i^T Y_i`: X `[rows, k]`, Y `[rows, m]`, result `[segments, k, m]`.
    #[fusion(dtype = x, shape = outer_shape(segments, x, y))]
    fn segment_outer(segments: Segments, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;
}

pub(crate) fn product_shape(x: &Shape, weight: &Shape) -> Shape {
    Shape::from([x[0], weight[2]])
}

pub(crate) fn outer_shape(segments: &Segments, x: &Shape, y: &Shape) -> Shape {
    Shape::from([segments.len(), x[1], y[1]])
}

/// The product, checked in the words of one operation.
fn product(
    op: &'static str,
    x: Tensor<2>,
    weight: Tensor<3>,
    bias: Option<Tensor<2>>,
    segments: &Segments,
) -> Result<Tensor<2>, OpError> {
    let check = Check { op };
    let [rows, inner] = x.dims();
    let [count, weight_rows, cols] = weight.dims();
    let (left, right) = (Operand::from(&x), Operand::from(&weight));
    let of_segments = left.with_shape(&[segments.len(), segments.rows()]);
    check.shapes(rows == segments.rows(), "[segments, rows] must have the rows of x", &of_segments, &left)?;
    check.shapes(count == segments.len(), "[segments, rows] must have a weight a segment", &of_segments, &right)?;
    check.shapes(inner == weight_rows, "columns of x and rows of each weight must agree", &left, &right)?;
    check.compatible(&left, &right)?;
    let sizes = [("x", [rows, inner]), ("weight", [count.saturating_mul(inner), cols]), ("the product", [rows, cols])];
    device_can_segments(op, &x, segments, &sizes)?;
    let (segments, left, right) = (segments.clone(), x.into_dispatch(), weight.into_dispatch());
    let Some(bias) = bias else {
        return Ok(Tensor::from_dispatch(<Dispatch as SegmentMmOps>::segment_mm(segments, left, right)));
    };
    let (operand, of_weight) = (Operand::from(&bias), of_segments.with_shape(&[count, inner, cols]));
    check.shapes(bias.dims() == [count, cols], "a bias for each column of each weight", &operand, &of_weight)?;
    check.compatible(&of_weight, &operand)?;
    let bias = bias.into_dispatch();
    Ok(Tensor::from_dispatch(<Dispatch as SegmentMmOps>::segment_mm_bias(segments, left, right, bias)))
}

/// Each row times the matrix of its segment: `out_i = x_i W_s` for the rows i of segment s.
///
/// # Shapes
/// `x` rows x k, `weight` segments x k x m, the result rows x m. Any view: transposed, sliced, broadcast.
///
/// # Gradient
/// Of `x`: `dout_i W_s^T`. Of `weight`: `sum of x_i^T dout_i` over the rows of each segment, exactly zero for a segment without
/// rows; the same bits each time. Each is computed only if it is asked for.
///
/// # Panics
/// Where [`try_segment_mm`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex().autodiff();
/// let x = Tensor::<2>::from_data([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], &device).require_grad();
/// let weight = Tensor::<3>::from_data([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]], &device).require_grad();
/// let segments = Segments::from_lengths([1, 2])?; // the first row, and the other two
///
/// let y = segment_mm(x.clone(), weight.clone(), &segments);
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [2.0, 3.0, 26.0, 31.0, 46.0, 55.0]);
///
/// let grads = y.sum().backward();
/// assert_eq!(x.grad(&grads).unwrap().to_data().try_to_vec::<f32>().unwrap(), [1.0, 5.0, 9.0, 13.0, 9.0, 13.0]);
/// let d_weight = weight.grad(&grads).unwrap().to_data().try_to_vec::<f32>().unwrap();
/// assert_eq!(d_weight, [0.0, 0.0, 1.0, 1.0, 6.0, 6.0, 8.0, 8.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_mm(x: Tensor<2>, weight: Tensor<3>, segments: &Segments) -> Tensor<2> {
    expect(try_segment_mm(x, weight, segments))
}

/// [`segment_mm`], with operands that do not fit as an error.
///
/// # Errors
/// If the segments are not of as many rows as `x`, `weight` has not one matrix for each, the inner dimensions, dtypes or devices
/// differ, or the device lacks the dtype.
pub fn try_segment_mm(x: Tensor<2>, weight: Tensor<3>, segments: &Segments) -> Result<Tensor<2>, OpError> {
    product("segment_mm", x, weight, None, segments)
}

/// [`segment_mm`] plus the bias of the segment: `out_i = x_i W_s + b_s`, in one pass.
///
/// # Shapes
/// Those of [`segment_mm`], and `bias` segments x m.
///
/// # Gradient
/// Those of [`segment_mm`]; of `bias`: the sum of `dout_i` over the rows of each segment.
///
/// # Panics
/// Where [`try_segment_mm_bias`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex();
/// let x = Tensor::<2>::from_data([[1.0], [2.0], [3.0]], &device);
/// let weight = Tensor::<3>::from_data([[[1.0, 10.0]], [[2.0, 20.0]]], &device);
/// let bias = Tensor::<2>::from_data([[0.5, 0.5], [0.0, 1.0]], &device);
/// let y = segment_mm_bias(x, weight, bias, &Segments::from_lengths([1, 2])?);
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [1.5, 10.5, 4.0, 41.0, 6.0, 61.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_mm_bias(x: Tensor<2>, weight: Tensor<3>, bias: Tensor<2>, segments: &Segments) -> Tensor<2> {
    expect(try_segment_mm_bias(x, weight, bias, segments))
}

/// [`segment_mm_bias`], with operands that do not fit as an error.
///
/// # Errors
/// As [`try_segment_mm`], and if the bias has another shape than segments x m.
pub fn try_segment_mm_bias(
    x: Tensor<2>,
    weight: Tensor<3>,
    bias: Tensor<2>,
    segments: &Segments,
) -> Result<Tensor<2>, OpError> {
    product("segment_mm", x, weight, Some(bias), segments)
}

/// Each row times the matrix that its index names: `out_i = x_i W[index_i]`.
///
/// The index is checked and its rows are grouped once, by [`Segments::from_ids`]. No row of `x` is copied for it, and each
/// matrix is read once for all rows that name it: about as fast as [`segment_mm`] on sorted rows.
///
/// # Shapes
/// `x` rows x k, `weight` n x k x m, an index below n for each row, in any order, repeated or not; the result rows x m.
///
/// # Gradient
/// As [`segment_mm`]: of a matrix that no row names it is exactly zero.
///
/// # Panics
/// Where [`try_gather_mm`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex();
/// let x = Tensor::<2>::from_data([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], &device);
/// let weight = Tensor::<3>::from_data([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]], &device);
/// let y = gather_mm(x, weight, &Segments::from_ids([1, 0, 1], 2)?);
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [6.0, 7.0, 6.0, 11.0, 46.0, 55.0]);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn gather_mm(x: Tensor<2>, weight: Tensor<3>, index: &Segments) -> Tensor<2> {
    expect(try_gather_mm(x, weight, index))
}

/// [`gather_mm`], with operands that do not fit as an error.
///
/// # Errors
/// As [`try_segment_mm`].
pub fn try_gather_mm(x: Tensor<2>, weight: Tensor<3>, index: &Segments) -> Result<Tensor<2>, OpError> {
    product("gather_mm", x, weight, None, index)
}

/// [`gather_mm`] plus the bias that the index names: `out_i = x_i W[index_i] + b[index_i]`, in one pass.
///
/// `bias` is n x m, and its gradient the sum of `dout_i` over the rows that name it.
///
/// # Panics
/// Where [`try_gather_mm_bias`] returns an error.
#[track_caller]
pub fn gather_mm_bias(x: Tensor<2>, weight: Tensor<3>, bias: Tensor<2>, index: &Segments) -> Tensor<2> {
    expect(try_gather_mm_bias(x, weight, bias, index))
}

/// [`gather_mm_bias`], with operands that do not fit as an error.
///
/// # Errors
/// As [`try_segment_mm_bias`].
pub fn try_gather_mm_bias(
    x: Tensor<2>,
    weight: Tensor<3>,
    bias: Tensor<2>,
    index: &Segments,
) -> Result<Tensor<2>, OpError> {
    product("gather_mm", x, weight, Some(bias), index)
}

/// Sums of outer products by segments, `out_s = sum of x_i^T y_i` over the rows i of segment s: the gradient of [`segment_mm`]'s
/// weight, as a function of its own.
///
/// # Shapes
/// `x` rows x k, `y` rows x m, the result segments x k x m: zeros for a segment without rows.
///
/// # Gradient
/// Of `x`: `y_i dout_s^T`. Of `y`: `x_i dout_s`.
///
/// # Panics
/// Where [`try_segment_outer`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// // The second moments of each cluster.
/// let device = Device::flex();
/// let x = Tensor::<2>::from_data([[1.0, 2.0], [10.0, 0.0], [3.0, 4.0]], &device);
/// let moments = segment_outer(x.clone(), x, &Segments::from_ids([0, 2, 0], 3)?);
/// let expected = [10.0, 14.0, 14.0, 20.0, 0.0, 0.0, 0.0, 0.0, 100.0, 0.0, 0.0, 0.0];
/// assert_eq!(moments.to_data().try_to_vec::<f32>().unwrap(), expected);
/// # Ok::<(), SegmentsError>(())
/// ```
#[track_caller]
pub fn segment_outer(x: Tensor<2>, y: Tensor<2>, segments: &Segments) -> Tensor<3> {
    expect(try_segment_outer(x, y, segments))
}

/// [`segment_outer`], with operands that do not fit as an error.
///
/// # Errors
/// If `x`, `y` and the segments are not of as many rows, dtypes or devices differ, or the device lacks the dtype.
pub fn try_segment_outer(x: Tensor<2>, y: Tensor<2>, segments: &Segments) -> Result<Tensor<3>, OpError> {
    const OP: &str = "segment_outer";
    let check = Check { op: OP };
    let ([rows, inner], [other_rows, cols]) = (x.dims(), y.dims());
    let (left, right) = (Operand::from(&x), Operand::from(&y));
    let of_segments = left.with_shape(&[segments.len(), segments.rows()]);
    check.shapes(rows == segments.rows(), "[segments, rows] must have the rows of x", &of_segments, &left)?;
    check.shapes(rows == other_rows, "x and y must have as many rows", &left, &right)?;
    check.compatible(&left, &right)?;
    let sizes = [("x", [rows, inner]), ("y", [rows, cols]), ("the sums", [segments.len().saturating_mul(inner), cols])];
    device_can_segments(OP, &x, segments, &sizes)?;
    let (x, y) = (x.into_dispatch(), y.into_dispatch());
    Ok(Tensor::from_dispatch(<Dispatch as SegmentMmOps>::segment_outer(segments.clone(), x, y)))
}

/// A product for each group, of its own sizes: `out_g = x_g W_g + b_g`.
///
/// Groups of one size are better served by one [`segment_mm`].
///
/// # Shapes
/// `inputs[g]` n_g x k_g, `weights[g]` k_g x m_g, `biases[g]` m_g, the result n_g x m_g; any of them may be 0.
///
/// # Gradient
/// As [`segment_mm`] of one segment: zeros for the weight of an empty group.
///
/// # Panics
/// Where [`try_grouped_mm`] returns an error.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let device = Device::flex();
/// let inputs = [Tensor::<2>::ones([2, 3], &device), Tensor::ones([4, 5], &device)];
/// let weights = [Tensor::<2>::ones([3, 7], &device), Tensor::ones([5, 1], &device)];
/// let products = grouped_mm(&inputs, &weights, None);
/// assert_eq!((products[0].dims(), products[1].dims()), ([2, 7], [4, 1]));
/// ```
#[track_caller]
pub fn grouped_mm(inputs: &[Tensor<2>], weights: &[Tensor<2>], biases: Option<&[Tensor<1>]>) -> Vec<Tensor<2>> {
    expect(try_grouped_mm(inputs, weights, biases))
}

/// [`grouped_mm`], with operands that do not fit as an error.
///
/// # Errors
/// If there are not as many inputs, weights and biases, or those of a group do not fit.
pub fn try_grouped_mm(
    inputs: &[Tensor<2>],
    weights: &[Tensor<2>],
    biases: Option<&[Tensor<1>]>,
) -> Result<Vec<Tensor<2>>, OpError> {
    const OP: &str = "grouped_mm";
    let counts = [inputs.len(), weights.len(), biases.map_or(inputs.len(), <[_]>::len)];
    if let Some(&other) = counts.iter().find(|&&count| count != counts[0]) {
        let what = "there must be as many inputs, weights and biases";
        return Err(OpError::Shapes { op: OP, what, left: vec![counts[0]], right: vec![other] });
    }
    let group = |(group, (x, weight)): (usize, (&Tensor<2>, &Tensor<2>))| {
        let segments = Segments::from_lengths([x.dims()[0]]).expect("a tensor's rows can be counted");
        let [inner, cols] = weight.dims();
        let weight = reshape(weight.clone(), [1, inner, cols]);
        let bias = biases.map(|biases| reshape(biases[group].clone(), [1, biases[group].dims()[0]]));
        product(OP, x.clone(), weight, bias, &segments)
    };
    inputs.iter().zip(weights).enumerate().map(group).collect()
}

/// A stack of matrices as the kernels see it; strides that go backwards are made forward by a copy.
#[cfg(feature = "flex")]
fn blocks<E: crate::backend::scalar::Scalar + burn::tensor::Element>(tensor: &mut FlexTensor) -> cpu::Blocks<'_, E> {
    if tensor.layout().strides().iter().any(|&stride| stride < 0) {
        *tensor = tensor.to_contiguous();
    }
    let layout = tensor.layout();
    let shape = [0, 1, 2].map(|dim| layout.shape()[dim]);
    let strides = [0, 1, 2].map(|dim| layout.strides()[dim] as usize);
    let elements = &tensor.storage::<E>()[layout.start_offset()..];
    cpu::Blocks::new(elements, shape, strides)
}

#[cfg(feature = "flex")]
fn flex_product(
    segments: Segments,
    mut x: FlexTensor,
    mut weight: FlexTensor,
    mut bias: Option<FlexTensor>,
) -> FlexTensor {
    let shape = product_shape(x.layout().shape(), weight.layout().shape());
    with_float!(x.dtype(), E => {
        let bias = bias.as_mut().map(flex::matrix::<E>);
        let (x, weight) = (flex::matrix::<E>(&mut x), blocks::<E>(&mut weight));
        // SAFETY: the kernel writes every row of the product.
        unsafe { flex::filled(shape, |out| cpu::segment_mm(&segments, x, weight, bias, out)) }
    })
}

#[cfg(feature = "flex")]
impl SegmentMmOps for burn::backend::Flex {
    fn segment_mm(segments: Segments, x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        flex_product(segments, x, weight, None)
    }

    fn segment_mm_bias(
        segments: Segments,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        flex_product(segments, x, weight, Some(bias))
    }

    fn segment_outer(segments: Segments, mut x: FloatTensor<Self>, mut y: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = outer_shape(&segments, x.layout().shape(), y.layout().shape());
        with_float!(x.dtype(), E => {
            let (x, y) = (flex::matrix::<E>(&mut x), flex::matrix::<E>(&mut y));
            // SAFETY: the kernel writes the sums of every segment.
            unsafe { flex::filled(shape, |out| cpu::segment_outer(&segments, x, y, out)) }
        })
    }
}
