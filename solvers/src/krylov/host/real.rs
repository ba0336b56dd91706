//! Elements on the CPU, and their loops in the best instruction set of the processor.

use super::super::space::Field;
use burn::tensor::Element;

/// f32 or f64.
pub(crate) trait Real: Field + Copy + Default + Element + Send + Sync + 'static {
    /// Twice the unit roundoff.
    const EPSILON: f64;
    /// Exact.
    fn widen(self) -> f64;
    /// Rounded.
    fn round(number: f64) -> Self;
}

macro_rules! real {
    ($($real:ty)*) => { $(
        impl Real for $real {
            const EPSILON: f64 = <$real>::EPSILON as f64;
            #[inline(always)]
            fn widen(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn round(number: f64) -> Self {
                number as $real
            }
        }
    )* };
}
real!(f32 f64);

/// A loop that is compiled for each instruction set. Multiplications and additions stay apart: all give the same bits.
pub(crate) trait Loop {
    /// What comes out.
    type Output;
    /// The loop, `#[inline(always)]` with all that it calls.
    fn run(self) -> Self::Output;
}

/// Runs a loop in the best instruction set of this processor.
#[inline]
pub(crate) fn fast<L: Loop>(body: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has the features.
            return unsafe { avx512(body) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature.
            return unsafe { avx2(body) };
        }
    }
    body.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn avx512<L: Loop>(body: L) -> L::Output {
    body.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loop>(body: L) -> L::Output {
    body.run()
}
