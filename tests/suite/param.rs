//! Sparse parameters in Burn modules: training, states, pruning, and what records hold.

use crate::common::{Host, Layout, Numbers, matrices, matrix, read, vector};
use burn::grad_clipping::GradientClippingConfig;
use burn::module::{
    Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param, ParamGroup, ParamId,
    Quantizer, list_param_ids,
};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, GradientsAccumulator, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::TensorData;
use burn::tensor::quantization::{Calibration, QuantValue};
use sparsegrad::pattern::{IndexWidth, Indices};
use sparsegrad::prelude::*;

#[derive(Module, Debug)]
struct Layer {
    weight: SparseParam<2>,
    bias: Param<Tensor<1>>,
}

impl Layer {
    fn new(host: &Host, layout: Layout, device: &Device) -> Self {
        let (weight, host) = layout.build(host, DType::F32, device);
        Self { weight: weight.into(), bias: Param::from_tensor(Tensor::zeros([host.shape[0]], (device, DType::F32))) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        sparse_mm(&self.weight.val(), x) + self.bias.val().unsqueeze_dim(1)
    }
}

fn autodiff() -> Device {
    Device::flex().autodiff()
}

fn host() -> Host {
    Host::random("17x23", [17, 23], 4, 1)
}

fn layer() -> Layer {
    Layer::new(&host(), Layout::Csr, &autodiff())
}

fn input(device: &Device) -> Tensor<2> {
    matrix(&Numbers(5).values(23 * 6), [23, 6], DType::F32, device)
}

fn target(device: &Device) -> Tensor<2> {
    matrix(&Numbers(6).values(17 * 6), [17, 6], DType::F32, device)
}

fn loss(layer: &Layer) -> Tensor<1> {
    let device = layer.weight.values().device();
    (layer.forward(input(&device)) - target(&device)).powi_scalar(2).mean()
}

fn step(optimizer: &mut ModuleOptimizer, layer: Layer, rate: f64) -> Layer {
    let grads = GradientsParams::from_grads(loss(&layer).backward(), &layer);
    optimizer.step(rate, layer, grads)
}

/// Where a pattern's last buffer lies in memory: the same only for the very same pattern.
fn address<const D: usize>(param: &SparseParam<D>) -> usize {
    match &param.pattern().levels()[1].coordinates {
        Some(Indices::I32(buffer)) => buffer.as_ptr() as usize,
        _ => unreachable!(),
    }
}

fn values<const D: usize>(param: &SparseParam<D>) -> Vec<f64> {
    read(param.val().values())
}

#[test]
fn burns_optimizers_train_the_values_and_leave_the_pattern() {
    let momentum = MomentumConfig::new();
    for (name, mut optimizer, rate) in [
        ("sgd", SgdConfig::new().init(), 0.5),
        ("sgd with momentum", SgdConfig::new().with_momentum(Some(momentum)).init(), 0.3),
        ("adam", AdamConfig::new().init(), 0.03),
        (
            "adam, clipped by value",
            AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Value(1e-3))).init(),
            0.03,
        ),
        (
            "sgd, clipped by norm",
            SgdConfig::new().with_gradient_clipping(Some(GradientClippingConfig::Norm(0.1))).init(),
            1.0,
        ),
    ] {
        let mut layer = layer();
        let (before, at, id) = (read(&loss(&layer))[0], address(&layer.weight), layer.weight.id());
        for _ in 0..30 {
            layer = step(&mut optimizer, layer, rate);
        }
        let after = read(&loss(&layer))[0];
        assert!(after < 0.8 * before, "{name}: {before} -> {after}");
        assert_eq!((address(&layer.weight), layer.weight.id()), (at, id), "{name}");
    }
}

#[test]
fn a_step_is_that_of_the_formula() {
    let layer = layer();
    let grads = loss(&layer).backward();
    let grad = layer.weight.grad(&grads).unwrap();
    assert_eq!(grad.pattern(), layer.weight.pattern());
    let expected: Vec<f64> = values(&layer.weight).iter().zip(read(grad.values())).map(|(v, g)| v - 0.5 * g).collect();
    let grads = GradientsParams::from_grads(grads, &layer);
    let stepped = SgdConfig::new().init().step(0.5, layer, grads);
    for (found, expected) in values(&stepped.weight).iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6);
    }
}

