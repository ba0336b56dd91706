//! Operands and outputs as the kernels take them.

use super::Gpu;
use burn::tensor::DType;
use burn_cubecl::kernel::{into_contiguous_aligned, untile};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::BufferArg;

/// A dense operand whose rows are contiguous and lie `stride` elements apart.
#[derive(Clone)]
pub(crate) struct Matrix {
    tensor: CubeTensor,
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
}

impl Matrix {
    /// Any view: one with contiguous rows (sliced, padded by the allocator) as it is, others are copied.
    pub fn new(tensor: CubeTensor) -> Self {
        let mut tensor = untile(tensor);
        if row_stride(&tensor).is_none() {
            tensor = into_contiguous_aligned(tensor);
        }
        let stride = row_stride(&tensor).expect("the rows of a copy are contiguous");
        let [rows, cols] = [tensor.meta.shape()[0], tensor.meta.shape()[1]];
        Self { tensor, rows, cols, stride }
    }

    /// One to be changed: this tensor if nothing else holds it and its rows are contiguous, a copy otherwise.
    pub fn owned(tensor: CubeTensor) -> Self {
        let tensor = untile(tensor);
        let rows = row_stride(&tensor);
        if tensor.meta.shape().num_elements() == 0 || (rows.is_some() && tensor.can_mut()) {
            return Self::new(tensor);
        }
        // A view with gaps is copied by making it contiguous, another as it is.
        match rows {
            Some(_) => Self::new(tensor.copy()),
            None => Self::new(tensor),
        }
    }

    /// A tensor of one dimension without gaps, as a single row.
    pub fn vector(tensor: &CubeTensor) -> Self {
        let cols = tensor.meta.shape()[0];
        Self { tensor: tensor.clone(), rows: 1, cols, stride: cols }
    }

    /// The tensor, perhaps a copy of what it was made of.
    pub fn into_tensor(self) -> CubeTensor {
        self.tensor
    }

    /// The device.
    pub fn gpu(&self) -> Gpu {
        Gpu::of(&self.tensor)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    /// The elements from the first to the last, gaps between rows included.
    pub fn elements(&self) -> usize {
        match self.rows {
            0 => 0,
            rows => (rows - 1) * self.stride + self.cols,
        }
    }

    /// As an argument of a kernel.
    pub fn arg(&self) -> BufferArg {
        arg(&self.tensor, self.elements())
    }
}

/// An operand with any strides.
pub(crate) struct AnyView<const D: usize> {
    tensor: CubeTensor,
    pub strides: [usize; D],
    /// From the first to the last, gaps included.
    pub elements: usize,
}

/// A tensor as it lies, whatever its strides.
pub(crate) fn any_view<const D: usize>(tensor: CubeTensor) -> AnyView<D> {
    let tensor = untile(tensor);
    let strides = std::array::from_fn(|dim| tensor.meta.strides()[dim]);
    let last = |dim: usize| tensor.meta.shape()[dim].saturating_sub(1) * tensor.meta.strides()[dim];
    let empty = tensor.meta.shape().num_elements() == 0;
    let elements = if empty { 0 } else { (0..D).map(last).sum::<usize>() + 1 };
    AnyView { tensor, strides, elements }
}

impl<const D: usize> AnyView<D> {
    /// As an argument of a kernel.
    pub fn arg(&self) -> BufferArg {
        arg(&self.tensor, self.elements)
    }
}

/// How far apart rows lie, if each is contiguous and none overlaps the next.
fn row_stride(tensor: &CubeTensor) -> Option<usize> {
    let [rows, cols] = [tensor.meta.shape()[0], tensor.meta.shape()[1]];
    let [row, column] = [tensor.meta.strides()[0], tensor.meta.strides()[1]];
    // The stride of a single row or column is never used, and may be anything.
    let stride = if rows <= 1 { cols } else { row };
    ((column == 1 || cols <= 1) && stride >= cols).then_some(stride)
}

/// The first `elements` of a tensor's memory as an argument of a kernel.
pub(super) fn arg(tensor: &CubeTensor, elements: usize) -> BufferArg {
    // SAFETY: the caller counts elements by shape and strides, which the memory holds.
    unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), elements) }
}

/// How many elements the kernels load at once: the most that divides all of these lengths.
pub(crate) fn vector_size(gpu: &Gpu, dtype: DType, lengths: &[usize]) -> usize {
    gpu.client
        .io_optimized_vector_sizes(dtype.size())
        .filter(|size| lengths.iter().all(|length| length % size == 0))
        .max()
        .unwrap_or(1)
}

/// Room for the values of a pattern, zero where there are values that no entry has.
pub(crate) fn output_values(gpu: &Gpu, stored: usize, entries: usize, dtype: DType) -> CubeTensor {
    if stored == entries { gpu.empty([stored], dtype) } else { gpu.zeros([stored], dtype) }
}
