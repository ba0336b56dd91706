//! From triplets to text.

use super::{Error, Misfit, parse::LARGEST_EXACT};
use crate::io::{Field, Symmetry, Triplets};
use std::io::{self, BufWriter, Write};

/// Which entries, by position, a file of this matrix stores, once it is sure that they imply all the others.
pub(super) fn stored(matrix: &Triplets) -> Result<Vec<usize>, Error> {
    let &Triplets { shape, symmetry, field, .. } = matrix;
    let (rows, cols, values) = (&matrix.rows, &matrix.cols, &matrix.values);
    if rows.len() != values.len() || cols.len() != values.len() {
        return Err(Misfit::Lengths { rows: rows.len(), cols: cols.len(), values: values.len() }.into());
    }
    for (position, ((&row, &col), &value)) in rows.iter().zip(cols).zip(values).enumerate() {
        if row >= shape[0] || col >= shape[1] {
            return Err(Misfit::OutOfRange { position, row, col, shape }.into());
        }
        let belongs = match field {
            Field::Real => true,
            Field::Integer => value.fract() == 0.0 && value.abs() <= LARGEST_EXACT as f64,
            Field::Pattern => value == 1.0,
        };
        if !belongs {
            return Err(Misfit::Value { position, value, field }.into());
        }
    }
    if field == Field::Pattern && symmetry == Symmetry::SkewSymmetric {
        return Err(Misfit::Header { symmetry, field }.into());
    }
    let (stored, implied): (Vec<_>, Vec<_>) = (0..values.len()).partition(|&e| symmetry.stores(rows[e].cmp(&cols[e])));
    check_mirrored(matrix, &stored, implied)?;
    Ok(stored)
}

/// Makes sure that the implied entries are the mirror images of those stored off the diagonal. Of entries at the same
/// place, the first mirrors the first, and so on.
fn check_mirrored(matrix: &Triplets, stored: &[usize], mut implied: Vec<usize>) -> Result<(), Misfit> {
    let &Triplets { symmetry, ref rows, ref cols, ref values, .. } = matrix;
    if symmetry == Symmetry::General {
        return Ok(());
    }
    // The same for both of a pair.
    let place = |&entry: &usize| (rows[entry].max(cols[entry]), rows[entry].min(cols[entry]));
    let mut lower: Vec<_> = stored.iter().copied().filter(|&entry| rows[entry] != cols[entry]).collect();
    lower.sort_by_key(place);
    implied.sort_by_key(place);
    let agree = |entry: &usize, image: &usize| {
        let (expected, value) = (symmetry.mirror(values[*entry]), values[*image]);
        place(entry) == place(image) && (value == expected || value.is_nan() && expected.is_nan())
    };
    let agreeing = lower.iter().zip(&implied).take_while(|(entry, image)| agree(entry, image)).count();
    match lower.get(agreeing).into_iter().chain(implied.get(agreeing)).min_by_key(|&entry| place(entry)) {
        Some(&entry) => Err(Misfit::Symmetry { symmetry, row: rows[entry], col: cols[entry] }),
        None => Ok(()),
    }
}

pub(super) fn write(writer: impl Write, matrix: &Triplets, stored: &[usize]) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 16, writer);
    let [rows, cols] = matrix.shape;
    writeln!(writer, "%%MatrixMarket matrix coordinate {} {}", matrix.field, matrix.symmetry)?;
    writeln!(writer, "{rows} {cols} {}", stored.len())?;
    for &entry in stored {
        let (row, col, value) = (matrix.rows[entry] + 1, matrix.cols[entry] + 1, matrix.values[entry]);
        match matrix.field {
            Field::Pattern => writeln!(writer, "{row} {col}"),
            Field::Integer => writeln!(writer, "{row} {col} {value}"),
            // Debug, unlike Display, uses an exponent where that is shorter.
            Field::Real => writeln!(writer, "{row} {col} {value:?}"),
        }?;
    }
    writer.flush()
}
