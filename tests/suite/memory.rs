//! What is allocated: nothing of size rows x columns, nothing of size nnz x columns.

use crate::allocated::most;
use crate::common::{Host, Numbers, matrix};
use sparsegrad::prelude::*;
use sparsegrad::{
    Triangular, edge_dot, edge_mm, edge_softmax, segment_expand, segment_log_softmax, segment_max, segment_mean,
    segment_softmax, sparse_triangular_solve, vjp,
};

/// Forward and backward, warm: outputs and gradients, and at most a fifth more.
#[test]
fn forward_and_backward_allocate_their_results() {
    let (rows, columns, per_row) = (20_000, 15_000, 10);
    let host = Host::random("large", [rows, columns], per_row, 3).sorted(false);
    for k in [1, 8, 16, 64] {
        let device = Device::flex().autodiff();
        let values = crate::common::vector(&host.values, DType::F32, &device);
        let a = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device)
            .unwrap()
            .to_csr()
            .detach()
            .require_grad();
        let b = matrix(&Numbers(1).values(columns * k), [columns, k], DType::F32, &device).require_grad();
        let g = matrix(&Numbers(2).values(rows * k), [rows, k], DType::F32, &device);
        let step = || {
            let c = a.matmul(b.clone());
            let grads = vjp::backward(&c, g.clone());
            (a.grad(&grads).unwrap(), b.grad(&grads).unwrap(), c)
        };
        most(step); // plans
        let (bytes, _results) = most(step);
        let results = 4 * (rows * k + columns * k + a.nnz()) as isize;
        assert!(bytes >= results && bytes <= results + results / 5, "{k} columns: {bytes} bytes for {results}");
    }
}

/// A warm step, whose results are so many numbers of 4 bytes.
#[track_caller]
fn assert_results_only<T: Send>(what: &str, numbers: usize, step: impl Fn() -> T + Send + Sync) {
    most(&step); // plans
    let (bytes, _results) = most(&step);
    let results = 4 * numbers as isize;
    assert!(bytes >= results && bytes <= results + results / 5, "{what}: {bytes} bytes for {results}");
}

const ROWS: usize = 20_000;
const COLUMNS: usize = 15_000;

/// Some ten entries a row without duplicates, tracked; of a square matrix the lower triangle with its diagonal.
fn sparse(shape: [usize; 2], lower: bool) -> SparseTensor<2> {
    let mut host = Host::random("large", shape, 10, 5);
    if lower {
        for e in 0..host.nnz() {
            let (row, column) = (host.rows[e], host.cols[e]);
            (host.rows[e], host.cols[e]) = (row.max(column), row.min(column));
            // Small beside the diagonal, so that the solution stays finite.
            host.values[e] = if row == column { 4.0 } else { host.values[e] / 64.0 };
        }
        for row in 0..shape[0] {
            host.rows.push(row);
            host.cols.push(row);
            host.values.push(4.0);
        }
    }
    let device = Device::flex().autodiff();
    let values = crate::common::vector(&host.values, DType::F32, &device);
    let a = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device).unwrap();
    a.coalesce().to_csr().detach().require_grad()
}

fn upstream<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::ones(shape, (&Device::flex().autodiff(), DType::F32))
}

#[test]
fn triangular_solves_allocate_their_results() {
    let n = ROWS;
    let a = sparse([n, n], true);
    for k in [1, 8, 16, 64] {
        let b = matrix(&Numbers(1).values(n * k), [n, k], DType::F32, &Device::flex().autodiff()).require_grad();
        let g = upstream([n, k]);
        assert_results_only(&format!("trisolve, {k} columns"), 2 * n * k + a.nnz(), || {
            let x = sparse_triangular_solve(&a, b.clone(), Triangular::lower()).unwrap();
            let grads = vjp::backward(&x, g.clone());
            (a.grad(&grads).unwrap(), b.grad(&grads).unwrap(), x)
        });
    }
}

