//! Exponentials and logarithms of vectors.
#![allow(clippy::excessive_precision, reason = "coefficients as they were published")]

use crate::backend::scalar::Accumulator;
use crate::backend::simd::{Isa, each, load, store};
use std::ops::{Div, Neg, Sub};

/// Vectors have so many lanes.
pub(crate) const LANES: usize = 16;

/// What the reductions compute in: `f32` or `f64`.
pub(crate) trait Real:
    Accumulator + PartialOrd + Sub<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    const ONE: Self;
    const INFINITY: Self;
    /// Below it [`exp`] rounds to 0.
    const LOWEST: Self;
    /// The least number that is normal.
    const NORMAL: Self;
    const LOG2_E: Self;
    /// Minus the logarithm of 2 in two parts: multiples of the first are exact.
    const MINUS_LN_2: [Self; 2];
    /// Adding it rounds to an integer, which is then in the last bits.
    const ROUND: Self;
    /// A power of 2 that brings results back to where they may be subnormal.
    const SCALE: Self;
    /// Of the polynomial of [`exp`], from the highest power.
    const COEFFICIENTS: &'static [Self];
    /// Of the polynomial of [`ln`], from the highest power.
    const LN_COEFFICIENTS: &'static [Self];
    /// [`LANES`] times all bits set, then none: from `LANES - n` on, a mask of the first n lanes.
    const MASKS: [Self; 2 * LANES];
    /// 0 where the masks have bits, else -inf.
    const FILL: [Self; 2 * LANES];
    /// `2^n / SCALE`, from `ROUND + n`.
    fn power_of_two(self) -> Self;
    fn exp(self) -> Self;
    /// m and n of a normal number m 2^n, with m from sqrt(1/2) to sqrt(2).
    fn split(self) -> (Self, Self);
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn of(count: usize) -> Self;
}

macro_rules! real {
    ($real:ident, $bits:ident, lowest $lowest:literal, ln2 $high:literal $low:literal, scale $scale:literal,
        exp $coefficients:expr, ln $ln_coefficients:expr) => {
        impl Real for $real {
            const ONE: Self = 1.0;
            const INFINITY: Self = $real::INFINITY;
            const LOWEST: Self = $lowest;
            const NORMAL: Self = $real::MIN_POSITIVE;
            const LOG2_E: Self = std::$real::consts::LOG2_E;
            const MINUS_LN_2: [Self; 2] = [-$high, -$low];
            const ROUND: Self = 1.5 * (1 as $bits).wrapping_shl($real::MANTISSA_DIGITS - 1) as $real;
            const SCALE: Self = 1.0 / (1u64 << $scale) as $real;
            const COEFFICIENTS: &'static [Self] = &$coefficients;
            const LN_COEFFICIENTS: &'static [Self] = &$ln_coefficients;
            const MASKS: [Self; 2 * LANES] = halves(Self::ONES, Self::ZERO);
            const FILL: [Self; 2 * LANES] = halves(Self::ZERO, -Self::INFINITY);
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
            fn split(self) -> (Self, Self) {
                const BITS: u32 = $real::MANTISSA_DIGITS - 1;
                const HALF_RANGE: $bits = $real::MAX_EXP as $bits;
                const SQRT_HALF: $bits = std::$real::consts::FRAC_1_SQRT_2.to_bits();
                // Bits of a number as large as it has values: adding n counts up from there.
                let whole = ((1 as $bits) << BITS) as $real;
                let scaled = self.to_bits().wrapping_sub(SQRT_HALF);
                let mantissa = $real::from_bits((scaled & (((1 as $bits) << BITS) - 1)) + SQRT_HALF);
                let n = $real::from_bits(scaled.wrapping_add(HALF_RANGE << BITS) >> BITS | whole.to_bits());
                (mantissa, n - (whole + HALF_RANGE as $real))
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
                count as i64 as $real // a count is no more than that, and signed ones are faster to convert
            }
        }
    };
}
// Minimax, of Cephes' expf; of FreeBSD's logf.
real!(f32, u32, lowest -104.0, ln2 0.693_359_375 -2.121_944_4e-4, scale 30, exp [
    1.987_569_15e-4, 1.398_199_95e-3, 8.333_451_9e-3, 4.166_579_6e-2, 1.666_666_55e-1, 0.5, 1.0, 1.0,
], ln [2.427_907_884_1e-1, 2.849_878_668_8e-1, 4.000_097_215_2e-1, 6.666_666_269_3e-1]);
// Taylor: what is left out is below 2^-57; minimax, of FreeBSD's log.
real!(f64, u64, lowest -745.2, ln2 6.931_471_803_691_238e-1 1.908_214_929_270_587_7e-10, scale 60, exp [
    1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0, 1.0 / 3_628_800.0, 1.0 / 362_880.0, 1.0 / 40_320.0,
    1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0,
], ln [
    1.479_819_860_511_658_591e-1, 1.531_383_769_920_937_332e-1, 1.818_357_216_161_805_012e-1, 2.222_219_843_214_978_396e-1,
    2.857_142_874_366_239_149e-1, 3.999_999_999_940_941_908e-1, 6.666_666_666_666_735_13e-1,
]);

const fn halves<A: Copy>(first: A, second: A) -> [A; 2 * LANES] {
    let mut halves = [first; 2 * LANES];
    let mut at = LANES;
    while at < halves.len() {
        halves[at] = second;
        at += 1;
    }
    halves
}

/// The largest argument of [`exp`].
pub(super) const LARGEST: usize = 64;

