//! Iterations on any backend, by Burn's own operations: vectors are tensors, and so are the numbers of the right-hand sides,
//! which are read only every so many iterations. A formula is a few elementwise operations, which fusing backends fuse.
//!
//! Dot products are Burn's sums, whose order a GPU may choose anew.

use super::space::{Epilogue, Formula, Map, Numbers, Side, Space};
use crate::operator::{LinearOperator, Operator};
use burn::tensor::{DType, Device, Tensor, TensorData};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Iterations between two looks at the numbers.
const LOOK_EVERY: usize = 16;

/// A tensor of items x rows x columns, or of items x 1 x columns: they broadcast.
#[derive(Debug, Clone)]
pub(crate) struct Values(Tensor<3>);

macro_rules! operators {
    ($($trait:ident $method:ident),*) => { $(
        impl $trait for Values {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                Self($trait::$method(self.0, other.0))
            }
        }
    )* };
}
operators!(Add add, Sub sub, Mul mul, Div div);

impl Neg for Values {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.neg())
    }
}

impl Numbers for Values {
    fn like(&self, value: f64) -> Self {
        Self(self.0.full_like(value))
    }

    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }

    fn abs(self) -> Self {
        Self(self.0.abs())
    }

    fn choose(condition: &Self, then: Self, otherwise: Self) -> Self {
        let condition = condition.0.clone().greater_elem(0.0);
        Self(otherwise.0.mask_where(condition, then.0))
    }
}

/// A problem on any backend.
pub(crate) struct OnDevice {
    items: usize,
    cols: usize,
    /// Rows of the two sides, of an item.
    domain: usize,
    range: usize,
    dtype: DType,
    device: Device,
    operator: Operator,
    transpose: bool,
    scale: f64,
    preconditioner: Option<Operator>,
    frobenius: Option<Vec<f64>>,
}

impl OnDevice {
    /// As the space on the host.
    pub(crate) fn new(
        a: &Operator,
        preconditioner: Option<&Operator>,
        transpose: bool,
        cols: usize,
        scale: f64,
        both: bool,
    ) -> Self {
        let items = a.items();
        let [m, n] = a.shape().map(|size| size / items.max(1));
        let [range, domain] = if transpose { [n, m] } else { [m, n] };
        // Only least squares ask for it.
        let frobenius = both.then(|| norms_of_items(a, scale)).flatten();
        let frobenius = frobenius.map(|norms| norms.into_iter().flat_map(|norm| vec![norm; cols]).collect());
        Self {
            items,
            cols,
            domain,
            range,
            dtype: a.dtype(),
            device: a.device(),
            operator: a.clone(),
            transpose,
            scale,
            preconditioner: preconditioner.cloned(),
            frobenius,
        }
    }

    /// The vector of a tensor.
    pub(crate) fn vector(&self, side: Side, tensor: Tensor<2>) -> Values {
        Values(tensor.reshape([self.items, self.rows(side), self.cols]))
    }

    /// The tensor of a vector.
    pub(crate) fn tensor(&self, vector: Values) -> Tensor<2> {
        let [items, rows, cols] = vector.0.dims();
        vector.0.reshape([items * rows, cols])
    }

    fn rows(&self, side: Side) -> usize {
        match side {
            Side::Domain => self.domain,
            Side::Range => self.range,
        }
    }
}

/// The norm of each item's entries, if they are at hand.
fn norms_of_items(a: &Operator, scale: f64) -> Option<Vec<f64>> {
    let matrix = a.stored()?;
    let of_item = a.shape()[0] / a.items().max(1);
    let mut squares = vec![0.0; a.items()];
    for (row, _, value) in matrix.triplets().ok()? {
        squares[row / of_item] += (value * scale) * (value * scale);
    }
    Some(squares.into_iter().map(f64::sqrt).collect())
}

impl Space for OnDevice {
    type Vector = Values;
    type Numbers = Values;

    fn groups(&self) -> usize {
        self.items * self.cols
    }

    fn epsilon(&self) -> f64 {
        self.dtype.finfo().map_or(f64::EPSILON, |info| info.epsilon)
    }

