//! The sizes that every transformer here has.

use super::{Fields, LARGEST_SIZE};
use crate::ModelError;

/// Sizes and constants of a transformer.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    /// Number of token ids.
    pub(crate) vocabulary: usize,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Width inside a feed-forward block.
    pub(crate) inner: usize,
    /// Number of blocks.
    pub(crate) layers: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub(crate) kv_heads: usize,
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// Largest number of positions.
    pub(crate) context: usize,
    /// Added to the mean square in RMS norms.
    pub(crate) epsilon: f32,
}

/// Values for fields that a family's published `config.json` files leave out. `None`: the field is required.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) vocabulary: Option<usize>,
    pub(crate) heads: Option<usize>,
    pub(crate) kv_heads: Option<usize>,
    pub(crate) head_dim: Option<usize>,
    pub(crate) context: Option<usize>,
    pub(crate) epsilon: Option<f64>,
}

/// The keys of one kind of source.
struct Keys {
    vocabulary: &'static str,
    hidden: &'static str,
    inner: &'static str,
    layers: &'static str,
    heads: &'static str,
    kv_heads: &'static str,
    head_dim: &'static str,
    context: &'static str,
    epsilon: &'static str,
}

const FOLDER: Keys = Keys {
    vocabulary: "vocab_size",
    hidden: "hidden_size",
    inner: "intermediate_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
    context: "max_position_embeddings",
    epsilon: "rms_norm_eps",
};

const GGUF: Keys = Keys {
    vocabulary: "vocab_size",
    hidden: "embedding_length",
    inner: "feed_forward_length",
    layers: "block_count",
    heads: "attention.head_count",
    kv_heads: "attention.head_count_kv",
    head_dim: "attention.key_length",
    context: "context_length",
    epsilon: "attention.layer_norm_rms_epsilon",
};

impl Geometry {
    /// Reads the sizes and checks that they fit each other. `stored_tensors` bounds the number of layers, and
    /// `stored_vocabulary` (rows of the embedding) stands in for GGUF files that do not name theirs.
    pub(crate) fn read(
        fields: &Fields<'_>,
        defaults: Defaults,
        stored_tensors: usize,
        stored_vocabulary: Option<usize>,
    ) -> Result<Self, ModelError> {
        // GGUF writers name every size but, at times, the vocabulary's.
        let (keys, defaults) = if fields.is_gguf() {
            (GGUF, Defaults { vocabulary: stored_vocabulary, ..Defaults::default() })
        } else {
            (FOLDER, defaults)
        };
        let size = |key: &str, default: Option<usize>| match (fields.size(key)?, default) {
            (Some(size), _) | (None, Some(size)) => Ok(size),
            (None, None) => fields.required_size(key),
        };
        let hidden = size(keys.hidden, None)?;
        let heads = size(keys.heads, defaults.heads)?;
        let kv_heads = size(keys.kv_heads, defaults.kv_heads.or(Some(heads)))?;
        if heads % kv_heads != 0 {
            return Err(fields.refuse(
                keys.kv_heads,
                kv_heads,
                format!("a divisor of the {heads} query heads"),
            ));
        }
        let head_dim = match (fields.size(keys.head_dim)?, defaults.head_dim) {
            (Some(head_dim), _) | (None, Some(head_dim)) => head_dim,
            (None, None) if hidden % heads == 0 => hidden / heads,
            (None, None) => {
                let expected =
                    format!("a divisor of {} = {hidden}, since {} is not given", keys.hidden, keys.head_dim);
                return Err(fields.refuse(keys.heads, heads, expected));
            }
        };
        if head_dim % 2 != 0 || heads.checked_mul(head_dim).is_none_or(|width| width > LARGEST_SIZE) {
            let expected = "an even number whose product with the number of heads is below 2^31";
            return Err(fields.refuse(keys.head_dim, head_dim, expected));
        }
        let layers = size(keys.layers, None)?;
        if layers > stored_tensors {
            let expected = format!("at most {stored_tensors}, the number of tensors in the checkpoint");
            return Err(fields.refuse(keys.layers, layers, expected));
        }
        let epsilon = match (fields.positive_single(keys.epsilon)?, defaults.epsilon) {
            (Some(epsilon), _) => epsilon,
            (None, Some(epsilon)) => epsilon as f32,
            (None, None) => return Err(fields.refuse(keys.epsilon, "nothing", "a number above 0")),
        };
        if fields.is_gguf() && defaults.vocabulary.is_none() {
            let expected = "the tensor token_embd.weight, with a row for each token";
            return Err(ModelError::field(fields.file(), "tensors", "no token embedding", expected));
        }
        Ok(Self {
            vocabulary: size(keys.vocabulary, defaults.vocabulary)?,
            hidden,
            inner: size(keys.inner, None)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            context: size(keys.context, defaults.context)?,
            epsilon,
        })
    }

    /// Width of all query heads side by side.
    pub(crate) fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads side by side.
    pub(crate) fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Name and value of each size, for people.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        vec![
            ("vocabulary", self.vocabulary.to_string()),
            ("hidden", self.hidden.to_string()),
            ("inner", self.inner.to_string()),
            ("layers", self.layers.to_string()),
            ("heads", self.heads.to_string()),
            ("kv_heads", self.kv_heads.to_string()),
            ("head_dim", self.head_dim.to_string()),
            ("context", self.context.to_string()),
            ("epsilon", self.epsilon.to_string()),
        ]
    }
}
