//! Structure operations: patterns and orders that they promise, their faults, gradients, and orderings of real matrices.

use crate::common::{Host, Layout, Numbers, read, vector};
use sparsegrad::error::{Axis, PermutationError};
use sparsegrad::io::{HostMatrix, matrix_market};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use sparsegrad::testing::strategies::proptest::prelude::*;
use sparsegrad::testing::strategies::{self};
use sparsegrad::{Permutation, gallery, kron, try_kron};

const TOLERANCE: f64 = 1e-8;

fn device() -> Device {
    Device::flex().autodiff()
}

fn coo(shape: [usize; 2], rows: &[usize], cols: &[usize], values: &[f64]) -> SparseTensor<2> {
    SparseTensor::from_coo(rows, cols, values, shape, &device()).unwrap().require_grad()
}

fn entries(a: &SparseTensor<2>) -> Vec<(usize, usize, f64)> {
    a.triplets().unwrap().collect()
}

fn on(a: &HostMatrix) -> SparseTensor<2> {
    a.on(&Device::flex()).unwrap()
}

fn parts(layout: Layout, shape: [usize; 2], seed: u64) -> (Pattern, Vec<f64>) {
    let (a, host) = layout.build(&Host::random("random", shape, 3, seed), DType::F64, &Device::flex());
    (a.pattern().clone(), host.values)
}

fn permutation(n: usize, seed: u64) -> Permutation {
    let mut numbers = Numbers(seed);
    let mut order: Vec<usize> = (0..n).collect();
    (1..n).for_each(|at| order.swap(at, numbers.below(at + 1)));
    Permutation::new(order).unwrap()
}

/// The format that the buffers of a pattern are found to have.
fn found(pattern: &Pattern) -> TensorFormat {
    let by_columns = |name: &str| name == "CSC";
    let buffers: Vec<_> = pattern.levels().iter().map(|l| (l.positions.clone(), l.coordinates.clone())).collect();
    match pattern.format().name() {
        Some(name @ ("CSR" | "CSC")) => {
            let (Some(offsets), Some(indices)) = buffers[1].clone() else { panic!("compressed") };
            match by_columns(name) {
                true => Pattern::csc(offsets, indices, pattern.shape()).unwrap().format(),
                false => Pattern::csr(offsets, indices, pattern.shape()).unwrap().format(),
            }
        }
        Some(_) => {
            let (rows, columns) = pattern.coordinates();
            Pattern::coo(rows, columns, pattern.shape()).unwrap().format()
        }
        None => {
            let (rows, columns) = pattern.t().coordinates();
            let [m, n] = pattern.shape();
            Pattern::coo(rows, columns, [n, m]).unwrap().format().transposed()
        }
    }
}

/// The operand's kind of format, order where it had it, and nothing declared that is not so.
fn keeps(a: &SparseTensor<2>, b: &SparseTensor<2>) -> Result<(), TestCaseError> {
    let (before, after) = (a.pattern().format(), b.pattern().format());
    prop_assert_eq!(before.name(), after.name());
    prop_assert_eq!(after.clone(), found(b.pattern()));
    prop_assert!(after.is_ordered() || !before.is_ordered());
    prop_assert!(after.is_unique() || !before.is_unique());
    Ok(())
}

