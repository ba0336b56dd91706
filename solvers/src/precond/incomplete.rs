//! Incomplete factorisations without fill.

use super::steps::{Step, Steps};
use super::{Inverse, Preconditioner, PreconditionerError, with_diagonal};
use crate::host::HostCsr;
use crate::operator::{LinearOperator, Tags};
use sparsegrad::Triangular;

/// The incomplete Cholesky factorisation without fill: `M = L L^T`, with L at the pattern of A's lower triangle.
///
/// For symmetric positive definite matrices, of which the lower triangle is read. Where a pivot is not positive the
/// factorisation starts again with a part of the diagonal added, `A + s diag(A)`, `s = 1e-3` and doubled until it succeeds;
/// the report says so.
///
/// # Errors
/// A diagonal entry that is missing, or not positive.
///
/// Sources: J. A. Meijerink and H. A. van der Vorst, *An iterative solution method for linear systems of which the coefficient
/// matrix is a symmetric M-matrix*, 1977; for the shift, C.-J. Lin and J. J. Moré, *Incomplete Cholesky factorizations with
/// limited memory*, 1999.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ic0;

/// The incomplete LU factorisation without fill: `M = L U` with L (unit diagonal) and U at the pattern of A.
///
/// Where a pivot is negligible beside its row of A the factorisation starts again with a part of the largest entry of each row
/// added to its diagonal, `s = 1e-3` and doubled until it succeeds; the report says so.
///
/// # Errors
/// A row without a diagonal entry.
///
/// Source: Y. Saad, *Iterative Methods for Sparse Linear Systems*, 2nd ed., 2003, algorithm 10.4.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ilu0;

impl Preconditioner for Ic0 {
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        let preconditioner = "IC(0)";
        let (matrix, diagonal) = with_diagonal(preconditioner, a)?;
        let value = |row: usize| matrix.values[diagonal[row]];
        if let Some(row) = (0..diagonal.len()).find(|&row| value(row) <= 0.0) {
            let (value, must) = (value(row), "positive");
            return Err(PreconditionerError::Diagonal { preconditioner, row, value, must });
        }
        let (values, note) = shifted(preconditioner, |shift| cholesky(&matrix, &diagonal, shift))?;
        // At the pattern of A, of which the solves read one triangle: its plans are there already.
        let factor = matrix.upload(values, a);
        let steps = vec![
            Step::Solve(factor.clone(), Triangular::lower()),
            Step::Solve(factor, Triangular::lower().transpose()),
        ];
        Ok(Inverse { operator: Steps::like(a, steps, Tags::POSITIVE_DEFINITE), note })
    }
}

impl Preconditioner for Ilu0 {
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        let preconditioner = "ILU(0)";
        let (matrix, diagonal) = with_diagonal(preconditioner, a)?;
        let (values, note) = shifted(preconditioner, |shift| lu(&matrix, &diagonal, shift))?;
        let factors = matrix.upload(values, a);
        let steps = vec![
            Step::Solve(factors.clone(), Triangular::lower().unit_diagonal()),
            Step::Solve(factors, Triangular::upper()),
        ];
        Ok(Inverse { operator: Steps::like(a, steps, Tags::NONE), note })
    }
}

const FIRST_SHIFT: f64 = 1e-3;
const LARGEST_SHIFT: f64 = 1e3;

/// The factors with no shift, or with the first that lets them exist, and a word on it.
fn shifted(
    preconditioner: &'static str,
    factorise: impl Fn(f64) -> Result<Vec<f64>, usize>,
) -> Result<(Vec<f64>, Option<String>), PreconditionerError> {
    let first = match factorise(0.0) {
        Ok(values) => return Ok((values, None)),
        Err(row) => row,
    };
    let mut shift = FIRST_SHIFT;
    loop {
        match factorise(shift) {
            Ok(values) => {
                let note =
                    format!("{preconditioner} broke down in row {first}: shifted by {shift:.1e} of the diagonal");
                return Ok((values, Some(note)));
            }
            Err(row) if shift >= LARGEST_SHIFT => {
                return Err(PreconditionerError::Breakdown { preconditioner, row, shift });
            }
            Err(_) => shift *= 2.0,
        }
    }
}

/// A pivot below this part of the entry that it comes from is taken for zero.
const NEGLIGIBLE: f64 = 1e-12;

/// The factor's values in the lower triangle of A's pattern (zeros in the upper one), or the row where it breaks down.
fn cholesky(a: &HostCsr, diagonal: &[usize], shift: f64) -> Result<Vec<f64>, usize> {
    let n = diagonal.len();
    let mut l = vec![0.0; a.values.len()];
    // The row under way, scattered.
    let mut row_i = vec![0.0; n];
    for i in 0..n {
        let left = a.offsets[i]..diagonal[i];
        let pivot = a.values[diagonal[i]] * (1.0 + shift);
        let mut rest = pivot;
        for entry in left.clone() {
            let k = a.columns[entry];
            let known = a.offsets[k]..diagonal[k];
            let dot: f64 = known.map(|at| l[at] * row_i[a.columns[at]]).sum();
            let value = (a.values[entry] - dot) / l[diagonal[k]];
            (l[entry], row_i[k]) = (value, value);
            rest -= value * value;
        }
        for entry in left {
            row_i[a.columns[entry]] = 0.0;
        }
        // NaN, too, is a breakdown.
        if !(rest > NEGLIGIBLE * pivot && rest.is_finite()) {
            return Err(i);
        }
        l[diagonal[i]] = rest.sqrt();
    }
    Ok(l)
}

/// L (without its diagonal) and U at A's pattern, or the row where they break down.
fn lu(a: &HostCsr, diagonal: &[usize], shift: f64) -> Result<Vec<f64>, usize> {
    const NONE: usize = usize::MAX;
    let n = diagonal.len();
    let mut factors = a.values.clone();
    // The place of each column of the row under way.
    let mut place = vec![NONE; n];
    for i in 0..n {
        let range = a.row(i);
        let largest = a.values[range.clone()].iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        factors[diagonal[i]] += (shift * largest).copysign(a.values[diagonal[i]]);
        for entry in range.clone() {
            place[a.columns[entry]] = entry;
        }
        for entry in a.offsets[i]..diagonal[i] {
            let k = a.columns[entry];
            let factor = factors[entry] / factors[diagonal[k]];
            factors[entry] = factor;
            for at in diagonal[k] + 1..a.offsets[k + 1] {
                let place = place[a.columns[at]];
                if place != NONE {
                    factors[place] -= factor * factors[at];
                }
            }
        }
        for entry in range {
            place[a.columns[entry]] = NONE;
        }
        let pivot = factors[diagonal[i]].abs();
        if !(pivot > NEGLIGIBLE * largest && pivot.is_finite()) {
            return Err(i);
        }
    }
    Ok(factors)
}
