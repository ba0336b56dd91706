//! From text to triplets.

use super::{Error, Fault};
use crate::io::{Field, Symmetry, Triplets};
use std::num::IntErrorKind;
use std::str::FromStr;

/// Integers up to this magnitude are exact in `f64`.
pub(super) const LARGEST_EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

pub(super) fn parse(text: &[u8]) -> Result<Triplets, Error> {
    let mut lines = Lines { rest: text, number: 0 };
    // Every fault is one of the line read last.
    matrix(&mut lines).map_err(|fault| Error::Syntax { path: None, line: lines.number.max(1), fault })
}

fn matrix(lines: &mut Lines) -> Result<Triplets, Fault> {
    let header = Header::parse(lines.next().unwrap_or_default())?;
    let size = lines.find(|line| !line.is_empty() && !line.starts_with(b"%")).ok_or(Fault::NoSizeLine)?;
    match header.format {
        Format::Coordinate => coordinate(&header, size, lines),
        Format::Array => array(&header, size, lines),
    }
}

fn coordinate(header: &Header, size: &[u8], lines: &mut Lines) -> Result<Triplets, Fault> {
    let [rows, cols, declared] = fields(size, "rows, columns, entries")?;
    let shape = shape(rows, cols)?;
    let declared = integer(declared, "number of entries")?;
    let mut matrix = header.matrix(shape, declared, lines)?;
    for found in 0..declared {
        let line = lines.data()?.ok_or(Fault::TooFew { declared, found })?;
        let (row, col, value) = match header.field {
            Field::Pattern => {
                let [row, col] = fields(line, "row, column")?;
                (row, col, 1.0)
            }
            field => {
                let [row, col, value] = fields(line, "row, column, value")?;
                (row, col, number(value, field)?)
            }
        };
        matrix.push_expanded(index(row, "row", shape[0])?, index(col, "column", shape[1])?, value)?;
    }
    lines.end(declared)?;
    Ok(matrix)
}

/// An array lists its elements, or those of its lower triangle, column by column.
fn array(header: &Header, size: &[u8], lines: &mut Lines) -> Result<Triplets, Fault> {
    let [rows, cols] = fields(size, "rows, columns")?;
    let shape @ [rows, cols] = shape(rows, cols)?;
    let declared = match header.symmetry {
        Symmetry::General => rows.checked_mul(cols),
        Symmetry::Symmetric => rows.checked_add(1).and_then(|next| next.checked_mul(rows)).map(|twice| twice / 2),
        Symmetry::SkewSymmetric => rows.checked_mul(rows.saturating_sub(1)).map(|twice| twice / 2),
    };
    let declared = declared.ok_or(Fault::ArraySize { shape })?;
    let mut matrix = header.matrix(shape, declared, lines)?;
    let top = |col| match header.symmetry {
        Symmetry::General => 0,
        Symmetry::Symmetric => col,
        Symmetry::SkewSymmetric => col + 1,
    };
    let (mut row, mut col) = (top(0), 0);
    for found in 0..declared {
        let line = lines.data()?.ok_or(Fault::TooFew { declared, found })?;
        let [value] = fields(line, "value")?;
        matrix.push_expanded(row, col, number(value, header.field)?)?;
        row += 1;
        if row == rows {
            col += 1;
            row = top(col);
        }
    }
    lines.end(declared)?;
    Ok(matrix)
}

impl Triplets {
    /// Appends a stored entry and, where symmetry implies one, its mirror image.
    fn push_expanded(&mut self, row: usize, col: usize, value: f64) -> Result<(), Fault> {
        let symmetry = self.symmetry;
        if !symmetry.stores(row.cmp(&col)) {
            return Err(Fault::OutsideTriangle { symmetry, row: row + 1, column: col + 1 });
        }
        self.push(row, col, value);
        if symmetry != Symmetry::General && row != col {
            self.push(col, row, symmetry.mirror(value));
        }
        Ok(())
    }

    fn push(&mut self, row: usize, col: usize, value: f64) {
        self.rows.push(row);
        self.cols.push(col);
        self.values.push(value);
    }
}

struct Header {
    format: Format,
    field: Field,
    symmetry: Symmetry,
}

enum Format {
    Coordinate,
    Array,
}

