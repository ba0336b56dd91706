//! Exponentials of vectors.
#![allow(clippy::excessive_precision, reason = "coefficients as they were published")]

use crate::backend::scalar::Accumulator;
use crate::backend::simd::{Isa, load, store};
use std::ops::{Div, Neg, Sub};

/// Vectors have so many lanes.
pub(crate) const LANES: usize = 16;

/// What the reductions compute in: `f32` or `f64`.
pub(crate) trait Real:
    Accumulator + PartialOrd + Sub<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    const ONE: Self;
    const INFINITY: Self;
    /// From here on down [`exp`] rounds to 0.
    const LOWEST: Self;
    const LOG2_E: Self;
    /// Minus the logarithm of 2 in two parts: multiples of the first are exact.
    const MINUS_LN_2: [Self; 2];
    /// Adding it rounds to an integer, which is then in the last bits.
    const ROUND: Self;
    /// A power of 2 that brings results back to where they may be subnormal.
    const SCALE: Self;
    /// Of the polynomial, from the highest power.
    const COEFFICIENTS: &'static [Self];
    /// `2^n / SCALE`, from `ROUND + n`.
    fn power_of_two(self) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn of(count: usize) -> Self;
}

macro_rules! real {
    ($real:ident, $bits:ident, lowest $lowest:literal, ln2 $high:literal $low:literal, scale $scale:literal,
        coefficients $coefficients:expr) => {
        impl Real for $real {
            const ONE: Self = 1.0;
            const INFINITY: Self = $real::INFINITY;
            const LOWEST: Self = $lowest;
            const LOG2_E: Self = std::$real::consts::LOG2_E;
            const MINUS_LN_2: [Self; 2] = [-$high, -$low];
            const ROUND: Self = 1.5 * (1 as $bits).wrapping_shl($real::MANTISSA_DIGITS - 1) as $real;
            const SCALE: Self = 1.0 / (1u64 << $scale) as $real;
            const COEFFICIENTS: &'static [Self] = &$coefficients;
            #[inline(always)]
            fn power_of_two(self) -> Self {
                let bias = ($real::MAX_EXP - 1 + $scale) as $bits;
                let n = self.to_bits().wrapping_sub(Self::ROUND.to_bits());
                $real::from_bits(n.wrapping_add(bias) << ($real::MANTISSA_DIGITS - 1))
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $real::exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $real::ln(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $real::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $real::abs(self)
            }
            #[inline(always)]
            fn of(count: usize) -> Self {
                count as $real
            }
        }
    };
}
// Minimax, of Cephes' expf.
real!(f32, u32, lowest -104.0, ln2 0.693_359_375 -2.121_944_4e-4, scale 30, coefficients [
    1.987_569_15e-4, 1.398_199_95e-3, 8.333_451_9e-3, 4.166_579_6e-2, 1.666_666_55e-1, 0.5, 1.0, 1.0,
]);
// Taylor: what is left out is below 2^-57.
real!(f64, u64, lowest -745.2, ln2 6.931_471_803_691_238e-1 1.908_214_929_270_587_7e-10, scale 60, coefficients [
    1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0, 1.0 / 3_628_800.0, 1.0 / 362_880.0, 1.0 / 40_320.0,
    1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0,
]);

/// `e^x` for x <= 64, within 1 unit in the last place where the result is normal; subnormal results are rounded again. NaN for NaN.
///
/// With x = n ln 2 + r a polynomial makes `e^r`, |r| <= ln 2 / 2, and an exponent `2^n`.
#[inline(always)]
fn exp<S: Isa, A: Real, const N: usize>(x: [A; N]) -> [A; N] {
    let mut x = x;
    for x in &mut x {
        *x = if *x < A::LOWEST { A::LOWEST } else { *x };
    }
    let rounded = S::mul_add(x, [A::LOG2_E; N], [A::ROUND; N]);
    let n = S::add(rounded, [-A::ROUND; N]);
    let r = S::mul_add(n, [A::MINUS_LN_2[0]; N], x);
    let r = S::mul_add(n, [A::MINUS_LN_2[1]; N], r);
    let mut result = [A::COEFFICIENTS[0]; N];
    for &coefficient in &A::COEFFICIENTS[1..] {
        result = S::mul_add(result, r, [coefficient; N]);
    }
    for lane in 0..N {
        result[lane] = result[lane] * rounded[lane].power_of_two() * A::SCALE;
    }
    result
}

/// `e^x` of each, in place; all are at most 64, and their number is a multiple of [`LANES`].
#[inline(always)]
pub(crate) fn exp_all<S: Isa, A: Real>(x: &mut [A]) {
    for x in x.chunks_exact_mut(LANES) {
        // SAFETY: there are as many.
        unsafe { store::<A, LANES>(exp::<S, A, LANES>(load::<A, LANES>(x.as_ptr())), x.as_mut_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::simd::{self, Kernel};

    struct Exp<'a, A>(&'a mut [A]);
    impl<A: Real> Kernel for Exp<'_, A> {
        #[inline(always)]
        fn run<S: Isa>(self) {
            exp_all::<S, A>(self.0);
        }
    }

    #[test]
    fn exponentials_are_within_an_ulp() {
        let x: Vec<f32> = (0..1_600_000).map(|i| 40.0 - (i as f32) * 9e-5).collect();
        let mut y = x.clone();
        simd::run(Exp(&mut y));
        let mut worst = 0f64;
        for (x, y) in x.iter().zip(&y) {
            let exact = f64::from(*x).exp();
            let ulp = f64::from(f32::from_bits((exact as f32).to_bits().max(1 << 23)).next_up())
                - f64::from(f32::from_bits((exact as f32).to_bits().max(1 << 23)));
            worst = worst.max((f64::from(*y) - exact).abs() / ulp);
        }
        assert!(worst <= 1.0, "f32: {worst} ulp");

        let x: Vec<f64> = (0..800_000).map(|i| 40.0 - (i as f64) * 9.37e-4).collect();
        let mut y = x.clone();
        simd::run(Exp(&mut y));
        // The library's own is off by up to one.
        for (x, y) in x.iter().zip(&y) {
            let expected = x.exp();
            let steps = expected.to_bits().abs_diff(y.to_bits());
            assert!(steps <= 2, "f64: exp({x}) = {y:e}, {expected:e}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        fn check<A: Real>(x: impl Fn(f64) -> A) {
            let mut values = [0.0, -0.0, f64::NEG_INFINITY, f64::NAN, -1e30, -1000.0].map(x).to_vec();
            values.resize(LANES, A::ZERO);
            simd::run(Exp(&mut values));
            let [one, also, zero, nan, rest @ ..] = &values[..6] else { unreachable!() };
            assert!(*one == A::ONE && *also == A::ONE && *zero == A::ZERO && *nan != *nan);
            assert!(rest.iter().all(|&x| x == A::ZERO));
        }
        check(|x| x as f32);
        check(|x| x);
    }
}
