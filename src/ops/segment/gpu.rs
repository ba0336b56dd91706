//! Segment reductions and softmaxes on CubeCL devices: a unit a row and column, or an entry and column where each entry gets
//! something. Rows that are long beside the others are cut into pieces, which another launch combines in order.

mod kernels;

use super::{Reducer, SegmentOps, features_shape, rows_shape};
use crate::backend::gpu::lanes::RowBounds;
use crate::backend::gpu::{Gpu, Matrix, PIECE, Pieces, View, accumulator, vector_size};
use crate::ops::reduce::Softmax;
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{ElemType, IntKind};
use cubecl::prelude::{BufferArg, ComptimeOptionArgs};
use kernels::*;

/// The bounds of all rows.
const WHOLE: RowBounds = RowBounds { step: 1, longest: None };
/// The bounds of rows that are not cut.
const SHORT: RowBounds = RowBounds { step: 1, longest: Some(PIECE as u32) };
/// The bounds of pieces.
const CUT: RowBounds = RowBounds { step: 2, longest: None };

impl SegmentOps for CubeBackend {
    fn segment_reduce(pattern: Pattern, features: FloatTensor<Self>, reducer: Reducer) -> FloatTensor<Self> {
        let x = Matrix::new(features);
        let (gpu, dtype) = (x.gpu(), x.dtype());
        let shape = rows_shape(&pattern, &[x.rows, x.cols].into());
        let view = View::new(&pattern, &gpu);
        if view.entries() == 0 || shape.num_elements() == 0 {
            return gpu.zeros(shape, dtype);
        }
        match reducer {
            Reducer::Sum | Reducer::Mean => sums(&gpu, &view, &x, shape, reducer == Reducer::Mean),
            Reducer::Max | Reducer::Min => {
                let places = places(&gpu, &view, &x, shape[0], reducer == Reducer::Min);
                let out = gpu.empty(shape.clone(), dtype);
                let (grid, dim) = gpu.elementwise(shape.num_elements(), x.elements());
                // SAFETY: places are entries, and slots rows of the features, as the pattern was checked; the kernel leaves out
                // rows past the last.
                unsafe {
                    segment_pick::launch_unchecked(
                        &gpu.client,
                        grid.count(),
                        dim,
                        grid.address(),
                        view.offsets(),
                        view.slots(),
                        x.arg(),
                        Matrix::new(places).arg(),
                        Matrix::new(out.clone()).arg(),
                        shape[0],
                        x.cols,
                        x.stride,
                        [dtype_to_elem_type(dtype), view.index()],
                    );
                }
                out
            }
        }
    }

    fn segment_extreme_backward(
        pattern: Pattern,
        features: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reducer: Reducer,
    ) -> FloatTensor<Self> {
        let (x, grad) = (Matrix::new(features), Matrix::new(grad));
        let (gpu, dtype) = (x.gpu(), x.dtype());
        let view = View::new(&pattern, &gpu);
        let Some(out) = output(&gpu, &pattern, &view, x.cols, dtype) else {
            return gpu.zeros(features_shape(&pattern, &[x.rows, x.cols].into()), dtype);
        };
        let places = places(&gpu, &view, &x, pattern.shape()[0], reducer == Reducer::Min);
        let elements = x.elements().max(grad.elements());
        let (grid, dim) = gpu.elementwise(view.entries() * x.cols, elements);
        // SAFETY: rows and slots are within the operands, as the pattern was checked; the kernel leaves out entries past the last.
        unsafe {
            segment_place::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                view.rows(),
                view.slots(),
                Matrix::new(places).arg(),
                grad.arg(),
                Matrix::new(out.clone()).arg(),
                view.entries(),
                x.cols,
                grad.stride,
                [dtype_to_elem_type(dtype), view.index()],
            );
        }
        out
    }

    fn segment_expand(pattern: Pattern, rows: FloatTensor<Self>, mean: bool) -> FloatTensor<Self> {
        let x = Matrix::new(rows);
        let (gpu, dtype) = (x.gpu(), x.dtype());
        let view = View::new(&pattern, &gpu);
        let Some(out) = output(&gpu, &pattern, &view, x.cols, dtype) else {
            return gpu.zeros(features_shape(&pattern, &[x.rows, x.cols].into()), dtype);
        };
        let n = vector_size(&gpu, dtype, &[x.cols, x.stride]);
        let width = x.cols / n;
        let to = Matrix::new(out.clone());
        let (grid, dim) = gpu.elementwise(view.entries() * width, x.elements().max(to.elements()));
        // SAFETY: as above.
        unsafe {
            segment_rows::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                n,
                view.rows(),
                view.offsets(),
                view.slots(),
                x.arg(),
                to.arg(),
                view.entries(),
                width,
                x.stride / n,
                mean,
                [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
            );
        }
        out
    }

    fn segment_softmax(pattern: Pattern, features: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        let task = if softmax.log { Task::LogSoftmax } else { Task::Softmax };
        normalise(&pattern, Matrix::new(features), None, task)
    }

    fn segment_softmax_backward(
        pattern: Pattern,
        result: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self> {
        let task = if softmax.log { Task::LogBackward } else { Task::Backward };
        normalise(&pattern, Matrix::new(result), Some(Matrix::new(grad)), task)
    }
}

