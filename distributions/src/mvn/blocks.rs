//! A distribution on the CPU, without its graph: a block of vectors at a time.
//!
//! Samples and distances are nodes of the graph with derivatives of their own, which come to the same sums. With columns R and C
//! and `U = I + L`, the gradient of the factor's values is `R C^T` at the pattern, and that of a diagonal D the sum of
//! `U^T R * C / (2 D)` over the columns, elementwise and up to the sign. What R and C are is said where they are made.

use super::kernels::{Number, Numbers};
use super::{Factor, Form, SparseMultivariateNormal, kernels};
use crate::normal::is_cpu;
use crate::threads::map;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};
use sparsegrad::error::TriangularError;
use sparsegrad::internals::reshape;
use sparsegrad::{SparseTensor, sddmm};
use sparsegrad_solvers::internals::{is_tracked, plain};
use std::ops::Range;

/// The columns of each block: so many of long ones, more of short ones.
pub fn ranges(rows: usize, columns: usize, wide: usize) -> impl Iterator<Item = Range<usize>> {
    /// Fewer numbers are not worth a block.
    const SMALL: usize = 1 << 16;
    let width = wide.max(SMALL / rows.max(1));
    (0..columns).step_by(width).map(move |first| first..columns.min(first + width))
}

impl<const D: usize> SparseMultivariateNormal<D> {
    /// Whether so many vectors are worked on in blocks: in f32 or f64 on the CPU, if there are any.
    pub(super) fn is_in_blocks(&self, vectors: usize) -> bool {
        is_cpu(&self.device()) && !self.column_shape(vectors).contains(&0)
    }

    /// Without a graph; and location, values and diagonal as they are, each as one column.
    pub(super) fn parts(&self) -> (Parts, [Option<Tensor<2>>; 3]) {
        let [m, _, i] = self.column_shape(1);
        let (loc, factor) = (reshape(self.loc.clone(), [i, m]), self.factor.matrix());
        let diagonal = self.diagonal.clone().map(|diagonal| {
            let [_, items, n] = diagonal.dims();
            match self.factor {
                Factor::Shared(_) => reshape(diagonal, [items, n]),
                Factor::Each(_) => reshape(diagonal.expand([1, self.items(), n]), [1, m]),
            }
        });
        let operands = [Some(below(loc.clone())), Some(below(factor.values().clone())), diagonal.clone().map(below)];
        let (loc, diagonal) = (plain(loc), diagonal.map(plain));
        (Parts { form: self.form, factor: factor.map_values(plain), loc, diagonal }, operands)
    }
}

/// All numbers as one column.
pub(super) fn below<const R: usize>(numbers: Tensor<R>) -> Tensor<2> {
    let count = numbers.shape().num_elements();
    reshape(numbers, [count, 1])
}

/// Which of some operands gradients flow back from.
pub(super) fn tracked<const N: usize>(operands: &[Option<Tensor<2>>; N]) -> [bool; N] {
    operands.each_ref().map(|operand| operand.as_ref().is_some_and(is_tracked))
}

/// What a distribution is made of. Vectors take the rows of location and diagonal in turn.
pub(super) struct Parts {
    pub form: Form,
    /// M x M: of a batch, block-diagonal.
    pub factor: SparseTensor<2>,
    /// 1 (or items) x M.
    pub loc: Tensor<2>,
    /// 1 (or items) x M.
    pub diagonal: Option<Tensor<2>>,
}

/// Parts of gradients, as far as they are wanted.
pub(super) struct Sums {
    /// Of columns that take the same row of the location.
    pub loc: Option<Tensor<2>>,
    /// `R C^T` at the pattern.
    pub values: Option<Tensor<1>>,
    /// `U^T R * C` of columns that take the same row of the diagonal.
    pub diagonal: Option<Tensor<2>>,
    /// What is not summed: gradients of the vectors of each block, as rows.
    pub rows: Vec<Tensor<2>>,
}

impl Sums {
    /// Those of all blocks, added in their order however many are made at a time.
    pub fn of(blocks: &[Range<usize>], of_block: impl Fn(&Range<usize>) -> Self + Sync) -> Self {
        let mut sums: Option<Self> = None;
        for together in blocks.chunks(rayon::current_num_threads()) {
            for part in map(together, &of_block) {
                sums = Some(match sums {
                    Some(sums) => sums.plus(part),
                    None => part,
                });
            }
        }
        sums.expect("a block")
    }

    fn plus(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        Self {
            rows: self.rows,
            loc: self.loc.zip(other.loc).map(|(sum, loc)| sum + loc),
            values: self.values.zip(other.values).map(|(sum, values)| sum + values),
            diagonal: self.diagonal.zip(other.diagonal).map(|(sum, diagonal)| sum + diagonal),
        }
    }
}

