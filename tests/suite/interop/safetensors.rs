//! Safetensors: tensors of every kind come back, and no sequence of bytes is a panic.

use super::entries;
use crate::common::{Layout, matrices, matrix, read};
use proptest::prelude::*;
use sparsegrad::error::PatternError;
use sparsegrad::io::safetensors::{self, Error, Tensors};
use sparsegrad::pattern::IndexWidth;
use sparsegrad::prelude::*;

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

fn again(tensors: &Tensors) -> Tensors {
    safetensors::parse(tensors.to_bytes().unwrap()).unwrap()
}

#[test]
fn every_matrix_comes_back() {
    let device = Device::flex();
    for dtype in DTYPES {
        let (mut tensors, mut originals) = (Tensors::new(), Vec::new());
        for host in matrices() {
            for layout in Layout::ALL {
                let (tensor, _) = layout.build(&host, dtype, &device);
                let name = format!("{}.{layout:?}", host.name);
                tensors.insert(&name, &tensor).unwrap();
                originals.push((name, tensor));
            }
        }
        let tensors = again(&tensors);
        assert_eq!(tensors.sparse_names().count(), originals.len());
        assert_eq!(tensors.dense_names().count(), 0);
        for (name, tensor) in originals {
            let back = tensors.sparse::<2>(&name, &device).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((back.pattern(), back.dtype()), (tensor.pattern(), dtype), "{name}");
            assert_eq!(entries(&back), entries(&tensor), "{name}");
        }
    }
}

#[test]
fn batches_wide_patterns_and_dense_tensors_share_a_file() {
    let device = Device::flex().autodiff();
    let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 0.0], [2, 3], &device).unwrap();
    let b = SparseTensor::from_triplets(&[1], &[1], &[-1.0f32], [2, 3], &device).unwrap();
    let batch = SparseTensor::stack(&[a.clone(), b]).unwrap();
    let none = SparseTensor::shared(a.pattern(), Tensor::zeros([0, 3], &device)).unwrap();
    let wide = a.pattern().with_index_width(IndexWidth::I64).unwrap();
    let wide = SparseTensor::new(wide, a.values().clone()).unwrap().require_grad();
    let dense = matrix(&[1.0, f64::NAN, f64::INFINITY, -0.0], [2, 2], DType::F64, &device);
    let mut tensors = Tensors::new();
    tensors.insert("a", &a).unwrap();
    tensors.insert("a.batch", &batch).unwrap();
    tensors.insert("none", &none).unwrap();
    tensors.insert("wide", &wide).unwrap();
    tensors.insert_dense("dense", &dense).unwrap();
    tensors.insert_dense("a.bias", &Tensor::<1>::zeros([0], &device)).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    tensors.write(&path).unwrap();
    let back = safetensors::read(&path).unwrap();
    assert_eq!(back.sparse_names().collect::<Vec<_>>(), ["a", "a.batch", "none", "wide"]);
    assert_eq!(back.dense_names().collect::<Vec<_>>(), ["a.bias", "dense"]);
    let found: SparseTensor<3> = back.sparse("a.batch", &device).unwrap();
    assert_eq!((found.shape(), found.pattern()), ([2, 2, 3], batch.pattern()));
    assert_eq!(read(found.values()), read(batch.values()));
    assert_eq!(back.sparse::<3>("none", &device).unwrap().shape(), [0, 2, 3]);
    let found = back.sparse::<2>("wide", &device).unwrap();
    assert_eq!(found.pattern().index_width(), IndexWidth::I64);
    assert!(!found.values().is_require_grad());
    let found = read(&back.dense::<2>("dense", &device).unwrap());
    assert_eq!(
        found.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
        read(&dense).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    );
    assert_eq!(back.dense::<1>("a.bias", &device).unwrap().dims(), [0]);

    // The same tensors are the same bytes.
    assert_eq!(back.to_bytes().unwrap(), std::fs::read(&path).unwrap());
}

