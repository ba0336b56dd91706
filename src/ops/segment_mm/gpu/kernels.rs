//! The kernels of segment_mm and of its weight gradient. `F` is the dtype, `A` what it is added in, `I` the indices.
//!
//! A cube owns a square of the output. Its operands pass through shared memory in steps, and each unit keeps 4 x 4 sums in
//! registers, `side` elements apart, so that neighbouring units touch neighbouring elements.

use crate::backend::gpu::lanes::slot_of;
use cubecl::prelude::*;

/// Sums of a unit in either direction.
pub const EACH: u32 = 4;
/// Terms of each sum that are in shared memory at a time.
pub const STEP: u32 = 16;

/// How units share a square of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Square {
    /// Units in either direction.
    pub side: u32,
    /// Whether neighbouring units read neighbouring rows of a weight, instead of columns: where those are contiguous.
    pub by_rows: bool,
}

impl Square {
    /// Units of a cube.
    pub fn units(&self) -> u32 {
        self.side * self.side
    }

    /// Rows, and columns, of the output.
    pub fn width(&self) -> usize {
        (self.side * EACH) as usize
    }

    /// Elements of shared memory for one operand.
    fn shared(&self) -> usize {
        self.width() * STEP as usize
    }

    /// Elements that each unit copies to shared memory.
    fn loads(&self) -> usize {
        self.shared() / self.units() as usize
    }
}

/// Adds the products of what is in shared memory, `STEP` x width each, to the sums of a unit.
#[cube]
fn add_products<A: Float>(
    rows: &Shared<[A]>,
    columns: &Shared<[A]>,
    sums: &mut Array<A>,
    down: usize,
    across: usize,
    #[comptime] square: Square,
) {
    let (side, width) = comptime!((square.side as usize, square.width()));
    #[unroll]
    for step in 0..comptime!(STEP as usize) {
        #[unroll]
        for i in 0..comptime!(EACH as usize) {
            let left = rows[step * width + i * side + down];
            #[unroll]
            for j in 0..comptime!(EACH as usize) {
                let right = columns[step * width + j * side + across];
                let at = comptime!(i * EACH as usize + j);
                sums[at] = fma(left, right, sums[at]);
            }
        }
    }
}

/// `out_i = bias_s + x_i W_s`: a cube a tile of rows of one segment, by a tile of columns.
///
/// `tiles` holds the segment, the first row and the row past the last of each tile, in the order of segments.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_product<F: Float, A: Float, I: Int>(
    tiles: &[I],
    order: &ComptimeOption<Box<[I]>>,
    x: &[F],
    weight: &[F],
    bias: &ComptimeOption<Box<[F]>>,
    out: &mut [F],
    count: usize,
    column_tiles: usize,
    inner: usize,
    cols: usize,
    x_stride: usize,
    weight_stride: usize,
    weight_row_stride: usize,
    weight_column_stride: usize,
    bias_stride: usize,
    out_stride: usize,
    #[comptime] square: Square,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let (side, width) = comptime!((square.side as usize, square.width()));
    let (units, step) = comptime!((square.units() as usize, STEP as usize));
    let unit = UNIT_POS as usize;
    let down = unit / side;
    let across = unit % side;
    // Cubes past the last tile do its work again and store nothing.
    let live = CUBE_POS / column_tiles < count;
    let tile = min(CUBE_POS / column_tiles, count - 1);
    let first_column = (CUBE_POS % column_tiles) * width;
    let segment = usize::cast_from(tiles[3 * tile]);
    let first = usize::cast_from(tiles[3 * tile + 1]);
    let rows = usize::cast_from(tiles[3 * tile + 2]) - first;

    let mut sums = Array::<A>::new(comptime!((EACH * EACH) as usize));
    #[unroll]
    for j in 0..comptime!(EACH as usize) {
        let column = first_column + j * side + across;
        let mut start = A::new(0.0_f32);
        #[comptime]
        match bias {
            ComptimeOption::Some(bias) => {
                if column < cols {
                    start = A::cast_from(bias[segment * bias_stride + column]);
                }
            }
            ComptimeOption::None => {}
        }
        #[unroll]
        for i in 0..comptime!(EACH as usize) {
            sums[comptime!(i * EACH as usize + j)] = start;
        }
    }

    let mut left = Shared::<[A]>::new_slice(comptime!(square.shared()));
    let mut right = Shared::<[A]>::new_slice(comptime!(square.shared()));
    let mut from = 0usize;
    while from < inner {
        #[unroll]
        for load in 0..comptime!(square.loads()) {
            let element = load * units + unit;
            let row = element / step;
            let term = element % step;
            let mut value = A::new(0.0_f32);
            if row < rows && from + term < inner {
                let place = slot_of::<I>(order, first + row);
                value = A::cast_from(x[place * x_stride + from + term]);
            }
            left[term * width + row] = value;

            let mut term = element / width;
            let mut column = element % width;
            if comptime!(square.by_rows) {
                term = element % step;
                column = element / step;
            }
            let mut value = A::new(0.0_f32);
            if first_column + column < cols && from + term < inner {
                let at = (from + term) * weight_row_stride + (first_column + column) * weight_column_stride;
                value = A::cast_from(weight[segment * weight_stride + at]);
            }
            right[term * width + column] = value;
        }
        sync_cube();
        add_products::<A>(&left, &right, &mut sums, down, across, square);
        sync_cube();
        from += step;
    }

    #[unroll]
    for i in 0..comptime!(EACH as usize) {
        let row = i * side + down;
        if live && row < rows {
            let place = slot_of::<I>(order, first + row);
            #[unroll]
            for j in 0..comptime!(EACH as usize) {
                let column = first_column + j * side + across;
                if column < cols {
                    out[place * out_stride + column] = F::cast_from(sums[comptime!(i * EACH as usize + j)]);
                }
            }
        }
    }
}

