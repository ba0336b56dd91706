//! Products of the rows of segments with the segments' own matrices on the CPU. The gradient of the matrices is in `outer.rs`.
//!
//! Blocks that fit the near caches go through the register tiles of `kernels.rs`, which read and write rows where they lie, in
//! any order; larger ones go through the `gemm` crate, segment by segment.

mod kernels;
mod outer;

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar, as_sums};
use crate::backend::simd;
use crate::pattern::{Indices, partition_point};
use crate::segments::Segments;
pub(super) use kernels::Lanes;
use kernels::{MIXED_VECTORS, Mixed, Product, ROWS, lanes};
pub(super) use outer::segment_outer;

/// A borrowed stack of matrices with any strides.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a, E> {
    data: &'a [E],
    shape: [usize; 3],
    strides: [usize; 3],
}

impl<'a, E: Copy> Blocks<'a, E> {
    /// A view of `data`, whose first element is the first of the first matrix.
    ///
    /// # Panics
    ///
    /// If `data` ends before the last matrix does.
    pub(super) fn new(data: &'a [E], shape: [usize; 3], strides: [usize; 3]) -> Self {
        let last = shape.iter().zip(strides).map(|(n, stride)| n.saturating_sub(1) * stride).sum::<usize>();
        assert!(shape.contains(&0) || last < data.len(), "{shape:?} at {strides:?} in {} elements", data.len());
        Self { data, shape, strides }
    }

    /// The elements from the first of one matrix on.
    fn from(&self, block: usize) -> &'a [E] {
        &self.data[(block * self.strides[0]).min(self.data.len())..]
    }
}

/// Where rows lie: those from `first` on, in place or through an order.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    order: Order<'a>,
    first: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Order<'a> {
    InPlace,
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl Places<'_> {
    /// The rows from the first of a buffer on.
    const FIRST: Self = Self { order: Order::InPlace, first: 0 };

    /// # Safety
    ///
    /// There is such a row.
    #[inline(always)]
    unsafe fn row(&self, at: usize) -> usize {
        let at = self.first + at;
        // SAFETY: the caller's promise; what an order holds is not negative.
        unsafe {
            match self.order {
                Order::InPlace => at,
                Order::Narrow(order) => *order.get_unchecked(at) as u32 as usize,
                Order::Wide(order) => *order.get_unchecked(at) as usize,
            }
        }
    }

    #[inline(always)]
    fn are_in_order(&self) -> bool {
        matches!(self.order, Order::InPlace)
    }
}

/// Rows of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a, A> {
    dense: Dense<'a, A>,
    places: Places<'a>,
}

impl<A> Lines<'_, A> {
    #[inline(always)]
    fn cols(&self) -> usize {
        self.dense.cols()
    }

    /// # Safety
    ///
    /// There is such a row.
    #[inline(always)]
    unsafe fn row(&self, at: usize) -> *const A {
        // SAFETY: the caller's promise.
        self.dense.row_ptr(unsafe { self.places.row(at) })
    }
}

/// Buffers of a thread.
struct Scratch<A> {
    weight: Vec<A>,
    bias: Vec<A>,
    x: Vec<A>,
    y: Vec<A>,
    sums: Vec<A>,
}

impl<A> Scratch<A> {
    fn new() -> Self {
        Self { weight: vec![], bias: vec![], x: vec![], y: vec![], sums: vec![] }
    }
}

/// Fewer multiplications than this are done before another thread has woken up.
const SMALL: usize = 1 << 16;

/// Calls `body` for each unit, in parallel if `work` multiplications are worth it.
fn for_each<A, U: Sync>(units: &[U], work: usize, body: impl Fn(&mut Scratch<A>, &U) + Sync) {
    if work < SMALL || units.len() <= 1 || rayon::current_num_threads() == 1 {
        let scratch = &mut Scratch::new();
        units.iter().for_each(|unit| body(scratch, unit));
    } else {
        units.par_iter().for_each_init(Scratch::new, |scratch, unit| body(scratch, unit));
    }
}

/// Up to this many bytes of a matrix, the register tiles read it from where it lies.
const NEAR: usize = 1 << 20;

