//! segment_mm, gather_mm, grouped_mm and sums of outer products: golden vectors, derivatives, agreement with dense products.

use crate::common::{Numbers, Oracle, matrix, read, rounded};
use burn::tensor::TensorData;
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use sparsegrad::{try_gather_mm, try_grouped_mm, try_segment_mm, try_segment_mm_bias, try_segment_outer, vjp};

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

fn device() -> Device {
    Device::flex().autodiff()
}

fn stack(values: &[f64], shape: [usize; 3], dtype: DType) -> Tensor<3> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (&device(), dtype))
}

fn count(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

/// torchsparsegradutils 0.2.5, indexed_matmul.
#[test]
fn tsgu_segment_mm_and_gather_mm() {
    let sorted = Segments::from_lengths([1, 2]).unwrap();
    let index = Segments::from_ids([1, 0, 1], 2).unwrap();
    type Product = fn(Tensor<2>, Tensor<3>, &Segments) -> Tensor<2>;
    type Case<'a> = (Product, &'a Segments, [[f64; 6]; 2], [f64; 8]);
    let cases: [Case; 2] = [
        (
            segment_mm,
            &sorted,
            [[2., 3., 26., 31., 46., 55.], [1., 5., 9., 13., 9., 13.]],
            [0., 0., 1., 1., 6., 6., 8., 8.],
        ),
        (
            gather_mm,
            &index,
            [[6., 7., 6., 11., 46., 55.], [9., 13., 1., 5., 9., 13.]],
            [2., 2., 3., 3., 4., 4., 6., 6.],
        ),
    ];
    for dtype in DTYPES {
        for (product, segments, [out, d_x], d_weight) in cases {
            let x = matrix(&count(6), [3, 2], dtype, &device()).require_grad();
            let weight = stack(&count(8), [2, 2, 2], dtype).require_grad();
            let y = product(x.clone(), weight.clone(), segments);
            assert_eq!(read(&y), out, "{dtype:?}");
            let grads = y.sum().backward();
            assert_eq!(read(&x.grad(&grads).unwrap()), d_x, "{dtype:?}");
            assert_eq!(read(&weight.grad(&grads).unwrap()), d_weight, "{dtype:?}");
        }
    }
}

fn segments() -> [Segments; 2] {
    [Segments::from_lengths([2, 0, 3, 1]).unwrap(), Segments::from_ids([3, 0, 3, 2, 0, 3], 4).unwrap()]
}

#[test]
fn gradients_are_the_derivatives() {
    for device in [device(), device().gradient_checkpointing()] {
        for segments in segments() {
            let inputs = [Numbers(1).values(6 * 3), Numbers(2).values(4 * 3 * 5), Numbers(3).values(4 * 5)];
            gradcheck(&device, &inputs, 1e-8, |inputs| {
                let (x, weight) = (inputs[0].clone().reshape([6, 3]), inputs[1].clone().reshape([4, 3, 5]));
                let bias = inputs[2].clone().reshape([4, 5]);
                // Not linear, so that the product's own gradient varies.
                let y = segment_mm_bias(x.clone(), weight.clone(), bias, &segments).powi_scalar(2);
                (y + gather_mm(x, weight, &segments)).reshape([30])
            })
            .unwrap();
            let inputs = [Numbers(4).values(6 * 3), Numbers(5).values(6 * 2)];
            gradcheck(&device, &inputs, 1e-8, |inputs| {
                let (x, y) = (inputs[0].clone().reshape([6, 3]), inputs[1].clone().reshape([6, 2]));
                segment_outer(x, y, &segments).powi_scalar(2).reshape([24])
            })
            .unwrap();
        }
    }
}

#[test]
fn second_derivatives_are_the_derivatives_of_the_first() {
    for segments in segments() {
        let (x, weight, grad) = (Numbers(1).values(18), Numbers(2).values(24), Numbers(3).values(12));
        gradcheck(&device(), &[x.clone(), weight.clone(), grad.clone()], 1e-8, |inputs| {
            let (x, weight) = (inputs[0].clone().reshape([6, 3]), inputs[1].clone().reshape([4, 3, 2]));
            let (of_x, of_weight) = vjp::segment_mm(x, weight, &segments, inputs[2].clone().reshape([6, 2]));
            Tensor::cat(vec![of_x.powi_scalar(2).reshape([18]), of_weight.powi_scalar(2).reshape([24])], 0)
        })
        .unwrap();
        gradcheck(&device(), &[x, grad, weight], 1e-8, |inputs| {
            let (x, y) = (inputs[0].clone().reshape([6, 3]), inputs[1].clone().reshape([6, 2]));
            let (of_x, of_y) = vjp::segment_outer(x, y, &segments, inputs[2].clone().reshape([4, 3, 2]));
            Tensor::cat(vec![of_x.powi_scalar(2).reshape([18]), of_y.powi_scalar(2).reshape([12])], 0)
        })
        .unwrap();
    }
}

