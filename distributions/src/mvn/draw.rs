//! Samples on the CPU, a block of them at a time.
//!
//! The graph keeps no noise, and nothing that was made of it: one node has the samples as its value, and its backward pass makes
//! the noise again where it is needed. Beside samples and gradients no more than blocks of samples are alive, on each thread one.
//!
//! With the noise z, the samples x and their gradient g in columns, gradients are the sums of [`blocks`](super::blocks) of
//!
//! | form | sign | R | C |
//! |---|---|---|---|
//! | covariance | + | `g` | `z`, or `sqrt(D) z` |
//! | precision | - | `x - loc` | `L^-1 g`, or `U^-1 g` |

use super::blocks::{Parts, Sums, centred, ranges, tracked, weighed};
use super::kernels::{Number, Numbers};
use super::{MvnError, SparseMultivariateNormal, kernels};
use crate::normal::{Blocks, NormalRng};
use crate::threads;
use burn::tensor::{Tensor, TensorData};
use sparsegrad::Per;
use sparsegrad::internals::{alloc, reshape};
use sparsegrad_solvers::internals::{lifted, node};
use std::ops::Range;

impl<const D: usize> SparseMultivariateNormal<D> {
    /// Samples as rows, `(S items) x n` or S x (items n).
    pub(super) fn drawn<E: Number>(&self, count: usize, rng: &mut NormalRng) -> Result<Tensor<2>, MvnError> {
        let ([m, s, i], device) = (self.column_shape(count), self.device());
        let (parts, operands) = self.parts();
        let precision = self.form.is_precision();
        // Solves are faster with more columns. Noise that is made again is made for the narrow blocks of the backward pass.
        let wide = if precision { 2 * NARROW } else { NARROW };
        let noise = rng.blocks::<E>([m, s * i], wide, device.clone().inner());
        let weights = parts.diagonal.clone().map(|d| if precision { d.sqrt().recip() } else { d.sqrt() });
        let draw = Draw { parts, weights, noise };
        let samples = draw.samples::<E>()?;
        let tracked = tracked(&operands);
        if tracked == [false; 3] {
            return Ok(lifted(samples, &device));
        }
        let kept = self.form.is_precision().then(|| samples.clone());
        let operand = Tensor::cat(operands.into_iter().flatten().collect(), 0);
        Ok(node(lifted(samples, &device), operand, move |grad| draw.gradients::<E>(kept.as_ref(), grad, tracked)))
    }
}

/// The columns of a block of long ones in the backward pass: a vector of f32. More would gain little, and take more memory beside
/// samples and gradients.
const NARROW: usize = 8;

struct Draw {
    parts: Parts,
    /// The square roots of the diagonal, for a precision their inverses.
    weights: Option<Tensor<2>>,
    noise: Blocks,
}

impl Draw {
    fn samples<E: Number>(&self) -> Result<Tensor<2>, MvnError> {
        let [items, m] = self.parts.loc.dims();
        let loc = Numbers::of(self.parts.loc.clone());
        let loc = E::slice(&loc);
        let blocks: Vec<_> = self.noise.ranges().collect();
        let (rows, width) = (blocks[blocks.len() - 1].end, blocks[0].len());
        let mut out = alloc::output::<E>(rows * m);
        threads::write(&mut out, width * m, |at, out| {
            let block = &blocks[at];
            let loc = |column: usize| &loc[(block.start + column) % items * m..][..m];
            kernels::write_rows(self.coloured::<E>(block)?, loc, out);
            Ok::<_, MvnError>(())
        })?;
        // SAFETY: the blocks are all of it, and each was written in full.
        let samples = TensorData::new(unsafe { alloc::finished(out) }, [rows, m]);
        Ok(Tensor::from_data(samples, (&self.parts.loc.device(), E::dtype())))
    }

    /// The columns of a block of samples, but for the location.
    fn coloured<E: Number>(&self, block: &Range<usize>) -> Result<Tensor<2>, MvnError> {
        let scaled = self.scaled::<E>(block);
        if self.parts.form.is_precision() {
            return Ok(self.parts.solve(scaled, true)?);
        }
        Ok(self.parts.times(scaled, false))
    }

    /// The noise of a block, times or over the square roots of D.
    fn scaled<E: Number>(&self, block: &Range<usize>) -> Tensor<2> {
        weighed::<E>(self.noise.block(block), self.weights.as_ref(), None, block)
    }

    /// The gradients of location, values and diagonal below each other, from that of the samples (which precision forms ask for
    /// again).
    fn gradients<E: Number>(
        &self,
        samples: Option<&Tensor<2>>,
        grad: Tensor<2>,
        [of_loc, of_values, of_diagonal]: [bool; 3],
    ) -> Tensor<2> {
        let mut sums = Sums { loc: None, values: None, diagonal: None, rows: vec![] };
        if of_values || of_diagonal {
            let [c, m] = grad.dims();
            let blocks: Vec<_> = ranges(m, c, NARROW).collect();
            // Of one D for all: U^T R * C is R * C and, for L^T R, the sums over columns of the factor of what its values get.
            let one = self.parts.diagonal.as_ref().is_some_and(|diagonal| diagonal.dims()[0] == 1);
            sums = Sums::of(&blocks, |block| {
                let pulled = |r| if one { r } else { self.parts.times(r, true) };
                let wanted = [of_values || one, of_diagonal];
                self.parts.sums::<E>(block, self.factors::<E>(block, samples, &grad), pulled, wanted)
            });
            if one && let Some(values) = &sums.values {
                let products = self.parts.factor.map_values(|factor| factor * values.clone()).sum(Per::Column);
                sums.diagonal = sums.diagonal.map(|diagonal| diagonal + products.unsqueeze());
            }
            sums.values = sums.values.filter(|_| of_values);
        }
        if of_loc {
            let ([c, m], [items, _]) = (grad.dims(), self.parts.loc.dims());
            sums.loc = Some(reshape(reshape(grad, [c / items, items, m]).sum_dim(0), [items, m]));
        }
        let sign = if samples.is_some() { -1.0 } else { 1.0 };
        Tensor::cat(self.parts.gradients(sums, sign), 0)
    }

    /// R and C of a block.
    fn factors<E: Number>(
        &self,
        block: &Range<usize>,
        samples: Option<&Tensor<2>>,
        grad: &Tensor<2>,
    ) -> [Tensor<2>; 2] {
        let grad = kernels::columns::<E>(grad.clone().slice([block.clone()]), |_| None);
        let Some(samples) = samples else {
            return [grad, self.scaled::<E>(block)];
        };
        let c = self.parts.solve(grad, false).expect("a factor that was solved with");
        [centred::<E>(samples, &self.parts.loc, block), c]
    }
}
