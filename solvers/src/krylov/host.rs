//! Iterations on the CPU backend: vectors are slices that are updated in place, a pass for each formula, without an
//! allocation. Products with sparse matrices end in the formula that uses them.
//!
//! Rows are cut into blocks, by their number alone. A sum is formed block by block and those are added in order: the same
//! bits on any number of threads.

mod matrix;
mod numbers;
mod real;
mod sweep;

pub(crate) use real::Real;

use super::space::{Epilogue, Formula, Map, Side, Space};
use crate::operator::{LinearOperator, Operator};
use burn::tensor::{Device, Tensor, TensorData};
use matrix::{HostMatrix, TOGETHER};
use numbers::HostNumbers;
use rayon::prelude::*;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use sweep::Sweep;

/// Elements of a block: what a near cache holds of a few vectors.
const BLOCK: usize = 2048;
/// Fewer elements than this are done before another thread has woken up.
const SMALL: usize = 1 << 16;

/// A vector with a column for each right-hand side, in row-major order.
pub(crate) struct HostVector<E> {
    elements: Vec<E>,
    side: Side,
}

/// What a vector is mapped by.
enum HostMap<E> {
    Matrix(HostMatrix<E>),
    /// An operator, or its transpose, on tensors, and what it is multiplied by.
    Tensors(Operator, bool, E),
}

impl<E: Real> HostMap<E> {
    fn new(a: &Operator, transpose: bool, cols: usize, scale: f64) -> Self {
        let matrix = a.stored().map(|matrix| if transpose { matrix.t() } else { matrix });
        match matrix.and_then(|matrix| HostMatrix::new(&matrix, cols, a.items(), scale)) {
            Some(matrix) => Self::Matrix(matrix),
            None => Self::Tensors(a.clone(), transpose, E::round(scale)),
        }
    }
}

/// The rows of one side.
struct Rows {
    rows: usize,
    /// Blocks, and the pieces that the items' bounds cut each of them into: an item, and rows.
    blocks: Vec<Block>,
}

struct Block {
    rows: Range<usize>,
    pieces: Vec<(usize, Range<usize>)>,
    /// How many pieces come before.
    first: usize,
}

impl Rows {
    fn new(rows: usize, cols: usize, items: usize) -> Self {
        let height = (BLOCK / cols.max(1) / TOGETHER * TOGETHER).max(TOGETHER);
        let of_item = rows / items.max(1);
        let mut first = 0;
        let block = |start: usize| {
            let end = rows.min(start + height);
            let mut pieces = vec![];
            let mut at = start;
            while at < end {
                let item = at / of_item;
                let stop = end.min((item + 1) * of_item);
                pieces.push((item, at..stop));
                at = stop;
            }
            first += pieces.len();
            Block { rows: start..end, first: first - pieces.len(), pieces }
        };
        Self { rows, blocks: (0..rows).step_by(height).map(block).collect() }
    }

    fn pieces(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.first + block.pieces.len())
    }
}

/// A problem on the CPU backend.
pub(crate) struct Host<E> {
    items: usize,
    cols: usize,
    device: Device,
    domain: Rows,
    range: Rows,
    operator: HostMap<E>,
    transposed: Option<HostMap<E>>,
    preconditioner: Option<HostMap<E>>,
    preconditioner_transposed: Option<HostMap<E>>,
    squares: Option<Vec<f64>>,
    /// Sums of pieces.
    partial: RefCell<Vec<f64>>,
    /// A product of tensors.
    product: RefCell<Vec<E>>,
}

/// Buffers that several threads use, each its own part.
#[derive(Clone, Copy)]
struct Shared<P>(P);
// SAFETY: they hand out nothing but addresses; blocks and pieces are disjoint.
unsafe impl<P> Send for Shared<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Shared<P> {}

impl<P: Copy> Shared<P> {
    fn get(self) -> P {
        self.0
    }
}

impl<E: Real> Host<E> {
    /// The space of solutions and right-hand sides of `a` (or of its transpose) with `cols` columns; `scale`, a power of two,
    /// is what `a` is multiplied by. `both`: whether the transposed map is needed, too.
    pub(crate) fn new(
        a: &Operator,
        preconditioner: Option<&Operator>,
        transpose: bool,
        cols: usize,
        scale: f64,
        both: bool,
    ) -> Self {
        let [m, n] = a.shape();
        let [m, n] = if transpose { [n, m] } else { [m, n] };
        let items = a.items();
        let operator = HostMap::new(a, transpose, cols, scale);
        let inverse = |transpose| Some(HostMap::new(preconditioner?, transpose, cols, 1.0));
        let range = Rows::new(m, cols, items);
        let squares = match &operator {
            HostMap::Matrix(matrix) => {
                let of_item = m / items.max(1);
                Some((0..items).map(|item| matrix.squares(item * of_item..(item + 1) * of_item)).collect())
            }
            HostMap::Tensors(..) => None,
        };
        Self {
            items,
            cols,
            device: a.device(),
            domain: Rows::new(n, cols, items),
            range,
            operator,
            transposed: both.then(|| HostMap::new(a, !transpose, cols, scale)),
            preconditioner: inverse(transpose),
            preconditioner_transposed: both.then(|| inverse(!transpose)).flatten(),
            squares,
            partial: RefCell::default(),
            product: RefCell::default(),
        }
    }

