//! Matrix Market: what is read, what is refused and in which words, and that writing loses nothing.

use sparsegrad::io::matrix_market::{self, Error, Fault, Misfit};
use sparsegrad::io::{Field, Symmetry, Triplets};
use std::path::{Path, PathBuf};

const REAL: &str = "%%MatrixMarket matrix coordinate real general\n";
const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n";
const SKEW: &str = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
const INTEGER: &str = "%%MatrixMarket matrix coordinate integer general\n";
const PATTERN: &str = "%%MatrixMarket matrix coordinate pattern general\n";
const ARRAY: &str = "%%MatrixMarket matrix array real general\n";

fn parse(header: &str, body: &str) -> Result<Triplets, Error> {
    matrix_market::parse(format!("{header}{body}").as_bytes())
}

fn read(header: &str, body: &str) -> Triplets {
    parse(header, body).unwrap_or_else(|error| panic!("{error} in {header}{body}"))
}

/// The entries, one-based as in the file.
fn entries(matrix: &Triplets) -> Vec<(usize, usize, f64)> {
    (0..matrix.nnz()).map(|e| (matrix.rows[e] + 1, matrix.cols[e] + 1, matrix.values[e])).collect()
}

#[track_caller]
fn refused(text: impl AsRef<[u8]>, line: usize, fault: Fault, message: &str) {
    let error = matrix_market::parse(text.as_ref()).expect_err(message);
    assert_eq!(error.to_string(), format!("line {line}: {message}"));
    match error {
        Error::Syntax { path: None, line: at, fault: found } => assert_eq!((at, found), (line, fault)),
        other => panic!("{other:?}"),
    }
}

/// A file name of this test's own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("sparsegrad_{}_{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

// What is read

#[test]
fn coordinate_keeps_the_files_order_zeros_and_duplicates() {
    let a = read(REAL, "3 4 4\n3 4 1.5\n1 1 0\n1 1 -2e-3\n1 1 .5\n");
    assert_eq!(a.shape, [3, 4]);
    assert_eq!(entries(&a), [(3, 4, 1.5), (1, 1, 0.0), (1, 1, -2e-3), (1, 1, 0.5)]);
    assert_eq!((a.symmetry, a.field), (Symmetry::General, Field::Real));
}

#[test]
fn symmetric_is_expanded_with_the_diagonal_once() {
    let a = read(SYMMETRIC, "2 2 3\n1 1 4\n2 1 1\n2 2 3\n");
    assert_eq!(entries(&a), [(1, 1, 4.0), (2, 1, 1.0), (1, 2, 1.0), (2, 2, 3.0)]);
    assert_eq!(a.symmetry, Symmetry::Symmetric);
}

#[test]
fn skew_symmetric_is_expanded_with_the_sign() {
    let a = read(SKEW, "2 2 1\n2 1 5\n");
    assert_eq!(entries(&a), [(2, 1, 5.0), (1, 2, -5.0)]);
}

#[test]
fn pattern_is_ones_and_integers_are_exact() {
    let a = read(PATTERN, "2 2 1\n2 1\n");
    assert_eq!((entries(&a), a.field), (vec![(2, 1, 1.0)], Field::Pattern));
    let a = read(INTEGER, "1 1 2\n1 1 9007199254740992\n1 1 -7\n");
    assert_eq!((a.values, a.field), (vec![9007199254740992.0, -7.0], Field::Integer));
}

#[test]
fn header_in_any_case_and_synonyms() {
    for header in [
        "%%MATRIXMARKET MATRIX COORDINATE REAL GENERAL\n",
        "%%matrixmarket  matrix\tcoordinate double General \r\n",
        "%%MatrixMarket matrix coordinate unsigned-integer general\n",
    ] {
        assert_eq!(entries(&read(header, "1 1 1\n1 1 2\n")), [(1, 1, 2.0)]);
    }
}

