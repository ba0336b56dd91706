//! The kernels of segment reductions and softmaxes. Types: `F` of the features, `A` of what is computed (f32 for 16-bit features),
//! `O` of what is written, `I` of the indices, `N` elements a load. A unit has a row and a column (or `N` of them), and
//! neighbours have neighbouring columns. Widths and strides of dense operands count vectors of `N`.
//!
//! Long rows are left out where `find` says so: their pieces are rows of another launch, and what it found is combined in order.
#![allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]

use crate::backend::gpu::lanes::{RowBounds, is_left_out, slot_of};
use cubecl::prelude::*;

/// The sum of each row, or its mean.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_sums<F: Float, A: Float, O: Float, I: Int, N: Size>(
    bounds: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[Vector<F, N>],
    out: &mut [Vector<O, N>],
    rows: usize,
    width: usize,
    stride: usize,
    #[comptime] find: RowBounds,
    #[comptime] mean: bool,
    #[define(F, A, O, I)] _types: [ElemType; 4],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let row = position / width;
    let column = position - row * width;
    if row >= rows {
        terminate!();
    }
    let start = usize::cast_from(bounds[row * find.step]);
    let end = usize::cast_from(bounds[row * find.step + 1]);
    if is_left_out(end - start, find) {
        terminate!();
    }
    let mut sum = Vector::<A, N>::zeroed();
    for entry in start..end {
        sum += Vector::cast_from(x[slot_of::<I>(slots, entry) * stride + column]);
    }
    if comptime!(mean) {
        if end > start {
            sum /= Vector::new(A::cast_from(end - start));
        }
    }
    out[position] = Vector::cast_from(sum);
}

/// Adds the sums of the pieces of each long row, in their order, and writes the row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_sums_combine<A: Float, O: Float, I: Int, N: Size>(
    first_pieces: &[I],
    long: &[I],
    offsets: &[I],
    pieces: &[Vector<A, N>],
    out: &mut [Vector<O, N>],
    long_rows: usize,
    width: usize,
    #[comptime] mean: bool,
    #[define(A, O, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let at = position / width;
    let column = position - at * width;
    if at >= long_rows {
        terminate!();
    }
    let mut sum = Vector::<A, N>::zeroed();
    for piece in usize::cast_from(first_pieces[at])..usize::cast_from(first_pieces[at + 1]) {
        sum += pieces[piece * width + column];
    }
    let row = usize::cast_from(long[at]);
    if comptime!(mean) {
        let length = usize::cast_from(offsets[row + 1]) - usize::cast_from(offsets[row]);
        sum /= Vector::new(A::cast_from(length));
    }
    out[row * width + column] = Vector::cast_from(sum);
}

#[cube]
fn not_a_number<A: Float>(value: A) -> bool {
    bool::cast_from(value.is_nan())
}

/// An element that is compared.
#[cube]
fn element<F: Float, A: Float>(x: F, #[comptime] min: bool) -> A {
    let x = A::cast_from(x);
    if comptime!(min) { -x } else { x }
}

/// The first entry with the largest element of each row, or the smallest; the first NaN if there is one. Of an empty row what
/// is written has no meaning.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_extremes<F: Float, A: Float, I: Int>(
    bounds: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[F],
    places: &mut [I],
    rows: usize,
    width: usize,
    stride: usize,
    #[comptime] find: RowBounds,
    #[comptime] min: bool,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let row = position / width;
    let column = position - row * width;
    if row >= rows {
        terminate!();
    }
    let start = usize::cast_from(bounds[row * find.step]);
    let end = usize::cast_from(bounds[row * find.step + 1]);
    if is_left_out(end - start, find) {
        terminate!();
    }
    let mut place = start;
    let mut largest = A::new(0.0_f32);
    let mut is_nan = false;
    for entry in start..end {
        let x = element::<F, A>(x[slot_of::<I>(slots, entry) * stride + column], min);
        let nan = not_a_number::<A>(x);
        if !is_nan && (nan || x > largest || entry == start) {
            largest = x;
            place = entry;
            is_nan = nan;
        }
    }
    places[position] = I::cast_from(place);
}

