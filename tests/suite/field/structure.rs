//! Selections, blocks and stacks.

use super::*;
use sparsegrad::error::Axis;
use sparsegrad::vjp;

/// pytorch/pytorch#1631: the gradient of a gather with repeats accumulates; here of rows.
#[test]
fn pytorch_1631_a_selection_with_repeats_accumulates() {
    let a = coo([1, 2], &[0], &[1], &[7.]);
    let twice = a.select_rows([0, 0]).unwrap();
    assert_eq!(read(twice.values()), [7., 7.]);
    let grads = vjp::backward(twice.values(), vector(&[0.2, 0.3]).detach());
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0.5]);
}

/// tensorflow/tensorflow#127480, torch-fem PR 17: indices without a check of their bounds.
#[test]
fn tensorflow_127480_indices_are_checked() {
    let a = coo([2, 3], &[0, 1], &[1, 2], &[1., 2.]);
    let index = |position, value| PatternError::IndexOutOfRange {
        axis: Axis::Row,
        position,
        value,
        bound: 2,
        shape: [2, 3],
        group: None,
    };
    assert_eq!(a.select_rows([0, 1, 2]).unwrap_err(), TensorError::Pattern(index(2, 2)));
    let indices = Tensor::<1, Int>::from_data([-1, 0], &device());
    assert_eq!(a.select_rows(indices).unwrap_err(), TensorError::Pattern(index(0, -1)));
}

/// pytorch/pytorch#146976: a sum with duplicates had wrong gradients; here of what is put together.
#[test]
fn pytorch_146976_duplicates_in_what_is_put_together() {
    let a = coo([1, 2], &[0, 0], &[1, 1], &[1., 2.]);
    let b = coo([1, 2], &[0], &[1], &[4.]);
    let sum = SparseTensor::vstack(&[a.clone(), b.clone()]).unwrap().select_rows([0, 1, 0]).unwrap();
    assert_eq!(read(&sum.to_dense()), [0., 3., 0., 4., 0., 3.]);
    let grads = sum.matvec(vector(&[1., 10.])).sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [20., 20.]);
    assert_eq!(read(b.grad(&grads).unwrap().values()), [10.]);
}

/// torchsparsegradutils, found by running it: entries beside the blocks were dropped in COO, and in CSR gave columns out of range.
#[test]
fn tsgu_entries_beside_the_blocks() {
    let a = coo([3, 3], &[0, 0, 1, 2], &[0, 2, 1, 2], &[1., 2., 3., 4.]);
    let shapes = [[1, 1], [2, 2]];
    for a in [a.clone(), a.to_csr(), a.to_csc()] {
        let error = a.split_block_diagonal(&shapes).unwrap_err();
        assert!(
            matches!(error, TensorError::Pattern(PatternError::OutsideBlock { row: 0, column: 2, block: 0, .. })),
            "{error}"
        );
        let blocks = a.diagonal_blocks(&shapes).unwrap();
        assert_eq!(read(&blocks[0].to_dense()), [1.]);
        assert_eq!(read(&blocks[1].to_dense()), [3., 0., 0., 4.]);
        let short = a.diagonal_blocks(&shapes[..1]).unwrap_err();
        assert_eq!(short.to_string(), "blocks of 1x1 in all for a matrix of shape 3x3");
    }
    // One block is the matrix.
    assert_eq!(SparseTensor::block_diagonal(std::slice::from_ref(&a)).unwrap().triplets().unwrap().count(), 4);
    let blocks = a.diagonal_blocks(&shapes).unwrap();
    let grads = (blocks[0].values().clone().sum() + blocks[1].values().clone().sum() * 2.0).backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1., 0., 2., 2.]);
}

/// torchsparsegradutils, found by running it: matrices of different nnz could not be stacked, and an empty one was lost.
#[test]
fn tsgu_stacks_of_unequal_items() {
    let a = coo([2, 2], &[0, 1], &[1, 0], &[1., 2.]);
    let items = [a.clone(), coo([2, 2], &[], &[], &[]), a.select_rows([0, 0]).unwrap()];
    let batch = SparseTensor::stack(&items).unwrap();
    assert_eq!((batch.shape(), batch.nnz(), batch.item(1).nnz()), ([3, 2, 2], 4, 0));
    assert_eq!(read(&batch.to_dense()), [0., 1., 2., 0., 0., 0., 0., 0., 0., 1., 0., 1.]);
}
