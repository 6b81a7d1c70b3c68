//! What the trace knows about a model beside its weights, and `config.json` as it reads it.
//!
//! The families of this crate read the same fields on their own. The trace is their second opinion, so it shares no code
//! with them: a field misread there would otherwise be misread here as well.

use samebit_arith::double::{Llama3Scaling, Rope, RopeScaling, YarnScaling};
use samebit_checkpoint::config::Section;
use samebit_checkpoint::{Checkpoint, CheckpointError};

use super::TraceError;
use super::gguf;
use super::names::Names;

/// Largest number of weights of a checkpoint that is traced. A pass decodes each of them to `f64` and nothing runs in
/// parallel, so that half a billion already takes a minute.
pub const MAX_WEIGHTS: u64 = 1 << 29;

/// Largest number of blocks of a checkpoint that is traced.
const MAX_LAYERS: usize = 1024;

/// Which of the published architectures it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma3,
}

const MODEL_TYPES: &str = "llama, qwen2, qwen3, qwen3_moe, gemma3, gemma3_text";

/// A feed-forward block with experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routing {
    pub(super) experts: usize,
    pub(super) picked: usize,
    pub(super) inner: usize,
    /// Whether the weights of the picked experts are scaled to a sum of 1.
    pub(super) normalized: bool,
}

/// What one block does differently from its neighbours.
#[derive(Clone, Debug)]
pub(super) struct BlockPlan {
    /// Positions that a query sees, its own included; `None` for all before it.
    pub(super) window: Option<usize>,
    pub(super) rope: Rope,
    /// Experts; `None` for a dense block.
    pub(super) routing: Option<Routing>,
}

/// Everything about the model that is not a weight.
#[derive(Clone, Debug)]
pub(super) struct Architecture {
    pub(super) family: Family,
    pub(super) vocabulary: usize,
    pub(super) hidden: usize,
    pub(super) inner: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_size: usize,
    pub(super) context: usize,
    pub(super) eps: f64,
    pub(super) rope_theta: f64,
    /// Factor on attention scores.
    pub(super) score_scale: f64,
    /// Factor on embedding rows.
    pub(super) embedding_scale: f64,
    /// Added to stored norm weights.
    pub(super) norm_offset: f64,
    pub(super) gelu: bool,
    pub(super) score_cap: Option<f64>,
    pub(super) logits_cap: Option<f64>,
    pub(super) qkv_bias: bool,
    pub(super) output_bias: bool,
    pub(super) feed_forward_bias: bool,
    pub(super) tied: bool,
    pub(super) names: Names,
    pub(super) blocks: Vec<BlockPlan>,
}

impl Architecture {
    /// Reads the configuration of a checkpoint of either kind.
    pub(super) fn of(checkpoint: &Checkpoint) -> Result<Self, TraceError> {
        match checkpoint.metadata() {
            Some(metadata) => gguf::read(checkpoint, metadata),
            None => Self::read(&checkpoint.required_config()?.root()),
        }
    }

    /// Reads `config.json`, and refuses what the trace does not compute.
    pub(super) fn read(root: &Section<'_>) -> Result<Self, TraceError> {
        let family = family(root)?;
        let inner_section = if family == Family::Gemma3 { root.section("text_config")? } else { None };
        let config = inner_section.as_ref().unwrap_or(root);
        let heads = size(config, "num_attention_heads")?;
        let hidden = size(config, "hidden_size")?;
        let kv_heads = optional_size(config, "num_key_value_heads")?.unwrap_or(heads);
        let head_size = optional_size(config, "head_dim")?.unwrap_or(hidden / heads);
        if kv_heads > heads || heads % kv_heads != 0 {
            return Err(config
                .error("num_key_value_heads", kv_heads, format!("a divisor of {heads} heads"))
                .into());
        }
        if head_size == 0 || head_size % 2 != 0 {
            return Err(config.error("head_dim", head_size, "an even number, since rope turns pairs").into());
        }
        let activation = config.optional::<&str>(if family == Family::Gemma3 {
            "hidden_activation"
        } else {
            "hidden_act"
        })?;
        let attention_bias = config.optional::<bool>("attention_bias")?.unwrap_or(false);
        let gemma = family == Family::Gemma3;
        let scalar =
            config.optional::<f64>("query_pre_attn_scalar")?.filter(|_| gemma).unwrap_or(head_size as f64);
        let mut architecture = Self {
            family,
            vocabulary: size(config, "vocab_size")?,
            hidden,
            inner: size(config, "intermediate_size")?,
            heads,
            kv_heads,
            head_size,
            context: size(config, "max_position_embeddings")?,
            eps: config.f64("rms_norm_eps")?,
            rope_theta: theta(config)?,
            score_scale: 1.0 / scalar.sqrt(),
            embedding_scale: if gemma { (hidden as f64).sqrt() } else { 1.0 },
            norm_offset: if gemma { 1.0 } else { 0.0 },
            gelu: is_gelu(config, activation, gemma)?,
            score_cap: config.optional("attn_logit_softcapping")?,
            logits_cap: config.optional("final_logit_softcapping")?,
            qkv_bias: attention_bias || family == Family::Qwen2,
            output_bias: attention_bias,
            feed_forward_bias: config.optional("mlp_bias")?.unwrap_or(false) && family == Family::Llama,
            tied: config.optional("tie_word_embeddings")?.unwrap_or(gemma),
            names: if gemma { Names::FolderFourNorms } else { Names::Folder },
            blocks: Vec::new(),
        };
        let layers = size(config, "num_hidden_layers")?;
        match family {
            Family::Qwen3Moe => {
                let inner = size(config, "moe_intermediate_size")?;
                architecture.refuse_large(layers, size(config, "num_experts")?, inner)?;
            }
            _ => architecture.refuse_large(layers, 1, architecture.inner)?,
        }
        architecture.blocks = block_plans(config, &architecture)?;
        Ok(architecture)
    }

