//! What is left after entries are dropped by their values.

use super::lists::filter;
use super::select::sizes;
use crate::error::TensorError;
use crate::ops::reduce::Per;
use crate::tensor::{SparseTensor, read};

impl<const D: usize> SparseTensor<D> {
    /// Without the stored entries that are 0 (or -0). Duplicates stay as they are, also those that cancel: the matrix is the
    /// same. NaN is not 0. Reads the values back from the device.
    ///
    /// # Gradient
    /// Of each entry that stays: its own; 0 for the others, which are constants of the result.
    ///
    /// # Errors
    /// If reading fails.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[1.0f32, 0.0, 2.0], [2, 2], &Device::flex())?;
    /// assert_eq!(a.drop_zeros()?.triplets()?.collect::<Vec<_>>(), [(0, 0, 1.0), (1, 1, 2.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn drop_zeros(&self) -> Result<Self, TensorError> {
        self.kept(|value| value != 0.0)
    }

    /// The entries whose absolute value is above `threshold`. NaN stays. Where positions are stored more than once they are summed
    /// first (see [`coalesce`](Self::coalesce)). Reads the values back from the device.
    ///
    /// # Gradient
    /// Of each entry that stays: its own; 0 for the others.
    ///
    /// # Errors
    /// If reading fails.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 1], &[1.0f32, 0.1, -2.0], [2, 2], &Device::flex())?;
    /// assert_eq!(a.prune(0.5)?.triplets()?.collect::<Vec<_>>(), [(0, 0, 1.0), (1, 1, -2.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn prune(&self, threshold: f64) -> Result<Self, TensorError> {
        self.summed().kept(|value| value.is_nan() || value.abs() > threshold)
    }

    /// The `k` entries of the largest absolute values of each row, of each column, or of the matrix (of each item, in a batch);
    /// all, where there are no more. NaN counts as the largest. Of equal ones those stay that stand first: in the lower row,
    /// then in the lower column. Where positions are stored more than once they are summed first. Reads the values back from the
    /// device.
    ///
    /// # Gradient
    /// Of each entry that stays: its own; 0 for the others.
    ///
    /// # Errors
    /// If reading fails.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 0, 1], &[0, 1, 2, 1], &[1.0f32, -3.0, 2.0, 0.5], [2, 3], &Device::flex())?;
    /// assert_eq!(a.top_k(Per::Row, 2)?.triplets()?.collect::<Vec<_>>(), [(0, 1, -3.0), (0, 2, 2.0), (1, 1, 0.5)]);
    /// assert_eq!(a.top_k(Per::Matrix, 1)?.triplets()?.collect::<Vec<_>>(), [(0, 1, -3.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn top_k(&self, per: Per, k: usize) -> Result<Self, TensorError> {
        let summed = self.summed();
        let (_, [m, _]) = sizes(self);
        let sizes = read(summed.values().clone())?;
        let mut entries = Vec::with_capacity(summed.nnz());
        summed.pattern().for_each_entry(|row, column, slot| {
            let group = match per {
                Per::Row => row,
                Per::Column => column,
                Per::Matrix => row / m,
            };
            entries.push((group, row, column, slot));
        });
        // By group, there the largest first; NaN is the largest of all in the total order of what has no sign.
        let size = |slot: usize| sizes[slot].abs();
        entries.sort_unstable_by(|a, b| {
            let larger = size(b.3).total_cmp(&size(a.3));
            a.0.cmp(&b.0).then(larger).then((a.1, a.2).cmp(&(b.1, b.2)))
        });
        let mut stays = vec![false; summed.nnz()];
        for group in entries.chunk_by(|a, b| a.0 == b.0) {
            group.iter().take(k).for_each(|entry| stays[entry.3] = true);
        }
        Ok(summed.kept_slots(|slot| stays[slot]))
    }

    /// Each position once, as it is if that is so already.
    fn summed(&self) -> Self {
        if self.pattern().has_duplicates() { self.coalesce() } else { self.clone() }
    }

    fn kept(&self, keep: impl Fn(f64) -> bool) -> Result<Self, TensorError> {
        let values = read(self.values().clone())?;
        Ok(self.kept_slots(|slot| keep(values[slot])))
    }

    fn kept_slots(&self, keep: impl Fn(usize) -> bool) -> Self {
        match filter(self.pattern(), |_, _, slot| keep(slot)) {
            Some(conversion) => self.converted_to(conversion, self.shape()),
            None => self.clone(),
        }
    }
}
