//! Safetensors files: sparse tensors, matrices or batches, by name, and dense ones next to them.
//!
//! ```
//! use sparsegrad::{io::safetensors::{self, Tensors}, prelude::*};
//!
//! let device = Device::flex();
//! let weight = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?;
//! let mut tensors = Tensors::new();
//! tensors.insert("layer.weight", &weight)?;
//! tensors.insert_dense("layer.bias", &Tensor::<1>::zeros([2], &device))?;
//! let path = std::env::temp_dir().join("sparsegrad_doc.safetensors");
//! tensors.write(&path)?;
//!
//! let tensors = safetensors::read(&path)?;
//! let weight: SparseTensor<2> = tensors.sparse("layer.weight", &device)?;
//! let bias: Tensor<1> = tensors.dense("layer.bias", &device)?;
//! # assert_eq!((weight.nnz(), bias.dims()), (3, [2]));
//! # std::fs::remove_file(path).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # In the file
//!
//! A sparse tensor `w` is the dense tensors
//!
//! | name | type | what it is |
//! |---|---|---|
//! | `w.values` | F32, F64, F16 or BF16 | the stored values |
//! | `w.0.positions`, `w.1.positions` | I64 | where the coordinates of each parent start and end, of the levels that store that |
//! | `w.0.coordinates`, `w.1.coordinates` | I64 | the coordinates, of the levels that store them |
//!
//! For CSR, `w.1.positions` are the offsets of the rows and `w.1.coordinates` the columns; for COO, `w.0.coordinates` are the rows and
//! `w.1.coordinates` the columns. The levels of a batch are those of the matrix with the items along its diagonal.
//!
//! The metadata have one entry, `sparsegrad`, with a line for each sparse tensor, its four fields separated by tabs: the name; the
//! shape, as `2x3`, of a batch `4x2x3`; the bits of an index (32 or 64); and the [format](crate::TensorFormat). The same tensors are the
//! same bytes. In Python:
//!
//! ```text
//! with safetensors.safe_open("model.safetensors", "numpy") as file:
//!     for line in file.metadata()["sparsegrad"].splitlines():
//!         name, shape, bits, format = line.split("\t")
//!         values = file.get_tensor(name + ".values")
//! ```
//!
//! What is read is checked as any pattern is. Tensors that are read are not tracked; of tracked ones the values are saved.
//!
//! Source: the format's description at <https://github.com/huggingface/safetensors>.

use super::Place;
use crate::SparseTensor;
use crate::backend::check::{device_name, supported};
use crate::error::{FormatError, TensorError};
use crate::format::TensorFormat;
use crate::pattern::{IndexWidth, Indices, RawIndices, assemble_items};
use burn::tensor::{DType, Device, Element, Tensor, TensorData};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The entry of the metadata that tells of sparse tensors.
const KEY: &str = "sparsegrad";

