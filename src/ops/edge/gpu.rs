//! Edge operations on CubeCL devices: a unit an edge and some columns, or a row and some columns, in long rows a piece of it.

mod kernels;

use super::{EdgeOp, EdgeOps, heads_shape};
use crate::backend::gpu::lanes::RowBounds;
use crate::backend::gpu::{Matrix, PIECE, View, accumulator, vector_size};
use crate::ops::segment::gpu::{combine, output, pieces};
use crate::ops::segment::{features_shape, rows_shape};
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::BufferArg;
use kernels::{Op, edge_columns, edge_dots, edge_sums};

impl EdgeOps for CubeBackend {
    fn edge_op(pattern: Pattern, left: FloatTensor<Self>, right: FloatTensor<Self>, op: EdgeOp) -> FloatTensor<Self> {
        let (left, right) = (Matrix::new(left), Matrix::new(right));
        let (gpu, dtype) = (left.gpu(), left.dtype());
        let view = View::new(&pattern, &gpu);
        let Some(out) = output(&gpu, &pattern, &view, left.cols, dtype) else {
            return gpu.zeros(features_shape(&pattern, &[left.rows, left.cols].into()), dtype);
        };
        let n = vector_size(&gpu, dtype, &[left.cols, left.stride, right.stride]);
        let width = left.cols / n;
        let to = Matrix::new(out.clone());
        let elements = left.elements().max(right.elements()).max(to.elements());
        let (grid, dim) = gpu.elementwise(view.entries() * width, elements);
        let op = match op {
            EdgeOp::Add => Op::Add,
            EdgeOp::Sub => Op::Sub,
            EdgeOp::Mul => Op::Mul,
            EdgeOp::Div => Op::Div,
        };
        // SAFETY: rows, columns and slots are within the operands, as the pattern was checked; the kernel leaves out entries past
        // the last.
        unsafe {
            edge_columns::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                n,
                view.rows(),
                view.columns(),
                view.slots(),
                left.arg(),
                right.arg(),
                to.arg(),
                view.entries(),
                width,
                left.stride / n,
                right.stride / n,
                op,
                [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
            );
        }
        out
    }

    fn edge_dot(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        let (x, y) = (Matrix::new(x), Matrix::new(y));
        let (gpu, dtype) = (x.gpu(), x.dtype());
        let view = View::new(&pattern, &gpu);
        let out = output(&gpu, &pattern, &view, heads, dtype);
        let (Some(out), true) = (out, x.cols > 0) else {
            return gpu.zeros(heads_shape(&pattern, heads), dtype);
        };
        let d = x.cols / heads;
        let n = vector_size(&gpu, dtype, &[d, x.stride, y.stride]);
        let to = Matrix::new(out.clone());
        let elements = x.elements().max(y.elements()).max(to.elements());
        let (grid, dim) = gpu.elementwise(view.entries() * heads, elements);
        // SAFETY: as above.
        unsafe {
            edge_dots::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                n,
                view.rows(),
                view.columns(),
                view.slots(),
                x.arg(),
                y.arg(),
                to.arg(),
                view.entries(),
                heads,
                d / n,
                x.stride / n,
                y.stride / n,
                [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
            );
        }
        out
    }

    fn edge_mm(pattern: Pattern, weights: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let (weights, y) = (Matrix::new(weights), Matrix::new(dense));
        let (gpu, dtype) = (y.gpu(), y.dtype());
        let shape = rows_shape(&pattern, &[y.rows, y.cols].into());
        let view = View::new(&pattern, &gpu);
        if view.entries() == 0 || shape.num_elements() == 0 {
            return gpu.zeros(shape, dtype);
        }
        let d = y.cols / weights.cols;
        let n = vector_size(&gpu, dtype, &[d, y.stride]);
        let launch = |bounds: BufferArg, rows: usize, out: &CubeTensor, find: RowBounds| {
            let types = [dtype, accumulator(dtype), out.dtype].map(dtype_to_elem_type);
            let to = Matrix::new(out.clone());
            let elements = weights.elements().max(y.elements()).max(to.elements());
            let (grid, dim) = gpu.elementwise(rows * y.cols / n, elements);
            // SAFETY: entries, columns and slots are within the operands, as the pattern was checked; the kernel leaves out rows
            // past the last.
            unsafe {
                edge_sums::launch_unchecked(
                    &gpu.client,
                    grid.count(),
                    dim,
                    grid.address(),
                    n,
                    bounds,
                    view.columns(),
                    view.slots(),
                    weights.arg(),
                    y.arg(),
                    to.arg(),
                    rows,
                    y.cols / n,
                    d / n,
                    weights.stride,
                    y.stride / n,
                    find,
                    [types[0], types[1], types[2], view.index()],
                );
            }
        };
        let out = gpu.empty(shape.clone(), dtype);
        let Some(pieces) = pieces(&gpu, &view, y.cols, accumulator(dtype)) else {
            launch(view.offsets(), shape[0], &out, RowBounds { step: 1, longest: None });
            return out;
        };
        launch(view.offsets(), shape[0], &out, RowBounds { step: 1, longest: Some(PIECE as u32) });
        let sums = gpu.empty([pieces.count(), y.cols], accumulator(dtype));
        launch(view.piece_bounds(), pieces.count(), &sums, RowBounds { step: 2, longest: None });
        combine(&gpu, &view, pieces, sums, &out, false);
        out
    }
}
