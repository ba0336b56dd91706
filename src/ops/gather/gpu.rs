//! gather on CubeCL devices.

mod kernels;

use super::GatherOps;
use crate::backend::gpu::{Gpu, Matrix, View, accumulator};
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::CubeDim;
use kernels::gather_rows;

impl GatherOps for CubeBackend {
    fn gather(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self> {
        let (values, [rows, _]) = (into_contiguous(values), pattern.shape());
        let (gpu, dtype) = (Gpu::of(&values), values.dtype);
        let view = View::new(&pattern, &gpu);
        let entries = view.entries();
        if rows == 0 || entries == 0 {
            return gpu.zeros([rows], dtype);
        }
        let out = gpu.empty([rows], dtype);
        let values = Matrix::vector(&values);
        let lanes = gpu.lanes_for_rows(rows, entries);
        let grid = gpu.grid(rows, lanes.groups(), entries.max(values.elements()));
        // SAFETY: columns are within the values, as the pattern was checked; the kernel leaves out rows past the last.
        unsafe {
            gather_rows::launch_unchecked(
                &gpu.client,
                grid.count(),
                CubeDim::new_1d(lanes.units),
                grid.address(),
                view.offsets(),
                view.columns(),
                values.arg(),
                Matrix::vector(&out).arg(),
                rows,
                lanes,
                [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
            );
        }
        out
    }
}
