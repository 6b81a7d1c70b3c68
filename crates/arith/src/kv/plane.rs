//! The numbers of one page, in the order that attention reads them.
//!
//! Positions are kept in groups of sixteen. A group holds, head by head: the keys as one line per column, whose lanes
//! are the sixteen positions (scores of sixteen keys are then sums across columns of whole lines); the values as rows
//! of whole lines, the last one padded with zeros. Positions that are not there yet are zeros, so that equal content
//! means equal lines.

use super::KvShape;
use super::line::{F32Line, Line, SCALE_BLOCK};
use crate::lanes::{LANES, LINE, Lanes};
use std::ops::Range;

/// How many groups before their turn lines are asked for where several rows read. Those of one head are too short a run for the processor to
/// foresee the next.
pub(super) const AHEAD: usize = 4;

/// Code generic over the type of the numbers of a page.
pub(crate) trait PageVisitor {
    /// The code.
    fn visit<T: Line>(self, plane: &Plane<T>);
}

/// Keys and values of one type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plane<T> {
    /// `[group][head][column]`, lanes are positions.
    keys: Vec<T>,
    /// `[group][head][block of 32 columns]`, lanes are positions; empty where the type has no scales.
    key_scales: Vec<F32Line>,
    /// `[group][head][position][line of 16 columns]`.
    values: Vec<T>,
    /// `[group][head][block of 32 columns]`, lanes are positions; empty where the type has no scales.
    value_scales: Vec<F32Line>,
}

/// One head's sixteen positions.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a, T> {
    /// A line per key column, lanes are positions.
    pub(crate) keys: &'a [T],
    /// A line per block of 32 key columns, lanes are positions.
    pub(crate) key_scales: &'a [F32Line],
    /// Sixteen rows of `value_dim` rounded up to whole lines.
    pub(crate) values: &'a [T],
    /// A line per block of 32 value columns, lanes are positions.
    pub(crate) value_scales: &'a [F32Line],
}

/// How many lines each part of one head's group has.
struct Lines {
    keys: usize,
    key_scales: usize,
    value_row: usize,
    value_scales: usize,
}

impl Lines {
    fn of<T: Line>(shape: KvShape) -> Self {
        let scales = |columns: usize| if T::SCALED { columns.div_ceil(SCALE_BLOCK) } else { 0 };
        Self {
            keys: shape.key_dim,
            key_scales: scales(shape.key_dim),
            value_row: shape.value_dim.div_ceil(LANES),
            value_scales: scales(shape.value_dim),
        }
    }
}

