//! Public bug reports on iterative solvers, named after their threads.

use super::*;
use sparsegrad_solvers::operator::{Compose, Diagonal};
use sparsegrad_solvers::{BiCgStab, Breakdown, Cg, Cgs, Gmres, Lsmr, MinRes, Outcome};

const SPD: [[f64; 2]; 2] = [[2.0, 1.0], [1.0, 2.0]];
const GENERAL: [[f64; 3]; 3] = [[4.0, 1.0, 0.0], [2.0, 5.0, 1.0], [0.0, 1.0, 3.0]];

fn methods() -> Vec<Box<dyn Method>> {
    vec![
        Box::new(Cg::new()),
        Box::new(MinRes::new()),
        Box::new(BiCgStab::new()),
        Box::new(Cgs::new()),
        Box::new(Gmres::new()),
        Box::new(Gmres::new().flexible()),
        Box::new(Lsmr::new()),
    ]
}

/// JuliaLinearAlgebra/IterativeSolvers.jl#110, scipy/scipy#14532, scalanlp/breeze#644: a right-hand side of 0 gave NaN.
#[test]
fn iterative_solvers_jl_110_zero_right_hand_side() {
    for method in methods() {
        for guess in [None, Some(column(&[3.0, -1.0]))] {
            let a: Operator = Arc::new(sparse(SPD));
            let Solution { x, report } = method.run(&a, column(&[0.0, 0.0]), guess, false);
            assert_eq!(read(&x), [0.0, 0.0], "{report}");
            assert_eq!((report.iterations, report.outcome), (0, Outcome::Converged));
        }
    }
}

/// jax-ml/jax#40254, #40317, PMEAL/OpenPNM#991: an absolute eps in a relative test lost small right-hand sides.
#[test]
fn jax_40254_the_scale_of_the_right_hand_side() {
    for scale in [1.0, 1e-15, 1e-20, 1e20] {
        for method in methods() {
            let a = sparse_of(SPD, DType::F32);
            let b = dense(&[scale * 1.0, scale * 2.0], [2, 1], DType::F32, &Device::flex());
            let x = solve(&*method, a, b).into_result().unwrap();
            close(&read(&x), &[0.0, scale], 1e-5);
        }
    }
    for scale in [1.0, 1e-15, 1e-200, 1e200] {
        for method in methods().into_iter().skip(2) {
            let b = column(&[2.0 * scale, -5.0 * scale, 7.0 * scale]);
            let x = solve(&*method, sparse(GENERAL), b).into_result().unwrap();
            close(&read(&x), &[scale, -2.0 * scale, 3.0 * scale], 1e-7);
        }
    }
}

/// torchsparsegradutils: the same in CG and MINRES, and of the operator.
#[test]
fn tsgu_the_scale_of_the_operator() {
    for method in methods() {
        let x = solve(&*method, sparse([[2.0, 0.0], [0.0, 4.0]]), column(&[2e-12, 4e-12])).into_result().unwrap();
        close(&read(&x), &[1e-12, 1e-12], 1e-12);
        for scale in [1e-12, 1e-170, 1e170] {
            let a = sparse([[scale, 0.0], [0.0, scale]]);
            let x = solve(&*method, a, column(&[1.0, 1.0])).into_result().unwrap();
            close(&read(&x), &[1.0 / scale, 1.0 / scale], 1e-12);
        }
    }
}