#[test]
fn gradients_accumulate() {
    let layer = layer();
    let mut accumulator = GradientsAccumulator::new();
    for _ in 0..3 {
        accumulator.accumulate(&layer, GradientsParams::from_grads(loss(&layer).backward(), &layer));
    }
    let sum = accumulator.grads().get::<1>(layer.weight.id()).unwrap();
    let once = layer.weight.grad(&loss(&layer).backward()).unwrap();
    for (sum, once) in read(&sum).iter().zip(read(once.values())) {
        assert!((sum - 3.0 * once).abs() < 1e-6);
    }
}

#[test]
fn states_are_those_of_a_param() {
    let layer = layer();
    let trains = |layer: &Layer| layer.weight.values().is_require_grad();
    assert_eq!(Module::num_params(&layer), host().nnz() + 17);
    assert_eq!(layer.devices(), [autodiff()]);
    let valid = layer.valid();
    assert!(!valid.weight.val().device().is_autodiff() && !trains(&valid));
    assert!(trains(&valid.clone().train()));
    assert!(!trains(&layer.clone().no_grad()));
    assert!(!trains(&layer.clone().no_grad().valid().train()));
    assert!(trains(&layer.clone().freeze().unfreeze()));
    let frozen = layer.clone().freeze_group(ParamGroup::from_path("weight"));
    assert!(!trains(&frozen) && frozen.bias.is_require_grad());
    assert!(layer.weight.grad(&loss(&frozen).backward()).is_none());
    assert!(trains(&layer.clone().fork(&autodiff())));
    assert_eq!(address(&layer.clone().fork(&autodiff()).weight), address(&layer.weight));
    assert_eq!(values(&layer.clone().to_device(&autodiff()).weight), values(&layer.weight));
    // Made on a plain device, it trains after `train`.
    let plain = Layer::new(&host(), Layout::Csr, &Device::flex());
    assert!(!trains(&plain) && trains(&plain.train()));
}

#[test]
fn display_tells_shape_and_format() {
    let text = layer().to_string();
    let nnz = host().nnz();
    let line = format!("weight: SparseParam {{shape: [17, 23], nnz: {nnz}, format: CSR}}");
    assert!(text.contains(&line), "{text}");
    assert!(text.contains(&format!("params: {}", nnz + 17)), "{text}");
}

#[test]
fn a_parameter_is_cut_off_from_what_it_was_made_of() {
    let device = autodiff();
    let base = SparseTensor::eye(3, &device).unwrap().require_grad();
    let param = SparseParam::new(base.map_values(|v| v * 2.0));
    let grads = param.val().values().clone().sum().backward();
    assert!(base.grad(&grads).is_none());
    assert_eq!(read(param.grad(&grads).unwrap().values()), [1.0; 3]);
}

#[test]
fn pruning_makes_a_new_parameter_and_training_goes_on() {
    let mut layer = layer();
    let mut optimizer = AdamConfig::new().init();
    for _ in 0..3 {
        layer = step(&mut optimizer, layer, 0.03);
    }
    let id = layer.weight.id();
    // The dense matrix sums duplicates and drops the small ones: fewer entries, at other places in the values.
    let prune = |a: SparseTensor<2>| {
        assert!(!a.values().is_require_grad());
        SparseTensor::from_dense(a.to_dense(), 0.3).unwrap()
    };
    layer.weight = layer.weight.map(prune);
    assert!(layer.weight.nnz() < host().nnz() && layer.weight.nnz() > 0);
    assert_ne!(layer.weight.id(), id);
    assert!(layer.weight.values().is_require_grad());
    let before = read(&loss(&layer))[0];
    for _ in 0..10 {
        layer = step(&mut optimizer, layer, 0.03);
    }
    assert!(read(&loss(&layer))[0] < before);
}

