//! Loops over columns, M x B in row-major order, that tensors have no fast operation for.

use crate::normal::NormalElement;
use burn::tensor::{Tensor, TensorData};
use sparsegrad::internals::alloc;
use std::iter::Sum;
use std::mem::MaybeUninit;
use std::ops::{Add, Mul, Sub};

#[cfg(feature = "flex")]
use burn::backend::{DispatchKindConversion, DispatchTensor, Flex, flex::FlexTensor as Host};
#[cfg(not(feature = "flex"))]
use burn::tensor::TensorData as Host;

/// f32 and f64.
pub trait Number:
    NormalElement + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Sum + Into<f64>
{
    /// One.
    const ONE: Self;

    /// What the numbers are, if they are of this type.
    fn slice(numbers: &Numbers) -> &[Self];
}

macro_rules! number {
    ($($float:ty),*) => { $(
        impl Number for $float {
            const ONE: Self = 1.0;

            fn slice(numbers: &Numbers) -> &[Self] {
                let slice: Option<&[Self]> = numbers.0.as_slice().into_iter().next();
                slice.expect("the dtype of the distribution")
            }
        }
    )* };
}
number!(f32, f64);

/// The numbers of a tensor on the CPU, where they are.
pub struct Numbers(Host);

impl Numbers {
    /// Without a copy, of whatever begins somewhere in a larger one, too.
    pub fn of<const D: usize>(tensor: Tensor<D>) -> Self {
        #[cfg(feature = "flex")]
        {
            let tensor = <DispatchTensor as DispatchKindConversion<Flex>>::try_into_backend(tensor.into_dispatch());
            let tensor = tensor.expect("a tensor on the CPU").float();
            Self(if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() })
        }
        #[cfg(not(feature = "flex"))]
        Self(tensor.into_data())
    }
}

/// So many rows at a time are moved between rows and columns: both stay in the cache, and the loop has no bounds to check.
const TOGETHER: usize = 8;

/// Rows, B x M, as columns, each without what is to be subtracted from it.
pub fn columns<'a, E: Number>(rows: Tensor<2>, minus: impl Fn(usize) -> Option<&'a [E]>) -> Tensor<2> {
    fn some<'a, E: Number, const N: usize>(
        rows: &[E],
        minus: &impl Fn(usize) -> Option<&'a [E]>,
        m: usize,
        start: usize,
        out: &mut [MaybeUninit<E>],
    ) {
        let b = rows.len() / m;
        let out = &mut out[start * b..(start + N) * b];
        for (column, row) in rows.chunks_exact(m).enumerate() {
            let part = |row: &[E]| -> [E; N] { row[start..start + N].try_into().expect("N of them") };
            let (mut numbers, out) = (part(row), &mut out[..(N - 1) * b + column + 1]);
            if let Some(minus) = minus(column).map(part) {
                numbers = std::array::from_fn(|i| numbers[i] - minus[i]);
            }
            for i in 0..N {
                out[i * b + column].write(numbers[i]);
            }
        }
    }
    let ([b, m], device) = (rows.dims(), rows.device());
    let rows = Numbers::of(rows);
    let rows = E::slice(&rows);
    let mut out = alloc::output::<E>(m * b);
    let even = m / TOGETHER * TOGETHER;
    (0..even).step_by(TOGETHER).for_each(|start| some::<E, TOGETHER>(rows, &minus, m, start, &mut out));
    (even..m).for_each(|start| some::<E, 1>(rows, &minus, m, start, &mut out));
    // SAFETY: written in full, a column for each row.
    let columns = TensorData::new(unsafe { alloc::finished(out) }, [m, b]);
    Tensor::from_data(columns, (&device, E::dtype()))
}

/// Writes columns, M x B, as rows, each with what is to be added to it.
pub fn write_rows<'a, E: Number>(columns: Tensor<2>, add: impl Fn(usize) -> &'a [E], out: &mut [MaybeUninit<E>]) {
    fn some<'a, E: Number, const N: usize>(
        columns: &[E],
        add: &impl Fn(usize) -> &'a [E],
        m: usize,
        start: usize,
        out: &mut [MaybeUninit<E>],
    ) {
        let b = columns.len() / m;
        let columns = &columns[start * b..(start + N) * b];
        for (column, row) in out.chunks_exact_mut(m).enumerate() {
            let out: &mut [MaybeUninit<E>; N] = (&mut row[start..start + N]).try_into().expect("N of them");
            let add: &[E; N] = add(column)[start..start + N].try_into().expect("N of them");
            let columns = &columns[..(N - 1) * b + column + 1];
            for i in 0..N {
                out[i].write(columns[i * b + column] + add[i]);
            }
        }
    }
    let [m, _] = columns.dims();
    let columns = Numbers::of(columns);
    let columns = E::slice(&columns);
    assert_eq!(columns.len(), out.len());
    let even = m / TOGETHER * TOGETHER;
    (0..even).step_by(TOGETHER).for_each(|start| some::<E, TOGETHER>(columns, &add, m, start, out));
    (even..m).for_each(|start| some::<E, 1>(columns, &add, m, start, out));
}