/// scipy/scipy#9745: an indefinite operator given to CG.
#[test]
fn scipy_9745_an_indefinite_operator() {
    let swap = || sparse([[0.0, 1.0], [1.0, 0.0]]);
    let x = solve(&MinRes::new(), swap(), column(&[1.0, 0.0])).into_result().unwrap();
    close(&read(&x), &[0.0, 1.0], 1e-12);
    let minus = || sparse([[-1.0, 0.0], [0.0, -1.0]]);
    for a in [swap(), minus()] {
        let report = solve(&Cg::new(), a, column(&[1.0, 0.0])).report;
        assert_eq!(report.outcome, Outcome::Breakdown { kind: Breakdown::Indefinite, iteration: 1 });
        assert_eq!(report.relative_residuals, [1.0]);
        let error = report.to_string();
        assert!(error.contains("not positive definite") && error.contains("MinRes"), "{error}");
    }
    let x = solve(&MinRes::new(), minus(), column(&[1.0, 0.0])).into_result().unwrap();
    close(&read(&x), &[-1.0, 0.0], 1e-12);
    // Not symmetric.
    let shear = || sparse([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let x = solve(&BiCgStab::new(), shear(), column(&[1.0, 1.0, 1.0])).into_result().unwrap();
    close(&read(&x), &[0.0, 1.0, 1.0], 1e-7);
    honest(&Cg::new(), shear(), &[1.0, 1.0, 1.0]);
}

/// What is said to have converged has, by a residual computed here.
fn honest(method: &dyn Method, a: SparseTensor<2>, b: &[f64]) {
    let Solution { x, report } = solve(method, a.clone(), column(b));
    let found = read(&a.matmul(x));
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let rest: Vec<f64> = found.iter().zip(b).map(|(found, b)| b - found).collect();
    let residual = norm(&rest) / norm(b);
    assert!((residual - report.relative_residuals[0]).abs() <= 1e-10 * residual.max(1e-4), "{residual} {report}");
    assert!(report.outcome != Outcome::Converged || residual <= 1e-8, "{residual}: {report}");
}

/// cornellius-gp/linear_operator#58, scipy/scipy#8163: a general operator given to CG.
#[test]
fn linear_operator_58_a_general_operator() {
    for n in [2, 5, 20, 60] {
        let values = numbers(58, n * n);
        let a = SparseTensor::from_dense(dense(&values, [n, n], DType::F64, &Device::flex()), 0.0).unwrap();
        let b = numbers(59, n);
        for method in methods() {
            honest(&*method, a.clone(), &b);
        }
    }
}

/// torchsparsegradutils, pull request 105: a warm start was added to the solution.
#[test]
fn tsgu_105_a_warm_start() {
    let b = || column(&[2.0, -5.0, 7.0]);
    for method in methods().into_iter().skip(2) {
        let a: Operator = Arc::new(sparse(GENERAL));
        let x = method.run(&a, b(), Some(column(&[0.3, 0.3, 0.3])), false).into_result().unwrap();
        close(&read(&x), &[1.0, -2.0, 3.0], 1e-7);
        let Solution { x, report } = method.run(&a, b(), Some(column(&[1.0, -2.0, 3.0])), false);
        assert_eq!(read(&x), [1.0, -2.0, 3.0]);
        assert_eq!((report.iterations, report.outcome), (0, Outcome::Converged));
    }
}

/// A singular system that has solutions: the shortest of them. Of one that has none, MINRES says so.
#[test]
fn minres_singular() {
    let a = || Diagonal::new(dense(&[1.0, 2.0, 0.0], [3], DType::F64, &Device::flex()));
    for method in [&MinRes::new() as &dyn Method, &Cg::new(), &Lsmr::new(), &Gmres::new()] {
        let x = solve(method, a(), column(&[1.0, 2.0, 0.0])).into_result().unwrap();
        close(&read(&x), &[1.0, 1.0, 0.0], 1e-12);
    }
    let Solution { x, report } = solve(&MinRes::new(), a(), column(&[1.0, 2.0, 5.0]));
    assert_eq!(report.outcome, Outcome::Inconsistent);
    close(&read(&x)[..2], &[1.0, 1.0], 1e-12);
    let Solution { x, report } = solve(&Lsmr::new(), a(), column(&[1.0, 2.0, 5.0]));
    assert_eq!(report.outcome, Outcome::LeastSquares);
    close(&read(&x), &[1.0, 1.0, 0.0], 1e-12);
    for method in methods() {
        let outcome = solve(&*method, a(), column(&[1.0, 2.0, 5.0])).report.outcome;
        assert_ne!(outcome, Outcome::Converged, "{}", method.name());
    }
}

/// juanjosegarciaripoll/nanoeigenpy#4, scipy/scipy#6843: exact guess, and an eigenvector as the right-hand side.
#[test]
fn scipy_6843_minres_has_nothing_left_to_do() {
    let a: Operator = Arc::new(sparse([[2.0, 1.0], [1.0, -3.0]]));
    let x = MinRes::new().run(&a, column(&[4.0, -5.0]), None, false).into_result().unwrap();
    close(&read(&x), &[1.0, 2.0], 1e-10);
    let report = MinRes::new().run(&a, column(&[4.0, -5.0]), Some(column(&[1.0, 2.0])), false).report;
    assert_eq!((report.iterations, report.outcome), (0, Outcome::Converged));
    let Solution { x, report } = solve(&MinRes::new(), sparse([[2.0, 0.0], [0.0, -3.0]]), column(&[2.0, 0.0]));
    close(&read(&x), &[1.0, 0.0], 1e-12);
    assert_eq!((report.iterations, report.outcome), (1, Outcome::Converged));
}

/// JuliaLinearAlgebra/IterativeSolvers.jl#202, rfeinman/pytorch-minimize#20, patrick-kidger/lineax#202, scipy/scipy#17012:
/// LSMR where A^T b = 0, and odd shapes.
#[test]
fn iterative_solvers_jl_202_lsmr_without_a_gradient() {
    let lsmr = Lsmr::new();
    assert_eq!(read(&solve(&lsmr, sparse([[1.0, 1.0], [1.0, 2.0]]), column(&[0.0, 0.0])).x), [0.0, 0.0]);
    let eye = SparseTensor::eye_of(10, DType::F64, &Device::flex()).unwrap();
    close(&read(&solve(&lsmr, eye, column(&[1.0; 10])).into_result().unwrap()), &[1.0; 10], 1e-12);
    let Solution { x, report } = solve(&lsmr, sparse([[1.0, 0.0], [0.0, 0.0]]), column(&[0.0, 1.0]));
    assert_eq!((read(&x), report.outcome, report.iterations), (vec![0.0, 0.0], Outcome::LeastSquares, 0));
    let tall: Operator = Arc::new(sparse([[1.0]; 10]));
    let x = lsmr.run(&tall, column(&[0.0; 10]), Some(column(&[1.0])), false).into_result().unwrap();
    assert_eq!((x.dims(), read(&x)), ([1, 1], vec![0.0]));
    close(&read(&solve(&lsmr, sparse([[2.0]]), column(&[6.0])).into_result().unwrap()), &[3.0], 1e-12);
}

/// What is not a number is told, and other columns are solved.
#[test]
fn not_finite() {
    for method in methods() {
        let b = dense(&[1.0, f64::NAN, 2.0, 1.0], [2, 2], DType::F64, &Device::flex());
        let Solution { x, report } = solve(&*method, sparse(SPD), b);
        assert_eq!(report.outcome, Outcome::NotFinite { what: "the right-hand side" });
        assert_eq!(report.outcomes[0], Outcome::Converged, "{report}");
        let x = read(&x);
        close(&[x[0], x[2]], &[0.0, 1.0], 1e-7);
        let broken = sparse([[f64::NAN, 1.0], [1.0, 2.0]]);
        let outcome = solve(&*method, broken, column(&[1.0, 2.0])).report.outcome;
        assert!(!outcome.is_converged(), "{}: {outcome}", method.name());
    }
}

/// A tolerance that no arithmetic reaches ends, and says so.
#[test]
fn out_of_reach() {
    let n = 40;
    let hilbert: Vec<f64> = (0..n * n).map(|at| 1.0 / ((at / n + at % n) as f64 + 1.0)).collect();
    let a = SparseTensor::from_dense(dense(&hilbert, [n, n], DType::F64, &Device::flex()), 0.0).unwrap();
    for method in methods() {
        let report = solve(&*method, a.clone(), column(&vec![1.0; n])).report;
        // A small gradient is not a small residual, and LSMR does not say so.
        assert!(report.outcome != Outcome::Converged || report.relative_residuals[0] <= 1e-8, "{report}");
    }
    let exact = Cg::new().tolerance(1e-25).max_iterations(10_000);
    let report = solve(&exact, sparse([[3.0, 1.0], [1.0, 7.0]]), column(&[0.1, 0.7])).report;
    assert!(report.iterations < 100);
    assert!(matches!(report.outcome, Outcome::Stagnated) || report.relative_residuals[0] <= 1e-25, "{report}");
}

/// The damped optimum does not depend on the guess.
#[test]
fn lsmr_a_guess_does_not_shift_the_damped_optimum() {
    let a: Operator = Arc::new(sparse([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]));
    let lsmr = Lsmr::new().damp(0.1).tolerance(1e-12);
    for guess in [None, Some(column(&[5.0, -7.0]))] {
        let x = lsmr.run(&a, column(&[1.0, 2.0, 3.5]), guess, false).into_result().unwrap();
        close(&read(&x), &[0.330990241, 0.293455265], 1e-8);
    }
}

/// Of all solutions the one that is nearest to the guess.
#[test]
fn lsmr_minimum_norm_on_rank_deficiency() {
    // Rank 1: x = (1, 2) c / 5 for b = (c, 2 c).
    let a = || sparse([[1.0, 2.0], [2.0, 4.0]]);
    let x = solve(&Lsmr::new().tolerance(1e-12), a(), column(&[5.0, 10.0])).into_result().unwrap();
    close(&read(&x), &[1.0, 2.0], 1e-10);
    let x = solve(&MinRes::new().tolerance(1e-12), a(), column(&[5.0, 10.0])).into_result().unwrap();
    close(&read(&x), &[1.0, 2.0], 1e-10);
    // Wide: of all x with x0 + x1 + x2 = 3 the shortest.
    let x = solve(&Lsmr::new(), sparse([[1.0, 1.0, 1.0]]), column(&[3.0])).into_result().unwrap();
    close(&read(&x), &[1.0, 1.0, 1.0], 1e-10);
    let scaled = sparse([[1.0, 1.0, 1.0]]).scaled(1e-9);
    let x = solve(&Lsmr::new(), scaled, column(&[3.0])).into_result().unwrap();
    close(&read(&x), &[1e9, 1e9, 1e9], 1e-10);
}
