//! Sums, entrywise products, scalings and maps.

use crate::common::{Host, Layout, Numbers, matrix, read, vector};
use sparsegrad::ops::add::{csr_add, sparse_mul, try_csr_add, try_sparse_add};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;

const TOLERANCE: f64 = 1e-8;

fn device() -> Device {
    Device::flex().autodiff()
}

fn coo(shape: [usize; 2], rows: &[usize], cols: &[usize], values: &[f64]) -> SparseTensor<2> {
    SparseTensor::from_coo(rows, cols, values, shape, &device()).unwrap().require_grad()
}

fn parts(layout: Layout, seed: u64) -> (Pattern, Vec<f64>) {
    let (a, host) = layout.build(&Host::random("random", [6, 5], 3, seed), DType::F64, &Device::flex());
    (a.pattern().clone(), host.values)
}

/// spops, csr_add.
#[test]
fn spops_csr_add() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let device = Device::flex();
        let pattern = Pattern::csr([0, 2, 2, 4], [0, 3, 1, 2], [3, 4]).unwrap();
        let a = SparseTensor::new(pattern, vector(&[1., 2., -1., 0.5], dtype, &device)).unwrap();
        let w: Vec<f64> = (0..12).map(f64::from).collect();
        let sum = csr_add(&a, matrix(&w, [3, 4], dtype, &device));
        assert_eq!(read(&sum), [1., 1., 2., 5., 4., 5., 6., 7., 8., 8., 10.5, 11.], "{dtype:?}");
    }
}

/// google/jax#8889: entries were squared before duplicates were summed.
#[test]
fn jax_8889_maps_act_on_sums_of_duplicates() {
    let m = coo([3, 3], &[0, 1, 0, 0, 1, 1], &[1, 0, 1, 2, 0, 2], &[1., 2., 3., 4., 5., 6.]);
    let squared = [0., 16., 16., 49., 0., 36., 0., 0., 0.];
    assert_eq!(read(&m.powi(2).to_dense()), squared);
    assert_eq!(read(&(&m * &m).to_dense()), squared);
    assert_eq!(read(&sparse_mul(&m, &m.coalesce()).to_dense()), squared);
    let opposite = coo([1, 1], &[0, 0], &[0, 0], &[1., -3.]);
    assert_eq!(read(opposite.abs().values()), [2.]);
    assert_eq!(read(opposite.relu().values()), [0.]);
    assert_eq!(read(opposite.exp_stored().values()), [(-2f64).exp()]);
}

#[test]
fn gradients() {
    for (left, right) in Layout::ALL.into_iter().zip(Layout::ALL.into_iter().rev()).chain([(Layout::Csc, Layout::Csc)])
    {
        let ((a, x), (b, y)) = (parts(left, 1), parts(right, 2));
        let (d, r, c) = (Numbers(3).values(30), Numbers(4).values(6), Numbers(5).values(5));
        gradcheck(&device(), &[x, y, d, r, c], TOLERANCE, |v| {
            let a = SparseTensor::new(a.clone(), v[0].clone()).unwrap();
            let b = SparseTensor::new(b.clone(), v[1].clone()).unwrap();
            let d = v[2].clone().reshape([6, 5]);
            let sum = a.linear_combination(0.5, &b, -2.0);
            let scaled = (&sum * &b).scale(v[3].clone(), v[4].clone());
            let dense = &(&(&scaled - &a) * d.clone()) + d.clone();
            let mapped = (&a.powi(2) / 3.0).add_dense(d);
            Tensor::cat(vec![dense.reshape([30]), mapped.reshape([30])], 0)
        })
        .unwrap_or_else(|error| panic!("{left:?} {right:?}: {error}"));
    }
}

/// A sum has every position that one of the two stores, an intersection those of both, though they cancel or are zeros.
#[test]
fn patterns_are_structural() {
    let a = coo([2, 2], &[1, 0, 0], &[0, 0, 0], &[1., 2., 3.]);
    let b = coo([2, 2], &[0, 1, 1], &[0, 1, 0], &[-5., 0., f64::INFINITY]);
    let sum = &a + &b;
    assert_eq!(sum.triplets().unwrap().collect::<Vec<_>>(), [(0, 0, 0.), (1, 0, f64::INFINITY), (1, 1, 0.)]);
    assert_eq!(sum.pattern().format(), TensorFormat::csr());
    let product = &a * &b;
    assert_eq!(product.triplets().unwrap().collect::<Vec<_>>(), [(0, 0, -25.), (1, 0, f64::INFINITY)]);
    // One pattern is kept, duplicates and order too; CSC stays CSC.
    assert!((&a + &a).same_pattern(&a));
    let columns = &a.to_csc() + &b.to_csc();
    assert_eq!(columns.pattern().format().name(), Some("CSC"));
    assert_eq!(read(&columns.to_dense()), read(&sum.to_dense()));
    // Absent entries never touch the dense operand.
    let nan = matrix(&[2., f64::NAN, 2., f64::NAN], [2, 2], DType::F64, &device());
    assert_eq!(read((&a * nan.clone()).values()), [2., 4., 6.]);
    assert_eq!(read((&a / nan).values()), [0.5, 1., 1.5]);
}

