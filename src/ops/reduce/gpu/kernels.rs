//! The kernels of reductions. Types: `F` of the values, `A` of what is computed (f32 for 16-bit values), `O` of what is written,
//! `I` of the indices.
//!
//! A row is reduced by the lanes of a group. Long rows take three launches: pieces of them are reduced to parts, as a row would be;
//! the parts of each row are merged in their order; and where entries are written, the pieces are gone through again. A part is
//! [`PART`] numbers.
#![allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]

use crate::backend::gpu::lanes::{Lanes, lanes_max, lanes_sum, slot_of};
use cubecl::prelude::*;

/// What is made of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
    /// The logarithm of the sum of exponentials.
    LogSumExp,
    /// The sum of absolute values.
    L1,
    /// The Euclidean length.
    L2,
    /// The largest absolute value.
    LargestSize,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// The result of each row.
    Reduce,
    /// The gradient of the values from that of the results.
    Derive,
    /// The softmax.
    Softmax,
    /// Its logarithm.
    LogSoftmax,
    /// The gradient of the values from that of their softmax.
    SoftmaxBackward,
    /// The same of its logarithm.
    LogSoftmaxBackward,
}

/// What a kernel is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// What is made of a row.
    pub kind: Kind,
    /// What is written.
    pub task: Task,
    /// Whether positions without an entry count as zeros.
    pub absent: bool,
}

/// What a launch goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Rows of at most so many entries, from beginning to end.
    Rows {
        /// `None` for all rows.
        longest: Option<u32>,
    },
    /// Pieces of rows, up to what is to be merged.
    Pieces,
    /// Pieces of rows, from what was merged.
    Finish,
}

impl Stage {
    /// Where the bounds of a row, or piece, lie beside those of the one before.
    fn step(&self) -> usize {
        if matches!(self, Self::Rows { .. }) { 1 } else { 2 }
    }

    /// The longest row that is gone through.
    fn longest(&self) -> Option<u32> {
        match self {
            Self::Rows { longest } => *longest,
            _ => None,
        }
    }
}

/// Numbers of a part. Of a piece: the largest element, whether there is NaN, the sum, how far before the end the chosen element
/// stands, the sum of gradients. After the merge: what is taken before exponentials, the result, the sum of the row, the chosen
/// element as before if it is the row's, and the gradient of the row.
pub const PART: usize = 5;

impl Plan {
    /// Whether the first step looks for the largest.
    fn largest(&self) -> bool {
        !matches!(self.kind, Kind::Sum | Kind::Mean | Kind::L1)
    }

    /// Whether the gradient goes to the largest alone.
    fn selects(&self) -> bool {
        matches!(self.kind, Kind::Max | Kind::Min | Kind::LargestSize)
    }

    /// Whether the elements are added up.
    fn adds(&self) -> bool {
        !self.selects()
    }

    /// Whether a gradient comes for each entry.
    fn per_entry(&self) -> bool {
        matches!(self.task, Task::SoftmaxBackward | Task::LogSoftmaxBackward)
    }
}

/// The element that is compared or added.
#[cube]
fn element<F: Float, A: Float>(value: F, #[comptime] kind: Kind) -> A {
    let value = A::cast_from(value);
    if comptime!(kind == Kind::Min) {
        -value
    } else if comptime!(matches!(kind, Kind::L1 | Kind::L2 | Kind::LargestSize)) {
        value.abs()
    } else {
        value
    }
}

#[cube]
fn sign<A: Float>(value: A) -> A {
    let mut sign = value; // 0, or NaN
    if value > A::new(0.0_f32) {
        sign = A::new(1.0_f32);
    }
    if value < A::new(0.0_f32) {
        sign = A::new(-1.0_f32);
    }
    sign
}

#[cube]
fn not_a_number<A: Float>(value: A) -> bool {
    bool::cast_from(value.is_nan())
}

/// The number at a place, 1 without numbers.
#[cube]
fn number_at<F: Float, A: Float>(numbers: &ComptimeOption<Box<[F]>>, at: usize) -> A {
    #[comptime]
    match numbers {
        ComptimeOption::Some(numbers) => A::cast_from(numbers[at]),
        ComptimeOption::None => A::new(1.0_f32),
    }
}

/// What is taken from the elements before exponentials.
#[cube]
fn shift_of<A: Float>(largest: A, absents: usize, infinity: A) -> A {
    let zero = A::new(0.0_f32);
    let mut shift = largest;
    if largest == -infinity {
        shift = zero;
    }
    if absents > 0 {
        if largest < zero {
            shift = zero;
        }
    }
    shift
}

/// How many positions of a row have no entry.
#[cube]
fn absents_of(length: usize, positions: usize, #[comptime] plan: Plan) -> usize {
    let mut absents = 0usize;
    if comptime!(plan.absent) {
        if positions > length {
            absents = positions - length;
        }
    }
    absents
}

