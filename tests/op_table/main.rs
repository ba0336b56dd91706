//! The op table: operation x layout x dtype x backend, forward and backward against dense f64 products.
//!
//! Every cell passes, or is a refusal that is expected and typed. `cargo test --test op_table -- --nocapture` prints it.
//! Every operation has its rows in a file here. `OP_TABLE_ROWS=spmm;kron` and `OP_TABLE_BACKENDS=wgpu` leave out the others.
// Entries are read by number from several buffers at once; which backends there are depends on features.
#![allow(
    missing_docs,
    clippy::needless_borrows_for_generic_args,
    clippy::needless_range_loop,
    clippy::vec_init_then_push
)]

mod add;
#[path = "../common/asked.rs"]
mod asked;
mod batches;
#[path = "../common/mod.rs"]
mod common;
mod conversions;
mod products;
mod reduce;
mod segment;
mod segment_mm;
mod spgemm;
mod structure;
mod trisolve;

use asked::asked;
use common::{Host, Layout, Numbers, matrices, rounded, vector};
use sparsegrad::prelude::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A case of a row: one matrix in one layout and dtype on one device.
struct Case<'a> {
    host: &'a Host,
    layout: Layout,
    dtype: DType,
    device: &'a Device,
}

/// `Ok(n)`: n comparisons held.
type Outcome = Result<usize, String>;

impl Case<'_> {
    fn build(&self, tracked: bool) -> (SparseTensor<2>, Host) {
        let device = if tracked { self.device.clone().autodiff() } else { self.device.clone() };
        let (tensor, host) = self.layout.build(self.host, self.dtype, &device);
        (if tracked { tensor.require_grad() } else { tensor }, host)
    }

    fn numbers(&self, seed: u64, count: usize) -> Vec<f64> {
        rounded(&Numbers(seed).values(count), self.dtype)
    }
}

/// A row: its name, what it compares, and how many comparisons that are in one layout of one matrix.
type Row = (&'static str, fn(&Case) -> Outcome, usize);

/// The rows of every operation.
fn rows() -> Vec<Row> {
    [
        products::ROWS,
        trisolve::ROWS,
        conversions::ROWS,
        batches::ROWS,
        reduce::ROWS,
        spgemm::ROWS,
        add::ROWS,
        segment::ROWS,
        segment_mm::ROWS,
        structure::ROWS,
    ]
    .concat()
}

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// The layouts that are tried on a backend. What a kernel sees of a layout is whether values are mapped, and the plans of the
/// others are made on the host: on devices, where each case waits for its result, one of each kind is enough.
fn layouts(backend: &str) -> &'static [Layout] {
    match backend {
        "flex" => &Layout::ALL,
        _ => &[Layout::Coo, Layout::Csr, Layout::CsrT],
    }
}

/// Rows that need exponentials, which shaders of wgpu don't have in f64: the operations refuse it.
fn is_refused(backend: &str, row: &str, dtype: DType) -> bool {
    let exponential = ["logsumexp", "reductions, batched", "softmax", "segment softmax", "edge softmax"];
    backend == "wgpu" && dtype == DType::F64 && exponential.contains(&row)
}

/// The devices that this build has.
fn backends() -> Vec<(&'static str, Device, Vec<DType>)> {
    #[allow(unused_mut)]
    let mut backends = Vec::new();
    #[cfg(feature = "flex")]
    backends.push(("flex", Device::flex(), vec![]));
    #[cfg(feature = "wgpu")]
    {
        let device = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice);
        // WGSL has no bf16, and a device may lack f16 or f64.
        let lacks = DTYPES.into_iter().filter(|&dtype| !device.supports_dtype(dtype)).collect();
        backends.push(("wgpu", device, lacks));
    }
    #[cfg(feature = "cuda")]
    backends.push(("cuda", Device::cuda(0), vec![]));
    backends
}

#[test]
fn every_cell_holds_or_is_a_typed_refusal() {
    let (matrices, mut rows) = (matrices(), rows());
    rows.retain(|(row, ..)| asked("OP_TABLE_ROWS", row));
    let mut backends = backends();
    backends.retain(|(backend, ..)| asked("OP_TABLE_BACKENDS", backend));
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for (backend, device, refused) in backends.iter().cloned() {
        println!("\n{backend:<20}{}", DTYPES.map(|d| format!("{:>10}", format!("{d:?}"))).concat());
        for &(row, run, comparisons) in &rows {
            print!("{row:<20}");
            for dtype in DTYPES {
                let mut held = 0;
                let mut bad = 0;
                if refused.contains(&dtype) {
                    let host = &matrices[0];
                    let pattern = Pattern::coo(&host.rows, &host.cols, host.shape).unwrap();
                    let refusal = SparseTensor::new(pattern, vector(&host.values, dtype, &device));
                    assert!(
                        matches!(refusal, Err(TensorError::DType { dtype: named, .. }) if named == dtype),
                        "{refusal:?}"
                    );
                    *counts.entry((backend, "refused")).or_insert(0) += 1;
                    print!("{:>10}", "refused");
                    continue;
                }
                if is_refused(backend, row, dtype) {
                    let case = Case { host: &matrices[0], layout: Layout::Csr, dtype, device: &device };
                    let refusal = catch_unwind(AssertUnwindSafe(|| run(&case))).expect_err("it is refused");
                    let message = refusal.downcast::<String>().expect("a message");
                    assert!(message.contains("F64 is not supported on"), "{message}");
                    *counts.entry((backend, "refused")).or_insert(0) += 1;
                    print!("{:>10}", "refused");
                    continue;
                }
                for &layout in layouts(backend) {
                    for host in &matrices {
                        let case = Case { host, layout, dtype, device: &device };
                        match run(&case) {
                            Ok(n) => {
                                assert_eq!(n, comparisons, "{row}");
                                held += n;
                            }
                            Err(why) => {
                                bad += 1;
                                failures.push(format!("{backend} {row} {dtype:?} {layout:?} {}: {why}", host.name));
                            }
                        }
                    }
                }
                *counts.entry((backend, "held")).or_insert(0) += held;
                print!("{:>10}", if bad == 0 { format!("{held} ok") } else { format!("{bad} BAD") });
            }
            println!();
        }
    }
    println!("\n{counts:?}");
    assert!(failures.is_empty(), "{} cells fail:\n{}", failures.len(), failures[..failures.len().min(20)].join("\n"));
    for (backend, _, lacking) in backends {
        let cells = || rows.iter().flat_map(|row| DTYPES.map(|dtype| (row, dtype)));
        let refused = |row: &Row, dtype| lacking.contains(&dtype) || is_refused(backend, row.0, dtype);
        let held: usize = cells().filter(|&(row, dtype)| !refused(row, dtype)).map(|(row, _)| row.2).sum();
        let held = held * layouts(backend).len() * matrices.len();
        assert_eq!(counts[&(backend, "held")], held, "{backend}");
        let refused = cells().filter(|&(row, dtype)| refused(row, dtype)).count();
        assert_eq!(counts.get(&(backend, "refused")).copied().unwrap_or(0), refused, "{backend}");
    }
}
