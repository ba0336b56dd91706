//! What samples and their gradients allocate.

use crate::draws::Case;
use crate::mvn::FORMS;
use crate::places::Place;
use burn::tensor::{DType, Tensor};
use sparsegrad::vjp;
use sparsegrad_distributions::{Checks, Factor, NormalRng, SparseMultivariateNormal};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what the current thread holds and the most that it held. The kernels run on it alone in a pool of one.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // After the thread's locals are gone nothing is measured any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held while `work` ran, beyond those held before, on one thread.
fn most<T: Send>(work: impl FnOnce() -> T + Send) -> (isize, T) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let before = HELD.get();
        MOST.set(before);
        let result = work();
        (MOST.get() - before, result)
    })
}

/// Samples and gradients, that of the samples among them, and at most a fifth more.
#[test]
fn draws_allocate_their_results() {
    let place = Place { dtype: DType::F32, ..Place::cpu() }.autodiff();
    for form in FORMS {
        let (n, count) = (10_000, 100);
        let case = Case { form, n, count, ..Case::default() };
        let (made, _) = case.made(&place, [false; 3]);
        let Factor::Shared(factor) = made.factor() else { unreachable!("one factor for all") };
        let step = || {
            let factor = factor.clone().detach().require_grad();
            let loc = made.loc().clone().detach().require_grad();
            let diagonal = made.diagonal().map(|diagonal| diagonal.clone().reshape([n]).detach().require_grad());
            let of_leaves =
                SparseMultivariateNormal::new(form, loc.clone(), factor.clone(), diagonal.clone(), Checks::Pattern);
            let samples = of_leaves.unwrap().rsample([count], &mut NormalRng::seeded(1));
            let upstream = Tensor::ones(samples.dims(), (&place.device, place.dtype));
            let grads = vjp::backward(&samples, upstream.clone());
            let of_diagonal = diagonal.map(|diagonal| diagonal.grad(&grads).unwrap());
            (samples, upstream, factor.grad(&grads).unwrap(), loc.grad(&grads).unwrap(), of_diagonal)
        };
        most(step); // plans
        let (bytes, _results) = most(step);
        let numbers = 2 * n * count + factor.nnz() + n * if form.is_ldlt() { 2 } else { 1 };
        let results = 4 * numbers as isize;
        assert!(bytes >= results && bytes <= results + results / 5, "{form:?}: {bytes} bytes for {results}");
    }
}