/// `sum of x_i^T y_i` over the rows of each part of a segment: a cube a part, by a square of the matrix.
///
/// `parts` holds where the sums go, the first row and the row past the last of each part. Targets below `segments` are matrices
/// of `out`, the others of `partials`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn segment_outer<F: Float, A: Float, I: Int>(
    parts: &[I],
    order: &ComptimeOption<Box<[I]>>,
    x: &[F],
    y: &[F],
    out: &mut [F],
    partials: &mut [A],
    count: usize,
    segments: usize,
    inner_tiles: usize,
    column_tiles: usize,
    inner: usize,
    cols: usize,
    x_stride: usize,
    y_stride: usize,
    #[comptime] square: Square,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let (side, width) = comptime!((square.side as usize, square.width()));
    let (units, step) = comptime!((square.units() as usize, STEP as usize));
    let unit = UNIT_POS as usize;
    let down = unit / side;
    let across = unit % side;
    let squares = inner_tiles * column_tiles;
    let live = CUBE_POS / squares < count;
    let part = min(CUBE_POS / squares, count - 1);
    let tile = CUBE_POS % squares;
    let first_inner = (tile / column_tiles) * width;
    let first_column = (tile % column_tiles) * width;
    let target = usize::cast_from(parts[3 * part]);
    let first = usize::cast_from(parts[3 * part + 1]);
    let rows = usize::cast_from(parts[3 * part + 2]) - first;

    let mut sums = Array::<A>::new(comptime!((EACH * EACH) as usize));
    #[unroll]
    for i in 0..comptime!((EACH * EACH) as usize) {
        sums[i] = A::new(0.0_f32);
    }
    let mut left = Shared::<[A]>::new_slice(comptime!(square.shared()));
    let mut right = Shared::<[A]>::new_slice(comptime!(square.shared()));
    let mut from = 0usize;
    while from < rows {
        #[unroll]
        for load in 0..comptime!(square.loads()) {
            let element = load * units + unit;
            let term = element / width;
            let column = element % width;
            let mut of_x = A::new(0.0_f32);
            let mut of_y = A::new(0.0_f32);
            if from + term < rows {
                let place = slot_of::<I>(order, first + from + term);
                if first_inner + column < inner {
                    of_x = A::cast_from(x[place * x_stride + first_inner + column]);
                }
                if first_column + column < cols {
                    of_y = A::cast_from(y[place * y_stride + first_column + column]);
                }
            }
            left[term * width + column] = of_x;
            right[term * width + column] = of_y;
        }
        sync_cube();
        add_products::<A>(&left, &right, &mut sums, down, across, square);
        sync_cube();
        from += step;
    }

    #[unroll]
    for i in 0..comptime!(EACH as usize) {
        let row = first_inner + i * side + down;
        #[unroll]
        for j in 0..comptime!(EACH as usize) {
            let column = first_column + j * side + across;
            if live && row < inner && column < cols {
                let sum = sums[comptime!(i * EACH as usize + j)];
                let at = row * cols + column;
                if target < segments {
                    out[target * inner * cols + at] = F::cast_from(sum);
                } else {
                    partials[(target - segments) * inner * cols + at] = sum;
                }
            }
        }
    }
}

/// Adds the parts of each segment that was cut, in their order: a unit an element.
///
/// `cuts` holds the segment, its first part and the part past its last.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn add_parts<F: Float, A: Float, I: Int>(
    cuts: &[I],
    partials: &[A],
    out: &mut [F],
    count: usize,
    block: usize,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let cut = position / block;
    let element = position - cut * block;
    if cut >= count {
        terminate!();
    }
    let mut sum = A::new(0.0_f32);
    for part in usize::cast_from(cuts[3 * cut + 1])..usize::cast_from(cuts[3 * cut + 2]) {
        sum += partials[part * block + element];
    }
    out[usize::cast_from(cuts[3 * cut]) * block + element] = F::cast_from(sum);
}
