//! The forward pass as a textbook has it: one position after the other, one head after the other, nothing fused.

use samebit_arith::double::{add_scaled, dot, gelu_tanh, rms_norm, silu, soft_cap, softmax, sum};

use super::architecture::{Architecture, BlockPlan};
use super::weights::{Block, FeedForward, Gated, Routed, Weights};

/// Activations of several positions: `[positions][width]`.
pub(super) type Rows = Vec<Vec<f64>>;

/// Keys (rotated) and values of the positions so far, of one layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LayerCache {
    pub(super) keys: Rows,
    pub(super) values: Rows,
}

/// Keys and values of one sequence, per layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cache {
    pub(super) layers: Vec<LayerCache>,
}

impl Cache {
    /// The cache of a sequence without tokens.
    pub(super) fn new(layers: usize) -> Self {
        Self { layers: vec![LayerCache::default(); layers] }
    }

    /// Whether the first positions hold exactly what `prefix` holds.
    pub(super) fn starts_with(&self, prefix: &Self) -> bool {
        let same = |(layer, prefix): (&LayerCache, &LayerCache)| {
            layer.keys.starts_with(&prefix.keys) && layer.values.starts_with(&prefix.values)
        };
        self.layers.len() == prefix.layers.len() && self.layers.iter().zip(&prefix.layers).all(same)
    }

    /// Positions held.
    pub(super) fn length(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.keys.len())
    }
}

/// How a query head finds its key and value head. Both ways must give the same numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadSharing {
    /// Query head `h` reads key head `h / group` where it lies.
    Grouped,
    /// Every key and value head is first copied once per query head that it serves.
    Copied,
}

/// Everything that one layer computed in a pass.
pub(super) struct LayerRecord {
    pub(super) input: Rows,
    pub(super) normed: Rows,
    /// Queries before the rotation, head norms included.
    pub(super) query_before_rope: Rows,
    pub(super) query: Rows,
    pub(super) new_keys: Rows,
    pub(super) new_values: Rows,
    /// Positions in the cache after this pass.
    pub(super) cached: usize,
    /// `mask[query][key]`: whether the query sees the key.
    pub(super) mask: Vec<Vec<bool>>,
    /// `attention[head][query][key]`.
    pub(super) attention: Vec<Rows>,
    pub(super) joined: Rows,
    pub(super) after_attention: Rows,
    pub(super) gate: Rows,
    pub(super) up: Rows,
    pub(super) feed_forward: Rows,
    pub(super) output: Rows,
}

/// Everything that a pass computed.
pub(super) struct Pass {
    pub(super) positions: Vec<usize>,
    pub(super) layers: Vec<LayerRecord>,
    pub(super) hidden: Rows,
    pub(super) logits: Rows,
}

/// A model ready to run.
pub(super) struct Model<'a> {
    pub(super) architecture: Architecture,
    pub(super) weights: Weights<'a>,
}

