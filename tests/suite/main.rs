//! Everything but the op table, in one binary.
#![allow(missing_docs)]

mod batch;
#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod field;
#[cfg(feature = "wgpu")]
mod gpu;
mod gradients;
mod matrix_market;
mod memory;
mod param;
mod parity;
mod pattern;
mod serialization;
mod tensor;
