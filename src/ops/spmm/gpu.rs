//! spmm on CubeCL devices: which kernel for which shape, and its launch.
//!
//! | columns | kernel |
//! |---|---|
//! | up to 8 | lanes share a row and add up in a tree |
//! | more | lanes own columns, in tiles where there are many |
//!
//! Rows that are long beside the others, or where there are few, are cut into pieces whose sums a last launch adds in order.
//! The gradients are fused into one walk where planes and the number of columns allow it.

mod kernels;

use super::{SpmmOps, product_shape};
use crate::backend::gpu::lanes::Lanes;
use crate::backend::gpu::{Gpu, Matrix, PIECE, Pieces, View, accumulator, output_values, vector_size};
use crate::ops::sddmm::gpu::products;
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::Plane;
use cubecl::prelude::{BufferArg, CubeDim};
use kernels::{RowBounds, spmm_backward_fused, spmm_columns, spmm_combine, spmm_shared};

/// Up to this many columns lanes share rows.
const SHARED: usize = 8;
/// A row of the dense operand up to this many bytes is not cut into tiles.
const WHOLE: usize = 512;
/// Bytes of a row that a tile takes.
const TILE: usize = 256;
/// Buffers of the fused gradients: some devices bind fewer.
const FUSED_BUFFERS: u32 = 8;

impl SpmmOps for CubeBackend {
    fn spmm(pattern: Pattern, values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let (values, dense) = (into_contiguous(values), Matrix::new(dense));
        product(&Gpu::of(&values), &pattern, &values, &dense)
    }

    fn spmm_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        dense: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (values, dense, grad) = (into_contiguous(values), Matrix::new(dense), Matrix::new(grad));
        let gpu = Gpu::of(&values);
        if let Some((lanes, n)) = fused_lanes(&gpu, &pattern, &dense, &grad) {
            return fused(&gpu, &pattern, &values, &dense, &grad, lanes, n);
        }
        (products(&gpu, &pattern, &grad, &dense), product(&gpu, &pattern.t(), &values, &grad))
    }
}

/// `A B`.
fn product(gpu: &Gpu, pattern: &Pattern, values: &CubeTensor, dense: &Matrix) -> CubeTensor {
    let (view, dtype) = (View::new(pattern, gpu), values.dtype);
    let shape = product_shape(pattern, &[dense.rows, dense.cols].into());
    if view.entries() == 0 || shape.num_elements() == 0 {
        return gpu.zeros(shape, dtype);
    }
    let rows = shape[0];
    let out = gpu.empty(shape, dtype);
    let launch = Launch { gpu, view: &view, values, dense };
    let fits = |pieces: &&Pieces| gpu.holds(pieces.count() * dense.cols, accumulator(dtype));
    let Some(pieces) = view.pieces().filter(fits) else {
        launch.rows(view.offsets(), rows, RowBounds { step: 1, longest: None }, &out);
        return out;
    };
    let longest = Some(PIECE as u32);
    launch.rows(view.offsets(), rows, RowBounds { step: 1, longest }, &out);
    let sums = gpu.empty([pieces.count(), dense.cols], accumulator(dtype));
    launch.rows(view.piece_bounds(), pieces.count(), RowBounds { step: 2, longest: None }, &sums);
    launch.combine(pieces.rows.len(), sums, &out);
    out
}

/// What the launches of one product have in common.
struct Launch<'a> {
    gpu: &'a Gpu,
    view: &'a View<'a>,
    values: &'a CubeTensor,
    dense: &'a Matrix,
}

