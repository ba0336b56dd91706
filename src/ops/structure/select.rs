//! Rows and columns by index and by range.

use super::lists::{Lists, Order};
use crate::error::{Axis, PatternError, TensorError};
use crate::pattern::{Conversion, Index, IntoIndices, Pattern, Rows, with_rows};
use crate::tensor::SparseTensor;
use std::ops::{Bound, Range, RangeBounds};

/// Which rows (columns) of each item a new matrix has, in the new order.
#[derive(Debug, Clone)]
pub(super) enum Pick<'a> {
    All,
    Range(Range<usize>),
    List(&'a [usize]),
}

/// A pick on an axis of a batch: so many items of so many rows (columns).
struct Picked<'a> {
    pick: Pick<'a>,
    items: usize,
    each: usize,
}

impl Picked<'_> {
    /// How many rows each item has then.
    fn count(&self) -> usize {
        match &self.pick {
            Pick::All => self.each,
            Pick::Range(range) => range.len(),
            Pick::List(list) => list.len(),
        }
    }

    /// The old row of each new one.
    fn sources(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        let starts = (0..self.items).map(|item| item * self.each);
        match &self.pick {
            Pick::All => Box::new(0..self.items * self.each),
            Pick::Range(range) => Box::new(starts.flat_map(|start| start + range.start..start + range.end)),
            Pick::List(list) => Box::new(starts.flat_map(|start| list.iter().map(move |&local| start + local))),
        }
    }
}

/// Where the columns go.
enum Places {
    All,
    Range { each: usize, range: Range<usize> },
    List { each: usize, count: usize, starts: Vec<usize>, places: Vec<usize> },
}

impl Places {
    fn of(picked: &Picked) -> Self {
        let each = picked.each;
        match &picked.pick {
            Pick::All => Places::All,
            Pick::Range(range) => Places::Range { each, range: range.clone() },
            Pick::List(list) => {
                let mut starts = vec![0; each + 1];
                list.iter().for_each(|&column| starts[column + 1] += 1);
                (0..each).for_each(|column| starts[column + 1] += starts[column]);
                let (mut next, mut places) = (starts.clone(), vec![0; list.len()]);
                for (place, &column) in list.iter().enumerate() {
                    places[next[column]] = place;
                    next[column] += 1;
                }
                Places::List { each, count: list.len(), starts, places }
            }
        }
    }

    /// Each new column of an old one, ascending.
    #[inline]
    fn visit(&self, column: usize, mut visit: impl FnMut(usize)) {
        match self {
            Places::All => visit(column),
            Places::Range { each, range } => {
                let (item, local) = (column / each, column % each);
                if range.contains(&local) {
                    visit(item * range.len() + local - range.start);
                }
            }
            Places::List { each, count, starts, places } => {
                let (item, local) = (column / each, column % each);
                for place in &places[starts[local]..starts[local + 1]] {
                    visit(item * count + place);
                }
            }
        }
    }
}

fn collect<I: Index>(rows: &Rows<I>, lines: &Picked, across: &Picked, sorted: bool) -> Lists {
    let (mut lists, places) = (Lists::new(), Places::of(across));
    for line in lines.sources() {
        for entry in rows.range(line) {
            let slot = rows.slot(entry);
            places.visit(rows.columns[entry].get(), |column| lists.push(column, slot));
        }
        if sorted { lists.end_sorted_row() } else { lists.end_row() }
    }
    lists
}

/// The matrix of these rows and columns of each of so many equal blocks along the diagonal; with one block, of any matrix.
///
/// # Errors
/// If it is too large to index.
pub(super) fn pick(pattern: &Pattern, items: usize, picks: [Pick; 2]) -> Result<Conversion, PatternError> {
    let order = Order::of(pattern);
    let sizes = pattern.shape().map(|size| size.checked_div(items).unwrap_or(0));
    let [rows, columns] = picks;
    let picked = [(rows, sizes[0]), (columns, sizes[1])].map(|(pick, each)| Picked { pick, items, each });
    let shape = shape_of(items, [picked[0].count(), picked[1].count()])?;
    let [lines, across] = order.swap(picked);
    let lists = with_rows!(order.lines(pattern).rows(), rows => {
        collect(rows, &lines, &across, pattern.format().is_ordered())
    });
    Ok(lists.finish(order, shape, pattern.nnz()))
}

/// The shape of so many equal blocks along a diagonal.
///
/// # Errors
/// If it is too large to index.
pub(super) fn shape_of(items: usize, each: [usize; 2]) -> Result<[usize; 2], PatternError> {
    let [rows, columns] = each.map(|size| size.checked_mul(items).filter(|&size| size < i64::MAX as usize));
    match (rows, columns) {
        (Some(rows), Some(columns)) => Ok([rows, columns]),
        _ => {
            Err(PatternError::TooLarge { rows: each[0].saturating_mul(items), columns: each[1].saturating_mul(items) })
        }
    }
}

/// The number of items, and the shape of each.
pub(super) fn sizes<const D: usize>(tensor: &SparseTensor<D>) -> (usize, [usize; 2]) {
    let shape = tensor.shape();
    (shape[..D - 2].iter().product(), [shape[D - 2], shape[D - 1]])
}

