//! Recovers what a plate is made of from noisy temperatures, by differentiating through a preconditioned solve.
//!
//! ```text
//! cargo run --release --example inverse_heat
//! ```
//!
//! A square plate with unknown conductivity k is heated and kept at 0 around: -div(k grad T) = q. Its temperature is measured in
//! every cell, with noise. The program starts from a uniform conductivity and moves its logarithm by Adam against the
//! gradient of the misfit, which passes through the solve (one more solve, transposed, by the same preconditioner) and through
//! the assembly of the matrix. Exit codes: 0 if the recovered conductivity is much closer to the true one, 2 if not.

#[path = "picture.rs"]
mod picture;

use burn::tensor::TensorData;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use picture::Panel;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sparsegrad::gallery::Grid;
use sparsegrad::prelude::*;
use sparsegrad_solvers::{Cg, Plan, precond::Ic0, sparse_solve};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Recovers a conductivity field from noisy temperatures.
#[derive(Parser)]
struct Options {
    /// Cells along each side
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Steps of Adam
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Their length
    #[arg(long, default_value_t = 0.05)]
    rate: f64,
    /// The noise, as a part of the mean temperature
    #[arg(long, default_value_t = 0.01)]
    noise: f64,
    /// How much a rough conductivity costs
    #[arg(long, default_value_t = 1e-4)]
    smoothness: f64,
    /// The relative tolerance of each solve
    #[arg(long, default_value_t = 1e-8)]
    tol: f64,
    /// Seed of the noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A report every so many steps
    #[arg(long, default_value_t = 20)]
    every: usize,
    /// Where to draw the true field, the first guess, and what was recovered
    #[arg(long, value_name = "FILE.png", default_value = "target/inverse_heat.png")]
    picture: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let n = options.size;
    if n < 4 || options.every == 0 {
        return Err("--size must be 4 or more, and --every 1 or more".into());
    }
    let device = Device::flex().autodiff();
    let numbers = (&device, DType::F64);
    let grid = Grid::new([n, n])?;
    // The pattern, its levels and the last temperature are kept from step to step.
    let plan = Plan::new(Cg::new().tolerance(options.tol).precondition(Ic0)).warm_start();
    let heat = Tensor::<1>::ones([n * n], numbers) / Tensor::full([1], (n * n) as f64, numbers);

