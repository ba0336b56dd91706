//! Sparse times sparse: gradients of both orders, plans, patterns, bits, errors.

use crate::common::{Host, Layout, Numbers, read, vector};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use sparsegrad::vjp;

const TOLERANCE: f64 = 1e-8;

fn device() -> Device {
    Device::flex().autodiff()
}

fn coo(shape: [usize; 2], rows: &[usize], cols: &[usize], values: &[f64]) -> SparseTensor<2> {
    SparseTensor::from_coo(rows, cols, values, shape, &device()).unwrap().require_grad()
}

/// A matrix with duplicates and stored zeros in a layout, and its values.
fn parts(shape: [usize; 2], layout: Layout, seed: u64) -> (Pattern, Vec<f64>) {
    let host = Host::random("random", shape, 3, seed);
    let (a, host) = layout.build(&host, DType::F64, &Device::flex());
    (a.pattern().clone(), host.values)
}

fn with(pattern: &Pattern, values: Tensor<1>) -> SparseTensor<2> {
    SparseTensor::new(pattern.clone(), values).unwrap()
}

#[test]
fn gradients_in_all_layouts() {
    for device in [device(), device().gradient_checkpointing()] {
        for (left, right) in
            Layout::ALL.into_iter().flat_map(|l| [Layout::Csr, Layout::Coo, Layout::Csc].map(|r| (l, r)))
        {
            let (a, x) = parts([6, 5], left, 1);
            let (b, y) = parts([5, 7], right, 2);
            let plan = SpgemmPlan::new(&a, &b).unwrap();
            gradcheck(&device, &[x, y], TOLERANCE, |v| {
                let (a, b) = (with(&a, v[0].clone()), with(&b, v[1].clone()));
                // Not linear, so that the product's own gradient varies.
                plan.execute(&a, &b).values().clone().powi_scalar(2)
            })
            .unwrap_or_else(|error| panic!("{left:?} {right:?} {device:?}: {error}"));
        }
    }
}

#[test]
fn second_derivatives() {
    let (a, x) = parts([6, 5], Layout::Csr, 3);
    let (b, y) = parts([5, 4], Layout::Csc, 4);
    gradcheck(&device(), &[x, y], 1e-7, |v| {
        let (a, b) = (with(&a, v[0].clone()), with(&b, v[1].clone()));
        let upstream = a.matmul(&b).map_values(|v| v.powi_scalar(3));
        let (da, db) = vjp::spgemm(&a, &b, &upstream);
        Tensor::cat(vec![da.values().clone(), db.values().clone()], 0)
    })
    .unwrap();
}

/// The triple product of finite elements and of graph Laplacians, its gradient to the diagonal included.
#[test]
fn a_transposed_times_d_times_a() {
    let (a, x) = parts([8, 5], Layout::Csr, 5);
    let d = Numbers(6).values(8);
    gradcheck(&device(), &[x.clone(), d.clone()], TOLERANCE, |v| {
        let a = with(&a, v[0].clone());
        let d = SparseTensor::diagonal(v[1].clone()).unwrap();
        a.t().matmul(&d).matmul(&a).values().clone().powi_scalar(2)
    })
    .unwrap();
    let tensor = with(&a, vector(&x, DType::F64, &Device::flex()));
    let d = SparseTensor::diagonal(vector(&d, DType::F64, &Device::flex())).unwrap();
    let product = read(&tensor.t().matmul(&d).matmul(&tensor).to_dense());
    let dense = tensor.to_dense();
    let expected = read(&dense.clone().transpose().matmul(d.to_dense()).matmul(dense));
    assert!(product.iter().zip(&expected).all(|(p, e)| (p - e).abs() < 1e-12), "{product:?} {expected:?}");
}

/// Nothing is dropped because it cancels, and nothing is stored twice.
#[test]
fn the_pattern_is_structural() {
    let a = coo([1, 2], &[0, 0], &[0, 1], &[1., 1.]);
    let b = coo([2, 2], &[1, 0, 0], &[0, 0, 1], &[-1., 1., 0.]);
    let c = a.matmul(&b);
    assert_eq!(c.triplets().unwrap().collect::<Vec<_>>(), [(0, 0, 0.), (0, 1, 0.)]);
    assert_eq!(c.pattern().format(), TensorFormat::csr());
    // Two duplicates times two duplicates.
    let a = coo([1, 1], &[0, 0], &[0, 0], &[2., 3.]);
    let b = coo([1, 1], &[0, 0], &[0, 0], &[5., 7.]);
    let c = a.matmul(&b);
    assert_eq!(c.triplets().unwrap().collect::<Vec<_>>(), [(0, 0, 60.)]);
    let grads = c.values().clone().sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [12., 12.]);
    assert_eq!(read(b.grad(&grads).unwrap().values()), [5., 5.]);
}