/// How many elements a mean is over.
#[cube]
fn count_of(length: usize, positions: usize, #[comptime] plan: Plan) -> usize {
    let mut count = length;
    if comptime!(plan.absent) {
        count = positions;
    }
    if count == 0 {
        count = 1;
    }
    count
}

/// The result of a row, of its largest element and the sum of its elements.
///
/// `infinity` are the bits of that f32: not every shading language can spell it.
#[cube]
fn result_of<A: Float>(
    largest: A,
    is_nan: bool,
    sum: A,
    length: usize,
    positions: usize,
    infinity: u32,
    #[comptime] plan: Plan,
) -> A {
    let zero = A::new(0.0_f32);
    // Not `infinity - infinity`, which compilers take for 0.
    let no_number = A::cast_from(f32::reinterpret(infinity + 0x0040_0000_u32));
    let infinity = A::cast_from(f32::reinterpret(infinity));
    let absents = absents_of(length, positions, plan);
    let mut result = sum;
    if comptime!(plan.kind == Kind::Mean) {
        result = sum / A::cast_from(count_of(length, positions, plan));
    }
    if comptime!(plan.kind == Kind::LogSumExp) {
        // Equality, here and below: to some devices NaN is not unequal to anything.
        result = shift_of::<A>(largest, absents, infinity) + sum.ln();
        if sum == zero {
            result = -infinity;
        }
        if largest == infinity {
            if !is_nan {
                result = infinity;
            }
        }
    }
    if comptime!(plan.selects()) {
        result = largest;
        if absents > 0 {
            if largest < zero {
                result = zero;
            }
        }
    }
    if comptime!(plan.kind == Kind::Min) {
        result = zero - result;
    }
    if comptime!(plan.kind == Kind::L2) {
        result = largest;
        if largest > zero && largest < infinity {
            result = largest * sum.sqrt();
        }
    }
    if comptime!(matches!(plan.kind, Kind::L2 | Kind::LargestSize)) {
        if length == 0 {
            result = zero;
        }
    }
    if comptime!(plan.largest()) {
        if is_nan {
            result = no_number;
        }
    }
    result
}