impl Launch<'_> {
    /// Sums `count` rows, or pieces of rows, into the rows of `out`.
    fn rows(&self, bounds: BufferArg, count: usize, find: RowBounds, out: &CubeTensor) {
        let Self { gpu, view, values, dense } = self;
        let n = vector_size(gpu, values.dtype, &[dense.cols, dense.stride]);
        let width = dense.cols / n;
        let out = Matrix::new(out.clone());
        let elements = view.entries().max(dense.elements()).max(out.elements());
        let types = [values.dtype, accumulator(values.dtype), out.dtype()].map(dtype_to_elem_type);
        let types = [types[0], types[1], types[2], view.index()];
        let values = Matrix::vector(values);
        if dense.cols <= SHARED {
            let lanes = gpu.lanes_for_rows(count, view.entries());
            let grid = gpu.grid(count, lanes.groups(), elements);
            // SAFETY: entries, rows and columns are within the operands, as the pattern was checked; the kernel leaves out
            // rows from `count` on.
            unsafe {
                spmm_shared::launch_unchecked(
                    &gpu.client,
                    grid.count(),
                    CubeDim::new_1d(lanes.units),
                    grid.address(),
                    n,
                    bounds,
                    view.columns(),
                    view.slots(),
                    values.arg(),
                    dense.arg(),
                    out.arg(),
                    count,
                    dense.stride / n,
                    find,
                    width,
                    lanes,
                    types,
                );
            }
        } else {
            let lanes = column_lanes(width, n * dense.dtype().size(), gpu.units() as usize);
            let rows_a_cube = gpu.units() as usize / lanes;
            let row_cubes = count.div_ceil(rows_a_cube);
            let tiles = width.div_ceil(lanes);
            let grid = gpu.grid(row_cubes * tiles * rows_a_cube, rows_a_cube, elements);
            // SAFETY: as above; the kernel leaves out columns from `width` on, too, and tiles past the last have no others.
            unsafe {
                spmm_columns::launch_unchecked(
                    &gpu.client,
                    grid.count(),
                    CubeDim::new_2d(lanes as u32, rows_a_cube as u32),
                    grid.address(),
                    n,
                    bounds,
                    view.columns(),
                    view.slots(),
                    values.arg(),
                    dense.arg(),
                    out.arg(),
                    count,
                    row_cubes,
                    width,
                    dense.stride / n,
                    find,
                    types,
                );
            }
        }
    }

    /// Adds the sums of pieces to the long rows of `out`.
    fn combine(&self, long_rows: usize, sums: CubeTensor, out: &CubeTensor) {
        let Self { gpu, view, dense, .. } = self;
        let n = vector_size(gpu, sums.dtype, &[dense.cols]);
        let width = dense.cols / n;
        let [added, written] = [sums.dtype, out.dtype].map(dtype_to_elem_type);
        let (sums, out) = (Matrix::new(sums), Matrix::new(out.clone()));
        let elements = sums.elements().max(out.elements());
        let (grid, dim) = gpu.elementwise(long_rows * width, elements);
        // SAFETY: long rows are rows of `out`, and their pieces those that were summed; the kernel leaves out what lies past.
        unsafe {
            spmm_combine::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                n,
                view.first_pieces(),
                view.long_rows(),
                sums.arg(),
                out.arg(),
                long_rows,
                width,
                [added, written, view.index()],
            );
        }
    }
}

/// How many lanes own the columns of a row, `width` vectors of `bytes`: all of them, or those of one of a few equal tiles.
fn column_lanes(width: usize, bytes: usize, units: usize) -> usize {
    let tile = if width * bytes <= WHOLE { width } else { TILE.div_ceil(bytes) };
    let tiles = width.div_ceil(tile.min(units));
    width.div_ceil(tiles)
}

/// The lanes of the fused gradient and its vector size, `None` where the two other kernels have to do it.
fn fused_lanes(gpu: &Gpu, pattern: &Pattern, dense: &Matrix, grad: &Matrix) -> Option<(Lanes, usize)> {
    let n = vector_size(gpu, dense.dtype(), &[dense.cols, dense.stride, grad.stride]);
    let width = dense.cols / n;
    let lanes = gpu.lanes(width);
    // The planes of a cube go round different numbers of times.
    let independent = lanes.sync || gpu.plane.contains(Plane::NonUniformControlFlow);
    let bound = gpu.client.properties().hardware.max_bindings >= FUSED_BUFFERS;
    let fits = lanes.planes && independent && bound && width >= 4 && lanes.width as usize == width;
    let view = pattern.t();
    (fits && pattern.nnz() > 0 && view.pieces().is_none()).then_some((lanes, n))
}

