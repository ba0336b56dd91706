//! Layouts of dense operands, and sizes.

use super::*;
use crate::common::{Host, Layout, Numbers, View, spmm};

/// cupy/cupy#4666, pytorch PR 76590, #113754, ml-explore/mlx#4253: views were read as if contiguous.
#[test]
fn cupy_4666_views_are_read_as_what_they_are() {
    let host = Host::random("20x30", [20, 30], 5, 42);
    let (a, host) = Layout::Csr.build(&host, DType::F64, &device());
    let b = Numbers(1).values(30 * 9);
    for view in View::ALL {
        let product = a.matmul(view.build(&b, [30, 9], DType::F64, &device()));
        spmm(&host, &b, 9).check(&format!("{view:?}"), &read(&product), DType::F64).unwrap();
    }
    // A row that is broadcast, and an axis that is inserted.
    let row = vector(&b[..9]).reshape([1, 9]).expand([30, 9]);
    let repeated: Vec<f64> = (0..30).flat_map(|_| b[..9].to_vec()).collect();
    spmm(&host, &repeated, 9).check("broadcast", &read(&a.matmul(row)), DType::F64).unwrap();
    let column = vector(&b[..30]).unsqueeze_dim::<2>(1);
    spmm(&host, &b[..30], 1).check("inserted", &read(&a.matmul(column)), DType::F64).unwrap();
}

/// rusty1s/pytorch_sparse#223, cupy/cupy#6864, scipy/scipy#12495 and others: keys of rows times columns that wrapped.
#[test]
fn pytorch_sparse_223_sizes_beyond_32_bits() {
    let wide = 1usize << 33;
    let a = coo([wide, 3], &[5, wide - 1, 5], &[0, 2, 1], &[1., 2., 3.]).pattern().clone();
    assert_eq!(a.index_width(), sparsegrad::pattern::IndexWidth::I64);
    assert_eq!(a.slots_at(wide - 1, 2), Vec::<usize>::from([1]));
    // 2^17 x 2^17 has 2^34 positions: the pattern's indices stay 32-bit, no key is formed.
    let n = 1 << 17;
    let b = coo([n, n], &[n - 1, 0], &[n - 1, 0], &[2., 3.]);
    let y = read(&b.matvec(Tensor::<1>::ones([n], (&device(), DType::F64))));
    assert_eq!((y[0], y[n - 1], y.iter().sum::<f64>()), (3., 2., 5.));
    // An index one beyond the end is found however large the bound is.
    let error = Pattern::coo([wide], [0], [wide, 1]).unwrap_err();
    assert!(matches!(
        error,
        PatternError::IndexOutOfRange { position: 0, value, bound, .. } if value == wide as i128 && bound == wide
    ));
}

/// scipy/scipy#12340, #19205: indices that do not fit the narrow type are refused, not wrapped.
#[test]
fn scipy_12340_a_narrow_index_type_is_refused() {
    let a = Pattern::coo([0], [1usize << 32], [1, 1 << 33]).unwrap();
    let error = a.with_index_width(sparsegrad::pattern::IndexWidth::I32).unwrap_err();
    assert_eq!(error.to_string(), "columns = 8589934592 does not fit 32-bit indices (largest 2147483647)");
}
