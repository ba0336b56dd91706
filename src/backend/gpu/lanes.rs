//! Sums across the lanes that share a row. Depends on `cubecl` alone, like every kernel, so that `tools/cuda_check` can
//! compile it for devices that are not there.

use cubecl::prelude::*;

/// How the units of a cube are grouped, and how those of a group exchange values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lanes {
    /// Units a cube, a power of two.
    pub units: u32,
    /// Lanes a group: a power of two, at most the smallest plane of the device.
    pub width: u32,
    /// By shuffles within a plane; through shared memory otherwise.
    pub planes: bool,
    /// Whether a plane has to be brought together before it shuffles: CUDA does not wait for lanes that a branch left
    /// behind, and gives garbage for their values.
    pub sync: bool,
}

impl Lanes {
    /// Groups a cube.
    pub fn groups(&self) -> usize {
        (self.units / self.width) as usize
    }

    /// Elements of shared memory that [`lanes_sum`] needs.
    pub fn scratch(&self) -> usize {
        if self.planes || self.width == 1 { 1 } else { self.units as usize }
    }
}

/// How a kernel finds its rows: row `r` has the entries `bounds[step * r] .. bounds[step * r + 1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowBounds {
    /// 1 for offsets, 2 for pairs.
    pub step: usize,
    /// Leave out rows of more entries: their pieces are summed by other launches.
    pub longest: Option<u32>,
}

/// The sum over the lanes of a group, in each of them: the same tree of additions by shuffles and through memory.
///
/// Every unit of the cube has to get here.
#[cube]
pub fn lanes_sum<T: Numeric, N: Size>(
    value: Vector<T, N>,
    scratch: &mut Shared<[Vector<T, N>]>,
    #[comptime] lanes: Lanes,
) -> Vector<T, N> {
    let steps = comptime!(lanes.width.trailing_zeros());
    let mut sum = value;
    if comptime!(lanes.planes && lanes.sync && steps > 0) {
        sync_plane();
    }
    #[unroll]
    for step in 0..steps {
        let partner = comptime!(1u32 << step);
        if comptime!(lanes.planes) {
            let other = plane_shuffle_xor(sum, partner);
            sum += other;
        } else {
            scratch[UNIT_POS as usize] = sum;
            sync_cube();
            let other = scratch[(UNIT_POS ^ partner) as usize];
            sync_cube();
            sum += other;
        }
    }
    sum
}

/// The sum of the components of a vector, in order.
#[cube]
pub fn components_sum<T: Numeric, N: Size>(vector: Vector<T, N>) -> T {
    let mut sum = vector.extract(0usize);
    #[unroll]
    for component in 1..N::value() {
        sum += vector.extract(component);
    }
    sum
}

/// The place of an entry in the values: itself, unless there is a map.
#[cube]
pub fn slot_of<I: Int>(slots: &ComptimeOption<Box<[I]>>, entry: usize) -> usize {
    #[comptime]
    match slots {
        ComptimeOption::Some(map) => usize::cast_from(map[entry]),
        ComptimeOption::None => entry,
    }
}
