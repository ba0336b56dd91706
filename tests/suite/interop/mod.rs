//! Matrices of faer, sprs and nalgebra-sparse both ways, SciPy's files, and safetensors: nothing is lost, what is said to be moved is
//! moved, and what is wrong is a typed error.

use crate::common::{Host, Layout, matrices, matrix, read};
use faer::sparse::{
    SparseColMat, SparseRowMat, SymbolicSparseColMat, SymbolicSparseColMatRef, SymbolicSparseRowMat,
    SymbolicSparseRowMatRef,
};
use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};
use sparsegrad::error::InteropError;
use sparsegrad::interop::{FromParts, IntoParts};
use sparsegrad::io::{HostMatrix, Triplets};
use sparsegrad::pattern::{IndexWidth, Indices};
use sparsegrad::prelude::*;
use sprs::{CsMat, CsMatI, TriMatI};

mod npz;
mod safetensors;

type Entries = Vec<(usize, usize, f64)>;

fn entries(tensor: &SparseTensor<2>) -> Entries {
    tensor.triplets().unwrap().collect()
}

fn sorted(mut entries: Entries) -> Entries {
    entries.sort_by(|a, b| a.partial_cmp(b).unwrap());
    entries
}

/// Every matrix in every layout.
fn tensors(dtype: DType, device: &Device, mut test: impl FnMut(&str, Layout, SparseTensor<2>)) {
    for host in matrices() {
        for layout in Layout::ALL {
            test(host.name, layout, layout.build(&host, dtype, device).0);
        }
    }
}

/// Whether the entries survive the way to a foreign matrix and back, moved or copied.
fn survives<M>(name: &str, tensor: &SparseTensor<2>, holds_duplicates: bool)
where
    M: FromParts + IntoParts<Value = <M as FromParts>::Value>,
    <M as FromParts>::Value: burn::tensor::Element,
    Vec<<M as IntoParts>::Value>: sparsegrad::IntoValues,
{
    let device = tensor.device();
    let before = entries(tensor);
    if tensor.pattern().has_duplicates() && !holds_duplicates {
        let Err(InteropError::Duplicate { position, row, column, .. }) = tensor.to_foreign::<M>() else {
            panic!("{name}: duplicates were taken");
        };
        assert_eq!((before[position].0, before[position].1), (row, column), "{name}");
        let earlier = before[..position].iter().filter(|entry| (entry.0, entry.1) == (row, column));
        assert_eq!(earlier.count(), 1, "{name}");
        return;
    }
    for theirs in [tensor.to_foreign::<M>(), tensor.clone().into_foreign::<M>()] {
        let theirs = theirs.unwrap_or_else(|error| panic!("{name}: {error}"));
        let back = SparseTensor::from_foreign(theirs, &device).unwrap();
        assert_eq!((back.shape(), back.dtype()), (tensor.shape(), tensor.dtype()), "{name}");
        if holds_duplicates {
            assert_eq!(entries(&back), before, "{name}");
        } else {
            assert!(back.pattern().format().is_ordered(), "{name}");
            assert_eq!(sorted(entries(&back)), sorted(before.clone()), "{name}");
        }
    }
}

#[test]
fn every_matrix_survives_every_library() {
    let device = Device::flex();
    tensors(DType::F64, &device, |name, layout, tensor| {
        let name = format!("{name}, {layout:?}");
        survives::<SparseColMat<usize, f64>>(&name, &tensor, false);
        survives::<SparseRowMat<u32, f64>>(&name, &tensor, false);
        survives::<CsMat<f64>>(&name, &tensor, false);
        survives::<CsMatI<f64, u32, i64>>(&name, &tensor, false);
        survives::<CsrMatrix<f64>>(&name, &tensor, false);
        survives::<CscMatrix<f64>>(&name, &tensor, false);
        survives::<CooMatrix<f64>>(&name, &tensor, true);
        survives::<TriMatI<f64, i32>>(&name, &tensor, true);
    });
    tensors(DType::F32, &device, |name, layout, tensor| {
        let name = format!("{name}, {layout:?}");
        survives::<SparseColMat<u32, f32>>(&name, &tensor, false);
        survives::<SparseRowMat<u64, f32>>(&name, &tensor, false);
        survives::<CsMatI<f32, i32>>(&name, &tensor, false);
        survives::<CooMatrix<f32>>(&name, &tensor, true);
    });
}

