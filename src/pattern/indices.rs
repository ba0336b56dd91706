//! Index buffers: what callers may give, and what a pattern keeps.

use super::plan::RowView;
use super::rows::{Index, Rows};
use burn::tensor::{DType, Int, Tensor};
use std::sync::Arc;

/// The width of a pattern's indices and offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexWidth {
    /// 32 bits: chosen wherever shape and number of entries allow it.
    I32,
    /// 64 bits.
    I64,
}

impl IndexWidth {
    /// The size of an index.
    pub fn bytes(self) -> usize {
        match self {
            IndexWidth::I32 => 4,
            IndexWidth::I64 => 8,
        }
    }
}

/// An immutable, shared buffer of indices or offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Indices {
    /// 32-bit.
    I32(Arc<Vec<i32>>),
    /// 64-bit.
    I64(Arc<Vec<i64>>),
}

/// Calls `$body` with `$buffer` bound to the `&Vec<i32>` or `&Vec<i64>` of an [`Indices`].
macro_rules! with_indices {
    ($indices:expr, $buffer:ident => $body:expr) => {
        match $indices {
            $crate::pattern::Indices::I32($buffer) => $body,
            $crate::pattern::Indices::I64($buffer) => $body,
        }
    };
}
pub(crate) use with_indices;

impl Indices {
    /// The number of indices.
    pub fn len(&self) -> usize {
        with_indices!(self, b => b.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index `at`.
    pub fn get(&self, at: usize) -> usize {
        with_indices!(self, b => b[at].get())
    }

    /// All, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Their width.
    pub fn width(&self) -> IndexWidth {
        match self {
            Indices::I32(_) => IndexWidth::I32,
            Indices::I64(_) => IndexWidth::I64,
        }
    }

    /// These values in this width; the caller has checked that they fit.
    pub(crate) fn of_width(width: IndexWidth, values: &[usize]) -> Self {
        match width {
            IndexWidth::I32 => Indices::I32(Arc::new(values.iter().map(|&v| v as i32).collect())),
            IndexWidth::I64 => Indices::I64(Arc::new(values.iter().map(|&v| v as i64).collect())),
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        with_indices!(self, b => std::mem::size_of_val(b.as_slice()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        with_indices!(self, b => bytemuck::cast_slice(b))
    }

    /// The same indices in another width; the caller has checked that they fit.
    pub(crate) fn to_width(&self, width: IndexWidth) -> Self {
        match (self, width) {
            (Indices::I32(b), IndexWidth::I64) => Indices::I64(Arc::new(b.iter().map(|&i| i.into()).collect())),
            (Indices::I64(b), IndexWidth::I32) => Indices::I32(Arc::new(b.iter().map(|&i| i as i32).collect())),
            _ => self.clone(),
        }
    }
}

/// An index type as the element of an [`Indices`] buffer.
pub(crate) trait Buffer: Index {
    /// The buffer, shared; it has this width.
    fn share(indices: &Indices) -> Arc<Vec<Self>>;
    fn to_indices(buffer: &Arc<Vec<Self>>) -> Indices;
    /// The view, which has this width.
    fn rows(view: &RowView) -> &Rows<Self>;
}

macro_rules! buffer {
    ($t:ty, $variant:ident) => {
        impl Buffer for $t {
            fn share(indices: &Indices) -> Arc<Vec<Self>> {
                match indices {
                    Indices::$variant(buffer) => buffer.clone(),
                    _ => unreachable!("the buffers of a pattern have one width"),
                }
            }
            fn to_indices(buffer: &Arc<Vec<Self>>) -> Indices {
                Indices::$variant(buffer.clone())
            }
            fn rows(view: &RowView) -> &Rows<Self> {
                match view {
                    RowView::$variant(rows) => rows,
                    _ => unreachable!("the views of a pattern have one width"),
                }
            }
        }
    };
}
buffer!(i32, I32);
buffer!(i64, I64);

/// Unchecked indices as a caller gives them: anything may be negative or too large.
#[derive(Debug, Clone)]
pub enum RawIndices {
    /// 32-bit.
    I32(Vec<i32>),
    /// 64-bit.
    I64(Vec<i64>),
}

impl RawIndices {
    pub(crate) fn len(&self) -> usize {
        match self {
            RawIndices::I32(b) => b.len(),
            RawIndices::I64(b) => b.len(),
        }
    }

    pub(crate) fn get(&self, at: usize) -> i128 {
        match self {
            RawIndices::I32(b) => b[at].into(),
            RawIndices::I64(b) => b[at].into(),
        }
    }

    /// The position of the first value that the predicate refuses.
    pub(crate) fn position(&self, refuse: impl Fn(i64) -> bool) -> Option<usize> {
        match self {
            RawIndices::I32(b) => b.iter().position(|&i| refuse(i.into())),
            RawIndices::I64(b) => b.iter().position(|&i| refuse(i)),
        }
    }

    /// In this width, without a copy where it is that already; the caller has checked that all fit.
    pub(crate) fn into_width(self, width: IndexWidth) -> Indices {
        match (self, width) {
            (RawIndices::I32(b), IndexWidth::I32) => Indices::I32(Arc::new(b)),
            (RawIndices::I64(b), IndexWidth::I64) => Indices::I64(Arc::new(b)),
            (RawIndices::I32(b), IndexWidth::I64) => Indices::I64(Arc::new(b.into_iter().map(i64::from).collect())),
            (RawIndices::I64(b), IndexWidth::I32) => Indices::I32(Arc::new(b.into_iter().map(|i| i as i32).collect())),
        }
    }
}

/// What can be given as indices: vectors, slices and arrays of `i32`, `i64`, `u32`, `u64`, `usize`, and integer tensors.
///
/// `Vec<i32>`, `Vec<i64>` and, with numbers below 2^31, `Vec<u32>` are taken without a copy. Nothing is checked here: the pattern's constructor does.
pub trait IntoIndices {
    /// The indices, unchecked.
    fn into_indices(self) -> RawIndices;
}

impl IntoIndices for RawIndices {
    fn into_indices(self) -> RawIndices {
        self
    }
}

impl IntoIndices for Indices {
    fn into_indices(self) -> RawIndices {
        match self {
            Indices::I32(b) => RawIndices::I32(Arc::unwrap_or_clone(b)),
            Indices::I64(b) => RawIndices::I64(Arc::unwrap_or_clone(b)),
        }
    }
}

impl IntoIndices for Vec<i32> {
    fn into_indices(self) -> RawIndices {
        RawIndices::I32(self)
    }
}
impl IntoIndices for Vec<i64> {
    fn into_indices(self) -> RawIndices {
        RawIndices::I64(self)
    }
}
impl IntoIndices for Vec<u32> {
    fn into_indices(self) -> RawIndices {
        if self.iter().all(|&i| i <= i32::MAX as u32) {
            // In place.
            return RawIndices::I32(self.into_iter().map(|i| i as i32).collect());
        }
        RawIndices::I64(self.into_iter().map(i64::from).collect())
    }
}
macro_rules! unsigned {
    ($($t:ty),*) => { $(impl IntoIndices for Vec<$t> {
        fn into_indices(self) -> RawIndices {
            // A value beyond i64 is beyond every bound: it stays an error, at its position.
            RawIndices::I64(self.into_iter().map(|i| i64::try_from(i).unwrap_or(i64::MAX)).collect())
        }
    })* };
}
unsigned!(u64, usize);

impl<T: Copy> IntoIndices for &[T]
where
    Vec<T>: IntoIndices,
{
    fn into_indices(self) -> RawIndices {
        self.to_vec().into_indices()
    }
}
impl<T: Copy> IntoIndices for &Vec<T>
where
    Vec<T>: IntoIndices,
{
    fn into_indices(self) -> RawIndices {
        self.clone().into_indices()
    }
}
impl<T: Copy, const N: usize> IntoIndices for &[T; N]
where
    Vec<T>: IntoIndices,
{
    fn into_indices(self) -> RawIndices {
        self.to_vec().into_indices()
    }
}
impl<T: Copy, const N: usize> IntoIndices for [T; N]
where
    Vec<T>: IntoIndices,
{
    fn into_indices(self) -> RawIndices {
        self.to_vec().into_indices()
    }
}

/// Reads the tensor back from its device.
impl IntoIndices for Tensor<1, Int> {
    fn into_indices(self) -> RawIndices {
        let data = self.into_data();
        match data.dtype() {
            DType::I32 => RawIndices::I32(data.try_to_vec().expect("the dtype was matched")),
            _ => RawIndices::I64(data.iter::<i64>().collect()),
        }
    }
}
