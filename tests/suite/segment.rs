//! Segment reductions, segment softmax and edge operations: corners, golden vectors, gradients, bits.

use crate::common::{Host, Layout, Numbers, matrix, read, vector};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use sparsegrad::{
    EdgeOp, Reducer, edge_dot, edge_mm, edge_op, edge_reduce, edge_softmax, segment_expand, segment_log_softmax,
    segment_max, segment_mean, segment_min, segment_reduce, segment_softmax, segment_sum, try_edge_dot,
    try_edge_gather, try_edge_mm, try_edge_op, try_edge_reduce, try_segment_expand, try_segment_reduce, vjp,
};

fn device() -> Device {
    Device::flex().autodiff()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        assert!(same || (found - expected).abs() < 1e-9, "element {at}: {found} for {expected}");
    }
}

fn f64s(values: &[f64]) -> Tensor<1> {
    vector(values, DType::F64, &device()).require_grad()
}

fn rows(values: &[f64], shape: [usize; 2]) -> Tensor<2> {
    matrix(values, shape, DType::F64, &device()).require_grad()
}

/// The same numbers in two columns, the second of them with the other sign.
fn both(values: &[f64]) -> Tensor<2> {
    let two: Vec<f64> = values.iter().flat_map(|&x| [x, -x]).collect();
    rows(&two, [values.len(), 2])
}

/// DGL 764e3a4, `segment_reduce` and `segment_softmax` by their definition: lengths [3, 0, 2].
#[test]
fn golden_segments() {
    let segments = Segments::from_lengths([3, 0, 2]).unwrap();
    let x = rows(&[1., 2., 3., -4., 5., 6., 7., 8., 9., 10.], [5, 2]);
    close(&read(&segment_sum(x.clone(), &segments)), &[9., 4., 0., 0., 16., 18.]);
    close(&read(&segment_mean(x.clone(), &segments)), &[3., 4. / 3., 0., 0., 8., 9.]);
    close(&read(&segment_max(x.clone(), &segments)), &[5., 6., 0., 0., 9., 10.]);
    close(&read(&segment_min(x.clone(), &segments)), &[1., -4., 0., 0., 7., 8.]);
    let weights = read(&segment_softmax(x.clone(), &segments));
    let (e, s) = (f64::exp, |at: usize| weights[at]);
    let of_three = e(1.) + e(3.) + e(5.);
    close(&[s(0), s(2), s(4)], &[e(1.) / of_three, e(3.) / of_three, e(5.) / of_three]);
    close(&[s(6), s(8)], &[1. / (1. + e(2.)), 1. / (1. + e(-2.))]);
    let logs = read(&segment_log_softmax(x, &segments));
    weights.iter().zip(&logs).for_each(|(weight, log)| close(&[weight.ln()], &[*log]));
}

#[test]
fn more_dimensions_are_columns() {
    let segments = Segments::from_ids([1, 0, 1], 2).unwrap();
    let x = f64s(&Numbers(1).values(3 * 2 * 4)).reshape([3, 2, 4]);
    let sums = segment_sum(x.clone(), &segments);
    assert_eq!(sums.dims(), [2, 2, 4]);
    let flat = segment_sum(x.clone().reshape([3, 8]), &segments);
    assert_eq!(read(&sums), read(&flat));
    assert_eq!(segment_softmax(x.clone(), &segments).dims(), [3, 2, 4]);
    assert_eq!(segment_expand(sums, &segments).dims(), [3, 2, 4]);
    // Nothing in any dimension.
    let none = Segments::from_lengths([0, 0]).unwrap();
    assert_eq!(read(&segment_max(Tensor::<2>::zeros([0, 3], &device()), &none)), [0.0; 6]);
    assert_eq!(segment_softmax(Tensor::<2>::zeros([0, 3], &device()), &none).dims(), [0, 3]);
    assert_eq!(segment_mean(Tensor::<2>::zeros([3, 0], &device()), &segments).dims(), [2, 0]);
    assert_eq!(segment_expand(Tensor::<2>::zeros([2, 0], &device()), &segments).dims(), [3, 0]);
    let nowhere = Segments::from_ids([0_usize; 0], 0).unwrap();
    assert_eq!(segment_sum(Tensor::<1>::zeros([0], &device()), &nowhere).dims(), [0]);
}

