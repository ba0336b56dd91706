//! Batches put together and taken apart. Products and conversions of batches are in the op table.

use crate::common::{Host, Layout, Numbers, matrix, read, vector};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;

fn device() -> Device {
    Device::flex().autodiff()
}

fn item(layout: Layout, seed: u64) -> SparseTensor<2> {
    let host = Host::random("5x7", [5, 7], 2, seed);
    layout.build(&host, DType::F64, &device()).0
}

fn entries(a: &SparseTensor<2>) -> Vec<(usize, usize, f64)> {
    a.triplets().unwrap().collect()
}

#[test]
fn items_come_back_as_they_were() {
    for layout in Layout::ALL {
        let items = [item(layout, 1), item(layout, 2), item(layout, 3)];
        let batch = SparseTensor::stack(&items).unwrap();
        assert_eq!(batch.shape()[0], 3);
        let back = batch.unstack();
        for (before, after) in items.iter().zip(&back) {
            assert_eq!(entries(before), entries(after), "{layout:?}");
            assert_eq!(before.pattern().format().name(), after.pattern().format().name());
        }
        let all: Vec<_> = batch.triplets().unwrap().collect();
        let expected: Vec<_> =
            (0..3).flat_map(|b| entries(&items[b]).into_iter().map(move |(r, c, v)| (b, r, c, v))).collect();
        assert_eq!(all, expected);
    }
}

#[test]
fn items_of_several_formats_are_stacked_in_csr() {
    let items = [item(Layout::Coo, 1), item(Layout::Csc, 2)];
    let batch = SparseTensor::stack(&items).unwrap();
    assert_eq!(batch.pattern().format().name(), Some("CSR"));
    for (i, before) in items.iter().enumerate() {
        assert_eq!(read(&before.to_dense()), read(&batch.item(i).to_dense()));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let a = item(Layout::Csr, 1);
    assert_eq!(SparseTensor::stack(&[]).unwrap_err(), TensorError::NoItems);
    assert_eq!(
        SparseTensor::stack(&[a.clone(), a.t()]).unwrap_err(),
        TensorError::ItemShape { item: 1, shape: [7, 5], first: [5, 7] }
    );
    let single = a.clone().cast(burn::tensor::FloatDType::F32);
    assert!(matches!(SparseTensor::stack(&[a.clone(), single]), Err(TensorError::Operands(_))));
    let values = Tensor::<2>::zeros([3, a.nnz() + 1], &device());
    assert!(matches!(SparseTensor::shared(a.pattern(), values), Err(TensorError::ValuesLength { .. })));
    let batch = SparseTensor::stack(&[a.clone(), a]).unwrap();
    let error = try_sparse_mm(&batch, Tensor::<3>::zeros([3, 7, 2], (&device(), DType::F64))).unwrap_err();
    assert_eq!(error.to_string(), "sparse_mm: A and B must have as many items: [2, 5, 7] and [3, 7, 2]");
    let error =
        SparseTensor::from_batched_triplets([0, 2], [0, 0], [0, 0], [1., 2.], [2, 1, 1], &device()).unwrap_err();
    assert_eq!(error, TensorError::BatchIndex { position: 1, value: 2, items: 2 });
    let error =
        SparseTensor::from_batched_triplets([0, 1], [0, 1], [0, 0], [1., 2.], [2, 1, 1], &device()).unwrap_err();
    assert_eq!(error.to_string(), "row index 1 at position 1 is out of range for a matrix with 1 rows (shape 1x1)");
}

#[test]
fn batched_triplets_in_any_order() {
    let batch = [1, 0, 1, 1];
    let (rows, cols) = ([1, 0, 0, 1], [0, 2, 1, 0]);
    let a = SparseTensor::from_batched_triplets(batch, rows, cols, [1., 2., 3., 4.], [3, 2, 3], &device()).unwrap();
    let entries: Vec<_> = a.triplets().unwrap().collect();
    assert_eq!(entries, [(0, 0, 2, 2.), (1, 0, 1, 3.), (1, 1, 0, 1.), (1, 1, 0, 4.)]);
    assert_eq!(a.item(2).nnz(), 0);
    assert_eq!(a.coalesce().item(1).get(1, 0).unwrap(), Some(5.));
}

#[test]
fn blocks_of_several_shapes_and_their_split() {
    let a = item(Layout::Csr, 4);
    let b = item(Layout::Csr, 5).t().to_csr();
    let both = SparseTensor::block_diagonal(&[a.clone(), b.clone()]).unwrap();
    assert_eq!(both.shape(), [12, 12]);
    let back = both.split_block_diagonal(&[[5, 7], [7, 5]]).unwrap();
    assert_eq!(entries(&back[0]), entries(&a));
    assert_eq!(entries(&back[1]), entries(&b));
    assert!(matches!(
        both.split_block_diagonal(&[[5, 7]]).unwrap_err(),
        TensorError::Pattern(PatternError::BlockShapes { .. })
    ));
    // An entry beside the diagonal is named, not dropped.
    let full = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[1., 2., 3.], [2, 2], &device()).unwrap();
    assert_eq!(
        full.split_block_diagonal(&[[1, 1], [1, 1]]).unwrap_err(),
        TensorError::Pattern(PatternError::OutsideBlock { position: 1, row: 0, column: 1, block: 0 })
    );
    // Coordinates that don't stand block by block.
    let mixed = SparseTensor::from_coo(&[1, 0], &[1, 0], &[1., 2.], [2, 2], &device()).unwrap();
    assert!(SparseTensor::from_block_diagonal(mixed.clone(), 2).is_err());
    assert!(SparseTensor::from_block_diagonal(mixed.to_csr(), 2).is_ok());
    assert!(matches!(SparseTensor::from_block_diagonal(mixed, 3).unwrap_err(), TensorError::Items { items: 3, .. }));
}