/// Both gradients in one walk.
fn fused(
    gpu: &Gpu,
    pattern: &Pattern,
    values: &CubeTensor,
    dense: &Matrix,
    grad: &Matrix,
    lanes: Lanes,
    n: usize,
) -> (CubeTensor, CubeTensor) {
    let transposed = pattern.t();
    let view = View::new(&transposed, gpu);
    let dtype = values.dtype;
    let d_values = output_values(gpu, pattern.nnz(), view.entries(), dtype);
    let d_dense = gpu.empty([dense.rows, dense.cols], dtype);
    let elements = view.entries().max(dense.elements()).max(grad.elements());
    let grid = gpu.grid(dense.rows, lanes.groups(), elements);
    // SAFETY: entries, rows and columns are within the operands, as the pattern was checked; the kernel leaves out columns of
    // A past the last.
    unsafe {
        spmm_backward_fused::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(lanes.units),
            grid.address(),
            n,
            view.offsets(),
            view.columns(),
            view.slots(),
            Matrix::vector(values).arg(),
            dense.arg(),
            grad.arg(),
            Matrix::vector(&d_values).arg(),
            Matrix::new(d_dense.clone()).arg(),
            dense.rows,
            dense.stride / n,
            grad.stride / n,
            lanes,
            [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
        );
    }
    (d_values, d_dense)
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::backend::gpu::testing::{gpu, numbers, pattern, read, upload};

    const LENGTHS: [usize; 12] = [0, 1, 3, 7, 8, 9, 40, 33, 700, 2, 0, 16];

    #[test]
    fn lanes_cover_the_columns_in_equal_tiles() {
        assert_eq!(column_lanes(25, 16, 256), 25); // 100 f32
        assert_eq!(column_lanes(32, 16, 256), 32); // 128
        assert_eq!(column_lanes(75, 16, 256), 15); // 300, five tiles
        assert_eq!(column_lanes(33, 4, 256), 33);
        assert_eq!(column_lanes(300, 4, 2), 2);
        assert_eq!(column_lanes(1, 16, 1), 1);
    }

    /// Shuffles do not depend on what the device says of them here: software devices run them, but do not report them.
    #[test]
    fn planes_and_shared_memory_give_the_same_bits() {
        let mut gpu = gpu();
        let pattern = pattern(&LENGTHS, 50);
        for k in [1, 3, 4, 8] {
            let values = upload(&gpu, &numbers(pattern.nnz()), [pattern.nnz()]);
            let dense = Matrix::new(upload(&gpu, &numbers(50 * k), [50, k]));
            let mut run = |plane| {
                gpu.plane = plane;
                read(&product(&gpu, &pattern, &values, &dense))
            };
            let without = run(Default::default());
            assert_eq!(run(Plane::Ops.into()), without, "k = {k}");
        }
    }

    #[test]
    fn fused_gradients_are_those_of_two_kernels() {
        let mut gpu = gpu();
        gpu.plane = Plane::Ops | Plane::NonUniformControlFlow;
        let pattern = pattern(&LENGTHS, 50);
        let widest = gpu.lanes(32).width as usize;
        for width in [4, 8, 16, 32].into_iter().filter(|width| *width <= widest) {
            let k = 4 * width;
            let values = upload(&gpu, &numbers(pattern.nnz()), [pattern.nnz()]);
            let dense = Matrix::new(upload(&gpu, &numbers(50 * k), [50, k]));
            let grad = Matrix::new(upload(&gpu, &numbers(LENGTHS.len() * k), [LENGTHS.len(), k]));
            let (lanes, n) = fused_lanes(&gpu, &pattern, &dense, &grad).expect("planes, and columns that fit");
            let (d_values, d_dense) = fused(&gpu, &pattern, &values, &dense, &grad, lanes, n);
            let expected = [products(&gpu, &pattern, &grad, &dense), product(&gpu, &pattern.t(), &values, &grad)];
            for (found, expected) in [d_values, d_dense].iter().zip(&expected) {
                for (found, expected) in read(found).into_iter().zip(read(expected)) {
                    assert!((found - expected).abs() < 1e-3, "{found} for {expected}, k = {k}");
                }
            }
        }
    }
}
