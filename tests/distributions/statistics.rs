//! The tests of means and covariances, with the numbers of SciPy.

use burn::tensor::{DType, Device, Tensor, TensorData};
use sparsegrad_distributions::{StatisticsError, cov_nagao_test, mean_hotelling_t2_test};

fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (&Device::flex(), DType::F64))
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found}, not {expected}");
}

#[test]
fn hotelling_as_scipy_has_it() {
    let mean = tensor(&[0.1, -0.2, 0.0, 0.0], [2, 2]);
    let truth = tensor(&[0.0; 4], [2, 2]);
    let covariance = tensor(&[2.0, 0.5, 0.5, 1.0, 2.0, 0.5, 0.5, 1.0], [2, 2, 2]);
    let test = mean_hotelling_t2_test(mean, truth, covariance, 100, 0.95).unwrap();
    close(test.statistic[0], 6.285714285714286);
    close(test.threshold, 6.241450985489761);
    assert_eq!((test.accepted.clone(), test.all_accepted()), (vec![false, true], false));
    assert_eq!((test.statistic[1], test.p_value[1]), (0.0, 1.0));
    // The survival function of F(2, 98) is (1 + 2 x / 98)^-49.
    let x = test.statistic[0] * 98.0 / (2.0 * 99.0);
    close(test.p_value[0], (1.0 + 2.0 * x / 98.0).powi(-49));
    // F^-1(.99; 4, 9996)
    let identity: Vec<f64> = (0..16).map(|i| f64::from(u8::from(i % 5 == 0))).collect();
    let zero = || tensor(&[0.0; 4], [1, 4]);
    let test = mean_hotelling_t2_test(zero(), zero(), tensor(&identity, [1, 4, 4]), 10_000, 0.99).unwrap();
    close(test.threshold, 13.288182344557791);
}

#[test]
fn nagao_as_scipy_has_it() {
    let sample = || tensor(&[2.0, 0.5, 0.5, 1.0], [1, 2, 2]);
    let test = cov_nagao_test(sample(), tensor(&[1.5, 0.2, 0.2, 1.2], [1, 2, 2]), 100, 0.95).unwrap();
    close(test.statistic[0], 11.318440082644642);
    close(test.threshold, 7.814727903251179);
    assert_eq!(test.accepted, [false]);
    let test = cov_nagao_test(sample(), tensor(&[1.0, 0.0, 0.0, 1.0], [1, 2, 2]), 100, 0.95).unwrap();
    close(test.statistic[0], 75.0);
    let identity: Vec<f64> = (0..16).map(|i| f64::from(u8::from(i % 5 == 0))).collect();
    let same = || tensor(&identity, [1, 4, 4]);
    let test = cov_nagao_test(same(), same(), 10_000, 0.99).unwrap();
    close(test.threshold, 23.209251158954356);
    assert_eq!((test.statistic, test.accepted), (vec![0.0], vec![true]));
}

#[test]
fn what_there_is_no_test_for() {
    let (mean, covariance) = (|| tensor(&[0.0; 2], [1, 2]), || tensor(&[1.0, 0.0, 0.0, 1.0], [1, 2, 2]));
    // torchsparsegradutils divides by zero here.
    let few = mean_hotelling_t2_test(mean(), mean(), covariance(), 2, 0.95).unwrap_err();
    assert_eq!(few, StatisticsError::TooFewSamples { samples: 2, dimension: 2, needed: 3 });
    assert!(matches!(cov_nagao_test(covariance(), covariance(), 2, 0.95), Err(StatisticsError::TooFewSamples { .. })));
    for level in [0.0, 1.0, f64::NAN] {
        let refused = mean_hotelling_t2_test(mean(), mean(), covariance(), 9, level);
        assert!(matches!(refused, Err(StatisticsError::Confidence { .. })));
    }
    let shape = mean_hotelling_t2_test(mean(), tensor(&[0.0; 3], [1, 3]), covariance(), 9, 0.95);
    assert!(matches!(shape, Err(StatisticsError::Shape { .. })));
    let indefinite = tensor(&[1.0, 2.0, 2.0, 1.0], [1, 2, 2]);
    let refused = cov_nagao_test(covariance(), indefinite, 9, 0.95).unwrap_err();
    assert_eq!(refused, StatisticsError::NotPositiveDefinite { what: "reference", item: 0 });
}