#[test]
fn the_same_pattern_is_the_same_parameter() {
    let param = layer().weight;
    let (id, at) = (param.id(), address(&param));
    // Equal, but built anew.
    let again = |a: SparseTensor<2>| {
        let entries: Vec<_> = a.triplets().unwrap().collect();
        let rows: Vec<_> = entries.iter().map(|e| e.0).collect();
        let columns: Vec<_> = entries.iter().map(|e| e.1).collect();
        SparseTensor::from_triplets(rows, columns, a.values().clone() * 2.0, a.shape(), &a.device()).unwrap()
    };
    let doubled = param.clone().map(again);
    assert_eq!((doubled.id(), address(&doubled)), (id, at));
    assert_eq!(values(&doubled), values(&param).iter().map(|v| 2.0 * v).collect::<Vec<_>>());
    // Training state is that of the parameter, whatever the function did.
    let trains = |p: &SparseParam<2>| p.values().is_require_grad();
    assert!(trains(&doubled));
    assert!(!trains(&param.clone().no_grad().map(|a| a.map_values(|v| v * 3.0))));
    let valid = param.valid().map(|a| a.map_values(|v| v * 3.0));
    assert!(!trains(&valid) && trains(&valid.train()));
    let mut set = param.clone();
    set.set(SparseTensor::eye(4, &autodiff()).unwrap());
    assert_eq!((set.shape(), set.nnz()), ([4, 4], 4));
    assert!(set.id() != id && trains(&set));
}

#[test]
fn mappers_that_change_the_length_are_caught() {
    struct Half;
    impl ModuleMapper for Half {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|values| values.inner().slice(0..1))
        }
    }
    let panic = std::panic::catch_unwind(|| Module::map(layer().weight, &mut Half)).unwrap_err();
    let message = *panic.downcast::<String>().unwrap();
    let expected = format!("SparseParam: a mapper made 1 values of {}", host().nnz());
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn mappers_of_integers_do_no_harm() {
    struct Touch(usize);
    impl ModuleMapper for Touch {
        fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
            self.0 += 1;
            param.map(|integers| integers + 0)
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|values| values.inner() * 2.0)
        }
    }
    let param = layer().weight;
    let (mut touch, before) = (Touch(0), values(&param));
    let at = address(&param);
    let mapped = Module::map(param, &mut touch);
    assert_eq!((touch.0, address(&mapped)), (2, at));
    assert_eq!(values(&mapped), before.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
}

#[test]
fn quantized_values_are_dequantized() {
    let device = Device::flex();
    let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q8S);
    let layer = Layer::new(&host(), Layout::Csr, &device);
    let exact = values(&layer.weight);
    let quantized = layer.quantize_weights(&mut Quantizer::new(Calibration::MinMax, scheme));
    assert!(matches!(quantized.weight.values().dtype(), DType::QFloat(_)));
    assert_eq!(quantized.weight.val().dtype(), DType::F32);
    for (found, exact) in values(&quantized.weight).iter().zip(&exact) {
        assert!((found - exact).abs() < 0.01);
    }
    // A record of them loads, here into another pattern.
    let found = values(&quantized.weight);
    let record = quantized.weight.into_record();
    let loaded = SparseParam::new(SparseTensor::eye(2, &device).unwrap()).load_record(record);
    assert_eq!(values(&loaded), found);
}

// Records

fn bytes(record: ModuleRecord) -> ModuleRecord {
    ModuleRecord::from_bytes(record.into_bytes().unwrap()).unwrap()
}

fn eye(n: usize) -> SparseParam<2> {
    SparseTensor::eye(n, &autodiff()).unwrap().into()
}

#[test]
fn every_pattern_comes_back_from_a_record() {
    for host in matrices() {
        for layout in Layout::ALL {
            let layer = Layer::new(&host, layout, &autodiff());
            let record = bytes(layer.clone().into_record());
            assert_eq!(record.len(), 4);
            // Into a module of another pattern, and of another nnz unless that is 3.
            let bias = Param::from_tensor(Tensor::zeros([host.shape[0]], &autodiff()));
            let loaded = Layer { weight: eye(3), bias }.load_record(record);
            assert_eq!(loaded.weight.pattern(), layer.weight.pattern(), "{layout:?} {}", host.name);
            assert_eq!(loaded.weight.shape(), layer.weight.shape());
            assert_eq!(values(&loaded.weight), values(&layer.weight));
            assert_eq!(loaded.weight.id(), layer.weight.id());
            assert!(loaded.weight.values().is_require_grad());
        }
    }
}

