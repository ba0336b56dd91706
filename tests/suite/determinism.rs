//! Same input, same bits: over repeats and over numbers of threads.

use crate::common::{Host, Layout, Numbers, View, matrix};
use sparsegrad::prelude::*;
use sparsegrad::vjp;

/// The bits of a forward and a backward pass.
fn bits(layout: Layout, dtype: DType, k: usize) -> Vec<u64> {
    let device = Device::flex().autodiff();
    // Enough entries for several chunks, one row much longer than the others.
    let mut host = Host::random("3000x700", [3000, 700], 8, 5);
    let mut numbers = Numbers(6);
    for _ in 0..9000 {
        host.rows.push(1234);
        host.cols.push(numbers.below(700));
        host.values.push(numbers.value());
    }
    let (rows, cols) = (&host.rows, &host.cols);
    let values = crate::common::vector(&host.values, dtype, &device);
    let coo = SparseTensor::from_coo(rows, cols, values, host.shape, &device).unwrap();
    let a = match layout {
        Layout::Csr => coo.to_csr(),
        Layout::Csc => coo.to_csc(),
        _ => coo,
    };
    let a = a.detach().require_grad();
    let b = matrix(&Numbers(7).values(700 * k), [700, k], dtype, &device).require_grad();
    let g = matrix(&Numbers(8).values(3000 * k), [3000, k], dtype, &device);
    let c = a.matmul(b.clone());
    let grads = vjp::backward(&c, g.clone());
    let s = sparsegrad::sddmm(a.pattern(), g, b.clone());
    let all = [
        crate::common::read(&c),
        crate::common::read(a.grad(&grads).unwrap().values()),
        crate::common::read(&b.grad(&grads).unwrap()),
        crate::common::read(s.values()),
    ];
    all.into_iter().flatten().map(f64::to_bits).collect()
}

#[test]
fn bits_do_not_depend_on_threads_or_repeats() {
    let on = |threads: usize, layout, dtype, k| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bits(layout, dtype, k))
    };
    for layout in [Layout::Coo, Layout::Csr, Layout::Csc] {
        for (dtype, k) in [
            (DType::F32, 1),
            (DType::F32, 8),
            (DType::F32, 13),
            (DType::F32, 64),
            (DType::F64, 1),
            (DType::F64, 8),
            (DType::F64, 33),
            (DType::F16, 8),
            (DType::BF16, 20),
        ] {
            let expected = on(1, layout, dtype, k);
            for threads in [1, 2, 3, 4] {
                for _ in 0..(if threads <= 2 { 3 } else { 1 }) {
                    let found = on(threads, layout, dtype, k);
                    assert!(found == expected, "{layout:?} {dtype:?} {k} columns, {threads} threads");
                }
            }
        }
    }
}

/// The layout of the dense operand is not part of the input: a column of a wider matrix gives the bits of its copy.
#[test]
fn bits_do_not_depend_on_the_layout_of_the_operand() {
    let device = Device::flex();
    let host = Host::random("200x150", [200, 150], 20, 5);
    for dtype in [DType::F32, DType::F64, DType::F16] {
        let (a, _) = Layout::Csr.build(&host, dtype, &device);
        for k in [1, 3, 8, 20] {
            let b = Numbers(4).values(150 * k);
            let bits = |view: View| -> Vec<u64> {
                let product = a.matmul(view.build(&b, [150, k], dtype, &device));
                crate::common::read(&product).into_iter().map(f64::to_bits).collect()
            };
            for view in View::ALL {
                assert!(bits(view) == bits(View::Contiguous), "{dtype:?} {k} columns {view:?}");
            }
        }
    }
}