impl<T: Line> Plane<T> {
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), key_scales: Vec::new(), values: Vec::new(), value_scales: Vec::new() }
    }

    /// The sixteen positions of `group` in `head`.
    #[inline(always)]
    pub(crate) fn group(&self, shape: KvShape, group: usize, head: usize) -> Group<'_, T> {
        let lines = Lines::of::<T>(shape);
        let at = group * shape.kv_heads + head;
        let part = |count: usize| at * count..(at + 1) * count;
        Group {
            keys: &self.keys[part(lines.keys)],
            key_scales: &self.key_scales[part(lines.key_scales)],
            values: &self.values[part(LANES * lines.value_row)],
            value_scales: &self.value_scales[part(lines.value_scales)],
        }
    }

    /// Widens some columns of the keys of `group` in `head`: a line per column, lanes are positions. Returns the scales
    /// of those columns, which lie in one block of 32, where the type has them.
    #[inline(always)]
    pub(super) fn widen_keys<L: Lanes>(
        &self,
        lanes: L,
        shape: KvShape,
        (group, head): (usize, usize),
        columns: Range<usize>,
        to: &mut [F32Line],
    ) -> Option<&F32Line> {
        let ahead = (group + AHEAD) * shape.key_width() + head * shape.key_dim;
        let group = self.group(shape, group, head);
        let block = columns.start / SCALE_BLOCK;
        if let Some(ahead) = self.keys.get(ahead + columns.start..ahead + columns.end) {
            ahead.iter().for_each(|line| lanes.prefetch(line));
        }
        for (to, line) in to.iter_mut().zip(&group.keys[columns]) {
            lanes.store(line.load(lanes), to.elements_mut());
        }
        T::SCALED.then(|| &group.key_scales[block])
    }

    /// Widens `N` lines of sixteen columns, the first being `first`, of the values of `group` in `head`: a row per
    /// position. Lines past the last of a value repeat it. Returns the scales of those columns, which lie in one block
    /// of 32, where the type has them; lanes are positions.
    #[inline(always)]
    pub(super) fn widen_values<L: Lanes, const N: usize>(
        &self,
        lanes: L,
        shape: KvShape,
        (group, head): (usize, usize),
        first: usize,
        to: &mut [[F32Line; N]],
    ) -> Option<&F32Line> {
        let row = Lines::of::<T>(shape).value_row;
        let ahead = self.values.get(((group + AHEAD) * shape.kv_heads + head) * LANES * row..);
        let group = self.group(shape, group, head);
        if let Some(ahead) = ahead {
            ahead.chunks_exact(row).take(LANES).for_each(|value| lanes.prefetch(&value[first]));
        }
        for (to, value) in to.iter_mut().zip(group.values.chunks_exact(row)) {
            for n in 0..N {
                lanes.store(value[(first + n).min(row - 1)].load(lanes), to[n].elements_mut());
            }
        }
        T::SCALED.then(|| &group.value_scales[first * LANES / SCALE_BLOCK])
    }

    /// Asks for the first of `group`'s keys or values in `head`, if there is one, before [`Plane::widen_keys`] or
    /// [`Plane::widen_values`] gets there and asks for what follows.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(
        &self,
        lanes: L,
        shape: KvShape,
        (group, head): (usize, usize),
        keys: bool,
    ) {
        let at = group * shape.kv_heads + head;
        let (lines, count) = if keys {
            (&self.keys, shape.key_dim)
        } else {
            (&self.values, LANES * Lines::of::<T>(shape).value_row)
        };
        if let Some(lines) = lines.get(at * count..(at + 1) * count) {
            // Once for every line of the processor's cache.
            for line in lines.iter().step_by((LINE / size_of::<T>()).max(1)) {
                lanes.prefetch(line);
            }
        }
    }

    /// The key of one position in one head, and its scales where the type has them.
    pub(super) fn key(&self, shape: KvShape, position: usize, head: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        let (group, lane) = (self.group(shape, position / LANES, head), position % LANES);
        let key = group.keys.iter().map(|line| T::widen_one(line.elements()[lane])).collect();
        (key, T::SCALED.then(|| lane_of(group.key_scales, lane)))
    }

    /// The value of one position in one head, and its scales where the type has them.
    pub(super) fn value(&self, shape: KvShape, position: usize, head: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        let (group, lane) = (self.group(shape, position / LANES, head), position % LANES);
        let row = &group.values[lane * Lines::of::<T>(shape).value_row..];
        let columns = row.iter().flat_map(Line::elements).take(shape.value_dim);
        let value = columns.map(|&element| T::widen_one(element)).collect();
        (value, T::SCALED.then(|| lane_of(group.value_scales, lane)))
    }

    /// Appends rows behind the first `len` positions, making room for `groups` groups if they grow past it.
    pub(super) fn push(&mut self, shape: KvShape, len: usize, keys: &[f32], values: &[f32], groups: usize) {
        let rows = keys.len() / shape.key_width();
        self.resize(shape, (len + rows).div_ceil(LANES), groups);
        let lines = Lines::of::<T>(shape);
        let mut row = vec![T::ZERO_ELEMENT; shape.key_dim.max(shape.value_dim)];
        let mut scales = vec![0.0; lines.key_scales.max(lines.value_scales)];
        let mut done = 0;
        while done < rows {
            let (group, lane) = ((len + done) / LANES, (len + done) % LANES);
            let count = (LANES - lane).min(rows - done);
            for head in 0..shape.kv_heads {
                let at = group * shape.kv_heads + head;
                for i in done..done + count {
                    let lane = (len + i) % LANES;
                    let key = &keys[i * shape.key_width()..][head * shape.key_dim..][..shape.key_dim];
                    T::round_row(key, &mut row[..key.len()], &mut scales[..lines.key_scales]);
                    let to = &mut self.keys[at * lines.keys..(at + 1) * lines.keys];
                    for (line, &element) in to.iter_mut().zip(&row) {
                        line.elements_mut()[lane] = element;
                    }
                    let to = &mut self.key_scales[at * lines.key_scales..(at + 1) * lines.key_scales];
                    for (line, &scale) in to.iter_mut().zip(&scales) {
                        line.elements_mut()[lane] = scale;
                    }

                    let value =
                        &values[i * shape.value_width()..][head * shape.value_dim..][..shape.value_dim];
                    T::round_row(value, &mut row[..value.len()], &mut scales[..lines.value_scales]);
                    let to = &mut self.values[(at * LANES + lane) * lines.value_row..][..lines.value_row];
                    for (line, elements) in to.iter_mut().zip(row[..value.len()].chunks(LANES)) {
                        line.elements_mut()[..elements.len()].copy_from_slice(elements);
                    }
                    let to = &mut self.value_scales[at * lines.value_scales..(at + 1) * lines.value_scales];
                    for (line, &scale) in to.iter_mut().zip(&scales) {
                        line.elements_mut()[lane] = scale;
                    }
                }
            }
            done += count;
        }
    }

    /// Drops every position from `len` on, and zeroes what is left of the last group.
    pub(super) fn truncate(&mut self, shape: KvShape, len: usize) {
        let groups = len.div_ceil(LANES);
        self.resize(shape, groups, 0);
        let used = len % LANES;
        if used == 0 {
            return;
        }
        let lines = Lines::of::<T>(shape);
        let heads = (groups - 1) * shape.kv_heads..groups * shape.kv_heads;
        for line in &mut self.keys[heads.start * lines.keys..] {
            line.elements_mut()[used..].fill(T::ZERO_ELEMENT);
        }
        for line in &mut self.key_scales[heads.start * lines.key_scales..] {
            line.elements_mut()[used..].fill(0.0);
        }
        for line in &mut self.value_scales[heads.start * lines.value_scales..] {
            line.elements_mut()[used..].fill(0.0);
        }
        for at in heads {
            self.values[(at * LANES + used) * lines.value_row..(at + 1) * LANES * lines.value_row]
                .fill(T::ZERO);
        }
    }

    /// Appends the first `len` positions as little-endian bytes: keys, scales of keys, values, scales of values, each in
    /// the order of memory without the positions and columns that are padding.
    pub(super) fn encode(&self, shape: KvShape, len: usize, out: &mut Vec<u8>) {
        let lines = Lines::of::<T>(shape);
        encode_groups(&self.keys, lines.keys * shape.kv_heads, len, out);
        encode_groups(&self.key_scales, lines.key_scales * shape.kv_heads, len, out);
        let mut heads = self.values.chunks(lines.value_row * LANES);
        for used in runs(len) {
            for head in heads.by_ref().take(shape.kv_heads) {
                for row in head.chunks(lines.value_row).take(used) {
                    encode_groups(row, 1, shape.value_dim, out);
                }
            }
        }
        encode_groups(&self.value_scales, lines.value_scales * shape.kv_heads, len, out);
    }

    /// The inverse of [`Plane::encode`]; `bytes` has exactly the length that `len` positions take.
    pub(super) fn decode(shape: KvShape, len: usize, mut bytes: &[u8]) -> Self {
        let lines = Lines::of::<T>(shape);
        let mut plane = Self::new();
        plane.resize(shape, len.div_ceil(LANES), 0);
        decode_groups(&mut plane.keys, lines.keys * shape.kv_heads, len, &mut bytes);
        decode_groups(&mut plane.key_scales, lines.key_scales * shape.kv_heads, len, &mut bytes);
        let mut heads = plane.values.chunks_mut(lines.value_row * LANES);
        for used in runs(len) {
            for head in heads.by_ref().take(shape.kv_heads) {
                for row in head.chunks_mut(lines.value_row).take(used) {
                    decode_groups(row, 1, shape.value_dim, &mut bytes);
                }
            }
        }
        decode_groups(&mut plane.value_scales, lines.value_scales * shape.kv_heads, len, &mut bytes);
        plane
    }

    /// Bytes that one position takes in [`Plane::encode`].
    pub(super) fn encoded_bytes(shape: KvShape) -> usize {
        let lines = Lines::of::<T>(shape);
        let numbers = shape.key_dim.saturating_add(shape.value_dim).saturating_mul(T::SIZE);
        let scales = (lines.key_scales + lines.value_scales).saturating_mul(size_of::<f32>());
        numbers.saturating_add(scales).saturating_mul(shape.kv_heads)
    }

    /// Bytes of memory that a group of sixteen positions takes.
    pub(super) fn group_bytes(shape: KvShape) -> usize {
        let lines = Lines::of::<T>(shape);
        let numbers = lines.keys.saturating_add(lines.value_row.saturating_mul(LANES));
        let scales = (lines.key_scales + lines.value_scales).saturating_mul(size_of::<F32Line>());
        numbers.saturating_mul(size_of::<T>()).saturating_add(scales).saturating_mul(shape.kv_heads)
    }

    /// Bytes of memory held, room for more positions included.
    pub(super) fn bytes(&self) -> usize {
        (self.keys.capacity() + self.values.capacity()) * size_of::<T>()
            + (self.key_scales.capacity() + self.value_scales.capacity()) * size_of::<F32Line>()
    }

    /// Holds exactly `groups` groups; where they do not fit, makes room for `room` groups at once.
    fn resize(&mut self, shape: KvShape, groups: usize, room: usize) {
        let lines = Lines::of::<T>(shape);
        let sizes = |lines: usize| (groups * shape.kv_heads * lines, room * shape.kv_heads * lines);
        resize_lines(&mut self.keys, sizes(lines.keys), T::ZERO);
        resize_lines(&mut self.values, sizes(lines.value_row * LANES), T::ZERO);
        resize_lines(&mut self.key_scales, sizes(lines.key_scales), F32Line::ZERO);
        resize_lines(&mut self.value_scales, sizes(lines.value_scales), F32Line::ZERO);
    }
}

