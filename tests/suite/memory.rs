//! What is allocated: nothing of size rows x columns, nothing of size nnz x columns.

use crate::common::{Host, Numbers, matrix};
use sparsegrad::prelude::*;
use sparsegrad::vjp;
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

/// Forward and backward, warm: outputs and gradients, and at most a fifth more.
#[test]
fn forward_and_backward_allocate_their_results() {
    let (rows, columns, per_row) = (20_000, 15_000, 10);
    let host = Host::random("large", [rows, columns], per_row, 3).sorted(false);
    for k in [1, 8, 16, 64] {
        let device = Device::flex().autodiff();
        let values = crate::common::vector(&host.values, DType::F32, &device);
        let a = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device)
            .unwrap()
            .to_csr()
            .detach()
            .require_grad();
        let b = matrix(&Numbers(1).values(columns * k), [columns, k], DType::F32, &device).require_grad();
        let g = matrix(&Numbers(2).values(rows * k), [rows, k], DType::F32, &device);
        let step = || {
            let c = a.matmul(b.clone());
            let grads = vjp::backward(&c, g.clone());
            (a.grad(&grads).unwrap(), b.grad(&grads).unwrap(), c)
        };
        most(step); // plans
        let (bytes, _results) = most(step);
        let results = 4 * (rows * k + columns * k + a.nnz()) as isize;
        assert!(bytes >= results && bytes <= results + results / 5, "{k} columns: {bytes} bytes for {results}");
    }
}

/// pytorch/pytorch#41128: 110,000 rows and columns, 860,000 entries, 200 columns; a dense gradient would be 45 GiB, a
/// temporary of nnz x columns 1.3 GiB.
#[test]
fn pytorch_41128_at_full_size() {
    let (n, nnz, k) = (110_000, 860_000, 200);
    let mut numbers = Numbers(4);
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for _ in 0..nnz {
        rows.push(numbers.below(n));
        cols.push(numbers.below(n));
    }
    let device = Device::flex().autodiff();
    let pattern = Pattern::coo(rows, cols, [n, n]).unwrap();
    let a = SparseTensor::new(pattern, Tensor::ones([nnz], (&device, DType::F32))).unwrap().require_grad();
    let x = Tensor::<2>::ones([n, k], (&device, DType::F32)).require_grad();
    let (bytes, gradient) = most(|| {
        let c = a.matmul(x.clone());
        let upstream = Tensor::ones([n, k], (&c.device(), DType::F32));
        let grads = vjp::backward(&c, upstream);
        a.grad(&grads).unwrap()
    });
    // Each stored entry's gradient is a product of ones over 200 columns.
    assert!(crate::common::read(gradient.values()).iter().all(|&g| g == 200.0));
    let results = 4 * (3 * n * k + nnz) as isize; // product, upstream gradient, gradient of x; gradient of the values
    let plans = 3 * 4 * (2 * nnz + n) as isize;
    assert!(bytes <= results + results / 5 + plans, "{bytes} bytes for {results}");
}

/// Structure operations, warm: the values of the results and their gradients; cold, indices beside them, of the order of the entries.
#[test]
fn structure_operations_allocate_in_the_order_of_the_entries() {
    let n = 20_000;
    let host = Host::random("large", [n, n], 10, 3).sorted(false);
    let device = Device::flex().autodiff();
    let values = crate::common::vector(&host.values, DType::F32, &device);
    let a = SparseTensor::from_coo(&host.rows, &host.cols, values, host.shape, &device).unwrap().to_csr();
    let a = a.detach().require_grad();
    let p = sparsegrad::Permutation::new((0..n).rev().collect::<Vec<_>>()).unwrap();
    type Step<'a> = (&'static str, &'a (dyn Fn() -> SparseTensor<2> + Sync));
    let steps: [Step; 4] = [
        ("tril", &|| a.tril(0)),
        ("permute", &|| a.permute_symmetric(&p)),
        ("insert", &|| a.insert_diagonal(0, Tensor::zeros([n], (&device, DType::F32)))),
        ("select", &|| a.select_rows((0..n).step_by(2).collect::<Vec<_>>()).unwrap()),
    ];
    for (what, step) in steps {
        let run = || {
            let b = step();
            let grads = vjp::backward(b.values(), b.values().clone().detach());
            (a.grad(&grads).unwrap(), b)
        };
        let (cold, _results) = most(run);
        let entries = (a.nnz() + n) as isize;
        // Lists of columns and slots in 8 bytes while they grow, at most twice as long; indices of the pattern, of the gather and
        // of its transpose in 4; values.
        assert!(cold <= entries * (2 * 4 * 8 + 4 * 2 * 4 + 4 * 4), "{what}: {} bytes an entry", cold / entries);
        if what != "select" {
            let (warm, _results) = most(run);
            assert!(warm <= 5 * 4 * entries, "{what}: {} bytes an entry, warm", warm / entries);
        }
    }
}