#[test]
fn comments_before_the_size_and_blank_lines_anywhere() {
    let a = read(REAL, "% one\n\n  % two: \u{fc}\n%\n\n2 2 2\n\n1 1 1\n \t \n2 2 2\n\n\n");
    assert_eq!(entries(&a), [(1, 1, 1.0), (2, 2, 2.0)]);
    let latin1 = [REAL.as_bytes(), b"% M\xfcller\n1 1 1\n1 1 1\n"].concat();
    assert!(matrix_market::parse(&latin1).is_ok());
}

#[test]
fn windows_line_ends_indented_fields_and_no_last_line_end() {
    let a = read(REAL, " 2\t2  1 \r\n  1   2 \t 1.0E+2 \r\n");
    assert_eq!(entries(&a), [(1, 2, 100.0)]);
    assert_eq!(entries(&read(REAL, "1 1 1\n1 1 7")), [(1, 1, 7.0)]);
}

#[test]
fn nan_and_infinity_are_numbers() {
    let a = read(REAL, "1 1 4\n1 1 nan\n1 1 NaN\n1 1 -inf\n1 1 Infinity\n");
    assert!(a.values[0].is_nan() && a.values[1].is_nan());
    assert_eq!(a.values[2..], [f64::NEG_INFINITY, f64::INFINITY]);
}

#[test]
fn numbers_are_the_nearest_double() {
    for text in ["0.1", "1e-400", "4.9e-324", "1.7976931348623157e308", "123456789012345678901234567890", "-0.0"] {
        let a = read(REAL, &format!("1 1 1\n1 1 {text}\n"));
        assert_eq!(a.values[0].to_bits(), text.parse::<f64>().unwrap().to_bits());
    }
}

#[test]
fn arrays_are_read_column_by_column_with_their_zeros() {
    let a = read(ARRAY, "2 3\n1\n0\n3\n\n4\n5\n6\n");
    let expected = [(1, 1, 1.0), (2, 1, 0.0), (1, 2, 3.0), (2, 2, 4.0), (1, 3, 5.0), (2, 3, 6.0)];
    assert_eq!(entries(&a), expected);
    let a = read(&ARRAY.replace("general", "symmetric"), "2 2\n1\n2\n3\n");
    assert_eq!(entries(&a), [(1, 1, 1.0), (2, 1, 2.0), (1, 2, 2.0), (2, 2, 3.0)]);
    let a = read(&ARRAY.replace("general", "skew-symmetric"), "3 3\n1\n2\n3\n");
    let expected = [(2, 1, 1.0), (1, 2, -1.0), (3, 1, 2.0), (1, 3, -2.0), (3, 2, 3.0), (2, 3, -3.0)];
    assert_eq!(entries(&a), expected);
}

#[test]
fn empty_matrices() {
    assert_eq!(read(REAL, "0 0 0\n").shape, [0, 0]);
    assert_eq!(read(REAL, "3 0 0\n").nnz(), 0);
    for (symmetry, size) in
        [("general", "0 7"), ("symmetric", "0 0"), ("skew-symmetric", "1 1"), ("skew-symmetric", "0 0")]
    {
        assert_eq!(read(&ARRAY.replace("general", symmetry), size).nnz(), 0);
    }
}

#[test]
fn huge_sizes_cost_nothing() {
    let a = read(REAL, "1000000000000000000 1000000000000000000 1\n1000000000000000000 1 2\n");
    assert_eq!(a.rows, [999_999_999_999_999_999]);
    assert!(a.values.capacity() < 100);
    assert_eq!(read(ARRAY, "0 1000000000000000000\n").nnz(), 0);
    let declared = 1_000_000_000_000_000_000;
    let message = "the file ends after 1 of 1000000000000000000 entries";
    refused(format!("{REAL}5 5 {declared}\n1 1 1\n"), 3, Fault::TooFew { declared, found: 1 }, message);
    refused(format!("{ARRAY}1000000000 1000000000\n1\n"), 3, Fault::TooFew { declared, found: 1 }, message);
}

#[test]
fn sorting_by_row_gives_the_order_of_csr() {
    let mut a = read(REAL, "3 2 5\n3 1 1\n1 2 2\n1 1 3\n3 1 4\n1 1 5\n");
    a.sort_by_row();
    assert_eq!(entries(&a), [(1, 1, 3.0), (1, 1, 5.0), (1, 2, 2.0), (3, 1, 1.0), (3, 1, 4.0)]);
}

