//! The kernels of spmm. Types: `F` of the operands, `A` of the sums (f32 for 16-bit operands), `O` of what is written,
//! `I` of the indices, `N` elements a load. Strides and columns of dense operands count vectors of `N`.
//!
//! Rows are given by their bounds: row `r` has the entries `bounds[step * r] .. bounds[step * r + 1]`. Offsets are bounds with
//! step 1, pieces of rows have step 2.
#![allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]

pub use crate::backend::gpu::lanes::RowBounds;
use crate::backend::gpu::lanes::{Lanes, components_sum, is_left_out, lanes_sum, slot_of};
use cubecl::prelude::*;

/// Entries whose loads are issued together, to have several in flight.
const BATCH: usize = 4;

/// Many columns: each lane owns a vector of them and walks the entries of its row. Index loads are broadcasts.
///
/// Cubes of `lanes` x rows; cubes of the same tile of columns are neighbours, so that its part of B stays in cache.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn spmm_columns<F: Float, A: Float, O: Float, I: Int, N: Size>(
    bounds: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    values: &[F],
    dense: &[Vector<F, N>],
    out: &mut [Vector<O, N>],
    rows: usize,
    row_cubes: usize,
    width: usize,
    dense_stride: usize,
    #[comptime] find: RowBounds,
    #[define(F, A, O, I)] _types: [ElemType; 4],
) {
    let tile = CUBE_POS / row_cubes;
    let row = (CUBE_POS - tile * row_cubes) * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    let column = tile * CUBE_DIM_X as usize + UNIT_POS_X as usize;
    if row >= rows || column >= width {
        terminate!();
    }
    let start = usize::cast_from(bounds[row * find.step]);
    let end = usize::cast_from(bounds[row * find.step + 1]);
    if is_left_out(end - start, find) {
        terminate!();
    }
    let mut sum = Vector::<A, N>::zeroed();
    let batches = (end - start) / BATCH;
    for batch in 0..batches {
        let first = start + batch * BATCH;
        let mut factors = Sequence::<Vector<A, N>>::new();
        let mut rows_of_b = Sequence::<Vector<A, N>>::new();
        #[unroll]
        for i in 0..BATCH {
            let entry = first + i;
            let from = usize::cast_from(columns[entry]) * dense_stride + column;
            factors.push(Vector::cast_from(values[slot_of::<I>(slots, entry)]));
            rows_of_b.push(Vector::cast_from(dense[from]));
        }
        #[unroll]
        for i in 0..BATCH {
            sum = fma(*factors.index(i), *rows_of_b.index(i), sum);
        }
    }
    for entry in start + batches * BATCH..end {
        let from = usize::cast_from(columns[entry]) * dense_stride + column;
        let factor = Vector::cast_from(values[slot_of::<I>(slots, entry)]);
        sum = fma(factor, Vector::cast_from(dense[from]), sum);
    }
    out[row * width + column] = Vector::cast_from(sum);
}

/// Few columns, `vectors` of N in all: the lanes of a group share a row, stride over its entries and add up in a tree.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn spmm_shared<F: Float, A: Float, O: Float, I: Int, N: Size>(
    bounds: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    values: &[F],
    dense: &[Vector<F, N>],
    out: &mut [Vector<O, N>],
    rows: usize,
    dense_stride: usize,
    #[comptime] find: RowBounds,
    #[comptime] vectors: usize,
    #[comptime] lanes: Lanes,
    #[define(F, A, O, I)] _types: [ElemType; 4],
) {
    let lane = UNIT_POS % lanes.width;
    let row = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    // No early exit: the whole cube meets at the sums below.
    let mut live = row < rows;
    let mut sums = Array::<Vector<A, N>>::new(vectors);
    #[unroll]
    for v in 0..vectors {
        sums[v] = Vector::zeroed();
    }
    if live {
        let start = usize::cast_from(bounds[row * find.step]);
        let mut end = usize::cast_from(bounds[row * find.step + 1]);
        if is_left_out(end - start, find) {
            live = false;
            end = start;
        }
        let mut entry = start + lane as usize;
        while entry < end {
            let from = usize::cast_from(columns[entry]) * dense_stride;
            let factor = Vector::<A, N>::cast_from(values[slot_of::<I>(slots, entry)]);
            #[unroll]
            for v in 0..vectors {
                sums[v] = fma(factor, Vector::cast_from(dense[from + v]), sums[v]);
            }
            entry += lanes.width as usize;
        }
    }
    let mut scratch = Shared::<[Vector<A, N>]>::new_slice(comptime!(lanes.scratch()));
    #[unroll]
    for v in 0..vectors {
        let total = lanes_sum::<A, N>(sums[v], &mut scratch, lanes);
        if live && lane == 0 {
            out[row * vectors + v] = Vector::cast_from(total);
        }
    }
}

