//! Between tensors of vectors, `[*samples, *batch, n]`, and the columns that sparse operations take.
//!
//! Columns are `M x S x I`: where all items share a factor, M = n, and the items I are columns beside the samples S; where each
//! has its own, the items are below each other, M = items x n, as in the block-diagonal factor, and I = 1.

use super::{Factor, SparseMultivariateNormal};
use burn::tensor::Tensor;
use sparsegrad::internals::reshape;

/// Tensors of vectors, the vectors in their last dimension.
pub trait Vectors {
    /// One number for each vector. Of a single vector, a tensor of one number.
    type Reduced;

    /// The numbers in a tensor of the leading dimensions.
    #[doc(hidden)]
    fn reduced(numbers: Tensor<1>, leading: &[usize]) -> Self::Reduced;
}

impl Vectors for Tensor<1> {
    type Reduced = Tensor<1>;

    fn reduced(numbers: Tensor<1>, _: &[usize]) -> Tensor<1> {
        numbers
    }
}

macro_rules! vectors {
    ($($rank:literal => $reduced:literal),*) => { $(
        impl Vectors for Tensor<$rank> {
            type Reduced = Tensor<$reduced>;

            fn reduced(numbers: Tensor<1>, leading: &[usize]) -> Tensor<$reduced> {
                let shape: [usize; $reduced] = leading.try_into().expect("a number for each vector");
                reshape(numbers, shape)
            }
        }
    )* };
}
vectors!(2 => 1, 3 => 2, 4 => 3, 5 => 4, 6 => 5, 7 => 6, 8 => 7);

/// The shape of samples, for distributions of rank `D`.
pub trait SampleShape<const D: usize> {
    /// A tensor of `[*samples, *batch, n]`.
    type Samples;

    /// The sizes.
    #[doc(hidden)]
    fn sizes(&self) -> &[usize];

    /// Columns as samples.
    #[doc(hidden)]
    fn samples(&self, of: &SparseMultivariateNormal<D>, columns: Tensor<3>) -> Self::Samples;

    /// Rows as samples: vectors of `[*samples, *batch]`, one below the other.
    #[doc(hidden)]
    fn shaped(&self, of: &SparseMultivariateNormal<D>, rows: Tensor<2>) -> Self::Samples;
}

macro_rules! sample_shapes {
    ($($samples:literal + $rank:literal = $sum:literal,)*) => { $(
        impl SampleShape<$rank> for [usize; $samples] {
            type Samples = Tensor<$sum>;

            fn sizes(&self) -> &[usize] {
                self
            }

            fn samples(&self, of: &SparseMultivariateNormal<$rank>, columns: Tensor<3>) -> Tensor<$sum> {
                of.vectors(columns, self)
            }

            fn shaped(&self, of: &SparseMultivariateNormal<$rank>, rows: Tensor<2>) -> Tensor<$sum> {
                let shape = [&self[..], &of.loc.dims()].concat();
                reshape(rows, <[usize; $sum]>::try_from(shape).expect("samples and batch make up the rank"))
            }
        }
    )* };
}
sample_shapes! {
    0 + 1 = 1, 1 + 1 = 2, 2 + 1 = 3, 3 + 1 = 4, 4 + 1 = 5, 5 + 1 = 6, 6 + 1 = 7, 7 + 1 = 8,
    0 + 2 = 2, 1 + 2 = 3, 2 + 2 = 4, 3 + 2 = 5, 4 + 2 = 6, 5 + 2 = 7, 6 + 2 = 8,
    0 + 3 = 3, 1 + 3 = 4, 2 + 3 = 5, 3 + 3 = 6, 4 + 3 = 7, 5 + 3 = 8,
    0 + 4 = 4, 1 + 4 = 5, 2 + 4 = 6, 3 + 4 = 7, 4 + 4 = 8,
    0 + 5 = 5, 1 + 5 = 6, 2 + 5 = 7, 3 + 5 = 8,
    0 + 6 = 6, 1 + 6 = 7, 2 + 6 = 8,
    0 + 7 = 7, 1 + 7 = 8,
    0 + 8 = 8,
}

