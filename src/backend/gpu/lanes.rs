//! Sums and maxima across the lanes that share a row. Depends on `cubecl` alone, like every kernel, so that `tools/cuda_check` can
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

    /// Elements of shared memory that [`lanes_sum`] and [`lanes_max`] need.
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

/// Whether a row of so many entries is left out.
#[cube]
pub fn is_left_out(length: usize, #[comptime] find: RowBounds) -> bool {
    let mut left_out = false;
    if comptime!(find.longest.is_some()) {
        left_out = length > comptime!(find.longest.unwrap_or(0) as usize);
    }
    left_out
}

/// What is made of the values of a group's lanes, component by component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// The sum.
    Sum,
    /// The largest, NaN left out.
    Largest,
}

/// The sum over the lanes of a group, in each of them.
///
/// Every unit of the cube has to get here.
#[cube]
pub fn lanes_sum<T: Numeric, N: Size>(
    value: Vector<T, N>,
    scratch: &mut Shared<[Vector<T, N>]>,
    #[comptime] lanes: Lanes,
) -> Vector<T, N> {
    lanes_fold::<T, N>(value, scratch, Fold::Sum, lanes)
}

/// The largest over the lanes of a group, in each of them.
///
/// Every unit of the cube has to get here.
#[cube]
pub fn lanes_max<T: Numeric>(value: T, scratch: &mut Shared<[Vector<T, Const<1>>]>, #[comptime] lanes: Lanes) -> T {
    lanes_fold::<T, Const<1>>(Vector::new(value), scratch, Fold::Largest, lanes).extract(0usize)
}

/// The same butterfly by shuffles and through memory.
#[cube]
fn lanes_fold<T: Numeric, N: Size>(
    value: Vector<T, N>,
    scratch: &mut Shared<[Vector<T, N>]>,
    #[comptime] fold: Fold,
    #[comptime] lanes: Lanes,
) -> Vector<T, N> {
    let steps = comptime!(lanes.width.trailing_zeros());
    let mut all = value;
    if comptime!(lanes.planes && lanes.sync && steps > 0) {
        sync_plane();
    }
    #[unroll]
    for step in 0..steps {
        let partner = comptime!(1u32 << step);
        if comptime!(lanes.planes) {
            let other = plane_shuffle_xor(all, partner);
            all = folded::<T, N>(all, other, fold);
        } else {
            scratch[UNIT_POS as usize] = all;
            sync_cube();
            let other = scratch[(UNIT_POS ^ partner) as usize];
            sync_cube();
            all = folded::<T, N>(all, other, fold);
        }
    }
    all
}

#[cube]
fn folded<T: Numeric, N: Size>(one: Vector<T, N>, other: Vector<T, N>, #[comptime] fold: Fold) -> Vector<T, N> {
    if comptime!(fold == Fold::Sum) { one + other } else { select_many(other.greater_than(&one), other, one) }
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
