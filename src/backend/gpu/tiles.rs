//! Rows of a pattern cut into tiles of bounded length, each of one row: for kernels whose cubes take a tile each.

use crate::pattern::{Index, Rows};
use std::ops::Range;

/// The tiles of each row, of at most `size` entries; those without entries have none.
pub(crate) fn tiles<I: Index>(rows: &Rows<I>, size: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    (0..rows.n_rows()).flat_map(move |row| {
        let range = rows.range(row);
        range.clone().step_by(size).map(move |start| (row, start..range.end.min(start + size)))
    })
}

/// Rows whose results are made in parts of at most some number of entries, which are added in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Where the result of each part goes, the first entry and the one past the last: a target below the number of rows is the
    /// row itself, which then has no other part; the others count the parts of the rows that are cut.
    pub table: Vec<[usize; 3]>,
    /// Of each row that is cut: the row, its first part and the one past its last.
    pub cuts: Vec<[usize; 3]>,
}

impl Parts {
    /// The parts of at most `size` entries. Rows without entries have one, too: their result has to be written.
    pub fn of<I: Index>(rows: &Rows<I>, size: usize) -> Self {
        let (mut parts, n_rows) = (Self::default(), rows.n_rows());
        for row in 0..n_rows {
            let range = rows.range(row);
            if range.len() <= size {
                parts.table.push([row, range.start, range.end]);
                continue;
            }
            let first = parts.count();
            for (part, start) in range.clone().step_by(size).enumerate() {
                parts.table.push([n_rows + first + part, start, range.end.min(start + size)]);
            }
            parts.cuts.push([row, first, first + range.len().div_ceil(size)]);
        }
        parts
    }

    /// The number of parts of rows that are cut.
    pub fn count(&self) -> usize {
        self.cuts.last().map_or(0, |[.., end]| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::with_rows;
    use crate::segments::Segments;

    #[test]
    fn tiles_and_parts_cover_all_rows() {
        let segments = Segments::from_lengths([3, 0, 10, 4]).expect("valid lengths");
        with_rows!(segments.pattern().rows(), rows => {
            let found: Vec<_> = tiles(rows, 4).collect();
            assert_eq!(found, [(0, 0..3), (2, 3..7), (2, 7..11), (2, 11..13), (3, 13..17)]);
            let parts = Parts::of(rows, 4);
            assert_eq!(parts.table, [[0, 0, 3], [1, 3, 3], [4, 3, 7], [5, 7, 11], [6, 11, 13], [3, 13, 17]]);
            assert_eq!(parts.cuts, [[2, 0, 3]]);
            assert_eq!(parts.count(), 3);
            assert_eq!(Parts::of(rows, 10).count(), 0);
        });
    }
}
