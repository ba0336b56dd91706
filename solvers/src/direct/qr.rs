//! `A = Q R`, of the matrix or, if that is wide, of its transpose.

use super::Factor;
use super::lu::{failed, stack};
use crate::host::{HostColumns, HostCsr};
use crate::outcome::Outcome;
use faer::dyn_stack::{MemStack, StackReq};
use faer::perm::PermRef;
use faer::prelude::ReborrowMut;
use faer::sparse::linalg::qr::{self, simplicial};
use faer::sparse::linalg::{colamd, triangular_solve};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par};
use std::sync::Arc;

/// What the pattern decides. Not faer's own wrapper, which hides R.
#[derive(Debug)]
pub(super) struct Symbolic {
    /// In the order of elimination: the column of the matrix.
    forward: Vec<usize>,
    inverse: Vec<usize>,
    factors: simplicial::SymbolicSimplicialQr<usize>,
}

/// A tall matrix by columns.
#[derive(Debug)]
struct Tall {
    rows: usize,
    columns: usize,
    offsets: Vec<usize>,
    indices: Vec<usize>,
    values: Vec<f64>,
}

impl Tall {
    fn of(matrix: &HostCsr) -> Self {
        let [m, n] = matrix.shape();
        if m >= n {
            let (offsets, indices, values) = matrix.transposed();
            return Self { rows: m, columns: n, offsets, indices, values };
        }
        let (offsets, indices) = (matrix.offsets.clone(), matrix.columns.clone());
        Self { rows: n, columns: m, offsets, indices, values: matrix.values.clone() }
    }

    /// Whether it is A^T.
    fn is_transposed(&self, matrix: &HostCsr) -> bool {
        matrix.shape() != [self.rows, self.columns]
    }

    fn view(&self) -> SparseColMatRef<'_, usize, f64> {
        let symbolic =
            SymbolicSparseColMatRef::new_checked(self.rows, self.columns, &self.offsets, None, &self.indices);
        SparseColMatRef::new(symbolic, &self.values)
    }

    /// `F x`.
    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; self.rows];
        for (x, bounds) in x.iter().zip(self.offsets.windows(2)) {
            for entry in bounds[0]..bounds[1] {
                y[self.indices[entry]] += self.values[entry] * x;
            }
        }
        y
    }

    /// `F^T y`.
    fn apply_transpose(&self, y: &[f64]) -> Vec<f64> {
        let dot = |column: usize| {
            (self.offsets[column]..self.offsets[column + 1]).map(|entry| self.values[entry] * y[self.indices[entry]])
        };
        (0..self.columns).map(|column| dot(column).sum()).collect()
    }
}

pub(super) fn analyse(matrix: &HostCsr) -> Result<Arc<Symbolic>, Outcome> {
    let tall = Tall::of(matrix);
    let (m, n, nnz) = (tall.rows, tall.columns, tall.values.len());
    let by_columns = tall.view().symbolic();
    let mut memory = stack(StackReq::any_of(&[
        colamd::order_scratch::<usize>(m, n, nnz),
        qr::col_etree_scratch::<usize>(m, n),
        qr::postorder_scratch::<usize>(n),
        qr::column_counts_aat_scratch::<usize>(n, m),
        simplicial::factorize_simplicial_symbolic_qr_scratch::<usize>(m, n),
    ]));
    let memory = MemStack::new(&mut memory);
    let (mut forward, mut inverse) = (vec![0; n], vec![0; n]);
    colamd::order(&mut forward, &mut inverse, by_columns, Default::default(), memory).map_err(failed)?;
    let order = Some(PermRef::new_checked(&forward, &inverse, n));
    let (mut tree, mut post) = (vec![0; n], vec![0; n]);
    let tree = qr::col_etree(by_columns, order, &mut tree, memory);
    qr::postorder(&mut post, tree, memory);
    let (mut counts, mut first_columns) = (vec![0; n], vec![0; m]);
    let (row_offsets, row_columns) = match tall.is_transposed(matrix) {
        true => {
            let (offsets, rows, _) = matrix.transposed();
            (offsets, rows)
        }
        false => (matrix.offsets.clone(), matrix.columns.clone()),
    };
    let by_rows = SymbolicSparseColMatRef::new_checked(n, m, &row_offsets, None, &row_columns);
    qr::column_counts_ata(&mut counts, &mut first_columns, by_rows, order, tree, &post, memory);
    let factors =
        simplicial::factorize_simplicial_symbolic_qr(&first_columns, tree, &counts, memory).map_err(failed)?;
    Ok(Arc::new(Symbolic { forward, inverse, factors }))
}

#[derive(Debug)]
pub(super) struct Qr {
    symbolic: Arc<Symbolic>,
    tall: Tall,
    transposed: bool,
    r: Columns,
    householder: Columns,
    tau: Vec<f64>,
}

/// A matrix by columns.
#[derive(Debug)]
struct Columns {
    offsets: Vec<usize>,
    indices: Vec<usize>,
    values: Vec<f64>,
}

