//! A matrix in host memory, as files hold it: a list of entries.

use std::cmp::Ordering;
use std::fmt;

/// A matrix in host memory: one `(row, column, value)` per stored entry, in any order.
///
/// Indices are zero-based. Symmetric storage is already expanded: an entry off the diagonal stands here together with
/// its mirror image, and `symmetry` only records what the file declared. Explicit zeros are entries, and so is each
/// one of several entries at the same place.
///
/// The fields are plain data, and nothing is checked until the triplets become a tensor or a file.
///
/// ```
/// use sparsegrad::io::Triplets;
///
/// let a = Triplets::new([2, 3], vec![0, 1], vec![2, 0], vec![3.0, 4.0]);
/// assert_eq!(a.nnz(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Triplets {
    /// Numbers of rows and of columns.
    pub shape: [usize; 2],
    /// The row of each entry.
    pub rows: Vec<usize>,
    /// The column of each entry.
    pub cols: Vec<usize>,
    /// The value of each entry; 1 in a pattern.
    pub values: Vec<f64>,
    /// The symmetry declared by the file; the entries are expanded all the same.
    pub symmetry: Symmetry,
    /// The kind of numbers declared by the file.
    pub field: Field,
}

/// Which entries of a matrix a file leaves out because others imply them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Symmetry {
    /// None: every entry is stored.
    #[default]
    General,
    /// `a[j, i] = a[i, j]`: the lower triangle is stored, diagonal included.
    Symmetric,
    /// `a[j, i] = -a[i, j]`: the strictly lower triangle is stored.
    SkewSymmetric,
}

/// The kind of numbers that a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Field {
    /// Floating-point numbers.
    #[default]
    Real,
    /// Integers.
    Integer,
    /// No numbers, places only: every value is 1.
    Pattern,
}

impl Triplets {
    /// The entries of a general real matrix.
    pub fn new(shape: [usize; 2], rows: Vec<usize>, cols: Vec<usize>, values: Vec<f64>) -> Self {
        Self { shape, rows, cols, values, symmetry: Symmetry::General, field: Field::Real }
    }

    /// The number of stored entries, explicit zeros and duplicates included.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Sorts the entries by row and, within a row, by column: the order of CSR. Duplicates keep their order.
    ///
    /// # Panics
    /// If `rows`, `cols` and `values` differ in length.
    ///
    /// ```
    /// # use sparsegrad::io::Triplets;
    /// let mut a = Triplets::new([2, 2], vec![1, 0, 0], vec![0, 1, 0], vec![3.0, 2.0, 1.0]);
    /// a.sort_by_row();
    /// assert_eq!(a.values, [1.0, 2.0, 3.0]);
    /// ```
    pub fn sort_by_row(&mut self) {
        let lengths = [self.rows.len(), self.cols.len()];
        assert_eq!(lengths, [self.nnz(); 2], "rows and columns must be as many as values");
        let place = |&entry: &usize| (self.rows[entry], self.cols[entry]);
        let mut order: Vec<usize> = (0..self.nnz()).collect();
        if order.is_sorted_by_key(place) {
            return;
        }
        order.sort_by_key(place);
        self.rows = order.iter().map(|&entry| self.rows[entry]).collect();
        self.cols = order.iter().map(|&entry| self.cols[entry]).collect();
        self.values = order.iter().map(|&entry| self.values[entry]).collect();
    }
}

impl Symmetry {
    /// The word that Matrix Market has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Symmetric => "symmetric",
            Self::SkewSymmetric => "skew-symmetric",
        }
    }

    /// The value of the mirror image of an entry of this value.
    pub(crate) fn mirror(self, value: f64) -> f64 {
        match self {
            Self::SkewSymmetric => -value,
            _ => value,
        }
    }

    /// Whether an entry may be stored here, seen from the diagonal: `row.cmp(&col)`.
    pub(crate) fn stores(self, side: Ordering) -> bool {
        match self {
            Self::General => true,
            Self::Symmetric => side.is_ge(),
            Self::SkewSymmetric => side.is_gt(),
        }
    }
}

impl Field {
    /// The word that Matrix Market has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Integer => "integer",
            Self::Pattern => "pattern",
        }
    }
}

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
