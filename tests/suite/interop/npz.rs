//! SciPy's `.npz`: files that SciPy wrote, files for SciPy to read, and files that nobody should have written.

use super::{Entries, triplets};
use crate::common::{Layout, Numbers, matrices};
use sparsegrad::error::PatternError;
use sparsegrad::io::HostMatrix;
use sparsegrad::io::npz::{self, Error, Fault};
use sparsegrad::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("npz")
}

fn entries(matrix: &HostMatrix) -> Entries {
    matrix.entries().collect()
}

fn fault(bytes: &[u8]) -> Fault {
    match npz::parse(bytes).expect_err("a fault") {
        Error::Content { path: None, fault } => *fault,
        error => panic!("{error:?}"),
    }
}

#[test]
fn files_of_scipy_are_read() {
    let by_row = vec![(0, 0, 1.0), (0, 3, 2.0), (2, 1, 0.0), (2, 2, -5.0)];
    let by_column = vec![(0, 0, 1.0), (2, 1, 0.0), (2, 2, -5.0), (0, 3, 2.0)];
    let ones = vec![(0, 0, 1.0), (0, 3, 1.0), (2, 1, 0.0), (2, 2, 1.0)];
    for (name, format, shape, expected) in [
        ("scipy_csr_f64", TensorFormat::csr(), [3, 4], by_row.clone()),
        ("scipy_csr_i64", TensorFormat::csr(), [3, 4], by_row.clone()),
        ("scipy_csr_big_endian", TensorFormat::csr(), [3, 4], by_row),
        ("scipy_csc_f32_stored", TensorFormat::csc(), [3, 4], by_column),
        ("scipy_csr_bool", TensorFormat::csr(), [3, 4], ones),
        ("scipy_csc_empty", TensorFormat::csc(), [0, 5], vec![]),
    ] {
        let a = npz::read(fixture(name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((a.pattern().format(), a.shape(), entries(&a)), (format, shape, expected), "{name}");
    }
    let a = npz::read(fixture("scipy_coo_array_duplicates")).unwrap();
    assert_eq!(a.pattern().format(), TensorFormat::coo_with(false, false));
    assert_eq!(entries(&a), [(2, 3, 1.5), (0, 1, 2.5), (2, 3, -1.0), (1, 0, 0.0)]);
    let a = npz::read(fixture("scipy_csr_unsorted")).unwrap();
    assert_eq!(entries(&a), [(0, 3, 1.0), (0, 0, 2.0), (0, 0, 3.0)]);
}

#[test]
fn what_can_not_be_held_is_named() {
    for (name, message) in [
        ("scipy_bsr", "the format \"bsr\" is not supported: save it as csr, csc or coo"),
        ("scipy_dia", "the format \"dia\" is not supported: save it as csr, csc or coo"),
        ("scipy_csr_complex", "array 'data' has the type <c16: expected real numbers of at most 64 bits"),
        ("scipy_coo_1d", "the shape [3] is not that of a matrix"),
        ("missing", "No such file or directory (os error 2)"),
    ] {
        let path = fixture(name);
        let error = npz::read(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
    }
}

/// An archive of uncompressed arrays, as NumPy writes it, whose checksums are right whatever they hold.
fn archive(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (key, content) in arrays {
        let (name, offset) = (format!("{key}.npy"), file.len() as u32);
        let size = (content.len() as u32).to_le_bytes();
        let crc = content.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1)))
        });
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 33, 0];
        common.extend((!crc).to_le_bytes());
        common.extend([size, size].concat());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        file.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), content].concat());
        directory
            .extend([&b"PK\x01\x02\x14\x00"[..], &common, &[0; 10], &offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let (start, count) = ((file.len() as u32).to_le_bytes(), (arrays.len() as u16).to_le_bytes());
    let size = (directory.len() as u32).to_le_bytes();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &size, &start, &[0, 0]].concat();
    [file, directory, end].concat()
}

