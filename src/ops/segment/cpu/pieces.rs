//! Folds over the entries of rows: many short rows together, long ones in pieces.

use crate::backend::scalar::Accumulator;
use crate::backend::simd::{self, Isa, Kernel, for_each, for_each_chunk};
use crate::ops::reduce::exp::Real;
use crate::pattern::{Index, Rows};
use std::ops::Range;
use std::sync::OnceLock;

/// Entries of a piece, and of the longest segment that is not cut.
const PIECE: usize = 4096;
/// Entries of rows that are done together.
const TOGETHER: usize = 2048;

/// What is worked out over the entries of a segment, given by their slots: a state of some numbers a column, by which pieces of
/// a segment can be merged, and what follows from that of the whole.
pub(super) trait Fold: Sync {
    /// What is computed in.
    type Acc: Real;
    /// Numbers of a column.
    const STATE: usize;
    /// Multiplications that an element is worth.
    const WORK: usize;

    fn columns(&self) -> usize;

    /// Elements of memory that is given to work in.
    fn scratch(&self) -> usize {
        self.columns()
    }

    /// Overwrites the state with that of some entries.
    ///
    /// # Safety
    ///
    /// There are such slots.
    unsafe fn fold<S: Isa>(&self, slots: &[usize], state: &mut [Self::Acc], scratch: &mut [Self::Acc]);

    /// Adds the state of the next piece.
    fn merge(&self, state: &mut [Self::Acc], piece: &[Self::Acc]);

    /// Writes the results of a row of `length` entries.
    ///
    /// # Safety
    ///
    /// There is such a row.
    unsafe fn write_row(&self, _row: usize, _length: usize, _state: &[Self::Acc]) {}

    /// Writes the results of entries: of a whole row right after it was folded with the same scratch, or of one of several
    /// pieces, of which the `earlier` ones had these states.
    ///
    /// # Safety
    ///
    /// There are such slots and such a row.
    #[inline(always)]
    unsafe fn write_entries<S: Isa>(
        &self,
        _row: usize,
        _slots: &[usize],
        _state: &[Self::Acc],
        _earlier: &[Self::Acc],
        _scratch: &mut [Self::Acc],
    ) {
    }
}

/// Folds every row.
pub(super) fn fold_rows<I: Index, F: Fold>(rows: &Rows<I>, fold: &F) {
    let columns = fold.columns();
    if columns == 0 {
        return;
    }
    let work = F::WORK * rows.n_entries() * columns;
    for_each_chunk(rows, work, |range| {
        let (mut bounds, mut slots) = (vec![0], Vec::new());
        for row in range.clone() {
            let entries = rows.range(row);
            let is_cut = entries.len() > PIECE;
            if !is_cut {
                slots.extend(entries.map(|entry| rows.slot(entry)));
                bounds.push(slots.len());
            }
            if is_cut || slots.len() >= TOGETHER || row + 1 == range.end {
                let first = row + usize::from(!is_cut) + 1 - bounds.len();
                simd::run(Run { fold, slots: &slots, task: Task::Rows { first, bounds: &bounds } });
                bounds.truncate(1);
                slots.clear();
            }
        }
    });
    if rows.n_entries() > PIECE {
        fold_long_rows(rows, fold, F::STATE * columns, work);
    }
}

/// A piece of a long row: which one of these, and its entries.
type Piece = (usize, Range<usize>);

/// Folds the rows that are cut, `size` numbers a state.
fn fold_long_rows<I: Index, F: Fold>(rows: &Rows<I>, fold: &F, size: usize, work: usize) {
    // A long row: which it is, and its pieces.
    let (mut pieces, mut long) = (Vec::<Piece>::new(), Vec::new());
    for row in 0..rows.n_rows() {
        let range = rows.range(row);
        if range.len() > PIECE {
            let first = pieces.len();
            let starts = range.clone().step_by(PIECE);
            pieces.extend(starts.map(|start| (long.len(), start..range.end.min(start + PIECE))));
            long.push((row, first..pieces.len()));
        }
    }
    let run = |(_, entries): &Piece, task: Task<'_, F::Acc>| {
        let slots: Vec<usize> = entries.clone().map(|entry| rows.slot(entry)).collect();
        simd::run(Run { fold, slots: &slots, task });
    };
    let states: Vec<OnceLock<Vec<F::Acc>>> = pieces.iter().map(|_| OnceLock::new()).collect();
    for_each(pieces.len(), work, &|at| {
        states[at].get_or_init(|| {
            let mut state = vec![F::Acc::ZERO; size];
            run(&pieces[at], Task::Fold { state: &mut state });
            state
        });
    });
    let states: Vec<F::Acc> = states.into_iter().filter_map(OnceLock::into_inner).flatten().collect();
    let mut totals = Vec::with_capacity(long.len() * size);
    for (row, of_row) in &long {
        let mut parts = states[of_row.start * size..of_row.end * size].chunks(size);
        let mut total = parts.next().expect("long rows have pieces").to_vec();
        parts.for_each(|part| fold.merge(&mut total, part));
        // SAFETY: a row of the pattern.
        unsafe { fold.write_row(*row, rows.range(*row).len(), &total) };
        totals.extend(total);
    }
    for_each(pieces.len(), work, &|at| {
        let (row, of_row) = &long[pieces[at].0];
        let state = &totals[pieces[at].0 * size..][..size];
        let earlier = &states[of_row.start * size..at * size];
        run(&pieces[at], Task::Write { row: *row, state, earlier });
    });
}

/// What is done with a fold.
enum Task<'a, A> {
    /// All of it, on rows from `first` on, whose slots have these bounds.
    Rows { first: usize, bounds: &'a [usize] },
    /// The state of a piece.
    Fold { state: &'a mut [A] },
    /// The results of the entries of a piece.
    Write { row: usize, state: &'a [A], earlier: &'a [A] },
}

/// One kernel for all tasks, lest each is compiled with a copy of the fold.
struct Run<'a, F: Fold> {
    fold: &'a F,
    slots: &'a [usize],
    task: Task<'a, F::Acc>,
}

impl<F: Fold> Kernel for Run<'_, F> {
    #[inline(always)]
    fn run<S: Isa>(self) {
        let Self { fold, slots, mut task } = self;
        let whole = [0, slots.len()];
        let (first, bounds) = match &task {
            Task::Rows { first, bounds } => (*first, *bounds),
            Task::Write { row, .. } => (*row, &whole[..]),
            Task::Fold { .. } => (0, &whole[..]),
        };
        let mut state = vec![F::Acc::ZERO; F::STATE * fold.columns()];
        let mut scratch = vec![F::Acc::ZERO; fold.scratch()];
        for (row, bounds) in (first..).zip(bounds.windows(2)) {
            let slots = &slots[bounds[0]..bounds[1]];
            // SAFETY: rows of the pattern and their slots.
            unsafe {
                match &task {
                    Task::Write { state: given, .. } => state.copy_from_slice(given),
                    _ => fold.fold::<S>(slots, &mut state, &mut scratch),
                }
                let earlier = match &mut task {
                    Task::Rows { .. } => {
                        fold.write_row(row, slots.len(), &state);
                        &[]
                    }
                    Task::Fold { state: to } => return to.copy_from_slice(&state),
                    Task::Write { earlier, .. } => *earlier,
                };
                fold.write_entries::<S>(row, slots, &state, earlier, &mut scratch);
            }
        }
    }
}
