//! A sparse tensor as a parameter of a Burn module.

mod record;

use super::SparseTensor;
use crate::backend::check::{device_name, supported};
use crate::pattern::Pattern;
use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param, ParamId,
};
use burn::tensor::{DType, Device, Gradients, Tensor};
use record::{Mapped, Place, Structure};

/// A trainable sparse tensor in a Burn module: a fixed [`Pattern`], and its values as one 1-D parameter.
///
/// Burn's own `Param` takes dense tensors only, and a bare `SparseTensor` field would be no parameter at all. This is what
/// `Param<Tensor<D>>` is for dense tensors: hold it in a field, derive `Module`, and optimizers, gradient clipping and
/// accumulation, `valid`, `train`, `freeze`, `fork`, `to_device`, `num_params` and records treat its values as any
/// parameter. The values change, the pattern stays, and what is planned on it too.
///
/// ```
/// use burn::module::{Module, Param};
/// use burn::optim::{AdamConfig, GradientsParams};
/// use sparsegrad::prelude::*;
///
/// #[derive(Module, Debug)]
/// struct Layer {
///     weight: SparseParam<2>,
///     bias: Param<Tensor<1>>,
/// }
///
/// impl Layer {
///     fn forward(&self, x: Tensor<2>) -> Tensor<2> {
///         sparse_mm(&self.weight.val(), x) + self.bias.val().unsqueeze_dim(1)
///     }
/// }
///
/// let device = Device::flex().autodiff();
/// let weight = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?;
/// let layer = Layer {
///     weight: SparseParam::new(weight),
///     bias: Param::from_tensor(Tensor::zeros([2], &device)),
/// };
/// assert_eq!(layer.num_params(), 3 + 2);
///
/// let mut optimizer = AdamConfig::new().init();
/// let loss = layer.forward(Tensor::ones([3, 4], &device)).powi_scalar(2).mean();
/// let grads = GradientsParams::from_grads(loss.backward(), &layer);
/// let layer = optimizer.step(0.1, layer, grads);
/// assert!(layer.weight.val().get(0, 2)?.unwrap() < 3.0);
/// # Ok::<(), TensorError>(())
/// ```
///
/// # Records
///
/// `into_record` and `save_file` save the values under the path of the field, and the pattern below it:
///
/// | path | what it is |
/// |---|---|
/// | `weight` | float, `[nnz]`: the values |
/// | `weight.pattern.header` | int, `[2]`: bits of an index (32 or 64), and the number of words |
/// | `weight.pattern.words` | int: the text of the format, the shape, and the buffers of the levels, each behind its length |
///
/// All three carry the [`id`](Self::id) of the parameter: a `ParamGroup` of ids has the pattern where it has the values. One of exact
/// paths must name all three; for optimizers and `freeze_group`, `weight` is enough.
///
/// Loading takes pattern and values from the record, whatever the pattern and nnz of the module were, and checks the pattern
/// as [`Pattern::from_levels`] does. With the defaults of `ModuleRecord` a parameter is loaded as a whole or `try_load_record`
/// is an error: a pattern that breaks a rule (with the message that its constructor would give), missing
/// pieces, values of another length. What the caller allows there has the meaning that it has for Burn's own parameters:
///
/// * `allow_partial(true)`: values without a pattern are loaded if they are as many as the present pattern stores; a
///   pattern without values is not used. A pattern that breaks a rule then shows as *unused* values.
/// * `validate(false)`: values of another length than the record's pattern stores are skipped, and the pattern with them.
///
/// A parameter that is not loaded keeps its pattern and its values: they always belong together. Two things are Burn's: with
/// `allow_partial` and `allow_unused` together, it does not tell of a broken pattern, and it panics at
/// values that are integers (as for any `Param`; `cast_to_module_dtype` converts them).
///
/// [`Pattern`] itself is [`serde`](https://serde.rs) data, for programs that keep patterns elsewhere.
///
/// # Quantized values
///
/// After `quantize_weights` the parameter keeps quantized values, and [`val`](Self::val) dequantizes them.
#[derive(Debug, Clone)]
pub struct SparseParam<const D: usize> {
    structure: Structure<D>,
    /// As many as the pattern stores.
    values: Param<Tensor<1>>,
}