    /// The vector of a tensor.
    pub(crate) fn vector(&self, side: Side, tensor: Tensor<2>) -> HostVector<E> {
        HostVector { elements: elements(tensor), side }
    }

    /// The tensor of a vector.
    pub(crate) fn tensor(&self, vector: HostVector<E>) -> Tensor<2> {
        tensor(vector.elements, self.rows(vector.side).rows, self.cols, &self.device)
    }

    fn rows(&self, side: Side) -> &Rows {
        match side {
            Side::Domain => &self.domain,
            Side::Range => &self.range,
        }
    }

    /// Calls `body` for each block with the place for the sums of its pieces, and adds those.
    fn blocks<const D: usize>(&self, side: Side, body: impl Fn(&Block, &mut [f64]) + Sync) -> [HostNumbers; D] {
        let rows = self.rows(side);
        let of_piece = D * self.cols;
        let mut partial = self.partial.borrow_mut();
        partial.clear();
        partial.resize(rows.pieces() * of_piece, 0.0);
        let sums = |block: &Block| block.first * of_piece..(block.first + block.pieces.len()) * of_piece;
        if rows.rows * self.cols < SMALL || rayon::current_num_threads() == 1 {
            for block in &rows.blocks {
                body(block, &mut partial[sums(block)]);
            }
        } else {
            let start = Shared(partial.as_mut_ptr());
            rows.blocks.par_iter().for_each(|block| {
                let range = sums(block);
                // SAFETY: within the buffer, and no other block has these places.
                body(block, unsafe { std::slice::from_raw_parts_mut(start.get().add(range.start), range.len()) });
            });
        }
        if D == 0 {
            return std::array::from_fn(|_| HostNumbers::Many(vec![]));
        }
        if self.groups() == 1 {
            return std::array::from_fn(|d| HostNumbers::One(partial.iter().skip(d).step_by(D).sum()));
        }
        let mut totals = [(); D].map(|()| vec![0.0; self.groups()]);
        let items = rows.blocks.iter().flat_map(|block| block.pieces.iter().map(|(item, _)| *item));
        for (item, sums) in items.zip(partial.chunks_exact(of_piece.max(1))) {
            for (at, sums) in sums.chunks_exact(D).enumerate() {
                for (total, sum) in totals.iter_mut().zip(sums) {
                    total[item * self.cols + at] += sum;
                }
            }
        }
        totals.map(HostNumbers::new)
    }

    fn map(&self, map: Map) -> &HostMap<E> {
        match map {
            Map::Operator => &self.operator,
            Map::Transposed => self.transposed.as_ref().expect("a space with both maps"),
            Map::Preconditioner => self.preconditioner.as_ref().expect("a space with a preconditioner"),
            Map::PreconditionerTransposed => {
                self.preconditioner_transposed.as_ref().expect("a space with both maps and a preconditioner")
            }
        }
    }
}

/// The numbers of an item's columns.
fn of_item<const C: usize>(c: [&HostNumbers; C], item: usize, cols: usize) -> [&[f64]; C] {
    c.map(|c| &c.as_slice()[item * cols..(item + 1) * cols])
}

/// The elements of a tensor in row-major order.
fn elements<E: Real>(tensor: Tensor<2>) -> Vec<E> {
    tensor.into_data().try_into_vec_as::<E>().expect("a tensor of floating-point numbers")
}

fn tensor<E: Real>(elements: Vec<E>, rows: usize, cols: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(elements, [rows, cols]), (device, E::dtype()))
}

impl<E: Real> Space for Host<E> {
    type Vector = HostVector<E>;
    type Numbers = HostNumbers;

    fn groups(&self) -> usize {
        self.items * self.cols
    }

    fn epsilon(&self) -> f64 {
        E::EPSILON
    }

    fn look_every(&self) -> usize {
        1
    }

    fn zeros(&self, side: Side) -> HostVector<E> {
        HostVector { elements: vec![E::default(); self.rows(side).rows * self.cols], side }
    }

    fn number(&self, value: f64) -> HostNumbers {
        HostNumbers::new(vec![value; self.groups()])
    }

    fn upload(&self, values: &[f64]) -> HostNumbers {
        HostNumbers::new(values.to_vec())
    }

    fn read(&self, numbers: &[HostNumbers]) -> Vec<Vec<f64>> {
        numbers.iter().map(|numbers| numbers.as_slice().to_vec()).collect()
    }

    fn max_abs(&self, x: &HostVector<E>) -> Vec<f64> {
        let mut largest = vec![0.0; self.groups()];
        let of_item = self.rows(x.side).rows / self.items.max(1);
        for (row, elements) in x.elements.chunks_exact(self.cols.max(1)).enumerate() {
            let item = &mut largest[row / of_item * self.cols..][..self.cols];
            for (largest, element) in item.iter_mut().zip(elements) {
                let size = element.widen().abs();
                // Not `max`, which forgets what is not a number.
                if size > *largest || size.is_nan() {
                    *largest = size;
                }
            }
        }
        largest
    }