// What is refused

#[test]
fn bad_headers() {
    let message = "expected '%%MatrixMarket matrix <format> <field> <symmetry>' and found ";
    for line in [
        "",
        "67 67 294",
        "%MatrixMarket matrix coordinate real general",
        "%%MatrixMarket matrix coordinate real",
        "%%MatrixMarket matrix coordinate real general x",
    ] {
        let fault = Fault::Header { found: line.into() };
        refused(format!("{line}\n1 1 1\n1 1 1\n"), 1, fault, &format!("{message}'{line}'"));
    }
    refused("", 1, Fault::Header { found: "".into() }, &format!("{message}''"));
    let long = "\u{1f}".to_string() + &"x".repeat(100);
    let shown = format!("{message}'\\u{{1f}}{}...'", "x".repeat(59));
    refused(&long, 1, Fault::Header { found: long.clone() }, &shown);
}

#[test]
fn unknown_words_in_the_header() {
    let words = ["matrix", "coordinate", "real", "general"];
    for (place, what, expected) in [
        (0, "object", "matrix"),
        (1, "format", "coordinate or array"),
        (2, "field", "real, integer or pattern"),
        (3, "symmetry", "general, symmetric or skew-symmetric"),
    ] {
        let mut words = words;
        words[place] = "mangled";
        let text = format!("%%MatrixMarket {}\n1 1 0\n", words.join(" "));
        let fault = Fault::Keyword { what, expected, found: "mangled".into() };
        refused(text, 1, fault, &format!("unknown {what} 'mangled': expected {expected}"));
    }
}

#[test]
fn complex_and_contradictions() {
    for words in ["coordinate complex general", "array complex symmetric", "coordinate COMPLEX hermitian"] {
        refused(format!("%%MatrixMarket matrix {words}\n"), 1, Fault::Complex, "complex numbers are not supported");
    }
    for (words, first, second) in [
        ("coordinate real hermitian", "real", "hermitian"),
        ("coordinate integer hermitian", "integer", "hermitian"),
        ("array pattern general", "array", "pattern"),
        ("coordinate pattern skew-symmetric", "pattern", "skew-symmetric"),
    ] {
        let message = format!("a file can't be both {first} and {second}");
        refused(format!("%%MatrixMarket matrix {words}\n"), 1, Fault::Contradiction { first, second }, &message);
    }
}

#[test]
fn bad_size_lines() {
    refused(format!("{REAL}% c\n\n"), 3, Fault::NoSizeLine, "the size line is missing");
    let names = "rows, columns, entries";
    let message = "expected 3 fields (rows, columns, entries) and found 4";
    refused(format!("{REAL}1 1 1 9\n"), 2, Fault::FieldCount { expected: 3, names, found: 4 }, message);
    let message = "expected 2 fields (rows, columns) and found 3";
    let fault = Fault::FieldCount { expected: 2, names: "rows, columns", found: 3 };
    refused(format!("{ARRAY}1 1 1\n"), 2, fault, message);
    for (size, what, found) in [
        ("x 1 1", "number of rows", "x"),
        ("1 1.0 1", "number of columns", "1.0"),
        ("1 1 -1", "number of entries", "-1"),
    ] {
        let fault = Fault::Number { what, found: found.into() };
        refused(format!("{REAL}{size}\n"), 2, fault, &format!("'{found}' is not a {what}"));
    }
    let fault = Fault::TooLarge { what: "number of rows", found: "99999999999999999999".into() };
    refused(
        format!("{REAL}99999999999999999999 1 0\n"),
        2,
        fault,
        "the number of rows '99999999999999999999' is too large",
    );
}

#[test]
fn sizes_whose_product_overflows() {
    let n = usize::MAX;
    for (symmetry, cols) in [("general", 2), ("symmetric", n), ("skew-symmetric", n)] {
        let text = format!("{}{n} {cols}\n", ARRAY.replace("general", symmetry));
        let message = format!("an array of {n} x {cols} is too large");
        refused(text, 2, Fault::ArraySize { shape: [n, cols] }, &message);
    }
}

