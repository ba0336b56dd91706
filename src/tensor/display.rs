//! Sparse tensors in words and in pictures of text.

use super::SparseTensor;
use crate::backend::check::device_name;
use crate::pattern::Pattern;
use burn::tensor::DType;
use std::fmt;

/// Entries that are written out; of more, only the first and the last few.
const SHOWN: usize = 10;

impl fmt::Display for SparseTensor<2> {
    /// A line about the matrix, then its entries (the first and last five, if there are more than ten).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = match self.dtype() {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            _ => "?",
        };
        let device = device_name(&self.device());
        write!(f, "SparseTensor {}, {dtype}, {device}", self.pattern())?;
        let entries: Vec<_> = match self.triplets() {
            Ok(entries) => entries.collect(),
            Err(error) => return write!(f, "\n  {error}"),
        };
        let (head, tail) = if entries.len() <= SHOWN {
            (&entries[..], &[][..])
        } else {
            (&entries[..SHOWN / 2], &entries[entries.len() - SHOWN / 2..])
        };
        let line = |f: &mut fmt::Formatter<'_>, &(row, column, value): &(usize, usize, f64)| {
            // Shortest text that reads back to the stored number: f32 values are not shown as their f64 neighbours.
            match dtype {
                "f64" => write!(f, "\n  ({row}, {column}) {value}"),
                _ => write!(f, "\n  ({row}, {column}) {}", value as f32),
            }
        };
        head.iter().try_for_each(|entry| line(f, entry))?;
        if !tail.is_empty() {
            write!(f, "\n  ...")?;
        }
        tail.iter().try_for_each(|entry| line(f, entry))
    }
}

impl SparseTensor<2> {
    /// The pattern as text, at most `width` characters wide. See [`Pattern::spy`].
    pub fn spy(&self, width: usize) -> String {
        self.pattern().spy(width)
    }
}

impl Pattern {
    /// The pattern as text, at most `width` characters wide and half as high: each character covers a block of positions and
    /// is darker the more of them are stored (` .:+#@`, `@` where all are).
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let pattern = Pattern::csr([0, 1, 2, 4], [0, 1, 0, 2], [3, 3])?;
    /// assert_eq!(pattern.spy(3), "@  \n @ \n@ @\n");
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn spy(&self, width: usize) -> String {
        const SHADES: [char; 6] = [' ', '.', ':', '+', '#', '@'];
        let [rows, columns] = self.shape();
        if rows == 0 || columns == 0 || width == 0 {
            return String::new();
        }
        // Characters are about twice as high as wide.
        let across = columns.min(width);
        let down = match columns <= width && rows <= width {
            true => rows,
            false => (rows as f64 / columns as f64 * across as f64 / 2.0).ceil() as usize,
        }
        .clamp(1, rows.min(2 * width));
        let block = |index: usize, of: usize, into: usize| (index as u128 * into as u128 / of as u128) as usize;
        let mut counts = vec![0usize; across * down];
        self.for_each_entry(|row, column, _| {
            counts[block(row, rows, down) * across + block(column, columns, across)] += 1;
        });
        let positions = (rows as f64 / down as f64) * (columns as f64 / across as f64);
        let shade = |&count: &usize| match count {
            0 => SHADES[0],
            _ if count as f64 >= positions => SHADES[5],
            // On a logarithmic scale, since most patterns are very sparse.
            _ => {
                let share = (count as f64).ln_1p() / positions.ln_1p();
                SHADES[1 + ((share * 4.0) as usize).min(3)]
            }
        };
        let lines = counts.chunks(across).map(|line| {
            let mut line: String = line.iter().map(shade).collect();
            line.push('\n');
            line
        });
        lines.collect()
    }
}