#[test]
fn training_goes_on_after_a_file() {
    let mut layer = layer();
    let mut optimizer = AdamConfig::new().init();
    layer = step(&mut optimizer, layer, 0.03);
    // Burn reads values from the file when it needs them: the folder stays until the end.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer.bpk");
    layer.clone().save_file(&path).unwrap();
    let other = Layer::new(&Host::random("17x23", [17, 23], 2, 8), Layout::Coo, &autodiff());
    let mut loaded = other.load_file(&path);
    // The optimizer knows the parameter again.
    let mut same = optimizer.clone();
    for _ in 0..3 {
        layer = step(&mut optimizer, layer, 0.03);
        loaded = step(&mut same, loaded, 0.03);
    }
    assert_eq!(values(&loaded.weight), values(&layer.weight));
}

#[test]
fn batches_are_recorded_with_their_shape() {
    let device = autodiff();
    let item = |seed| Layout::Csr.build(&Host::random("5x4", [5, 4], 2, seed), DType::F32, &device).0;
    let batch = SparseTensor::stack(&[item(1), item(2), item(3)]).unwrap();
    let param = SparseParam::new(batch);
    let record = || bytes(param.clone().into_record());
    let empty = SparseTensor::stack(&[SparseTensor::eye(2, &device).unwrap()]).unwrap();
    let loaded = SparseParam::new(empty).load_record(record());
    assert_eq!(loaded.shape(), [3, 5, 4]);
    assert_eq!(loaded.pattern(), param.pattern());
    assert_eq!(values(&loaded), values(&param));
    let error = message(eye(3).try_load_record(record()));
    assert!(error.contains("a shape [3, 5, 4] for 2 dimensions"), "{error}");
}

#[test]
fn wide_indices_stay_wide() {
    let device = autodiff();
    let wide = Pattern::eye(3).unwrap().with_index_width(IndexWidth::I64).unwrap();
    let param = SparseParam::new(SparseTensor::new(wide, Tensor::ones([3], &device)).unwrap());
    for cast in [false, true] {
        let record = bytes(param.clone().into_record());
        let record = if cast { record.cast_to_module_dtype() } else { record };
        let loaded = eye(2).load_record(record);
        assert_eq!(loaded.pattern(), param.pattern());
        assert_eq!(loaded.pattern().index_width(), IndexWidth::I64);
    }
}

#[test]
fn the_policy_for_dtypes_is_kept() {
    let double = |n| {
        let values = vector(&vec![0.1; n], DType::F64, &autodiff());
        SparseParam::new(SparseTensor::diagonal(values).unwrap())
    };
    for n in [4, 5] {
        let record = double(5).into_record();
        assert_eq!(eye(n).load_record(record.clone()).val().dtype(), DType::F64);
        assert_eq!(eye(n).load_record(record.cast_to_module_dtype()).val().dtype(), DType::F32);
    }
}

#[test]
fn the_state_of_the_module_is_kept() {
    let record = || eye(5).into_record();
    for n in [4, 5] {
        assert!(!eye(n).no_grad().load_record(record()).values().is_require_grad());
        let valid = eye(n).valid().load_record(record());
        assert!(!valid.values().device().is_autodiff());
        assert!(valid.train().values().is_require_grad());
    }
}

#[test]
fn an_equal_pattern_keeps_its_plans() {
    let layer = layer();
    let record = Layer::new(&host(), Layout::Csr, &autodiff()).into_record();
    let (at, nnz) = (address(&layer.weight), layer.weight.nnz());
    let zeros = layer.weight.map(|a| a.map_values(|v| v * 0.0));
    let loaded = Layer { weight: zeros, ..layer }.load_record(bytes(record));
    assert_eq!(address(&loaded.weight), at);
    assert_eq!(values(&loaded.weight), values(&Layer::new(&host(), Layout::Csr, &autodiff()).weight));
    assert_eq!(loaded.weight.nnz(), nnz);
}