impl<const D: usize> SparseParam<D> {
    /// A trainable parameter with the pattern and the values of a tensor, cut off from their graph.
    ///
    /// As with `Param::from_tensor`, gradients need a device with autodiff; on another, the parameter trains once `Module::train` has
    /// moved it to one. Use `Module::no_grad` for one that never trains.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let eye = SparseTensor::eye(3, &Device::flex().autodiff())?;
    /// let param = SparseParam::new(eye);
    /// assert!(param.values().is_require_grad());
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn new(tensor: SparseTensor<D>) -> Self {
        let SparseTensor { pattern, shape, values } = tensor;
        Self { structure: Structure { pattern, shape }, values: Param::from_tensor(values.detach()) }
    }

    /// The tensor, whose values are the parameter: what is computed with it has gradients for [`grad`](Self::grad) and for
    /// optimizers.
    ///
    /// # Panics
    /// If a `ModuleMapper` has made the values something that the device does not compute with.
    #[track_caller]
    pub fn val(&self) -> SparseTensor<D> {
        let values = self.values.val();
        let values = match values.dtype() {
            DType::QFloat(_) => values.dequantize(),
            _ => values,
        };
        if let Some(fault) = self.fault() {
            panic!("SparseParam: {fault}");
        }
        self.with(values)
    }

    /// The tensor with such values, of which there are as many as the pattern stores.
    fn with(&self, values: Tensor<1>) -> SparseTensor<D> {
        SparseTensor { pattern: self.structure.pattern.clone(), shape: self.structure.shape, values }
    }

    /// Where values are stored. Of a batch: the pattern of the block-diagonal matrix of its items.
    pub fn pattern(&self) -> &Pattern {
        &self.structure.pattern
    }

    /// Rows and columns; of a batch, items, rows and columns.
    pub fn shape(&self) -> [usize; D] {
        self.structure.shape
    }

    /// The number of stored values: of parameters, for Burn.
    pub fn nnz(&self) -> usize {
        self.pattern().nnz()
    }

    /// The stored values, as the parameter that optimizers see.
    pub fn values(&self) -> &Param<Tensor<1>> {
        &self.values
    }

    /// What optimizers, records and parameter groups know the parameter by.
    pub fn id(&self) -> ParamId {
        self.values.id
    }

    /// The gradient at this pattern. `None` if the parameter does not train or had no part in the loss.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex().autodiff();
    /// let param = SparseParam::new(SparseTensor::eye(2, &device)?);
    /// let grads = param.val().matmul(Tensor::<2>::ones([2, 5], &device)).sum().backward();
    /// let grad = param.grad(&grads).unwrap();
    /// assert_eq!(grad.triplets()?.collect::<Vec<_>>(), [(0, 0, 5.0), (1, 1, 5.0)]);
    /// # Ok::<(), TensorError>(())
    /// ```
    pub fn grad(&self, grads: &Gradients) -> Option<SparseTensor<D>> {
        Some(self.with(self.values.grad(grads)?))
    }

    /// The parameter with what a function makes of its tensor: other values, another pattern (pruning, growth), another
    /// format. The function computes outside of the graph; whether the parameter trains stays as it is.
    ///
    /// With the same pattern it stays the same parameter, [`id`](Self::id) and all. With another it gets a **new id**: what an optimizer
    /// remembers of each value (Adam's moments) belongs to entries that are elsewhere now, so it starts afresh.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex().autodiff();
    /// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 0.1, 5.0], [2, 3], &device)?;
    /// let param = SparseParam::new(a);
    /// let pruned = param.map(|a| SparseTensor::from_dense(a.to_dense(), 1.0).unwrap());
    /// assert_eq!(pruned.nnz(), 2);
    /// assert!(pruned.values().is_require_grad());
    /// # Ok::<(), TensorError>(())
    /// ```
    ///
    /// # Panics
    /// As [`val`](Self::val).
    #[track_caller]
    pub fn map(self, map: impl FnOnce(SparseTensor<D>) -> SparseTensor<D>) -> Self {
        let trains = trains(&self.values);
        let untracked = |values: Tensor<1>| values.detach().set_require_grad(false);
        let tensor = self.val().map_values(untracked);
        let SparseTensor { pattern, shape, values } = map(tensor);
        let new = Structure { pattern, shape };
        // The old one of two equal ones: it has the plans.
        let (structure, id) = match new == self.structure {
            true => (self.structure, self.values.id),
            false => (new, ParamId::new()),
        };
        Self { structure, values: Param::initialized(id, values.detach()).set_require_grad(trains) }
    }

