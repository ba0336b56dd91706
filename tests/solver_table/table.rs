//! Property x solver x operator: every solver on every operator that it is for, whatever the operator is made of.

use super::*;
use sparsegrad_solvers::operator::{Blocks, Compose, Dense, Diagonal, FnOperator};
use sparsegrad_solvers::{BiCgStab, Cg, Cgs, Gmres, Lsmr, MinRes, Outcome, Report};
use std::collections::BTreeMap;

/// What an operator is.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Definite,
    Indefinite,
    General,
    Tall,
    Wide,
    RankDeficient,
}

const CLASSES: [(&str, Class); 6] = [
    ("definite", Class::Definite),
    ("indefinite", Class::Indefinite),
    ("general", Class::General),
    ("tall", Class::Tall),
    ("wide", Class::Wide),
    ("rank-deficient", Class::RankDeficient),
];

/// A solver with a tolerance, or the default one.
type Make = fn(Option<f64>) -> Box<dyn Method>;

/// A solver and the classes that it is for.
struct Solver {
    name: &'static str,
    make: Make,
    of: &'static [Class],
}

fn solvers() -> Vec<Solver> {
    macro_rules! make {
        ($method:expr) => {
            |tolerance| match tolerance {
                Some(tolerance) => Box::new($method.tolerance(tolerance)),
                None => Box::new($method),
            }
        };
    }
    use Class::*;
    vec![
        Solver { name: "CG", make: make!(Cg::new()), of: &[Definite] },
        Solver { name: "MINRES", make: make!(MinRes::new()), of: &[Definite, Indefinite] },
        Solver { name: "BiCGSTAB", make: make!(BiCgStab::new()), of: &[Definite, General] },
        Solver { name: "CGS", make: make!(Cgs::new()), of: &[Definite, General] },
        Solver { name: "GMRES", make: make!(Gmres::new()), of: &[Definite, Indefinite, General] },
        Solver { name: "FGMRES", make: make!(Gmres::new().flexible()), of: &[Definite, Indefinite, General] },
        Solver {
            name: "LSMR",
            make: make!(Lsmr::new().max_iterations(2000)),
            of: &[Definite, Indefinite, General, Tall, Wide, RankDeficient],
        },
    ]
}

/// A dense matrix on the host.
#[derive(Clone)]
struct Host {
    shape: [usize; 2],
    numbers: Vec<f64>,
}

impl Host {
    fn of(class: Class, seed: u64) -> Self {
        let (m, n) = match class {
            Class::Tall => (23, 11),
            Class::Wide => (7, 15),
            Class::RankDeficient => (20, 12),
            _ => (19, 19),
        };
        let random = numbers(seed, m * n);
        let mut a = Self { shape: [m, n], numbers: vec![0.0; m * n] };
        for (at, number) in random.iter().enumerate() {
            let (i, j) = (at / n, at % n);
            // A third is stored.
            let kept = if (at * 7 + i) % 3 == 0 { *number } else { 0.0 };
            a.numbers[at] = match class {
                Class::RankDeficient => (random[i] * random[n + j] + (i % 3) as f64 * random[2 * n + j]) * 3.0,
                _ if i == j => 6.0 + number,
                _ => kept,
            };
        }
        if matches!(class, Class::Definite | Class::Indefinite) {
            let b = a.clone();
            for i in 0..n {
                for j in 0..n {
                    a.numbers[i * n + j] = 0.5 * (b.numbers[i * n + j] + b.numbers[j * n + i]);
                }
                if class == Class::Indefinite && i % 3 == 0 {
                    a.numbers[i * n + i] *= -1.0;
                }
            }
        }
        a
    }

    fn times(&self, x: &[f64], k: usize) -> Vec<f64> {
        let [m, n] = self.shape;
        let mut y = vec![0.0; m * k];
        for i in 0..m {
            for j in 0..n {
                for c in 0..k {
                    y[i * k + c] += self.numbers[i * n + j] * x[j * k + c];
                }
            }
        }
        y
    }

    fn t(&self) -> Self {
        let [m, n] = self.shape;
        let at = |i: usize| self.numbers[(i % m) * n + i / m];
        Self { shape: [n, m], numbers: (0..m * n).map(at).collect() }
    }
}

/// What operators are made of.
const MADE_OF: [&str; 8] = ["CSR", "CSC", "COO", "dense", "function", "sum", "transposed", "blocks"];

/// Those to try: on a GPU one of each way that products are made, since every one of them waits for the device.
fn made_of(backend: &str) -> Vec<&'static str> {
    let all = if backend == "flex" { &MADE_OF[..] } else { &["CSR", "function", "blocks"] };
    all.iter().copied().filter(|name| asked("SOLVER_TABLE_OPERATORS", name)).collect()
}