impl Parts {
    pub fn times(&self, columns: Tensor<2>, transpose: bool) -> Tensor<2> {
        self.form.times(&self.factor, columns, transpose)
    }

    pub fn solve(&self, columns: Tensor<2>, transpose: bool) -> Result<Tensor<2>, TriangularError> {
        self.form.solve(&self.factor, columns, transpose)
    }

    /// `R C^T` at the pattern, and the sums of `U^T R * C`, of those that are tracked.
    pub fn sums<E: Number>(
        &self,
        block: &Range<usize>,
        [r, c]: [Tensor<2>; 2],
        pulled: impl FnOnce(Tensor<2>) -> Tensor<2>,
        [of_values, of_diagonal]: [bool; 2],
    ) -> Sums {
        let values = of_values.then(|| sddmm(self.factor.pattern(), r.clone(), c.clone()).values().clone());
        let diagonal = self.diagonal.as_ref().filter(|_| of_diagonal);
        let diagonal = diagonal.map(|diagonal| sum_in_turn::<E>(pulled(r) * c, diagonal, block));
        Sums { loc: None, values, diagonal, rows: vec![] }
    }

    /// The gradients of location, values and diagonal, from sums up to a sign; 0 where there are none.
    pub fn gradients(&self, Sums { loc, values, diagonal, .. }: Sums, sign: f64) -> Vec<Tensor<2>> {
        let loc = loc.unwrap_or_else(|| self.loc.zeros_like());
        let values = values.map_or_else(|| self.factor.values().zeros_like(), |values| values * sign);
        let of_diagonal = self.diagonal.clone().map(|d| match diagonal {
            Some(sums) => sums / d * (sign / 2.0),
            None => d.zeros_like(),
        });
        [below(loc), below(values)].into_iter().chain(of_diagonal.map(below)).collect()
    }
}

/// Rows of a block as columns, from each of which the row of the location that it takes is subtracted.
pub(super) fn centred<E: Number>(rows: &Tensor<2>, loc: &Tensor<2>, block: &Range<usize>) -> Tensor<2> {
    let ([items, m], loc) = (loc.dims(), Numbers::of(loc.clone()));
    let loc = E::slice(&loc);
    let loc = |column: usize| Some(&loc[(block.start + column) % items * m..][..m]);
    kernels::columns(rows.clone().slice([block.clone()]), loc)
}

/// The rows that the columns of a block take in turn, or the one for all.
pub(super) fn in_turn(rows: &Tensor<2>, block: &Range<usize>) -> Tensor<2> {
    match rows.dims() {
        [1, _] => rows.clone(),
        [items, _] => rows.clone().select(0, turns(items, block, rows)),
    }
}

/// The sums of the columns of a block that take the same one of some rows.
pub(super) fn sum_in_turn<E: Number>(columns: Tensor<2>, rows: &Tensor<2>, block: &Range<usize>) -> Tensor<2> {
    match rows.dims() {
        [1, _] => kernels::row_sums::<E>(columns),
        [items, _] => {
            let turns = turns(items, block, rows);
            rows.zeros_like().select_assign(0, turns, columns.transpose(), IndexingUpdateOp::Add)
        }
    }
}

/// Columns of a block, each row times a number of the row of `weights` that its column takes, and each number of a vector times one
/// of `grad`, which has them vector by vector, one for each of the items that lie below each other.
pub(super) fn weighed<E: Number>(
    columns: Tensor<2>,
    weights: Option<&Tensor<2>>,
    grad: Option<&[E]>,
    block: &Range<usize>,
) -> Tensor<2> {
    let items = grad.map_or(1, |grad| grad.len() / block.len());
    let of_columns = |item: usize| match grad {
        Some(grad) => grad[item..].iter().step_by(items).copied().collect(),
        None => vec![E::ONE; block.len()],
    };
    match weights {
        Some(weights) if weights.dims()[0] == 1 => {
            let weights = Numbers::of(weights.clone());
            let weights = E::slice(&weights);
            kernels::scaled(columns, items, |row| weights[row], of_columns)
        }
        Some(weights) => {
            let columns = columns * in_turn(weights, block).transpose();
            weighed(columns, None, grad, block)
        }
        None if grad.is_some() => kernels::scaled(columns, items, |_| E::ONE, of_columns),
        None => columns,
    }
}

fn turns(items: usize, block: &Range<usize>, like: &Tensor<2>) -> Tensor<1, Int> {
    let turns: Vec<i64> = block.clone().map(|column| (column % items) as i64).collect();
    Tensor::from_data(turns.as_slice(), &like.device())
}
