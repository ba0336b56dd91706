//! **reductions**: one number from the entries of each row, of each column or of the whole matrix; and **softmax**, which
//! normalises the entries of each row or column.
//!
//! | reduction f of the elements x of a row | its derivative at a stored x_e | nothing to reduce |
//! |---|---|---|
//! | sum | 1 | 0 |
//! | mean | 1 / count | 0 |
//! | max, min | 1 for the first extreme in storage order, else 0 | -inf, +inf |
//! | logsumexp, `log sum exp x` | `exp(x_e - f)` | -inf |
//! | norm L1, `sum abs x` | sign(x_e), 0 at 0 | 0 |
//! | norm L2, `sqrt(sum x^2)` | x_e / f, 0 where f is 0 | 0 |
//! | norm max, `max abs x` | sign(x_e) for the first largest, else 0 | 0 |
//!
//! | | |
//! |---|---|
//! | shapes | [`Per::Row`]: one result per row, of an m x n matrix `[m]`; [`Per::Column`]: `[n]`; [`Per::Matrix`]: `[1]`. Of a batch the same for each item: `[items, m]`, `[items, n]`, `[items, 1]` |
//! | formats | every format: columns are rows of the transposed view |
//! | dtypes | f32, f64; f16 and bf16 stored, computed in f32 and rounded once |
//! | absent entries | zeros of the matrix to `mean`, `max`, `min` and `logsumexp`; left out by their twins in `_stored`. The others can't tell |
//! | duplicates | summed first: the reductions are those of the matrix. Each duplicate gets the gradient of the sum in full |
//! | gradient | at the stored entries only, in their order; as functions that can be differentiated again in [`vjp`](crate::vjp) |
//! | NaN | a NaN among the elements makes the result NaN |
//! | reproducible | each result has one owner, in the order of storage of its row; a matrix is reduced by rows, then over their results |
//!
//! On the CPU (`exps.rs`) exponentials are vectors of polynomials, and short rows share them; on a GPU (`gpu.rs`) lanes share a row.
//!
//! Reference for the shifted exponentials: P. Blanchard, D. Higham, N. Higham, *Accurately computing the log-sum-exp and
//! softmax functions*, 2021.

pub(crate) mod backward;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
pub(crate) mod exp;
#[cfg(feature = "flex")]
mod exps;
#[cfg(feature = "cube")]
pub(crate) mod gpu;
mod gradient;
mod softmax;

pub(crate) use gradient::{gradient, softmax_gradient};

use crate::backend::check::{device_can, device_has_exp, expect};
#[cfg(feature = "flex")]
use crate::backend::flex::{self, with_float};
use crate::error::OpError;
use crate::pattern::Pattern;
#[cfg(feature = "flex")]
use crate::pattern::with_rows;
use crate::tensor::{SparseTensor, reshape};
use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{DType, FloatDType, Tensor, TensorData};

/// What is reduced to one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// The entries of each row: one result per row.
    Row,
    /// The entries of each column: one result per column.
    Column,
    /// All entries: one result, for each item of a batch.
    Matrix,
}

/// Norms of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Norm {
    /// The sum of the absolute values.
    L1,
    /// The Euclidean length. No square overflows or vanishes on the way.
    L2,
    /// The largest absolute value.
    Max,
}

/// A reduction of the stored elements of a row and of zeros for its absent ones, if `positions` says how many there are in
/// all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum divided by the number of elements.
    Mean {
        /// Stored and absent elements of a row.
        positions: Option<usize>,
    },
    /// The largest element.
    Max {
        /// Stored and absent elements of a row.
        positions: Option<usize>,
    },
    /// The smallest element.
    Min {
        /// Stored and absent elements of a row.
        positions: Option<usize>,
    },
    /// The logarithm of the sum of exponentials.
    LogSumExp {
        /// Stored and absent elements of a row.
        positions: Option<usize>,
    },
    /// A norm.
    Norm(Norm),
}

