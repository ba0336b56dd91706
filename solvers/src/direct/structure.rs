//! What the pattern alone says about rank.

use crate::host::HostCsr;

/// The first row that no choice of one entry in each row and column can serve: where there is one, the matrix is singular
/// whatever its values are.
///
/// Source: I. S. Duff, *On algorithms for obtaining a maximum transversal*, 1981.
pub(super) fn unmatched_row(matrix: &HostCsr) -> Option<usize> {
    const NONE: usize = usize::MAX;
    let [m, n] = matrix.shape();
    let mut row_of = vec![NONE; n];
    let mut visited = vec![NONE; n];
    // Where the search of a row goes on: for a free column, and for a way through one.
    let (mut free, mut next) = (matrix.offsets.clone(), matrix.offsets.clone());
    for root in 0..m {
        let mut path: Vec<(usize, usize)> = vec![(root, NONE)];
        let mut found = NONE;
        next[root] = matrix.offsets[root];
        while let Some(&(row, _)) = path.last() {
            let end = matrix.offsets[row + 1];
            // A column that was taken once stays taken: the search for free ones never starts over.
            while found == NONE && free[row] < end {
                let column = matrix.columns[free[row]];
                free[row] += 1;
                if row_of[column] == NONE {
                    found = column;
                }
            }
            if found != NONE {
                break;
            }
            let way = (next[row]..end).find(|&entry| visited[matrix.columns[entry]] != root);
            match way {
                Some(entry) => {
                    let column = matrix.columns[entry];
                    visited[column] = root;
                    next[row] = entry + 1;
                    let owner = row_of[column];
                    next[owner] = matrix.offsets[owner];
                    path.push((owner, column));
                }
                None => {
                    path.pop();
                }
            }
        }
        if found == NONE {
            return Some(root);
        }
        // Each row of the path gives its column to the one before it.
        for (row, column) in path.into_iter().rev() {
            row_of[found] = row;
            found = column;
        }
    }
    None
}
