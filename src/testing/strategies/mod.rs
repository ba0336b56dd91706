//! Strategies for property tests with [`proptest`], which is re-exported: sparse matrices as users make them, with empty rows,
//! duplicates and entries in any order; values that hurt; dense operands in every memory layout; formats; and parts that no
//! constructor may accept, each with the error that it must return.
//!
//! Feature `proptest`. What is drawn lives on the host, prints in full when a test fails, and shrinks to few and small
//! entries; its `on(&device)` puts it on a device in double precision, `on((&device, DType::F32))` in another type.
//!
//! | strategy | draws |
//! |---|---|
//! | [`matrix`], [`coo`], [`csr`], [`csc`], [`canonical`], [`matrix_with`] | a [`HostMatrix`] |
//! | [`spd`], [`lower_triangular`] | a well-conditioned one, for solvers |
//! | [`pattern`] | a [`Pattern`] |
//! | [`dense`], [`dense_with`] | a [`HostDense`] |
//! | [`product`], [`sampled`] | operands that fit each other |
//! | [`value`], [`hostile`] | an `f64` |
//! | [`format`](fn@format) | a [`TensorFormat`](crate::TensorFormat) |
//! | [`invalid`] | [`Parts`], and the error |
//!
//! ```
//! use sparsegrad::{prelude::*, testing::strategies::{self, proptest::prelude::*}};
//!
//! proptest! {
//!     # #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]
//!     # /*
//!     #[test]
//!     # */
//!     fn the_product_has_as_many_rows_as_the_matrix((a, b) in strategies::product(0..9, 0..9, 0..5)) {
//!         let device = Device::flex();
//!         let product = a.on(&device).unwrap().matmul(b.on(&device));
//!         prop_assert_eq!(product.dims(), [a.shape()[0], b.shape[1]]);
//!     }
//! }
//! # the_product_has_as_many_rows_as_the_matrix();
//! ```

mod dense;
mod formats;
mod invalid;
mod matrices;
mod values;

pub use dense::{HostDense, View, dense, dense_with, product, sampled};
pub use formats::format;
pub use invalid::{Parts, invalid};
pub use matrices::{Layout, canonical, coo, csc, csr, lower_triangular, matrix, matrix_with, pattern, spd};
pub use proptest;
pub use values::{hostile, value};

#[cfg(doc)]
use crate::{Pattern, io::HostMatrix};
