//! Launch sizes: pure functions of sizes and device properties, formed in a type that can't wrap.

use super::lanes::Lanes;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeDevice;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::features::Plane;
use cubecl::ir::{AddressType, EnumSet};
use cubecl::prelude::{CubeCount, CubeDim};

/// Units a cube, where the device allows as many.
const UNITS: u32 = 256;
/// The widest group of lanes.
const WIDEST: u32 = 32;

/// Cubes to launch, and the width of the positions within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    cubes: [u32; 3],
    address: AddressType,
}

impl Grid {
    /// At least `items / per_cube` cubes, spread over three dimensions of at most `max` each, as few as possible.
    ///
    /// `None` if that many can't be launched. `elements` is the length of the longest buffer: it has to be addressed,
    /// and so has every position, those past the last item included.
    pub fn new(items: usize, per_cube: usize, elements: usize, max: (u32, u32, u32)) -> Option<Self> {
        let cubes = items.div_ceil(per_cube).max(1) as u128;
        let [x, y, z] = [max.0, max.1, max.2].map(u128::from);
        let depth = cubes.div_ceil(x * y);
        let height = cubes.div_ceil(x * depth);
        let width = cubes.div_ceil(height * depth);
        if depth > z {
            return None;
        }
        let positions = width * height * depth * per_cube as u128;
        let address = address(positions.max(elements as u128))?;
        Some(Self { cubes: [width as u32, height as u32, depth as u32], address })
    }

    /// The number of cubes.
    pub fn count(&self) -> CubeCount {
        let [x, y, z] = self.cubes;
        CubeCount::Static(x, y, z)
    }

    /// The width of `usize` in the kernel.
    pub fn address(&self) -> AddressType {
        self.address
    }
}

/// What `n` positions need, `None` if nothing counts as far.
fn address(n: u128) -> Option<AddressType> {
    match n {
        n if n <= u32::MAX as u128 => Some(AddressType::U32),
        n if n <= u64::MAX as u128 => Some(AddressType::U64),
        _ => None,
    }
}

/// The width of `usize` in a kernel on operands of so many elements, `None` if nothing counts as far.
///
/// With room for the positions of units that have nothing to do.
pub(super) fn required_address(elements: u128) -> Option<AddressType> {
    address(elements + (1 << 25))
}

/// The device that a launch goes to.
pub(crate) struct Gpu {
    pub client: Client,
    pub device: CubeDevice,
    /// What the units of a plane can do.
    pub plane: EnumSet<Plane>,
}

impl Gpu {
    /// The device of a tensor.
    pub fn of(tensor: &CubeTensor) -> Self {
        Self::new(tensor.client.clone(), tensor.device.clone())
    }

    /// A device and a client of it.
    pub fn new(client: Client, device: CubeDevice) -> Self {
        let properties = client.properties();
        let plane = match properties.hardware.plane_size_min {
            0 => EnumSet::empty(), // of unknown size
            _ => properties.features.plane,
        };
        Self { client, device, plane }
    }

    /// A contiguous tensor of memory as it is: a kernel has to write all of it.
    pub fn empty(&self, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
        empty_device_contiguous_dtype(self.client.clone(), self.device.clone(), shape.into(), dtype)
    }

    /// Zeros.
    pub fn zeros(&self, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
        let shape = shape.into();
        if shape.num_elements() == 0 {
            return self.empty(shape, dtype); // there is nothing to launch, and Burn's fill would
        }
        zeros_client(self.client.clone(), self.device.clone(), shape, dtype)
    }

    /// Units a cube.
    pub fn units(&self) -> u32 {
        let most = self.client.properties().hardware.max_units_per_cube.clamp(1, UNITS);
        1 << most.ilog2()
    }

