//! Operators: products and their transposes against dense ones, gradients, and claims.

use super::*;
use sparsegrad_solvers::operator::{
    Blocks, Compose, Dense, Diagonal, FnOperator, LinearOperator, Product, Sum, TagError, Tags, check_tags,
    check_transpose,
};
use sparsegrad_solvers::precond::Jacobi;
use sparsegrad_solvers::{Cg, Direct};

const A: [[f64; 2]; 2] = [[1.0, 2.0], [0.0, 3.0]];
const B: [[f64; 2]; 2] = [[4.0, 0.0], [1.0, 5.0]];

fn product(a: &dyn LinearOperator, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    (read(&a.apply(column(x))), read(&a.apply_transpose(column(x))))
}

#[test]
fn compositions_are_what_they_say() {
    let (a, b) = (|| sparse(A), || sparse(B));
    let x = [1.0, 2.0];
    assert_eq!(product(&a(), &x), (vec![5.0, 6.0], vec![1.0, 8.0]));
    assert_eq!(product(&a().plus(b()), &x), (vec![9.0, 17.0], vec![7.0, 18.0]));
    assert_eq!(product(&a().times(b()), &x), (vec![26.0, 33.0], vec![12.0, 40.0]));
    assert_eq!(product(&a().scaled(2.0), &x), (vec![10.0, 12.0], vec![2.0, 16.0]));
    assert_eq!(product(&a().shifted(10.0), &x), (vec![15.0, 26.0], vec![11.0, 28.0]));
    assert_eq!(product(&a().transposed(), &x), (vec![1.0, 8.0], vec![5.0, 6.0]));
    let diagonal = Diagonal::new(dense(&[3.0, 5.0], [2], DType::F64, &Device::flex()));
    assert_eq!(product(&diagonal, &x), (vec![3.0, 10.0], vec![3.0, 10.0]));
    // The matrices that preconditioners see are the same operators.
    let operators: [Operator; 8] = [
        Arc::new(a().plus(b())),
        Arc::new(a().times(b())),
        Arc::new(a().times(b()).transposed().shifted(1.0).plus(b())),
        Arc::new(a().scaled(2.0)),
        Arc::new(a().shifted(10.0)),
        Arc::new(a().transposed()),
        Arc::new(diagonal),
        Arc::new(Dense::new(a().to_dense())),
    ];
    for operator in operators {
        let matrix = operator.matrix().unwrap();
        assert_eq!(product(&matrix, &x), product(&*operator, &x), "{operator:?}");
        check_transpose(&operator).unwrap();
    }
}

#[test]
fn blocks_may_be_empty_or_missing() {
    let block = |a: SparseTensor<2>| -> Option<Operator> { Some(Arc::new(a)) };
    let blocks = Blocks::new(vec![vec![block(sparse(A)), None], vec![None, block(sparse(B))]]);
    assert_eq!(read(&blocks.apply(column(&[1.0, 2.0, 3.0, 4.0]))), [5.0, 6.0, 12.0, 23.0]);
    check_transpose(&blocks).unwrap();
    let matrix = blocks.matrix().unwrap();
    assert_eq!((matrix.shape(), matrix.nnz()), ([4, 4], 6));
    let x = [1.0, 2.0, 3.0, 4.0];
    assert_eq!(product(&matrix, &x), product(&blocks, &x));
    let error = Blocks::try_new(vec![vec![block(sparse(A)), block(sparse([[1.0]]))]]).unwrap_err();
    assert!(error.to_string().contains("equally high"), "{error}");
    assert!(Blocks::try_new(vec![vec![block(sparse(A)), None]]).is_err());
    assert!(Blocks::try_new(vec![]).is_err());
}