#[test]
fn softmax_in_the_corners() {
    let infinity = f64::INFINITY;
    let values = [-infinity, -infinity, 1000.0, 999.0, -infinity, 5.0, -3000.0, infinity, 1.0, f64::NAN, 2.0];
    let segments = Segments::from_lengths([2, 2, 2, 1, 2, 2]).unwrap();
    let upstream = [1., 2., 3., 5., 7., 11., 13., 1., 1., 1., 1.];
    let e = 1.0 / (1.0 + (-1f64).exp());
    let (d, nan) = (e * (1.0 - e) * 2.0, f64::NAN);
    let weights = [0.0, 0.0, e, 1.0 - e, 0.0, 1.0, 1.0, nan, nan, nan, nan];
    let of_weights = [0.0, 0.0, -d, d, 0.0, 0.0, 0.0, nan, nan, nan, nan];
    let logs = [-infinity, -infinity, e.ln(), (1.0 - e).ln(), -infinity, 0.0, 0.0];
    let of_logs = [0.0, 0.0, 3.0 - 8.0 * e, 5.0 - 8.0 * (1.0 - e), 7.0, -7.0, 0.0];
    for columns in [1, 2, 17] {
        let wide = |x: &[f64]| -> Vec<f64> { x.iter().flat_map(|&x| vec![x; columns]).collect() };
        let x = rows(&wide(&values), [values.len(), columns]);
        let g = matrix(&wide(&upstream), [values.len(), columns], DType::F64, &device());
        let s = segment_softmax(x.clone(), &segments);
        close(&read(&s), &wide(&weights));
        close(&read(&x.grad(&vjp::backward(&s, g.clone())).unwrap()), &wide(&of_weights));
        let s = segment_log_softmax(x.clone(), &segments);
        close(&read(&s)[..7 * columns], &wide(&logs));
        assert!(read(&s)[9 * columns..].iter().all(|x| x.is_nan()));
        close(&read(&x.grad(&vjp::backward(&s, g)).unwrap())[..7 * columns], &wide(&of_logs));
    }
}

#[test]
fn nan_is_the_extreme_and_has_the_gradient() {
    let segments = Segments::from_ids([0, 1, 0, 0], 2).unwrap();
    let values = [1.0, -1.0, f64::NAN, 3.0];
    let x = f64s(&values);
    for run in [segment_max, segment_min] {
        let found = run(x.clone(), &segments);
        close(&read(&found), &[f64::NAN, -1.0]);
        let grads = vjp::backward(&found, vector(&[5.0, 7.0], DType::F64, &device()));
        close(&read(&x.grad(&grads).unwrap()), &[0.0, 7.0, 5.0, 0.0]);
    }
    let wide = both(&values);
    let found = segment_max(wide.clone(), &segments);
    close(&read(&found), &[f64::NAN, f64::NAN, -1.0, 1.0]);
    // -inf is an element, and not what an empty segment has.
    let x = f64s(&[f64::NEG_INFINITY]);
    close(&read(&segment_max(x, &Segments::from_ids([0], 2).unwrap())), &[f64::NEG_INFINITY, 0.0]);
}

