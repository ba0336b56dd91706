//! Matrices of the gallery against their definitions, their published properties, and finite differences.

use crate::common::{Numbers, read, vector};
use sparsegrad::gallery::rand::{SeedableRng, rngs::StdRng};
use sparsegrad::gallery::{self, GalleryError, GraphLaplacian, Grid, Normalization};
use sparsegrad::prelude::*;
use sparsegrad::testing::gradcheck;
use std::collections::HashSet;

fn f64s() -> (&'static Device, DType) {
    static DEVICE: std::sync::OnceLock<Device> = std::sync::OnceLock::new();
    (DEVICE.get_or_init(Device::flex), DType::F64)
}

fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn entries(a: &SparseTensor<2>) -> Vec<(usize, usize, f64)> {
    a.triplets().unwrap().collect()
}

/// CSR, sorted, unique: what the gallery promises of all.
fn check_canonical(a: &SparseTensor<2>) {
    assert_eq!(a.pattern().format(), TensorFormat::csr(), "{a}");
}

/// Row by row, what is off the diagonal in absolute value, against the diagonal.
fn check_dominant(a: &SparseTensor<2>, factor: f64, margin: f64) {
    let n = a.shape()[0];
    let (mut diagonal, mut beside) = (vec![0.0; n], vec![0.0; n]);
    for (row, column, value) in entries(a) {
        if row == column {
            diagonal[row] += value;
        } else {
            beside[row] += value.abs();
        }
    }
    for row in 0..n {
        assert!(diagonal[row] >= factor * beside[row] + margin, "row {row} of {a}");
    }
}

#[test]
fn poisson_is_the_stencil_in_any_dimension() {
    fn check<const D: usize>(size: [usize; D]) {
        let a = gallery::poisson(size, f64s()).unwrap();
        check_canonical(&a);
        let cells: usize = size.iter().product();
        let place = |mut cell: usize| {
            let mut place = [0; D];
            for axis in (0..D).rev() {
                place[axis] = cell % size[axis];
                cell /= size[axis];
            }
            place
        };
        let mut expected = Vec::new();
        for row in 0..cells {
            for column in 0..cells {
                let (p, q) = (place(row), place(column));
                let distance: usize = (0..D).map(|axis| p[axis].abs_diff(q[axis])).sum();
                match distance {
                    0 => expected.push((row, column, 2.0 * D as f64)),
                    1 => expected.push((row, column, -1.0)),
                    _ => {}
                }
            }
        }
        assert_eq!(entries(&a), expected, "{size:?}");
    }
    check([1]);
    check([7]);
    check([4, 5]);
    check([1, 6]);
    check([3, 4, 2]);
    check([2, 2, 2, 3]);
    check([0]);
    check([3, 0]);
    check([0, 3, 2]);
}

#[test]
fn poisson_has_its_eigenvectors() {
    let [n, m] = [9, 6];
    let a = gallery::poisson([n, m], f64s()).unwrap();
    let angle = |k: usize, n: usize| std::f64::consts::PI * k as f64 / (n + 1) as f64;
    for (k, l) in [(1, 1), (4, 2), (9, 6)] {
        let wave = |i: usize, k, n| (angle(k, n) * (i + 1) as f64).sin();
        let x: Vec<f64> = (0..n * m).map(|cell| wave(cell / m, k, n) * wave(cell % m, l, m)).collect();
        let y = read(&a.matvec(vector(&x, DType::F64, f64s().0)));
        let eigenvalue = 4.0 * ((angle(k, n) / 2.0).sin().powi(2) + (angle(l, m) / 2.0).sin().powi(2));
        assert!(x.iter().zip(y).all(|(x, y)| (eigenvalue * x - y).abs() < 1e-13));
    }
}

#[test]
fn dtypes_are_those_asked_for() {
    let device = Device::flex();
    assert_eq!(gallery::poisson([3], &device).unwrap().dtype(), DType::F32);
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let a = gallery::poisson([3, 3], (&device, dtype)).unwrap();
        assert_eq!((a.dtype(), a.get(4, 4).unwrap(), a.get(4, 5).unwrap()), (dtype, Some(4.0), Some(-1.0)));
        let a = gallery::make_spd_sparse(9, 21).build(&mut rng(1), (&device, dtype)).unwrap();
        assert_eq!((a.dtype(), a.nnz()), (dtype, 21));
    }
    let error = gallery::poisson([3], (&device, DType::I32)).unwrap_err();
    assert!(matches!(error, GalleryError::Tensor(TensorError::DType { dtype: DType::I32, .. })), "{error}");
}

