//! Patterns: what constructors refuse, what conversions keep, what is shared.

use crate::common::Host;
use sparsegrad::error::Axis;
use sparsegrad::pattern::{IndexWidth, Indices, RawIndices};
use sparsegrad::prelude::*;

fn csr(offsets: &[i64], columns: &[i64], shape: [usize; 2]) -> Result<Pattern, PatternError> {
    Pattern::csr(offsets, columns, shape)
}

#[test]
fn every_fault_has_its_error() {
    use PatternError::*;
    assert_eq!(csr(&[0, 1], &[0], [2, 2]).unwrap_err(), OffsetsLength { axis: Axis::Row, found: 2, count: 2 });
    assert_eq!(csr(&[], &[], [0, 2]).unwrap_err(), OffsetsLength { axis: Axis::Row, found: 0, count: 0 });
    assert_eq!(csr(&[1, 2], &[0, 0], [1, 2]).unwrap_err(), FirstOffset { axis: Axis::Row, value: 1 });
    assert_eq!(csr(&[-1, 2], &[0, 0], [1, 2]).unwrap_err(), FirstOffset { axis: Axis::Row, value: -1 });
    assert_eq!(
        csr(&[0, 5, 2], &[0, 0], [2, 2]).unwrap_err(),
        OffsetsDecrease { axis: Axis::Row, position: 2, previous: 5, value: 2 }
    );
    assert_eq!(csr(&[0, 1, 3], &[0, 0], [2, 2]).unwrap_err(), LastOffset { axis: Axis::Row, value: 3, entries: 2 });
    assert_eq!(
        csr(&[0, 1, 2], &[0, -3], [2, 2]).unwrap_err(),
        IndexOutOfRange { axis: Axis::Column, position: 1, value: -3, bound: 2, shape: [2, 2], group: Some((1, 1, 2)) }
    );
    assert_eq!(
        Pattern::coo([0, 1], [0], [2, 2]).unwrap_err(),
        Lengths { first: "row indices", first_length: 2, second: "column indices", second_length: 1 }
    );
    // The first fault in storage order is named, whichever axis has it.
    assert!(matches!(
        Pattern::coo([0, 9], [8, 0], [2, 2]).unwrap_err(),
        IndexOutOfRange { axis: Axis::Column, position: 0, .. }
    ));
    assert!(matches!(
        Pattern::coo([0u64], [u64::MAX], [1, 2]).unwrap_err(),
        IndexOutOfRange { axis: Axis::Column, position: 0, bound: 2, .. }
    ));
    assert!(matches!(Pattern::coo([0; 0], [0; 0], [usize::MAX, 1]).unwrap_err(), TooLarge { .. }));
    assert!(matches!(Pattern::eye(usize::MAX).unwrap_err(), TooLarge { .. }));
}

#[test]
fn empty_rows_and_an_entry_in_the_last_row_are_named_rightly() {
    let error = csr(&[0, 2, 2, 2, 3], &[0, 1, 9], [4, 5]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column index 9 at position 2 is out of range for a matrix with 5 columns (shape 4x5, row 3 has entries 2..3)"
    );
}

#[test]
fn a_pattern_knows_its_order_and_its_duplicates() {
    let found = |pattern: Pattern| (pattern.format().is_ordered(), pattern.format().is_unique());
    assert_eq!(found(csr(&[0, 2, 3], &[0, 2, 1], [2, 3]).unwrap()), (true, true));
    assert_eq!(found(csr(&[0, 2, 3], &[2, 0, 1], [2, 3]).unwrap()), (false, true));
    assert_eq!(found(csr(&[0, 2, 3], &[1, 1, 1], [2, 3]).unwrap()), (true, false));
    assert_eq!(found(csr(&[0, 3, 3], &[1, 0, 1], [2, 3]).unwrap()), (false, false));
    assert_eq!(found(Pattern::coo([1, 0], [0, 0], [2, 1]).unwrap()), (false, true));
    assert_eq!(found(Pattern::csc([0, 2, 2], [1, 0], [2, 2]).unwrap()), (false, true));
    // Equal neighbours across a row boundary are no duplicates.
    assert_eq!(found(csr(&[0, 1, 2], &[1, 1], [2, 3]).unwrap()), (true, true));
}

