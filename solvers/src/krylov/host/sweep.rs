//! One pass over some rows of several vectors.

use super::real::{Loop, Real, fast};

/// How many elements are computed at once, and in how many partial sums a dot product is formed.
const LANES: usize = 16;

/// Rows of vectors with one column, or with several whose numbers differ.
///
/// Pointers, not slices: vectors are read and written in the same pass, by one thread each its rows.
pub(crate) struct Sweep<'a, E, F, const C: usize, const R: usize, const W: usize, const D: usize> {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub cols: usize,
    /// A number for each column.
    pub c: [&'a [f64]; C],
    /// Vectors that are read.
    pub r: [*const E; R],
    /// Vectors that are written.
    pub w: [*mut E; W],
    /// From numbers, elements read and elements written to new elements and the terms of sums.
    pub f: F,
    /// Where the sums of each column go: `D` for a column, one after another.
    pub sums: &'a mut [f64],
}

impl<E: Real, F, const C: usize, const R: usize, const W: usize, const D: usize> Sweep<'_, E, F, C, R, W, D>
where
    F: Fn([E; C], [E; R], [E; W]) -> ([E; W], [E; D]),
{
    /// Does it.
    ///
    /// # Safety
    /// The vectors have so many rows and columns, and no one else reads or writes what is written.
    #[inline]
    pub(crate) unsafe fn run(self) {
        fast(self);
    }
}

impl<E: Real, F, const C: usize, const R: usize, const W: usize, const D: usize> Loop for Sweep<'_, E, F, C, R, W, D>
where
    F: Fn([E; C], [E; R], [E; W]) -> ([E; W], [E; D]),
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { rows, cols, c, r, w, f, sums } = self;
        debug_assert_eq!(sums.len(), D * cols);
        if cols == 1 {
            let c = c.map(|c| E::round(c[0]));
            // SAFETY: so many elements, by the promise of who made the sweep.
            let sum = unsafe { line(rows, c, r, w, &f) };
            for (to, sum) in sums.iter_mut().zip(sum) {
                *to += sum;
            }
            return;
        }
        for row in 0..rows {
            // SAFETY: as above.
            unsafe {
                let (r, w) = (r.map(|p| p.add(row * cols)), w.map(|p| p.add(row * cols)));
                for at in 0..cols {
                    let c = c.map(|c| E::round(*c.get_unchecked(at)));
                    let (new, terms) = f(c, r.map(|p| *p.add(at)), w.map(|p| *p.add(at)));
                    for (p, new) in w.into_iter().zip(new) {
                        *p.add(at) = new;
                    }
                    for (d, term) in terms.into_iter().enumerate() {
                        *sums.get_unchecked_mut(at * D + d) += term.widen();
                    }
                }
            }
        }
    }
}

/// A contiguous run of elements with equal numbers.
#[inline(always)]
unsafe fn line<E: Real, const C: usize, const R: usize, const W: usize, const D: usize>(
    len: usize,
    c: [E; C],
    r: [*const E; R],
    w: [*mut E; W],
    f: &impl Fn([E; C], [E; R], [E; W]) -> ([E; W], [E; D]),
) -> [f64; D] {
    let mut partial = [[E::default(); LANES]; D];
    let whole = len / LANES * LANES;
    let mut at = 0;
    while at < whole {
        // SAFETY: within the vectors. All is read before anything is written.
        unsafe {
            let read = r.map(|p| p.add(at).cast::<[E; LANES]>().read());
            let mut written = w.map(|p| p.add(at).cast::<[E; LANES]>().read());
            for lane in 0..LANES {
                let mut reads = [E::default(); R];
                let mut writes = [E::default(); W];
                for i in 0..R {
                    reads[i] = read[i][lane];
                }
                for i in 0..W {
                    writes[i] = written[i][lane];
                }
                let (new, terms) = f(c, reads, writes);
                for i in 0..W {
                    written[i][lane] = new[i];
                }
                for d in 0..D {
                    partial[d][lane] = partial[d][lane] + terms[d];
                }
            }
            for (p, written) in w.into_iter().zip(written) {
                p.add(at).cast::<[E; LANES]>().write(written);
            }
        }
        at += LANES;
    }
    let mut sums = [0.0; D];
    for d in 0..D {
        // By halves, so that partial sums of like size meet.
        let mut lanes = partial[d].map(E::widen);
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
            half /= 2;
        }
        sums[d] = lanes[0];
    }
    while at < len {
        // SAFETY: within the vectors.
        unsafe {
            let (new, terms) = f(c, r.map(|p| *p.add(at)), w.map(|p| *p.add(at)));
            for (p, new) in w.into_iter().zip(new) {
                *p.add(at) = new;
            }
            for d in 0..D {
                sums[d] += terms[d].widen();
            }
        }
        at += 1;
    }
    sums
}