fn dense(a: &SparseTensor<2>) -> Vec<f64> {
    read(&a.to_dense())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn formats_and_orders_stay(a in strategies::matrix(0..9, 0..9), seed in any::<u64>()) {
        let (a, [m, n]) = (on(&a), a.shape());
        let mut numbers = Numbers(seed);
        let rows: Vec<usize> = if m == 0 { vec![] } else { (0..numbers.below(12)).map(|_| numbers.below(m)).collect() };
        let cols: Vec<usize> = if n == 0 { vec![] } else { (0..numbers.below(12)).map(|_| numbers.below(n)).collect() };
        let (p, q, square) = (permutation(m, seed), permutation(n, seed + 1), m.min(n));
        let picked = a.select_rows(&rows).unwrap().select_columns(&cols).unwrap();
        let slots = |i: usize, j: usize| dense(&a)[i * n + j];
        let expected: Vec<f64> = rows.iter().flat_map(|&i| cols.iter().map(move |&j| (i, j))).map(|(i, j)| slots(i, j)).collect();
        let close = |x: &[f64], y: &[f64]| x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-12);
        prop_assert!(close(&dense(&picked), &expected));
        for result in [
            picked,
            a.slice_rows(m / 3..).unwrap().slice_columns(..n - n / 3).unwrap(),
            a.tril(0),
            a.triu(1),
            a.permute(&p, &q),
            a.slice_rows(..square).unwrap().slice_columns(..square).unwrap().permute_symmetric(&permutation(square, 5)),
            a.drop_zeros().unwrap(),
            a.insert_diagonal(0, Tensor::ones([square], (&a.device(), DType::F64))),
            SparseTensor::vstack(&[a.clone(), a.clone()]).unwrap(),
            SparseTensor::hstack(&[a.clone(), a.clone()]).unwrap(),
            kron(&a, &a),
        ] {
            keeps(&a, &result)?;
        }
        // There and back: the same entries, in the row order of the operand.
        let back = a.permute(&p, &q).permute(&p.inverse(), &q.inverse());
        if a.pattern().format().is_ordered() {
            prop_assert!(back.same_pattern(&a));
            prop_assert_eq!(read(back.values()), read(a.values()));
        }
        prop_assert!(close(&dense(&back), &dense(&a)));
        // Triangles and the diagonal are all of it.
        let all = &(&a.tril(-1) + &a.triu(1)) + &a.triu(0).tril(0);
        prop_assert!(close(&dense(&all), &dense(&a)));
        let diagonal = read(&a.get_diagonal(0));
        prop_assert!(close(&diagonal, &(0..square).map(|i| slots(i, i)).collect::<Vec<_>>()));
    }

    #[test]
    fn what_is_put_together_comes_apart(a in strategies::matrix(0..7, 0..7), b in strategies::matrix(0..7, 0..7)) {
        let (shapes, [a, b]) = ([a.shape(), b.shape()], [on(&a), on(&b)]);
        let both = SparseTensor::block_diagonal(&[a.clone(), b.clone()]).unwrap();
        // Entries in any order.
        let mixed = both.permute_rows(&Permutation::identity(both.shape()[0])).to_coo();
        let (mut rows, mut cols) = mixed.pattern().coordinates();
        rows.reverse(); cols.reverse();
        let values = read(mixed.values()).into_iter().rev().collect::<Vec<_>>();
        let mixed = SparseTensor::from_coo(rows, cols, values, both.shape(), &Device::flex()).unwrap();
        for whole in [both, mixed] {
            for blocks in [whole.split_block_diagonal(&shapes).unwrap(), whole.diagonal_blocks(&shapes).unwrap()] {
                let close = |x: &SparseTensor<2>, y| dense(x).iter().zip(dense(y)).all(|(x, y)| (x - y).abs() < 1e-12);
                prop_assert!(close(&blocks[0], &a) && close(&blocks[1], &b));
                prop_assert_eq!([blocks[0].shape(), blocks[1].shape()], shapes);
            }
        }
    }

    /// (A x B)(x x y) = A x x B y.
    #[test]
    fn kronecker_products_act_on_products(a in strategies::matrix(0..6, 0..6), b in strategies::matrix(0..6, 0..6)) {
        let (a, b) = (on(&a), on(&b));
        let [x, y] = [(&a, 1), (&b, 2)].map(|(a, seed)| Numbers(seed).values(a.shape()[1]));
        let outer = |x: &[f64], y: &[f64]| x.iter().flat_map(|x| y.iter().map(move |y| x * y)).collect::<Vec<_>>();
        let vector = |v: &[f64]| vector(v, DType::F64, &Device::flex());
        let left = read(&kron(&a, &b).matvec(vector(&outer(&x, &y))));
        let right = outer(&read(&a.matvec(vector(&x))), &read(&b.matvec(vector(&y))));
        prop_assert!(left.iter().zip(&right).all(|(l, r)| (l - r).abs() < 1e-11));
    }
}

