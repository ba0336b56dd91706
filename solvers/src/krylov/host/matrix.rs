//! Sparse matrices as iterations read them: hundreds of times, so that copying them into a better order pays.

use super::real::{Loop, Real, fast};
use sparsegrad::SparseTensor;
use sparsegrad::pattern::Indices;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// Rows that are done together.
pub(super) const TOGETHER: usize = 8;

/// A matrix in rows.
pub(super) struct HostMatrix<E> {
    offsets: Arc<Vec<i32>>,
    columns: Arc<Vec<i32>>,
    values: Vec<E>,
    n_cols: usize,
    sliced: Option<Sliced<E>>,
}

/// Rows by eights: entries of the eight stand next to each other, one of each row. A sum adds in the order of its row, and
/// eight of them go on side by side, however short the rows are.
///
/// Entries are put together along diagonals, where eight rows read eight consecutive elements of x, found by one index; or else
/// by their number in the row. Where a row has none, a zero fills up.
///
/// A. Monakov, A. Lokhmotov, A. Avetisyan, *Automatically tuning sparse matrix-vector multiplication for GPU
/// architectures*, 2010, is where the slices are from.
struct Sliced<E> {
    /// Where the entries of each slice start.
    starts: Vec<u32>,
    /// The first of eight consecutive columns; or, if negative, `!at`, with the columns in `scattered[at]`.
    columns: Vec<i32>,
    scattered: Vec<[i32; TOGETHER]>,
    values: Vec<[E; TOGETHER]>,
}

impl<E: Real> HostMatrix<E> {
    /// The matrix for products with `cols` columns, and the power of two that it is multiplied by. `None` where its indices
    /// need 64 bits.
    pub(super) fn new(matrix: &SparseTensor<2>, cols: usize, items: usize, scale: f64) -> Option<Self> {
        let csr = matrix.to_csr();
        let level = &csr.pattern().levels()[1];
        let (Some(Indices::I32(offsets)), Some(Indices::I32(columns))) = (&level.positions, &level.coordinates) else {
            return None;
        };
        let mut values = csr.values().clone().try_into_data().ok()?.try_into_vec_as::<E>().ok()?;
        if scale != 1.0 {
            let scale = E::round(scale);
            values.iter_mut().for_each(|value| *value = *value * scale);
        }
        let n_cols = csr.shape()[1];
        let sliced = (cols == 1).then(|| Sliced::new(offsets, columns, &values, n_cols, items == 1)).flatten();
        Some(Self { offsets: offsets.clone(), columns: columns.clone(), values, n_cols, sliced })
    }

    /// Some rows of the product with `x`, of `cols` columns. Rows start at a multiple of [`TOGETHER`].
    pub(super) fn multiply(&self, rows: Range<usize>, x: &[E], cols: usize, out: &mut [MaybeUninit<E>]) {
        assert_eq!(x.len(), self.n_cols * cols, "elements of x");
        assert_eq!(out.len(), rows.len() * cols, "elements of the product");
        assert!(rows.end < self.offsets.len() && rows.start.is_multiple_of(TOGETHER));
        match &self.sliced {
            Some(sliced) => fast(SlicedRows { sliced, rows, x, out }),
            None => fast(CsrRows { matrix: self, rows, x, cols, out }),
        }
    }

    /// The squares of the entries of some rows, summed.
    pub(super) fn squares(&self, rows: Range<usize>) -> f64 {
        let range = self.offsets[rows.start] as usize..self.offsets[rows.end] as usize;
        self.values[range].iter().map(|value| value.widen() * value.widen()).sum()
    }
}

/// Bytes that a slice may take up for each that its entries take up in rows, in tenths.
const WASTE: usize = 11;