#[test]
fn what_is_in_the_file() {
    let device = Device::flex();
    let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device).unwrap();
    let mut tensors = Tensors::new();
    tensors.insert("w", &a).unwrap();
    let bytes = tensors.to_bytes().unwrap();
    let file = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    assert_eq!(names, ["w.1.coordinates", "w.1.positions", "w.values"]);
    let expected: Vec<u8> = [0i64, 1, 3].iter().flat_map(|i| i.to_le_bytes()).collect();
    assert_eq!(file.tensor("w.1.positions").unwrap().data(), expected);
    let (_, metadata) = ::safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let line = "w\t2x3\t32\t(i, j) -> (i : dense, j : compressed)";
    assert_eq!(metadata.metadata().as_ref().unwrap()["sparsegrad"], line);
}

#[test]
fn misuse_is_a_typed_error() {
    let device = Device::flex();
    let a = SparseTensor::eye(2, &device).unwrap();
    let vector = Tensor::<1>::zeros([2], &device);
    let mut tensors = Tensors::new();
    tensors.insert("a", &a).unwrap();
    tensors.insert_dense("b.values", &vector).unwrap();
    for name in ["a", "b"] {
        assert!(matches!(tensors.insert(name, &a), Err(Error::Taken { .. })), "{name}");
    }
    for name in ["a", "a.values", "b.values"] {
        assert!(matches!(tensors.insert_dense(name, &vector), Err(Error::Taken { name: taken }) if taken == name));
    }
    for name in ["__metadata__", "a\tb", "line\nbreak"] {
        assert!(matches!(tensors.insert_dense(name, &vector), Err(Error::Name { .. })));
        assert!(matches!(tensors.insert(name, &a), Err(Error::Name { .. })));
    }
    let error = tensors.sparse::<2>("b", &device).unwrap_err();
    assert_eq!(error.to_string(), "no sparse tensor \"b\"");
    assert!(matches!(tensors.dense::<1>("c", &device), Err(Error::Missing { kind: "dense", .. })));
    let error = tensors.sparse::<3>("a", &device).unwrap_err();
    assert_eq!(error.to_string(), "tensor \"a\" has the shape [2, 2]: 3 dimensions were asked for");
    assert!(matches!(tensors.dense::<2>("a.values", &device), Err(Error::Rank { expected: 2, .. })));
    let error = tensors.dense::<1>("a.1.positions", &device).unwrap_err();
    assert_eq!(error.to_string(), "tensor \"a.1.positions\" has the type I64: expected F32, F64, F16 or BF16");
    let error = safetensors::read("no/such.safetensors").unwrap_err();
    assert!(matches!(error, Error::Io { path: Some(_), .. }), "{error}");
    assert!(matches!(tensors.write("no/such/folder"), Err(Error::Io { path: Some(_), .. })));
}

/// A file with this line of metadata and these parts.
fn file(line: &str, parts: &[(&str, &[i64])], values: usize) -> Tensors {
    use ::safetensors::tensor::{Dtype, TensorView};
    let bytes: Vec<Vec<u8>> = parts.iter().map(|(_, i)| i.iter().flat_map(|i| i.to_le_bytes()).collect()).collect();
    let zeros = vec![0; 4 * values];
    let mut views: Vec<_> = parts
        .iter()
        .zip(&bytes)
        .map(|((name, i), bytes)| (*name, TensorView::new(Dtype::I64, vec![i.len()], bytes).unwrap()))
        .collect();
    views.push(("w.values", TensorView::new(Dtype::F32, vec![values], &zeros).unwrap()));
    let metadata = Some([("sparsegrad".to_string(), line.to_string())].into());
    safetensors::parse(::safetensors::serialize(views, metadata).unwrap()).unwrap()
}

fn source(error: Error) -> TensorError {
    match error {
        Error::Tensor { source, .. } => *source,
        error => panic!("{error}"),
    }
}

