//! SciPy's `.npz` files, as `scipy.sparse.save_npz` writes and `scipy.sparse.load_npz` reads them.
//!
//! ```
//! use sparsegrad::{io::{Triplets, npz}, prelude::*};
//!
//! let a = Triplets::new([2, 3], vec![1, 0], vec![0, 2], vec![4.0, 3.0]).to_csr()?;
//! let path = std::env::temp_dir().join("sparsegrad_doc.npz");
//! npz::write(&path, &a)?; // in Python: a = scipy.sparse.load_npz(path)
//!
//! let a = npz::read(&path)?.on(&Device::flex())?;
//! assert_eq!(a.get(1, 0)?, Some(4.0));
//! # std::fs::remove_file(path).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is read
//!
//! | in the file | read as |
//! |---|---|
//! | `csr`, `csc`, `coo`, of matrices and of two-dimensional arrays | the format of this name; entries as they stand: unsorted, repeated, zeros |
//! | `bsr`, `dia` | [an error](Fault::Format): save `a.tocsr()` |
//! | values `float64`, `float32`, `float16`, `bool`, integers | `f64`; integers above 2^53, where it is not exact, are refused |
//! | values `complex`, `longdouble`, others | [an error](Fault::DType) |
//! | indices and offsets of any integer type | 32 bits where shape and number of entries allow it, 64 otherwise |
//! | either byte order; compressed or not | |
//!
//! Indices of SciPy's default type `int32` and values `float64` become the buffers of the pattern and of the matrix as they are.
//! Pickled arrays are never unpickled.
//!
//! # What is written
//!
//! COO, CSR and CSC (a transposed COO as COO), always compressed; indices in the width of the pattern; values in double precision, or in
//! single precision by [`write_as`]. An array beyond 4 GiB is refused.
//!
//! Source: `scipy/sparse/_matrix_io.py` of SciPy 1.17, `numpy/lib/format.py` of NumPy 2.

use super::{HostMatrix, Place};
use crate::Pattern;
use crate::error::{PatternError, TensorError};
use crate::pattern::{Indices, IntoIndices, LevelStorage, RawIndices};
use burn::tensor::DType;
use npyz::npz::{NpzArchive, NpzWriter, file_name_from_array_name};
use npyz::{AutoSerialize, Endianness, NpyHeader, Order, TypeChar, TypeStr, WriterBuilder};
use std::fs;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};

/// Why an `.npz` file could not be read or written. The message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system could not read or write.
    #[error("{}{source}", Place(path, None))]
    Io {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// What the system says.
        source: io::Error,
    },
    /// The content is not a sparse matrix of SciPy's, or one that this library can't hold.
    #[error("{}{fault}", Place(path, None))]
    Content {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// What is wrong.
        fault: Box<Fault>,
    },
}

/// What is wrong with the content of an `.npz` file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No zip archive, or one without an end.
    #[error("not a zip archive: {reason}")]
    Archive {
        /// What the reader of zip archives says.
        reason: String,
    },
    /// An array that belongs here and is not in the archive.
    #[error("no array '{key}', which scipy.sparse.save_npz writes")]
    Missing {
        /// Its name.
        key: &'static str,
    },
    /// An array that is damaged.
    #[error("array '{key}' can't be read: {reason}")]
    Damaged {
        /// Its name.
        key: &'static str,
        /// What its reader says.
        reason: String,
    },
    /// An array with more or fewer bytes than its header declares.
    #[error("array '{key}' has {found} bytes and declares {declared}")]
    Length {
        /// Its name.
        key: &'static str,
        /// The number of bytes that its shape and type take.
        declared: u64,
        /// The number that is there.
        found: u64,
    },
    /// A storage format that can't be held here.
    #[error("the format {found:?} is not supported: save it as csr, csc or coo")]
    Format {
        /// The format.
        found: String,
    },
    /// An array of a type that can't be read as what it is.
    #[error("array '{key}' has the type {found}: expected {expected}")]
    DType {
        /// Its name.
        key: &'static str,
        /// NumPy's name of its type.
        found: String,
        /// What can be read.
        expected: &'static str,
    },
    /// An array of another number of dimensions.
    #[error("array '{key}' has the shape {found:?}: expected {expected}")]
    Dimensions {
        /// Its name.
        key: &'static str,
        /// Its shape.
        found: Vec<u64>,
        /// What belongs here.
        expected: &'static str,
    },
    /// The shape of something else than a matrix.
    #[error("the shape {found:?} is not that of a matrix")]
    Shape {
        /// The shape.
        found: Vec<i128>,
    },
    /// An integer that is not exact in double precision.
    #[error("the value {value} at position {position} is beyond the integers that are exact in double precision")]
    TooLarge {
        /// Where it stands.
        position: usize,
        /// The value.
        value: i128,
    },
    /// A type that values can't be written in.
    #[error("values can be written as F64 or F32, not as {dtype:?}")]
    Write {
        /// The type.
        dtype: DType,
    },
    /// Buffers that are no pattern, or another number of values.
    #[error(transparent)]
    Matrix(#[from] TensorError),
}

