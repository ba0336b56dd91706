//! C = A A on one thread, A and C sparse: sparsegrad with and without a plan that is held, sprs and faer, with and without its
//! symbolic part. `cargo bench --bench spgemm`
//!
//! A has the size and the row lengths of Rothberg/cfd2: a 27-point stencil on 49 x 50 x 51 nodes, cropped to 123,440, from
//! which pairs of neighbours are dropped at random down to 3,085,406 entries.

use burn::tensor::{Element, TensorData};
use criterion::{Criterion, criterion_group, criterion_main};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::reborrow::*;
use faer::sparse::linalg::matmul::{
    sparse_sparse_matmul, sparse_sparse_matmul_numeric, sparse_sparse_matmul_numeric_scratch,
    sparse_sparse_matmul_symbolic,
};
use faer::sparse::{SparseColMat, Triplet};
use faer::{Accum, Par};
use sparsegrad::prelude::*;
use sprs::{CsMatI, TriMatI};
use std::time::Duration;

const NODES: usize = 123_440;
const ENTRIES: usize = 3_085_406;

/// Rows, columns and values.
fn cfd2_twin() -> (Vec<u32>, Vec<u32>, Vec<f64>) {
    let size = [49i64, 50, 51];
    let steps = (0..27i64).map(|s| [s / 9 - 1, s / 3 % 3 - 1, s % 3 - 1]).filter(|step| *step > [0; 3]);
    let steps: Vec<_> = steps.collect();
    let mut pairs = Vec::new();
    for node in 0..NODES as i64 {
        let at = [node / (size[1] * size[2]), node / size[2] % size[1], node % size[2]];
        for step in &steps {
            let to: [i64; 3] = std::array::from_fn(|axis| at[axis] + step[axis]);
            let other = (to[0] * size[1] + to[1]) * size[2] + to[2];
            if to.iter().zip(size).all(|(to, size)| (0..size).contains(to)) && other < NODES as i64 {
                pairs.push((node as u32, other as u32));
            }
        }
    }
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 * 2f64.powi(-53)
    };
    while pairs.len() > (ENTRIES - NODES) / 2 {
        let dropped = (uniform() * pairs.len() as f64) as usize;
        pairs.swap_remove(dropped);
    }
    let mut entries: Vec<_> = (0..NODES as u32).map(|node| (node, node, 4.0)).collect();
    for (i, j) in pairs {
        let value = uniform() - 0.5;
        entries.extend([(i, j, value), (j, i, value)]);
    }
    entries.sort_by_key(|&(i, j, _)| (i, j));
    (
        entries.iter().map(|e| e.0).collect(),
        entries.iter().map(|e| e.1).collect(),
        entries.iter().map(|e| e.2).collect(),
    )
}

/// Times the libraries in one float type, once it is sure that they agree.
macro_rules! compare {
    ($criterion:ident, $float:ident, $matrix:expr) => {{
        let (rows, cols, values) = $matrix;
        let values: Vec<$float> = values.iter().map(|&value| value as $float).collect();
        let entries: Vec<_> = rows.iter().zip(cols).zip(&values).map(|((&i, &j), &v)| Triplet::new(i, j, v)).collect();
        let faer = SparseColMat::<u32, $float>::try_new_from_triplets(NODES, NODES, &entries).unwrap();
        let data = TensorData::new(values.clone(), [values.len()]);
        let tensor = Tensor::from_data(data, (&Device::flex(), <$float as Element>::dtype()));
        let index = |places: &[u32]| places.iter().map(|&place| i64::from(place)).collect::<Vec<_>>();
        let pattern = Pattern::coo(index(rows), index(cols), [NODES; 2]).unwrap();
        let ours = SparseTensor::new(pattern, tensor).unwrap().to_csr();
        let sprs: CsMatI<$float, u32> =
            TriMatI::from_triplets((NODES, NODES), rows.clone(), cols.clone(), values).to_csr();

        let plan = SpgemmPlan::new(ours.pattern(), ours.pattern()).unwrap();
        let c: Vec<$float> = plan.execute(&ours, &ours).values().to_data().try_to_vec().unwrap();
        let c_sprs = &sprs * &sprs;
        assert_eq!(c.len(), c_sprs.nnz());
        assert!(c.iter().zip(c_sprs.data()).all(|(a, b)| (a - b).abs() < 1e-3));

        let (symbolic, info) = sparse_sparse_matmul_symbolic(faer.symbolic(), faer.symbolic()).unwrap();
        let scratch = sparse_sparse_matmul_numeric_scratch::<u32, $float>(symbolic.as_ref(), Par::Seq);
        let stored = symbolic.row_idx().len();
        let mut c_faer = SparseColMat::<u32, $float>::new(symbolic, vec![0.0; stored]);
        let mut memory = MemBuffer::new(scratch);

        let mut group = $criterion.benchmark_group(concat!("spgemm_", stringify!($float), "_cfd2_twin"));
        group.bench_function("sparsegrad", |bench| {
            bench.iter(|| SpgemmPlan::new(ours.pattern(), ours.pattern()).unwrap().execute(&ours, &ours));
        });
        group.bench_function("sprs", |bench| bench.iter(|| &sprs * &sprs));
        group.bench_function("faer", |bench| {
            bench.iter(|| sparse_sparse_matmul(faer.as_ref(), faer.as_ref(), 1.0, Par::Seq).unwrap());
        });
        group.bench_function("sparsegrad_held", |bench| bench.iter(|| plan.execute(&ours, &ours)));
        group.bench_function("faer_held", |bench| {
            bench.iter(|| {
                let (a, stack) = (faer.as_ref(), MemStack::new(&mut memory));
                sparse_sparse_matmul_numeric(c_faer.rb_mut(), Accum::Replace, a, a, 1.0, &info, Par::Seq, stack);
            });
        });
        group.finish();
    }};
}

fn spgemm(criterion: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("there is no pool yet");
    let (rows, cols, values) = cfd2_twin();
    compare!(criterion, f32, (&rows, &cols, &values));
    compare!(criterion, f64, (&rows, &cols, &values));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(4));
    targets = spgemm
}
criterion_main!(benches);
