//! The kernel of spgemm. Types as in spmm's kernels.

use crate::backend::gpu::lanes::{Lanes, lanes_sum};
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
