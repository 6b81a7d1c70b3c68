//! A teaching and checking forward pass in `f64`, with every intermediate recorded.
//!
//! This is the model as a textbook writes it: one row, one head after the other, plain `f64`, nothing fused, nothing
//! quantized, no plan. It serves three readers. Who learns reads `samebit trace`: shapes, masks, attention weights and
//! probabilities of a small model. Who debugs compares a layer of the engine with a layer here. And the tests of the
//! engine take [`double_logits`] for the truth about any small checkpoint.
//!
//! # The file
//! [`Trace::to_json`] writes one JSON object. Numbers have eight decimals in `attention_weights`,
//! `first_query_before_rope`, `first_query_after_rope`, `first_input_values` and `first_output_values`; all others are
//! written in full. Four keys say what a checkpoint alone cannot prove, and so hold what is known:
//! * `seed`: the seed that random weights were drawn with, if the caller says so, else `null`;
//! * `weights`, `tokenizer`, `notes`: sentences about this run;
//! * `numpy_version`: always `null`, since NumPy has no part in it; `engine` names the program instead.
//!
//! The keys of `verification.checks` name two sizes: `.._batch_2_length_6` is for a prompt of 6 tokens.

mod architecture;
mod checks;
mod forward;
mod gguf;
mod names;
mod record;
#[cfg(test)]
mod tests;
mod vocabulary;
mod weights;

use std::path::PathBuf;

use samebit_checkpoint::{Checkpoint, CheckpointError};

pub use architecture::MAX_WEIGHTS;
pub use checks::ROPE_CHECK_VECTOR;
pub use record::Trace;
pub use vocabulary::vocabulary;

use architecture::Architecture;
use checks::{Checks, TOLERANCE};
use forward::{Cache, HeadSharing, Model};
use record::{Config, Verification, pass_record};
use weights::Weights;

/// Largest number of attention weights that a trace may hold: about 100 MB of JSON.
pub const MAX_ATTENTION_WEIGHTS: u64 = 4 << 20;

/// What to trace.
#[derive(Clone, Debug, Default)]
pub struct TraceRequest<'a> {
    /// Token ids of the first pass; at least one.
    pub prompt: &'a [u32],
    /// Further passes, each after the untouched prompt.
    pub decodes: &'a [Vec<u32>],
    /// Name of the model, for the file.
    pub model: &'a str,
    /// Text of each id, from [`vocabulary()`]; GGUF files bring their own, so `None` will do for them.
    pub vocabulary: Option<Vec<String>>,
    /// The seed that the weights were drawn with, where it is known.
    pub seed: Option<u64>,
    /// The vector that the rotation check turns, as long as a head; `None` for [`ROPE_CHECK_VECTOR`], repeated.
    pub rope_check_vector: Option<&'a [f64]>,
}

/// Why a checkpoint is not traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The checkpoint or its configuration is at fault.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tensor has another shape than the configuration asks for.
    #[error("tensor {name} has shape {found:?}, but the configuration asks for {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that was needed.
        expected: Vec<usize>,
    },
    /// A tensor has another number of dimensions than it must.
    #[error("tensor {name} has shape {found:?}, expected two dimensions")]
    Rank {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
    },
    /// GGUF metadata has a value that cannot be, or that is not traced.
    #[error("{}: {key}: found {found}, expected {expected}", file.display())]
    Metadata {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What would have been right.
        expected: String,
    },
    /// More blocks than a trace is meant for.
    #[error("the configuration asks for {layers} blocks; trace takes at most {limit}")]
    TooDeep {
        /// Number of blocks.
        layers: usize,
        /// Largest number.
        limit: usize,
    },
    /// More weights than a trace is meant for.
    #[error(
        "the configuration asks for {weights} weights; trace runs in f64 on one core and takes up to {limit}"
    )]
    TooLarge {
        /// Number of weights.
        weights: u128,
        /// Largest number.
        limit: u64,
    },
    /// The trace itself would be too large.
    #[error(
        "a trace of this prompt would hold {weights} attention weights (layers x heads x positions x positions), the most is {limit}: use fewer ids"
    )]
    TooLong {
        /// Number of attention weights.
        weights: u128,
        /// Largest number.
        limit: u64,
    },
    /// A list of ids is empty.
    #[error("{place} holds no token ids, expected at least one")]
    NoIds {
        /// Which list.
        place: String,
    },
    /// An id that the vocabulary does not have.
    #[error("{place}: token id {id} is not below the vocabulary size, {vocabulary}")]
    Id {
        /// Which list.
        place: String,
        /// The id.
        id: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// More tokens than the model was made for.
    #[error("{place}: {found} tokens, but the model's context (max_position_embeddings) is {context}")]
    Context {
        /// Which list.
        place: String,
        /// Number of tokens.
        found: usize,
        /// The model's limit.
        context: usize,
    },
    /// A rotation check vector of another size than a head.
    #[error(
        "the rope check vector has {found} numbers, expected one for each of the {expected} elements of a head"
    )]
    CheckVector {
        /// Its length.
        found: usize,
        /// Size of a head.
        expected: usize,
    },
}