#[test]
fn gradients_in_all_layouts() {
    for (left, right) in Layout::ALL.into_iter().zip(Layout::ALL.into_iter().rev()).chain([(Layout::Csc, Layout::Csc)])
    {
        let ((a, x), (b, y)) = (parts(left, [6, 5], 1), parts(right, [6, 5], 2));
        let (p, q, s) = (permutation(6, 3), permutation(5, 4), permutation(5, 5));
        let d = Numbers(6).values(4);
        gradcheck(&device(), &[x, y, d], TOLERANCE, |v| {
            let a = SparseTensor::new(a.clone(), v[0].clone()).unwrap();
            let b = SparseTensor::new(b.clone(), v[1].clone()).unwrap();
            let square = |a: &SparseTensor<2>| a.map_coalesced(|v| v.powi_scalar(2));
            let selected = square(&a.select_rows([5, 0, 0, 2]).unwrap().select_columns([4, 4, 1]).unwrap());
            let sliced = square(&a.slice_rows(1..5).unwrap().slice_columns(2..).unwrap().tril(0));
            let stacked = SparseTensor::vstack(&[a.clone(), b.permute(&p, &q)]).unwrap();
            let blocks = SparseTensor::block_matrix(&[[Some(&a), Some(&b)], [Some(&stacked), None]]);
            let corner = a.slice_rows(..5).unwrap().permute_symmetric(&s).insert_diagonal(1, v[2].clone());
            let product = kron(&square(&corner.triu(-1)), &sliced);
            let all = [selected, square(&blocks.unwrap()), product].map(|a| a.matvec(ones(&a)));
            let diagonal = square(&a).get_diagonal(-1);
            Tensor::cat(all.into_iter().chain([diagonal]).collect(), 0)
        })
        .unwrap_or_else(|error| panic!("{left:?} {right:?}: {error}"));
    }
}

fn ones(a: &SparseTensor<2>) -> Tensor<1> {
    let n = a.shape()[1];
    vector(&(1..=n).map(|i| 1.0 + 0.1 * i as f64).collect::<Vec<_>>(), DType::F64, &a.device())
}

#[test]
fn gradients_of_batches() {
    let (a, x) = parts(Layout::Csr, [4, 5], 7);
    let (b, y) = parts(Layout::Csr, [4, 5], 8);
    let p = permutation(4, 1);
    let d = Numbers(9).values(8);
    gradcheck(&device(), &[x, y, d], TOLERANCE, |v| {
        let items = [(&a, &v[0]), (&b, &v[1])].map(|(p, v)| SparseTensor::new(p.clone(), v.clone()).unwrap());
        let batch = SparseTensor::stack(&items).unwrap().map_values(|v| v.powi_scalar(2));
        let set = batch.insert_diagonal(1, v[2].clone().reshape([2, 4])).permute_rows(&p);
        let wide = SparseTensor::hstack(&[set.select_columns([4, 0, 0]).unwrap(), batch.triu(0)]).unwrap();
        let product = kron(&wide, &batch.slice_rows(1..3).unwrap());
        Tensor::cat(vec![product.values().clone(), batch.get_diagonal(0).reshape([8])], 0)
    })
    .unwrap();
}

#[test]
fn values_that_are_dropped_have_gradient_zero() {
    let a = coo([2, 2], &[0, 0, 1, 1, 1], &[0, 1, 0, 1, 1], &[0.0, 3.0, -0.1, f64::NAN, 1.0]);
    let grads = |b: SparseTensor<2>| read(a.grad(&b.values().clone().sum().backward()).unwrap().values());
    assert_eq!(grads(a.drop_zeros().unwrap()), [0., 1., 1., 1., 1.]);
    assert_eq!(grads(a.prune(0.5).unwrap()), [0., 1., 0., 1., 1.]); // NaN is not small
    assert_eq!(grads(a.top_k(Per::Row, 1).unwrap()), [0., 1., 0., 1., 1.]);
    assert_eq!(grads(a.top_k(Per::Column, 1).unwrap()), [0., 0., 1., 1., 1.]);
    assert_eq!(grads(a.top_k(Per::Matrix, 2).unwrap()), [0., 1., 0., 1., 1.]);
    assert_eq!(a.top_k(Per::Matrix, 0).unwrap().nnz(), 0);
    // What is left out touches nothing, NaN included.
    let strict = a.tril(-1);
    assert_eq!(read(strict.values()), [-0.1]);
    assert_eq!(grads(strict), [0., 0., 1., 0., 0.]);
}

