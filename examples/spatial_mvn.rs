//! Learns how noise in an image is correlated: a network predicts the mean and a sparse precision of every pixel.
//!
//! ```text
//! cargo run --release --example spatial_mvn
//! ```
//!
//! Each image shows a bright disc, with noise that is weaker on the disc, streaked along rows on the left of the image and along
//! columns on the right. The network sees the clean image and the coordinates, and predicts for each pixel a mean, an
//! entry of D and the entries of L that relate it to the neighbours before it; [`PairwiseEncoder`] makes of those the strictly lower
//! triangular L, and the precision is `(I + L) D (I + L)^T`. Adam lowers the negative logarithm of the density of noisy images, which
//! costs one sparse product for an image. Exit codes: 0 if images that were held out have become almost as likely as
//! under the distribution that they are from, 2 if not.
//!
//! Reference: G. Dorta, S. Vicente, L. Agapito, N. D. F. Campbell, I. Simpson, *Structured uncertainty prediction
//! networks*, 2018.

#[path = "picture.rs"]
mod picture;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::TensorData;
use burn::tensor::activation::{relu, sigmoid, softplus};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use picture::Panel;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sparsegrad::encoders::{PairwiseEncoder, Side};
use sparsegrad::prelude::*;
use sparsegrad::{Triangular, sparse_triangular_solve};
use sparsegrad_distributions::{Factor, MvnError, NormalRng, SparseMultivariateNormal};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Learns the correlated noise of images.
#[derive(Parser)]
struct Options {
    /// Pixels along each side
    #[arg(long, default_value_t = 24)]
    size: usize,
    /// Steps of Adam
    #[arg(long, default_value_t = 300)]
    steps: usize,
    /// Their length
    #[arg(long, default_value_t = 0.01)]
    rate: f64,
    /// Images in a step
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Seed of the network, the images and their noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A report every so many steps
    #[arg(long, default_value_t = 50)]
    every: usize,
    /// Where to draw data, samples and correlations
    #[arg(long, value_name = "FILE.png", default_value = "target/spatial_mvn.png")]
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

/// Hidden channels of the network.
const HIDDEN: usize = 24;
/// Images that are held out.
const HELD_OUT: usize = 32;

fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    if options.size < 4 || options.every == 0 || options.batch == 0 {
        return Err("--size must be 4 or more, --batch and --every 1 or more".into());
    }
    let device = Device::flex().autodiff();
    device.seed(options.seed);
    let (mut images, mut noise) = (StdRng::seed_from_u64(options.seed), NormalRng::seeded(options.seed));
    let world = World::new(options.size, &device)?;
    let mut network = Network::new(options.size, &device)?;

    let clean = world.images(HELD_OUT, &mut images);
    let truth = world.noisy(clean.clone())?;
    let held_out = truth.sample([], &mut noise);
    let pixels = (options.size * options.size) as f64;
    let per_pixel = |of: &SparseMultivariateNormal<2>| -> f64 {
        of.log_prob(held_out.clone()).mean().into_scalar::<f64>() / pixels
    };
    let likelihood = |network: &Network| Ok::<_, MvnError>(per_pixel(&network.forward(clean.clone())?));
    let (before, best) = (likelihood(&network)?, per_pixel(&truth));
    println!("images      {0}x{0} pixels, {HELD_OUT} of them held out", options.size);
    println!("network     {} parameters, {} relations of a pixel", network.num_params(), network.encoder.steps().len());
    println!("held out    log-likelihood of a pixel: {before:.4} before, {best:.4} under the true distribution");

