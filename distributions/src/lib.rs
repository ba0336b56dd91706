//! Sparse multivariate normal distributions for [Burn](sparsegrad_solvers::sparsegrad::burn).
//!
//! Nothing is here yet: this crate reserves the place of distributions whose covariance or precision is sparse, which stand
//! on [`sparsegrad_solvers`].

pub use sparsegrad_solvers;
