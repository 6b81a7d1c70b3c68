//! Integer tiles: exact products of sixteen rows with sixteen outputs at once, as AMX computes them.
//!
//! A tile product is a sum of integers, so it is the same however it is computed; what is done with it afterwards is
//! the plan's and lies elsewhere. [`Tiles`] is what kernels are written against: the processor's tiles, or plain
//! Rust, which is what the processor's are checked against before they are offered and what tests run everywhere.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod hardware;
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
mod model;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use hardware::HardwareTiles;
#[cfg(test)]
pub(crate) use model::ModelTiles;

use crate::format::BLOCK;
use crate::lanes::{LANES, LINE};

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;

/// One plane of signed bytes of a block of sixteen rows.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Plane(pub(crate) [[i8; BLOCK]; TILE_ROWS]);

/// Four columns of sixteen outputs, as bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct CodeLine(pub(crate) [u8; LINE]);

/// Exact sums, `[row][output]`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct TileSums(pub(crate) [[i32; LANES]; TILE_ROWS]);

impl TileSums {
    pub(crate) const ZERO: Self = Self([[0; LANES]; TILE_ROWS]);
}

/// Tile products of steps of a number of columns. A value stays on the thread that made it.
pub(crate) trait Tiles {
    /// Makes ready for steps of `columns` columns, 16 or 32.
    fn begin(columns: usize) -> Self;

    /// Starts the sums of two planes in bank `BANK`, 0 or 1: `sums[r][o]` = the sum of `plane[r][first + 4 l + c]` times
    /// byte `4 o + c` of `lines[l]`, which are signed or unsigned. There are as many lines as make a step.
    fn start<const BANK: usize>(&self, planes: [&Plane; 2], first: usize, lines: &[CodeLine], signed: bool);

    /// Stores the sums that were started last in bank `BANK`. What lies between is time for them to be computed.
    fn finish<const BANK: usize>(&self, sums: &mut [TileSums; 2]);

    /// The sums of one plane.
    fn single(&self, plane: &Plane, first: usize, lines: &[CodeLine], signed: bool, sums: &mut TileSums);
}

/// Whether this processor has integer tiles, the system lets this process use them, and they compute what they
/// should. Found out once.
pub(crate) fn is_available() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *AVAILABLE.get_or_init(|| hardware::is_permitted() && model::agrees::<HardwareTiles>())
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}
