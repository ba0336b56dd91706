//! Gradients against central differences in f64.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// The largest difference between a gradient and its finite difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradcheckReport {
    /// `|analytic - numeric| / max(1, |numeric|)` where it is largest.
    pub max_error: f64,
    /// Which input.
    pub input: usize,
    /// Which element of it.
    pub element: usize,
    /// The gradient there.
    pub analytic: f64,
    /// The central difference there.
    pub numeric: f64,
    /// How many partial derivatives were compared.
    pub compared: usize,
}

/// Gradients that are not the derivative.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GradcheckError {
    /// One differs by more than the tolerance.
    #[error(
        "gradient of input {} at element {}: {} by autodiff, {} by central differences (error {:.1e}, tolerance {tolerance:.1e})",
        report.input, report.element, report.analytic, report.numeric, report.max_error
    )]
    Differs {
        /// Where the difference is largest.
        report: GradcheckReport,
        /// What was allowed.
        tolerance: f64,
    },
    /// An input had no gradient at all.
    #[error("input {input} has no gradient: the function does not depend on it, or the graph is cut")]
    NoGradient {
        /// Which input.
        input: usize,
    },
    /// A gradient has another number of elements than its input.
    #[error("the gradient of input {input} has {found} elements, the input {expected}")]
    Length {
        /// Which input.
        input: usize,
        /// Elements of the gradient.
        found: usize,
        /// Elements of the input.
        expected: usize,
    },
}

/// Compares the gradients of `function` with central differences, in f64.
///
/// `function` gets one 1-D tensor for each of `inputs` and returns any tensor, flattened; the loss is its product with fixed
/// weights that are all different, so that no error cancels. Every partial derivative is compared, at a step of
/// `1e-5 * max(1, |x|)`: a tolerance of 1e-8 or so is right for smooth functions of moderate size.
///
/// # Errors
/// If a gradient is missing, has the wrong length, or differs by more than `tolerance` (or is NaN where the difference is not).
///
/// ```
/// use sparsegrad::{prelude::*, testing::gradcheck};
///
/// let pattern = Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3])?;
/// let (a, b) = (vec![3.0, 4.0, 5.0], vec![1.0, -2.0, 0.5]);
/// let report = gradcheck(&Device::flex(), &[a, b], 1e-8, |inputs| {
///     let a = SparseTensor::new(pattern.clone(), inputs[0].clone()).unwrap();
///     a.matvec(inputs[1].clone())
/// })?;
/// assert_eq!(report.compared, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gradcheck(
    device: &Device,
    inputs: &[Vec<f64>],
    tolerance: f64,
    function: impl Fn(&[Tensor<1>]) -> Tensor<1>,
) -> Result<GradcheckReport, GradcheckError> {
    let tensors = |inputs: &[Vec<f64>], device: &Device| -> Vec<Tensor<1>> {
        let tensor = |x: &Vec<f64>| {
            let data = TensorData::new(x.clone(), [x.len()]);
            Tensor::from_data(data, (device, DType::F64))
        };
        inputs.iter().map(tensor).collect()
    };
    let plain = device.clone().without_autodiff();
    let loss = |inputs: &[Vec<f64>]| -> f64 {
        let output = function(&tensors(inputs, &plain)).into_data();
        let weighted = output.iter::<f64>().enumerate().map(|(i, y)| weight(i) * y);
        weighted.sum()
    };

    let tracked: Vec<_> = tensors(inputs, &device.clone().autodiff()).into_iter().map(Tensor::require_grad).collect();
    let output = function(&tracked);
    let weights: Vec<f64> = (0..output.dims()[0]).map(weight).collect();
    let weights = tensors(&[weights], &output.device()).remove(0);
    let grads = (output * weights).sum().backward();

    let mut worst = GradcheckReport { max_error: 0.0, input: 0, element: 0, analytic: 0.0, numeric: 0.0, compared: 0 };
    let mut moved = inputs.to_vec();
    for (input, tensor) in tracked.iter().enumerate() {
        let expected = inputs[input].len();
        let Some(gradient) = tensor.grad(&grads) else {
            return Err(GradcheckError::NoGradient { input });
        };
        let gradient: Vec<f64> = gradient.into_data().iter::<f64>().collect();
        if gradient.len() != expected {
            let found = gradient.len();
            return Err(GradcheckError::Length { input, found, expected });
        }
        for (element, &analytic) in gradient.iter().enumerate() {
            let x = inputs[input][element];
            let step = 1e-5 * x.abs().max(1.0);
            let mut at = |x| {
                moved[input][element] = x;
                loss(&moved)
            };
            let numeric = (at(x + step) - at(x - step)) / (2.0 * step);
            moved[input][element] = x;
            let error = (analytic - numeric).abs() / numeric.abs().max(1.0);
            worst.compared += 1;
            if error.is_nan() || error > worst.max_error {
                worst = GradcheckReport { max_error: error, input, element, analytic, numeric, ..worst };
            }
        }
    }
    if worst.max_error <= tolerance { Ok(worst) } else { Err(GradcheckError::Differs { report: worst, tolerance }) }
}

/// Between 0.5 and 1.5, without a pattern.
fn weight(index: usize) -> f64 {
    0.5 + (index as f64 * 0.618_033_988_749_895).fract()
}