/// The lengths of the runs of sixteen that `len` numbers fall into: all sixteen but perhaps the last.
fn runs(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(LANES).map(move |start| LANES.min(len - start))
}

/// Appends, run after run of `len` lanes, what the run uses of its `per_run` lines.
fn encode_groups<T: Line>(lines: &[T], per_run: usize, len: usize, out: &mut Vec<u8>) {
    for (run, used) in runs(len).enumerate() {
        for line in &lines[run * per_run..(run + 1) * per_run] {
            for &element in &line.elements()[..used] {
                T::to_bytes(element, out);
            }
        }
    }
}

/// The inverse of [`encode_groups`]: takes from the front of `bytes`.
fn decode_groups<T: Line>(lines: &mut [T], per_run: usize, len: usize, bytes: &mut &[u8]) {
    for (run, used) in runs(len).enumerate() {
        for line in &mut lines[run * per_run..(run + 1) * per_run] {
            let (from, rest) = bytes.split_at(used * T::SIZE);
            for (element, from) in line.elements_mut().iter_mut().zip(from.chunks_exact(T::SIZE)) {
                *element = T::from_bytes(from);
            }
            *bytes = rest;
        }
    }
}

/// Makes `lines` exactly `count` long; where it must grow its memory, it makes room for `room` lines at once.
fn resize_lines<T: Copy>(lines: &mut Vec<T>, (count, room): (usize, usize), zero: T) {
    if count > lines.capacity() {
        lines.reserve_exact(room.max(count) - lines.len());
    }
    lines.resize(count, zero);
}

/// One lane of every line.
fn lane_of(lines: &[F32Line], lane: usize) -> Vec<f32> {
    lines.iter().map(|line| line.elements()[lane]).collect()
}