/// Runs the prompt, then each list of `decodes` after it, and the checks; records everything.
///
/// Takes `llama`, `qwen2`, `qwen3` and `gemma3`, from GGUF or from a folder with `config.json`, and `qwen3_moe` from a folder
/// (where a block has experts, `gate` and `up` have no values). Weights may be quantized: they are decoded, exactly.
///
/// # Errors
/// When the checkpoint is another one or too large, the ids do not fit it, or the trace would become too large; nothing
/// is computed before that is known.
pub fn trace(checkpoint: &Checkpoint, request: &TraceRequest<'_>) -> Result<Trace, TraceError> {
    let architecture = Architecture::of(checkpoint)?;
    refuse(&architecture, request)?;
    let weights = Weights::read(checkpoint, &architecture)?;
    let model = Model { architecture, weights };
    let architecture = &model.architecture;
    let vocabulary = request.vocabulary.clone().or_else(|| gguf_vocabulary(checkpoint)).unwrap_or_default();
    let record = |name: String, ids: &[u32], cache: &mut Cache| {
        let pass = model.forward(ids, cache, HeadSharing::Grouped);
        pass_record(name, ids, &vocabulary, &model, &pass, cache)
    };

    let mut prefix = Cache::new(architecture.blocks.len());
    let mut passes = vec![record("prefill".to_owned(), request.prompt, &mut prefix)];
    let untouched = prefix.clone();
    let mut prefix_unchanged = true;
    for (number, ids) in request.decodes.iter().enumerate() {
        let mut continued = prefix.clone();
        passes.push(record(decode_name(request.decodes, number), ids, &mut continued));
        prefix_unchanged &= prefix == untouched && continued.starts_with(&untouched);
    }
    let check_vector = request.rope_check_vector.unwrap_or(&ROPE_CHECK_VECTOR);
    let checks = Checks::measure(&model, request.prompt, check_vector, prefix_unchanged);
    Ok(Trace {
        schema_version: 1,
        model: request.model.to_owned(),
        weights: format!("as stored: {}", checkpoint.about()),
        tokenizer: match vocabulary.is_empty() {
            false => "the checkpoint's vocabulary, entries as it spells them".to_owned(),
            true => "none: tokens are named by their ids".to_owned(),
        },
        numpy_version: None,
        engine: concat!("samebit ", env!("CARGO_PKG_VERSION")).to_owned(),
        seed: request.seed,
        dtype: "float64",
        config: Config::new(architecture),
        vocabulary,
        cache_bytes_formula: "2 * batch * layers * cached_tokens * kv_heads * head_dim * bytes_per_element",
        verification: Verification {
            passed: checks.passed(),
            dtype: "float64",
            tolerance: TOLERANCE,
            checks,
        },
        passes,
        notes: notes(),
    })
}

/// Logits `[position][id]` of a token sequence, from position 0.
///
/// # Errors
/// As [`trace`], but without a limit on attention weights.
pub fn double_logits(checkpoint: &Checkpoint, ids: &[u32]) -> Result<Vec<Vec<f64>>, TraceError> {
    let architecture = Architecture::of(checkpoint)?;
    check_ids(&architecture, "the prompt", ids, 0)?;
    let weights = Weights::read(checkpoint, &architecture)?;
    let model = Model { architecture, weights };
    let mut cache = Cache::new(model.architecture.blocks.len());
    Ok(model.forward(ids, &mut cache, HeadSharing::Grouped).logits)
}

fn refuse(architecture: &Architecture, request: &TraceRequest<'_>) -> Result<(), TraceError> {
    let prompt = request.prompt.len();
    check_ids(architecture, "the prompt", request.prompt, 0)?;
    for (number, ids) in request.decodes.iter().enumerate() {
        check_ids(architecture, &format!("continuation {}", number + 1), ids, prompt)?;
    }
    let squares = std::iter::once((prompt, prompt))
        .chain(request.decodes.iter().map(|ids| (ids.len(), prompt + ids.len())));
    let positions: u128 = squares.map(|(queries, keys)| queries as u128 * keys as u128).sum();
    let weights = positions * architecture.heads as u128 * architecture.blocks.len() as u128;
    if weights > u128::from(MAX_ATTENTION_WEIGHTS) {
        return Err(TraceError::TooLong { weights, limit: MAX_ATTENTION_WEIGHTS });
    }
    match request.rope_check_vector {
        Some(vector) if vector.len() != architecture.head_size => {
            Err(TraceError::CheckVector { found: vector.len(), expected: architecture.head_size })
        }
        _ => Ok(()),
    }
}

fn check_ids(architecture: &Architecture, place: &str, ids: &[u32], before: usize) -> Result<(), TraceError> {
    let (place, vocabulary, context) = (place.to_owned(), architecture.vocabulary, architecture.context);
    if ids.is_empty() {
        return Err(TraceError::NoIds { place });
    }
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
        return Err(TraceError::Id { place, id: *id, vocabulary });
    }
    let found = before + ids.len();
    if found > context { Err(TraceError::Context { place, found, context }) } else { Ok(()) }
}

fn gguf_vocabulary(checkpoint: &Checkpoint) -> Option<Vec<String>> {
    let tokens = checkpoint.metadata()?.strings("tokenizer.ggml.tokens").ok()?;
    Some(tokens.iter().map(str::to_owned).collect())
}

/// `single_token_decode` or `chunked_decode`, with a number from the second of its kind on.
fn decode_name(decodes: &[Vec<u32>], number: usize) -> String {
    let is_single = |ids: &Vec<u32>| ids.len() == 1;
    let kind = if is_single(&decodes[number]) { "single_token_decode" } else { "chunked_decode" };
    let before = decodes[..number].iter().filter(|ids| is_single(ids) == is_single(&decodes[number])).count();
    if before == 0 { kind.to_owned() } else { format!("{kind}_{}", before + 1) }
}

fn notes() -> Vec<String> {
    [
        "All numbers were computed in f64 from the stored weights.",
        "The first pass gives the distribution of the token after the prompt; every other pass starts from the prompt's own cache.",
        "Cache bytes are keys and values only. Keys are stored after the rotation, once per key head.",
        "The checks run two sequences: the prompt, and the prompt with every id moved on by its length.",
    ]
    .map(str::to_owned)
    .to_vec()
}
