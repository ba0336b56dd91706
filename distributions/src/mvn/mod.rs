//! Multivariate normal distributions whose covariance or precision has a sparse triangular factor.
//!
//! | form | factor | sample, e standard normal | `|whitened|^2` of d = x - loc | log det of the covariance |
//! |---|---|---|---|---|
//! | covariance `L L^T` | L lower, positive diagonal | `loc + L e` | `|L^-1 d|^2` | `2 sum log L_ii` |
//! | covariance `U D U^T` | `U = I + L`, L strictly lower | `loc + U sqrt(D) e` | `|D^-1/2 U^-1 d|^2` | `sum log D` |
//! | precision `L L^T` | L lower, positive diagonal | `loc + L^-T e` | `|L^T d|^2` | `-2 sum log L_ii` |
//! | precision `U D U^T` | `U = I + L`, L strictly lower | `loc + U^-T D^-1/2 e` | `|D^1/2 U^T d|^2` | `-sum log D` |
//!
//! So the logarithm of a density costs one sparse product or one triangular solve, and so does a sample.
//!
//! # Gradients
//! All that is computed is differentiable in the location, the diagonal and the factor's values; the factor's gradient is at its
//! own pattern. The `L L^T` form of a precision divides by the diagonal of L in every row of a solve, where a small entry
//! makes large gradients: [`positive_diagonal`] keeps it away from 0, and in the `U D U^T` form no row divides by anything.
//!
//! Reference: H. Rue and L. Held, *Gaussian Markov random fields*, 2005, chapter 2.

pub(crate) mod blocks;
mod check;
mod cholesky;
mod density;
mod distance;
mod divergence;
mod draw;
mod kernels;
mod layout;
mod moments;
mod sample;
mod transform;

pub use check::{Checks, MvnError};
pub use divergence::Trace;
pub use layout::{SampleShape, Vectors};
pub use transform::{Positive, positive_diagonal};

use burn::tensor::{DType, Device, Tensor};
use sparsegrad::error::TriangularError;
use sparsegrad::{SparseTensor, Triangular, sparse_triangular_solve};

/// What the factor is a factor of, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The covariance is `L L^T`.
    CovarianceLlt,
    /// The covariance is `(I + L) D (I + L)^T`.
    CovarianceLdlt,
    /// The precision, the inverse of the covariance, is `L L^T`.
    PrecisionLlt,
    /// The precision is `(I + L) D (I + L)^T`.
    PrecisionLdlt,
}

impl Form {
    /// Whether the factor is one of the precision.
    pub fn is_precision(self) -> bool {
        matches!(self, Self::PrecisionLlt | Self::PrecisionLdlt)
    }

    /// Whether the factor's diagonal is ones that aren't stored, and the distribution has a diagonal.
    pub fn is_ldlt(self) -> bool {
        matches!(self, Self::CovarianceLdlt | Self::PrecisionLdlt)
    }

    /// The factor as solves read it, or its transpose.
    fn triangle(self, transpose: bool) -> Triangular {
        let triangle = if transpose { Triangular::lower().transpose() } else { Triangular::lower() };
        if self.is_ldlt() { triangle.unit_diagonal() } else { triangle }
    }

    /// The product of the factor, with its ones on the diagonal, or of its transpose.
    fn times(self, factor: &SparseTensor<2>, columns: Tensor<2>, transpose: bool) -> Tensor<2> {
        let product = product(factor, columns.clone(), transpose);
        if self.is_ldlt() { product + columns } else { product }
    }

    /// The solution with the factor, with its ones on the diagonal, or with its transpose.
    fn solve(
        self,
        factor: &SparseTensor<2>,
        columns: Tensor<2>,
        transpose: bool,
    ) -> Result<Tensor<2>, TriangularError> {
        sparse_triangular_solve(factor, columns, self.triangle(transpose))
    }
}

/// The product of a matrix as it is stored, or of its transpose.
fn product(matrix: &SparseTensor<2>, columns: Tensor<2>, transpose: bool) -> Tensor<2> {
    if transpose { matrix.t().matmul(columns) } else { matrix.matmul(columns) }
}

