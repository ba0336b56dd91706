//! Index buffers on devices: copied on first use, kept with the pattern, let go on request.

use super::operand::arg;
use super::{Gpu, Parts, Pieces, tiles};
use crate::pattern::{Index, Pattern, Rows, Slot, with_rows, with_split};
use burn::backend::DispatchDevice;
use burn::tensor::{Bytes, DType, Device, Shape};
use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{ElemType, IntKind};
use cubecl::prelude::{BufferArg, ComptimeOptionArgs, LaunchArg};
use std::sync::{Mutex, PoisonError};

/// One buffer of a row-ordered view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Offsets,
    Columns,
    Slots,
    RowOfEntry,
    PieceBounds,
    FirstPieces,
    LongRows,
    /// The row of each entry, then the column of each.
    Positions,
    /// Where rows start, then the column of each entry.
    Lines,
    /// Tiles of rows: the row, the first entry and the one past the last of each.
    Tiles {
        size: usize,
    },
    /// Parts of rows, likewise, with the target of each.
    Parts {
        size: usize,
    },
    /// The rows that are cut into parts.
    Cuts {
        size: usize,
    },
    /// Where the levels of a triangle start, then its rows level by level.
    Schedule {
        upper: bool,
    },
}

/// Which buffer, on which device, of which of the two views.
type Key = (CubeDevice, bool, Part);

/// The index buffers of a pattern on all devices.
///
/// Kernels may be launched by several threads (under fusion, by a runner's): the lock is held to look something up or to put it
/// in, never while a buffer is made.
#[derive(Default)]
pub(crate) struct DeviceBuffers(Mutex<Vec<(Key, CubeTensor)>>);

impl DeviceBuffers {
    fn with<T>(&self, access: impl FnOnce(&mut Vec<(Key, CubeTensor)>) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The buffer under `key`, made if it is not there. If another thread was faster, its buffer is taken.
    fn get(&self, key: Key, make: impl FnOnce() -> CubeTensor) -> CubeTensor {
        let find = |all: &Vec<(Key, CubeTensor)>| all.iter().find(|(k, _)| *k == key).map(|(_, buffer)| buffer.clone());
        if let Some(found) = self.with(|all| find(all)) {
            return found;
        }
        let made = make();
        self.with(|all| {
            find(all).unwrap_or_else(|| {
                all.push((key.clone(), made.clone()));
                made
            })
        })
    }

    /// Bytes on all devices.
    pub fn bytes(&self) -> usize {
        self.with(|all| all.iter().map(|(_, b)| b.meta.shape()[0] * b.dtype.size()).sum())
    }
}

/// The row-ordered view of a pattern on a device.
pub(crate) struct View<'a> {
    pattern: &'a Pattern,
    gpu: &'a Gpu,
}

impl<'a> View<'a> {
    pub fn new(pattern: &'a Pattern, gpu: &'a Gpu) -> Self {
        Self { pattern, gpu }
    }

    /// The type of the indices on the device: 32 bits wherever they suffice, whatever the width on the host.
    pub fn index(&self) -> ElemType {
        index_type(self.pattern)
    }

    /// The number of entries.
    pub fn entries(&self) -> usize {
        with_rows!(self.pattern.rows(), rows => rows.n_entries())
    }

    /// The long rows that are to be summed in pieces, if any.
    pub fn pieces(&self) -> Option<&'a Pieces> {
        self.pattern.pieces()
    }

    /// Where rows start.
    pub fn offsets(&self) -> BufferArg {
        self.arg(Part::Offsets)
    }

    /// Columns of the entries.
    pub fn columns(&self) -> BufferArg {
        self.arg(Part::Columns)
    }

    /// Rows of the entries.
    pub fn rows(&self) -> BufferArg {
        self.arg(Part::RowOfEntry)
    }

    /// Places of the entries in the values, `None` for the identity.
    pub fn slots<I>(&self) -> ComptimeOptionArgs<Box<[I]>>
    where
        Box<[I]>: LaunchArg<RuntimeArg = BufferArg>,
    {
        if self.has_map() { ComptimeOptionArgs::Some(self.arg(Part::Slots)) } else { ComptimeOptionArgs::None }
    }

    /// Starts and ends of the pieces.
    pub fn piece_bounds(&self) -> BufferArg {
        self.arg(Part::PieceBounds)
    }

    /// The first piece of each long row.
    pub fn first_pieces(&self) -> BufferArg {
        self.arg(Part::FirstPieces)
    }

    /// The long rows.
    pub fn long_rows(&self) -> BufferArg {
        self.arg(Part::LongRows)
    }

    /// Rows of the entries, then their columns: one buffer, as some devices bind few.
    pub fn positions(&self) -> BufferArg {
        self.arg(Part::Positions)
    }

    /// Where rows start, then columns of the entries.
    pub fn lines(&self) -> BufferArg {
        self.arg(Part::Lines)
    }

    /// The length of [`lines`](Self::lines).
    pub fn packed(&self) -> usize {
        self.pattern.shape()[0] + 1 + self.entries()
    }

    /// Tiles of rows of at most so many entries: the row, the first entry and the one past the last of each.
    pub fn tiles(&self, size: usize) -> BufferArg {
        self.arg(Part::Tiles { size })
    }

    /// The table of [`Parts`] of at most so many entries.
    pub fn parts(&self, size: usize) -> BufferArg {
        self.arg(Part::Parts { size })
    }

    /// The rows that are cut into such parts.
    pub fn cuts(&self, size: usize) -> BufferArg {
        self.arg(Part::Cuts { size })
    }

    /// The levels of a triangle: where they start, then their rows.
    pub fn schedule(&self, upper: bool) -> BufferArg {
        self.arg(Part::Schedule { upper })
    }

    fn has_map(&self) -> bool {
        with_rows!(self.pattern.rows(), rows => matches!(rows.slots, Slot::Map(_)))
    }

    fn arg(&self, part: Part) -> BufferArg {
        let buffer = self.buffer(part);
        arg(&buffer, buffer.meta.shape()[0])
    }

    fn buffer(&self, part: Part) -> CubeTensor {
        let key = (self.gpu.device.clone(), self.pattern.is_transposed(), part);
        self.pattern.device_buffers().get(key, || {
            let wide = index_type(self.pattern) == ElemType::Int(IntKind::I64);
            let upload = |bytes, dtype: DType| {
                let bytes = Bytes::from_bytes_vec(bytes);
                let shape = Shape::from([bytes.len() / dtype.size()]);
                let handle = self.gpu.client.create(bytes);
                let (client, device) = (self.gpu.client.clone(), self.gpu.device.clone());
                CubeTensor::new_contiguous(client, device, shape, handle, dtype)
            };
            with_rows!(self.pattern.rows(), rows => {
                if wide {
                    upload(host_bytes::<_, i64>(self.pattern, rows, part), DType::I64)
                } else {
                    upload(host_bytes::<_, i32>(self.pattern, rows, part), DType::I32)
                }
            })
        })
    }
}

