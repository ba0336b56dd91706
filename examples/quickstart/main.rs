//! The whole of it in one program: a graph network that learns its edges, on real data.
//!
//! ```text
//! cargo run --release --example quickstart
//! cargo run --release --example quickstart -- --matrix some.mtx
//! ```
//!
//! Without options it trains a graph convolutional network on Zachary's karate club, from two labelled people out of 34,
//! draws what it has learned, and checks its gradients. With `--matrix` it loads a Matrix Market file, shows it, and checks a
//! product and its gradients on it. `model.rs` is the part to copy.

mod karate;
mod matrix;
mod model;
mod picture;

use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::TensorData;
use clap::{Parser, ValueEnum};
use model::{Gcn, HIDDEN};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trains a graph network with learned edges on Zachary's karate club, or checks gradients on a matrix of yours.
#[derive(Parser)]
struct Options {
    /// Load this Matrix Market file (.mtx or .mtx.gz) instead, and check a product and its gradients on it
    #[arg(long, value_name = "FILE")]
    matrix: Option<PathBuf>,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = Kind::value_variants()[0])]
    device: Kind,
    /// Steps of training
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Where to draw the graph
    #[arg(long, value_name = "FILE", default_value = "target/quickstart.png")]
    picture: PathBuf,
}

/// The devices that this program was compiled for.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    #[cfg(feature = "flex")]
    Flex,
    #[cfg(feature = "wgpu")]
    Wgpu,
    #[cfg(feature = "cuda")]
    Cuda,
}

impl Kind {
    fn device(self) -> Device {
        match self {
            #[cfg(feature = "flex")]
            Kind::Flex => Device::flex(),
            #[cfg(feature = "wgpu")]
            Kind::Wgpu => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            #[cfg(feature = "cuda")]
            Kind::Cuda => Device::cuda(0),
        }
    }
}

/// How far gradients are from what they should be.
struct Check {
    error: f64,
    tolerance: f64,
}

impl Check {
    /// Written so that a NaN fails.
    fn holds(&self) -> bool {
        self.error <= self.tolerance
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, tolerance } = self;
        let verdict = if self.holds() { "ok" } else { "FAILED" };
        write!(f, "gradient check: max error {error:.1e} (tolerance {tolerance:.0e}) {verdict}")
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let device = options.device.device();
    let checked = match &options.matrix {
        Some(file) => matrix::run(file, &device),
        None => train(&options, &device),
    };
    match checked {
        Ok(check) => {
            println!("{check}");
            if check.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn train(options: &Options, device: &Device) -> Result<Check, Box<dyn Error>> {
    let training = device.clone().autodiff();
    training.seed(2);
    let mut gcn = Gcn::new(&training);
    println!("{}", gcn.edges.val().pattern());
    println!("{}", gcn.edges.val().spy(34));

    let mut optimizer = AdamConfig::new().init();
    for step in 0..=options.steps {
        let (loss, clubs) = gcn.forward();
        let grads = loss.backward();
        if step % 20 == 0 || step == options.steps {
            let loss = loss.into_data().iter::<f64>().sum::<f64>();
            let right = accuracy(&clubs);
            println!("step {step:3}: loss {loss:.4}, {right} of {} in their club", karate::PEOPLE);
        }
        if step == options.steps {
            // The gradient of the edges is a sparse tensor with their pattern.
            let gradient = gcn.edges.grad(&grads).expect("the edges train");
            println!("{}", memory(&gradient));
            picture::draw(&options.picture, &gcn.edges.val(), &predictions(&clubs))?;
            println!("picture: {}", options.picture.display());
        } else {
            let grads = GradientsParams::from_grads(grads, &gcn);
            gcn = optimizer.step(0.05, gcn, grads);
        }
    }
    check(&gcn, device)
}

/// The likelier club of each person.
fn predictions(clubs: &Tensor<2>) -> Vec<usize> {
    let club = clubs.clone().argmax(1).into_data();
    club.iter::<i64>().map(|club| club as usize).collect()
}

fn accuracy(clubs: &Tensor<2>) -> usize {
    predictions(clubs).iter().zip(karate::clubs()).filter(|(found, club)| *found == club).count()
}

/// What a sparse gradient takes, and what a dense one would.
fn memory(gradient: &SparseTensor<2>) -> String {
    let [rows, columns] = gradient.shape();
    let bytes = gradient.dtype().size() as f64;
    let size = |numbers: f64| match numbers * bytes {
        bytes if bytes < 1e3 => format!("{bytes} B"),
        bytes if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    };
    let (sparse, dense) = (gradient.nnz() as f64, rows as f64 * columns as f64);
    format!("sparse gradient: {sparse} numbers, {} (dense: {})", size(sparse), size(dense))
}

/// All gradients of the trained network against central differences, in double precision on the CPU: GPUs lack its functions.
/// The gradients of another device are compared with those, in the device's own precision.
fn check(gcn: &Gcn, device: &Device) -> Result<Check, Box<dyn Error>> {
    #[cfg(feature = "flex")]
    let exact = Device::flex();
    #[cfg(not(feature = "flex"))]
    let exact = device.clone(); // for want of it

    let edges = gcn.edges.val();
    let numbers = |data: TensorData| data.iter::<f64>().collect::<Vec<_>>();
    let parameters = [
        numbers(edges.values().to_data()),
        numbers(gcn.embedding.val().into_data()),
        numbers(gcn.output.val().into_data()),
    ];
    let loss = |x: &[Tensor<1>]| {
        let edges = SparseTensor::new(edges.pattern().clone(), x[0].clone()).expect("as many values");
        let embedding = x[1].clone().reshape([karate::PEOPLE, HIDDEN]);
        let output = x[2].clone().reshape([HIDDEN, 2]);
        model::forward(&edges, embedding, output).0
    };
    let tolerance = 1e-8;
    let report = gradcheck(&exact, &parameters, tolerance, loss)?;
    if *device == exact {
        return Ok(Check { error: report.max_error, tolerance });
    }
    let gradients = |device: &Device, dtype| -> Vec<f64> {
        let device = device.clone().autodiff();
        let tracked = parameters.clone().map(|numbers| {
            let data = TensorData::new(numbers.clone(), [numbers.len()]);
            Tensor::<1>::from_data(data, (&device, dtype)).require_grad()
        });
        let grads = loss(&tracked).backward();
        tracked.iter().flat_map(|x| numbers(x.grad(&grads).expect("tracked").into_data())).collect()
    };
    let pairs = gradients(device, DType::F32).into_iter().zip(gradients(&exact, DType::F64));
    let error = pairs.map(|(found, expected)| (found - expected).abs()).fold(0.0, worse);
    Ok(Check { error, tolerance: 1e-5 })
}

/// The larger error; NaN is the largest.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || b <= a { a } else { b }
}
