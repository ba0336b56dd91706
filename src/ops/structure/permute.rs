//! Permutations, and rows and columns in another order.

use super::select::{Pick, pick, sizes};
use crate::backend::check::{Check, Operand, expect};
use crate::error::{OpError, PermutationError};
use crate::ops::gather::gather;
use crate::pattern::{Conversion, Index, IntoIndices, PairPlan, Pattern, csr_of, with_rows};
use crate::tensor::{SparseTensor, reshape};
use burn::tensor::{Int, Tensor, TensorData};
use std::convert::Infallible;
use std::fmt;

/// A permutation P of n things, checked: at new place i stands old thing `order()[i]`.
///
/// As a matrix, `(P x)_i = x_order(i)` and `(P A P^T)_ij = a_order(i)order(j)`. Cheap to clone, and [`inverse`](Self::inverse) too:
/// it is the transpose. What is planned for a pattern and a permutation is kept with the pattern while both live.
///
/// ```
/// use sparsegrad::{ops::structure::Permutation, prelude::*};
///
/// let p = Permutation::new([2, 0, 1])?;
/// let device = Device::flex();
/// let x = Tensor::<1>::from_data([10.0f32, 20.0, 30.0], &device);
/// let y = p.apply(x.clone());
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [30.0, 10.0, 20.0]);
/// assert_eq!(p.inverse().apply(y).to_data(), x.to_data());
///
/// let error = Permutation::new([2, 0, 2]).unwrap_err();
/// assert_eq!(error.to_string(), "position 2 of the permutation is 2, as position 0 is already");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Permutation {
    /// Row i has its entry in column `order()[i]`.
    matrix: Pattern,
}

impl Permutation {
    /// The permutation that puts old thing `order[i]` at new place i.
    ///
    /// # Errors
    /// If an index is not below their number or stands twice, with its position.
    pub fn new(order: impl IntoIndices) -> Result<Self, PermutationError> {
        let order = order.into_indices();
        let length = order.len();
        if let Some(position) = order.position(|index| index < 0 || index as u64 >= length as u64) {
            return Err(PermutationError::OutOfRange { position, value: order.get(position), length });
        }
        let order: Vec<usize> = (0..length).map(|at| order.get(at) as usize).collect();
        let mut seen = vec![usize::MAX; length];
        for (position, &value) in order.iter().enumerate() {
            if seen[value] != usize::MAX {
                return Err(PermutationError::Repeated { position, value, first: seen[value] });
            }
            seen[value] = position;
        }
        Ok(Self::trusted(&order))
    }

    /// Of an order that is known to be one.
    pub(super) fn trusted(order: &[usize]) -> Self {
        let offsets: Vec<usize> = (0..=order.len()).collect();
        Self { matrix: csr_of(&offsets, order, [order.len(); 2], true, true) }
    }

    /// The permutation of n things that leaves them where they are.
    pub fn identity(n: usize) -> Self {
        Self::trusted(&(0..n).collect::<Vec<_>>())
    }

    /// How many things there are.
    pub fn len(&self) -> usize {
        self.matrix.nnz()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The old place of each new one.
    pub fn order(&self) -> Vec<usize> {
        with_rows!(self.matrix.rows(), rows => rows.columns.iter().map(|column| column.get()).collect())
    }

    /// The permutation as a matrix: its pattern, whose values are ones.
    pub fn matrix(&self) -> &Pattern {
        &self.matrix
    }

    /// What puts all back.
    pub fn inverse(&self) -> Self {
        Self { matrix: self.matrix.t() }
    }

    /// First `before`, then this one: as matrices, `self before`.
    ///
    /// # Panics
    /// If they are of different numbers of things.
    ///
    /// ```
    /// use sparsegrad::ops::structure::Permutation;
    ///
    /// let (p, q) = (Permutation::new([1, 2, 0])?, Permutation::new([1, 0, 2])?);
    /// assert_eq!(p.compose(&q).order(), [0, 2, 1]);
    /// assert_eq!(p.compose(&p.inverse()), Permutation::identity(3));
    /// # Ok::<(), sparsegrad::error::PermutationError>(())
    /// ```
    #[track_caller]
    pub fn compose(&self, before: &Self) -> Self {
        assert_eq!(self.len(), before.len(), "compose: permutations of different length");
        let first = before.order();
        Self::trusted(&self.order().into_iter().map(|at| first[at]).collect::<Vec<_>>())
    }

    /// `P x` for a vector; for a matrix its rows in the new order; for more dimensions the rows of each matrix, which are the last
    /// but one.
    ///
    /// # Gradient
    /// The inverse of the gradient.
    ///
    /// # Panics
    /// Where [`try_apply`](Self::try_apply) returns an error.
    #[track_caller]
    pub fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        expect(self.try_apply(x))
    }

    /// [`apply`](Self::apply), with an operand of another length as an error.
    ///
    /// # Errors
    /// If there are not as many elements, or rows, as the permutation has things.
    pub fn try_apply<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>, OpError> {
        let (operand, dim) = (Operand::from(&x), D.saturating_sub(2));
        let this = operand.with_shape(&[self.len()]);
        let fits = x.dims().get(dim) == Some(&self.len());
        Check { op: "permutation" }.shapes(fits, "as many rows as the permutation is of", &this, &operand)?;
        if x.shape().num_elements() == 0 {
            return Ok(x);
        }
        if D == 1 {
            let dims = x.dims();
            return Ok(reshape(gather(&self.matrix, reshape(x, [self.len()])), dims));
        }
        let order: Vec<i64> = self.order().into_iter().map(|at| at as i64).collect();
        let data = TensorData::new(order, [self.len()]);
        let order = Tensor::<1, Int>::from_data(data, &x.device());
        Ok(x.select(dim, order))
    }

