//! The kernels of segments and edges.

use crate::edge::{self, Op};
use crate::lanes::RowBounds;
use crate::segment::{self, Task};
use crate::{Sources, UNITS, buffer, slots};
use cubecl::prelude::*;
use cubecl_core::ir::{AddressType, FloatKind, IntKind};

impl Sources {
    /// All of them for one dtype, index type and presence of slots.
    pub fn add_graphs(&mut self, float: FloatKind, index: IntKind, map: bool) {
        let (f, i) = (ElemType::Float(float), ElemType::Int(index));
        let a = match float {
            FloatKind::F64 => f,
            _ => ElemType::Float(FloatKind::F32),
        };
        let address = match index {
            IntKind::I64 => AddressType::U64,
            _ => AddressType::U32,
        };
        let (widest, cube) = (16 / f.size(), CubeDim::new_1d(UNITS));
        let name = |kernel: &str| format!("{kernel}_{f}_{i}{}", if map { "_slots" } else { "" });
        let whole = RowBounds { step: 1, longest: None };
        let short = RowBounds { step: 1, longest: Some(512) };
        let pieces = RowBounds { step: 2, longest: None };
        // Adds a kernel, of its name and the arguments after those that all have.
        macro_rules! kernel {
            ($name:expr, $kernel:path, $($argument:expr),+ $(,)?) => {
                self.add(name($name), cube, address, |settings, properties, target| {
                    $kernel(settings, properties, target, $($argument),+)
                })
            };
        }

        for (what, n, find, mean, o) in [
            ("segment_sums", widest, whole, false, f),
            ("segment_means_scalar", 1, short, true, f),
            ("segment_sums_pieces", widest, pieces, false, a),
        ] {
            kernel!(
                what,
                segment::segment_sums::SegmentSums::new,
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                (),
                (),
                (),
                n,
                find,
                mean,
                [f, a, o, i],
            );
        }
        for (what, find, min) in [("segment_max", whole, false), ("segment_min_pieces", pieces, true)] {
            kernel!(
                what,
                segment::segment_extremes::SegmentExtremes::new,
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                (),
                (),
                (),
                find,
                min,
                [f, a, i],
            );
        }
        kernel!(
            "segment_extremes_combine",
            segment::segment_extremes_combine::SegmentExtremesCombine::new,
            buffer(),
            buffer(),
            slots(map),
            buffer(),
            buffer(),
            buffer(),
            (),
            (),
            (),
            false,
            [f, a, i],
        );
        kernel!(
            "segment_pick",
            segment::segment_pick::SegmentPick::new,
            buffer(),
            slots(map),
            buffer(),
            buffer(),
            buffer(),
            (),
            (),
            (),
            [f, i],
        );
        kernel!(
            "segment_place",
            segment::segment_place::SegmentPlace::new,
            buffer(),
            slots(map),
            buffer(),
            buffer(),
            buffer(),
            (),
            (),
            (),
            [f, i],
        );
        for (what, n, mean) in [("segment_rows", widest, false), ("segment_rows_mean", 1, true)] {
            kernel!(
                what,
                segment::segment_rows::SegmentRows::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                (),
                (),
                (),
                n,
                mean,
                [f, a, i],
            );
        }
        for task in [Task::Softmax, Task::LogSoftmax, Task::Backward, Task::LogBackward] {
            let grad = matches!(task, Task::Backward | Task::LogBackward);
            for (what, find) in [("", whole), ("_short", short), ("_pieces", pieces)] {
                kernel!(
                    &format!("softmax_stats_{task:?}{what}"),
                    segment::softmax_stats::SoftmaxStats::new,
                    buffer(),
                    slots(map),
                    buffer(),
                    slots(grad),
                    buffer(),
                    buffer(),
                    (),
                    (),
                    (),
                    (),
                    (),
                    find,
                    task,
                    [f, a, i],
                );
            }
            kernel!(
                &format!("softmax_write_{task:?}"),
                segment::softmax_write::SoftmaxWrite::new,
                buffer(),
                slots(map),
                buffer(),
                slots(grad),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                (),
                (),
                task,
                [f, a, i],
            );
        }
        for (op, n) in [(Op::Add, widest), (Op::Sub, 1), (Op::Mul, widest), (Op::Div, widest)] {
            kernel!(
                &format!("edge_columns_{op:?}"),
                edge::edge_columns::EdgeColumns::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                (),
                n,
                op,
                [f, a, i],
            );
        }
        for (what, n) in [("edge_dots", widest), ("edge_dots_scalar", 1)] {
            kernel!(
                what,
                edge::edge_dots::EdgeDots::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                (),
                (),
                n,
                [f, a, i],
            );
        }
        for (what, n, find, o) in
            [("edge_sums", widest, whole, f), ("edge_sums_short", 1, short, f), ("edge_sums_pieces", widest, pieces, a)]
        {
            kernel!(
                what,
                edge::edge_sums::EdgeSums::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                (),
                (),
                n,
                find,
                [f, a, o, i],
            );
        }
        if map {
            return; // the others have no slots
        }
        for (what, n, mean) in [("segment_sums_combine", 16 / a.size(), false), ("segment_means_combine", 1, true)] {
            kernel!(
                what,
                segment::segment_sums_combine::SegmentSumsCombine::new,
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                n,
                mean,
                [a, f, i],
            );
        }
        for task in [Task::Softmax, Task::LogBackward] {
            kernel!(
                &format!("softmax_stats_combine_{task:?}"),
                segment::softmax_stats_combine::SoftmaxStatsCombine::new,
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                task,
                [a, i],
            );
        }
    }
}