/// Segments of more rows than a piece, with ties across pieces, in order and not; the same as in short ones.
#[test]
fn long_segments() {
    let (n, k) = (20_000, 3);
    let mut numbers = Numbers(11);
    let ids: Vec<usize> = (0..n).map(|_| if numbers.below(10) == 0 { numbers.below(50) } else { 7 }).collect();
    let values: Vec<f64> = (0..n * k).map(|_| numbers.below(40) as f64 / 8.0).collect();
    let mut sorted: Vec<usize> = (0..n).collect();
    sorted.sort_by_key(|&i| ids[i]);
    for order in [(0..n).collect::<Vec<_>>(), sorted] {
        let ids: Vec<usize> = order.iter().map(|&i| ids[i]).collect();
        let values: Vec<f64> = order.iter().flat_map(|&i| values[i * k..(i + 1) * k].to_vec()).collect();
        let segments = Segments::from_ids(&ids, 60).unwrap();
        let x = rows(&values, [n, k]);
        let g = Numbers(12).values(60 * k);
        let upstream = matrix(&g, [60, k], DType::F64, &device());
        for (reducer, sign) in [(Reducer::Max, 1.0), (Reducer::Min, -1.0)] {
            let found = segment_reduce(x.clone(), &segments, reducer);
            let gradient = read(&x.grad(&vjp::backward(&found, upstream.clone())).unwrap());
            let (found, mut expected) = (read(&found), vec![0.0; n * k]);
            for (segment, c) in (0..60).flat_map(|segment| (0..k).map(move |c| (segment, c))) {
                let of = (0..n).filter(|&i| ids[i] == segment);
                let best = of.reduce(|a, b| if sign * values[b * k + c] > sign * values[a * k + c] { b } else { a });
                assert_eq!(found[segment * k + c], best.map_or(0.0, |i| values[i * k + c]));
                best.into_iter().for_each(|i| expected[i * k + c] = g[segment * k + c]);
            }
            assert!(gradient == expected, "{reducer:?}");
        }
        let (mut sums, mut exps, mut counts) = (vec![0.0; 60 * k], vec![0.0; 60 * k], vec![0.0; 60]);
        for i in 0..n {
            counts[ids[i]] += 1.0;
            for c in 0..k {
                sums[ids[i] * k + c] += values[i * k + c];
                exps[ids[i] * k + c] += values[i * k + c].exp();
            }
        }
        close(&read(&segment_sum(x.clone(), &segments)), &sums);
        let means: Vec<f64> = sums.iter().enumerate().map(|(at, sum)| sum / f64::max(counts[at / k], 1.0)).collect();
        close(&read(&segment_mean(x.clone(), &segments)), &means);
        let weights: Vec<f64> = (0..n * k).map(|at| values[at].exp() / exps[ids[at / k] * k + at % k]).collect();
        let found = segment_softmax(x.clone(), &segments);
        close(&read(&found), &weights);
        close(&read(&segment_log_softmax(x.clone(), &segments)), &weights.iter().map(|w| w.ln()).collect::<Vec<_>>());
        let g = Numbers(13).values(n * k);
        let grads = vjp::backward(&found, matrix(&g, [n, k], DType::F64, &device()));
        let mut means = vec![0.0; 60 * k];
        (0..n * k).for_each(|at| means[ids[at / k] * k + at % k] += weights[at] * g[at]);
        let expected: Vec<f64> = (0..n * k).map(|at| weights[at] * (g[at] - means[ids[at / k] * k + at % k])).collect();
        close(&read(&x.grad(&grads).unwrap()), &expected);
    }
}