/// Why a safetensors file, or a tensor in it, could not be read or written. The message is one line.
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
    /// No safetensors file, or a damaged one.
    #[error("{}{source}", Place(path, None))]
    File {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// What the format's own library says.
        source: SafeTensorError,
    },
    /// A line of the metadata that does not describe a sparse tensor.
    #[error("{}the metadata's line {line:?} is no sparse tensor: {reason}", Place(path, None))]
    Description {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// The line.
        line: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that is not there.
    #[error("no {kind} tensor {name:?}")]
    Missing {
        /// `sparse` or `dense`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A name that a tensor has already, or a part of a sparse one.
    #[error("there is a tensor {name:?} already")]
    Taken {
        /// The name.
        name: String,
    },
    /// A name that the file can't hold: with control characters, or the format's own `__metadata__`.
    #[error("{name:?} can't be the name of a tensor")]
    Name {
        /// The name.
        name: String,
    },
    /// A tensor of another type than it can be read or written as.
    #[error("tensor {name:?} has the type {found}: expected {expected}")]
    DType {
        /// Its name.
        name: String,
        /// Its type.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A tensor of another number of dimensions than was asked for.
    #[error("tensor {name:?} has the shape {found:?}: {expected} dimensions were asked for")]
    Rank {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The number of dimensions asked for.
        expected: usize,
    },
    /// A pattern or values that are not valid, or a device that can't hold or give them.
    #[error("tensor {name:?}: {source}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        source: Box<TensorError>,
    },
}

impl Error {
    fn in_file(mut self, file: &Path) -> Self {
        if let Self::Io { path, .. } | Self::File { path, .. } | Self::Description { path, .. } = &mut self {
            *path = Some(file.to_owned());
        }
        self
    }

    fn of(name: &str, source: impl Into<TensorError>) -> Self {
        Self::Tensor { name: name.into(), source: Box::new(source.into()) }
    }
}

impl From<SafeTensorError> for Error {
    fn from(source: SafeTensorError) -> Self {
        Self::File { path: None, source }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Io { path: None, source }
    }
}

/// Tensors in host memory by name, sparse and dense: what is in a file, or is to be.
#[derive(Debug, Clone, Default)]
pub struct Tensors {
    /// All that the file holds, parts of sparse tensors too.
    stored: BTreeMap<String, Stored>,
    sparse: BTreeMap<String, Description>,
}

/// A dense tensor in the bytes of a file, or in its own.
#[derive(Debug, Clone)]
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

#[derive(Debug, Clone)]
struct Description {
    shape: Vec<usize>,
    width: IndexWidth,
    format: TensorFormat,
}

/// Reads a file.
///
/// # Errors
/// [`Error::Io`] where the file can't be read, [`Error::File`] and [`Error::Description`] where it is none of this format.
/// Each tensor is checked when it is taken out.
pub fn read(path: impl AsRef<Path>) -> Result<Tensors, Error> {
    let path = path.as_ref();
    fs::read(path).map_err(Error::from).and_then(parse).map_err(|error| error.in_file(path))
}

/// Reads the bytes of a file, and keeps them.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: Vec<u8>) -> Result<Tensors, Error> {
    let (header, metadata) = SafeTensors::read_metadata(&bytes)?;
    let bytes = Arc::new(bytes);
    let start = size_of::<u64>() + header;
    let stored = metadata.tensors().into_iter().map(|(name, info)| {
        let (from, to) = info.data_offsets;
        let (bytes, range) = (bytes.clone(), start + from..start + to);
        (name, Stored { dtype: info.dtype, shape: info.shape.clone(), bytes, range })
    });
    let described = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
    let sparse = described.map_or("", String::as_str).lines().map(|line| {
        let fault = |reason| Error::Description { path: None, line: line.into(), reason };
        Description::parse(line).map_err(fault)
    });
    Ok(Tensors { stored: stored.collect(), sparse: sparse.collect::<Result<_, _>>()? })
}

impl Tensors {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The names of the sparse tensors, sorted.
    pub fn sparse_names(&self) -> impl Iterator<Item = &str> {
        self.sparse.keys().map(String::as_str)
    }

    /// The names of the dense tensors, sorted. Parts of sparse ones are not among them.
    pub fn dense_names(&self) -> impl Iterator<Item = &str> {
        self.stored.keys().map(String::as_str).filter(|name| !self.is_part(name))
    }

    fn is_part(&self, name: &str) -> bool {
        let owners = name.match_indices('.').map(|(at, _)| &name[..at]);
        owners
            .filter_map(|owner| Some((owner, self.sparse.get(owner)?)))
            .any(|(owner, description)| description.parts(owner).any(|part| part == name))
    }

    /// Adds a sparse tensor: a matrix or a batch. Reads its values back from the device.
    ///
    /// # Errors
    /// [`Error::Taken`] and [`Error::Name`] for the name, or if reading fails. Nothing is added then.
    pub fn insert<const D: usize>(&mut self, name: &str, tensor: &SparseTensor<D>) -> Result<(), Error> {
        let pattern = tensor.pattern();
        let description =
            Description { shape: tensor.shape().to_vec(), width: pattern.index_width(), format: pattern.format() };
        let levels = pattern.levels().iter().flat_map(|level| [&level.positions, &level.coordinates]);
        let mut parts: Vec<_> = description.buffers(name).zip(levels.flatten().map(Stored::indices)).collect();
        let values = values_of(name);
        parts.push((values.clone(), Stored::floats(&values, tensor.values().clone())?));
        self.check_name(name)?;
        for (part, _) in &parts {
            self.check_name(part)?;
        }
        self.stored.extend(parts);
        self.sparse.insert(name.into(), description);
        Ok(())
    }