/// `e^x` for x <= 64, within 1 unit in the last place where the result is normal; subnormal results are rounded again. NaN for NaN.
///
/// With x = n ln 2 + r a polynomial makes `e^r`, |r| <= ln 2 / 2, and an exponent `2^n`.
#[inline(always)]
fn exp<S: Isa, A: Real, const N: usize>(x: [A; N]) -> [A; N] {
    // Not by what underflows, which takes some processors a hundred times as long as other products.
    let lost = each(x, |x| x < A::LOWEST);
    let mut x = x;
    for lane in 0..N {
        x[lane] = if lost[lane] { A::ZERO } else { x[lane] };
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
        result[lane] = if lost[lane] { A::ZERO } else { result[lane] };
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

/// The natural logarithm, within 0.6 units in the last place.
///
/// With x = m 2^n and f = m - 1 it is n ln 2 + f - f^2 / 2 + ..., where a polynomial in s^2, s = f / (2 + f), makes the rest. The first
/// three are summed with what their rounding leaves.
#[inline(always)]
fn ln<S: Isa, A: Real, const N: usize>(x: [A; N]) -> [A; N] {
    let (mut f, mut n) = ([A::ZERO; N], [A::ZERO; N]);
    for lane in 0..N {
        (f[lane], n[lane]) = x[lane].split();
        f[lane] = f[lane] - A::ONE;
    }
    let two = A::ONE + A::ONE;
    let s = S::div(f, S::add(f, [two; N]));
    let (half, zero) = (each(f, |f| f / two), [A::ZERO; N]);
    let (squared, half_square) = (S::mul_add(s, s, zero), S::mul_add(f, half, zero));
    let mut polynomial = [A::LN_COEFFICIENTS[0]; N];
    for &coefficient in &A::LN_COEFFICIENTS[1..] {
        polynomial = S::mul_add(polynomial, squared, [coefficient; N]);
    }
    let of_square = S::mul_add(f, half, each(half_square, |x| -x));
    let of_n = S::mul_add(n, [-A::MINUS_LN_2[1]; N], each(of_square, |x| -x));
    let rest = S::mul_add(s, S::mul_add(squared, polynomial, half_square), of_n);
    let mut result = zero;
    for lane in 0..N {
        let large = -(n[lane] * A::MINUS_LN_2[0]); // exact
        let small = f[lane] - half_square[lane];
        let of_small = (f[lane] - small) - half_square[lane];
        let sum = large + small;
        let of_sum = (large - sum) + small;
        result[lane] = sum + (of_sum + of_small + rest[lane]);
    }
    let is_normal = |x: &A| (A::NORMAL..A::INFINITY).contains(x);
    if !x.iter().all(is_normal) {
        for lane in 0..N {
            result[lane] = if is_normal(&x[lane]) { result[lane] } else { x[lane].ln() };
        }
    }
    result
}

/// The natural logarithm of each, in place; their number is a multiple of [`LANES`].
#[inline(always)]
pub(super) fn ln_all<S: Isa, A: Real>(x: &mut [A]) {
    for x in x.chunks_exact_mut(LANES) {
        // SAFETY: there are as many.
        unsafe { store::<A, LANES>(ln::<S, A, LANES>(load::<A, LANES>(x.as_ptr())), x.as_mut_ptr()) };
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

    struct Ln<'a, A>(&'a mut [A]);
    impl<A: Real> Kernel for Ln<'_, A> {
        #[inline(always)]
        fn run<S: Isa>(self) {
            ln_all::<S, A>(self.0);
        }
    }

    #[test]
    fn logarithms_are_within_an_ulp() {
        // All exponents, and the neighbourhood of 1, where the result is small.
        let near = (0..16_000).map(|i| 1.0 + (i - 8_000) as f32 * 1e-5);
        let x: Vec<f32> = (0x0080_0000..0x7f80_0000u32).step_by(1337).map(f32::from_bits).chain(near).collect();
        let mut y = x[..x.len() / LANES * LANES].to_vec();
        simd::run(Ln(&mut y));
        for (x, y) in x.iter().zip(&y) {
            let exact = f64::from(*x).ln();
            let ulp = f64::from((exact as f32).abs().next_up()) - f64::from((exact as f32).abs());
            assert!((f64::from(*y) - exact).abs() <= 0.6 * ulp, "f32: ln({x:e}) = {y:e}, {exact:e}");
        }

        let near = (0..16_000).map(|i| 1.0 + f64::from(i - 8_000) * 1e-5);
        let bits = (f64::MIN_POSITIVE.to_bits()..f64::INFINITY.to_bits()).step_by(1 << 43);
        let x: Vec<f64> = bits.map(f64::from_bits).chain(near).collect();
        let mut y = x[..x.len() / LANES * LANES].to_vec();
        simd::run(Ln(&mut y));
        for (x, y) in x.iter().zip(&y) {
            let steps = x.ln().to_bits().abs_diff(y.to_bits());
            assert!(steps <= 1, "f64: ln({x:e}) = {y:e}, {:e}", x.ln());
        }
    }

    #[test]
    fn logarithms_of_what_is_not_normal() {
        fn check<A: Real>(x: &[A; LANES]) {
            let mut y = *x;
            simd::run(Ln(&mut y));
            for (x, y) in x.iter().zip(&y) {
                let expected = x.ln();
                assert!(*y == expected || expected != expected && *y != *y, "ln({x:?}) = {y:?}, {expected:?}");
            }
        }
        let mut x = [1.0, 0.0, -0.0, f64::INFINITY, f64::NAN, -1.0, 5e-324, 1e-310, f64::NEG_INFINITY, 2.0].to_vec();
        x.resize(LANES, 3.0);
        check::<f64>(&x.clone().try_into().unwrap());
        x[6] = 1e-45;
        check::<f32>(&x.into_iter().map(|x| x as f32).collect::<Vec<_>>().try_into().unwrap());
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
