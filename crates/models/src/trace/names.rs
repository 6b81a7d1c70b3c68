//! Names of tensors in both kinds of checkpoints.

/// Where the weights of a model stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Published folders: `model.layers.0.self_attn.q_proj.weight`.
    Folder,
    /// The same, where attention and feed-forward also have norms behind them.
    FolderFourNorms,
    /// GGUF: `blk.0.attn_q.weight`.
    Gguf,
}

/// Modules outside the blocks: in folders, in GGUF.
pub(super) struct Module(&'static str, &'static str);

pub(super) const EMBEDDING: Module = Module("model.embed_tokens", "token_embd");
pub(super) const FINAL_NORM: Module = Module("model.norm", "output_norm");
pub(super) const HEAD: Module = Module("lm_head", "output");

/// Modules of a block: in folders, in folders with four norms, in GGUF.
pub(super) struct BlockModule(&'static str, &'static str, &'static str);

const fn same(folder: &'static str, gguf: &'static str) -> BlockModule {
    BlockModule(folder, folder, gguf)
}

pub(super) const INPUT_NORM: BlockModule = same("input_layernorm", "attn_norm");
pub(super) const Q: BlockModule = same("self_attn.q_proj", "attn_q");
pub(super) const K: BlockModule = same("self_attn.k_proj", "attn_k");
pub(super) const V: BlockModule = same("self_attn.v_proj", "attn_v");
pub(super) const O: BlockModule = same("self_attn.o_proj", "attn_output");
pub(super) const Q_NORM: BlockModule = same("self_attn.q_norm", "attn_q_norm");
pub(super) const K_NORM: BlockModule = same("self_attn.k_norm", "attn_k_norm");
pub(super) const ATTENTION_OUTPUT_NORM: BlockModule = same("post_attention_layernorm", "post_attention_norm");
pub(super) const FEED_FORWARD_NORM: BlockModule =
    BlockModule("post_attention_layernorm", "pre_feedforward_layernorm", "ffn_norm");
pub(super) const FEED_FORWARD_OUTPUT_NORM: BlockModule = same("post_feedforward_layernorm", "post_ffw_norm");
pub(super) const GATE: BlockModule = same("mlp.gate_proj", "ffn_gate");
pub(super) const UP: BlockModule = same("mlp.up_proj", "ffn_up");
pub(super) const DOWN: BlockModule = same("mlp.down_proj", "ffn_down");

impl Names {
    /// Name of a module outside the blocks.
    pub(super) fn module(self, module: &Module) -> String {
        if self == Self::Gguf { module.1.to_owned() } else { module.0.to_owned() }
    }

    /// Name of a module of a block.
    pub(super) fn block_module(self, layer: usize, module: &BlockModule) -> String {
        match self {
            Self::Folder => format!("model.layers.{layer}.{}", module.0),
            Self::FolderFourNorms => format!("model.layers.{layer}.{}", module.1),
            Self::Gguf => format!("blk.{layer}.{}", module.2),
        }
    }
}
