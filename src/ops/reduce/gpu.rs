//! Reductions and softmax on CubeCL devices: one kernel for all of them, whose lanes share a row. Rows that are long beside the
//! others, or where there are few, are cut into pieces, whose parts are merged in order.

mod kernels;

use super::{Norm, ReduceOps, Reduction, Softmax};
use crate::backend::gpu::{Gpu, Matrix, PIECE, View, accumulator, output_values};
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{BufferArg, ComptimeOptionArgs, CubeDim};
use kernels::{Kind, PART, Plan, Stage, Task, expand_rows, merge_parts, reduce_rows};

impl ReduceOps for CubeBackend {
    fn row_reduce(pattern: Pattern, values: FloatTensor<Self>, reduction: Reduction) -> FloatTensor<Self> {
        launch(&Gpu::of(&values), &pattern, values, None, Task::Reduce, reduction)
    }

    fn row_reduce_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reduction: Reduction,
    ) -> FloatTensor<Self> {
        launch(&Gpu::of(&values), &pattern, values, Some(grad), Task::Derive, reduction)
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
        launch(&Gpu::of(&values), &pattern, values, None, task, Reduction::LogSumExp { positions: None })
    }

    fn row_softmax_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self> {
        let task = if softmax.log { Task::LogSoftmaxBackward } else { Task::SoftmaxBackward };
        launch(&Gpu::of(&values), &pattern, values, Some(grad), task, Reduction::LogSumExp { positions: None })
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
    gpu: &Gpu,
    pattern: &Pattern,
    values: CubeTensor,
    grad: Option<CubeTensor>,
    task: Task,
    reduction: Reduction,
) -> CubeTensor {
    let values = into_contiguous(values);
    let grad = grad.map(into_contiguous);
    let dtype = values.dtype;
    let view = View::new(pattern, gpu);
    let (rows, entries) = (pattern.shape()[0], view.entries());
    let out = match task {
        Task::Reduce => gpu.empty([rows], dtype),
        _ => output_values(gpu, pattern.nnz(), entries, dtype),
    };
    if rows == 0 || (entries == 0 && task != Task::Reduce) {
        return out;
    }
    // A buffer has an element at least; no row reads that of no values.
    let values = if entries == 0 { gpu.zeros([1], dtype) } else { values };
    let (kind, positions) = kind(reduction);
    let plan = Plan { kind, task, absent: positions.is_some() };
    let launch = Launch { gpu, view: &view, values: &values, grad: grad.as_ref(), positions, plan };
    let Some(pieces) = view.pieces() else {
        launch.rows(view.offsets(), rows, Stage::Rows { longest: None }, None, &out);
        return out;
    };
    launch.rows(view.offsets(), rows, Stage::Rows { longest: Some(PIECE as u32) }, None, &out);
    let count = pieces.count();
    let parts = gpu.empty([count * PART], accumulator(dtype));
    launch.rows(view.piece_bounds(), count, Stage::Pieces, None, &parts);
    launch.merge(pieces.rows.len(), &parts, &out);
    if task != Task::Reduce {
        launch.rows(view.piece_bounds(), count, Stage::Finish, Some(&parts), &out);
    }
    out
}

/// What the launches of one reduction have in common.
struct Launch<'a> {
    gpu: &'a Gpu,
    view: &'a View<'a>,
    values: &'a CubeTensor,
    grad: Option<&'a CubeTensor>,
    positions: Option<usize>,
    plan: Plan,
}

/// A buffer that a kernel may do without.
macro_rules! option {
    ($tensor:expr) => {
        match $tensor {
            Some(tensor) => ComptimeOptionArgs::Some(Matrix::vector(tensor).arg()),
            None => ComptimeOptionArgs::None,
        }
    };
}

impl Launch<'_> {
    /// Goes through `count` rows, or pieces of rows.
    fn rows(&self, bounds: BufferArg, count: usize, stage: Stage, parts: Option<&CubeTensor>, out: &CubeTensor) {
        let Self { gpu, view, values, grad, positions, plan } = self;
        let types = [values.dtype, accumulator(values.dtype), out.dtype].map(dtype_to_elem_type);
        let (values, out) = (Matrix::vector(values), Matrix::vector(out));
        let lanes = gpu.lanes_for_rows(count, view.entries());
        let grid = gpu.grid(count, lanes.groups(), view.entries().max(values.elements()).max(out.elements()));
        // SAFETY: entries and slots are within the operands, as the pattern was checked; the kernel leaves out rows from
        // `count` on, and those that go in pieces.
        unsafe {
            reduce_rows::launch_unchecked(
                &gpu.client,
                grid.count(),
                CubeDim::new_1d(lanes.units),
                grid.address(),
                bounds,
                view.slots(),
                values.arg(),
                option!(grad),
                option!(parts),
                out.arg(),
                count,
                positions.unwrap_or(0),
                f32::INFINITY.to_bits(),
                *plan,
                stage,
                lanes,
                [types[0], types[1], types[2], view.index()],
            );
        }
    }

    /// Merges the parts of so many long rows.
    fn merge(&self, long_rows: usize, parts: &CubeTensor, out: &CubeTensor) {
        let Self { gpu, view, values, grad, positions, plan } = self;
        let grad = grad.filter(|_| plan.task == Task::Derive);
        let types = [values.dtype, parts.dtype].map(dtype_to_elem_type);
        let (parts, out) = (Matrix::vector(parts), Matrix::vector(out));
        let (grid, dim) = gpu.elementwise(long_rows, parts.elements().max(out.elements()).max(view.entries()));
        // SAFETY: long rows are rows of the pattern, and their pieces those that have parts; the kernel leaves out rows from
        // `long_rows` on.
        unsafe {
            merge_parts::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                view.first_pieces(),
                view.piece_bounds(),
                view.long_rows(),
                option!(grad),
                parts.arg(),
                out.arg(),
                long_rows,
                positions.unwrap_or(0),
                f32::INFINITY.to_bits(),
                *plan,
                [types[0], types[1], view.index()],
            );
        }
    }
}

