//! What blocks see of a pass.

use samebit_arith::{AttentionShape, AttentionSpan, Buffer, Cpu, RopeAngles, RopeFrequencies};

use super::{RouterPicks, Span, Taps};
use crate::state::LayerState;

/// A pass under way: the sequences behind the rows, and the recorders.
pub(crate) struct Pass<'a, 's> {
    cpu: &'a Cpu,
    spans: &'a mut [Span<'s>],
    /// Absolute position of every row.
    positions: Vec<usize>,
    taps: Taps,
    layers: Vec<Vec<f32>>,
    routers: Vec<Option<RouterPicks>>,
}

impl<'a, 's> Pass<'a, 's> {
    pub(super) fn new(cpu: &'a Cpu, spans: &'a mut [Span<'s>], taps: Taps, layers: usize) -> Self {
        let positions = spans
            .iter()
            .flat_map(|span| span.state.length()..span.state.length() + span.tokens.len())
            .collect();
        let routers = if taps.layers { vec![None; layers] } else { Vec::new() };
        Self { cpu, spans, positions, taps, layers: Vec::new(), routers }
    }

    /// The machine.
    pub(crate) fn cpu(&self) -> &'a Cpu {
        self.cpu
    }

    /// Rotary angles of all rows.
    pub(crate) fn angles(&self, frequencies: &RopeFrequencies) -> RopeAngles {
        RopeAngles::new(frequencies, &self.positions)
    }

    /// Stores the rows' `keys` and `values` in the states of `layer`, then attends with `queries`. All are rows of
    /// heads side by side; the result is `[rows, heads * value_dim]`.
    pub(crate) fn attend(
        &mut self,
        layer: usize,
        shape: &AttentionShape,
        queries: &[f32],
        keys: &[f32],
        values: &[f32],
    ) -> Buffer {
        let (key_width, value_width) = (shape.kv.key_width(), shape.kv.value_width());
        let mut first = 0;
        let mut spans = Vec::with_capacity(self.spans.len());
        for span in self.spans.iter_mut() {
            let (first_position, rows) = (span.state.length(), span.tokens.len());
            let LayerState::Attention(kv) = span.state.layer_mut(layer);
            kv.push(
                &keys[first * key_width..(first + rows) * key_width],
                &values[first * value_width..(first + rows) * value_width],
            );
            let pages = kv.pages().iter().map(AsRef::as_ref).collect();
            spans.push(AttentionSpan { first_position, rows, pages });
            first += rows;
        }
        let mut out = self.cpu.buffer(first * shape.heads * shape.kv.value_dim);
        self.cpu.attention(shape, queries, &spans, &mut out);
        out
    }

    /// Records what a router picked: `picked` ids per row, in pick order.
    pub(crate) fn picked(&mut self, layer: usize, picked: usize, ids: &[u32]) {
        if self.taps.layers {
            // Ids are below 2^31: sizes of configurations are.
            let ids = ids.iter().map(|&id| id as i32).collect();
            self.routers[layer] = Some(RouterPicks { picked, ids });
        }
    }

    /// Records the residual stream after block `layer`.
    pub(crate) fn end_of_block(&mut self, layer: usize, x: &[f32]) {
        if self.taps.layers {
            debug_assert_eq!(self.layers.len(), layer, "blocks end in order");
            self.layers.push(x.to_vec());
        }
    }

    /// What was recorded.
    pub(super) fn into_recorded(self) -> (Vec<Vec<f32>>, Vec<Option<RouterPicks>>) {
        (self.layers, self.routers)
    }
}
