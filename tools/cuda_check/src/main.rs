//! Compiles every kernel of sparsegrad for CUDA without a GPU: CubeCL generates CUDA C++, NVRTC makes PTX of it, ptxas machine
//! code for two architectures. `run.sh` fetches NVIDIA's compilers and calls this with their folder.

#[path = "../../../src/ops/dense/gpu/kernels.rs"]
mod dense;
#[path = "../../../src/ops/edge/gpu/kernels.rs"]
mod edge;
#[path = "../../../src/ops/gather/gpu/kernels.rs"]
mod gather;
mod graphs;
#[path = "../../../src/backend/gpu/lanes.rs"]
mod lanes;
mod nvrtc;
#[path = "../../../src/ops/reduce/gpu/kernels.rs"]
mod reduce;
#[path = "../../../src/ops/sddmm/gpu/kernels.rs"]
mod sddmm;
#[path = "../../../src/ops/segment/gpu/kernels.rs"]
mod segment;
#[path = "../../../src/ops/segment_mm/gpu/kernels.rs"]
mod segment_mm;
#[path = "../../../src/ops/spgemm/gpu/kernels.rs"]
mod spgemm;
#[path = "../../../src/ops/spmm/gpu/kernels.rs"]
mod spmm;
#[path = "../../../src/ops/trisolve/gpu/kernels.rs"]
mod trisolve;

/// The path under which the kernels look for what they share.
mod backend {
    pub mod gpu {
        pub(crate) use crate::lanes;
    }
}

use cubecl::prelude::*;
use cubecl_core::ir::features::Plane;
use cubecl_core::ir::{
    AddressType, DeviceIdentity, DeviceProperties, FloatKind, HardwareProperties, IntKind, MemoryDeviceProperties,
    TargetProperties, VectorSize,
};
use cubecl_core::{Compiler, CubeKernel};
use cubecl_cpp::register_supported_types;
use cubecl_cpp::shared::{CompilationOptions, CppCompiler, CppSupportedFeatures};
use cubecl_cpp::target::Cuda;
use dense::Way;
use lanes::Lanes;
use reduce::{Kind, Plan, Stage, Task};
use sddmm::Share;
use segment_mm::Square;
use spgemm::Target;
use spmm::RowBounds;
use std::path::Path;
use std::sync::Arc;

const UNITS: u32 = 256;

/// What all kernels are made for, and the sources so far.
struct Sources {
    properties: Arc<DeviceProperties>,
    target: Arc<TargetProperties>,
    all: Vec<(String, String)>,
}

/// A device of compute capability 8.0.
fn properties() -> DeviceProperties {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 1024,
        max_shared_memory_size: 48 * 1024,
        max_cube_count: (i32::MAX as u32, 65535, 65535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: Some(108),
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: VectorSize::MAX,
        cube_mma_reserved_shared_memory: 0,
    };
    let identity = DeviceIdentity { name: "none".into(), fingerprint: "ptx_sm80".into(), physical: None };
    let memory = MemoryDeviceProperties::new(1 << 30, 512);
    let timing = cubecl_core::profile::TimingMethod::Device;
    let mut properties = DeviceProperties::new(Default::default(), memory, hardware, timing, identity);
    register_supported_types(&mut properties);
    properties.features.plane.insert(Plane::Sync);
    properties.features.plane.insert(Plane::Ops);
    properties
}

fn buffer() -> BufferCompilationArg {
    BufferCompilationArg { inplace: None }
}

fn slots<I>(map: bool) -> ComptimeOptionCompilationArg<Box<[I]>>
where
    Box<[I]>: LaunchArg<CompilationArg = BufferCompilationArg>,
{
    if map { ComptimeOptionCompilationArg::Some(buffer()) } else { ComptimeOptionCompilationArg::None }
}

impl Sources {
    fn add<K: CubeKernel>(
        &mut self,
        name: String,
        dim: CubeDim,
        address: AddressType,
        kernel: impl FnOnce(KernelSettings, Arc<DeviceProperties>, Arc<TargetProperties>) -> K,
    ) {
        let settings = KernelSettings::new(dim.into(), ExecutionMode::Unchecked, address);
        let kernel = kernel(settings, self.properties.clone(), self.target.clone());
        let options = CompilationOptions {
            supports_features: CppSupportedFeatures { grid_constants: true, ..Default::default() },
            ..Default::default()
        };
        let compiled = CppCompiler::<Cuda>::default().compile(kernel.define(), &options);
        let source = compiled.unwrap_or_else(|error| panic!("{name}: {error:?}")).source;
        self.all.push((name, source));
    }