    /// Adds a dense tensor of a floating-point type. Reads it back from the device.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), and for other types.
    pub fn insert_dense<const D: usize>(&mut self, name: &str, tensor: &Tensor<D>) -> Result<(), Error> {
        self.check_name(name)?;
        self.stored.insert(name.into(), Stored::floats(name, tensor.clone())?);
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), Error> {
        if name == "__metadata__" || name.chars().any(char::is_control) {
            return Err(Error::Name { name: name.into() });
        }
        if self.stored.contains_key(name) || self.sparse.contains_key(name) {
            return Err(Error::Taken { name: name.into() });
        }
        Ok(())
    }

    /// A sparse tensor, with values of the type in the file. `D` is 2 for a matrix and 3 for a batch.
    ///
    /// # Errors
    /// [`Error::Missing`], also of one of its parts, [`Error::Rank`], [`Error::DType`]; [`Error::Tensor`] where its pattern or values are not valid, with
    /// position, value and bound, or the device lacks the type.
    pub fn sparse<const D: usize>(&self, name: &str, device: &Device) -> Result<SparseTensor<D>, Error> {
        let missing = || Error::Missing { kind: "sparse", name: name.into() };
        let Description { shape, width, format } = self.sparse.get(name).ok_or_else(missing)?;
        let Ok(shape) = <[usize; D]>::try_from(shape.as_slice()) else {
            return Err(Error::Rank { name: name.into(), found: shape.clone(), expected: D });
        };
        let part = |stored: bool, level: usize, what: &str| match stored {
            true => self.indices(&buffer_of(name, level, what)).map(Some),
            false => Ok(None),
        };
        let mut levels = Vec::new();
        for (at, level) in format.levels().iter().enumerate() {
            let positions = part(level.kind.has_positions(), at, POSITIONS)?;
            levels.push((positions, part(level.kind.has_coordinates(), at, COORDINATES)?));
        }
        let pattern = assemble_items(format.clone(), &shape, levels, Some(*width));
        let pattern = pattern.map_err(|source| Error::of(name, source))?;
        let values: Tensor<1> = self.dense(&values_of(name), device)?;
        let (length, stored) = (values.dims()[0], pattern.nnz());
        if length != stored {
            return Err(Error::of(name, TensorError::ValuesLength { values: length, stored }));
        }
        Ok(SparseTensor::from_fitting(pattern, shape, values))
    }

    /// A dense tensor, in the type in the file.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Rank`], [`Error::DType`] for others than F32, F64, F16 and BF16, and [`Error::Tensor`] where the device
    /// lacks the type.
    pub fn dense<const D: usize>(&self, name: &str, device: &Device) -> Result<Tensor<D>, Error> {
        let stored = self.stored(name)?;
        let Ok(shape) = <[usize; D]>::try_from(stored.shape.as_slice()) else {
            return Err(Error::Rank { name: name.into(), found: stored.shape.clone(), expected: D });
        };
        let data = match stored.dtype {
            Dtype::F32 => TensorData::new(stored.elements(f32::from_le_bytes), shape),
            Dtype::F64 => TensorData::new(stored.elements(f64::from_le_bytes), shape),
            Dtype::F16 => TensorData::new(stored.elements(f16::from_le_bytes), shape),
            Dtype::BF16 => TensorData::new(stored.elements(bf16::from_le_bytes), shape),
            dtype => return Err(unexpected(name, dtype, "F32, F64, F16 or BF16")),
        };
        let dtype = data.dtype();
        if !supported(dtype, device) {
            return Err(Error::of(name, TensorError::DType { dtype, device: device_name(device) }));
        }
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    fn indices(&self, name: &str) -> Result<RawIndices, Error> {
        let stored = self.stored(name)?;
        match (stored.dtype, stored.shape.len()) {
            (Dtype::I64, 1) => Ok(RawIndices::I64(stored.elements(i64::from_le_bytes))),
            (Dtype::I64, _) => Err(Error::Rank { name: name.into(), found: stored.shape.clone(), expected: 1 }),
            (dtype, _) => Err(unexpected(name, dtype, "I64")),
        }
    }

    fn stored(&self, name: &str) -> Result<&Stored, Error> {
        self.stored.get(name).ok_or_else(|| Error::Missing { kind: "dense", name: name.into() })
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// If the header is beyond the format's limit of 100 MB.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let lines = self.sparse.iter().map(|(name, description)| description.line(name));
        let lines: Vec<_> = lines.collect();
        let metadata = (!lines.is_empty()).then(|| HashMap::from([(KEY.into(), lines.join("\n"))]));
        Ok(safetensors::serialize(&self.stored, metadata)?)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes), and if the system can't write.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let written = self.to_bytes().and_then(|bytes| Ok(fs::write(path, bytes)?));
        written.map_err(|error| error.in_file(path))
    }
}

