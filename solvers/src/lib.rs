//! Linear operators and sparse solvers for [Burn](sparsegrad::burn), with gradients by implicit differentiation.
//!
//! Nothing is here yet: this crate reserves the place of operators, Krylov and direct solvers, and least squares, which
//! stand on [`sparsegrad`]'s products and their gradients.

pub use sparsegrad;