#[test]
fn promises_of_a_format_are_checked() {
    let raw = |v: &[i64]| Some(RawIndices::I64(v.to_vec()));
    let build = |format: TensorFormat, offsets: &[i64], columns: &[i64]| {
        Pattern::from_levels(&format, [2, 3], vec![(None, None), (raw(offsets), raw(columns))])
    };
    assert!(build(TensorFormat::csr(), &[0, 2, 3], &[0, 2, 1]).is_ok());
    assert!(matches!(
        build(TensorFormat::csr(), &[0, 2, 3], &[2, 0, 1]).unwrap_err(),
        PatternError::Unordered { position: 1, row: 0, column: 0, .. }
    ));
    assert!(matches!(
        build(TensorFormat::csr(), &[0, 2, 3], &[2, 2, 1]).unwrap_err(),
        PatternError::Duplicate { position: 1, row: 0, column: 2, .. }
    ));
    let lenient: TensorFormat = "(i, j) -> (i : dense, j : compressed(nonunique, unordered))".parse().unwrap();
    assert!(build(lenient, &[0, 2, 3], &[2, 2, 1]).is_ok());
    assert!(matches!(
        Pattern::from_levels(&TensorFormat::csr(), [2, 3], vec![(None, None), (raw(&[0, 0, 0]), None)]),
        Err(PatternError::Level { level: 1, .. })
    ));
    assert!(matches!(
        Pattern::from_levels(&TensorFormat::csr(), [2, 3], vec![(raw(&[0]), None), (raw(&[0, 0, 0]), raw(&[]))]),
        Err(PatternError::Level { level: 0, .. })
    ));
    // Coordinates with the root level's positions, and in column order.
    let coo = |format: &TensorFormat| {
        let levels = vec![(raw(&[0, 2]), raw(&[0, 1])), (None, raw(&[1, 1]))];
        Pattern::from_levels(format, [2, 3], levels).unwrap()
    };
    assert_eq!(coo(&TensorFormat::coo()).coordinates(), (vec![0, 1], vec![1, 1]));
    let by_column = TensorFormat::coo().transposed();
    assert_eq!(coo(&by_column).coordinates(), (vec![1, 1], vec![0, 1]));
    assert!(matches!(
        Pattern::from_levels(&TensorFormat::dia(), [2, 3], vec![(raw(&[0, 1]), raw(&[0])), (None, None)]),
        Err(PatternError::Unsupported { .. })
    ));
}

#[test]
fn indices_are_narrow_unless_asked_otherwise() {
    let narrow = csr(&[0, 1], &[1], [1, 2]).unwrap();
    assert_eq!(narrow.index_width(), IndexWidth::I32);
    let wide = narrow.with_index_width(IndexWidth::I64).unwrap();
    assert_eq!(wide.index_width(), IndexWidth::I64);
    assert_eq!(wide.coordinates(), narrow.coordinates());
    let back = wide.with_index_width(IndexWidth::I32).unwrap();
    assert!(back.same_pattern(&narrow));
    assert!(!wide.same_pattern(&narrow));
}

#[test]
fn same_pattern_is_about_entries_order_and_format() {
    let a = csr(&[0, 2, 3], &[0, 2, 1], [2, 3]).unwrap();
    let same = csr(&[0, 2, 3], &[0, 2, 1], [2, 3]).unwrap();
    assert!(a.same_pattern(&a.clone()) && a.same_pattern(&same) && a == same);
    assert!(!a.same_pattern(&csr(&[0, 2, 3], &[0, 1, 1], [2, 3]).unwrap()));
    assert!(!a.same_pattern(&csr(&[0, 2, 3], &[0, 2, 1], [2, 4]).unwrap()));
    assert!(!a.same_pattern(&a.to_coo().pattern));
    // A symmetric matrix in CSR is not its transpose in CSC: the format differs.
    let eye = Pattern::eye(3).unwrap();
    assert!(!eye.same_pattern(&eye.t()) && eye.same_pattern(&eye.t().t()));
    assert_eq!(eye.t().format(), TensorFormat::csc());
}

#[test]
fn conversions_keep_every_entry() {
    for host in crate::common::matrices() {
        let pattern = Pattern::coo(&host.rows, &host.cols, host.shape).unwrap();
        let sorted = |p: &Pattern| {
            let (rows, cols) = p.coordinates();
            let mut entries: Vec<_> = rows.into_iter().zip(cols).collect();
            entries.sort();
            entries
        };
        let all = sorted(&pattern);
        for p in [
            pattern.to_csr().pattern,
            pattern.to_csc().pattern,
            pattern.to_coo().pattern,
            pattern.t().to_csc().pattern.t(),
            pattern.t().to_coo().pattern.t(),
        ] {
            assert_eq!((p.shape(), sorted(&p)), (host.shape, all.clone()), "{} {p}", host.name);
        }
        let coalesced = pattern.coalesce().pattern;
        let mut unique = all.clone();
        unique.dedup();
        assert_eq!(sorted(&coalesced), unique, "{}", host.name);
        assert!(coalesced.format().is_ordered() && coalesced.format().is_unique());
        assert_eq!(coalesced.format().name(), Some("COO"));
    }
}

#[test]
fn a_conversion_is_made_once() {
    let host = Host::random("plan", [50, 40], 5, 9);
    let pattern = Pattern::coo(&host.rows, &host.cols, host.shape).unwrap();
    let before = pattern.memory_usage();
    let first = pattern.to_csr().pattern;
    let planned = pattern.memory_usage();
    assert!(planned.plans > before.plans && planned.indices == before.indices);
    let second = pattern.to_csr().pattern;
    assert_eq!(pattern.memory_usage(), planned);
    let start = |p: &Pattern| match &p.levels()[1].coordinates {
        Some(Indices::I32(buffer)) => buffer.as_ptr(),
        _ => unreachable!(),
    };
    assert_eq!(start(&first), start(&second));
}
