//! Functions of the entries. What is not linear acts on sums of duplicates, never on each of them.

use crate::tensor::SparseTensor;
use burn::tensor::{Tensor, activation};

impl<const D: usize> SparseTensor<D> {
    /// A function of the stored entries that need not be linear: where positions are stored more than once they are
    /// summed first (see [`coalesce`](Self::coalesce)), so that each position is mapped once. Absent entries stay absent,
    /// whatever the function makes of 0.
    ///
    /// Compare [`map_values`](Self::map_values), which maps each duplicate by itself and is meant for linear functions.
    ///
    /// # Panics
    /// If the function changes the length.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// // 1 and 2 at the same position: (1 + 2)^2, not 1 + 4.
    /// let a = SparseTensor::from_triplets(&[0, 0], &[1, 1], &[1.0f32, 2.0], [1, 2], &Device::flex())?;
    /// assert_eq!(a.map_coalesced(|v| v.powi_scalar(2)).get(0, 1)?, Some(9.0));
    /// assert_eq!(a.powi(2).get(0, 1)?, Some(9.0));
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn map_coalesced(&self, map: impl FnOnce(Tensor<1>) -> Tensor<1>) -> Self {
        match self.pattern().has_duplicates() {
            true => self.coalesce().map_values(map),
            false => self.map_values(map),
        }
    }

    /// Each entry to a power. Absent entries stay absent, also for powers of 0 and below.
    pub fn powi(&self, exponent: i32) -> Self {
        self.map_coalesced(|values| values.powi_scalar(exponent))
    }

    /// Each entry to a real power.
    pub fn powf(&self, exponent: f64) -> Self {
        self.map_coalesced(|values| values.powf_scalar(exponent))
    }
}

macro_rules! maps {
    ($($(#[$doc:meta])* $name:ident: $map:expr;)*) => {
        impl<const D: usize> SparseTensor<D> {
            $($(#[$doc])*
            ///
            /// Duplicates are summed first.
            pub fn $name(&self) -> Self {
                self.map_coalesced($map)
            })*
        }
    };
}
maps! {
    /// Absolute values.
    abs: Tensor::abs;
    /// -1, 0 or 1, by the sign. Its gradient is 0.
    sign: Tensor::sign;
    /// Square roots.
    sqrt: Tensor::sqrt;
    /// Hyperbolic tangents.
    tanh: Tensor::tanh;
    /// Sines.
    sin: Tensor::sin;
    /// Positive parts.
    relu: activation::relu;
    /// `ln(1 + a_ij)`.
    log1p: Tensor::log1p;
    /// `exp(a_ij)` of the stored entries: absent ones stay absent, and are not 1.
    exp_stored: Tensor::exp;
    /// `ln(a_ij)` of the stored entries: absent ones stay absent, and are not -inf.
    log_stored: Tensor::log;
    /// `1 / (1 + exp(-a_ij))` of the stored entries: absent ones stay absent, and are not 1/2.
    sigmoid_stored: activation::sigmoid;
}
