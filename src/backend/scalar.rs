//! Element types of the kernels, and the types they accumulate in.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg};

use half::{bf16, f16};

/// What a kernel adds in: `f32` or `f64`.
pub trait Accumulator:
    Copy
    + Debug
    + PartialEq
    + Add<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + From<f32>
    + Into<f64>
    + Scalar<Acc = Self>
{
    /// Zero.
    const ZERO: Self;
    /// All bits set.
    const ONES: Self;
    /// The bits that are set in `mask`, too.
    fn masked(self, mask: Self) -> Self;
    /// `self * b + c`, rounded once. A library call where the processor has no such instruction.
    fn mul_add(self, b: Self, c: Self) -> Self;
}

/// An element type of sparse values and dense operands.
pub trait Scalar: bytemuck::Pod + Send + Sync + 'static {
    /// The type that sums are formed in.
    type Acc: Accumulator;
    /// Whether sums are formed in the type itself: nothing is to be converted, and an output may hold partial sums.
    const ACCUMULATES: bool;
    /// Exact.
    fn widen(self) -> Self::Acc;
    /// Rounds to the nearest, ties to even.
    fn narrow(sum: Self::Acc) -> Self;
}

/// The elements as what they are summed in, where that is their own type.
pub(crate) fn as_sums<E: Scalar>(elements: &[E]) -> Option<&[E::Acc]> {
    // SAFETY: what accumulates in itself is its own accumulator.
    E::ACCUMULATES.then(|| unsafe { &*(std::ptr::from_ref(elements) as *const [E::Acc]) })
}

macro_rules! accumulator {
    ($($real:ty)*) => {$(
        impl Accumulator for $real {
            const ZERO: Self = 0.0;
            const ONES: Self = Self::from_bits(!0);
            #[inline(always)]
            fn masked(self, mask: Self) -> Self {
                Self::from_bits(self.to_bits() & mask.to_bits())
            }
            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                <$real>::mul_add(self, b, c)
            }
        }

        impl Scalar for $real {
            type Acc = $real;
            const ACCUMULATES: bool = true;
            #[inline(always)]
            fn widen(self) -> $real {
                self
            }
            #[inline(always)]
            fn narrow(sum: $real) -> Self {
                sum
            }
        }
    )*};
}
accumulator!(f32 f64);

// The conversions of the 16-bit types are free of branches and of calls, so that loops over them vectorise on any
// instruction set. (Those of `half` ask for the processor's features each time.)

impl Scalar for bf16 {
    type Acc = f32;
    const ACCUMULATES: bool = false;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(sum: f32) -> Self {
        let bits = sum.to_bits();
        // Adding just under half a unit, or half of one if the last bit is odd, carries when it should.
        let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
        // A NaN must not round to an infinity: keep its top bits and make it quiet.
        let quiet = (bits >> 16) as u16 | 0x40;
        Self::from_bits(if sum.is_nan() { quiet } else { rounded })
    }
}

impl Scalar for f16 {
    type Acc = f32;
    const ACCUMULATES: bool = false;
    #[inline(always)]
    fn widen(self) -> f32 {
        /// 2^112, the ratio of what the same exponent bits mean in the two formats.
        const SCALE: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.to_bits());
        // Read as f32, denormals of f16 are denormals: the exact product makes them, too, what they were.
        let finite = (f32::from_bits((bits & 0x7fff) << 13) * SCALE).to_bits();
        let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        f32::from_bits(finite | special | (bits & 0x8000) << 16)
    }
    #[inline(always)]
    fn narrow(sum: f32) -> Self {
        /// From here on every finite number rounds to infinity, which the carry of `normal` does not see.
        const OVERFLOW: u32 = (127 + 16) << 23;
        /// The smallest normal number of f16.
        const NORMAL: u32 = (127 - 14) << 23;
        /// A number whose last bit is worth the last bit of a denormal of f16.
        const UNIT: u32 = (127 - 1) << 23;
        let magnitude = sum.to_bits() & 0x7fff_ffff;
        let sign = (sum.to_bits() >> 16 & 0x8000) as u16;
        // The addition rounds to the unit; what it adds to the bits is the result.
        let denormal = (f32::from_bits(magnitude) + f32::from_bits(UNIT)).to_bits().wrapping_sub(UNIT);
        let rebased = magnitude.wrapping_sub((127 - 15) << 23);
        let normal = rebased.wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
        let rounded = if magnitude < NORMAL { denormal } else { normal } as u16;
        let special = if sum.is_nan() { 0x7e00 } else { 0x7c00 };
        Self::from_bits(sign | if magnitude >= OVERFLOW { special } else { rounded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_is_exact_for_all_bit_patterns() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            let same =
                |ours: f32, theirs: f32| ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan());
            assert!(same(h.widen(), h.to_f32()), "f16 {bits:#x}");
            assert!(same(b.widen(), b.to_f32()), "bf16 {bits:#x}");
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        // Every 16-bit prefix with low bits around all the ties, and a stride through everything else.
        let ends = [0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff];
        let near = (0..=0xffff_u32).flat_map(|high| ends.map(|low| high << 16 | low));
        for bits in near.chain((0..=u32::MAX).step_by(977)) {
            let x = f32::from_bits(bits);
            let (h, b) = (f16::narrow(x), bf16::narrow(x));
            if x.is_nan() {
                assert!(h.is_nan() && b.is_nan(), "{bits:#x}");
            } else {
                assert_eq!(h.to_bits(), f16::from_f32(x).to_bits(), "f16 {bits:#x}");
                assert_eq!(b.to_bits(), bf16::from_f32(x).to_bits(), "bf16 {bits:#x}");
            }
        }
    }
}
