//! Gemma 3, text: norms around both halves of a block, windows in most layers, two rotary embeddings.

use samebit_arith::{KvShape, RopeFrequencies, RopeLayout};

use super::Names;
use super::pre_norm::describe_windows;
use crate::ModelError;
use crate::config::{Defaults, Fields, Geometry, RopeConfig, activation, tied_head, windows};
use crate::forward::{Blocks, Pass};
use crate::layers::{Activation, Attention, AttentionOptions, GatedMlp, HeadNorms, RmsNorm};
use crate::registry::{Blueprint, Description, Ends, Family};
use crate::state::LayerShape;
use crate::weights::{Bias, Weights};

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "gemma3",
    model_types: &["gemma3_text", "gemma3"],
    architectures: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    gguf: &["gemma3"],
    configure,
};

/// What published configurations leave out.
const DEFAULTS: Defaults = Defaults {
    vocabulary: Some(262_208),
    heads: Some(8),
    kv_heads: Some(4),
    head_dim: Some(256),
    context: Some(131_072),
    epsilon: Some(1e-6),
};
const GLOBAL_ROPE_BASE: f64 = 1_000_000.0;
const LOCAL_ROPE_BASE: f64 = 10_000.0;
/// Every so many layers, one attends to everything.
const WINDOW_PATTERN: usize = 6;
/// Layers of the 27B model, the only one whose scale does not follow from the head size; GGUF files do not say so.
const LAYERS_OF_27B: usize = 62;

/// An accepted configuration.
struct Gemma3 {
    geometry: Geometry,
    names: Names,
    tied_head: bool,
    /// Norm weights are stored less 1, but for GGUF.
    zero_centred: bool,
    bias: Bias,
    global_rope: RopeConfig,
    local_rope: RopeConfig,
    /// Window of each layer; layers without one are global.
    windows: Vec<Option<usize>>,
    scale: f32,
    logit_soft_cap: Option<f32>,
    activation: Activation,
}

fn configure(description: &Description<'_>) -> Result<Box<dyn Blueprint>, ModelError> {
    let Description { fields, checkpoint } = description;
    let config = match fields.section("text_config")? {
        Some(text) => from_folder(&text, description)?,
        None if fields.is_gguf() => from_gguf(fields, description)?,
        None => from_folder(fields, description)?,
    };
    let tied_head = match fields.flag("tie_word_embeddings")? {
        Some(tied) if !fields.is_gguf() => tied,
        _ => tied_head(fields, checkpoint.contains(&config.names.head_weight()))?,
    };
    Ok(Box::new(Gemma3 { tied_head, ..config }))
}

fn from_folder(fields: &Fields<'_>, description: &Description<'_>) -> Result<Gemma3, ModelError> {
    let names =
        Names::folder(description.checkpoint, &["model.", "language_model.model.", "model.language_model."]);
    let geometry = Geometry::read(fields, DEFAULTS, description.tensor_count(), None)?;
    if fields.flag("use_bidirectional_attention")? == Some(true) {
        return Err(fields.unsupported("use_bidirectional_attention", true, "false, a causal decoder"));
    }
    refuse_score_cap(fields)?;
    let window = fields.size("sliding_window")?.unwrap_or(4096);
    let pattern = match fields.size("sliding_window_pattern")? {
        Some(pattern) => pattern,
        None => fields.size("_sliding_window_pattern")?.unwrap_or(WINDOW_PATTERN),
    };
    let (global_rope, local_rope) = folder_ropes(fields, &geometry)?;
    let query_scalar = fields.positive("query_pre_attn_scalar")?.unwrap_or(256.0);
    Ok(Gemma3 {
        names,
        tied_head: true,
        zero_centred: true,
        bias: Bias::from_flag(fields.flag("attention_bias")?.unwrap_or(false)),
        global_rope,
        local_rope,
        windows: windows(fields, geometry.layers, Some(window), |layer| (layer + 1) % pattern != 0)?,
        scale: (1.0 / query_scalar.sqrt()) as f32,
        logit_soft_cap: fields.positive_single("final_logit_softcapping")?,
        activation: activation(fields, &["hidden_activation", "hidden_act"], Activation::GeluTanh)?,
        geometry,
    })
}

