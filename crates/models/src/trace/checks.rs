//! The checks of a trace: properties that a correct pass has, measured on the model at hand.

use samebit_arith::double::{euclidean_norm, max_abs_difference};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::forward::{Cache, HeadSharing, Model, Pass, Rows};

/// Differences up to this are rounding.
pub(super) const TOLERANCE: f64 = 1e-10;

/// The vector that the rotation check turns where none is given: eight draws (512 to 519) of NumPy's
/// `default_rng(17).standard_normal`, which the published trace of the teaching model used; repeated for larger heads.
pub const ROPE_CHECK_VECTOR: [f64; 8] = [
    0.942620077248649,
    0.557865602555463,
    -1.7671608002457935,
    -1.9262397176153112,
    0.26738414213759476,
    0.7396389444178775,
    1.9406548501314764,
    0.545296571569525,
];

/// What the checks found. In the file, the names of two keys carry batch size and length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checks {
    single_vs_full: f64,
    chunked_vs_full: f64,
    future_change: f64,
    shared_vs_copied_heads: f64,
    masked_weight: f64,
    rope_difference: f64,
    rope_norm: f64,
    cache_shape: [usize; 4],
    cache_bytes: usize,
    expected_cache_bytes: usize,
    pub(super) prefix_unchanged: bool,
    length: usize,
}

impl Checks {
    /// Measures everything but `prefix_unchanged`, which the continuations of the trace show.
    ///
    /// Two sequences are run: the prompt, and the prompt with every id moved on by its length.
    pub(super) fn measure(
        model: &Model<'_>,
        prompt: &[u32],
        check_vector: &[f64],
        prefix_unchanged: bool,
    ) -> Self {
        let architecture = &model.architecture;
        let vocabulary = architecture.vocabulary as u64;
        let moved = |id: &u32| ((u64::from(*id) + prompt.len() as u64) % vocabulary) as u32;
        let sequences = [prompt.to_vec(), prompt.iter().map(moved).collect()];
        let whole = sequences.each_ref().map(|ids| run(model, ids, &[ids.len()], HeadSharing::Grouped));
        let worst = |pieces: &[usize], sharing| {
            let difference = |(ids, whole): (&Vec<u32>, &Run)| {
                difference(&run(model, ids, pieces, sharing).logits, &whole.logits)
            };
            sequences.iter().zip(&whole).map(difference).fold(0.0, larger)
        };
        let length = prompt.len();
        let (first, second) = (length / 3, length * 5 / 6);
        let turned = rotated(model, check_vector);
        let layer = &whole[0].cache.layers[0];
        let head_size = architecture.head_size;
        Self {
            single_vs_full: worst(&vec![1; length], HeadSharing::Grouped),
            chunked_vs_full: worst(&[first, second - first, length - second], HeadSharing::Grouped),
            future_change: sequences
                .iter()
                .zip(&whole)
                .map(|(ids, whole)| future(model, ids, whole))
                .fold(0.0, larger),
            shared_vs_copied_heads: worst(&[length], HeadSharing::Copied),
            masked_weight: whole.iter().flat_map(|run| &run.passes).map(masked_weight).fold(0.0, larger),
            rope_difference: max_abs_difference(&turned[0], &turned[1]),
            rope_norm: (euclidean_norm(&turned[0]) - euclidean_norm(&turned[1])).abs(),
            cache_shape: [sequences.len(), layer.keys[0].len() / head_size, layer.keys.len(), head_size],
            cache_bytes: whole.iter().map(|run| payload_bytes(&run.cache)).sum(),
            expected_cache_bytes: 2
                * sequences.len()
                * architecture.blocks.len()
                * length
                * architecture.kv_heads
                * head_size
                * size_of::<f64>(),
            prefix_unchanged,
            length,
        }
    }

    /// Whether all of them came out as they must.
    pub(super) fn passed(&self) -> bool {
        let rounding = [
            self.single_vs_full,
            self.chunked_vs_full,
            self.future_change,
            self.shared_vs_copied_heads,
            self.rope_norm,
        ];
        rounding.iter().all(|difference| *difference <= TOLERANCE)
            && self.masked_weight == 0.0
            && self.rope_difference > TOLERANCE
            && self.cache_bytes == self.expected_cache_bytes
            && self.prefix_unchanged
    }
}