#[test]
fn fluxes_balance() {
    // The column sums of an inner cell vanish without convection: what leaves one cell enters another.
    let size = [3, 4, 5];
    let k: Vec<f64> = Numbers(1).values(60).iter().map(|v| v + 1.5).collect();
    let k = vector(&k, DType::F64, f64s().0).reshape(size);
    let a = gallery::grid_laplacian(k.clone()).unwrap();
    check_canonical(&a);
    for (row, column, value) in entries(&a) {
        assert_eq!(a.get(column, row).unwrap(), Some(value));
    }
    let inner = (20 + 5 + 2, read(&k)[27]);
    let sums = read(&a.matvec(Tensor::ones([60], f64s())));
    assert!(sums[inner.0].abs() < 1e-14, "{}", sums[inner.0]);
    check_dominant(&a, 1.0 - 1e-12, 0.0);
    assert_eq!(
        read(gallery::grid_laplacian(Tensor::<3>::ones(size, f64s())).unwrap().values()),
        read(gallery::poisson(size, f64s()).unwrap().values())
    );
}

#[test]
fn convection_is_upwind() {
    let device = f64s();
    let k = Tensor::<2>::ones([1, 3], device);
    let wind = |x: [[f64; 3]; 1]| Tensor::<2>::from_data(x, device);
    let a = gallery::convection_diffusion(k.clone(), [wind([[0.; 3]]), wind([[2., 2., -3.]])]).unwrap();
    #[rustfmt::skip]
    let dense = [6., -1., 0., -3., 6., -1., 0., -1., 7.];
    assert_eq!(read(&a.to_dense()), dense);
    // All of the stencil is stored: the pattern is the same for every wind.
    let still = gallery::convection_diffusion(k.clone(), [wind([[0.; 3]]), wind([[0.; 3]])]).unwrap();
    assert!(still.same_pattern(&a) && still.same_pattern(&gallery::grid_laplacian(k).unwrap()));
}

#[test]
fn assembly_is_differentiable() {
    let grid = Grid::new([3, 4]).unwrap();
    let k: Vec<f64> = Numbers(2).values(12).iter().map(|v| v + 1.5).collect();
    let (v, w, x) = (Numbers(3).values(12), Numbers(4).values(12), Numbers(5).values(12));
    gradcheck(&Device::flex(), &[k, v, w, x], 1e-8, |inputs| {
        let field = |at: usize| inputs[at].clone().reshape([3, 4]);
        let a = grid.convection_diffusion(field(0), [field(1), field(2)]).unwrap();
        a.matvec(inputs[3].clone()).powi_scalar(2)
    })
    .unwrap();
}

#[test]
fn a_grid_plans_once() {
    let grid = Grid::new([5, 5]).unwrap();
    let first = grid.laplacian(Tensor::ones([5, 5], f64s())).unwrap();
    let second = grid.laplacian(Tensor::ones([5, 5], f64s()) * 2.0).unwrap();
    assert!(first.same_pattern(&second));
    // What is planned for one is there for the other: the same buffers.
    assert_eq!(second.pattern().memory_usage().plans, 0);
    first.pattern().prepare(f64s().0);
    assert!(second.pattern().memory_usage().plans > 0);
    let error = grid.laplacian(Tensor::ones([5, 4], f64s())).unwrap_err();
    assert_eq!(error.to_string(), "the conductivity must have shape [5, 5] and has [5, 4]");
    assert!(matches!(Grid::new([usize::MAX, 3]).unwrap_err(), GalleryError::TooLarge { .. }));
    assert_eq!(Grid::new([usize::MAX, 3, 0]).unwrap().cells(), 0);
}

#[test]
fn bands_and_diagonals() {
    let a = gallery::banded([4, 4], &[(-1, -1.0), (0, 2.0), (1, -1.0)], f64s()).unwrap();
    check_canonical(&a);
    assert_eq!(entries(&a), entries(&gallery::poisson([4], f64s()).unwrap()));
    // Unsorted, repeated and beside the matrix; wide, high, empty.
    let a = gallery::banded(
        [2, 4],
        &[(3, 1.0), (-1, 2.0), (3, 4.0), (-9, 7.0), (isize::MAX, 1.0), (isize::MIN, 1.0)],
        f64s(),
    )
    .unwrap();
    assert_eq!(entries(&a), [(0, 3, 5.0), (1, 0, 2.0)]);
    for shape in [[0, 0], [0, 3], [3, 0]] {
        assert_eq!(gallery::banded(shape, &[(0, 1.0)], f64s()).unwrap().shape(), shape);
    }
    assert_eq!(gallery::banded([3, 3], &[], f64s()).unwrap().nnz(), 0);
    gradcheck(&Device::flex(), &[Numbers(6).values(15), Numbers(7).values(4)], 1e-8, |x| {
        gallery::diagonals([5, 4], &[1, 0, -2], x[0].clone().reshape([3, 5])).unwrap().matvec(x[1].clone())
    })
    .unwrap();
    let error = gallery::diagonals([5, 4], &[1], Tensor::zeros([1, 4], f64s())).unwrap_err();
    assert_eq!(error.to_string(), "the diagonals must have shape [1, 5] and has [1, 4]");
}

