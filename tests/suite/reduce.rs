//! Reductions and softmax: golden vectors, corners, gradients, bits.

use crate::common::{Host, Layout, Numbers, read, vector};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use sparsegrad::vjp;

const PER: [Per; 3] = [Per::Row, Per::Column, Per::Matrix];

fn device() -> Device {
    Device::flex().autodiff()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(found == expected || (found - expected).abs() < 1e-9, "{found} for {expected}");
    }
}

/// torchsparsegradutils 0.2.5, sparse_logsumexp and sparse_bidir_logsumexp.
#[test]
fn golden_logsumexp() {
    let golden = |host: Vec<f64>| {
        let (rows, cols) = ([0, 1, 1], [1, 0, 2]);
        SparseTensor::from_coo(rows, cols, host, [3, 3], &device()).unwrap().require_grad()
    };
    let a = golden(vec![1., 2., 3.]);
    let with_zeros = sparse_logsumexp(&a, Per::Row, true);
    close(&read(&with_zeros), &[1.551444714, 3.349012217, 1.098612289]);
    let grads = with_zeros.sum().backward();
    close(&read(a.grad(&grads).unwrap().values()), &[0.5761168848, 0.2594964603, 0.7053845127]);
    close(&read(&sparse_logsumexp(&a, Per::Row, false)), &[1.0, 3.313261688, f64::NEG_INFINITY]);
    close(&read(&sparse_logsumexp(&a, Per::Column, true)), &[2.239544766, 1.551444714, 3.094922956]);
    let all = sparse_logsumexp(&a, Per::Matrix, false);
    close(&read(&all), &[3.407605964]);
    let grads = all.backward();
    close(&read(a.grad(&grads).unwrap().values()), &[0.0900305732, 0.2447284711, 0.6652409558]);

    let (columns, rows) = sparse_bidir_logsumexp(&a, true);
    close(&read(&columns), &[2.239544766, 1.551444714, 3.094922956]);
    close(&read(&rows), &[1.551444714, 3.349012217, 1.098612289]);
    let grads = (columns.sum() + rows.sum()).backward();
    close(&read(a.grad(&grads).unwrap().values()), &[1.1522337695, 1.0464825025, 1.6148275112]);
}

#[test]
fn results_of_a_batch_have_a_dimension_for_the_items() {
    let a = SparseTensor::from_triplets(&[0, 1], &[2, 0], &[1.0, 2.0], [2, 3], &device()).unwrap();
    let batch = SparseTensor::stack(&[a.clone(), a.map_values(|v| v * 10.0)]).unwrap();
    assert_eq!(batch.sum(Per::Row).dims(), [2, 2]);
    assert_eq!(read(&batch.sum(Per::Row)), [1.0, 2.0, 10.0, 20.0]);
    assert_eq!(read(&batch.sum(Per::Column)), [2.0, 0.0, 1.0, 20.0, 0.0, 10.0]);
    assert_eq!(read(&batch.max(Per::Matrix)), [2.0, 20.0]);
    assert_eq!(read(&batch.mean_stored(Per::Matrix)), [1.5, 15.0]);
    // Each item has its own zeros, and not those beside the block.
    assert_eq!(read(&batch.mean(Per::Matrix)), [0.5, 5.0]);
    close(&read(&batch.logsumexp(Per::Row))[..1], &[(1f64.exp() + 2.0).ln()]);
    let (columns, rows) = sparse_bidir_logsumexp(&batch, true);
    assert_eq!((columns.dims(), rows.dims()), ([2, 3], [2, 2]));
}

