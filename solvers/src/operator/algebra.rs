//! Operators made of operators.

use super::{LinearOperator, Operator, Tags};
use burn::tensor::{DType, Device, Tensor};
use sparsegrad::SparseTensor;
use sparsegrad::error::OpError;
use std::sync::Arc;

/// A factor: a number, or a tensor of one element that may be tracked.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a handful of them exists, and a box would only be in the way")]
pub enum Factor {
    /// A constant.
    Number(f64),
    /// A tensor of one element.
    Tensor(Tensor<1>),
}

impl From<f64> for Factor {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// # Panics
/// If it has not one element.
impl From<Tensor<1>> for Factor {
    #[track_caller]
    fn from(tensor: Tensor<1>) -> Self {
        assert_eq!(tensor.dims(), [1], "a factor is a tensor of one element");
        Self::Tensor(tensor)
    }
}

impl Factor {
    fn times<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            _ if x.shape().num_elements() == 0 => x,
            Self::Number(number) => x.mul_scalar(*number),
            Self::Tensor(factor) => x * factor.clone().reshape([1; D]),
        }
    }

    fn untracked(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(*number),
            Self::Tensor(factor) => Self::Tensor(factor.clone().inner()),
        }
    }

    /// Whether it is known to be positive.
    fn is_positive(&self) -> bool {
        matches!(self, Self::Number(number) if *number > 0.0)
    }
}

/// How operators are put together. Each of these is an operator that is differentiable in all of its parts.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::operator::{Compose, LinearOperator};
///
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[1.0, 2.0], [2, 2], &Device::flex())?;
/// let gram = a.clone().transposed().times(a).shifted(0.5); // A^T A + I / 2
/// let y = gram.apply(Tensor::from_data([[1.0], [1.0]], (&Device::flex(), DType::F64)));
/// assert_eq!(y.to_data().try_to_vec::<f64>().unwrap(), [4.5, 1.5]);
/// # Ok::<(), TensorError>(())
/// ```
pub trait Compose: LinearOperator + Sized + 'static {
    /// A + B.
    ///
    /// # Panics
    /// Where [`Sum::try_new`] returns an error.
    #[track_caller]
    fn plus(self, other: impl LinearOperator + 'static) -> Sum {
        fitting(Sum::try_new(self, other))
    }

    /// A B.
    ///
    /// # Panics
    /// Where [`Product::try_new`] returns an error.
    #[track_caller]
    fn times(self, other: impl LinearOperator + 'static) -> Product {
        fitting(Product::try_new(self, other))
    }

    /// s A, for a number or a tensor of one element.
    fn scaled(self, factor: impl Into<Factor>) -> Scaled {
        Scaled { a: Arc::new(self), factor: factor.into() }
    }

    /// A + s I, for a number or a tensor of one element.
    ///
    /// # Panics
    /// Where [`Shifted::try_new`] returns an error.
    #[track_caller]
    fn shifted(self, shift: impl Into<Factor>) -> Shifted {
        fitting(Shifted::try_new(self, shift))
    }

    /// A^T.
    fn transposed(self) -> Transposed {
        Transposed { a: Arc::new(self) }
    }

    /// A, of which something is claimed.
    fn tagged(self, tags: Tags) -> Tagged {
        Tagged { a: Arc::new(self), tags }
    }
}

impl<A: LinearOperator + Sized + 'static> Compose for A {}

#[track_caller]
pub(super) fn fitting<T>(result: Result<T, OpError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The shapes of two operators in words, unless `fits`.
pub(super) fn shapes(
    op: &'static str,
    what: &'static str,
    fits: bool,
    a: &dyn LinearOperator,
    b: &dyn LinearOperator,
) -> Result<(), OpError> {
    if !fits {
        let shape = |operator: &dyn LinearOperator| match operator.items() {
            1 => operator.shape().to_vec(),
            items => vec![items, operator.shape()[0] / items, operator.shape()[1] / items],
        };
        return Err(OpError::Shapes { op, what, left: shape(a), right: shape(b) });
    }
    if a.dtype() != b.dtype() {
        return Err(OpError::DTypes { op, left: a.dtype(), right: b.dtype() });
    }
    let [left, right] = [a, b].map(|operator| operator.device().inner());
    if left != right {
        return Err(OpError::Devices { op, left: format!("{left:?}"), right: format!("{right:?}") });
    }
    Ok(())
}

/// What an operator over another one has in common with it.
macro_rules! as_inner {
    ($($name:ident),*) => {
        fn items(&self) -> usize {
            self.a.items()
        }

        fn dtype(&self) -> DType {
            self.a.dtype()
        }

        fn device(&self) -> Device {
            self.a.device()
        }
        $(as_inner!(@ $name);)*
    };
    (@ shape) => {
        fn shape(&self) -> [usize; 2] {
            self.a.shape()
        }
    };
}

/// The matrix of an operator over others, and what is stored of it: both of them `$made` of the same of the parts.
macro_rules! matrices {
    ($made:ident of $($part:ident),*) => {
        fn matrix(&self) -> Option<SparseTensor<2>> {
            self.$made($(self.$part.matrix()?),*)
        }

        fn stored(&self) -> Option<SparseTensor<2>> {
            self.$made($(self.$part.stored()?),*)
        }
    };
}

/// A + B.
#[derive(Debug, Clone)]
pub struct Sum {
    a: Operator,
    b: Operator,
}

impl Sum {
    /// The sum of two operators.
    ///
    /// # Errors
    /// If shapes, numbers of items, dtypes or devices differ.
    pub fn try_new(a: impl LinearOperator + 'static, b: impl LinearOperator + 'static) -> Result<Self, OpError> {
        let fits = a.shape() == b.shape() && a.items() == b.items();
        shapes("sum of operators", "shapes must agree", fits, &a, &b)?;
        Ok(Self { a: Arc::new(a), b: Arc::new(b) })
    }

    fn made(&self, a: SparseTensor<2>, b: SparseTensor<2>) -> Option<SparseTensor<2>> {
        sparsegrad::try_sparse_add(&a, &b).ok()
    }
}

impl LinearOperator for Sum {
    as_inner!(shape);

    fn tags(&self) -> Tags {
        Tags { unit_diagonal: false, ..self.a.tags().common(self.b.tags()) }
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.a.apply(x.clone()) + self.b.apply(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.a.apply_transpose(y.clone()) + self.b.apply_transpose(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.detach(), b: self.b.detach() })
    }

    matrices!(made of a, b);
}

/// A B.
#[derive(Debug, Clone)]
pub struct Product {
    a: Operator,
    b: Operator,
}

impl Product {
    /// The product of two operators: that of `b` comes first.
    ///
    /// # Errors
    /// If the inner dimensions, numbers of items, dtypes or devices differ.
    pub fn try_new(a: impl LinearOperator + 'static, b: impl LinearOperator + 'static) -> Result<Self, OpError> {
        let fits = a.shape()[1] == b.shape()[0] && a.items() == b.items();
        shapes("product of operators", "columns of A and rows of B must agree", fits, &a, &b)?;
        Ok(Self { a: Arc::new(a), b: Arc::new(b) })
    }
}

impl LinearOperator for Product {
    as_inner!();

    fn shape(&self) -> [usize; 2] {
        [self.a.shape()[0], self.b.shape()[1]]
    }

    fn tags(&self) -> Tags {
        Tags { symmetric: false, positive_definite: false, ..self.a.tags().common(self.b.tags()) }.consistent()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.a.apply(self.b.apply(x))
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.b.apply_transpose(self.a.apply_transpose(y))
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.detach(), b: self.b.detach() })
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        sparsegrad::try_spgemm(&self.a.matrix()?, &self.b.matrix()?).ok()
    }

    fn stored(&self) -> Option<SparseTensor<2>> {
        None
    }
}

