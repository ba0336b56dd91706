//! Sparse multivariate normal distributions for [Burn](https://burn.dev), the noise that they sample from, and tests of samples.

pub mod mvn;
mod normal;
mod statistics;

pub use mvn::{Checks, Factor, Form, MvnError, Positive, SparseMultivariateNormal, Trace, positive_diagonal};
pub use normal::{NormalElement, NormalRng};
pub use sparsegrad_solvers;
pub use statistics::{StatisticsError, TestResult, cov_nagao_test, mean_hotelling_t2_test};