#[test]
fn gradients() {
    let host = Host::random("9x7", [9, 7], 3, 77);
    for device in [device(), device().gradient_checkpointing()] {
        for layout in [Layout::Coo, Layout::Csr, Layout::CscT] {
            let (a, ordered) = layout.build(&host, DType::F64, &Device::flex());
            let (pattern, nnz) = (a.pattern().clone(), ordered.nnz());
            let segments = Segments::from_ids(&ordered.rows, 9).unwrap();
            // Without ties, where extremes have no derivative.
            let x = Numbers(3).values(nnz * 6);
            let flat = |x: Tensor<2>| {
                let [rows, columns] = x.dims();
                x.reshape([rows * columns])
            };
            gradcheck(&device, &[x], 1e-7, |x| {
                let x: Tensor<2> = x[0].clone().reshape([nnz, 6]);
                let one = x.clone().slice([0..nnz, 2..3]);
                let mut parts = vec![];
                for x in [x, one] {
                    for reducer in [Reducer::Sum, Reducer::Mean, Reducer::Max, Reducer::Min] {
                        let reduced = segment_reduce(x.clone(), &segments, reducer);
                        parts.push(flat(segment_expand(reduced.clone().powi_scalar(2), &segments)));
                        parts.push(flat(reduced.powi_scalar(2)));
                        for per in [Per::Row, Per::Column, Per::Matrix] {
                            parts.push(flat(edge_reduce(&pattern, per, x.clone(), reducer).powi_scalar(2)));
                        }
                    }
                    parts.push(flat(segment_softmax(x.clone(), &segments)));
                    parts.push(flat(segment_log_softmax(x.clone(), &segments)));
                    parts.push(flat(edge_softmax(&pattern, Per::Column, x).powi_scalar(2)));
                }
                Tensor::cat(parts, 0)
            })
            .unwrap_or_else(|error| panic!("{layout:?}, {device:?}: {error}"));
            let (u, v) = (Numbers(4).values(9 * 6), Numbers(5).values(7 * 6));
            let v: Vec<f64> = v.iter().map(|v| v + 2.0).collect();
            let w = Numbers(6).values(nnz * 3);
            gradcheck(&device, &[u, v, w], 1e-7, |x| {
                let (u, v) = (x[0].clone().reshape([9, 6]), x[1].clone().reshape([7, 6]));
                let w = x[2].clone().reshape([nnz, 3]);
                let mut parts = vec![];
                for op in [EdgeOp::Add, EdgeOp::Sub, EdgeOp::Mul, EdgeOp::Div] {
                    parts.push(flat(edge_op(&pattern, op, u.clone(), v.clone()).powi_scalar(2)));
                }
                let numbers =
                    edge_op(&pattern, EdgeOp::Mul, x[0].clone().slice_dim(0, 0..9), x[1].clone().slice_dim(0, 0..7));
                parts.push(numbers.values().clone());
                let (u, v) = (u.reshape([9, 3, 2]), v.reshape([7, 3, 2]));
                parts.push(flat(edge_dot(&pattern, u, v.clone()).powi_scalar(2)));
                parts.push(edge_mm(&pattern, w, v).reshape([9 * 6]).powi_scalar(2));
                Tensor::cat(parts, 0)
            })
            .unwrap_or_else(|error| panic!("{layout:?}, {device:?}: {error}"));
        }
    }
}

/// Gradients of gradients through `vjp`.
#[test]
fn hessian_vector_products() {
    let (a, ordered) = Layout::Csr.build(&Host::random("9x7", [9, 7], 3, 78), DType::F64, &Device::flex());
    let (pattern, nnz) = (a.pattern().clone(), ordered.nnz());
    let segments = Segments::from_ids(&ordered.rows, 9).unwrap();
    let inputs = [Numbers(1).values(9 * 4), Numbers(2).values(7 * 4), Numbers(3).values(nnz * 2)];
    gradcheck(&device(), &inputs, 1e-7, |x| {
        let (u, v) = (x[0].clone().reshape([9, 2, 2]), x[1].clone().reshape([7, 2, 2]));
        let w: Tensor<2> = x[2].clone().reshape([nnz, 2]);
        let (du, dv) =
            vjp::edge_dot(&pattern, u.clone(), v.clone(), edge_dot(&pattern, u.clone(), v.clone()).powi_scalar(2));
        let (dw, dz) = vjp::edge_mm(&pattern, w.clone(), v.clone(), edge_mm(&pattern, w.clone(), v).tanh());
        let sums = vjp::segment_sum(segment_sum(w.clone(), &segments).powi_scalar(2), &segments);
        let means = vjp::segment_mean(segment_mean(w, &segments).powi_scalar(2), &segments);
        let flat = |x: Tensor<2>| x.reshape([2 * nnz]);
        Tensor::cat(vec![du.reshape([36]), dv.reshape([28]), flat(dw), dz.reshape([28]), flat(sums), flat(means)], 0)
    })
    .unwrap();
}

#[test]
fn vjp_is_the_gradient() {
    let segments = Segments::from_ids([2, 0, 2, 2], 4).unwrap();
    let x = rows(&Numbers(1).values(8), [4, 2]);
    let g = matrix(&Numbers(2).values(8), [4, 2], DType::F64, &device());
    let grads = vjp::backward(&segment_sum(x.clone(), &segments), g.clone());
    close(&read(&vjp::segment_sum(g.clone(), &segments)), &read(&x.grad(&grads).unwrap()));
    let grads = vjp::backward(&segment_mean(x.clone(), &segments), g.clone());
    close(&read(&vjp::segment_mean(g, &segments)), &read(&x.grad(&grads).unwrap()));
}