    /// All kernels for one dtype, index type and presence of slots.
    fn add_all(&mut self, float: FloatKind, index: IntKind, map: bool) {
        let (f, i) = (ElemType::Float(float), ElemType::Int(index));
        let a = match float {
            FloatKind::F64 => f,
            _ => ElemType::Float(FloatKind::F32),
        };
        let address = match index {
            IntKind::I64 => AddressType::U64,
            _ => AddressType::U32,
        };
        let widest = 16 / f.size();
        let cube = CubeDim::new_1d(UNITS);
        let name = |kernel: &str| format!("{kernel}_{f}_{i}{}", if map { "_slots" } else { "" });
        let lanes = |width, planes| Lanes { units: UNITS, width, planes, sync: planes };
        let whole = RowBounds { step: 1, longest: None };
        let short = RowBounds { step: 1, longest: Some(512) };
        let pieces = RowBounds { step: 2, longest: None };

        // Adds a kernel, of its name and the arguments after those that all have.
        macro_rules! add {
            ($name:expr, $dim:expr, $kernel:path, $($argument:expr),+ $(,)?) => {
                self.add(name($name), $dim, address, |settings, properties, target| {
                    $kernel(settings, properties, target, $($argument),+)
                })
            };
        }

        for (what, n, find, o) in [
            ("spmm_columns", widest, whole, f),
            ("spmm_columns_scalar", 1, whole, f),
            ("spmm_columns_short", widest, short, f),
            ("spmm_columns_pieces", widest, pieces, a),
        ] {
            add!(
                what,
                CubeDim::new_2d(16, 16),
                spmm::spmm_columns::SpmmColumns::new,
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
                find,
                [f, a, o, i],
            );
        }
        for (what, n, vectors, find, o, lanes) in [
            ("spmm_shared", 1, 1, whole, f, lanes(8, true)),
            ("spmm_shared_memory", 1, 1, whole, f, lanes(8, false)),
            ("spmm_shared_wide", widest, 8 / widest, whole, f, lanes(32, true)),
            ("spmm_shared_short", 1, 7, short, f, lanes(2, true)),
            ("spmm_shared_pieces", 1, 3, pieces, a, lanes(32, true)),
        ] {
            add!(
                what,
                cube,
                spmm::spmm_shared::SpmmShared::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                n,
                find,
                vectors,
                lanes,
                [f, a, o, i],
            );
        }
        for (what, width) in [("spmm_backward_fused_4", 4), ("spmm_backward_fused_32", 32)] {
            add!(
                what,
                cube,
                spmm::spmm_backward_fused::SpmmBackwardFused::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                widest,
                lanes(width, true),
                [f, a, i],
            );
        }
        let in_registers = Share::Groups { rounds: 4, kept: 128 / a.size() / widest };
        for (what, n, share, lanes) in [
            ("sddmm_units", widest, Share::Units, lanes(8, true)),
            ("sddmm_units_scalar", 1, Share::Units, lanes(8, true)),
            ("sddmm_groups", widest, in_registers, lanes(8, true)),
            ("sddmm_groups_scalar", 1, Share::Groups { rounds: 1, kept: 0 }, lanes(8, true)),
            ("sddmm_groups_memory", widest, Share::Groups { rounds: 1, kept: 2 }, lanes(8, false)),
        ] {
            add!(
                what,
                cube,
                sddmm::sampled_products::SampledProducts::new,
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
                share,
                lanes,
                [f, a, i],
            );
        }
        for (what, n, upper, unit, one_cube) in [
            ("trisolve_levels", widest, false, false, false),
            ("trisolve_levels_scalar", 1, true, true, false),
            ("trisolve_levels_one_cube", widest, true, false, true),
            ("trisolve_levels_one_cube_scalar", 1, false, true, true),
        ] {
            add!(
                what,
                cube,
                trisolve::trisolve_levels::TrisolveLevels::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                (),
                (),
                n,
                trisolve::Launch { upper, unit, one_cube },
                [f, a, i],
            );
        }
        for way in [Way::Scatter, Way::Add, Way::Sample] {
            add!(
                &format!("at_entries_{way:?}"),
                cube,
                dense::at_entries::AtEntries::new,
                buffer(),
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                (),
                (),
                way,
                [f, i],
            );
        }
        for (what, target) in [("search_products", Target::Product), ("search_products_left", Target::Left)] {
            add!(
                what,
                cube,
                spgemm::search_products::SearchProducts::new,
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                (),
                target,
                lanes(16, true),
                [f, a, i, i, i],
            );
        }
        for (what, bias, by_rows) in [("segment_product", false, false), ("segment_product_bias", true, true)] {
            add!(
                what,
                cube,
                segment_mm::segment_product::SegmentProduct::new,
                buffer(),
                slots(map),
                buffer(),
                buffer(),
                slots(bias),
                buffer(),
                (),
                (),
                (),
                (),
                (),
                (),
                (),
                (),
                (),
                (),
                Square { side: 16, by_rows },
                [f, a, i],
            );
        }
        add!(
            "segment_outer",
            cube,
            segment_mm::segment_outer::SegmentOuter::new,
            buffer(),
            slots(map),
            buffer(),
            buffer(),
            buffer(),
            buffer(),
            (),
            (),
            (),
            (),
            (),
            (),
            (),
            (),
            Square { side: 16, by_rows: false },
            [f, a, i],
        );
        if map {
            return; // the others have no slots
        }
        for (what, n) in [("spmm_combine", 16 / a.size()), ("spmm_combine_scalar", 1)] {
            add!(
                what,
                cube,
                spmm::spmm_combine::SpmmCombine::new,
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                (),
                n,
                [a, f, i],
            );
        }
        let (all, short) = (Stage::Rows { longest: None }, Stage::Rows { longest: Some(512) });
        for (kind, task, absent) in [
            (Kind::Sum, Task::Reduce, false),
            (Kind::Mean, Task::Derive, true),
            (Kind::Max, Task::Reduce, true),
            (Kind::Min, Task::Derive, false),
            (Kind::LargestSize, Task::Derive, false),
            (Kind::L1, Task::Derive, false),
            (Kind::L2, Task::Reduce, false),
            (Kind::L2, Task::Derive, false),
            (Kind::LogSumExp, Task::Reduce, true),
            (Kind::LogSumExp, Task::Derive, true),
            (Kind::LogSumExp, Task::Softmax, false),
            (Kind::LogSumExp, Task::LogSoftmax, false),
            (Kind::LogSumExp, Task::SoftmaxBackward, false),
            (Kind::LogSumExp, Task::LogSoftmaxBackward, false),
        ] {
            let plan = Plan { kind, task, absent };
            let with_grad = !matches!(task, Task::Reduce | Task::Softmax | Task::LogSoftmax);
            for (what, stage, o) in
                [("", all, f), ("_short", short, f), ("_pieces", Stage::Pieces, a), ("_finish", Stage::Finish, f)]
            {
                if stage == Stage::Finish && task == Task::Reduce {
                    continue; // the merge has written all
                }
                add!(
                    &format!("reduce_rows_{kind:?}_{task:?}{what}"),
                    cube,
                    reduce::reduce_rows::ReduceRows::new,
                    buffer(),
                    slots(map),
                    buffer(),
                    slots(with_grad),
                    slots(stage == Stage::Finish),
                    buffer(),
                    (),
                    (),
                    (),
                    plan,
                    stage,
                    lanes(16, true),
                    [f, a, o, i],
                );
            }
            add!(
                &format!("merge_parts_{kind:?}_{task:?}"),
                cube,
                reduce::merge_parts::MergeParts::new,
                buffer(),
                buffer(),
                buffer(),
                slots(task == Task::Derive),
                buffer(),
                buffer(),
                (),
                (),
                (),
                plan,
                [f, a, i],
            );
        }
        add!(
            "expand_rows",
            cube,
            reduce::expand_rows::ExpandRows::new,
            buffer(),
            slots(map),
            buffer(),
            buffer(),
            (),
            [f, i],
        );
        add!("add_parts", cube, segment_mm::add_parts::AddParts::new, buffer(), buffer(), buffer(), (), (), [f, a, i]);
        for (what, lanes) in [("gather_rows_1", lanes(1, true)), ("gather_rows_16", lanes(16, true))] {
            add!(
                what,
                cube,
                gather::gather_rows::GatherRows::new,
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                lanes,
                [f, a, i],
            );
        }
        for (what, lanes) in [("pair_products_1", lanes(1, true)), ("pair_products_16", lanes(16, true))] {
            add!(
                what,
                cube,
                spgemm::pair_products::PairProducts::new,
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                buffer(),
                (),
                lanes,
                [f, a, i],
            );
        }
    }
}

fn main() {
    let cuda = std::env::args().nth(1).expect("the folder of NVIDIA's wheels");
    let cuda = Path::new(&cuda);
    let out = cuda.join("../kernels");
    std::fs::create_dir_all(&out).expect("a folder for the kernels");

    let mut sources = Sources { properties: Arc::new(properties()), target: Arc::default(), all: Vec::new() };
    for float in [FloatKind::F32, FloatKind::F64, FloatKind::F16, FloatKind::BF16] {
        for (index, map) in [(IntKind::I32, false), (IntKind::I32, true), (IntKind::I64, true)] {
            sources.add_all(float, index, map);
            sources.add_graphs(float, index, map);
        }
    }

    let compiler = nvrtc::Compiler::new(cuda);
    let (mut passed, mut failed) = (0, 0);
    for (name, source) in &sources.all {
        match compiler.compile(&out, name, source) {
            Ok(()) => passed += 1,
            Err(error) => {
                failed += 1;
                println!("{name}: {error}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    std::process::exit(i32::from(failed > 0));
}
