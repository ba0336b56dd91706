//! `L L^T` and `L D L^T`.

use super::Factor;
use super::lu::{failed, stack, view};
use crate::host::{HostColumns, HostCsr};
use crate::outcome::Outcome;
use faer::dyn_stack::MemStack;
use faer::linalg::cholesky::{ldlt::factor::LdltError, llt::factor::LltError};
use faer::sparse::SymbolicSparseColMatRef;
use faer::sparse::linalg::cholesky::{
    LdltRef, LltRef, SymbolicCholesky, SymbolicCholeskyRaw, SymmetricOrdering, factorize_symbolic_cholesky,
};
use faer::{Conj, MatMut, Par, Side};
use std::sync::Arc;

pub(super) type Symbolic = SymbolicCholesky<usize>;

/// The rows of A are the columns of A^T: faer's upper triangle is our lower one.
const SIDE: Side = Side::Upper;

pub(super) fn analyse(matrix: &HostCsr) -> Result<Arc<Symbolic>, Outcome> {
    let symbolic = view(matrix).symbolic();
    let analysis = factorize_symbolic_cholesky(symbolic, SIDE, SymmetricOrdering::Amd, Default::default());
    analysis.map(Arc::new).map_err(failed)
}

/// The entries of the factor of the pattern of A + A^T, if there are not too many to count.
pub(super) fn fill(matrix: &HostCsr) -> Option<usize> {
    let n = matrix.shape()[0];
    // By columns, what is on or above the diagonal: of each entry the one of the two places that is.
    let mut columns: Vec<Vec<usize>> = vec![vec![]; n];
    for row in 0..n {
        for entry in matrix.row(row) {
            let column = matrix.columns[entry];
            columns[row.max(column)].push(row.min(column));
        }
    }
    let (mut offsets, mut rows) = (vec![0], vec![]);
    for mut column in columns {
        column.sort_unstable();
        column.dedup();
        rows.append(&mut column);
        offsets.push(rows.len());
    }
    let upper = SymbolicSparseColMatRef::new_checked(n, n, &offsets, None, &rows);
    let symbolic = factorize_symbolic_cholesky(upper, Side::Upper, SymmetricOrdering::Amd, Default::default()).ok()?;
    Some(symbolic.len_val())
}

#[derive(Debug)]
pub(super) struct Cholesky {
    symbolic: Arc<Symbolic>,
    values: Vec<f64>,
    ldlt: bool,
}

pub(super) fn factorise(symbolic: &Arc<Symbolic>, matrix: &HostCsr, ldlt: bool) -> Result<Cholesky, Outcome> {
    let mut values = vec![0.0; symbolic.len_val()];
    let (a, par) = (view(matrix), Par::Seq);
    // The row of A of a pivot, which faer counts from 1 or from 0.
    let row = |index: usize| {
        let at = match symbolic.raw() {
            SymbolicCholeskyRaw::Simplicial(_) => index - 1,
            SymbolicCholeskyRaw::Supernodal(_) => index,
        };
        symbolic.perm().map_or(at, |perm| perm.arrays().0[at])
    };
    if ldlt {
        let mut memory = stack(symbolic.factorize_numeric_ldlt_scratch::<f64>(par, Default::default()));
        let params = Default::default();
        let memory = MemStack::new(&mut memory);
        symbolic
            .factorize_numeric_ldlt(&mut values, a, SIDE, Default::default(), par, memory, params)
            .map_err(|LdltError::ZeroPivot { index }| Outcome::Singular { pivot: row(index), what: "row" })?;
    } else {
        let mut memory = stack(symbolic.factorize_numeric_llt_scratch::<f64>(par, Default::default()));
        let params = Default::default();
        let memory = MemStack::new(&mut memory);
        symbolic
            .factorize_numeric_llt(&mut values, a, SIDE, Default::default(), par, memory, params)
            .map_err(|LltError::NonPositivePivot { index }| Outcome::NotPositiveDefinite { row: row(index) })?;
    }
    Ok(Cholesky { symbolic: symbolic.clone(), values, ldlt })
}

impl Factor for Cholesky {
    fn solve(&self, b: &HostColumns, _: bool) -> HostColumns {
        let mut x = b.clone();
        let par = Par::Seq;
        let mut memory = stack(self.symbolic.solve_in_place_scratch::<f64>(x.columns, par));
        let memory = MemStack::new(&mut memory);
        let columns = MatMut::from_column_major_slice_mut(&mut x.values, b.rows, b.columns);
        match self.ldlt {
            true => LdltRef::new(&self.symbolic, &self.values).solve_in_place_with_conj(Conj::No, columns, par, memory),
            false => LltRef::new(&self.symbolic, &self.values).solve_in_place_with_conj(Conj::No, columns, par, memory),
        }
        x
    }
}
