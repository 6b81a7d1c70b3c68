//! What families read out of a configuration, and refuse there, before any weight is touched.

mod fields;
mod geometry;
mod rope;

pub(crate) use fields::{Fields, LARGEST_SIZE};
pub(crate) use geometry::{Defaults, Geometry};
pub(crate) use rope::RopeConfig;

use crate::ModelError;
use crate::layers::Activation;

/// The activation of gated feed-forward blocks. GGUF does not name it: it belongs to the architecture.
pub(crate) fn activation(
    fields: &Fields<'_>,
    keys: &[&str],
    default: Activation,
) -> Result<Activation, ModelError> {
    for key in keys {
        match fields.text(key)? {
            None => {}
            Some("silu" | "swish") => return Ok(Activation::Silu),
            Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_fast") => return Ok(Activation::GeluTanh),
            Some(other) => {
                return Err(fields.unsupported(key, format!("{other:?}"), "silu, gelu_pytorch_tanh"));
            }
        }
    }
    Ok(default)
}

/// Whether the head uses the embedding's table: what the configuration says, else whether a head is stored.
pub(crate) fn tied_head(fields: &Fields<'_>, head_is_stored: bool) -> Result<bool, ModelError> {
    match fields {
        Fields::Folder { .. } => Ok(fields.flag("tie_word_embeddings")?.unwrap_or(!head_is_stored)),
        Fields::Gguf { .. } => Ok(!head_is_stored),
    }
}

/// Which layers attend to everything (`None`) and which to a window of positions, themselves included.
///
/// `layer_types` decides where it is there; else `is_windowed`.
pub(crate) fn windows(
    fields: &Fields<'_>,
    layers: usize,
    window: Option<usize>,
    is_windowed: impl Fn(usize) -> bool,
) -> Result<Vec<Option<usize>>, ModelError> {
    const KEY: &str = "layer_types";
    let Some(types) = fields.texts(KEY)? else {
        return Ok((0..layers).map(|layer| window.filter(|_| is_windowed(layer))).collect());
    };
    if types.len() != layers {
        return Err(fields.refuse(
            KEY,
            format!("{} entries", types.len()),
            format!("one for each of {layers} layers"),
        ));
    }
    types
        .into_iter()
        .map(|kind| match (kind, window) {
            ("full_attention", _) => Ok(None),
            ("sliding_attention", Some(window)) => Ok(Some(window)),
            ("sliding_attention", None) => {
                Err(fields.refuse(KEY, format!("{kind:?}"), "full_attention, since no sliding_window is set"))
            }
            _ => Err(fields.unsupported(KEY, format!("{kind:?}"), "full_attention, sliding_attention")),
        })
        .collect()
}