/// Preconditioners and direct methods over products and blocks; iterations multiply by the factors of a product. Without the
/// matrix of a part there is none.
#[test]
fn products_and_blocks_have_matrices() {
    let gram = || sparse(A).transposed().times(sparse(A));
    assert!(gram().stored().is_none() && gram().shifted(1.0).stored().is_none());
    assert!(sparse(A).transposed().plus(sparse(B)).stored().is_some());
    let b = || column(&[5.0, 23.0]);
    let expected = read(&solve(&Cg::new().tolerance(1e-13), gram(), b()).into_result().unwrap());
    for method in [&Direct::llt() as &dyn Method, &Cg::new().tolerance(1e-13).precondition(Jacobi)] {
        close(&read(&solve(method, gram(), b()).into_result().unwrap()), &expected, 1e-12);
    }
    let block = |a: Operator| Some(a);
    let saddle = Blocks::new(vec![
        vec![block(Arc::new(gram())), block(Arc::new(sparse([[1.0], [1.0]])))],
        vec![block(Arc::new(sparse([[1.0, 1.0]]))), None],
    ]);
    assert!(saddle.stored().is_none());
    let x = solve(&Direct::lu(), saddle.clone(), column(&[6.0, 24.0, 3.0])).into_result().unwrap();
    close(&read(&saddle.apply(x)), &[6.0, 24.0, 3.0], 1e-13);
    let function = |(): &(), x: Tensor<2>| x;
    let free = FnOperator::new([2, 2], DType::F64, &Device::flex(), (), function, function);
    assert!(sparse(A).times(free).matrix().is_none());
}

#[test]
fn what_does_not_fit_is_told() {
    let error = Sum::try_new(sparse(A), sparse([[1.0, 2.0, 3.0]])).unwrap_err();
    assert_eq!(error.to_string(), "sum of operators: shapes must agree: [2, 2] and [1, 3]");
    assert!(Product::try_new(sparse(A), sparse([[1.0, 2.0, 3.0]])).is_err());
    assert!(Sum::try_new(sparse(A), sparse_of(A, DType::F32)).is_err());
}

/// Gradients reach every part: of a sum, a product, a factor, a shift, a function's parameters.
#[test]
fn gradients_reach_every_part() {
    let device = Device::flex().autodiff();
    let leaf = |numbers: &[f64], n: usize| dense::<1>(numbers, [n], DType::F64, &device).require_grad();
    let (factor, shift, weights) = (leaf(&[2.0], 1), leaf(&[3.0], 1), leaf(&[5.0, 7.0], 2));
    let scale = |w: &Tensor<1>, x: Tensor<2>| x * w.clone().unsqueeze_dim(1);
    let function = FnOperator::new([2, 2], DType::F64, &device, weights.clone(), scale, scale);
    let a = function.scaled(factor.clone()).shifted(shift.clone());
    let x = dense::<2>(&[1.0, 10.0], [2, 1], DType::F64, &device);
    let grads = a.apply(x.clone()).sum().backward();
    assert_eq!(read(&factor.grad(&grads).unwrap()), [75.0]);
    assert_eq!(read(&shift.grad(&grads).unwrap()), [11.0]);
    assert_eq!(read(&weights.grad(&grads).unwrap()), [2.0, 20.0]);
    // What is detached is not tracked.
    assert!(!a.detach().apply(x.inner()).is_autodiff());
}

#[test]
fn claims_are_checked() {
    let symmetric = sparse([[2.0, 1.0], [1.0, 2.0]]);
    check_tags(&symmetric.clone().tagged(Tags::POSITIVE_DEFINITE)).unwrap();
    let error = check_tags(&sparse([[1.0, 2.0], [2.0, 1.0]]).tagged(Tags::POSITIVE_DEFINITE));
    assert!(matches!(error, Err(TagError::NotPositive { .. })), "{error:?}");
    assert!(matches!(check_tags(&sparse(A).tagged(Tags::SYMMETRIC)), Err(TagError::NotSymmetric { .. })));
    let mut upper = Tags::NONE;
    upper.upper_triangular = true;
    check_tags(&sparse(A).tagged(upper)).unwrap();
    check_tags(&sparse(A).tagged(upper).transposed()).unwrap();
    assert!(matches!(check_tags(&sparse(B).tagged(upper)), Err(TagError::NotTriangular { row: 1, column: 0, .. })));
    let mut unit = Tags::NONE;
    unit.unit_diagonal = true;
    assert!(matches!(check_tags(&sparse(A).tagged(unit)), Err(TagError::NotUnit { row: 1, .. })));
    // Matrix-free.
    let multiply = |a: &SparseTensor<2>, x: Tensor<2>| a.matmul(x);
    let free = |a: SparseTensor<2>| FnOperator::symmetric(2, DType::F64, &Device::flex(), a, multiply);
    check_tags(&free(symmetric)).unwrap();
    assert!(matches!(check_tags(&free(sparse(A))), Err(TagError::Probe { .. })));
    assert!(check_transpose(&free(sparse(A))).is_err());
    assert!(matches!(check_tags(&free(sparse(A)).tagged(unit)), Err(TagError::NotVisible { .. })));
}