#[test]
fn duplicates_are_summed_before_their_size_is_asked_for() {
    let a = coo([1, 3], &[0; 5], &[2, 0, 2, 1, 1], &[0.3, 0.5, 0.4, 1.0, -1.0]);
    assert_eq!(entries(&a.prune(0.6).unwrap()), [(0, 2, 0.7)]);
    assert_eq!(entries(&a.top_k(Per::Row, 2).unwrap()), [(0, 0, 0.5), (0, 2, 0.7)]);
    // Those that cancel are not zeros themselves.
    assert!(a.drop_zeros().unwrap().same_pattern(&a));
    // Ties: what stands first.
    let ties = coo([2, 2], &[1, 1, 0, 0], &[1, 0, 1, 0], &[1., -1., 1., -1.]);
    let kept = |a: SparseTensor<2>| {
        let mut entries = entries(&a);
        entries.sort_by_key(|e| (e.0, e.1));
        entries
    };
    assert_eq!(kept(ties.top_k(Per::Matrix, 3).unwrap()), [(0, 0, -1.), (0, 1, 1.), (1, 0, -1.)]);
    assert_eq!(kept(ties.top_k(Per::Column, 1).unwrap()), [(0, 0, -1.), (0, 1, 1.)]);
}

#[test]
fn diagonals_are_read_and_written() {
    // (0, 0) twice, (1, 1) not at all.
    let a = coo([2, 3], &[0, 0, 1, 0], &[0, 1, 2, 0], &[1., 2., 3., 4.]);
    let d = vector(&[7., 8.], DType::F64, &device()).require_grad();
    assert_eq!(read(&a.get_diagonal(0)), [5., 0.]);
    assert_eq!(read(&a.get_diagonal(1)), [2., 3.]);
    assert_eq!([2, 3, -1, -2, isize::MAX, isize::MIN].map(|k| a.get_diagonal(k).dims()[0]), [1, 0, 1, 0, 0, 0]);
    assert_eq!(
        a.set_diagonal(0, d.clone()).unwrap_err(),
        TensorError::MissingDiagonal { row: 1, column: 1, item: None }
    );
    let set = a.set_diagonal(1, d.clone()).unwrap();
    assert!(set.same_pattern(&a) && std::ptr::eq(set.pattern().levels(), a.pattern().levels()));
    assert_eq!(entries(&set), [(0, 0, 1.), (0, 1, 7.), (1, 2, 8.), (0, 0, 4.)]);
    let inserted = a.insert_diagonal(0, d.clone());
    assert_eq!(read(&inserted.to_dense()), [7., 2., 0., 0., 8., 3.]);
    assert_eq!(inserted.nnz(), 5);
    let grads = inserted.map_values(|v| v.powi_scalar(2)).values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0., 4., 6., 0.]);
    assert_eq!(read(&d.grad(&grads).unwrap()), [14., 16.]);
    assert!(a.insert_diagonal(1, d.clone()).same_pattern(&a));
    // In its place, where entries are sorted.
    let b = coo([2, 2], &[0, 1, 1], &[1, 0, 1], &[1., 2., 3.]).to_csr();
    assert_eq!(entries(&b.insert_diagonal(0, d.clone())), [(0, 0, 7.), (0, 1, 1.), (1, 0, 2.), (1, 1, 8.)]);

    let error = a.try_insert_diagonal(2, d.clone()).unwrap_err();
    assert_eq!(error.to_string(), "insert_diagonal: a number for each place of the diagonal: [2, 3] and [2]");
    assert!(matches!(a.set_diagonal(2, d), Err(TensorError::Operands(OpError::Shapes { .. }))));

    let batch = SparseTensor::stack(&[
        SparseTensor::eye(2, &device()).unwrap(),
        b.slice_rows(..).unwrap().cast(burn::tensor::FloatDType::F32),
    ])
    .unwrap();
    let error = batch.set_diagonal(0, Tensor::<2>::ones([2, 2], &device())).unwrap_err();
    assert_eq!(error, TensorError::MissingDiagonal { row: 0, column: 0, item: Some(1) });
    assert_eq!(
        error.to_string(),
        "nothing is stored at (0, 0) of item 1, on the diagonal that is to be set (insert_diagonal inserts it)"
    );
    assert_eq!(read(&batch.get_diagonal(0)), [1., 1., 0., 3.]);
}

#[test]
fn bits_are_moved_as_they_are() {
    let a = coo([2, 2], &[0, 0, 1], &[0, 1, 1], &[-0.0, f64::NAN, f64::NEG_INFINITY]).to_csr();
    let bits = |a: &SparseTensor<2>| read(a.values()).into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let p = Permutation::new([1, 0]).unwrap();
    let flipped = a.permute_symmetric(&p).permute_symmetric(&p);
    let twice = SparseTensor::hstack(&[a.clone(), a.clone()]).unwrap().slice_columns(2..).unwrap();
    for b in [flipped, twice, a.select_rows([0, 1]).unwrap(), a.slice_rows(..2).unwrap()] {
        assert_eq!(bits(&b), bits(&a));
    }
}