#[test]
fn gradients_through_stack_items_and_blocks() {
    let patterns: Vec<_> = [1, 2].map(|seed| item(Layout::Csr, seed).pattern().clone()).to_vec();
    let values: Vec<_> = patterns.iter().map(|p| Numbers(9).values(p.nnz())).collect();
    gradcheck(&device(), &values, 1e-8, |x| {
        let items: Vec<_> = (0..2).map(|i| SparseTensor::new(patterns[i].clone(), x[i].clone()).unwrap()).collect();
        let batch = SparseTensor::stack(&items).unwrap().map_values(|v| v.powi_scalar(2));
        let again = batch.item(1).matvec(vector(&[1., 2., 3., 4., 5., 6., 7.], DType::F64, &x[0].device()));
        let blocks = batch.to_block_diagonal().split_block_diagonal(&[[5, 7], [5, 7]]).unwrap();
        Tensor::cat(vec![again, blocks[0].values().clone().exp()], 0)
    })
    .unwrap();
}

#[test]
fn a_batch_of_nothing() {
    let pattern = Pattern::eye(3).unwrap();
    let none = SparseTensor::shared(&pattern, Tensor::<2>::zeros([0, 3], &device())).unwrap();
    assert_eq!((none.shape(), none.nnz()), ([0, 3, 3], 0));
    assert_eq!(none.matmul(Tensor::<3>::zeros([0, 3, 2], &device())).dims(), [0, 3, 2]);
    assert_eq!(none.to_dense().dims(), [0, 3, 3]);
    assert!(none.unstack().is_empty());
}

#[test]
fn a_batch_of_vectors() {
    let pattern = Pattern::csr([0, 1, 2], [1, 0], [2, 2]).unwrap();
    let values = matrix(&[1., 2., 3., 4.], [2, 2], DType::F64, &device());
    let a = SparseTensor::shared(&pattern, values).unwrap();
    let x = matrix(&[1., 10., 1., 10.], [2, 2], DType::F64, &device());
    assert_eq!(read(&a.matvec(x)), [10., 2., 30., 4.]);
}
