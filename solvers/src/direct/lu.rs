//! `P A = L U`.

use super::{Factor, structure};
use crate::host::{HostColumns, HostCsr};
use crate::outcome::Outcome;
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::sparse::linalg::LuError;
use faer::sparse::linalg::lu::{LuRef, NumericLu, SymbolicLu, factorize_symbolic_lu, simplicial};
use faer::sparse::{FaerError, SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par};
use std::sync::Arc;

pub(super) type Symbolic = SymbolicLu<usize>;

/// The transposed matrix as faer sees it, whose columns are our rows.
pub(super) fn view(matrix: &HostCsr) -> SparseColMatRef<'_, usize, f64> {
    let [m, n] = matrix.shape();
    let symbolic = SymbolicSparseColMatRef::new_checked(n, m, &matrix.offsets, None, &matrix.columns);
    SparseColMatRef::new(symbolic, &matrix.values)
}

pub(super) fn stack(request: StackReq) -> MemBuffer {
    MemBuffer::new(request)
}

/// What is neither a matter of values nor of the pattern.
pub(super) fn failed(error: FaerError) -> Outcome {
    Outcome::Failed { reason: format!("{error:?}") }
}

pub(super) fn analyse(matrix: &HostCsr) -> Result<Arc<Symbolic>, Outcome> {
    if let Some(pivot) = structure::unmatched_row(matrix) {
        return Err(Outcome::Singular { pivot, what: "row" });
    }
    factorize_symbolic_lu(view(matrix).symbolic(), Default::default()).map(Arc::new).map_err(failed)
}

#[derive(Debug)]
pub(super) struct Lu {
    symbolic: Arc<Symbolic>,
    /// Of A^T.
    numeric: NumericLu<usize, f64>,
}

pub(super) fn factorise(symbolic: &Arc<Symbolic>, matrix: &HostCsr) -> Result<Lu, Outcome> {
    let mut numeric = NumericLu::new();
    let mut memory = stack(symbolic.factorize_numeric_lu_scratch::<f64>(Par::Seq, Default::default()));
    let memory = MemStack::new(&mut memory);
    let done = symbolic.factorize_numeric_lu(&mut numeric, view(matrix), Par::Seq, memory, Default::default());
    match done.map(drop) {
        Ok(()) => {}
        Err(LuError::SymbolicSingular { index }) => {
            let pivot = symbolic.col_perm().arrays().0[index];
            return Err(Outcome::Singular { pivot, what: "row" });
        }
        Err(LuError::Generic(error)) => return Err(failed(error)),
    }
    let lu = Lu { symbolic: symbolic.clone(), numeric };
    // faer divides by a pivot that is zero; what comes of it is found by a solve.
    let n = matrix.shape()[0];
    let ones = HostColumns { rows: n, columns: 1, values: vec![1.0; n] };
    let finite = |transpose| lu.solve(&ones, transpose).values.iter().all(|value| value.is_finite());
    if finite(false) && finite(true) {
        return Ok(lu);
    }
    Err(match zero_pivot(symbolic, matrix) {
        Some(pivot) => Outcome::Singular { pivot, what: "row" },
        None => Outcome::Failed { reason: "the factors overflow".into() },
    })
}

/// The row of A at the first pivot that is zero or not finite, by a factorisation whose pivots can be seen.
fn zero_pivot(symbolic: &Symbolic, matrix: &HostCsr) -> Option<usize> {
    let n = matrix.shape()[0];
    let (mut forward, mut inverse) = (vec![0; n], vec![0; n]);
    let mut factors = simplicial::SimplicialLu::new();
    let mut memory = stack(simplicial::factorize_simplicial_numeric_lu_scratch::<usize, f64>(n, n));
    let memory = MemStack::new(&mut memory);
    let order = symbolic.col_perm();
    let column = |at: usize| order.arrays().0[at];
    match simplicial::factorize_simplicial_numeric_lu(
        &mut forward,
        &mut inverse,
        &mut factors,
        view(matrix),
        order,
        memory,
    ) {
        Err(LuError::SymbolicSingular { index }) => return Some(column(index)),
        Err(LuError::Generic(_)) => return None,
        Ok(()) => {}
    }
    let upper = factors.u_factor_unsorted();
    let bad = |at: &usize| upper.val_of_col(*at).last().is_none_or(|pivot| *pivot == 0.0 || !pivot.is_finite());
    (0..n).find(bad).map(column)
}

impl Factor for Lu {
    fn solve(&self, b: &HostColumns, transpose: bool) -> HostColumns {
        let mut x = b.clone();
        let mut memory = stack(self.symbolic.solve_transpose_in_place_scratch::<f64>(b.columns, Par::Seq));
        let memory = MemStack::new(&mut memory);
        let columns = MatMut::from_column_major_slice_mut(&mut x.values, b.rows, b.columns);
        let lu = LuRef::new_unchecked(&self.symbolic, &self.numeric);
        // The factors are those of the transposed matrix.
        match transpose {
            true => lu.solve_in_place_with_conj(Conj::No, columns, Par::Seq, memory),
            false => lu.solve_transpose_in_place_with_conj(Conj::No, columns, Par::Seq, memory),
        }
        x
    }
}
