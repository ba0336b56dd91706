//! Segments and edges.

use super::*;
use sparsegrad::{
    EdgeOp, Reducer, edge_op, edge_reduce, segment_expand, segment_max, segment_mean, segment_min, segment_sum, vjp,
};

/// pytorch_scatter#24, #472, #373, #438, #399, #118: the argument of a maximum, empty groups, ties, means of nothing.
#[test]
fn pytorch_scatter_24_segments() {
    let segments = Segments::from_ids([0, 1, 0], 3).unwrap();
    let upstream = Tensor::<1>::from_data([1.0, 10.0, 100.0], (&device(), DType::F64));
    let x = vector(&[-0.1, -0.2, -0.3]);
    // Not 0, which is larger than all; 0 where there is nothing, with a gradient that goes nowhere.
    let largest = segment_max(x.clone(), &segments);
    assert_eq!(read(&largest), [-0.1, -0.2, 0.0]);
    let grads = vjp::backward(&largest, upstream.clone());
    assert_eq!(read(&x.grad(&grads).unwrap()), [1.0, 10.0, 0.0]);
    let smallest = segment_min(x.clone(), &segments);
    assert_eq!(read(&smallest), [-0.3, -0.2, 0.0]);
    let grads = vjp::backward(&smallest, upstream.clone());
    assert_eq!(read(&x.grad(&grads).unwrap()), [0.0, 10.0, 1.0]);
    let mean = segment_mean(x.clone(), &segments);
    assert_eq!(read(&mean), [-0.2, -0.2, 0.0]);
    let grads = vjp::backward(&mean, upstream);
    assert_eq!(read(&x.grad(&grads).unwrap()), [0.5, 10.0, 0.5]);

    // Ties: to the first alone, in each column.
    let ties = dense([[2.0, 7.0], [5.0, 7.0], [5.0, 7.0], [5.0, 1.0]]);
    let grads = segment_max(ties.clone(), &Segments::from_lengths([4]).unwrap()).sum().backward();
    assert_eq!(read(&ties.grad(&grads).unwrap()), [0., 1., 1., 0., 0., 0., 0., 0.]);

    // Nothing but empty groups.
    let nothing = Tensor::<2>::zeros([0, 2], (&device(), DType::F64)).require_grad();
    for run in [segment_max, segment_min, segment_mean, segment_sum] {
        let found = run(nothing.clone(), &Segments::from_lengths([0, 0]).unwrap());
        assert_eq!(read(&found), [0.0; 4]);
        let grads = found.sum().backward();
        assert_eq!(nothing.grad(&grads).unwrap().dims(), [0, 2]);
    }
}

/// pytorch/pytorch#1631: the gradient of a gather adds up what is repeated.
#[test]
fn pytorch_1631_repeats_add_up() {
    let upstream = Tensor::<1>::from_data([0.2, 0.3], (&device(), DType::F64));
    let x = vector(&[1.0, 2.0]);
    let rows = segment_expand(x.clone(), &Segments::from_ids([0, 0], 2).unwrap());
    let grads = vjp::backward(&rows, upstream.clone());
    assert_eq!(read(&x.grad(&grads).unwrap()), [0.5, 0.0]);
    let graph = Pattern::coo([0, 0], [1, 0], [2, 2]).unwrap();
    let edges = edge_gather(&graph, Per::Row, x.clone());
    let grads = vjp::backward(edges.values(), upstream);
    assert_eq!(read(&x.grad(&grads).unwrap()), [0.5, 0.0]);
    let x = dense([[1.0, 2.0], [3.0, 4.0]]);
    let edges = edge_gather(&graph, Per::Row, x.clone());
    let upstream = Tensor::<2>::from_data([[0.2, 2.0], [0.3, 3.0]], (&device(), DType::F64));
    let grads = vjp::backward(&edges, upstream);
    assert_eq!(read(&x.grad(&grads).unwrap()), [0.5, 5.0, 0.0, 0.0]);
}

/// tensorflow/tensorflow#127480, torch-fem PR#17: ids that no segment has are found before any kernel runs; so are rows that
/// have no segment.
#[test]
fn tensorflow_127480_ids_are_checked() {
    for (ids, position) in [([0, 3, 1], 1), ([0, 1, -1], 2)] {
        let error = Segments::from_ids(ids, 3).unwrap_err();
        assert!(matches!(error, SegmentsError::IdOutOfRange { position: at, segments: 3, .. } if at == position));
    }
    let segments = Segments::from_ids([0, 2, 1], 3).unwrap();
    for rows in [2, 4] {
        let x = Tensor::<2>::zeros([rows, 2], &device());
        let error = sparsegrad::try_segment_reduce(x, &segments, Reducer::Sum).unwrap_err();
        assert!(matches!(error, OpError::Shapes { op: "segment_reduce", .. }));
    }
}

/// pytorch/pytorch#146976: an edge that is stored twice counts twice, in the result and in the gradient.
#[test]
fn pytorch_146976_duplicates_are_edges() {
    let graph = Pattern::coo([0, 0, 0], [1, 1, 0], [1, 2]).unwrap();
    let (u, v) = (vector(&[2.0]), vector(&[3.0, 5.0]));
    let edges = edge_op(&graph, EdgeOp::Mul, u.clone(), v.clone());
    assert_eq!(read(edges.values()), [10.0, 10.0, 6.0]);
    let grads = edges.values().clone().sum().backward();
    assert_eq!((read(&u.grad(&grads).unwrap()), read(&v.grad(&grads).unwrap())), (vec![13.0], vec![2.0, 4.0]));
    let features = dense([[1.0], [1.0], [4.0]]);
    assert_eq!(read(&edge_reduce(&graph, Per::Row, features.clone(), Reducer::Mean)), [2.0]);
    assert_eq!(read(&edge_reduce(&graph, Per::Column, features, Reducer::Sum)), [4.0, 2.0]);
}