    /// Query width.
    pub(super) fn query_width(&self) -> usize {
        self.heads * self.head_size
    }

    /// Key or value width.
    pub(super) fn kv_width(&self) -> usize {
        self.kv_heads * self.head_size
    }

    /// Refuses what is too large for a trace. Every size is below 2^31 and there is at most one product of two per matrix,
    /// so that nothing overflows.
    pub(super) fn refuse_large(&self, layers: usize, experts: usize, inner: usize) -> Result<(), TraceError> {
        if layers > MAX_LAYERS {
            return Err(TraceError::TooDeep { layers, limit: MAX_LAYERS });
        }
        let [layers, experts, inner] = [layers, experts, inner].map(|size| size as u128);
        let [hidden, vocabulary] = [self.hidden, self.vocabulary].map(|size| size as u128);
        let attention = 2 * hidden * (self.query_width() as u128 + self.kv_width() as u128);
        let tables = if self.tied { 1 } else { 2 };
        let weights = layers * (attention + 3 * experts * hidden * inner) + tables * vocabulary * hidden;
        if weights > u128::from(MAX_WEIGHTS) {
            return Err(TraceError::TooLarge { weights, limit: MAX_WEIGHTS });
        }
        Ok(())
    }
}

fn family(root: &Section<'_>) -> Result<Family, TraceError> {
    Ok(match root.str("model_type")? {
        "llama" => Family::Llama,
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        "qwen3_moe" => Family::Qwen3Moe,
        "gemma3" | "gemma3_text" => Family::Gemma3,
        other => {
            return Err(root
                .error("model_type", format!("{other:?}"), format!("one that is traced: {MODEL_TYPES}"))
                .into());
        }
    })
}

fn size(config: &Section<'_>, key: &str) -> Result<usize, TraceError> {
    check_size(config, key, config.usize(key)?)
}

fn optional_size(config: &Section<'_>, key: &str) -> Result<Option<usize>, TraceError> {
    config.optional::<usize>(key)?.map(|size| check_size(config, key, size)).transpose()
}

fn check_size(config: &Section<'_>, key: &str, size: usize) -> Result<usize, TraceError> {
    if (1..1 << 31).contains(&size) {
        Ok(size)
    } else {
        Err(config.error(key, size, "a size from 1 to 2147483647").into())
    }
}

fn is_gelu(config: &Section<'_>, name: Option<&str>, default: bool) -> Result<bool, TraceError> {
    match name {
        None => Ok(default),
        Some("silu" | "swish") => Ok(false),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(true),
        Some(other) => {
            Err(config.error("hidden_act", format!("{other:?}"), "silu or gelu_pytorch_tanh").into())
        }
    }
}

/// The base of the rotation: at the top level, or in the newer `rope_parameters`, there per kind of layer for gemma3.
fn theta(config: &Section<'_>) -> Result<f64, TraceError> {
    if let Some(theta) = config.optional("rope_theta")? {
        return Ok(theta);
    }
    let Some(parameters) = config.section("rope_parameters")? else { return Ok(10000.0) };
    let full = parameters.section("full_attention")?;
    Ok(full.as_ref().unwrap_or(&parameters).optional("rope_theta")?.unwrap_or(10000.0))
}

fn block_plans(config: &Section<'_>, architecture: &Architecture) -> Result<Vec<BlockPlan>, TraceError> {
    let layers = size(config, "num_hidden_layers")?;
    let windows = windows(config, architecture.family, layers)?;
    let (global, local) = ropes(config, architecture)?;
    let mut plans = Vec::with_capacity(layers);
    for (layer, window) in windows.into_iter().enumerate() {
        let local_rope = architecture.family == Family::Gemma3 && window.is_some();
        plans.push(BlockPlan {
            window,
            rope: if local_rope { local.clone() } else { global.clone() },
            routing: routing(config, architecture.family, layer)?,
        });
    }
    Ok(plans)
}

