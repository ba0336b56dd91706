//! Plans that belong to two patterns, such as where the entries of a product or of a sum lie.
//!
//! They are kept with the first pattern and gone with it. The second is remembered weakly: while it lives, its address is
//! its name.

use super::{Inner, MemoryUsage, Pattern};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many plans a pattern keeps; the one that was used longest ago makes room.
const KEPT: usize = 8;

/// What is planned for two patterns.
pub(crate) trait PairPlan: Any + Send + Sync {
    /// The patterns that it holds. Neither of the two may be among them, they would keep themselves alive.
    fn patterns(&self) -> Vec<Pattern>;
}

struct Entry {
    transposed: bool,
    other: Weak<Inner>,
    other_transposed: bool,
    plan: Arc<dyn Any + Send + Sync>,
    patterns: fn(&dyn Any) -> Vec<Pattern>,
}

impl Entry {
    fn is_for(&self, this: &Pattern, other: &Pattern) -> bool {
        self.transposed == this.transposed
            && self.other_transposed == other.transposed
            && std::ptr::eq(self.other.as_ptr(), Arc::as_ptr(&other.inner))
    }
}

/// The plans of one set of buffers with others, the last used at the end.
#[derive(Default)]
pub(super) struct Pairs(Mutex<Vec<Entry>>);

impl Pairs {
    fn with<T>(&self, access: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The patterns that the plans hold.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        self.with(|all| all.iter().flat_map(|entry| (entry.patterns)(&*entry.plan)).collect())
    }
}

impl Pattern {
    /// What is planned for this pattern and another, from the cache, or made and kept.
    pub(crate) fn plan_with<T: PairPlan, E>(
        &self,
        other: &Self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let cache = &self.inner.plans.pairs;
        let found = cache.with(|all| {
            all.retain(|entry| entry.other.strong_count() > 0);
            let is_it = |entry: &Entry| entry.is_for(self, other) && entry.plan.is::<T>();
            let at = all.iter().position(is_it)?;
            let entry = all.remove(at);
            let plan = entry.plan.clone();
            all.push(entry);
            plan.downcast::<T>().ok()
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        let entry = Entry {
            transposed: self.transposed,
            other: Arc::downgrade(&other.inner),
            other_transposed: other.transposed,
            plan: made.clone(),
            patterns: |plan| plan.downcast_ref::<T>().map_or(Vec::new(), T::patterns),
        };
        let _oldest = cache.with(|all| {
            all.push(entry);
            (all.len() > KEPT).then(|| all.remove(0)) // let go after the lock is
        });
        Ok(made)
    }

    /// Bytes of the patterns in the plans with others.
    pub(super) fn pair_usage(&self) -> MemoryUsage {
        let mut sum = MemoryUsage::default();
        for usage in self.inner.plans.pairs.patterns().iter().map(Pattern::memory_usage) {
            sum.plans += usage.indices + usage.plans;
            sum.device += usage.device;
        }
        sum
    }
}
