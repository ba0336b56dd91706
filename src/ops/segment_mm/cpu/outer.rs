//! Sums of outer products of the rows of segments, the gradient of their matrices.

use super::kernels::{Lanes, Outer, ROWS, lanes};
use super::{Lines, Order, Places, Scratch, for_each, gather, is_near, order};
use crate::backend::dense::{Dense, Output};
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::{alloc, simd};
use crate::segments::Segments;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows of a segment whose outer products are added in one chain; what longer segments are cut into.
const CHAIN: usize = 4096;
/// About so many multiplications are left to one thread.
const SHARE: usize = 1 << 24;

/// Some rows of a segment, whose outer products are added.
struct Unit {
    segment: usize,
    /// In the order of segments.
    rows: Range<usize>,
    /// Which columns of x.
    inner: Range<usize>,
    /// Where the sums of a part of a segment go.
    partial: Option<usize>,
}

/// `out_s = sum of x_i y_i^T` over the rows i of each segment s, written in full: zeros for empty segments.
///
/// # Panics
///
/// If shapes do not fit.
pub(in super::super) fn segment_outer<E: Scalar>(
    segments: &Segments,
    x: Dense<'_, E>,
    y: Dense<'_, E>,
    out: &mut [MaybeUninit<E>],
) where
    E::Acc: Lanes,
{
    let (inner, cols) = (x.cols(), y.cols());
    let block = inner * cols;
    assert_eq!((x.rows(), y.rows()), (segments.rows(), segments.rows()), "operands");
    assert_eq!(Some(out.len()), segments.len().checked_mul(block), "elements of the output");
    if block == 0 {
        return;
    }
    let (units, partials) = parts(segments, inner, cols);
    let mut partial_sums = alloc::output::<E::Acc>(partials.last().map_or(0, |last| last.1.end) * block);
    let out = Output::new(out);
    let near = is_near::<E::Acc>(inner, cols);
    let sums = SegmentOuter { order: order(segments), x, y, out, partials: Output::new(&mut partial_sums), near };
    for_each(&units, x.rows() * block, |scratch, unit| sums.unit(scratch, unit));
    // SAFETY: the units have written all parts.
    let mut partial_sums = unsafe { alloc::finished(partial_sums) };
    for (segment, parts) in partials {
        let mut parts = partial_sums[parts.start * block..parts.end * block].chunks_exact_mut(block);
        let sums = parts.next().expect("a segment that is cut has several parts");
        for part in parts {
            sums.iter_mut().zip(part).for_each(|(sum, term)| *sum = *sum + *term);
        }
        for (at, sum) in sums.iter().enumerate() {
            // SAFETY: within the output.
            unsafe { out.at(segment * block + at).write(E::narrow(*sum)) };
        }
    }
}

/// The units of a sum of outer products, and for each segment that is cut, its parts.
fn parts(segments: &Segments, inner: usize, cols: usize) -> (Vec<Unit>, Vec<(usize, Range<usize>)>) {
    let (mut units, mut partials, mut next) = (Vec::with_capacity(segments.len()), Vec::new(), 0);
    for segment in 0..segments.len() {
        let rows = segments.range(segment);
        let chains = rows.len().div_ceil(CHAIN).max(1);
        if chains > 1 {
            partials.push((segment, next..next + chains));
            next += chains;
        }
        for chain in 0..chains {
            let first = rows.start + chain * CHAIN;
            let rows = first..rows.end.min(first + CHAIN);
            // Wide matrices are shared by columns of x, too.
            let columns = (SHARE / (rows.len() * cols).max(1)).max(64).next_multiple_of(8);
            for first in (0..inner).step_by(columns) {
                units.push(Unit {
                    segment,
                    rows: rows.clone(),
                    inner: first..inner.min(first + columns),
                    partial: (chains > 1).then(|| next - chains + chain),
                });
            }
        }
    }
    (units, partials)
}

struct SegmentOuter<'a, E: Scalar> {
    order: Order<'a>,
    x: Dense<'a, E>,
    y: Dense<'a, E>,
    out: Output<'a, E>,
    partials: Output<'a, E::Acc>,
    near: bool,
}

impl<E: Scalar> SegmentOuter<'_, E>
where
    E::Acc: Lanes,
{
    fn unit(&self, scratch: &mut Scratch<E::Acc>, unit: &Unit) {
        let cols = self.y.cols();
        let width = if self.near { cols.next_multiple_of(lanes::<E::Acc>()) } else { cols };
        let Scratch { x, y, sums, .. } = scratch;
        sums.clear();
        sums.resize(unit.inner.len() * width, E::Acc::ZERO);
        let in_place = self.near || matches!(self.order, Order::InPlace);
        let direct_x = self.x.as_sums().filter(|_| in_place);
        let direct_y = self.y.as_sums().filter(|_| in_place && width == cols);
        // So many rows of both as a near cache holds.
        let block = if self.near { (8192 / (self.x.cols() + width)).clamp(16, ROWS) } else { ROWS };
        for first in unit.rows.clone().step_by(block) {
            let places = Places { order: self.order, first };
            let count = block.min(unit.rows.end - first);
            let x = match direct_x {
                Some(dense) => Lines { dense, places },
                None => gather(Lines { dense: self.x, places }, count, self.x.cols(), x),
            };
            let y = match direct_y {
                Some(dense) => Lines { dense, places },
                None => gather(Lines { dense: self.y, places }, count, width, y),
            };
            let ahead = block.min(unit.rows.end - first - count);
            add_outer(self.near, [count, ahead], x, y, unit.inner.clone(), sums);
        }
        let start = unit.inner.start * cols;
        let block = self.x.cols() * cols;
        for (row, sums) in sums.chunks_exact(width).enumerate() {
            let at = start + row * cols;
            for (column, &sum) in sums[..cols].iter().enumerate() {
                // SAFETY: within the segment's part of the outputs, which is this unit's.
                unsafe {
                    match unit.partial {
                        Some(part) => self.partials.at(part * block + at + column).write(sum),
                        None => self.out.at(unit.segment * block + at + column).write(E::narrow(sum)),
                    }
                }
            }
        }
    }
}

/// Adds the outer products of some rows, which others may come after. Unless it is `near`, rows lie in place.
fn add_outer<A: Lanes>(
    near: bool,
    [count, ahead]: [usize; 2],
    x: Lines<'_, A>,
    y: Lines<'_, A>,
    inner: Range<usize>,
    sums: &mut [A],
) {
    if near {
        return simd::run_fast(Outer { x, y, inner, sums, count, ahead });
    }
    // SAFETY: shapes were checked, and rows lie in place.
    unsafe {
        let (one, cols) = (A::from(1.0), y.cols());
        gemm::gemm(
            inner.len(),
            cols,
            count,
            sums.as_mut_ptr(),
            1,
            cols as isize,
            true,
            x.row(0).add(inner.start),
            x.dense.row_stride() as isize,
            1,
            y.row(0),
            1,
            y.dense.row_stride() as isize,
            one,
            one,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