/// Whether matrices of this shape go through the register tiles.
fn is_near<A>(inner: usize, cols: usize) -> bool {
    simd::is_fast() && inner * cols * size_of::<A>() <= NEAR
}

/// The rows of a unit of a product: for the matrix to be worth fetching, and for units to share among threads.
fn rows_of_unit(inner: usize, cols: usize) -> usize {
    ((1 << 22) / (inner * cols).max(1)).clamp(256, 4096)
}

fn order(segments: &Segments) -> Order<'_> {
    match segments.order() {
        None => Order::InPlace,
        Some(Indices::I32(order)) => Order::Narrow(order),
        Some(Indices::I64(order)) => Order::Wide(order),
    }
}

/// `out_i = bias_s + x_i W_s` for each row i of each segment s, written in full.
///
/// # Panics
///
/// If shapes do not fit.
pub(super) fn segment_mm<E: Scalar>(
    segments: &Segments,
    x: Dense<'_, E>,
    weight: Blocks<'_, E>,
    bias: Option<Dense<'_, E>>,
    out: &mut [MaybeUninit<E>],
) where
    E::Acc: Lanes,
{
    let [count, inner, cols] = weight.shape;
    assert_eq!((x.rows(), x.cols(), count), (segments.rows(), inner, segments.len()), "operands");
    assert_eq!(Some(out.len()), x.rows().checked_mul(cols), "elements of the output");
    assert!(bias.is_none_or(|bias| (bias.rows(), bias.cols()) == (count, cols)), "bias");
    if cols == 0 {
        return;
    }
    let near = is_near::<E::Acc>(inner, cols);
    let product = SegmentMm { order: order(segments), x, weight, bias, out: Output::new(out), near };
    let work = x.rows() * inner * cols;
    if product.by_row(segments, work) {
        return;
    }
    if let Some(size) = rows_of_block::<E>(segments, inner, cols) {
        let blocks: Vec<usize> = (0..x.rows()).step_by(size).collect();
        return for_each(&blocks, work, |scratch, &first| product.block(scratch, segments, first, size));
    }
    let most = rows_of_unit(inner, cols);
    let mut units = Vec::new();
    for segment in 0..count {
        let rows = segments.range(segment);
        for first in rows.clone().step_by(most) {
            units.push((segment, first..rows.end.min(first + most)));
        }
    }
    for_each(&units, work, |scratch, (segment, rows)| {
        product.rows(scratch, *segment, rows.clone(), x.rows() - rows.end);
    });
}

/// How many rows, in the order in which they lie, are multiplied before the next: where segments are scattered and a near cache
/// holds enough rows for each to have several. `None` where segments are done one by one.
fn rows_of_block<E>(segments: &Segments, inner: usize, cols: usize) -> Option<usize> {
    const BYTES: [usize; 2] = [1 << 18, 1 << 20];
    /// Rows of a segment on average: so many at least, and so many where there is room.
    const RUN: [usize; 2] = [12, 32];
    let [few, many] = BYTES.map(|bytes| bytes / ((inner + cols).max(1) * size_of::<E>()));
    let rows = (RUN[1] * segments.len()).clamp(few, many);
    (!segments.is_sorted() && rows >= RUN[0] * segments.len()).then_some(rows)
}

struct SegmentMm<'a, E> {
    order: Order<'a>,
    x: Dense<'a, E>,
    weight: Blocks<'a, E>,
    bias: Option<Dense<'a, E>>,
    out: Output<'a, E>,
    near: bool,
}

/// The matrix of a segment, with any strides.
#[derive(Clone, Copy)]
struct Weight<'a, A> {
    data: &'a [A],
    strides: [usize; 2],
}