#[test]
fn groups_of_ids_take_the_pattern_with_the_values() {
    let layer = layer();
    assert_eq!(list_param_ids(&layer.weight), vec![layer.weight.id(); 3]);
    let group = ParamGroup::from_ids(vec![layer.weight.id()]);
    let record = bytes(layer.clone().into_record_group(group));
    assert_eq!(record.len(), 3);
    let loaded = Layer { weight: eye(2), bias: layer.bias.clone() };
    let loaded = loaded.load_record(record.allow_partial(true));
    assert_eq!(loaded.weight.pattern(), layer.weight.pattern());
}

/// A module that is nothing but what a record shall hold.
#[derive(Debug, Clone)]
struct Fake(Vec<(&'static str, Entry)>);

#[derive(Debug, Clone)]
enum Entry {
    Int(Tensor<1, Int>),
    Float(Tensor<1>),
}

impl Module for Fake {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        for (path, entry) in &self.0 {
            let names = || path.split('.').filter(|name| !name.is_empty());
            names().for_each(|name| visitor.enter_module(name, "Struct:Fake"));
            match entry {
                Entry::Int(t) => visitor.visit_int(&Param::initialized(ParamId::new(), t.clone())),
                Entry::Float(t) => visitor.visit_float(&Param::initialized(ParamId::new(), t.clone())),
            }
            names().for_each(|name| visitor.exit_module(name, "Struct:Fake"));
        }
    }
    fn map<M: ModuleMapper>(self, _: &mut M) -> Self {
        self
    }
    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }
    fn to_device(self, _: &Device) -> Self {
        self
    }
    fn fork(self, _: &Device) -> Self {
        self
    }
    fn valid(&self) -> Self {
        self.clone()
    }
    fn train(self) -> Self {
        self
    }
    fn materialize(self) -> Self {
        self
    }
}
impl ModuleDisplay for Fake {}
impl ModuleDisplayDefault for Fake {
    fn content(&self, content: burn::module::Content) -> Option<burn::module::Content> {
        Some(content)
    }
}

fn ints(numbers: &[i64]) -> Entry {
    let data = TensorData::new(numbers.to_vec(), [numbers.len()]);
    Entry::Int(Tensor::from_data(data, (&Device::flex(), DType::I64)))
}

fn floats(count: usize) -> Entry {
    Entry::Float(Tensor::ones([count], (&Device::flex(), DType::F32)))
}

/// The words of a pattern, from the parts that they should be made of.
fn words(format: &str, shape: &[i64], buffers: &[&[i64]]) -> Vec<i64> {
    let text: Vec<i64> = format.bytes().map(i64::from).collect();
    let mut words = Vec::new();
    for buffer in [&text[..], shape].iter().chain(buffers) {
        words.push(buffer.len() as i64);
        words.extend_from_slice(buffer);
    }
    words
}

const CSR: &str = "(i, j) -> (i : dense, j : compressed)";

fn record(words: &[i64], count: usize) -> Vec<(&'static str, Entry)> {
    let header = ints(&[32, words.len() as i64]);
    vec![("pattern.header", header), ("pattern.words", ints(words)), ("", floats(count))]
}

fn message<M: std::fmt::Debug>(result: Result<M, RecordError>) -> String {
    match result.unwrap_err() {
        RecordError::Validation(message) => message,
        error => panic!("{error}"),
    }
}

