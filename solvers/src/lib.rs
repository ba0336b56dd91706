//! Linear operators and sparse solvers for [Burn](https://burn.dev), with gradients by implicit differentiation.
//!
//! | module | what is there |
//! |---|---|
//! | [`operator`] | [`LinearOperator`]: what a solver needs of a matrix |
//! | [`krylov`] | CG, MINRES, BiCGSTAB, CGS, GMRES, LSMR |
//! | [`precond`] | preconditioners: recipes that make an approximate inverse of an operator |
//! | [`outcome`] | [`Solution`] and [`Report`]: what a solver found, and how far it can be trusted |
//! | [`method`](mod@method) | [`Method`]: what every solver is |

pub mod krylov;
pub mod method;
pub mod operator;
pub mod outcome;
pub mod precond;

pub use krylov::{BiCgStab, Cg, Cgs, Gmres, Lsmr, MinRes};
pub use method::Method;
pub use operator::{LinearOperator, Operator, Tags};
pub use outcome::{Breakdown, Outcome, Report, Solution};
pub use precond::Preconditioner;
pub use sparsegrad;