impl Reduction {
    /// Of the results of rows into one.
    fn over_rows(self) -> Self {
        match self {
            Self::Sum | Self::Mean { .. } => Self::Sum,
            Self::Max { .. } => Self::Max { positions: None },
            Self::Min { .. } => Self::Min { positions: None },
            Self::LogSumExp { .. } => Self::LogSumExp { positions: None },
            Self::Norm(_) => self,
        }
    }
}

/// A softmax over the entries of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// Its logarithm instead.
    pub log: bool,
}

/// The primitives, on backend tensors: m rows, `nnz` values. Nothing is larger than the values.
#[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff, Fusion: cfg(feature = "cube"))]
pub trait ReduceOps: Backend {
    /// One number a row: values `[nnz]`, result `[m]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from([pattern.shape()[0]]))]
    fn row_reduce(pattern: Pattern, values: FloatTensor<Self>, reduction: Reduction) -> FloatTensor<Self>;

    /// The gradient of the values, `[nnz]`, from that of the results, `[m]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn row_reduce_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reduction: Reduction,
    ) -> FloatTensor<Self>;

    /// The number of its row for each entry: rows `[m]`, result `[nnz]`.
    #[fusion(dtype = rows, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn row_expand(pattern: Pattern, rows: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The softmax of each row: values and result `[nnz]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn row_softmax(pattern: Pattern, values: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self>;

    /// The gradient of the values from that of their softmax, all `[nnz]`.
    #[fusion(dtype = values, shape = burn::tensor::Shape::from([pattern.nnz()]))]
    fn row_softmax_backward(
        pattern: Pattern,
        values: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self>;
}

/// The results of a reduction in the shape of its operand's rank: a vector, or one for each item of a batch.
pub trait Reduce {
    /// `Tensor<1>` of a matrix, `Tensor<2>` of a batch.
    type Output;

    /// The results, item after item, in that shape.
    #[doc(hidden)]
    fn reduced(&self, results: Tensor<1>) -> Self::Output;

    /// The shape of results, and the results item after item.
    #[doc(hidden)]
    fn flat(results: Self::Output) -> (Vec<usize>, Tensor<1>);
}

impl Reduce for SparseTensor<2> {
    type Output = Tensor<1>;

    fn reduced(&self, results: Tensor<1>) -> Tensor<1> {
        results
    }

    fn flat(results: Tensor<1>) -> (Vec<usize>, Tensor<1>) {
        (results.dims().to_vec(), results)
    }
}

impl Reduce for SparseTensor<3> {
    type Output = Tensor<2>;

    fn reduced(&self, results: Tensor<1>) -> Tensor<2> {
        let [items, m, n] = self.shape();
        let length = results.dims()[0];
        // Without items there is no result to tell rows from columns.
        let each = length.checked_div(items).unwrap_or(if length == m { m } else { n });
        reshape(results, [items, each])
    }

    fn flat(results: Tensor<2>) -> (Vec<usize>, Tensor<1>) {
        let [items, each] = results.dims();
        (vec![items, each], reshape(results, [items * each]))
    }
}