#[test]
fn hostile_patterns_are_errors_in_words() {
    let fine = words(CSR, &[2, 3], &[&[0, 1, 3], &[2, 0, 2]]);
    let loaded = eye(2).try_load_record(Fake(record(&fine, 3)).into_record()).unwrap();
    assert_eq!(loaded.pattern(), &Pattern::csr([0, 1, 3], [2, 0, 2], [2, 3]).unwrap());

    let csr = |shape: &[i64], offsets: &[i64], columns: &[i64]| words(CSR, shape, &[offsets, columns]);
    let mut longer = fine.clone();
    longer.push(0);
    let mut negative = fine.clone();
    negative[0] = -1;
    let mut endless = fine.clone();
    endless[0] = i64::MAX;
    let mut not_text = fine.clone();
    not_text[1] = 0x1F600;
    let coo = "(i, j) -> (i : compressed(nonunique), j : singleton)";
    let csr3 = "(b, i, j) -> (b : dense, i : dense, j : compressed)";
    for (words, expected) in [
        (csr(&[2, 3], &[0, 1, 3], &[2, 0, 7]), "column index 7 at position 2 is out of range"),
        (csr(&[2, 3], &[0, 1, 3], &[2, -1, 2]), "column index -1 at position 1 is out of range"),
        (csr(&[2, 3], &[0, 4, 3], &[2, 0, 2]), "row offsets decrease at position 2: 3 after 4"),
        (csr(&[2, 3], &[1, 1, 3], &[2, 0, 2]), "row offsets must start at 0 and start at 1"),
        (csr(&[2, 3], &[0, 1, 9], &[2, 0, 2]), "row offsets end at 9, but there are 3 entries"),
        (csr(&[9, 3], &[0, 1, 3], &[2, 0, 2]), "row offsets have length 3"),
        (csr(&[2, 3], &[0, 1, 3], &[2, 2, 0]), "out of order"),
        (csr(&[2, 3], &[0, 1, 3], &[2, 2, 2]), "again, and"),
        (csr(&[2, -3], &[0, 1, 3], &[2, 0, 2]), "-3 in the shape"),
        (csr(&[2], &[0, 1, 3], &[2, 0, 2]), "a shape [2] for 2 dimensions"),
        (csr(&[2, 3, 4], &[0, 1, 3], &[2, 0, 2]), "a shape [2, 3, 4] for 2 dimensions"),
        (csr(&[i64::MAX, 3], &[0], &[]), "too large to index"),
        (words(CSR, &[2, 3], &[&[0, 1, 3]]), "coordinates are missing"),
        (words(CSR, &[2, 3], &[&[0, 1, 3], &[2, 0, 2], &[5]]), "more buffers than"),
        (words(coo, &[2, 3], &[&[0, 2], &[0, 1, 1], &[2, 0, 2]]), "row offsets end at 2"),
        (words(coo, &[2, 3], &[&[0, 3], &[0, 1, 1], &[2, 0]]), "they must be equal"),
        (words("(i, j) -> (i : dense)", &[2, 3], &[]), "dimension j is not stored by any level"),
        (words("csr", &[2, 3], &[]), "expected"),
        (words(csr3, &[2, 3], &[&[0, 1, 3], &[2, 0, 2]]), "has 3 dimensions"),
        (words("(i, j) -> (j - i : compressed, i : range)", &[2, 3], &[&[0, 1], &[0]]), "are not supported"),
        (longer, "more buffers than"),
        (negative, "a buffer of -1 words"),
        (endless, "a buffer of 9223372036854775807 words"),
        (not_text, "128512 in the format"),
        (vec![], "the format is missing"),
        (fine[..fine[0] as usize + 1].to_vec(), "the shape is missing"),
    ] {
        let before = eye(2);
        let found = message(before.clone().try_load_record(Fake(record(&words, 3)).into_record()));
        assert!(found.contains("pattern.invalid: ") && found.contains(expected), "{expected}: {found}");
        // Not even with the allowance for missing parameters is it silent.
        let partial = Fake(record(&words, 3)).into_record().allow_partial(true);
        assert!(message(before.clone().try_load_record(partial)).starts_with("Unused tensors"));
        // Whatever the caller is deaf to, pattern and values stay together.
        let deaf = Fake(record(&words, 3)).into_record().allow_partial(true).allow_unused(true).validate(false);
        let kept = before.clone().try_load_record(deaf).unwrap();
        assert_eq!((kept.pattern(), values(&kept)), (before.pattern(), values(&before)));
    }
}

