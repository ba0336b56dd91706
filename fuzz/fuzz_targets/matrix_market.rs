//! No text makes the parser panic, and what it accepts survives writing and reading.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparsegrad::io::{Triplets, matrix_market};

/// A NaN is written as a NaN, but without its sign and payload.
fn bits(matrix: &Triplets) -> Vec<u64> {
    let canonical = |value: &f64| if value.is_nan() { f64::NAN } else { *value }.to_bits();
    matrix.values.iter().map(canonical).collect()
}

fuzz_target!(|text: &[u8]| {
    let Ok(matrix) = matrix_market::parse(text) else {
        return;
    };
    let mut written = Vec::new();
    matrix_market::write_to(&mut written, &matrix).expect("a parsed matrix can be written");
    let again = matrix_market::parse(&written).expect("what was written can be read");
    assert_eq!(bits(&again), bits(&matrix));
    let places = |matrix: Triplets| (matrix.shape, matrix.rows, matrix.cols, matrix.symmetry, matrix.field);
    assert_eq!(places(again), places(matrix));
});
