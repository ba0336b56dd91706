//! Samples and densities in blocks, and their gradients: of the same noise in one piece, of fewer vectors at a time.

use crate::mvn::{FORMS, numbers};
use crate::places::{Place, read};
use burn::tensor::{DType, Tensor};
use sparsegrad::SparseTensor;
use sparsegrad::internals::reshape;
use sparsegrad::vjp;
use sparsegrad_distributions::{Checks, Factor, Form, NormalRng, SparseMultivariateNormal};
use std::ops::Range;

/// A factor of n: its diagonal, if it is stored, and some three entries before it in each row.
fn lower(n: usize, form: Form) -> (Vec<usize>, Vec<usize>) {
    let entries = (0..n).flat_map(|i| {
        let before = [1, 2, 7].into_iter().filter_map(move |back| i.checked_sub(back * (1 + i % 3)));
        before.chain((!form.is_ldlt()).then_some(i)).map(move |j| (i, j))
    });
    entries.unzip()
}

#[derive(Clone, Copy, Debug)]
pub enum Layout {
    Coo,
    Csr,
    Csc,
}

/// Leaves: location, values of all factors, diagonal.
pub struct Leaves {
    all: [Tensor<1>; 3],
    tracked: [bool; 3],
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub form: Form,
    pub n: usize,
    /// The batch.
    pub items: usize,
    pub own_factor: bool,
    pub own_diagonal: bool,
    pub layout: Layout,
    pub count: usize,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            form: Form::CovarianceLlt,
            n: 5,
            items: 1,
            own_factor: false,
            own_diagonal: false,
            layout: Layout::Csr,
            count: 3,
        }
    }
}

impl Case {
    /// The distribution over `[items, n]`, and what it is made of.
    pub fn made(&self, place: &Place, tracked: [bool; 3]) -> (SparseMultivariateNormal<2>, Leaves) {
        let &Self { form, n, items, own_factor, own_diagonal, layout, .. } = self;
        let (rows, columns) = lower(n, form);
        let (nnz, factors) = (rows.len(), if own_factor { items } else { 1 });
        let diagonal_entry = |at: usize| rows[at % nnz] == columns[at % nnz];
        // Small beside the diagonal: solutions do not grow.
        let values = numbers(factors * nnz, 3).into_iter().enumerate();
        let values: Vec<f64> = values.map(|(at, x)| if diagonal_entry(at) { 1.5 + x } else { x / 4.0 }).collect();
        let d = numbers(n * if own_diagonal { items } else { 1 }, 4).iter().map(|x| 1.5 + x).collect();
        let all = [numbers(items * n, 5), values, d];
        let leaf = |at: usize| {
            let leaf = place.tensor::<1>(&all[at], [all[at].len()]);
            if tracked[at] { leaf.require_grad() } else { leaf }
        };
        let all = [0, 1, 2].map(leaf);
        let factor = |item: usize| {
            let values = all[1].clone().slice(item * nnz..(item + 1) * nnz);
            let coo = SparseTensor::from_coo(&rows, &columns, values, [n, n], &place.device).unwrap();
            match layout {
                Layout::Coo => coo,
                Layout::Csr => coo.to_csr(),
                Layout::Csc => coo.to_csc(),
            }
        };
        let factor: Factor = match own_factor {
            true => SparseTensor::stack(&(0..items).map(factor).collect::<Vec<_>>()).unwrap().into(),
            false => factor(0).into(),
        };
        let (loc, d) = (reshape(all[0].clone(), [items, n]), all[2].clone());
        let made = match (form.is_ldlt(), own_diagonal) {
            (false, _) => SparseMultivariateNormal::new(form, loc, factor, None::<Tensor<1>>, Checks::Usual),
            (true, false) => SparseMultivariateNormal::new(form, loc, factor, Some(d), Checks::Usual),
            (true, true) => {
                SparseMultivariateNormal::new(form, loc, factor, Some(reshape(d, [items, n])), Checks::Usual)
            }
        };
        (made.unwrap(), Leaves { all, tracked })
    }

