//! Llama and what is built like it: SmolLM, Mistral.

use samebit_arith::RopeLayout;

use super::Names;
use super::pre_norm::PreNormConfig;
use crate::ModelError;
use crate::config::{Defaults, Fields, Geometry, RopeConfig, activation, tied_head};
use crate::layers::{Activation, HeadNorms};
use crate::registry::{Blueprint, Description, Family};
use crate::weights::Bias;

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "llama",
    model_types: &["llama", "mistral"],
    architectures: &["LlamaForCausalLM", "MistralForCausalLM"],
    gguf: &["llama"],
    configure,
};

const DEFAULT_ROPE_BASE: f64 = 10_000.0;

fn configure(description: &Description<'_>) -> Result<Box<dyn Blueprint>, ModelError> {
    let Description { fields, checkpoint } = description;
    let names = if fields.is_gguf() { Names::gguf() } else { Names::folder(checkpoint, &["model."]) };
    let stored_vocabulary = description.stored_rows(&names.embedding_weight());
    let geometry =
        Geometry::read(fields, Defaults::default(), description.tensor_count(), stored_vocabulary)?;
    let rope = RopeConfig::read(fields, &geometry, DEFAULT_ROPE_BASE)?;
    let natural_scale = 1.0 / (geometry.head_dim as f64).sqrt();
    let (scale, window, attention_bias, mlp_bias) = match fields {
        Fields::Folder { .. } => {
            let flag = |key| Ok::<_, ModelError>(Bias::from_flag(fields.flag(key)?.unwrap_or(false)));
            (natural_scale, fields.size("sliding_window")?, flag("attention_bias")?, flag("mlp_bias")?)
        }
        Fields::Gguf { .. } => {
            if let Some(experts) = fields.integer("expert_count")?.filter(|&experts| experts > 0) {
                return Err(fields.unsupported("expert_count", experts, "0, a dense model"));
            }
            let value_length = fields.integer("attention.value_length")?;
            if let Some(length) = value_length.filter(|&length| length != geometry.head_dim) {
                let supported = format!("{}, the length of a key", geometry.head_dim);
                return Err(fields.unsupported("attention.value_length", length, supported));
            }
            let scale = fields.positive("attention.scale")?.unwrap_or(natural_scale);
            (scale, fields.size("attention.sliding_window")?, Bias::IfStored, Bias::IfStored)
        }
    };
    Ok(Box::new(PreNormConfig {
        tied_head: tied_head(fields, checkpoint.contains(&names.head_weight()))?,
        feed_forward_norm: if fields.is_gguf() { "ffn_norm" } else { "post_attention_layernorm" },
        names,
        rope,
        // GGUF files of this architecture keep the order of columns that Llama was published with.
        rope_layout: if fields.is_gguf() { RopeLayout::Adjacent } else { RopeLayout::Halves },
        scale: scale as f32,
        windows: vec![window; geometry.layers],
        input_bias: attention_bias,
        output_bias: attention_bias,
        mlp_bias,
        head_norms: HeadNorms::Absent,
        activation: activation(fields, &["hidden_act"], Activation::Silu)?,
        experts: None,
        geometry,
    }))
}