impl Header {
    fn parse(line: &[u8]) -> Result<Self, Fault> {
        let words = line.to_ascii_lowercase();
        let words: Vec<_> = split(&words).collect();
        let [b"%%matrixmarket", object, format, field, symmetry] = words[..] else {
            return Err(Fault::Header { found: lossy(line) });
        };
        let unknown = |what, expected, found| Err(Fault::Keyword { what, expected, found: lossy(found) });
        if object != b"matrix" {
            return unknown("object", "matrix", object);
        }
        let format = match format {
            b"coordinate" => Format::Coordinate,
            b"array" => Format::Array,
            _ => return unknown("format", "coordinate or array", format),
        };
        let field = match field {
            b"real" | b"double" => Field::Real,
            b"integer" | b"unsigned-integer" => Field::Integer,
            b"pattern" => Field::Pattern,
            b"complex" => return Err(Fault::Complex),
            _ => return unknown("field", "real, integer or pattern", field),
        };
        let symmetry = match symmetry {
            b"general" => Symmetry::General,
            b"symmetric" => Symmetry::Symmetric,
            b"skew-symmetric" => Symmetry::SkewSymmetric,
            b"hermitian" => {
                return Err(Fault::Contradiction { first: field.name(), second: "hermitian" });
            }
            _ => return unknown("symmetry", "general, symmetric or skew-symmetric", symmetry),
        };
        match (&format, field, symmetry) {
            (Format::Array, Field::Pattern, _) => Err(Fault::Contradiction { first: "array", second: "pattern" }),
            (_, Field::Pattern, Symmetry::SkewSymmetric) => {
                Err(Fault::Contradiction { first: "pattern", second: "skew-symmetric" })
            }
            _ => Ok(Self { format, field, symmetry }),
        }
    }

    /// A matrix without entries yet, with room for those declared, but for no more than the text can hold.
    fn matrix(&self, shape: [usize; 2], declared: usize, lines: &Lines) -> Result<Triplets, Fault> {
        let symmetry = self.symmetry;
        if symmetry != Symmetry::General && shape[0] != shape[1] {
            return Err(Fault::NotSquare { symmetry, shape });
        }
        let shortest = match self.format {
            Format::Coordinate => "1 1\n".len(),
            Format::Array => "1\n".len(),
        };
        let copies = if symmetry == Symmetry::General { 1 } else { 2 };
        let room = copies * declared.min(lines.rest.len() / shortest + 1);
        Ok(Triplets {
            shape,
            rows: Vec::with_capacity(room),
            cols: Vec::with_capacity(room),
            values: Vec::with_capacity(room),
            symmetry,
            field: self.field,
        })
    }
}

/// The lines of a text without the white space at their ends, and the number of the last one read.
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&byte| byte == b'\n');
        let (line, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        self.number += 1;
        Some(line.trim_ascii())
    }
}

impl<'a> Lines<'a> {
    /// The next line after the size line that isn't blank.
    fn data(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        match self.find(|line| !line.is_empty()) {
            Some(line) if line.starts_with(b"%") => Err(Fault::LateComment),
            line => Ok(line),
        }
    }

    /// Makes sure that nothing follows.
    fn end(&mut self, declared: usize) -> Result<(), Fault> {
        match self.data()? {
            None => Ok(()),
            Some(_) => Err(Fault::TooMany { declared }),
        }
    }
}

fn split(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

/// Exactly `N` fields.
fn fields<'a, const N: usize>(line: &'a [u8], names: &'static str) -> Result<[&'a [u8]; N], Fault> {
    let mut fields = [&[][..]; N];
    let mut found = 0;
    for field in split(line) {
        if let Some(slot) = fields.get_mut(found) {
            *slot = field;
        }
        found += 1;
    }
    if found == N { Ok(fields) } else { Err(Fault::FieldCount { expected: N, names, found }) }
}

fn shape(rows: &[u8], cols: &[u8]) -> Result<[usize; 2], Fault> {
    Ok([integer(rows, "number of rows")?, integer(cols, "number of columns")?])
}

/// A zero-based index from the one-based one of the file.
fn index(field: &[u8], axis: &'static str, size: usize) -> Result<usize, Fault> {
    let index = integer(field, if axis == "row" { "row index" } else { "column index" })?;
    if index == 0 || index > size {
        return Err(Fault::IndexOutOfRange { axis, index, size });
    }
    Ok(index - 1)
}

fn number(field: &[u8], kind: Field) -> Result<f64, Fault> {
    if kind == Field::Integer {
        let value: i64 = integer(field, "integer value")?;
        return match value.unsigned_abs() {
            0..=LARGEST_EXACT => Ok(value as f64),
            _ => Err(Fault::TooLarge { what: "integer value", found: lossy(field) }),
        };
    }
    let value: f64 = text(field)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Fault::Number { what: "number", found: lossy(field) })?;
    // The standard library rounds 1e400 to infinity.
    if value.is_infinite() && field.iter().any(u8::is_ascii_digit) {
        return Err(Fault::TooLarge { what: "number", found: lossy(field) });
    }
    Ok(value)
}

fn integer<T: FromStr<Err = std::num::ParseIntError>>(field: &[u8], what: &'static str) -> Result<T, Fault> {
    let parsed = text(field).map(str::parse);
    match parsed {
        Some(Ok(integer)) => Ok(integer),
        Some(Err(error)) if matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            Err(Fault::TooLarge { what, found: lossy(field) })
        }
        _ => Err(Fault::Number { what, found: lossy(field) }),
    }
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

fn lossy(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}
