#![allow(missing_docs)]
#[path = "common/mod.rs"]
mod common;
#[path = "suite/param.rs"]
mod param;
#[path = "suite/serialization.rs"]
mod serialization;