#[test]
fn symmetric_matrices_are_square() {
    for (header, symmetry) in [(SYMMETRIC, Symmetry::Symmetric), (SKEW, Symmetry::SkewSymmetric)] {
        let message = format!("a {symmetry} matrix must be square, and this one is 3 x 4");
        refused(format!("{header}3 4 0\n"), 2, Fault::NotSquare { symmetry, shape: [3, 4] }, &message);
    }
}

#[test]
fn wrong_number_of_fields() {
    let names = "row, column, value";
    for (entry, found) in [("1 1", 2), ("1", 1), ("1 1 3 4", 4)] {
        let fault = Fault::FieldCount { expected: 3, names, found };
        let message = format!("expected 3 fields (row, column, value) and found {found}");
        refused(format!("{REAL}2 2 2\n1 1 1\n{entry}\n"), 4, fault, &message);
    }
    let fault = Fault::FieldCount { expected: 2, names: "row, column", found: 3 };
    refused(format!("{PATTERN}2 2 1\n1 1 1\n"), 3, fault, "expected 2 fields (row, column) and found 3");
    let fault = Fault::FieldCount { expected: 1, names: "value", found: 2 };
    refused(format!("{ARRAY}2 2\n1 2\n3 4\n"), 3, fault, "expected 1 field (value) and found 2");
}

#[test]
fn indices_out_of_range() {
    for (entry, axis, index, size) in
        [("0 1", "row", 0, 2), ("3 1", "row", 3, 2), ("1 0", "column", 0, 5), ("2 9999", "column", 9999, 5)]
    {
        let message = format!("{axis} index {index} is out of range: {axis}s count from 1 to {size}");
        refused(format!("{REAL}2 5 1\n{entry} 3.4\n"), 3, Fault::IndexOutOfRange { axis, index, size }, &message);
    }
    let fault = Fault::IndexOutOfRange { axis: "row", index: 1, size: 0 };
    refused(format!("{REAL}0 5 1\n1 1 1\n"), 3, fault, "row index 1 is out of range: there are no rows");
}

#[test]
fn fields_that_are_no_numbers() {
    for (header, entry, what, found) in [
        (REAL, "one 1 1", "row index", "one"),
        (REAL, "-1 1 1", "row index", "-1"),
        (REAL, "1 1.0 1", "column index", "1.0"),
        (REAL, "1 1 forty-two", "number", "forty-two"),
        (REAL, "1 1 1.0D+01", "number", "1.0D+01"),
        (REAL, "1 1 0x10", "number", "0x10"),
        (INTEGER, "1 1 1.5", "integer value", "1.5"),
        (INTEGER, "1 1 nan", "integer value", "nan"),
    ] {
        let fault = Fault::Number { what, found: found.into() };
        refused(format!("{header}2 2 1\n{entry}\n"), 3, fault, &format!("'{found}' is not a {what}"));
    }
    let text = [REAL.as_bytes(), b"2 2 1\n1 1 1\xff.0\n"].concat();
    let fault = Fault::Number { what: "number", found: "1\u{fffd}.0".into() };
    refused(text, 3, fault, "'1\u{fffd}.0' is not a number");
}

#[test]
fn numbers_beyond_their_range() {
    for (header, entry, what, found) in [
        (REAL, "1 1 1e400", "number", "1e400"),
        (REAL, "1 1 -2e308", "number", "-2e308"),
        (REAL, "1 99999999999999999999 1", "column index", "99999999999999999999"),
        (INTEGER, "1 1 9007199254740993", "integer value", "9007199254740993"),
        (INTEGER, "1 1 -99999999999999999999", "integer value", "-99999999999999999999"),
    ] {
        let fault = Fault::TooLarge { what, found: found.into() };
        refused(format!("{header}2 2 1\n{entry}\n"), 3, fault, &format!("the {what} '{found}' is too large"));
    }
}

