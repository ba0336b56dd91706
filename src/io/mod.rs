//! Sparse matrices in files.

mod host;
pub mod matrix_market;
#[cfg(feature = "npz")]
pub mod npz;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod triplets;

pub use host::HostMatrix;
pub use triplets::{Field, Symmetry, Triplets};

use std::fmt;
use std::path::PathBuf;

/// `west.mtx:418: `, as compilers write it.
struct Place<'a>(&'a Option<PathBuf>, Option<usize>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(path), Some(line)) => write!(f, "{}:{line}: ", path.display()),
            (Some(path), None) => write!(f, "{}: ", path.display()),
            (None, Some(line)) => write!(f, "line {line}: "),
            (None, None) => Ok(()),
        }
    }
}
