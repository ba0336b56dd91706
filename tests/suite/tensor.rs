//! The sparse tensor as a value: accessors, display, faults, moves.

use crate::common::{Host, Layout, read, vector};
use burn::tensor::FloatDType;
use sparsegrad::prelude::*;

fn example(device: &Device) -> SparseTensor<2> {
    SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], device).unwrap()
}

#[test]
fn display_is_for_people() {
    let a = example(&Device::flex());
    assert_eq!(
        a.to_string(),
        "SparseTensor 2x3, 3 stored (50 %), CSR i32, f32, Flex(Cpu)\n  (0, 2) 3\n  (1, 0) 4\n  (1, 2) 5"
            .replace("Flex(Cpu)", &format!("{:?}", Device::flex()))
    );
    let many = SparseTensor::eye(40, &Device::flex()).unwrap().map_values(|v| v * 0.1);
    let text = many.to_string();
    assert_eq!(text.lines().count(), 12, "{text}");
    assert!(text.contains("(0, 0) 0.1\n") && text.contains("\n  ...\n") && text.ends_with("(39, 39) 0.1"), "{text}");
    let empty = SparseTensor::from_coo([0i32; 0], [0i32; 0], [0f64; 0], [0, 7], &Device::flex()).unwrap();
    assert!(empty.to_string().starts_with("SparseTensor 0x7, 0 stored, COO i32, f64"), "{empty}");
    let odd = SparseTensor::from_coo([1, 0, 1], [0, 0, 0], [1f64; 3], [2, 1], &Device::flex()).unwrap();
    assert!(odd.to_string().contains("COO i32, with duplicates, unordered, f64"), "{odd}");
}

#[test]
fn spy_shows_the_shape_of_the_pattern() {
    let eye = Pattern::eye(200).unwrap();
    let picture = eye.spy(40);
    let lines: Vec<_> = picture.lines().collect();
    assert_eq!((lines.len(), lines[0].chars().count()), (20, 40));
    for (i, line) in lines.iter().enumerate() {
        let inked: Vec<_> = line.char_indices().filter(|&(_, c)| c != ' ').map(|(at, _)| at).collect();
        assert_eq!(inked, [2 * i, 2 * i + 1], "{picture}");
    }
    assert_eq!(Pattern::coo([0; 0], [0; 0], [0, 5]).unwrap().spy(10), "");
    assert_eq!(Pattern::csr([0, 1000], (0..1000).collect::<Vec<i32>>(), [1, 1000]).unwrap().spy(5), "@@@@@\n");
}

#[test]
fn entries_can_be_looked_at() {
    for layout in Layout::ALL {
        let host = Host::random("17x23", [17, 23], 4, 1);
        let (a, host) = layout.build(&host, DType::F64, &Device::flex());
        let triplets: Vec<_> = a.triplets().unwrap().collect();
        let expected: Vec<_> = (0..host.nnz()).map(|e| (host.rows[e], host.cols[e], host.values[e])).collect();
        assert_eq!(triplets, expected, "{layout:?}");
        let dense = host.dense();
        for row in 0..17 {
            for column in 0..23 {
                let stored = expected.iter().any(|&(r, c, _)| (r, c) == (row, column));
                match a.get(row, column).unwrap() {
                    Some(value) => assert!(stored && (value - dense[row * 23 + column]).abs() < 1e-15),
                    None => assert!(!stored),
                }
            }
        }
        assert_eq!(a.get(17, 0).unwrap_err(), TensorError::Position { row: 17, column: 0, shape: [17, 23] });
    }
}

#[test]
fn values_are_checked() {
    let device = Device::flex();
    let pattern = Pattern::eye(3).unwrap();
    let wrong = TensorError::ValuesLength { values: 2, stored: 3 };
    assert_eq!(SparseTensor::new(pattern.clone(), Tensor::zeros([2], &device)).unwrap_err(), wrong);
    let a = SparseTensor::new(pattern, Tensor::ones([3], &device)).unwrap();
    assert_eq!(a.with_values(Tensor::zeros([2], &device)).unwrap_err(), wrong);
}

