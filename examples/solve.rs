//! Solves a sparse linear system, or a least-squares problem, from a file.
//!
//! ```text
//! cargo run --release --example solve -- bcsstk16.mtx
//! cargo run --release --example solve -- well1850.mtx well1850_rhs1.mtx --method lsmr --grad
//! ```
//!
//! Without a right-hand side it takes A times ones, whose solution is known. The last line tells the outcome and the residual
//! that was recomputed from the solution. Exit codes: 0 for a solution, 2 for any other honest outcome, 1 for bad input.

use burn::tensor::TensorData;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use plotters::prelude::*;
use sparsegrad::io::{Triplets, matrix_market};
use sparsegrad::prelude::*;
use sparsegrad_solvers::krylov::Progress;
use sparsegrad_solvers::precond::{BlockJacobi, Ic0, Ilu0, Jacobi, Preconditioner, Ssor};
use sparsegrad_solvers::{
    Auto, BackwardWatch, BiCgStab, Cg, Direct, Gmres, Lsmr, Method, MinRes, Report, Solution, sparse_lstsq,
    sparse_solve,
};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Solves A x = b, or min |A x - b| if A is not square, for a real matrix from a Matrix Market file.
#[derive(Parser)]
struct Options {
    /// The matrix (.mtx or .mtx.gz)
    matrix: PathBuf,
    /// The right-hand sides; A times ones if there are none
    rhs: Option<PathBuf>,
    /// The method; `direct` is Cholesky, LU or QR
    #[arg(long, value_enum, default_value = "auto")]
    method: Choice,
    /// The preconditioner of an iterative method
    #[arg(long, value_enum, default_value = "none")]
    precond: Recipe,
    /// The relative tolerance of the residual
    #[arg(long, default_value_t = 1e-8)]
    tol: f64,
    /// The most iterations; by default ten times the number of unknowns, within 100 and 10 000
    #[arg(long)]
    max_iter: Option<usize>,
    /// Differentiate a weighted sum of the solution, and check the gradients by finite differences
    #[arg(long)]
    grad: bool,
    /// Draw the residuals of an iterative method
    #[arg(long, value_name = "FILE.png")]
    picture: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Choice {
    Auto,
    Cg,
    Minres,
    Bicgstab,
    Gmres,
    Lsmr,
    Direct,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Recipe {
    None,
    Jacobi,
    BlockJacobi,
    Ssor,
    Ic0,
    Ilu0,
}

impl Recipe {
    fn preconditioner(self) -> Option<Arc<dyn Preconditioner>> {
        Some(match self {
            Self::None => return None,
            Self::Jacobi => Arc::new(Jacobi),
            Self::BlockJacobi => Arc::new(BlockJacobi::new(3)),
            Self::Ssor => Arc::new(Ssor::new(1.0)),
            Self::Ic0 => Arc::new(Ic0),
            Self::Ilu0 => Arc::new(Ilu0),
        })
    }
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

/// Whether there is a solution, and with `--grad` gradients that are right.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let problem = Problem::read(options)?;
    let [m, n] = problem.a.shape();
    println!("matrix      {}", problem.a.pattern());
    let kind = if problem.symmetric { "symmetric" } else { "not symmetric" };
    let target = if m == n { "A x = b" } else { "min |A x - b|" };
    println!("problem     {target}, {kind}, {} right-hand side(s) from {}", problem.b.dims()[1], problem.source);

    let (bar, method) = problem.method(options)?;
    let started = Instant::now();
    let solution = problem.solve(&problem.a, &problem.b, &method);
    bar.finish_and_clear();
    let Solution { x, report } = solution;
    println!(
        "method      {} in {:.3} s, {} iterations",
        report.method,
        started.elapsed().as_secs_f64(),
        report.iterations
    );
    for note in &report.notes {
        println!("note        {note}");
    }
    if problem.known && report.outcome.is_converged() {
        let error = (x.clone() - 1.0).powi_scalar(2).sum().sqrt() / (n as f64).sqrt();
        println!("error       |x - ones| / |ones| = {:.1e}", error.into_scalar::<f64>());
    }
    if let Some(path) = &options.picture {
        draw(path, &report)?;
        println!("picture     {}", path.display());
    }
    let mut right = report.outcome.is_converged();
    if options.grad && right {
        right = problem.check_gradients(&method)?;
    }
    let worst =
        report.relative_residuals.iter().copied().fold(0.0, |worst: f64, r| if r.is_nan() { r } else { worst.max(r) });
    if !report.outcome.is_converged() {
        println!("advice      {}", report.outcome.advice());
    }
    println!("outcome: {}, true relative residual {worst:.1e}", report.outcome);
    Ok(right)
}

struct Problem {
    a: SparseTensor<2>,
    b: Tensor<2>,
    symmetric: bool,
    /// Whether the solution is known to be ones.
    known: bool,
    source: String,
}

impl Problem {
    fn read(options: &Options) -> Result<Self, Box<dyn Error>> {
        let device = Device::flex();
        let triplets = matrix_market::read(&options.matrix)?;
        let symmetric = is_symmetric(&triplets);
        let a: SparseTensor<2> = triplets.to_csr()?.on((&device, DType::F64))?;
        let [m, n] = a.shape();
        let b = match &options.rhs {
            None => a.matmul(Tensor::<2>::ones([n, 1], (&device, DType::F64))),
            Some(path) => {
                let rhs = matrix_market::read(path)?;
                if rhs.shape[0] != m {
                    let [rows, columns] = rhs.shape;
                    return Err(format!("{}: {rows}x{columns}, and the matrix has {m} rows", path.display()).into());
                }
                let rhs: SparseTensor<2> = rhs.to_csr()?.on((&device, DType::F64))?;
                rhs.to_dense()
            }
        };
        let source = match &options.rhs {
            None => "A times ones".to_string(),
            Some(path) => path.display().to_string(),
        };
        Ok(Self { a, b, symmetric, known: options.rhs.is_none(), source })
    }

    fn is_square(&self) -> bool {
        let [m, n] = self.a.shape();
        m == n
    }

    fn solve(&self, a: &SparseTensor<2>, b: &Tensor<2>, method: &Arc<dyn Method>) -> Solution<Tensor<2>> {
        match self.is_square() && method.name() != "LSMR" {
            true => sparse_solve(a, b.clone(), method.clone()),
            false => sparse_lstsq(a, b.clone(), method.clone()),
        }
    }

    /// The method, and a bar that shows how it gets on.
    fn method(&self, options: &Options) -> Result<(ProgressBar, Arc<dyn Method>), Box<dyn Error>> {
        let preconditioner = options.precond.preconditioner();
        let iterative = !matches!(options.method, Choice::Auto | Choice::Direct);
        if preconditioner.is_some() && !iterative {
            return Err("--precond goes with an iterative --method".into());
        }
        if !self.is_square() && !matches!(options.method, Choice::Auto | Choice::Direct | Choice::Lsmr) {
            let [m, n] = self.a.shape();
            return Err(format!("the matrix is {m}x{n}: --method auto, lsmr or direct").into());
        }
        let bar = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(100));
        macro_rules! iterative {
            ($method:ident) => {{
                let (bar, last) = (bar.clone(), Mutex::new(Instant::now()));
                let mut method = $method::new().tolerance(options.tol).callback(move |progress: &Progress| {
                    let mut last = last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    if last.elapsed() > Duration::from_millis(50) {
                        *last = Instant::now();
                        let worst = progress.relative_residuals.iter().copied().fold(0.0, f64::max);
                        bar.set_message(format!("iteration {}, relative residual {worst:.1e}", progress.iteration));
                    }
                });
                if let Some(limit) = options.max_iter {
                    method = method.max_iterations(limit);
                }
                if let Some(preconditioner) = preconditioner {
                    method = method.precondition(preconditioner);
                }
                Arc::new(method) as Arc<dyn Method>
            }};
        }
        let method: Arc<dyn Method> = match options.method {
            Choice::Auto => {
                let auto = Auto::new().tolerance(options.tol);
                Arc::new(match options.max_iter {
                    Some(limit) => auto.max_iterations(limit),
                    None => auto,
                })
            }
            Choice::Cg => iterative!(Cg),
            Choice::Minres => iterative!(MinRes),
            Choice::Bicgstab => iterative!(BiCgStab),
            Choice::Gmres => iterative!(Gmres),
            Choice::Lsmr => iterative!(Lsmr),
            Choice::Direct => Arc::new(self.direct()?.tolerance(options.tol)),
        };
        if !iterative {
            bar.set_message(if options.method == Choice::Direct { "factorising" } else { "solving" });
        }
        Ok((bar, method))
    }

    /// Cholesky where it may exist, which the report tells.
    fn direct(&self) -> Result<Direct, TensorError> {
        let mut diagonal = vec![0.0; self.a.shape()[0]];
        for (row, column, value) in self.a.triplets()? {
            if row == column {
                diagonal[row] += value;
            }
        }
        let positive = diagonal.iter().all(|value| *value > 0.0);
        Ok(match self.is_square() {
            false => Direct::qr(),
            true if self.symmetric && positive => Direct::llt(),
            true => Direct::lu(),
        })
    }

    /// Compares the gradients of a weighted sum of the solution with central differences.
    ///
    /// A is moved within D A E with diagonal D and E (equal ones of a square matrix), which keep its symmetry and its rank: that
    /// is where the solution is smooth, whatever the condition of A.
    fn check_gradients(&self, method: &Arc<dyn Method>) -> Result<bool, Box<dyn Error>> {
        const STEP: f64 = 1e-3;
        const TOLERANCE: f64 = 1e-4;
        let device = Device::flex();
        let ([m, n], [_, k]) = (self.a.shape(), self.b.dims());
        let weights = columns(&waves(n * k, 1.3), [n, k], &device);
        let (rows, cols) = self.a.pattern().coordinates();
        let left = waves(m, 0.7);
        let right = if self.is_square() { left.clone() } else { waves(n, 1.9) };
        let values: Vec<f64> = self.a.values().to_data().iter::<f64>().collect();
        let moved = |t: f64| -> Vec<f64> {
            let scale = |e: usize| (1.0 + t * left[rows[e]]) * (1.0 + t * right[cols[e]]);
            values.iter().enumerate().map(|(e, value)| value * scale(e)).collect()
        };
        let shift = columns(&waves(m * k, 2.3), [m, k], &device) * self.b.clone().abs().mean().into_scalar::<f64>();
        let loss = |values: Vec<f64>, b: &Tensor<2>| -> Result<f64, Box<dyn Error>> {
            let a = self.a.with_values(vector(values, &device))?;
            let x = self.solve(&a, b, method).into_result()?;
            Ok((x * weights.clone()).sum().into_scalar::<f64>())
        };

        let tracked_device = device.clone().autodiff();
        let a = self.a.with_values(vector(values.clone(), &tracked_device))?.require_grad();
        let b = Tensor::from_inner(self.b.clone()).require_grad();
        let watch = BackwardWatch::new();
        let watched: Arc<dyn Method> = Arc::new(watch.over(method.clone()));
        let started = Instant::now();
        let x = self.solve(&a, &b, &watched).into_result()?;
        let forward = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let grads = (x * Tensor::from_inner(weights.clone())).sum().backward();
        println!("gradients   forward {forward:.3} s, backward {:.3} s", started.elapsed().as_secs_f64());
        if let Some(report) = watch.reports().iter().find(|report| !report.outcome.is_converged()) {
            println!("gradients   the backward solve failed: {report}");
            return Ok(false);
        }
        let (Some(d_a), Some(d_b)) = (a.grad(&grads), b.grad(&grads)) else {
            return Err("no gradients".into());
        };
        let d_values: Vec<f64> = d_a.values().to_data().iter::<f64>().collect();
        let along =
            d_values.iter().zip(&values).enumerate().map(|(e, (d, v))| d * v * (left[rows[e]] + right[cols[e]]));
        let of_a = (along.sum::<f64>(), (loss(moved(STEP), &self.b)? - loss(moved(-STEP), &self.b)?) / (2.0 * STEP));
        let up = loss(values.clone(), &(self.b.clone() + shift.clone()))?;
        let down = loss(values, &(self.b.clone() - shift.clone()))?;
        let of_b = ((d_b * shift).sum().into_scalar::<f64>(), (up - down) / 2.0);
        let mut right = true;
        for (name, (analytic, numeric)) in [("A", of_a), ("b", of_b)] {
            let error = (analytic - numeric).abs() / numeric.abs().max(f64::MIN_POSITIVE);
            println!(
                "gradients   along a direction of {name}: {analytic:.9e}, by differences {numeric:.9e} ({error:.1e} apart)"
            );
            right &= error <= TOLERANCE;
        }
        println!("gradients   {}", if right { "agree" } else { "DIFFER" });
        Ok(right)
    }
}

/// Numbers in [-1, 1] without a pattern that a matrix could share.
fn waves(count: usize, phase: f64) -> Vec<f64> {
    (0..count).map(|i| (phase + 2.399_963 * i as f64 + 0.1 * (i as f64).sqrt()).sin()).collect()
}

fn vector(values: Vec<f64>, device: &Device) -> Tensor<1> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), (device, DType::F64))
}

