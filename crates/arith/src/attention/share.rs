//! How the work is shared among threads.
//!
//! The unit is one block of one tile. Units in order, tile by tile, are cut into one stretch of about equal cost for
//! each thread. A tile that is cut leaves the parts of its blocks behind, and these are merged when all threads are
//! done: what a tile adds up is the same however it was cut.

use super::tile::{Attend, Finish, Part, Tile};
use super::{AttentionShape, AttentionSpan};
use crate::cpu::Cpu;
use std::ops::Range;

/// The most queries in a tile: enough to use a loaded page many times, few enough that their scores stay in cache.
const MAX_QUERIES: usize = 48;
/// With fewer queries than this in a tile, widening keys and values would cost more than what is gained by balance.
const MIN_QUERIES: usize = 8;
/// How many tiles each thread should have, where there are rows enough.
const TILES_PER_THREAD: usize = 4;

/// Consecutive blocks of one tile, for one thread.
struct Stretch<'a> {
    /// Index of the tile.
    index: usize,
    tile: Tile<'a>,
    blocks: Range<usize>,
    /// Of each row, where the results go; empty when the tile is cut.
    out: Vec<&'a mut [f32]>,
    /// What the blocks give, when the tile is cut.
    parts: Vec<Part>,
}

pub(super) fn attend(
    cpu: &Cpu,
    shape: &AttentionShape,
    queries: &[f32],
    spans: &[AttentionSpan<'_>],
    out: &mut [f32],
) {
    let (tiles, outs) = cut_tiles(cpu.threads(), shape, queries, spans, out);
    let (mut shares, mut cut) = share_out(cpu.threads(), tiles, outs);
    let isa = cpu.isa();
    cpu.pool().run_pieces(&mut shares, 1, &|_, shares| {
        for stretch in shares.iter_mut().flatten() {
            let tile = stretch.tile;
            let merge = stretch.blocks.start == tile.blocks().start;
            let parts = isa.run(Attend { tile, blocks: stretch.blocks.clone(), merge });
            if stretch.out.is_empty() {
                stretch.parts = parts;
            } else {
                isa.run(Finish { tile, parts, out: &mut stretch.out });
            }
        }
    });
    for stretch in shares.into_iter().flatten().filter(|stretch| stretch.out.is_empty()) {
        let cut = cut.iter_mut().find(|cut| cut.index == stretch.index).expect("every cut tile is listed");
        cut.parts.extend(stretch.parts);
    }
    cpu.pool().run_pieces(&mut cut, 1, &|_, cut| {
        for cut in cut {
            let parts = std::mem::take(&mut cut.parts);
            isa.run(Finish { tile: cut.tile, parts, out: &mut cut.out });
        }
    });
}

/// The tiles of all spans, and of each the rows of its results.
fn cut_tiles<'a>(
    threads: usize,
    shape: &'a AttentionShape,
    mut queries: &'a [f32],
    spans: &'a [AttentionSpan<'a>],
    out: &'a mut [f32],
) -> (Vec<Tile<'a>>, Vec<Vec<&'a mut [f32]>>) {
    let kv_heads = shape.kv.kv_heads;
    let heads = shape.heads / kv_heads;
    let all_rows: usize = spans.iter().map(|span| span.rows).sum();
    let queries_per_tile =
        (all_rows * shape.heads / (TILES_PER_THREAD * threads)).clamp(MIN_QUERIES, MAX_QUERIES);
    let rows_per_tile = (queries_per_tile / heads).max(1);

    let (mut tiles, mut outs) = (Vec::new(), Vec::new());
    let mut out_heads = out.chunks_mut(heads * shape.kv.value_dim);
    for span in spans {
        for first in (0..span.rows).step_by(rows_per_tile) {
            let rows = rows_per_tile.min(span.rows - first);
            let (tile_queries, rest) = queries.split_at(rows * shape.query_width());
            queries = rest;
            tiles.extend((0..kv_heads).map(|kv_head| Tile {
                shape,
                pages: &span.pages,
                kv_head,
                position: span.first_position + first,
                queries: tile_queries,
            }));
            let mut tile_outs: Vec<_> = (0..kv_heads).map(|_| Vec::with_capacity(rows)).collect();
            for (i, out) in out_heads.by_ref().take(rows * kv_heads).enumerate() {
                tile_outs[i % kv_heads].push(out);
            }
            outs.extend(tile_outs);
        }
    }
    (tiles, outs)
}

/// A share of the tiles for each thread, and the tiles that had to be cut for it.
fn share_out<'a>(
    threads: usize,
    tiles: Vec<Tile<'a>>,
    outs: Vec<Vec<&'a mut [f32]>>,
) -> (Vec<Vec<Stretch<'a>>>, Vec<Stretch<'a>>) {
    let cost = |tile: &Tile<'_>, block| tile.span_in_block(block).len() * tile.len();
    let costs = |tile: &Tile<'_>| tile.blocks().map(|block| cost(tile, block)).sum::<usize>();
    let total: usize = tiles.iter().map(costs).sum();
    let mut shares: Vec<_> = (0..threads).map(|_| Vec::new()).collect();
    let mut cut = Vec::new();
    let mut before = 0;
    for (index, (tile, out)) in tiles.into_iter().zip(outs).enumerate() {
        let mut stretches: Vec<(usize, Range<usize>)> = Vec::new();
        for block in tile.blocks() {
            // The thread in whose equal part of the whole cost the middle of this unit lies.
            let cost = cost(&tile, block);
            let thread = (before + cost / 2) * threads / total;
            before += cost;
            match stretches.last_mut() {
                Some((last, blocks)) if *last == thread => blocks.end = block + 1,
                _ => stretches.push((thread, block..block + 1)),
            }
        }
        let stretch = |blocks, out| Stretch { index, tile, blocks, out, parts: Vec::new() };
        if let [(thread, blocks)] = &stretches[..] {
            shares[*thread].push(stretch(blocks.clone(), out));
            continue;
        }
        cut.push(stretch(tile.blocks(), out));
        for (thread, blocks) in stretches {
            shares[thread].push(stretch(blocks, Vec::new()));
        }
    }
    (shares, cut)
}
