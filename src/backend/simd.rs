//! Running a kernel: on the best instruction set of the processor, over the chunks of a pattern.
//!
//! A kernel is written once, over arrays of a constant number of lanes, and compiled for each instruction set. The
//! lanes and the order of additions do not depend on it: processors with fused multiply-add give the same bits.

use std::mem::MaybeUninit;
use std::ops::Range;
#[cfg(target_arch = "x86_64")]
use std::{arch::x86_64::*, sync::LazyLock};

use rayon::prelude::*;

use super::scalar::{Accumulator, Scalar};
use crate::pattern::{Index, Rows, Slot};

/// An instruction set, and the arithmetic of kernels in it.
///
/// Loops over arrays would do, were they vectorised reliably. They are not: what surrounds them decides. So the few
/// operations that matter name their instructions on x86; elsewhere, and for a few lanes, they are loops.
pub(crate) trait Isa {
    /// Whether `a * b + c` is one instruction.
    const FMA: bool;
    /// The size of the largest vectors to name instructions for, in bytes.
    const VECTOR: usize;

    /// `a * b + c` in each lane, rounded once if the instruction set can.
    #[inline(always)]
    fn mul_add<A: Accumulator, const N: usize>(a: [A; N], b: [A; N], c: [A; N]) -> [A; N] {
        // SAFETY: the vectors are no larger than `VECTOR` and of the lanes' type.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match vector::<Self, A, N>() {
                (4, 64) => return lanewise(a, b, c, |a, b, c| _mm512_fmadd_ps(a, b, c)),
                (4, 32) => return lanewise(a, b, c, |a, b, c| _mm256_fmadd_ps(a, b, c)),
                (4, 16) => return lanewise(a, b, c, |a, b, c| _mm_fmadd_ps(a, b, c)),
                (8, 64) => return lanewise(a, b, c, |a, b, c| _mm512_fmadd_pd(a, b, c)),
                (8, 32) => return lanewise(a, b, c, |a, b, c| _mm256_fmadd_pd(a, b, c)),
                (8, 16) => return lanewise(a, b, c, |a, b, c| _mm_fmadd_pd(a, b, c)),
                _ => {}
            }
        }
        let mut sums = c;
        for lane in 0..N {
            sums[lane] = if Self::FMA { a[lane].mul_add(b[lane], c[lane]) } else { a[lane] * b[lane] + c[lane] };
        }
        sums
    }

    /// `a + b` in each lane.
    #[inline(always)]
    fn add<A: Accumulator, const N: usize>(a: [A; N], b: [A; N]) -> [A; N] {
        // SAFETY: the vectors are no larger than `VECTOR` and of the lanes' type.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match vector::<Self, A, N>() {
                (4, 64) => return lanewise(a, b, b, |a, b, _| _mm512_add_ps(a, b)),
                (4, 32) => return lanewise(a, b, b, |a, b, _| _mm256_add_ps(a, b)),
                (4, 16) => return lanewise(a, b, b, |a, b, _| _mm_add_ps(a, b)),
                (8, 64) => return lanewise(a, b, b, |a, b, _| _mm512_add_pd(a, b)),
                (8, 32) => return lanewise(a, b, b, |a, b, _| _mm256_add_pd(a, b)),
                (8, 16) => return lanewise(a, b, b, |a, b, _| _mm_add_pd(a, b)),
                _ => {}
            }
        }
        let mut sums = a;
        for lane in 0..N {
            sums[lane] = a[lane] + b[lane];
        }
        sums
    }

    /// `a / b` in each lane.
    #[inline(always)]
    fn div<A: Accumulator, const N: usize>(a: [A; N], b: [A; N]) -> [A; N] {
        // SAFETY: the vectors are no larger than `VECTOR` and of the lanes' type.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match vector::<Self, A, N>() {
                (4, 64) => return lanewise(a, b, b, |a, b, _| _mm512_div_ps(a, b)),
                (4, 32) => return lanewise(a, b, b, |a, b, _| _mm256_div_ps(a, b)),
                (4, 16) => return lanewise(a, b, b, |a, b, _| _mm_div_ps(a, b)),
                (8, 64) => return lanewise(a, b, b, |a, b, _| _mm512_div_pd(a, b)),
                (8, 32) => return lanewise(a, b, b, |a, b, _| _mm256_div_pd(a, b)),
                (8, 16) => return lanewise(a, b, b, |a, b, _| _mm_div_pd(a, b)),
                _ => {}
            }
        }
        let mut quotients = a;
        for lane in 0..N {
            quotients[lane] = a[lane] / b[lane];
        }
        quotients
    }

    /// The lanes of `a` whose bits are set in `mask`, which has all or none of a lane; zero in the others.
    #[inline(always)]
    fn select<A: Accumulator, const N: usize>(mask: [A; N], a: [A; N]) -> [A; N] {
        // SAFETY: the vectors are no larger than `VECTOR`.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match vector::<Self, A, N>() {
                (_, 64) => return lanewise(mask, a, a, |mask, a, _| _mm512_and_si512(mask, a)),
                (_, 32) => return lanewise(mask, a, a, |mask, a, _| _mm256_and_si256(mask, a)),
                (_, 16) => return lanewise(mask, a, a, |mask, a, _| _mm_and_si128(mask, a)),
                _ => {}
            }
        }
        let mut selected = a;
        for lane in 0..N {
            selected[lane] = a[lane].masked(mask[lane]);
        }
        selected
    }

    /// The sum of the lanes of each: by halves down to four lanes, then by neighbours.
    #[inline(always)]
    fn sums<A: Accumulator, const N: usize>(lanes: [[A; N]; 4]) -> [A; 4] {
        #[cfg(target_arch = "x86_64")]
        if size_of::<A>() == 4 && N == 16 && Self::VECTOR == 64 {
            // SAFETY: arrays and vectors of 16 lanes of the same type; there are vectors of 64 bytes.
            return unsafe { sums_of_16(lanes) };
        }
        // SAFETY: the parts are within the lanes.
        let [a, b, c, d] = each(lanes, |lanes| unsafe {
            let eight = |lanes| Self::add(part::<A, N, 8>(lanes, 0), part::<A, N, 8>(lanes, 8));
            let four = |lanes| Self::add(part::<A, 8, 4>(lanes, 0), part::<A, 8, 4>(lanes, 4));
            match N {
                16 => four(eight(lanes)),
                8 => four(part(lanes, 0)),
                4 => part(lanes, 0),
                _ => {
                    let mut padded = [A::ZERO; 4];
                    padded[..N].copy_from_slice(&lanes);
                    padded
                }
            }
        });
        #[cfg(target_arch = "x86_64")]
        if Self::VECTOR >= 32 && N >= 4 {
            // SAFETY: arrays and vectors of four lanes of the same type; vectors of 32 bytes come with these.
            unsafe {
                if size_of::<A>() == 4 {
                    let add = |a, b| lanewise(a, b, b, |a, b, _| _mm_hadd_ps(a, b));
                    return add(add(a, b), add(c, d));
                }
                let add = |a, b| lanewise(a, b, b, |a, b, _| _mm256_hadd_pd(a, b));
                return lanewise(add(a, b), add(c, d), a, |ab, cd, _| {
                    _mm256_add_pd(_mm256_permute2f128_pd::<0x20>(ab, cd), _mm256_permute2f128_pd::<0x31>(ab, cd))
                });
            }
        }
        each([a, b, c, d], |lanes| match N {
            1 => lanes[0],
            2 => lanes[0] + lanes[1],
            _ => (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]),
        })
    }
}