#[test]
fn absent_entries_meet_nothing() {
    let a = coo([2, 2], &[0, 1], &[0, 1], &[f64::INFINITY, f64::NAN]);
    let b = coo([2, 2], &[0], &[1], &[2.]);
    assert_eq!(a.matmul(&b).triplets().unwrap().collect::<Vec<_>>(), [(0, 1, f64::INFINITY)]);
    let zero = coo([2, 2], &[0], &[1], &[0.]);
    assert!(read(a.matmul(&zero).values())[0].is_nan());
}

#[test]
fn a_held_plan_and_the_call_agree_to_the_bit() {
    let (a, x) = parts([200, 150], Layout::Coo, 7);
    let (b, y) = parts([150, 300], Layout::Csr, 8);
    let [x, y] = [x, y].map(|values| vector(&values, DType::F64, &Device::flex()));
    let (ta, tb) = (with(&a, x), with(&b, y));
    let plan = SpgemmPlan::new(&a, &b).unwrap();
    let first = spgemm(&ta, &tb);
    let again = spgemm(&ta, &tb);
    let planned = plan.execute(&ta, &tb);
    assert_eq!(read(first.values()), read(planned.values()));
    assert_eq!(first.pattern(), plan.pattern());
    // The second call has the pattern of the first, plans and all.
    assert_eq!(first.pattern().levels()[1].coordinates.as_ref().unwrap().iter().len(), plan.nnz());
    assert_eq!(read(again.values()), read(planned.values()));
    // Equal buffers elsewhere are the same pattern.
    let copy = with(
        &Pattern::csr(b.levels()[1].positions.clone().unwrap(), b.levels()[1].coordinates.clone().unwrap(), b.shape())
            .unwrap(),
        tb.values().clone(),
    );
    assert_eq!(read(plan.execute(&ta, &copy).values()), read(planned.values()));
}

/// Plans are kept with the first pattern, not beyond the second's life, and not without bound.
#[test]
fn the_cache_is_bounded() {
    let (a, x) = parts([100, 100], Layout::Csr, 9);
    let tensor = with(&a, vector(&x, DType::F64, &Device::flex()));
    let held = || a.memory_usage().plans;
    spgemm(&tensor, &tensor);
    let one = held();
    for seed in 10..40 {
        let (b, y) = parts([100, 100], Layout::Csr, seed);
        spgemm(&tensor, &with(&b, vector(&y, DType::F64, &Device::flex())));
    }
    assert!(held() < 20 * one, "{} for {one}", held());
    spgemm(&tensor, &tensor);
    assert!(held() < 3 * one, "the plans of patterns that are gone: {} for {one}", held());
}

#[test]
fn bits_do_not_depend_on_threads() {
    let run = |dtype| {
        let host = Host::random("2000x1500", [2000, 1500], 12, 11);
        let (a, _) = Layout::Csr.build(&host, dtype, &device());
        let a = a.require_grad();
        let b = a.t().detach().require_grad();
        let c = a.matmul(&b);
        let g = vector(&Numbers(12).values(c.nnz()), dtype, &device());
        let grads = vjp::backward(c.values(), g);
        [read(c.values()), read(a.grad(&grads).unwrap().values()), read(b.grad(&grads).unwrap().values())]
    };
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let on = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| run(dtype));
        let expected = on(1);
        for threads in [2, 3, 4] {
            assert_eq!(on(threads), expected, "{dtype:?}, {threads} threads");
        }
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let a = coo([2, 3], &[0], &[1], &[1.]);
    let error = try_spgemm(&a, &a).unwrap_err();
    assert_eq!(error.to_string(), "spgemm: columns of A and rows of B must agree: [2, 3] and [2, 3]");
    assert!(matches!(SpgemmPlan::new(a.pattern(), a.pattern()), Err(OpError::Shapes { .. })));
    let narrow = SparseTensor::eye_of(3, DType::F32, &device()).unwrap();
    assert!(matches!(try_spgemm(&a, &narrow), Err(OpError::DTypes { .. })));
    let eye = SparseTensor::eye_of(3, DType::F64, &device()).unwrap();
    let plan = SpgemmPlan::new(a.pattern(), eye.pattern()).unwrap();
    let other = coo([3, 3], &[0], &[1], &[1.]);
    let error = plan.try_execute(&a, &other).unwrap_err();
    assert!(matches!(&error, OpError::OtherPattern { operand: "B", .. }), "{error}");
    let c = plan.execute(&a, &eye);
    assert!(std::panic::catch_unwind(|| vjp::spgemm(&a, &eye, &other)).is_err());
    assert_eq!(read(vjp::spgemm(&a, &eye, &c).0.values()), [1.]);
}