    fn frobenius(&self) -> Option<Vec<f64>> {
        let squares = self.squares.as_ref()?;
        Some(squares.iter().flat_map(|squares| vec![squares.sqrt(); self.cols]).collect())
    }

    fn restore(&self, keep: &[f64], from: &HostVector<E>, x: &mut HostVector<E>) {
        let of_item = self.rows(x.side).rows / self.items.max(1);
        let rows = x.elements.chunks_exact_mut(self.cols.max(1)).zip(from.elements.chunks_exact(self.cols.max(1)));
        for (row, (x, from)) in rows.enumerate() {
            let keep = &keep[row / of_item * self.cols..];
            for ((x, from), keep) in x.iter_mut().zip(from).zip(keep) {
                *x = if *keep == 0.0 { *from } else { *x };
            }
        }
    }

    fn is_preconditioned(&self) -> bool {
        self.preconditioner.is_some()
    }

    fn update<F, const C: usize, const R: usize, const W: usize, const D: usize>(
        &self,
        _: F,
        c: [&HostNumbers; C],
        r: [&HostVector<E>; R],
        w: [&mut HostVector<E>; W],
    ) -> [HostNumbers; D]
    where
        F: Formula<C, R, W, D>,
    {
        let cols = self.cols;
        let side = if R > 0 { r[0].side } else { w[0].side };
        // Of a square operator the two sides are one.
        let fits = |other: Side| self.rows(other).rows == self.rows(side).rows;
        debug_assert!(r.iter().all(|r| fits(r.side)) && w.iter().all(|w| fits(w.side)));
        let (r, w) = (Shared(r.map(|r| r.elements.as_ptr())), Shared(w.map(|w| w.elements.as_mut_ptr())));
        self.blocks(side, |block, sums| {
            for (at, (item, rows)) in block.pieces.iter().enumerate() {
                let start = rows.start * cols;
                // SAFETY: rows of vectors of this side, and no other block writes these.
                unsafe {
                    Sweep {
                        rows: rows.len(),
                        cols,
                        c: of_item(c, *item, cols),
                        r: r.get().map(|r| r.add(start)),
                        w: w.get().map(|w| w.add(start)),
                        f: F::eval::<E>,
                        sums: &mut sums[at * D * cols..][..D * cols],
                    }
                    .run();
                }
            }
        })
    }

    fn apply<F, const C: usize, const R: usize, const D: usize>(
        &self,
        map: Map,
        _: F,
        c: [&HostNumbers; C],
        x: &HostVector<E>,
        r: [&HostVector<E>; R],
        out: &mut HostVector<E>,
    ) -> [HostNumbers; D]
    where
        F: Epilogue<C, R, D>,
    {
        let (side, cols) = (out.side, self.cols);
        let mut product = self.product.borrow_mut();
        let matrix = match self.map(map) {
            HostMap::Matrix(matrix) => Some(matrix),
            HostMap::Tensors(operator, transpose, scale) => {
                let x = tensor(x.elements.clone(), self.rows(x.side).rows, cols, &self.device);
                let y = if *transpose { operator.apply_transpose(x) } else { operator.apply(x) };
                *product = elements(y);
                assert_eq!(product.len(), out.elements.len(), "elements of {operator:?} applied");
                product.iter_mut().for_each(|y| *y = *y * *scale);
                None
            }
        };
        let product = Shared(product.as_mut_ptr());
        let (r, out) = (Shared(r.map(|r| r.elements.as_ptr())), Shared(out.elements.as_mut_ptr()));
        self.blocks(side, |block, sums| {
            let mut near = [const { MaybeUninit::<E>::uninit() }; BLOCK];
            let mut far = vec![];
            // SAFETY: within the product, of which this block reads its rows.
            let mut product = unsafe { product.get().add(block.rows.start * cols) };
            if let Some(matrix) = matrix {
                let elements = block.rows.len() * cols;
                let buffer = match elements <= BLOCK {
                    true => &mut near[..elements],
                    false => {
                        far.resize_with(elements, MaybeUninit::uninit);
                        &mut far[..]
                    }
                };
                matrix.multiply(block.rows.clone(), &x.elements, cols, buffer);
                product = buffer.as_mut_ptr().cast();
            }
            for (at, (item, rows)) in block.pieces.iter().enumerate() {
                let start = rows.start * cols;
                // SAFETY: rows of vectors of this side, and no other block writes these.
                unsafe {
                    Sweep {
                        rows: rows.len(),
                        cols,
                        c: of_item(c, *item, cols),
                        r: r.get().map(|r| r.add(start)),
                        w: [product.add((rows.start - block.rows.start) * cols), out.get().add(start)],
                        f: |c, r, [product, out]: [E; 2]| {
                            let (new, terms) = F::eval(c, product, r, out);
                            ([product, new], terms)
                        },
                        sums: &mut sums[at * D * cols..][..D * cols],
                    }
                    .run();
                }
            }
        })
    }
}
