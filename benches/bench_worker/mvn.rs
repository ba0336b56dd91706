//! Sparse multivariate normal distributions: samples, and logarithms of densities.

use crate::cases::{Case, Prepared, Results, grad, lower_factor, results, values_grad};
use crate::problem::Problem;
use crate::streams;
use serde::Deserialize;
use sparsegrad::prelude::*;
use sparsegrad::vjp;
use sparsegrad_distributions::{Checks, Form, NormalRng, SparseMultivariateNormal};

#[derive(Deserialize)]
struct Parameters {
    factor: Which,
    diagonal: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Which {
    ScaleTril,
    PrecisionTril,
}

/// What is asked of a distribution.
#[derive(Clone, Copy, PartialEq)]
pub enum Asked {
    /// Samples, a row each.
    Samples,
    /// Densities of the vectors that are the noise of a check otherwise.
    LogProb,
}

/// By a factor of the covariance or of the precision.
pub fn of_distribution(problem: &Problem, asked: Asked) -> Prepared {
    let Parameters { factor, diagonal } = serde_json::from_value(problem.params.clone())?;
    let form = match (factor, diagonal) {
        (Which::ScaleTril, false) => Form::CovarianceLlt,
        (Which::ScaleTril, true) => Form::CovarianceLdlt,
        (Which::PrecisionTril, false) => Form::PrecisionLlt,
        (Which::PrecisionTril, true) => Form::PrecisionLdlt,
    };
    let a = problem.matrix()?;
    let factor = if diagonal { lower_factor(&a, None, 0.5)? } else { lower_factor(&a, Some(2.0), 1.0)? };
    let ([n, _], nnz, k) = (factor.shape(), factor.nnz(), problem.cols);
    let near_one = streams::values(problem.seed, 4).take(n).map(|value| 1.0 + value / 2.0).collect();
    let (loc, diagonal) = (problem.dense(3, [n]), diagonal.then(|| problem.tensor(near_one, [n])));
    let noise = problem.dense(1, [k, n]);
    let rng = NormalRng::seeded(problem.seed);
    let width = if asked == Asked::Samples { n } else { 1 };
    let case = match problem.backward() {
        true => Distribution {
            asked,
            operands: Operands {
                form,
                loc: loc.require_grad(),
                factor: factor.require_grad(),
                diagonal: diagonal.map(Tensor::require_grad),
            },
            made: None,
            upstream: Some(problem.dense(2, [k, width])),
            noise,
            rng,
        },
        false => {
            let operands = Operands { form, loc, factor, diagonal };
            Distribution { asked, made: Some(operands.distribution()), operands, upstream: None, noise, rng }
        }
    };
    Ok((Box::new(case), nnz))
}

struct Operands {
    form: Form,
    loc: Tensor<1>,
    factor: SparseTensor<2>,
    diagonal: Option<Tensor<1>>,
}

impl Operands {
    fn distribution(&self) -> SparseMultivariateNormal<1> {
        let Self { form, loc, factor, diagonal } = self;
        SparseMultivariateNormal::new(*form, loc.clone(), factor.clone(), diagonal.clone(), Checks::Pattern)
            .expect("a factor of its form")
    }
}

struct Distribution {
    asked: Asked,
    operands: Operands,
    /// Once and for all where no gradients are taken: what is recorded of it serves one backward pass only.
    made: Option<SparseMultivariateNormal<1>>,
    /// For the backward pass, if there is one.
    upstream: Option<Tensor<2>>,
    /// That of a check, k x n.
    noise: Tensor<2>,
    rng: NormalRng,
}

impl Distribution {
    fn of(&mut self, sample: impl FnOnce(&SparseMultivariateNormal<1>, &mut NormalRng) -> Tensor<2>) -> Results {
        let out = match &self.made {
            Some(made) => sample(made, &mut self.rng),
            None => sample(&self.operands.distribution(), &mut self.rng),
        };
        let Some(upstream) = &self.upstream else {
            return results(out, []);
        };
        let Operands { loc, factor, diagonal, .. } = &self.operands;
        let grads = vjp::backward(&out, upstream.clone());
        let mut all = results(out, [("grad_values", values_grad(factor, &grads)), ("grad_loc", grad(loc, &grads))]);
        all.extend(diagonal.as_ref().map(|diagonal| ("grad_diagonal", grad(diagonal, &grads))));
        all
    }
}

impl Case for Distribution {
    fn run(&mut self) -> Results {
        let [k, _] = self.noise.dims();
        match self.asked {
            Asked::Samples => self.of(|distribution, rng| distribution.rsample([k], rng)),
            Asked::LogProb => self.check(),
        }
    }

    fn check(&mut self) -> Results {
        let (noise, asked) = (self.noise.clone(), self.asked);
        let [k, _] = noise.dims();
        self.of(|distribution, _| match asked {
            Asked::Samples => distribution.rsample_of([k], noise).expect("noise of the samples' shape"),
            Asked::LogProb => distribution.log_prob(noise).unsqueeze_dim(1),
        })
    }
}
