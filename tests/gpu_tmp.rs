//! Temporary.
#![cfg(feature = "wgpu")]
#[path = "suite/gpu.rs"]
mod gpu;
