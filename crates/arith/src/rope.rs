//! Rotary position embedding: section 7 of the plan.

mod frequencies;
#[cfg(test)]
mod tests;

pub use frequencies::RopeFrequencies;

use crate::cpu::Cpu;
use crate::lanes::{Kernel, LANES, Lanes};

/// Which two elements of a head turn together. `d` is the number of rotated elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeLayout {
    /// `2 i` and `2 i + 1`: the original order, and what GGUF files of some families hold.
    Adjacent,
    /// `i` and `i + d / 2`: the order of transformers, GPT-NeoX and MLX.
    Halves,
}

/// Cosines and sines of the angles of some positions, times the attention factor, as binary32.
#[derive(Clone, Debug)]
pub struct RopeAngles {
    pairs: usize,
    positions: usize,
    /// `[positions, pairs]`.
    cos: Vec<f32>,
    /// `[positions, pairs]`.
    sin: Vec<f32>,
}

impl RopeAngles {
    /// The angles `position * frequency` of every position, in the order given.
    pub fn new(frequencies: &RopeFrequencies, positions: &[usize]) -> Self {
        let pairs = frequencies.inverse.len();
        let factor = frequencies.attention_factor;
        let mut cos = Vec::with_capacity(positions.len() * pairs);
        let mut sin = Vec::with_capacity(positions.len() * pairs);
        for &position in positions {
            for frequency in &frequencies.inverse {
                let (s, c) = libm::sincos(position as f64 * frequency);
                cos.push((c * factor) as f32);
                sin.push((s * factor) as f32);
            }
        }
        Self { pairs, positions: positions.len(), cos, sin }
    }

    /// Elements of a head that turn: two per frequency.
    pub fn rotary_dim(&self) -> usize {
        2 * self.pairs
    }

    /// How many positions these are.
    pub fn positions(&self) -> usize {
        self.positions
    }

    fn row(&self, position: usize) -> (&[f32], &[f32]) {
        let range = position * self.pairs..(position + 1) * self.pairs;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// Turns the first `2 * cos.len()` elements of every head of one row.
struct Rotate<'a> {
    row: &'a mut [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    layout: RopeLayout,
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let rotary_dim = 2 * self.cos.len();
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let head = &mut head[..rotary_dim];
            match self.layout {
                RopeLayout::Adjacent => turn_adjacent(lanes, head, self.cos, self.sin),
                RopeLayout::Halves => turn_halves(lanes, head, self.cos, self.sin),
            }
        }
    }
}

/// `(fma(a, cos, -(b * sin)), fma(b, cos, a * sin))`.
#[inline(always)]
fn turn<L: Lanes>(
    lanes: L,
    (a, b): (&mut [f32; LANES], &mut [f32; LANES]),
    cos: &[f32; LANES],
    sin: &[f32; LANES],
) {
    let (cos, sin) = (lanes.load(cos), lanes.load(sin));
    let (x, y) = (lanes.load(a), lanes.load(b));
    let minus_sin = lanes.sub(lanes.splat(-0.0), sin);
    lanes.store(lanes.fma(x, cos, lanes.mul(y, minus_sin)), a);
    lanes.store(lanes.fma(y, cos, lanes.mul(x, sin)), b);
}

#[inline(always)]
fn turn_halves<L: Lanes>(lanes: L, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = head.split_at_mut(cos.len());
    let (low, low_tail) = low.as_chunks_mut::<LANES>();
    let (high, high_tail) = high.as_chunks_mut::<LANES>();
    let (cos, cos_tail) = cos.as_chunks::<LANES>();
    let (sin, sin_tail) = sin.as_chunks::<LANES>();
    for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        turn(lanes, (low, high), cos, sin);
    }
    if !low_tail.is_empty() {
        let count = low_tail.len();
        let (mut low, mut high) = (padded(low_tail), padded(high_tail));
        turn(lanes, (&mut low, &mut high), &padded(cos_tail), &padded(sin_tail));
        low_tail.copy_from_slice(&low[..count]);
        high_tail.copy_from_slice(&high[..count]);
    }
}

#[inline(always)]
fn turn_adjacent<L: Lanes>(lanes: L, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let groups = head.chunks_mut(2 * LANES).zip(cos.chunks(LANES)).zip(sin.chunks(LANES));
    for ((pairs, cos), sin) in groups {
        let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
        for (i, pair) in pairs.chunks_exact(2).enumerate() {
            (a[i], b[i]) = (pair[0], pair[1]);
        }
        turn(lanes, (&mut a, &mut b), &padded(cos), &padded(sin));
        for (i, pair) in pairs.chunks_exact_mut(2).enumerate() {
            (pair[0], pair[1]) = (a[i], b[i]);
        }
    }
}

#[inline(always)]
fn padded(tail: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    lanes
}

impl Cpu {
    /// Turns the first [`RopeAngles::rotary_dim`] elements of every head by its row's angles, in place; the others stay.
    /// `x` is `[positions, heads * head_dim]`, row by row in the order of the angles.
    ///
    /// # Panics
    /// When the shapes contradict each other.
    pub fn rope(
        &self,
        x: &mut [f32],
        heads: usize,
        head_dim: usize,
        angles: &RopeAngles,
        layout: RopeLayout,
    ) {
        let width = heads * head_dim;
        assert_eq!(
            x.len(),
            angles.positions() * width,
            "one row of {heads} heads of {head_dim} per position"
        );
        assert!(angles.rotary_dim() <= head_dim, "{} rotated of {head_dim}", angles.rotary_dim());
        if x.is_empty() {
            return;
        }
        self.broken_rope(x, angles.positions());
        self.pool().run_pieces(x, width, &|position, row| {
            let (cos, sin) = angles.row(position);
            self.isa().run(Rotate { row, head_dim, cos, sin, layout });
        });
    }
}
