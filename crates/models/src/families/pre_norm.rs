//! The decoder that Llama made common: norm, attend, add; norm, feed forward, add. Families differ in what is set.

use samebit_arith::{KvShape, RopeFrequencies, RopeLayout};

use super::Names;
use crate::ModelError;
use crate::config::{Geometry, RopeConfig};
use crate::forward::{Blocks, Pass};
use crate::layers::{
    Activation, Attention, AttentionOptions, ExpertNames, Experts, ExpertsShape, GatedMlp, HeadNorms, RmsNorm,
};
use crate::registry::{Blueprint, Ends};
use crate::state::LayerShape;
use crate::weights::{Bias, Weights};

/// The divisors of rotary frequencies that some GGUF files carry.
const GGUF_ROPE_DIVISORS: &str = "rope_freqs.weight";

/// An accepted configuration.
pub(super) struct PreNormConfig {
    pub(super) geometry: Geometry,
    pub(super) names: Names,
    /// Norm before the feed-forward network, below a block.
    pub(super) feed_forward_norm: &'static str,
    pub(super) tied_head: bool,
    pub(super) rope: RopeConfig,
    pub(super) rope_layout: RopeLayout,
    /// Scale of attention scores.
    pub(super) scale: f32,
    /// Window of each layer.
    pub(super) windows: Vec<Option<usize>>,
    pub(super) input_bias: Bias,
    pub(super) output_bias: Bias,
    pub(super) mlp_bias: Bias,
    pub(super) head_norms: HeadNorms,
    pub(super) activation: Activation,
    pub(super) experts: Option<ExpertsConfig>,
}

/// Which layers are routed, and how.
pub(super) struct ExpertsConfig {
    pub(super) shape: ExpertsShape,
    pub(super) router: &'static str,
    pub(super) names: ExpertNames,
    /// Whether each layer is routed; the others are dense.
    pub(super) routed: Vec<bool>,
}

impl Blueprint for PreNormConfig {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn ends(&self) -> Ends {
        Ends {
            embedding_scale: None,
            zero_centred_norm: false,
            tied_head: self.tied_head,
            logit_soft_cap: None,
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("rope", self.rope.describe()),
            ("rope_layout", format!("{:?}", self.rope_layout).to_lowercase()),
            ("attention_scale", self.scale.to_string()),
            ("windows", describe_windows(&self.windows)),
            ("activation", self.activation.name().to_owned()),
        ];
        if let Some(ExpertsConfig { shape, routed, .. }) = &self.experts {
            settings.push(("experts", format!("{} of {}", shape.picked, shape.experts)));
            settings.push(("expert_inner", shape.inner.to_string()));
            settings.push((
                "expert_weights",
                if shape.normalise { "normalised" } else { "as scored" }.to_owned(),
            ));
            let dense: Vec<_> =
                (0..routed.len()).filter(|&layer| !routed[layer]).map(|l| l.to_string()).collect();
            settings
                .push(("dense_layers", if dense.is_empty() { "none".to_owned() } else { dense.join(", ") }));
        }
        settings
    }

    fn states(&self) -> Vec<LayerShape> {
        let Geometry { kv_heads, head_dim, layers, .. } = self.geometry;
        vec![LayerShape::Attention(KvShape::uniform(kv_heads, head_dim)); layers]
    }

    fn blocks(&self, weights: &mut Weights<'_>) -> Result<Box<dyn Blocks>, ModelError> {
        let divisors = if weights.contains(GGUF_ROPE_DIVISORS) {
            Some(weights.positive_vector(GGUF_ROPE_DIVISORS, self.geometry.head_dim / 2)?)
        } else {
            None
        };
        let rope = self.rope.frequencies(divisors.as_deref());
        let blocks =
            (0..self.geometry.layers).map(|layer| self.block(weights, layer)).collect::<Result<_, _>>()?;
        Ok(Box::new(PreNormBlocks { rope, blocks }))
    }
}

impl PreNormConfig {
    fn block(&self, weights: &mut Weights<'_>, layer: usize) -> Result<PreNormBlock, ModelError> {
        let Geometry { hidden, inner, epsilon, .. } = self.geometry;
        let block = self.names.block(layer);
        let attention = AttentionOptions {
            input_bias: self.input_bias,
            output_bias: self.output_bias,
            head_norms: self.head_norms,
            rope_layout: self.rope_layout,
            scale: self.scale,
            window: self.windows[layer],
        };
        let mut norm = |name| RmsNorm::read(weights, &format!("{block}.{name}"), hidden, epsilon);
        Ok(PreNormBlock {
            attention_norm: norm(self.names.attention_norm)?,
            feed_forward_norm: norm(self.feed_forward_norm)?,
            attention: Attention::read(weights, &block, self.names.attention, &self.geometry, attention)?,
            feed_forward: match &self.experts {
                Some(experts) if experts.routed[layer] => FeedForward::Routed(Experts::read(
                    weights,
                    &block,
                    experts.router,
                    experts.names,
                    experts.shape,
                )?),
                _ => FeedForward::Dense(GatedMlp::read(
                    weights,
                    &block,
                    self.names.mlp,
                    (hidden, inner),
                    self.activation,
                    self.mlp_bias,
                )?),
            },
        })
    }
}

/// Dense or routed.
#[derive(Debug)]
enum FeedForward {
    Dense(GatedMlp),
    Routed(Experts),
}

/// `h = x + attention(norm(x))`, then `h + feed_forward(norm(h))`.
#[derive(Debug)]
struct PreNormBlock {
    attention_norm: RmsNorm,
    attention: Attention,
    feed_forward_norm: RmsNorm,
    feed_forward: FeedForward,
}

#[derive(Debug)]
struct PreNormBlocks {
    rope: RopeFrequencies,
    blocks: Vec<PreNormBlock>,
}

impl Blocks for PreNormBlocks {
    fn forward(&self, pass: &mut Pass<'_, '_>, x: &mut [f32]) {
        let cpu = pass.cpu();
        let angles = pass.angles(&self.rope);
        for (layer, block) in self.blocks.iter().enumerate() {
            let normed = block.attention_norm.forward(cpu, x);
            let mixed = block.attention.forward(pass, layer, &normed, &angles);
            cpu.add(x, &mixed);

            let normed = block.feed_forward_norm.forward(cpu, x);
            let fed = match &block.feed_forward {
                FeedForward::Dense(mlp) => mlp.forward(cpu, &normed),
                FeedForward::Routed(experts) => experts.forward(pass, layer, &normed),
            };
            cpu.add(x, &fed);
            pass.end_of_block(layer, x);
        }
    }
}

/// `all` for full attention everywhere, else the window of each layer.
pub(super) fn describe_windows(windows: &[Option<usize>]) -> String {
    if windows.iter().all(Option::is_none) {
        return "none".to_owned();
    }
    let each = windows.iter().map(|window| window.map_or("all".to_owned(), |window| window.to_string()));
    each.collect::<Vec<_>>().join(" ")
}