/// A column times a row, 2^23 entries each: 2^46 entries that nothing can hold.
#[test]
fn a_product_beyond_memory_is_a_typed_error() {
    let n = 1usize << 23;
    let column = Pattern::csc([0, n as i32], (0..n as i32).collect::<Vec<_>>(), [n, 1]).unwrap();
    let error = SpgemmPlan::new(&column, &column.t()).unwrap_err();
    assert_eq!(error.to_string(), format!("spgemm: there is no memory for entries of the product = {}", 1u64 << 46));
    let error = SpgemmPlan::new(&column.t(), &column).map(|plan| plan.nnz());
    assert_eq!(error, Ok(1));
}

#[test]
fn batches_of_one_pattern() {
    let (pattern, _) = parts([4, 4], Layout::Csr, 13);
    let values = Numbers(14).values(3 * pattern.nnz());
    let values = crate::common::matrix(&values, [3, pattern.nnz()], DType::F64, &Device::flex());
    let batch = SparseTensor::shared(&pattern, values).unwrap();
    let squares = batch.matmul(&batch);
    for item in 0..3 {
        let one = batch.item(item);
        assert_eq!(read(&squares.item(item).to_dense()), read(&one.matmul(&one).to_dense()));
    }
    let two = SparseTensor::stack(&batch.unstack()[..2]).unwrap();
    assert!(matches!(try_spgemm(&batch, &two), Err(OpError::Shapes { .. })));
}

/// A batch of random items, ragged, in a layout, and its values.
fn ragged(items: usize, shape: [usize; 2], layout: Layout, seed: u64) -> (SparseTensor<3>, Vec<f64>) {
    let item = |item| parts(shape, layout, seed + item as u64);
    let tensor = |item| {
        let (pattern, values): (Pattern, Vec<f64>) = item;
        with(&pattern, vector(&values, DType::F64, &Device::flex()))
    };
    let batch = SparseTensor::stack(&(0..items).map(item).map(tensor).collect::<Vec<_>>()).unwrap();
    let values = read(batch.values());
    (batch, values)
}

fn with3(like: &SparseTensor<3>, values: Tensor<1>) -> SparseTensor<3> {
    like.with_values(values).unwrap()
}

/// One matrix for all items, on either side: item by item the products, and the sum of the items' gradients.
#[test]
fn a_matrix_for_all_items() {
    for (left, right) in Layout::ALL.into_iter().flat_map(|l| [Layout::Csr, Layout::Coo, Layout::Csc].map(|r| (l, r))) {
        let (batch, values) = ragged(3, [3, 4], left, 20);
        let ((r_pattern, y), (l_pattern, x)) = (parts([4, 3], right, 30), parts([5, 3], right, 40));
        let of = |pattern: &Pattern, values: &[f64]| with(pattern, vector(values, DType::F64, &Device::flex()));
        let (r, l) = (of(&r_pattern, &y), of(&l_pattern, &x));
        let (of_right, of_left) = (batch.matmul(&r), spgemm(&l, &batch));
        assert_eq!((of_right.shape(), of_left.shape()), ([3, 3, 3], [3, 5, 4]));
        let planned = [
            SpgemmPlan::for_operands(&batch, &r).unwrap().execute(&batch, &r),
            SpgemmPlan::for_operands(&l, &batch).unwrap().execute(&l, &batch),
        ];
        for (found, expected) in planned.iter().zip([&of_right, &of_left]) {
            assert_eq!(read(found.values()), read(expected.values()));
            assert!(found.same_pattern(expected));
        }
        for item in 0..3 {
            let one = batch.item(item);
            for (product, expected) in [(&of_right, one.matmul(&r)), (&of_left, l.matmul(&one))] {
                let found = product.item(item);
                assert!(found.same_pattern(&expected), "{left:?} {right:?}: {found} for {expected}");
                assert_eq!(read(found.values()), read(expected.values()));
            }
        }
        let device = if left == Layout::Coo { device().gradient_checkpointing() } else { device() };
        gradcheck(&device, &[values, y, x], TOLERANCE, |v| {
            let batch = with3(&batch, v[0].clone());
            let (r, l) = (with(&r_pattern, v[1].clone()), with(&l_pattern, v[2].clone()));
            let products = [batch.matmul(&r), spgemm(&l, &batch)];
            Tensor::cat(products.map(|c| c.values().clone()).to_vec(), 0).powi_scalar(2)
        })
        .unwrap_or_else(|error| panic!("{left:?} {right:?}: {error}"));
    }
}

