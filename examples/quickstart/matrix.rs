//! A product and its gradients on any matrix from a file, against plain loops and finite differences.

use crate::{Check, memory, worse};
use burn::tensor::TensorData;
use sparsegrad::gallery::rand::{RngExt, SeedableRng, rngs::StdRng};
use sparsegrad::io::{HostMatrix, matrix_market};
use sparsegrad::prelude::*;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

/// Columns of the dense operand.
const COLUMNS: usize = 8;

pub fn run(file: &Path, device: &Device) -> Result<Check, Box<dyn Error>> {
    // f64 where the device has it; in f32, sums of n products are right to about n times 1e-7.
    let (dtype, step, tolerance) = match device.supports_dtype(DType::F64) {
        true => (DType::F64, 1e-3, 1e-10),
        false => (DType::F32, 1e-2, 1e-4),
    };
    let device = device.clone().autodiff();
    let host = matrix_market::read(file)?.to_csr()?;
    let a = host.on((&device, dtype))?.require_grad();
    println!("{a}");
    println!("{}", a.spy(60));
    // The oracles compute with the numbers as the device has them.
    let host = HostMatrix::new(host.pattern().clone(), read(a.values()))?;

    let [m, n] = a.shape();
    let mut rng = StdRng::seed_from_u64(0);
    let mut random = |count: usize| -> Vec<f64> {
        let numbers = (0..count).map(|_| f64::from(rng.random_range(-1.0f32..1.0)));
        numbers.collect()
    };
    let (b, g) = (random(n * COLUMNS), random(m * COLUMNS));
    let (direction_a, direction_b) = (random(host.nnz()), random(b.len()));
    let dense = |values: &[f64], rows: usize| {
        Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, COLUMNS]), (&device, dtype))
    };

    let started = Instant::now();
    let operand = dense(&b, n).require_grad();
    let product = a.matmul(operand.clone());
    let grads = (product.clone() * dense(&g, m)).sum().backward();
    let da = a.grad(&grads).expect("A is tracked");
    let (c, da_values) = (read(&product), read(da.values()));
    let db = read(&operand.grad(&grads).expect("B is tracked"));
    println!("product with {COLUMNS} columns, and both gradients: {:.1?}", started.elapsed());
    println!("{}", memory(&da));

    // The definitions, as loops over the stored entries.
    let mut expected = [sums(c.len()), sums(da_values.len()), sums(db.len())];
    for (entry, (row, column, value)) in host.entries().enumerate() {
        for k in 0..COLUMNS {
            let (at_b, at_g) = (column * COLUMNS + k, row * COLUMNS + k);
            expected[0][at_g].add(value * b[at_b]);
            expected[1][entry].add(g[at_g] * b[at_b]);
            expected[2][at_b].add(value * g[at_g]);
        }
    }
    let mut error = 0.0;
    for (found, expected) in [&c, &da_values, &db].into_iter().zip(&expected) {
        for (&found, expected) in found.iter().zip(expected) {
            error = worse(error, expected.error(found));
        }
    }

    // The loss along a random direction: each value changes by a share of itself, since they may be of any size. It is bilinear,
    // so that central differences are exact but for rounding.
    let loss = |step: f64| -> f64 {
        let values: Vec<f64> = host.values().iter().zip(&direction_a).map(|(v, d)| v * (1.0 + step * d)).collect();
        let moved: Vec<f64> = b.iter().zip(&direction_b).map(|(b, d)| b + step * d).collect();
        let values = Tensor::<1>::from_data(TensorData::new(values, [host.nnz()]), (&device, dtype));
        let a = a.with_values(values).expect("as many values");
        read(&a.matmul(dense(&moved, n))).iter().zip(&g).map(|(c, g)| c * g).sum()
    };
    let mut slope = Sum::default();
    for ((gradient, direction), value) in da_values.iter().zip(&direction_a).zip(host.values()) {
        slope.add(gradient * direction * value);
    }
    for (gradient, direction) in db.iter().zip(&direction_b) {
        slope.add(gradient * direction);
    }
    if slope.magnitude.is_finite() {
        error = worse(error, slope.error((loss(step) - loss(-step)) / (2.0 * step)));
    } else {
        println!("some products are not finite: no finite differences");
    }
    Ok(Check { error, tolerance })
}

/// A sum, and that of the absolute values, to which rounding is relative.
#[derive(Clone, Default)]
struct Sum {
    value: f64,
    magnitude: f64,
}

impl Sum {
    fn add(&mut self, product: f64) {
        self.value += product;
        self.magnitude += product.abs();
    }

    fn error(&self, found: f64) -> f64 {
        // The same infinity, the same zero, or both not a number.
        if found == self.value || found.is_nan() && self.value.is_nan() {
            return 0.0;
        }
        (found - self.value).abs() / self.magnitude
    }
}

fn sums(count: usize) -> Vec<Sum> {
    vec![Sum::default(); count]
}

fn read<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}
