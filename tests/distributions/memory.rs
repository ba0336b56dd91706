//! What samples and their gradients allocate.

use crate::allocated::most;
use crate::draws::Case;
use crate::mvn::FORMS;
use crate::places::Place;
use burn::tensor::{DType, Tensor};
use sparsegrad::vjp;
use sparsegrad_distributions::{Checks, Factor, NormalRng, SparseMultivariateNormal};

/// Samples and gradients, that of the samples among them, and at most a fifth more.
#[test]
fn draws_allocate_their_results() {
    let place = Place { dtype: DType::F32, ..Place::cpu() }.autodiff();
    for form in FORMS {
        let (n, count) = (10_000, 100);
        let case = Case { form, n, count, ..Case::default() };
        let (made, _) = case.made(&place, [false; 3]);
        let Factor::Shared(factor) = made.factor() else { unreachable!("one factor for all") };
        let step = || {
            let factor = factor.clone().detach().require_grad();
            let loc = made.loc().clone().detach().require_grad();
            let diagonal = made.diagonal().map(|diagonal| diagonal.clone().reshape([n]).detach().require_grad());
            let of_leaves =
                SparseMultivariateNormal::new(form, loc.clone(), factor.clone(), diagonal.clone(), Checks::Pattern);
            let samples = of_leaves.unwrap().rsample([count], &mut NormalRng::seeded(1));
            let upstream = Tensor::ones(samples.dims(), (&place.device, place.dtype));
            let grads = vjp::backward(&samples, upstream.clone());
            let of_diagonal = diagonal.map(|diagonal| diagonal.grad(&grads).unwrap());
            (samples, upstream, factor.grad(&grads).unwrap(), loc.grad(&grads).unwrap(), of_diagonal)
        };
        most(step); // plans
        let (bytes, _results) = most(step);
        let numbers = 2 * n * count + factor.nnz() + n * if form.is_ldlt() { 2 } else { 1 };
        let results = 4 * numbers as isize;
        assert!(bytes >= results && bytes <= results + results / 5, "{form:?}: {bytes} bytes for {results}");
    }
}