#[test]
fn batches_and_matrices_in_the_corners() {
    let (pattern, y) = parts([6, 4], Layout::Csr, 50);
    let matrix = with(&pattern, vector(&y, DType::F64, &device())).require_grad();
    let values = |items: usize, count: usize| Tensor::<2>::ones([items, count], (&device(), DType::F64));
    // No items, one item, items without rows and without entries.
    let none = SparseTensor::shared(&pattern.t(), Tensor::empty([0, pattern.nnz()], (&device(), DType::F64))).unwrap();
    let (right, left) = (none.matmul(&matrix), matrix.matmul(&none));
    assert_eq!((right.shape(), left.shape()), ([0, 4, 4], [0, 6, 6]));
    let one = SparseTensor::shared(&pattern.t(), values(1, pattern.nnz())).unwrap();
    assert_eq!(read(one.matmul(&matrix).values()), read(one.item(0).matmul(&matrix).values()));
    assert_eq!(read(matrix.matmul(&one).values()), read(matrix.matmul(&one.item(0)).values()));
    let flat = Pattern::csr([0i64], [0i64; 0], [0, 6]).unwrap();
    let flat = SparseTensor::shared(&flat, Tensor::empty([2, 0], (&device(), DType::F64))).unwrap();
    assert_eq!(flat.matmul(&matrix).shape(), [2, 0, 4]);
    let nothing = Pattern::csr([0i64; 5], [0i64; 0], [4, 6]).unwrap();
    let nothing = SparseTensor::shared(&nothing, Tensor::empty([2, 0], (&device(), DType::F64))).unwrap();
    let products = [nothing.matmul(&matrix).nnz(), matrix.matmul(&nothing).nnz()];
    assert_eq!(products, [0, 0]);
    // What does not fit.
    let error = try_spgemm(&one, &one.item(0)).unwrap_err();
    assert_eq!(error.to_string(), "spgemm: columns of A and rows of B must agree: [1, 4, 6] and [4, 6]");
    let plan = SpgemmPlan::for_operands(&one, &matrix).unwrap();
    let two = SparseTensor::shared(&pattern.t(), values(2, pattern.nnz())).unwrap();
    assert!(matches!(plan.try_execute(&two, &matrix), Err(OpError::OtherPattern { operand: "A", .. })));
}

/// The second step of a loop plans nothing.
#[test]
fn plans_for_all_items_are_kept() {
    let (batch, _) = ragged(3, [5, 6], Layout::Csr, 60);
    let (pattern, y) = parts([6, 5], Layout::Csr, 61);
    let matrix = with(&pattern, vector(&y, DType::F64, &Device::flex()));
    let held = || (batch.pattern().memory_usage(), pattern.memory_usage());
    let (right, left) = (batch.matmul(&matrix), matrix.matmul(&batch));
    let first = held();
    assert_eq!(right.pattern().levels()[1].positions.as_ref().unwrap().len(), 3 * 5 + 1);
    let again = [batch.matmul(&matrix), matrix.matmul(&batch)];
    assert_eq!(held(), first);
    assert!(again[0].same_pattern(&right) && again[1].same_pattern(&left));
}

/// Values and gradients of one case on a device.
#[cfg(feature = "wgpu")]
fn on(device: &Device, layout: Layout, shape: [usize; 2], per_row: usize) -> Vec<Vec<f64>> {
    let device = device.clone().autodiff();
    let build = |shape, seed| layout.build(&Host::random("random", shape, per_row, seed), DType::F32, &device).0;
    let (a, b) = (build(shape, 1).require_grad(), build([shape[1], 40], 2).require_grad());
    let c = a.matmul(&b);
    let g = vector(&Numbers(3).values(c.nnz()), DType::F32, &device);
    let grads = vjp::backward(c.values(), g.clone());
    let (da, db) = vjp::spgemm(&a, &b, &c.with_values(g).unwrap());
    let autodiff = [a.grad(&grads).unwrap(), b.grad(&grads).unwrap()];
    let t = b.t().matmul(&a.t());
    [&c, &t, &da, &db].into_iter().chain(&autodiff).map(|t| read(t.values())).collect()
}

#[cfg(feature = "wgpu")]
#[test]
fn a_gpu_agrees() {
    let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice);
    for layout in [Layout::Csr, Layout::Coo, Layout::CscT] {
        for (shape, per_row) in [([30, 20], 3), ([5, 300], 90), ([1, 1], 1), ([4, 3], 0)] {
            let (found, expected) = (on(&gpu, layout, shape, per_row), on(&Device::flex(), layout, shape, per_row));
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.len(), expected.len());
                let close = |(f, e): (&f64, &f64)| (f - e).abs() <= 1e-5 * (1.0 + e.abs());
                assert!(found.iter().zip(expected).all(close), "{layout:?} {shape:?} result {at}");
            }
        }
    }
}