/// A factor for all items of a batch, or one for each.
#[derive(Debug, Clone)]
pub enum Factor {
    /// n x n.
    Shared(SparseTensor<2>),
    /// items x n x n.
    Each(SparseTensor<3>),
}

impl From<SparseTensor<2>> for Factor {
    fn from(factor: SparseTensor<2>) -> Self {
        Self::Shared(factor)
    }
}

impl From<SparseTensor<3>> for Factor {
    fn from(factor: SparseTensor<3>) -> Self {
        Self::Each(factor)
    }
}

impl Factor {
    /// As one matrix: of a batch, the block-diagonal one.
    fn matrix(&self) -> SparseTensor<2> {
        match self {
            Self::Shared(factor) => factor.clone(),
            Self::Each(factor) => factor.to_block_diagonal(),
        }
    }

    fn map(
        &self,
        shared: impl FnOnce(&SparseTensor<2>) -> SparseTensor<2>,
        each: impl FnOnce(&SparseTensor<3>) -> SparseTensor<3>,
    ) -> Self {
        match self {
            Self::Shared(factor) => Self::Shared(shared(factor)),
            Self::Each(factor) => Self::Each(each(factor)),
        }
    }
}

/// A multivariate normal distribution over vectors of n numbers, or a batch of them: `loc` has the shape `[*batch, n]`.
///
/// The factor, sparse and lower triangular in any layout, is one for all items of the batch or one for each (items in the
/// row-major order of the batch's dimensions). See the [module](self) for the four forms, and
/// [`Checks`] for what is looked at when one is made.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use sparsegrad::SparseTensor;
/// use sparsegrad_distributions::{NormalRng, SparseMultivariateNormal};
///
/// let device = Device::flex();
/// // The precision (I + L) D (I + L)^T of three numbers in a chain.
/// let l = SparseTensor::from_triplets(&[1, 2], &[0, 1], &[-0.5f32, -0.5], [3, 3], &device)?;
/// let d = Tensor::<1>::from_data([2.0, 2.0, 2.0], &device);
/// let q = SparseMultivariateNormal::precision_ldlt(Tensor::<1>::zeros([3], &device), l, d)?;
///
/// let samples = q.rsample([100], &mut NormalRng::seeded(1)); // 100 x 3
/// let log_prob = q.log_prob(samples); // 100
/// assert_eq!(log_prob.dims(), [100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SparseMultivariateNormal<const D: usize> {
    form: Form,
    loc: Tensor<D>,
    factor: Factor,
    /// 1 x items (or 1) x n.
    diagonal: Option<Tensor<3>>,
}

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The distribution with the covariance `L L^T`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn covariance_llt(loc: Tensor<D>, l: impl Into<Factor>) -> Result<Self, MvnError> {
        Self::new(Form::CovarianceLlt, loc, l, None::<Tensor<1>>, Checks::Usual)
    }

    /// The distribution with the covariance `(I + L) D (I + L)^T`, L strictly lower triangular.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn covariance_ldlt<const E: usize>(
        loc: Tensor<D>,
        l: impl Into<Factor>,
        d: Tensor<E>,
    ) -> Result<Self, MvnError> {
        Self::new(Form::CovarianceLdlt, loc, l, Some(d), Checks::Usual)
    }

    /// The distribution with the precision `L L^T`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn precision_llt(loc: Tensor<D>, l: impl Into<Factor>) -> Result<Self, MvnError> {
        Self::new(Form::PrecisionLlt, loc, l, None::<Tensor<1>>, Checks::Usual)
    }

    /// The distribution with the precision `(I + L) D (I + L)^T`, L strictly lower triangular.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn precision_ldlt<const E: usize>(
        loc: Tensor<D>,
        l: impl Into<Factor>,
        d: Tensor<E>,
    ) -> Result<Self, MvnError> {
        Self::new(Form::PrecisionLdlt, loc, l, Some(d), Checks::Usual)
    }

    /// The distribution of any form: `loc` is `[*batch, n]`, `factor` n x n or items x n x n, and `diagonal`, which goes with the
    /// LDLT forms, `[n]` or of `loc`'s shape.
    ///
    /// # Errors
    /// * Shapes, dtypes or devices that do not fit each other.
    /// * An entry above the diagonal; in the LLT forms a row without a diagonal entry, in the LDLT forms one with.
    /// * By `checks`, a number that should be positive and isn't.
    pub fn new<const E: usize>(
        form: Form,
        loc: Tensor<D>,
        factor: impl Into<Factor>,
        diagonal: Option<Tensor<E>>,
        checks: Checks,
    ) -> Result<Self, MvnError> {
        let factor = factor.into();
        let diagonal = check::fits(form, &loc, &factor, diagonal)?;
        let made = Self { form, loc, factor, diagonal };
        check::values(&made, checks)?;
        Ok(made)
    }

    /// The form of its factor.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The location: its mean.
    pub fn loc(&self) -> &Tensor<D> {
        &self.loc
    }

    /// The factor.
    pub fn factor(&self) -> &Factor {
        &self.factor
    }

    /// The diagonal D of an LDLT form, as 1 x items x n, or 1 x 1 x n if all items share it.
    pub fn diagonal(&self) -> Option<&Tensor<3>> {
        self.diagonal.as_ref()
    }

    /// The length n of a sample.
    pub fn event_size(&self) -> usize {
        self.loc.dims()[D - 1]
    }

    /// The shape of the batch: empty without one.
    pub fn batch_shape(&self) -> Vec<usize> {
        self.loc.dims()[..D - 1].to_vec()
    }

    /// The type of its numbers.
    pub fn dtype(&self) -> DType {
        self.loc.dtype()
    }

    /// Where they live.
    pub fn device(&self) -> Device {
        self.loc.device()
    }

    /// The number of items of the batch.
    fn items(&self) -> usize {
        self.batch_shape().iter().product()
    }

    /// `A x`, column by column, where the covariance is `A A^T`.
    fn colour(&self, columns: Tensor<3>) -> Result<Tensor<3>, MvnError> {
        let scaled = match (self.form, self.diagonal_columns()) {
            (Form::CovarianceLdlt, Some(d)) => columns * d.sqrt(),
            (Form::PrecisionLdlt, Some(d)) => columns / d.sqrt(),
            _ => columns,
        };
        if self.form.is_precision() { self.solve(scaled, true) } else { Ok(self.times(scaled, false)) }
    }

    /// `B x`, column by column, where the precision is `B^T B`.
    fn whiten(&self, columns: Tensor<3>) -> Result<Tensor<3>, MvnError> {
        let precision = self.form.is_precision();
        let white = if precision { self.times(columns, true) } else { self.solve(columns, false)? };
        Ok(match self.diagonal_columns() {
            Some(d) if precision => white * d.sqrt(),
            Some(d) => white / d.sqrt(),
            None => white,
        })
    }

    /// The product of the factor, with its ones on the diagonal, or of its transpose.
    fn times(&self, columns: Tensor<3>, transpose: bool) -> Tensor<3> {
        let [_, s, i] = columns.dims();
        layout::unflat(self.form.times(&self.factor.matrix(), layout::flat(columns), transpose), [s, i])
    }

    /// The product of the factor as it is stored, which may be a rectangular part of one, or of its transpose.
    fn stored_product(&self, columns: Tensor<3>, transpose: bool) -> Tensor<3> {
        let [_, s, i] = columns.dims();
        layout::unflat(product(&self.factor.matrix(), layout::flat(columns), transpose), [s, i])
    }

    /// The solution with the factor or its transpose.
    fn solve(&self, columns: Tensor<3>, transpose: bool) -> Result<Tensor<3>, MvnError> {
        let [_, s, i] = columns.dims();
        let solution = self.form.solve(&self.factor.matrix(), layout::flat(columns), transpose)?;
        Ok(layout::unflat(solution, [s, i]))
    }
}
