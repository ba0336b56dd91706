//! Tests whether samples have the mean and the covariance that they should have.

use burn::tensor::Tensor;
use faer::linalg::solvers::{Llt, Solve};
use faer::{Mat, Side};
use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor};

/// The outcome of a test, for each item of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct TestResult {
    /// Whether the hypothesis stands: the statistic does not exceed the threshold.
    pub accepted: Vec<bool>,
    /// The test's statistic.
    pub statistic: Vec<f64>,
    /// The statistic's quantile at the confidence level, if the hypothesis is true.
    pub threshold: f64,
    /// The probability of such a statistic, or a larger one, if the hypothesis is true.
    pub p_value: Vec<f64>,
}

impl TestResult {
    fn new(statistic: Vec<f64>, threshold: f64, survival: impl Fn(f64) -> f64) -> Self {
        Self {
            accepted: statistic.iter().map(|&t| t <= threshold).collect(),
            p_value: statistic.iter().map(|&t| survival(t)).collect(),
            statistic,
            threshold,
        }
    }

    /// Whether the hypothesis stands for all items.
    pub fn all_accepted(&self) -> bool {
        self.accepted.iter().all(|&accepted| accepted)
    }
}

/// Why there is no test.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StatisticsError {
    /// Operands that do not fit each other.
    #[error("{what} must be of shape {expected:?} and is of shape {found:?}")]
    Shape {
        /// The operand.
        what: &'static str,
        /// Its shape as the others ask for it.
        expected: Vec<usize>,
        /// Its shape.
        found: Vec<usize>,
    },
    /// Too few samples for the dimension.
    #[error("{samples} samples of {dimension} dimensions: the test needs at least {needed}")]
    TooFewSamples {
        /// The number of samples.
        samples: usize,
        /// The dimension p.
        dimension: usize,
        /// The number that it takes.
        needed: usize,
    },
    /// A level of confidence that isn't one.
    #[error("the level of confidence must lie between 0 and 1 and is {level}")]
    Confidence {
        /// The level.
        level: f64,
    },
    /// A covariance without a Cholesky factor.
    #[error("the {what} covariance of item {item} is not positive definite")]
    NotPositiveDefinite {
        /// Which one.
        what: &'static str,
        /// The item of the batch.
        item: usize,
    },
    /// Reading from the device failed.
    #[error("reading from the device failed: {reason}")]
    Read {
        /// What the backend says.
        reason: String,
    },
}

/// Hotelling's one-sample T^2 test: whether `n` samples with this mean (items x p) and covariance (items x p x p, unbiased) are
/// from a normal distribution with the mean `true_mean` (items x p).
///
/// `T^2 = n d^T S^-1 d` with `d = sample_mean - true_mean`, compared with `p (n - 1) / (n - p)` times the quantile of
/// F(p, n - p) at the level of confidence. Computed in f64 on the host.
///
/// Reference: H. Hotelling, *The generalization of Student's ratio*, 1931.
///
/// # Errors
/// Shapes that do not fit, `n <= p`, a level of confidence outside of (0, 1), a sample covariance that isn't positive definite.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use sparsegrad_distributions::mean_hotelling_t2_test;
///
/// let device = Device::flex();
/// let mean = Tensor::<2>::from_data([[0.1, -0.2]], &device);
/// let covariance = Tensor::<3>::from_data([[[2.0, 0.5], [0.5, 1.0]]], &device);
/// let test = mean_hotelling_t2_test(mean, Tensor::zeros([1, 2], &device), covariance, 100, 0.95)?;
/// assert_eq!(test.accepted, [false]);
/// assert!((test.threshold - 6.241451).abs() < 1e-5);
/// # Ok::<(), sparsegrad_distributions::StatisticsError>(())
/// ```
pub fn mean_hotelling_t2_test(
    sample_mean: Tensor<2>,
    true_mean: Tensor<2>,
    sample_covariance: Tensor<3>,
    n: usize,
    confidence: f64,
) -> Result<TestResult, StatisticsError> {
    let [items, p] = sample_mean.dims();
    shape("the true mean", &[items, p], &true_mean.dims())?;
    shape("the sample covariance", &[items, p, p], &sample_covariance.dims())?;
    level(confidence)?;
    if n <= p {
        return Err(StatisticsError::TooFewSamples { samples: n, dimension: p, needed: p + 1 });
    }
    let (sample, truth) = (read(sample_mean)?, read(true_mean)?);
    let covariances = matrices(sample_covariance)?;
    let statistic = covariances.iter().enumerate().map(|(item, covariance)| {
        let d = Mat::from_fn(p, 1, |i, _| sample[item * p + i] - truth[item * p + i]);
        let solved = cholesky(covariance, "sample", item)?.solve(&d);
        Ok(n as f64 * (d.transpose() * solved)[(0, 0)])
    });
    let statistic = statistic.collect::<Result<Vec<f64>, StatisticsError>>()?;
    if p == 0 {
        return Ok(TestResult::new(vec![0.0; items], 0.0, |_| 1.0));
    }
    let (n, p) = (n as f64, p as f64);
    let scale = p * (n - 1.0) / (n - p);
    let f = FisherSnedecor::new(p, n - p).expect("positive degrees of freedom");
    Ok(TestResult::new(statistic, scale * f.inverse_cdf(confidence), |t| f.sf(t / scale)))
}

