//! The kernels of sddmm. Types as in spmm's kernels. Work is split by entries, so that rows of any length are balanced.

use crate::backend::gpu::lanes::{Lanes, components_sum, lanes_sum, slot_of};
use cubecl::prelude::*;

/// How entries are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Share {
    /// Few columns: a unit an entry.
    Units,
    /// Many columns: a group of lanes takes a run of entries, each lane a share of the columns. Lane `i` keeps result `i` of a
    /// round, and the round is stored at once.
    Groups {
        /// Rounds of as many entries as there are lanes.
        rounds: u32,
        /// Vectors of X that a lane keeps in registers while the row stays the same; 0 where there are too many.
        kept: usize,
    },
}

impl Share {
    fn rounds(&self) -> u32 {
        match self {
            Self::Units => 0,
            Self::Groups { rounds, .. } => *rounds,
        }
    }

    fn kept(&self) -> usize {
        match self {
            Self::Units => 0,
            Self::Groups { kept, .. } => *kept,
        }
    }
}

/// Entries that are added up at once, at most as many as there are lanes.
pub const BATCH: usize = 4;

/// `<X_i, Y_j>` at each entry (i, j).
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn sampled_products<F: Float, A: Float, I: Int, N: Size>(
    rows: &[I],
    columns: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    x: &[Vector<F, N>],
    y: &[Vector<F, N>],
    out: &mut [F],
    entries: usize,
    width: usize,
    x_stride: usize,
    y_stride: usize,
    #[comptime] share: Share,
    #[comptime] lanes: Lanes,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    if comptime!(share == Share::Units) {
        let entry = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
        if entry < entries {
            let x_row = usize::cast_from(rows[entry]) * x_stride;
            let y_row = usize::cast_from(columns[entry]) * y_stride;
            let mut sum = Vector::<A, N>::zeroed();
            for v in 0..width {
                sum = fma(Vector::cast_from(x[x_row + v]), Vector::cast_from(y[y_row + v]), sum);
            }
            out[slot_of::<I>(slots, entry)] = F::cast_from(components_sum::<A, N>(sum));
        }
    } else {
        let rounds = comptime!(share.rounds());
        let in_registers = comptime!(share.kept());
        let step = comptime!(lanes.width as usize);
        let lane = (UNIT_POS % lanes.width) as usize;
        let group = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
        let first = group * comptime!(share.rounds() as usize * lanes.width as usize);
        let mut scratch = Shared::<[Vector<A, Const<BATCH>>]>::new_slice(comptime!(lanes.scratch()));
        let mut kept = Array::<Vector<A, N>>::new(comptime!(Ord::max(share.kept(), 1)));
        let mut kept_row = 0usize;
        let mut fresh = true;
        for round in 0..rounds {
            let base = first + round as usize * step;
            let mut result = A::new(0.0_f32);
            for batch in 0..comptime!(step / BATCH) {
                let mut shares = Vector::<A, Const<BATCH>>::zeroed();
                #[unroll]
                for i in 0..BATCH {
                    // Past the end the last entry again, whose result is not stored: no lane may be missing at the sum below.
                    let entry = min(base + batch * BATCH + i, entries - 1);
                    let row = usize::cast_from(rows[entry]);
                    let x_row = row * x_stride;
                    let y_row = usize::cast_from(columns[entry]) * y_stride;
                    let mut sum = Vector::<A, N>::zeroed();
                    if comptime!(in_registers > 0) {
                        if fresh || row != kept_row {
                            fresh = false;
                            kept_row = row;
                            #[unroll]
                            for v in 0..in_registers {
                                if lane + v * step < width {
                                    kept[v] = Vector::cast_from(x[x_row + lane + v * step]);
                                }
                            }
                        }
                        #[unroll]
                        for v in 0..in_registers {
                            if lane + v * step < width {
                                sum = fma(kept[v], Vector::cast_from(y[y_row + lane + v * step]), sum);
                            }
                        }
                    } else {
                        let mut column = lane;
                        while column < width {
                            let left = Vector::cast_from(x[x_row + column]);
                            sum = fma(left, Vector::cast_from(y[y_row + column]), sum);
                            column += step;
                        }
                    }
                    shares.insert(i, components_sum::<A, N>(sum));
                }
                let totals = lanes_sum::<A, Const<BATCH>>(shares, &mut scratch, lanes);
                #[unroll]
                for i in 0..BATCH {
                    if batch * BATCH + i == lane {
                        result = totals.extract(i);
                    }
                }
            }
            let entry = base + lane;
            if entry < entries {
                out[slot_of::<I>(slots, entry)] = F::cast_from(result);
            }
        }
    }
}