/// Burn's `expand`, which refuses sizes of 0.
pub(super) fn expand<const D: usize>(tensor: Tensor<D>, shape: [usize; D]) -> Tensor<D> {
    if tensor.dims() == shape {
        tensor
    } else if shape.contains(&0) {
        Tensor::zeros(shape, (&tensor.device(), tensor.dtype()))
    } else {
        tensor.expand(shape)
    }
}

/// M x S x I as M x (S I).
pub(super) fn flat(columns: Tensor<3>) -> Tensor<2> {
    let [m, s, i] = columns.dims();
    reshape(columns, [m, s * i])
}

/// M x (S I) as M x S x I.
pub(super) fn unflat(flat: Tensor<2>, [s, i]: [usize; 2]) -> Tensor<3> {
    let [m, _] = flat.dims();
    reshape(flat, [m, s, i])
}

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The shape of so many columns a vector: M x S x I.
    pub(super) fn column_shape(&self, samples: usize) -> [usize; 3] {
        let (n, items) = (self.event_size(), self.items());
        match self.factor {
            Factor::Shared(_) => [n, samples, items],
            Factor::Each(_) => [items * n, samples, 1],
        }
    }

    /// S x items x n as columns. S or items may be 1 for all.
    pub(super) fn columns(&self, vectors: Tensor<3>) -> Tensor<3> {
        match self.factor {
            Factor::Shared(_) => vectors.permute([2, 0, 1]),
            Factor::Each(_) => {
                let [s, _, n] = vectors.dims();
                let vectors = expand(vectors, [s, self.items(), n]);
                reshape(vectors.permute([1, 2, 0]), [self.items() * n, s, 1])
            }
        }
    }

    /// Columns as S x items x n.
    pub(super) fn rows(&self, columns: Tensor<3>) -> Tensor<3> {
        let [m, s, _] = columns.dims();
        let items = self.items();
        match self.factor {
            Factor::Shared(_) => columns.permute([1, 2, 0]),
            Factor::Each(_) => reshape(columns, [items, m / items.max(1), s]).permute([2, 0, 1]),
        }
    }

    /// Columns as `[*samples, *batch, n]`: another view of them, no copy.
    pub(super) fn vectors<const R: usize>(&self, columns: Tensor<3>, samples: &[usize]) -> Tensor<R> {
        let (n, batch) = (self.event_size(), self.batch_shape());
        let (s, b) = (samples.len() as isize, batch.len() as isize);
        let (shape, axes): (Vec<usize>, Vec<isize>) = match self.factor {
            Factor::Shared(_) => ([&[n][..], samples, &batch].concat(), (1..=s + b).chain([0]).collect()),
            Factor::Each(_) => ([&batch[..], &[n], samples].concat(), (b + 1..=b + s).chain(0..=b).collect()),
        };
        let rank = "samples and batch make up the rank";
        reshape(columns, <[usize; R]>::try_from(shape).expect(rank)).permute(<[isize; R]>::try_from(axes).expect(rank))
    }

    /// The diagonal as columns.
    pub(super) fn diagonal_columns(&self) -> Option<Tensor<3>> {
        self.diagonal.clone().map(|diagonal| self.columns(diagonal))
    }

    /// The location as 1 x items x n.
    pub(super) fn locations(&self) -> Tensor<3> {
        reshape(self.loc.clone(), [1, self.items(), self.event_size()])
    }

    /// The sums of squares of the vectors in columns: S x items.
    pub(super) fn squares(&self, columns: Tensor<3>) -> Tensor<2> {
        let [_, s, _] = columns.dims();
        let squares = columns.clone() * columns;
        match self.factor {
            Factor::Shared(_) => reshape(squares.sum_dim(0), [s, self.items()]),
            Factor::Each(_) => {
                let each = reshape(squares, [self.items(), self.event_size(), s]);
                reshape(each.sum_dim(1), [self.items(), s]).transpose()
            }
        }
    }
}
