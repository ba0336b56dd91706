//! The symbolic part: which entries a product has, and how its rows are shared out.

use crate::error::OpError;
#[cfg(feature = "cube")]
use crate::pattern::Conversion;
use crate::pattern::{
    Buffer, Index, IndexWidth, Indices, PairPlan, Pattern, Rows, chunks, of_view, trusted_csr, with_rows,
};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::OP;

/// The symbolic part of a product of two sparse matrices, made once for their patterns: a training loop that holds it
/// computes numbers only, without a search.
///
/// [`spgemm`](super::spgemm()) keeps the plans of its last calls with the pattern of its first operand; hold one where they are many, or where
/// the first step has to be as fast as the others.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad::ops::spgemm::SpgemmPlan;
///
/// let device = Device::flex();
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[2.0f32, 3.0], [2, 2], &device)?;
/// let plan = SpgemmPlan::new(a.pattern(), a.pattern())?;
/// assert_eq!((plan.nnz(), plan.products()), (2, 2));
/// for step in 1..4 {
///     let a = a.map_values(|v| v * step);
///     let square = plan.execute(&a, &a);
///     assert_eq!(square.get(0, 0)?, Some(6.0 * f64::from(step * step)));
/// }
/// # Ok::<(), TensorError>(())
/// ```
#[derive(Clone)]
pub struct SpgemmPlan {
    /// The patterns of the operands, as they were given.
    operands: [Pattern; 2],
    /// The same and that of the product, in indices of one width.
    left: Pattern,
    right: Pattern,
    product: Pattern,
    shared: Arc<Symbolic>,
    transposed: bool,
}

/// What is worked out for the patterns of two operands. It holds neither of them.
pub(crate) struct Symbolic {
    product: Pattern,
    /// Operands in wider indices, where theirs are narrower than the product's.
    widened: [Option<Pattern>; 2],
    /// How many pairs of entries meet.
    products: usize,
    /// For the product and for its transpose.
    schedules: [OnceLock<Schedule>; 2],
    /// For each entry of product, left and right operand: the pairs of the others that meet there.
    #[cfg(feature = "cube")]
    meetings: [OnceLock<Meetings>; 3],
    /// The right operand of the product, and of its transpose, with ascending rows, `None` if it has them.
    #[cfg(feature = "cube")]
    searchable: [OnceLock<Option<Conversion>>; 2],
}

/// How the rows of a product are shared out, and the columns that a row of accumulators has.
struct Schedule {
    /// Bounds of row ranges with about the same number of pairs. A function of the patterns alone.
    bounds: Vec<usize>,
    width: usize,
    /// Columns of the right operand and of the product by their rank, where there are far more columns than entries.
    ranks: Option<[Indices; 2]>,
}

/// For each entry of one of the three, pairs of slots in the values of the other two: a row of `x` and one of `y`.
#[cfg(feature = "cube")]
#[derive(Clone)]
pub(super) struct Meetings {
    pub x: Pattern,
    pub y: Pattern,
}

impl PairPlan for Symbolic {
    fn patterns(&self) -> Vec<Pattern> {
        let own = [Some(self.product.clone())].into_iter().chain(self.widened.clone());
        #[cfg(feature = "cube")]
        let own = own
            .chain(self.meetings.iter().filter_map(OnceLock::get).flat_map(|m| [Some(m.x.clone()), Some(m.y.clone())]));
        // What is searched is kept by its operand.
        own.flatten().collect()
    }
}

impl std::fmt::Debug for SpgemmPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b] = &self.operands;
        write!(f, "SpgemmPlan({a} times {b} is {})", self.product)
    }
}

impl SpgemmPlan {
    /// Plans the product of matrices with these patterns.
    ///
    /// Of batches: give the patterns of their block-diagonal matrices, which is what
    /// [`SparseTensor::pattern`](crate::SparseTensor::pattern) is.
    ///
    /// # Errors
    /// If the inner dimensions differ, or the product has more entries than there is memory for.
    pub fn new(a: &Pattern, b: &Pattern) -> Result<Self, OpError> {
        check_inner(a, b)?;
        Ok(Self::with(a, b, Arc::new(Symbolic::new(a, b)?)))
    }

    /// The plan from the cache of `a`, or a new one that is kept there.
    pub(super) fn cached(a: &Pattern, b: &Pattern) -> Result<Self, OpError> {
        check_inner(a, b)?;
        Ok(Self::with(a, b, a.plan_with(b, || Symbolic::new(a, b))?))
    }

