//! The generator: moments, distribution, tails, streams, bits.

use burn::tensor::{DType, Device};
use sparsegrad_distributions::{NormalElement, NormalRng};
use statrs::distribution::{ContinuousCDF, Normal};

const COUNT: usize = 1 << 20;

fn numbers<E: NormalElement + Default + Into<f64>>(rng: &mut NormalRng, count: usize) -> Vec<f64> {
    let mut numbers = vec![E::default(); count];
    rng.fill(&mut numbers);
    numbers.into_iter().map(Into::into).collect()
}

fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, count), x| (sum + x, count + 1));
    sum / f64::from(count)
}

/// Moments 1 to 6 within five standard errors: the variance of x^k is (2k-1)!! - E[x^k]^2.
fn has_the_moments(numbers: &[f64]) {
    let count = numbers.len() as f64;
    let double_factorial = |k: i32| (1..=k).rev().step_by(2).map(f64::from).product::<f64>();
    for k in 1..=6 {
        let expected = if k % 2 == 0 { double_factorial(k - 1) } else { 0.0 };
        let error = ((double_factorial(2 * k - 1) - expected * expected) / count).sqrt();
        let found = mean(numbers.iter().map(|x| x.powi(k)));
        assert!((found - expected).abs() < 5.0 * error, "moment {k}: {found}, not {expected} +- {error}");
    }
}

/// Kolmogorov's statistic, below its quantile of 1 - 1e-6: sqrt(n) D < 2.69.
fn has_the_distribution(mut numbers: Vec<f64>) {
    let normal = Normal::new(0.0, 1.0).unwrap();
    numbers.sort_by(f64::total_cmp);
    let count = numbers.len() as f64;
    let distance = numbers.iter().enumerate().map(|(i, &x)| {
        let f = normal.cdf(x);
        (f - i as f64 / count).abs().max(((i + 1) as f64 / count - f).abs())
    });
    let statistic = count.sqrt() * distance.fold(0.0, f64::max);
    assert!(statistic < 2.69, "{statistic}");
}

#[test]
fn moments_and_distribution() {
    for seed in [1, 2] {
        for numbers in
            [numbers::<f32>(&mut NormalRng::seeded(seed), COUNT), numbers::<f64>(&mut NormalRng::seeded(seed), COUNT)]
        {
            has_the_moments(&numbers);
            has_the_distribution(numbers);
        }
    }
}

/// As many beyond 3, 4 and 5 standard deviations as there should be, on both sides, within five standard errors.
#[test]
fn tails_to_five_sigma() {
    let normal = Normal::new(0.0, 1.0).unwrap();
    let mut rng = NormalRng::seeded(3);
    let (mut beyond, mut total) = ([[0.0; 2]; 3], 0.0);
    for _ in 0..32 {
        let numbers = numbers::<f32>(&mut rng, COUNT);
        total += numbers.len() as f64;
        for x in numbers {
            for (counts, sigma) in beyond.iter_mut().zip([3.0, 4.0, 5.0]) {
                counts[0] += f64::from(u8::from(x < -sigma));
                counts[1] += f64::from(u8::from(x > sigma));
            }
        }
    }
    for (counts, sigma) in beyond.iter().zip([3.0, 4.0, 5.0]) {
        let expected = total * normal.sf(sigma);
        for count in counts {
            assert!((count - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{sigma} sigma: {count}, not {expected}");
        }
    }
}

/// Correlations of neighbours, halves, streams, draws and seeds, and of their squares, are within five standard errors of 0.
#[test]
fn streams_and_neighbours_are_independent() {
    let rng = NormalRng::seeded(4);
    let a = numbers::<f32>(&mut rng.clone(), COUNT);
    let b = numbers::<f32>(&mut rng.stream(1), COUNT);
    let c = numbers::<f32>(&mut NormalRng::seeded(5), COUNT);
    let mut again = rng.clone();
    numbers::<f32>(&mut again, 100);
    let d = numbers::<f32>(&mut again, COUNT);
    let correlation = |x: &[f64], y: &[f64]| {
        let linear = mean(x.iter().zip(y).map(|(x, y)| x * y));
        let squares = mean(x.iter().zip(y).map(|(x, y)| (x * x - 1.0) * (y * y - 1.0) / 2.0));
        linear.abs().max(squares.abs())
    };
    let half = COUNT / 2;
    let pairs = [(&a[..], &b[..]), (&a, &c), (&a, &d), (&a[1..], &a[..COUNT - 1]), (&a[64..], &a[..COUNT - 64])];
    for (x, y) in pairs.into_iter().chain([(&a[half..], &a[..half])]) {
        assert!(correlation(x, y) < 5.0 / (x.len() as f64).sqrt());
    }
}

#[test]
fn the_same_bits_with_any_number_of_threads_and_as_a_prefix() {
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| numbers::<f64>(&mut NormalRng::seeded(6), 100_003))
    };
    let one = on(1);
    assert_eq!(one, on(2));
    assert_eq!(one, on(7));
    assert_eq!(one[..777], numbers::<f64>(&mut NormalRng::seeded(6), 777)[..]);
    assert!(numbers::<f32>(&mut NormalRng::seeded(6), 0).is_empty());
}

#[test]
fn tensors_of_every_type_and_the_next_draw_is_another() {
    let device = Device::flex();
    let mut rng = NormalRng::seeded(7);
    let mut draw = |dtype| {
        let tensor = rng.tensor::<2>([5, 3], dtype, &device);
        assert_eq!((tensor.dims(), tensor.dtype()), ([5, 3], dtype));
        tensor.into_data().iter::<f64>().collect::<Vec<_>>()
    };
    let drawn = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::F32].map(&mut draw);
    assert_ne!(drawn[0], drawn[4]);
    assert!(drawn.iter().flatten().all(|x| x.abs() < 9.0));
    let seeded = NormalRng::from_rng(&mut rand::rngs::StdRng::from_seed([1; 32]));
    assert_eq!(seeded, NormalRng::from_rng(&mut rand::rngs::StdRng::from_seed([1; 32])));
}

use rand::SeedableRng;