impl Error {
    fn in_file(mut self, file: &Path) -> Self {
        let (Self::Io { path, .. } | Self::Content { path, .. }) = &mut self;
        *path = Some(file.to_owned());
        self
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Io { path: None, source }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Content { path: None, fault: fault.into() }
    }
}

/// Reads a file.
///
/// # Errors
/// [`Error::Io`] where the file can't be read, [`Error::Content`] where it is no sparse matrix that can be held.
///
/// ```no_run
/// use sparsegrad::{io::npz, prelude::*};
///
/// let a = npz::read("matrix.npz")?.on((&Device::flex(), DType::F32))?;
/// println!("{a}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: impl AsRef<Path>) -> Result<HostMatrix, Error> {
    let path = path.as_ref();
    let parsed = fs::read(path).map_err(Error::from).and_then(|bytes| parse(&bytes));
    parsed.map_err(|error| error.in_file(path))
}

/// Reads all of a stream.
///
/// # Errors
/// As [`read`].
pub fn read_from(mut reader: impl Read) -> Result<HostMatrix, Error> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    parse(&bytes)
}

/// Reads the bytes of a file.
///
/// # Errors
/// [`Error::Content`] where they are no sparse matrix that can be held.
pub fn parse(bytes: &[u8]) -> Result<HostMatrix, Error> {
    Ok(matrix(bytes)?)
}

/// Writes a file, values in double precision. No ending is added to the name.
///
/// # Errors
/// [`Error::Io`] where the file can't be written.
pub fn write(path: impl AsRef<Path>, matrix: &HostMatrix) -> Result<(), Error> {
    write_as(path, matrix, DType::F64)
}

/// Writes a file, values in the type given: `F64`, or `F32`, to which they are rounded.
///
/// # Errors
/// As [`write`](fn@write), and for other types; no file is made then.
///
/// ```
/// use sparsegrad::{io::npz, prelude::*};
///
/// let a = SparseTensor::from_triplets(&[0, 1], &[2, 0], &[3.0f32, 4.0], [2, 3], &Device::flex())?;
/// let path = std::env::temp_dir().join("sparsegrad_doc_f32.npz");
/// npz::write_as(&path, &a.to_host()?, a.dtype())?;
/// assert_eq!(npz::read(&path)?.values(), [3.0, 4.0]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_as(path: impl AsRef<Path>, matrix: &HostMatrix, dtype: DType) -> Result<(), Error> {
    let path = path.as_ref();
    let written = encode(matrix, dtype).and_then(|bytes| Ok(fs::write(path, bytes)?));
    written.map_err(|error| error.in_file(path))
}

/// Writes the bytes of a file, as [`write_as`] does.
///
/// # Errors
/// As [`write_as`].
pub fn write_to(mut writer: impl Write, matrix: &HostMatrix, dtype: DType) -> Result<(), Error> {
    Ok(writer.write_all(&encode(matrix, dtype)?)?)
}

