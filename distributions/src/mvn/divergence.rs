//! The Kullback-Leibler divergence.

use super::layout::expand;
use super::{Factor, MvnError, SparseMultivariateNormal, Vectors};
use crate::NormalRng;
use burn::tensor::{FloatDType, Tensor};
use sparsegrad::internals::reshape;
use sparsegrad::{Per, spgemm};

/// How the trace of `precision_q covariance_p` is found.
///
/// It is the sum of the squares of a matrix that is sparse if p has a covariance form and q a precision form: then a sparse
/// product gives it, whatever is asked for here. Otherwise the matrix is a product with an inverse, and dense.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trace {
    /// Exactly for events of up to 2048 numbers, by 64 probes of seed 0 for larger ones.
    #[default]
    Auto,
    /// Exactly, by a dense n x n matrix.
    Exact,
    /// By the estimator of Hutchinson, `mean |B A z|^2` over probes z of random signs: unbiased, with a variance of at most twice the
    /// squared Frobenius norm of the matrix over their number.
    Probes {
        /// How many.
        count: usize,
        /// What their signs are made from.
        seed: u64,
    },
    /// Only if it is sparse: an error otherwise.
    Sparse,
}

impl<const D: usize> SparseMultivariateNormal<D> {
    /// The Kullback-Leibler divergence from `other` (q) to this distribution (p), `E_p[log p - log q]`: of the batch's shape, one
    /// number without a batch.
    ///
    /// `(tr(precision_q covariance_p) + |whitened_q (loc_p - loc_q)|^2 - n + log det_q - log det_p) / 2`, with the trace by
    /// [`Trace::Auto`].
    ///
    /// # Panics
    /// Where [`try_kl_divergence`](Self::try_kl_divergence) returns an error.
    #[track_caller]
    pub fn kl_divergence(&self, other: &Self) -> <Tensor<D> as Vectors>::Reduced
    where
        Tensor<D>: Vectors,
    {
        self.try_kl_divergence(other, Trace::Auto).unwrap_or_else(|error| panic!("kl_divergence: {error}"))
    }

    /// [`kl_divergence`](Self::kl_divergence), with the trace as asked for.
    ///
    /// Reference: M. F. Hutchinson, *A stochastic estimator of the trace of the influence matrix*, 1990.
    ///
    /// # Errors
    /// If the locations are of different shapes; if a trace that must be sparse isn't.
    pub fn try_kl_divergence(&self, other: &Self, trace: Trace) -> Result<<Tensor<D> as Vectors>::Reduced, MvnError>
    where
        Tensor<D>: Vectors,
    {
        let (left, right) = (self.loc.dims(), other.loc.dims());
        if left != right {
            let (left, right) = (left.to_vec(), right.to_vec());
            return Err(MvnError::Distributions { op: "kl_divergence", left, right });
        }
        let (distances, _) = other.distances("kl_divergence", self.loc.clone())?;
        let distances = reshape(distances, [self.items()]);
        let determinants = other.log_dets() - self.log_dets();
        let traces = self.traces(other, trace)?;
        let n = self.event_size() as f64;
        Ok(self.of_items((traces + distances + determinants).add_scalar(-n).mul_scalar(0.5)))
    }

    /// tr(precision_q covariance_p) of each item, p this distribution and q the other.
    fn traces(&self, other: &Self, trace: Trace) -> Result<Tensor<1>, MvnError> {
        /// The largest event whose n x n matrix `Auto` makes.
        const SMALL: usize = 2048;
        if let Some(traces) = self.sparse_traces(other)? {
            return Ok(traces);
        }
        let n = self.event_size();
        match trace {
            Trace::Sparse => {
                let reason = "against this other one has a dense trace: ask for probes, or for an exact one";
                Err(MvnError::Form { what: "the divergence", form: self.form, reason })
            }
            Trace::Probes { count, seed } => self.probed_traces(other, count, seed),
            Trace::Auto if n > SMALL => self.probed_traces(other, 64, 0),
            _ => {
                let units = Tensor::<2>::eye(n, &self.device()).cast(FloatDType::from(self.dtype()));
                let sums = self.mapped(other, reshape(units, [n, 1, n]))?.sum_dim(0);
                Ok(reshape(sums, [self.items()]))
            }
        }
    }

    /// The trace as the squares of a sparse product, where it is one: `|R_q^T R_p|^2`.
    fn sparse_traces(&self, other: &Self) -> Result<Option<Tensor<1>>, MvnError> {
        let alike = matches!(
            (&self.factor, &other.factor),
            (Factor::Shared(_), Factor::Shared(_)) | (Factor::Each(_), Factor::Each(_))
        );
        if self.form.is_precision() || !other.form.is_precision() || !alike {
            return Ok(None);
        }
        let (Ok(p), Ok(q)) = (self.root("the divergence"), other.root("the divergence")) else {
            return Ok(None); // one factor and many diagonals
        };
        let squares = spgemm(&q.t().to_csr(), &p.to_csr()).powi(2);
        let rows = squares.sum(Per::Row);
        let sums = match self.factor {
            Factor::Shared(_) => expand(rows.sum(), [self.items()]),
            Factor::Each(_) => reshape(reshape(rows, [self.items(), self.event_size()]).sum_dim(1), [self.items()]),
        };
        Ok(Some(sums))
    }

    fn probed_traces(&self, other: &Self, count: usize, seed: u64) -> Result<Tensor<1>, MvnError> {
        let shape = [count, self.items(), self.event_size()];
        let noise = NormalRng::seeded(seed).tensor::<3>(shape, self.dtype(), &self.device());
        let signs = noise.sign();
        let squares = self.mapped(other, signs)?;
        Ok(reshape(squares.mean_dim(0), [self.items()]))
    }

    /// `|B_q A_p z|^2` of vectors z, S x items (or 1) x n: S x items.
    fn mapped(&self, other: &Self, vectors: Tensor<3>) -> Result<Tensor<2>, MvnError> {
        let [s, _, n] = vectors.dims();
        let vectors = expand(vectors, [s, self.items(), n]);
        let coloured = self.rows(self.colour(self.columns(vectors))?);
        Ok(other.squares(other.whiten(other.columns(coloured))?))
    }
}
