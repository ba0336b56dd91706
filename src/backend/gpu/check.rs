//! What a device lacks, found before dispatch: cubecl launches kernels of types that a device does not have, and returns
//! garbage; a size that does not fit would wrap.

use super::accumulator;
use super::buffers::{cube_device, index_type};
use super::launch::required_address;
use crate::backend::check::device_name;
use crate::error::OpError;
use crate::pattern::Pattern;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::{DType, Device};
use cubecl::features::TypeUsage;
use cubecl::ir::{AddressType, DeviceProperties, ElemType};

/// Whether the kernels can run on the device: on operands of `dtype` at this pattern, with dense operands and results of
/// these shapes, each named. Always so where the device is not a CubeCL one.
///
/// # Errors
/// If the device lacks the dtype or the index type, or something is too large for it.
pub(crate) fn check(
    op: &'static str,
    device: &Device,
    dtype: DType,
    pattern: &Pattern,
    dense: &[(&'static str, [usize; 2])],
) -> Result<(), OpError> {
    let Some(cube) = cube_device(device) else {
        return Ok(());
    };
    let client = cube.client();
    let properties = client.properties();
    if !computes(properties, dtype, accumulator(dtype)) {
        return Err(OpError::UnsupportedDType { op, dtype, device: device_name(device) });
    }
    let too_large = |what, size, limit| OpError::TooLarge { op, what, size, limit, device: device_name(device) };
    let index = index_type(pattern);
    let [rows, cols] = pattern.shape();
    if !stores(properties, index) {
        let largest = rows.max(cols).max(pattern.nnz());
        return Err(too_large("index", largest as u128, i32::MAX as u128));
    }
    let value = dtype.size() as u128;
    let (nnz, index) = (pattern.nnz() as u128, index.size() as u128);
    let mut buffers = vec![
        ("entries", nnz, value.max(index)),
        ("rows", rows as u128 + 1, index),
        ("columns", cols as u128 + 1, index),
    ];
    buffers.extend(dense.iter().map(|&(name, [rows, cols])| (name, rows as u128 * cols as u128, value)));
    refuse(properties, &buffers).map_or(Ok(()), |(what, size, limit)| Err(too_large(what, size, limit)))
}

/// Whether the device is a CubeCL one.
pub(crate) fn is_cube(device: &Device) -> bool {
    cube_device(device).is_some()
}

/// Whether the device runs shaders of wgpu.
pub(crate) fn is_wgpu(device: &Device) -> bool {
    cube_device(device).is_some_and(|cube| cube.client().name().starts_with("wgpu"))
}

/// The first of these buffers, of so many elements of so many bytes, that the device can't hold or address; its size and the limit.
fn refuse(properties: &DeviceProperties, buffers: &[(&'static str, u128, u128)]) -> Option<(&'static str, u128, u128)> {
    let bytes = u128::from(properties.memory.max_page_size);
    let limit = |&(what, elements, size): &(&'static str, u128, u128)| {
        let addressed = match required_address(elements) {
            Some(AddressType::U32) => true,
            Some(wide) => properties.supports_address(wide),
            None => false,
        };
        if !addressed {
            Some((what, elements, u128::from(u32::MAX)))
        } else if elements * size > bytes {
            Some((what, elements, bytes / size))
        } else {
            None
        }
    };
    buffers.iter().find_map(limit)
}

/// Whether the device reads and writes a type.
fn stores(properties: &DeviceProperties, ty: ElemType) -> bool {
    properties.type_usage(ty).is_superset(TypeUsage::Buffer | TypeUsage::Conversion)
}

/// Whether it stores a type and adds in the other.
fn computes(properties: &DeviceProperties, stored: DType, added: DType) -> bool {
    let [stored, added] = [stored, added].map(dtype_to_elem_type);
    stores(properties, stored) && properties.type_usage(added).contains(TypeUsage::Arithmetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cubecl::ir::{DeviceIdentity, HardwareProperties, MemoryDeviceProperties};

    /// A device as WebGPU promises it, with bindings of `page` bytes.
    fn properties(page: u64) -> DeviceProperties {
        let hardware = HardwareProperties {
            load_width: 128,
            vector_register_count: None,
            plane_size_min: 32,
            plane_size_max: 32,
            max_bindings: 7,
            max_shared_memory_size: 16 << 10,
            max_cube_count: (65_535, 65_535, 65_535),
            max_units_per_cube: 256,
            max_cube_dim: (256, 256, 64),
            num_streaming_multiprocessors: None,
            num_cpu_cores: None,
            last_level_cache_size: None,
            num_tensor_cores: None,
            min_tensor_cores_dim: None,
            max_vector_size: 4,
            cube_mma_reserved_shared_memory: 0,
        };
        DeviceProperties::new(
            Default::default(),
            MemoryDeviceProperties::new(page, 256),
            hardware,
            cubecl::profile::TimingMethod::System,
            DeviceIdentity::default(),
        )
    }

    #[test]
    fn sizes_beyond_a_binding_are_refused() {
        let device = properties(i32::MAX as u64);
        assert_eq!(refuse(&device, &[("B", 1 << 20, 4), ("C", 8_643_286 * 128, 1)]), None);
        let (what, size, limit) = refuse(&device, &[("C", 8_643_286 * 256, 4)]).unwrap();
        assert_eq!((what, size, limit), ("C", 2_212_681_216, 536_870_911));
    }

    #[test]
    fn elements_beyond_32_bits_are_refused_without_64_bit_addresses() {
        let mut device = properties(1 << 40);
        let large = [("C", 256 * 16_777_217, 4)];
        assert_eq!(refuse(&device, &large), Some(("C", 4_294_967_552, u128::from(u32::MAX))));
        assert!(refuse(&device, &[("C", 1 << 34, 4)]).is_some());
        device.register_address_type(AddressType::U64);
        assert_eq!(refuse(&device, &large), None);
        assert_eq!(refuse(&device, &[("C", 1 << 34, 4)]), None);
        assert!(refuse(&device, &[("C", u128::MAX / 32, 4)]).is_some());
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_real_device_is_asked() {
        use super::super::testing::{gpu, pattern};
        let device = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice);
        let pattern = pattern(&[1, 2], 3);
        let check = |dtype, shape| check("spmm", &device, dtype, &pattern, &[("B", shape)]);
        assert_eq!(check(DType::F32, [3, 64]), Ok(()));
        let refused = check(DType::F32, [1 << 20, 1 << 20]);
        assert!(matches!(refused, Err(OpError::TooLarge { what: "B", .. })), "{refused:?}");
        let has_bf16 =
            gpu().client.properties().type_usage(dtype_to_elem_type(DType::BF16)).contains(TypeUsage::Buffer);
        let refused = check(DType::BF16, [3, 64]);
        assert_eq!(matches!(refused, Err(OpError::UnsupportedDType { .. })), !has_bf16, "{refused:?}");
    }

    #[test]
    fn missing_types_are_seen() {
        let device = properties(1 << 30);
        assert!(!computes(&device, DType::F64, accumulator(DType::F64)));
        assert!(!stores(&device, dtype_to_elem_type(DType::I64)));
    }
}
