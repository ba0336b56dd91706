//! Other distributions from one: larger batches, affine maps, conditioning; and factors with a positive diagonal.

use super::check::per_item;
use super::cholesky::cholesky;
use super::layout::{expand, flat, unflat};
use super::{Factor, Form, MvnError, SparseMultivariateNormal};
use burn::tensor::{Device, Int, Tensor, activation::softplus};
use sparsegrad::internals::reshape;
use sparsegrad::{SparseTensor, spgemm};

/// A positive function of any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Positive {
    /// `log(1 + e^x)`: like x for large x, and never steeper.
    #[default]
    Softplus,
    /// `e^x`.
    Exp,
}

impl Positive {
    /// The function of each number.
    pub fn of<const D: usize>(self, numbers: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Softplus => softplus(numbers, 1.0),
            Self::Exp => numbers.exp(),
        }
    }
}

/// A factor whose stored diagonal is made positive by a function: what a network may predict freely, and an LLT form takes.
///
/// # Errors
/// If a row has no diagonal entry.
///
/// ```
/// use burn::tensor::Device;
/// use sparsegrad::SparseTensor;
/// use sparsegrad_distributions::{Positive, positive_diagonal};
///
/// let l = SparseTensor::from_triplets(&[0, 1, 1], &[0, 0, 1], &[-1.0f32, 3.0, 0.0], [2, 2], &Device::flex())?;
/// let l = positive_diagonal(&l, Positive::Exp)?;
/// assert_eq!(l.get(1, 1)?, Some(1.0));
/// assert_eq!(l.get(1, 0)?, Some(3.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn positive_diagonal(factor: &SparseTensor<2>, function: Positive) -> Result<SparseTensor<2>, MvnError> {
    Ok(factor.set_diagonal(0, function.of(factor.get_diagonal(0)))?)
}

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The distribution for each item of a larger batch, whose shape `[*batch, n]` the location is expanded to.
    ///
    /// # Errors
    /// If the shape does not end with that of the location, or each item has a factor or a diagonal of its own: only what all
    /// items share can be shared by more.
    pub fn expand<const E: usize>(&self, shape: [usize; E]) -> Result<SparseMultivariateNormal<E>, MvnError> {
        if !shape.ends_with(&self.loc.dims()) {
            let (left, right) = (self.loc.dims().to_vec(), shape.to_vec());
            return Err(MvnError::Distributions { op: "expand", left, right });
        }
        let own = matches!(self.factor, Factor::Each(_)) || self.diagonal.as_ref().is_some_and(|d| d.dims()[1] > 1);
        if own && shape.as_slice() != self.loc.dims() {
            let reason = "is each item's own: make a larger batch of them first";
            return Err(MvnError::Form { what: "the factor or diagonal", form: self.form, reason });
        }
        let Self { form, factor, diagonal, .. } = self.clone();
        Ok(SparseMultivariateNormal { form, loc: self.loc.clone().expand(shape), factor, diagonal })
    }

    /// The distribution of `scale * x + shift`, elementwise: `shift` of the location's shape, `scale` `[n]`, without a zero. Where each
    /// item has its own factor, `scale` may be of the location's shape.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn affine<const E: usize>(&self, shift: Tensor<D>, scale: Tensor<E>) -> Result<Self, MvnError> {
        let dims = self.loc.dims();
        if shift.dims() != dims {
            let (left, right) = (dims.to_vec(), shift.dims().to_vec());
            return Err(MvnError::Distributions { op: "affine", left, right });
        }
        let scale = per_item(scale, &dims)?;
        let [_, i, n] = scale.dims();
        if i > 1 && matches!(self.factor, Factor::Shared(_)) {
            return Err(MvnError::DiagonalShape { diagonal: dims.to_vec(), loc: vec![n] });
        }
        let loc = self.loc.clone() * reshape(expand(scale.clone(), [1, self.items(), n]), dims) + shift;

        // S L S^-1 keeps ones on the diagonal; S L sign(S) keeps it positive.
        let inverse = scale.clone().recip();
        let (rows, columns) = match self.form {
            Form::CovarianceLlt => (scale.clone(), scale.clone().sign()),
            Form::PrecisionLlt => (inverse, scale.clone().sign()),
            Form::CovarianceLdlt => (scale.clone(), inverse),
            Form::PrecisionLdlt => (inverse, scale.clone()),
        };
        let factor = self.factor.map(
            |factor| factor.scale(reshape(rows.clone(), [n]), reshape(columns.clone(), [n])),
            |factor| {
                let each =
                    |numbers: &Tensor<3>| reshape(expand(numbers.clone(), [1, self.items(), n]), [self.items(), n]);
                factor.scale(each(&rows), each(&columns))
            },
        );
        let squares = scale.clone() * scale;
        let diagonal = self.diagonal.clone().map(|d| if self.form.is_precision() { d / squares } else { d * squares });
        Ok(Self { form: self.form, loc, factor, diagonal })
    }

    /// The distribution of the other entries, given those of the indices `observed` as `values`, `[*batch, observed]`, in the same order.
    ///
    /// The factor of what is left is a part of the factor, if the observed entries are the last ones in a precision form, or the
    /// first ones in a covariance form. For any others of a precision form, the precision of what is left is factorised anew, on the
    /// host: the distribution is in the LLT form then, and its factor may have more entries. Of a covariance form they are refused:
    /// reorder the variables before factorising. With A what is left and B what is observed, the mean is
    /// `loc_A - Q_AA^-1 Q_AB (b - loc_B)` for a precision Q, and `loc_A + S_AB S_BB^-1 (b - loc_B)` for a covariance S. Differentiable
    /// in the values, too.
    ///
    /// Reference: H. Rue and L. Held, *Gaussian Markov random fields*, 2005, section 2.2.
    ///
    /// # Errors
    /// Observed entries that are repeated, not there, or not the first ones of a covariance form; values that do not fit. If a
    /// precision is factorised anew: what [`precision`](Self::precision) refuses, and a pivot that is not positive.
    pub fn condition(&self, observed: &[usize], values: Tensor<D>) -> Result<Self, MvnError> {
        let (n, k, precision) = (self.event_size(), observed.len(), self.form.is_precision());
        let mut expected = self.loc.dims();
        expected[D - 1] = k;
        if values.dims() != expected {
            let found = values.dims().to_vec();
            return Err(MvnError::Vectors { op: "condition", found, expected: expected.to_vec() });
        }
        let mut at = vec![usize::MAX; n];
        for (place, &index) in observed.iter().enumerate() {
            match at.get_mut(index) {
                None => return Err(MvnError::OutOfRange { index, event: n }),
                Some(at) if *at != usize::MAX => return Err(MvnError::Repeated { index }),
                Some(at) => *at = place,
            }
        }
        let (known, left) = if precision { (n - k..n, 0..n - k) } else { (0..k, k..n) };
        if let Some(&index) = observed.iter().find(|index| !known.contains(index)) {
            if precision {
                let left: Vec<usize> = (0..n).filter(|&index| at[index] == usize::MAX).collect();
                return self.refactorised(observed, &left, values);
            }
            return Err(MvnError::Observed { form: self.form, index, count: k });
        }
        let order = &at[known.clone()];
        let device = self.device();
        let values = values.select(D - 1, indices(order, &device));

        let part = |range: &std::ops::Range<usize>| self.loc.clone().slice_dim(D - 1, range.clone());
        let block = |rows: &std::ops::Range<usize>, columns: &std::ops::Range<usize>| {
            let (rows, columns) = (rows.clone(), columns.clone());
            Ok::<_, MvnError>(match &self.factor {
                Factor::Shared(factor) => Factor::Shared(factor.slice_rows(rows)?.slice_columns(columns)?),
                Factor::Each(factor) => Factor::Each(factor.slice_rows(rows)?.slice_columns(columns)?),
            })
        };
        let diagonal = |range: &std::ops::Range<usize>| self.diagonal.clone().map(|d| d.slice_dim(2, range.clone()));
        let of = |range: &std::ops::Range<usize>| -> Result<Self, MvnError> {
            let (loc, factor, diagonal) = (part(range), block(range, range)?, diagonal(range));
            Ok(Self { form: self.form, loc, factor, diagonal })
        };
        let (known_part, left_part) = (of(&known)?, of(&left)?);
        if known.is_empty() || left.is_empty() {
            return Ok(left_part);
        }
        let residual = reshape(values - part(&known), [1, self.items(), k]);
        let shift = if precision {
            // -U_AA^-T L_BA^T (b - loc_B): the diagonal cancels.
            let cross = Self { factor: block(&known, &left)?, ..known_part };
            let pulled = cross.stored_product(cross.columns(residual), true);
            left_part.rows(left_part.solve(-pulled, true)?)
        } else {
            // L_AB U_BB^-1 (b - loc_B).
            let white = known_part.solve(known_part.columns(residual), false)?;
            let cross = Self { factor: block(&left, &known)?, ..known_part };
            cross.rows(cross.stored_product(white, false))
        };
        let mut dims = self.loc.dims();
        dims[D - 1] = left.len();
        let loc = left_part.loc.clone() + reshape(shift, dims);
        Ok(Self { loc, ..left_part })
    }

    /// The distribution of the entries that are `left`, by a new factor of their precision, `R_A R_A^T` with the rows A of R,
    /// `R R^T` the precision.
    fn refactorised(&self, observed: &[usize], left: &[usize], values: Tensor<D>) -> Result<Self, MvnError> {
        let (n, items) = (self.event_size(), self.items());
        let blocks = if matches!(self.factor, Factor::Each(_)) { items } else { 1 };
        let root = self.root("the precision of what is left")?;
        let rows = |of: &[usize]| -> Vec<usize> {
            (0..blocks).flat_map(|block| of.iter().map(move |index| block * n + index)).collect()
        };
        let (known, rest) = (root.select_rows(rows(observed))?, root.select_rows(rows(left))?);
        let factor = cholesky(&spgemm(&rest, &rest.t()))?;
        let factor = match &self.factor {
            Factor::Shared(_) => Factor::Shared(factor),
            Factor::Each(_) => Factor::Each(SparseTensor::from_block_diagonal(factor, items)?),
        };
        let part = |of: &[usize]| self.loc.clone().select(D - 1, indices(of, &self.device()));
        let residual = self.columns(reshape(values - part(observed), [1, items, observed.len()]));
        let [_, s, i] = residual.dims();
        let pulled = rest.matmul(known.t().matmul(flat(residual)));
        let made = Self { form: Form::PrecisionLlt, loc: part(left), factor, diagonal: None };
        let shift = made.solve(made.solve(unflat(-pulled, [s, i]), false)?, true)?;
        let loc = made.loc.clone() + reshape(made.rows(shift), made.loc.dims());
        Ok(Self { loc, ..made })
    }
}

/// Indices on a device.
fn indices(of: &[usize], device: &Device) -> Tensor<1, Int> {
    let of: Vec<i64> = of.iter().map(|&index| index as i64).collect();
    Tensor::from_data(of.as_slice(), device)
}
