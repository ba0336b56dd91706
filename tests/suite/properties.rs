//! Properties that hold for every matrix, on matrices that nobody would think of: `sparsegrad::testing::strategies`, used as
//! users would.
//!
//! `PROPTEST_CASES=10000 cargo test properties` tries harder. The seeds of failures are kept beside this file.

use crate::common::{epsilon, read, round};
use sparsegrad::io::{HostMatrix, Triplets, matrix_market};
use sparsegrad::prelude::*;
use sparsegrad::testing::strategies::proptest::prelude::*;
use sparsegrad::testing::strategies::proptest::strategy::ValueTree;
use sparsegrad::testing::strategies::proptest::test_runner::{FileFailurePersistence, TestRunner};
use sparsegrad::testing::strategies::{self, HostDense, Layout, View};
use sparsegrad::{Reducer, segment_expand, segment_log_softmax, segment_reduce, segment_softmax};

/// So many cases, unless the environment says otherwise: about 10^4 in this file.
fn cases(count: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = count;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions")));
    config
}

fn flex() -> Device {
    Device::flex()
}

fn on(a: &HostMatrix) -> SparseTensor<2> {
    a.on(&flex()).unwrap()
}

/// Entries in an order that does not depend on the format: by position, duplicates in the order of storage.
fn sorted(a: &SparseTensor<2>) -> Vec<(usize, usize, u64)> {
    let mut entries: Vec<_> =
        a.triplets().unwrap().map(|(row, column, value)| (row, column, value.to_bits())).collect();
    entries.sort_by_key(|&(row, column, _)| (row, column));
    entries
}

/// Sums of products with the sums of their absolute values, which scale what rounding may do.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    magnitude: f64,
}

impl Sum {
    fn add(&mut self, product: f64) {
        self.value += product;
        self.magnitude += product.abs();
    }
}

fn compare(what: &str, found: &[f64], expected: &[Sum], dtype: DType) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len(), "{}", what);
    for (at, (&found, sum)) in found.iter().zip(expected).enumerate() {
        let close = (found - sum.value).abs() <= 32.0 * epsilon(dtype) * sum.magnitude;
        // Where nothing is finite: the same kind of nothing.
        let same = found == sum.value || found.is_nan() && sum.value.is_nan();
        prop_assert!(close || same, "{what}: element {at} is {found}, expected {}", sum.value);
    }
    Ok(())
}

/// `A B` by the definition, over stored entries only.
fn multiply(a: &HostMatrix, b: &HostDense) -> Vec<Sum> {
    let k = b.shape[1];
    let mut product = vec![Sum::default(); a.shape()[0] * k];
    for (row, column, value) in a.entries() {
        for c in 0..k {
            product[row * k + c].add(value * b.values[column * k + c]);
        }
    }
    product
}

/// `<X_i, Y_j>` at the entries.
fn sample(a: &HostMatrix, x: &HostDense, y: &HostDense) -> Vec<Sum> {
    let k = x.shape[1];
    let dots = a.entries().map(|(row, column, _)| {
        let mut sum = Sum::default();
        (0..k).for_each(|c| sum.add(x.values[row * k + c] * y.values[column * k + c]));
        sum
    });
    dots.collect()
}

fn transposed(a: &HostMatrix) -> HostMatrix {
    HostMatrix::new(a.pattern().t(), a.values().to_vec()).unwrap()
}

/// Rounded as the dtype stores it.
fn rounded(a: &HostMatrix, b: &HostDense, dtype: DType) -> (HostMatrix, HostDense) {
    let values = a.values().iter().map(|&v| round(v, dtype)).collect();
    let a = HostMatrix::new(a.pattern().clone(), values).unwrap();
    let values = b.values.iter().map(|&v| round(v, dtype)).collect();
    (a, HostDense { values, ..b.clone() })
}