/// The indices of a part, in the width of the device.
fn host_bytes<I: Index, O: Index>(pattern: &Pattern, rows: &Rows<I>, part: Part) -> Vec<u8> {
    let convert = |indices: &[I]| -> Vec<u8> {
        if size_of::<I>() == size_of::<O>() {
            return bytemuck::cast_slice(indices).to_vec();
        }
        bytemuck::cast_slice(&indices.iter().map(|i| O::of(i.get())).collect::<Vec<O>>()).to_vec()
    };
    let of_pieces = |choose: fn(&Pieces) -> &[usize]| -> Vec<u8> {
        let pieces = choose(pattern.pieces().expect("asked for with pieces only"));
        bytemuck::cast_slice(&pieces.iter().map(|&i| O::of(i)).collect::<Vec<O>>()).to_vec()
    };
    let of_tables = |table: &mut dyn Iterator<Item = [usize; 3]>| -> Vec<u8> {
        bytemuck::cast_slice(&table.flatten().map(O::of).collect::<Vec<O>>()).to_vec()
    };
    match part {
        Part::Tiles { size } => of_tables(&mut tiles(rows, size).map(|(row, tile)| [row, tile.start, tile.end])),
        Part::Parts { size } => of_tables(&mut Parts::of(rows, size).table.into_iter()),
        Part::Cuts { size } => of_tables(&mut Parts::of(rows, size).cuts.into_iter()),
        Part::Offsets => convert(&rows.offsets),
        Part::Columns => convert(&rows.columns),
        Part::Slots => match &rows.slots {
            Slot::Map(map) => convert(map),
            Slot::Identity => unreachable!("the identity has no buffer"),
        },
        Part::RowOfEntry => convert(&rows.row_of_entry()),
        Part::Positions => [convert(&rows.row_of_entry()), convert(&rows.columns)].concat(),
        Part::Lines => [convert(&rows.offsets), convert(&rows.columns)].concat(),
        Part::PieceBounds => of_pieces(|pieces| &pieces.bounds),
        Part::FirstPieces => of_pieces(|pieces| &pieces.first),
        Part::LongRows => of_pieces(|pieces| &pieces.rows),
        Part::Schedule { upper } => with_split!(pattern.triangles(), split => {
            let levels = split.levels(upper);
            let schedule = levels.bounds.iter().chain(&levels.order).map(|i| O::of(i.get()));
            bytemuck::cast_slice(&schedule.collect::<Vec<O>>()).to_vec()
        }),
    }
}

/// The narrowest type that holds every index, offset and size of a pattern.
pub(super) fn index_type(pattern: &Pattern) -> ElemType {
    let [rows, cols] = pattern.shape();
    let largest = rows.max(cols).max(pattern.nnz());
    ElemType::Int(if largest <= i32::MAX as usize { IntKind::I32 } else { IntKind::I64 })
}

/// The cubecl device, `None` for others.
pub(super) fn cube_device(device: &Device) -> Option<CubeDevice> {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Cube(device) => Some(device.clone()),
        #[allow(unreachable_patterns, reason = "other backends may not be compiled in")]
        _ => None,
    }
}

/// Copies to a device what products with a pattern and their gradients read there.
pub(crate) fn prepare(pattern: &Pattern, device: &Device) {
    let Some(device) = cube_device(device) else {
        return;
    };
    if pattern.nnz() == 0 {
        return;
    }
    let gpu = Gpu::new(device.client(), device);
    for pattern in [pattern, &pattern.t()] {
        let view = View::new(pattern, &gpu);
        for part in [Part::Offsets, Part::Columns] {
            view.buffer(part);
        }
        if view.has_map() {
            view.buffer(Part::Slots);
        }
        if view.pieces().is_some() {
            for part in [Part::PieceBounds, Part::FirstPieces, Part::LongRows] {
                view.buffer(part);
            }
        }
    }
    View::new(pattern, &gpu).buffer(Part::RowOfEntry);
}

/// Lets go of the buffers on a device. Launches under way keep what they use.
pub(crate) fn release(pattern: &Pattern, device: &Device) {
    if let Some(device) = cube_device(device) {
        pattern.device_buffers().with(|all| all.retain(|((of, ..), _)| *of != device));
    }
}