#[test]
fn softmax_in_the_corners() {
    let infinity = f64::INFINITY;
    let rows = [0, 0, 1, 1, 3, 3, 4];
    let cols = [0, 1, 0, 1, 0, 1, 2];
    let values = [-infinity, -infinity, 1000.0, 999.0, -infinity, 5.0, -3000.0];
    let a = SparseTensor::from_triplets(&rows, &cols, &values, [5, 3], &device()).unwrap().require_grad();
    let s = a.row_softmax();
    let e = 1.0 / (1.0 + (-1f64).exp());
    close(&read(s.values()), &[0.0, 0.0, e, 1.0 - e, 0.0, 1.0, 1.0]);
    let grads = vjp::backward(s.values(), vector(&[1., 2., 3., 5., 7., 11., 13.], DType::F64, &device()));
    let d = e * (1.0 - e) * 2.0;
    close(&read(a.grad(&grads).unwrap().values()), &[0.0, 0.0, -d, d, 0.0, 0.0, 0.0]);

    let log = a.row_log_softmax();
    close(&read(log.values()), &[-infinity, -infinity, e.ln(), (1.0 - e).ln(), -infinity, 0.0, 0.0]);
    let grads = vjp::backward(log.values(), vector(&[1., 2., 3., 5., 7., 11., 13.], DType::F64, &device()));
    let found = read(a.grad(&grads).unwrap().values());
    close(&found, &[0.0, 0.0, 3.0 - 8.0 * e, 5.0 - 8.0 * (1.0 - e), 7.0, -7.0, 0.0]);
    // NaN and +inf stay in their row.
    for bad in [infinity, f64::NAN] {
        let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[bad, 1.0, 2.0], [2, 2], &device()).unwrap();
        let found = read(a.row_softmax().values());
        assert!(found[0].is_nan() && found[1].is_nan() && found[2] == 1.0, "{found:?}");
    }
    // Each duplicate is an edge of its own.
    let twice = SparseTensor::from_coo(&[0, 0], &[1, 1], &[1.0, 1.0], [1, 2], &device()).unwrap();
    assert_eq!(read(twice.row_softmax().values()), [0.5, 0.5]);
}

#[test]
fn nan_is_the_result_and_has_the_gradient() {
    let a = SparseTensor::from_triplets(&[0, 0, 0], &[0, 1, 2], &[1.0, f64::NAN, 3.0], [1, 3], &device())
        .unwrap()
        .require_grad();
    for per in PER {
        let runs: [Tensor<1>; 8] = [
            a.sum(per),
            a.mean(per),
            a.max(per),
            a.min_stored(per),
            a.norm(per, Norm::L1),
            a.norm(per, Norm::L2),
            a.norm(per, Norm::Max),
            a.logsumexp(per),
        ];
        for (at, run) in runs.iter().enumerate() {
            assert!(read(run).iter().any(|x| x.is_nan()), "{at} {per:?}");
        }
    }
    let grads = a.max(Per::Row).backward();
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0.0, 1.0, 0.0]);
}

#[test]
fn norms_neither_overflow_nor_vanish() {
    for (value, dtype) in [(3e30, DType::F32), (3e-30, DType::F32), (3e200, DType::F64), (60000.0, DType::F16)] {
        let values = vector(&[value, value], dtype, &device());
        let a = SparseTensor::from_coo(&[0, 0], &[0, 1], values, [1, 2], &device()).unwrap().require_grad();
        let values = read(a.values());
        if dtype != DType::F16 {
            let norm = read(&a.norm(Per::Row, Norm::L2))[0];
            assert!((norm / (values[0] * 2f64.sqrt()) - 1.0).abs() < 1e-6, "{norm}");
        }
        // The mean of numbers whose sum overflows in their type.
        if dtype == DType::F16 {
            assert_eq!(read(&a.mean(Per::Matrix)), [values[0]]);
        }
    }
}

#[test]
fn zero_is_larger_than_stored_negatives_only_where_it_is_absent() {
    let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 0], &[-1.0, -2.0, -3.0], [2, 2], &device()).unwrap();
    assert_eq!(read(&a.max(Per::Row)), [-1.0, 0.0]);
    assert_eq!(read(&a.min(Per::Column)), [-3.0, -2.0]);
    let zeros = read(&a.map_values(|v| -v).min(Per::Row));
    assert_eq!(zeros, [1.0, 0.0]);
    assert!(zeros[1].is_sign_positive());
}

#[test]
fn edge_gather_refuses_what_does_not_fit() {
    let pattern = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap();
    let error = try_edge_gather(&pattern, Per::Row, vector(&[1.0; 3], DType::F32, &device())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "edge_gather: pattern and vector must agree: a number for each row (column): [2, 3] and [3]"
    );
    assert!(try_edge_gather(&pattern, Per::Column, vector(&[1.0; 3], DType::F32, &device())).is_ok());
}

use sparsegrad::try_edge_gather;