/// s A.
#[derive(Debug, Clone)]
pub struct Scaled {
    a: Operator,
    factor: Factor,
}

impl Scaled {
    fn made(&self, a: SparseTensor<2>) -> Option<SparseTensor<2>> {
        Some(a.map_values(|values| self.factor.times(values)))
    }
}

impl LinearOperator for Scaled {
    as_inner!(shape);

    fn tags(&self) -> Tags {
        let tags = self.a.tags();
        let positive_definite = tags.positive_definite && self.factor.is_positive();
        Tags { positive_definite, unit_diagonal: false, ..tags }
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.factor.times(self.a.apply(x))
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.factor.times(self.a.apply_transpose(y))
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.detach(), factor: self.factor.untracked() })
    }

    matrices!(made of a);
}

/// A + s I.
#[derive(Debug, Clone)]
pub struct Shifted {
    a: Operator,
    shift: Factor,
}

impl Shifted {
    /// A square operator, shifted by a multiple of the identity.
    ///
    /// # Errors
    /// If it is not square.
    pub fn try_new(a: impl LinearOperator + 'static, shift: impl Into<Factor>) -> Result<Self, OpError> {
        let [m, n] = a.shape();
        shapes("shifted operator", "the operator must be square", m == n, &a, &a)?;
        Ok(Self { a: Arc::new(a), shift: shift.into() })
    }

    fn made(&self, a: SparseTensor<2>) -> Option<SparseTensor<2>> {
        let ones = Tensor::ones([self.shape()[0]], (&a.device(), a.dtype()));
        let shift = SparseTensor::diagonal(self.shift.times(ones)).ok()?;
        sparsegrad::try_sparse_add(&a, &shift).ok()
    }
}

impl LinearOperator for Shifted {
    as_inner!(shape);

    fn tags(&self) -> Tags {
        let tags = self.a.tags();
        let positive_definite = tags.positive_definite && self.shift.is_positive();
        Tags { positive_definite, unit_diagonal: false, ..tags }
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.a.apply(x.clone()) + self.shift.times(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.a.apply_transpose(y.clone()) + self.shift.times(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.detach(), shift: self.shift.untracked() })
    }

    matrices!(made of a);
}

/// A^T.
#[derive(Debug, Clone)]
pub struct Transposed {
    a: Operator,
}

impl Transposed {
    fn made(&self, a: SparseTensor<2>) -> Option<SparseTensor<2>> {
        Some(a.t())
    }
}

impl LinearOperator for Transposed {
    as_inner!();

    fn shape(&self) -> [usize; 2] {
        let [m, n] = self.a.shape();
        [n, m]
    }

    fn tags(&self) -> Tags {
        self.a.tags().transposed()
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.a.apply_transpose(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        self.a.apply(y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.detach() })
    }

    matrices!(made of a);
}

/// An operator with claims about it.
#[derive(Debug, Clone)]
pub struct Tagged {
    a: Operator,
    tags: Tags,
}

impl LinearOperator for Tagged {
    as_inner!(shape);

    fn tags(&self) -> Tags {
        self.tags
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        self.a.apply(x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        // Of a symmetric operator both are the same, and this one needs no transposed plan.
        if self.tags.symmetric { self.a.apply(y) } else { self.a.apply_transpose(y) }
    }

    fn detach(&self) -> Operator {
        Arc::new(Self { a: self.a.detach(), tags: self.tags })
    }

    fn matrix(&self) -> Option<SparseTensor<2>> {
        self.a.matrix()
    }

    fn stored(&self) -> Option<SparseTensor<2>> {
        self.a.stored()
    }
}
