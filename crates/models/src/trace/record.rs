//! The file that a trace becomes. The order of the fields is the order of the keys.

use samebit_arith::double::{root_mean_square, softmax};
use serde::{Serialize, Serializer};

use super::architecture::Architecture;
use super::checks::{Checks, payload_bytes};
use super::forward::{Cache, LayerRecord, Model, Pass, Rows};

/// A number with eight decimals.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rounded(f64);

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Through text, since only that rounds the decimal value and not a scaled neighbour of it.
        let rounded = format!("{:.8}", self.0).parse().unwrap_or(self.0);
        serializer.serialize_f64(rounded)
    }
}

fn rounded(values: &[f64]) -> Vec<Rounded> {
    values.iter().copied().map(Rounded).collect()
}

/// Every intermediate of a small forward pass, ready to be written.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    pub(super) schema_version: u32,
    pub(super) model: String,
    pub(super) weights: String,
    pub(super) tokenizer: String,
    pub(super) numpy_version: Option<String>,
    pub(super) engine: String,
    pub(super) seed: Option<u64>,
    pub(super) dtype: &'static str,
    pub(super) config: Config,
    pub(super) vocabulary: Vec<String>,
    pub(super) cache_bytes_formula: &'static str,
    pub(super) verification: Verification,
    pub(super) passes: Vec<PassRecord>,
    pub(super) notes: Vec<String>,
}

impl Trace {
    /// Whether every check came out as it must.
    pub fn passed(&self) -> bool {
        self.verification.passed
    }

