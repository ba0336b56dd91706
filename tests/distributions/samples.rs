//! Samples of all forms have the mean and the covariance that they should have: Hotelling's and Nagao's tests at fixed seeds.

use crate::mvn::{FORMS, batch};
use crate::places::Place;
use burn::tensor::{DType, Device, FloatDType, Tensor};
use sparsegrad::SparseTensor;
use sparsegrad_distributions::{NormalRng, SparseMultivariateNormal, cov_nagao_test, mean_hotelling_t2_test};

const SAMPLES: usize = 10_000;

/// Means and covariances of samples x items x n.
fn moments(samples: Tensor<3>) -> (Tensor<2>, Tensor<3>) {
    let [count, items, n] = samples.dims();
    let mean = samples.clone().mean_dim(0);
    let centred = (samples - mean.clone()).permute([1, 2, 0]); // items x n x samples
    let covariance = centred.clone().matmul(centred.permute([0, 2, 1])).div_scalar((count - 1) as f64);
    (mean.reshape([items, n]), covariance)
}

#[test]
fn samples_pass_the_tests_of_hotelling_and_nagao() {
    let n = 4;
    for place in Place::all() {
        for (form, own) in FORMS.into_iter().flat_map(|form| [(form, false), (form, true)]) {
            let (made, dense) = batch(&place, form, n, own, own, 3);
            let drawn = made.sample([SAMPLES], &mut NormalRng::seeded(12));
            let (mean, covariance) = moments(drawn.reshape([SAMPLES, 4, n]));
            let truth: Vec<f64> =
                dense.iter().flat_map(|d| (0..n * n).map(|at| d.covariance[(at / n, at % n)])).collect();
            let (loc, truth) = (made.loc().clone().reshape([4, n]), place.tensor(&truth, [4, n, n]));
            let what = format!("{form:?}, own {own}, on {} in {:?}", place.name, place.dtype);
            let hotelling = mean_hotelling_t2_test(mean, loc, covariance.clone(), SAMPLES, 0.99).unwrap();
            assert!(hotelling.all_accepted(), "{what}: {hotelling:?}");
            let nagao = cov_nagao_test(covariance, truth, SAMPLES, 0.99).unwrap();
            assert!(nagao.all_accepted(), "{what}: {nagao:?}");
        }
    }
}

#[test]
fn samples_have_the_shapes_asked_for_and_are_the_seeds() {
    let device = Device::flex();
    let l = SparseTensor::from_triplets([0, 1, 1], [0, 0, 1], [1.0f32, 0.5, 2.0], [2, 2], &device).unwrap();
    let one = SparseMultivariateNormal::covariance_llt(Tensor::<1>::zeros([2], &device), l).unwrap();
    assert_eq!(one.rsample([], &mut NormalRng::seeded(1)).dims(), [2]);
    assert_eq!(one.rsample([5, 6], &mut NormalRng::seeded(1)).dims(), [5, 6, 2]); // torchsparsegradutils refuses this
    let many = one.expand([3, 2]).unwrap();
    assert_eq!(many.rsample([4], &mut NormalRng::seeded(1)).dims(), [4, 3, 2]);
    assert_eq!(many.rsample([0], &mut NormalRng::seeded(1)).dims(), [0, 3, 2]);
    let draw = || many.sample([4], &mut NormalRng::seeded(2)).to_data();
    assert_eq!(draw(), draw());
}

/// In 16 bits, too, where samples are not made in blocks: near those of the noise in f32.
#[test]
fn samples_in_sixteen_bits() {
    for dtype in [DType::F16, DType::BF16] {
        let place = Place { dtype, ..Place::cpu() }.autodiff();
        for form in FORMS {
            let (made, _) = batch(&place, form, 4, false, false, 3);
            let samples = made.rsample([50], &mut NormalRng::seeded(1));
            assert_eq!((samples.dims(), samples.dtype()), ([50, 2, 2, 4], dtype));
            let (single, _) = batch(&Place { dtype: DType::F32, ..place.clone() }, form, 4, false, false, 3);
            let noise = NormalRng::seeded(1).tensor::<2>([4, 50 * 4], DType::F32, &place.device);
            let expected = single.rsample_of([50], noise.transpose().reshape([50, 2, 2, 4])).unwrap();
            let largest = expected.clone().abs().max().into_scalar::<f64>();
            let distance = (samples.cast(FloatDType::F32) - expected).abs().max().into_scalar::<f64>();
            // A few roundings to 8 bits or more.
            assert!(distance < largest / 16.0, "{form:?} {dtype:?}: {distance} of {largest}");
        }
    }
}