impl Model<'_> {
    /// Runs `ids` after the tokens in `cache`, and adds them to it. Ids are below the vocabulary size.
    pub(super) fn forward(&self, ids: &[u32], cache: &mut Cache, sharing: HeadSharing) -> Pass {
        let architecture = &self.architecture;
        let start = cache.length();
        let positions: Vec<usize> = (start..start + ids.len()).collect();
        let scaled =
            |row: Vec<f64>| row.into_iter().map(|value| value * architecture.embedding_scale).collect();
        let mut x: Rows = ids.iter().map(|id| scaled(self.weights.embedding.row(*id as usize))).collect();
        let mut layers = Vec::with_capacity(architecture.blocks.len());
        for ((plan, block), cache) in
            architecture.blocks.iter().zip(&self.weights.blocks).zip(&mut cache.layers)
        {
            let record = self.block(plan, block, x, &positions, cache, sharing);
            x = record.output.clone();
            layers.push(record);
        }
        let hidden = self.norm(&x, &self.weights.final_norm);
        let mut logits = self.weights.head().apply(&hidden);
        if let Some(cap) = architecture.logits_cap {
            logits.iter_mut().flatten().for_each(|logit| *logit = soft_cap(*logit, cap));
        }
        Pass { positions, layers, hidden, logits }
    }

    fn block(
        &self,
        plan: &BlockPlan,
        block: &Block<'_>,
        input: Rows,
        positions: &[usize],
        cache: &mut LayerCache,
        sharing: HeadSharing,
    ) -> LayerRecord {
        let normed = self.norm(&input, &block.input_norm);
        let (query_norm, key_norm) = match &block.head_norms {
            Some((query, key)) => (Some(query), Some(key)),
            None => (None, None),
        };
        let query_before_rope = self.head_norm(block.q.apply(&normed), query_norm);
        let new_keys = self.head_norm(block.k.apply(&normed), key_norm);
        let query = self.rotate(plan, query_before_rope.clone(), positions);
        let new_keys = self.rotate(plan, new_keys, positions);
        let new_values = block.v.apply(&normed);
        cache.keys.extend(new_keys.iter().cloned());
        cache.values.extend(new_values.iter().cloned());

        let mask = causal_mask(positions, cache.keys.len(), plan.window);
        let attention = self.attention_weights(&query, cache, &mask, sharing);
        let joined = self.mix_values(&attention, cache, sharing, positions.len());
        let mut attended = block.o.apply(&joined);
        if let Some((norm, _)) = &block.output_norms {
            attended = self.norm(&attended, norm);
        }
        let after_attention = added(&input, &attended);

        let feed_forward_input = self.norm(&after_attention, &block.feed_forward_norm);
        let (gate, up, mut feed_forward) = self.feed_forward(&block.feed_forward, &feed_forward_input);
        if let Some((_, norm)) = &block.output_norms {
            feed_forward = self.norm(&feed_forward, norm);
        }
        let output = added(&after_attention, &feed_forward);
        let cached = cache.keys.len();
        LayerRecord {
            input,
            normed,
            query_before_rope,
            query,
            new_keys,
            new_values,
            cached,
            mask,
            attention,
            joined,
            after_attention,
            gate,
            up,
            feed_forward,
            output,
        }
    }

    fn norm(&self, rows: &Rows, weight: &[f64]) -> Rows {
        rows.iter()
            .map(|row| rms_norm(row, weight, self.architecture.norm_offset, self.architecture.eps))
            .collect()
    }

    fn head_norm(&self, rows: Rows, weight: Option<&Vec<f64>>) -> Rows {
        let Some(weight) = weight else { return rows };
        let norm =
            |head: &[f64]| rms_norm(head, weight, self.architecture.norm_offset, self.architecture.eps);
        rows.iter().map(|row| row.chunks(self.architecture.head_size).flat_map(norm).collect()).collect()
    }

    fn rotate(&self, plan: &BlockPlan, mut rows: Rows, positions: &[usize]) -> Rows {
        for (row, position) in rows.iter_mut().zip(positions) {
            for head in row.chunks_mut(self.architecture.head_size) {
                plan.rope.rotate(head, *position);
            }
        }
        rows
    }

    /// `[head][query][key]`: softmax of the scaled scores; exactly 0 where the mask hides the key.
    fn attention_weights(
        &self,
        query: &Rows,
        cache: &LayerCache,
        mask: &[Vec<bool>],
        sharing: HeadSharing,
    ) -> Vec<Rows> {
        let keys = self.shared_heads(&cache.keys, sharing);
        let score = |query: &[f64], key: &[f64]| {
            let score = dot(query, key) * self.architecture.score_scale;
            self.architecture.score_cap.map_or(score, |cap| soft_cap(score, cap))
        };
        let weights = |head: usize, row: &Vec<f64>, mask: &Vec<bool>| {
            let query = self.head(row, head);
            let see = |(key, visible): (usize, &bool)| {
                if *visible { score(query, keys.at(key, head)) } else { f64::NEG_INFINITY }
            };
            let mut scores: Vec<f64> = mask.iter().enumerate().map(see).collect();
            softmax(&mut scores);
            scores
        };
        let rows = |head| query.iter().zip(mask).map(|(row, mask)| weights(head, row, mask)).collect();
        (0..self.architecture.heads).map(rows).collect()
    }

    /// `[query][heads x head size]`: each head's values, weighted, side by side.
    fn mix_values(
        &self,
        attention: &[Rows],
        cache: &LayerCache,
        sharing: HeadSharing,
        queries: usize,
    ) -> Rows {
        let values = self.shared_heads(&cache.values, sharing);
        let mut joined = vec![vec![0.0; self.architecture.query_width()]; queries];
        for (query, row) in joined.iter_mut().enumerate() {
            for (head, mixed) in row.chunks_mut(self.architecture.head_size).enumerate() {
                for (key, weight) in attention[head][query].iter().enumerate() {
                    add_scaled(mixed, *weight, values.at(key, head));
                }
            }
        }
        joined
    }

    fn head<'a>(&self, row: &'a [f64], head: usize) -> &'a [f64] {
        &row[head * self.architecture.head_size..(head + 1) * self.architecture.head_size]
    }

    fn shared_heads<'a>(&self, stored: &'a Rows, sharing: HeadSharing) -> SharedHeads<'a> {
        let (head_size, group) =
            (self.architecture.head_size, self.architecture.heads / self.architecture.kv_heads);
        match sharing {
            HeadSharing::Grouped => SharedHeads::Grouped { stored, head_size, group },
            HeadSharing::Copied => {
                let copies =
                    |row: &Vec<f64>| row.chunks(head_size).flat_map(|head| head.repeat(group)).collect();
                SharedHeads::Copied { copied: stored.iter().map(copies).collect(), head_size }
            }
        }
    }

    /// Gate and up projections (of a dense block; no values for experts) and the result.
    fn feed_forward(&self, block: &FeedForward<'_>, rows: &Rows) -> (Rows, Rows, Rows) {
        match block {
            FeedForward::Dense(gated) => self.gated(gated, rows),
            FeedForward::Routed(routed) => {
                let nothing = vec![Vec::new(); rows.len()];
                (nothing.clone(), nothing, self.routed(routed, rows))
            }
        }
    }

    fn gated(&self, gated: &Gated<'_>, rows: &Rows) -> (Rows, Rows, Rows) {
        let activation = if self.architecture.gelu { gelu_tanh } else { silu };
        let (gate, up) = (gated.gate.apply(rows), gated.up.apply(rows));
        let product = |(gate, up): (&f64, &f64)| activation(*gate) * up;
        let inner =
            gate.iter().zip(&up).map(|(gate, up)| gate.iter().zip(up).map(product).collect()).collect();
        let result = gated.down.apply(&inner);
        (gate, up, result)
    }

    /// Softmax over all experts, the highest few (lower id on ties), mixed by their weights.
    fn routed(&self, routed: &Routed<'_>, rows: &Rows) -> Rows {
        let mix = |(row, mut weights): (&Vec<f64>, Vec<f64>)| {
            softmax(&mut weights);
            let mut picks: Vec<usize> = (0..weights.len()).collect();
            picks.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
            picks.truncate(routed.plan.picked);
            let picked: Vec<f64> = picks.iter().map(|expert| weights[*expert]).collect();
            let divisor = if routed.plan.normalized { sum(&picked) } else { 1.0 };
            let mut mixed = vec![0.0; row.len()];
            for (expert, weight) in picks.iter().zip(&picked) {
                let (_, _, results) = self.gated(&routed.experts[*expert], &vec![row.clone()]);
                results.iter().for_each(|result| add_scaled(&mut mixed, weight / divisor, result));
            }
            mixed
        };
        rows.iter().zip(routed.router.apply(rows)).map(mix).collect()
    }
}

/// Keys or values as query heads find them.
enum SharedHeads<'a> {
    Grouped { stored: &'a Rows, head_size: usize, group: usize },
    Copied { copied: Rows, head_size: usize },
}

impl SharedHeads<'_> {
    /// What query head `head` finds at a position.
    fn at(&self, position: usize, head: usize) -> &[f64] {
        let (row, head, size) = match self {
            Self::Grouped { stored, head_size, group } => (&stored[position], head / group, *head_size),
            Self::Copied { copied, head_size } => (&copied[position], head, *head_size),
        };
        &row[head * size..(head + 1) * size]
    }
}

/// `mask[query][key]`: a query sees itself and what came before it, within its window.
fn causal_mask(positions: &[usize], keys: usize, window: Option<usize>) -> Vec<Vec<bool>> {
    let sees = |query: usize, key: usize| key <= query && window.is_none_or(|window| query - key < window);
    positions.iter().map(|query| (0..keys).map(|key| sees(*query, key)).collect()).collect()
}

fn added(a: &Rows, b: &Rows) -> Rows {
    let mut rows = a.clone();
    for (row, more) in rows.iter_mut().zip(b) {
        add_scaled(row, 1.0, more);
    }
    rows
}