/// The lanes of a group share a row, or a piece of one: the largest of its elements, then the sum, then what is made of both.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn reduce_rows<F: Float, A: Float, O: Float, I: Int>(
    bounds: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    values: &[F],
    grad: &ComptimeOption<Box<[F]>>,
    parts: &ComptimeOption<Box<[A]>>,
    out: &mut [O],
    rows: usize,
    positions: usize,
    infinity: u32,
    #[comptime] plan: Plan,
    #[comptime] stage: Stage,
    #[comptime] lanes: Lanes,
    #[define(F, A, O, I)] _types: [ElemType; 4],
) {
    let lane = (UNIT_POS % lanes.width) as usize;
    let row = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    // No early exit: the whole cube meets below.
    let mut live = row < rows;
    let zero = A::new(0.0_f32);
    let one = A::new(1.0_f32);
    let mut start = 0usize;
    let mut end = 0usize;
    if live {
        let at = row * comptime!(stage.step());
        start = usize::cast_from(bounds[at]);
        end = usize::cast_from(bounds[at + 1]);
        if comptime!(stage.longest().is_some()) {
            if end - start > comptime!(stage.longest().unwrap_or(0) as usize) {
                live = false;
                end = start;
            }
        }
    }
    let length = end - start;
    let mut shift = zero;
    let mut sum = zero;
    let mut result = zero;
    // How far before the end of the row the chosen element stands; 0 if there is none.
    let mut chosen = 0u32;
    let mut of_row = one;
    if comptime!(stage == Stage::Finish) {
        if live {
            shift = number_at::<A, A>(parts, row * PART);
            result = number_at::<A, A>(parts, row * PART + 1);
            sum = number_at::<A, A>(parts, row * PART + 2);
            chosen = u32::cast_from(number_at::<A, A>(parts, row * PART + 3));
            of_row = number_at::<A, A>(parts, row * PART + 4);
        }
    } else {
        let mut scratch = Shared::<[Vector<A, Const<1>>]>::new_slice(comptime!(lanes.scratch()));
        let bits = infinity;
        let infinity = A::cast_from(f32::reinterpret(infinity));
        let mut absents = 0usize;
        if comptime!(stage != Stage::Pieces) {
            absents = absents_of(length, positions, plan);
        }
        let mut largest = -infinity;
        let mut nan = zero;
        if comptime!(plan.largest()) {
            let mut entry = start + lane;
            while entry < end {
                let x = element::<F, A>(values[slot_of::<I>(slots, entry)], plan.kind);
                if x > largest {
                    largest = x;
                }
                if not_a_number::<A>(x) {
                    nan = one;
                }
                entry += comptime!(lanes.width as usize);
            }
            largest = lanes_max::<A>(largest, &mut scratch, lanes);
            nan = lanes_max::<A>(nan, &mut scratch, lanes);
        }
        let is_nan = nan > zero;
        shift = shift_of::<A>(largest, absents, infinity);
        if comptime!(plan.adds()) {
            // Whether a Euclidean length can be scaled by its largest element.
            let scales = largest > zero && largest < infinity;
            let mut entry = start + lane;
            while entry < end {
                let x = element::<F, A>(values[slot_of::<I>(slots, entry)], plan.kind);
                if comptime!(plan.kind == Kind::LogSumExp) {
                    sum += (x - shift).exp();
                } else if comptime!(plan.kind == Kind::L2) {
                    if scales {
                        let scaled = x / largest;
                        sum += scaled * scaled;
                    }
                } else {
                    sum += x;
                }
                entry += comptime!(lanes.width as usize);
            }
            sum = lanes_sum::<A, Const<1>>(Vector::new(sum), &mut scratch, lanes).extract(0usize);
            if comptime!(plan.kind == Kind::LogSumExp) {
                if absents > 0 {
                    sum += A::cast_from(absents) * (-shift).exp();
                }
            }
        }
        if comptime!(plan.selects() && plan.task != Task::Reduce) {
            let mut entry = start + lane;
            while entry < end {
                let x = element::<F, A>(values[slot_of::<I>(slots, entry)], plan.kind);
                let found = (is_nan && not_a_number::<A>(x)) || (!is_nan && x == largest && !(absents > 0 && x < zero));
                if found && chosen == 0 {
                    chosen = u32::cast_from(end - entry);
                }
                entry += comptime!(lanes.width as usize);
            }
            let mut scratch = Shared::<[Vector<u32, Const<1>>]>::new_slice(comptime!(lanes.scratch()));
            chosen = lanes_max::<u32>(chosen, &mut scratch, lanes);
        }
        if comptime!(plan.per_entry()) {
            // Weights are divided by their sum here, or when it is known.
            let mut scale = one;
            if comptime!(stage != Stage::Pieces) {
                scale = one / sum;
                if sum == zero {
                    scale = zero;
                }
            }
            of_row = zero;
            let mut entry = start + lane;
            while entry < end {
                let slot = slot_of::<I>(slots, entry);
                let g = number_at::<F, A>(grad, slot);
                if comptime!(plan.task == Task::SoftmaxBackward) {
                    of_row += (A::cast_from(values[slot]) - shift).exp() * scale * g;
                } else {
                    of_row += g;
                }
                entry += comptime!(lanes.width as usize);
            }
            of_row = lanes_sum::<A, Const<1>>(Vector::new(of_row), &mut scratch, lanes).extract(0usize);
        }
        if comptime!(stage == Stage::Pieces) {
            if live && lane == 0 {
                out[row * PART] = O::cast_from(largest);
                out[row * PART + 1] = O::cast_from(nan);
                out[row * PART + 2] = O::cast_from(sum);
                out[row * PART + 3] = O::cast_from(chosen);
                out[row * PART + 4] = O::cast_from(of_row);
            }
        } else {
            result = result_of::<A>(largest, is_nan, sum, length, positions, bits, plan);
            if comptime!(plan.task == Task::Derive) {
                if live {
                    of_row = number_at::<F, A>(grad, row);
                }
            }
            if comptime!(plan.kind == Kind::Mean) {
                of_row /= A::cast_from(count_of(length, positions, plan));
            }
        }
    }
    if comptime!(stage != Stage::Pieces) {
        if comptime!(plan.task == Task::Reduce) {
            if live && lane == 0 {
                out[row] = O::cast_from(result);
            }
        } else {
            // Where all are -inf nothing has a weight.
            let mut scale = one / sum;
            let mut log = sum.ln();
            if sum == zero {
                scale = zero;
                log = zero;
            }
            let mut entry = start + lane;
            while entry < end {
                let slot = slot_of::<I>(slots, entry);
                let x = A::cast_from(values[slot]);
                let mut y = of_row;
                if comptime!(plan.kind == Kind::L1) {
                    y = sign::<A>(x) * of_row;
                }
                if comptime!(plan.kind == Kind::L2) {
                    y = x / result * of_row;
                    if result == zero {
                        y = zero;
                    }
                }
                if comptime!(plan.selects()) {
                    y = zero;
                    if chosen == u32::cast_from(end - entry) {
                        y = of_row;
                        if comptime!(plan.kind == Kind::LargestSize) {
                            y = sign::<A>(x) * of_row;
                        }
                    }
                }
                if comptime!(plan.kind == Kind::LogSumExp) {
                    let weight = (x - shift).exp() * scale;
                    if comptime!(plan.task == Task::LogSoftmax) {
                        y = (x - shift) - log;
                    } else if comptime!(plan.task == Task::SoftmaxBackward) {
                        y = weight * (number_at::<F, A>(grad, slot) - of_row);
                    } else if comptime!(plan.task == Task::LogSoftmaxBackward) {
                        y = number_at::<F, A>(grad, slot) - weight * of_row;
                        if sum == zero {
                            y = zero;
                        }
                    } else {
                        y = weight * of_row;
                    }
                }
                out[slot] = O::cast_from(y);
                entry += comptime!(lanes.width as usize);
            }
        }
    }
}

