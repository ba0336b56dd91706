//! Sparse multivariate normal distributions for [Burn](https://burn.dev), the noise that they sample from, and tests of samples.
//!
//! | | |
//! |---|---|
//! | [`SparseMultivariateNormal`] | distributions by a sparse triangular factor of the covariance or the precision, alone or in batches: [`rsample`](SparseMultivariateNormal::rsample), [`log_prob`](SparseMultivariateNormal::log_prob), [`entropy`](SparseMultivariateNormal::entropy), [`kl_divergence`](SparseMultivariateNormal::kl_divergence), moments, [`affine`](SparseMultivariateNormal::affine) maps, [`condition`](SparseMultivariateNormal::condition)ing |
//! | [`Form`], [`Factor`], [`Checks`], [`Trace`] | which of four factors, one or one for each item, what is validated, how a divergence is found |
//! | [`positive_diagonal`], [`Positive`] | factors with a positive diagonal from any numbers |
//! | [`NormalRng`] | standard normal numbers, the same ones whatever the number of threads |
//! | [`mean_hotelling_t2_test`], [`cov_nagao_test`] | whether samples have the mean and the covariance that they should have |
//!
//! Values may come from a network through [`PairwiseEncoder`](sparsegrad::encoders::PairwiseEncoder), as in the example `spatial_mvn`.

pub mod mvn;
mod normal;
mod statistics;
mod threads;

pub use mvn::{Checks, Factor, Form, MvnError, Positive, SparseMultivariateNormal, Trace, positive_diagonal};
pub use normal::{NormalElement, NormalRng};
pub use sparsegrad_solvers;
pub use statistics::{StatisticsError, TestResult, cov_nagao_test, mean_hotelling_t2_test};