#[cfg(all(test, feature = "wgpu", feature = "flex"))]
mod tests {
    use super::super::cpu;
    use super::*;
    use crate::backend::gpu::testing::{gpu, numbers, pattern, read, upload};
    use crate::pattern::with_rows;
    use cubecl::features::Plane;
    use std::mem::MaybeUninit;

    fn filled(length: usize, fill: impl FnOnce(&mut [MaybeUninit<f32>])) -> Vec<f32> {
        let mut out = vec![MaybeUninit::new(f32::NAN); length];
        fill(&mut out);
        // SAFETY: initialised above.
        out.into_iter().map(|x| unsafe { x.assume_init() }).collect()
    }

    fn assert_close(found: &[f32], expected: &[f32], what: &str) {
        assert_eq!(found.len(), expected.len());
        for (at, (x, y)) in found.iter().zip(expected).enumerate() {
            let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-5 * (1.0 + y.abs());
            assert!(same, "{what}: element {at} is {x}, {y} on the CPU");
        }
    }

    /// Everything as on the CPU, infinities, NaN, ties and empty rows included; the same bits with planes and without.
    #[test]
    fn agrees_with_the_cpu() {
        let lengths = [0, 1, 3, 7, 8, 9, 40, 33, 700, 2, 0, 16, 2, 2, 2];
        let by_rows = pattern(&lengths, 50);
        let special = [f32::INFINITY, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NAN, 2.0];
        let short = |values: &mut Vec<f32>| {
            let end = values.len();
            values[end - 6..].copy_from_slice(&special);
            values[20] = 200.0;
        };
        // In several pieces: large ones, ties, all negative, a special value each, nothing but -inf, and 0.
        let long = pattern(&[513, 2, 1025, 700, 600, 1300, 600, 520, 1100], 40);
        let in_pieces = |values: &mut Vec<f32>| {
            let starts = [0, 513, 515, 1540, 2240, 2840, 4140, 4740, 5260, 6360];
            let row = |row: usize| starts[row]..starts[row + 1];
            (values[7], values[512]) = (90.0, 200.0);
            (values[515 + 600], values[515 + 1020]) = (9.0, 9.0);
            values[row(3)].iter_mut().for_each(|x| *x = -100.0 - x.abs());
            values[2240 + 550] = f32::INFINITY;
            values[2840 + 1200] = f32::NAN;
            values[row(6)].fill(f32::NEG_INFINITY);
            values[row(7)].fill(0.0);
            values[5260..5260 + 512].fill(f32::NEG_INFINITY);
        };
        type Change<'a> = &'a dyn Fn(&mut Vec<f32>);
        let cases: [(Pattern, Change<'_>); 4] = [
            (by_rows.clone(), &short),
            (by_rows.t(), &short),
            (long.clone(), &in_pieces),
            // Coordinates, whose row order is not that of the values: the same in one row for each column.
            (long.t().to_coo().pattern.t(), &|values| values[77] = f32::NAN),
        ];
        for (pattern, change) in cases {
            let (rows, nnz) = (pattern.shape()[0], pattern.nnz());
            let mut values = numbers(nnz);
            change(&mut values);
            let (of_rows, of_entries) = (numbers(rows), numbers(nnz));
            let mut reductions = vec![Reduction::Sum];
            for positions in [None, Some(800)] {
                reductions.extend([
                    Reduction::Mean { positions },
                    Reduction::Max { positions },
                    Reduction::Min { positions },
                    Reduction::LogSumExp { positions },
                ]);
            }
            reductions.extend([Norm::L1, Norm::L2, Norm::Max].map(Reduction::Norm));
            let run = |grad: Option<&[f32]>, task, reduction| {
                let mut gpu = gpu();
                let mut once = |plane| {
                    gpu.plane = plane;
                    let values = upload(&gpu, &values, [nnz]);
                    let grad = grad.map(|grad| upload(&gpu, grad, [grad.len()]));
                    read(&launch(&gpu, &pattern, values, grad, task, reduction))
                };
                let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let without = once(Default::default());
                assert_eq!(bits(once(Plane::Ops.into())), bits(without.clone()), "{task:?} {reduction:?}");
                without
            };
            with_rows!(pattern.rows(), view => {
                for reduction in reductions {
                    let expected = filled(rows, |out| cpu::reduce(view, &values, reduction, out));
                    assert_close(&run(None, Task::Reduce, reduction), &expected, &format!("{reduction:?}"));
                    let expected = filled(nnz, |out| cpu::derive(view, &values, &of_rows, reduction, out));
                    let found = run(Some(&of_rows), Task::Derive, reduction);
                    assert_close(&found, &expected, &format!("{reduction:?}, gradient"));
                }
                let exps = Reduction::LogSumExp { positions: None };
                for (log, task, backward) in [
                    (false, Task::Softmax, Task::SoftmaxBackward),
                    (true, Task::LogSoftmax, Task::LogSoftmaxBackward),
                ] {
                    let expected = filled(nnz, |out| cpu::softmax(view, &values, Softmax { log }, out));
                    assert_close(&run(None, task, exps), &expected, &format!("{task:?}"));
                    let expected =
                        filled(nnz, |out| cpu::softmax_backward(view, &values, &of_entries, Softmax { log }, out));
                    assert_close(&run(Some(&of_entries), backward, exps), &expected, &format!("{backward:?}"));
                }
            });
        }
    }
}