#[test]
fn gradients() {
    let host = Host::random("9x7", [9, 7], 3, 77);
    for device in [device(), device().gradient_checkpointing()] {
        for layout in Layout::ALL {
            let (a, ordered) = layout.build(&host, DType::F64, &Device::flex());
            let pattern = a.pattern().clone();
            gradcheck(&device, std::slice::from_ref(&ordered.values), 1e-7, |x| {
                let a = SparseTensor::new(pattern.clone(), x[0].clone()).unwrap();
                let mut parts = vec![
                    a.row_softmax().values().clone(),
                    a.column_softmax().values().clone(),
                    a.row_log_softmax().values().clone(),
                    a.column_log_softmax().values().clone().powi_scalar(2),
                ];
                for per in PER {
                    parts.push(a.sum(per).powi_scalar(2));
                    parts.push(a.mean(per));
                    parts.push(a.mean_stored(per).powi_scalar(2));
                    parts.push(a.logsumexp(per));
                    let u = a.sum(per).tanh();
                    parts.push(edge_gather(&pattern, per, u).values().clone());
                }
                Tensor::cat(parts, 0)
            })
            .unwrap_or_else(|error| panic!("{layout:?}, {device:?}: {error}"));
            // Without stored zeros and ties, where these have no derivative.
            let values = Numbers(3).values(ordered.nnz());
            gradcheck(&device, &[values], 1e-7, |x| {
                let a = SparseTensor::new(pattern.clone(), x[0].clone()).unwrap();
                let mut parts = vec![];
                for per in PER {
                    parts.push(a.norm(per, Norm::L1));
                    parts.push(a.norm(per, Norm::L2).powi_scalar(2));
                    parts.push(a.norm(per, Norm::Max).powi_scalar(2));
                    parts.push(a.max(per));
                    parts.push(a.min(per));
                }
                Tensor::cat(parts, 0)
            })
            .unwrap_or_else(|error| panic!("{layout:?}, {device:?}: {error}"));
        }
    }
}

#[test]
fn same_bits_on_any_number_of_threads() {
    let mut host = Host::random("3000x700", [3000, 700], 8, 5);
    let mut numbers = Numbers(6);
    for _ in 0..9000 {
        host.rows.push(1234);
        host.cols.push(numbers.below(700));
        host.values.push(numbers.value());
    }
    let run = || {
        let a = SparseTensor::from_coo(&host.rows, &host.cols, host.values.clone(), host.shape, &device()).unwrap();
        let a = a.detach().require_grad();
        let mut bits = vec![];
        for per in PER {
            let (lse, norm) = (a.logsumexp(per), a.norm(per, Norm::L2));
            bits.extend(read(&lse).into_iter().chain(read(&norm)).map(f64::to_bits));
            let grads = (lse.sum() + norm.sum() + a.row_softmax().values().clone().powi_scalar(2).sum()).backward();
            bits.extend(read(a.grad(&grads).unwrap().values()).into_iter().map(f64::to_bits));
        }
        bits
    };
    let on = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run);
    let expected = on(1);
    for threads in [2, 3, 4] {
        assert!(on(threads) == expected, "{threads} threads");
    }
}

/// Blocks of rows with and without elements that need a shift, longer rows than a block, and the gradient of each.
#[test]
fn sizes_from_moderate_to_huge() {
    let mut host = Host::random("400x90", [400, 90], 6, 9).sorted(false);
    for (e, value) in host.values.iter_mut().enumerate() {
        *value *= [1.0, 30.0, 33.0, 700.0, 1e5][host.rows[e] / 80];
    }
    for _ in 0..700 {
        host.rows.push(399);
        host.cols.push(host.rows.len() % 90);
        host.values.push(0.25);
    }
    let values = vector(&host.values, DType::F64, &device());
    let a = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device()).unwrap().coalesce();
    let a = a.detach().require_grad();
    let lse = a.logsumexp(Per::Row);
    let grads = lse.clone().sum().backward();
    let (found, gradient) = (read(&lse), read(a.grad(&grads).unwrap().values()));
    let entries: Vec<_> = a.triplets().unwrap().collect();
    for (row, &found) in found.iter().enumerate() {
        let of_row = || entries.iter().enumerate().filter(move |(_, entry)| entry.0 == row);
        let largest = of_row().fold(0.0f64, |largest, (_, entry)| largest.max(entry.2));
        let absent = 90 - of_row().count();
        let sum = of_row().map(|(_, entry)| (entry.2 - largest).exp()).sum::<f64>() + absent as f64 * (-largest).exp();
        let expected = largest + sum.ln();
        assert!((found - expected).abs() <= 1e-14 * (1.0 + expected.abs()), "row {row}: {found} for {expected}");
        for (e, entry) in of_row() {
            let weight = (entry.2 - largest).exp() / sum;
            assert!((gradient[e] - weight).abs() <= 1e-14, "entry {e}: {} for {weight}", gradient[e]);
        }
    }
}

