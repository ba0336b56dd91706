//! The kernels between sparse and dense: a unit an entry. Elements are copied as they are.

use crate::backend::gpu::lanes::slot_of;
use cubecl::prelude::*;

/// Writes each value to its position, which no other entry has.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn scatter<F: Float, I: Int>(
    rows: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    values: &[F],
    dense: &mut [F],
    entries: usize,
    stride: usize,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let entry = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if entry >= entries {
        terminate!();
    }
    let at = usize::cast_from(rows[entry]) * stride + usize::cast_from(columns[entry]);
    dense[at] = values[slot_of::<I>(slots, entry)];
}

/// Reads the element at each position.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn sample<F: Float, I: Int>(
    rows: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    dense: &[F],
    values: &mut [F],
    entries: usize,
    stride: usize,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let entry = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if entry >= entries {
        terminate!();
    }
    let at = usize::cast_from(rows[entry]) * stride + usize::cast_from(columns[entry]);
    values[slot_of::<I>(slots, entry)] = dense[at];
}