impl<E: Real> Sliced<E> {
    /// `None` where slices would take up more memory than rows, which is what a product waits for.
    ///
    /// What fills up reads an element of x that the row has no entry at: harmless, unless that is not finite. So only where the
    /// matrix is `alone`: of a batch, an item must not see another one.
    fn new(offsets: &[i32], columns: &[i32], values: &[E], n_cols: usize, alone: bool) -> Option<Self> {
        let n_rows = offsets.len() - 1;
        if n_rows == 0 || n_cols == 0 {
            return None;
        }
        let mut sliced = Self { starts: vec![0], columns: vec![], scattered: vec![], values: vec![] };
        sliced.columns.reserve(values.len() / TOGETHER);
        sliced.values.reserve(values.len() / TOGETHER);
        let mut diagonals = vec![];
        for slice in 0..n_rows.div_ceil(TOGETHER) {
            let first = slice * TOGETHER;
            let rows: [Range<usize>; TOGETHER] = std::array::from_fn(|lane| match first + lane {
                row if row < n_rows => offsets[row] as usize..offsets[row + 1] as usize,
                _ => 0..0,
            });
            let width = rows.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
            let consecutive = size_of::<[E; TOGETHER]>() + size_of::<i32>();
            let scattered = consecutive + size_of::<[i32; TOGETHER]>();
            diagonals.clear();
            if alone && along_diagonals(&rows, columns, first, width * scattered / consecutive, &mut diagonals) {
                for (offset, entries) in &diagonals {
                    let start = first as i64 + offset;
                    if start >= 0 && start + TOGETHER as i64 <= n_cols as i64 {
                        sliced.columns.push(start as i32);
                    } else {
                        // Beside the matrix there is nothing to read.
                        let column = |lane: usize| (start + lane as i64).clamp(0, n_cols as i64 - 1) as i32;
                        sliced.scatter(std::array::from_fn(column));
                    }
                    sliced.values.push(entries.map(|entry| values.get(entry as usize).copied().unwrap_or_default()));
                }
            } else {
                if !alone && (0..TOGETHER.min(n_rows - first)).any(|lane| rows[lane].is_empty()) {
                    return None;
                }
                for at in 0..width {
                    // What fills up reads what its row reads anyway.
                    let column = |lane: usize| match &rows[lane] {
                        row if row.is_empty() => 0,
                        row => columns[(row.start + at).min(row.end - 1)],
                    };
                    let value = |lane: usize| match rows[lane].start + at {
                        entry if entry < rows[lane].end => values[entry],
                        _ => E::default(),
                    };
                    sliced.scatter(std::array::from_fn(column));
                    sliced.values.push(std::array::from_fn(value));
                }
            }
            sliced.starts.push(u32::try_from(sliced.columns.len()).ok()?);
        }
        let entry = size_of::<E>() + size_of::<i32>();
        (sliced.bytes() * 10 <= values.len() * entry * WASTE).then_some(sliced)
    }

    fn scatter(&mut self, columns: [i32; TOGETHER]) {
        self.columns.push(!(self.scattered.len() as i32));
        self.scattered.push(columns);
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.columns[..]) + size_of_val(&self.scattered[..]) + size_of_val(&self.values[..])
    }
}

/// Puts the entries of eight rows together that stand on one diagonal, each row's in its own order. `false` if that makes more
/// than `most` groups.
fn along_diagonals(
    rows: &[Range<usize>; TOGETHER],
    columns: &[i32],
    first: usize,
    most: usize,
    diagonals: &mut Vec<(i64, [u32; TOGETHER])>,
) -> bool {
    /// No diagonal: the row has no more entries.
    const NONE: i64 = i64::MAX;
    let mut at = rows.each_ref().map(|row| row.start);
    let offset = |lane: usize, entry: usize| match entry < rows[lane].end {
        true => i64::from(columns[entry]) - (first + lane) as i64,
        false => NONE,
    };
    let mut heads: [i64; TOGETHER] = std::array::from_fn(|lane| offset(lane, at[lane]));
    loop {
        let next = heads.iter().copied().fold(NONE, i64::min);
        if next == NONE {
            return true;
        }
        if diagonals.len() == most {
            return false;
        }
        let mut entries = [u32::MAX; TOGETHER];
        for lane in 0..TOGETHER {
            if heads[lane] == next {
                entries[lane] = at[lane] as u32;
                at[lane] += 1;
                heads[lane] = offset(lane, at[lane]);
            }
        }
        diagonals.push((next, entries));
    }
}