fn windows(config: &Section<'_>, family: Family, layers: usize) -> Result<Vec<Option<usize>>, TraceError> {
    let window = optional_size(config, "sliding_window")?;
    let switched_on = match family {
        Family::Llama => false,
        Family::Gemma3 => true,
        _ => config.optional("use_sliding_window")?.unwrap_or(false),
    };
    let Some(window) = window.filter(|_| switched_on) else { return Ok(vec![None; layers]) };
    if let Some(kinds) = config.optional::<Vec<&str>>("layer_types")? {
        if kinds.len() != layers {
            return Err(config.error("layer_types", format!("{} entries", kinds.len()), layers).into());
        }
        return Ok(kinds.iter().map(|kind| (*kind == "sliding_attention").then_some(window)).collect());
    }
    if family == Family::Gemma3 {
        let pattern = optional_size(config, "sliding_window_pattern")?.unwrap_or(6);
        return Ok((0..layers).map(|layer| ((layer + 1) % pattern != 0).then_some(window)).collect());
    }
    let first = config.optional::<usize>("max_window_layers")?.unwrap_or(layers);
    Ok((0..layers).map(|layer| (layer >= first).then_some(window)).collect())
}

/// The rotation of layers that see everything, and of gemma3's windowed ones.
fn ropes(config: &Section<'_>, architecture: &Architecture) -> Result<(Rope, Rope), TraceError> {
    let size = architecture.head_size;
    let parameters = config.section("rope_parameters")?;
    let (mut scaling_section, mut local_theta) = (config.section("rope_scaling")?, None);
    if let Some(parameters) = parameters {
        let full = parameters.section("full_attention")?;
        if let Some(sliding) = parameters.section("sliding_attention")? {
            local_theta = sliding.optional("rope_theta")?;
        }
        scaling_section = scaling_section.or(full).or(Some(parameters));
    }
    let local_theta = local_theta.or(config.optional("rope_local_base_freq")?).unwrap_or(10000.0);
    let scaling = match scaling_section {
        Some(section) => scaling(&section, architecture)?,
        None => RopeScaling::None,
    };
    Ok((Rope::new(size, architecture.rope_theta, scaling), Rope::new(size, local_theta, RopeScaling::None)))
}

fn scaling(section: &Section<'_>, architecture: &Architecture) -> Result<RopeScaling, TraceError> {
    if section.optional("partial_rotary_factor")?.is_some_and(|part: f64| part != 1.0) {
        return Err(section
            .error("partial_rotary_factor", "a part", "1: whole heads are turned here")
            .into());
    }
    let kind = section.optional::<&str>("rope_type")?;
    let kind = kind.or(section.optional("type")?).unwrap_or("default");
    let original =
        section.optional("original_max_position_embeddings")?.unwrap_or(architecture.context as f64);
    Ok(match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(section.f64("factor")?),
        "llama3" => RopeScaling::Llama3(Llama3Scaling {
            factor: section.f64("factor")?,
            low_freq_factor: section.f64("low_freq_factor")?,
            high_freq_factor: section.f64("high_freq_factor")?,
            original_context: original,
        }),
        "yarn" => RopeScaling::Yarn(YarnScaling {
            factor: section.f64("factor")?,
            beta_fast: section.optional("beta_fast")?.unwrap_or(32.0),
            beta_slow: section.optional("beta_slow")?.unwrap_or(1.0),
            original_context: original,
            attention_factor: yarn_attention_factor(section)?,
            truncate: section.optional("truncate")?.unwrap_or(true),
        }),
        other => {
            return Err(section
                .error("rope_type", format!("{other:?}"), "default, linear, llama3 or yarn")
                .into());
        }
    })
}

fn yarn_attention_factor(section: &Section<'_>) -> Result<f64, CheckpointError> {
    if let Some(factor) = section.optional("attention_factor")? {
        return Ok(factor);
    }
    let factor = section.f64("factor")?;
    let scale = |mscale| YarnScaling::default_attention_factor(factor, mscale);
    Ok(match (section.optional::<f64>("mscale")?, section.optional::<f64>("mscale_all_dim")?) {
        (Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => scale(mscale) / scale(all),
        _ => scale(1.0),
    })
}

fn routing(config: &Section<'_>, family: Family, layer: usize) -> Result<Option<Routing>, TraceError> {
    if family != Family::Qwen3Moe {
        return Ok(None);
    }
    let dense_layers = config.get("mlp_only_layers").and_then(|list| list.as_array());
    let listed =
        dense_layers.is_some_and(|list| list.iter().any(|entry| entry.as_u64() == Some(layer as u64)));
    let step = optional_size(config, "decoder_sparse_step")?.unwrap_or(1);
    if listed || !(layer + 1).is_multiple_of(step) {
        return Ok(None);
    }
    let (experts, picked) = (size(config, "num_experts")?, size(config, "num_experts_per_tok")?);
    if picked > experts {
        return Err(config
            .error("num_experts_per_tok", picked, format!("at most num_experts, {experts}"))
            .into());
    }
    let normalized = config.optional("norm_topk_prob")?.unwrap_or(false);
    Ok(Some(Routing { experts, picked, inner: size(config, "moe_intermediate_size")?, normalized }))
}
