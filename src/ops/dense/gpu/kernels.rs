//! The kernel between sparse and dense: a unit an entry.

use crate::backend::gpu::lanes::slot_of;
use cubecl::prelude::*;

/// What is done at each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Its value is written to its position, which no other entry has.
    Scatter,
    /// The same, added to what stands there.
    Add,
    /// The element at its position becomes its value.
    Sample,
}

/// Elements `from` sparse `to` dense, or back. Those that are not added are copied as they are.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn at_entries<F: Float, I: Int>(
    rows: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    from: &[F],
    to: &mut [F],
    entries: usize,
    stride: usize,
    #[comptime] way: Way,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let entry = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if entry >= entries {
        terminate!();
    }
    let at = usize::cast_from(rows[entry]) * stride + usize::cast_from(columns[entry]);
    let slot = slot_of::<I>(slots, entry);
    if comptime!(way == Way::Scatter) {
        to[at] = from[slot];
    } else if comptime!(way == Way::Add) {
        to[at] += from[slot];
    } else {
        to[slot] = from[at];
    }
}