/// Nagao's test of a covariance: whether `n` samples with this covariance (items x p x p) are from a normal distribution with the
/// covariance `reference` (items x p x p).
///
/// `T = n / 2 |L^-1 S L^-T - I|^2` in the Frobenius norm, with `reference = L L^T`, compared with the quantile of the chi-squared
/// distribution of `p (p + 1) / 2` degrees of freedom. Computed in f64 on the host.
///
/// Reference: H. Nagao, *On some test criteria for covariance matrix*, 1973.
///
/// # Errors
/// Shapes that do not fit, `n <= p`, a level of confidence outside of (0, 1), a reference that isn't positive definite.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use sparsegrad_distributions::cov_nagao_test;
///
/// let device = Device::flex();
/// let sample = Tensor::<3>::from_data([[[2.0, 0.5], [0.5, 1.0]]], &device);
/// let reference = Tensor::<3>::from_data([[[1.5, 0.2], [0.2, 1.2]]], &device);
/// let test = cov_nagao_test(sample, reference, 100, 0.95)?;
/// assert_eq!(test.accepted, [false]);
/// assert!((test.statistic[0] - 11.31844).abs() < 1e-4);
/// # Ok::<(), sparsegrad_distributions::StatisticsError>(())
/// ```
pub fn cov_nagao_test(
    sample: Tensor<3>,
    reference: Tensor<3>,
    n: usize,
    confidence: f64,
) -> Result<TestResult, StatisticsError> {
    let [items, p, _] = sample.dims();
    shape("the sample covariance", &[items, p, p], &sample.dims())?;
    shape("the reference covariance", &[items, p, p], &reference.dims())?;
    level(confidence)?;
    if n <= p {
        return Err(StatisticsError::TooFewSamples { samples: n, dimension: p, needed: p + 1 });
    }
    let (samples, references) = (matrices(sample)?, matrices(reference)?);
    let statistic = samples.iter().zip(&references).enumerate().map(|(item, (sample, reference))| {
        // |L^-1 S L^-T - I|^2 is the trace of (R^-1 S - I)^2.
        let ratio = cholesky(reference, "reference", item)?.solve(sample) - Mat::<f64>::identity(p, p);
        let trace: f64 =
            (0..p).flat_map(|i| (0..p).map(move |j| (i, j))).map(|(i, j)| ratio[(i, j)] * ratio[(j, i)]).sum();
        Ok(n as f64 / 2.0 * trace)
    });
    let statistic = statistic.collect::<Result<Vec<f64>, StatisticsError>>()?;
    if p == 0 {
        return Ok(TestResult::new(vec![0.0; items], 0.0, |_| 1.0));
    }
    let chi = ChiSquared::new((p * (p + 1) / 2) as f64).expect("positive degrees of freedom");
    Ok(TestResult::new(statistic, chi.inverse_cdf(confidence), |t| chi.sf(t)))
}

fn shape(what: &'static str, expected: &[usize], found: &[usize]) -> Result<(), StatisticsError> {
    if expected == found {
        return Ok(());
    }
    Err(StatisticsError::Shape { what, expected: expected.to_vec(), found: found.to_vec() })
}

fn level(level: f64) -> Result<(), StatisticsError> {
    if level > 0.0 && level < 1.0 { Ok(()) } else { Err(StatisticsError::Confidence { level }) }
}

fn cholesky(matrix: &Mat<f64>, what: &'static str, item: usize) -> Result<Llt<f64>, StatisticsError> {
    matrix.llt(Side::Lower).map_err(|_| StatisticsError::NotPositiveDefinite { what, item })
}

fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f64>, StatisticsError> {
    let data = tensor.try_into_data().map_err(|error| StatisticsError::Read { reason: format!("{error:?}") })?;
    Ok(data.iter::<f64>().collect())
}

/// The items of a batch of square matrices.
fn matrices(tensor: Tensor<3>) -> Result<Vec<Mat<f64>>, StatisticsError> {
    let [items, p, _] = tensor.dims();
    let entries = read(tensor)?;
    Ok((0..items).map(|item| Mat::from_fn(p, p, |i, j| entries[(item * p + i) * p + j])).collect())
}
