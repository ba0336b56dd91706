//! Formats and patterns as serde data: what was written is read back, and nothing else is taken for a pattern.

use crate::common::{Layout, matrices};
use serde_json::{Value, from_value, json, to_value};
use sparsegrad::pattern::IndexWidth;
use sparsegrad::prelude::*;

#[test]
fn formats_are_their_text() {
    for format in [
        TensorFormat::coo_with(false, false),
        TensorFormat::csr(),
        TensorFormat::csc(),
        TensorFormat::dia(),
        TensorFormat::bsr(2, 3).unwrap(),
        TensorFormat::delta(8).unwrap(),
        TensorFormat::structured(2, 4).unwrap(),
    ] {
        let json = to_value(&format).unwrap();
        assert_eq!(json, json!(format.to_string()));
        assert_eq!(from_value::<TensorFormat>(json).unwrap(), format);
    }
    for (json, expected) in [
        (json!("(i, j) -> (i : dense, j)"), "expected \":\""),
        (json!("(i, j) -> (i : dense, j : sparse)"), "expected"),
        (json!("(i) -> (i % 0 : dense)"), "must be positive"),
        (json!(7), "expected the text of a tensor format"),
        (json!(null), "expected the text of a tensor format"),
    ] {
        let error = from_value::<TensorFormat>(json).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn every_pattern_comes_back() {
    for host in matrices() {
        for layout in Layout::ALL {
            let (tensor, _) = layout.build(&host, DType::F32, &Device::flex());
            let text = serde_json::to_string(tensor.pattern()).unwrap();
            let back: Pattern = serde_json::from_str(&text).unwrap();
            assert_eq!(&back, tensor.pattern(), "{layout:?} {}", host.name);
            assert_eq!(back.index_width(), IndexWidth::I32);
            let wide = back.with_index_width(IndexWidth::I64).unwrap();
            let back: Pattern = from_value(to_value(&wide).unwrap()).unwrap();
            assert_eq!(back, wide);
            assert_eq!(back.index_width(), IndexWidth::I64);
        }
    }
}

#[test]
fn hostile_patterns_are_errors_in_our_words() {
    let fine = json!({
        "format": "(i, j) -> (i : dense, j : compressed)",
        "shape": [2, 3],
        "levels": [{}, { "positions": [0, 1, 3], "coordinates": [2, 0, 2] }],
    });
    assert_eq!(from_value::<Pattern>(fine.clone()).unwrap(), Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap());
    let unordered = "(i, j) -> (i : dense, j : compressed(nonunique, unordered))";
    for (at, value, expected) in [
        ("/shape", json!([2, 2]), "column index 2 at position 0 is out of range"),
        ("/shape", json!([2]), "has 2 dimensions and the shape [2] has 1"),
        ("/shape", json!([2, 3, 1]), "has 2 dimensions and the shape [2, 3, 1] has 3"),
        ("/shape", json!([2, -3]), "integer `-3`"),
        ("/shape", json!([u64::MAX, 3]), "too large to index"),
        ("/shape", json!([1u64 << 40, 3]), "row offsets have length 3"),
        ("/format", json!("(i) -> (i : compressed)"), "has 1 dimensions"),
        ("/format", json!("(i, j) -> (i : dense)"), "dimension j is not stored by any level"),
        ("/format", json!("(i, j) -> (i : dense, j : delta(8))"), "are not supported"),
        ("/levels", json!([]), "another number of levels"),
        ("/levels/0", json!({ "positions": [0, 2] }), "its kind stores no positions"),
        ("/levels/1", json!({ "positions": [0, 1, 3] }), "coordinates are missing"),
        ("/levels/1/positions", json!(null), "positions are missing"),
        ("/levels/1/positions", json!([0, 3, 1]), "row offsets decrease at position 2: 1 after 3"),
        ("/levels/1/positions", json!([0, 1, 2]), "row offsets end at 2, but there are 3 entries"),
        ("/levels/1/positions", json!([0, 1.5, 3]), "floating point"),
        ("/levels/1/coordinates", json!([2, 0, i64::MIN]), "column index -9223372036854775808"),
        ("/levels/1/coordinates", json!([2, 0, u64::MAX]), "integer `18446744073709551615`"),
        ("/levels/1/coordinates", json!([2, 2, 0]), "out of order"),
        ("/levels/1/coordinates", json!([2, 0, 0]), "again, and"),
    ] {
        let mut hostile = fine.clone();
        *hostile.pointer_mut(at).unwrap_or(&mut Value::Null) = value.clone();
        let error = from_value::<Pattern>(hostile).unwrap_err().to_string();
        assert!(error.contains(expected), "{at} = {value}: {error}");
    }
    let with = |key: &str, value: Value| {
        let mut object = fine.clone();
        object[key] = value;
        from_value::<Pattern>(object)
    };
    assert!(with("format", json!(unordered)).is_ok());
    assert_eq!(with("index_bits", json!(64)).unwrap().index_width(), IndexWidth::I64);
    let error = with("index_bits", json!(16)).unwrap_err().to_string();
    assert!(error.contains("indices have 32 or 64 bits, not 16"), "{error}");
    assert!(with("values", json!([1.0])).unwrap_err().to_string().contains("unknown field `values`"));
}