    /// The trace as indented JSON with a newline at its end. A value that is no number (from weights that are none)
    /// stands as `null`.
    pub fn to_json(&self) -> String {
        // Texts, numbers and keys of text: there is nothing in a trace that JSON cannot hold.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Config {
    d_model: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    hidden_dim: usize,
    vocab_size: usize,
    norm_eps: f64,
    rope_theta: f64,
}

impl Config {
    pub(super) fn new(architecture: &Architecture) -> Self {
        Self {
            d_model: architecture.hidden,
            n_layers: architecture.blocks.len(),
            n_heads: architecture.heads,
            n_kv_heads: architecture.kv_heads,
            head_dim: architecture.head_size,
            hidden_dim: architecture.inner,
            vocab_size: architecture.vocabulary,
            norm_eps: architecture.eps,
            rope_theta: architecture.rope_theta,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Verification {
    pub(super) passed: bool,
    pub(super) dtype: &'static str,
    pub(super) tolerance: f64,
    pub(super) checks: Checks,
}

/// One forward pass. The leading 1 of shapes and lists is the batch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PassRecord {
    token_ids: [Vec<u32>; 1],
    tokens: [Vec<String>; 1],
    input_shape: [usize; 2],
    embedding_shape: [usize; 3],
    layers: Vec<Layer>,
    final_hidden_shape: [usize; 3],
    logits_shape: [usize; 3],
    cache_payload_bytes: usize,
    name: String,
    last_position_top5: Vec<Candidate>,
}

#[derive(Clone, Debug, Serialize)]
struct Layer {
    positions: Vec<usize>,
    key_positions: Vec<usize>,
    shapes: Shapes,
    cache_payload_bytes: usize,
    causal_mask: Vec<Vec<u8>>,
    attention_weights: Vec<Vec<Vec<Rounded>>>,
    first_query_before_rope: Vec<Rounded>,
    first_query_after_rope: Vec<Rounded>,
    first_input_values: Vec<Rounded>,
    first_output_values: Vec<Rounded>,
    residual_rms: ResidualRms,
    layer: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Shapes {
    input: [usize; 3],
    normed: [usize; 3],
    q: [usize; 4],
    new_k: [usize; 4],
    new_v: [usize; 4],
    cached_k: [usize; 4],
    cached_v: [usize; 4],
    attention_weights: [usize; 4],
    joined_heads: [usize; 3],
    gate: [usize; 3],
    up: [usize; 3],
    ffn_output: [usize; 3],
    output: [usize; 3],
}

#[derive(Clone, Debug, Serialize)]
struct ResidualRms {
    input: f64,
    after_attention: f64,
    output: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Candidate {
    token_id: usize,
    token: String,
    logit: f64,
    probability: f64,
}

/// What a pass computed, with the names of its tokens.
pub(super) fn pass_record(
    name: String,
    ids: &[u32],
    vocabulary: &[String],
    model: &Model<'_>,
    pass: &Pass,
    cache: &Cache,
) -> PassRecord {
    let architecture = &model.architecture;
    let text = |id: usize| vocabulary.get(id).cloned().unwrap_or_else(|| format!("<{id}>"));
    let layers = pass.layers.iter().zip(&cache.layers).enumerate().map(|(number, (layer, stored))| {
        let bytes = stored.keys.iter().chain(&stored.values).map(|row| size_of_val(&row[..])).sum();
        layer_record(number, architecture, pass, layer, bytes)
    });
    PassRecord {
        token_ids: [ids.to_vec()],
        tokens: [ids.iter().map(|id| text(*id as usize)).collect()],
        input_shape: [1, ids.len()],
        embedding_shape: [1, ids.len(), architecture.hidden],
        layers: layers.collect(),
        final_hidden_shape: shape(&pass.hidden),
        logits_shape: shape(&pass.logits),
        cache_payload_bytes: payload_bytes(cache),
        name,
        last_position_top5: pass.logits.last().map_or_else(Vec::new, |logits| top(logits, 5, text)),
    }
}

fn layer_record(
    number: usize,
    architecture: &Architecture,
    pass: &Pass,
    layer: &LayerRecord,
    bytes: usize,
) -> Layer {
    let queries = pass.positions.len();
    let (heads, kv_heads, size) = (architecture.heads, architecture.kv_heads, architecture.head_size);
    let cached = [1, kv_heads, layer.cached, size];
    let first = |rows: &Rows, values: usize| rows.first().map(|row| rounded(&row[..values.min(row.len())]));
    let first = |rows: &Rows, values: usize| first(rows, values).unwrap_or_default();
    let flat_rms = |rows: &Rows| root_mean_square(&rows.concat());
    Layer {
        positions: pass.positions.clone(),
        key_positions: (0..layer.cached).collect(),
        shapes: Shapes {
            input: shape(&layer.input),
            normed: shape(&layer.normed),
            q: [1, layer.query.first().map_or(0, Vec::len) / size, layer.query.len(), size],
            new_k: [1, layer.new_keys.first().map_or(0, Vec::len) / size, layer.new_keys.len(), size],
            new_v: [1, layer.new_values.first().map_or(0, Vec::len) / size, layer.new_values.len(), size],
            cached_k: cached,
            cached_v: cached,
            attention_weights: [1, heads, queries, layer.cached],
            joined_heads: shape(&layer.joined),
            gate: shape(&layer.gate),
            up: shape(&layer.up),
            ffn_output: shape(&layer.feed_forward),
            output: shape(&layer.output),
        },
        cache_payload_bytes: bytes,
        causal_mask: layer.mask.iter().map(|row| row.iter().copied().map(u8::from).collect()).collect(),
        attention_weights: layer
            .attention
            .iter()
            .map(|head| head.iter().map(|row| rounded(row)).collect())
            .collect(),
        first_query_before_rope: first(&layer.query_before_rope, size),
        first_query_after_rope: first(&layer.query, size),
        first_input_values: first(&layer.input, 8),
        first_output_values: first(&layer.output, 8),
        residual_rms: ResidualRms {
            input: flat_rms(&layer.input),
            after_attention: flat_rms(&layer.after_attention),
            output: flat_rms(&layer.output),
        },
        layer: number,
    }
}

fn shape(rows: &Rows) -> [usize; 3] {
    [1, rows.len(), rows.first().map_or(0, Vec::len)]
}

/// The highest logits, lower ids first on ties.
fn top(logits: &[f64], count: usize, text: impl Fn(usize) -> String) -> Vec<Candidate> {
    let mut probabilities = logits.to_vec();
    softmax(&mut probabilities);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let candidate = |id: usize| Candidate {
        token_id: id,
        token: text(id),
        logit: logits[id],
        probability: probabilities[id],
    };
    order.into_iter().take(count).map(candidate).collect()
}
