//! spgemm on CubeCL devices: each value walks the list of pairs that meet there, made on the host once for a plan and kept on
//! the device with it. Where pairs are too many for a list, each value searches for them.

mod kernels;

use super::plan::{Meetings, Of};
use super::{SpgemmOps, SpgemmPlan};
use crate::backend::gpu::{Gpu, Matrix, View, accumulator, output_values};
use crate::ops::gather::GatherOps;
use crate::pattern::{Conversion, Pattern};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::CubeDim;
use kernels::{Target, pair_products, search_products};

/// Pairs of entries that a list is made for: on the host and on the device it takes memory for all of them.
const LISTED: usize = 1 << 24;

impl SpgemmOps for CubeBackend {
    fn spgemm(plan: SpgemmPlan, left: FloatTensor<Self>, right: FloatTensor<Self>) -> FloatTensor<Self> {
        match is_listed(&Gpu::of(&left), &plan) {
            true => sums(&plan.meetings(Of::Product), left, right),
            false => product(&plan, left, right),
        }
    }

    fn spgemm_left(plan: SpgemmPlan, right: FloatTensor<Self>, product: FloatTensor<Self>) -> FloatTensor<Self> {
        match is_listed(&Gpu::of(&right), &plan) {
            true => sums(&plan.meetings(Of::Left), right, product),
            false => left(&plan, right, product),
        }
    }
}

/// Whether a list of all pairs is kept: a function of the patterns and the device.
fn is_listed(gpu: &Gpu, plan: &SpgemmPlan) -> bool {
    let index = if plan.products() <= i32::MAX as usize { DType::I32 } else { DType::I64 };
    plan.products() <= LISTED && gpu.holds(plan.products(), index)
}

/// The values of a product, without a list.
fn product(plan: &SpgemmPlan, left: CubeTensor, right: CubeTensor) -> CubeTensor {
    let [a, b, c] = plan.parts();
    // Rows that are searched: ascending, each column once.
    let searched = plan.searchable();
    let (b, right) = match searched {
        None => (b, in_rows(b, right)),
        Some(Conversion { pattern, gather: Some(map) }) => {
            (pattern, in_rows(pattern, CubeBackend::gather(map.clone(), right)))
        }
        Some(Conversion { pattern, gather: None }) => (pattern, in_rows(pattern, right)),
    };
    search(Target::Product, c, [(a, in_rows(a, left)), (b, right)])
}

/// The gradient of the left operand, without a list. The product's rows are ascending.
fn left(plan: &SpgemmPlan, right: CubeTensor, product: CubeTensor) -> CubeTensor {
    let [a, b, c] = plan.parts();
    search(Target::Left, a, [(b, in_rows(b, right)), (c, in_rows(c, product))])
}

/// Values in the order of the rows.
fn in_rows(pattern: &Pattern, values: CubeTensor) -> CubeTensor {
    into_contiguous(CubeBackend::reorder(pattern.clone(), values, false))
}

/// The values of `target`, of the entries that are gone through and those that are searched.
fn search(what: Target, target: &Pattern, [walked, searched]: [(&Pattern, CubeTensor); 2]) -> CubeTensor {
    let (gpu, dtype) = (Gpu::of(&walked.1), walked.1.dtype);
    let [of_target, of_walked, of_searched] = [target, walked.0, searched.0].map(|pattern| View::new(pattern, &gpu));
    let entries = of_target.entries();
    if entries == 0 || of_walked.entries() == 0 || of_searched.entries() == 0 {
        return gpu.zeros([target.nnz()], dtype);
    }
    let out = output_values(&gpu, target.nnz(), entries, dtype);
    let lanes = gpu.lanes_for_rows(walked.0.shape()[0], of_walked.entries());
    let packed = [2 * entries, of_walked.packed(), of_searched.packed()].into_iter().max().expect("three");
    let grid = gpu.grid(entries, lanes.groups(), packed);
    let [stored, added] = [dtype, accumulator(dtype)].map(dtype_to_elem_type);
    // SAFETY: rows, columns and slots are within the operands, as the plan was made for them; the kernel leaves out entries past the
    // last.
    unsafe {
        search_products::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(lanes.units),
            grid.address(),
            of_target.positions(),
            of_target.slots(),
            of_walked.lines(),
            of_searched.lines(),
            Matrix::vector(&walked.1).arg(),
            Matrix::vector(&searched.1).arg(),
            Matrix::vector(&out).arg(),
            entries,
            walked.0.shape()[0],
            searched.0.shape()[0],
            what,
            lanes,
            [stored, added, of_target.index(), of_walked.index(), of_searched.index()],
        );
    }
    out
}

