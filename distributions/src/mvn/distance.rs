//! Squared distances on the CPU, a block of vectors at a time.
//!
//! With `d = x - loc` in columns, `U = I + L` and the gradient g of the squared distances, gradients are the sums of
//! [`blocks`](super::blocks) of
//!
//! | form | y | squared distance | sign | R, the gradient of x for a covariance | C |
//! |---|---|---|---|---|---|
//! | covariance `L L^T` | `L^-1 d` | `|y|^2` | - | `L^-T 2 g y` | `y` |
//! | covariance `U D U^T` | `U^-1 d` | `|D^-1/2 y|^2` | - | `U^-T 2 g D^-1 y` | `y` |
//! | precision `L L^T` | `L^T d` | `|y|^2` | + | `d` | `2 g y` |
//! | precision `U D U^T` | `U^T d` | `|D^1/2 y|^2` | + | `d` | `2 g D y` |
//!
//! and for a precision the gradient of x is `L C`, or `U C`. The graph keeps the vectors, and of a covariance y, as a solve is dear.

use super::blocks::{Parts, Sums, below, centred, in_turn, ranges, sum_in_turn, tracked, weighed};
use super::kernels::{Number, Numbers};
use super::{Factor, MvnError, SparseMultivariateNormal, kernels};
use crate::threads::map;
use burn::tensor::{Tensor, TensorData};
use sparsegrad::internals::reshape;
use sparsegrad_solvers::internals::{lifted, node, plain};
use std::ops::Range;

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The squared distances of vectors, S x items x n: S x items.
    pub(super) fn distances_in_blocks<E: Number>(&self, vectors: Tensor<3>) -> Result<Tensor<2>, MvnError> {
        let ([count, items, _], device) = (vectors.dims(), self.device());
        let [m, s, i] = self.column_shape(count);
        let rows: Tensor<2> = reshape(vectors, [s * i, m]);
        let (parts, [loc, values, diagonal]) = self.parts();
        let operands = [Some(below(rows.clone())), loc, values, diagonal];
        let tracked = tracked(&operands);
        let below_each_other = if matches!(self.factor, Factor::Each(_)) { items } else { 1 };
        let precision = self.form.is_precision();
        let distances = Distances {
            weights: parts.diagonal.clone().map(|d| if precision { d } else { d.recip() }),
            parts,
            rows: plain(rows),
            below_each_other,
            blocks: ranges(m, s * i, WIDE).collect(),
            white: vec![],
        };
        let of_blocks = map(&distances.blocks, |block| distances.of_block::<E>(block, tracked != [false; 4]));
        let (found, white): (Vec<_>, Vec<_>) =
            of_blocks.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let distances = Distances { white, ..distances };
        let found = TensorData::new(found.concat(), [s * i, below_each_other]);
        let found = lifted(Tensor::from_data(found, (&device.clone().inner(), E::dtype())), &device);
        let found = if tracked == [false; 4] {
            found
        } else {
            let wanted = operands.into_iter().flatten().skip(usize::from(!tracked[0]));
            node(found, Tensor::cat(wanted.collect(), 0), move |grad| distances.gradients::<E>(grad, tracked))
        };
        Ok(reshape(found, [count, items]))
    }
}

/// The columns of a block of long ones: wide enough for solves to keep the processor busy.
const WIDE: usize = 16;

struct Distances {
    parts: Parts,
    /// D for a precision, its inverse for a covariance.
    weights: Option<Tensor<2>>,
    /// The vectors.
    rows: Tensor<2>,
    /// How many items' numbers a vector has.
    below_each_other: usize,
    blocks: Vec<Range<usize>>,
    /// y of each block, if it is kept.
    white: Vec<Option<Tensor<2>>>,
}

