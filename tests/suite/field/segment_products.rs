//! Rows that belong together: products by segments and by index.

use super::*;
use crate::common::{Numbers, View};
use sparsegrad::{gather_mm, segment_mm};

fn stack(values: &[f64], shape: [usize; 3]) -> Tensor<3> {
    vector(values).reshape(shape)
}

/// pytorch/pytorch#172439, #192497, pytorch/FBGEMM#5754: the gradient of an empty group was garbage.
#[test]
fn pytorch_172439_an_empty_group_has_a_gradient_of_zeros() {
    let x = dense([[1., 2.], [3., 4.], [5., 6.]]);
    let weights = [1., 0., 0., 1., 10., 10., 10., 10., 2., 0., 0., 2.];
    let lengths = Segments::from_lengths([1, 0, 2]).unwrap();
    let index = Segments::from_ids([2, 0, 2], 3).unwrap();
    let gradient = |out: &Tensor<2>, weight: &Tensor<3>| read(&weight.grad(&out.clone().sum().backward()).unwrap());

    let weight = Tensor::from_inner(stack(&weights, [3, 2, 2]).inner()).require_grad();
    let y = segment_mm(x.clone(), weight.clone(), &lengths);
    assert_eq!(read(&y), [1., 2., 6., 8., 10., 12.]);
    assert_eq!(gradient(&y, &weight), [1., 1., 2., 2., 0., 0., 0., 0., 8., 8., 10., 10.]);

    let y = gather_mm(x, weight.clone(), &index);
    assert_eq!(read(&y), [2., 4., 3., 4., 10., 12.]);
    assert_eq!(gradient(&y, &weight), [3., 3., 4., 4., 0., 0., 0., 0., 6., 6., 8., 8.]);
}

/// cupy/cupy#4666, pytorch PR 76590, #113754, ml-explore/mlx#4253, PR 3960: rows of a view were read at the offsets of a copy.
#[test]
fn mlx_4253_rows_of_views_are_read_where_they_lie() {
    let (rows, inner, cols) = (12, 256, 64);
    let x = Numbers(1).values(rows * inner);
    let weight = stack(&Numbers(2).values(4 * inner * cols), [4, inner, cols]);
    let index = Segments::from_ids([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], 4).unwrap();
    let contiguous = View::Contiguous.build(&x, [rows, inner], DType::F64, &device());
    let expected = read(&gather_mm(contiguous.clone(), weight.clone(), &index));
    for view in View::ALL {
        let x = view.build(&x, [rows, inner], DType::F64, &device());
        assert_eq!(read(&gather_mm(x, weight.clone(), &index)), expected, "{view:?}");
    }
    // `x[:, None, :]`, taken apart again.
    let inserted: Tensor<3> = contiguous.clone().unsqueeze_dim(1);
    assert_eq!(read(&gather_mm(inserted.reshape([rows, inner]), weight.clone(), &index)), expected);
    let expanded = contiguous.clone().unsqueeze_dim::<3>(1).expand([rows, 3, inner]);
    let middle: Tensor<2> = expanded.slice([0..rows, 1..2, 0..inner]).squeeze_dim(1);
    assert_eq!(read(&gather_mm(middle, weight.clone(), &index)), expected);
    // One row for all of them.
    let first = contiguous.slice([0..1, 0..inner]);
    let repeated = gather_mm(first.clone().expand([rows, inner]), weight.clone(), &index);
    let copied = gather_mm(first.repeat_dim(0, rows), weight, &index);
    assert_eq!(read(&repeated), read(&copied));
}

/// pytorch/pytorch#1631: of the gradients of a row that was gathered twice only one was kept.
#[test]
fn pytorch_1631_repeated_rows_add_their_gradients() {
    let weight = Tensor::from_inner(stack(&[1., 1.], [2, 1, 1]).inner()).require_grad();
    let index = Segments::from_ids([0, 0], 2).unwrap();
    let y = gather_mm(dense([[1.], [1.]]), weight.clone(), &index);
    let grads = sparsegrad::vjp::backward(&y, dense([[0.2], [0.3]]));
    assert_eq!(read(&weight.grad(&grads).unwrap()), [0.5, 0.]);
}

/// tensorflow/tensorflow#127480: segment ids that were out of range read and wrote elsewhere.
#[test]
fn tensorflow_127480_ids_out_of_range_are_refused() {
    for (ids, position, value) in [([0, 1, 5], 2, 5), ([0, -1, 1], 1, -1)] {
        let error = Segments::from_ids(ids, 5).unwrap_err();
        assert_eq!(error, SegmentsError::IdOutOfRange { position, value, segments: 5 });
    }
    let error = Segments::from_lengths([4, 4, -3]).unwrap_err();
    assert_eq!(error.to_string(), "the length -3 at position 2 is negative");
    // torchsparsegradutils takes lengths that are not those of the rows: [4, 4, 1] for five rows.
    let segments = Segments::from_lengths([4, 4, 1]).unwrap();
    let (x, weight) = (dense([[1.]; 5]), stack(&[1.; 3], [3, 1, 1]));
    let error = sparsegrad::try_segment_mm(x, weight, &segments).unwrap_err();
    assert_eq!(error.to_string(), "segment_mm: [segments, rows] must have the rows of x: [3, 9] and [5, 1]");
}
