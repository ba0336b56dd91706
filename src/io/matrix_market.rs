//! Matrix Market files: `.mtx`, and `.mtx.gz`.
//!
//! ```
//! use sparsegrad::io::{Symmetry, matrix_market};
//!
//! let file = b"%%MatrixMarket matrix coordinate real symmetric
//! % the lower triangle, one-based
//! 2 2 3
//! 1 1 4
//! 2 1 1
//! 2 2 3
//! ";
//! let a = matrix_market::parse(file)?;
//! assert_eq!(a.shape, [2, 2]);
//! assert_eq!(a.rows, [0, 1, 0, 1]);
//! assert_eq!(a.cols, [0, 0, 1, 1]);
//! assert_eq!(a.values, [4.0, 1.0, 1.0, 3.0]);
//! assert_eq!(a.symmetry, Symmetry::Symmetric);
//! # Ok::<(), matrix_market::Error>(())
//! ```
//!
//! # What is read
//!
//! | header | read as |
//! |---|---|
//! | `coordinate` | its entries in the file's order, the mirror image of one right after it |
//! | `array` | every element as an entry, zeros too, column by column: of a column vector, `values` is the vector |
//! | `real`, `double` | the nearest `f64`; `nan` and `inf` are accepted as SciPy does |
//! | `integer`, `unsigned-integer` | integers up to 2^53 in magnitude, where `f64` is exact; larger ones are refused |
//! | `pattern` | ones |
//! | `general`, `symmetric`, `skew-symmetric` | expanded: a diagonal entry once, others with their mirror image |
//! | `complex`, `hermitian` | refused by an error of their own: Burn has no complex tensors |
//!
//! Words of the header may be in any case. Comments may stand between the header and the size line, blank lines
//! anywhere after the header. Entries at the same place all stay.
//!
//! Whatever else departs from the standard is an [`Error`] that names the line. Where SciPy 1.17 is lax, this reader is
//! not: fields beyond the last, fractions in an integer file, entries above the diagonal of a symmetric file or on that
//! of a skew-symmetric one, Fortran's `1.0D+01` (which SciPy takes for 1), and numbers beyond the range of `f64`
//! (which it takes for infinity).
//!
//! Memory is reserved for what the rest of the input can hold, never for what the size line claims.
//!
//! Source: R. F. Boisvert, R. Pozo, K. A. Remington, *The Matrix Market Exchange Formats: Initial Design*,
//! NISTIR 5935, 1996.

mod error;
mod format;
mod parse;

pub use error::{Error, Fault, Misfit};

use super::Triplets;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// The first bytes of every gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a file, compressed by gzip or not.
///
/// ```no_run
/// # use sparsegrad::io::matrix_market;
/// let a = matrix_market::read("bcsstk16.mtx")?;
/// println!("{} x {}, {} entries", a.shape[0], a.shape[1], a.nnz());
/// # Ok::<(), matrix_market::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`] where the file can't be read, [`Error::Syntax`] where it isn't a real Matrix Market file.
pub fn read(path: impl AsRef<Path>) -> Result<Triplets, Error> {
    let path = path.as_ref();
    fs::read(path).map_err(Error::from).and_then(decode).map_err(|error| error.in_file(path))
}

/// Reads all of a stream, compressed by gzip or not.
///
/// # Errors
/// As [`read`].
pub fn read_from(mut reader: impl Read) -> Result<Triplets, Error> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    decode(bytes)
}

/// Reads the text of a file. Comments need not be UTF-8.
///
/// # Errors
/// [`Error::Syntax`] where the text departs from the format.
pub fn parse(text: &[u8]) -> Result<Triplets, Error> {
    parse::parse(text)
}

/// Writes a coordinate file, compressed by gzip if the name ends in `.gz`.
///
/// The header declares the matrix's [`field`](Triplets::field) and [`symmetry`](Triplets::symmetry); of a symmetric
/// matrix only the lower triangle is written. Numbers are the shortest that read back as the same `f64` (a NaN as a
/// NaN), so that reading gives back the entries, one and all.
///
/// ```
/// # use sparsegrad::io::{Triplets, matrix_market};
/// let a = Triplets::new([2, 3], vec![0, 1], vec![2, 0], vec![0.1, -4.0]);
/// let path = std::env::temp_dir().join("sparsegrad_doc.mtx.gz");
/// matrix_market::write(&path, &a)?;
/// assert_eq!(matrix_market::read(&path)?, a);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), matrix_market::Error>(())
/// ```
///
/// # Errors
/// [`Error::Misfit`] where the entries aren't what the header would say (not symmetric, not integers, out of range),
/// and then no file is made; [`Error::Io`] where it can't be written.
pub fn write(path: impl AsRef<Path>, matrix: &Triplets) -> Result<(), Error> {
    let path = path.as_ref();
    let write_all = || {
        let stored = format::stored(matrix)?;
        let file = File::create(path)?;
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            // A sixth of the default level's time, for files that are 7 % larger.
            let mut encoder = GzEncoder::new(file, Compression::fast());
            format::write(&mut encoder, matrix, &stored)?;
            encoder.finish()?;
        } else {
            format::write(file, matrix, &stored)?;
        }
        Ok(())
    };
    write_all().map_err(|error: Error| error.in_file(path))
}

/// Writes the text of a coordinate file, uncompressed, as [`write`](fn@write) does.
///
/// # Errors
/// As [`write`](fn@write); entries that don't fit are found before anything is written.
pub fn write_to(writer: impl Write, matrix: &Triplets) -> Result<(), Error> {
    Ok(format::write(writer, matrix, &format::stored(matrix)?)?)
}

fn decode(bytes: Vec<u8>) -> Result<Triplets, Error> {
    if !bytes.starts_with(&GZIP) {
        return parse(&bytes);
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(io::Cursor::new(bytes)).read_to_end(&mut text)?;
    parse(&text)
}