#[test]
fn operands_that_do_not_fit_are_typed_errors_and_panics() {
    let a = example(&Device::flex());
    let error = try_sparse_mm(&a, Tensor::<2>::zeros([4, 2], &Device::flex())).unwrap_err();
    assert_eq!(error.to_string(), "sparse_mm: columns of A and rows of B must agree: [2, 3] and [4, 2]");
    let error = try_sparse_mm(&a, vector(&[1., 2., 3.], DType::F64, &Device::flex())).unwrap_err();
    assert_eq!(error.to_string(), "sparse_mm: dtypes differ: F32 and F64 (use `cast`)");
    let x = || Tensor::<2>::zeros([2, 5], &Device::flex());
    let error = try_sddmm(a.pattern(), x(), x()).unwrap_err();
    assert_eq!(error.to_string(), "sddmm: columns of the pattern and rows of Y must agree: [2, 3] and [2, 5]");
    let panic = std::panic::catch_unwind(|| example(&Device::flex()).matvec(Tensor::zeros([2], &Device::flex())));
    let message = *panic.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(message, "sparse_mm: columns of A and rows of B must agree: [2, 3] and [2]");
    let panic = std::panic::catch_unwind(|| example(&Device::flex()).require_grad());
    let message = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("create the tensor on `device.autodiff()`"), "{message}");
}

#[test]
fn the_pattern_stays_when_values_change() {
    let device = Device::flex().autodiff();
    let a = example(&device).require_grad();
    let doubled = a.map_values(|v| v * 2.0);
    assert!(doubled.same_pattern(&a));
    assert_eq!(read(doubled.values()), [6., 8., 10.]);
    // Through map_values the graph goes on; through detach it does not.
    let grads = doubled.matvec(Tensor::ones([3], &device)).sum().backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [2., 2., 2.]);
    let cut = a.clone().detach().require_grad();
    let grads = cut.matvec(Tensor::ones([3], &device)).sum().backward();
    assert!(a.grad(&grads).is_none() && cut.grad(&grads).is_some());
}

#[test]
fn casts_and_transposes_keep_the_graph() {
    let device = Device::flex().autodiff();
    let a = example(&device).require_grad();
    let b = a.t().cast(FloatDType::F64);
    assert_eq!((b.shape(), b.dtype()), ([3, 2], DType::F64));
    let y = b.matvec(vector(&[10., 1.], DType::F64, &device));
    assert_eq!(read(&y), [4., 0., 35.]);
    let grads = y.sum().backward();
    let gradient = a.grad(&grads).unwrap();
    assert_eq!((gradient.dtype(), read(gradient.values())), (DType::F32, vec![10., 1., 1.]));
    assert!(gradient.same_pattern(&a));
}

#[test]
fn diagonals_and_identities() {
    let device = Device::flex().autodiff();
    let d = vector(&[2., 0., 3.], DType::F64, &device).require_grad();
    let a = SparseTensor::diagonal(d.clone()).unwrap();
    assert_eq!((a.nnz(), read(&a.to_dense())), (3, vec![2., 0., 0., 0., 0., 0., 0., 0., 3.]));
    let grads = a.matvec(vector(&[1., 2., 3.], DType::F64, &device)).sum().backward();
    assert_eq!(read(&d.grad(&grads).unwrap()), [1., 2., 3.]);
    let eye = SparseTensor::eye(0, &device).unwrap();
    assert_eq!((eye.shape(), eye.nnz()), ([0, 0], 0));
}

#[test]
fn indices_come_in_many_forms() {
    let device = Device::flex();
    let tensor = Tensor::<1, Int>::from_data([0, 1, 1], &device);
    let same = [
        SparseTensor::from_coo(vec![0i32, 1, 1], vec![2i64, 0, 2], vec![3f32, 4., 5.], [2, 3], &device),
        SparseTensor::from_coo(&[0usize, 1, 1], &vec![2u32, 0, 2], &[3f32, 4., 5.], [2, 3], &device),
        SparseTensor::from_coo(tensor, [2u64, 0, 2].as_slice(), [3f32, 4., 5.].as_slice(), [2, 3], &device),
    ];
    for a in same {
        let a = a.unwrap();
        assert_eq!(read(&a.to_dense()), [0., 0., 3., 4., 0., 5.]);
        assert_eq!(a.dtype(), DType::F32);
    }
}
