//! Long rows, cut into pieces of bounded length, for patterns whose rows would leave most of a device idle.

use crate::pattern::{Index, Rows};

/// Entries of a piece, and of the longest row that is not cut.
pub(crate) const PIECE: usize = 512;
/// A row is long beside the others if it has this many times the mean.
const SKEW: usize = 8;
/// With fewer rows than this, rows alone do not fill a device.
const FEW_ROWS: usize = 4096;

/// The pieces of a pattern's long rows. The other rows are not in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// The long rows.
    pub rows: Vec<usize>,
    /// The first piece of each, and one past the last piece.
    pub first: Vec<usize>,
    /// Start and end of each piece among the entries.
    pub bounds: Vec<usize>,
}

impl Pieces {
    /// `None` if the rows are short, or there are many of about the same length.
    pub fn of<I: Index>(rows: &Rows<I>) -> Option<Self> {
        let (n_rows, entries) = (rows.n_rows(), rows.n_entries());
        let longest = (0..n_rows).map(|row| rows.range(row).len()).max()?;
        let uneven = longest as u128 * n_rows as u128 > SKEW as u128 * entries as u128;
        if longest <= PIECE || !(uneven || n_rows < FEW_ROWS) {
            return None;
        }
        let mut pieces = Self { rows: Vec::new(), first: vec![0], bounds: Vec::new() };
        for row in 0..n_rows {
            let range = rows.range(row);
            if range.len() <= PIECE {
                continue;
            }
            for start in range.clone().step_by(PIECE) {
                pieces.bounds.extend([start, range.end.min(start + PIECE)]);
            }
            pieces.rows.push(row);
            pieces.first.push(pieces.count());
        }
        Some(pieces)
    }

    /// How many pieces there are.
    pub fn count(&self) -> usize {
        self.bounds.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Pattern, with_rows};

    fn pieces(lengths: &[usize]) -> Option<Pieces> {
        let mut offsets = vec![0];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length);
        }
        let columns = vec![0; offsets[lengths.len()]];
        let pattern = Pattern::csr(offsets, columns, [lengths.len(), 1]).expect("a valid pattern");
        with_rows!(pattern.rows(), rows => Pieces::of(rows))
    }

    #[test]
    fn short_rows_stay_whole() {
        assert_eq!(pieces(&[]), None);
        assert_eq!(pieces(&[0, 3, 512]), None);
        assert_eq!(pieces(&[600; 5000]), None, "many alike");
    }

    #[test]
    fn pieces_cover_long_rows() {
        let found = pieces(&[2, 1300, 0, 512, 513]).unwrap();
        assert_eq!(found.rows, [1, 4]);
        assert_eq!(found.first, [0, 3, 5]);
        assert_eq!(found.bounds, [2, 514, 514, 1026, 1026, 1302, 1814, 2326, 2326, 2327]);
    }
}