    /// Replaces pattern and values, as [`map`](Self::map) does.
    ///
    /// # Panics
    /// As [`val`](Self::val).
    #[track_caller]
    pub fn set(&mut self, tensor: SparseTensor<D>) {
        *self = self.clone().map(|_| tensor);
    }

    /// What is wrong with the type of the values, if a mapper has changed it.
    fn fault(&self) -> Option<String> {
        let (dtype, device) = (self.values.dtype(), self.values.device());
        let fine = matches!(dtype, DType::QFloat(_)) || supported(dtype, &device);
        let device = device_name(&device);
        (!fine).then(|| format!("values of type {dtype:?} are not supported on {device}"))
    }
}

impl<const D: usize> From<SparseTensor<D>> for SparseParam<D> {
    /// The same as [`new`](SparseParam::new).
    fn from(tensor: SparseTensor<D>) -> Self {
        Self::new(tensor)
    }
}

/// Whether a parameter trains, or will after `Module::train`. Burn keeps that to itself: this asks the parameter that `train` makes.
fn trains(values: &Param<Tensor<1>>) -> bool {
    values.valid().train().is_require_grad()
}

/// A parameter for so many values that a loader brings: with the id of `values`, on their device, trained if they are. It
/// holds nothing but a type until then.
fn awaited(values: &Param<Tensor<1>>, length: usize) -> Param<Tensor<1>> {
    let dtype = match values.dtype() {
        DType::QFloat(_) => DType::F32,
        dtype => dtype,
    };
    let nothing = move |device: &Device, _| Tensor::zeros([0], (device, dtype));
    let (device, trains) = (values.device(), trains(values));
    Param::uninitialized(values.id, nothing, device, trains, [length].into())
}

impl<const D: usize> Module for SparseParam<D> {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        Place::of(&self.values).visit(&self.structure, visitor);
        self.values.visit(visitor);
    }

    /// See the type's documentation for what a loader does to pattern and values.
    ///
    /// # Panics
    /// If the mapper changes the number of values. Use [`SparseParam::map`] for another pattern.
    #[track_caller]
    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let Self { structure, values } = self;
        let place = Place::of(&values);
        let mapped = match place.map(&structure, mapper) {
            // Without a pattern for them, the values are not asked for: a loader then reports them as unused.
            Mapped::Refused => return Self { structure, values },
            Mapped::Loaded(loaded) if loaded != structure => {
                let stored = loaded.pattern.nnz();
                let new = Module::map(awaited(&values, stored), mapper);
                if !new.is_initialized() || new.lazy_shape().num_elements() != stored {
                    return Self { structure, values };
                }
                Self { structure: loaded, values: new }
            }
            _ => Self { structure, values: Module::map(values, mapper) },
        };
        let (found, stored) = (mapped.values.lazy_shape().num_elements(), mapped.nnz());
        assert!(
            found == stored,
            "SparseParam: a mapper made {found} values of {stored} (to change the pattern, use `SparseParam::map`)"
        );
        if let Some(fault) = mapped.fault() {
            place.refuse(&fault, mapper);
        }
        mapped
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        self.values.collect_devices(devices)
    }

    fn to_device(self, device: &Device) -> Self {
        Self { values: Module::to_device(self.values, device), ..self }
    }

    fn fork(self, device: &Device) -> Self {
        Self { values: self.values.fork(device), ..self }
    }

    fn valid(&self) -> Self {
        Self { values: self.values.valid(), structure: self.structure.clone() }
    }

    fn train(self) -> Self {
        Self { values: self.values.train(), ..self }
    }

    fn materialize(self) -> Self {
        Self { values: self.values.materialize(), ..self }
    }
}

impl<const D: usize> ModuleDisplayDefault for SparseParam<D> {
    fn content(&self, content: Content) -> Option<Content> {
        let id = match content.display_settings.show_param_id() {
            true => format!(", id: {}", self.id()),
            false => String::new(),
        };
        let (shape, nnz) = (self.shape(), self.nnz());
        let format = self.pattern().format();
        let format = format.name().map_or(format.to_string(), String::from);
        content.add_formatted(&format!("SparseParam {{shape: {shape:?}, nnz: {nnz}, format: {format}{id}}}")).optional()
    }
}

impl<const D: usize> ModuleDisplay for SparseParam<D> {}
