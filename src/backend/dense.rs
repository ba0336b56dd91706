//! Dense operands and outputs as the kernels see them.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::scalar::{Scalar, as_sums};

/// A borrowed matrix whose rows are contiguous and lie `row_stride` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Dense<'a, E> {
    data: &'a [E],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a, E> Dense<'a, E> {
    /// A view of `data`, whose first element is the first of the matrix.
    ///
    /// # Panics
    ///
    /// If rows overlap or `data` ends before the matrix does.
    pub fn new(data: &'a [E], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(rows <= 1 || row_stride >= cols, "rows of {cols} columns overlap at a stride of {row_stride}");
        let end = match (rows, cols) {
            (0, _) | (_, 0) => Some(0),
            _ => (rows - 1).checked_mul(row_stride).and_then(|start| start.checked_add(cols)),
        };
        assert!(
            end.is_some_and(|end| end <= data.len()),
            "{rows} rows of {cols} columns at a stride of {row_stride} in {} elements",
            data.len()
        );
        // The stride of a single row, or of nothing, is never used: drop what might overflow.
        let row_stride = if rows <= 1 || cols == 0 { cols } else { row_stride };
        Self { data, rows, cols, row_stride }
    }

    /// A view of `data` without gaps between the rows.
    ///
    /// # Panics
    ///
    /// If `data` does not hold exactly `rows` times `cols` elements.
    pub fn contiguous(data: &'a [E], rows: usize, cols: usize) -> Self {
        assert_eq!(rows.checked_mul(cols), Some(data.len()), "{rows} x {cols}");
        Self::new(data, rows, cols, cols)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How far apart rows lie.
    pub(crate) fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// The elements of one row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &'a [E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.data[row * self.row_stride..][..self.cols]
    }

    /// The elements of a matrix with one column, if they are contiguous.
    pub(crate) fn as_vector(&self) -> Option<&'a [E]> {
        (self.cols == 1 && self.row_stride == 1).then(|| &self.data[..self.rows])
    }

    /// The matrix of what its elements are summed in, where that is their own type.
    pub(crate) fn as_sums(&self) -> Option<Dense<'a, E::Acc>>
    where
        E: Scalar,
    {
        as_sums(self.data).map(|data| Dense { data, rows: self.rows, cols: self.cols, row_stride: self.row_stride })
    }

    /// Whether the matrix is too large for a near cache.
    pub(crate) fn is_far(&self) -> bool {
        self.rows * self.cols * size_of::<E>() > 2 << 20
    }

    /// Where a row begins. Within the matrix, if `row` is; the address is harmless to form otherwise.
    #[inline(always)]
    pub(crate) fn row_ptr(&self, row: usize) -> *const E {
        self.data.as_ptr().wrapping_add(row.wrapping_mul(self.row_stride))
    }
}

/// An output that several threads write, each element by one of them.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a, E> {
    start: *mut E,
    len: usize,
    borrowed: PhantomData<&'a mut [MaybeUninit<E>]>,
}

// SAFETY: it hands out nothing but addresses; who writes through them answers for it.
unsafe impl<E: Send> Send for Output<'_, E> {}
// SAFETY: as above.
unsafe impl<E: Send> Sync for Output<'_, E> {}

impl<'a, E> Output<'a, E> {
    /// Shares a buffer for as long as it is borrowed.
    pub(crate) fn new(buffer: &'a mut [MaybeUninit<E>]) -> Self {
        Self { start: buffer.as_mut_ptr().cast(), len: buffer.len(), borrowed: PhantomData }
    }

    /// The output of what its elements are summed in, where that is their own type.
    pub(crate) fn as_sums(self) -> Option<Output<'a, E::Acc>>
    where
        E: Scalar,
    {
        E::ACCUMULATES.then_some(Output { start: self.start.cast(), len: self.len, borrowed: PhantomData })
    }

    /// The address of an element.
    ///
    /// # Safety
    ///
    /// `index` is at most the length.
    #[inline(always)]
    pub(crate) unsafe fn at(self, index: usize) -> *mut E {
        debug_assert!(index <= self.len);
        // SAFETY: within the buffer or one past its end, as the caller promises.
        unsafe { self.start.add(index) }
    }
}
