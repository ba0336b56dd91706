//! Triangles.

use super::lists::filter;
use super::select::sizes;
use crate::pattern::Target;
use crate::tensor::SparseTensor;

impl<const D: usize> SparseTensor<D> {
    /// The entries on and below diagonal `offset`: those at (i, j) with `j - i <= offset`. 0 is the main diagonal, -1 leaves it
    /// out, positive ones lie above. Matrices need not be square. Of a batch: of each item.
    ///
    /// The result is the tensor itself if there is nothing to leave out; the plan is kept with the pattern.
    ///
    /// # Gradient
    /// Of each entry that stays: its own; 0 for the others.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[1.0f32, 2.0, 3.0, 4.0], [2, 2], &Device::flex())?;
    /// assert_eq!(a.tril(0).values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0, 4.0]);
    /// assert_eq!(a.tril(-1).values().to_data().try_to_vec::<f32>().unwrap(), [3.0]); // strict
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn tril(&self, offset: isize) -> Self {
        self.triangle(false, offset)
    }

    /// The entries on and above diagonal `offset`: those at (i, j) with `j - i >= offset`; 1 leaves the main diagonal out. As
    /// [`tril`](Self::tril) otherwise.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0, 1, 1], &[0, 1, 0, 1], &[1.0f32, 2.0, 3.0, 4.0], [2, 2], &Device::flex())?;
    /// assert_eq!(a.triu(0).values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0, 4.0]);
    /// assert_eq!(a.triu(1).values().to_data().try_to_vec::<f32>().unwrap(), [2.0]); // strict
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn triu(&self, offset: isize) -> Self {
        self.triangle(true, offset)
    }

    fn triangle(&self, upper: bool, offset: isize) -> Self {
        let (items, [m, n]) = sizes(self);
        let keep = |row: usize, column: usize, _| {
            let item = row / m;
            let diagonal = (column - item * n) as isize - (row - item * m) as isize;
            if upper { diagonal >= offset } else { diagonal <= offset }
        };
        let target = Target::Triangle { items, upper, offset };
        let pattern = self.pattern();
        self.converted_to(pattern.convert_unless_same(target, || filter(pattern, keep)), self.shape())
    }
}