fn matrix(bytes: &[u8]) -> Result<HostMatrix, Fault> {
    let archive = NpzArchive::new(Cursor::new(bytes));
    let mut archive = archive.map_err(|error| Fault::Archive { reason: error.to_string() })?;
    let format = required(&mut archive, "format")?.text()?;
    let build: fn(RawIndices, RawIndices, [usize; 2]) -> Result<Pattern, PatternError> = match format.as_str() {
        "csr" => Pattern::csr,
        "csc" => Pattern::csc,
        "coo" => Pattern::coo,
        _ => return Err(Fault::Format { found: format }),
    };
    let shape = required(&mut archive, "shape")?.shape()?;
    let (first, second) = match format.as_str() {
        "coo" => match optional(&mut archive, "coords")? {
            Some(coordinates) => coordinates.halves()?,
            None => (required(&mut archive, "row")?.indices()?, required(&mut archive, "col")?.indices()?),
        },
        _ => (required(&mut archive, "indptr")?.indices()?, required(&mut archive, "indices")?.indices()?),
    };
    let pattern = build(first, second, shape).map_err(TensorError::from)?;
    let values = required(&mut archive, "data")?.values()?;
    Ok(HostMatrix::new(pattern, values)?)
}

/// An array in memory, in the byte order that Rust's `from_le_bytes` reads.
struct Array {
    key: &'static str,
    kind: TypeStr,
    shape: Vec<u64>,
    order: Order,
    bytes: Vec<u8>,
}

fn required(archive: &mut NpzArchive<Cursor<&[u8]>>, key: &'static str) -> Result<Array, Fault> {
    optional(archive, key)?.ok_or(Fault::Missing { key })
}

