//! Linear operators and sparse solvers for [Burn](https://burn.dev), with gradients by implicit differentiation.
//!
//! | module | what is there |
//! |---|---|
//! | [`operator`] | [`LinearOperator`]: what a solver needs of a matrix |
//! | [`krylov`] | CG, MINRES, BiCGSTAB, CGS, GMRES, LSMR |
//! | [`direct`] | [`Direct`]: sparse factorisations |
//! | [`precond`] | preconditioners: recipes that make an approximate inverse of an operator |
//! | [`outcome`] | [`Solution`] and [`Report`]: what a solver found, and how far it can be trusted |
//! | [`method`](mod@method) | [`Method`]: what every solver is |
//! | [`implicit`] | the one rule by which solves are differentiated |
//! | [`vjp`] | gradients of solves as functions that can be differentiated again |

mod auto;
pub mod direct;
mod host;
pub mod implicit;
pub mod krylov;
mod lstsq;
pub mod method;
pub mod operator;
pub mod outcome;
mod pairing;
mod plan;
pub mod precond;
mod solve;
pub mod vjp;

/// What the other crates of this workspace share with this one. Not part of the public interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::implicit::{is_tracked, node};
    pub use crate::solve::{lifted, plain};
}

pub use auto::{Auto, solve};
pub use direct::Direct;
pub use implicit::BackwardWatch;
pub use krylov::{BiCgStab, Cg, Cgs, Gmres, Lsmr, MinRes};
pub use lstsq::{sparse_lstsq, sparse_lstsq_from, try_sparse_lstsq};
pub use method::Method;
pub use operator::{LinearOperator, Operator, Tags};
pub use outcome::{Breakdown, Outcome, Report, Solution, SolveError};
pub use pairing::{Layout, SolveFor};
pub use plan::Plan;
pub use precond::Preconditioner;
pub use solve::{sparse_solve, sparse_solve_from, try_sparse_solve};
pub use sparsegrad;