    fn with(a: &Pattern, b: &Pattern, shared: Arc<Symbolic>) -> Self {
        let [left, right] = [(a, &shared.widened[0]), (b, &shared.widened[1])]
            .map(|(own, widened)| widened.as_ref().unwrap_or(own).clone());
        let product = shared.product.clone();
        Self { operands: [a.clone(), b.clone()], left, right, product, shared, transposed: false }
    }

    /// The plan of the transposed product, `B^T A^T`.
    pub(super) fn t(&self) -> Self {
        let [a, b] = &self.operands;
        Self {
            operands: [b.t(), a.t()],
            left: self.right.t(),
            right: self.left.t(),
            product: self.product.t(),
            shared: self.shared.clone(),
            transposed: !self.transposed,
        }
    }

    /// The pattern of the product.
    pub fn pattern(&self) -> &Pattern {
        &self.product
    }

    /// The patterns of the operands.
    pub fn operands(&self) -> [&Pattern; 2] {
        self.operands.each_ref()
    }

    /// The number of entries of the product.
    pub fn nnz(&self) -> usize {
        self.product.nnz()
    }

    /// How many multiplications the product takes: pairs of entries whose inner indices agree.
    pub fn products(&self) -> usize {
        self.shared.products
    }

    /// Calls `work` with the parts in their index width.
    pub(super) fn with_parts<R>(&self, work: impl PartsWork<R>) -> R {
        with_rows!(self.left.rows(), left => {
            let [right, product] = [&self.right, &self.product].map(|pattern| of_view(pattern.rows(), left));
            let schedule = self.shared.schedules[usize::from(self.transposed)]
                .get_or_init(|| Schedule::new(left, right, Some(product)).0);
            let ranks = schedule.ranks.as_ref().map(|ranks| ranks.each_ref().map(Buffer::share));
            work.call(Parts {
                left,
                right,
                product,
                right_columns: ranks.as_ref().map_or(&right.columns, |[right, _]| right),
                product_columns: ranks.as_ref().map_or(&product.columns, |[_, product]| product),
                width: schedule.width,
                bounds: &schedule.bounds,
                products: self.products(),
            })
        })
    }

    /// The pairs of left and right slots that meet in each value of the product, or of right and product slots in each of the
    /// left operand.
    #[cfg(feature = "cube")]
    pub(super) fn meetings(&self, of: Of) -> Meetings {
        let index = match (of, self.transposed) {
            (Of::Product, _) => 0,
            (Of::Left, false) => 1,
            (Of::Left, true) => 2,
        };
        let found = self.shared.meetings[index].get_or_init(|| {
            // By entries of the product in its own order: it is the same list, with the operands exchanged.
            let plan = if of == Of::Product && self.transposed { self.t() } else { self.clone() };
            with_rows!(plan.left.rows(), left => {
                let [right, product] = [&plan.right, &plan.product].map(|pattern| of_view(pattern.rows(), left));
                meet(left, right, product, of)
            })
        });
        if of == Of::Product && self.transposed {
            return Meetings { x: found.y.clone(), y: found.x.clone() };
        }
        found.clone()
    }
}

#[cfg(feature = "cube")]
impl SpgemmPlan {
    /// Left and right operand and product, in indices of one width.
    pub(super) fn parts(&self) -> [&Pattern; 3] {
        [&self.left, &self.right, &self.product]
    }

    /// The right operand with rows of ascending columns, `None` if it has them.
    pub(super) fn searchable(&self) -> Option<&Conversion> {
        let found = self.shared.searchable[usize::from(self.transposed)].get_or_init(|| {
            let ascends = with_rows!(self.right.rows(), rows => !has_duplicates_in_rows(rows));
            (!ascends).then(|| self.right.coalesce())
        });
        found.as_ref()
    }
}

/// Whose values are computed.
#[cfg(feature = "cube")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Product,
    Left,
}

/// What a kernel on the CPU reads of a plan.
pub(super) struct Parts<'a, I> {
    pub left: &'a Rows<I>,
    pub right: &'a Rows<I>,
    pub product: &'a Rows<I>,
    /// The accumulator of each entry of the right operand, below `width`.
    pub right_columns: &'a [I],
    /// The accumulator of each entry of the product, below `width`.
    pub product_columns: &'a [I],
    pub width: usize,
    pub bounds: &'a [usize],
    pub products: usize,
}

