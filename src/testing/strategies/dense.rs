use super::{matrices::matrix, value};
use crate::io::HostMatrix;
use burn::tensor::{DType, Tensor, TensorCreationOptions, TensorData};
use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;

/// How a dense matrix lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Row by row.
    Contiguous,
    /// Column by column.
    Transposed,
    /// The inner columns of a wider matrix, whose other elements are NaN.
    Columns,
    /// The lower rows of a higher matrix, whose other elements are NaN.
    Rows,
    /// One row, repeated with stride 0.
    Repeated,
}

/// A dense matrix in host memory, and how its tensor is to lie in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct HostDense {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// The elements, row by row.
    pub values: Vec<f64>,
    /// The layout of the tensor.
    pub view: View,
}

impl HostDense {
    /// The tensor: `on(&device)` in double precision, `on((&device, DType::F32))` in another type.
    ///
    /// # Panics
    /// If there are not as many values as elements.
    pub fn on(&self, options: impl Into<TensorCreationOptions>) -> Tensor<2> {
        let TensorCreationOptions { device, dtype } = options.into();
        let [n, k] = self.shape;
        assert_eq!(self.values.len(), n * k, "one value for each element");
        let filled = |rows: usize, columns: usize, at: &dyn Fn(usize, usize) -> f64| {
            let places = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
            let data = TensorData::new(places.map(|(i, j)| at(i, j)).collect(), [rows, columns]);
            Tensor::<2>::from_data(data, (&device, dtype.unwrap_or(DType::F64)))
        };
        let value = |i: usize, j: usize| self.values[i * k + j];
        match self.view {
            View::Repeated if n * k > 0 => filled(1, k, &value).expand([n, k]),
            View::Contiguous | View::Repeated => filled(n, k, &value),
            View::Transposed => filled(k, n, &|i, j| value(j, i)).transpose(),
            View::Columns => {
                let inside = |j: usize| (1..=k).contains(&j);
                filled(n, k + 3, &|i, j| if inside(j) { value(i, j - 1) } else { f64::NAN }).slice([0..n, 1..k + 1])
            }
            View::Rows => {
                filled(n + 2, k, &|i, j| if i >= 2 { value(i - 2, j) } else { f64::NAN }).slice([2..n + 2, 0..k])
            }
        }
    }
}

/// A dense matrix with sizes from these ranges and [`value`]s, in any layout.
///
/// ```
/// use sparsegrad::{prelude::*, testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}}};
///
/// TestRunner::default().run(&strategies::dense(0..9, 0..5), |b| {
///     prop_assert_eq!(b.on(&Device::flex()).dims(), b.shape);
///     Ok(())
/// }).unwrap();
/// ```
pub fn dense(rows: impl Into<SizeRange>, columns: impl Into<SizeRange>) -> impl Strategy<Value = HostDense> {
    dense_with(rows, columns, value())
}

/// [`dense`] with values of another strategy.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::dense_with(3, 0..5, strategies::hostile()), |b| {
///     prop_assert_eq!(b.shape[0], 3);
///     Ok(())
/// }).unwrap();
/// ```
pub fn dense_with(
    rows: impl Into<SizeRange>,
    columns: impl Into<SizeRange>,
    values: impl Strategy<Value = f64> + Clone,
) -> impl Strategy<Value = HostDense> {
    use View::{Columns, Contiguous, Repeated, Rows, Transposed};
    let size = |range: SizeRange| range.start()..=range.end_incl();
    let view = prop::sample::select(vec![Contiguous, Transposed, Columns, Rows, Repeated]);
    (size(rows.into()), size(columns.into()), view).prop_flat_map(move |(n, k, view)| {
        vec(values.clone(), n * k).prop_map(move |mut values| {
            if view == Repeated {
                for at in k..n * k {
                    values[at] = values[at - k];
                }
            }
            HostDense { shape: [n, k], values, view }
        })
    })
}

/// A [`matrix`] of `rows` x `inner` and a [`dense`] matrix of as many rows as it has columns, with `columns` columns.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::product(0..9, 0..9, 1..5), |(a, b)| {
///     prop_assert_eq!(a.shape()[1], b.shape[0]);
///     Ok(())
/// }).unwrap();
/// ```
pub fn product(
    rows: impl Into<SizeRange>,
    inner: impl Into<SizeRange>,
    columns: impl Into<SizeRange>,
) -> impl Strategy<Value = (HostMatrix, HostDense)> {
    let columns = columns.into();
    matrix(rows, inner).prop_flat_map(move |a| {
        let b = dense(a.shape()[1], columns.clone());
        (Just(a), b)
    })
}

/// A [`matrix`] of `rows` x `columns` and two [`dense`] matrices whose product has its shape, with `inner` columns each: X of
/// as many rows as it has rows, Y of as many rows as it has columns.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// TestRunner::default().run(&strategies::sampled(0..9, 0..9, 0..5), |(a, x, y)| {
///     prop_assert_eq!(a.shape(), [x.shape[0], y.shape[0]]);
///     prop_assert_eq!(x.shape[1], y.shape[1]);
///     Ok(())
/// }).unwrap();
/// ```
pub fn sampled(
    rows: impl Into<SizeRange>,
    columns: impl Into<SizeRange>,
    inner: impl Into<SizeRange>,
) -> impl Strategy<Value = (HostMatrix, HostDense, HostDense)> {
    let inner = inner.into();
    let inner = inner.start()..=inner.end_incl();
    (matrix(rows, columns), inner).prop_flat_map(|(a, k)| {
        let [m, n] = a.shape();
        (Just(a), dense(m, k), dense(n, k))
    })
}