fn optional(archive: &mut NpzArchive<Cursor<&[u8]>>, key: &'static str) -> Result<Option<Array>, Fault> {
    let damaged = |reason: String| Fault::Damaged { key, reason };
    if !archive.array_names().any(|name| name == key) {
        return Ok(None);
    }
    let mut file = Vec::new();
    let mut entry =
        archive.zip_archive().by_name(&file_name_from_array_name(key)).map_err(|error| damaged(error.to_string()))?;
    entry.read_to_end(&mut file).map_err(|error| damaged(error.to_string()))?;
    if !is_tame(&file) {
        return Err(damaged("its header is none that NumPy writes".into()));
    }
    let mut rest = &file[..];
    let header = NpyHeader::from_reader(&mut rest).map_err(|error| damaged(error.to_string()))?;
    let unexpected = || Fault::DType { key, found: header.dtype().descr(), expected: "numbers" };
    let npyz::DType::Plain(kind) = header.dtype() else {
        return Err(unexpected());
    };
    let size = kind.num_bytes().filter(|&size| size > 0).ok_or_else(unexpected)?;
    let (declared, found) = (header.len().saturating_mul(size as u64), rest.len() as u64);
    if declared != found {
        return Err(Fault::Length { key, declared, found });
    }
    let mut bytes = rest.to_vec();
    if kind.endianness() == Endianness::Big {
        let unit = if kind.type_char() == TypeChar::UnicodeStr { 4 } else { size };
        bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
    Ok(Some(Array { key, kind, shape: header.shape().to_vec(), order: header.order(), bytes }))
}

/// Whether the header is small and flat enough for npyz, whose parser recurses and whose sizes may overflow. All that NumPy
/// writes of an array of one or two dimensions is.
fn is_tame(file: &[u8]) -> bool {
    let text = match file {
        [_, _, _, _, _, _, 1, _, a, b, rest @ ..] => rest.get(..u16::from_le_bytes([*a, *b]).into()),
        [_, _, _, _, _, _, _, _, a, b, c, d, rest @ ..] => rest.get(..u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        _ => None,
    };
    // What ends early is an error of npyz's.
    let text = text.unwrap_or_default();
    let count = |is: fn(&u8) -> bool| text.iter().filter(|&byte| is(byte)).count();
    text.len() <= 4096 && count(u8::is_ascii_digit) <= 19 && count(|byte| b"([{".contains(byte)) <= 8
}

impl Array {
    fn elements<const N: usize, T>(&self, decode: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
        self.bytes.chunks_exact(N).map(move |bytes| decode(bytes.try_into().expect("chunks of this length")))
    }

    fn kind(&self) -> (TypeChar, u64) {
        (self.kind.type_char(), self.kind.size_field())
    }

    fn unexpected(&self, expected: &'static str) -> Fault {
        Fault::DType { key: self.key, found: self.kind.to_string(), expected }
    }

    fn dimensions(&self, expected: &'static str) -> Fault {
        Fault::Dimensions { key: self.key, found: self.shape.clone(), expected }
    }

    fn is_list(&self) -> Result<(), Fault> {
        if self.shape.len() == 1 { Ok(()) } else { Err(self.dimensions("one dimension")) }
    }

    /// One string, of bytes or of characters.
    fn text(&self) -> Result<String, Fault> {
        if !self.shape.iter().all(|&length| length == 1) {
            return Err(self.dimensions("one string"));
        }
        let text = match self.kind.type_char() {
            TypeChar::ByteStr => String::from_utf8_lossy(&self.bytes).into_owned(),
            TypeChar::UnicodeStr => self
                .elements(u32::from_le_bytes)
                .map(|c| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect(),
            _ => return Err(self.unexpected("a string")),
        };
        Ok(text.trim_end_matches('\0').into())
    }

    fn shape(&self) -> Result<[usize; 2], Fault> {
        let sizes = self.indices()?;
        let sizes: Vec<i128> = (0..sizes.len()).map(|at| sizes.get(at)).collect();
        let fitting: Vec<usize> = sizes.iter().filter_map(|&size| size.try_into().ok()).collect();
        match fitting[..] {
            [rows, columns] if sizes.len() == 2 => Ok([rows, columns]),
            _ => Err(Fault::Shape { found: sizes }),
        }
    }

    fn indices(&self) -> Result<RawIndices, Fault> {
        self.is_list()?;
        self.integers()
    }

    fn integers(&self) -> Result<RawIndices, Fault> {
        Ok(match self.kind() {
            (TypeChar::Int, 1) => RawIndices::I32(self.elements(i8::from_le_bytes).map(i32::from).collect()),
            (TypeChar::Int, 2) => RawIndices::I32(self.elements(i16::from_le_bytes).map(i32::from).collect()),
            (TypeChar::Int, 4) => RawIndices::I32(self.elements(i32::from_le_bytes).collect()),
            (TypeChar::Int, 8) => RawIndices::I64(self.elements(i64::from_le_bytes).collect()),
            (TypeChar::Uint, 1) => RawIndices::I32(self.elements(u8::from_le_bytes).map(i32::from).collect()),
            (TypeChar::Uint, 2) => RawIndices::I32(self.elements(u16::from_le_bytes).map(i32::from).collect()),
            (TypeChar::Uint, 4) => self.elements(u32::from_le_bytes).collect::<Vec<_>>().into_indices(),
            (TypeChar::Uint, 8) => self.elements(u64::from_le_bytes).collect::<Vec<_>>().into_indices(),
            _ => return Err(self.unexpected("integers")),
        })
    }

    /// Rows and columns of coordinates in one array.
    fn halves(&self) -> Result<(RawIndices, RawIndices), Fault> {
        if self.shape.len() != 2 || self.shape[0] != 2 {
            return Err(self.dimensions("two rows"));
        }
        let all = self.integers()?;
        let entries = all.len() / 2;
        let part = |axis: usize| {
            let place = |entry| if self.order == Order::C { axis * entries + entry } else { 2 * entry + axis };
            // Read from 64 bits or less; what is larger is out of range wherever it stands.
            (0..entries).map(|entry| all.get(place(entry)) as i64).collect::<Vec<_>>().into_indices()
        };
        Ok((part(0), part(1)))
    }

    fn values(&self) -> Result<Vec<f64>, Fault> {
        self.is_list()?;
        Ok(match self.kind() {
            (TypeChar::Float, 8) => self.elements(f64::from_le_bytes).collect(),
            (TypeChar::Float, 4) => self.elements(f32::from_le_bytes).map(f64::from).collect(),
            (TypeChar::Float, 2) => self.elements(half::f16::from_le_bytes).map(f64::from).collect(),
            (TypeChar::Bool, 1) => self.bytes.iter().map(|&byte| f64::from(byte != 0)).collect(),
            (TypeChar::Int, 8) => exact(self.elements(i64::from_le_bytes).map(i128::from))?,
            (TypeChar::Uint, 8) => exact(self.elements(u64::from_le_bytes).map(i128::from))?,
            (TypeChar::Int | TypeChar::Uint, _) => {
                let integers = self.integers()?;
                exact((0..integers.len()).map(|at| integers.get(at)))?
            }
            _ => return Err(self.unexpected("real numbers of at most 64 bits")),
        })
    }
}

/// Integers as floating-point numbers, if they are exact.
fn exact(integers: impl Iterator<Item = i128>) -> Result<Vec<f64>, Fault> {
    let convert = |(position, value): (usize, i128)| match value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS {
        true => Ok(value as f64),
        false => Err(Fault::TooLarge { position, value }),
    };
    integers.enumerate().map(convert).collect()
}

type Writer = NpzWriter<Cursor<Vec<u8>>>;

fn encode(matrix: &HostMatrix, dtype: DType) -> Result<Vec<u8>, Error> {
    if !matches!(dtype, DType::F64 | DType::F32) {
        return Err(Fault::Write { dtype }.into());
    }
    let pattern = matrix.pattern();
    let name = match pattern.format().name() {
        Some("CSR") => b"csr",
        Some("CSC") => b"csc",
        _ => b"coo",
    };
    let mut npz = NpzWriter::new(Cursor::new(Vec::new()));
    let bytes = npyz::DType::Plain("|S3".parse().expect("three bytes"));
    npz.array::<[u8]>("format", Default::default())?.dtype(bytes).shape(&[]).write_header_only()?.write_all(name)?;
    put(&mut npz, "shape", &pattern.shape().map(|size| size as i64))?;
    match pattern.levels() {
        [_, LevelStorage { positions: Some(offsets), coordinates: Some(inner) }] => {
            put_indices(&mut npz, "indptr", offsets)?;
            put_indices(&mut npz, "indices", inner)?;
        }
        _ => {
            let (rows, columns) = pattern.coordinates();
            for (key, indices) in [("row", rows), ("col", columns)] {
                put_indices(&mut npz, key, &Indices::of_width(pattern.index_width(), &indices))?;
            }
        }
    }
    match dtype {
        DType::F32 => put(&mut npz, "data", &matrix.values().iter().map(|&value| value as f32).collect::<Vec<_>>())?,
        _ => put(&mut npz, "data", matrix.values())?,
    }
    let written = npz.zip_writer().finish().map_err(io::Error::from)?;
    Ok(written.into_inner())
}

fn put_indices(npz: &mut Writer, key: &str, indices: &Indices) -> io::Result<()> {
    match indices {
        Indices::I32(indices) => put(npz, key, indices),
        Indices::I64(indices) => put(npz, key, indices),
    }
}

/// An array of one dimension, in the byte order of the machine, which its header tells.
fn put<T: AutoSerialize + bytemuck::Pod>(npz: &mut Writer, key: &str, data: &[T]) -> io::Result<()> {
    let array = npz.array::<T>(key, Default::default())?.default_dtype().shape(&[data.len() as u64]);
    array.write_header_only()?.write_all(bytemuck::cast_slice(data))
}