impl Distances {
    /// The squared distances of a block, and y, if it is to be kept.
    fn of_block<E: Number>(
        &self,
        block: &Range<usize>,
        keeps: bool,
    ) -> Result<(Vec<f64>, Option<Tensor<2>>), MvnError> {
        let (centred, precision) = (centred::<E>(&self.rows, &self.parts.loc, block), self.parts.form.is_precision());
        let white = if precision { self.parts.times(centred, true) } else { self.parts.solve(centred, false)? };
        // Each vector has its own D, or all have one.
        let (own, one) = match &self.weights {
            Some(weights) if weights.dims()[0] > 1 => (Some(in_turn(weights, block).sqrt()), None),
            weights => (None, weights.clone().map(Numbers::of)),
        };
        let numbers = Numbers::of(match own {
            Some(roots) => white.clone() * roots.transpose(),
            None => white.clone(),
        });
        let ([m, b], items) = (white.dims(), self.below_each_other);
        let (of_item, one) = (m / items, one.as_ref().map(E::slice));
        let mut found = vec![0.0; b * items];
        for (item, numbers) in E::slice(&numbers).chunks_exact(of_item * b).enumerate() {
            let squares = match one.map(|one| &one[item * of_item..]) {
                Some(one) => kernels::squares(numbers, b, |row| one[row]),
                None => kernels::squares(numbers, b, |_| E::ONE),
            };
            squares.into_iter().enumerate().for_each(|(column, square)| found[column * items + item] = square);
        }
        Ok((found, (keeps && !precision).then_some(white)))
    }

    /// The gradients of the vectors, if they are tracked, of location, values and diagonal, below each other.
    fn gradients<E: Number>(&self, grad: Tensor<2>, tracked: [bool; 4]) -> Tensor<2> {
        let at: Vec<_> = (0..self.blocks.len()).map(|at| at..at + 1).collect();
        let mut sums = Sums::of(&at, |at| self.sums::<E>(at.start, &grad, tracked));
        let precision = self.parts.form.is_precision();
        sums.loc = sums.loc.map(|sums| match precision {
            true => self.parts.times(sums.transpose(), false).transpose().neg(),
            false => sums.neg(),
        });
        let vectors = std::mem::take(&mut sums.rows).into_iter().map(below);
        let others = self.parts.gradients(sums, if precision { 1.0 } else { -1.0 });
        Tensor::cat(vectors.chain(others).collect(), 0)
    }

    fn sums<E: Number>(
        &self,
        at: usize,
        grad: &Tensor<2>,
        [of_vectors, of_loc, of_values, of_diagonal]: [bool; 4],
    ) -> Sums {
        let block = &self.blocks[at];
        let grad = Numbers::of(grad.clone().slice([block.clone()]) * 2.0);
        let grad = E::slice(&grad);
        let weigh = |white: Tensor<2>| weighed(white, self.weights.as_ref(), Some(grad), block);
        let wanted = [of_values, of_diagonal];
        let of_loc = |columns: Tensor<2>| of_loc.then(|| sum_in_turn::<E>(columns, &self.parts.loc, block));
        let as_rows = |columns: Tensor<2>| vec![columns.transpose()];
        match &self.white[at] {
            Some(white) => {
                let pulled = weigh(white.clone());
                let of_x = self.parts.solve(pulled.clone(), true).expect("a factor that was solved with");
                let loc = of_loc(of_x.clone());
                let rows = if of_vectors { as_rows(of_x.clone()) } else { vec![] };
                Sums { loc, rows, ..self.parts.sums::<E>(block, [of_x, white.clone()], |_| pulled, wanted) }
            }
            None => {
                let centred = centred::<E>(&self.rows, &self.parts.loc, block);
                let white = self.parts.times(centred.clone(), true);
                let c = weigh(white.clone());
                let loc = of_loc(c.clone());
                let rows = if of_vectors { as_rows(self.parts.times(c.clone(), false)) } else { vec![] };
                Sums { loc, rows, ..self.parts.sums::<E>(block, [centred, c], |_| white, wanted) }
            }
        }
    }
}
