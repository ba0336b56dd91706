//! The kernels of spgemm. Types as in spmm's kernels; each pattern has indices of its own.
#![allow(clippy::collapsible_if, reason = "the outer one guards the load of the inner one")]

use crate::backend::gpu::lanes::{Lanes, lanes_sum, slot_of};
use cubecl::prelude::*;

/// `out_r` = the sum of `x * y` over the pairs of row `r`. The lanes of a group share a row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn pair_products<F: Float, A: Float, I: Int>(
    offsets: &[I],
    x_slots: &[I],
    y_slots: &[I],
    x: &[F],
    y: &[F],
    out: &mut [F],
    rows: usize,
    #[comptime] lanes: Lanes,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let lane = (UNIT_POS % lanes.width) as usize;
    let row = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    let live = row < rows;
    let mut sum = A::new(0.0_f32);
    if live {
        let end = usize::cast_from(offsets[row + 1]);
        let mut pair = usize::cast_from(offsets[row]) + lane;
        while pair < end {
            let left = A::cast_from(x[usize::cast_from(x_slots[pair])]);
            let right = A::cast_from(y[usize::cast_from(y_slots[pair])]);
            sum = fma(left, right, sum);
            pair += comptime!(lanes.width as usize);
        }
    }
    let mut scratch = Shared::<[Vector<A, Const<1>>]>::new_slice(comptime!(lanes.scratch()));
    let total = lanes_sum::<A, Const<1>>(Vector::new(sum), &mut scratch, lanes);
    if live && lane == 0 {
        out[row] = F::cast_from(total.extract(0usize));
    }
}

/// Whose values a search computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The product's: its row of the left operand is gone through, and the right operand searched.
    Product,
    /// The left operand's: its row of the right operand is gone through, and the product searched.
    Left,
}

/// Without a list of pairs: for each entry of the target, the sum of `walked * searched` over the entries of one row that is gone
/// through, of which each looks for its partner in a row of ascending columns. The lanes of a group share an entry.
///
/// `target` has the row of each entry, then the column of each; `walked` and `searched` have offsets, then columns. Values are in
/// the order of the rows.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn search_products<F: Float, A: Float, I: Int, J: Int, K: Int>(
    target: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    walked: &[J],
    searched: &[K],
    walked_values: &[F],
    searched_values: &[F],
    out: &mut [F],
    entries: usize,
    walked_rows: usize,
    searched_rows: usize,
    #[comptime] what: Target,
    #[comptime] lanes: Lanes,
    #[define(F, A, I, J, K)] _types: [ElemType; 5],
) {
    let lane = (UNIT_POS % lanes.width) as usize;
    let entry = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    let live = entry < entries;
    let mut sum = A::new(0.0_f32);
    if live {
        let row = usize::cast_from(target[entry]);
        let column = usize::cast_from(target[entries + entry]);
        let mut of_walked = row;
        if comptime!(what == Target::Left) {
            of_walked = column;
        }
        let end = usize::cast_from(walked[of_walked + 1]);
        let mut at = usize::cast_from(walked[of_walked]) + lane;
        while at < end {
            let other = usize::cast_from(walked[walked_rows + 1 + at]);
            let mut of_searched = other;
            let mut wanted = column;
            if comptime!(what == Target::Left) {
                of_searched = row;
                wanted = other;
            }
            let mut low = usize::cast_from(searched[of_searched]);
            let last = usize::cast_from(searched[of_searched + 1]);
            let mut high = last;
            while low < high {
                let middle = low + (high - low) / 2;
                if usize::cast_from(searched[searched_rows + 1 + middle]) < wanted {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low < last {
                if usize::cast_from(searched[searched_rows + 1 + low]) == wanted {
                    sum = fma(A::cast_from(walked_values[at]), A::cast_from(searched_values[low]), sum);
                }
            }
            at += comptime!(lanes.width as usize);
        }
    }
    let mut scratch = Shared::<[Vector<A, Const<1>>]>::new_slice(comptime!(lanes.scratch()));
    let total = lanes_sum::<A, Const<1>>(Vector::new(sum), &mut scratch, lanes);
    if live && lane == 0 {
        out[slot_of::<I>(slots, entry)] = F::cast_from(total.extract(0usize));
    }
}
