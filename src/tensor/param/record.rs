//! A pattern as integer parameters of a record, and back.
//!
//! Burn's loaders ask for each parameter by its path and take only the shape that the module has. The buffers of a pattern have any
//! length, so it is two parameters: a `header` of fixed length, which tells how many `words` follow. Both are lazy: nothing
//! is copied until a record is really made.

use crate::error::FormatError;
use crate::format::TensorFormat;
use crate::pattern::{Index, IndexWidth, Indices, Pattern, RawIndices, assemble_items};
use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Element, Int, Tensor, TensorData};
use std::ops::Range;

type IntParam = Param<Tensor<1, Int>>;

/// The pattern of a tensor: of a batch, that of the block-diagonal matrix, whose shape says less.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Structure<const D: usize> {
    pub pattern: Pattern,
    pub shape: [usize; D],
}

/// What a mapper did to a pattern.
pub(super) enum Mapped<const D: usize> {
    /// Nothing: most mappers do not load.
    Kept,
    /// It brought this one, which was checked, and may equal the one that was there.
    Loaded(Structure<D>),
    /// It brought what is no pattern, and has been told.
    Refused,
}

/// Where the integer parameters belong.
pub(super) struct Place {
    /// That of the values, so that whoever selects these by id selects the pattern with them.
    id: ParamId,
    device: Device,
}

impl Place {
    pub(super) fn of(values: &Param<Tensor<1>>) -> Self {
        Self {
            id: values.id,
            // Patterns live on the host: no copy to a GPU and back, which may lack wide integers.
            #[cfg(feature = "flex")]
            device: Device::flex(),
            #[cfg(not(feature = "flex"))]
            device: values.lazy_device(),
        }
    }

    /// Shows a pattern to a visitor.
    pub(super) fn visit<V: ModuleVisitor, const D: usize>(&self, structure: &Structure<D>, visitor: &mut V) {
        let header = Header::of(structure);
        let (header, words) = if header.is_narrow() {
            (self.header::<i32>(header), self.words::<i32, D>(structure, header))
        } else {
            (self.header::<i64>(header), self.words::<i64, D>(structure, header))
        };
        for (name, param) in [("header", header), ("words", words)] {
            visitor.enter_module("pattern", CONTAINER);
            visitor.enter_module(name, CONTAINER);
            visitor.visit_int(&param);
            visitor.exit_module(name, CONTAINER);
            visitor.exit_module("pattern", CONTAINER);
        }
    }

    /// Offers a pattern to a mapper, in wide integers: a loader may cast to our type, and Burn panics if that narrows.
    pub(super) fn map<M: ModuleMapper, const D: usize>(&self, structure: &Structure<D>, mapper: &mut M) -> Mapped<D> {
        let own = Header::of(structure);
        let header = map_named(mapper, "header", self.header::<i64>(own));
        if !header.is_initialized() {
            return Mapped::Kept;
        }
        match self.map_words(structure, own, &header, mapper) {
            Ok(Some(loaded)) => Mapped::Loaded(loaded),
            Ok(None) => Mapped::Refused,
            Err(fault) => {
                self.refuse(&fault, mapper);
                Mapped::Refused
            }
        }
    }

    /// The pattern that a mapper has for a header, unless it has none or one of another length, which a loader knows itself.
    fn map_words<M: ModuleMapper, const D: usize>(
        &self,
        structure: &Structure<D>,
        own: Header,
        header: &IntParam,
        mapper: &mut M,
    ) -> Result<Option<Structure<D>>, String> {
        let header = Header::decode(&read(header)?)?;
        let words = if header == own {
            self.words::<i64, D>(structure, own)
        } else {
            // Only a type until they come: the number is not to be trusted with memory.
            self.param(header.words, Vec::<i64>::new)
        };
        let words = map_named(mapper, "words", words);
        if !words.is_initialized() {
            return Ok(None);
        }
        decode(&read(&words)?, header.width).map(Some)
    }

    /// Makes a load fail with our message. No mapper can be handed an error, but a loader fails with the list of all parameters that
    /// it found nothing for: here is one more, named by the message. Other mappers do nothing with it.
    pub(super) fn refuse<M: ModuleMapper>(&self, fault: &str, mapper: &mut M) {
        map_named(mapper, &format!("invalid: {fault}"), self.param(0, Vec::<i32>::new));
    }

    fn param<E: Element>(&self, length: usize, data: impl FnOnce() -> Vec<E> + Send + Sync + 'static) -> IntParam {
        let make = move |device: &Device, _| {
            let data = data();
            let length = data.len();
            Tensor::from_data(TensorData::new(data, [length]), (device, E::dtype()))
        };
        Param::uninitialized(self.id, make, self.device.clone(), false, [length].into())
    }

    fn header<I: Index + Element>(&self, header: Header) -> IntParam {
        self.param(HEADER, move || header.encode::<I>().to_vec())
    }

    fn words<I: Index + Element, const D: usize>(&self, structure: &Structure<D>, header: Header) -> IntParam {
        let structure = structure.clone();
        self.param(header.words, move || encode::<I, D>(&structure))
    }
}

const CONTAINER: &str = "Struct:SparseParam";

fn map_named<M: ModuleMapper>(mapper: &mut M, name: &str, param: IntParam) -> IntParam {
    mapper.enter_module("pattern", CONTAINER);
    mapper.enter_module(name, CONTAINER);
    let param = mapper.map_int(param);
    mapper.exit_module(name, CONTAINER);
    mapper.exit_module("pattern", CONTAINER);
    param
}

