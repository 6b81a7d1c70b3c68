//! Qwen3: norms on query and key heads, no biases unless the configuration says so.

use super::pre_norm::PreNormConfig;
use super::qwen2::configure_dense;
use crate::ModelError;
use crate::config::Defaults;
use crate::layers::HeadNorms;
use crate::registry::{Blueprint, Description, Family};
use crate::weights::Bias;

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "qwen3",
    model_types: &["qwen3"],
    architectures: &["Qwen3ForCausalLM"],
    gguf: &["qwen3"],
    configure,
};

fn configure(description: &Description<'_>) -> Result<Box<dyn Blueprint>, ModelError> {
    let config = configure_normed(description, Defaults { head_dim: Some(128), ..Defaults::default() })?;
    Ok(Box::new(config))
}

/// What dense and routed Qwen3 have in common.
pub(super) fn configure_normed(
    description: &Description<'_>,
    defaults: Defaults,
) -> Result<PreNormConfig, ModelError> {
    let config = configure_dense(description, defaults)?;
    let bias = Bias::from_flag(description.fields.flag("attention_bias")?.unwrap_or(false));
    Ok(PreNormConfig { input_bias: bias, output_bias: bias, head_norms: HeadNorms::Plain, ..config })
}