    /// That it is of as many things as a matrix has rows or columns.
    fn fits<const D: usize>(&self, a: &SparseTensor<D>, axis: usize) -> Result<(), OpError> {
        let operand = Operand::sparse(&a.shape(), a.values());
        let this = operand.with_shape(&[self.len()]);
        let what = ["as many rows as the permutation is of", "as many columns as the permutation is of"][axis];
        Check { op: "permutation" }.shapes(sizes(a).1[axis] == self.len(), what, &this, &operand)
    }
}

impl PartialEq for Permutation {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}
impl Eq for Permutation {}

impl fmt::Debug for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permutation").field(&self.order()).finish()
    }
}

/// Rows in another order.
struct Rows(Conversion);
/// Rows and columns in another order, the same.
struct Both(Conversion);

impl PairPlan for Rows {
    fn patterns(&self) -> Vec<Pattern> {
        patterns(&self.0)
    }
}

impl PairPlan for Both {
    fn patterns(&self) -> Vec<Pattern> {
        patterns(&self.0)
    }
}

fn patterns(conversion: &Conversion) -> Vec<Pattern> {
    conversion.gather.iter().chain([&conversion.pattern]).cloned().collect()
}

fn picked(pattern: &Pattern, items: usize, picks: [Pick; 2]) -> Conversion {
    pick(pattern, items, picks).expect("no larger than before")
}

fn rows(pattern: &Pattern, items: usize, p: &Permutation) -> Conversion {
    let make = || Ok::<_, Infallible>(Rows(picked(pattern, items, [Pick::List(&p.order()), Pick::All])));
    let Ok(plan) = pattern.plan_with(p.matrix(), make);
    plan.0.clone()
}

impl<const D: usize> SparseTensor<D> {
    /// `P A`: the rows in another order. Of a batch: of each item.
    ///
    /// # Gradient
    /// Of each entry: that of its copy. So it is for all permutations.
    ///
    /// # Panics
    /// Where [`try_permute_rows`](Self::try_permute_rows) returns an error.
    #[track_caller]
    pub fn permute_rows(&self, p: &Permutation) -> Self {
        expect(self.try_permute_rows(p))
    }

    /// [`permute_rows`](Self::permute_rows), with a permutation of another length as an error.
    ///
    /// # Errors
    /// If it is not of as many things as there are rows.
    pub fn try_permute_rows(&self, p: &Permutation) -> Result<Self, OpError> {
        p.fits(self, 0)?;
        Ok(self.converted_to(rows(self.pattern(), sizes(self).0, p), self.shape()))
    }

    /// `A P^T`: the columns in another order, new column j is old column `p.order()[j]`. Of a batch: of each item.
    ///
    /// # Panics
    /// Where [`try_permute_columns`](Self::try_permute_columns) returns an error.
    #[track_caller]
    pub fn permute_columns(&self, p: &Permutation) -> Self {
        expect(self.try_permute_columns(p))
    }

    /// [`permute_columns`](Self::permute_columns), with a permutation of another length as an error.
    ///
    /// # Errors
    /// If it is not of as many things as there are columns.
    pub fn try_permute_columns(&self, p: &Permutation) -> Result<Self, OpError> {
        p.fits(self, 1)?;
        let Conversion { pattern, gather } = rows(&self.pattern().t(), sizes(self).0, p);
        Ok(self.converted_to(Conversion { pattern: pattern.t(), gather }, self.shape()))
    }

    /// `P A Q^T`: rows by one permutation, columns by another. Of a batch: of each item.
    ///
    /// # Panics
    /// If they are not of as many things as there are rows and columns.
    #[track_caller]
    pub fn permute(&self, p: &Permutation, q: &Permutation) -> Self {
        self.permute_rows(p).permute_columns(q)
    }

    /// `P A P^T`: rows and columns of a square matrix in the same new order. Of a batch: of each item.
    ///
    /// The solution of `A x = b` is that of `(P A P^T) (P x) = P b`, put back by the inverse.
    ///
    /// # Panics
    /// Where [`try_permute_symmetric`](Self::try_permute_symmetric) returns an error.
    ///
    /// ```
    /// use sparsegrad::{ops::structure::Permutation, prelude::*};
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::from_triplets(&[0, 1, 2], &[0, 1, 0], &[1.0f32, 2.0, 3.0], [3, 3], &device)?;
    /// let p = Permutation::new([2, 1, 0]).expect("a permutation");
    /// let b = a.permute_symmetric(&p);
    /// assert_eq!(b.triplets()?.collect::<Vec<_>>(), [(0, 2, 3.0), (1, 1, 2.0), (2, 2, 1.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn permute_symmetric(&self, p: &Permutation) -> Self {
        expect(self.try_permute_symmetric(p))
    }

    /// [`permute_symmetric`](Self::permute_symmetric), with a permutation of another length as an error.
    ///
    /// # Errors
    /// If it is not of as many things as there are rows, and columns.
    pub fn try_permute_symmetric(&self, p: &Permutation) -> Result<Self, OpError> {
        p.fits(self, 0)?;
        p.fits(self, 1)?;
        let (pattern, items, order) = (self.pattern(), sizes(self).0, p.order());
        let make = || Ok::<_, Infallible>(Both(picked(pattern, items, [Pick::List(&order), Pick::List(&order)])));
        let Ok(plan) = pattern.plan_with(p.matrix(), make);
        Ok(self.converted_to(plan.0.clone(), self.shape()))
    }
}