    /// The noise of a draw, as vectors: block after block of columns, each row by row.
    fn noise(&self, place: &Place, rng: &mut NormalRng) -> Tensor<3> {
        let &Self { n, items, own_factor, count, .. } = self;
        let (rows, columns) = if own_factor { (items * n, count) } else { (n, count * items) };
        let wide = if self.form.is_precision() { 16 } else { 8 };
        let width = wide.max((1 << 16) / rows);
        let blocks = (0..columns).step_by(width).map(|first| {
            let block = rng.tensor::<2>([rows, width.min(columns - first)], place.dtype, &place.device);
            block.transpose()
        });
        Tensor::cat(blocks.collect(), 0).reshape([count, items, n])
    }

    /// The samples and, below them, the gradients of what is tracked.
    fn results(&self, place: &Place, tracked: [bool; 3], in_one_piece: bool) -> Vec<Vec<f64>> {
        let (made, leaves) = self.made(place, tracked);
        let mut rng = NormalRng::seeded(9);
        let samples = match in_one_piece {
            true => made.rsample_of([self.count], self.noise(place, &mut rng)).unwrap(),
            false => made.rsample([self.count], &mut rng),
        };
        assert_eq!(samples.dims(), [self.count, self.items, self.n]);
        let upstream = place.tensor(&numbers(self.count * self.items * self.n, 6), samples.dims());
        let grads = vjp::backward(&samples, upstream);
        let wanted = leaves.all.iter().zip(leaves.tracked).enumerate();
        let wanted = wanted.filter(|&(at, (_, tracked))| tracked && (at < 2 || self.form.is_ldlt()));
        let gradients = wanted.map(|(_, (leaf, _))| read(&leaf.grad(&grads).unwrap()));
        // The next draw is another.
        let next = read(&made.sample([1], &mut rng));
        [read(&samples), next].into_iter().chain(gradients).collect()
    }

    #[track_caller]
    fn check(&self, place: &Place, tracked: [bool; 3], tolerance: f64) {
        let (found, expected) = (self.results(place, tracked, false), self.results(place, tracked, true));
        near(&format!("{self:?}, tracked {tracked:?}"), &found, &expected, tolerance);
    }
}

/// Each within the tolerance times the largest of its kind.
#[track_caller]
fn near(what: &str, found: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let largest = expected.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= tolerance * largest, "{what}: {found}, not {expected}");
        }
    }
}

pub const ALL: [bool; 3] = [true; 3];

/// Several blocks of many short vectors, the last of them not full: items take turns within them.
#[test]
fn in_blocks_as_in_one_piece() {
    let place = Place::cpu().autodiff();
    for form in FORMS {
        for (own_factor, own_diagonal) in [(false, false), (false, true), (true, false), (true, true)] {
            for layout in [Layout::Coo, Layout::Csr, Layout::Csc] {
                let case = Case { form, n: 50, items: 3, own_factor, own_diagonal, layout, count: 1000 };
                case.check(&place, ALL, 1e-12);
            }
        }
    }
}

/// Blocks of 8 or 16 long vectors.
#[test]
fn long_vectors_as_in_one_piece() {
    for form in FORMS {
        let case = |count| Case { form, n: 5000, count, ..Case::default() };
        for count in [1, 16, 37] {
            case(count).check(&Place::cpu().autodiff(), ALL, 1e-12);
        }
        // Sums of 37 products, each rounded once.
        let single = Place { dtype: DType::F32, ..Place::cpu() };
        case(37).check(&single.autodiff(), ALL, 64.0 * f64::from(f32::EPSILON));
    }
}

#[test]
fn only_some_are_tracked() {
    let place = Place::cpu().autodiff();
    for form in FORMS {
        for bits in 1..8 {
            let tracked = [0, 1, 2].map(|at| bits >> at & 1 == 1);
            if tracked != [false, false, true] || form.is_ldlt() {
                Case { form, items: 2, own_factor: true, ..Case::default() }.check(&place, tracked, 1e-12);
            }
        }
    }
}

