//! The format language: a tensor format is an ordered list of levels, each a dimension expression and how it is stored.
//!
//! The idea and the names of the level kinds are TACO's (Chou, Kjolstad, Amarasinghe, *Format Abstraction for
//! Sparse Tensor Algebra Compilers*, OOPSLA 2018) and NVIDIA's Universal Sparse Tensor's. This module knows nothing
//! of tensors: it says what a format is, [`Pattern`](crate::pattern::Pattern) says what is stored in one.
//!
//! ```
//! use sparsegrad::format::TensorFormat;
//!
//! let csr: TensorFormat = "(i, j) -> (i : dense, j : compressed)".parse()?;
//! assert_eq!(csr, TensorFormat::csr());
//! assert_eq!(csr.name(), Some("CSR"));
//! assert_eq!(csr.transposed(), TensorFormat::csc());
//! # Ok::<(), sparsegrad::error::FormatError>(())
//! ```

mod parse;
mod serde;
mod validate;

use crate::error::FormatError;
use std::fmt;
use std::sync::Arc;

/// What a level counts: a dimension, a part of one, or a diagonal of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expr {
    /// Dimension `d`.
    Dim(usize),
    /// `d // n`: which block of `n`.
    Div(usize, usize),
    /// `d % n`: where in its block of `n`.
    Mod(usize, usize),
    /// `d + e`: the anti-diagonal.
    Add(usize, usize),
    /// `d - e`: the diagonal.
    Sub(usize, usize),
}

impl Expr {
    /// The dimensions that the expression speaks of.
    pub fn dims(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Expr::Dim(d) | Expr::Div(d, _) | Expr::Mod(d, _) => (d, None),
            Expr::Add(d, e) | Expr::Sub(d, e) => (d, Some(e)),
        };
        std::iter::once(first).chain(second)
    }

    /// How many values the expression takes in a tensor of this shape; blocks that do not divide it are rounded up.
    pub fn extent(self, shape: &[usize]) -> usize {
        match self {
            Expr::Dim(d) => shape[d],
            Expr::Div(d, n) => shape[d].div_ceil(n),
            Expr::Mod(_, n) => n,
            Expr::Add(d, e) | Expr::Sub(d, e) => (shape[d] + shape[e]).saturating_sub(1),
        }
    }

    fn map_dims(self, map: impl Fn(usize) -> usize) -> Self {
        match self {
            Expr::Dim(d) => Expr::Dim(map(d)),
            Expr::Div(d, n) => Expr::Div(map(d), n),
            Expr::Mod(d, n) => Expr::Mod(map(d), n),
            Expr::Add(d, e) => Expr::Add(map(d), map(e)),
            Expr::Sub(d, e) => Expr::Sub(map(d), map(e)),
        }
    }
}

/// How a level stores its coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LevelKind {
    /// Every coordinate, nothing stored.
    Dense,
    /// As dense, and every item has positions of its own that start at 0.
    Batch,
    /// Positions delimit the coordinates of each parent.
    Compressed,
    /// One coordinate for each parent.
    Singleton,
    /// Every coordinate that an earlier sum or difference of dimensions allows, nothing stored.
    Range,
    /// Compressed, with coordinates as distances to the entry before, in so many bits; larger gaps are padded by stored zeros.
    Delta {
        /// Bits of a distance.
        bits: u32,
    },
    /// Exactly `n` coordinates in each block of the modulo that the level counts.
    Structured {
        /// How many of the block are stored.
        n: usize,
    },
}

impl LevelKind {
    /// Whether the level stores positions (offsets).
    pub fn has_positions(self) -> bool {
        matches!(self, LevelKind::Compressed | LevelKind::Delta { .. })
    }

    /// Whether the level stores coordinates.
    pub fn has_coordinates(self) -> bool {
        !matches!(self, LevelKind::Dense | LevelKind::Batch | LevelKind::Range)
    }
}

/// One level of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Level {
    /// What it counts.
    pub expr: Expr,
    /// How it is stored.
    pub kind: LevelKind,
    /// Whether a coordinate stands at most once under its parent.
    pub unique: bool,
    /// Whether coordinates ascend under their parent.
    pub ordered: bool,
}

impl Level {
    /// A level with unique and ordered coordinates.
    pub fn new(expr: Expr, kind: LevelKind) -> Self {
        Self { expr, kind, unique: true, ordered: true }
    }

    /// The level with these properties.
    pub fn with(self, unique: bool, ordered: bool) -> Self {
        Self { unique, ordered, ..self }
    }
}

/// An ordered list of levels that together store each dimension of a tensor once. Cheap to clone.
///
/// Two formats are equal if their levels are, whatever their dimensions are called.
#[derive(Clone)]
pub struct TensorFormat {
    names: Arc<[String]>,
    levels: Arc<[Level]>,
}

impl PartialEq for TensorFormat {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank() && self.levels == other.levels
    }
}
impl Eq for TensorFormat {}

impl std::hash::Hash for TensorFormat {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        self.levels.hash(state);
    }
}

use Expr::{Dim, Div, Mod, Sub};
use LevelKind::{Compressed, Dense, Range, Singleton};

impl TensorFormat {
    /// A format of `rank` dimensions, named i, j, k, l and so on (a batch of matrices: b, i, j).
    ///
    /// # Errors
    /// If the levels do not store each dimension exactly once, or contradict themselves.
    pub fn new(rank: usize, levels: impl Into<Vec<Level>>) -> Result<Self, FormatError> {
        Self::with_names(default_names(rank), levels)
    }