    fn look_every(&self) -> usize {
        LOOK_EVERY
    }

    fn zeros(&self, side: Side) -> Values {
        Values(Tensor::zeros([self.items, self.rows(side), self.cols], (&self.device, self.dtype)))
    }

    fn number(&self, value: f64) -> Values {
        Values(Tensor::full([self.items, 1, self.cols], value, (&self.device, self.dtype)))
    }

    fn upload(&self, values: &[f64]) -> Values {
        let data = TensorData::new(values.to_vec(), [self.items, 1, self.cols]);
        Values(Tensor::from_data(data, (&self.device, self.dtype)))
    }

    fn read(&self, numbers: &[Values]) -> Vec<Vec<f64>> {
        if numbers.is_empty() || self.groups() == 0 {
            return vec![vec![]; numbers.len()];
        }
        let together = Tensor::cat(numbers.iter().map(|values| values.0.clone()).collect(), 1);
        let data: Vec<f64> = together.into_data().iter::<f64>().collect();
        let number = |at: usize, group: usize| {
            let (item, col) = (group / self.cols, group % self.cols);
            data[(item * numbers.len() + at) * self.cols + col]
        };
        (0..numbers.len()).map(|at| (0..self.groups()).map(|group| number(at, group)).collect()).collect()
    }

    fn max_abs(&self, x: &Values) -> Vec<f64> {
        if x.0.dims()[1] == 0 {
            return vec![0.0; self.groups()];
        }
        // A maximum may forget what is not a number: a sum does not.
        let largest = Values(x.0.clone().abs().max_dim(1));
        let zero = Values((x.0.clone() * 0.0).sum_dim(1));
        let [largest] = <[Vec<f64>; 1]>::try_from(self.read(&[largest + zero])).expect("one was read");
        largest
    }

    fn frobenius(&self) -> Option<Vec<f64>> {
        self.frobenius.clone()
    }

    fn restore(&self, keep: &[f64], from: &Values, x: &mut Values) {
        let [items, rows, cols] = x.0.dims();
        let keep = self.upload(keep).0.greater_elem(0.0).expand([items, rows, cols]);
        *x = Values(from.0.clone().mask_where(keep, x.0.clone()));
    }

    fn is_preconditioned(&self) -> bool {
        self.preconditioner.is_some()
    }

    fn update<F, const C: usize, const R: usize, const W: usize, const D: usize>(
        &self,
        _: F,
        c: [&Values; C],
        r: [&Values; R],
        w: [&mut Values; W],
    ) -> [Values; D]
    where
        F: Formula<C, R, W, D>,
    {
        let old = w.each_ref().map(|w| (**w).clone());
        let (new, terms) = F::eval(c.map(Clone::clone), r.map(Clone::clone), old);
        for (w, new) in w.into_iter().zip(new) {
            *w = new;
        }
        terms.map(|terms| Values(terms.0.sum_dim(1)))
    }

    fn apply<F, const C: usize, const R: usize, const D: usize>(
        &self,
        map: Map,
        _: F,
        c: [&Values; C],
        x: &Values,
        r: [&Values; R],
        out: &mut Values,
    ) -> [Values; D]
    where
        F: Epilogue<C, R, D>,
    {
        let preconditioner = || self.preconditioner.as_ref().expect("a space with a preconditioner");
        let (operator, transpose, scale) = match map {
            Map::Operator => (&self.operator, self.transpose, self.scale),
            Map::Transposed => (&self.operator, !self.transpose, self.scale),
            Map::Preconditioner => (preconditioner(), self.transpose, 1.0),
            Map::PreconditionerTransposed => (preconditioner(), !self.transpose, 1.0),
        };
        let x = self.tensor(x.clone());
        let product = if transpose { operator.apply_transpose(x) } else { operator.apply(x) };
        let product = if scale == 1.0 { product } else { product.mul_scalar(scale) };
        let product = Values(product.reshape(out.0.dims()));
        let (new, terms) = F::eval(c.map(Clone::clone), product, r.map(Clone::clone), out.clone());
        *out = new;
        terms.map(|terms| Values(terms.0.sum_dim(1)))
    }
}
