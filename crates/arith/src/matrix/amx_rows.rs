//! Rows in 16-bit integers as integer tiles take them: sixteen rows side by side, plane by plane.

use super::activations::{FineBlock, QuantizedBlock, Tiled};
use crate::amx::{Plane, TILE_ROWS};
use crate::buffer::{Buffer, Shelf};
use crate::cpu::Cpu;
use crate::format::BLOCK;
use std::sync::Arc;

/// A block of sixteen rows. Rows that there are not are zeros.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct RowTile {
    pub(super) high: Plane,
    pub(super) low: Plane,
    /// The value of an integer of each row.
    pub(super) scales: [f32; TILE_ROWS],
    /// Of all 32 columns: what offsets multiply.
    pub(super) whole: [f32; TILE_ROWS],
    /// The same of columns 0 to 15 and 16 to 31.
    pub(super) halves: [[f32; TILE_ROWS]; 2],
}

/// The fine part of a block of sixteen rows.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct FineTile {
    pub(super) plane: Plane,
    /// Of both parts: what offsets multiply.
    pub(super) scaled: [f32; TILE_ROWS],
}

const NO_PLANE: Plane = Plane([[0; BLOCK]; TILE_ROWS]);
const NO_ROWS: RowTile = RowTile {
    high: NO_PLANE,
    low: NO_PLANE,
    scales: [0.0; TILE_ROWS],
    whole: [0.0; TILE_ROWS],
    halves: [[0.0; TILE_ROWS]; 2],
};
const NO_FINE: FineTile = FineTile { plane: NO_PLANE, scaled: [0.0; TILE_ROWS] };

/// The tiles of `rows`, those of rows 0 to 15 first.
pub(super) fn row_tiles(cpu: &Cpu, rows: &Tiled<QuantizedBlock>) -> Buffer<RowTile> {
    tiles(cpu, &cpu.shelves().row_tiles, rows, NO_ROWS, |tile, r, from| {
        (tile.high.0[r], tile.low.0[r]) = (from.row.high, from.row.low);
        (tile.scales[r], tile.whole[r]) = (from.scale, from.whole.scaled);
        (tile.halves[0][r], tile.halves[1][r]) = (from.halves[0].scaled, from.halves[1].scaled);
    })
}

/// The tiles of the fine part of rows.
pub(super) fn fine_tiles(cpu: &Cpu, rows: &Tiled<FineBlock>) -> Buffer<FineTile> {
    tiles(cpu, &cpu.shelves().fine_tiles, rows, NO_FINE, |tile, r, from| {
        (tile.plane.0[r], tile.scaled[r]) = (from.plane, from.sums.scaled);
    })
}

/// Tiles of sixteen rows, block by block; `set` puts a block into row `r` of a tile. Rows that there are not stay
/// `empty`.
fn tiles<B: Copy + Send + Sync, T: Copy + Send + Sync>(
    cpu: &Cpu,
    shelf: &Arc<Shelf<T>>,
    rows: &Tiled<B>,
    empty: T,
    set: impl Fn(&mut T, usize, &B) + Sync,
) -> Buffer<T> {
    let blocks = rows.blocks_of_row();
    let mut tiles = Buffer::take(shelf, rows.len().div_ceil(TILE_ROWS) * blocks, empty);
    cpu.pool().run_pieces(&mut tiles, blocks.max(1), &|index, tiles| {
        let first = TILE_ROWS * index;
        let count = TILE_ROWS.min(rows.len() - first);
        for (block, tile) in tiles.iter_mut().enumerate() {
            if count < TILE_ROWS {
                *tile = empty;
            }
            for r in 0..count {
                set(tile, r, &rows.rows_from(first + r).blocks::<1>(block)[0]);
            }
        }
    });
    tiles
}