#[test]
fn same_bits_on_any_number_of_threads() {
    let (n, k) = (30_000, 9);
    let mut numbers = Numbers(6);
    let ids: Vec<usize> = (0..n).map(|_| if numbers.below(2) == 0 { 100 } else { numbers.below(3000) }).collect();
    let (columns, x) = ((0..n).map(|_| numbers.below(700)).collect::<Vec<_>>(), numbers.values(n * k));
    let (u, v) = (numbers.values(3000 * k), numbers.values(700 * k));
    let run = |dtype: DType| {
        let segments = Segments::from_ids(&ids, 3000).unwrap();
        let pattern = Pattern::coo(&ids, &columns, [3000, 700]).unwrap();
        let x = matrix(&x, [n, k], dtype, &device()).require_grad();
        let u: Tensor<2> = matrix(&u, [3000, k], dtype, &device()).require_grad();
        let v: Tensor<2> = matrix(&v, [700, k], dtype, &device()).require_grad();
        let mut parts = vec![];
        for reducer in [Reducer::Sum, Reducer::Mean, Reducer::Max, Reducer::Min] {
            parts.push(segment_reduce(x.clone(), &segments, reducer));
        }
        parts.push(segment_softmax(x.clone(), &segments));
        parts.push(segment_log_softmax(x.clone(), &segments));
        parts.push(edge_op(&pattern, EdgeOp::Mul, u.clone(), v.clone()));
        let (heads, z) = (u.clone().reshape([3000, 3, 3]), v.clone().reshape([700, 3, 3]));
        let dots = edge_dot(&pattern, heads, z.clone());
        parts.push(edge_mm(&pattern, dots, z).reshape([3000, 9]));
        let mut bits: Vec<u64> = parts.iter().flat_map(read).map(f64::to_bits).collect();
        for part in parts {
            let upstream = part.clone().detach();
            let grads = vjp::backward(&part, upstream);
            for operand in [&x, &u, &v] {
                bits.extend(operand.grad(&grads).iter().flat_map(read).map(f64::to_bits));
            }
        }
        bits
    };
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let on = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| run(dtype));
        let expected = on(1);
        for threads in [2, 3, 4] {
            assert!(on(threads) == expected, "{dtype:?}, {threads} threads");
        }
    }
}

/// Attention with heads as a batch and with heads beside each other: the same numbers and gradients.
#[test]
fn attention_by_batch_and_by_features() {
    let (a, _) = Layout::Coo.build(&Host::random("17x17", [17, 17], 4, 5), DType::F64, &Device::flex());
    let (graph, heads, d) = (a.pattern(), 3, 4);
    let operand = |seed| f64s(&Numbers(seed).values(17 * heads * d));
    let (q, k, v) = (operand(1), operand(2), operand(3));
    let nodes = |x: &Tensor<1>| x.clone().reshape([17, heads, d]);
    let batch = |x: &Tensor<1>| nodes(x).swap_dims(0, 1);
    let scores = sddmm(graph, batch(&q), batch(&k));
    let by_batch = scores.row_softmax().matmul(batch(&v)).swap_dims(0, 1);
    let scores = edge_dot(graph, nodes(&q), nodes(&k));
    let by_features = edge_mm(graph, edge_softmax(graph, Per::Row, scores), nodes(&v));
    close(&read(&by_batch), &read(&by_features));
    let g: Tensor<3> = vector(&Numbers(4).values(17 * heads * d), DType::F64, &device()).reshape([17, heads, d]);
    let [first, second] = [by_batch, by_features].map(|z| vjp::backward(&z, g.clone()));
    for operand in [q, k, v] {
        close(&read(&operand.grad(&first).unwrap()), &read(&operand.grad(&second).unwrap()));
    }
}

