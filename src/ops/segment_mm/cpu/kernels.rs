//! The inner loops, for blocks that fit the near caches: register tiles, with nothing packed where rows are contiguous.
//!
//! Every sum is one chain of additions in the order of its terms, so that bits depend neither on the tile that an element
//! falls into nor on the order in which rows lie.

use std::ops::Range;

use super::{Lines, Places};
use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::Accumulator;
use crate::backend::simd::{Isa, Kernel, each, load, prefetch, store};
use crate::ops::spmm::cpu::starts;

/// The lanes of a vector of 64 bytes.
pub(super) const fn lanes<A>() -> usize {
    64 / size_of::<A>()
}

/// Rows times a matrix: `out_i = bias + x_i W`.
pub(in super::super) struct Product<'a, A> {
    /// Rows of x, as many as are multiplied.
    pub x: Lines<'a, A>,
    /// The matrix, a row of it every `stride` elements; rows are padded to [`lanes`].
    pub weight: &'a [A],
    pub stride: usize,
    /// Padded likewise.
    pub bias: Option<&'a [A]>,
    /// Rows of the result, `cols` elements each, and where those of x go.
    pub out: Output<'a, A>,
    pub places: Places<'a>,
    pub cols: usize,
    pub count: usize,
    /// How many rows come next.
    pub ahead: usize,
}

/// Rows that are done with one panel of the matrix before the next, of so many bytes at most; a multiple of all tiles.
const BLOCK: usize = 24;
const BLOCK_BYTES: usize = 12 << 10;

impl<A: Accumulator> Product<'_, A> {
    #[inline(always)]
    fn blocks<S: Isa, const N: usize>(&self) {
        let row = self.x.cols() * size_of::<A>();
        let block = if 2 * BLOCK * row > BLOCK_BYTES { BLOCK } else { 2 * BLOCK };
        for first in (0..self.count).step_by(block) {
            let rows = first..self.count.min(first + block);
            let (mut column, width) = (0, self.cols.max(N));
            while column < width {
                // SAFETY: rows and columns within the operands, which `super` has checked.
                unsafe {
                    if S::VECTOR < 64 {
                        self.panel::<S, N, 1, 6>(rows.clone(), column, block);
                        column += N;
                        continue;
                    }
                    match (width - column).div_ceil(N) {
                        1 => self.panel::<S, N, 1, 8>(rows.clone(), column, block),
                        2 => self.panel::<S, N, 2, 8>(rows.clone(), column, block),
                        3 => self.panel::<S, N, 3, 8>(rows.clone(), column, block),
                        _ => self.panel::<S, N, 4, 6>(rows.clone(), column, block),
                    }
                    column += 4 * N;
                }
            }
        }
    }

    /// `V` vectors of columns of some rows, `R` rows at a time. With the first of them, rows that lie `ahead` are asked for.
    #[inline(always)]
    unsafe fn panel<S: Isa, const N: usize, const V: usize, const R: usize>(
        &self,
        rows: Range<usize>,
        column: usize,
        ahead: usize,
    ) {
        let starts = starts::<N, V>(column, self.cols.max(N));
        let mut row = rows.start;
        // SAFETY: the caller's promise.
        unsafe {
            while row + R <= rows.end {
                if column == 0 {
                    self.ask(row + ahead, R);
                }
                self.tile::<S, N, V, R>(row, rows.end, starts);
                row += R;
            }
            if column == 0 {
                self.ask(row + ahead, rows.end - row);
            }
            // A tile that ends past the rows repeats the last one, to the bit.
            if rows.end - row > 2 {
                self.tile::<S, N, V, R>(row, rows.end, starts);
            } else if rows.end > row {
                self.tile::<S, N, V, 2>(row, rows.end, starts);
            }
        }
    }

    /// Asks for rows that come next, of this segment or of a later one: they may lie scattered, which the processor won't guess.
    #[inline(always)]
    fn ask(&self, first: usize, rows: usize) {
        for row in first..(self.count + self.ahead).min(first + rows) {
            // SAFETY: a row of the operand.
            unsafe {
                prefetch(self.x.row(row), self.x.cols());
                prefetch(self.out.at(self.places.row(row) * self.cols).cast_const(), self.cols);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Isa, const N: usize, const V: usize, const R: usize>(
        &self,
        first: usize,
        end: usize,
        starts: [usize; V],
    ) {
        let mut rows = [0; R];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = (first + i).min(end - 1);
        }
        // SAFETY: rows below the count; vectors end within the padded columns.
        unsafe {
            let x = each(rows, |row| self.x.row(row));
            let bias = each(starts, |start| self.bias.map_or([A::ZERO; N], |bias| load(bias.as_ptr().add(start))));
            let mut sums = [bias; R];
            let mut weight = self.weight.as_ptr();
            for k in 0..self.x.cols() {
                let vectors = each(starts, |start| load::<A, N>(weight.add(start)));
                for i in 0..R {
                    let x = [*x[i].add(k); N];
                    for v in 0..V {
                        sums[i][v] = S::mul_add(x, vectors[v], sums[i][v]);
                    }
                }
                weight = weight.wrapping_add(self.stride);
            }
            for (row, sums) in rows.into_iter().zip(sums) {
                store_row(sums, starts, self.out.at(self.places.row(row) * self.cols), self.cols);
            }
        }
    }
}

/// Stores the vectors of a row, or as much of the first as the row has columns.
///
/// # Safety
///
/// The row is writable.
#[inline(always)]
unsafe fn store_row<A: Accumulator, const N: usize, const V: usize>(
    sums: [[A; N]; V],
    starts: [usize; V],
    row: *mut A,
    cols: usize,
) {
    // SAFETY: the caller's promise; vectors end within the columns, if there is one of them.
    unsafe {
        if cols < N {
            return std::ptr::copy_nonoverlapping(sums[0].as_ptr(), row, cols);
        }
        for (start, sum) in starts.into_iter().zip(sums) {
            store::<A, N>(sum, row.add(start));
        }
    }
}

/// Rows times matrices that change from row to row: `out_i = bias_s + x_i W_s`, s the segment of row i. All in place and in
/// order; for so few and small matrices that a near cache holds them all.
pub(in super::super) struct Mixed<'a, A> {
    pub x: Dense<'a, A>,
    pub rows: Range<usize>,
    /// The segment of each row.
    pub ids: &'a [i32],
    /// The matrices, a row of one every `stride` elements, at least [`lanes`].
    pub weights: &'a [A],
    /// A row for each matrix, likewise.
    pub bias: &'a [A],
    pub stride: usize,
    pub out: Output<'a, A>,
    pub cols: usize,
}