    /// Groups of at most `width` lanes. As wide with planes as without, so that both add in the same order.
    pub fn lanes(&self, width: usize) -> Lanes {
        let plane = match self.client.properties().hardware.plane_size_min {
            0 => WIDEST, // unknown, so that there are no planes to fit
            size => size.min(WIDEST),
        };
        let units = self.units();
        let widest = plane.min(units).ilog2();
        let planes = self.plane.contains(Plane::Ops);
        Lanes {
            units,
            width: 1 << width.clamp(1, 1 << widest).ilog2(),
            planes,
            sync: planes && self.plane.contains(Plane::Sync),
        }
    }

    /// Groups of lanes for rows of `mean` entries on average: each lane takes about three.
    pub fn lanes_for_rows(&self, rows: usize, entries: usize) -> Lanes {
        let mean = entries / rows.max(1);
        self.lanes((mean / 3).max(1).next_power_of_two())
    }

    /// Cubes for `items`, so many each.
    ///
    /// # Panics
    /// If that can't be launched: checked before dispatch.
    pub fn grid(&self, items: usize, per_cube: usize, elements: usize) -> Grid {
        let max = self.client.properties().hardware.max_cube_count;
        let grid = Grid::new(items, per_cube, elements, max);
        grid.unwrap_or_else(|| panic!("{items} items are too many to launch on {:?}", self.device))
    }

    /// Whether a buffer of so many elements of this type can be made.
    pub fn holds(&self, elements: usize, dtype: DType) -> bool {
        let bytes = elements as u128 * dtype.size() as u128;
        bytes <= u128::from(self.client.properties().memory.max_page_size)
    }

    /// Cubes for `items`, one a unit.
    pub fn elementwise(&self, items: usize, elements: usize) -> (Grid, CubeDim) {
        let units = self.units();
        (self.grid(items, units as usize, elements), CubeDim::new_1d(units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WGPU: (u32, u32, u32) = (65_535, 65_535, 65_535);
    const CUDA: (u32, u32, u32) = (i32::MAX as u32, 65_535, 65_535);

    fn launched(grid: Grid) -> u128 {
        grid.cubes.iter().map(|n| u128::from(*n)).product()
    }

    #[test]
    fn grids_cover_all_items_and_hardly_more() {
        for max in [WGPU, CUDA] {
            for items in [0, 1, 255, 256, 257, 65_535 * 256, 65_535 * 256 + 1, 8_643_286 * 256, 1 << 34] {
                let grid = Grid::new(items, 256, 1, max).unwrap();
                let needed = (items as u128).div_ceil(256).max(1);
                assert!(launched(grid) >= needed, "{items}");
                assert!(launched(grid) < needed + 65_535, "{items}");
                assert!(grid.cubes[0] <= max.0 && grid.cubes[1] <= max.1 && grid.cubes[2] <= max.2);
            }
        }
    }

    /// The sizes of pytorch_sparse#223, cupy#6864, scipy#8163 and their like, whose 32-bit products wrapped.
    #[test]
    fn products_do_not_wrap() {
        let address = |items, elements| Grid::new(items, 256, elements, CUDA).unwrap().address();
        assert_eq!(address(8_643_286, 8_643_286 * 256), AddressType::U32); // unsigned holds it
        assert_eq!(address(1 << 17, 1 << 34), AddressType::U64);
        assert_eq!(address(16_777_217, 256 * 16_777_217), AddressType::U64); // 256 too many
        assert_eq!(address(1 << 32, 1), AddressType::U64); // a unit each
        assert_eq!(address(u32::MAX as usize, 1), AddressType::U64); // the last cube has units past 2^32
        assert_eq!(address(2_563_136_096, 2_563_136_096), AddressType::U32);
    }

    #[test]
    fn too_many_cubes_are_refused() {
        assert_eq!(Grid::new(1 << 20, 1, 1, (16, 16, 16)), None);
        assert_eq!(Grid::new(usize::MAX, 1, 1, WGPU), None);
        assert_eq!(launched(Grid::new(4096, 1, 1, (16, 16, 16)).unwrap()), 4096);
    }
}