impl Columns {
    fn zeros(columns: usize, length: usize) -> Self {
        Self { offsets: vec![0; columns + 1], indices: vec![0; length], values: vec![0.0; length] }
    }

    fn view(&self, rows: usize, columns: usize) -> SparseColMatRef<'_, usize, f64> {
        // SAFETY: offsets and indices are those that faer has written.
        let symbolic =
            unsafe { SymbolicSparseColMatRef::new_unchecked(rows, columns, &self.offsets, None, &self.indices) };
        SparseColMatRef::new(symbolic, &self.values)
    }
}

pub(super) fn factorise(symbolic: &Arc<Symbolic>, matrix: &HostCsr) -> Result<Qr, Outcome> {
    let tall = Tall::of(matrix);
    let (m, n, factors) = (tall.rows, tall.columns, &symbolic.factors);
    let mut r = Columns::zeros(n, factors.len_r());
    let mut householder = Columns::zeros(n, factors.len_householder());
    let mut tau = vec![0.0; n];
    let mut memory = stack(simplicial::factorize_simplicial_numeric_qr_scratch::<usize, f64>(factors));
    simplicial::factorize_simplicial_numeric_qr_unsorted(
        &mut r.offsets,
        &mut r.indices,
        &mut r.values,
        &mut householder.offsets,
        &mut householder.indices,
        &mut householder.values,
        &mut tau,
        tall.view(),
        Some(symbolic.order()),
        factors,
        MemStack::new(&mut memory),
    );
    let transposed = tall.is_transposed(matrix);
    let diagonal: Vec<f64> = (0..n).map(|at| r.values[r.offsets[at + 1] - 1].abs()).collect();
    let largest = diagonal.iter().copied().fold(0.0, f64::max);
    let negligible = m as f64 * f64::EPSILON * largest;
    // NaN, too, is no pivot.
    if let Some(at) = diagonal.iter().position(|&pivot| pivot <= negligible || pivot.is_nan()) {
        let what = if transposed { "row" } else { "column" };
        return Err(Outcome::Singular { pivot: symbolic.forward[at], what });
    }
    Ok(Qr { symbolic: symbolic.clone(), tall, transposed, r, householder, tau })
}

impl Symbolic {
    fn order(&self) -> PermRef<'_, usize> {
        PermRef::new_checked(&self.forward, &self.inverse, self.forward.len())
    }
}

impl Qr {
    /// `F^+ b`.
    fn least_squares(&self, b: &[f64]) -> Vec<f64> {
        let (m, n, factors) = (self.tall.rows, self.tall.columns, &self.symbolic.factors);
        let (r, h) = (self.r.view(n, n), self.householder.view(m, n));
        let mut x = b.to_vec();
        let mut memory = stack(factors.solve_in_place_scratch::<f64>(1, Par::Seq));
        let column = MatMut::from_column_major_slice_mut(&mut x, m, 1);
        simplicial::SimplicialQrRef::new(factors, r, h, &self.tau).solve_in_place_with_conj(
            Conj::No,
            column,
            Par::Seq,
            MemStack::new(&mut memory),
        );
        self.symbolic.inverse.iter().map(|&at| x[at]).collect()
    }

    /// `(F^T F)^-1 g`, by R.
    fn normal(&self, g: &[f64]) -> Vec<f64> {
        let n = self.tall.columns;
        let mut x: Vec<f64> = self.symbolic.forward.iter().map(|&at| g[at]).collect();
        let r = self.r.view(n, n);
        let mut column = MatMut::from_column_major_slice_mut(&mut x, n, 1);
        triangular_solve::solve_upper_triangular_transpose_in_place(r, Conj::No, column.rb_mut(), Par::Seq);
        triangular_solve::solve_upper_triangular_in_place(r, Conj::No, column.rb_mut(), Par::Seq);
        self.symbolic.inverse.iter().map(|&at| x[at]).collect()
    }

    /// `F^+T g = F (F^T F)^-1 g`: the seminormal equations, with one correction.
    fn minimum_norm(&self, g: &[f64]) -> Vec<f64> {
        let mut y = self.tall.apply(&self.normal(g));
        let rest: Vec<f64> = g.iter().zip(self.tall.apply_transpose(&y)).map(|(g, image)| g - image).collect();
        y.iter_mut().zip(self.tall.apply(&self.normal(&rest))).for_each(|(y, d)| *y += d);
        y
    }
}

impl Factor for Qr {
    fn solve(&self, b: &HostColumns, transpose: bool) -> HostColumns {
        let tall = transpose == self.transposed;
        let rows = if tall { self.tall.columns } else { self.tall.rows };
        let mut x = HostColumns::zeros(rows, b.columns);
        for column in 0..b.columns {
            let b = b.column(column);
            let solution = if tall { self.least_squares(b) } else { self.minimum_norm(b) };
            x.column_mut(column).copy_from_slice(&solution);
        }
        x
    }
}