/// The integers of a parameter, whatever a loader made of it.
fn read(param: &IntParam) -> Result<RawIndices, String> {
    let data = param.val().try_into_data().map_err(|error| format!("reading failed: {error:?}"))?;
    let found = match data.dtype() {
        DType::I32 => data.try_into_vec().map(RawIndices::I32),
        DType::I64 => data.try_into_vec().map(RawIndices::I64),
        dtype => {
            return Err(format!("a pattern of type {dtype:?}, it must be I32 or I64"));
        }
    };
    found.map_err(|error| format!("reading failed: {error:?}"))
}

const HEADER: usize = 2;

#[derive(Clone, Copy, PartialEq)]
struct Header {
    /// That of the pattern's indices.
    width: IndexWidth,
    words: usize,
}

impl Header {
    fn of<const D: usize>(structure: &Structure<D>) -> Self {
        Self {
            width: structure.pattern.index_width(),
            words: buffers(structure).iter().map(|buffer| 1 + buffer.len()).sum(),
        }
    }

    /// Whether 32 bits hold each number here and in the words, among which are lengths.
    fn is_narrow(self) -> bool {
        self.width == IndexWidth::I32 && self.words <= i32::LIMIT
    }

    fn encode<I: Index>(self) -> [I; HEADER] {
        let bits = match self.width {
            IndexWidth::I32 => 32,
            IndexWidth::I64 => 64,
        };
        [I::of(bits), I::of(self.words)]
    }

    fn decode(raw: &RawIndices) -> Result<Self, String> {
        let numbers: Vec<i128> = (0..raw.len()).map(|at| raw.get(at)).collect();
        let width = match numbers[..] {
            [32, _] => Some(IndexWidth::I32),
            [64, _] => Some(IndexWidth::I64),
            _ => None,
        };
        match (width, numbers.last().map(|&words| words.try_into())) {
            (Some(width), Some(Ok(words))) => Ok(Self { width, words }),
            _ => Err(format!("{numbers:?} is no header of a pattern")),
        }
    }
}

/// What makes a pattern: the text of its format, the shape, and the buffers of the levels that store some.
fn buffers<const D: usize>(Structure { pattern, shape }: &Structure<D>) -> Vec<Indices> {
    let width = pattern.index_width();
    let text = pattern.format().to_string();
    let text: Vec<usize> = text.bytes().map(usize::from).collect();
    let mut buffers = vec![Indices::of_width(width, &text), Indices::of_width(width, shape)];
    for level in pattern.levels() {
        buffers.extend(level.positions.clone());
        buffers.extend(level.coordinates.clone());
    }
    buffers
}

/// All buffers, each behind its length.
fn encode<I: Index, const D: usize>(structure: &Structure<D>) -> Vec<I> {
    let mut words = Vec::new();
    for buffer in buffers(structure) {
        words.push(I::of(buffer.len()));
        words.extend(buffer.iter().map(I::of));
    }
    words
}

/// The pattern that [`encode`] wrote, checked as if a stranger had.
fn decode<const D: usize>(words: &RawIndices, width: IndexWidth) -> Result<Structure<D>, String> {
    let mut buffers = split(words)?.into_iter();
    let text = numbers::<u8>(buffers.next(), "format")?;
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    let format: TensorFormat = text.parse().map_err(|error: FormatError| error.to_string())?;
    let found = numbers::<usize>(buffers.next(), "shape")?;
    let shape: [usize; D] = found.as_slice().try_into().map_err(|_| format!("a shape {found:?} for {D} dimensions"))?;
    let levels = format.levels().iter().map(|level| {
        let mut next = |stored: bool| if stored { buffers.next() } else { None };
        (next(level.kind.has_positions()), next(level.kind.has_coordinates()))
    });
    let levels = levels.collect();
    if buffers.next().is_some() {
        return Err(format!("more buffers than {format} stores"));
    }
    let pattern = assemble_items(format, &found, levels, Some(width)).map_err(|error| error.to_string())?;
    Ok(Structure { pattern, shape })
}

fn numbers<T: TryFrom<i128>>(buffer: Option<RawIndices>, what: &str) -> Result<Vec<T>, String> {
    let buffer = buffer.ok_or_else(|| format!("the {what} is missing"))?;
    (0..buffer.len())
        .map(|at| {
            let number = buffer.get(at);
            number.try_into().map_err(|_| format!("{number} in the {what}"))
        })
        .collect()
}

/// The buffers, each of which stands behind its length.
fn split(words: &RawIndices) -> Result<Vec<RawIndices>, String> {
    let mut buffers = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let (length, rest) = (words.get(at), words.len() - at - 1);
        at += 1;
        match usize::try_from(length) {
            Ok(length) if length <= rest => {
                buffers.push(slice(words, at..at + length));
                at += length;
            }
            _ => return Err(format!("a buffer of {length} words where {rest} are left")),
        }
    }
    Ok(buffers)
}

fn slice(words: &RawIndices, range: Range<usize>) -> RawIndices {
    match words {
        RawIndices::I32(words) => RawIndices::I32(words[range].to_vec()),
        RawIndices::I64(words) => RawIndices::I64(words[range].to_vec()),
    }
}
