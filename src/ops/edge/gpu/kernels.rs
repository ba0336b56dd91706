//! The kernels of edge operations. Types as in the kernels of segments: `F` of the features, `A` of what is computed, `O` of what
//! is written, `I` of the indices, `N` elements a load. Widths and strides of dense operands count vectors of `N`.
#![allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]

use crate::backend::gpu::lanes::{RowBounds, components_sum, is_left_out, slot_of};
use cubecl::prelude::*;

/// What is made of the features of an edge's row and column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient.
    Div,
}

/// A unit an entry and vector of columns.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn edge_columns<F: Float, A: Float, I: Int, N: Size>(
    rows: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    left: &[Vector<F, N>],
    right: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    entries: usize,
    width: usize,
    left_stride: usize,
    right_stride: usize,
    #[comptime] op: Op,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let entry = position / width;
    let column = position - entry * width;
    if entry >= entries {
        terminate!();
    }
    let u = Vector::<A, N>::cast_from(left[usize::cast_from(rows[entry]) * left_stride + column]);
    let v = Vector::<A, N>::cast_from(right[usize::cast_from(columns[entry]) * right_stride + column]);
    let mut made = u + v;
    if comptime!(op == Op::Sub) {
        made = u - v;
    } else if comptime!(op == Op::Mul) {
        made = u * v;
    } else if comptime!(op == Op::Div) {
        made = u / v;
    }
    out[slot_of::<I>(slots, entry) * width + column] = Vector::cast_from(made);
}

/// The dot products of the columns of a head, `width` vectors. A unit an entry and head.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn edge_dots<F: Float, A: Float, I: Int, N: Size>(
    rows: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[Vector<F, N>],
    y: &[Vector<F, N>],
    out: &mut [F],
    entries: usize,
    heads: usize,
    width: usize,
    x_stride: usize,
    y_stride: usize,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let entry = position / heads;
    let head = position - entry * heads;
    if entry >= entries {
        terminate!();
    }
    let of_x = usize::cast_from(rows[entry]) * x_stride + head * width;
    let of_y = usize::cast_from(columns[entry]) * y_stride + head * width;
    let mut sum = Vector::<A, N>::zeroed();
    for at in 0..width {
        sum = fma(Vector::cast_from(x[of_x + at]), Vector::cast_from(y[of_y + at]), sum);
    }
    out[slot_of::<I>(slots, entry) * heads + head] = F::cast_from(components_sum::<A, N>(sum));
}

/// The weighted sums of each row, `per_head` vectors of columns a head. A unit a row and vector of columns.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn edge_sums<F: Float, A: Float, O: Float, I: Int, N: Size>(
    bounds: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    weights: &[F],
    y: &[Vector<F, N>],
    out: &mut [Vector<O, N>],
    rows: usize,
    width: usize,
    per_head: usize,
    weights_stride: usize,
    y_stride: usize,
    #[comptime] find: RowBounds,
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
    let head = column / per_head;
    let mut sum = Vector::<A, N>::zeroed();
    for entry in start..end {
        let weight = Vector::<A, N>::cast_from(weights[slot_of::<I>(slots, entry) * weights_stride + head]);
        let from = y[usize::cast_from(columns[entry]) * y_stride + column];
        sum = fma(weight, Vector::cast_from(from), sum);
    }
    out[position] = Vector::cast_from(sum);
}