/// A combination of one tensor with itself, and plans that serve the second time.
#[test]
fn combinations_are_planned_once() {
    let ((a, x), (b, y)) = (parts(Layout::Coo, 6), parts(Layout::Csr, 7));
    let device = Device::flex();
    let [x, y] = [x, y].map(|values| vector(&values, DType::F64, &device));
    let (a, b) = (SparseTensor::new(a, x).unwrap(), SparseTensor::new(b, y).unwrap());
    let (first, second) = (&a + &b, &a + &b);
    let buffer = |t: &SparseTensor<2>| t.pattern().levels()[1].coordinates.as_ref().unwrap().iter().len();
    assert_eq!(buffer(&first), buffer(&second));
    assert_eq!(read(first.values()), read(second.values()));
    let nothing = &a - &a;
    assert!(read(nothing.values()).iter().all(|&v| v == 0.0));
    let thrice = a.linear_combination(2.0, &a, 1.0);
    assert!(read(thrice.values()).iter().zip(read(a.values())).all(|(t, a)| (t - 3.0 * a).abs() < 1e-15));
}

#[test]
fn what_does_not_fit_is_told() {
    let a = coo([2, 3], &[0], &[1], &[1.]);
    let error = try_sparse_add(&a, &a.t()).unwrap_err();
    assert_eq!(error.to_string(), "sparse_add: both must have the same shape: [2, 3] and [3, 2]");
    let narrow = a.clone().detach().cast(burn::tensor::FloatDType::F32);
    assert!(matches!(try_sparse_add(&a, &narrow), Err(OpError::DTypes { .. })));
    let d = Tensor::<2>::zeros([3, 2], (&device(), DType::F64));
    assert!(matches!(try_csr_add(&a, d.clone()), Err(OpError::Shapes { .. })));
    assert!(matches!(a.try_mul_dense(d.clone()), Err(OpError::Shapes { .. })));
    assert!(matches!(a.try_div_dense(d), Err(OpError::Shapes { .. })));
    let two = || vector(&[1., 2.], DType::F64, &device());
    assert!(matches!(a.try_scale_columns(two()), Err(OpError::Shapes { .. })));
    assert!(matches!(a.try_scale(two(), two()), Err(OpError::Shapes { .. })));
    assert!(a.try_scale_rows(two()).is_ok());
}

#[test]
fn batches_scale_item_by_item() {
    let (pattern, _) = parts(Layout::Csr, 8);
    let values = matrix(&Numbers(9).values(2 * pattern.nnz()), [2, pattern.nnz()], DType::F64, &Device::flex());
    let batch = SparseTensor::shared(&pattern, values).unwrap();
    let rows = matrix(&Numbers(10).values(12), [2, 6], DType::F64, &Device::flex());
    let columns = matrix(&Numbers(11).values(10), [2, 5], DType::F64, &Device::flex());
    let scaled = batch.scale(rows.clone(), columns.clone());
    for item in 0..2 {
        let [r, c] = [(&rows, 6), (&columns, 5)].map(|(v, n)| v.clone().slice([item..item + 1, 0..n]).reshape([n]));
        assert_eq!(read(scaled.item(item).values()), read(batch.item(item).scale(r, c).values()));
    }
    let flat = batch.scale_rows(rows).scale_columns(columns);
    assert!(read(flat.values()).iter().zip(read(scaled.values())).all(|(a, b)| (a - b).abs() < 1e-14));
}

/// Absent entries leave the dense operand as it is, -0 included; sums of duplicates are rounded once.
#[test]
fn csr_add_touches_stored_positions_only() {
    let device = Device::flex();
    let a = SparseTensor::from_coo(&[0, 1, 1], &[1, 0, 0], &[3.0f32, 2.0, -2.0], [2, 2], &device).unwrap();
    let d = Tensor::<2>::from_data([[-0.0f32, -0.0], [5.0, f32::NAN]], &device);
    let kept = d.clone();
    let found = csr_add(&a, d).to_data().try_to_vec::<f32>().unwrap();
    assert_eq!(found[..3], [0.0, 3.0, 5.0]);
    assert!(found[0].is_sign_negative() && found[3].is_nan());
    // The operand is not changed where it is still held.
    assert_eq!(kept.to_data().try_to_vec::<f32>().unwrap()[1].to_bits(), (-0.0f32).to_bits());
    // Any view: transposed, sliced, given away or not.
    let whole = matrix(&(0..12).map(f64::from).collect::<Vec<_>>(), [3, 4], DType::F64, &device);
    let b = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[10.0f64, 20.0], [2, 2], &device).unwrap();
    let views = [(whole.clone().slice([1..3, 2..4]), [6.0, 17.0, 30.0, 11.0])];
    for (view, expected) in views {
        assert_eq!(read(&csr_add(&b, view.clone())), expected);
        assert_eq!(read(&csr_add(&b, view)), expected);
    }
    assert_eq!(read(&csr_add(&b, whole.slice([1..3, 2..4]).transpose())), [6.0, 20.0, 27.0, 11.0]);
}