/// Columns, each number times one of its row and one of its column. Columns lie below each other in so many items, and the numbers
/// of columns are those of an item.
pub fn scaled<E: Number>(
    columns: Tensor<2>,
    items: usize,
    row: impl Fn(usize) -> E,
    column: impl Fn(usize) -> Vec<E>,
) -> Tensor<2> {
    fn some<E: Number>(from: &[E], row: E, columns: &[E], out: &mut [MaybeUninit<E>]) {
        for ((out, &x), &column) in out.iter_mut().zip(from).zip(columns) {
            out.write(x * (row * column));
        }
    }
    let ([m, b], device) = (columns.dims(), columns.device());
    let from = Numbers::of(columns);
    let mut out = alloc::output::<E>(m * b);
    let of_item = m / items;
    let parts = E::slice(&from).chunks_exact(of_item * b).zip(out.chunks_exact_mut(of_item * b));
    for (item, (from, out)) in parts.enumerate() {
        let (columns, row) = (column(item), |at: usize| row(item * of_item + at));
        macro_rules! unrolled {
            ($($b:literal),*) => {
                match b {
                    $($b => {
                        let columns: &[E; $b] = columns[..].try_into().expect("one for each");
                        let rows = from.as_chunks::<$b>().0.iter().zip(out.as_chunks_mut::<$b>().0);
                        rows.enumerate().for_each(|(at, (from, out))| some(from, row(at), columns, out));
                    })*
                    _ => {
                        let rows = from.chunks_exact(b).zip(out.chunks_exact_mut(b));
                        rows.enumerate().for_each(|(at, (from, out))| some(from, row(at), &columns, out));
                    }
                }
            };
        }
        unrolled!(1, 8, 16);
    }
    // SAFETY: written in full, item by item.
    let scaled = TensorData::new(unsafe { alloc::finished(out) }, [m, b]);
    Tensor::from_data(scaled, (&device, E::dtype()))
}

/// The sums of rows, as one row.
pub fn row_sums<E: Number>(columns: Tensor<2>) -> Tensor<2> {
    let ([m, b], device) = (columns.dims(), columns.device());
    let columns = Numbers::of(columns);
    let columns = E::slice(&columns);
    let sum = |row: &[E]| row.iter().copied().sum();
    let sums: Vec<E> = match b {
        8 => columns.as_chunks::<8>().0.iter().map(|row| sum(row)).collect(),
        16 => columns.as_chunks::<16>().0.iter().map(|row| sum(row)).collect(),
        _ => columns.chunks_exact(b).map(sum).collect(),
    };
    Tensor::from_data(TensorData::new(sums, [1, m]), (&device, E::dtype()))
}

/// The sums of squares of columns, row-major and b of them, each square times a number of its row: short sums in their type, and
/// those in f64.
pub fn squares<E: Number>(numbers: &[E], b: usize, row: impl Fn(usize) -> E) -> Vec<f64> {
    /// Rows in a short sum.
    const SHORT: usize = 16;
    fn some<E: Number, const N: usize>(numbers: &[E], weight: impl Fn(usize) -> E) -> [f64; N] {
        let mut sums = [0.0; N];
        let (rows, rest) = numbers.as_chunks::<N>();
        for (at, rows) in rows.chunks(SHORT).enumerate() {
            let mut short = [E::default(); N];
            for (row, numbers) in rows.iter().enumerate() {
                for i in 0..N {
                    let weight = weight((at * SHORT + row) * N + i);
                    short[i] = short[i] + numbers[i] * numbers[i] * weight;
                }
            }
            sums = std::array::from_fn(|i| sums[i] + short[i].into());
        }
        for (i, &x) in rest.iter().enumerate() {
            sums[i] += (x * x * weight(numbers.len() - rest.len() + i)).into();
        }
        sums
    }
    match b {
        1 => vec![some::<E, 32>(numbers, row).iter().sum()],
        8 => some::<E, 8>(numbers, |at| row(at / 8)).to_vec(),
        16 => some::<E, 16>(numbers, |at| row(at / 16)).to_vec(),
        _ => {
            let mut sums = vec![0.0; b];
            for (at, numbers) in numbers.chunks_exact(b).enumerate() {
                let weight = row(at);
                sums.iter_mut().zip(numbers).for_each(|(sum, &x)| *sum += (x * x * weight).into());
            }
            sums
        }
    }
}