impl<const D: usize> SparseTensor<D>
where
    Self: Reduce,
{
    /// The sum of the elements.
    ///
    /// # Gradient
    /// Of each stored entry: that of its sum, duplicates each in full.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let device = Device::flex();
    /// let a = SparseTensor::from_triplets(&[0, 1, 1], &[2, 0, 2], &[3.0f32, 4.0, 5.0], [2, 3], &device)?;
    /// assert_eq!(a.sum(Per::Row).to_data().try_to_vec::<f32>().unwrap(), [3.0, 9.0]);
    /// assert_eq!(a.sum(Per::Column).to_data().try_to_vec::<f32>().unwrap(), [4.0, 0.0, 8.0]);
    /// assert_eq!(a.sum(Per::Matrix).to_data().try_to_vec::<f32>().unwrap(), [12.0]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn sum(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("sum", self, per, |_| Reduction::Sum))
    }

    /// The mean over all positions, absent ones as zeros: the mean of the dense matrix. 0 of nothing.
    ///
    /// # Gradient
    /// Of each stored entry: that of its mean, divided by the number of positions.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[2.0f32, 4.0], [2, 3], &Device::flex())?;
    /// assert_eq!(a.mean(Per::Row).to_data().try_to_vec::<f32>().unwrap(), [2.0, 0.0]);
    /// assert_eq!(a.mean_stored(Per::Row).to_data().try_to_vec::<f32>().unwrap(), [3.0, 0.0]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn mean(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("mean", self, per, |n| Reduction::Mean { positions: Some(n) }))
    }

    /// The mean over the stored positions, explicit zeros among them. 0 where nothing is stored, and no gradient then.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn mean_stored(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("mean_stored", self, per, |_| Reduction::Mean { positions: None }))
    }

    /// The largest element, absent ones being zeros. -inf only where there is no position at all.
    ///
    /// # Gradient
    /// To the first of the largest in storage order, where a stored zero goes before absent ones; none if it is an absent zero.
    /// Per matrix, the first row that has a largest decides. A NaN is the largest.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[-2.0f32, -4.0], [2, 3], &Device::flex())?;
    /// assert_eq!(a.max(Per::Row).to_data().try_to_vec::<f32>().unwrap(), [0.0, 0.0]);
    /// assert_eq!(a.max_stored(Per::Row).to_data().try_to_vec::<f32>().unwrap(), [-2.0, f32::NEG_INFINITY]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn max(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("max", self, per, |n| Reduction::Max { positions: Some(n) }))
    }

    /// The largest stored element, -inf where nothing is stored. Gradient as that of [`max`](Self::max).
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn max_stored(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("max_stored", self, per, |_| Reduction::Max { positions: None }))
    }

    /// The smallest element, absent ones being zeros. +inf only where there is no position at all.
    ///
    /// # Gradient
    /// As that of [`max`](Self::max).
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn min(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("min", self, per, |n| Reduction::Min { positions: Some(n) }))
    }

    /// The smallest stored element, +inf where nothing is stored. Gradient as that of [`max`](Self::max).
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn min_stored(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("min_stored", self, per, |_| Reduction::Min { positions: None }))
    }

    /// A norm of the elements; per matrix, that of all of them as one vector ([`Norm::L2`]: Frobenius).
    ///
    /// # Gradient
    /// At 0 it is 0, never NaN. Of [`Norm::Max`] to the first of the largest.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[3.0f32, -4.0], [2, 3], &Device::flex())?;
    /// assert_eq!(a.norm(Per::Row, Norm::L2).to_data().try_to_vec::<f32>().unwrap(), [5.0, 0.0]);
    /// assert_eq!(a.norm(Per::Matrix, Norm::L1).to_data().try_to_vec::<f32>().unwrap(), [7.0]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn norm(&self, per: Per, norm: Norm) -> <Self as Reduce>::Output {
        self.reduced(reduce("norm", self, per, |_| Reduction::Norm(norm)))
    }

    /// `log sum exp` of the elements, each absent one adding `exp(0) = 1`: that of the dense matrix. No exponential overflows.
    ///
    /// # Gradient
    /// Of each stored entry: that of its result, times `exp(x - result)`. 0 where the result is -inf; NaN where it is +inf,
    /// as in PyTorch.
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    ///
    /// ```
    /// use sparsegrad::prelude::*;
    ///
    /// let a = SparseTensor::from_triplets(&[0, 0], &[0, 1], &[1000.0f64, 1000.0], [2, 3], &Device::flex())?;
    /// let lse = a.logsumexp(Per::Row).to_data().try_to_vec::<f64>().unwrap();
    /// assert_eq!(lse, [1000.0 + 2f64.ln(), 3f64.ln()]);
    /// # Ok::<(), TensorError>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("logsumexp", self, per, |n| Reduction::LogSumExp { positions: Some(n) }))
    }

    /// `log sum exp` of the stored elements, -inf where nothing is stored. Gradient as that of
    /// [`logsumexp`](Self::logsumexp).
    ///
    /// # Panics
    /// If the device lacks the dtype or is too small for it.
    #[track_caller]
    pub fn logsumexp_stored(&self, per: Per) -> <Self as Reduce>::Output {
        self.reduced(reduce("logsumexp_stored", self, per, |_| Reduction::LogSumExp { positions: None }))
    }
}

