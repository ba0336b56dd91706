//! Sparse multivariate normal distributions for [Burn](https://burn.dev), the noise that they sample from, and tests of samples.

mod normal;
mod statistics;

pub use normal::{NormalElement, NormalRng};
pub use sparsegrad_solvers;
pub use statistics::{StatisticsError, TestResult, cov_nagao_test, mean_hotelling_t2_test};