/// What is done with the parts, once their index type is known.
pub(super) trait PartsWork<R> {
    /// The work.
    fn call<I: Index>(self, parts: Parts<'_, I>) -> R;
}

fn check_inner(a: &Pattern, b: &Pattern) -> Result<(), OpError> {
    if a.shape()[1] == b.shape()[0] {
        return Ok(());
    }
    let what = "columns of A and rows of B must agree";
    Err(OpError::Shapes { op: OP, what, left: a.shape().into(), right: b.shape().into() })
}

impl Symbolic {
    fn new(a: &Pattern, b: &Pattern) -> Result<Self, OpError> {
        let (shape, width) = ([a.shape()[0], b.shape()[1]], a.index_width().max(b.index_width()));
        let widen = |pattern: &Pattern, width| match pattern.index_width() == width {
            true => None,
            false => Some(pattern.with_index_width(width).expect("wider holds as much")),
        };
        let made = {
            let (left, right) = (widen(a, width), widen(b, width));
            let (left, right) = (left.as_ref().unwrap_or(a), right.as_ref().unwrap_or(b));
            with_rows!(left.rows(), left => Self::rows(left, of_view(right.rows(), left), shape)?)
        };
        let (product, products, schedule) = made;
        let width = product.index_width();
        Ok(Self {
            widened: [widen(a, width), widen(b, width)],
            product,
            products,
            schedules: [schedule.map_or_else(OnceLock::new, OnceLock::from), OnceLock::new()],
            #[cfg(feature = "cube")]
            meetings: Default::default(),
            #[cfg(feature = "cube")]
            searchable: Default::default(),
        })
    }