/// The array of a function of the places. As `std::array::from_fn`, which is compiled for each use through a dozen functions;
/// kernels have thousands of uses.
#[allow(clippy::needless_range_loop, reason = "the plainest loop is the least to compile")]
#[inline(always)]
pub(crate) fn array<T: Copy, const N: usize>(mut of: impl FnMut(usize) -> T) -> [T; N] {
    let mut made = [MaybeUninit::uninit(); N];
    for i in 0..N {
        made[i] = MaybeUninit::new(of(i));
    }
    // SAFETY: all of it has been written.
    unsafe { made.as_ptr().cast::<[T; N]>().read() }
}

/// What a function makes of each. As `map` of arrays, and see [`array`].
#[inline(always)]
pub(crate) fn each<T: Copy, U: Copy, const N: usize>(items: [T; N], mut of: impl FnMut(T) -> U) -> [U; N] {
    array(|i| of(items[i]))
}

/// The size of a lane, and of the largest vectors of an instruction set that so many lanes fill.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn vector<S: Isa + ?Sized, A, const N: usize>() -> (usize, usize) {
    let fits = |bytes: usize| bytes <= S::VECTOR && size_of::<[A; N]>().is_multiple_of(bytes);
    (size_of::<A>(), [64, 32, 16].into_iter().find(|&bytes| fits(bytes)).unwrap_or(0))
}

