//! The kernels of reductions. Types: `F` of the values, `A` of what is computed (f32 for 16-bit values), `I` of the indices.
#![allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]

use crate::backend::gpu::lanes::{Lanes, lanes_sum, slot_of};
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

/// The largest over the lanes of a group, in each of them. Every unit of the cube has to get here.
#[cube]
fn lanes_max<T: Numeric>(value: T, scratch: &mut Shared<[Vector<T, Const<1>>]>, #[comptime] lanes: Lanes) -> T {
    let steps = comptime!(lanes.width.trailing_zeros());
    let mut largest = value;
    if comptime!(lanes.planes && lanes.sync && steps > 0) {
        sync_plane();
    }
    #[unroll]
    for step in 0..steps {
        let partner = comptime!(1u32 << step);
        if comptime!(lanes.planes) {
            let other = plane_shuffle_xor(largest, partner);
            if other > largest {
                largest = other;
            }
        } else {
            scratch[UNIT_POS as usize] = Vector::new(largest);
            sync_cube();
            let other = scratch[(UNIT_POS ^ partner) as usize].extract(0usize);
            sync_cube();
            if other > largest {
                largest = other;
            }
        }
    }
    largest
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

/// The gradient at a place, if there is one.
#[cube]
fn grad_at<F: Float, A: Float>(grad: &ComptimeOption<Box<[F]>>, at: usize) -> A {
    #[comptime]
    match grad {
        ComptimeOption::Some(grad) => A::cast_from(grad[at]),
        ComptimeOption::None => A::new(1.0_f32),
    }
}

/// The lanes of a group share a row: the largest of its elements, then the sum, then what is made of both.
///
/// `infinity` are the bits of that f32: not every shading language can spell it.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn reduce_rows<F: Float, A: Float, I: Int>(
    offsets: &[I],
    slots: &ComptimeOption<Box<[I]>>,
    values: &[F],
    grad: &ComptimeOption<Box<[F]>>,
    out: &mut [F],
    rows: usize,
    positions: usize,
    infinity: u32,
    #[comptime] plan: Plan,
    #[comptime] lanes: Lanes,
    #[define(F, A, I)] _types: [ElemType; 3],
) {
    let lane = (UNIT_POS % lanes.width) as usize;
    let row = CUBE_POS * comptime!(lanes.groups()) + (UNIT_POS / lanes.width) as usize;
    // No early exit: the whole cube meets below.
    let live = row < rows;
    let zero = A::new(0.0_f32);
    // Not `infinity - infinity`, which compilers take for 0.
    let no_number = A::cast_from(f32::reinterpret(infinity + 0x0040_0000_u32));
    let infinity = A::cast_from(f32::reinterpret(infinity));
    let mut start = 0usize;
    let mut end = 0usize;
    if live {
        start = usize::cast_from(offsets[row]);
        end = usize::cast_from(offsets[row + 1]);
    }
    let length = end - start;
    let mut absents = 0usize;
    if comptime!(plan.absent) {
        if positions > length {
            absents = positions - length;
        }
    }
    let mut scratch = Shared::<[Vector<A, Const<1>>]>::new_slice(comptime!(lanes.scratch()));

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
                nan = A::new(1.0_f32);
            }
            entry += comptime!(lanes.width as usize);
        }
        largest = lanes_max::<A>(largest, &mut scratch, lanes);
        nan = lanes_max::<A>(nan, &mut scratch, lanes);
    }
    let is_nan = nan > zero;
    // What is taken from the elements before the exponential.
    let mut shift = largest;
    if largest == -infinity {
        shift = zero;
    }
    if absents > 0 {
        if largest < zero {
            shift = zero;
        }
    }
    // Whether a Euclidean length can be scaled by its largest element.
    let scales = largest > zero && largest < infinity;

    let mut sum = zero;
    if comptime!(plan.adds()) {
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

    let mut count = length;
    if comptime!(plan.absent) {
        count = positions;
    }
    if count == 0 {
        count = 1;
    }
    let mut result = sum;
    if comptime!(plan.kind == Kind::Mean) {
        result = sum / A::cast_from(count);
    }
    if comptime!(plan.kind == Kind::LogSumExp) {
        // Equality, here and below: to some devices NaN is not unequal to anything.
        result = shift + sum.ln();
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
        if scales {
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
    if comptime!(plan.task == Task::Reduce) {
        if live && lane == 0 {
            out[row] = F::cast_from(result);
        }
    } else {
        // How far before the end of the row the chosen element stands; 0 if there is none.
        let mut chosen = 0u32;
        if comptime!(plan.selects()) {
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
        // Where all are -inf nothing has a weight.
        let mut scale = A::new(1.0_f32) / sum;
        let mut log = sum.ln();
        if sum == zero {
            scale = zero;
            log = zero;
        }
        let mut of_row = A::new(1.0_f32);
        if comptime!(plan.task == Task::Derive) {
            if live {
                of_row = grad_at::<F, A>(grad, row);
            }
        }
        if comptime!(plan.per_entry()) {
            of_row = zero;
            let mut entry = start + lane;
            while entry < end {
                let slot = slot_of::<I>(slots, entry);
                let g = grad_at::<F, A>(grad, slot);
                if comptime!(plan.task == Task::SoftmaxBackward) {
                    of_row += (A::cast_from(values[slot]) - shift).exp() * scale * g;
                } else {
                    of_row += g;
                }
                entry += comptime!(lanes.width as usize);
            }
            of_row = lanes_sum::<A, Const<1>>(Vector::new(of_row), &mut scratch, lanes).extract(0usize);
        }
        let mut entry = start + lane;
        while entry < end {
            let slot = slot_of::<I>(slots, entry);
            let x = A::cast_from(values[slot]);
            let mut y = of_row;
            if comptime!(plan.kind == Kind::Mean) {
                y = of_row / A::cast_from(count);
            }
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
                    y = weight * (grad_at::<F, A>(grad, slot) - of_row);
                } else if comptime!(plan.task == Task::LogSoftmaxBackward) {
                    y = grad_at::<F, A>(grad, slot) - weight * of_row;
                    if sum == zero {
                        y = zero;
                    }
                } else {
                    y = weight * of_row;
                }
            }
            out[slot] = F::cast_from(y);
            entry += comptime!(lanes.width as usize);
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