#[test]
fn plans_are_kept() {
    let a = on(&HostMatrix::new(Pattern::csr([0, 2, 4], [0, 1, 0, 1], [2, 2]).unwrap(), vec![1.; 4]).unwrap());
    let p = Permutation::new([1, 0]).unwrap();
    let same = |x: SparseTensor<2>, y: SparseTensor<2>| std::ptr::eq(x.pattern().levels(), y.pattern().levels());
    assert!(same(a.tril(0), a.tril(0)) && !same(a.tril(0), a.triu(0)));
    assert!(same(a.permute_symmetric(&p), a.permute_symmetric(&p)));
    assert!(same(a.permute_rows(&p), a.permute_rows(&p)));
    assert!(same(a.permute_columns(&p), a.permute_columns(&p)));
    assert!(same(kron(&a, &a), kron(&a, &a)));
    assert!(same(a.tril(1), a.clone())); // nothing to leave out
    // As a matrix of blocks and as a batch: two plans.
    let batch = SparseTensor::stack(&[a.clone(), a.clone()]).unwrap();
    let blocks = batch.to_block_diagonal();
    assert_eq!(kron(&batch, &batch).shape(), [2, 4, 4]);
    assert_eq!((kron(&blocks, &blocks).shape(), kron(&blocks, &blocks).nnz()), ([16, 16], 64));
    assert_eq!((kron(&batch, &batch).nnz(), batch.tril(-1).nnz(), blocks.tril(-1).nnz()), (32, 2, 2));
}

#[test]
fn faults_are_named() {
    let a = coo([2, 3], &[0], &[1], &[1.]);
    let out_of_range = |error: TensorError| match error {
        TensorError::Pattern(PatternError::IndexOutOfRange { axis, position, value, bound, .. }) => {
            (axis, position, value, bound)
        }
        other => panic!("{other}"),
    };
    assert_eq!(out_of_range(a.select_rows([1, -1]).unwrap_err()), (Axis::Row, 1, -1, 2));
    assert_eq!(out_of_range(a.select_columns([0usize, 3]).unwrap_err()), (Axis::Column, 1, 3, 3));
    let range = |axis, start, end, size| TensorError::Range { axis, start, end, size };
    assert_eq!(a.slice_columns(1..4).unwrap_err(), range(Axis::Column, 1, 4, 3));
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = a.slice_rows(2..1).unwrap_err();
    assert_eq!(backwards, range(Axis::Row, 2, 1, 2));
    assert_eq!(SparseTensor::<2>::vstack(&[]).unwrap_err(), TensorError::NoItems);
    assert_eq!(SparseTensor::<3>::block_diagonal(&[]).unwrap_err(), TensorError::NoItems);
    let single = a.clone().cast(burn::tensor::FloatDType::F32);
    let operands = |result| matches!(result, Err(TensorError::Operands(_)));
    assert!(operands(SparseTensor::hstack(&[a.clone(), single.clone()])));
    assert!(operands(SparseTensor::vstack(&[a.clone(), a.t()])));
    let missing = SparseTensor::block_matrix(&[[Some(&a), None], [Some(&a), None]]).unwrap_err();
    assert_eq!(missing, TensorError::NoBlock { axis: Axis::Column, at: 1 });
    assert_eq!(missing.to_string(), "column 1 of the blocks has none, which would say how large it is");
    assert!(matches!(try_kron(&a, &single), Err(OpError::DTypes { .. })));
    let wide = coo([1 << 40, 1], &[], &[], &[]);
    assert!(matches!(try_kron(&wide, &wide), Err(OpError::TooLarge { what: "rows", .. })));
    let p = Permutation::identity(3);
    let error = a.try_permute_rows(&p).unwrap_err();
    assert_eq!(error.to_string(), "permutation: as many rows as the permutation is of: [3] and [2, 3]");
    assert!(a.try_permute_columns(&p).is_ok() && a.try_permute_symmetric(&p).is_err());
    assert!(p.try_apply(Tensor::<2>::ones([2, 3], &device())).is_err());
    assert_eq!(
        Permutation::new([0, 5]).unwrap_err(),
        PermutationError::OutOfRange { position: 1, value: 5, length: 2 }
    );
    assert_eq!(Permutation::new([1, 1]).unwrap_err(), PermutationError::Repeated { position: 1, value: 1, first: 0 });
}

