//! What is looked at when a distribution is made.

use super::{Factor, Form, SparseMultivariateNormal};
use crate::normal::is_cpu;
use burn::tensor::Tensor;
use sparsegrad::Pattern;
use sparsegrad::error::{OpError, TensorError, TriangularError};
use sparsegrad::internals::{read, reshape};
use sparsegrad::ops::trisolve::Check;
use sparsegrad::sparse_triangular_solve;
use sparsegrad_solvers::internals::plain;

/// What is looked at when a distribution is made. Shapes and the factor's pattern always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checks {
    /// Numbers aren't looked at: one that should be positive and isn't makes a NaN somewhere.
    Pattern,
    /// Numbers that should be positive are looked at where that costs little: on the CPU.
    #[default]
    Usual,
    /// They are looked at on every device. On a GPU that waits for n numbers of an item to be read back.
    Values,
}

/// Why there is no such distribution, or no such property of it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MvnError {
    /// A factor that isn't n x n, with n the length of the location's vectors, or of another number of items.
    #[error("the factor is of shape {factor:?}, and the location of shape {loc:?} asks for {expected:?}")]
    FactorShape {
        /// The factor's shape.
        factor: Vec<usize>,
        /// The location's.
        loc: Vec<usize>,
        /// What the factor's should be.
        expected: Vec<usize>,
    },
    /// A diagonal that is neither `[n]` nor of the location's shape.
    #[error("the diagonal is of shape {diagonal:?}, which is neither [{}] nor that of the location, {loc:?}", loc.last().unwrap_or(&0))]
    DiagonalShape {
        /// The diagonal's shape.
        diagonal: Vec<usize>,
        /// The location's.
        loc: Vec<usize>,
    },
    /// A form without its diagonal, or with one that it doesn't have.
    #[error("{form:?} {}", if form.is_ldlt() { "needs a diagonal" } else { "has no diagonal beside its factor" })]
    Diagonal {
        /// The form.
        form: Form,
    },
    /// An entry above the diagonal.
    #[error("the factor must be lower triangular, and stores an entry at ({row}, {column}) of item {item}")]
    Upper {
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// Its item, 0 without a batch.
        item: usize,
    },
    /// A diagonal entry where the diagonal is ones that aren't stored.
    #[error(
        "the factor of an LDLT form must be strictly lower triangular (its diagonal is ones), and stores a diagonal entry in row {row} of item {item}"
    )]
    StoredDiagonal {
        /// Its row.
        row: usize,
        /// Its item, 0 without a batch.
        item: usize,
    },
    /// A row without a diagonal entry.
    #[error("the factor of an LLT form needs a diagonal entry in every row, and row {row} of item {item} has none")]
    MissingDiagonal {
        /// The row.
        row: usize,
        /// Its item, 0 without a batch.
        item: usize,
    },
    /// A number that should be positive.
    #[error("the {what} must be positive, and entry {index} of item {item} is {value}")]
    NotPositive {
        /// Which diagonal.
        what: &'static str,
        /// Its place.
        index: usize,
        /// Its item, 0 without a batch.
        item: usize,
        /// The number.
        value: f64,
    },
    /// Vectors that the distribution isn't over.
    #[error("{op}: vectors of shape {found:?} don't end with the distribution's shape, {expected:?}")]
    Vectors {
        /// The operation.
        op: &'static str,
        /// The vectors' shape.
        found: Vec<usize>,
        /// The shape of the location.
        expected: Vec<usize>,
    },
    /// Distributions that don't fit each other.
    #[error("{op}: distributions over {left:?} and {right:?}")]
    Distributions {
        /// The operation.
        op: &'static str,
        /// The shape of the first one's location.
        left: Vec<usize>,
        /// That of the second's.
        right: Vec<usize>,
    },
    /// A property that the form doesn't have as a sparse matrix, or that isn't cheap in it.
    #[error("{what} of the form {form:?} {reason}")]
    Form {
        /// The property.
        what: &'static str,
        /// The form.
        form: Form,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// Observed entries of which the form can't be conditioned.
    #[error(
        "{form:?} can be conditioned on its first entries, in any order: {index} is not among the first {count} (reorder the variables)"
    )]
    Observed {
        /// The form.
        form: Form,
        /// The entry.
        index: usize,
        /// How many are observed.
        count: usize,
    },
    /// An observed entry that there is not.
    #[error("entry {index} of vectors of {event} numbers is observed")]
    OutOfRange {
        /// The entry.
        index: usize,
        /// How long vectors are.
        event: usize,
    },
    /// The precision of what is left, which is not positive definite in its arithmetic.
    #[error("the precision of the entries that are left has a pivot that is not positive, in row {row}")]
    Indefinite {
        /// The row, counted through all items.
        row: usize,
    },
    /// An observed entry given twice.
    #[error("entry {index} is observed twice")]
    Repeated {
        /// The entry.
        index: usize,
    },
    /// A triangular solve that failed.
    #[error(transparent)]
    Triangular(#[from] TriangularError),
    /// Operands that don't fit each other.
    #[error(transparent)]
    Operands(#[from] OpError),
    /// A sparse tensor that can't be made or read.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Shapes, dtypes, devices and the factor's pattern; the diagonal as 1 x items (or 1) x n.
pub(super) fn fits<const D: usize, const E: usize>(
    form: Form,
    loc: &Tensor<D>,
    factor: &Factor,
    diagonal: Option<Tensor<E>>,
) -> Result<Option<Tensor<3>>, MvnError> {
    let dims = loc.dims();
    let (n, items) = (dims[D - 1], dims[..D - 1].iter().product::<usize>());
    let (pattern, shape, expected, values) = match factor {
        Factor::Shared(factor) => (factor.pattern(), factor.shape().to_vec(), vec![n, n], factor.values()),
        Factor::Each(factor) => (factor.pattern(), factor.shape().to_vec(), vec![items, n, n], factor.values()),
    };
    if shape != expected {
        return Err(MvnError::FactorShape { factor: shape, loc: dims.to_vec(), expected });
    }
    compatible(loc, values)?;
    if !is_triangular(factor, form) {
        triangular(pattern, form, n)?;
    }
    if diagonal.is_some() != form.is_ldlt() {
        return Err(MvnError::Diagonal { form });
    }
    let Some(diagonal) = diagonal else {
        return Ok(None);
    };
    compatible(loc, &diagonal)?;
    Ok(Some(per_item(diagonal, &dims)?))
}

/// Numbers of the shape `[n]`, or of the location's, as 1 x items (or 1) x n.
pub(super) fn per_item<const E: usize>(numbers: Tensor<E>, loc: &[usize]) -> Result<Tensor<3>, MvnError> {
    let (n, shape) = (loc[loc.len() - 1], numbers.dims().to_vec());
    if shape == [n] {
        Ok(reshape(numbers, [1, 1, n]))
    } else if shape == loc {
        Ok(reshape(numbers, [1, loc[..loc.len() - 1].iter().product(), n]))
    } else {
        Err(MvnError::DiagonalShape { diagonal: shape, loc: loc.to_vec() })
    }
}

pub(super) fn compatible<const D: usize, const E: usize>(loc: &Tensor<D>, other: &Tensor<E>) -> Result<(), OpError> {
    const OP: &str = "SparseMultivariateNormal";
    if loc.dtype() != other.dtype() {
        return Err(OpError::DTypes { op: OP, left: loc.dtype(), right: other.dtype() });
    }
    let (left, right) = (loc.device().inner(), other.device().inner());
    if left != right {
        return Err(OpError::Devices { op: OP, left: format!("{left:?}"), right: format!("{right:?}") });
    }
    Ok(())
}

/// Whether the factor is as [`triangular`] wants it, by the plans of solves with it, which are kept with its pattern: made every
/// step of a training loop, a distribution is not to look at each entry. On a GPU that isn't known.
fn is_triangular(factor: &Factor, form: Form) -> bool {
    let factor = factor.matrix().map_values(plain);
    is_cpu(&factor.device()) && {
        let nothing = Tensor::<2>::zeros([factor.shape()[0], 0], (&factor.device(), factor.dtype()));
        sparse_triangular_solve(&factor, nothing, form.triangle(false).check(Check::Strict)).is_ok()
    }
}

/// Of each block of n rows: lower triangular, with all of the diagonal or nothing of it.
fn triangular(pattern: &Pattern, form: Form, n: usize) -> Result<(), MvnError> {
    let mut diagonal = vec![false; if form.is_ldlt() { 0 } else { pattern.shape()[0] }];
    let (rows, columns) = pattern.coordinates();
    for (row, column) in rows.into_iter().zip(columns) {
        if column > row {
            return Err(MvnError::Upper { row: row % n, column: column % n, item: row / n });
        }
        if column == row {
            match diagonal.get_mut(row) {
                Some(seen) => *seen = true,
                None => return Err(MvnError::StoredDiagonal { row: row % n, item: row / n }),
            }
        }
    }
    match diagonal.iter().position(|&seen| !seen) {
        Some(row) => Err(MvnError::MissingDiagonal { row: row % n, item: row / n }),
        None => Ok(()),
    }
}

/// The numbers that should be positive.
pub(super) fn values<const D: usize>(of: &SparseMultivariateNormal<D>, checks: Checks) -> Result<(), MvnError> {
    let looks = match checks {
        Checks::Pattern => false,
        Checks::Usual => is_cpu(&of.device()),
        Checks::Values => true,
    };
    if !looks {
        return Ok(());
    }
    let (what, numbers) = match &of.diagonal {
        Some(diagonal) => ("diagonal", reshape(diagonal.clone(), [diagonal.shape().num_elements()])),
        None => ("diagonal of the factor", of.factor.matrix().get_diagonal(0)),
    };
    let n = of.event_size();
    match read(numbers)?.into_iter().enumerate().find(|&(_, value)| value <= 0.0 || value.is_nan()) {
        Some((at, value)) => Err(MvnError::NotPositive { what, index: at % n, item: at / n, value }),
        None => Ok(()),
    }
}