/// The field exists, but published implementations never apply it: either reading could be meant.
fn refuse_score_cap(fields: &Fields<'_>) -> Result<(), ModelError> {
    const KEY: &str = "attn_logit_softcapping";
    match fields.number(KEY)? {
        Some(cap) => Err(fields.unsupported(KEY, cap, "null, scores without a cap")),
        None => Ok(()),
    }
}

/// Rotary embeddings of global and of local layers: one object per kind of layer, or the older keys.
fn folder_ropes(fields: &Fields<'_>, geometry: &Geometry) -> Result<(RopeConfig, RopeConfig), ModelError> {
    if let Some(parameters) = fields.section("rope_parameters")? {
        let kind = |key: &str, default_base: f64| match parameters.section(key)? {
            Some(kind) => {
                let base = kind.positive("rope_theta")?.unwrap_or(default_base);
                RopeConfig::read_parameters(&kind, geometry, base)
            }
            None => Ok(RopeConfig::plain(geometry, default_base)),
        };
        return Ok((kind("full_attention", GLOBAL_ROPE_BASE)?, kind("sliding_attention", LOCAL_ROPE_BASE)?));
    }
    let local_base = fields.positive("rope_local_base_freq")?.unwrap_or(LOCAL_ROPE_BASE);
    Ok((RopeConfig::read(fields, geometry, GLOBAL_ROPE_BASE)?, RopeConfig::plain(geometry, local_base)))
}

fn from_gguf(fields: &Fields<'_>, description: &Description<'_>) -> Result<Gemma3, ModelError> {
    let names = Names::gguf();
    let stored_vocabulary = description.stored_rows(&names.embedding_weight());
    let geometry =
        Geometry::read(fields, Defaults::default(), description.tensor_count(), stored_vocabulary)?;
    refuse_score_cap(fields)?;
    let window = fields.required_size("attention.sliding_window")?;
    let pattern = fields.size("attention.sliding_window_pattern")?.unwrap_or(WINDOW_PATTERN);
    let local_base = fields.positive("rope.freq_base_swa")?.unwrap_or(LOCAL_ROPE_BASE);
    let query_scalar = if geometry.layers == LAYERS_OF_27B {
        geometry.hidden as f64 / geometry.heads as f64
    } else {
        geometry.head_dim as f64
    };
    Ok(Gemma3 {
        names,
        tied_head: true,
        zero_centred: false,
        bias: Bias::Absent,
        global_rope: RopeConfig::read(fields, &geometry, GLOBAL_ROPE_BASE)?,
        local_rope: RopeConfig::plain(&geometry, local_base),
        windows: windows(fields, geometry.layers, Some(window), |layer| (layer + 1) % pattern != 0)?,
        scale: (1.0 / query_scalar.sqrt()) as f32,
        logit_soft_cap: fields.positive_single("final_logit_softcapping")?,
        activation: Activation::GeluTanh,
        geometry,
    })
}

/// Module names of the other norms, below a block: after attention, before and after the feed-forward network.
struct NormNames {
    post_attention: &'static str,
    pre_feed_forward: &'static str,
    post_feed_forward: &'static str,
}

const FOLDER_NORMS: NormNames = NormNames {
    post_attention: "post_attention_layernorm",
    pre_feed_forward: "pre_feedforward_layernorm",
    post_feed_forward: "post_feedforward_layernorm",
};

const GGUF_NORMS: NormNames = NormNames {
    post_attention: "post_attention_norm",
    pre_feed_forward: "ffn_norm",
    post_feed_forward: "post_ffw_norm",
};

impl Blueprint for Gemma3 {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn ends(&self) -> Ends {
        Ends {
            // The published code rounds this to bfloat16; the model in higher precision does not.
            embedding_scale: Some((self.geometry.hidden as f64).sqrt() as f32),
            zero_centred_norm: self.zero_centred,
            tied_head: self.tied_head,
            logit_soft_cap: self.logit_soft_cap,
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let logit_soft_cap = self.logit_soft_cap.map_or("none".to_owned(), |cap| cap.to_string());
        vec![
            ("rope_global", self.global_rope.describe()),
            ("rope_local", self.local_rope.describe()),
            ("attention_scale", self.scale.to_string()),
            ("windows", describe_windows(&self.windows)),
            ("activation", self.activation.name().to_owned()),
            ("logit_soft_cap", logit_soft_cap),
        ]
    }