#[test]
fn entries_that_symmetry_implies() {
    for (header, symmetry, row, column, triangle) in [
        (SYMMETRIC, Symmetry::Symmetric, 1, 2, "lower"),
        (SKEW, Symmetry::SkewSymmetric, 1, 2, "strictly lower"),
        (SKEW, Symmetry::SkewSymmetric, 2, 2, "strictly lower"),
    ] {
        let message =
            format!("entry ({row}, {column}) is not in the {triangle} triangle that a {symmetry} file stores");
        let fault = Fault::OutsideTriangle { symmetry, row, column };
        refused(format!("{header}2 2 1\n{row} {column} 1\n"), 3, fault, &message);
    }
}

#[test]
fn wrong_number_of_entries() {
    let fault = Fault::TooFew { declared: 3, found: 1 };
    refused(format!("{REAL}2 2 3\n1 1 1\n\n"), 4, fault, "the file ends after 1 of 3 entries");
    refused(format!("{REAL}2 2 1\n"), 2, Fault::TooFew { declared: 1, found: 0 }, "the file ends after 0 of 1 entries");
    let fault = Fault::TooMany { declared: 1 };
    refused(format!("{REAL}2 2 1\n1 1 1\n\n2 2 2\n"), 5, fault, "more entries than the 1 declared");
    refused(format!("{ARRAY}1 1\n1\n2\n"), 4, Fault::TooMany { declared: 1 }, "more entries than the 1 declared");
}

#[test]
fn comments_among_the_entries() {
    let message = "a comment may stand only between the header and the size line";
    refused(format!("{REAL}1 1 1\n% c\n1 1 1\n"), 3, Fault::LateComment, message);
    refused(format!("{REAL}1 1 1\n1 1 1\n% end\n"), 4, Fault::LateComment, message);
}

#[test]
fn every_truncation_of_a_file_is_refused() {
    let text = format!("{SYMMETRIC}% comment\n3 3 3\n1 1 0.5\n2 1 -1\n3 3 2\n");
    for length in 0..text.len() - 2 {
        let error = matrix_market::parse(&text.as_bytes()[..length]).expect_err("truncated");
        assert!(matches!(error, Error::Syntax { .. }), "{error:?}");
    }
}

// Files

#[test]
fn errors_name_the_file() {
    let scratch = Scratch::new("west.mtx");
    std::fs::write(&scratch.0, format!("{REAL}2 2 2\n1 1 1\n2 2\n")).unwrap();
    let error = matrix_market::read(&scratch.0).unwrap_err();
    let expected = format!("{}:4: expected 3 fields (row, column, value) and found 2", scratch.0.display());
    assert_eq!(error.to_string(), expected);

    let missing = Path::new("no/such/file.mtx");
    let error = matrix_market::read(missing).unwrap_err();
    assert!(
        matches!(&error, Error::Io { path: Some(path), source } if path == missing && source.kind() == std::io::ErrorKind::NotFound)
    );
    assert!(error.to_string().starts_with("no/such/file.mtx: "), "{error}");
    let a = Triplets::new([1, 1], vec![], vec![], vec![]);
    assert!(matches!(matrix_market::write(missing, &a), Err(Error::Io { path: Some(_), .. })));
}

#[test]
fn gzip_files_are_recognised_by_their_content() {
    let a = read(REAL, "2 2 2\n1 1 0.1\n2 1 -3e-7\n");
    let (zipped, renamed) = (Scratch::new("a.mtx.gz"), Scratch::new("renamed.mtx"));
    matrix_market::write(&zipped.0, &a).unwrap();
    let bytes = std::fs::read(&zipped.0).unwrap();
    assert_eq!(bytes[..2], [0x1f, 0x8b]);
    assert_eq!(matrix_market::read(&zipped.0).unwrap(), a);
    assert_eq!(matrix_market::read_from(&bytes[..]).unwrap(), a);
    std::fs::write(&renamed.0, &bytes).unwrap();
    assert_eq!(matrix_market::read(&renamed.0).unwrap(), a);

    let cut = matrix_market::read_from(&bytes[..bytes.len() - 9]);
    assert!(matches!(cut, Err(Error::Io { .. })), "{cut:?}");
    // A gzip file may have several members: here a second header follows the two entries.
    let twice = matrix_market::read_from(&[&bytes[..], &bytes].concat()[..]);
    assert!(matches!(twice, Err(Error::Syntax { line: 5, fault: Fault::LateComment, .. })), "{twice:?}");
}

