use proptest::prelude::*;

/// Numbers in [-1, 1], zero among them: sums of their products have no overflow and little cancellation.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}};
///
/// let mut runner = TestRunner::default();
/// runner.run(&strategies::value(), |x| Ok(prop_assert!(x.abs() <= 1.0))).unwrap();
/// ```
pub fn value() -> impl Strategy<Value = f64> + Clone {
    // Eighths are exact in every float type, and short in a report.
    prop_oneof![
        1 => Just(0.0),
        4 => (-8i32..=8).prop_map(|eighths| f64::from(eighths) / 8.0),
        4 => -1.0..=1.0,
    ]
}

/// Any `f64`: infinities and NaN, both zeros, denormals, the largest and the smallest, and numbers in between.
///
/// ```
/// use sparsegrad::testing::strategies::{self, proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner}};
///
/// let values = prop::collection::vec(strategies::hostile(), 500);
/// let values = values.new_tree(&mut TestRunner::deterministic()).unwrap().current();
/// assert!(values.iter().any(|x| x.is_nan()) && values.iter().any(|x| x.is_subnormal()));
/// ```
pub fn hostile() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![
        4 => value(),
        1 => prop::sample::select(vec![0.0, -0.0]),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN]),
        1 => prop::sample::select(vec![5e-324, -1e-310, f64::MIN_POSITIVE]),
        1 => prop::sample::select(vec![f64::MAX, f64::MIN, 1e300, -1e200]),
        1 => prop::num::f64::ANY,
    ]
}
