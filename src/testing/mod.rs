//! For tests, ours and users': gradients against finite differences.

mod gradcheck;

pub use gradcheck::{GradcheckError, GradcheckReport, gradcheck};