/// The same over what was found in the pieces of each long row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_extremes_combine<F: Float, A: Float, I: Int>(
    first_pieces: &[I],
    long: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[F],
    pieces: &[I],
    places: &mut [I],
    long_rows: usize,
    width: usize,
    stride: usize,
    #[comptime] min: bool,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let at = position / width;
    let column = position - at * width;
    if at >= long_rows {
        terminate!();
    }
    let start = usize::cast_from(first_pieces[at]);
    let mut place = I::cast_from(0u32);
    let mut largest = A::new(0.0_f32);
    let mut is_nan = false;
    for piece in start..usize::cast_from(first_pieces[at + 1]) {
        let entry = pieces[piece * width + column];
        let x = element::<F, A>(x[slot_of::<I>(slots, usize::cast_from(entry)) * stride + column], min);
        let nan = not_a_number::<A>(x);
        if !is_nan && (nan || x > largest || piece == start) {
            largest = x;
            place = entry;
            is_nan = nan;
        }
    }
    places[usize::cast_from(long[at]) * width + column] = place;
}

/// The elements at these places; 0 in empty rows.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_pick<F: Float, I: Int>(
    offsets: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[F],
    places: &[I],
    out: &mut [F],
    rows: usize,
    width: usize,
    stride: usize,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let row = position / width;
    let column = position - row * width;
    if row >= rows {
        terminate!();
    }
    let mut picked = F::new(0.0_f32);
    if offsets[row + 1] > offsets[row] {
        picked = x[slot_of::<I>(slots, usize::cast_from(places[position])) * stride + column];
    }
    out[position] = picked;
}

/// The gradients of rows at these places, 0 elsewhere. A unit an entry and column.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_place<F: Float, I: Int>(
    row_of_entry: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    places: &[I],
    grad: &[F],
    out: &mut [F],
    entries: usize,
    width: usize,
    stride: usize,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let entry = position / width;
    let column = position - entry * width;
    if entry >= entries {
        terminate!();
    }
    let row = usize::cast_from(row_of_entry[entry]);
    let mut placed = F::new(0.0_f32);
    if usize::cast_from(places[row * width + column]) == entry {
        placed = grad[row * stride + column];
    }
    out[slot_of::<I>(slots, entry) * width + column] = placed;
}

/// The row of each entry, or a mean's gradient: divided by the number of entries of the row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_rows<F: Float, A: Float, I: Int, N: Size>(
    row_of_entry: &[I],
    offsets: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    entries: usize,
    width: usize,
    stride: usize,
    #[comptime] mean: bool,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let entry = position / width;
    let column = position - entry * width;
    if entry >= entries {
        terminate!();
    }
    let row = usize::cast_from(row_of_entry[entry]);
    let to = slot_of::<I>(slots, entry) * width + column;
    let from = row * stride + column;
    if comptime!(mean) {
        let length = usize::cast_from(offsets[row + 1]) - usize::cast_from(offsets[row]);
        let divided = Vector::<A, N>::cast_from(x[from]) / Vector::new(A::cast_from(length));
        out[to] = Vector::cast_from(divided);
    } else {
        out[to] = x[from];
    }
}

/// What is made of the entries of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// The softmax.
    Softmax,
    /// Its logarithm.
    LogSoftmax,
    /// The gradient, given the softmax and its gradient.
    Backward,
    /// The same of the logarithm.
    LogBackward,
}

impl Task {
    /// Whether the features are the result, and its gradient is given.
    fn is_backward(&self) -> bool {
        matches!(self, Self::Backward | Self::LogBackward)
    }
}

/// The gradient at a place, if there is one.
#[cube]
fn grad_at<F: Float, A: Float>(grad: &ComptimeOption<Box<[F]>>, at: usize) -> A {
    #[comptime]
    match grad {
        ComptimeOption::Some(grad) => A::cast_from(grad[at]),
        ComptimeOption::None => A::new(0.0_f32),
    }
}

/// What is taken from elements before the exponential, given the largest.
#[cube]
fn shift<A: Float>(largest: A, infinity: A) -> A {
    let mut shift = largest;
    if largest == -infinity {
        shift = A::new(0.0_f32);
    }
    shift
}

