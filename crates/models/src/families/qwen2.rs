//! Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, and optional windows in late layers.

use samebit_arith::RopeLayout;

use super::Names;
use super::pre_norm::PreNormConfig;
use crate::ModelError;
use crate::config::{Defaults, Fields, Geometry, RopeConfig, activation, tied_head, windows};
use crate::layers::{Activation, HeadNorms};
use crate::registry::{Blueprint, Description, Family};
use crate::weights::Bias;

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    architectures: &["Qwen2ForCausalLM"],
    gguf: &["qwen2"],
    configure,
};

const DEFAULT_ROPE_BASE: f64 = 10_000.0;

fn configure(description: &Description<'_>) -> Result<Box<dyn Blueprint>, ModelError> {
    let config = configure_dense(description, Defaults::default())?;
    Ok(Box::new(PreNormConfig { input_bias: Bias::Required, ..config }))
}

/// What Qwen2 and Qwen3 have in common: no biases and no head norms yet.
pub(super) fn configure_dense(
    description: &Description<'_>,
    defaults: Defaults,
) -> Result<PreNormConfig, ModelError> {
    let Description { fields, checkpoint } = description;
    let names = if fields.is_gguf() { Names::gguf() } else { Names::folder(checkpoint, &["model."]) };
    let stored_vocabulary = description.stored_rows(&names.embedding_weight());
    let geometry = Geometry::read(fields, defaults, description.tensor_count(), stored_vocabulary)?;
    Ok(PreNormConfig {
        tied_head: tied_head(fields, checkpoint.contains(&names.head_weight()))?,
        feed_forward_norm: if fields.is_gguf() { "ffn_norm" } else { "post_attention_layernorm" },
        names,
        rope: RopeConfig::read(fields, &geometry, DEFAULT_ROPE_BASE)?,
        rope_layout: RopeLayout::Halves,
        scale: (1.0 / (geometry.head_dim as f64).sqrt()) as f32,
        windows: read_windows(fields, &geometry)?,
        input_bias: Bias::Absent,
        output_bias: Bias::Absent,
        mlp_bias: Bias::Absent,
        head_norms: HeadNorms::Absent,
        activation: activation(fields, &["hidden_act"], Activation::Silu)?,
        experts: None,
        geometry,
    })
}

/// Layers from `max_window_layers` on have a window, if `use_sliding_window` says so.
fn read_windows(fields: &Fields<'_>, geometry: &Geometry) -> Result<Vec<Option<usize>>, ModelError> {
    let layers = geometry.layers;
    if fields.is_gguf() {
        const KEY: &str = "attention.sliding_window";
        // The file does not tell which layers it is meant for.
        return match fields.size(KEY)? {
            Some(window) if window < geometry.context => {
                Err(fields.unsupported(KEY, window, format!("none, or the context of {}", geometry.context)))
            }
            _ => Ok(vec![None; layers]),
        };
    }
    let window = match fields.flag("use_sliding_window")? {
        Some(true) => fields.size("sliding_window")?,
        _ => None,
    };
    let first = fields.integer("max_window_layers")?.unwrap_or(28);
    windows(fields, layers, window, |layer| layer >= first)
}
