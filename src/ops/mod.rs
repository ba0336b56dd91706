//! The operations, one folder each: what it computes, its gradient, its kernel on the CPU and on a GPU.
//!
//! | operation | public functions | gradient |
//! |---|---|---|
//! | [`spmm`] | [`sparse_mm`](spmm::sparse_mm), [`SparseTensor::matmul`](crate::SparseTensor::matmul), [`matvec`](crate::SparseTensor::matvec) | sddmm, and spmm with the transpose |
//! | [`sddmm`] | [`sddmm`](sddmm::sddmm), [`sddmm_with`](sddmm::sddmm_with) | spmm, and spmm with the transpose |
//! | [`segment_mm`](mod@segment_mm) | [`segment_mm`](segment_mm::segment_mm), [`gather_mm`](segment_mm::gather_mm), with biases; [`grouped_mm`](segment_mm::grouped_mm), [`segment_outer`](segment_mm::segment_outer) | segment_mm with the transposes, and sums of outer products |
//! | [`spgemm`](mod@spgemm) | [`spgemm`](spgemm::spgemm), [`SpgemmPlan`](spgemm::SpgemmPlan), [`SparseTensor::matmul`](crate::SparseTensor::matmul) | masked products at each operand's pattern |
//! | [`trisolve`] | [`sparse_triangular_solve`](trisolve::sparse_triangular_solve) | trisolve with the transpose, and sddmm at the triangle |
//! | [`add`] | [`csr_add`](add::csr_add), [`sparse_add`](add::sparse_add), [`sparse_mul`](add::sparse_mul), operators, [`scale`](crate::SparseTensor::scale), [`map_coalesced`](crate::SparseTensor::map_coalesced) | gathers, and their transposes |
//! | [`gather`] | conversions, [`coalesce`](crate::SparseTensor::coalesce) | the transposed gather |
//! | [`structure`] | [`select_rows`](crate::SparseTensor::select_rows), [`vstack`](crate::SparseTensor::vstack), [`tril`](crate::SparseTensor::tril), [`get_diagonal`](crate::SparseTensor::get_diagonal), [`kron`](structure::kron()), [`permute_symmetric`](crate::SparseTensor::permute_symmetric), [`prune`](crate::SparseTensor::prune) and their kin | the transposed gather |
//! | [`dense`] | [`to_dense`](crate::SparseTensor::to_dense), [`from_dense`](crate::SparseTensor::from_dense) | each the other's transpose |
//! | [`reduce`] | [`sum`](crate::SparseTensor::sum), `mean`, `max`, `min`, `norm`, [`sparse_logsumexp`](reduce::sparse_logsumexp) | its own, at the entries |
//! | [`reduce`] | [`row_softmax`](crate::SparseTensor::row_softmax), `column_softmax`, their logarithms | its own |
//! | [`segment`] | [`segment_sum`](segment::segment_sum), `mean`, `max`, `min`, [`segment_softmax`](segment::segment_softmax), `log_softmax`, [`segment_expand`](segment::segment_expand) | its own, at the rows |
//! | [`edge`] | [`edge_gather`](edge::edge_gather), [`edge_op`](edge::edge_op), [`edge_reduce`](edge::edge_reduce), [`edge_softmax`](edge::edge_softmax), [`edge_dot`](edge::edge_dot), [`edge_mm`](edge::edge_mm) | each other |

pub mod add;
pub mod dense;
pub mod edge;
pub mod gather;
pub mod reduce;
pub mod sddmm;
pub mod segment;
pub mod segment_mm;
pub mod spgemm;
pub mod spmm;
pub mod structure;
pub mod trisolve;