/// Applies `operation` to the arrays, vector by vector.
///
/// # Safety
///
/// Vectors fill the arrays and hold lanes of their type.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn lanewise<A: Copy, V, const N: usize>(
    a: [A; N],
    b: [A; N],
    c: [A; N],
    operation: impl Fn(V, V, V) -> V,
) -> [A; N] {
    let mut result = a;
    for i in 0..size_of::<[A; N]>() / size_of::<V>() {
        // SAFETY: within the array.
        let vector = |lanes: &[A; N]| unsafe { lanes.as_ptr().cast::<V>().add(i).read_unaligned() };
        let value = operation(vector(&a), vector(&b), vector(&c));
        // SAFETY: within the array.
        unsafe { result.as_mut_ptr().cast::<V>().add(i).write_unaligned(value) };
    }
    result
}

/// [`Isa::sums`] of 16 lanes of 4 bytes: the quarters of a vector end up holding what is left of one of the four.
///
/// # Safety
///
/// The type has 4 bytes and the processor AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn sums_of_16<A: Accumulator, const N: usize>([a, b, c, d]: [[A; N]; 4]) -> [A; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let halves = |a, b| {
            lanewise(a, b, b, |a, b, _| {
                _mm512_add_ps(_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
            })
        };
        let lanes = lanewise(halves(a, b), halves(c, d), d, |ab, cd, _| {
            let quarters = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd),
            );
            let pairs = _mm512_add_ps(quarters, _mm512_permute_ps::<0b10_11_00_01>(quarters));
            _mm512_add_ps(pairs, _mm512_permute_ps::<0b01_00_11_10>(pairs))
        });
        [lanes[0], lanes[4], lanes[8], lanes[12]]
    }
}

/// `W` consecutive lanes.
///
/// # Safety
///
/// There are so many from `first` on.
#[inline(always)]
unsafe fn part<A: Copy, const N: usize, const W: usize>(lanes: [A; N], first: usize) -> [A; W] {
    // SAFETY: the caller's promise.
    unsafe { lanes.as_ptr().add(first).cast::<[A; W]>().read() }
}

/// A kernel to be compiled for each instruction set.
pub(crate) trait Kernel {
    /// The work. To be marked `#[inline(always)]`, with all that it calls: what is inlined is compiled for `S`.
    fn run<S: Isa>(self);
}

/// Runs a plain kernel, on vectors of 32 bytes where the processor has them.
#[inline]
pub(crate) fn run(kernel: impl Kernel) {
    #[cfg(target_arch = "x86_64")]
    if !matches!(*LEVEL, Level::Baseline) {
        // SAFETY: the processor has the features, see `LEVEL`.
        return unsafe { avx2(kernel) };
    }
    kernel.run::<Baseline>();
}

