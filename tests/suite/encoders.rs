//! The pairwise encoder: the worked examples of torchsparsegradutils, the rule itself, gradients, and what it refuses.

use crate::common::read;
use burn::tensor::TensorData;
use proptest::prelude::*;
use sparsegrad::encoders::{Channels, EncoderError, PairwiseEncoder, Side};
use sparsegrad::prelude::*;

fn tensor<const D: usize>(values: impl Iterator<Item = f64>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.collect::<Vec<f64>>(), shape), (device, DType::F64))
}

/// 10 times the step plus the voxel: every value tells where it came from.
fn labels<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let voxels: usize = shape[1..].iter().product();
    tensor((0..shape[0] * voxels).map(|i| (10 * (i / voxels) + i % voxels) as f64), shape, device)
}

#[test]
fn the_worked_example_in_space() {
    let encoder = PairwiseEncoder::of(1.0, &[1, 2, 3]).diagonal().build().unwrap();
    assert_eq!(encoder.steps(), [[0, 0, 0], [0, 0, -1], [0, 0, 1], [0, -1, 0], [0, 1, 0]]);
    let a = encoder.encode(labels([5, 1, 2, 3], &Device::flex()));
    let (rows, columns) = a.pattern().coordinates();
    assert_eq!(rows, [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5]);
    assert_eq!(columns, [0, 1, 3, 0, 1, 2, 4, 1, 2, 5, 0, 3, 4, 1, 3, 4, 5, 2, 4, 5]);
    let expected = [
        [0, 10, 0, 30, 0, 0],
        [21, 1, 11, 0, 31, 0],
        [0, 22, 2, 0, 0, 32],
        [43, 0, 0, 3, 13, 0],
        [0, 44, 0, 24, 4, 14],
        [0, 0, 45, 0, 25, 5],
    ];
    assert_eq!(read(&a.to_dense()), expected.as_flattened().iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
}

#[test]
fn the_worked_example_across_channels() {
    let config = PairwiseEncoder::of(1.0, &[2, 3]).diagonal().side(Side::Lower).channels(Channels::Inter);
    let encoder = config.coo().build().unwrap();
    assert_eq!(encoder.steps(), [[0, 0], [0, 1], [1, 0], [1, -1], [1, 1]]);
    let a = encoder.encode(labels([5, 2, 3], &Device::flex()));
    assert_eq!(a.pattern().format().name(), Some("COO"));
    let expected = [
        [0, 0, 0, 0, 0, 0],
        [11, 1, 0, 0, 0, 0],
        [0, 12, 2, 0, 0, 0],
        [23, 33, 0, 3, 0, 0],
        [44, 24, 34, 14, 4, 0],
        [0, 45, 25, 0, 15, 5],
    ];
    assert_eq!(read(&a.to_dense()), expected.as_flattened().iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
}

#[test]
fn the_worked_example_of_a_batch() {
    let encoder = PairwiseEncoder::of(1.0, &[1, 3]).build().unwrap();
    assert_eq!(encoder.steps(), [[0, -1], [0, 1]]);
    let a = encoder.encode_batch(tensor((0..12).map(f64::from), [2, 2, 1, 3], &Device::flex()));
    let expected = [0, 0, 0, 4, 0, 1, 0, 5, 0, 0, 6, 0, 10, 0, 7, 0, 11, 0];
    assert_eq!(read(&a.to_dense()), expected.map(f64::from));
    assert_eq!(a.shape(), [2, 3, 3]);
}

/// Entry by entry from the definition, without the encoder's order of work.
fn oracle(encoder: &PairwiseEncoder, values: &[f64]) -> Vec<f64> {
    let volume = encoder.volume();
    let voxels: usize = volume.iter().product();
    let place = |voxel: usize| {
        let mut rest = voxel;
        let mut place: Vec<_> = volume
            .iter()
            .rev()
            .map(|&size| {
                let x = rest % size;
                rest /= size;
                x as isize
            })
            .collect();
        place.reverse();
        place
    };
    let mut dense = vec![0.0; voxels * voxels];
    for row in 0..voxels {
        for column in 0..voxels {
            let step: Vec<_> = place(row).iter().zip(place(column)).map(|(r, c)| r - c).collect();
            if let Some(at) = encoder.steps().iter().position(|s| *s == step) {
                dense[row * voxels + column] = values[at * voxels + row];
            }
        }
    }
    dense
}

fn configs() -> impl Strategy<Value = PairwiseEncoder> {
    let volume = (1usize..4, prop::collection::vec(1usize..5, 1..4));
    let channels = prop::sample::select(vec![Channels::Independent, Channels::Intra, Channels::Inter]);
    let side = prop::sample::select(vec![Side::Both, Side::Lower, Side::Upper]);
    (volume, channels, side, any::<bool>(), any::<bool>(), 1.0..2.5f64).prop_map(
        |((c, space), channels, side, diagonal, coo, radius)| {
            let volume = [vec![c], space].concat();
            let channels = if c == 1 { Channels::Independent } else { channels };
            let mut config = PairwiseEncoder::of(radius, &volume).channels(channels).side(side);
            if diagonal {
                config = config.diagonal();
            }
            if coo { config.coo().build().unwrap() } else { config.build().unwrap() }
        },
    )
}

/// The values as a tensor of the rank that the volume asks for.
macro_rules! with_rank {
    ($encoder:expr, $values:expr, $device:expr, $tensor:ident => $body:expr) => {{
        let shape: Vec<usize> = [&[$encoder.steps().len()], $encoder.volume()].concat();
        match shape.len() {
            3 => {
                let $tensor = tensor::<3>($values, shape.try_into().unwrap(), $device);
                $body
            }
            4 => {
                let $tensor = tensor::<4>($values, shape.try_into().unwrap(), $device);
                $body
            }
            _ => {
                let $tensor = tensor::<5>($values, shape.try_into().unwrap(), $device);
                $body
            }
        }
    }};
}

/// The decoded values, of the rank of others.
fn decoded<const R: usize>(encoder: &PairwiseEncoder, matrix: &SparseTensor<2>, _like: &Tensor<R>) -> Vec<f64> {
    read(&encoder.decode::<R>(matrix).unwrap())
}

proptest! {
    #[test]
    fn entries_are_those_of_the_definition(encoder in configs()) {
        let device = Device::flex();
        let length = encoder.steps().len() * encoder.volume().iter().product::<usize>();
        let values: Vec<f64> = (0..length).map(|i| i as f64 + 1.0).collect();
        let a = with_rank!(encoder, values.iter().copied(), &device, t => encoder.encode(t));
        prop_assert_eq!(read(&a.to_dense()), oracle(&encoder, &values));
        prop_assert!(!a.pattern().has_duplicates());
    }

    #[test]
    fn decoding_is_the_inverse_and_the_transpose(encoder in configs()) {
        let device = Device::flex().autodiff();
        let length = encoder.steps().len() * encoder.volume().iter().product::<usize>();
        let numbers: Vec<f64> = (0..length).map(|i| (i as f64).sin() + 2.0).collect();
        with_rank!(encoder, numbers.iter().copied(), &device, t => {
            let t = t.require_grad();
            let a = encoder.encode(t.clone());
            // The gradient of sum(a^2) / 2 is a, where its values came from.
            let grads = (a.values().clone() * a.values().clone()).sum().backward();
            let decoded = decoded(&encoder, &a.detach(), &t);
            let grad = t.grad(&grads).unwrap();
            for ((&value, decoded), grad) in numbers.iter().zip(decoded).zip(read(&grad)) {
                prop_assert!(decoded == value || decoded == 0.0);
                prop_assert!((grad - 2.0 * decoded).abs() < 1e-14);
            }
        });
    }
}

#[test]
fn a_batch_is_its_items_and_so_is_its_gradient() {
    let device = Device::flex().autodiff();
    let encoder = PairwiseEncoder::of(1.5, &[2, 3, 2]).channels(Channels::Intra).diagonal().build().unwrap();
    let n = encoder.steps().len();
    let numbers: Vec<f64> = (0..3 * n * 12).map(|i| f64::from(i as u32).cos()).collect();
    let values = tensor(numbers.iter().copied(), [3, n, 2, 3, 2], &device).require_grad();
    let batch = encoder.encode_batch(values.clone());
    let weights = tensor((0..batch.nnz()).map(|i| i as f64), [batch.nnz()], &device);
    let grad = values.grad(&(batch.values().clone() * weights.clone()).sum().backward()).unwrap();
    for item in 0..3 {
        let own = numbers[item * n * 12..(item + 1) * n * 12].iter().copied();
        let alone = tensor(own, [n, 2, 3, 2], &device).require_grad();
        let matrix = encoder.encode(alone.clone());
        assert_eq!(read(&matrix.values().clone()), read(&batch.item(item).values().clone()));
        let nnz = matrix.nnz();
        let part = weights.clone().slice_dim(0, item * nnz..(item + 1) * nnz);
        let expected = alone.grad(&(matrix.values().clone() * part).sum().backward()).unwrap();
        assert_eq!(read(&grad.clone().slice_dim(0, item..item + 1).reshape([n, 2, 3, 2])), read(&expected));
    }
}

/// Values are only moved, so that all bits are the same: entries, values from entries, and the gradients of both, of a batch.
#[test]
#[cfg(feature = "wgpu")]
fn gpus_move_the_same_bits() {
    let gpu = Device::wgpu(sparsegrad::burn::tensor::DeviceKind::DefaultDevice);
    for (radius, volume, channels, coo) in [
        (2.0, [2, 5, 4], Channels::Inter, false),
        (1.5, [1, 1, 7], Channels::Independent, true),
        (3.0, [3, 2, 1], Channels::Intra, false),
    ] {
        let config = PairwiseEncoder::of(radius, &volume).channels(channels).diagonal();
        let encoder = if coo { config.coo() } else { config }.build().unwrap();
        let [c, h, w] = volume;
        let shape = [2, encoder.steps().len(), c, h, w];
        let moved = |device: &Device| {
            let numbers: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i as f32).cos()).collect();
            let values = Tensor::<5>::from_data(TensorData::new(numbers, shape), &device.clone().autodiff());
            let values = values.require_grad();
            let batch = encoder.encode_batch(values.clone());
            let back: Tensor<4> = encoder.decode(&batch.item(1)).unwrap();
            let entries = batch.values().clone();
            let loss = (entries.clone() * entries.clone()).sum() + (back.clone() * back.clone()).sum();
            let grad = values.grad(&loss.backward()).unwrap();
            [read(&entries), read(&back), read(&grad)]
        };
        assert_eq!(moved(&gpu), moved(&Device::flex()), "{radius} {volume:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let build = |radius, volume: &[usize]| PairwiseEncoder::of(radius, volume).build().unwrap_err();
    assert!(matches!(build(0.5, &[1, 3]), EncoderError::Radius { .. }));
    assert!(matches!(build(f64::NAN, &[1, 3]), EncoderError::Radius { .. }));
    assert!(matches!(build(1.0, &[3]), EncoderError::Volume { .. }));
    assert!(matches!(build(1.0, &[1, 0]), EncoderError::Volume { .. }));
    let one = PairwiseEncoder::of(1.0, &[1, 3]).channels(Channels::Inter).build().unwrap_err();
    assert!(matches!(one, EncoderError::OneChannel { .. }));

    let encoder = PairwiseEncoder::of(1.0, &[2, 3]).build().unwrap();
    // The channels of the values: torchsparsegradutils does not look at them.
    let error = encoder.try_encode(labels([2, 1, 3], &Device::flex())).unwrap_err();
    assert!(error.to_string().contains("[2, 2, 3]"), "{error}");
    let error = encoder.try_encode(labels([2, 6], &Device::flex())).unwrap_err();
    assert!(matches!(error, EncoderError::Shape { .. }));
    let other = SparseTensor::eye(6, &Device::flex()).unwrap();
    assert!(matches!(encoder.decode::<3>(&other), Err(EncoderError::OtherPattern { .. })));
}