/// `log sum exp` per row, column or matrix, absent entries as zeros or left out: [`SparseTensor::logsumexp`] or
/// [`logsumexp_stored`](SparseTensor::logsumexp_stored).
///
/// # Panics
/// If the device lacks the dtype or is too small for it.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let a = SparseTensor::from_triplets(&[0, 1, 1], &[1, 0, 2], &[1.0f64, 2.0, 3.0], [3, 3], &Device::flex())?;
/// let dense = sparse_logsumexp(&a, Per::Row, true).to_data().try_to_vec::<f64>().unwrap();
/// assert!((dense[0] - (1f64.exp() + 2.0).ln()).abs() < 1e-15);
/// let stored = sparse_logsumexp(&a, Per::Row, false).to_data().try_to_vec::<f64>().unwrap();
/// assert_eq!((stored[0], stored[2]), (1.0, f64::NEG_INFINITY));
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
pub fn sparse_logsumexp<const D: usize>(
    a: &SparseTensor<D>,
    per: Per,
    include_zeros: bool,
) -> <SparseTensor<D> as Reduce>::Output
where
    SparseTensor<D>: Reduce,
{
    if include_zeros { a.logsumexp(per) } else { a.logsumexp_stored(per) }
}

/// `log sum exp` per column and per row, in this order: for bidirectional contrastive losses. The gradient of a stored entry
/// is the sum of both.
///
/// # Panics
/// If the device lacks the dtype or is too small for it.
///
/// ```
/// use sparsegrad::prelude::*;
///
/// let a = SparseTensor::from_triplets(&[0, 1], &[1, 0], &[1.0, 2.0], [2, 3], &Device::flex())?;
/// let (columns, rows) = sparse_bidir_logsumexp(&a, true);
/// assert_eq!((columns.dims(), rows.dims()), ([3], [2]));
/// # Ok::<(), TensorError>(())
/// ```
#[track_caller]
#[allow(clippy::type_complexity, reason = "two results of the same type")]
pub fn sparse_bidir_logsumexp<const D: usize>(
    a: &SparseTensor<D>,
    include_zeros: bool,
) -> (<SparseTensor<D> as Reduce>::Output, <SparseTensor<D> as Reduce>::Output)
where
    SparseTensor<D>: Reduce,
{
    (sparse_logsumexp(a, Per::Column, include_zeros), sparse_logsumexp(a, Per::Row, include_zeros))
}

/// The results of one reduction, item after item. `of` takes the number of positions of a row or column.
#[track_caller]
fn reduce<const D: usize>(
    op: &'static str,
    a: &SparseTensor<D>,
    per: Per,
    of: impl Fn(usize) -> Reduction,
) -> Tensor<1> {
    let summed = matches!(of(0), Reduction::Sum | Reduction::Mean { positions: Some(_) });
    let a = if a.pattern().has_duplicates() && !summed { a.coalesce() } else { a.clone() };
    let [m, n] = [a.shape()[D - 2], a.shape()[D - 1]];
    let (pattern, values) = (a.pattern(), a.values().clone());
    expect(can(op, &values, pattern, per, of(0)));
    match per {
        Per::Row => row_reduce(pattern, values, of(n)),
        Per::Column => row_reduce(&pattern.t(), values, of(m)),
        Per::Matrix => {
            let items: usize = a.shape()[..D - 2].iter().product();
            // The results of rows are not rounded on the way.
            let dtype = values.dtype();
            let narrow = matches!(dtype, DType::F16 | DType::BF16);
            let values = if narrow { values.cast(FloatDType::F32) } else { values };
            let by_row = match of(n) {
                Reduction::Mean { .. } => Reduction::Sum,
                other => other,
            };
            let of_rows = row_reduce(pattern, values, by_row);
            let all = row_reduce(&pattern.rows_together(items), of_rows, by_row.over_rows());
            let counts = match of(n) {
                Reduction::Mean { positions: Some(_) } => vec![m as f64 * n as f64; items],
                Reduction::Mean { positions: None } => {
                    pattern.entries_of_items(items).into_iter().map(|count| count as f64).collect()
                }
                _ => vec![],
            };
            let all = if counts.is_empty() {
                all
            } else {
                // By a tensor: the gradient of Burn's division by a number is that of an f32.
                let counts: Vec<f64> = counts.into_iter().map(|count| count.max(1.0)).collect();
                all.clone() / Tensor::from_data(TensorData::new(counts, [items]), (&all.device(), all.dtype()))
            };
            if narrow { all.cast(FloatDType::from(dtype)) } else { all }
        }
    }
}