    fn states(&self) -> Vec<LayerShape> {
        let Geometry { kv_heads, head_dim, layers, .. } = self.geometry;
        vec![LayerShape::Attention(KvShape::uniform(kv_heads, head_dim)); layers]
    }

    fn blocks(&self, weights: &mut Weights<'_>) -> Result<Box<dyn Blocks>, ModelError> {
        let blocks =
            (0..self.geometry.layers).map(|layer| self.block(weights, layer)).collect::<Result<_, _>>()?;
        Ok(Box::new(Gemma3Blocks {
            global_rope: self.global_rope.frequencies(None),
            local_rope: self.local_rope.frequencies(None),
            blocks,
        }))
    }

    /// Images are not read, so their tower is not needed.
    fn is_ignorable(&self, tensor: &str) -> bool {
        ["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."]
            .into_iter()
            .any(|prefix| tensor.starts_with(prefix))
    }
}

impl Gemma3 {
    fn block(&self, weights: &mut Weights<'_>, layer: usize) -> Result<Block, ModelError> {
        let Geometry { hidden, inner, epsilon, .. } = self.geometry;
        let block = self.names.block(layer);
        let norms = if self.zero_centred { FOLDER_NORMS } else { GGUF_NORMS };
        let attention = AttentionOptions {
            input_bias: self.bias,
            output_bias: self.bias,
            head_norms: if self.zero_centred { HeadNorms::ZeroCentred } else { HeadNorms::Plain },
            rope_layout: RopeLayout::Halves,
            scale: self.scale,
            window: self.windows[layer],
        };
        let read = if self.zero_centred { RmsNorm::read_zero_centred } else { RmsNorm::read };
        let mut norm = |name: &str| read(weights, &format!("{block}.{name}"), hidden, epsilon);
        Ok(Block {
            is_global: self.windows[layer].is_none(),
            attention_norm: norm(self.names.attention_norm)?,
            post_attention_norm: norm(norms.post_attention)?,
            feed_forward_norm: norm(norms.pre_feed_forward)?,
            post_feed_forward_norm: norm(norms.post_feed_forward)?,
            attention: Attention::read(weights, &block, self.names.attention, &self.geometry, attention)?,
            mlp: GatedMlp::read(
                weights,
                &block,
                self.names.mlp,
                (hidden, inner),
                self.activation,
                Bias::Absent,
            )?,
        })
    }
}

/// `h = x + norm(attention(norm(x)))`, then `h + norm(mlp(norm(h)))`.
#[derive(Debug)]
struct Block {
    is_global: bool,
    attention_norm: RmsNorm,
    attention: Attention,
    post_attention_norm: RmsNorm,
    feed_forward_norm: RmsNorm,
    mlp: GatedMlp,
    post_feed_forward_norm: RmsNorm,
}

#[derive(Debug)]
struct Gemma3Blocks {
    global_rope: RopeFrequencies,
    local_rope: RopeFrequencies,
    blocks: Vec<Block>,
}

impl Blocks for Gemma3Blocks {
    fn forward(&self, pass: &mut Pass<'_, '_>, x: &mut [f32]) {
        let cpu = pass.cpu();
        let global = pass.angles(&self.global_rope);
        let local = pass.angles(&self.local_rope);
        for (layer, block) in self.blocks.iter().enumerate() {
            let angles = if block.is_global { &global } else { &local };
            let normed = block.attention_norm.forward(cpu, x);
            let mut mixed = block.attention.forward(pass, layer, &normed, angles);
            block.post_attention_norm.in_place(cpu, &mut mixed);
            cpu.add(x, &mixed);

            let normed = block.feed_forward_norm.forward(cpu, x);
            let mut fed = block.mlp.forward(cpu, &normed);
            block.post_feed_forward_norm.in_place(cpu, &mut fed);
            cpu.add(x, &fed);
            pass.end_of_block(layer, x);
        }
    }
}
