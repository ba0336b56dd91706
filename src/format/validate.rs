//! What makes a list of levels a format.

use super::{Expr, Level, LevelKind, parse::show};
use crate::error::FormatError;

/// Where a dimension stands while the levels are read from the outermost in.
#[derive(Clone, Copy, PartialEq)]
enum Progress {
    Open,
    /// `d // n` was read, `d % n` is owed.
    Divided(usize),
    /// Part of a sum or difference; a range level over one of the two is owed.
    Paired(usize),
    Done,
}

pub(super) fn check(names: &[String], levels: &[Level]) -> Result<(), FormatError> {
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            return Err(FormatError::RepeatedDimension { name: name.clone() });
        }
    }
    let mut progress = vec![Progress::Open; names.len()];
    for (at, level) in levels.iter().enumerate() {
        check_kind(at, level, levels)?;
        for d in level.expr.dims() {
            if d >= names.len() {
                return Err(FormatError::UnknownDimension { name: d.to_string(), level: at });
            }
        }
        advance(&mut progress, names, at, level)?;
    }
    for (d, state) in progress.iter().enumerate() {
        match state {
            Progress::Done => {}
            Progress::Open => {
                return Err(FormatError::UnusedDimension { name: names[d].clone() });
            }
            Progress::Divided(n) => {
                let divided = Expr::Div(d, *n);
                return Err(FormatError::UnmatchedDivision {
                    expression: show(divided, names),
                    level: levels.iter().position(|l| l.expr == divided).expect("the level that divided it"),
                });
            }
            Progress::Paired(_) => {
                let pairs = |l: &Level| matches!(l.expr, Expr::Add(..) | Expr::Sub(..));
                let level = levels
                    .iter()
                    .position(|l| pairs(l) && l.expr.dims().any(|x| x == d))
                    .expect("the level that paired it");
                return Err(FormatError::UnmatchedRange { expression: show(levels[level].expr, names), level });
            }
        }
    }
    Ok(())
}

fn check_kind(at: usize, level: &Level, levels: &[Level]) -> Result<(), FormatError> {
    let invalid = |reason| Err(FormatError::InvalidLevel { level: at, kind: format!("{:?}", level.kind), reason });
    let stores = level.kind.has_coordinates();
    if !(stores || level.unique && level.ordered) {
        return invalid("a level that stores no coordinates is always unique and ordered");
    }
    match level.kind {
        LevelKind::Batch => {
            let prefix = levels[..at].iter().all(|l| l.kind == LevelKind::Batch);
            if !prefix || level.expr != Expr::Dim(at) {
                return invalid("batch levels come first, one for each leading dimension");
            }
            if at + 1 == levels.len() {
                return invalid("a batch needs levels below it");
            }
        }
        LevelKind::Singleton => {
            let parent = at.checked_sub(1).map(|p| levels[p]);
            if !parent.is_some_and(|p| p.kind.has_coordinates() && !p.unique) {
                return invalid("a singleton stands under a level that is not unique");
            }
        }
        LevelKind::Range if !matches!(level.expr, Expr::Dim(_)) => {
            return invalid("a range is over a plain dimension");
        }
        LevelKind::Delta { bits } if !(1..=32).contains(&bits) => {
            return invalid("a distance has 1 to 32 bits");
        }
        LevelKind::Delta { .. } if !(level.unique && level.ordered) => {
            return invalid("distances are positive: the level is always unique and ordered");
        }
        LevelKind::Structured { n } => match level.expr {
            Expr::Mod(_, m) if (1..=m).contains(&n) => {}
            Expr::Mod(..) => return invalid("stores at least one and at most all of a block"),
            _ => return invalid("a structured level counts a modulo"),
        },
        _ => {}
    }
    Ok(())
}

fn advance(progress: &mut [Progress], names: &[String], at: usize, level: &Level) -> Result<(), FormatError> {
    let expression = || show(level.expr, names);
    let reused = |d: usize| FormatError::ReusedDimension { name: names[d].clone(), level: at };
    match level.expr {
        Expr::Div(_, 0) | Expr::Mod(_, 0) => {
            return Err(FormatError::DivisorNotPositive { expression: expression(), level: at });
        }
        Expr::Dim(d) => match (progress[d], level.kind) {
            (Progress::Paired(e), LevelKind::Range) => {
                progress[d] = Progress::Done;
                progress[e] = Progress::Done;
            }
            (_, LevelKind::Range) => {
                return Err(FormatError::UnmatchedRange { expression: expression(), level: at });
            }
            (Progress::Open, _) => progress[d] = Progress::Done,
            _ => return Err(reused(d)),
        },
        Expr::Div(d, n) => match progress[d] {
            Progress::Open => progress[d] = Progress::Divided(n),
            _ => return Err(reused(d)),
        },
        Expr::Mod(d, n) => match progress[d] {
            Progress::Divided(m) if m == n => progress[d] = Progress::Done,
            Progress::Done => return Err(reused(d)),
            _ => {
                return Err(FormatError::UnmatchedDivision { expression: expression(), level: at });
            }
        },
        Expr::Add(d, e) | Expr::Sub(d, e) => {
            if d == e {
                return Err(reused(d));
            }
            for x in [d, e] {
                if progress[x] != Progress::Open {
                    return Err(reused(x));
                }
            }
            progress[d] = Progress::Paired(e);
            progress[e] = Progress::Paired(d);
        }
    }
    Ok(())
}