#[test]
fn sparse_products_allocate_their_results() {
    let (a, b) = (sparse([ROWS, COLUMNS], false), sparse([COLUMNS, ROWS / 2], false));
    let plan = SpgemmPlan::new(a.pattern(), b.pattern()).unwrap();
    let g = upstream([plan.nnz()]);
    let results = plan.nnz() + a.nnz() + b.nnz();
    assert!(plan.products() > plan.nnz());
    assert_results_only("spgemm", results, || {
        let c = plan.execute(&a, &b);
        let grads = vjp::backward(c.values(), g.clone());
        (a.grad(&grads).unwrap(), b.grad(&grads).unwrap(), c)
    });
}

#[test]
fn reductions_allocate_their_results() {
    let a = sparse([ROWS, COLUMNS], false);
    type Run = fn(&SparseTensor<2>, Per) -> Tensor<1>;
    let runs: [(&str, Run); 3] =
        [("sum", SparseTensor::sum), ("logsumexp", SparseTensor::logsumexp), ("max", SparseTensor::max)];
    for (name, run) in runs {
        for (per, length) in [(Per::Row, ROWS), (Per::Column, COLUMNS)] {
            let g = upstream([length]);
            assert_results_only(&format!("{name} {per:?}"), length + a.nnz(), || {
                let result = run(&a, per);
                let grads = vjp::backward(&result, g.clone());
                (a.grad(&grads).unwrap(), result)
            });
        }
    }
    let g = upstream([a.nnz()]);
    type Softmax = fn(&SparseTensor<2>) -> SparseTensor<2>;
    let softmaxes: [(&str, Softmax); 3] = [
        ("row_softmax", SparseTensor::row_softmax),
        ("column_softmax", SparseTensor::column_softmax),
        ("row_log_softmax", SparseTensor::row_log_softmax),
    ];
    for (name, run) in softmaxes {
        assert_results_only(name, 2 * a.nnz(), || {
            let s = run(&a);
            let grads = vjp::backward(s.values(), g.clone());
            (a.grad(&grads).unwrap(), s)
        });
    }
}

#[test]
fn transposes_allocate_their_results() {
    let a = sparse([ROWS, COLUMNS], false);
    let g = upstream([a.nnz()]);
    assert_results_only("transpose", 2 * a.nnz(), || {
        let t = a.transpose();
        let grads = vjp::backward(t.values(), g.clone());
        (a.grad(&grads).unwrap(), t)
    });
}

/// In place where the dense operand is given away, one copy of it otherwise.
#[test]
fn csr_add_makes_no_dense_temporary() {
    let (m, n) = (2_000, 1_500);
    let a = sparse([m, n], false);
    let device = Device::flex().autodiff();
    let kept = Tensor::<2>::ones([m, n], (&device, DType::F32)).require_grad();
    let g = upstream([m, n]);
    assert_results_only("csr_add", m * n + a.nnz(), || {
        let sum = sparsegrad::csr_add(&a, kept.clone());
        let grads = vjp::backward(&sum, g.clone());
        // The gradient of the dense operand is that of the sum.
        (a.grad(&grads).unwrap(), kept.grad(&grads).unwrap(), sum)
    });
    let given = || Tensor::<2>::ones([m, n], (&device, DType::F32));
    let (warm, _) = most(|| sparsegrad::csr_add(&a, given()));
    let (alone, _) = most(given);
    assert!(warm <= alone + alone / 5, "{warm} bytes for {alone}");
}