    let mut optimizer = AdamConfig::new().init();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?;
    let bar = ProgressBar::new(options.steps as u64).with_style(style);
    for step in 1..=options.steps {
        let clean = world.images(options.batch, &mut images);
        let noisy = world.noisy(clean.clone())?.sample([], &mut noise);
        let loss = network.forward(clean)?.log_prob(noisy).mean().neg() / pixels;
        bar.set_message(format!("log-likelihood of a pixel in training {:.4}", -loss.clone().into_scalar::<f64>()));
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        // Smaller steps towards the end.
        let rate = options.rate * (1.0 - (step - 1) as f64 / options.steps as f64);
        network = optimizer.step(rate, network, grads);
        if step % options.every == 0 {
            let now = likelihood(&network)?;
            bar.suspend(|| println!("step {step:4}   log-likelihood of a pixel, held out: {now:.4}"));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();

    let after = likelihood(&network)?;
    draw(options, &network, &world, clean.slice_dim(0, 0..1), held_out.slice_dim(0, 0..1), &mut noise)?;
    println!("picture     {}", options.picture.display());
    println!("  above     a clean image, the same with noise, two samples of what was learned");
    println!(
        "  below     the correlation of a pixel on the left with all others, learned and true; of one on the right"
    );
    let closed = (after - before) / (best - before);
    println!("outcome: log-likelihood of a pixel, held out: {before:.4} before, {after:.4} after, {best:.4} at most");
    println!("         {:.1} % of the gap closed, 90 % are asked for", 100.0 * closed);
    Ok(closed > 0.9)
}

/// From a clean image, the distribution of noisy ones.
#[derive(Module, Debug)]
struct Network {
    first: Conv2d,
    second: Linear,
    last: Linear,
    /// The relations of a pixel to those before it, at a distance of up to 1.5.
    encoder: PairwiseEncoder,
}

impl Network {
    fn new(size: usize, device: &Device) -> Result<Self, Box<dyn Error>> {
        let encoder = PairwiseEncoder::of(1.5, &[1, size, size]).side(Side::Lower).build()?;
        Ok(Self {
            first: Conv2dConfig::new([3, HIDDEN], [3, 3]).with_padding(PaddingConfig2d::Same).init(device),
            second: LinearConfig::new(HIDDEN, HIDDEN).init(device),
            last: LinearConfig::new(HIDDEN, 2 + encoder.steps().len()).init(device),
            encoder,
        })
    }

    /// Of images, batch x size x size: a distribution each over the pixels in a row.
    fn forward(&self, clean: Tensor<3>) -> Result<SparseMultivariateNormal<2>, MvnError> {
        let [batch, size, _] = clean.dims();
        let places = coordinates(size, &clean.device()).expand([batch, 2, size, size]);
        let hidden = relu(self.first.forward(Tensor::cat(vec![clean.unsqueeze_dim(1), places], 1)));
        let hidden = relu(self.second.forward(hidden.permute([0, 2, 3, 1])));
        let predicted = self.last.forward(hidden).permute([0, 3, 1, 2]);

        let of_pixels =
            |channel: usize| predicted.clone().slice_dim(1, channel..channel + 1).reshape([batch, size * size]);
        let (loc, d) = (of_pixels(0), softplus(of_pixels(1), 1.0));
        let relations = predicted.clone().slice_dim(1, 2..).unsqueeze_dim::<5>(2); // batch, steps, channel, space
        SparseMultivariateNormal::precision_ldlt(loc, self.encoder.encode_batch(relations), d)
    }
}

/// What the images are from.
struct World {
    encoder: PairwiseEncoder,
    size: usize,
    device: Device,
}

impl World {
    fn new(size: usize, device: &Device) -> Result<Self, Box<dyn Error>> {
        let encoder = PairwiseEncoder::of(1.0, &[1, size, size]).side(Side::Lower).build()?;
        assert_eq!(encoder.steps(), [[0, 0, 1], [0, 1, 0]], "the pixel on the left, and the one above");
        Ok(Self { encoder, size, device: device.clone() })
    }

    /// Clean images: bright discs somewhere, with a soft edge.
    fn images(&self, count: usize, random: &mut StdRng) -> Tensor<3> {
        let mut between = |low: f64, high: f64| low + (high - low) * random.random::<f64>();
        let mut values = Vec::with_capacity(count * self.size * self.size);
        for _ in 0..count {
            let (x, y, radius) = (between(-0.5, 0.5), between(-0.5, 0.5), between(0.3, 0.6));
            let brightness = |row: usize, column: usize| {
                let distance = (place(column, self.size) - x).hypot(place(row, self.size) - y);
                1.0 / (1.0 + ((distance - radius) / 0.05).exp())
            };
            values.extend((0..self.size * self.size).map(|at| brightness(at / self.size, at % self.size) as f32));
        }
        Tensor::from_data(TensorData::new(values, [count, self.size, self.size]), &self.device)
    }

    /// The distribution of noisy images: z is correlated, as `(I + L)^T z` is independent noise of the precision D.
    fn noisy(&self, clean: Tensor<3>) -> Result<SparseMultivariateNormal<2>, MvnError> {
        let [batch, size, _] = clean.dims();
        let pixels = |values: Tensor<3>| values.reshape([batch, size * size]);
        // From 0 on the left to 1 on the right.
        let right = sigmoid(coordinates(size, &self.device).slice_dim(1, 0..1) * 4.0);
        let along_rows = (right.clone() * 0.75).add_scalar(-0.8);
        let along_columns = (right * -0.75).add_scalar(-0.05);
        let relations = Tensor::cat(vec![along_rows, along_columns], 1).unsqueeze_dim::<5>(2);
        let relations = relations.expand([batch, 2, 1, size, size]);
        let deviations = (clean.clone() * -0.2).add_scalar(0.3);
        let d = deviations.powi_scalar(-2);
        SparseMultivariateNormal::precision_ldlt(pixels(clean), self.encoder.encode_batch(relations), pixels(d))
    }
}

/// The centre of a pixel, in [-1, 1].
fn place(at: usize, size: usize) -> f64 {
    (2 * at + 1) as f64 / size as f64 - 1.0
}

/// x and y of every pixel: 1 x 2 x size x size.
fn coordinates(size: usize, device: &Device) -> Tensor<4> {
    let x = (0..size * size).map(|at| at % size);
    let values: Vec<f32> = x.chain((0..size * size).map(|at| at / size)).map(|at| place(at, size) as f32).collect();
    Tensor::from_data(TensorData::new(values, [1, 2, size, size]), device)
}

/// The correlation of a pixel with all others: a column of the covariance, scaled. A = `(I + L)^-T D^-1/2` has A A^T = covariance.
fn correlation(of: &SparseMultivariateNormal<2>, pixel: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let Factor::Each(l) = of.factor() else { unreachable!("each image has its own") };
    let d = of.diagonal().ok_or("no diagonal")?.clone().reshape([of.event_size()]);
    let diagonal = Tensor::<2>::eye(of.event_size(), &of.device()) * d.powf_scalar(-0.5).unsqueeze();
    let unit = Triangular::lower().unit_diagonal().transpose();
    let root = sparse_triangular_solve(&l.to_block_diagonal(), diagonal, unit)?;
    let column = root.clone().matmul(root.clone().slice_dim(0, pixel..pixel + 1).transpose());
    let deviations = root.powi_scalar(2).sum_dim(1).sqrt();
    let own = deviations.clone().slice_dim(0, pixel..pixel + 1);
    Ok((column / deviations / own).to_data().iter::<f64>().collect())
}

/// Of one held-out image: clean, noisy, two samples; and correlations, learned and true.
fn draw(
    options: &Options,
    network: &Network,
    world: &World,
    clean: Tensor<3>,
    noisy: Tensor<2>,
    noise: &mut NormalRng,
) -> Result<(), Box<dyn Error>> {
    let side = options.size;
    let (learned, truth) = (network.forward(clean.clone())?, world.noisy(clean.clone())?);
    let image = |values: Vec<f64>| Panel { side, values, low: -0.75, high: 1.75 };
    let read = |pixels: Tensor<2>| image(pixels.to_data().iter::<f64>().collect());
    let mut sample = || read(learned.sample([], noise));
    let above = [read(clean.reshape([1, side * side])), read(noisy), sample(), sample()];
    let correlations = |of, column| -> Result<Panel, Box<dyn Error>> {
        Ok(Panel { side, values: correlation(of, side / 2 * side + column)?, low: -1.0, high: 1.0 })
    };
    let (left, right) = (side / 5, side - 1 - side / 5);
    let below = [
        correlations(&learned, left)?,
        correlations(&truth, left)?,
        correlations(&learned, right)?,
        correlations(&truth, right)?,
    ];
    picture::draw(&options.picture, &[&above, &below])
}
