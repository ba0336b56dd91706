//! sddmm on CubeCL devices: which kernel for which shape, and its launch.

mod kernels;

use super::SddmmOps;
use crate::backend::gpu::{Gpu, Matrix, View, accumulator, output_values, vector_size};
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::CubeDim;
use kernels::{BATCH, Share, sampled_products};

/// From this many columns on, lanes share an entry.
const SHARED: usize = 16;
/// How many lanes.
const LANES: usize = 8;
/// Bytes of X that a lane keeps in registers.
const KEPT: usize = 128;
/// With more entries than this a group of lanes takes several rounds.
const MANY_ENTRIES: usize = 1 << 20;

impl SddmmOps for CubeBackend {
    fn sddmm(pattern: Pattern, x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, y) = (Matrix::new(x), Matrix::new(y));
        products(&x.gpu(), &pattern, &x, &y)
    }
}

/// `<X_i, Y_j>` at each stored entry (i, j).
pub(crate) fn products(gpu: &Gpu, pattern: &Pattern, x: &Matrix, y: &Matrix) -> CubeTensor {
    let (view, dtype) = (View::new(pattern, gpu), x.dtype());
    let entries = view.entries();
    if entries == 0 || x.cols == 0 {
        return gpu.zeros([pattern.nnz()], dtype);
    }
    let out = output_values(gpu, pattern.nnz(), entries, dtype);
    let n = vector_size(gpu, dtype, &[x.cols, x.stride, y.stride]);
    let width = x.cols / n;
    let elements = pattern.nnz().max(x.elements()).max(y.elements());
    let added = accumulator(dtype);
    let types = [dtype_to_elem_type(dtype), dtype_to_elem_type(added), view.index()];
    let lanes = gpu.lanes(LANES);
    let share = if x.cols < SHARED || (lanes.width as usize) < BATCH {
        Share::Units
    } else {
        let kept = width.div_ceil(lanes.width as usize);
        Share::Groups {
            rounds: if entries > MANY_ENTRIES { 4 } else { 1 },
            kept: if kept * n * added.size() <= KEPT { kept } else { 0 },
        }
    };
    let entries_a_cube = match share {
        Share::Units => lanes.units,
        Share::Groups { rounds, .. } => lanes.units * rounds,
    };
    let grid = gpu.grid(entries, entries_a_cube as usize, elements);
    // SAFETY: rows, columns and slots are within the operands, as the pattern was checked; the kernel leaves out entries past the
    // last, and columns from `width` on.
    unsafe {
        sampled_products::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(lanes.units),
            grid.address(),
            n,
            view.rows(),
            view.columns(),
            view.slots(),
            x.arg(),
            y.arg(),
            Matrix::vector(&out).arg(),
            entries,
            width,
            x.stride / n,
            y.stride / n,
            share,
            lanes,
            types,
        );
    }
    out
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::backend::gpu::testing::{gpu, numbers, pattern, read, upload};
    use cubecl::features::Plane;

    #[test]
    fn planes_and_shared_memory_give_the_same_bits() {
        let mut gpu = gpu();
        let pattern = pattern(&[0, 1, 9, 300, 2, 77], 50);
        for k in [16, 33, 100, 600] {
            let x = Matrix::new(upload(&gpu, &numbers(6 * k), [6, k]));
            let y = Matrix::new(upload(&gpu, &numbers(50 * k), [50, k]));
            let mut run = |plane| {
                gpu.plane = plane;
                read(&products(&gpu, &pattern, &x, &y))
            };
            let without = run(Default::default());
            assert_eq!(run(Plane::Ops.into()), without, "k = {k}");
        }
    }
}