/// Products by segments and by index, forward and backward: outputs and gradients, and at most a tenth more, the sums of the
/// parts of long segments.
#[test]
fn products_by_segments_allocate_their_results() {
    let (rows, count, n) = (40_000, 9, 32);
    let mut numbers = Numbers(5);
    let ids: Vec<usize> = (0..rows).map(|_| numbers.below(count)).collect();
    let index = Segments::from_ids(&ids, count).unwrap();
    let sorted = Segments::from_offsets(index.offsets().clone()).unwrap();
    let device = Device::flex().autodiff();
    let x = matrix(&numbers.values(rows * n), [rows, n], DType::F32, &device).require_grad();
    let g = matrix(&numbers.values(rows * n), [rows, n], DType::F32, &device);
    let weight = matrix(&numbers.values(count * n * n), [count, n * n], DType::F32, &device).reshape([count, n, n]);
    let weight = Tensor::<3>::from_inner(weight.inner()).require_grad();
    for segments in [index, sorted] {
        let step = || {
            let y = segment_mm(x.clone(), weight.clone(), &segments);
            let grads = vjp::backward(&y, g.clone());
            (x.grad(&grads).unwrap(), weight.grad(&grads).unwrap(), y)
        };
        let (bytes, _results) = most(step);
        let results = 4 * (2 * rows * n + count * n * n) as isize;
        assert!(bytes >= results && bytes <= results + results / 10, "{bytes} bytes for {results}");
    }
}

/// pytorch/pytorch#41128: 110,000 rows and columns, 860,000 entries, 200 columns; a dense gradient would be 45 GiB, a
/// temporary of nnz x columns 1.3 GiB.
#[test]
fn pytorch_41128_at_full_size() {
    let (n, nnz, k) = (110_000, 860_000, 200);
    let mut numbers = Numbers(4);
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for _ in 0..nnz {
        rows.push(numbers.below(n));
        cols.push(numbers.below(n));
    }
    let device = Device::flex().autodiff();
    let pattern = Pattern::coo(rows, cols, [n, n]).unwrap();
    let a = SparseTensor::new(pattern, Tensor::ones([nnz], (&device, DType::F32))).unwrap().require_grad();
    let x = Tensor::<2>::ones([n, k], (&device, DType::F32)).require_grad();
    let (bytes, gradient) = most(|| {
        let c = a.matmul(x.clone());
        let upstream = Tensor::ones([n, k], (&c.device(), DType::F32));
        let grads = vjp::backward(&c, upstream);
        a.grad(&grads).unwrap()
    });
    // Each stored entry's gradient is a product of ones over 200 columns.
    assert!(crate::common::read(gradient.values()).iter().all(|&g| g == 200.0));
    let results = 4 * (3 * n * k + nnz) as isize; // product, upstream gradient, gradient of x; gradient of the values
    let plans = 3 * 4 * (2 * nnz + n) as isize;
    assert!(bytes <= results + results / 5 + plans, "{bytes} bytes for {results}");
}

/// Structure operations, warm: the values of the results and their gradients; cold, indices beside them, of the order of the entries.
#[test]
fn structure_operations_allocate_in_the_order_of_the_entries() {
    let n = 20_000;
    let host = Host::random("large", [n, n], 10, 3).sorted(false);
    let device = Device::flex().autodiff();
    let values = crate::common::vector(&host.values, DType::F32, &device);
    let a = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device).unwrap().to_csr();
    let a = a.detach().require_grad();
    let p = sparsegrad::Permutation::new((0..n).rev().collect::<Vec<_>>()).unwrap();
    type Step<'a> = (&'static str, &'a (dyn Fn() -> SparseTensor<2> + Sync));
    let steps: [Step; 4] = [
        ("tril", &|| a.tril(0)),
        ("permute", &|| a.permute_symmetric(&p)),
        ("insert", &|| a.insert_diagonal(0, Tensor::zeros([n], (&device, DType::F32)))),
        ("select", &|| a.select_rows((0..n).step_by(2).collect::<Vec<_>>()).unwrap()),
    ];
    for (what, step) in steps {
        let run = || {
            let b = step();
            let grads = vjp::backward(b.values(), b.values().clone().detach());
            (a.grad(&grads).unwrap(), b)
        };
        let (cold, _results) = most(run);
        let entries = (a.nnz() + n) as isize;
        // Lists of columns and slots in 8 bytes while they grow, at most twice as long; indices of the pattern, of the gather and
        // of its transpose in 4; values.
        assert!(cold <= entries * (2 * 4 * 8 + 4 * 2 * 4 + 4 * 4), "{what}: {} bytes an entry", cold / entries);
        if what != "select" {
            let (warm, _results) = most(run);
            assert!(warm <= 5 * 4 * entries, "{what}: {} bytes an entry, warm", warm / entries);
        }
    }
}