impl Serialize for Checks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(11))?;
        map.serialize_entry("cached_single_vs_full_max_abs_error", &self.single_vs_full)?;
        map.serialize_entry("cached_chunked_vs_full_max_abs_error", &self.chunked_vs_full)?;
        map.serialize_entry("future_change_earlier_logits_max_abs_error", &self.future_change)?;
        map.serialize_entry("gqa_vs_explicit_head_repeat_max_abs_error", &self.shared_vs_copied_heads)?;
        map.serialize_entry("masked_attention_weight_max", &self.masked_weight)?;
        map.serialize_entry("rope_position_0_vs_1_max_abs_difference", &self.rope_difference)?;
        map.serialize_entry("rope_norm_preservation_max_abs_error", &self.rope_norm)?;
        map.serialize_entry("cache_shape_per_tensor", &self.cache_shape)?;
        let bytes_key = format!("cache_payload_bytes_batch_{}_length_{}", self.cache_shape[0], self.length);
        map.serialize_entry(&bytes_key, &self.cache_bytes)?;
        map.serialize_entry("expected_cache_payload_bytes", &self.expected_cache_bytes)?;
        map.serialize_entry("prefix_cache_unchanged_after_continuation", &self.prefix_unchanged)?;
        map.end()
    }
}

/// Bytes of keys and values in a cache.
pub(super) fn payload_bytes(cache: &Cache) -> usize {
    cache
        .layers
        .iter()
        .flat_map(|layer| layer.keys.iter().chain(&layer.values))
        .map(|row| size_of_val(&row[..]))
        .sum()
}

/// A sequence run in pieces.
struct Run {
    cache: Cache,
    passes: Vec<Pass>,
    logits: Rows,
}

fn run(model: &Model<'_>, ids: &[u32], pieces: &[usize], sharing: HeadSharing) -> Run {
    let mut cache = Cache::new(model.architecture.blocks.len());
    let (mut passes, mut logits) = (Vec::new(), Rows::new());
    let mut rest = ids;
    for piece in pieces.iter().filter(|piece| **piece > 0) {
        let (now, later) = rest.split_at(*piece);
        let pass = model.forward(now, &mut cache, sharing);
        logits.extend(pass.logits.iter().cloned());
        passes.push(pass);
        rest = later;
    }
    Run { cache, passes, logits }
}

/// How far earlier logits move when the last id is another one.
fn future(model: &Model<'_>, ids: &[u32], whole: &Run) -> f64 {
    let mut changed = ids.to_vec();
    let Some(last) = changed.last_mut() else { return 0.0 };
    let other = (model.architecture.vocabulary as u32).saturating_sub(2);
    *last = if *last == other { other.saturating_sub(1) } else { other };
    let changed = run(model, &changed, &[ids.len()], HeadSharing::Grouped);
    let earlier = ids.len() - 1;
    difference(&changed.logits[..earlier], &whole.logits[..earlier])
}

/// Largest attention weight of a key that the query must not see.
fn masked_weight(pass: &Pass) -> f64 {
    let mut max = 0.0;
    for layer in &pass.layers {
        for head in &layer.attention {
            for (weights, mask) in head.iter().zip(&layer.mask) {
                max = weights
                    .iter()
                    .zip(mask)
                    .filter(|(_, sees)| !**sees)
                    .map(|(weight, _)| *weight)
                    .fold(max, larger);
            }
        }
    }
    max
}

/// The check vector at positions 0 and 1.
fn rotated(model: &Model<'_>, check_vector: &[f64]) -> [Vec<f64>; 2] {
    [0, 1].map(|position| {
        let mut head: Vec<f64> =
            check_vector.iter().copied().cycle().take(model.architecture.head_size).collect();
        model.architecture.blocks[0].rope.rotate(&mut head, position);
        head
    })
}

fn difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    a.iter().zip(b).map(|(a, b)| max_abs_difference(a, b)).fold(0.0, larger)
}

/// The larger one; NaN counts as the largest of all, so that it cannot hide.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}