/// Room for the features of entries, zero where there are values that no entry has; `None` if there is nothing to compute.
pub(crate) fn output(gpu: &Gpu, pattern: &Pattern, view: &View, columns: usize, dtype: DType) -> Option<CubeTensor> {
    let (entries, shape) = (view.entries(), [pattern.nnz(), columns]);
    if entries == 0 || columns == 0 {
        return None;
    }
    Some(if entries == pattern.nnz() { gpu.empty(shape, dtype) } else { gpu.zeros(shape, dtype) })
}

/// The pieces of long rows, if there are any and their results fit the device.
pub(crate) fn pieces<'a>(gpu: &Gpu, view: &View<'a>, columns: usize, dtype: DType) -> Option<&'a Pieces> {
    view.pieces().filter(|pieces| gpu.holds(pieces.count() * columns, dtype))
}

fn sums(gpu: &Gpu, view: &View, x: &Matrix, shape: Shape, mean: bool) -> CubeTensor {
    let dtype = x.dtype();
    let launch = |bounds: BufferArg, rows: usize, out: &CubeTensor, find: RowBounds, mean: bool| {
        let n = vector_size(gpu, dtype, &[x.cols, x.stride]);
        let width = x.cols / n;
        let types = [dtype, accumulator(dtype), out.dtype].map(dtype_to_elem_type);
        let to = Matrix::new(out.clone());
        let (grid, dim) = gpu.elementwise(rows * width, x.elements().max(to.elements()));
        // SAFETY: entries and slots are within the operands, as the pattern was checked; the kernel leaves out rows past the last.
        unsafe {
            segment_sums::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                n,
                bounds,
                view.slots(),
                x.arg(),
                to.arg(),
                rows,
                width,
                x.stride / n,
                find,
                mean,
                [types[0], types[1], types[2], view.index()],
            );
        }
    };
    let out = gpu.empty(shape.clone(), dtype);
    let Some(pieces) = pieces(gpu, view, x.cols, accumulator(dtype)) else {
        launch(view.offsets(), shape[0], &out, WHOLE, mean);
        return out;
    };
    launch(view.offsets(), shape[0], &out, SHORT, mean);
    let of_pieces = gpu.empty([pieces.count(), x.cols], accumulator(dtype));
    launch(view.piece_bounds(), pieces.count(), &of_pieces, CUT, false);
    combine(gpu, view, pieces, of_pieces, &out, mean);
    out
}

/// Adds the sums of pieces to the long rows of `out`, divided by their lengths for a `mean`.
pub(crate) fn combine(gpu: &Gpu, view: &View, pieces: &Pieces, sums: CubeTensor, out: &CubeTensor, mean: bool) {
    let [added, written] = [sums.dtype, out.dtype].map(dtype_to_elem_type);
    let (sums, out) = (Matrix::new(sums), Matrix::new(out.clone()));
    let n = vector_size(gpu, sums.dtype(), &[sums.cols]);
    let width = sums.cols / n;
    let long_rows = pieces.rows.len();
    let (grid, dim) = gpu.elementwise(long_rows * width, sums.elements().max(out.elements()));
    // SAFETY: long rows are rows of `out`, and their pieces those that were summed; the kernel leaves out what lies past.
    unsafe {
        segment_sums_combine::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            n,
            view.first_pieces(),
            view.long_rows(),
            view.offsets(),
            sums.arg(),
            out.arg(),
            long_rows,
            width,
            mean,
            [added, written, view.index()],
        );
    }
}

/// The entries that have the largest or smallest elements.
fn places(gpu: &Gpu, view: &View, x: &Matrix, rows: usize, min: bool) -> CubeTensor {
    let index = if view.index() == ElemType::Int(IntKind::I64) { DType::I64 } else { DType::I32 };
    let types = [dtype_to_elem_type(x.dtype()), dtype_to_elem_type(accumulator(x.dtype())), view.index()];
    let launch = |bounds: BufferArg, rows: usize, places: &CubeTensor, find: RowBounds| {
        let (grid, dim) = gpu.elementwise(rows * x.cols, x.elements());
        // SAFETY: entries and slots are within the operands, as the pattern was checked; the kernel leaves out rows past the last.
        unsafe {
            segment_extremes::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                bounds,
                view.slots(),
                x.arg(),
                Matrix::new(places.clone()).arg(),
                rows,
                x.cols,
                x.stride,
                find,
                min,
                types,
            );
        }
    };
    let places = gpu.empty([rows, x.cols], index);
    let Some(pieces) = pieces(gpu, view, x.cols, index) else {
        launch(view.offsets(), rows, &places, WHOLE);
        return places;
    };
    launch(view.offsets(), rows, &places, SHORT);
    let of_pieces = gpu.empty([pieces.count(), x.cols], index);
    launch(view.piece_bounds(), pieces.count(), &of_pieces, CUT);
    let long_rows = pieces.rows.len();
    let (grid, dim) = gpu.elementwise(long_rows * x.cols, x.elements());
    // SAFETY: long rows are rows of `places`, and their pieces those that were found; the kernel leaves out what lies past.
    unsafe {
        segment_extremes_combine::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            view.first_pieces(),
            view.long_rows(),
            view.slots(),
            x.arg(),
            Matrix::new(of_pieces).arg(),
            Matrix::new(places.clone()).arg(),
            long_rows,
            x.cols,
            x.stride,
            min,
            types,
        );
    }
    places
}

