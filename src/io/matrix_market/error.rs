//! What can be wrong with a file, or with a matrix that is to become one.

use crate::io::{Field, Place, Symmetry};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a Matrix Market file could not be read or written. The message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system could not read or write, or the compressed data are damaged.
    #[error("{}{source}", Place(path, None))]
    Io {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// What the system says.
        source: io::Error,
    },
    /// The text is not a Matrix Market file, or holds what this library can't.
    #[error("{}{fault}", Place(path, Some(*line)))]
    Syntax {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// The line, counted from 1; the last one where the text ends too early.
        line: usize,
        /// What is wrong there.
        fault: Fault,
    },
    /// The matrix to be written is not what its header would declare.
    #[error("{}cannot be written: {misfit}", Place(path, None))]
    Misfit {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// What does not fit.
        misfit: Misfit,
    },
}

/// What is wrong with a line of a Matrix Market file. Indices are those of the file, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The first line is no header.
    #[error("expected '%%MatrixMarket matrix <format> <field> <symmetry>' and found {}", Quoted(found))]
    Header {
        /// The line.
        found: String,
    },
    /// A word of the header is none of those that the standard has there.
    #[error("unknown {what} {}: expected {expected}", Quoted(found))]
    Keyword {
        /// Which word it is.
        what: &'static str,
        /// The words that may stand here.
        expected: &'static str,
        /// The word that does.
        found: String,
    },
    /// Two words of the header exclude each other.
    #[error("a file can't be both {first} and {second}")]
    Contradiction {
        /// One of them.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// The numbers are complex.
    #[error("complex numbers are not supported")]
    Complex,
    /// The text ends before the size line.
    #[error("the size line is missing")]
    NoSizeLine,
    /// A line has too few or too many fields.
    #[error("expected {expected} {} ({names}) and found {found}", if *expected == 1 { "field" } else { "fields" })]
    FieldCount {
        /// The number of fields that belong here.
        expected: usize,
        /// What they are.
        names: &'static str,
        /// The number of fields that are here.
        found: usize,
    },
    /// A field is not the number that belongs here.
    #[error("{} is not a {what}", Quoted(found))]
    Number {
        /// What belongs here.
        what: &'static str,
        /// The field.
        found: String,
    },
    /// A number is beyond the range of its type.
    #[error("the {what} {} is too large", Quoted(found))]
    TooLarge {
        /// What the number is.
        what: &'static str,
        /// The number as written.
        found: String,
    },
    /// A row or column index is 0 or beyond the size.
    #[error("{axis} index {index} is out of range: {}", Range(axis, *size))]
    IndexOutOfRange {
        /// `row` or `column`.
        axis: &'static str,
        /// The index.
        index: usize,
        /// The number of rows or columns.
        size: usize,
    },
    /// A symmetric or skew-symmetric matrix is not square.
    #[error("a {symmetry} matrix must be square, and this one is {} x {}", shape[0], shape[1])]
    NotSquare {
        /// The symmetry that the header declares.
        symmetry: Symmetry,
        /// The shape that the size line declares.
        shape: [usize; 2],
    },
    /// A (skew-)symmetric file stores an entry that its mirror image or the diagonal's zeros already imply.
    #[error("entry ({row}, {column}) is not in the {} triangle that a {symmetry} file stores", triangle(symmetry))]
    OutsideTriangle {
        /// The symmetry that the header declares.
        symmetry: Symmetry,
        /// The entry's row.
        row: usize,
        /// The entry's column.
        column: usize,
    },
    /// The shape of an array has more elements than can be counted.
    #[error("an array of {} x {} is too large", shape[0], shape[1])]
    ArraySize {
        /// The shape that the size line declares.
        shape: [usize; 2],
    },
    /// The text ends before all entries are read.
    #[error("the file ends after {found} of {declared} entries")]
    TooFew {
        /// The number of entries that the file declares.
        declared: usize,
        /// The number of entries that it has.
        found: usize,
    },
    /// The text goes on after the last entry.
    #[error("more entries than the {declared} declared")]
    TooMany {
        /// The number of entries that the file declares.
        declared: usize,
    },
    /// A comment stands after the size line.
    #[error("a comment may stand only between the header and the size line")]
    LateComment,
}

/// Why a matrix is not what the header of its file would declare. Positions and indices count from 0.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The lists of rows, columns and values differ in length.
    #[error("{rows} rows, {cols} columns and {values} values")]
    Lengths {
        /// The number of row indices.
        rows: usize,
        /// The number of column indices.
        cols: usize,
        /// The number of values.
        values: usize,
    },
    /// An entry lies outside the matrix.
    #[error("entry ({row}, {col}) at position {position} is outside a {} x {} matrix", shape[0], shape[1])]
    OutOfRange {
        /// The entry's place in the list.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        col: usize,
        /// The shape of the matrix.
        shape: [usize; 2],
    },
    /// A value is not of the declared field.
    #[error("the value {value} at position {position} does not belong in a file of field '{field}'")]
    Value {
        /// The entry's place in the list.
        position: usize,
        /// Its value.
        value: f64,
        /// The declared field.
        field: Field,
    },
    /// An entry has no mirror image, or an unequal one, although the matrix is said to be (skew-)symmetric.
    #[error("the matrix is not {symmetry} at ({row}, {col})")]
    Symmetry {
        /// The declared symmetry.
        symmetry: Symmetry,
        /// The entry's row.
        row: usize,
        /// The entry's column.
        col: usize,
    },
    /// The format has no such combination.
    #[error("the format has no {symmetry} {field} files")]
    Header {
        /// The declared symmetry.
        symmetry: Symmetry,
        /// The declared field.
        field: Field,
    },
}

impl Error {
    /// The same error, of this file.
    pub(super) fn in_file(mut self, file: &Path) -> Self {
        let (Self::Io { path, .. } | Self::Syntax { path, .. } | Self::Misfit { path, .. }) = &mut self;
        *path = Some(file.to_owned());
        self
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Io { path: None, source }
    }
}

impl From<Misfit> for Error {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit { path: None, misfit }
    }
}

/// Text of the file in quotes, on one line and not too long.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 60;
        let mut rest = self.0.chars();
        let start: String = rest.by_ref().take(LONGEST).collect();
        write!(f, "'{}{}'", start.escape_debug(), if rest.next().is_some() { "..." } else { "" })
    }
}

/// The indices that an axis has.
struct Range(&'static str, usize);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 => write!(f, "there are no {}s", self.0),
            size => write!(f, "{}s count from 1 to {size}", self.0),
        }
    }
}

fn triangle(symmetry: &Symmetry) -> &'static str {
    match symmetry {
        Symmetry::SkewSymmetric => "strictly lower",
        _ => "lower",
    }
}