/// Adds the sums of the pieces of each long row, in their order, and writes the row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn spmm_combine<A: Float, O: Float, I: Int, N: Size>(
    first_pieces: &[I],
    rows: &[I],
    pieces: &[Vector<A, N>],
    out: &mut [Vector<O, N>],
    long_rows: usize,
    width: usize,
    #[define(A, O, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let long = position / width;
    let column = position - long * width;
    if long >= long_rows {
        terminate!();
    }
    let mut sum = Vector::<A, N>::zeroed();
    for piece in usize::cast_from(first_pieces[long])..usize::cast_from(first_pieces[long + 1]) {
        sum += pieces[piece * width + column];
    }
    out[usize::cast_from(rows[long]) * width + column] = Vector::cast_from(sum);
}

/// Both gradients in one walk over the transposed order: column j of A keeps B_j and dB_j in registers and gathers each
/// dC_i once, for `dB_j += v_e dC_i` and `dv_e = <dC_i, B_j>`. One lane a vector of columns; only within planes.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn spmm_backward_fused<F: Float, A: Float, I: Int, N: Size>(
    offsets: &[I],
    rows: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    values: &[F],
    dense: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    d_values: &mut [F],
    d_dense: &mut [Vector<F, N>],
    n_columns: usize,
    dense_stride: usize,
    grad_stride: usize,
    #[comptime] lanes: Lanes,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let lane = (UNIT_POS % lanes.width) as usize;
    let column = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    let live = column < n_columns;
    let mut own = Vector::<A, N>::zeroed();
    let mut sum = Vector::<A, N>::zeroed();
    let mut start = 0usize;
    let mut length = 0u32;
    if live {
        own = Vector::cast_from(dense[column * dense_stride + lane]);
        start = usize::cast_from(offsets[column]);
        length = u32::cast_from(usize::cast_from(offsets[column + 1]) - start);
    }
    if comptime!(lanes.sync) {
        sync_plane();
    }
    // Lanes of a plane go round equally often, so that none is missing when they add up.
    let rounds = plane_max(length);
    let mut scratch = Shared::<[Vector<A, Const<1>>]>::new_slice(comptime!(lanes.scratch()));
    for round in 0..rounds {
        let mut product = A::new(0.0_f32);
        let mut slot = 0usize;
        if round < length {
            let entry = start + round as usize;
            slot = slot_of::<I>(slots, entry);
            let from = usize::cast_from(rows[entry]) * grad_stride + lane;
            let gathered = Vector::<A, N>::cast_from(grad[from]);
            sum = fma(Vector::cast_from(values[slot]), gathered, sum);
            product = components_sum::<A, N>(gathered * own);
        }
        let total = lanes_sum::<A, Const<1>>(Vector::new(product), &mut scratch, lanes);
        if round < length && lane == 0 {
            d_values[slot] = F::cast_from(total.extract(0usize));
        }
    }
    if live {
        d_dense[column * comptime!(lanes.width as usize) + lane] = Vector::cast_from(sum);
    }
}
