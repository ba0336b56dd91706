//! Sparse to dense and back on CubeCL devices.

mod kernels;

use super::DenseOps;
use crate::backend::gpu::{Gpu, Matrix, View, output_values};
use crate::ops::gather::GatherOps;
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;

impl DenseOps for CubeBackend {
    fn to_dense(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self> {
        if pattern.has_duplicates() {
            // So that each position has one owner.
            let merged = pattern.coalesce();
            let values = match merged.gather {
                Some(gather) => Self::gather(gather, values),
                None => values,
            };
            return scatter(&merged.pattern, values);
        }
        scatter(&pattern, values)
    }

    fn sample(pattern: Pattern, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let dense = Matrix::new(dense);
        let (gpu, dtype) = (dense.gpu(), dense.dtype());
        let view = View::new(&pattern, &gpu);
        let entries = view.entries();
        if entries == 0 {
            return gpu.zeros([pattern.nnz()], dtype);
        }
        let values = output_values(&gpu, pattern.nnz(), entries, dtype);
        let (grid, dim) = gpu.elementwise(entries, dense.elements());
        // SAFETY: positions and slots are within the operands, as the pattern was checked; the kernel leaves out entries past
        // the last.
        unsafe {
            kernels::sample::launch_unchecked(
                &gpu.client,
                grid.count(),
                dim,
                grid.address(),
                view.rows(),
                view.columns(),
                view.slots(),
                dense.arg(),
                Matrix::vector(&values).arg(),
                entries,
                dense.stride,
                [dtype_to_elem_type(dtype), view.index()],
            );
        }
        values
    }
}

/// The dense matrix of a pattern without duplicates.
fn scatter(pattern: &Pattern, values: FloatTensor<CubeBackend>) -> FloatTensor<CubeBackend> {
    let values = into_contiguous(values);
    let (gpu, dtype) = (Gpu::of(&values), values.dtype);
    let view = View::new(pattern, &gpu);
    let out = gpu.zeros(pattern.shape(), dtype);
    let entries = view.entries();
    if entries == 0 {
        return out;
    }
    let dense = Matrix::new(out.clone());
    let (grid, dim) = gpu.elementwise(entries, dense.elements());
    // SAFETY: positions and slots are within the operands, as the pattern was checked; the kernel leaves out entries past the
    // last.
    unsafe {
        kernels::scatter::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            view.rows(),
            view.columns(),
            view.slots(),
            Matrix::vector(&values).arg(),
            dense.arg(),
            entries,
            dense.stride,
            [dtype_to_elem_type(dtype), view.index()],
        );
    }
    out
}