/// A matrix as an operator.
fn operator(made_of: &str, a: &Host, dtype: DType, device: &Device) -> Operator {
    let tensor = |a: &Host| dense(&a.numbers, a.shape, dtype, device);
    let csr = |a: &Host| SparseTensor::from_dense(tensor(a), 0.0).unwrap();
    match made_of {
        "CSR" => Arc::new(csr(a)),
        "CSC" => Arc::new(csr(&a.t()).t()),
        "COO" => Arc::new(csr(a).to_coo()),
        "dense" => Arc::new(Dense::new(tensor(a))),
        "function" => {
            let apply = |a: &Tensor<2>, x: Tensor<2>| a.clone().matmul(x);
            let transposed = |a: &Tensor<2>, y: Tensor<2>| a.clone().transpose().matmul(y);
            Arc::new(FnOperator::new(a.shape, dtype, device, tensor(a), apply, transposed))
        }
        "sum" => {
            let half = csr(a).scaled(0.25);
            Arc::new(half.plus(Dense::new(tensor(a)).scaled(0.75)))
        }
        "transposed" => Arc::new(Dense::new(tensor(&a.t())).transposed()),
        "blocks" => {
            let [m, n] = a.shape;
            let part = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| -> Option<Operator> {
                Some(Arc::new(Dense::new(tensor(a).slice([rows, columns]))))
            };
            Arc::new(Blocks::new(vec![
                vec![part(0..3, 0..5), part(0..3, 5..n)],
                vec![part(3..m, 0..5), part(3..m, 5..n)],
            ]))
        }
        other => unreachable!("{other}"),
    }
}

/// One cell.
struct Case<'a> {
    make: Make,
    class: Class,
    host: &'a Host,
    a: Operator,
    dtype: DType,
    device: &'a Device,
}

impl Case<'_> {
    fn tolerance(&self) -> f64 {
        if self.dtype == DType::F64 { 1e-8 } else { 1e-5 }
    }

    fn tensor(&self, numbers: &[f64], rows: usize) -> Tensor<2> {
        dense(numbers, [rows, numbers.len() / rows], self.dtype, self.device)
    }

    /// Whether a system with this matrix, or its transpose, has one solution only.
    fn is_regular(&self, [m, n]: [usize; 2]) -> bool {
        m >= n && self.class != Class::RankDeficient
    }
}

type Cell = Result<(), String>;

fn converged(report: &Report) -> Cell {
    if report.outcome.is_converged() { Ok(()) } else { Err(report.to_string()) }
}

fn near(found: &[f64], expected: &[f64], tolerance: f64) -> Cell {
    let size = expected.iter().fold(0.0f64, |size, x| size.max(x.abs()));
    match found.iter().zip(expected).find(|(x, y)| (*x - *y).abs() > tolerance * size || (*x - *y).is_nan()) {
        Some((found, expected)) => Err(format!("{found} for {expected}")),
        None => Ok(()),
    }
}

/// Solves a consistent system: to the residual that is asked for, and to the solution where it is the only one.
fn solves(case: &Case, transpose: bool, k: usize, scales: &[f64]) -> Cell {
    let host = if transpose { case.host.t() } else { case.host.clone() };
    let [m, n] = host.shape;
    let mut x = numbers(5, n * k);
    x.iter_mut().enumerate().for_each(|(at, x)| *x *= scales[at % k]);
    let b = host.times(&x, k);
    let solution = (case.make)(None).run(&case.a, case.tensor(&b, m), None, transpose);
    converged(&solution.report)?;
    let rest = host.times(&read(&solution.x), k);
    for c in 0..k {
        let norm = |of: &dyn Fn(usize) -> f64| (0..m).map(|i| of(i).powi(2)).sum::<f64>().sqrt();
        let residual = norm(&|i| rest[i * k + c] - b[i * k + c]) / norm(&|i| b[i * k + c]);
        // LSMR may end with a small gradient.
        let allowed = if solution.report.outcome == Outcome::Converged { 1.0 } else { 1e3 };
        let rounding = if case.dtype == DType::F64 { 1e-14 } else { 1e-5 };
        if residual > allowed * case.tolerance() + rounding {
            return Err(format!("residual {residual} of column {c}: {}", solution.report));
        }
    }
    if case.is_regular(host.shape) && scales.iter().all(|scale| *scale == scales[0]) {
        near(&read(&solution.x), &x, 1e3 * case.tolerance())?;
    }
    Ok(())
}

fn well_posed(case: &Case) -> Cell {
    solves(case, false, 1, &[1.0])
}