// What is written

fn round_trip(a: &Triplets) -> Triplets {
    let mut text = Vec::new();
    matrix_market::write_to(&mut text, a).unwrap();
    matrix_market::parse(&text).unwrap()
}

#[test]
fn every_double_survives() {
    let mut values =
        vec![0.0, -0.0, 0.1, 1.0 / 3.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY];
    // A walk through all exponents with irregular mantissas.
    let patterns = (0..5000u64).map(|i| f64::from_bits(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    values.extend(patterns.filter(|value| !value.is_nan()));
    let n = values.len();
    let a = Triplets::new([n, 1], (0..n).collect(), vec![0; n], values);
    let b = round_trip(&a);
    assert_eq!(b, a);
    assert!(a.values.iter().zip(&b.values).all(|(x, y)| x.to_bits() == y.to_bits()));
    assert!(round_trip(&Triplets::new([1, 1], vec![0], vec![0], vec![-f64::NAN])).values[0].is_nan());
}

#[test]
fn header_and_order_survive() {
    for (header, body) in [
        (REAL, "2 3 4\n2 3 1\n1 1 0\n2 3 5\n1 2 1e300\n"),
        (SYMMETRIC, "3 3 5\n3 1 1\n2 2 7\n2 1 2\n3 1 4\n3 3 inf\n"),
        (SKEW, "3 3 3\n3 2 0\n2 1 -2\n3 2 1\n"),
        (INTEGER, "1 1 2\n1 1 9007199254740992\n1 1 -7\n"),
        (PATTERN, "2 2 2\n2 1\n1 1\n"),
        (&PATTERN.replace("general", "symmetric"), "2 2 2\n2 1\n1 1\n"),
        (REAL, "0 5 0\n"),
    ] {
        let a = read(header, body);
        let mut text = Vec::new();
        matrix_market::write_to(&mut text, &a).unwrap();
        assert!(text.starts_with(header.as_bytes()));
        assert_eq!(round_trip(&a), a);
    }
    let array = read(ARRAY, "2 2\n1\n0\n3\n4\n");
    assert_eq!(round_trip(&array), array);
}

#[test]
fn what_the_header_would_misstate_is_not_written() {
    let fits = Triplets::new([2, 2], vec![0, 1, 1], vec![0, 0, 1], vec![1.0, 2.0, 3.5]);
    let short = Triplets { cols: vec![0], ..fits.clone() };
    let outside = Triplets { cols: vec![0, 2, 1], ..fits.clone() };
    let (symmetry, skew) = (Symmetry::Symmetric, Symmetry::SkewSymmetric);
    let mut image = Triplets { symmetry, ..fits.clone() };
    let lonely = image.clone();
    image.rows.push(0);
    image.cols.push(1);
    image.values.push(2.0);
    assert!(matrix_market::write_to(Vec::new(), &image).is_ok());
    let upper = Triplets { rows: vec![0], cols: vec![1], values: vec![1.0], ..lonely.clone() };
    let unequal = Triplets { values: vec![1.0, 2.0, 3.5, -2.0], ..image.clone() };
    let diagonal = Triplets { symmetry: skew, ..unequal.clone() };
    for (matrix, misfit, message) in [
        (short, Misfit::Lengths { rows: 3, cols: 1, values: 3 }, "3 rows, 1 columns and 3 values"),
        (
            outside,
            Misfit::OutOfRange { position: 1, row: 1, col: 2, shape: [2, 2] },
            "entry (1, 2) at position 1 is outside a 2 x 2 matrix",
        ),
        (
            Triplets { field: Field::Integer, ..fits.clone() },
            Misfit::Value { position: 2, value: 3.5, field: Field::Integer },
            "the value 3.5 at position 2 does not belong in a file of field 'integer'",
        ),
        (
            Triplets { field: Field::Pattern, ..fits },
            Misfit::Value { position: 1, value: 2.0, field: Field::Pattern },
            "the value 2 at position 1 does not belong in a file of field 'pattern'",
        ),
        (lonely, Misfit::Symmetry { symmetry, row: 1, col: 0 }, "the matrix is not symmetric at (1, 0)"),
        (upper, Misfit::Symmetry { symmetry, row: 0, col: 1 }, "the matrix is not symmetric at (0, 1)"),
        (unequal, Misfit::Symmetry { symmetry, row: 1, col: 0 }, "the matrix is not symmetric at (1, 0)"),
        (diagonal, Misfit::Symmetry { symmetry: skew, row: 0, col: 0 }, "the matrix is not skew-symmetric at (0, 0)"),
        (
            Triplets { symmetry: skew, field: Field::Pattern, ..Triplets::new([1, 1], vec![], vec![], vec![]) },
            Misfit::Header { symmetry: skew, field: Field::Pattern },
            "the format has no skew-symmetric pattern files",
        ),
    ] {
        let mut text = Vec::new();
        let error = matrix_market::write_to(&mut text, &matrix).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot be written: {message}"));
        assert!(matches!(error, Error::Misfit { misfit: found, .. } if found == misfit));
        assert!(text.is_empty());
        let scratch = Scratch::new("misfit.mtx");
        assert!(matrix_market::write(&scratch.0, &matrix).is_err());
        assert!(!scratch.0.exists());
    }
}

// Real files, where the folder is present

fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    folder.is_dir().then_some(folder)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "mtx")).collect()
}