    /// A format whose dimensions have names of the caller's.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if a name stands twice.
    pub fn with_names(names: Vec<String>, levels: impl Into<Vec<Level>>) -> Result<Self, FormatError> {
        let levels = levels.into();
        validate::check(&names, &levels)?;
        Ok(Self { names: names.into(), levels: levels.into() })
    }

    fn named(rank: usize, levels: impl Into<Vec<Level>>) -> Self {
        Self::new(rank, levels).expect("a named format is valid")
    }

    /// Coordinates: sorted by row, then by column, each position once.
    pub fn coo() -> Self {
        Self::coo_with(true, true)
    }

    /// Coordinates that may repeat a position or stand in any order.
    pub fn coo_with(unique: bool, ordered: bool) -> Self {
        Self::named(
            2,
            [Level::new(Dim(0), Compressed).with(false, ordered), Level::new(Dim(1), Singleton).with(unique, ordered)],
        )
    }

    /// Compressed sparse rows, columns ascending in each row.
    pub fn csr() -> Self {
        Self::compressed(0, 1, true, true)
    }

    /// Compressed sparse columns, rows ascending in each column.
    pub fn csc() -> Self {
        Self::compressed(1, 0, true, true)
    }

    /// CSR (`outer` 0, `inner` 1) or CSC (`outer` 1, `inner` 0), whose entries may repeat or be unsorted.
    pub(crate) fn compressed(outer: usize, inner: usize, unique: bool, ordered: bool) -> Self {
        Self::named(2, [Level::new(Dim(outer), Dense), Level::new(Dim(inner), Compressed).with(unique, ordered)])
    }

    /// Blocks of `m` x `n` in compressed block rows, each block dense and row-major.
    ///
    /// # Errors
    /// If `m` or `n` is 0.
    pub fn bsr(m: usize, n: usize) -> Result<Self, FormatError> {
        Self::new(
            2,
            [
                Level::new(Div(0, m), Dense),
                Level::new(Div(1, n), Compressed),
                Level::new(Mod(0, m), Dense),
                Level::new(Mod(1, n), Dense),
            ],
        )
    }

    /// Diagonals, each as long as the rows that it crosses.
    pub fn dia() -> Self {
        Self::named(2, [Level::new(Sub(1, 0), Compressed), Level::new(Dim(0), Range)])
    }

    /// Compressed rows whose columns are stored as distances of so many bits.
    ///
    /// # Errors
    /// If `bits` is 0 or above 32.
    pub fn delta(bits: u32) -> Result<Self, FormatError> {
        Self::new(2, [Level::new(Dim(0), Dense), Level::new(Dim(1), LevelKind::Delta { bits })])
    }

    /// `n` stored columns in each block of `m`, in every row.
    ///
    /// # Errors
    /// If `m` is 0, or `n` is not in `1..=m`.
    pub fn structured(n: usize, m: usize) -> Result<Self, FormatError> {
        Self::new(
            2,
            [
                Level::new(Dim(0), Dense),
                Level::new(Div(1, m), Dense),
                Level::new(Mod(1, m), LevelKind::Structured { n }),
            ],
        )
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.names.len()
    }

    /// The names of the dimensions.
    pub fn dimension_names(&self) -> &[String] {
        &self.names
    }

    /// The levels, outermost first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Whether every level's coordinates ascend.
    pub fn is_ordered(&self) -> bool {
        self.levels.iter().all(|level| level.ordered)
    }

    /// Whether no position can be stored twice.
    pub fn is_unique(&self) -> bool {
        self.levels.last().is_none_or(|level| level.unique)
    }

    /// The common name of the format, whatever its properties: COO, CSR, CSC, BSR, DIA, DELTA, STRUCTURED.
    pub fn name(&self) -> Option<&'static str> {
        let shape: Vec<_> = self.levels.iter().map(|l| (l.expr, l.kind)).collect();
        Some(match shape[..] {
            [(Dim(0), Compressed), (Dim(1), Singleton)] => "COO",
            [(Dim(0), Dense), (Dim(1), Compressed)] => "CSR",
            [(Dim(1), Dense), (Dim(0), Compressed)] => "CSC",
            [(Div(0, _), Dense), (Div(1, _), Compressed), (Mod(0, _), Dense), (Mod(1, _), Dense)] => "BSR",
            [(Sub(1, 0), Compressed), (Dim(0), Range)] => "DIA",
            [(Dim(0), Dense), (Dim(1), LevelKind::Delta { .. })] => "DELTA",
            [(Dim(0), Dense), (Div(1, _), Dense), (Mod(1, _), LevelKind::Structured { .. })] => "STRUCTURED",
            _ => return None,
        })
    }

    /// The format in which the same buffers are the transposed matrix: the last two dimensions change places.
    ///
    /// # Panics
    /// If the format has fewer than two dimensions.
    pub fn transposed(&self) -> Self {
        let rank = self.rank();
        assert!(rank >= 2, "{self} has no transpose: it has {rank} dimensions");
        let swap = |d: usize| match d {
            d if d == rank - 1 => rank - 2,
            d if d == rank - 2 => rank - 1,
            d => d,
        };
        let mut levels = self.levels.to_vec();
        for level in &mut levels {
            level.expr = level.expr.map_dims(swap);
        }
        Self { names: self.names.clone(), levels: levels.into() }
    }
}

fn default_names(rank: usize) -> Vec<String> {
    let names: &[&str] = match rank {
        3 => &["b", "i", "j"],
        0..=4 => &["i", "j", "k", "l"],
        _ => &[],
    };
    (0..rank).map(|d| names.get(d).map_or(format!("d{d}"), ToString::to_string)).collect()
}

impl fmt::Debug for TensorFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