impl<const D: usize> SparseTensor<D> {
    /// These rows, in this order: new row r is old row `rows[r]`. Rows may be left out and repeated. Of a batch: the same of each
    /// item.
    ///
    /// | | shape |
    /// |---|---|
    /// | self | m x n, or items x m x n |
    /// | rows | k indices below m: integers of any kind, or an integer tensor, which is read back |
    /// | result | k x n, or items x k x n |
    ///
    /// # Gradient
    /// Of each stored entry: the sum of those of its copies; 0 if its row is left out.
    ///
    /// # Errors
    /// If an index is out of range, with its position, or the result is too large to index.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex().autodiff();
    /// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?.require_grad();
    /// let b = a.select_rows([1, 0, 1])?;
    /// let entries: Vec<_> = b.triplets()?.collect();
    /// assert_eq!(entries, [(0, 0, 4.0), (0, 2, 5.0), (1, 2, 3.0), (2, 0, 4.0), (2, 2, 5.0)]);
    ///
    /// let grads = b.values().clone().sum().backward();
    /// assert_eq!(a.grad(&grads).unwrap().values().to_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0, 2.0]);
    ///
    /// let error = a.select_rows([0, 2]).unwrap_err();
    /// assert_eq!(error.to_string(), "row index 2 at position 1 is out of range for a matrix with 2 rows (shape 2x3)");
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn select_rows(&self, rows: impl IntoIndices) -> Result<Self, TensorError> {
        let rows = self.indices(Axis::Row, rows)?;
        self.picked([Pick::List(&rows), Pick::All])
    }

    /// These columns, in this order: as [`select_rows`](Self::select_rows) with rows and columns exchanged.
    ///
    /// # Errors
    /// If an index is out of range, with its position, or the result is too large to index.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &Device::flex())?;
    /// let b = a.select_columns([2, 1, 0])?;
    /// assert_eq!(b.triplets()?.collect::<Vec<_>>(), [(0, 0, 3.0), (1, 0, 5.0), (1, 2, 4.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn select_columns(&self, columns: impl IntoIndices) -> Result<Self, TensorError> {
        let columns = self.indices(Axis::Column, columns)?;
        self.picked([Pick::All, Pick::List(&columns)])
    }

    /// A range of rows: `a.slice_rows(2..5)`, `a.slice_rows(..3)`. Of a batch: the same of each item.
    ///
    /// # Gradient
    /// Of each stored entry of these rows: that of its copy; 0 for the others.
    ///
    /// # Errors
    /// If the range ends before it starts, or beyond the rows.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::eye(4, &Device::flex())?;
    /// assert_eq!(a.slice_rows(1..3)?.triplets()?.collect::<Vec<_>>(), [(0, 1, 1.0), (1, 2, 1.0)]);
    /// let error = a.slice_rows(2..6).unwrap_err();
    /// assert_eq!(error.to_string(), "rows 2..6 are not a range of a matrix with 4 rows");
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn slice_rows(&self, rows: impl RangeBounds<usize>) -> Result<Self, TensorError> {
        let rows = self.range(Axis::Row, rows)?;
        self.picked([Pick::Range(rows), Pick::All])
    }

    /// A range of columns, as [`slice_rows`](Self::slice_rows).
    ///
    /// # Errors
    /// If the range ends before it starts, or beyond the columns.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::eye(4, &Device::flex())?;
    /// assert_eq!(a.slice_columns(2..)?.triplets()?.collect::<Vec<_>>(), [(2, 0, 1.0), (3, 1, 1.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn slice_columns(&self, columns: impl RangeBounds<usize>) -> Result<Self, TensorError> {
        let columns = self.range(Axis::Column, columns)?;
        self.picked([Pick::All, Pick::Range(columns)])
    }

    /// The size along an axis.
    fn size(&self, axis: Axis) -> usize {
        let (_, each) = sizes(self);
        each[axis as usize]
    }

    fn indices(&self, axis: Axis, indices: impl IntoIndices) -> Result<Vec<usize>, TensorError> {
        let (indices, bound) = (indices.into_indices(), self.size(axis));
        if let Some(position) = indices.position(|index| index < 0 || index as u64 >= bound as u64) {
            let (_, shape) = sizes(self);
            let value = indices.get(position);
            return Err(PatternError::IndexOutOfRange { axis, position, value, bound, shape, group: None }.into());
        }
        Ok((0..indices.len()).map(|at| indices.get(at) as usize).collect())
    }

    fn range(&self, axis: Axis, range: impl RangeBounds<usize>) -> Result<Range<usize>, TensorError> {
        let size = self.size(axis);
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => size,
        };
        if start > end || end > size {
            return Err(TensorError::Range { axis, start, end, size });
        }
        Ok(start..end)
    }

    fn picked(&self, picks: [Pick; 2]) -> Result<Self, TensorError> {
        let (items, [m, n]) = sizes(self);
        let count = |pick: &Pick, each: usize| match pick {
            Pick::All => each,
            Pick::Range(range) => range.len(),
            Pick::List(list) => list.len(),
        };
        let mut shape = self.shape();
        (shape[D - 2], shape[D - 1]) = (count(&picks[0], m), count(&picks[1], n));
        if picks.iter().zip([m, n]).all(|(pick, size)| !matches!(pick, Pick::List(_)) && count(pick, size) == size) {
            return Ok(self.clone());
        }
        Ok(self.converted_to(pick(self.pattern(), items, picks)?, shape))
    }
}