/// A path with a loop, a doubled edge and a vertex without edges.
const EDGES: [(usize, usize); 5] = [(0, 1), (2, 1), (2, 2), (3, 2), (1, 0)];

#[test]
fn graphs() {
    let weights = vector(&[1., 2., 3., 4., 5.], DType::F64, f64s().0);
    let a = gallery::adjacency(5, &EDGES, weights.clone()).unwrap();
    check_canonical(&a);
    assert_eq!(entries(&a), [(0, 1, 6.), (1, 0, 6.), (1, 2, 2.), (2, 1, 2.), (2, 2, 3.), (2, 3, 4.), (3, 2, 4.)]);
    let l = gallery::graph_laplacian(&a, Normalization::None).unwrap();
    check_canonical(&l);
    // Each row sums to 0; x^T L x = sum over edges of w (x_i - x_j)^2; the diagonal of the lone vertex is stored.
    assert_eq!(read(&l.matvec(Tensor::ones([5], f64s()))), [0.; 5]);
    let x = vector(&[1., -1., 3., 0.5, 9.], DType::F64, f64s().0);
    let energy: f64 = read(&(l.matvec(x.clone()) * x)).iter().sum();
    assert_eq!(energy, 6. * 4. + 2. * 16. + 4. * 6.25);
    assert_eq!((l.nnz(), l.get(4, 4).unwrap()), (11, Some(0.0)));

    let s = gallery::graph_laplacian(&a, Normalization::Symmetric).unwrap();
    let degrees: [f64; 4] = [6., 8., 9., 4.];
    let expected = [
        (0, 0, 1.),
        (0, 1, -6. / (degrees[0] * degrees[1]).sqrt()),
        (2, 2, 1. - 3. / degrees[2]),
        (2, 3, -4. / (degrees[2] * degrees[3]).sqrt()),
        (4, 4, 0.),
    ];
    for (row, column, value) in expected {
        assert!((s.get(row, column).unwrap().unwrap() - value).abs() < 1e-15, "{s}");
    }
    let w = gallery::graph_laplacian(&a, Normalization::RandomWalk).unwrap();
    assert!(read(&w.matvec(Tensor::ones([5], f64s()))).iter().all(|sum| sum.abs() < 1e-15), "{w}");
    let walk = gallery::normalized_adjacency(&a, Normalization::RandomWalk).unwrap();
    assert!(walk.same_pattern(&a));
    let none = gallery::normalized_adjacency(&a, Normalization::None).unwrap();
    assert_eq!(entries(&none), entries(&a));

    let error = gallery::adjacency(2, &EDGES, weights.clone()).unwrap_err();
    assert_eq!(error.to_string(), "row index 2 at position 1 is out of range for a matrix with 2 rows (shape 2x2)");
    let error = gallery::adjacency(5, &EDGES[1..], weights).unwrap_err();
    assert_eq!(error.to_string(), "the weights must have shape [4] and has [5]");
    let wide = gallery::banded([2, 3], &[(0, 1.0)], f64s()).unwrap();
    let error = gallery::graph_laplacian(&wide, Normalization::None).unwrap_err();
    assert_eq!(error.to_string(), "a graph Laplacian needs a square matrix, and this one is 2x3");
    let nothing = gallery::adjacency(0, &[], Tensor::zeros([0], f64s())).unwrap();
    for kind in [Normalization::None, Normalization::Symmetric, Normalization::RandomWalk] {
        assert_eq!(gallery::graph_laplacian(&nothing, kind).unwrap().shape(), [0, 0]);
    }
}