fn array(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    header(&format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"), data)
}

fn header(text: &str, data: &[u8]) -> Vec<u8> {
    [&b"\x93NUMPY\x01\x00"[..], &(text.len() as u16).to_le_bytes(), text.as_bytes(), data].concat()
}

fn integers(values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    array("<i8", &format!("({},)", values.len()), &bytes)
}

/// A file of CSR with one array replaced, or left out.
fn csr(replaced: &str, by: Option<Vec<u8>>) -> Vec<u8> {
    let arrays = [
        ("format", array("|S3", "()", b"csr")),
        ("shape", integers(&[2, 3])),
        ("indptr", integers(&[0, 1, 3])),
        ("indices", integers(&[2, 0, 2])),
        ("data", integers(&[3, 4, 5])),
    ];
    let kept = arrays.into_iter().filter_map(|(key, array)| match key == replaced {
        true => by.clone().map(|array| (key, array)),
        false => Some((key, array)),
    });
    archive(&kept.collect::<Vec<_>>())
}

#[test]
fn bad_files_are_typed_errors() {
    let a = npz::parse(&csr("", None)).unwrap();
    assert_eq!(entries(&a), [(0, 2, 3.0), (1, 0, 4.0), (1, 2, 5.0)]);
    for key in ["format", "shape", "indptr", "indices", "data"] {
        let found = fault(&csr(key, None));
        assert!(matches!(found, Fault::Missing { key: missing } if missing == key), "{found}");
    }
    let replaced = |key, by| fault(&csr(key, Some(by)));
    let pattern = |fault| match fault {
        Fault::Matrix(TensorError::Pattern(error)) => error,
        fault => panic!("{fault}"),
    };
    assert!(matches!(
        pattern(replaced("indices", integers(&[2, 0, 7]))),
        PatternError::IndexOutOfRange { position: 2, value: 7, bound: 3, .. }
    ));
    assert!(matches!(
        pattern(replaced("indices", integers(&[2, -1, 2]))),
        PatternError::IndexOutOfRange { position: 1, value: -1, .. }
    ));
    assert!(matches!(
        pattern(replaced("indptr", integers(&[0, 3]))),
        PatternError::OffsetsLength { found: 2, count: 2, .. }
    ));
    assert!(matches!(
        pattern(replaced("indptr", integers(&[0, 2, 1]))),
        PatternError::OffsetsDecrease { position: 2, .. }
    ));
    assert!(matches!(pattern(replaced("shape", integers(&[i64::MAX, 3]))), PatternError::TooLarge { .. }));
    let short = Fault::Matrix(TensorError::ValuesLength { values: 2, stored: 3 });
    assert_eq!(replaced("data", integers(&[3, 4])), short);
    assert_eq!(replaced("shape", integers(&[2, 3, 4])), Fault::Shape { found: vec![2, 3, 4] });
    assert_eq!(replaced("shape", integers(&[2, -3])), Fault::Shape { found: vec![2, -3] });
    let value = (1 << 53) + 1;
    assert_eq!(replaced("data", integers(&[1, 2, value])), Fault::TooLarge { position: 2, value: value.into() });
    assert_eq!(replaced("format", array("|S3", "()", b"lil")), Fault::Format { found: "lil".into() });
    let numbers = replaced("format", integers(&[1]));
    assert_eq!(numbers.to_string(), "array 'format' has the type <i8: expected a string");
    let floats = replaced("indices", array("<f8", "(3,)", &[0; 24]));
    assert_eq!(floats.to_string(), "array 'indices' has the type <f8: expected integers");
    let square = replaced("data", array("<f8", "(3, 1)", &[0; 24]));
    assert_eq!(square.to_string(), "array 'data' has the shape [3, 1]: expected one dimension");
    let cut = replaced("data", array("<f8", "(3,)", &[0; 23]));
    assert_eq!(cut, Fault::Length { key: "data", declared: 24, found: 23 });
    let record = "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}\n";
    assert!(matches!(replaced("data", header(record, &[0; 24])), Fault::DType { key: "data", .. }));
    let object = replaced("data", array("|O", "(3,)", b"pickle"));
    assert!(matches!(object, Fault::DType { key: "data", .. }), "{object}");
    for text in [
        "",
        "{",
        "{'descr': '<f8'}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999999999, 0)}",
        "{'descr': '<f7', 'fortran_order': False, 'shape': (3,)}",
        &"(".repeat(60_000),
    ] {
        let found = replaced("data", header(text, &[]));
        assert!(matches!(found, Fault::Damaged { key: "data", .. }), "{found}");
    }
    assert!(matches!(replaced("data", b"\x93NUMPY".to_vec()), Fault::Damaged { key: "data", .. }));
}

#[test]
fn other_spellings_are_read() {
    let unicode: Vec<u8> = "csr".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let swapped: Vec<u8> = "csr".chars().flat_map(|c| (c as u32).to_be_bytes()).collect();
    for format in [array("<U3", "()", &unicode), array(">U3", "()", &swapped), array("|S5", "(1,)", b"csr\0\0")] {
        assert_eq!(npz::parse(&csr("format", Some(format))).unwrap().nnz(), 3);
    }
    let halves: Vec<u8> = [1.0, -2.5, 1e-7].iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect();
    let a = npz::parse(&csr("data", Some(array("<f2", "(3,)", &halves)))).unwrap();
    assert_eq!(a.values(), [1.0, -2.5, f64::from(half::f16::from_f64(1e-7))]);
    let a = npz::parse(&csr("data", Some(array("|u1", "(3,)", &[0, 7, 255])))).unwrap();
    assert_eq!(a.values(), [0.0, 7.0, 255.0]);
    let coordinates = |order, data: &[i64]| {
        let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        let text = format!("{{'descr': '<i8', 'fortran_order': {order}, 'shape': (2, 3)}}\n");
        let file = archive(&[
            ("format", array("|S3", "()", b"coo")),
            ("shape", integers(&[2, 3])),
            ("coords", header(&text, &bytes)),
            ("data", integers(&[3, 4, 5])),
        ]);
        entries(&npz::parse(&file).unwrap())
    };
    let expected = [(0, 2, 3.0), (1, 0, 4.0), (1, 2, 5.0)];
    assert_eq!(coordinates("False", &[0, 1, 1, 2, 0, 2]), expected);
    assert_eq!(coordinates("True", &[0, 2, 1, 0, 1, 2]), expected);
}

#[test]
fn truncated_and_damaged_files_are_errors() {
    let bytes = std::fs::read(fixture("scipy_csr_f64")).unwrap();
    for length in 0..bytes.len() {
        assert!(matches!(npz::parse(&bytes[..length]), Err(Error::Content { .. })), "{length}");
    }
    assert!(matches!(fault(b"not a zip"), Fault::Archive { .. }));
    let stored = std::fs::read(fixture("scipy_csc_f32_stored")).unwrap();
    let mut numbers = Numbers(7);
    for original in [bytes, stored, csr("", None)] {
        let expected = npz::parse(&original).unwrap();
        for _ in 0..500 {
            let mut damaged = original.clone();
            for _ in 0..=numbers.below(3) {
                let at = numbers.below(damaged.len());
                damaged[at] = numbers.raw() as u8;
            }
            // Checksums see to it that there is no other matrix.
            if let Ok(found) = npz::parse(&damaged) {
                assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn every_matrix_comes_back() {
    let device = Device::flex();
    for host in matrices() {
        for layout in Layout::ALL {
            let (tensor, _) = layout.build(&host, DType::F64, &device);
            let matrix = tensor.to_host().unwrap();
            let mut bytes = Vec::new();
            npz::write_to(&mut bytes, &matrix, DType::F64).unwrap();
            let back = npz::read_from(&bytes[..]).unwrap();
            assert_eq!((entries(&back), back.shape()), (entries(&matrix), matrix.shape()), "{}, {layout:?}", host.name);
            if tensor.pattern().format().name().is_some() {
                assert_eq!(back, matrix, "{}, {layout:?}", host.name);
            }
            let (tensor, _) = layout.build(&host, DType::F32, &device);
            let mut single = Vec::new();
            npz::write_to(&mut single, &matrix, DType::F32).unwrap();
            let back = npz::parse(&single).unwrap().on((&device, DType::F32)).unwrap();
            assert_eq!(super::entries(&back), super::entries(&tensor));
        }
    }
    let matrix = triplets([2, 2], &[(0, 1, 0.1)]).to_csr().unwrap();
    let path = std::env::temp_dir().join(format!("sparsegrad_{}_f16.npz", std::process::id()));
    let error = npz::write_as(&path, &matrix, DType::F16).unwrap_err();
    assert!(error.to_string().ends_with("values can be written as F64 or F32, not as F16"), "{error}");
    assert!(!path.exists());
    assert!(matches!(npz::write("no/such/folder/a.npz", &matrix), Err(Error::Io { path: Some(_), .. })));
}

/// Loads each file, checks that it is what SciPy takes for valid, and saves it again in another format.
const SCRIPT: &str = r#"
import sys
import scipy.sparse as sp

for path in sys.argv[1:]:
    a = sp.load_npz(path)
    if a.format != "coo":
        a.check_format(full_check=True)
    b = a.copy()
    b.data = b.data * 2
    sp.save_npz(path + ".twice.npz", b if a.format == "coo" else b.tocoo())
"#;

#[test]
fn scipy_reads_what_is_written() {
    let scipy = Command::new("python3").args(["-c", "import scipy"]).output();
    if !scipy.as_ref().is_ok_and(|output| output.status.success()) {
        let reason =
            scipy.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stderr).into());
        println!("skipped: no python3 with SciPy here: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for (at, host) in matrices().iter().enumerate() {
        for layout in [Layout::Coo, Layout::Csr, Layout::Csc] {
            for dtype in [DType::F64, DType::F32] {
                let (tensor, _) = layout.build(host, dtype, &Device::flex());
                let path = folder.path().join(format!("{at}_{layout:?}_{dtype:?}.npz"));
                let matrix = tensor.to_host().unwrap();
                npz::write_as(&path, &matrix, dtype).unwrap();
                written.push((path, matrix));
            }
        }
    }
    let paths = written.iter().map(|(path, _)| path);
    let output = Command::new("python3").args(["-c", SCRIPT]).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (path, matrix) in written {
        let twice = npz::read(format!("{}.twice.npz", path.display())).unwrap();
        assert_eq!(twice.shape(), matrix.shape());
        let expected: Entries = matrix.entries().map(|(row, column, value)| (row, column, 2.0 * value)).collect();
        assert_eq!(entries(&twice), expected, "{}", path.display());
    }
}
