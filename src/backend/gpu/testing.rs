//! Kernels under test without the layers above, on whatever device wgpu finds.

use super::Gpu;
use super::buffers::cube_device;
use crate::pattern::Pattern;
use burn::tensor::{Bytes, DType, Device, DeviceKind, Shape};
use burn_cubecl::tensor::CubeTensor;

/// The device as it is.
pub(crate) fn gpu() -> Gpu {
    let device = cube_device(&Device::wgpu(DeviceKind::DefaultDevice)).expect("wgpu is a CubeCL device");
    Gpu::new(device.client(), device)
}

/// `n` numbers whose sums round.
pub(crate) fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 1009) as f32 / 331.0 - 1.5).collect()
}

/// Rows of these lengths with scattered columns.
pub(crate) fn pattern(lengths: &[usize], n_columns: usize) -> Pattern {
    let mut offsets = vec![0];
    for length in lengths {
        offsets.push(offsets[offsets.len() - 1] + length);
    }
    let columns: Vec<usize> = (0..offsets[lengths.len()]).map(|e| e * 31 % n_columns).collect();
    Pattern::csr(offsets, columns, [lengths.len(), n_columns]).expect("a valid pattern")
}

pub(crate) fn upload(gpu: &Gpu, values: &[f32], shape: impl Into<Shape>) -> CubeTensor {
    let handle = gpu.client.create(Bytes::from_elems(values.to_vec()));
    CubeTensor::new_contiguous(gpu.client.clone(), gpu.device.clone(), shape.into(), handle, DType::F32)
}

pub(crate) fn read(tensor: &CubeTensor) -> Vec<f32> {
    let bytes = tensor.client.read_one_unchecked(tensor.handle.clone());
    let elements = tensor.meta.shape().num_elements();
    bytemuck::pod_collect_to_vec::<u8, f32>(&bytes)[..elements].to_vec()
}
