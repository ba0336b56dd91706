//! The method of Box and Muller: from two uniform numbers, a radius and an angle, two independent normal ones.
//!
//! The loops are over arrays of a tile and without a branch, so that compilers make vectors of them. They use no fused
//! multiply-add: every instruction set gives the same bits.

use super::philox::Philox;
use std::mem::MaybeUninit;

/// Counters in a tile.
pub const TILE: usize = 64;

/// A floating-point type in which normal numbers are made.
pub trait Normal: Copy + Send + Sync + 'static {
    /// Numbers in a tile.
    const PER_TILE: usize;

    /// The numbers of the tile that begins at a counter.
    #[doc(hidden)]
    fn tile(source: &Philox, counter: u64, out: &mut [MaybeUninit<Self>]);
}

/// Writes the numbers from a counter on, on the best instruction set of the processor.
pub fn fill<E: Normal>(source: &Philox, counter: u64, out: &mut [MaybeUninit<E>]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the processor has them.
            return unsafe { fill_avx512(source, counter, out) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { fill_avx2(source, counter, out) };
        }
    }
    fill_plain(source, counter, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn fill_avx512<E: Normal>(source: &Philox, counter: u64, out: &mut [MaybeUninit<E>]) {
    fill_plain(source, counter, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2<E: Normal>(source: &Philox, counter: u64, out: &mut [MaybeUninit<E>]) {
    fill_plain(source, counter, out);
}

#[inline(always)]
fn fill_plain<E: Normal>(source: &Philox, mut counter: u64, out: &mut [MaybeUninit<E>]) {
    let mut tiles = out.chunks_exact_mut(E::PER_TILE);
    for tile in &mut tiles {
        E::tile(source, counter, tile);
        counter += TILE as u64;
    }
    let rest = tiles.into_remainder();
    if !rest.is_empty() {
        let mut tile = [const { MaybeUninit::uninit() }; 4 * TILE];
        E::tile(source, counter, &mut tile[..E::PER_TILE]);
        rest.copy_from_slice(&tile[..rest.len()]);
    }
}

/// The words of a tile: array `w` has word `w` of each block.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "a loop over the lanes of vectors")]
fn words(source: &Philox, counter: u64) -> [[u32; TILE]; 4] {
    let mut words = [[0; TILE]; 4];
    for i in 0..TILE {
        let block = source.block(counter + i as u64);
        for word in 0..4 {
            words[word][i] = block[word];
        }
    }
    words
}

/// 1 / 3, 1 / 5, ...: the series of artanh s / s in s^2.
const fn artanh<const N: usize>() -> [f64; N] {
    let mut series = [1.0; N];
    let mut k = 0;
    while k < N {
        series[k] = 1.0 / (2 * k + 1) as f64;
        k += 1;
    }
    series
}

/// (-1)^k / (2 k + first)!: the series of cos r (from 0) and sin r / r (from 1) in r^2.
const fn alternating<const N: usize>(first: u64) -> [f64; N] {
    let mut series = [1.0; N];
    let (mut k, mut term) = (1, 1.0);
    while k < N {
        let n = 2 * k as u64 + first;
        term /= -((n * (n - 1)) as f64);
        series[k] = term;
        k += 1;
    }
    series
}

/// `pair`, two independent normal numbers from two random words, for one floating-point type and words of its size.
/// `$uniform` makes a number in (0, 1] from a word, `$centred` one in [-1/2, 1/2]; `$log`, `$sine` and `$cosine` are how many terms of the series its precision asks for.
macro_rules! normal {
    ($name:ident: $float:ident, $word:ident, $signed:ident, $uniform:expr, $centred:expr, $log:literal, $sine:literal, $cosine:literal) => {
        mod $name {
            use std::$float::consts::{FRAC_1_SQRT_2, FRAC_PI_2, LN_2};

            const MANTISSA: u32 = $float::MANTISSA_DIGITS - 1;
            const LOG: [f64; $log] = super::artanh();
            const SINE: [f64; $sine] = super::alternating(1);
            const COSINE: [f64; $cosine] = super::alternating(0);

            #[inline(always)]
            fn series<const N: usize>(coefficients: &[f64; N], x: $float) -> $float {
                let mut sum = 0.0;
                for &coefficient in coefficients.iter().rev() {
                    sum = sum * x + coefficient as $float;
                }
                sum
            }

            /// A number in (0, 1] from a random word.
            #[inline(always)]
            pub fn uniform(word: $word) -> $float {
                $uniform(word)
            }

            /// ln x for normal x > 0: x = 2^e m, m in [1/sqrt 2, sqrt 2), and ln m = 2 artanh((m - 1) / (m + 1)).
            #[inline(always)]
            pub fn log(x: $float) -> $float {
                let exponent = x.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits()) as $signed >> MANTISSA;
                let m = $float::from_bits(x.to_bits().wrapping_sub((exponent << MANTISSA) as $word));
                let s = (m - 1.0) / (m + 1.0);
                exponent as $float * LN_2 + 2.0 * s * series(&LOG, s * s)
            }

            /// Cosine and sine of a quarter turn times the whole and the fraction of `v`: its two leading bits, and the others
            /// as a signed part of a quarter.
            #[inline(always)]
            pub fn turn(v: $word) -> ($float, $float) {
                let quarter = v >> ($word::BITS - 2);
                let r = $centred(v << 2) * FRAC_PI_2;
                let (cosine, sine) = (series(&COSINE, r * r), r * series(&SINE, r * r));
                let (x, y) = if quarter & 1 == 0 { (cosine, sine) } else { (sine, cosine) };
                let sign = |of: $word| (of & 2) << ($word::BITS - 2);
                let signed = |x: $float, of: $word| $float::from_bits(x.to_bits() ^ sign(of));
                (signed(x, quarter + 1), signed(y, quarter))
            }

            #[inline(always)]
            pub fn pair(u: $word, v: $word) -> ($float, $float) {
                let radius = (-2.0 * log(uniform(u))).sqrt();
                let (cosine, sine) = turn(v);
                (radius * cosine, radius * sine)
            }
        }
    };
}

// Conversions of whole words are fast in 32 bits. In 64 bits few processors have them in vectors: there the word's leading
// bits become the fraction of a number in [1, 2).
normal!(single: f32, u32, i32,
    |word| word as f32 * (1.0 / 4_294_967_296.0) + 0.5 / 4_294_967_296.0,
    |word| word as i32 as f32 * (1.0 / 4_294_967_296.0),
    5, 5, 6);
normal!(double: f64, u64, i64,
    |word| f64::from_bits(word >> 12 | 1.0f64.to_bits()) - (1.0 - 0.5 * f64::EPSILON),
    |word| f64::from_bits(word >> 12 | 1.0f64.to_bits()) - 1.5,
    11, 9, 10);

impl Normal for f32 {
    const PER_TILE: usize = 4 * TILE;

    #[inline(always)]
    fn tile(source: &Philox, counter: u64, out: &mut [MaybeUninit<f32>]) {
        let out: &mut [MaybeUninit<f32>; 4 * TILE] = out.try_into().expect("a tile");
        let [a, b, c, d] = words(source, counter);
        for i in 0..TILE {
            let ((w, x), (y, z)) = (single::pair(a[i], b[i]), single::pair(c[i], d[i]));
            out[i].write(w);
            out[TILE + i].write(x);
            out[2 * TILE + i].write(y);
            out[3 * TILE + i].write(z);
        }
    }
}

impl Normal for f64 {
    const PER_TILE: usize = 2 * TILE;

    #[inline(always)]
    fn tile(source: &Philox, counter: u64, out: &mut [MaybeUninit<f64>]) {
        let out: &mut [MaybeUninit<f64>; 2 * TILE] = out.try_into().expect("a tile");
        let [a, b, c, d] = words(source, counter);
        for i in 0..TILE {
            let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
            let (x, y) = double::pair(word(a[i], b[i]), word(c[i], d[i]));
            out[i].write(x);
            out[TILE + i].write(y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_turns_are_those_of_the_standard_library() {
        for word in [0, 1, 2, 3, 1 << 20, u32::MAX / 3, u32::MAX - 1, u32::MAX] {
            let x = single::uniform(word);
            assert!(x > 0.0 && x <= 1.0);
            let expected = f64::from(x).ln();
            assert!((f64::from(single::log(x)) - expected).abs() <= 4e-7 * expected.abs(), "{x}");
        }
        for i in 0..10_000u64 {
            let word = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let x = double::uniform(word);
            // Five roundings of half an ulp, and that of the standard library.
            let bound = 6.0 * 0.5 * f64::EPSILON * x.ln().abs().max(1e-3);
            assert!((double::log(x) - x.ln()).abs() <= bound, "{x}");
            let (cosine, sine) = double::turn(word);
            let centre = (word << 2) as f64 / 2f64.powi(64) - 0.5;
            let angle = ((word >> 62) as f64 + centre) * std::f64::consts::FRAC_PI_2;
            assert!((cosine - angle.cos()).abs() < 1e-15 && (sine - angle.sin()).abs() < 1e-15, "{word}");
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let source = Philox { seed: 5, stream: 7 };
        let mut plain = [MaybeUninit::uninit(); 3 * 4 * TILE + 5];
        let mut best = plain;
        fill_plain::<f32>(&source, 11, &mut plain);
        fill::<f32>(&source, 11, &mut best);
        for (a, b) in plain.iter().zip(&best) {
            // SAFETY: both were written.
            unsafe { assert_eq!(a.assume_init().to_bits(), b.assume_init().to_bits()) };
        }
    }
}
