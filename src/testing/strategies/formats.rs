use crate::format::{Expr, Level, LevelKind, TensorFormat};
use proptest::prelude::*;

/// Any valid format: the named ones with their parameters and properties, their transposes, and trees of compressed and dense
/// levels over up to four dimensions in any order.
///
/// ```
/// use sparsegrad::{prelude::*, testing::strategies::{self, proptest::{prelude::*, test_runner::TestRunner}}};
///
/// TestRunner::default().run(&strategies::format(), |format| {
///     prop_assert_eq!(format.to_string().parse::<TensorFormat>().unwrap(), format);
///     Ok(())
/// }).unwrap();
/// ```
pub fn format() -> impl Strategy<Value = TensorFormat> {
    let valid = "the parameters are in range";
    let named = prop_oneof![
        (any::<bool>(), any::<bool>()).prop_map(|(u, o)| TensorFormat::coo_with(u, o)),
        Just(TensorFormat::csr()),
        Just(TensorFormat::dia()),
        (1usize..9, 1usize..9).prop_map(move |(m, n)| TensorFormat::bsr(m, n).expect(valid)),
        (1u32..=32).prop_map(move |bits| TensorFormat::delta(bits).expect(valid)),
        (1usize..9, 0usize..9).prop_map(move |(n, more)| TensorFormat::structured(n, n + more).expect(valid)),
    ];
    let named =
        (named, any::<bool>()).prop_map(|(format, transposed)| if transposed { format.transposed() } else { format });
    let dimensions = Just(vec![0usize, 1, 2, 3]).prop_shuffle();
    let levels = (1usize..=4, dimensions, prop::array::uniform4(any::<[bool; 3]>()));
    let tree = levels.prop_map(move |(rank, dimensions, flags)| {
        let order = dimensions.into_iter().filter(|&d| d < rank);
        let levels = order.zip(flags).map(|(d, [compressed, unique, ordered])| match compressed {
            true => Level::new(Expr::Dim(d), LevelKind::Compressed).with(unique, ordered),
            false => Level::new(Expr::Dim(d), LevelKind::Dense),
        });
        TensorFormat::new(rank, levels.collect::<Vec<_>>()).expect("each dimension once")
    });
    prop_oneof![named, tree]
}