#[test]
fn wide_patterns_survive() {
    let host = Host::random("5x7", [5, 7], 2, 3);
    let (tensor, _) = Layout::Csc.build(&host, DType::F64, &Device::flex());
    let pattern = tensor.coalesce().pattern().with_index_width(IndexWidth::I64).unwrap();
    let tensor = SparseTensor::new(pattern, tensor.coalesce().values().clone()).unwrap();
    survives::<SparseColMat<u64, f64>>("u64", &tensor, false);
    survives::<SparseColMat<u32, f64>>("u32", &tensor, false);
    survives::<CsMatI<f64, i64>>("i64", &tensor, false);
    survives::<TriMatI<f64, i32>>("i32", &tensor, true);
}

#[test]
fn the_libraries_see_the_same_matrix() {
    let device = Device::flex();
    let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0, 4.0, 0.0], [2, 3], &device)
        .unwrap()
        .cast(burn::tensor::FloatDType::F64);
    let faer = SparseColMat::<usize, f64>::try_from(&a).unwrap();
    assert_eq!((faer.nrows(), faer.ncols()), (2, 3));
    assert_eq!((faer.col_ptr(), faer.row_idx(), faer.val()), (&[0, 1, 1, 3][..], &[1, 0, 1][..], &[4.0, 3.0, 0.0][..]));
    let sprs = CsMat::<f64>::try_from(&a).unwrap();
    assert!(sprs.is_csr());
    assert_eq!((sprs.get(0, 2), sprs.get(1, 2), sprs.get(0, 0)), (Some(&3.0), Some(&0.0), None));
    assert!(CsMat::<f64>::try_from(a.to_csc()).unwrap().is_csc());
    let nalgebra = CsrMatrix::<f64>::try_from(a.clone()).unwrap();
    assert_eq!(nalgebra.csr_data(), (&[0, 1, 3][..], &[2, 0, 2][..], &[3.0, 4.0, 0.0][..]));
    let coo = CooMatrix::<f64>::try_from(&a.t()).unwrap();
    assert_eq!((coo.nrows(), coo.row_indices(), coo.col_indices()), (3, &[2, 0, 2][..], &[0, 1, 1][..]));
}

// What is moved

/// Where the coordinates of the last level are.
fn address(pattern: &Pattern) -> *const u8 {
    match pattern.levels().last().unwrap().coordinates.as_ref().unwrap() {
        Indices::I32(buffer) => buffer.as_ptr().cast(),
        Indices::I64(buffer) => buffer.as_ptr().cast(),
    }
}

/// Whether a buffer of indices and one of values come to rest where they were, there and back.
fn moves<M, I>(theirs: M, parts: impl Fn(&M) -> (*const I, *const f64))
where
    M: FromParts<Value = f64> + IntoParts<Value = f64>,
{
    let (indices, values) = parts(&theirs);
    let host = HostMatrix::from_foreign(theirs).unwrap();
    assert_eq!((address(host.pattern()), host.values().as_ptr()), (indices.cast(), values));
    let back: M = host.into_foreign().unwrap();
    assert_eq!(parts(&back), (indices, values));

    let (pattern, values) = back.into_parts().unwrap();
    let tensor = SparseTensor::new(pattern, vector_of(values)).unwrap();
    let _ = tensor.matmul(Tensor::<2>::ones([tensor.shape()[1], 1], (&Device::flex(), DType::F64))); // plans
    let back: M = tensor.into_foreign().unwrap();
    assert_eq!(parts(&back).0, indices);
    let shared = SparseTensor::from_foreign(back, &Device::flex()).unwrap();
    let copied: M = shared.to_foreign().unwrap();
    assert_ne!(parts(&copied).0, indices);
    assert_eq!(address(shared.pattern()), indices.cast());
}