/// Merges the parts of each long row in their order, a unit a row: writes the result, or for each of its pieces what entries are
/// made of.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn merge_parts<F: Float, A: Float, I: Int>(
    first_pieces: &[I],
    bounds: &[I],
    rows: &[I],
    grad: &ComptimeOption<Box<[F]>>,
    parts: &mut [A],
    out: &mut [F],
    long_rows: usize,
    positions: usize,
    infinity: u32,
    #[comptime] plan: Plan,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let long = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if long >= long_rows {
        terminate!();
    }
    let row = usize::cast_from(rows[long]);
    let first = usize::cast_from(first_pieces[long]);
    let end = usize::cast_from(first_pieces[long + 1]);
    let length = usize::cast_from(bounds[2 * end - 1]) - usize::cast_from(bounds[2 * first]);
    let absents = absents_of(length, positions, plan);
    let zero = A::new(0.0_f32);
    let bits = infinity;
    let infinity = A::cast_from(f32::reinterpret(infinity));

    let mut largest = -infinity;
    let mut nan = zero;
    for piece in first..end {
        let of_piece = parts[piece * PART];
        if of_piece > largest {
            largest = of_piece;
        }
        if parts[piece * PART + 1] > zero {
            nan = A::new(1.0_f32);
        }
    }
    let is_nan = nan > zero;
    let shift = shift_of::<A>(largest, absents, infinity);
    let mut sum = zero;
    let mut of_row = zero;
    for piece in first..end {
        // What the piece's sum is multiplied with to be one of the row's.
        let of_piece = parts[piece * PART];
        let part = parts[piece * PART + 2];
        let mut factor = A::new(1.0_f32);
        if comptime!(plan.kind == Kind::LogSumExp) {
            // That of -inf alone is 0, whatever it is shifted by.
            if of_piece > -infinity {
                factor = (of_piece - shift).exp();
            }
        }
        if comptime!(plan.kind == Kind::L2) {
            if of_piece < infinity && largest < infinity && largest > zero {
                factor = (of_piece / largest) * (of_piece / largest);
            }
        }
        sum += part * factor;
        if comptime!(plan.task == Task::SoftmaxBackward) {
            of_row += parts[piece * PART + 4] * factor;
        } else {
            of_row += parts[piece * PART + 4];
        }
    }
    if comptime!(plan.kind == Kind::LogSumExp) {
        if absents > 0 {
            sum += A::cast_from(absents) * (-shift).exp();
        }
    }
    let result = result_of::<A>(largest, is_nan, sum, length, positions, bits, plan);
    if comptime!(plan.task == Task::Reduce) {
        out[row] = F::cast_from(result);
    } else {
        if comptime!(plan.task == Task::SoftmaxBackward) {
            of_row /= sum;
            if sum == zero {
                of_row = zero;
            }
        }
        if comptime!(plan.task == Task::Derive) {
            of_row = number_at::<F, A>(grad, row);
        }
        if comptime!(matches!(plan.task, Task::Softmax | Task::LogSoftmax)) {
            of_row = A::new(1.0_f32);
        }
        if comptime!(plan.kind == Kind::Mean) {
            of_row /= A::cast_from(count_of(length, positions, plan));
        }
        let mut looking = !(absents > 0 && !is_nan && largest < zero);
        for piece in first..end {
            let mut found = looking && parts[piece * PART] == largest;
            if is_nan {
                found = looking && parts[piece * PART + 1] > zero;
            }
            if found {
                looking = false;
            } else {
                parts[piece * PART + 3] = zero;
            }
            parts[piece * PART] = shift;
            parts[piece * PART + 1] = result;
            parts[piece * PART + 2] = sum;
            parts[piece * PART + 4] = of_row;
        }
    }
}

/// Writes the number of its row to each entry, a unit an entry.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn expand_rows<F: Float, I: Int>(
    rows: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    of_rows: &[F],
    out: &mut [F],
    entries: usize,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let entry = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if entry >= entries {
        terminate!();
    }
    out[slot_of::<I>(slots, entry)] = of_rows[usize::cast_from(rows[entry])];
}