/// The sum of the products of each row's pairs.
fn sums(pairs: &Meetings, x: CubeTensor, y: CubeTensor) -> CubeTensor {
    let (x, y) = (into_contiguous(x), into_contiguous(y));
    let (gpu, dtype, [rows, _]) = (Gpu::of(&x), x.dtype, pairs.x.shape());
    let [x_view, y_view] = [&pairs.x, &pairs.y].map(|pattern| View::new(pattern, &gpu));
    let entries = x_view.entries();
    if rows == 0 || entries == 0 {
        return gpu.zeros([rows], dtype);
    }
    let out = gpu.empty([rows], dtype);
    let (x, y) = (Matrix::vector(&x), Matrix::vector(&y));
    let lanes = gpu.lanes_for_rows(rows, entries);
    let grid = gpu.grid(rows, lanes.groups(), entries.max(x.elements()).max(y.elements()));
    // SAFETY: slots are within the values, as the plan was made for them; the kernel leaves out rows past the last.
    unsafe {
        pair_products::launch_unchecked(
            &gpu.client,
            grid.count(),
            CubeDim::new_1d(lanes.units),
            grid.address(),
            x_view.offsets(),
            x_view.columns(),
            y_view.columns(),
            x.arg(),
            y.arg(),
            Matrix::vector(&out).arg(),
            rows,
            lanes,
            [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), x_view.index()],
        );
    }
    out
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::backend::gpu::testing::{gpu, numbers, pattern, read, upload};

    /// Products and gradients of both orders by lists and by searches: any format, duplicates, unsorted rows.
    #[test]
    fn searches_find_what_lists_have() {
        let gpu = gpu();
        let a = pattern(&[0, 3, 1, 40, 9, 0, 2, 17], 30); // with duplicates, unsorted
        let b = pattern(&[2; 30], 50);
        let sorted = b.coalesce().pattern;
        for (a, b) in [(&a, &b), (&a, &sorted), (&sorted.t(), &a.t()), (&a, &a.t()), (&a.to_coo().pattern, &b)] {
            let plan = SpgemmPlan::new(a, b).expect("they fit");
            for plan in [plan.t(), plan] {
                let [a, b] = plan.operands().map(|pattern| upload(&gpu, &numbers(pattern.nnz()), [pattern.nnz()]));
                let c = upload(&gpu, &numbers(plan.nnz()), [plan.nnz()]);
                let close = |found: CubeTensor, expected: CubeTensor| {
                    let (found, expected) = (read(&found), read(&expected));
                    assert_eq!(found.len(), expected.len());
                    let close = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-4 * (1.0 + y.abs());
                    assert!(found.iter().zip(&expected).all(close), "{plan:?}: {found:?} for {expected:?}");
                };
                close(product(&plan, a.clone(), b.clone()), sums(&plan.meetings(Of::Product), a, b.clone()));
                close(left(&plan, b.clone(), c.clone()), sums(&plan.meetings(Of::Left), b, c));
            }
        }
    }

    #[test]
    fn many_pairs_are_not_listed() {
        let gpu = gpu();
        let plan = |n: usize| {
            let column = Pattern::csc([0, n as i64], (0..n as i64).collect::<Vec<_>>(), [n, 1]).expect("valid");
            SpgemmPlan::new(&column.t(), &column).expect("one entry")
        };
        assert!(is_listed(&gpu, &plan(1 << 10)));
        assert!(!is_listed(&gpu, &plan(LISTED + 1)));
    }
}
