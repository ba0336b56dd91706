//! Duplicates and the invariants of formats.

use super::*;

/// google/jax#8889: entries were squared before duplicates were summed.
#[test]
fn jax_8889_a_nonlinear_map_of_duplicates() {
    let m = coo([3, 3], &[0, 1, 0, 0, 1, 1], &[1, 0, 1, 2, 0, 2], &[1., 2., 3., 4., 5., 6.]);
    assert_eq!(read(&m.to_dense()), [0., 4., 4., 7., 0., 6., 0., 0., 0.]);
    let squared = m.coalesce().map_values(|v| v.powi_scalar(2));
    assert_eq!(read(&squared.to_dense()), [0., 16., 16., 49., 0., 36., 0., 0., 0.]);
}

/// google/jax#13845: extracting at a pattern is the transpose of the dense form, not its inverse.
#[test]
fn jax_13845_extraction_is_the_transpose_of_to_dense() {
    let v = coo([1, 5], &[0, 0, 0], &[2, 2, 4], &[1., 3., 5.]);
    let d = v.to_dense();
    assert_eq!(read(&d), [0., 0., 4., 0., 5.]);
    let extracted = SparseTensor::sample(v.pattern(), d).unwrap();
    assert_eq!(read(extracted.values()), [4., 4., 5.]);
}

/// google/jax#8021: an entry that pads a row must not be extracted.
#[test]
fn jax_8021_rows_of_different_length_need_no_padding() {
    let m = Tensor::from_data([[0., 0., 0.5], [0., 0.8, 0.9]], (&device(), DType::F64));
    let pattern = Pattern::csr([0, 1, 3], [2, 1, 2], [2, 3]).unwrap();
    let extracted = SparseTensor::sample(&pattern, m).unwrap();
    assert_eq!(read(extracted.values()), [0.5, 0.8, 0.9]);
}

/// torchsparsegradutils, found by running it: duplicates got a wrong gradient ([4, 4, 3]).
#[test]
fn tsgu_gradient_of_duplicates() {
    let a = coo([2, 2], &[0, 0, 1], &[0, 0, 1], &[1., 3., 5.]);
    let y = a.matvec(vector(&[2., 3.]));
    assert_eq!(read(&y), [8., 15.]);
    let grads = y.sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [2., 2., 3.]);
}

/// scipy/scipy#20670: duplicates through CSC.
#[test]
fn scipy_20670_duplicates_through_csc() {
    let a = coo([2, 2], &[0, 1, 1], &[1, 0, 0], &[1., 1., 1.]).to_csc();
    assert_eq!(read(&a.to_dense()), [0., 1., 2., 0.]);
    assert_eq!(read(&a.coalesce().to_dense()), [0., 1., 2., 0.]);
}

/// pytorch/pytorch#60277: more entries in a row than there are columns.
#[test]
fn pytorch_60277_more_entries_than_columns() {
    let a = SparseTensor::from_csr([0, 5], [1; 5], [0., 1., 2., 3., 4.], [1, 3], &device()).unwrap();
    assert!(a.pattern().has_duplicates());
    assert_eq!(read(&a.to_dense()), [0., 10., 0.]);
    assert_eq!(read(&a.matvec(vector(&[1., 1., 1.]))), [10.]);
    assert_eq!(a.get(0, 1).unwrap(), Some(10.));
}

/// cupy/cupy#3620: coordinates sorted by column were read as if sorted by row.
#[test]
fn cupy_3620_coordinates_in_column_order() {
    let a = coo([3, 3], &[0, 1, 2, 1, 2, 2], &[0, 0, 0, 1, 1, 2], &[1.; 6]);
    assert!(!a.pattern().format().is_ordered());
    assert_eq!(read(&a.matvec(vector(&[1., 1., 1.]))), [1., 2., 3.]);
    assert_eq!(read(&a.to_csr().matvec(vector(&[1., 1., 1.]))), [1., 2., 3.]);
}

/// chainer/chainer#6543 and james-bowman/sparse#21: the last of the duplicates won.
#[test]
fn chainer_6543_no_duplicate_wins() {
    let a = coo([1, 2], &[0, 0, 0, 0, 0, 0], &[0, 0, 0, 1, 1, 1], &[10., 20., 30., 100., -100., 1.]);
    assert_eq!(read(&a.to_dense()), [60., 1.]);
    assert_eq!(read(a.coalesce().values()), [60., 1.]);
}

/// pytorch/pytorch#56856 and PR 138068, NVIDIA/CUDALibrarySamples#106: invalid structures were accepted.
#[test]
fn pytorch_56856_invalid_structures_are_refused() {
    let refused =
        |offsets: &[i64], columns: &[i64], shape| Pattern::csr(offsets, columns, shape).unwrap_err().to_string();
    assert_eq!(refused(&[0, 0, 0], &[0, 1, 2], [2, 3]), "row offsets end at 0, but there are 3 entries");
    assert_eq!(refused(&[0, 2, 1, 3], &[0, 1, 2], [3, 3]), "row offsets decrease at position 2: 1 after 2");
    assert_eq!(
        Pattern::coo([0, 2], [0, 0], [2, 2]).unwrap_err().to_string(),
        "row index 2 at position 1 is out of range for a matrix with 2 rows (shape 2x2)"
    );
    assert_eq!(
        Pattern::csc([0, 1, 2], [0, -1], [2, 2]).unwrap_err().to_string(),
        "row index -1 at position 1 is out of range for a matrix with 2 rows (shape 2x2, column 1 has entries 1..2)"
    );
}