/// The most vectors of a row of [`Mixed`].
pub(super) const MIXED_VECTORS: usize = 4;

impl<A: Accumulator> Mixed<'_, A> {
    #[inline(always)]
    fn all<S: Isa, const N: usize>(&self) {
        // SAFETY: shapes were checked by `super`, and segments' ids are below their number.
        unsafe {
            match self.stride.div_ceil(N) {
                1 => self.tiles::<S, N, 1, 8>(),
                2 => self.tiles::<S, N, 2, 4>(),
                3 => self.tiles::<S, N, 3, 2>(),
                _ => self.tiles::<S, N, MIXED_VECTORS, 2>(),
            }
        }
    }

    #[inline(always)]
    unsafe fn tiles<S: Isa, const N: usize, const V: usize, const R: usize>(&self) {
        let (starts, inner) = (starts::<N, V>(0, self.stride), self.x.cols());
        for first in self.rows.clone().step_by(R) {
            // A tile that ends past the rows repeats the last one, to the bit.
            let mut rows = [0; R];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = (first + i).min(self.rows.end - 1);
            }
            // SAFETY: the caller's promise.
            unsafe {
                let ids = each(rows, |row| *self.ids.get_unchecked(row) as usize);
                let x = each(rows, |row| self.x.row_ptr(row));
                let weights = each(ids, |id| self.weights.as_ptr().add(id * inner * self.stride));
                let mut sums =
                    each(ids, |id| each(starts, |start| load(self.bias.as_ptr().add(id * self.stride + start))));
                for k in 0..inner {
                    for i in 0..R {
                        let x = [*x[i].add(k); N];
                        for v in 0..V {
                            let weight = load::<A, N>(weights[i].add(k * self.stride + starts[v]));
                            sums[i][v] = S::mul_add(x, weight, sums[i][v]);
                        }
                    }
                }
                for (row, sums) in rows.into_iter().zip(sums) {
                    store_row(sums, starts, self.out.at(row * self.cols), self.cols);
                }
            }
        }
    }
}

/// Sums of outer products of rows: `sums += sum of x_i y_i^T`.
pub(in super::super) struct Outer<'a, A> {
    pub x: Lines<'a, A>,
    /// Rows padded to a multiple of [`lanes`].
    pub y: Lines<'a, A>,
    /// Which columns of x.
    pub inner: Range<usize>,
    /// A row for each of these columns, as long as the padded rows of y.
    pub sums: &'a mut [A],
    pub count: usize,
    /// How many rows come next.
    pub ahead: usize,
}

/// The most rows of one call.
pub(super) const ROWS: usize = 256;

