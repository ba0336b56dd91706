//! Everything but the op table, in one binary.
#![allow(missing_docs, clippy::needless_borrows_for_generic_args)]

mod add;
#[path = "../common/allocated.rs"]
mod allocated;
mod batch;
#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod encoders;
mod field;
mod gallery;
#[cfg(feature = "wgpu")]
mod gpu;
mod gradients;
mod interop;
mod matrix_market;
mod memory;
mod param;
mod parity;
mod pattern;
mod properties;
mod reduce;
mod segment;
mod segment_mm;
mod serialization;
mod spgemm;
mod structure;
mod tensor;
mod trisolve;