impl<E: Scalar> SegmentMm<'_, E>
where
    E::Acc: Lanes,
{
    /// The rows as they lie, each with the matrix of its segment, if they lie scattered and all matrices fit a near cache
    /// together. Otherwise nothing, and false.
    fn by_row(&self, segments: &Segments, work: usize) -> bool {
        const BYTES: usize = 32 << 10;
        const ROWS: usize = 4096;
        let [count, inner, cols] = self.weight.shape;
        let lanes = lanes::<E::Acc>();
        let stride = cols.max(lanes);
        let fits = self.near && cols <= MIXED_VECTORS * lanes && count * inner * stride * size_of::<E::Acc>() <= BYTES;
        let (Some(x), Some(out), Order::Narrow(_), Indices::I32(ids), true) =
            (self.x.as_sums(), self.out.as_sums(), self.order, segments.ids(), fits)
        else {
            return false;
        };
        // From the beginning of a cache line on, so that vectors of whole rows don't lie across two.
        let mut weights: Vec<E::Acc> = Vec::with_capacity(lanes + count * inner * stride);
        let gap = weights.as_ptr().align_offset(64).min(lanes);
        weights.resize(gap, E::Acc::ZERO);
        let mut bias = vec![E::Acc::ZERO; count * stride];
        for (segment, padded) in bias.chunks_exact_mut(stride).enumerate() {
            self.append_weight(segment, stride, &mut weights);
            let row = self.bias.map_or(&[][..], |bias| bias.row(segment));
            padded.iter_mut().zip(row).for_each(|(padded, value)| *padded = value.widen());
        }
        let (weights, bias) = (&weights[gap..], &bias[..]);
        simd::for_each(x.rows().div_ceil(ROWS), work, &|unit| {
            let rows = unit * ROWS..x.rows().min((unit + 1) * ROWS);
            simd::run_fast(Mixed { x, rows, ids, weights, bias, stride, out, cols });
        });
        true
    }

    /// The rows of all segments among `size` that lie together.
    fn block(&self, scratch: &mut Scratch<E::Acc>, segments: &Segments, first: usize, size: usize) {
        let end = self.x.rows().min(first + size);
        // Rows of the next block are asked for bit by bit, next to the work.
        let next = end..self.x.rows().min(end + size);
        let share = next.len().div_ceil(segments.len());
        for segment in 0..segments.len() {
            for row in next.clone().skip(segment * share).take(share) {
                simd::prefetch(self.x.row_ptr(row), self.x.cols());
            }
            let all = segments.range(segment);
            // SAFETY: places of the segments' rows.
            let before =
                |bound| all.start + partition_point(all.len(), |at| unsafe { self.row(all.start + at) } < bound);
            let rows = before(first)..before(end);
            if !rows.is_empty() {
                self.rows(scratch, segment, rows, 0);
            }
        }
    }

    /// # Safety
    ///
    /// There is such a place.
    unsafe fn row(&self, place: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { Places { order: self.order, first: 0 }.row(place) }
    }

    /// Some rows of a segment, by their places in the order of segments. After them, `ahead` more are to come in that order.
    fn rows(&self, scratch: &mut Scratch<E::Acc>, segment: usize, rows: Range<usize>, ahead: usize) {
        let [.., inner, cols] = self.weight.shape;
        let Scratch { weight, bias, x, y, .. } = scratch;
        let weight = self.weight(segment, weight);
        let bias = self.bias.map(|all| {
            bias.clear();
            bias.extend(all.row(segment).iter().map(|b| b.widen()));
            bias.resize(cols.max(lanes::<E::Acc>()), E::Acc::ZERO);
            &bias[..]
        });
        let places = |first| Places { order: self.order, first };
        let in_place = self.near || places(0).are_in_order();
        if let (Some(dense), Some(out), true) = (self.x.as_sums(), self.out.as_sums(), in_place) {
            let places = places(rows.start);
            let counts = [rows.len(), ahead];
            return multiply(self.near, counts, Lines { dense, places }, weight, bias, out, places, cols);
        }
        for first in rows.clone().step_by(ROWS) {
            let (places, count) = (places(first), ROWS.min(rows.end - first));
            let x = gather(Lines { dense: self.x, places }, count, inner, x);
            y.clear();
            y.reserve(count * cols);
            let y = &mut y.spare_capacity_mut()[..count * cols];
            multiply(self.near, [count, 0], x, weight, bias, Output::new(y), Places::FIRST, cols);
            for (row, y) in y.chunks_exact(cols).enumerate() {
                // SAFETY: the product has written all of y; the row is one of the output, and no other unit's.
                unsafe {
                    let out = self.out.at(places.row(row) * cols);
                    for (column, y) in y.iter().enumerate() {
                        out.add(column).write(E::narrow(y.assume_init()));
                    }
                }
            }
        }
    }

    /// The matrix of a segment as the kernels take it: where it lies, if it may, or a copy.
    fn weight<'b>(&'b self, segment: usize, copy: &'b mut Vec<E::Acc>) -> Weight<'b, E::Acc> {
        let [_, _, cols] = self.weight.shape;
        let [_, row, column] = self.weight.strides;
        let from = self.weight.from(segment);
        let fits = !self.near || (column == 1 && cols >= lanes::<E::Acc>());
        if let (Some(data), true) = (as_sums(from), fits) {
            return Weight { data, strides: [row, column] };
        }
        let width = cols.max(lanes::<E::Acc>());
        copy.clear();
        self.append_weight(segment, width, copy);
        Weight { data: copy, strides: [width, 1] }
    }

    /// The matrix of a segment with rows padded with zeros to `width`.
    fn append_weight(&self, segment: usize, width: usize, to: &mut Vec<E::Acc>) {
        let [_, inner, cols] = self.weight.shape;
        let [_, row, column] = self.weight.strides;
        let (from, start) = (self.weight.from(segment), to.len());
        to.resize(start + inner * width, E::Acc::ZERO);
        let to = &mut to[start..];
        transposed_in_blocks(inner, cols, |i, j| to[i * width + j] = from[i * row + j * column].widen());
    }
}

