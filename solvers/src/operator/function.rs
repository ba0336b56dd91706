//! Matrix-free operators.

use super::{LinearOperator, Operator, Tags};
use burn::tensor::{DType, Device, Tensor};
use sparsegrad::SparseTensor;
use std::fmt;
use std::sync::Arc;

/// What a matrix-free operator is made of: tensors that may be tracked, which receive gradients, and that can be cut off
/// from the graph. Tensors, sparse tensors, and arrays, vectors and tuples of them.
pub trait Parameters: Clone + Send + Sync + 'static {
    /// The same numbers on the device without autodiff.
    fn untracked(&self) -> Self;
}

impl<const D: usize> Parameters for Tensor<D> {
    fn untracked(&self) -> Self {
        self.clone().inner()
    }
}

impl<const D: usize> Parameters for SparseTensor<D> {
    fn untracked(&self) -> Self {
        self.map_values(Tensor::inner)
    }
}

impl<P: Parameters> Parameters for Vec<P> {
    fn untracked(&self) -> Self {
        self.iter().map(P::untracked).collect()
    }
}

impl<P: Parameters, const N: usize> Parameters for [P; N] {
    fn untracked(&self) -> Self {
        self.each_ref().map(P::untracked)
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => { $(
        impl<$($name: Parameters),*> Parameters for ($($name,)*) {
            #[allow(non_snake_case, clippy::unused_unit, reason = "named after their types; there may be none")]
            fn untracked(&self) -> Self {
                let ($($name,)*) = self;
                ($($name.untracked(),)*)
            }
        }
    )* };
}
tuples!(() (A) (A B) (A B C) (A B C D));

/// A function of the parameters and of dense columns.
type Map<P> = Arc<dyn Fn(&P, Tensor<2>) -> Tensor<2> + Send + Sync>;

/// A matrix-free operator: a function of dense columns, and the function of its transpose.
///
/// Its parameters are explicit, so that a solver can iterate without a graph: the functions must read no tracked tensor
/// but those. Gradients reach the parameters through the functions themselves.
///
/// Whether the second function is the transpose of the first is for [`check_transpose`](super::check_transpose) to say.
///
/// ```
/// use sparsegrad::prelude::*;
/// use sparsegrad_solvers::operator::{FnOperator, LinearOperator};
///
/// let device = Device::flex();
/// let weights = Tensor::<1>::from_data([2.0, 3.0], &device);
/// let scale = |w: &Tensor<1>, x: Tensor<2>| x * w.clone().unsqueeze_dim(1);
/// let a = FnOperator::new([2, 2], DType::F32, &device, weights, scale, scale);
/// let y = a.apply(Tensor::from_data([[1.0], [1.0]], &device));
/// assert_eq!(y.to_data().try_to_vec::<f32>().unwrap(), [2.0, 3.0]);
/// ```
pub struct FnOperator<P> {
    shape: [usize; 2],
    items: usize,
    dtype: DType,
    device: Device,
    tags: Tags,
    parameters: P,
    apply: Map<P>,
    apply_transpose: Map<P>,
}

impl<P: Parameters> FnOperator<P> {
    /// An operator of `shape` m x n: `apply` maps n x k to m x k, and `apply_transpose` m x k to n x k, for every k.
    pub fn new(
        shape: [usize; 2],
        dtype: DType,
        device: &Device,
        parameters: P,
        apply: impl Fn(&P, Tensor<2>) -> Tensor<2> + Send + Sync + 'static,
        apply_transpose: impl Fn(&P, Tensor<2>) -> Tensor<2> + Send + Sync + 'static,
    ) -> Self {
        Self {
            shape,
            items: 1,
            dtype,
            device: device.clone(),
            tags: Tags::NONE,
            parameters,
            apply: Arc::new(apply),
            apply_transpose: Arc::new(apply_transpose),
        }
    }

    /// A symmetric operator, n x n, which is its own transpose.
    pub fn symmetric(
        n: usize,
        dtype: DType,
        device: &Device,
        parameters: P,
        apply: impl Fn(&P, Tensor<2>) -> Tensor<2> + Send + Sync + 'static,
    ) -> Self {
        let apply: Map<P> = Arc::new(apply);
        let (shape, device, apply_transpose) = ([n, n], device.clone(), apply.clone());
        Self { shape, items: 1, dtype, device, tags: Tags::SYMMETRIC, parameters, apply, apply_transpose }
    }

    /// With claims about it.
    pub fn tagged(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    /// As a batch of so many diagonal blocks of equal shape.
    ///
    /// # Panics
    /// If the shape does not divide so.
    #[track_caller]
    pub fn batched(self, items: usize) -> Self {
        let [m, n] = self.shape;
        let fits = items > 0 && m.is_multiple_of(items) && n.is_multiple_of(items);
        assert!(fits, "an operator of {m}x{n} does not divide into {items} blocks");
        Self { items, ..self }
    }

    /// The parameters.
    pub fn parameters(&self) -> &P {
        &self.parameters
    }
}

impl<P> fmt::Debug for FnOperator<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n] = self.shape;
        write!(f, "FnOperator({m}x{n}, {:?})", self.dtype)
    }
}

impl<P: Parameters> LinearOperator for FnOperator<P> {
    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn items(&self) -> usize {
        self.items
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn tags(&self) -> Tags {
        self.tags
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        (self.apply)(&self.parameters, x)
    }

    fn apply_transpose(&self, y: Tensor<2>) -> Tensor<2> {
        (self.apply_transpose)(&self.parameters, y)
    }

    fn detach(&self) -> Operator {
        Arc::new(Self {
            parameters: self.parameters.untracked(),
            device: self.device.clone().inner(),
            apply: self.apply.clone(),
            apply_transpose: self.apply_transpose.clone(),
            ..*self
        })
    }
}