#[test]
fn real_files_are_read_and_survive() {
    let Some(folder) = data() else { return };
    for path in files(&folder) {
        let a = matrix_market::read(&path);
        if ["complex_tiny.mtx", "young1c.mtx"].iter().any(|name| path.ends_with(name)) {
            assert!(matches!(a, Err(Error::Syntax { line: 1, fault: Fault::Complex, .. })), "{}", path.display());
            continue;
        }
        let a = a.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(round_trip(&a), a, "{}", path.display());
    }
    for (name, shape, nnz, symmetry, field) in [
        ("bcsstk16", [4884, 4884], 290_378, Symmetry::Symmetric, Field::Real),
        ("bayer10", [13436, 13436], 94_926, Symmetry::General, Field::Real),
        ("ca-AstroPh", [18772, 18772], 396_160, Symmetry::Symmetric, Field::Pattern),
        ("InstEval_Z", [73421, 4100], 146_842, Symmetry::General, Field::Pattern),
        ("Groebner_id2003_aug", [4967, 2456], 173_670, Symmetry::General, Field::Integer),
        ("LFAT5_hypersparse", [2000, 2000], 46, Symmetry::Symmetric, Field::Real),
        ("skew_fp64", [6, 6], 20, Symmetry::SkewSymmetric, Field::Real),
        ("zenios", [2873, 2873], 27_191, Symmetry::Symmetric, Field::Real),
        ("illc1850_rhs1", [1850, 1], 1850, Symmetry::General, Field::Real),
        ("full_symmetric", [4, 4], 16, Symmetry::Symmetric, Field::Real),
    ] {
        let a = matrix_market::read(folder.join(name).with_extension("mtx")).unwrap();
        assert_eq!((a.shape, a.nnz(), a.symmetry, a.field), (shape, nnz, symmetry, field), "{name}");
    }
}

#[test]
fn malformed_files_are_refused() {
    let Some(folder) = data() else { return };
    let expected = [
        ("mangled1", 1),
        ("mangled3", 1),
        ("mangled4", 1),
        ("mangled6", 1),
        ("mangled7", 5),
        ("mangled9", 4),
        ("mangled10", 6),
        ("mangled12", 5),
        ("mangled13", 7),
        ("west0067_noheader", 1),
    ];
    let malformed = files(&folder.join("malformed"));
    assert_eq!(malformed.len(), expected.len());
    for (name, at) in expected {
        let path = folder.join("malformed").join(name).with_extension("mtx");
        let error = matrix_market::read(&path).expect_err(name);
        assert!(matches!(error, Error::Syntax { line, .. } if line == at), "{error}");
    }
}