/// `sample`, and `rsample` where nothing is tracked: the same numbers, without a graph.
#[test]
fn what_is_not_tracked_is_constant() {
    let place = Place::cpu().autodiff();
    for form in FORMS {
        let case = Case { form, items: 2, ..Case::default() };
        let (made, leaves) = case.made(&place, ALL);
        let (constant, _) = case.made(&place, [false; 3]);
        let (plain, _) = case.made(&Place::cpu(), [false; 3]);
        let rng = || NormalRng::seeded(1);
        let expected = read(&made.rsample([3], &mut rng()));
        let draws = [made.sample([3], &mut rng()), constant.rsample([3], &mut rng())];
        for draw in &draws {
            assert_eq!(read(draw), expected);
            let other = place.tensor::<1>(&[1.0], [1]).require_grad();
            let grads = (draw.clone().sum() * other).backward();
            assert!(leaves.all.iter().all(|leaf| leaf.grad(&grads).is_none()));
        }
        assert_eq!(read(&plain.rsample([3], &mut rng())), expected);
    }
}

/// Densities of more vectors than a block holds, and all gradients, as the sums over parts of them.
#[test]
fn densities_in_blocks_as_of_fewer_vectors_at_a_time() {
    let place = Place::cpu().autodiff();
    let cases = FORMS.into_iter().flat_map(|form| {
        let long = Case { form, n: 5000, count: 37, ..Case::default() };
        let short = Case { form, n: 50, items: 3, count: 1000, ..Case::default() };
        let own = [(false, true), (true, false), (true, true)];
        [long].into_iter().chain(own.map(|(own_factor, own_diagonal)| Case { own_factor, own_diagonal, ..short }))
    });
    for case in cases {
        let whole = densities(&case, &place, 0..case.count);
        let mut parts = vec![vec![]; whole.len()];
        for first in (0..case.count).step_by(7) {
            let part = densities(&case, &place, first..case.count.min(first + 7));
            for (at, (sum, part)) in parts.iter_mut().zip(part).enumerate() {
                match at {
                    0 | 1 => sum.extend(part),
                    _ if sum.is_empty() => *sum = part,
                    _ => sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x),
                }
            }
        }
        near(&format!("{case:?}"), &whole, &parts, 1e-12);
    }
}

/// The logarithms of the densities of some of as many vectors as are drawn, and from given gradients of them those of the vectors
/// and of all that is tracked.
fn densities(case: &Case, place: &Place, part: Range<usize>) -> Vec<Vec<f64>> {
    let &Case { n, items, count, .. } = case;
    let (made, leaves) = case.made(place, ALL);
    let vectors = place.tensor::<3>(&numbers(count * items * n, 6), [count, items, n]).slice([part.clone()]);
    let vectors = vectors.require_grad();
    let log_prob = made.log_prob(vectors.clone());
    let grads = vjp::backward(&log_prob, place.tensor(&numbers(count * items, 7), [count, items]).slice([part]));
    let wanted = leaves.all.iter().take(if case.form.is_ldlt() { 3 } else { 2 });
    let gradients = wanted.map(|leaf| read(&leaf.grad(&grads).unwrap()));
    [read(&log_prob), read(&vectors.grad(&grads).unwrap())].into_iter().chain(gradients).collect()
}

/// The same bits of samples, densities and gradients on any number of threads.
#[test]
fn the_same_bits_with_any_number_of_threads() {
    for form in FORMS {
        let case = Case { form, n: 5000, count: 100, ..Case::default() };
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let place = Place { dtype: DType::F32, ..Place::cpu() }.autodiff();
            pool.install(|| (case.results(&place, ALL, false), densities(&case, &place, 0..case.count)))
        };
        let one = on(1);
        assert!(one == on(2) && one == on(7), "{form:?}");
    }
}

/// No samples, no items, no numbers: gradients of zeros.
#[test]
fn empty_draws() {
    let place = Place::cpu().autodiff();
    for form in FORMS {
        for (count, items, n) in [(0, 2, 3), (2, 0, 3), (2, 2, 0)] {
            for own_diagonal in [false, true] {
                let case = Case { form, n, items, own_diagonal, count, ..Case::default() };
                let (made, leaves) = case.made(&place, ALL);
                let samples = made.rsample([count], &mut NormalRng::seeded(1));
                assert_eq!(samples.dims(), [count, items, n]);
                let grads = samples.sum().backward();
                for leaf in leaves.all.iter().take(if form.is_ldlt() { 3 } else { 2 }) {
                    let gradient = leaf.grad(&grads).map(|gradient| read(&gradient));
                    assert!(gradient.is_none_or(|gradient| gradient.iter().all(|&x| x == 0.0)), "{case:?}");
                }
            }
        }
    }
}