    /// The product's pattern, the number of pairs, and the schedule if its indices are of the product's width.
    fn rows<I: Buffer>(
        left: &Rows<I>,
        right: &Rows<I>,
        shape: [usize; 2],
    ) -> Result<(Pattern, usize, Option<Schedule>), OpError> {
        let no_memory = |entries: u128| OpError::Memory { op: OP, what: "entries of the product", size: entries };
        // A row of the product is no shorter than a row of B that has no duplicates, and no longer than all that meet.
        let bounds_of_row = |row: usize| {
            let lengths = left.range(row).map(|e| right.range(left.columns[e].get()).len());
            lengths.fold((0, 0u128), |(most, sum), length| (most.max(length), sum + length as u128))
        };
        let (mut least, mut products) = (0u128, 0u128);
        for row in 0..left.n_rows() {
            let (most, sum) = bounds_of_row(row);
            least += most as u128;
            products += sum;
        }
        if usize::try_from(products).map_or(true, |p| p > i64::MAX as usize) {
            return Err(OpError::Memory { op: OP, what: "pairs of entries of the product", size: products });
        }
        if !has_duplicates_in_rows(right) {
            let bytes = least * size_of::<I>() as u128;
            let fits = usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
            if !fits {
                return Err(no_memory(least));
            }
        }
        let (schedule, names) = Schedule::new(left, right, None);
        let ranks: Option<Arc<Vec<I>>> = schedule.ranks.as_ref().map(|[right, _]| Buffer::share(right));
        let columns: &[I] = ranks.as_ref().map_or(&right.columns, |ranks| ranks);
        let part = |bounds: &[usize]| union_rows(left, right, columns, schedule.width, bounds[0]..bounds[1]);
        let parts: Vec<_> = match schedule.bounds.len() <= 2 || rayon::current_num_threads() == 1 {
            true => schedule.bounds.windows(2).map(part).collect(),
            false => schedule.bounds.par_windows(2).map(part).collect(),
        };
        let parts: Option<Vec<(Vec<usize>, Vec<I>)>> = parts.into_iter().collect();
        let total = |parts: &[(Vec<usize>, Vec<I>)]| parts.iter().map(|(_, columns)| columns.len()).sum::<usize>();
        let parts = parts.ok_or_else(|| no_memory(products))?;
        let nnz = total(&parts);
        let mut found: Vec<I> = Vec::new();
        found.try_reserve_exact(nnz).map_err(|_| no_memory(nnz as u128))?;
        let mut ends = vec![0usize];
        for (lengths, columns) in parts {
            for length in lengths {
                ends.push(ends[ends.len() - 1] + length);
            }
            found.extend_from_slice(&columns);
        }
        let (found, ranks) = match &names {
            Some(names) => (found.iter().map(|rank| names[rank.get()]).collect(), Some(found)),
            None => (found, None),
        };
        let schedule = Schedule {
            ranks: schedule.ranks.map(|[right, _]| [right, I::to_indices(&Arc::new(ranks.unwrap_or_default()))]),
            ..schedule
        };
        if nnz > I::LIMIT {
            let wide: Vec<i64> = found.iter().map(|column| column.get() as i64).collect();
            let offsets = Indices::of_width(IndexWidth::I64, &ends);
            return Ok((
                trusted_csr(offsets, Indices::I64(Arc::new(wide)), shape, true, true),
                products as usize,
                None,
            ));
        }
        let offsets: Vec<I> = ends.into_iter().map(I::of).collect();
        let [offsets, columns] = [offsets, found].map(|buffer| I::to_indices(&Arc::new(buffer)));
        Ok((trusted_csr(offsets, columns, shape, true, true), products as usize, Some(schedule)))
    }
}

/// Whether some row has a column twice, of what has sorted rows; of other rows this says so to be on the safe side.
fn has_duplicates_in_rows<I: Index>(rows: &Rows<I>) -> bool {
    (0..rows.n_rows()).any(|row| !rows.columns[rows.range(row)].is_sorted_by(|a, b| a < b))
}

/// So many more columns than entries, and the columns are ranked: a row of accumulators is not to outgrow the matrix.
const SPARSE_COLUMNS: usize = 8;
/// Up to this many columns they are not.
const FEW_COLUMNS: usize = 1 << 16;

impl Schedule {
    /// The schedule, and the column of each rank if columns are ranked. Without the product its ranks are missing.
    fn new<I: Buffer>(left: &Rows<I>, right: &Rows<I>, product: Option<&Rows<I>>) -> (Self, Option<Vec<I>>) {
        let mut pairs = Vec::with_capacity(left.n_rows() + 1);
        let mut sum = 0i64;
        pairs.push(sum);
        for row in 0..left.n_rows() {
            for entry in left.range(row) {
                sum += right.range(left.columns[entry].get()).len() as i64;
            }
            pairs.push(sum);
        }
        let bounds = chunks(&pairs);
        if right.n_cols <= FEW_COLUMNS.max(right.n_entries().saturating_mul(SPARSE_COLUMNS)) {
            return (Self { bounds, width: right.n_cols, ranks: None }, None);
        }
        let mut names = right.columns.to_vec();
        names.sort_unstable();
        names.dedup();
        let rank = |column: &I| I::of(names.binary_search(column).expect("a column of the right operand"));
        let ranks = |columns: &[I]| I::to_indices(&Arc::new(columns.iter().map(rank).collect()));
        let product: &[I] = product.map_or(&[], |rows| &rows.columns);
        (Self { bounds, width: names.len(), ranks: Some([ranks(&right.columns), ranks(product)]) }, Some(names))
    }
}

/// Lengths and sorted columns of some rows of a product, `None` if there is no memory for them.
fn union_rows<I: Index>(
    left: &Rows<I>,
    right: &Rows<I>,
    columns: &[I],
    width: usize,
    rows: Range<usize>,
) -> Option<(Vec<usize>, Vec<I>)> {
    let mut lengths = Vec::with_capacity(rows.len());
    let mut found: Vec<I> = Vec::new();
    let mut set = Set::new(width);
    for row in rows {
        let before = found.len();
        let mut pairs = 0usize;
        for entry in left.range(row) {
            let of_right = right.range(left.columns[entry].get());
            pairs += of_right.len();
            // SAFETY: the columns of a pattern, or their ranks.
            unsafe { set.extend(&columns[of_right]) };
        }
        found.try_reserve(pairs.min(width)).ok()?;
        set.drain(|column| found.push(I::of(column)));
        lengths.push(found.len() - before);
    }
    Some((lengths, found))
}

/// A set of small numbers: a bit each, and a bit for each word that has one. What is drained comes sorted.
struct Set {
    words: Vec<u64>,
    used: Vec<u64>,
    /// Bounds of the `used` words that have a bit.
    first: usize,
    end: usize,
}

impl Set {
    fn new(width: usize) -> Self {
        let words = width.div_ceil(64);
        Self { words: vec![0; words], used: vec![0; words.div_ceil(64)], first: usize::MAX, end: 0 }
    }