/// Runs a kernel on the best instruction set of this processor, which [`is_fast`].
#[inline]
pub(crate) fn run_fast(kernel: impl Kernel) {
    #[cfg(target_arch = "x86_64")]
    match *LEVEL {
        // SAFETY: the processor has the features, see `LEVEL`.
        Level::Avx512 => unsafe { avx512(kernel) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2(kernel) },
        Level::Baseline => unreachable!("not a fast processor"),
    }
    #[cfg(not(target_arch = "x86_64"))]
    kernel.run::<Baseline>();
}

/// Calls `$run!(N x V)` for up to 16 columns, where `V` vectors of `N` lanes hold them, the last of which may overlap the one
/// before; for any other number, `$other => $else`.
macro_rules! by_width {
    ($cols:expr, $run:ident, $other:pat => $else:expr) => {
        match $cols {
            1 => $run!(1 x 1),
            2 => $run!(2 x 1),
            3 => $run!(2 x 2),
            4 => $run!(4 x 1),
            5..8 => $run!(4 x 2),
            8 => $run!(8 x 1),
            9..16 => $run!(8 x 2),
            16 => $run!(16 x 1),
            $other => $else,
        }
    };
}
pub(crate) use by_width;

/// Whether the fast kernels are compiled for this processor. They are many, one for each width: on x86 without AVX2, for
/// 16-bit types and for 64-bit indices there is only a plain one, lest the crate takes minutes to compile.
pub(crate) fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !matches!(*LEVEL, Level::Baseline);
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// What the crate as a whole is compiled for.
struct Baseline;

impl Isa for Baseline {
    const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
    const VECTOR: usize = 0;
}

#[cfg(target_arch = "x86_64")]
enum Level {
    Avx512,
    Avx2,
    Baseline,
}

#[cfg(target_arch = "x86_64")]
static LEVEL: LazyLock<Level> = LazyLock::new(|| {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Baseline,
    }
});

/// x86 with fused multiply-add, and vectors of so many bytes.
#[cfg(target_arch = "x86_64")]
struct X86<const VECTOR: usize>;

#[cfg(target_arch = "x86_64")]
impl<const VECTOR: usize> Isa for X86<VECTOR> {
    const FMA: bool = true;
    const VECTOR: usize = VECTOR;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
fn avx512(kernel: impl Kernel) {
    kernel.run::<X86<64>>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2(kernel: impl Kernel) {
    kernel.run::<X86<32>>();
}

/// Fewer multiplications than this are done before another thread has woken up.
const SMALL: usize = 1 << 16;

/// Calls `body` for each chunk of the rows, in parallel if `work` multiplications are worth it.
pub(crate) fn for_each_chunk<I: Index>(rows: &Rows<I>, work: usize, body: impl Fn(Range<usize>) + Sync) {
    let chunks = rows.chunks.len().saturating_sub(1);
    for_each(chunks, work, &|chunk| body(rows.chunks[chunk]..rows.chunks[chunk + 1]));
}

/// Calls `body` with all numbers below `count`, in parallel if `work` multiplications are worth it. Behind a pointer, so that what
/// threads need is not compiled for each body.
pub(crate) fn for_each(count: usize, work: usize, body: &(dyn Fn(usize) + Sync)) {
    if work < SMALL || count <= 1 || rayon::current_num_threads() == 1 {
        (0..count).for_each(body);
    } else {
        (0..count).into_par_iter().for_each(body);
    }
}

/// Whether one thread does it all, however much work there is.
pub(crate) fn is_serial<I: Index>(rows: &Rows<I>) -> bool {
    rows.chunks.len() <= 2 || rayon::current_num_threads() == 1
}

/// The place of an entry in the values, resolved before the loops: the identity costs nothing.
pub(crate) trait Slots: Copy + Sync {
    /// The place of an entry.
    ///
    /// # Safety
    ///
    /// There is such an entry.
    unsafe fn get(self, entry: usize) -> usize;
}

/// [`Slot::Identity`].
#[derive(Clone, Copy)]
pub(crate) struct Identity;

impl Slots for Identity {
    #[inline(always)]
    unsafe fn get(self, entry: usize) -> usize {
        entry
    }
}

impl<I: Index> Slots for &[I] {
    #[inline(always)]
    unsafe fn get(self, entry: usize) -> usize {
        // SAFETY: a map has an element for each entry.
        unsafe { self.get_unchecked(entry) }.get()
    }
}

/// The entries of a pattern as the inner loops see them.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a, I, M> {
    offsets: &'a [I],
    columns: &'a [I],
    slots: M,
}

impl<I: Index, M: Slots> Entries<'_, I, M> {
    /// The entries of a row.
    ///
    /// # Safety
    ///
    /// There is such a row.
    #[inline(always)]
    pub(crate) unsafe fn of_row(&self, row: usize) -> Range<usize> {
        // SAFETY: there is one more offset than there are rows.
        unsafe { self.offsets.get_unchecked(row).get()..self.offsets.get_unchecked(row + 1).get() }
    }