#[test]
fn nothing_is_put_together_and_taken_apart() {
    let none = coo([0, 3], &[], &[], &[]);
    assert_eq!(SparseTensor::vstack(&[none.clone(), none.clone()]).unwrap().shape(), [0, 3]);
    assert_eq!(SparseTensor::hstack(&[none.clone(), none.clone()]).unwrap().shape(), [0, 6]);
    assert_eq!(kron(&none, &none).shape(), [0, 9]);
    assert_eq!(none.select_columns([2, 2, 0, 1]).unwrap().shape(), [0, 4]);
    assert_eq!(none.slice_columns(1..1).unwrap().shape(), [0, 0]);
    assert_eq!(none.get_diagonal(0).dims(), [0]);
    assert_eq!(none.top_k(Per::Matrix, 3).unwrap().nnz(), 0);
    let p = Permutation::identity(0);
    assert_eq!((p.len(), p.is_empty(), none.permute_rows(&p).shape()), (0, true, [0, 3]));
    assert_eq!(p.apply(Tensor::<1>::zeros([0], &device())).dims(), [0]);
    // The graph goes through it.
    let both = SparseTensor::vstack(&[none.clone(), none.clone()]).unwrap();
    let grads = both.values().clone().sum().backward();
    assert_eq!(none.grad(&grads).unwrap().values().dims(), [0]);
    let batch = SparseTensor::shared(&Pattern::eye(3).unwrap(), Tensor::<2>::zeros([0, 3], &device())).unwrap();
    assert_eq!(batch.select_rows([2, 1]).unwrap().shape(), [0, 2, 3]);
    assert_eq!(batch.tril(-1).shape(), [0, 3, 3]);
    assert_eq!(batch.get_diagonal(0).dims(), [0, 3]);
    assert_eq!(kron(&batch, &batch).shape(), [0, 9, 9]);
    assert_eq!(batch.permute_symmetric(&Permutation::identity(3)).shape(), [0, 3, 3]);
}

#[test]
fn permutations_act_as_their_matrices() {
    let (p, q) = (permutation(9, 1), permutation(9, 2));
    let matrix =
        |p: &Permutation| SparseTensor::new(p.matrix().clone(), vector(&[1.; 9], DType::F64, &device())).unwrap();
    let dense = |a: &SparseTensor<2>| read(&a.to_dense());
    assert_eq!(dense(&matrix(&p.compose(&q))), dense(&matrix(&p).matmul(&matrix(&q))));
    assert_eq!(p.compose(&p.inverse()), Permutation::identity(9));
    assert_eq!(p.inverse().compose(&p), Permutation::identity(9));
    let (a, x) = parts(Layout::Coo, [9, 9], 3);
    let a = SparseTensor::new(a, vector(&x, DType::F64, &device())).unwrap();
    let close = |x: Vec<f64>, y: Vec<f64>| x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-14);
    let product = matrix(&p).matmul(&a).matmul(&matrix(&q).t());
    assert!(close(dense(&a.permute(&p, &q)), dense(&product)));
    assert!(close(dense(&a.permute_symmetric(&p)), dense(&a.permute(&p, &p))));
    let x =
        Tensor::<2>::from_data(burn::tensor::TensorData::new(Numbers(4).values(18), [9, 2]), (&device(), DType::F64));
    assert_eq!(read(&p.apply(x.clone())), read(&matrix(&p).matmul(x.clone())));
    let batch = x.clone().reshape([1, 9, 2]).expand([3, 9, 2]);
    assert_eq!(read(&p.apply(batch))[18..36], read(&p.apply(x.clone())));
    gradcheck(&device(), &[Numbers(5).values(9)], TOLERANCE, |v| {
        let y = p.apply(v[0].clone()).powi_scalar(2);
        let z = q.inverse().apply(v[0].clone().reshape([9, 1])).powi_scalar(3);
        y * z.reshape([9])
    })
    .unwrap();
}