fn columns(values: &[f64], shape: [usize; 2], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, DType::F64))
}

fn is_symmetric(matrix: &Triplets) -> bool {
    let [m, n] = matrix.shape;
    let entries = |mirrored: bool| {
        let (rows, cols) = if mirrored { (&matrix.cols, &matrix.rows) } else { (&matrix.rows, &matrix.cols) };
        let mut all: Vec<_> =
            rows.iter().zip(cols).zip(&matrix.values).map(|((i, j), v)| (*i, *j, v.to_bits())).collect();
        all.sort_unstable();
        all
    };
    m == n && entries(false) == entries(true)
}

/// The residuals that the method saw, on a logarithmic scale with a line for each power of ten.
fn draw(path: &Path, report: &Report) -> Result<(), Box<dyn Error>> {
    let history: Vec<f64> = report.history.iter().map(|r| r.max(f64::MIN_POSITIVE).log10()).collect();
    if history.len() < 2 {
        return Err("--picture: the method did not iterate".into());
    }
    let low = history.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let high = history.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
    let canvas = BitMapBackend::new(path, (900, 600)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart =
        ChartBuilder::on(&canvas).margin(30).build_cartesian_2d(0.0..(history.len() - 1) as f64, low..high)?;
    let width = (history.len() - 1) as f64;
    let powers = (low as i32..=high as i32).map(|power| {
        PathElement::new(vec![(0.0, f64::from(power)), (width, f64::from(power))], RGBColor(220, 220, 220))
    });
    chart.draw_series(powers)?;
    let line: Vec<_> = history.iter().enumerate().map(|(at, r)| (at as f64, *r)).collect();
    chart.draw_series([PathElement::new(line, RGBColor(38, 110, 170).stroke_width(2))])?;
    canvas.present()?;
    Ok(())
}
