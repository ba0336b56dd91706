#![allow(missing_docs, clippy::needless_borrows_for_generic_args)]
#[path = "common/mod.rs"]
mod common;
#[path = "suite/structure.rs"]
mod structure;
