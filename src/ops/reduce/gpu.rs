//! Reductions and softmax on CubeCL devices: one kernel for all of them, whose lanes share a row.

mod kernels;

use super::{Norm, ReduceOps, Reduction, Softmax};
use crate::backend::gpu::{Gpu, Matrix, View, accumulator, output_values};
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{ComptimeOptionArgs, CubeDim};
use kernels::{Kind, Plan, Task, expand_rows, reduce_rows};

impl ReduceOps for CubeBackend {
    fn row_reduce(pattern: Pattern, values: FloatTensor<Self>, reduction: Reduction) -> FloatTensor<Self> {
        launch(&pattern, values, None, Task::Reduce, reduction)
    }

    fn row_reduce_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reduction: Reduction,
    ) -> FloatTensor<Self> {
        launch(&pattern, values, Some(grad), Task::Derive, reduction)
    }

    fn row_expand(pattern: Pattern, rows: FloatTensor<Self>) -> FloatTensor<Self> {
        let rows = into_contiguous(rows);
        let (gpu, dtype) = (Gpu::of(&rows), rows.dtype);
        let view = View::new(&pattern, &gpu);
        let entries = view.entries();
        if entries == 0 {
            return gpu.zeros([pattern.nnz()], dtype);
        }
        let out = output_values(&gpu, pattern.nnz(), entries, dtype);
        let rows = Matrix::vector(&rows);
        let (grid, dim) = gpu.elementwise(entries, rows.elements().max(pattern.nnz()));
        // SAFETY: rows and slots are within the operands, as the pattern was checked; the kernel leaves out entries past the
        // last.
        unsafe {
            expand_rows::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                view.rows(),
                view.slots(),
                rows.arg(),
                Matrix::vector(&out).arg(),
                entries,
                [dtype_to_elem_type(dtype), view.index()],
            );
        }
        out
    }

    fn row_softmax(pattern: Pattern, values: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        let task = if softmax.log { Task::LogSoftmax } else { Task::Softmax };
        let Softmax { positions, .. } = softmax;
        launch(&pattern, values, None, task, Reduction::LogSumExp { positions })
    }

    fn row_softmax_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self> {
        let task = if softmax.log { Task::LogSoftmaxBackward } else { Task::SoftmaxBackward };
        let Softmax { positions, .. } = softmax;
        launch(&pattern, values, Some(grad), task, Reduction::LogSumExp { positions })
    }
}

fn kind(reduction: Reduction) -> (Kind, Option<usize>) {
    match reduction {
        Reduction::Sum => (Kind::Sum, None),
        Reduction::Mean { positions } => (Kind::Mean, positions),
        Reduction::Max { positions } => (Kind::Max, positions),
        Reduction::Min { positions } => (Kind::Min, positions),
        Reduction::LogSumExp { positions } => (Kind::LogSumExp, positions),
        Reduction::Norm(Norm::L1) => (Kind::L1, None),
        Reduction::Norm(Norm::L2) => (Kind::L2, None),
        Reduction::Norm(Norm::Max) => (Kind::LargestSize, None),
    }
}

fn launch(
    pattern: &Pattern,
    values: CubeTensor,
    grad: Option<CubeTensor>,
    task: Task,
    reduction: Reduction,
) -> CubeTensor {
    let values = into_contiguous(values);
    let grad = grad.map(into_contiguous);
    let (gpu, dtype) = (Gpu::of(&values), values.dtype);
    let view = View::new(pattern, &gpu);
    let (rows, entries) = (pattern.shape()[0], view.entries());
    let out = match task {
        Task::Reduce => gpu.empty([rows], dtype),
        _ => output_values(&gpu, pattern.nnz(), entries, dtype),
    };
    if rows == 0 || (entries == 0 && task != Task::Reduce) {
        return out;
    }
    // A buffer has an element at least; no row reads that of no values.
    let values = if entries == 0 { gpu.zeros([1], dtype) } else { values };
    let (kind, positions) = kind(reduction);
    let plan = Plan { kind, task, absent: positions.is_some() };
    let grad = match &grad {
        Some(grad) => ComptimeOptionArgs::Some(Matrix::vector(grad).arg()),
        None => ComptimeOptionArgs::None,
    };
    let values = Matrix::vector(&values);
    let lanes = gpu.lanes_for_rows(rows, entries);
    let grid = gpu.grid(rows, lanes.groups(), entries.max(values.elements()));
    // SAFETY: entries and slots are within the operands, as the pattern was checked; the kernel leaves out rows past the last.
    unsafe {
        reduce_rows::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(lanes.units),
            grid.address(),
            view.offsets(),
            view.slots(),
            values.arg(),
            grad,
            Matrix::vector(&out).arg(),
            rows,
            positions.unwrap_or(0),
            f32::INFINITY.to_bits(),
            plan,
            lanes,
            [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
        );
    }
    out
}
