//! The entries of two patterns side by side: all positions, or those of both.

use crate::ops::gather::gather;
use crate::pattern::{Index, IndexWidth, Indices, PairPlan, Pattern, Rows, trusted_csr, with_rows};
use burn::tensor::Tensor;
use std::convert::Infallible;

/// A pattern made of two, each position once, and which values of either are summed at each.
pub(super) struct Merged {
    pub pattern: Pattern,
    /// Entries x values; `None` where entry `e` has value `e`.
    gathers: [Option<Pattern>; 2],
}

impl Merged {
    /// Values of one of the two, at the entries of the pattern: 0 where it stores nothing.
    pub fn values(&self, side: usize, values: &Tensor<1>) -> Tensor<1> {
        match &self.gathers[side] {
            Some(map) => gather(map, values.clone()),
            None => values.clone(),
        }
    }

    fn t(&self) -> Self {
        Self { pattern: self.pattern.t(), gathers: self.gathers.clone() }
    }

    fn patterns(&self) -> Vec<Pattern> {
        self.gathers.iter().flatten().chain([&self.pattern]).cloned().collect()
    }
}

/// Every position that one of two patterns stores.
struct Union(Merged);

/// The positions that both store.
struct Common(Merged);

impl PairPlan for Union {
    fn patterns(&self) -> Vec<Pattern> {
        self.0.patterns()
    }
}

impl PairPlan for Common {
    fn patterns(&self) -> Vec<Pattern> {
        self.0.patterns()
    }
}

/// The positions of either, planned once: in CSC if both are, in CSR otherwise.
pub(super) fn union(a: &Pattern, b: &Pattern) -> Merged {
    planned(a, b, |a, b| {
        let Ok(plan) = a.plan_with(b, || Ok::<_, Infallible>(Union(merge(a, b, false))));
        share(&plan.0)
    })
}

/// The positions of both, planned once: in CSC if both are, in CSR otherwise.
pub(super) fn common(a: &Pattern, b: &Pattern) -> Merged {
    planned(a, b, |a, b| {
        let Ok(plan) = a.plan_with(b, || Ok::<_, Infallible>(Common(merge(a, b, true))));
        share(&plan.0)
    })
}

fn share(merged: &Merged) -> Merged {
    Merged { pattern: merged.pattern.clone(), gathers: merged.gathers.clone() }
}

fn planned(a: &Pattern, b: &Pattern, plan: impl Fn(&Pattern, &Pattern) -> Merged) -> Merged {
    let by_columns = |pattern: &Pattern| pattern.format().name() == Some("CSC");
    if by_columns(a) && by_columns(b) { plan(&a.t(), &b.t()).t() } else { plan(a, b) }
}

fn merge(a: &Pattern, b: &Pattern, in_both: bool) -> Merged {
    let lists = with_rows!(a.rows(), a => with_rows!(b.rows(), b => Lists::of(a, b, in_both)));
    let kept = lists.columns.len();
    let width = |entries: usize| match entries <= i32::MAX as usize {
        true => a.index_width().max(b.index_width()),
        false => IndexWidth::I64,
    };
    let csr = |offsets: &[usize], columns: &[usize], shape| {
        let [offsets, columns] = [offsets, columns].map(|indices| Indices::of_width(width(columns.len()), indices));
        trusted_csr(offsets, columns, shape, true, true)
    };
    let gather = |side: usize, stored: usize| {
        let (offsets, slots) = (&lists.ends[side], &lists.slots[side]);
        let is_identity =
            kept == stored && [offsets, slots].iter().all(|list| list.iter().enumerate().all(|(i, &x)| i == x));
        (!is_identity).then(|| csr(offsets, slots, [kept, stored]))
    };
    Merged {
        gathers: [gather(0, a.nnz()), gather(1, b.nnz())],
        pattern: csr(&lists.offsets, &lists.columns, a.shape()),
    }
}

/// The kept positions by rows, and for each the slots of either operand.
struct Lists {
    offsets: Vec<usize>,
    columns: Vec<usize>,
    ends: [Vec<usize>; 2],
    slots: [Vec<usize>; 2],
}

impl Lists {
    fn of<I: Index, J: Index>(a: &Rows<I>, b: &Rows<J>, in_both: bool) -> Self {
        let mut all = Self { offsets: vec![0], columns: vec![], ends: [vec![0], vec![0]], slots: [vec![], vec![]] };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for row in 0..a.n_rows() {
            sorted_row(a, row, &mut left);
            sorted_row(b, row, &mut right);
            let (mut l, mut r) = (left.as_slice(), right.as_slice());
            while let Some(column) = [l.first(), r.first()].into_iter().flatten().map(|&(column, _)| column).min() {
                let (of_left, of_right) = (split_off(&mut l, column), split_off(&mut r, column));
                if in_both && (of_left.is_empty() || of_right.is_empty()) {
                    continue;
                }
                all.columns.push(column);
                for (side, group) in [of_left, of_right].into_iter().enumerate() {
                    all.slots[side].extend(group.iter().map(|&(_, slot)| slot));
                    all.ends[side].push(all.slots[side].len());
                }
            }
            all.offsets.push(all.columns.len());
        }
        all
    }
}

/// Columns and slots of a row, by column; those of one column in the order of storage.
fn sorted_row<I: Index>(rows: &Rows<I>, row: usize, out: &mut Vec<(usize, usize)>) {
    out.clear();
    out.extend(rows.range(row).map(|entry| (rows.columns[entry].get(), rows.slot(entry))));
    if !out.is_sorted_by_key(|&(column, _)| column) {
        out.sort_by_key(|&(column, _)| column);
    }
}

/// Takes what stands at a column from the front.
fn split_off<'a>(row: &mut &'a [(usize, usize)], column: usize) -> &'a [(usize, usize)] {
    let length = row.iter().take_while(|&&(c, _)| c == column).count();
    let (front, rest) = row.split_at(length);
    *row = rest;
    front
}