    /// The column of an entry.
    ///
    /// # Safety
    ///
    /// There is such an entry.
    #[inline(always)]
    pub(crate) unsafe fn column(&self, entry: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.columns.get_unchecked(entry) }.get()
    }

    /// The column some entries after this one, or the last: of a row of the operand to [`prefetch`].
    ///
    /// # Safety
    ///
    /// There is an entry at all.
    #[inline(always)]
    pub(crate) unsafe fn column_ahead(&self, entry: usize) -> usize {
        /// Measured: the time that an entry takes, times this, is about that of a memory access.
        const AHEAD: usize = 12;
        // SAFETY: capped to the last.
        unsafe { self.column((entry + AHEAD).min(self.columns.len() - 1)) }
    }

    /// Whether some rows have few entries on average.
    pub(crate) fn are_short(&self, rows: &Range<usize>) -> bool {
        let n_entries = self.offsets[rows.end].get() - self.offsets[rows.start].get();
        n_entries < 16 * rows.len()
    }

    /// Whether [`are_irregular`] rows these are. If so,
    /// rows of a dense operand are to be asked for ahead: the processor won't guess them. If not, they have been used a
    /// short while ago, and asking costs as much as loading them.
    pub(crate) fn are_irregular(&self, rows: &Range<usize>) -> bool {
        are_irregular(self.offsets, self.columns, rows)
    }

    /// The place of the value of an entry.
    ///
    /// # Safety
    ///
    /// There is such an entry.
    #[inline(always)]
    pub(crate) unsafe fn slot(&self, entry: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.slots.get(entry) }
    }
}

/// Whether neighbours among some rows, of which a sample is looked at, mostly begin at columns far apart.
pub(crate) fn are_irregular<I: Index>(offsets: &[I], columns: &[I], rows: &Range<usize>) -> bool {
    let first = |row: usize| {
        let of_row = offsets[row].get()..offsets[row + 1].get();
        (!of_row.is_empty()).then(|| columns[of_row.start].get())
    };
    let (mut near, mut far) = (0, 0);
    for row in (rows.start + 1..rows.end).step_by(rows.len().div_ceil(32).max(1)) {
        if let (Some(this), Some(next)) = (first(row - 1), first(row)) {
            *if this.abs_diff(next) > 64 { &mut far } else { &mut near } += 1;
        }
    }
    far > near
}