/// Attention over 200,000 edges in 4 heads of 32 columns, heads as a batch and beside each other: forward, backward, and with
/// them all that is planned. Features at the edges would take 102 MB, once.
#[test]
fn attention_holds_no_features_of_edges() {
    let (n, heads, d) = (5000, 4, 32);
    let host = Host::random("graph", [n, n], 50, 8).sorted(false);
    let device = Device::flex().autodiff();
    let graph = Pattern::coo(&host.rows, &host.cols, host.shape).unwrap();
    let (nnz, columns) = (graph.nnz(), heads * d);
    let operand = |seed| {
        let x = matrix(&Numbers(seed).values(n * columns), [n, columns], DType::F32, &device);
        x.reshape([n, heads, d]).detach().require_grad()
    };
    let (q, k, v) = (operand(1), operand(2), operand(3));
    let g: Tensor<3> = operand(4).detach();
    let by_batch = || {
        let [q, k, v] = [&q, &k, &v].map(|x| x.clone().swap_dims(0, 1));
        sddmm(&graph, q, k).row_softmax().matmul(v).swap_dims(0, 1)
    };
    let by_features =
        || edge_mm(&graph, edge_softmax(&graph, Per::Row, edge_dot(&graph, q.clone(), k.clone())), v.clone());
    let features_of_edges = 4 * (nnz * columns) as isize;
    for (way, run) in [("by batch", &by_batch as &(dyn Fn() -> Tensor<3> + Sync)), ("by features", &by_features)] {
        let (bytes, results) = most(|| {
            let z = run();
            let grads = vjp::backward(&z, g.clone());
            [&q, &k, &v].map(|x| x.grad(&grads).unwrap())
        });
        assert!(results.iter().all(|x| x.dims() == [n, heads, d]));
        let nodes = 4 * (n * columns) as isize;
        // Gradients and what the backward pass has at once of nodes; scores, weights and gradients of edges; plans.
        let allowed = 10 * nodes + 4 * (6 * nnz * heads) as isize + 4 * (6 * nnz * heads) as isize;
        assert!(bytes < allowed && bytes < features_of_edges, "{way}: {bytes} bytes, {allowed} allowed");
    }
}

/// Segments of a large tensor: results and gradients, and at most a fifth more.
#[test]
fn segments_allocate_their_results() {
    let (n, k) = (60_000, 24);
    let mut numbers = Numbers(5);
    let ids: Vec<usize> = (0..n).map(|_| if numbers.below(2) == 0 { 7 } else { numbers.below(6000) }).collect();
    let segments = Segments::from_ids(&ids, 6000).unwrap();
    let device = Device::flex().autodiff();
    let x = matrix(&numbers.values(n * k), [n, k], DType::F32, &device).require_grad();
    let runs: [fn(Tensor<2>, &Segments) -> Tensor<2>; 5] =
        [segment_max, segment_mean, segment_softmax, segment_log_softmax, |x, segments| {
            segment_expand(segment_mean(x, segments), segments)
        }];
    for run in runs {
        let step = || {
            let y = run(x.clone(), &segments);
            let upstream = y.clone().detach();
            (x.grad(&vjp::backward(&y, upstream)).unwrap(), y)
        };
        most(step); // plans
        let (bytes, (_, y)) = most(step);
        // An expanded mean has the gradient of the mean between.
        let results = 4 * (n * k + y.dims()[0] * k + 2 * 6000 * k) as isize;
        assert!(bytes <= results + results / 5, "{bytes} bytes for {results}");
    }
}