/// Two numbers of each row and column: the largest and the sum of exponentials; of a gradient the sum that is taken from all,
/// and how many elements are not -inf.
///
/// `infinity` are the bits of that f32: not every shading language can spell it.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn softmax_stats<F: Float, A: Float, I: Int>(
    bounds: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[F],
    grad: &ComptimeOption<Box<[F]>>,
    first: &mut [A],
    second: &mut [A],
    rows: usize,
    width: usize,
    stride: usize,
    grad_stride: usize,
    infinity: u32,
    #[comptime] find: RowBounds,
    #[comptime] task: Task,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let row = position / width;
    let column = position - row * width;
    if row >= rows {
        terminate!();
    }
    let start = usize::cast_from(bounds[row * find.step]);
    let end = usize::cast_from(bounds[row * find.step + 1]);
    if is_left_out(end - start, find) {
        terminate!();
    }
    let infinity = A::cast_from(f32::reinterpret(infinity));
    let mut one = A::new(0.0_f32);
    let mut two = A::new(0.0_f32);
    if comptime!(task.is_backward()) {
        for entry in start..end {
            let slot = slot_of::<I>(slots, entry);
            let y = A::cast_from(x[slot * stride + column]);
            let g = grad_at::<F, A>(grad, slot * grad_stride + column);
            if comptime!(task == Task::Backward) {
                one = fma(y, g, one);
            } else {
                one += g;
                // Equality: to some devices NaN is not unequal to anything.
                let dead = y == -infinity;
                if !dead {
                    two += A::new(1.0_f32);
                }
            }
        }
    } else {
        one = -infinity;
        for entry in start..end {
            let x = A::cast_from(x[slot_of::<I>(slots, entry) * stride + column]);
            if x > one {
                one = x;
            }
        }
        let shift = shift::<A>(one, infinity);
        for entry in start..end {
            let x = A::cast_from(x[slot_of::<I>(slots, entry) * stride + column]);
            two += (x - shift).exp();
        }
    }
    first[position] = one;
    second[position] = two;
}

/// The same of long rows from what was found in their pieces.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn softmax_stats_combine<A: Float, I: Int>(
    first_pieces: &[I],
    long: &[I],
    pieces_first: &[A],
    pieces_second: &[A],
    first: &mut [A],
    second: &mut [A],
    long_rows: usize,
    width: usize,
    infinity: u32,
    #[comptime] task: Task,
    #[define(A, I)] _types: [ElemType; 2],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let at = position / width;
    let column = position - at * width;
    if at >= long_rows {
        terminate!();
    }
    let start = usize::cast_from(first_pieces[at]);
    let end = usize::cast_from(first_pieces[at + 1]);
    let infinity = A::cast_from(f32::reinterpret(infinity));
    let mut one = A::new(0.0_f32);
    let mut two = A::new(0.0_f32);
    if comptime!(task.is_backward()) {
        for piece in start..end {
            one += pieces_first[piece * width + column];
            two += pieces_second[piece * width + column];
        }
    } else {
        one = -infinity;
        for piece in start..end {
            let largest = pieces_first[piece * width + column];
            if largest > one {
                one = largest;
            }
        }
        let shift = shift::<A>(one, infinity);
        for piece in start..end {
            let largest = pieces_first[piece * width + column];
            let sum = pieces_second[piece * width + column];
            let mut scaled = sum;
            let same = largest == one;
            if !same {
                scaled = sum * (largest - shift).exp();
            }
            two += scaled;
        }
    }
    let to = usize::cast_from(long[at]) * width + column;
    first[to] = one;
    second[to] = two;
}

/// Writes the elements of entries, given the two numbers of their rows. A unit an entry and column.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn softmax_write<F: Float, A: Float, I: Int>(
    row_of_entry: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[F],
    grad: &ComptimeOption<Box<[F]>>,
    first: &[A],
    second: &[A],
    out: &mut [F],
    entries: usize,
    width: usize,
    stride: usize,
    grad_stride: usize,
    infinity: u32,
    #[comptime] task: Task,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let entry = position / width;
    let column = position - entry * width;
    if entry >= entries {
        terminate!();
    }
    let of_row = usize::cast_from(row_of_entry[entry]) * width + column;
    let slot = slot_of::<I>(slots, entry);
    let infinity = A::cast_from(f32::reinterpret(infinity));
    let zero = A::new(0.0_f32);
    let x = A::cast_from(x[slot * stride + column]);
    let one = first[of_row];
    let two = second[of_row];
    let mut y = x - shift::<A>(one, infinity);
    if comptime!(task == Task::Softmax) {
        // Where all are -inf nothing has a weight.
        let mut scale = A::new(1.0_f32) / two;
        if two == zero {
            scale = zero;
        }
        y = y.exp() * scale;
    } else if comptime!(task == Task::LogSoftmax) {
        let mut log = two.ln();
        if two == zero {
            log = zero;
        }
        y -= log;
    } else {
        let g = grad_at::<F, A>(grad, slot * grad_stride + column);
        if comptime!(task == Task::Backward) {
            y = x * (g - one);
        } else {
            y = g - x.exp() * one;
            if two == zero {
                y = zero;
            }
        }
    }
    out[slot * width + column] = F::cast_from(y);
}