#[test]
fn hostile_files_are_typed_errors() {
    let device = Device::flex();
    let csr = "w\t2x3\t32\t(i, j) -> (i : dense, j : compressed)";
    let (positions, coordinates) = (("w.1.positions", &[0i64, 1, 3][..]), ("w.1.coordinates", &[2i64, 0, 2][..]));
    assert_eq!(file(csr, &[positions, coordinates], 3).sparse::<2>("w", &device).unwrap().nnz(), 3);
    let of = |tensors: Tensors| source(tensors.sparse::<2>("w", &device).unwrap_err());
    assert!(matches!(
        of(file(csr, &[positions, ("w.1.coordinates", &[2, 0, 7])], 3)),
        TensorError::Pattern(PatternError::IndexOutOfRange { position: 2, value: 7, bound: 3, .. })
    ));
    assert!(matches!(
        of(file(csr, &[positions, ("w.1.coordinates", &[2, 2, 0])], 3)),
        TensorError::Pattern(PatternError::Unordered { .. })
    ));
    assert_eq!(of(file(csr, &[positions, coordinates], 2)), TensorError::ValuesLength { values: 2, stored: 3 });
    let missing = file(csr, &[positions], 3).sparse::<2>("w", &device).unwrap_err();
    assert_eq!(missing.to_string(), "no dense tensor \"w.1.coordinates\"");
    let shape = |shape: &str| csr.replace("2x3", shape);
    assert!(matches!(
        of(file(&shape("18446744073709551615x3"), &[positions, coordinates], 3)),
        TensorError::Pattern(PatternError::TooLarge { .. })
    ));
    let batch = |line: &str| source(file(line, &[positions, coordinates], 3).sparse::<3>("w", &device).unwrap_err());
    assert!(matches!(
        batch(&shape("2x1x2")),
        TensorError::Pattern(PatternError::OutsideBlock { position: 0, column: 2, .. })
    ));
    assert!(matches!(batch(&shape("4294967296x4294967296x1")), TensorError::Pattern(PatternError::TooLarge { .. })));
    let other = "w\t2x3\t32\t(i, j) -> (j - i : compressed, i : range)";
    let dia = of(file(other, &[("w.0.positions", &[0, 1]), ("w.0.coordinates", &[0])], 2));
    assert!(matches!(dia, TensorError::Pattern(PatternError::Unsupported { .. })));

    for line in ["w", "w\t2x3\t32", "w\t2y3\t32\tCSR", &shape("2x-3"), &csr.replace("32", "16"), "w\t2x3\t32\t(i) -> "]
    {
        let bytes = ::safetensors::serialize(
            Vec::<(&str, ::safetensors::tensor::TensorView<'_>)>::new(),
            Some([("sparsegrad".to_string(), line.to_string())].into()),
        );
        let error = safetensors::parse(bytes.unwrap()).unwrap_err();
        assert!(matches!(&error, Error::Description { line: found, .. } if found == line), "{error}");
    }
}

fn sample() -> Vec<u8> {
    let device = Device::flex();
    let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device).unwrap();
    let mut tensors = Tensors::new();
    tensors.insert("a", &a).unwrap();
    tensors.insert("coo", &a.to_coo()).unwrap();
    tensors.insert("batch", &SparseTensor::stack(&[a.clone(), a]).unwrap()).unwrap();
    tensors.insert_dense("b", &Tensor::<2>::ones([2, 2], &device)).unwrap();
    tensors.to_bytes().unwrap()
}

/// Takes everything out of a file, if it is one.
fn exhaust(bytes: Vec<u8>) {
    let Ok(tensors) = safetensors::parse(bytes) else { return };
    let device = Device::flex();
    for name in tensors.sparse_names() {
        let _ = tensors.sparse::<2>(name, &device).map(|tensor| entries(&tensor));
        let _ = tensors.sparse::<3>(name, &device).map(|tensor| tensor.triplets().unwrap().count());
    }
    for name in tensors.dense_names() {
        let _ = (tensors.dense::<1>(name, &device), tensors.dense::<2>(name, &device));
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample();
    for length in 0..bytes.len() {
        let error = safetensors::parse(bytes[..length].to_vec()).expect_err("truncated");
        assert!(matches!(error, Error::File { path: None, .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn no_bytes_are_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample();
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at.index(length)] = value;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        exhaust(bytes);
    }

    #[test]
    fn no_noise_is_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exhaust(bytes);
    }
}