/// A loop of dense products over the segments, on sizes that nobody would think of.
#[test]
fn products_are_those_of_a_loop_of_dense_ones() {
    let mut numbers = Numbers(11);
    for round in 0..200 {
        let [inner, cols, count] = [40, 70, 9].map(|bound| numbers.below(bound));
        let count = count + 1;
        let lengths: Vec<usize> = (0..count).map(|_| numbers.below(14) * numbers.below(3)).collect();
        let segments = Segments::from_lengths(&lengths).unwrap();
        let (rows, dtype) = (segments.rows(), DTYPES[round % 4]);
        let x = rounded(&numbers.values(rows * inner), dtype);
        let weight = rounded(&numbers.values(count * inner * cols), dtype);
        let mut expected = Oracle::zeros(rows * cols);
        for (segment, at) in (0..count).flat_map(|segment| segments.range(segment).map(move |at| (segment, at))) {
            for (k, j) in (0..inner).flat_map(|k| (0..cols).map(move |j| (k, j))) {
                expected.add(at * cols + j, x[at * inner + k] * weight[(segment * inner + k) * cols + j]);
            }
        }
        let (tx, tw) = (matrix(&x, [rows, inner], dtype, &device()), stack(&weight, [count, inner, cols], dtype));
        let sorted = segment_mm(tx.clone(), tw.clone(), &segments);
        expected.check("sorted", &read(&sorted), dtype).unwrap();

        // The same rows in another order give the same bits.
        let mut order: Vec<usize> = (0..rows).collect();
        (1..rows).rev().for_each(|at| order.swap(at, numbers.below(at + 1)));
        let ids: Vec<usize> = order.iter().map(|&row| segments.ids().get(row)).collect();
        let shuffled: Vec<f64> = order.iter().flat_map(|&row| x[row * inner..][..inner].to_vec()).collect();
        let index = Segments::from_ids(ids, count).unwrap();
        let found = read(&gather_mm(matrix(&shuffled, [rows, inner], dtype, &device()), tw, &index));
        let sorted = read(&sorted);
        let back: Vec<f64> = order.iter().flat_map(|&row| sorted[row * cols..][..cols].to_vec()).collect();
        assert_eq!(found, back, "{rows} rows, {inner} x {cols}, {dtype:?}");
    }
}

/// The same bits over repeats and numbers of threads: segments long enough to be cut, one of them most of the rows.
#[test]
fn bits_do_not_depend_on_threads_or_repeats() {
    let mut numbers = Numbers(12);
    let ids: Vec<usize> = (0..30_000).map(|_| numbers.below(7) * numbers.below(2)).collect();
    let segments = Segments::from_ids(ids, 8).unwrap();
    for (dtype, inner, cols) in [(DType::F32, 16, 16), (DType::F64, 9, 20), (DType::F16, 5, 8), (DType::BF16, 16, 3)] {
        let x = matrix(&numbers.values(30_000 * inner), [30_000, inner], dtype, &device()).require_grad();
        let weight = stack(&numbers.values(8 * inner * cols), [8, inner, cols], dtype).require_grad();
        let run = || {
            let y = gather_mm(x.clone(), weight.clone(), &segments);
            let grads = vjp::backward(&y, y.clone().detach());
            let all = [read(&y), read(&x.grad(&grads).unwrap()), read(&weight.grad(&grads).unwrap())];
            all.concat().into_iter().map(f64::to_bits).collect::<Vec<u64>>()
        };
        let on = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run);
        let expected = on(1);
        for threads in [1, 2, 2, 3, 4] {
            assert!(on(threads) == expected, "{dtype:?}, {threads} threads");
        }
    }
}

/// A gradient that nobody asks for is not computed: what would overflow its memory is left alone.
#[test]
fn only_what_is_asked_for_has_a_gradient() {
    let [segments, _] = segments();
    let x = matrix(&count(18), [6, 3], DType::F64, &device());
    let weight = stack(&count(24), [4, 3, 2], DType::F64);
    let y = segment_mm(x.clone().require_grad(), weight.clone(), &segments);
    let x_tracked = x.clone().require_grad();
    let grads = segment_mm(x_tracked.clone(), weight.clone(), &segments).sum().backward();
    assert!(x_tracked.grad(&grads).is_some() && weight.grad(&grads).is_none());
    let weight_tracked = weight.clone().require_grad();
    let grads = segment_mm(x.clone(), weight_tracked.clone(), &segments).sum().backward();
    assert!(weight_tracked.grad(&grads).is_some() && x.grad(&grads).is_none());
    let bias = Tensor::<2>::zeros([4, 2], (&device(), DType::F64)).require_grad();
    let with_bias = segment_mm_bias(x, weight, bias.clone(), &segments);
    assert_eq!(read(&with_bias), read(&y));
    assert_eq!(read(&bias.grad(&with_bias.sum().backward()).unwrap()), [2., 2., 0., 0., 3., 3., 1., 1.]);
}

