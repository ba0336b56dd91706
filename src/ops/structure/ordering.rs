//! Orderings that make factors narrow or sparse, and what says how narrow a matrix is.

use crate::pattern::{Index, Pattern, with_rows};

#[cfg(feature = "ordering")]
use super::Permutation;
#[cfg(feature = "ordering")]
use crate::error::PermutationError;

impl Pattern {
    /// How far entries lie from the diagonal: below it, and above it. 0 where there are none.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let pattern = Pattern::csr([0, 2, 3, 4], [0, 1, 1, 0], [3, 3])?;
    /// assert_eq!(pattern.bandwidth(), (2, 1));
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn bandwidth(&self) -> (usize, usize) {
        let (mut below, mut above) = (0, 0);
        self.for_each_entry(|row, column, _| {
            below = below.max(row.saturating_sub(column));
            above = above.max(column.saturating_sub(row));
        });
        (below, above)
    }

    /// The size of the lower envelope: the sum over the rows of the distance from their first entry to the diagonal, where that is
    /// on the left of it. What a skyline factor of a symmetric matrix stores beside its diagonal (A. George and J. Liu, *Computer
    /// Solution of Large Sparse Positive Definite Systems*, 1981).
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let pattern = Pattern::csr([0, 2, 3, 4], [0, 1, 1, 0], [3, 3])?;
    /// assert_eq!(pattern.profile(), 2);
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn profile(&self) -> usize {
        with_rows!(self.rows(), rows => {
            let first = |row: usize| rows.columns[rows.range(row)].iter().map(|column| column.get()).min();
            (0..rows.n_rows()).map(|row| first(row).map_or(0, |first| row.saturating_sub(first))).sum()
        })
    }
}

#[cfg(feature = "ordering")]
impl Permutation {
    /// The reverse Cuthill-McKee ordering of a square pattern, read as that of `A + A^T`: `a.permute_symmetric(&p)` has its entries
    /// near the diagonal. Each connected part starts at a vertex far from others (E. Cuthill and J. McKee, *Reducing the bandwidth
    /// of sparse symmetric matrices*, 1969; A. George and J. Liu, *An implementation of a pseudoperipheral node finder*, 1979).
    ///
    /// By crate `sprs`, on the host. Feature `ordering`.
    ///
    /// # Errors
    /// If the pattern is not square.
    ///
    /// ```
    /// use sparsegrad::{gallery, ops::structure::Permutation, prelude::*};
    ///
    /// let grid = gallery::poisson([4, 60], &Device::flex())?; // numbered along the long side
    /// let p = Permutation::reverse_cuthill_mckee(grid.pattern())?;
    /// assert_eq!(grid.pattern().bandwidth(), (60, 60));
    /// assert!(grid.permute_symmetric(&p).pattern().bandwidth().0 <= 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reverse_cuthill_mckee(pattern: &Pattern) -> Result<Self, PermutationError> {
        let (offsets, neighbours) = adjacency(pattern, false)?;
        let (n, ones) = (offsets.len() - 1, vec![1u8; neighbours.len()]);
        let graph = sprs::CsMatViewI::new((n, n), &offsets, &neighbours, &ones);
        let found = sprs::linalg::reverse_cuthill_mckee(graph);
        Ok(Self::trusted(&found.perm.vec()))
    }

    /// An approximate minimum degree ordering of a square pattern, read as that of `A + A^T`: the Cholesky factor of
    /// `a.permute_symmetric(&p)` has few entries (P. Amestoy, T. Davis and I. Duff, *An approximate minimum degree ordering algorithm*,
    /// SIAM J. Matrix Anal. Appl. 17, 1996).
    ///
    /// By crate `amd`, on the host. Feature `ordering`.
    ///
    /// # Errors
    /// If the pattern is not square.
    ///
    /// ```
    /// use sparsegrad::{gallery, ops::structure::Permutation, prelude::*};
    ///
    /// let grid = gallery::poisson([20, 20], &Device::flex())?;
    /// let p = Permutation::amd(grid.pattern())?;
    /// let ordered = grid.permute_symmetric(&p);
    /// assert_eq!(ordered.permute_symmetric(&p.inverse()).pattern(), grid.pattern());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn amd(pattern: &Pattern) -> Result<Self, PermutationError> {
        // With the diagonal: the crate counts what is beside it as entries less rows.
        let (offsets, neighbours) = adjacency(pattern, true)?;
        let [offsets, neighbours] =
            [offsets, neighbours].map(|list| list.into_iter().map(|i| i as i64).collect::<Vec<_>>());
        let n = offsets.len() as i64 - 1;
        let found = amd::order(n, &offsets, &neighbours, &amd::Control::default());
        let (order, ..) = found.expect("sorted indices in range");
        Ok(Self::trusted(&order.into_iter().map(|at| at as usize).collect::<Vec<_>>()))
    }
}

/// Offsets and columns of the pattern of `A + A^T`, sorted, each position once; with all of the diagonal, or with none of it.
#[cfg(feature = "ordering")]
fn adjacency(pattern: &Pattern, diagonal: bool) -> Result<(Vec<usize>, Vec<usize>), PermutationError> {
    let [rows, columns] = pattern.shape();
    if rows != columns {
        return Err(PermutationError::NotSquare { rows, columns });
    }
    let (t, mut offsets, mut neighbours) = (pattern.t(), vec![0], Vec::new());
    let mut row_of: Vec<usize> = Vec::new();
    for row in 0..rows {
        row_of.clear();
        for side in [pattern, &t] {
            with_rows!(side.rows(), side => row_of.extend(side.columns[side.range(row)].iter().map(|column| column.get())));
        }
        row_of.retain(|&column| column != row);
        row_of.extend(diagonal.then_some(row));
        row_of.sort_unstable();
        row_of.dedup();
        neighbours.extend_from_slice(&row_of);
        offsets.push(neighbours.len());
    }
    Ok((offsets, neighbours))
}
