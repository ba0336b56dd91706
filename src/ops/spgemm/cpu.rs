//! The numbers of a planned product on the CPU, and the gradient of its left operand. (That of the right one is the left
//! one of the transposed product.)
//!
//! Both go by rows with a row of accumulators a thread, which the plan makes addressable by column: nothing is searched.

use super::plan::{Parts, PartsWork};
use crate::backend::dense::Output;
use crate::backend::scalar::{Accumulator, Scalar};
use crate::backend::simd::{self, Isa, Kernel, each};
use crate::ops::sddmm::cpu::zero_unused;
use crate::pattern::{Index, Rows, Slot};
use rayon::prelude::*;
use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

/// `c_ij = sum of a_ik b_kj`, in the order of A's row, then of B's.
pub(super) struct Product<'a, E> {
    pub left: &'a [E],
    pub right: &'a [E],
    pub out: &'a mut [MaybeUninit<E>],
}

impl<E: Scalar> PartsWork<()> for Product<'_, E> {
    fn call<I: Index>(self, parts: Parts<'_, I>) {
        let Self { left, right, out } = self;
        let (left, right) = (in_rows(parts.left, left), in_rows(parts.right, right));
        zero_unused(parts.product, out);
        let out = Output::new(out);
        for_each_range(&parts, |range, sums| {
            simd::run(ProductRows { range, parts: &parts, left: &left, right: &right, sums, out });
        });
    }
}

/// `a_ik = sum of c_ij b_kj` over row k of B, at the entries of A.
pub(super) struct Left<'a, E> {
    pub right: &'a [E],
    pub product: &'a [E],
    pub out: &'a mut [MaybeUninit<E>],
}

impl<E: Scalar> PartsWork<()> for Left<'_, E> {
    fn call<I: Index>(self, parts: Parts<'_, I>) {
        let Self { right, product, out } = self;
        assert_eq!(product.len(), parts.product.n_slots, "values");
        let right = in_rows(parts.right, right);
        zero_unused(parts.left, out);
        let out = Output::new(out);
        for_each_range(&parts, |range, line| {
            simd::run(LeftRows { range, parts: &parts, right: &right, product, line, out });
        });
    }
}

/// Values in the order of the rows, as what they are summed in: a copy only where they are not that already.
fn in_rows<'a, E: Scalar, I: Index>(rows: &Rows<I>, values: &'a [E]) -> Cow<'a, [E::Acc]> {
    assert_eq!(values.len(), rows.n_slots, "values");
    match (&rows.slots, crate::backend::scalar::as_sums(values)) {
        (Slot::Identity, Some(values)) => Cow::Borrowed(values),
        _ => (0..rows.n_entries()).map(|entry| values[rows.slot(entry)].widen()).collect(),
    }
}

/// Fewer multiplications than this are done before another thread has woken up.
const SMALL: usize = 1 << 16;

/// Calls `body` for each range of rows, with a row of accumulators that is zero at first: one a thread.
fn for_each_range<A: Accumulator, I: Index>(parts: &Parts<'_, I>, body: impl Fn(Range<usize>, &mut [A]) + Sync) {
    let line = || bytemuck::zeroed_vec::<A>(parts.width);
    let body = |line: &mut Vec<A>, bounds: &[usize]| body(bounds[0]..bounds[1], line);
    if parts.products < SMALL || parts.bounds.len() <= 2 || rayon::current_num_threads() == 1 {
        let mut line = line();
        parts.bounds.windows(2).for_each(|bounds| body(&mut line, bounds));
    } else {
        parts.bounds.par_windows(2).for_each_init(line, body);
    }
}

struct ProductRows<'a, 'p, E: Scalar, I> {
    range: Range<usize>,
    parts: &'a Parts<'p, I>,
    left: &'a [E::Acc],
    right: &'a [E::Acc],
    sums: &'a mut [E::Acc],
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> Kernel for ProductRows<'_, '_, E, I> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { range, parts, left, right, sums, out } = self;
        let Parts { left: rows, right: others, product, .. } = *parts;
        for row in range {
            for entry in rows.range(row) {
                let (value, of_right) = (left[entry], others.range(rows.columns[entry].get()));
                for (column, &other) in parts.right_columns[of_right.clone()].iter().zip(&right[of_right]) {
                    // SAFETY: columns, or their ranks, are below `width`, the length of `sums`.
                    let sum = unsafe { sums.get_unchecked_mut(column.get()) };
                    [*sum] = S::mul_add([value], [other], [*sum]);
                }
            }
            let of_product = product.range(row);
            for (entry, column) in of_product.clone().zip(&parts.product_columns[of_product]) {
                // SAFETY: as above; slots are below the number of values, and no two entries have the same.
                unsafe {
                    let sum = std::mem::replace(sums.get_unchecked_mut(column.get()), E::Acc::ZERO);
                    out.at(product.slot(entry)).write(E::narrow(sum));
                }
            }
        }
    }
}

struct LeftRows<'a, 'p, E: Scalar, I> {
    range: Range<usize>,
    parts: &'a Parts<'p, I>,
    right: &'a [E::Acc],
    /// In the order of storage: each value is read once.
    product: &'a [E],
    /// Where a row of the product is spread out. What an earlier row has left is not read: whatever meets is in the product.
    line: &'a mut [E::Acc],
    out: Output<'a, E>,
}

