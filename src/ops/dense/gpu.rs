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
use kernels::{Way, at_entries};

impl DenseOps for CubeBackend {
    fn to_dense(pattern: Pattern, values: FloatTensor<Self>) -> FloatTensor<Self> {
        let (pattern, values) = merged(pattern, values);
        let out = Matrix::new(Gpu::of(&values).zeros(pattern.shape(), values.dtype));
        at(&pattern, &Matrix::vector(&values), &out, out.stride, Way::Scatter);
        out.into_tensor()
    }

    fn add_to_dense(pattern: Pattern, values: FloatTensor<Self>, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let (pattern, values) = merged(pattern, values);
        let out = Matrix::owned(dense);
        at(&pattern, &Matrix::vector(&values), &out, out.stride, Way::Add);
        out.into_tensor()
    }

    fn sample(pattern: Pattern, dense: FloatTensor<Self>) -> FloatTensor<Self> {
        let dense = Matrix::new(dense);
        let gpu = dense.gpu();
        let values = output_values(&gpu, pattern.nnz(), View::new(&pattern, &gpu).entries(), dense.dtype());
        at(&pattern, &dense, &Matrix::vector(&values), dense.stride, Way::Sample);
        values
    }
}

/// Without duplicates, so that each position has one owner.
fn merged(pattern: Pattern, values: FloatTensor<CubeBackend>) -> (Pattern, FloatTensor<CubeBackend>) {
    if !pattern.has_duplicates() {
        return (pattern, into_contiguous(values));
    }
    let merged = pattern.coalesce();
    let values = match merged.gather {
        Some(gather) => CubeBackend::gather(gather, values),
        None => into_contiguous(values),
    };
    (merged.pattern, values)
}

/// One launch for all entries; rows of the dense one of the two lie `stride` elements apart.
fn at(pattern: &Pattern, from: &Matrix, to: &Matrix, stride: usize, way: Way) {
    let gpu = from.gpu();
    let view = View::new(pattern, &gpu);
    let entries = view.entries();
    if entries == 0 {
        return;
    }
    let (grid, dim) = gpu.elementwise(entries, from.elements().max(to.elements()));
    // SAFETY: positions and slots are within the operands, as the pattern was checked; the kernel leaves out entries past the
    // last.
    unsafe {
        at_entries::launch_unchecked(
            &gpu.client,
            grid.count(),
            dim,
            grid.address(),
            view.rows(),
            view.columns(),
            view.slots(),
            from.arg(),
            to.arg(),
            entries,
            stride,
            way,
            [dtype_to_elem_type(from.dtype()), view.index()],
        );
    }
}
