//! For tests, ours and users': gradients against finite differences, and strategies for property tests.

mod gradcheck;
#[cfg(feature = "proptest")]
pub mod strategies;

pub use gradcheck::{GradcheckError, GradcheckReport, gradcheck};