/// A reduction, and its gradient as a function.
type Pair =
    (&'static str, fn(&SparseTensor<2>, Per) -> Tensor<1>, fn(&SparseTensor<2>, Per, Tensor<1>) -> SparseTensor<2>);

const PAIRS: [Pair; 9] = [
    ("max", SparseTensor::max, vjp::max),
    ("max_stored", SparseTensor::max_stored, vjp::max_stored),
    ("min", SparseTensor::min, vjp::min),
    ("min_stored", SparseTensor::min_stored, vjp::min_stored),
    ("L1", |a, per| a.norm(per, Norm::L1), |a, per, g| vjp::norm(a, per, Norm::L1, g)),
    ("L2", |a, per| a.norm(per, Norm::L2), |a, per, g| vjp::norm(a, per, Norm::L2, g)),
    ("largest size", |a, per| a.norm(per, Norm::Max), |a, per, g| vjp::norm(a, per, Norm::Max, g)),
    ("logsumexp", SparseTensor::logsumexp, vjp::logsumexp),
    ("logsumexp_stored", SparseTensor::logsumexp_stored, vjp::logsumexp_stored),
];

type SoftmaxPair =
    (&'static str, fn(&SparseTensor<2>) -> SparseTensor<2>, fn(&SparseTensor<2>, &SparseTensor<2>) -> SparseTensor<2>);

const SOFTMAXES: [SoftmaxPair; 4] = [
    ("row_softmax", SparseTensor::row_softmax, vjp::row_softmax),
    ("column_softmax", SparseTensor::column_softmax, vjp::column_softmax),
    ("row_log_softmax", SparseTensor::row_log_softmax, vjp::row_log_softmax),
    ("column_log_softmax", SparseTensor::column_log_softmax, vjp::column_log_softmax),
];

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// To the bit, as the same primitives make both; duplicates and empty rows included.
#[test]
fn vjps_are_the_gradients() {
    let host = Host::random("9x7", [9, 7], 3, 78);
    for layout in Layout::ALL {
        for dtype in [DType::F64, DType::F16] {
            let (a, host) = layout.build(&host, dtype, &device());
            let a = a.require_grad();
            for (name, run, gradient) in PAIRS {
                for per in PER {
                    let result = run(&a, per);
                    let g = vector(&Numbers(4).values(result.dims()[0]), dtype, &device());
                    let expected = a.grad(&vjp::backward(&result, g.clone())).unwrap();
                    let found = gradient(&a, per, g);
                    assert!(found.same_pattern(&a));
                    assert_eq!(
                        bits(&read(found.values())),
                        bits(&read(expected.values())),
                        "{name} {per:?} {layout:?}"
                    );
                }
            }
            for (name, run, gradient) in SOFTMAXES {
                let result = run(&a);
                let g = vector(&Numbers(5).values(host.nnz()), dtype, &device());
                let expected = a.grad(&vjp::backward(result.values(), g.clone())).unwrap();
                let found = gradient(&a, &a.with_values(g).unwrap());
                assert_eq!(bits(&read(found.values())), bits(&read(expected.values())), "{name} {layout:?}");
            }
        }
    }
}

/// Each gradient, differentiated by the values and by what it propagates.
#[test]
fn second_derivatives() {
    let host = Host::random("6x5", [6, 5], 3, 79);
    for device in [device(), device().gradient_checkpointing()] {
        for layout in [Layout::Coo, Layout::Csr, Layout::Csc] {
            let (a, ordered) = layout.build(&host, DType::F64, &Device::flex());
            let pattern = a.pattern().clone();
            // Without stored zeros and ties, where norms and extremes have no derivative.
            let values = Numbers(6).values(ordered.nnz());
            for (name, _, gradient) in PAIRS {
                for (per, results) in [(Per::Row, 6), (Per::Column, 5), (Per::Matrix, 1)] {
                    gradcheck(&device, &[values.clone(), Numbers(7).values(results)], 1e-7, |x| {
                        let a = SparseTensor::new(pattern.clone(), x[0].clone()).unwrap();
                        gradient(&a, per, x[1].clone()).values().clone()
                    })
                    .unwrap_or_else(|error| panic!("{name} {per:?} {layout:?}: {error}"));
                }
            }
            for (name, _, gradient) in SOFTMAXES {
                gradcheck(&device, &[values.clone(), Numbers(8).values(values.len())], 1e-7, |x| {
                    let [a, g] = [0, 1].map(|at: usize| SparseTensor::new(pattern.clone(), x[at].clone()).unwrap());
                    gradient(&a, &g).values().clone()
                })
                .unwrap_or_else(|error| panic!("{name} {layout:?}: {error}"));
            }
        }
    }
}

/// A loss with a gradient in it: the penalty on the gradient of a network of reductions.
#[test]
fn gradients_within_a_graph() {
    let host = Host::random("6x5", [6, 5], 3, 80);
    let (a, ordered) = Layout::Csr.build(&host, DType::F64, &Device::flex());
    let pattern = a.pattern().clone();
    gradcheck(&device(), &[ordered.values], 1e-7, |x| {
        let a = SparseTensor::new(pattern.clone(), x[0].clone()).unwrap();
        let weights = a.row_softmax();
        let of_weights = vjp::norm(&weights, Per::Column, Norm::L2, weights.logsumexp(Per::Column));
        vjp::row_softmax(&a, &of_weights).values().clone().powi_scalar(2)
    })
    .unwrap();
}

#[test]
fn vjps_of_batches() {
    let item = |seed| Layout::Csr.build(&Host::random("4x3", [4, 3], 3, seed), DType::F64, &device()).0;
    let batch = SparseTensor::stack(&[item(1), item(2)]).unwrap().detach().require_grad();
    for per in PER {
        let result = batch.logsumexp(per);
        let g = crate::common::matrix(
            &Numbers(9).values(result.dims().iter().product()),
            result.dims(),
            DType::F64,
            &device(),
        );
        let expected = batch.grad(&vjp::backward(&result, g.clone())).unwrap();
        let found: SparseTensor<3> = vjp::logsumexp(&batch, per, g);
        assert_eq!((found.shape(), read(found.values())), (batch.shape(), read(expected.values())));
    }
    let wrong = Tensor::<2>::ones([2, 7], (&device(), DType::F64));
    let message =
        *std::panic::catch_unwind(|| vjp::max(&batch, Per::Row, wrong)).unwrap_err().downcast::<String>().unwrap();
    assert_eq!(message, "vjp::max: the gradient must have the shape of the result: [2, 4, 3] and [2, 7]");
    let other = item(3);
    assert!(std::panic::catch_unwind(|| vjp::row_softmax(&item(1), &other)).is_err());
}

/// Nothing to reduce, -inf alone and zeros have second derivatives 0, not NaN.
#[test]
fn second_derivatives_in_the_corners() {
    let infinity = f64::INFINITY;
    let values = [-infinity, -infinity, 0.0, 0.0, 3.0];
    let a = SparseTensor::from_triplets(&[0, 0, 1, 1, 3], &[0, 1, 0, 1, 2], &values, [4, 3], &device()).unwrap();
    let a = a.require_grad();
    let derivative = |gradient: SparseTensor<2>| {
        let u = vector(&[1.0, 2.0, 3.0, 4.0, 5.0], DType::F64, &device());
        read(a.grad(&vjp::backward(gradient.values(), u)).unwrap().values())
    };
    let ones = || vector(&[1.0; 4], DType::F64, &device());
    close(&derivative(vjp::logsumexp_stored(&a, Per::Row, ones())), &[0.0, 0.0, -0.25, 0.25, 0.0]);
    let g = a.with_values(vector(&[1.0, 2.0, 5.0, 7.0, 11.0], DType::F64, &device())).unwrap();
    for softmax in [vjp::row_softmax, vjp::row_log_softmax] {
        assert_eq!(derivative(softmax(&a, &g))[..2], [0.0, 0.0]);
    }
    let finite = a.map_values(|v| v.clamp(-1e300, 1e300));
    let norms = vjp::norm(&finite, Per::Row, Norm::L2, ones());
    assert_eq!(derivative(norms)[2..], [0.0, 0.0, 0.0]);
}