/// Whether the device has what a reduction needs.
fn can(op: &'static str, values: &Tensor<1>, pattern: &Pattern, per: Per, reduction: Reduction) -> Result<(), OpError> {
    let [rows, columns] = pattern.shape();
    let results = if per == Per::Column { columns } else { rows };
    device_can(op, values, pattern, &[("the result", [1, results])])?;
    match reduction {
        Reduction::LogSumExp { .. } => device_has_exp(op, values),
        _ => Ok(()),
    }
}

fn row_reduce(pattern: &Pattern, values: Tensor<1>, reduction: Reduction) -> Tensor<1> {
    let values = values.into_dispatch();
    Tensor::from_dispatch(<Dispatch as ReduceOps>::row_reduce(pattern.clone(), values, reduction))
}

/// The number of its row for each entry.
pub(crate) fn expand(pattern: &Pattern, rows: Tensor<1>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as ReduceOps>::row_expand(pattern.clone(), rows.into_dispatch()))
}

#[cfg(feature = "flex")]
impl ReduceOps for burn::backend::Flex {
    fn row_reduce(pattern: Pattern, mut values: FloatTensor<Self>, reduction: Reduction) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes one number for every row.
                unsafe { flex::filled([rows.n_rows()].into(), |out| cpu::reduce(rows, values, reduction, out)) }
            })
        })
    }

    fn row_reduce_backward(
        pattern: Pattern,
        mut values: FloatTensor<Self>,
        mut grad: FloatTensor<Self>,
        reduction: Reduction,
    ) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let (values, grad) = (flex::values::<E>(&mut values), flex::values::<E>(&mut grad));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every value.
                unsafe {
                    flex::filled([pattern.nnz()].into(), |out| cpu::derive(rows, values, grad, reduction, out))
                }
            })
        })
    }

    fn row_expand(pattern: Pattern, mut of_rows: FloatTensor<Self>) -> FloatTensor<Self> {
        with_float!(of_rows.dtype(), E => {
            let of_rows = flex::values::<E>(&mut of_rows);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every value.
                unsafe { flex::filled([pattern.nnz()].into(), |out| cpu::expand(rows, of_rows, out)) }
            })
        })
    }

    fn row_softmax(pattern: Pattern, mut values: FloatTensor<Self>, softmax: Softmax) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let values = flex::values::<E>(&mut values);
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every value.
                unsafe { flex::filled([pattern.nnz()].into(), |out| cpu::softmax(rows, values, softmax, out)) }
            })
        })
    }

    fn row_softmax_backward(
        pattern: Pattern,
        mut values: FloatTensor<Self>,
        mut grad: FloatTensor<Self>,
        softmax: Softmax,
    ) -> FloatTensor<Self> {
        with_float!(values.dtype(), E => {
            let (values, grad) = (flex::values::<E>(&mut values), flex::values::<E>(&mut grad));
            with_rows!(pattern.rows(), rows => {
                // SAFETY: the kernel writes every value.
                unsafe {
                    flex::filled([pattern.nnz()].into(), |out| {
                        cpu::softmax_backward(rows, values, grad, softmax, out)
                    })
                }
            })
        })
    }
}
