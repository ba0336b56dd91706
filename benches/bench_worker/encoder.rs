//! Matrices of pairwise relations in a volume.

use crate::cases::{Prepared, forward, results};
use crate::problem::Problem;
use serde::Deserialize;
use sparsegrad::encoders::PairwiseEncoder;
use sparsegrad::vjp;

#[derive(Deserialize)]
struct Volume {
    radius: f64,
    /// Channels, and the sizes of the spatial dimensions.
    volume: Vec<usize>,
}

/// Values of all relations within the radius, s1, encoded to CSR; the upstream gradient is that of the stored values, s2.
pub fn pairwise(problem: &Problem) -> Prepared {
    let Volume { radius, volume } = serde_json::from_value(problem.params.clone())?;
    let encoder = PairwiseEncoder::of(radius, &volume).build()?;
    let nnz = encoder.pattern().nnz();
    let shape: Vec<_> = std::iter::once(encoder.steps().len()).chain(volume).collect();
    let values = problem.dense::<5>(1, shape.try_into().map_err(|_| "unsupported")?);
    if !problem.backward() {
        return Ok((forward(move || encoder.encode(values.clone()).values().clone()), nnz));
    }
    let (values, upstream) = (values.require_grad(), problem.dense(2, [nnz]));
    let case = move || {
        let out = encoder.encode(values.clone()).values().clone();
        let grads = vjp::backward(&out, upstream.clone());
        let grad = values.grad(&grads).expect("a tracked operand").flatten::<1>(0, 4);
        results(out, [("grad_values", grad.into())])
    };
    Ok((Box::new(case), nnz))
}
