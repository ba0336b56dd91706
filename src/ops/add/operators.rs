//! Operators on references. `*` is the entrywise product, as in Burn; the matrix product is [`matmul`](SparseTensor::matmul).

use super::{combine, csr_add, sparse_add, sparse_mul};
use crate::backend::check::expect;
use crate::tensor::SparseTensor;
use burn::tensor::Tensor;
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! operator {
    ($(#[$doc:meta])* $operator:ident::$method:ident($rhs:ty) -> $output:ty, |$a:ident, $b:ident| $body:expr) => {
        $(#[$doc])*
        impl<const D: usize> $operator<$rhs> for &SparseTensor<D> {
            type Output = $output;

            #[track_caller]
            fn $method(self, $b: $rhs) -> $output {
                let $a = self;
                $body
            }
        }
    };
}
operator!(
    /// [`sparse_add`].
    Add::add(&SparseTensor<D>) -> SparseTensor<D>, |a, b| sparse_add(a, b)
);
operator!(
    /// [`sparse_add`] of the negative.
    Sub::sub(&SparseTensor<D>) -> SparseTensor<D>, |a, b| expect(combine("sparse_sub", a, 1.0, b, -1.0))
);
operator!(
    /// [`sparse_mul`].
    Mul::mul(&SparseTensor<D>) -> SparseTensor<D>, |a, b| sparse_mul(a, b)
);
operator!(
    /// [`csr_add`]: dense.
    Add::add(Tensor<D>) -> Tensor<D>, |a, d| csr_add(a, d)
);
operator!(
    /// [`mul_dense`](SparseTensor::mul_dense): sparse.
    Mul::mul(Tensor<D>) -> SparseTensor<D>, |a, d| a.mul_dense(d)
);
operator!(
    /// [`div_dense`](SparseTensor::div_dense): sparse.
    Div::div(Tensor<D>) -> SparseTensor<D>, |a, d| a.div_dense(d)
);
operator!(
    /// [`mul_scalar`](SparseTensor::mul_scalar).
    Mul::mul(f64) -> SparseTensor<D>, |a, factor| a.mul_scalar(factor)
);
operator!(
    /// [`div_scalar`](SparseTensor::div_scalar).
    Div::div(f64) -> SparseTensor<D>, |a, divisor| a.div_scalar(divisor)
);

impl<const D: usize> Neg for &SparseTensor<D> {
    type Output = SparseTensor<D>;

    fn neg(self) -> SparseTensor<D> {
        self.map_values(Tensor::neg)
    }
}

/// [`mul_scalar`](SparseTensor::mul_scalar).
impl<const D: usize> Mul<&SparseTensor<D>> for f64 {
    type Output = SparseTensor<D>;

    fn mul(self, a: &SparseTensor<D>) -> SparseTensor<D> {
        a.mul_scalar(self)
    }
}
