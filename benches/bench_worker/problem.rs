//! What a `prepare` request describes: the matrix and the dense operands.

use crate::streams;
use burn::tensor::TensorData;
use serde::Deserialize;
use sparsegrad::io::matrix_market;
use sparsegrad::prelude::*;
use std::error::Error;
use std::path::PathBuf;

/// One case, as requested.
#[derive(Deserialize)]
pub struct Problem {
    pub op: String,
    pass: String,
    matrix: Option<PathBuf>,
    #[serde(default = "one_column")]
    pub cols: usize,
    dtype: String,
    pub seed: u64,
    #[serde(default)]
    pub params: serde_json::Value,
}

fn one_column() -> usize {
    1
}

impl Problem {
    /// Whether the pass and the dtype are among those on offer.
    pub fn supported(&self) -> bool {
        ["fwd", "fwdbwd"].contains(&&*self.pass) && ["f32", "f64"].contains(&&*self.dtype)
    }

    /// Whether gradients are wanted.
    pub fn backward(&self) -> bool {
        self.pass == "fwdbwd"
    }

    fn device(&self) -> Device {
        if self.backward() { Device::flex().autodiff() } else { Device::flex() }
    }

    fn dtype(&self) -> DType {
        if self.dtype == "f64" { DType::F64 } else { DType::F32 }
    }

    /// The matrix of the file, in CSR order.
    pub fn matrix(&self) -> Result<SparseTensor<2>, Box<dyn Error>> {
        let mut file = matrix_market::read(self.matrix.as_ref().ok_or("a matrix is needed")?)?;
        file.sort_by_row();
        let values = self.tensor(file.values, [file.rows.len()]);
        Ok(SparseTensor::new(Pattern::coo(file.rows, file.cols, file.shape)?, values)?.to_csr())
    }

    /// A dense operand: the first numbers of a stream in row-major order.
    pub fn dense<const D: usize>(&self, stream: u64, shape: [usize; D]) -> Tensor<D> {
        self.tensor(streams::values(self.seed, stream).take(shape.iter().product()).collect(), shape)
    }

    /// Numbers of the problem's dtype, on its device.
    pub fn tensor<const D: usize>(&self, values: Vec<f64>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), (&self.device(), self.dtype()))
    }
}