    let truth = field(n, &device);
    let exact = sparse_solve(&grid.laplacian(truth.clone())?, heat.clone(), &plan).into_result()?;
    let mean = exact.clone().mean();
    let mut random = StdRng::seed_from_u64(options.seed);
    // The sum of twelve uniform numbers is close enough to normal.
    let normal = |random: &mut StdRng| (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let noise: Vec<f64> = (0..n * n).map(|_| options.noise * normal(&mut random)).collect();
    let noise = Tensor::<1>::from_data(TensorData::new(noise, [n * n]), numbers);
    let measured = (exact + noise * mean.clone()).detach();
    let scale = mean.into_scalar::<f64>().powi(2);

    let error = |log_k: &Tensor<2>| -> f64 {
        let apart = log_k.clone().detach() - truth.clone().log();
        (apart.powi_scalar(2).mean().into_scalar::<f64>()
            / truth.clone().log().powi_scalar(2).mean().into_scalar::<f64>())
        .sqrt()
    };
    let mut log_k = Tensor::<2>::zeros([n, n], numbers);
    let (before, mut adam) = (error(&log_k), Adam::new(options.rate, [n, n], &device));
    println!("plate       {n}x{n} cells, {} measured temperatures with {:.1} % noise", n * n, 100.0 * options.noise);
    println!("method      Adam on log k through CG with IC(0), tolerance {:.0e}", options.tol);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?;
    let bar = ProgressBar::new(options.steps as u64).with_style(style);
    for step in 1..=options.steps {
        let tracked = log_k.clone().detach().require_grad();
        let laplacian = grid.laplacian(tracked.clone().exp())?;
        let solution = sparse_solve(&laplacian, heat.clone(), &plan);
        let (iterations, residual) = (solution.report.iterations, solution.report.relative_residuals[0]);
        let temperature = solution.into_result()?;
        let misfit = (temperature - measured.clone()).powi_scalar(2).mean() * (1.0 / scale);
        let loss = misfit.clone() + roughness(&tracked) * options.smoothness;
        let grads = loss.backward();
        let gradient = tracked.grad(&grads).ok_or("the conductivity has no gradient")?;
        log_k = adam.step(log_k, Tensor::from_inner(gradient));
        let message = format!(
            "misfit {:.2e}, error of log k {:.1} %, {iterations} iterations, true relative residual {residual:.1e}",
            misfit.into_scalar::<f64>(),
            100.0 * error(&log_k)
        );
        if step % options.every == 0 || step == 1 || step == options.steps {
            bar.suspend(|| println!("step {step:4}   {message}"));
        }
        bar.set_message(message);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let after = error(&log_k);
    draw(&options.picture, [&truth, &Tensor::ones([n, n], numbers), &log_k.exp()])?;
    println!("picture     {} (true, first guess, recovered)", options.picture.display());
    println!("outcome: error of log k {:.1} % before, {:.1} % after", 100.0 * before, 100.0 * after);
    Ok(after < 0.5 * before)
}

/// A background of conductivity 1 with a good conductor and a bad one in it.
fn field(n: usize, device: &Device) -> Tensor<2> {
    let at = |i: usize| (i as f64 + 0.5) / n as f64;
    let bump = |x: f64, y: f64, cx: f64, cy: f64, r: f64| (-((x - cx).powi(2) + (y - cy).powi(2)) / (r * r)).exp();
    let log_k = |x: f64, y: f64| 1.4 * bump(x, y, 0.35, 0.4, 0.18) - 1.1 * bump(x, y, 0.68, 0.65, 0.15);
    let values: Vec<f64> = (0..n * n).map(|cell| log_k(at(cell % n), at(cell / n)).exp()).collect();
    Tensor::from_data(TensorData::new(values, [n, n]), (device, DType::F64))
}

/// The mean of the squared differences between neighbours.
fn roughness(field: &Tensor<2>) -> Tensor<1> {
    let [rows, columns] = field.dims();
    let down = field.clone().slice([1..rows, 0..columns]) - field.clone().slice([0..rows - 1, 0..columns]);
    let right = field.clone().slice([0..rows, 1..columns]) - field.clone().slice([0..rows, 0..columns - 1]);
    down.powi_scalar(2).mean() + right.powi_scalar(2).mean()
}

/// D. P. Kingma, J. Ba, *Adam: a method for stochastic optimization*, 2015, in f64.
struct Adam {
    rate: f64,
    first: Tensor<2>,
    second: Tensor<2>,
    step: i32,
}

impl Adam {
    fn new(rate: f64, shape: [usize; 2], device: &Device) -> Self {
        let zeros = Tensor::zeros(shape, (device, DType::F64));
        Self { rate, first: zeros.clone(), second: zeros, step: 0 }
    }

    fn step(&mut self, x: Tensor<2>, gradient: Tensor<2>) -> Tensor<2> {
        self.step += 1;
        self.first = self.first.clone() * 0.9 + gradient.clone() * 0.1;
        self.second = self.second.clone() * 0.999 + gradient.powi_scalar(2) * 0.001;
        let first = self.first.clone() * (1.0 / (1.0 - 0.9f64.powi(self.step)));
        let second = self.second.clone() * (1.0 / (1.0 - 0.999f64.powi(self.step)));
        x - first / (second.sqrt() + 1e-12) * self.rate
    }
}

/// The fields beside each other, in one scale of colours.
fn draw(path: &Path, fields: [&Tensor<2>; 3]) -> Result<(), Box<dyn Error>> {
    let fields = fields.map(|field| (field.dims()[0], field.to_data().iter::<f64>().map(f64::ln).collect::<Vec<_>>()));
    let (low, high) = fields[0].1.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    let panels: Vec<_> = fields.into_iter().map(|(side, values)| Panel { side, values, low, high }).collect();
    picture::draw(path, &[&panels])
}
