//! Everything but the op table, in one binary.
#![allow(missing_docs)]

mod add;
mod batch;
#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod field;
mod gallery;
#[cfg(feature = "wgpu")]
mod gpu;
mod gradients;
mod matrix_market;
mod memory;
mod param;
mod parity;
mod pattern;
mod reduce;
mod properties;
mod serialization;
mod spgemm;
mod tensor;
mod trisolve;
