//! The kernel of gather. Types as in spmm's kernels.

use crate::backend::gpu::lanes::{Lanes, lanes_sum};
use cubecl::prelude::*;

/// The lanes of a group share a row. A row of one value copies it as it is.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn gather_rows<F: Float, A: Float, I: Int>(
    offsets: &[I],
    columns: &[I],
    values: &[F],
    out: &mut [F],
    rows: usize,
    #[comptime] lanes: Lanes,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let lane = (UNIT_POS % lanes.width) as usize;
    let row = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    let live = row < rows;
    let mut sum = A::new(0.0_f32);
    let mut start = 0usize;
    let mut end = 0usize;
    if live {
        start = usize::cast_from(offsets[row]);
        end = usize::cast_from(offsets[row + 1]);
        let mut entry = start + lane;
        while entry < end {
            sum += A::cast_from(values[usize::cast_from(columns[entry])]);
            entry += comptime!(lanes.width as usize);
        }
    }
    let mut scratch = Shared::<[Vector<A, Const<1>>]>::new_slice(comptime!(lanes.scratch()));
    let total = lanes_sum::<A, Const<1>>(Vector::new(sum), &mut scratch, lanes);
    if live && lane == 0 {
        if end - start == 1 {
            out[row] = values[usize::cast_from(columns[start])];
        } else {
            out[row] = F::cast_from(total.extract(0usize));
        }
    }
}
