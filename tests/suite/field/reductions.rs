//! Reductions.

use super::*;
use sparsegrad::vjp;

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(found == expected || (found - expected).abs() < 1e-8, "{found} for {expected}");
    }
}

/// torchsparsegradutils#87, PR#89; pytorch/pytorch#31394, #94083: infinities, nothing stored, large values, duplicates.
#[test]
fn tsgu_87_logsumexp() {
    let infinity = f64::INFINITY;
    let one_row = |n, cols: &[usize], values: &[f64]| coo([1, n], &vec![0; cols.len()], cols, values);
    close(&read(&one_row(1, &[0], &[infinity]).logsumexp(Per::Row)), &[infinity]);
    close(&read(&one_row(2, &[0, 1], &[infinity, -infinity]).logsumexp_stored(Per::Row)), &[infinity]);
    close(&read(&one_row(3, &[], &[]).logsumexp_stored(Per::Row)), &[-infinity]);
    close(&read(&one_row(0, &[], &[]).logsumexp(Per::Row)), &[-infinity]);
    close(&read(&one_row(3, &[0], &[1.0]).logsumexp(Per::Row)), &[1.5514447139]);
    close(&read(&one_row(2, &[0, 1], &[1000.0; 2]).logsumexp(Per::Row)), &[1000.6931471806]);
    close(&read(&one_row(2, &[0], &[0.0]).logsumexp(Per::Row)), &[std::f64::consts::LN_2]);
    assert!(read(&one_row(2, &[0, 1], &[infinity, f64::NAN]).logsumexp(Per::Row))[0].is_nan());

    let duplicates = one_row(2, &[0, 0], &[1.0, 3.0]);
    let lse = duplicates.logsumexp(Per::Row);
    close(&read(&lse), &[4.01814993]);
    let grads = lse.backward();
    close(&read(duplicates.grad(&grads).unwrap().values()), &[0.98201379; 2]);

    // Groups of -inf alone: the result is -inf, and the gradient 0.
    let nothing = one_row(2, &[0, 1], &[-infinity; 2]);
    let lse = nothing.logsumexp_stored(Per::Row);
    close(&read(&lse), &[-infinity]);
    let grads = lse.backward();
    close(&read(nothing.grad(&grads).unwrap().values()), &[0.0; 2]);
}

/// pytorch_scatter#24, #472, #373, #438, #399, #118: the argument of a maximum, empty groups, ties, means of nothing.
#[test]
fn pytorch_scatter_24_extremes_and_empty_groups() {
    // Three values in rows 0, 1, 0; row 2 is empty.
    let a = coo([3, 3], &[0, 1, 0], &[0, 1, 2], &[-0.1, -0.2, -0.3]);
    let largest = a.max_stored(Per::Row);
    assert_eq!(read(&largest), [-0.1, -0.2, f64::NEG_INFINITY]);
    let upstream = Tensor::<1>::from_data([1.0, 10.0, 100.0], (&device(), DType::F64));
    let grads = vjp::backward(&largest, upstream.clone());
    assert_eq!(read(a.grad(&grads).unwrap().values()), [1.0, 10.0, 0.0]);
    // With their zeros all rows have a larger element.
    let largest = a.max(Per::Row);
    assert_eq!(read(&largest), [0.0; 3]);
    let grads = vjp::backward(&largest, upstream.clone());
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0.0; 3]);

    // Ties: to the first alone.
    let ties = coo([1, 4], &[0; 4], &[3, 0, 1, 2], &[2.0, 5.0, 5.0, 5.0]);
    let grads = ties.max(Per::Row).backward();
    assert_eq!(read(ties.grad(&grads).unwrap().values()), [0.0, 1.0, 0.0, 0.0]);
    let grads = ties.norm(Per::Matrix, Norm::Max).backward();
    assert_eq!(read(ties.grad(&grads).unwrap().values()), [0.0, 1.0, 0.0, 0.0]);

    let mean = a.mean_stored(Per::Row);
    close(&read(&mean), &[-0.2, -0.2, 0.0]);
    let grads = vjp::backward(&mean, upstream);
    assert_eq!(read(a.grad(&grads).unwrap().values()), [0.5, 10.0, 0.5]);
    let nothing = coo([2, 2], &[], &[], &[]);
    assert_eq!(read(&nothing.mean_stored(Per::Matrix)), [0.0]);
    assert_eq!(read(&nothing.norm(Per::Row, Norm::L2)), [0.0; 2]);

    // The norm of zeros has no NaN in its gradient.
    let zeros = coo([1, 2], &[0, 0], &[0, 1], &[0.0, 0.0]);
    for norm in [Norm::L1, Norm::L2, Norm::Max] {
        let grads = zeros.norm(Per::Row, norm).backward();
        assert_eq!(read(zeros.grad(&grads).unwrap().values()), [0.0; 2], "{norm:?}");
    }
}

/// pytorch/pytorch#95550, #96095, PR#92979: each of two duplicates has the full gradient of a sum.
#[test]
fn pytorch_95550_gradient_of_a_sum_with_duplicates() {
    for per in [Per::Row, Per::Column, Per::Matrix] {
        let a = coo([2, 2], &[0, 0], &[1, 1], &[1.0, 3.0]);
        let grads = a.sum(per).sum().backward();
        assert_eq!(read(a.grad(&grads).unwrap().values()), [1.0, 1.0]);
    }
}