#[test]
fn untracked_operands_have_no_gradient() {
    let graph = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap();
    let (u, v) = (rows(&Numbers(1).values(4), [2, 2]), rows(&Numbers(2).values(6), [3, 2]));
    for op in [EdgeOp::Add, EdgeOp::Sub, EdgeOp::Mul, EdgeOp::Div] {
        let left = edge_op(&graph, op, u.clone(), v.clone().detach());
        let right = edge_op(&graph, op, u.clone().detach(), v.clone());
        let (left, right) = (left.sum().backward(), right.sum().backward());
        assert!(u.grad(&left).is_some() && v.grad(&left).is_none(), "{op:?}");
        assert!(u.grad(&right).is_none() && v.grad(&right).is_some(), "{op:?}");
    }
    // What no edge reaches is not divided by, nor multiplied with.
    let v = rows(&[1.0, 1.0, 0.0, f64::INFINITY, 2.0, 2.0], [3, 2]);
    for op in [EdgeOp::Mul, EdgeOp::Div] {
        let grads = edge_op(&graph, op, u.clone(), v.clone()).sum().backward();
        assert_eq!(read(&v.grad(&grads).unwrap())[2..4], [0.0; 2], "{op:?}");
        assert!(read(&u.grad(&grads).unwrap()).iter().all(|x| x.is_finite()), "{op:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let segments = Segments::from_lengths([1, 2]).unwrap();
    let message = |error: OpError| error.to_string();
    let x = || Tensor::<2>::zeros([4, 2], &device());
    assert_eq!(
        message(try_segment_reduce(x(), &segments, Reducer::Sum).unwrap_err()),
        "segment_reduce: there must be a row for each row (each segment) of the segments: [3, 2] and [4, 2]"
    );
    assert!(message(try_segment_expand(x(), &segments).unwrap_err()).ends_with("[2, 2] and [4, 2]"));
    let graph = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap();
    assert!(try_edge_gather(&graph, Per::Row, x()).is_err());
    let (u, v) = (|k| Tensor::<2>::zeros([2, k], &device()), |k| Tensor::<2>::zeros([3, k], &device()));
    assert!(try_edge_op(&graph, EdgeOp::Add, u(2), v(2)).is_ok());
    for (u, v) in [(u(2), v(3)), (v(2), v(2)), (u(2), u(2))] {
        assert!(matches!(try_edge_op(&graph, EdgeOp::Add, u, v), Err(OpError::Shapes { .. })));
    }
    let other = matrix(&[0.0; 6], [3, 2], DType::F64, &device());
    assert!(matches!(try_edge_op(&graph, EdgeOp::Add, u(2), other), Err(OpError::DTypes { .. })));
    assert!(try_edge_reduce(&graph, Per::Row, v(2), Reducer::Max).is_ok());
    assert!(try_edge_reduce(&graph, Per::Row, u(2), Reducer::Max).is_err());
    let heads = |rows, heads, d| Tensor::<3>::zeros([rows, heads, d], &device());
    assert!(try_edge_dot(&graph, heads(2, 2, 4), heads(3, 2, 4)).is_ok());
    for (x, y) in [(heads(2, 2, 4), heads(3, 4, 2)), (heads(3, 2, 4), heads(3, 2, 4))] {
        assert!(matches!(try_edge_dot(&graph, x, y), Err(OpError::Shapes { .. })));
    }
    assert!(try_edge_mm(&graph, v(2), heads(3, 2, 4)).is_ok());
    for (w, y) in [(v(2), heads(3, 3, 4)), (u(2), heads(3, 2, 4)), (v(2), heads(2, 2, 4))] {
        assert!(matches!(try_edge_mm(&graph, w, y), Err(OpError::Shapes { .. })));
    }
    // Heads or columns that are none.
    assert_eq!(try_edge_dot(&graph, heads(2, 0, 4), heads(3, 0, 4)).unwrap().dims(), [3, 0]);
    assert_eq!(read(&try_edge_dot(&graph, heads(2, 2, 0), heads(3, 2, 0)).unwrap()), [0.0; 6]);
    assert_eq!(try_edge_mm(&graph, v(0), heads(3, 0, 4)).unwrap().dims(), [2, 0, 4]);
    assert_eq!(try_edge_mm(&graph, v(2), heads(3, 2, 0)).unwrap().dims(), [2, 2, 0]);
}