/// A softmax of `x`, or the gradient of one, whose result is `x`.
fn normalise(pattern: &Pattern, x: Matrix, grad: Option<Matrix>, task: Task) -> CubeTensor {
    let (gpu, dtype) = (x.gpu(), x.dtype());
    let view = View::new(pattern, &gpu);
    let Some(out) = output(&gpu, pattern, &view, x.cols, dtype) else {
        return gpu.zeros([pattern.nnz(), x.cols], dtype);
    };
    let [first, second] = stats(&gpu, &view, &x, grad.as_ref(), pattern.shape()[0], task);
    let (grid, dim) = gpu.elementwise(view.entries() * x.cols, longest(&x, grad.as_ref()));
    // SAFETY: rows and slots are within the operands, as the pattern was checked; the kernel leaves out entries past the last.
    unsafe {
        softmax_write::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            view.rows(),
            view.slots(),
            x.arg(),
            option(grad.as_ref()),
            Matrix::new(first).arg(),
            Matrix::new(second).arg(),
            Matrix::new(out.clone()).arg(),
            view.entries(),
            x.cols,
            x.stride,
            grad.as_ref().map_or(0, |grad| grad.stride),
            f32::INFINITY.to_bits(),
            task,
            [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
        );
    }
    out
}

/// The numbers of each row that its elements follow from.
fn stats(gpu: &Gpu, view: &View, x: &Matrix, grad: Option<&Matrix>, rows: usize, task: Task) -> [CubeTensor; 2] {
    let computed = accumulator(x.dtype());
    let [stored, added] = [x.dtype(), computed].map(dtype_to_elem_type);
    let launch = |bounds: BufferArg, rows: usize, find: RowBounds| {
        let [first, second] = [(); 2].map(|()| gpu.empty([rows, x.cols], computed));
        let (grid, dim) = gpu.elementwise(rows * x.cols, longest(x, grad));
        // SAFETY: entries and slots are within the operands, as the pattern was checked; the kernel leaves out rows past the last.
        unsafe {
            softmax_stats::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                bounds,
                view.slots(),
                x.arg(),
                option(grad),
                Matrix::new(first.clone()).arg(),
                Matrix::new(second.clone()).arg(),
                rows,
                x.cols,
                x.stride,
                grad.map_or(0, |grad| grad.stride),
                f32::INFINITY.to_bits(),
                find,
                task,
                [stored, added, view.index()],
            );
        }
        [first, second]
    };
    let Some(pieces) = pieces(gpu, view, x.cols, computed) else {
        return launch(view.offsets(), rows, WHOLE);
    };
    let found = launch(view.offsets(), rows, SHORT);
    let of_pieces = launch(view.piece_bounds(), pieces.count(), CUT);
    let long_rows = pieces.rows.len();
    let (grid, dim) = gpu.elementwise(long_rows * x.cols, (rows + pieces.count()) * x.cols);
    let [first, second] = found.clone().map(Matrix::new);
    let [pieces_first, pieces_second] = of_pieces.map(Matrix::new);
    // SAFETY: long rows are rows of the results, and their pieces those that were found; the kernel leaves out what lies past.
    unsafe {
        softmax_stats_combine::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            view.first_pieces(),
            view.long_rows(),
            pieces_first.arg(),
            pieces_second.arg(),
            first.arg(),
            second.arg(),
            long_rows,
            x.cols,
            f32::INFINITY.to_bits(),
            task,
            [added, view.index()],
        );
    }
    found
}

fn longest(x: &Matrix, grad: Option<&Matrix>) -> usize {
    x.elements().max(grad.map_or(0, Matrix::elements))
}

fn option<F>(grad: Option<&Matrix>) -> ComptimeOptionArgs<Box<[F]>>
where
    Box<[F]>: cubecl::prelude::LaunchArg<RuntimeArg = BufferArg>,
{
    match grad {
        Some(grad) => ComptimeOptionArgs::Some(grad.arg()),
        None => ComptimeOptionArgs::None,
    }
}