fn vector_of(values: Vec<f64>) -> Tensor<1> {
    sparsegrad::IntoValues::into_values(values, &Device::flex())
}

#[test]
fn buffers_of_equal_width_are_moved() {
    let (offsets, inner, values) = (vec![0, 1, 3], vec![2, 0, 2], vec![3.0, 4.0, 5.0]);
    let unsigned = |buffer: &[i32]| buffer.iter().map(|&i| i as u32).collect::<Vec<_>>();
    let sprs = CsMatI::<f64, i32>::new((2, 3), offsets.clone(), inner.clone(), values.clone());
    moves(sprs, |m| (m.indices().as_ptr(), m.data().as_ptr()));
    let sprs = CsMatI::<f64, u32>::new_csc((3, 2), unsigned(&offsets), unsigned(&inner), values.clone());
    moves(sprs, |m| (m.indices().as_ptr(), m.data().as_ptr()));
    let symbolic = SymbolicSparseRowMat::new_checked(2, 3, unsigned(&offsets), None, unsigned(&inner));
    moves(SparseRowMat::new(symbolic, values.clone()), |m| (m.col_idx().as_ptr(), m.val().as_ptr()));
    let symbolic = SymbolicSparseColMat::new_checked(3, 2, unsigned(&offsets), None, unsigned(&inner));
    moves(SparseColMat::new(symbolic, values), |m| (m.row_idx().as_ptr(), m.val().as_ptr()));
}

#[test]
fn values_on_flex_are_moved() {
    let theirs = CsMatI::<f32, i32>::new((2, 3), vec![0, 1, 3], vec![2, 0, 2], vec![3.0, 4.0, 5.0]);
    let before = theirs.data().as_ptr();
    let back: CsMatI<f32, i32> = SparseTensor::from_foreign(theirs, &Device::flex()).unwrap().into_foreign().unwrap();
    assert_eq!(back.data().as_ptr(), before);
}

// What the libraries leave room for

#[test]
fn room_between_columns_is_left_out() {
    // Columns 0 and 1 start at 1 and 3 and use 1 and 2 of their 2 and 3 places.
    let (starts, lengths, rows) = (vec![1u32, 3, 6], vec![1u32, 2], vec![9u32, 2, 9, 0, 1, 9, 9]);
    let values = vec![f64::NAN, 5.0, f64::NAN, 6.0, 7.0, f64::NAN, f64::NAN];
    let expected = vec![(2, 0, 5.0), (0, 1, 6.0), (1, 1, 7.0)];
    let symbolic = SymbolicSparseColMat::new_checked(3, 2, starts, Some(lengths), rows);
    let theirs = SparseColMat::new(symbolic, values);
    let device = Device::flex();
    let tensor = SparseTensor::from_foreign(theirs.as_ref(), &device).unwrap();
    assert_eq!(entries(&tensor), expected);
    assert_eq!(entries(&SparseTensor::from_foreign(theirs, &device).unwrap()), expected);

    // Places behind the last row.
    let symbolic = SymbolicSparseRowMatRef::new_checked(2, 2, &[0usize, 1, 2], None, &[1, 0, 7]);
    let pattern = Pattern::from_foreign(symbolic).unwrap();
    assert_eq!(pattern.coordinates(), (vec![0, 1], vec![1, 0]));

    // Offsets of a slice start where they did in the whole.
    let whole = CsMatI::<f64, i32>::new((3, 3), vec![0, 1, 2, 4], vec![2, 1, 0, 1], vec![1.0, 2.0, 3.0, 4.0]);
    let slice = whole.slice_outer(1..3);
    let tensor = SparseTensor::from_foreign(slice, &device).unwrap();
    assert_eq!(entries(&tensor), [(0, 1, 2.0), (1, 0, 3.0), (1, 1, 4.0)]);
}