fn transposed(case: &Case) -> Cell {
    solves(case, true, 1, &[1.0])
}

/// Each column has its own norm and end, whatever its scale.
fn columns(case: &Case) -> Cell {
    solves(case, false, 3, &[1.0, 1e-15, 1e12])
}

/// A column alone has the bits that it has among others.
fn alone(case: &Case) -> Cell {
    let [m, n] = case.host.shape;
    let b = case.host.times(&numbers(6, n * 2), 2);
    let method = (case.make)(None);
    let doubled: Vec<f64> = b.iter().enumerate().map(|(at, b)| if at % 2 == 0 { *b } else { b * 3.0 }).collect();
    let together = method.run(&case.a, case.tensor(&doubled, m), None, false);
    let twins = method.run(&case.a, case.tensor(&b, m), None, false);
    let first = |x: &Tensor<2>| read(x).chunks(2).map(|row| row[0]).collect::<Vec<_>>();
    converged(&together.report)?;
    if first(&together.x) == first(&twins.x) { Ok(()) } else { Err("a column depends on another one".into()) }
}

fn zero(case: &Case) -> Cell {
    let [m, n] = case.host.shape;
    let guess = case.tensor(&numbers(7, n), n);
    let solution = (case.make)(None).run(&case.a, case.tensor(&vec![0.0; m], m), Some(guess), false);
    converged(&solution.report)?;
    match read(&solution.x).iter().all(|x| *x == 0.0) && solution.report.iterations == 0 {
        true => Ok(()),
        false => Err(solution.report.to_string()),
    }
}

/// The solution as the guess: nothing is left to do. Another guess: the same solution.
fn guess(case: &Case) -> Cell {
    let [m, n] = case.host.shape;
    let x = numbers(8, n);
    let b = case.host.times(&x, 1);
    let method = (case.make)(None);
    let exact = method.run(&case.a, case.tensor(&b, m), Some(case.tensor(&x, n)), false);
    converged(&exact.report)?;
    if exact.report.iterations != 0 {
        return Err(exact.report.to_string());
    }
    let other = method.run(&case.a, case.tensor(&b, m), Some(case.tensor(&numbers(9, n), n)), false);
    converged(&other.report)?;
    if case.is_regular(case.host.shape) { near(&read(&other.x), &x, 1e3 * case.tolerance()) } else { Ok(()) }
}

/// One iteration is not enough, and that is told.
fn honest(case: &Case) -> Cell {
    let [m, n] = case.host.shape;
    let b = case.host.times(&numbers(10, n), 1);
    let tight = (case.make)(Some(1e-300)).run(&case.a, case.tensor(&b, m), None, false).report;
    match tight.outcome {
        Outcome::Converged if tight.relative_residuals[0] == 0.0 => Ok(()),
        Outcome::LeastSquares => Err(format!("a gradient of 0: {tight}")),
        Outcome::Converged => Err(tight.to_string()),
        _ => Ok(()),
    }
}