impl<A: Accumulator> Outer<'_, A> {
    #[inline(always)]
    fn tiles<S: Isa, const N: usize>(&mut self) {
        let mut lines = [(std::ptr::null(), std::ptr::null()); ROWS];
        for (row, lines) in lines[..self.count].iter_mut().enumerate() {
            // SAFETY: a row below the count.
            *lines = unsafe { (self.x.row(row), self.y.row(row)) };
        }
        let lines = &lines[..self.count];
        let mut k = self.inner.start;
        // Asked for bit by bit, next to the work.
        let share = self.ahead.div_ceil(self.inner.len().div_ceil(8));
        let mut asked = self.count;
        // SAFETY: columns within the operands, which `super` has checked; the rows that come next are rows.
        unsafe {
            while k + 8 <= self.inner.end {
                for row in asked..(asked + share).min(self.count + self.ahead) {
                    prefetch(self.x.row(row), self.x.cols());
                    prefetch(self.y.row(row), self.y.cols());
                }
                asked += share;
                self.columns::<S, N, 8>(lines, k);
                k += 8;
            }
            if k + 4 <= self.inner.end {
                self.columns::<S, N, 4>(lines, k);
                k += 4;
            }
            while k < self.inner.end {
                self.columns::<S, N, 1>(lines, k);
                k += 1;
            }
        }
    }

    /// `K` columns of x with all of y.
    #[inline(always)]
    unsafe fn columns<S: Isa, const N: usize, const K: usize>(&mut self, lines: &[(*const A, *const A)], k: usize) {
        let width = self.y.cols();
        let mut column = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while S::VECTOR == 64 && column + 2 * N <= width {
                self.tile::<S, N, 2, K>(lines, k, column);
                column += 2 * N;
            }
            while column < width {
                if S::VECTOR == 64 {
                    self.tile::<S, N, 1, K>(lines, k, column);
                } else if K == 8 {
                    // As many sums as there are registers.
                    self.tile::<S, N, 1, 4>(lines, k, column);
                    self.tile::<S, N, 1, 4>(lines, k + 4, column);
                } else {
                    self.tile::<S, N, 1, K>(lines, k, column);
                }
                column += N;
            }
        }
    }

    #[allow(clippy::needless_range_loop, reason = "indices of constant ranges keep the arrays in registers")]
    #[inline(always)]
    unsafe fn tile<S: Isa, const N: usize, const V: usize, const K: usize>(
        &mut self,
        lines: &[(*const A, *const A)],
        k: usize,
        column: usize,
    ) {
        let width = self.y.cols();
        let at = (k - self.inner.start) * width + column;
        let target: *mut A = self.sums.as_mut_ptr().wrapping_add(at);
        // SAFETY: columns and vectors within the rows and the sums.
        unsafe {
            let mut sums = [[[A::ZERO; N]; V]; K];
            for i in 0..K {
                for v in 0..V {
                    sums[i][v] = load::<A, N>(target.add(i * width + v * N));
                }
            }
            for &(x, y) in lines {
                let (x, y) = (x.add(k), y.add(column));
                let mut vectors = [[A::ZERO; N]; V];
                for v in 0..V {
                    vectors[v] = load::<A, N>(y.add(v * N));
                }
                for i in 0..K {
                    let x = [*x.add(i); N];
                    for v in 0..V {
                        sums[i][v] = S::mul_add(x, vectors[v], sums[i][v]);
                    }
                }
            }
            for i in 0..K {
                for v in 0..V {
                    store::<A, N>(sums[i][v], target.add(i * width + v * N));
                }
            }
        }
    }
}

/// An element type with the number of lanes of its vectors, which are of 64 bytes.
pub(in super::super) trait Lanes: Accumulator {
    /// The work of a product.
    fn product<S: Isa>(product: Product<'_, Self>);
    /// That of products that change from row to row.
    fn mixed<S: Isa>(mixed: Mixed<'_, Self>);
    /// The work of a sum of outer products.
    fn outer<S: Isa>(outer: Outer<'_, Self>);
}

macro_rules! lanes {
    ($($real:ty)*) => {$(
        impl Lanes for $real {
            #[inline(always)]
            fn product<S: Isa>(product: Product<'_, Self>) {
                product.blocks::<S, { lanes::<$real>() }>();
            }
            #[inline(always)]
            fn mixed<S: Isa>(mixed: Mixed<'_, Self>) {
                mixed.all::<S, { lanes::<$real>() }>();
            }
            #[inline(always)]
            fn outer<S: Isa>(mut outer: Outer<'_, Self>) {
                outer.tiles::<S, { lanes::<$real>() }>();
            }
        }
    )*};
}
lanes!(f32 f64);

impl<A: Lanes> Kernel for Product<'_, A> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        A::product::<S>(self);
    }
}

impl<A: Lanes> Kernel for Mixed<'_, A> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        A::mixed::<S>(self);
    }
}

impl<A: Lanes> Kernel for Outer<'_, A> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        A::outer::<S>(self);
    }
}
