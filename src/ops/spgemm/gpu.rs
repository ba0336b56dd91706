//! spgemm on CubeCL devices: each value walks the list of pairs that meet there, made on the host once for a plan and kept on
//! the device with it.

mod kernels;

use super::plan::{Meetings, Of};
use super::{SpgemmOps, SpgemmPlan};
use crate::backend::gpu::{Gpu, Matrix, View, accumulator};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::CubeDim;
use kernels::pair_products;

impl SpgemmOps for CubeBackend {
    fn spgemm(plan: SpgemmPlan, left: FloatTensor<Self>, right: FloatTensor<Self>) -> FloatTensor<Self> {
        sums(&plan.meetings(Of::Product), left, right)
    }

    fn spgemm_left(plan: SpgemmPlan, right: FloatTensor<Self>, product: FloatTensor<Self>) -> FloatTensor<Self> {
        sums(&plan.meetings(Of::Left), right, product)
    }
}

/// The sum of the products of each row's pairs.
fn sums(pairs: &Meetings, x: CubeTensor, y: CubeTensor) -> CubeTensor {
    let (x, y) = (into_contiguous(x), into_contiguous(y));
    let (gpu, dtype, [rows, _]) = (Gpu::of(&x), x.dtype, pairs.x.shape());
    let [x_view, y_view] = [&pairs.x, &pairs.y].map(|pattern| View::new(pattern, &gpu));
    let entries = x_view.entries();
    if rows == 0 || entries == 0 {
        return gpu.zeros([rows], dtype);
    }
    let out = gpu.empty([rows], dtype);
    let (x, y) = (Matrix::vector(&x), Matrix::vector(&y));
    let lanes = gpu.lanes_for_rows(rows, entries);
    let grid = gpu.grid(rows, lanes.groups(), entries.max(x.elements()).max(y.elements()));
    // SAFETY: slots are within the values, as the plan was made for them; the kernel leaves out rows past the last.
    unsafe {
        pair_products::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(lanes.units),
            grid.address(),
            x_view.offsets(),
            x_view.columns(),
            y_view.columns(),
            x.arg(),
            y.arg(),
            Matrix::vector(&out).arg(),
            rows,
            lanes,
            [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), x_view.index()],
        );
    }
    out
}
