//! Least squares in rounds: what LSMR and its backward pass have in common.

use super::space::{Axpy, Side, Space};
use super::watch::{Ending, Log, Stop, Watch};
use super::{Found, Problem};
use crate::outcome::Outcome;

/// What is known of the unknowns, recomputed from them: a number for each right-hand side.
pub(super) struct Truth {
    /// Norms of the residuals.
    pub residuals: Vec<f64>,
    /// Those that are small enough.
    pub goals: Vec<f64>,
    /// What is minimised: norms of the residuals, with the damped unknowns below them.
    pub lengths: Vec<f64>,
    /// Norms of the gradients of that.
    pub gradients: Vec<f64>,
    /// Those that are small enough.
    pub level: Vec<f64>,
}

/// Vectors that are solved for.
pub(super) type Unknowns<'a, S> = Vec<(Side, &'a mut <S as Space>::Vector)>;

/// A problem of least squares and its unknowns.
pub(super) trait Descent<S: Space> {
    fn unknowns(&mut self) -> Unknowns<'_, S>;

    /// What is known of them. `sizes` are norms of the operator.
    fn truth(&mut self, sizes: &[f64]) -> Truth;

    /// Iterates until all are done, or nothing is left to gain. `known` are norms of the operator's entries, if they are at
    /// hand; if not, `sizes` learns what the iteration sees.
    fn round(&mut self, known: Option<&[f64]>, sizes: &mut [f64], watch: &mut Watch<'_, S>);
}

/// Rounds, as long as they help. Each begins with what is recomputed.
pub(super) fn descend<S: Space>(problem: &Problem<'_, S>, goals: &[f64], descent: &mut impl Descent<S>) -> Found {
    let Problem { space, settings, norms, limit, .. } = problem;
    let (space, groups) = (*space, norms.len());
    // Norms of the operator: of its entries, or as iterations see them.
    let known = space.frobenius();
    let mut sizes = known.clone().unwrap_or_else(|| vec![0.0; groups]);
    let mut outcomes = problem.decided.clone();
    let mut log = Log::default();
    let mut now = descent.truth(&sizes);
    let mut counts = vec![0; groups];
    // What the last round began with, and how it ended.
    let mut last: Option<(Vec<S::Vector>, Truth, Vec<Ending>)> = None;
    loop {
        let mut keep = vec![1.0; groups];
        for group in 0..groups {
            let ending = last.as_ref().map(|(.., endings)| endings[group]);
            counts[group] += ending.map_or(0, |ending| ending.iterations);
            if outcomes[group].is_some() {
                continue;
            }
            if now.residuals[group] <= now.goals[group] {
                outcomes[group] = Some(Outcome::Converged);
            } else if now.gradients[group] <= now.level[group] {
                outcomes[group] = Some(Outcome::LeastSquares);
            } else if let Some((_, before, endings)) = &last {
                let (length, steep) = (before.lengths[group], before.gradients[group]);
                let helped = now.lengths[group] < 0.5 * length || now.gradients[group] < 0.5 * steep;
                // Worse, or not a number.
                if !(now.lengths[group] <= length || now.gradients[group] <= steep) {
                    keep[group] = 0.0;
                    now.residuals[group] = before.residuals[group];
                }
                outcomes[group] = match endings[group].stop {
                    Stop::Running => Some(Outcome::IterationLimit { limit: *limit }),
                    Stop::Broken(kind) => Some(Outcome::Breakdown { kind, iteration: counts[group] + 1 }),
                    _ if helped => None,
                    _ => Some(Outcome::Stagnated),
                };
            }
        }
        if let Some((saved, ..)) = last.as_ref().filter(|_| keep.contains(&0.0)) {
            for (saved, (_, x)) in saved.iter().zip(descent.unknowns()) {
                space.restore(&keep, saved, x);
            }
        }
        let live: Vec<f64> = outcomes.iter().map(|outcome| if outcome.is_none() { 1.0 } else { 0.0 }).collect();
        if live.iter().all(|live| *live == 0.0) || log.iterations >= *limit {
            break;
        }
        let saved = descent.unknowns().into_iter().map(|(side, x)| space.copy(side, x)).collect();
        let mut watch = Watch::new(space, settings, &live, &now.lengths, goals, norms, *limit, &mut log);
        descent.round(known.as_deref(), &mut sizes, &mut watch);
        let endings = watch.finish();
        last = Some((saved, now, endings));
        now = descent.truth(&sizes);
    }
    let limited = || Outcome::IterationLimit { limit: *limit };
    let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(limited)).collect();
    Found { outcomes, residuals: now.residuals, log }
}

/// The norms of each.
pub(super) fn norms<S: Space>(space: &S, squares: S::Numbers) -> Vec<f64> {
    space.read(&[squares])[0].iter().map(|square| square.sqrt()).collect()
}

/// Takes out of a multiplier what it has in common with the residual.
///
/// A multiplier y of x = A^T y is made of b, A A^T b, (A A^T)^2 b and so on. Of all of them what A^T maps to 0 is a multiple of
/// one vector, that part of b: which is the residual of least squares.
pub(super) fn project<S: Space>(space: &S, outcomes: &[Outcome], residual: &S::Vector, y: &mut S::Vector) {
    if !outcomes.contains(&Outcome::LeastSquares) {
        return;
    }
    let read = space.read(&[space.dot(residual, y), space.dot(residual, residual)]);
    let step = |(group, outcome): (usize, &Outcome)| match outcome {
        Outcome::LeastSquares if read[1][group] > 0.0 => -read[0][group] / read[1][group],
        _ => 0.0,
    };
    let steps: Vec<f64> = outcomes.iter().enumerate().map(step).collect();
    space.update(Axpy, [&space.upload(&steps)], [residual], [y]);
}
