//! Qwen3 MoE: Qwen3 whose feed-forward networks are, in most layers, a few routed experts.

use super::pre_norm::{ExpertsConfig, PreNormConfig};
use super::qwen3::configure_normed;
use crate::ModelError;
use crate::config::{Defaults, Fields};
use crate::layers::{ExpertNames, ExpertsShape};
use crate::registry::{Blueprint, Description, Family};

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "qwen3_moe",
    model_types: &["qwen3_moe"],
    architectures: &["Qwen3MoeForCausalLM"],
    gguf: &["qwen3moe"],
    configure,
};

/// Most experts a layer may have.
const MOST_EXPERTS: usize = 65_536;

fn configure(description: &Description<'_>) -> Result<Box<dyn Blueprint>, ModelError> {
    let fields = &description.fields;
    let config = configure_normed(description, Defaults::default())?;
    let keys = if fields.is_gguf() { &GGUF } else { &FOLDER };

    let experts = fields.required_size(keys.experts)?;
    if experts > MOST_EXPERTS {
        return Err(fields.refuse(keys.experts, experts, format!("at most {MOST_EXPERTS}")));
    }
    let picked = fields.required_size(keys.picked)?;
    if picked > experts {
        return Err(fields.refuse(keys.picked, picked, format!("at most the {experts} experts")));
    }
    let shape = ExpertsShape {
        hidden: config.geometry.hidden,
        inner: fields.required_size(keys.inner)?,
        experts,
        picked,
        normalise: fields.flag(keys.normalise)?.unwrap_or(fields.is_gguf()),
        activation: config.activation,
    };
    let routed = routed_layers(fields, config.geometry.layers)?;
    let (router, names) = if fields.is_gguf() {
        (
            "ffn_gate_inp",
            ExpertNames::Stacked { gate: "ffn_gate_exps", up: "ffn_up_exps", down: "ffn_down_exps" },
        )
    } else {
        ("mlp.gate", folder_names(description, &config, &routed))
    };
    // Windows, where there are any, hold for every layer here: no key excepts the first ones.
    let window = match fields.flag("use_sliding_window")? {
        Some(true) => fields.size("sliding_window")?,
        _ => None,
    };
    Ok(Box::new(PreNormConfig {
        windows: vec![window; config.geometry.layers],
        experts: Some(ExpertsConfig { shape, router, names, routed }),
        ..config
    }))
}

struct Keys {
    experts: &'static str,
    picked: &'static str,
    inner: &'static str,
    normalise: &'static str,
}

const FOLDER: Keys = Keys {
    experts: "num_experts",
    picked: "num_experts_per_tok",
    inner: "moe_intermediate_size",
    normalise: "norm_topk_prob",
};

const GGUF: Keys = Keys {
    experts: "expert_count",
    picked: "expert_used_count",
    inner: "expert_feed_forward_length",
    normalise: "expert_weights_norm",
};

/// Every `decoder_sparse_step`-th layer, but for those that `mlp_only_layers` lists.
fn routed_layers(fields: &Fields<'_>, layers: usize) -> Result<Vec<bool>, ModelError> {
    if fields.is_gguf() {
        return Ok(vec![true; layers]);
    }
    let step = fields.size("decoder_sparse_step")?.unwrap_or(1);
    let dense = fields.integers("mlp_only_layers")?.unwrap_or_default();
    Ok((0..layers).map(|layer| !dense.contains(&layer) && (layer + 1) % step == 0).collect())
}

/// Published checkpoints have one tensor per expert, MLX stacks them.
fn folder_names(description: &Description<'_>, config: &PreNormConfig, routed: &[bool]) -> ExpertNames {
    let stacked = routed.iter().position(|&routed| routed).is_some_and(|layer| {
        let block = config.names.block(layer);
        description.checkpoint.contains(&format!("{block}.mlp.switch_mlp.gate_proj.weight"))
    });
    if stacked {
        ExpertNames::Stacked {
            gate: "mlp.switch_mlp.gate_proj",
            up: "mlp.switch_mlp.up_proj",
            down: "mlp.switch_mlp.down_proj",
        }
    } else {
        ExpertNames::Separate { experts: "mlp.experts", gate: "gate_proj", up: "up_proj", down: "down_proj" }
    }
}