fn contiguous(values: Vec<f64>, shape: [usize; 2]) -> HostDense {
    HostDense { shape, values, view: View::Contiguous }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn conversions_keep_every_entry(a in strategies::matrix_with(0..12, 0..12, strategies::hostile())) {
        let a = on(&a);
        let entries = sorted(&a);
        for b in [a.to_coo(), a.to_csr(), a.to_csc(), a.to_csc().to_coo().to_csr(), a.t().to_csr().t(), a.t().to_coo().to_csc().t()] {
            prop_assert_eq!(sorted(&b), entries.clone(), "{}", b.pattern());
            prop_assert_eq!(b.shape(), a.shape());
        }
        prop_assert!(a.t().t().same_pattern(&a));
        // There and back sorts.
        let sorts = a.to_csr().to_csc().to_csr();
        prop_assert!(sorts.pattern().format().is_ordered());
        prop_assert!(sorts.same_pattern(&a.to_csr()) || !a.to_csr().pattern().format().is_ordered());
    }

    #[test]
    fn coalescing_sums_once(a in strategies::matrix(0..12, 0..12)) {
        let host = a;
        let (a, once) = (on(&host), on(&host).coalesce());
        prop_assert!(once.pattern().format().is_unique() && once.pattern().format().is_ordered());
        prop_assert_eq!(once.pattern().format().name(), a.pattern().format().name());
        // No position is lost, whatever its sum; and twice is once.
        let places = |a: &SparseTensor<2>| {
            let mut places: Vec<_> = sorted(a).iter().map(|e| (e.0, e.1)).collect();
            places.dedup();
            places
        };
        prop_assert_eq!(places(&once), places(&a));
        prop_assert_eq!(sorted(&once.coalesce()), sorted(&once));
        prop_assert!(once.coalesce().same_pattern(&once));
        prop_assert_eq!(read(&once.to_dense()), host.to_dense());
        prop_assert_eq!(read(&a.to_dense()), host.to_dense());
    }

    #[test]
    fn a_file_gives_back_the_matrix(a in strategies::matrix_with(0..12, 0..12, strategies::hostile())) {
        let (rows, cols) = a.pattern().coordinates();
        let triplets = Triplets::new(a.shape(), rows, cols, a.values().to_vec());
        let mut file = Vec::new();
        matrix_market::write_to(&mut file, &triplets).unwrap();
        let back = matrix_market::parse(&file).unwrap();
        // A NaN comes back as a NaN.
        let bits = |values: &[f64]| -> Vec<u64> {
            values.iter().map(|v| if v.is_nan() { f64::NAN } else { *v }.to_bits()).collect()
        };
        prop_assert_eq!((&back.rows, &back.cols, back.shape), (&triplets.rows, &triplets.cols, a.shape()));
        prop_assert_eq!(bits(&back.values), bits(a.values()));
        for (matrix, name) in [(back.to_coo(), "COO"), (back.to_csr(), "CSR"), (back.to_csc(), "CSC")] {
            let matrix = matrix.unwrap();
            prop_assert_eq!(matrix.pattern().format().name(), Some(name));
            prop_assert_eq!(matrix.nnz(), a.nnz());
        }
    }

    #[test]
    fn formats_read_back(format in strategies::format()) {
        let text = format.to_string();
        prop_assert_eq!(&text.parse::<TensorFormat>().unwrap(), &format, "{}", text);
        prop_assert_eq!(text.replace(' ', "").parse::<TensorFormat>().unwrap(), format);
    }

    #[test]
    fn invalid_parts_are_refused((parts, error) in strategies::invalid(0..10, 0..10)) {
        prop_assert_eq!(parts.build().unwrap_err(), error);
    }

    /// Segments by the rows of any matrix's entries, whatever their order: the sum is the transposed expansion, a mean times the
    /// length is the sum, extremes are elements, and weights add up to one.
    #[test]
    fn segments_agree_with_each_other(
        (a, x) in strategies::matrix(0..12, 0..12)
            .prop_flat_map(|a| (Just(a.clone()), strategies::dense(a.nnz(), 0..20)))
    ) {
        let (pattern, k, device) = (a.pattern().clone(), x.shape[1], flex());
        let segments = Segments::from_ids(pattern.coordinates().0, a.shape()[0]).unwrap();
        let t = x.on((&device, DType::F64));
        let [sum, mean, max, min] = [Reducer::Sum, Reducer::Mean, Reducer::Max, Reducer::Min]
            .map(|reducer| read(&segment_reduce(t.clone(), &segments, reducer)));
        let expanded = read(&segment_expand(segment_reduce(t.clone(), &segments, Reducer::Sum), &segments));
        let weights = read(&segment_softmax(t.clone(), &segments));
        let logs = read(&segment_log_softmax(t.clone(), &segments));
        let ids: Vec<usize> = segments.ids().iter().collect();
        let x = read(&t);
        for (segment, length) in segments.lengths().enumerate() {
            for c in 0..k {
                let at = segment * k + c;
                let of = || (0..ids.len()).filter(|&i| ids[i] == segment).map(move |i| i * k + c);
                let size: f64 = of().map(|i| x[i].abs()).sum();
                prop_assert!((mean[at] * length as f64 - sum[at]).abs() <= 1e-14 * size);
                prop_assert!(length == 0 || (min[at] <= mean[at] + 1e-14 * size && mean[at] <= max[at] + 1e-14 * size));
                prop_assert!(of().all(|i| min[at] <= x[i] && x[i] <= max[at] && expanded[i] == sum[at]));
                let total: f64 = of().map(|i| weights[i]).sum();
                prop_assert!((total - f64::from(u8::from(length > 0))).abs() < 1e-12, "{total}");
                prop_assert!(of().all(|i| (logs[i].exp() - weights[i]).abs() < 1e-12));
                if length == 0 {
                    prop_assert_eq!([sum[at], mean[at], max[at], min[at]], [0.0; 4]);
                }
            }
        }
    }

    #[test]
    fn spmm_is_the_dense_product((a, b) in strategies::product(0..14, 0..14, 0..20)) {
        for dtype in [DType::F64, DType::F32] {
            let (a, b) = rounded(&a, &b, dtype);
            let product = a.on((&flex(), dtype)).unwrap().matmul(b.on((&flex(), dtype)));
            compare("A B", &read(&product), &multiply(&a, &b), dtype)?;
        }
    }

    /// Absent entries never touch the operand, stored zeros do, in whatever layout it lies.
    #[test]
    fn hostile_numbers_go_where_they_belong(
        (a, b) in (strategies::matrix_with(0..9, 0..9, strategies::hostile()), 0usize..5)
            .prop_flat_map(|(a, k)| {
                let b = strategies::dense_with(a.shape()[1], k, strategies::hostile());
                (Just(a), b)
            })
    ) {
        let plain = contiguous(b.values.clone(), b.shape);
        let expected = multiply(&a, &b);
        for product in [on(&a).matmul(b.on(&flex())), on(&a).matmul(plain.on(&flex()))] {
            for (at, (found, sum)) in read(&product).into_iter().zip(&expected).enumerate() {
                let Sum { value, magnitude } = *sum;
                // A sum of huge numbers may overflow in one order and not in another; NaN stays, and the rest is near.
                let near = (found - value).abs() <= 1e-14 * magnitude + 1e-320;
                let fits = match magnitude {
                    m if m.is_nan() => found.is_nan(),
                    m if m < f64::MAX / 2.0 => near,
                    _ => true,
                };
                prop_assert!(fits, "element {at} is {found}, expected {value}");
            }
        }
    }

    #[test]
    fn spmm_is_linear(
        (a, x, y, alpha) in strategies::product(0..10, 0..10, 0..6).prop_flat_map(|(a, x)| {
            let y = strategies::dense(x.shape[0], x.shape[1]);
            (Just(a), Just(x), y, -2.0..2.0f64)
        })
    ) {
        let (t, device) = (on(&a), flex());
        let whole = t.matmul(x.on(&device) * alpha + y.on(&device));
        let parts = t.matmul(x.on(&device)) * alpha + t.matmul(y.on(&device));
        let scaled = t.map_values(|v| v * alpha).matmul(x.on(&device));
        let bound = multiply(&a, &contiguous(
            x.values.iter().zip(&y.values).map(|(x, y)| alpha.abs() * x.abs() + y.abs()).collect(),
            x.shape,
        ));
        let absolute = |sums: &[Sum], values: Vec<f64>| -> Vec<Sum> {
            let pair = |(value, sum): (f64, &Sum)| Sum { value, magnitude: sum.magnitude };
            values.into_iter().zip(sums).map(pair).collect()
        };
        compare("A (ax + y)", &read(&whole), &absolute(&bound, read(&parts)), DType::F64)?;
        let ax = read(&(t.matmul(x.on(&device)) * alpha));
        compare("(aA) x", &read(&scaled), &absolute(&bound, ax), DType::F64)?;
    }

    /// `<A x, y> = <x, A^T y>`.
    #[test]
    fn the_transpose_is_the_adjoint(
        (a, x, y) in strategies::product(0..12, 0..12, 0..5).prop_flat_map(|(a, x)| {
            let y = strategies::dense(a.shape()[0], x.shape[1]);
            (Just(a), Just(x), y)
        })
    ) {
        let (t, device) = (on(&a), flex());
        let dot = |p: Tensor<2>, q: &HostDense| -> f64 {
            read(&p).iter().zip(&q.values).map(|(p, q)| p * q).sum()
        };
        let left = dot(t.matmul(x.on(&device)), &y);
        let right = dot(t.t().matmul(y.on(&device)), &x);
        let magnitude: f64 = multiply(&a, &x).iter().zip(&y.values).map(|(s, y)| s.magnitude * y.abs()).sum();
        prop_assert!((left - right).abs() <= 1e-14 * magnitude, "{left} and {right}");
        // The transpose converted is the transpose.
        for converted in [t.t().to_csr(), t.t().to_csc(), t.t().to_coo()] {
            let again = dot(converted.matmul(y.on(&device)), &x);
            prop_assert!((again - right).abs() <= 1e-14 * magnitude, "{again} and {right}");
        }
    }

    /// `dA_e = <G_i, B_j>` at the stored entries, `dB = A^T G`.
    #[test]
    fn the_gradient_of_spmm_is_at_the_pattern(
        (a, b, g) in strategies::product(0..12, 0..12, 0..9).prop_flat_map(|(a, b)| {
            let g = strategies::dense(a.shape()[0], b.shape[1]);
            (Just(a), Just(b), g)
        })
    ) {
        for dtype in [DType::F64, DType::F32] {
            let (a, b) = rounded(&a, &b, dtype);
            let (_, g) = rounded(&a, &g, dtype);
            let device = flex().autodiff();
            let t = a.on((&device, dtype)).unwrap().require_grad();
            // Detached, so that it is a leaf: the layouts are made by operations.
            let x = b.on((&device, dtype)).detach().require_grad();
            let grads = (t.matmul(x.clone()) * g.on((&device, dtype))).sum().backward();
            let da = t.grad(&grads).unwrap();
            prop_assert!(da.same_pattern(&t));
            compare("dA", &read(da.values()), &sample(&a, &g, &b), dtype)?;
            compare("dB", &read(&x.grad(&grads).unwrap()), &multiply(&transposed(&a), &g), dtype)?;
        }
    }

    /// `v_e = <X_i, Y_j>`; with S at the pattern, `dX = S Y` and `dY = S^T X`.
    #[test]
    fn sddmm_and_its_gradient((s, x, y) in strategies::sampled(0..12, 0..12, 0..9)) {
        for dtype in [DType::F64, DType::F32] {
            let ((s, x), (_, y)) = (rounded(&s, &x, dtype), rounded(&s, &y, dtype));
            let device = flex().autodiff();
            let [tx, ty] = [&x, &y].map(|t| t.on((&device, dtype)).detach().require_grad());
            let v = sddmm(s.pattern(), tx.clone(), ty.clone());
            compare("v", &read(v.values()), &sample(&s, &x, &y), dtype)?;
            let weights = s.on((&device, dtype)).unwrap();
            let grads = (v.values().clone() * weights.values().clone()).sum().backward();
            compare("dX", &read(&tx.grad(&grads).unwrap()), &multiply(&s, &y), dtype)?;
            compare("dY", &read(&ty.grad(&grads).unwrap()), &multiply(&transposed(&s), &x), dtype)?;
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn dense_and_back(a in strategies::canonical(0..12, 0..12)) {
        let t = on(&a);
        let kept = SparseTensor::from_dense(t.to_dense(), 0.0).unwrap();
        let nonzero: Vec<_> = a.entries().filter(|e| e.2 != 0.0).collect();
        prop_assert_eq!(kept.triplets().unwrap().collect::<Vec<_>>(), nonzero);
        let again = SparseTensor::sample(a.pattern(), t.to_dense()).unwrap();
        prop_assert_eq!(sorted(&again), sorted(&t));
    }

    /// The gradient of a conversion or a sum goes to every entry that it came from.
    #[test]
    fn conversions_pass_gradients(a in strategies::matrix(0..10, 0..10)) {
        let device = flex().autodiff();
        let t = a.on(&device).unwrap().require_grad();
        let [m, n] = a.shape();
        let weights: Vec<f64> = (0..m * n).map(|at| at as f64 + 1.0).collect();
        let expected: Vec<f64> = a.entries().map(|(i, j, _)| weights[i * n + j]).collect();
        let weights = contiguous(weights, [m, n]).on(&device);
        for b in [t.to_csr(), t.to_csc(), t.to_coo(), t.coalesce(), t.t().to_csr().t()] {
            let grads = (b.to_dense() * weights.clone()).sum().backward();
            prop_assert_eq!(read(t.grad(&grads).unwrap().values()), expected.clone());
        }
    }

    #[test]
    fn solvers_get_what_they_are_promised(a in strategies::spd(0..10), l in strategies::lower_triangular(0..10)) {
        for matrix in [&a, &l] {
            let mut excess = vec![0.0; matrix.shape()[0]];
            for (row, column, value) in matrix.entries() {
                excess[row] += if row == column { value } else { -value.abs() };
            }
            prop_assert!(excess.iter().all(|&excess| excess >= 1.0 - 1e-12), "{excess:?}");
            prop_assert_eq!(matrix.pattern().format(), TensorFormat::csr());
        }
        prop_assert_eq!(a.to_dense(), transposed(&a).to_dense());
    }
}

/// The strategies do draw what they promise to: a generator that never makes a duplicate proves nothing about duplicates.
#[test]
fn strategies_draw_every_kind() {
    let mut runner = TestRunner::deterministic();
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    let mut count = |kind, seen: bool| *kinds.entry(kind).or_default() += usize::from(seen);
    for _ in 0..1000 {
        let a = strategies::matrix(0..12, 0..12).new_tree(&mut runner).unwrap().current();
        let (format, [rows, columns]) = (a.pattern().format(), a.shape());
        let used: std::collections::HashSet<_> = a.entries().map(|e| e.0).collect();
        count("coo", format.name() == Some("COO"));
        count("transposed coo", format.name().is_none());
        count("csr", format.name() == Some("CSR"));
        count("csc", format.name() == Some("CSC"));
        count("duplicates", !format.is_unique());
        count("unordered", !format.is_ordered());
        count("canonical", format.is_ordered() && format.is_unique() && a.nnz() > 3);
        count("no rows or columns", rows * columns == 0);
        count("nothing stored", rows * columns > 0 && a.nnz() == 0);
        count("empty rows", used.len() < rows && a.nnz() > 0);
        count("explicit zeros", a.values().contains(&0.0));
        count("more than two entries a row", a.nnz() > 2 * rows && rows > 0);
        let b = strategies::dense(1..9, 1..9).new_tree(&mut runner).unwrap().current();
        for (name, view) in [
            ("contiguous", View::Contiguous),
            ("column-major", View::Transposed),
            ("columns", View::Columns),
            ("rows", View::Rows),
            ("repeated", View::Repeated),
        ] {
            count(name, b.view == view);
        }
        let parts = strategies::invalid(0..10, 0..10).new_tree(&mut runner).unwrap().current();
        let kind = format!("{:?}", parts.1);
        for name in [
            "IndexOutOfRange",
            "OffsetsLength",
            "FirstOffset",
            "OffsetsDecrease",
            "LastOffset",
            "Lengths",
            "Unordered",
            "Duplicate",
            "TooLarge",
        ] {
            count(name, kind.starts_with(name));
        }
        for layout in Layout::ALL {
            count(["broken coo", "broken csr", "broken csc"][layout as usize], parts.0.layout == layout);
        }
    }
    assert!(kinds.values().all(|&seen| seen >= 20), "{kinds:#?}");
}
