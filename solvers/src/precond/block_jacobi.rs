use super::steps::{Step, Steps};
use super::{Inverse, Preconditioner, PreconditionerError, entries};
use crate::host::vector;
use crate::operator::{LinearOperator, Tags};
use sparsegrad::{Pattern, SparseTensor};

/// The dense blocks of A along its diagonal, inverted.
///
/// For problems with several unknowns at each node, numbered together. The size must divide that of the matrix (of an item,
/// in a batch).
///
/// # Errors
/// A size that does not divide the matrix, or a singular block.
#[derive(Debug, Clone, Copy)]
pub struct BlockJacobi {
    size: usize,
}

const NAME: &str = "block Jacobi";

impl BlockJacobi {
    /// Blocks of `size` rows and columns.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn new(size: usize) -> Self {
        assert!(size > 0, "block Jacobi: blocks of 0 rows");
        Self { size }
    }
}

impl Preconditioner for BlockJacobi {
    fn build(&self, a: &dyn LinearOperator) -> Result<Inverse, PreconditionerError> {
        let matrix = entries(NAME, a)?;
        let ([n, _], block) = (matrix.shape(), self.size);
        let rows = n / matrix.items;
        if rows % block != 0 {
            return Err(PreconditionerError::BlockSize { preconditioner: NAME, block, rows });
        }
        let mut values = Vec::with_capacity(n * block);
        for first in (0..n).step_by(block) {
            let mut dense = vec![0.0; block * block];
            for row in first..first + block {
                for entry in matrix.row(row) {
                    let column = matrix.columns[entry];
                    if (first..first + block).contains(&column) {
                        dense[(row - first) * block + column - first] = matrix.values[entry];
                    }
                }
            }
            let singular = || PreconditionerError::SingularBlock { preconditioner: NAME, row: first, block };
            values.extend(inverse(dense, block).ok_or_else(singular)?);
        }
        let offsets: Vec<usize> = (0..=n).map(|row| row * block).collect();
        let columns: Vec<usize> = (0..n * block).map(|at| at / block / block * block + at % block).collect();
        let pattern = Pattern::csr(offsets, columns, [n, n]).expect("a valid pattern");
        let values = vector(values, a.dtype(), &a.device());
        let inverse = SparseTensor::new(pattern, values).expect("one value for each entry");
        let tags = Tags { symmetric: a.tags().symmetric, positive_definite: a.tags().positive_definite, ..Tags::NONE };
        Ok(Steps::like(a, vec![Step::Multiply(inverse)], tags).into())
    }
}

/// The inverse of a small dense matrix, by Gauss-Jordan elimination with pivots of largest absolute value in their column.
fn inverse(mut a: Vec<f64>, n: usize) -> Option<Vec<f64>> {
    let mut b = vec![0.0; n * n];
    (0..n).for_each(|at| b[at * n + at] = 1.0);
    for step in 0..n {
        let pivot = (step..n).max_by(|&i, &j| a[i * n + step].abs().total_cmp(&a[j * n + step].abs()))?;
        for column in 0..n {
            a.swap(step * n + column, pivot * n + column);
            b.swap(step * n + column, pivot * n + column);
        }
        let scale = a[step * n + step].recip();
        if !scale.is_finite() {
            return None;
        }
        for column in 0..n {
            a[step * n + column] *= scale;
            b[step * n + column] *= scale;
        }
        for row in (0..n).filter(|&row| row != step) {
            let factor = a[row * n + step];
            for column in 0..n {
                a[row * n + column] -= factor * a[step * n + column];
                b[row * n + column] -= factor * b[step * n + column];
            }
        }
    }
    b.iter().all(|value| value.is_finite()).then_some(b)
}
