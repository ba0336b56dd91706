//! Samples of all forms have the mean and the covariance that they should have: Hotelling's and Nagao's tests at fixed seeds.

use crate::mvn::{FORMS, factor, numbers};
use burn::tensor::{DType, Device, Tensor, TensorData};
use sparsegrad::SparseTensor;
use sparsegrad_distributions::{Checks, NormalRng, SparseMultivariateNormal, cov_nagao_test, mean_hotelling_t2_test};

const SAMPLES: usize = 10_000;

/// Means and covariances of samples x items x n.
fn moments(samples: Tensor<3>) -> (Tensor<2>, Tensor<3>) {
    let [count, items, n] = samples.dims();
    let mean = samples.clone().mean_dim(0);
    let centred = (samples - mean.clone()).permute([1, 2, 0]); // items x n x samples
    let covariance = centred.clone().matmul(centred.permute([0, 2, 1])).div_scalar((count - 1) as f64);
    (mean.reshape([items, n]), covariance)
}

fn dense(form: sparsegrad_distributions::Form, n: usize, l: &[f64], d: &[f64]) -> Vec<f64> {
    let d = form.is_ldlt().then_some(d);
    let dense = crate::dense::Dense::new(form, &vec![0.0; n], l, d);
    (0..n * n).map(|at| dense.covariance[(at / n, at % n)]).collect()
}

#[test]
fn samples_pass_the_tests_of_hotelling_and_nagao() {
    let device = Device::flex();
    let (n, items) = (4, 3);
    for dtype in [DType::F32, DType::F64] {
        let tensor =
            |values: &[f64], shape| Tensor::<2>::from_data(TensorData::new(values.to_vec(), shape), (&device, dtype));
        for form in FORMS {
            for own in [false, true] {
                let factors: Vec<_> =
                    (0..items).map(|i| factor(n, form, 3 + if own { 3 * i as u64 } else { 0 })).collect();
                let d: Vec<f64> = numbers(items * n, 5).iter().map(|x| 1.5 + x).collect();
                let loc = tensor(&numbers(items * n, 6), [items, n]);
                let sparse = |(rows, columns, values, _): &(Vec<usize>, Vec<usize>, Vec<f64>, Vec<f64>)| {
                    let l = SparseTensor::from_coo(rows, columns, values, [n, n], &device).unwrap();
                    l.cast(dtype.into())
                };
                let l: sparsegrad_distributions::Factor = if own {
                    SparseTensor::stack(&factors.iter().map(sparse).collect::<Vec<_>>()).unwrap().into()
                } else {
                    sparse(&factors[0]).into()
                };
                let diagonal = form.is_ldlt().then(|| tensor(&d, [items, n]));
                let made = SparseMultivariateNormal::new(form, loc.clone(), l, diagonal, Checks::Values).unwrap();
                let (mean, covariance) = moments(made.sample([SAMPLES], &mut NormalRng::seeded(11)));
                let truth: Vec<f64> =
                    (0..items).flat_map(|i| dense(form, n, &factors[i].3, &d[i * n..(i + 1) * n])).collect();
                let truth = Tensor::<3>::from_data(TensorData::new(truth, [items, n, n]), (&device, dtype));
                let what = format!("{form:?} {dtype:?} own {own}");
                let hotelling = mean_hotelling_t2_test(mean, loc, covariance.clone(), SAMPLES, 0.99).unwrap();
                assert!(hotelling.all_accepted(), "{what}: {hotelling:?}");
                let nagao = cov_nagao_test(covariance, truth, SAMPLES, 0.99).unwrap();
                assert!(nagao.all_accepted(), "{what}: {nagao:?}");
            }
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