const POSITIONS: &str = "positions";
const COORDINATES: &str = "coordinates";

fn values_of(name: &str) -> String {
    format!("{name}.values")
}

fn buffer_of(name: &str, level: usize, what: &str) -> String {
    format!("{name}.{level}.{what}")
}

fn unexpected(name: &str, found: impl std::fmt::Debug, expected: &'static str) -> Error {
    Error::DType { name: name.into(), found: format!("{found:?}"), expected }
}

impl Description {
    /// The names of the buffers of the levels, in their order.
    fn buffers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = String> + 'a {
        self.format.levels().iter().enumerate().flat_map(move |(at, level)| {
            let parts = [(level.kind.has_positions(), POSITIONS), (level.kind.has_coordinates(), COORDINATES)];
            parts.into_iter().filter(|part| part.0).map(move |(_, what)| buffer_of(name, at, what))
        })
    }

    /// The names of all its parts.
    fn parts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = String> + 'a {
        self.buffers(name).chain([values_of(name)])
    }

    fn line(&self, name: &str) -> String {
        let shape: Vec<_> = self.shape.iter().map(usize::to_string).collect();
        format!("{name}\t{}\t{}\t{}", shape.join("x"), 8 * self.width.bytes(), self.format)
    }

    fn parse(line: &str) -> Result<(String, Self), String> {
        let fields: Vec<_> = line.split('\t').collect();
        let [name, shape, bits, format] = fields[..] else {
            return Err("expected name, shape, bits and format".into());
        };
        let sizes: Result<_, std::num::ParseIntError> = shape.split('x').map(str::parse).collect();
        let shape = sizes.map_err(|error| format!("the shape {shape:?}: {error}"))?;
        let width = match bits {
            "32" => IndexWidth::I32,
            "64" => IndexWidth::I64,
            _ => return Err(format!("indices have 32 or 64 bits, not {bits:?}")),
        };
        let format = format.parse().map_err(|error: FormatError| error.to_string())?;
        Ok((name.into(), Self { shape, width, format }))
    }
}

impl Stored {
    fn new(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Self {
        Self { dtype, shape, range: 0..bytes.len(), bytes: Arc::new(bytes) }
    }

    fn indices(indices: &Indices) -> Self {
        let bytes = indices.iter().flat_map(|index| (index as i64).to_le_bytes());
        Self::new(Dtype::I64, vec![indices.len()], bytes.collect())
    }

    fn floats<const D: usize>(name: &str, tensor: Tensor<D>) -> Result<Self, Error> {
        let failed = |reason| Error::of(name, TensorError::Read { reason });
        let data = tensor.try_into_data().map_err(|error| failed(format!("{error:?}")))?;
        let shape = data.shape().to_vec();
        let (dtype, bytes) = match data.dtype() {
            DType::F32 => (Dtype::F32, bytes(&data, f32::to_le_bytes)),
            DType::F64 => (Dtype::F64, bytes(&data, f64::to_le_bytes)),
            DType::F16 => (Dtype::F16, bytes(&data, f16::to_le_bytes)),
            DType::BF16 => (Dtype::BF16, bytes(&data, bf16::to_le_bytes)),
            dtype => return Err(unexpected(name, dtype, "F32, F64, F16 or BF16")),
        };
        Ok(Self::new(dtype, shape, bytes.map_err(failed)?))
    }

    fn elements<const N: usize, E>(&self, decode: fn([u8; N]) -> E) -> Vec<E> {
        let bytes = self.bytes[self.range.clone()].chunks_exact(N);
        bytes.map(|bytes| decode(bytes.try_into().expect("chunks of this length"))).collect()
    }
}

fn bytes<const N: usize, E: Element>(data: &TensorData, encode: fn(E) -> [u8; N]) -> Result<Vec<u8>, String> {
    let elements = data.as_slice::<E>().map_err(|error| format!("{error:?}"))?;
    Ok(elements.iter().flat_map(|&element| encode(element)).collect())
}

impl View for &Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes[self.range.clone()])
    }

    fn data_len(&self) -> usize {
        self.range.len()
    }
}
