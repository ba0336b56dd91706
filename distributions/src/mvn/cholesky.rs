//! The factor of a sparse matrix, its rows in their order, with gradients.
//!
//! faer factorises. Its gradient goes back through the columns of the factor, from the last to the first: what column j was made of,
//! the columns k of the entries `L_jk`, gets what column j passes on.
//!
//! Reference: S. P. Smith, *Differentiation of the Cholesky algorithm*, 1995.

use super::MvnError;
use burn::tensor::{Tensor, TensorData};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::LltError;
use faer::sparse::linalg::SupernodalThreshold;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, SymbolicCholeskyRaw, SymmetricOrdering, factorize_symbolic_cholesky,
};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Par, Side};
use sparsegrad::internals::{read, reshape};
use sparsegrad::{Pattern, SparseTensor};
use sparsegrad_solvers::internals::{lifted, node, plain};

/// L with `L L^T` = the matrix, which is symmetric and positive definite, with every entry once. Its lower triangle is read, and gets the
/// gradient. On the host, in f64.
pub(super) fn cholesky(matrix: &SparseTensor<2>) -> Result<SparseTensor<2>, MvnError> {
    let matrix = matrix.to_csr();
    let ([n, _], device) = (matrix.shape(), matrix.device());
    let (rows, columns) = matrix.pattern().coordinates();
    let numbers = read(plain(matrix.values().clone()))?;
    // The rows of the matrix are faer's columns, so that its upper triangle is our lower one. Nothing else may be there.
    let (mut offsets, mut lower, mut values) = (vec![0; n + 1], vec![], vec![]);
    for ((&row, &column), &number) in rows.iter().zip(&columns).zip(&numbers).filter(|((row, column), _)| column <= row)
    {
        offsets[row + 1] += 1;
        lower.push(column);
        values.push(number);
    }
    (0..n).for_each(|row| offsets[row + 1] += offsets[row]);

    let pattern = SymbolicSparseColMatRef::new_checked(n, n, &offsets, None, &lower);
    let params = CholeskySymbolicParams {
        supernodal_flop_ratio_threshold: SupernodalThreshold::FORCE_SIMPLICIAL,
        ..Default::default()
    };
    let symbolic = factorize_symbolic_cholesky(pattern, Side::Upper, SymmetricOrdering::Identity, params)
        .expect("indices fit, and memory is there");
    let mut factor = vec![0.0; symbolic.len_val()];
    let par = Par::Seq;
    let mut memory = MemBuffer::new(symbolic.factorize_numeric_llt_scratch::<f64>(par, Default::default()));
    let (a, memory) = (SparseColMatRef::new(pattern, &values), MemStack::new(&mut memory));
    symbolic
        .factorize_numeric_llt(&mut factor, a, Side::Upper, Default::default(), par, memory, Default::default())
        .map_err(|LltError::NonPositivePivot { index }| MvnError::Indefinite { row: index - 1 })?;
    let SymbolicCholeskyRaw::Simplicial(of_factor) = symbolic.raw() else { unreachable!("it was asked for") };
    let columns_of_factor =
        Columns { offsets: of_factor.col_ptr().to_vec(), rows: of_factor.row_idx().to_vec(), values: factor };

    let pattern = Pattern::csc(columns_of_factor.offsets.clone(), columns_of_factor.rows.clone(), [n, n])
        .map_err(sparsegrad::error::TensorError::from)?;
    let count = columns_of_factor.values.len();
    let data = TensorData::new(columns_of_factor.values.clone(), [count, 1]);
    let found = Tensor::from_data(data, (&device.clone().inner(), matrix.dtype()));
    let operand = reshape(matrix.values().clone(), [columns.len(), 1]);
    let found = node(lifted(found, &device), operand, move |grad| {
        let (device, dtype) = (grad.device(), grad.dtype());
        let grad = read(reshape(grad, [count])).expect("a gradient that can be read");
        let back = columns_of_factor.backward(grad);
        let of_entry =
            |(&row, &column): (&usize, &usize)| columns_of_factor.place(row, column).map_or(0.0, |at| back[at]);
        let of_entries: Vec<f64> = rows.iter().zip(&columns).map(of_entry).collect();
        Tensor::from_data(TensorData::new(of_entries, [columns.len(), 1]), (&device, dtype))
    });
    Ok(SparseTensor::new(pattern, reshape(found, [count]))?)
}

/// A lower triangular matrix by columns, rows ascending from the diagonal on.
struct Columns {
    offsets: Vec<usize>,
    rows: Vec<usize>,
    values: Vec<f64>,
}

impl Columns {
    /// Where an entry is.
    fn place(&self, row: usize, column: usize) -> Option<usize> {
        let range = self.offsets[column]..self.offsets[column + 1];
        self.rows[range.clone()].binary_search(&row).ok().map(|at| range.start + at)
    }

    /// From the gradient of the factor to that of the lower triangle of its matrix, both at the pattern of the factor.
    fn backward(&self, mut grad: Vec<f64>) -> Vec<f64> {
        let Self { offsets, rows, values } = self;
        let n = offsets.len() - 1;
        // The entries of each row before the diagonal: their columns and places.
        let mut of_rows = vec![vec![]; n];
        for column in 0..n {
            for at in offsets[column] + 1..offsets[column + 1] {
                of_rows[rows[at]].push((column, at));
            }
        }
        let mut places = vec![0; n];
        for column in (0..n).rev() {
            let (diagonal, end) = (offsets[column], offsets[column + 1]);
            // L_ij = a_ij / L_jj, and L_jj^2 = a_jj.
            for at in diagonal + 1..end {
                grad[at] /= values[diagonal];
                grad[diagonal] -= grad[at] * values[at];
            }
            grad[diagonal] /= 2.0 * values[diagonal];
            // a_ij was less L_ik L_jk, for every k before j.
            (diagonal..end).for_each(|at| places[rows[at]] = at);
            for &(earlier, own) in &of_rows[column] {
                let mut sum = 0.0;
                for at in own..offsets[earlier + 1] {
                    let of_a = grad[places[rows[at]]];
                    sum += of_a * values[at];
                    grad[at] -= of_a * values[own];
                }
                grad[own] -= sum;
            }
        }
        grad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use sparsegrad::spgemm;

    /// An arrow whose factor has fill, from a product that is known.
    #[test]
    fn the_product_of_the_factor_is_the_matrix() {
        let device = Device::flex();
        let (rows, columns) = ([0, 1, 2, 2, 3, 3, 4, 4, 4], [0, 1, 0, 2, 2, 3, 0, 1, 4]);
        let values = [2.0f64, 1.5, -0.5, 1.0, 0.7, 3.0, -1.0, 0.25, 1.25];
        let l = SparseTensor::from_triplets(rows, columns, values, [5, 5], &device).unwrap();
        let (picked, dense) = (l.select_rows([1, 2, 3, 4]).unwrap(), |of: &SparseTensor<2>| {
            of.to_dense().into_data().iter::<f64>().collect::<Vec<_>>()
        });
        let a = spgemm(&picked, &picked.t());
        let factor = cholesky(&a).unwrap();
        let found = spgemm(&factor, &factor.t());
        for (found, expected) in dense(&found).iter().zip(dense(&a)) {
            assert!((found - expected).abs() < 1e-14, "{:?} {:?}", dense(&factor), dense(&a));
        }
    }
}
