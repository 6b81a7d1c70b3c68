//! Tensor names that the families share.

use samebit_checkpoint::Checkpoint;

use crate::layers::{AttentionNames, GatedMlpNames};

/// Where the tensors of a decoder are, in one kind of checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Module of the embedding.
    pub(crate) embedding: String,
    /// Module of the norm after the last block.
    pub(crate) norm: String,
    /// Module of the head.
    pub(crate) head: String,
    /// What block numbers follow.
    blocks: String,
    /// Attention, below a block.
    pub(crate) attention: AttentionNames,
    /// Gated feed-forward network, below a block.
    pub(crate) mlp: GatedMlpNames,
    /// Norm before attention, below a block.
    pub(crate) attention_norm: &'static str,
}

impl Names {
    /// Names in a folder. `prefixes` are tried in order for where the decoder is, the first is the common one.
    pub(crate) fn folder(checkpoint: &Checkpoint, prefixes: &[&str]) -> Self {
        let holds_decoder = |prefix: &&&str| checkpoint.contains(&format!("{prefix}embed_tokens.weight"));
        let prefix = prefixes.iter().find(holds_decoder).or(prefixes.first()).copied().unwrap_or("model.");
        let head_prefix = prefix.strip_suffix("model.").unwrap_or("");
        Self {
            embedding: format!("{prefix}embed_tokens"),
            norm: format!("{prefix}norm"),
            head: format!("{head_prefix}lm_head"),
            blocks: format!("{prefix}layers"),
            attention: AttentionNames {
                query: "self_attn.q_proj",
                key: "self_attn.k_proj",
                value: "self_attn.v_proj",
                output: "self_attn.o_proj",
                query_norm: "self_attn.q_norm",
                key_norm: "self_attn.k_norm",
            },
            mlp: GatedMlpNames { gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj" },
            attention_norm: "input_layernorm",
        }
    }

    /// Names in a GGUF file.
    pub(crate) fn gguf() -> Self {
        Self {
            embedding: "token_embd".to_owned(),
            norm: "output_norm".to_owned(),
            head: "output".to_owned(),
            blocks: "blk".to_owned(),
            attention: AttentionNames {
                query: "attn_q",
                key: "attn_k",
                value: "attn_v",
                output: "attn_output",
                query_norm: "attn_q_norm",
                key_norm: "attn_k_norm",
            },
            mlp: GatedMlpNames { gate: "ffn_gate", up: "ffn_up", down: "ffn_down" },
            attention_norm: "attn_norm",
        }
    }

    /// Module of a block.
    pub(crate) fn block(&self, layer: usize) -> String {
        format!("{}.{layer}", self.blocks)
    }

    /// Weight of the embedding.
    pub(crate) fn embedding_weight(&self) -> String {
        format!("{}.weight", self.embedding)
    }

    /// Weight of the head.
    pub(crate) fn head_weight(&self) -> String {
        format!("{}.weight", self.head)
    }
}
