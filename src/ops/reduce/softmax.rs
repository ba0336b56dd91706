//! The softmax of the stored entries, per row and per column.

use super::{ReduceOps, Softmax};
use crate::backend::check::{device_can, device_has_exp, expect};
use crate::pattern::Pattern;
use crate::tensor::SparseTensor;
use burn::backend::Dispatch;
use burn::tensor::Tensor;

impl<const D: usize> SparseTensor<D> {
    /// The softmax over the stored entries of each row, `exp(x_e) / sum of exp(x) over the row`, at the same pattern: graph
    /// attention, where entries are edges.
    ///
    /// Absent entries have no part in it, and each duplicate is an entry of its own (see
    /// [`coalesce`](SparseTensor::coalesce)). No exponential overflows. A row of -inf alone has weights 0; one with NaN or +inf
    /// is NaN, as in PyTorch.
    ///
    /// # Gradient
    /// `w_e (g_e - sum of w g over the row)` with the weights w. 0 in rows of -inf alone.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 1.0, 1.0], [2, 3], &Device::flex())?;
    /// assert_eq!(a.row_softmax().values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 0.5, 0.5]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn row_softmax(&self) -> Self {
        self.softmax("row_softmax", self.pattern(), false)
    }

    /// The softmax over the stored entries of each column: [`row_softmax`](Self::row_softmax) of the transpose.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn column_softmax(&self) -> Self {
        self.softmax("column_softmax", &self.pattern().t(), false)
    }

    /// The logarithm of [`row_softmax`](Self::row_softmax), `x_e - log sum exp` of the row, without the rounding of a softmax
    /// near 0. A row of -inf alone stays so.
    ///
    /// # Gradient
    /// `g_e - w_e (sum of g over the row)` with the weights w of the softmax. 0 in rows of -inf alone.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn row_log_softmax(&self) -> Self {
        self.softmax("row_log_softmax", self.pattern(), true)
    }

    /// [`row_log_softmax`](Self::row_log_softmax) of the transpose.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn column_log_softmax(&self) -> Self {
        self.softmax("column_log_softmax", &self.pattern().t(), true)
    }

    #[track_caller]
    fn softmax(&self, op: &'static str, pattern: &Pattern, log: bool) -> Self {
        expect(device_can(op, self.values(), pattern, &[]));
        expect(device_has_exp(op, self.values()));
        let values = row_softmax(pattern, self.values().clone(), Softmax { log });
        self.rebuilt(self.pattern().clone(), values)
    }
}

fn row_softmax(pattern: &Pattern, values: Tensor<1>, softmax: Softmax) -> Tensor<1> {
    let values = values.into_dispatch();
    Tensor::from_dispatch(<Dispatch as ReduceOps>::row_softmax(pattern.clone(), values, softmax))
}
