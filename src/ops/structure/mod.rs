//! **structure**: matrices made of the entries of others, with gradients: selections, concatenations, triangles, diagonals,
//! blocks, Kronecker products, permutations, and what is left after small entries are dropped.
//!
//! | operation | computes | shape of the result |
//! |---|---|---|
//! | [`select_rows`](SparseTensor::select_rows), [`select_columns`](SparseTensor::select_columns) | rows (columns) by index: in any order, repeated or not | k x n (m x k) |
//! | [`slice_rows`](SparseTensor::slice_rows), [`slice_columns`](SparseTensor::slice_columns) | a range of them | k x n (m x k) |
//! | [`vstack`](SparseTensor::vstack), [`hstack`](SparseTensor::hstack), [`block_matrix`](SparseTensor::block_matrix) | matrices below, beside each other, both | sums of theirs |
//! | [`tril`](SparseTensor::tril), [`triu`](SparseTensor::triu) | a triangle, from any diagonal on | m x n |
//! | [`get_diagonal`](SparseTensor::get_diagonal) | a diagonal as a vector; absent entries are 0, duplicates are summed | its length |
//! | [`set_diagonal`](SparseTensor::set_diagonal), [`insert_diagonal`](SparseTensor::insert_diagonal) | the matrix with another diagonal; absent entries are an error, or inserted | m x n |
//! | [`block_diagonal`](SparseTensor::block_diagonal) | matrices along a diagonal | sums of theirs |
//! | [`split_block_diagonal`](SparseTensor::split_block_diagonal), [`diagonal_blocks`](SparseTensor::diagonal_blocks) | those matrices again; entries beside them are an error, or dropped | as asked |
//! | [`kron`] | the Kronecker product | m1 m2 x n1 n2 |
//! | [`permute_rows`](SparseTensor::permute_rows), [`permute_columns`](SparseTensor::permute_columns), [`permute`](SparseTensor::permute), [`permute_symmetric`](SparseTensor::permute_symmetric) | `P A`, `A P^T`, `P A Q^T`, `P A P^T` | m x n |
//! | [`drop_zeros`](SparseTensor::drop_zeros), [`prune`](SparseTensor::prune), [`top_k`](SparseTensor::top_k) | the entries that are not 0, large, the largest | m x n |
//!
//! | | |
//! |---|---|
//! | formats | every format; the result is in that of the operand, of several operands in theirs if they have one, in CSR otherwise |
//! | order | entries stand row by row (in CSC: column by column); within a row sorted if the operand is, in the order of storage otherwise. Nothing to be done leaves the operand as it is |
//! | duplicates, stored zeros | stay, but where the operation asks for the size of an entry ([`prune`](SparseTensor::prune), [`top_k`](SparseTensor::top_k)): that is the sum |
//! | batches | each item by itself, ragged or not; indices, ranges and permutations are those of an item |
//! | dtypes | f32, f64, f16, bf16; values are moved, not computed with, but for sums on a diagonal (accumulated in f32 or f64) and Kronecker products (rounded once) |
//! | gradient | of each stored entry the sum of those of its copies, 0 where it has none; of the new diagonal that of its places |
//! | reads values | [`drop_zeros`](SparseTensor::drop_zeros), [`prune`](SparseTensor::prune), [`top_k`](SparseTensor::top_k) wait for the device; all else is made of the pattern alone |
//! | reproducible | each value has one owner and adds in the order of storage |
//!
//! An operation is a new pattern, made on the host in a time of the order of the entries it reads, and a
//! [gather](super::gather) of the values. Triangles, diagonals, Kronecker products and permutations are planned once and kept with
//! the pattern; others are best applied to a pattern once, before a loop.

mod blocks;
mod concat;
mod diagonal;
mod kron;
mod lists;
mod ordering;
mod permute;
mod prune;
mod select;
mod triangle;

pub use kron::{kron, try_kron};
pub use permute::Permutation;

#[cfg(doc)]
use crate::SparseTensor;
