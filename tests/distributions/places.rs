//! Where the tables are run.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// A device, and a type of the numbers on it.
#[derive(Clone)]
pub struct Place {
    pub name: &'static str,
    pub device: Device,
    pub dtype: DType,
}

impl Place {
    /// The CPU in f64, against which everything is checked to 1e-10.
    pub fn cpu() -> Self {
        Self { name: "flex", device: Device::flex(), dtype: DType::F64 }
    }

    /// The CPU in both types, and with the feature `wgpu` what that finds, which has no f64.
    pub fn all() -> Vec<Self> {
        let single = Self { dtype: DType::F32, ..Self::cpu() };
        #[allow(unused_mut, reason = "wgpu is a feature")]
        let mut places = vec![Self::cpu(), single];
        #[cfg(feature = "wgpu")]
        places.push(Self {
            name: "wgpu",
            device: Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            dtype: DType::F32,
        });
        places
    }

    /// With gradients.
    pub fn autodiff(&self) -> Self {
        Self { device: self.device.clone().autodiff(), ..self.clone() }
    }

    pub fn tensor<const D: usize>(&self, values: &[f64], shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values.to_vec(), shape), (&self.device, self.dtype))
    }

    /// Within 1e-10 in f64, and 4096 roundings in f32; of numbers below 1, absolutely.
    #[track_caller]
    pub fn close(&self, what: &str, found: &[f64], expected: &[f64]) {
        let tolerance = if self.dtype == DType::F64 { 1e-10 } else { 4096.0 * f64::from(f32::EPSILON) };
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(expected) {
            let near = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
            assert!(near, "{what} on {} in {:?}: {found}, not {expected}", self.name, self.dtype);
        }
    }
}

pub fn read<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}