#[test]
fn entries_outside_of_their_item_are_errors() {
    let device = autodiff();
    let batch = || SparseTensor::stack(&[SparseTensor::eye(2, &device).unwrap()]).unwrap();
    let load = |shape: &[i64], columns: &[i64]| {
        let words = words(CSR, shape, &[&[0, 1, 2], columns]);
        SparseParam::new(batch()).try_load_record(Fake(record(&words, 2)).into_record())
    };
    let loaded = load(&[2, 1, 2], &[1, 2]).unwrap();
    assert_eq!(loaded.shape(), [2, 1, 2]);
    let entries: Vec<_> = loaded.val().triplets().unwrap().collect();
    assert_eq!(entries, [(0, 0, 1, 1.0), (1, 0, 0, 1.0)]);
    for (shape, columns, expected) in [
        ([2, 1, 2], [1, 1], "entry 1 (1, 1)"),
        ([2, 1, 2], [2, 2], "entry 0 (0, 2)"),
        ([2, 1, 1], [1, 2], "column index 2 at position 1 is out of range"),
        ([3, 1, 2], [1, 2], "row offsets have length 3"),
        ([1 << 40, 1 << 40, 1], [1, 2], "is too large"),
    ] {
        let found = message(load(&shape, &columns));
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

#[test]
fn headers_and_lengths_are_not_trusted() {
    let fine = words(CSR, &[2, 3], &[&[0, 1, 3], &[2, 0, 2]]);
    let with = |header: &[i64], words: Entry, values: Entry| {
        Fake(vec![("pattern.header", ints(header)), ("pattern.words", words), ("", values)]).into_record()
    };
    let n = fine.len() as i64;
    for (header, expected) in [
        (vec![32, n - 1], "pattern.words: shape mismatch"),
        (vec![32, 1 << 40], "pattern.words: shape mismatch"),
        (vec![64, i64::MAX], "pattern.words: shape mismatch"),
        (vec![32, -1], "[32, -1] is no header"),
        (vec![16, 7], "[16, 7] is no header"),
        (vec![1 << 33, 7], "is no header"),
        (vec![32], "pattern.header: shape mismatch"),
        (vec![32, n, 0], "pattern.header: shape mismatch"),
    ] {
        for cast in [false, true] {
            let record = with(&header, ints(&fine), floats(3));
            let record = if cast { record.cast_to_module_dtype() } else { record };
            let found = message(eye(2).try_load_record(record));
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
    // Words beyond the width that the header has.
    let far = words(CSR, &[2, 1 << 40], &[&[0, 1, 3], &[2, 0, 1 << 33]]);
    for cast in [false, true] {
        let record = with(&[32, far.len() as i64], ints(&far), floats(3));
        let record = if cast { record.cast_to_module_dtype() } else { record };
        let found = message(eye(2).try_load_record(record));
        assert!(found.contains("columns = 1099511627776 does not fit 32-bit indices"), "{found}");
    }
    let header = [32, n];
    for values in [2, 4, 0] {
        for n in [2, values] {
            let found = message(eye(n).try_load_record(with(&header, ints(&fine), floats(values))));
            assert!(found.contains(": shape mismatch, expected"), "{found}");
        }
    }
    let numbers: Vec<f64> = fine.iter().map(|&word| word as f64).collect();
    let other = Entry::Float(vector(&numbers, DType::F32, &Device::flex()));
    let found = message(eye(2).try_load_record(with(&header, other, floats(3))));
    assert!(found.contains("a pattern of type F32, it must be I32 or I64"), "{found}");
}

#[test]
fn missing_pieces_are_errors_or_what_the_caller_allows() {
    let fine = words(CSR, &[2, 3], &[&[0, 1, 3], &[2, 0, 2]]);
    for (left_out, name) in [(0, "pattern.header"), (1, "pattern.words"), (2, "\"\"")] {
        let mut entries = record(&fine, 3);
        entries.remove(left_out);
        let found = message(eye(3).try_load_record(Fake(entries.clone()).into_record()));
        assert!(found.starts_with("Missing tensors") && found.contains(name), "{found}");
        let partial = || Fake(entries.clone()).into_record().allow_partial(true);
        let before = eye(3);
        let loaded = before.clone().try_load_record(partial());
        if left_out < 2 {
            assert!(message(loaded).starts_with("Unused tensors"), "{name}");
        } else {
            // A pattern without values is not used.
            let kept = loaded.unwrap();
            assert_eq!((kept.pattern(), values(&kept)), (before.pattern(), values(&before)));
        }
    }
    // Values alone: for the pattern that is there, if they are as many.
    let alone = |count| Fake(vec![("", floats(count))]).into_record().allow_partial(true);
    let twice = |n| eye(n).map(|a| a.map_values(|v| v * 2.0));
    assert_eq!(values(&twice(3).load_record(alone(3))), [1.0; 3]);
    assert!(message(twice(4).try_load_record(alone(3))).contains("shape mismatch"));
}
