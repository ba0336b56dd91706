//! The operations, one folder each: what it computes, its gradient, its kernel on the CPU and on a GPU.
//!
//! | operation | public functions | gradient |
//! |---|---|---|
//! | [`spmm`] | [`sparse_mm`](spmm::sparse_mm), [`SparseTensor::matmul`](crate::SparseTensor::matmul), [`matvec`](crate::SparseTensor::matvec) | sddmm, and spmm with the transpose |
//! | [`sddmm`] | [`sddmm`](sddmm::sddmm), [`sddmm_with`](sddmm::sddmm_with) | spmm, and spmm with the transpose |
//! | [`gather`] | conversions, [`coalesce`](crate::SparseTensor::coalesce) | the transposed gather |
//! | [`dense`] | [`to_dense`](crate::SparseTensor::to_dense), [`from_dense`](crate::SparseTensor::from_dense) | each the other's transpose |

pub mod dense;
pub mod gather;
pub mod sddmm;
pub mod spmm;