/// What is done with the entries of a pattern, once it is known how their values are found.
pub(crate) trait WithEntries<I> {
    /// The work.
    fn call<M: Slots>(self, entries: Entries<'_, I, M>);
}

/// Resolves the slots of a pattern.
pub(crate) fn with_entries<I: Index>(rows: &Rows<I>, work: impl WithEntries<I>) {
    let (offsets, columns) = (&rows.offsets[..], &rows.columns[..]);
    match &rows.slots {
        Slot::Identity => work.call(Entries { offsets, columns, slots: Identity }),
        Slot::Map(map) => work.call(Entries { offsets, columns, slots: &map[..] }),
    }
}

/// Loads consecutive elements.
///
/// # Safety
///
/// All `N` are readable.
#[inline(always)]
pub(crate) unsafe fn load<E: Scalar, const N: usize>(from: *const E) -> [E::Acc; N] {
    if E::ACCUMULATES {
        // SAFETY: the caller's promise; the types are the same.
        return unsafe { from.cast::<[E::Acc; N]>().read() };
    }
    // SAFETY: the caller's promise; an array is aligned as its elements are.
    let narrow = unsafe { from.cast::<[E; N]>().read() };
    let mut wide = [E::Acc::ZERO; N];
    for lane in 0..N {
        wide[lane] = narrow[lane].widen();
    }
    wide
}

/// Stores consecutive elements, each rounded.
///
/// # Safety
///
/// All `N` are writable.
#[inline(always)]
pub(crate) unsafe fn store<E: Scalar, const N: usize>(wide: [E::Acc; N], to: *mut E) {
    if E::ACCUMULATES {
        // SAFETY: the caller's promise; the types are the same.
        return unsafe { to.cast::<[E::Acc; N]>().write(wide) };
    }
    let mut narrow = [E::narrow(E::Acc::ZERO); N];
    for lane in 0..N {
        narrow[lane] = E::narrow(wide[lane]);
    }
    // SAFETY: the caller's promise; an array is aligned as its elements are.
    unsafe { to.cast::<[E; N]>().write(narrow) }
}

/// Asks for the cache lines of consecutive elements.
#[inline(always)]
pub(crate) fn prefetch<E>(from: *const E, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..(len * size_of::<E>()).div_ceil(64) {
        // SAFETY: a hint, harmless for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_byte_add(64 * line).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes without an obvious pattern, of both signs.
    fn lanes<A: Accumulator, const N: usize>(seed: usize) -> [A; N] {
        std::array::from_fn(|lane| A::from((((lane + 31 * seed) * 7919 + 13) % 1009) as f32 / 997.0 - 0.5))
    }

    fn check<S: Isa, A: Accumulator, const N: usize>() {
        let [a, b, c, d] = [1, 2, 3, 4].map(lanes::<A, N>);
        let each = |f: &dyn Fn(usize) -> A| std::array::from_fn::<A, N, _>(f);
        let fused = |lane: usize| {
            if S::FMA { a[lane].mul_add(b[lane], c[lane]) } else { a[lane] * b[lane] + c[lane] }
        };
        assert_eq!(S::mul_add(a, b, c), each(&fused));
        assert_eq!(S::add(a, b), each(&|lane| a[lane] + b[lane]));
        assert_eq!(S::div(a, b), each(&|lane| a[lane] / b[lane]));
        let even = |lane: usize| lane.is_multiple_of(2);
        let mask = each(&|lane| if even(lane) { A::ONES } else { A::ZERO });
        assert_eq!(S::select(mask, a), each(&|lane| if even(lane) { a[lane] } else { A::ZERO }));
        // The same tree, whatever the instruction set.
        assert_eq!(S::sums([a, b, c, d]), Baseline::sums([a, b, c, d]));
        let plain = |lanes: [A; N]| lanes.into_iter().map(Into::into).sum::<f64>();
        for (sum, plain) in S::sums([a, b, c, d]).into_iter().zip([a, b, c, d].map(plain)) {
            assert!((sum.into() - plain).abs() < 1e-5, "{sum:?} instead of {plain}");
        }
    }

    fn check_all<S: Isa>() {
        fn both<S: Isa, const N: usize>() {
            check::<S, f32, N>();
            check::<S, f64, N>();
        }
        both::<S, 1>();
        both::<S, 2>();
        both::<S, 4>();
        both::<S, 8>();
        both::<S, 16>();
    }

    #[test]
    fn every_instruction_set_agrees_with_loops() {
        check_all::<Baseline>();
        #[cfg(target_arch = "x86_64")]
        match *LEVEL {
            Level::Avx512 => {
                check_all::<X86<64>>();
                check_all::<X86<32>>();
            }
            Level::Avx2 => check_all::<X86<32>>(),
            Level::Baseline => {}
        }
    }
}