struct SlicedRows<'a, E> {
    sliced: &'a Sliced<E>,
    rows: Range<usize>,
    x: &'a [E],
    out: &'a mut [MaybeUninit<E>],
}

impl<E: Real> Loop for SlicedRows<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { sliced: Sliced { starts, columns, scattered, values }, rows, x, out } = self;
        for (slice, out) in (rows.start / TOGETHER..).zip(out.chunks_mut(TOGETHER)) {
            let mut sums = [E::default(); TOGETHER];
            for entry in starts[slice] as usize..starts[slice + 1] as usize {
                // SAFETY: a slice's entries are there, and columns were checked to be within `x`.
                unsafe {
                    let (column, values) = (*columns.get_unchecked(entry), values.get_unchecked(entry));
                    if column >= 0 {
                        let x = x.as_ptr().add(column as usize).cast::<[E; TOGETHER]>().read();
                        for lane in 0..TOGETHER {
                            sums[lane] = sums[lane] + values[lane] * x[lane];
                        }
                    } else {
                        let columns = scattered.get_unchecked(!column as usize);
                        for lane in 0..TOGETHER {
                            sums[lane] = sums[lane] + values[lane] * *x.get_unchecked(columns[lane] as u32 as usize);
                        }
                    }
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                out.write(sum);
            }
        }
    }
}

struct CsrRows<'a, E> {
    matrix: &'a HostMatrix<E>,
    rows: Range<usize>,
    x: &'a [E],
    cols: usize,
    out: &'a mut [MaybeUninit<E>],
}

impl<E: Real> Loop for CsrRows<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { matrix: HostMatrix { offsets, columns, values, .. }, rows, x, cols, out } = self;
        for (row, out) in rows.zip(out.chunks_mut(cols.max(1))) {
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            // SAFETY: the entries of a checked pattern, whose columns are within `x`.
            unsafe {
                if cols == 1 {
                    out[0].write(dot(&columns[entries.clone()], &values[entries], x));
                    continue;
                }
                let mut first = 0;
                while first + 8 <= cols {
                    tile::<E, 8>(entries.clone(), columns, values, x, cols, first, out);
                    first += 8;
                }
                if first + 4 <= cols {
                    tile::<E, 4>(entries.clone(), columns, values, x, cols, first, out);
                    first += 4;
                }
                while first < cols {
                    tile::<E, 1>(entries.clone(), columns, values, x, cols, first, out);
                    first += 1;
                }
            }
        }
    }
}

/// A long row times a vector: in four sums.
///
/// # Safety
/// Columns are within `x`, and as many as values.
#[inline(always)]
unsafe fn dot<E: Real>(columns: &[i32], values: &[E], x: &[E]) -> E {
    let mut sums = [E::default(); 4];
    // SAFETY: the caller's promise.
    let term = |entry: usize| unsafe {
        *values.get_unchecked(entry) * *x.get_unchecked(*columns.get_unchecked(entry) as u32 as usize)
    };
    let whole = columns.len() / 4 * 4;
    for entry in (0..whole).step_by(4) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = *sum + term(entry + lane);
        }
    }
    let mut sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for entry in whole..columns.len() {
        sum = sum + term(entry);
    }
    sum
}

/// `N` columns of a row.
///
/// # Safety
/// The entries are there, their columns within `x`, and the tile within its `cols` columns.
#[inline(always)]
unsafe fn tile<E: Real, const N: usize>(
    entries: Range<usize>,
    columns: &[i32],
    values: &[E],
    x: &[E],
    cols: usize,
    first: usize,
    out: &mut [MaybeUninit<E>],
) {
    let mut sums = [E::default(); N];
    for entry in entries {
        // SAFETY: the caller's promise.
        unsafe {
            let value = *values.get_unchecked(entry);
            let from = *columns.get_unchecked(entry) as u32 as usize * cols + first;
            let x = x.as_ptr().add(from).cast::<[E; N]>().read();
            for lane in 0..N {
                sums[lane] = sums[lane] + value * x[lane];
            }
        }
    }
    for (out, sum) in out[first..first + N].iter_mut().zip(sums) {
        out.write(sum);
    }
}
