//! trisolve on CubeCL devices, level by level: runs of small levels in one launch of one cube, wide levels a launch each.

mod kernels;

use super::{Triangle, TrisolveOps};
use crate::backend::gpu::{Gpu, Matrix, View, accumulator, vector_size};
use crate::pattern::with_split;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::CubeDim;
use kernels::{Launch, trisolve_levels};
use std::ops::Range;

/// Levels of at most this many vectors share a launch.
const SMALL: usize = 2048;
/// So many of them at most: some devices cut loops after 65,535 rounds, those of inner loops counted with them.
const LONGEST: usize = 2048;

impl TrisolveOps for CubeBackend {
    fn trisolve(triangle: Triangle, values: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        let Triangle { pattern, part, .. } = triangle;
        let (values, rhs) = (into_contiguous(values), Matrix::new(rhs));
        let (gpu, dtype) = (Gpu::of(&values), rhs.dtype());
        let out = gpu.empty([rhs.rows, rhs.cols], dtype);
        if rhs.rows * rhs.cols == 0 {
            return out;
        }
        if part.unit && pattern.nnz() == 0 {
            return into_contiguous(rhs.into_tensor()); // nothing to bind
        }
        let view = View::new(&pattern, &gpu);
        let n = vector_size(&gpu, dtype, &[rhs.cols, rhs.stride]);
        let width = rhs.cols / n;
        let bounds: Vec<usize> = with_split!(pattern.triangles(), split => {
            split.levels(part.upper).bounds.iter().map(|&at| crate::pattern::Index::get(at)).collect()
        });
        let levels = bounds.len() - 1;
        let solution = Matrix::new(out.clone());
        let elements = (levels + 1 + rhs.rows).max(view.entries()).max(rhs.elements()).max(solution.elements());
        let values = Matrix::vector(&values);
        for run in runs(&bounds, width) {
            let one_cube = run.len() > 1;
            let units = gpu.units();
            let items = if one_cube { 1 } else { (bounds[run.end] - bounds[run.start]) * width };
            let grid = gpu.grid(items, units as usize, elements);
            // SAFETY: entries, rows and columns are within the operands, as the pattern was checked; units without an item do
            // nothing; every row of the solution is in one level.
            unsafe {
                trisolve_levels::launch_unchecked(
                    &gpu.client,
                    grid.count(),
                    CubeDim::new_1d(units),
                    grid.address(),
                    n,
                    view.offsets(),
                    view.columns(),
                    view.slots(),
                    view.schedule(part.upper),
                    values.arg(),
                    rhs.arg(),
                    solution.arg(),
                    run.start,
                    run.end,
                    levels,
                    width,
                    rhs.stride / n,
                    Launch { upper: part.upper, unit: part.unit, one_cube },
                    [dtype_to_elem_type(dtype), dtype_to_elem_type(accumulator(dtype)), view.index()],
                );
            }
        }
        out
    }
}

/// The levels of each launch: a wide one alone, small ones together.
fn runs(bounds: &[usize], width: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for level in 0..bounds.len() - 1 {
        let small = (bounds[level + 1] - bounds[level]).saturating_mul(width) <= SMALL;
        match runs.last_mut() {
            Some(run) if open && small && run.len() < LONGEST => run.end = level + 1,
            _ => runs.push(level..level + 1),
        }
        open = small;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_levels_share_a_launch() {
        assert_eq!(runs(&[0, 1, 2, 5000, 5001, 5002], 1), [0..2, 2..3, 3..5]);
        assert!(runs(&[0, 5000], 1).into_iter().eq(std::iter::once(0..1)));
        assert_eq!(runs(&[0, 100, 200], 100), [0..1, 1..2]);
        let narrow: Vec<usize> = (0..=LONGEST + 1).collect();
        assert_eq!(runs(&narrow, 1), [0..LONGEST, LONGEST..LONGEST + 1]);
    }
}