    /// # Safety
    ///
    /// The numbers are below `width`.
    #[inline]
    unsafe fn extend<I: Index>(&mut self, numbers: &[I]) {
        for number in numbers {
            let (at, bit) = (number.get() / 64, 1 << (number.get() % 64));
            // SAFETY: there are words for numbers below `width`.
            let word = unsafe { self.words.get_unchecked_mut(at) };
            if *word == 0 {
                self.used[at / 64] |= 1 << (at % 64);
                self.first = self.first.min(at / 64);
                self.end = self.end.max(at / 64 + 1);
            }
            *word |= bit;
        }
    }

    fn drain(&mut self, mut visit: impl FnMut(usize)) {
        for group in self.first..self.end {
            let mut used = std::mem::take(&mut self.used[group]);
            while used != 0 {
                let at = group * 64 + used.trailing_zeros() as usize;
                used &= used - 1;
                let mut word = std::mem::take(&mut self.words[at]);
                while word != 0 {
                    visit(at * 64 + word.trailing_zeros() as usize);
                    word &= word - 1;
                }
            }
        }
        (self.first, self.end) = (usize::MAX, 0);
    }
}

/// Lists the pairs that meet in each value of the product or of the left operand.
#[cfg(feature = "cube")]
fn meet<I: Buffer>(left: &Rows<I>, right: &Rows<I>, product: &Rows<I>, of: Of) -> Meetings {
    // Slots of left, right and product of every pair.
    let each = |visit: &mut dyn FnMut([usize; 3])| {
        for row in 0..left.n_rows() {
            let of_product = product.range(row);
            for entry in left.range(row) {
                for other in right.range(left.columns[entry].get()) {
                    let columns = &product.columns[of_product.clone()];
                    let place = columns.binary_search(&right.columns[other]);
                    let at = of_product.start + place.expect("an entry of the product");
                    visit([left.slot(entry), right.slot(other), product.slot(at)]);
                }
            }
        }
    };
    let (key, x, y) = match of {
        Of::Product => (2, 0, 1),
        Of::Left => (0, 1, 2),
    };
    let sizes = [left, right, product].map(|rows| rows.n_slots);
    let mut next = vec![0usize; sizes[key] + 1];
    each(&mut |slots| next[slots[key] + 1] += 1);
    for at in 0..sizes[key] {
        next[at + 1] += next[at];
    }
    let offsets = next.clone();
    let pairs = offsets[sizes[key]];
    let [mut xs, mut ys] = [vec![0usize; pairs], vec![0usize; pairs]];
    each(&mut |slots| {
        let at = next[slots[key]];
        next[slots[key]] += 1;
        xs[at] = slots[x];
        ys[at] = slots[y];
    });
    let width = if pairs <= i32::MAX as usize { product_width(&sizes) } else { IndexWidth::I64 };
    let offsets = Indices::of_width(width, &offsets);
    // Both of one width on a device.
    let shape = [sizes[key], sizes[x].max(sizes[y])];
    let list = |slots: &[usize]| trusted_csr(offsets.clone(), Indices::of_width(width, slots), shape, false, false);
    Meetings { x: list(&xs), y: list(&ys) }
}

#[cfg(feature = "cube")]
fn product_width(sizes: &[usize]) -> IndexWidth {
    if sizes.iter().all(|&size| size <= i32::MAX as usize) { IndexWidth::I32 } else { IndexWidth::I64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_drains_sorted_and_is_empty_then() {
        let mut set = Set::new(10_000);
        for round in 0..3 {
            let numbers: Vec<i32> = (0..500).map(|i| (i * 7919 + round) % 10_000).collect();
            // SAFETY: they are remainders of 10,000.
            unsafe {
                set.extend(&numbers);
                set.extend(&numbers[..7]);
            }
            let mut expected: Vec<usize> = numbers.iter().map(|n| n.get()).collect();
            expected.sort_unstable();
            expected.dedup();
            let mut found = Vec::new();
            set.drain(|number| found.push(number));
            assert_eq!(found, expected);
        }
        set.drain(|_| unreachable!("it is empty"));
        Set::new(0).drain(|_| unreachable!("it is empty"));
    }
}