/// The entries of the Cholesky factor below the diagonal, by eliminating one row after the other.
fn fill(pattern: &Pattern) -> usize {
    let n = pattern.shape()[0];
    let mut below = vec![std::collections::BTreeSet::new(); n];
    let (rows, columns) = pattern.coordinates();
    for (row, column) in rows.into_iter().zip(columns) {
        if row != column {
            below[row.min(column)].insert(row.max(column));
        }
    }
    let mut count = 0;
    for column in 0..n {
        let reached = std::mem::take(&mut below[column]);
        count += reached.len();
        // What is left of a column goes to that of its parent in the elimination tree.
        if let Some(&parent) = reached.first() {
            below[parent].extend(reached.into_iter().skip(1));
        }
    }
    count
}

fn shared(name: &str) -> Option<Pattern> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
    let matrix = file.exists().then(|| matrix_market::read(file).unwrap().to_csr().unwrap())?;
    Some(matrix.pattern().clone())
}

fn permuted(pattern: &Pattern, p: &Permutation) -> Pattern {
    let zeros = Tensor::<1>::zeros([pattern.nnz()], &Device::flex());
    SparseTensor::new(pattern.clone(), zeros).unwrap().permute_symmetric(p).pattern().clone()
}

#[test]
fn orderings_of_grids_and_graphs() {
    let device = Device::flex();
    let shuffled = permuted(gallery::poisson([12, 15], &device).unwrap().pattern(), &permutation(180, 7));
    let rcm = permuted(&shuffled, &Permutation::reverse_cuthill_mckee(&shuffled).unwrap());
    assert!(rcm.bandwidth().0 <= 15 && shuffled.bandwidth().0 > 100, "{:?}", rcm.bandwidth());
    assert!(rcm.profile() < shuffled.profile() / 4);
    let amd = permuted(&shuffled, &Permutation::amd(&shuffled).unwrap());
    assert!(fill(&amd) < fill(&shuffled) / 2 && fill(&amd) < fill(&rcm), "{} {}", fill(&amd), fill(&rcm));
    // An arrow: any order but the first fills it.
    let arrow = Pattern::coo([0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 1, 2, 3], [4, 4]).unwrap();
    assert_eq!(fill(&arrow), 6);
    assert_eq!(fill(&permuted(&arrow, &Permutation::amd(&arrow).unwrap())), 3);
    // Nothing stored, several parts, not symmetric, duplicates.
    for pattern in [
        Pattern::csr([0i64], [0i64; 0], [0, 0]).unwrap(),
        Pattern::coo([0i64; 0], [0i64; 0], [5, 5]).unwrap(),
        Pattern::coo([1, 1, 4], [3, 3, 0], [6, 6]).unwrap(),
        Pattern::eye(3).unwrap().t(),
    ] {
        for order in [Permutation::amd(&pattern), Permutation::reverse_cuthill_mckee(&pattern)] {
            let order = order.unwrap().order();
            assert!(Permutation::new(order).is_ok());
        }
    }
    let tall = Pattern::coo([0], [0], [3, 2]).unwrap();
    assert_eq!(Permutation::amd(&tall).unwrap_err(), PermutationError::NotSquare { rows: 3, columns: 2 });
    assert_eq!((tall.bandwidth(), tall.profile()), ((0, 0), 0));
}

/// From an order without a plan: their own is a good one for some.
#[test]
fn orderings_of_real_matrices() {
    let mut seen = 0;
    for name in ["494_bus.mtx", "lund_a.mtx", "bcsstk13.mtx", "USCounties.mtx"] {
        let Some(pattern) = shared(name) else { continue };
        let pattern = permuted(&pattern, &permutation(pattern.shape()[0], 1));
        let rcm = permuted(&pattern, &Permutation::reverse_cuthill_mckee(&pattern).unwrap());
        let amd = permuted(&pattern, &Permutation::amd(&pattern).unwrap());
        let bandwidths = [&pattern, &rcm].map(|p| p.bandwidth().0);
        let profiles = [&pattern, &rcm].map(Pattern::profile);
        let fills = [&pattern, &amd].map(fill);
        println!("{name}: bandwidth {bandwidths:?}, profile {profiles:?}, fill {fills:?}");
        assert!(2 * bandwidths[1] < bandwidths[0], "{name}: bandwidth {bandwidths:?}");
        assert!(2 * profiles[1] < profiles[0], "{name}: profile {profiles:?}");
        assert!(2 * fills[1] < fills[0], "{name}: fill {fills:?}");
        seen += 1;
    }
    println!("{seen} real matrices");
}
