//! The kernel of triangular solves. Types as in spmm's kernels.
#![allow(clippy::collapsible_if, reason = "what is known at compile time is asked first, by itself")]

use crate::backend::gpu::lanes::slot_of;
use cubecl::prelude::*;

/// What a launch solves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// The triangle above the diagonal.
    pub upper: bool,
    /// The diagonal is taken as ones.
    pub unit: bool,
    /// One cube goes through several levels; otherwise many cubes share one.
    pub one_cube: bool,
}

/// Rows of levels `first..last`, a unit a vector of columns. Level `l` has the rows `schedule[levels + 1 + i]` for i in
/// `schedule[l] .. schedule[l + 1]`, of `levels` in all.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn trisolve_levels<F: Float, A: Float, I: Int, N: Size>(
    offsets: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    schedule: &[I],
    values: &[F],
    rhs: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    first: usize,
    last: usize,
    levels: usize,
    width: usize,
    rhs_stride: usize,
    #[comptime] launch: Launch,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    for level in first..last {
        let start = usize::cast_from(schedule[level]);
        let items = (usize::cast_from(schedule[level + 1]) - start) * width;
        let mut item = UNIT_POS as usize;
        let mut step = CUBE_DIM as usize;
        if comptime!(!launch.one_cube) {
            item = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
            step = items; // one each
        }
        while item < items {
            let at = item / width;
            let column = item - at * width;
            let row = usize::cast_from(schedule[levels + 1 + start + at]);
            let mut sum = Vector::<A, N>::cast_from(rhs[row * rhs_stride + column]);
            let mut divisor = A::new(0.0_f32);
            for entry in usize::cast_from(offsets[row])..usize::cast_from(offsets[row + 1]) {
                let other = usize::cast_from(columns[entry]);
                let mut beside = other < row;
                if comptime!(launch.upper) {
                    beside = other > row;
                }
                if beside {
                    let value = A::cast_from(values[slot_of::<I>(slots, entry)]) * A::new(-1.0_f32);
                    sum = fma(Vector::new(value), Vector::cast_from(out[other * width + column]), sum);
                }
                if comptime!(!launch.unit) {
                    if other == row {
                        divisor += A::cast_from(values[slot_of::<I>(slots, entry)]);
                    }
                }
            }
            if comptime!(!launch.unit) {
                sum /= Vector::new(divisor);
            }
            out[row * width + column] = Vector::cast_from(sum);
            item += step;
        }
        if comptime!(launch.one_cube) {
            sync_storage();
        }
    }
}
