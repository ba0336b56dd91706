//! The Kronecker product.

use super::lists::{Lists, Order, slots_of};
use super::select::{shape_of, sizes};
use crate::backend::check::{Check, Operand, device_can, device_name, expect};
use crate::error::OpError;
use crate::ops::gather::gather;
use crate::pattern::{Index, PairPlan, Pattern, with_rows};
use crate::tensor::SparseTensor;
use std::sync::Arc;

const OP: &str = "kron";

/// The pattern of a product, and the value of either operand that each of its entries takes.
struct Plan {
    items: usize,
    pattern: Pattern,
    maps: [Pattern; 2],
}

impl PairPlan for Plan {
    fn patterns(&self) -> Vec<Pattern> {
        self.maps.iter().chain([&self.pattern]).cloned().collect()
    }
}

/// The Kronecker product `A x B`: the matrix of blocks `a_ij B`. Of batches: item by item. As a method,
/// [`SparseTensor::kron`].
///
/// | | shape |
/// |---|---|
/// | A, B | m1 x n1 and m2 x n2, or as many items of each |
/// | result | m1 m2 x n1 n2, with `nnz(A) nnz(B)` entries, in the format of both, or in CSR if they have different ones |
///
/// Entry (i1 m2 + i2, j1 n2 + j2) is `a_i1j1 b_i2j2`. Duplicates of the operands are duplicates of the product, so that their sums
/// are right. It is planned once for two patterns.
///
/// # Gradient
/// `da_e` = the sum over B's entries of the gradient times `b`; `db_e` likewise. Memory of the order of the product's entries.
///
/// # Panics
/// Where [`try_kron`] returns an error.
///
/// ```
/// use sparsegrad::{ops::structure::kron, prelude::*};
///
/// let device = Device::flex().autodiff();
/// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[2.0f32, 3.0], [1, 2], &device)?.require_grad();
/// let b = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[5.0f32, 7.0], [2, 2], &device)?.require_grad();
/// let c = kron(&a, &b); // or a.kron(&b)
/// assert_eq!(c.triplets()?.collect::<Vec<_>>(), [(0, 1, 10.0), (0, 3, 15.0), (1, 0, 14.0), (1, 2, 21.0)]);
///
/// let grads = c.values().clone().sum().backward();
/// assert_eq!(a.grad(&grads).unwrap().values().to_data().try_to_vec::<f32>().unwrap(), [12.0, 12.0]);
/// assert_eq!(b.grad(&grads).unwrap().values().to_data().try_to_vec::<f32>().unwrap(), [5.0, 5.0]);
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn kron<const D: usize>(a: &SparseTensor<D>, b: &SparseTensor<D>) -> SparseTensor<D> {
    expect(try_kron(a, b))
}

/// [`kron`], with operands that do not fit as an error.
///
/// # Errors
/// If numbers of items, dtypes or devices differ, or the product is too large for indices, the device or the host's memory.
pub fn try_kron<const D: usize>(a: &SparseTensor<D>, b: &SparseTensor<D>) -> Result<SparseTensor<D>, OpError> {
    let check = Check { op: OP };
    let [left, right] = [a, b].map(|operand| Operand::sparse(&operand.shape(), operand.values()));
    let ((items, [m1, n1]), (others, [m2, n2])) = (sizes(a), sizes(b));
    check.shapes(items == others, "A and B must have as many items", &left, &right)?;
    check.compatible(&left, &right)?;
    let too_large = |what, size: u128| OpError::TooLarge {
        op: OP,
        what,
        size,
        limit: i64::MAX as u128,
        device: device_name(&a.device()),
    };
    let product = |what, x: usize, y: usize| x.checked_mul(y).ok_or(too_large(what, x as u128 * y as u128));
    let each = [product("rows", m1, m2)?, product("columns", n1, n2)?];
    let shape = shape_of(items, each)
        .map_err(|_| too_large("rows or columns", each[0].max(each[1]) as u128 * items as u128))?;
    let plan = planned(a.pattern(), b.pattern(), items, shape)?;
    for map in plan.patterns() {
        device_can(OP, a.values(), &map, &[])?;
    }
    let [x, y] = [(a, 0), (b, 1)].map(|(operand, side)| gather(&plan.maps[side], operand.values().clone()));
    let mut whole = a.shape();
    (whole[D - 2], whole[D - 1]) = (each[0], each[1]);
    Ok(SparseTensor::from_fitting(plan.pattern.clone(), whole, x * y))
}

fn planned(a: &Pattern, b: &Pattern, items: usize, shape: [usize; 2]) -> Result<Arc<Plan>, OpError> {
    let make = || plan(a, b, items, shape);
    let kept = a.plan_with(b, make)?;
    // The same pattern as one matrix and as a batch.
    if kept.items == items { Ok(kept) } else { make().map(Arc::new) }
}

fn plan(a: &Pattern, b: &Pattern, items: usize, shape: [usize; 2]) -> Result<Plan, OpError> {
    let order = Order::common([a, b]);
    let lines = [a, b].map(|pattern| order.lines(pattern));
    let [heights, widths] =
        [0, 1].map(|axis| lines.each_ref().map(|p| p.shape()[axis].checked_div(items).unwrap_or(0)));
    let entries = lines.each_ref().map(|pattern| pattern.entries_of_items(items));
    let count: u128 = entries[0].iter().zip(&entries[1]).map(|(&x, &y)| x as u128 * y as u128).sum();
    let memory = || OpError::Memory { op: OP, what: "entries", size: count };
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for list in [&mut left, &mut right] {
        list.try_reserve_exact(usize::try_from(count).map_err(|_| memory())?).map_err(|_| memory())?;
    }
    // The entries of a row of A, each with all of a row of B: in order, if A has no column twice.
    let sorted = lines.iter().all(|pattern| pattern.format().is_ordered());
    let mut lists = Lists::new();
    with_rows!(lines[0].rows(), x => with_rows!(lines[1].rows(), y => {
        for item in 0..items {
            for row in 0..heights[0] * heights[1] {
                let [i, j] = [item * heights[0] + row / heights[1], item * heights[1] + row % heights[1]];
                for e in x.range(i) {
                    let start = (item * widths[0] * widths[1]) + (x.columns[e].get() - item * widths[0]) * widths[1];
                    for f in y.range(j) {
                        lists.push(start + y.columns[f].get() - item * widths[1], left.len());
                        left.push(x.slot(e));
                        right.push(y.slot(f));
                    }
                }
                if sorted { lists.end_sorted_row() } else { lists.end_row() }
            }
        }
    }));
    let order_of = lists.slots().to_vec();
    let maps = [(left, a), (right, b)]
        .map(|(slots, pattern)| slots_of(order_of.iter().map(|&at| slots[at]).collect(), pattern.nnz()));
    let pattern = lists.finish(order, shape, order_of.len()).pattern;
    Ok(Plan { items, pattern, maps })
}

impl<const D: usize> SparseTensor<D> {
    /// The Kronecker product with another matrix, or batch: see [`kron`].
    ///
    /// # Panics
    /// Where [`try_kron`] returns an error.
    #[track_caller]
    pub fn kron(&self, b: &Self) -> Self {
        kron(self, b)
    }
}