/// Views of weights: one for all segments, backwards, a part.
#[test]
fn weights_of_every_layout() {
    let [_, index] = segments();
    let x = matrix(&Numbers(1).values(18), [6, 3], DType::F64, &device());
    let values = Numbers(2).values(5 * 5 * 7);
    let all = stack(&values, [5, 5, 7], DType::F64).require_grad();
    let views: [Tensor<3>; 3] = [
        all.clone().slice([1..2, 1..4, 2..6]).expand([4, 3, 4]),
        all.clone().slice([0..4, 1..4, 2..6]).flip([1]),
        all.clone().slice([0..4, 0..4, 1..4]).swap_dims(1, 2),
    ];
    for view in views {
        let copy = stack(&read(&view), view.dims(), DType::F64).require_grad();
        let (y, expected) = (gather_mm(x.clone(), view, &index), gather_mm(x.clone(), copy.clone(), &index));
        assert_eq!(read(&y), read(&expected));
        let (grads, of_copy) = (y.sum().backward(), expected.sum().backward());
        let total = |gradient: Tensor<3>| read(&gradient).iter().sum::<f64>();
        let (found, expected) = (total(all.grad(&grads).unwrap()), total(copy.grad(&of_copy).unwrap()));
        assert!((found - expected).abs() < 1e-12);
    }
}

#[test]
fn groups_of_their_own_sizes() {
    let sizes = [[2, 3, 4], [0, 5, 2], [7, 1, 1], [3, 0, 2], [1, 20, 33]];
    let mut numbers = Numbers(13);
    let tensor = |numbers: &mut Numbers, [rows, cols]: [usize; 2]| {
        matrix(&numbers.values(rows * cols), [rows, cols], DType::F64, &device()).require_grad()
    };
    let inputs: Vec<_> = sizes.iter().map(|&[n, k, _]| tensor(&mut numbers, [n, k])).collect();
    let weights: Vec<_> = sizes.iter().map(|&[_, k, m]| tensor(&mut numbers, [k, m])).collect();
    let biases: Vec<Tensor<1>> =
        sizes.iter().map(|&[.., m]| crate::common::vector(&numbers.values(m), DType::F64, &device())).collect();
    let products = grouped_mm(&inputs, &weights, Some(&biases));
    for (group, &[n, k, m]) in sizes.iter().enumerate() {
        let (x, w, b) = (read(&inputs[group]), read(&weights[group]), read(&biases[group]));
        let mut expected = Oracle::zeros(n * m);
        for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
            expected.add(i * m + j, b[j]);
            (0..k).for_each(|k_at| expected.add(i * m + j, x[i * k + k_at] * w[k_at * m + j]));
        }
        expected.check(&format!("group {group}"), &read(&products[group]), DType::F64).unwrap();
    }
    // The group without rows: a gradient of zeros, not none.
    let grads = grouped_mm(&inputs, &weights, None)[1].clone().sum().backward();
    assert_eq!(read(&weights[1].grad(&grads).unwrap()), [0.; 10]);

    let error = try_grouped_mm(&inputs, &weights[1..], None).unwrap_err();
    assert!(error.to_string().contains("as many inputs, weights and biases: [5] and [4]"), "{error}");
    assert!(matches!(try_grouped_mm(&inputs[..1], &weights[1..2], None), Err(OpError::Shapes { .. })));
}

#[test]
fn operands_that_do_not_fit_are_named() {
    let [segments, _] = segments();
    let x = |rows, cols| Tensor::<2>::zeros([rows, cols], &device());
    let weight = |count, inner, cols| Tensor::<3>::zeros([count, inner, cols], &device());
    let error = try_segment_mm(x(5, 3), weight(4, 3, 2), &segments).unwrap_err();
    assert_eq!(error.to_string(), "segment_mm: [segments, rows] must have the rows of x: [4, 6] and [5, 3]");
    for (result, expected) in [
        (try_segment_mm(x(6, 3), weight(3, 3, 2), &segments), "a weight a segment: [4, 6] and [3, 3, 2]"),
        (try_gather_mm(x(6, 3), weight(4, 2, 2), &segments), "gather_mm: columns of x and rows of each weight"),
        (try_segment_mm_bias(x(6, 3), weight(4, 3, 2), x(4, 3), &segments), "[4, 3] and [4, 3, 2]"),
        (
            try_segment_mm(x(6, 3), Tensor::zeros([4, 3, 2], (&device(), DType::F64)), &segments),
            "dtypes differ: F32 and F64",
        ),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = try_segment_outer(x(6, 3), x(5, 2), &segments).unwrap_err();
    assert!(error.to_string().contains("x and y must have as many rows"), "{error}");
}

#[test]
#[should_panic(expected = "segment_mm: columns of x and rows of each weight must agree: [6, 3] and [4, 2, 2]")]
fn segment_mm_panics_with_both_shapes() {
    let [segments, _] = segments();
    segment_mm(Tensor::zeros([6, 3], &device()), Tensor::zeros([4, 2, 2], &device()), &segments);
}
