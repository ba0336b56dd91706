//! Sparse tensors for [Burn](https://burn.dev) whose gradients stay sparse.
//!
//! A sparse matrix is a [`Pattern`] (where values may stand; checked once, immutable, shared) and a 1-D tensor of values,
//! tracked by Burn's autodiff like any other. Its gradient is the gradient of the values: same pattern, same order, one
//! number a stored entry. Nothing of size rows x columns, and nothing of size nnz x columns, is ever allocated.
//!
//! ```
//! use sparsegrad::prelude::*;
//!
//! let device = Device::flex().autodiff();
//! let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?
//!     .require_grad();
//! let b = Tensor::<2>::random([3, 4], Distribution::Default, &device).require_grad();
//!
//! let c = sparse_mm(&a, b.clone()); // or a.matmul(b)
//! let grads = c.sum().backward();
//!
//! println!("{}", a.grad(&grads).unwrap()); // a SparseTensor with a's own pattern
//! println!("{}", b.grad(&grads).unwrap());
//! # Ok::<(), TensorError>(())
//! ```
//!
//! # The gradient contract
//!
//! For every operation, format and backend:
//!
//! * One gradient value per *stored* entry: explicit zeros included, each duplicate its own.
//! * Absent entries never touch the dense operand; stored zeros do (a stored 0 times infinity is NaN).
//! * Gradients of dense operands are dense. Each gradient is computed only if it is asked for.
//! * Same input, same device: same bits, whatever the number of threads.
//!
//! # Map
//!
//! | module | what is there |
//! |---|---|
//! | [`format`](mod@format) | the format language: COO, CSR, CSC, and how to say others |
//! | [`pattern`] | index buffers of a format, checked, and the plans made on them |
//! | [`Segments`] | which rows of a dense tensor belong together, checked |
//! | [`SparseTensor`] | constructors, conversions, gradients, display |
//! | [`SparseParam`] | a sparse tensor in a Burn module: training, records |
//! | [`gallery`] | matrices by construction: grids, graphs, bands, random ones |
//! | [`interop`] | matrices of faer, sprs and nalgebra-sparse (features of these names) |
//! | [`io`] | matrices on the host; Matrix Market files, SciPy's `.npz` (feature `npz`), safetensors (feature `safetensors`) |
//! | [`ops`] | the operations, one module each, with formulas |
//! | [`encoders`] | sparse matrices from the neighbourhoods of a grid |
//! | [`vjp`] | gradients as functions that can be differentiated again |
//! | [`testing`] | finite differences; strategies for property tests (feature `proptest`) |
//! | [`error`] | what can go wrong |
//!
//! Errors: what depends on data returns a `Result` with a typed error. Operands that don't fit each other panic, as in
//! Burn, with both shapes, dtypes or devices in the message; each such function has a `try_` twin.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
pub mod encoders;
pub mod error;
pub mod format;
pub mod gallery;
pub mod interop;
pub mod io;
pub mod ops;
pub mod pattern;
mod segments;
mod tensor;
pub mod testing;
pub mod vjp;

/// What the other crates of this workspace share with this one. Not part of the public interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::backend::alloc;
    pub use crate::tensor::{read, reshape};
}

pub use backend::SparseOps;
pub use burn;
pub use format::TensorFormat;
pub use ops::add::{csr_add, sparse_add, sparse_mul, try_csr_add, try_sparse_add, try_sparse_mul};
pub use ops::edge::{
    EdgeOp, edge_dot, edge_gather, edge_mm, edge_op, edge_reduce, edge_softmax, try_edge_dot, try_edge_gather,
    try_edge_mm, try_edge_op, try_edge_reduce, try_edge_softmax,
};
pub use ops::reduce::{Norm, Per, Reduce, sparse_bidir_logsumexp, sparse_logsumexp};
pub use ops::sddmm::{SampledProduct, sddmm, sddmm_with, try_sddmm, try_sddmm_with};
pub use ops::segment::{
    Reducer, segment_expand, segment_log_softmax, segment_max, segment_mean, segment_min, segment_reduce,
    segment_softmax, segment_sum, try_segment_expand, try_segment_log_softmax, try_segment_reduce, try_segment_softmax,
};
pub use ops::segment_mm::{
    gather_mm, gather_mm_bias, grouped_mm, segment_mm, segment_mm_bias, segment_outer, try_gather_mm,
    try_gather_mm_bias, try_grouped_mm, try_segment_mm, try_segment_mm_bias, try_segment_outer,
};
pub use ops::spgemm::{SparseProduct, SpgemmPlan, spgemm, try_spgemm};
pub use ops::spmm::{SparseMatmul, sparse_mm, try_sparse_mm};
pub use ops::structure::{Permutation, kron, try_kron};
pub use ops::trisolve::{Triangular, TriangularSolve, sparse_triangular_solve};
pub use pattern::Pattern;
pub use segments::Segments;
pub use tensor::{IntoValues, SparseParam, SparseTensor};

/// What most programs need: this crate's types and functions, and Burn's tensor and device.
pub mod prelude {
    pub use crate::error::{FormatError, InteropError, OpError, PatternError, SegmentsError, TensorError};
    pub use crate::{Norm, Per, edge_gather, sparse_bidir_logsumexp, sparse_logsumexp};
    pub use crate::{
        Pattern, SparseMatmul, SparseParam, SparseTensor, SpgemmPlan, TensorFormat, sddmm, sddmm_with, sparse_mm,
        spgemm, try_sddmm, try_sparse_mm, try_spgemm,
    };
    pub use crate::{Segments, gather_mm, gather_mm_bias, grouped_mm, segment_mm, segment_mm_bias, segment_outer};
    pub use burn::tensor::{DType, Device, Distribution, Int, Tensor};
}

/// The programs of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