/// Visits all pairs in small squares, so that neither order of storage is read far apart.
fn transposed_in_blocks(rows: usize, cols: usize, mut visit: impl FnMut(usize, usize)) {
    const SIDE: usize = 16;
    for row in (0..rows).step_by(SIDE) {
        for column in (0..cols).step_by(SIDE) {
            for i in row..rows.min(row + SIDE) {
                for j in column..cols.min(column + SIDE) {
                    visit(i, j);
                }
            }
        }
    }
}

/// Copies rows side by side, widened and padded with zeros to `width`.
fn gather<'b, E: Scalar>(
    lines: Lines<'_, E>,
    count: usize,
    width: usize,
    copy: &'b mut Vec<E::Acc>,
) -> Lines<'b, E::Acc> {
    copy.clear();
    for row in 0..count {
        // SAFETY: the rows of a unit are rows of the operand.
        let line = lines.dense.row(unsafe { lines.places.row(row) });
        copy.extend(line.iter().map(|value| value.widen()));
        copy.resize((row + 1) * width, E::Acc::ZERO);
    }
    Lines { dense: Dense::contiguous(copy, count, width), places: Places::FIRST }
}

/// A product of some rows, which others may come after, with one matrix. Unless it is `near`, rows lie in place.
#[expect(clippy::too_many_arguments, reason = "a product with a bias, and where its rows lie")]
fn multiply<A: Lanes>(
    near: bool,
    [count, ahead]: [usize; 2],
    x: Lines<'_, A>,
    weight: Weight<'_, A>,
    bias: Option<&[A]>,
    out: Output<'_, A>,
    places: Places<'_>,
    cols: usize,
) {
    let Weight { data, strides: [stride, column] } = weight;
    if near {
        return simd::run_fast(Product { x, weight: data, stride, bias, out, places, cols, count, ahead });
    }
    // SAFETY: shapes were checked; rows lie in place, those of the output `cols` apart.
    unsafe {
        let out = out.at(places.row(0) * cols);
        if let Some(bias) = bias {
            (0..count).for_each(|row| std::ptr::copy_nonoverlapping(bias.as_ptr(), out.add(row * cols), cols));
        }
        let one = A::from(1.0);
        let [stride, column] = [stride, column].map(|stride| stride as isize);
        gemm::gemm(
            count,
            cols,
            x.cols(),
            out,
            1,
            cols as isize,
            bias.is_some(),
            x.row(0),
            1,
            x.dense.row_stride() as isize,
            data.as_ptr(),
            column,
            stride,
            one,
            one,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The plain loops, in f64, and what the kernels are compared on.
#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::ops::sddmm::cpu::reference::{Random, add, assert_close, filled, on_threads};
    use crate::pattern::IndexWidth;

    /// The segment of each row, in the order in which they are added.
    fn rows_by_segment(segments: &Segments) -> impl Iterator<Item = (usize, usize)> + '_ {
        let row = |at: usize| segments.order().map_or(at, |order| order.get(at));
        (0..segments.len()).flat_map(move |segment| segments.range(segment).map(move |at| (segment, row(at))))
    }

    fn product<E: Scalar>(
        segments: &Segments,
        x: Dense<'_, E>,
        weight: Blocks<'_, E>,
        bias: Option<Dense<'_, E>>,
    ) -> Vec<(f64, f64)> {
        let [_, inner, cols] = weight.shape;
        let mut out = vec![(0.0, 0.0); segments.rows() * cols];
        for (segment, row) in rows_by_segment(segments) {
            let weight_of = weight.from(segment);
            for j in 0..cols {
                let out = &mut out[row * cols + j];
                if let Some(bias) = bias {
                    add(out, bias.row(segment)[j], E::narrow(1.0.into()));
                }
                for k in 0..inner {
                    add(out, x.row(row)[k], weight_of[k * weight.strides[1] + j * weight.strides[2]]);
                }
            }
        }
        out
    }

    fn outer<E: Scalar>(segments: &Segments, x: Dense<'_, E>, y: Dense<'_, E>) -> Vec<(f64, f64)> {
        let (inner, cols) = (x.cols(), y.cols());
        let mut out = vec![(0.0, 0.0); segments.len() * inner * cols];
        for (segment, row) in rows_by_segment(segments) {
            for k in 0..inner {
                for j in 0..cols {
                    add(&mut out[(segment * inner + k) * cols + j], x.row(row)[k], y.row(row)[j]);
                }
            }
        }
        out
    }

    fn check<E: Scalar>(segments: &Segments, inner: usize, cols: usize, gap: usize)
    where
        E::Acc: Lanes,
    {
        let mut random = Random::new((inner * 1000 + cols) as u64);
        let (rows, count) = (segments.rows(), segments.len());
        let x = random.elements::<E>(rows * (inner + gap));
        let y = random.elements::<E>(rows * (cols + gap));
        let bias = random.elements::<E>(count * cols);
        let weight = random.elements::<E>(count * (inner + gap) * (cols + gap));
        let x = Dense::new(&x, rows, inner, inner + gap);
        let y = Dense::new(&y, rows, cols, cols + gap);
        let bias = Dense::contiguous(&bias, count, cols);
        let block = (inner + gap) * (cols + gap);
        for strides in [[block, cols + gap, 1], [block, 1, inner + gap], [0, cols, 1]] {
            let weight = Blocks::new(&weight, [count, inner, cols], strides);
            for bias in [None, Some(bias)] {
                let [ours] = on_threads(|| [filled(rows * cols, |out| segment_mm(segments, x, weight, bias, out))]);
                assert_close(&ours, &product(segments, x, weight, bias));
            }
        }
        let [ours] = on_threads(|| [filled(count * inner * cols, |out| segment_outer(segments, x, y, out))]);
        assert_close(&ours, &outer(segments, x, y));
    }

    fn segments() -> [Segments; 2] {
        let sorted = Segments::from_lengths([0, 1, 2, 3, 7, 0, 50, 9, 0]).unwrap();
        let mut random = Random::new(9);
        let ids: Vec<usize> = (0..60).map(|_| random.below(9) % 7).collect();
        [sorted, Segments::from_ids(ids, 9).unwrap()]
    }

    #[test]
    fn agrees_with_the_plain_loops() {
        for segments in segments() {
            for (inner, cols) in
                [(1, 1), (0, 3), (3, 0), (2, 7), (9, 16), (16, 17), (8, 40), (5, 64), (33, 70), (20, 129)]
            {
                check::<f32>(&segments, inner, cols, 0);
                check::<f64>(&segments, inner, cols, 3);
                check::<f16>(&segments, inner, cols, 0);
                check::<bf16>(&segments, inner, cols, 1);
            }
        }
    }

    #[test]
    fn nothing_is_left_out_of_nothing() {
        for segments in [Segments::from_lengths([0; 0]).unwrap(), Segments::from_lengths([0, 0]).unwrap()] {
            check::<f32>(&segments, 3, 5, 0);
            check::<f16>(&segments, 3, 5, 0);
        }
    }

    /// Large blocks, which go through gemm.
    #[test]
    fn far_blocks_agree_with_the_plain_loops() {
        let ids: Vec<usize> = (0..9).map(|row| row * 5 % 3).collect();
        for segments in [Segments::from_lengths([4, 0, 5]).unwrap(), Segments::from_ids(ids, 3).unwrap()] {
            assert!(!is_near::<f32>(400, 700));
            check::<f32>(&segments, 400, 700, 0);
            check::<f64>(&segments, 300, 500, 2);
            check::<bf16>(&segments, 400, 700, 0);
        }
    }

    /// Segments that are cut into chains and shared among threads.
    #[test]
    fn long_segments_agree_with_the_plain_loops() {
        let mut random = Random::new(3);
        let ids: Vec<usize> = (0..20_000).map(|_| random.below(4).max(1)).collect();
        for segments in [Segments::from_lengths([5, 19_000, 995]).unwrap(), Segments::from_ids(ids, 5).unwrap()] {
            check::<f32>(&segments, 8, 12, 0);
        }
    }

    /// Bits do not depend on the order in which rows lie.
    #[test]
    fn gathered_rows_have_the_bits_of_sorted_ones() {
        let [_, gathered] = segments();
        let sorted = Segments::from_offsets(gathered.offsets().clone()).unwrap();
        // Rows done as they lie, and by segments.
        for (inner, cols) in [(16, 16), (5, 40), (7, 3), (37, 29)] {
            gathered_as_sorted(&gathered, &sorted, inner, cols);
        }
    }

    fn gathered_as_sorted(gathered: &Segments, sorted: &Segments, inner: usize, cols: usize) {
        let (rows, count) = (gathered.rows(), gathered.len());
        let mut random = Random::new(7);
        let [x, y] = [inner, cols].map(|n| random.elements::<f32>(rows * n));
        let weight = random.elements::<f32>(count * inner * cols);
        let weight = Blocks::new(&weight, [count, inner, cols], [inner * cols, cols, 1]);
        let order: Vec<usize> = gathered.order().unwrap().iter().collect();
        let permuted =
            |from: &[f32], n: usize| order.iter().flat_map(|&i| from[i * n..][..n].to_vec()).collect::<Vec<_>>();
        let (x_sorted, y_sorted) = (permuted(&x, inner), permuted(&y, cols));
        let dense = |data, n| Dense::contiguous(data, rows, n);
        let run = |segments: &Segments, x, y| {
            let product = filled(rows * cols, |out| segment_mm(segments, x, weight, None, out));
            (product, filled(count * inner * cols, |out| segment_outer(segments, x, y, out)))
        };
        let (product, sums) = run(gathered, dense(&x, inner), dense(&y, cols));
        let expected = run(sorted, dense(&x_sorted, inner), dense(&y_sorted, cols));
        assert_eq!((permuted(&product, cols), sums), expected);
    }

    #[test]
    fn units_of_wide_indices_are_the_same() {
        let [_, narrow] = segments();
        let Order::Narrow(order) = order(&narrow) else { panic!("32 bits suffice") };
        let wide = narrow.order().unwrap().to_width(IndexWidth::I64);
        let Indices::I64(wide) = wide else { panic!("as asked for") };
        let places = [Order::Narrow(order), Order::Wide(&wide)].map(|order| Places { order, first: 3 });
        // SAFETY: rows of the segments.
        assert!((0..50).all(|at| unsafe { places[0].row(at) == places[1].row(at) }));
    }
}