impl<E: Scalar, I: Index> Kernel for LeftRows<'_, '_, E, I> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { range, parts, right, product, line, out } = self;
        let Parts { left: rows, right: others, product: products, .. } = *parts;
        for row in range {
            let of_product = products.range(row);
            for (entry, column) in of_product.clone().zip(&parts.product_columns[of_product]) {
                // SAFETY: slots are below the number of values; columns, or their ranks, below `width`, the length of `line`.
                unsafe { *line.get_unchecked_mut(column.get()) = product.get_unchecked(products.slot(entry)).widen() };
            }
            for entry in rows.range(row) {
                let of_right = others.range(rows.columns[entry].get());
                let (columns, values) = (&parts.right_columns[of_right.clone()], &right[of_right]);
                // SAFETY: as above. Volatile: otherwise four of them become a gather instruction, which takes longer.
                let at = |column: I| unsafe { line.as_ptr().add(column.get()).read_volatile() };
                let mut sums = [E::Acc::ZERO; 4];
                let (fours, rest) = columns.as_chunks::<4>();
                let (values, others) = values.as_chunks::<4>();
                for (columns, values) in fours.iter().zip(values) {
                    sums = S::mul_add(each(*columns, at), *values, sums);
                }
                for (lane, (column, value)) in rest.iter().zip(others).enumerate() {
                    [sums[lane]] = S::mul_add([at(*column)], [*value], [sums[lane]]);
                }
                let [a, b, c, d] = sums;
                // SAFETY: slots are below the number of values, and no two entries have the same.
                unsafe { out.at(rows.slot(entry)).write(E::narrow((a + b) + (c + d))) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::spgemm::plan::SpgemmPlan;
    use crate::pattern::{IndexWidth, Pattern};

    fn pattern(shape: [usize; 2], seed: usize) -> Pattern {
        let count = shape[0] * 3;
        let at = |e: usize, by: usize, bound: usize| (e * by + seed) * 7919 / 13 % bound;
        let (rows, columns): (Vec<_>, Vec<_>) = (0..count).map(|e| (at(e, 3, shape[0]), at(e, 5, shape[1]))).unzip();
        Pattern::coo(rows, columns, shape).unwrap()
    }

    fn numbers(count: usize) -> Vec<f64> {
        (0..count).map(|i| ((i * 7919 + 13) % 1009) as f64 / 331.0 - 1.5).collect()
    }

    fn product(plan: &SpgemmPlan, left: &[f64], right: &[f64]) -> Vec<f64> {
        let mut out = vec![MaybeUninit::new(f64::NAN); plan.nnz()];
        plan.with_parts(Product { left, right, out: &mut out });
        // SAFETY: all were initialised from the start.
        out.into_iter().map(|x| unsafe { x.assume_init() }).collect()
    }

    fn left(plan: &SpgemmPlan, right: &[f64], product: &[f64], count: usize) -> Vec<f64> {
        let mut out = vec![MaybeUninit::new(f64::NAN); count];
        plan.with_parts(Left { right, product, out: &mut out });
        // SAFETY: all were initialised from the start.
        out.into_iter().map(|x| unsafe { x.assume_init() }).collect()
    }

    /// The sum over all that meet of left times right times product, differentiated by each, in plain loops.
    fn check(a: &Pattern, b: &Pattern) {
        let plan = SpgemmPlan::new(a, b).unwrap();
        let (x, y, z) = (numbers(a.nnz()), numbers(b.nnz() + 7)[7..].to_vec(), numbers(plan.nnz() + 3)[3..].to_vec());
        let [(a_rows, a_columns), (b_rows, b_columns), (c_rows, c_columns)] =
            [a, b, plan.pattern()].map(Pattern::coordinates);
        let (mut dx, mut dy, mut dz) = (vec![0.0; x.len()], vec![0.0; y.len()], vec![0.0; z.len()]);
        for e in 0..x.len() {
            for f in (0..y.len()).filter(|&f| b_rows[f] == a_columns[e]) {
                let c = (0..z.len()).find(|&c| (c_rows[c], c_columns[c]) == (a_rows[e], b_columns[f])).unwrap();
                dx[e] += y[f] * z[c];
                dy[f] += x[e] * z[c];
                dz[c] += x[e] * y[f];
            }
        }
        let close = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-10), "{found:?} {expected:?}");
        };
        close(product(&plan, &x, &y), &dz);
        close(product(&plan.t(), &y, &x), &dz);
        close(left(&plan, &y, &z, x.len()), &dx);
        close(left(&plan.t(), &x, &z, y.len()), &dy);
    }

    #[test]
    fn each_derivative_is_that_of_plain_loops() {
        for [m, k, n] in [[9, 7, 11], [1, 1, 1], [40, 3, 2], [2, 50, 60], [0, 3, 4], [3, 0, 4], [3, 4, 0]] {
            let (a, b) = (pattern([m, k.max(1)], 1), pattern([k.max(1), n.max(1)], 2));
            let (a, b) = match (k, n) {
                (0, _) => (
                    Pattern::coo([0i64; 0], [0i64; 0], [m, 0]).unwrap(),
                    Pattern::coo([0i64; 0], [0i64; 0], [0, n]).unwrap(),
                ),
                (_, 0) => (a, Pattern::coo([0i64; 0], [0i64; 0], [k, 0]).unwrap()),
                _ => (a, b),
            };
            check(&a, &b);
            check(&a.to_csr().pattern, &b.to_csc().pattern);
            check(&a.with_index_width(IndexWidth::I64).unwrap(), &b);
            check(&a, &b.with_index_width(IndexWidth::I64).unwrap());
        }
    }

    /// Far more columns than entries: accumulators are ranked.
    #[test]
    fn wide_matrices_need_no_wide_accumulators() {
        let wide = 1usize << 22;
        let a = Pattern::coo([0, 1, 1, 2], [2, 0, 1, 2], [3, 3]).unwrap();
        let b = Pattern::coo([0, 1, 2, 2, 0], [wide - 1, 5, 1 << 20, 0, wide - 1], [3, wide]).unwrap();
        check(&a, &b);
        check(&b.t(), &a.t());
    }
}
