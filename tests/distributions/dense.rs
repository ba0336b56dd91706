//! The oracle: a dense multivariate normal in f64, by faer.

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use sparsegrad_distributions::Form;

/// A dense distribution.
pub struct Dense {
    pub loc: Vec<f64>,
    pub covariance: Mat<f64>,
}

impl Dense {
    /// From a dense factor (without its ones) and a diagonal.
    pub fn new(form: Form, loc: &[f64], l: &[f64], d: Option<&[f64]>) -> Self {
        let n = loc.len();
        let mut factor = Mat::from_fn(n, n, |i, j| l[i * n + j]);
        let mut scale = Mat::<f64>::identity(n, n);
        if let Some(d) = d {
            factor += Mat::<f64>::identity(n, n);
            scale = Mat::from_fn(n, n, |i, j| if i == j { d[i] } else { 0.0 });
        }
        let product = &factor * scale * factor.transpose();
        let covariance = if form.is_precision() { inverse(&product) } else { product };
        Self { loc: loc.to_vec(), covariance }
    }

    pub fn n(&self) -> usize {
        self.loc.len()
    }

    pub fn precision(&self) -> Mat<f64> {
        inverse(&self.covariance)
    }

    pub fn log_det(&self) -> f64 {
        let llt = self.covariance.llt(Side::Lower).unwrap();
        (0..self.n()).map(|i| 2.0 * llt.L()[(i, i)].ln()).sum()
    }

    /// The squared Mahalanobis distance.
    pub fn distance(&self, x: &[f64]) -> f64 {
        let d = Mat::from_fn(self.n(), 1, |i, _| x[i] - self.loc[i]);
        (d.transpose() * self.covariance.llt(Side::Lower).unwrap().solve(&d))[(0, 0)]
    }

    pub fn log_prob(&self, x: &[f64]) -> f64 {
        -0.5 * (self.n() as f64 * std::f64::consts::TAU.ln() + self.log_det() + self.distance(x))
    }

    pub fn entropy(&self) -> f64 {
        0.5 * (self.n() as f64 * (1.0 + std::f64::consts::TAU.ln()) + self.log_det())
    }

    pub fn kl(&self, q: &Self) -> f64 {
        let product = q.precision() * &self.covariance;
        let trace: f64 = (0..self.n()).map(|i| product[(i, i)]).sum();
        0.5 * (trace + q.distance(&self.loc) - self.n() as f64 + q.log_det() - self.log_det())
    }

    /// Given the values of some entries: the distribution of the others, in order.
    pub fn conditioned(&self, observed: &[usize], values: &[f64]) -> Self {
        let left: Vec<usize> = (0..self.n()).filter(|i| !observed.contains(i)).collect();
        let part = |rows: &[usize], columns: &[usize]| {
            Mat::from_fn(rows.len(), columns.len(), |i, j| self.covariance[(rows[i], columns[j])])
        };
        let gain = part(&left, observed) * inverse(&part(observed, observed));
        let residual = Mat::from_fn(observed.len(), 1, |i, _| values[i] - self.loc[observed[i]]);
        let shift = &gain * residual;
        Self {
            loc: left.iter().enumerate().map(|(at, &i)| self.loc[i] + shift[(at, 0)]).collect(),
            covariance: part(&left, &left) - gain * part(observed, &left),
        }
    }
}

fn inverse(matrix: &Mat<f64>) -> Mat<f64> {
    matrix.partial_piv_lu().solve(Mat::<f64>::identity(matrix.nrows(), matrix.ncols()))
}