type Property = (&'static str, fn(&Case) -> Cell);

const PROPERTIES: [Property; 7] = [
    ("well posed", well_posed),
    ("transposed", transposed),
    ("columns of any scale", columns),
    ("a column as if alone", alone),
    ("zero", zero),
    ("guess", guess),
    ("honest", honest),
];

#[test]
fn property_by_solver_by_operator() {
    let mut failures = vec![];
    let mut passed = 0;
    for (backend, device, dtypes) in backends() {
        let mut table: BTreeMap<(usize, usize), BTreeMap<&str, String>> = BTreeMap::new();
        for (class_at, (class_name, class)) in CLASSES.into_iter().enumerate() {
            let host = Host::of(class, 11 + class_at as u64);
            for dtype in dtypes.iter().copied() {
                for made_of in made_of(backend) {
                    let a = operator(made_of, &host, dtype, &device);
                    for (property_at, (property, check)) in PROPERTIES.into_iter().enumerate() {
                        for solver in solvers() {
                            let cell =
                                table.entry((class_at, property_at)).or_default().entry(solver.name).or_default();
                            if !solver.of.contains(&class) {
                                *cell = "-".into();
                                continue;
                            }
                            let case =
                                Case { make: solver.make, class, host: &host, a: a.clone(), dtype, device: &device };
                            match check(&case) {
                                Ok(()) => {
                                    passed += 1;
                                    let count = cell.parse::<usize>().unwrap_or(0);
                                    *cell = (count + 1).to_string();
                                }
                                Err(why) => failures.push(format!(
                                    "{backend} {dtype:?} {class_name} {made_of} {property} {}: {why}",
                                    solver.name
                                )),
                            }
                        }
                    }
                }
            }
        }
        println!("\n{backend}, {dtypes:?}, operators of {:?}: cells that passed\n", made_of(backend));
        print!("{:16}{:24}", "operator", "property");
        solvers().iter().for_each(|solver| print!("{:>10}", solver.name));
        for ((class, property), cells) in table {
            print!("\n{:16}{:24}", CLASSES[class].0, PROPERTIES[property].0);
            solvers().iter().for_each(|solver| print!("{:>10}", cells[solver.name]));
        }
        println!();
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let classes: usize = solvers().iter().map(|solver| solver.of.len()).sum();
    let operators = backends().iter().map(|(backend, _, dtypes)| dtypes.len() * made_of(backend).len()).sum::<usize>();
    assert_eq!(passed, classes * operators * PROPERTIES.len());
}

/// Items of a batch are solved as if alone, each to its own tolerance; ragged patterns, any format.
#[test]
fn batches() {
    for (_, device, dtypes) in backends() {
        for dtype in dtypes {
            for (class_at, (name, class)) in CLASSES.into_iter().enumerate() {
                let hosts: Vec<Host> = (0..3).map(|item| Host::of(class, 31 + 7 * item + class_at as u64)).collect();
                let items: Vec<_> = hosts
                    .iter()
                    .map(|host| {
                        SparseTensor::from_dense(dense(&host.numbers, host.shape, dtype, &device), 0.0).unwrap()
                    })
                    .collect();
                let batch = SparseTensor::stack(&items).unwrap();
                let [m, n] = hosts[0].shape;
                let scales = [1.0, 1e-12, 0.0];
                let b: Vec<f64> = hosts
                    .iter()
                    .zip(scales)
                    .flat_map(|(host, scale)| host.times(&numbers(3, n * 2), 2).into_iter().map(move |b| b * scale))
                    .collect();
                for solver in solvers().into_iter().filter(|solver| solver.of.contains(&class)) {
                    let method = (solver.make)(None);
                    let a: Operator = Arc::new(batch.clone());
                    let together = method.run(&a, dense(&b, [3 * m, 2], dtype, &device), None, false);
                    assert!(together.report.outcome.is_converged(), "{name} {}", together.report);
                    assert_eq!(together.report.relative_residuals.len(), 6);
                    for (item, tensor) in items.iter().enumerate() {
                        let a: Operator = Arc::new(tensor.clone());
                        let b = dense(&b[item * m * 2..][..m * 2], [m, 2], dtype, &device);
                        let alone = method.run(&a, b, None, false);
                        let x = read(&together.x);
                        let size = read(&alone.x).iter().fold(0.0f64, |size, x| size.max(x.abs()));
                        for (x, y) in x[item * n * 2..].iter().zip(read(&alone.x)) {
                            let tolerance = if dtype == DType::F64 { 1e-5 } else { 1e-2 };
                            assert!((x - y).abs() <= tolerance * size, "{name} {}: {x} for {y}", solver.name);
                        }
                    }
                }
            }
        }
    }
}

/// Of least squares: x = A^T y, and A maps nothing of y to 0, whatever is left of b.
#[test]
fn multipliers() {
    for (backend, device, dtypes) in backends() {
        for dtype in dtypes {
            for (at, (name, class)) in CLASSES.into_iter().enumerate() {
                for (made_of, transpose) in [("CSR", false), ("CSR", true), ("function", false), ("function", true)] {
                    let host = Host::of(class, 51 + at as u64);
                    let a = operator(made_of, &host, dtype, &device);
                    let host = if transpose { host.t() } else { host };
                    let b = numbers(52, host.shape[0]);
                    let column = dense(&b, [b.len(), 1], dtype, &device);
                    let (Solution { x, report }, y) = Lsmr::new().run_with_multiplier(&a, column, None, transpose);
                    let (x, y) = (read(&x), read(&y.expect("LSMR finds both")));
                    let place = format!("{backend} {dtype:?} {name} {made_of} {transpose}");
                    assert!(report.outcome.is_converged(), "{place}: {report}");
                    let tolerance = if dtype == DType::F64 { 1e-5 } else { 1e-2 };
                    near(&host.t().times(&y, 1), &x, tolerance).unwrap_or_else(|why| panic!("{place}: {why}"));
                    let r: Vec<f64> = b.iter().zip(host.times(&x, 1)).map(|(b, image)| b - image).collect();
                    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                    if report.outcome == Outcome::LeastSquares {
                        assert!(dot(&r, &y).abs() <= tolerance * (dot(&r, &r) * dot(&y, &y)).sqrt(), "{place}");
                    }
                }
            }
        }
    }
}

/// A preconditioner changes neither the solution nor what is asked for, transposed or not, and an exact one needs one iteration.
#[test]
fn preconditioned() {
    for (_, device, dtypes) in backends() {
        for dtype in dtypes {
            let host = Host::of(Class::Definite, 5);
            let n = host.shape[0];
            let a = operator("CSR", &host, dtype, &device);
            let diagonal: Vec<f64> = (0..n).map(|i| 1.0 / host.numbers[i * n + i]).collect();
            let inverse: Operator = Arc::new(Diagonal::new(dense(&diagonal, [n], dtype, &device)));
            let x = numbers(4, n);
            let b = dense(&host.times(&x, 1), [n, 1], dtype, &device);
            let methods: [Box<dyn Method>; 7] = [
                Box::new(Cg::new().precondition(inverse.clone())),
                Box::new(MinRes::new().precondition(inverse.clone())),
                Box::new(BiCgStab::new().precondition(inverse.clone())),
                Box::new(Cgs::new().precondition(inverse.clone())),
                Box::new(Gmres::new().precondition(inverse.clone())),
                Box::new(Gmres::new().flexible().precondition(inverse.clone())),
                Box::new(Lsmr::new().precondition(inverse.clone())),
            ];
            for method in methods {
                let prepared = method.prepare(&a).unwrap();
                for transpose in [false, true] {
                    let solution = prepared.run(&a, b.clone(), None, transpose);
                    assert!(solution.report.outcome.is_converged(), "{}", solution.report);
                    let tolerance = if dtype == DType::F64 { 1e-6 } else { 1e-3 };
                    close(&read(&solution.x), &x, tolerance);
                }
            }
            let own: Operator = Arc::new(Diagonal::new(dense(&numbers(2, n), [n], dtype, &device)));
            let exact: Operator = Arc::new(Diagonal::new(dense(
                &numbers(2, n).iter().map(|x| 1.0 / x).collect::<Vec<_>>(),
                [n],
                dtype,
                &device,
            )));
            let report = BiCgStab::new().precondition(exact).solve(&own, b).report;
            assert_eq!((report.iterations, report.outcome), (1, Outcome::Converged));
        }
    }
}

/// Every iteration is told, in order, and the report says the same.
#[test]
fn callbacks_and_histories() {
    use std::sync::Mutex;
    let host = Host::of(Class::Definite, 5);
    let n = host.shape[0];
    let a = operator("CSR", &host, DType::F64, &Device::flex());
    let b = column(&host.times(&numbers(4, n), 1));
    let seen: Arc<Mutex<Vec<(usize, f64)>>> = Arc::default();
    let told = seen.clone();
    let cg = Cg::new().callback(move |progress| {
        told.lock().unwrap().push((progress.iteration, progress.relative_residuals[0]));
    });
    let report = cg.run(&a, b, None, false).report;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().map(|(_, residual)| *residual).collect::<Vec<_>>(), report.history);
    assert!(seen.iter().enumerate().all(|(at, (iteration, _))| *iteration == at + 1));
    assert_eq!(report.history.len(), report.iterations);
    assert!(report.history.last().unwrap() <= &1e-8 && report.history[0] > 1e-8);
}

/// Sizes 0 and 1, no columns.
#[test]
fn empties() {
    for solver in solvers() {
        let method = (solver.make)(None);
        for (n, k) in [(0, 1), (1, 0), (0, 0), (1, 1), (3, 0)] {
            let a = Diagonal::new(Tensor::full([n], 2.0, (&Device::flex(), DType::F64)));
            let a: Operator = Arc::new(a);
            let b = Tensor::full([n, k], 6.0, (&Device::flex(), DType::F64));
            let solution = method.run(&a, b, None, false);
            assert!(solution.report.outcome.is_converged(), "{n} {k}: {}", solution.report);
            assert_eq!(solution.x.dims(), [n, k]);
            assert!(read(&solution.x).iter().all(|x| (x - 3.0).abs() < 1e-7));
        }
    }
}

/// Same bits on one thread and on two, of a problem that is large enough for two; slices and their ends.
#[test]
fn same_bits_on_any_number_of_threads() {
    let size = [263, 271];
    let a = sparsegrad::gallery::poisson(size, (&Device::flex(), DType::F64)).unwrap();
    let n = size[0] * size[1];
    for k in [1, 2] {
        let solve = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let b = dense(&numbers(1, n * k), [n, k], DType::F64, &Device::flex());
            pool.install(|| read(&Cg::new().max_iterations(10).solve(&a, b).x))
        };
        assert!(solve(1) == solve(2));
    }
}