#[test]
fn graphs_are_differentiable() {
    let weights = vec![1., 2., 3., 4., 5.];
    let pattern = gallery::adjacency(5, &EDGES, vector(&weights, DType::F64, f64s().0)).unwrap().pattern().clone();
    let plan = GraphLaplacian::new(&pattern).unwrap();
    for kind in [Normalization::None, Normalization::Symmetric, Normalization::RandomWalk] {
        gradcheck(&Device::flex(), &[weights.clone(), Numbers(8).values(5)], 1e-8, |x| {
            let a = gallery::adjacency(5, &EDGES, x[0].clone()).unwrap();
            let laplacian = plan.of(&a, kind).unwrap().matvec(x[1].clone());
            let next = gallery::normalized_adjacency(&a, kind).unwrap().matvec(x[1].clone());
            Tensor::cat(vec![laplacian.powi_scalar(2), next.powi_scalar(2)], 0)
        })
        .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

#[test]
fn random_matrices_have_exactly_as_many_entries() {
    for (shape, nnz) in
        [([5, 7], 0), ([5, 7], 1), ([5, 7], 35), ([1, 1], 1), ([0, 9], 0), ([300, 2], 77), ([1 << 20, 1 << 21], 500)]
    {
        let a = gallery::rand_sparse(shape, nnz).build(&mut rng(1), f64s()).unwrap();
        check_canonical(&a);
        assert_eq!((a.shape(), a.nnz()), (shape, nnz));
        assert!(entries(&a).iter().all(|e| (0.0..1.0).contains(&e.2)));
    }
    for (n, nnz) in [(0, 0), (1, 1), (6, 6), (6, 13), (6, 21)] {
        let a = gallery::rand_sparse_tri(n, nnz).values(2.0..3.0).build(&mut rng(2), f64s()).unwrap();
        check_canonical(&a);
        assert_eq!(a.nnz(), nnz);
        assert!(entries(&a).iter().all(|&(i, j, v)| i <= j && (2.0..3.0).contains(&v)), "{a}");
        assert!((0..n).all(|i| a.get(i, i).unwrap().is_some()));
        let strict = gallery::rand_sparse_tri(n, nnz - n).lower().strict().build(&mut rng(3), f64s()).unwrap();
        assert_eq!(strict.nnz(), nnz - n);
        assert!(entries(&strict).iter().all(|e| e.0 > e.1));
        let unit = gallery::rand_sparse_tri(n, nnz).lower().unit().build(&mut rng(4), f64s()).unwrap();
        assert!((0..n).all(|i| unit.get(i, i).unwrap() == Some(1.0)));
    }
    for (n, nnz) in [(0, 0), (1, 1), (6, 6), (6, 20), (6, 36)] {
        let a = gallery::make_spd_sparse(n, nnz).values(-5.0..5.0).margin(0.5).build(&mut rng(5), f64s()).unwrap();
        check_canonical(&a);
        assert_eq!(a.nnz(), nnz);
        check_dominant(&a, 1.0, 0.5);
        assert!(entries(&a).iter().all(|&(i, j, v)| a.get(j, i).unwrap() == Some(v)));
    }
}

#[test]
fn positions_are_uniform() {
    // 2000 draws of 3 of 12 positions: each 500 times, with a standard deviation of 19.4.
    let mut counts = [0; 12];
    let mut rng = rng(6);
    for _ in 0..2000 {
        let a = gallery::rand_sparse([3, 4], 3).build(&mut rng, f64s()).unwrap();
        entries(&a).iter().for_each(|e| counts[4 * e.0 + e.1] += 1);
    }
    assert!(counts.iter().all(|&count: &i32| (count - 500).abs() < 100), "{counts:?}");
}

#[test]
fn well_conditioned_matrices_are() {
    let n = 40;
    let a =
        gallery::rand_sparse([n, n], 900).values(-9.0..9.0).well_conditioned(0.5).build(&mut rng(7), f64s()).unwrap();
    assert_eq!(a.nnz(), 900);
    check_dominant(&a, 2.0 - 1e-12, 0.0);
    assert!((0..n).all(|i| (0.5..1.0).contains(&a.get(i, i).unwrap().unwrap())));
    let l = gallery::rand_sparse_tri(n, 500).lower().well_conditioned(1.0).build(&mut rng(8), f64s()).unwrap();
    check_dominant(&l, 2.0 - 1e-12, 0.0);
    for strict in [true, false] {
        let kind = gallery::rand_sparse_tri(n, 500).lower().well_conditioned(1.0);
        let kind = if strict { kind.strict() } else { kind.unit() };
        let l = kind.build(&mut rng(9), f64s()).unwrap();
        let mut sums = vec![0.0; n];
        entries(&l).iter().filter(|e| e.0 != e.1).for_each(|e| sums[e.0] += e.2.abs());
        assert!(sums.iter().all(|&sum| sum <= 0.5 + 1e-12));
    }
}

#[test]
fn one_seed_is_one_matrix() {
    let draw = |seed| {
        let mut rng = rng(seed);
        [
            entries(&gallery::rand_sparse([30, 40], 99).build(&mut rng, f64s()).unwrap()),
            entries(&gallery::rand_sparse_tri(30, 99).build(&mut rng, f64s()).unwrap()),
            entries(&gallery::make_spd_sparse(30, 100).build(&mut rng, f64s()).unwrap()),
            entries(&gallery::rmat(6, 99).build(&mut rng, f64s()).unwrap()),
        ]
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn what_does_not_exist_is_a_typed_error() {
    let rng = &mut rng(1);
    let nnz = |error: GalleryError| match error {
        GalleryError::Nnz { nnz, least, most, .. } => (nnz, least, most),
        other => panic!("{other}"),
    };
    let sparse = gallery::rand_sparse;
    assert_eq!(nnz(sparse([2, 3], 7).build(rng, f64s()).unwrap_err()), (7, 0, 6));
    assert_eq!(nnz(sparse([3, 3], 2).well_conditioned(1.0).build(rng, f64s()).unwrap_err()), (2, 3, 9));
    assert_eq!(nnz(gallery::rand_sparse_tri(3, 2).build(rng, f64s()).unwrap_err()), (2, 3, 6));
    assert_eq!(nnz(gallery::rand_sparse_tri(3, 4).strict().build(rng, f64s()).unwrap_err()), (4, 0, 3));
    assert_eq!(nnz(gallery::make_spd_sparse(3, 10).build(rng, f64s()).unwrap_err()), (10, 3, 9));
    let error = gallery::make_spd_sparse(3, 6).build(rng, f64s()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a symmetric matrix of size 3 stores its diagonal and pairs of entries: 6 entries leave 3 over, an odd number"
    );
    let error = sparse([2, 3], 4).well_conditioned(1.0).build(rng, f64s()).unwrap_err();
    assert_eq!(error.to_string(), "a well-conditioned matrix needs a square matrix, and this one is 2x3");
    let error = sparse([2, 2], 2).well_conditioned(0.0).build(rng, f64s()).unwrap_err();
    assert_eq!(error.to_string(), "the smallest diagonal entry must be positive and finite and is 0");
    for range in [1.0..1.0, 2.0..1.0, f64::NAN..1.0, f64::MIN..f64::MAX] {
        let error = sparse([2, 2], 2).values(range).build(rng, f64s()).unwrap_err();
        assert!(matches!(error, GalleryError::Parameter { .. }), "{error}");
    }
    assert!(matches!(sparse([usize::MAX, 2], 0).build(rng, f64s()).unwrap_err(), GalleryError::TooLarge { .. }));
    for graph in [
        gallery::rmat(3, 1).probabilities([0.0; 4]),
        gallery::rmat(3, 1).probabilities([1.0, -1.0, 1.0, 1.0]),
        gallery::rmat(3, 1).probabilities([f64::NAN; 4]),
        gallery::rmat(3, 1).noise(1.5),
        gallery::rmat(63, 1),
    ] {
        assert!(matches!(graph.build(rng, f64s()).unwrap_err(), GalleryError::Parameter { .. }));
    }
}

#[test]
fn rmat_has_hubs() {
    let a = gallery::rmat(10, 16 << 10).build(&mut rng(1), f64s()).unwrap();
    check_canonical(&a);
    let total: f64 = entries(&a).iter().map(|e| e.2).sum();
    assert_eq!(total, f64::from(16 << 10));
    assert!(a.nnz() < 16 << 10);
    let mut degrees = vec![0.0; 1024];
    entries(&a).iter().for_each(|e| degrees[e.0] += e.2);
    degrees.sort_by(f64::total_cmp);
    // The mean is 16; of independent edges the largest would be about 30 and none 0.
    assert!(degrees[1023] > 150.0 && degrees[100] < 4.0, "{} {}", degrees[1023], degrees[100]);
    // All weight on one quadrant is one position; equal weights are uniform.
    let one = gallery::rmat(4, 50).probabilities([0., 0., 1., 0.]).build(&mut rng(2), f64s()).unwrap();
    assert_eq!(entries(&one), [(15, 0, 50.0)]);
    assert_eq!(entries(&gallery::rmat(0, 3).build(&mut rng(2), f64s()).unwrap()), [(0, 0, 3.0)]);
    let even = gallery::rmat(2, 16_000).probabilities([1.0; 4]).build(&mut rng(3), f64s()).unwrap();
    assert!(entries(&even).iter().all(|e| (e.2 - 1000.0).abs() < 160.0), "{even}");
    let places: HashSet<_> = entries(&even).iter().map(|e| (e.0, e.1)).collect();
    assert_eq!(places.len(), 16);
}