// Patterns

#[test]
fn patterns_are_lent_to_faer() {
    let csr = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap();
    let rows: SymbolicSparseRowMatRef<'_, u32> = (&csr).try_into().unwrap();
    assert_eq!((rows.row_ptr(), rows.col_idx()), (&[0, 1, 3][..], &[2, 0, 2][..]));
    assert_eq!(rows.col_idx().as_ptr().cast(), address(&csr));
    let t = csr.t();
    let columns: SymbolicSparseColMatRef<'_, u32> = (&t).try_into().unwrap();
    assert_eq!((columns.nrows(), columns.ncols(), columns.row_idx().as_ptr().cast()), (3, 2, address(&csr)));
    let wide = csr.with_index_width(IndexWidth::I64).unwrap();
    assert_eq!(SymbolicSparseRowMatRef::<'_, u64>::try_from(&wide).unwrap().col_idx(), [2, 0, 2]);
    assert_eq!(SymbolicSparseRowMatRef::<'_, usize>::try_from(&wide).unwrap().col_idx(), [2, 0, 2]);

    let refused = |result: Result<SymbolicSparseRowMatRef<'_, u32>, _>, found: &str| {
        let error: InteropError = result.err().unwrap();
        assert!(matches!(error, InteropError::View { format: "CSR", bits: 32, .. }), "{error:?}");
        let expected = "a view needs CSR with indices of 32 bits, sorted, each position once, and this is ";
        assert_eq!(error.to_string(), format!("{expected}{found}"));
    };
    refused((&t).try_into(), "3x2, 3 stored (50 %), CSC i32");
    refused((&wide).try_into(), "2x3, 3 stored (50 %), CSR i64");
    let unsorted = Pattern::csr([0, 2], [1, 0], [1, 2]).unwrap();
    refused((&unsorted).try_into(), "1x2, 2 stored (100 %), CSR i32, unordered");
    let twice = Pattern::csr([0, 2], [1, 1], [1, 2]).unwrap();
    refused((&twice).try_into(), "1x2, 2 stored (100 %), CSR i32, with duplicates");
}

#[test]
fn patterns_without_values() {
    for host in matrices() {
        let (tensor, _) = Layout::Coo.build(&host, DType::F32, &Device::flex());
        let pattern = tensor.coalesce().to_csr().pattern().clone();
        let theirs: SymbolicSparseColMat<usize> = pattern.to_foreign().unwrap();
        assert_eq!(Pattern::from_foreign(theirs.as_ref()).unwrap().to_csr().pattern, pattern);
        let theirs: SymbolicSparseRowMat<u32> = pattern.to_foreign().unwrap();
        assert_eq!(Pattern::from_foreign(theirs).unwrap(), pattern);
        let theirs: CsMatI<(), i32> = pattern.to_foreign().unwrap();
        assert_eq!(Pattern::from_foreign(theirs.view()).unwrap(), pattern);
        let theirs: CsrMatrix<()> = pattern.clone().into_foreign().unwrap();
        assert_eq!(Pattern::from_foreign(theirs).unwrap(), pattern);
    }
}

// What is refused

#[test]
fn misfits_are_typed_errors() {
    let device = Device::flex();
    let a = SparseTensor::eye_of(2, DType::F32, &device).unwrap();
    let error = a.to_foreign::<CsMat<f64>>().unwrap_err();
    assert_eq!(error, InteropError::DType { values: DType::F32, matrix: DType::F64 });
    assert_eq!(error.to_string(), "values of type F32 for a matrix of F64 (use `cast`)");
    let half = a.cast(burn::tensor::FloatDType::F16);
    assert!(matches!(half.to_foreign::<SparseColMat<u32, f32>>(), Err(InteropError::DType { values: DType::F16, .. })));

    let twice = SparseTensor::from_coo(&[1, 0, 1], &[0, 0, 0], &[1.0f32, 2.0, 3.0], [2, 1], &device).unwrap();
    let error = twice.to_foreign::<SparseRowMat<u32, f32>>().err().unwrap();
    assert_eq!(
        error.to_string(),
        "entry 2 stores (1, 0) again, and a faer::sparse::SparseRowMat holds each position once (use `coalesce`)"
    );
    assert!(twice.coalesce().to_foreign::<SparseRowMat<u32, f32>>().is_ok());

    let tall = SparseTensor::from_coo(&[1i64 << 33], &[0], &[1.0f32], [1 << 34, 1], &device).unwrap();
    let index = "i32";
    let error = tall.to_foreign::<TriMatI<f32, i32>>().err().unwrap();
    assert_eq!(error, InteropError::Index { value: 1 << 34, index });
    assert_eq!(error.to_string(), "17179869184 does not fit the index type i32");
    assert!(matches!(tall.to_foreign::<SparseColMat<u32, f32>>(), Err(InteropError::Index { index: "u32", .. })));
    let wide: SparseColMat<u64, f32> = tall.to_foreign().unwrap();
    assert_eq!(wide.row_idx(), [1 << 33]);

    let pattern = Pattern::eye(2).unwrap();
    let error = CooMatrix::from_parts(pattern.clone(), vec![1.0f64]).unwrap_err();
    assert_eq!(error, TensorError::ValuesLength { values: 1, stored: 2 }.into());
    assert!(CsrMatrix::from_parts(pattern, vec![1.0f64; 3]).is_err());
}

#[test]
fn indices_beyond_a_matrix_keep_their_value() {
    let error = Pattern::coo(vec![0u32, 3_000_000_000], vec![0u32, 0], [2, 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "row index 3000000000 at position 1 is out of range for a matrix with 2 rows (shape 2x1)"
    );
}

// Gradients and the host

#[test]
fn tracked_values_are_read_and_foreign_ones_are_not_tracked() {
    let device = Device::flex().autodiff();
    let a = SparseTensor::eye_of(2, DType::F64, &device).unwrap().require_grad();
    let theirs: CsMat<f64> = a.map_values(|values| values * 2.0).to_foreign().unwrap();
    assert_eq!(theirs.data(), [2.0, 2.0]);
    let back = SparseTensor::from_foreign(theirs, &device).unwrap();
    assert!(!back.values().is_require_grad());
    let back = back.require_grad();
    let b = matrix(&[1.0, 2.0], [2, 1], DType::F64, &device);
    let grads = back.matmul(b).sum().backward();
    assert_eq!(read(back.grad(&grads).unwrap().values()), [1.0, 2.0]);
}

#[test]
fn host_matrices_are_exchanged_in_double_precision() {
    let theirs = CsMatI::<f32, u32>::new((2, 2), vec![0, 1, 2], vec![1, 0], vec![0.5f32, 3.0]);
    let host = HostMatrix::from_foreign(theirs).unwrap();
    assert_eq!(host.entries().collect::<Entries>(), [(0, 1, 0.5), (1, 0, 3.0)]);
    let theirs: SparseColMat<usize, f64> = host.to_foreign().unwrap();
    assert_eq!(theirs.val(), [3.0, 0.5]);
    let tensor = host.on((&Device::flex(), DType::F32)).unwrap();
    assert_eq!(tensor.to_host().unwrap(), host);
}

fn triplets(shape: [usize; 2], entries: &[(usize, usize, f64)]) -> Triplets {
    let rows = entries.iter().map(|entry| entry.0).collect();
    let columns = entries.iter().map(|entry| entry.1).collect();
    Triplets::new(shape, rows, columns, entries.iter().map(|entry| entry.2).collect())
}
