//! segment_mm on CubeCL devices: one launch for all segments, from a table of tiles.

mod kernels;

use super::{SegmentMmOps, outer_shape, product_shape};
use crate::backend::gpu::{Gpu, Matrix, Parts, View, accumulator, any_view, tiles};
use crate::pattern::with_rows;
use crate::segments::Segments;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{BufferArg, ComptimeOptionArgs, CubeDim, LaunchArg};
use kernels::{Square, add_parts};

/// Rows whose outer products a cube adds, where the partial sums are not larger than the operands.
const ROWS: usize = 256;

impl SegmentMmOps for CubeBackend {
    fn segment_mm(segments: Segments, x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        product(&segments, x, weight, None)
    }

    fn segment_mm_bias(
        segments: Segments,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        product(&segments, x, weight, Some(Matrix::new(bias)))
    }

    fn segment_outer(segments: Segments, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        outer(&segments, Matrix::new(x), Matrix::new(y))
    }
}

/// The most units of a cube in a square.
fn square(gpu: &Gpu, by_rows: bool) -> Square {
    Square { side: 1 << (gpu.units().ilog2() / 2), by_rows }
}

/// The rows in the order of segments, unless they lie so.
fn order<I>(segments: &Segments, view: &View<'_>) -> ComptimeOptionArgs<Box<[I]>>
where
    Box<[I]>: LaunchArg<RuntimeArg = BufferArg>,
{
    if segments.is_sorted() { ComptimeOptionArgs::None } else { ComptimeOptionArgs::Some(view.columns()) }
}

fn product(segments: &Segments, x: CubeTensor, weight: CubeTensor, bias: Option<Matrix>) -> CubeTensor {
    let shape = product_shape(x.meta.shape(), weight.meta.shape());
    let (x, weight) = (Matrix::new(x), any_view(weight));
    let (gpu, dtype) = (x.gpu(), x.dtype());
    let [weight_stride, row_stride, column_stride] = weight.strides;
    let (rows, cols) = (shape[0], shape[1]);
    let out = gpu.empty(shape, dtype);
    if rows == 0 || cols == 0 {
        return out;
    }
    let pattern = segments.pattern();
    let view = View::new(pattern, &gpu);
    let square = square(&gpu, column_stride != 1 && row_stride == 1);
    let count = with_rows!(pattern.rows(), rows => tiles(rows, square.width()).count());
    let column_tiles = cols.div_ceil(square.width());
    let elements = x.elements().max(weight.elements).max(rows * cols);
    let grid = gpu.grid(count * column_tiles * square.units() as usize, square.units() as usize, elements);
    let types = [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()];
    let bias_stride = bias.as_ref().map_or(0, |bias| bias.stride);
    let bias = bias.map_or(ComptimeOptionArgs::None, |bias| ComptimeOptionArgs::Some(bias.arg()));
    // SAFETY: tiles are rows of the segments, and the order their places in x, as the segments were checked; the kernel leaves
    // out rows, columns and terms past the last, and what cubes past the last tile would store.
    unsafe {
        kernels::segment_product::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(square.units()),
            grid.address(),
            view.tiles(square.width()),
            order(segments, &view),
            x.arg(),
            weight.arg(),
            bias,
            Matrix::new(out.clone()).arg(),
            count,
            column_tiles,
            x.cols,
            cols,
            x.stride,
            weight_stride,
            row_stride,
            column_stride,
            bias_stride,
            cols,
            square,
            types,
        );
    }
    out
}

fn outer(segments: &Segments, x: Matrix, y: Matrix) -> CubeTensor {
    let shape = outer_shape(segments, &[x.rows, x.cols].into(), &[y.rows, y.cols].into());
    let (gpu, dtype) = (x.gpu(), x.dtype());
    let (inner, cols, block) = (x.cols, y.cols, x.cols * y.cols);
    if segments.rows() == 0 || shape.num_elements() == 0 {
        return gpu.zeros(shape, dtype);
    }
    let out = gpu.empty(shape, dtype);
    let pattern = segments.pattern();
    let view = View::new(pattern, &gpu);
    let square = square(&gpu, false);
    let size = rows_of_part(inner, cols);
    let parts = with_rows!(pattern.rows(), rows => Parts::of(rows, size));
    let partials = gpu.empty([(parts.count() * block).max(1)], accumulator(dtype));
    let [inner_tiles, column_tiles] = [inner, cols].map(|n| n.div_ceil(square.width()));
    let count = parts.table.len();
    let all = [x.elements(), y.elements(), out.meta.shape().num_elements(), partials.meta.shape().num_elements()];
    let elements = all.into_iter().max().expect("four of them");
    let units = square.units() as usize;
    let grid = gpu.grid(count * inner_tiles * column_tiles * units, units, elements);
    let added = dtype_to_elem_type(accumulator(dtype));
    let types = [dtype_to_elem_type(dtype), added, view.index()];
    let flat = Matrix::vector(&flattened(&out));
    // SAFETY: parts are rows of the segments, and the order their places in x and y, as the segments were checked; targets are
    // matrices of the output and of the partial sums; the kernel leaves out rows and columns past the last.
    unsafe {
        kernels::segment_outer::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(square.units()),
            grid.address(),
            view.parts(size),
            order(segments, &view),
            x.arg(),
            y.arg(),
            flat.arg(),
            Matrix::vector(&partials).arg(),
            count,
            segments.len(),
            inner_tiles,
            column_tiles,
            inner,
            cols,
            x.stride,
            y.stride,
            square,
            types,
        );
    }
    if parts.cuts.is_empty() {
        return out;
    }
    let (grid, dim) = gpu.elementwise(parts.cuts.len() * block, elements);
    // SAFETY: cuts are segments and their parts; the kernel leaves out elements past the last.
    unsafe {
        add_parts::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            view.cuts(size),
            Matrix::vector(&partials).arg(),
            flat.arg(),
            parts.cuts.len(),
            block,
            types,
        );
    }
    out
}

/// Rows of a part, so many that its matrix is not larger than its rows.
fn rows_of_part(inner: usize, cols: usize) -> usize {
    ROWS.max((inner * cols / (inner + cols)).next_power_of_two())
}

/// A tensor without gaps as one of one dimension.
fn flattened(tensor: &CubeTensor) -> CubeTensor {
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    let shape = [tensor.meta.shape().num_elements()];
    CubeTensor::new_contiguous(client, device, shape.into(), tensor.handle.clone(), tensor.dtype)
}
