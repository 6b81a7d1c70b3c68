//! Which families there are, and which of them a checkpoint belongs to.

use samebit_checkpoint::{Checkpoint, Source};

use crate::ModelError;
use crate::config::{Fields, Geometry};
use crate::families::{self, Names};
use crate::forward::Blocks;
use crate::state::LayerShape;
use crate::weights::Weights;

/// Every family. Adding one is a module under `families` and a line here.
static FAMILIES: [&Family; 5] = [
    &families::llama::FAMILY,
    &families::qwen2::FAMILY,
    &families::qwen3::FAMILY,
    &families::qwen3_moe::FAMILY,
    &families::gemma3::FAMILY,
];

/// How checkpoints of a family are recognised, and how its configuration is read.
pub(crate) struct Family {
    /// Name for people.
    pub(crate) name: &'static str,
    /// Values of `model_type` in `config.json`.
    pub(crate) model_types: &'static [&'static str],
    /// Values of `architectures` in `config.json`.
    pub(crate) architectures: &'static [&'static str],
    /// Values of `general.architecture` in GGUF metadata.
    pub(crate) gguf: &'static [&'static str],
    /// Reads and checks the configuration.
    pub(crate) configure: fn(&Description<'_>) -> Result<Box<dyn Blueprint>, ModelError>,
}

/// What a family reads its configuration from.
pub(crate) struct Description<'a> {
    /// The fields of the configuration.
    pub(crate) fields: Fields<'a>,
    /// The checkpoint, for what only its tensors tell (whether there is a head, how experts are stored).
    pub(crate) checkpoint: &'a Checkpoint,
}

/// A configuration that was read, checked and accepted.
pub(crate) trait Blueprint {
    /// Sizes.
    fn geometry(&self) -> &Geometry;

    /// Names of the tensors that no block has.
    fn names(&self) -> &Names;

    /// What happens before the first and after the last block.
    fn ends(&self) -> Ends;

    /// Everything else that enters the arithmetic, for people and for the identity of states.
    fn settings(&self) -> Vec<(&'static str, String)>;

    /// The state of each layer.
    fn states(&self) -> Vec<LayerShape>;

    /// Asks for the weights of the blocks.
    fn blocks(&self, weights: &mut Weights<'_>) -> Result<Box<dyn Blocks>, ModelError>;

    /// Whether a tensor that was not asked for is known to be harmless.
    fn is_ignorable(&self, _tensor: &str) -> bool {
        false
    }
}

/// What happens before the first and after the last block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// What embedding rows are multiplied by.
    pub(crate) embedding_scale: Option<f32>,
    /// Whether the weight of the last norm is stored less 1.
    pub(crate) zero_centred_norm: bool,
    /// Whether the head is the embedding's table.
    pub(crate) tied_head: bool,
    /// Soft cap of logits.
    pub(crate) logit_soft_cap: Option<f32>,
}

impl<'a> Description<'a> {
    /// Number of tensors in the checkpoint: no model has more layers or experts.
    pub(crate) fn tensor_count(&self) -> usize {
        self.checkpoint.tensors().len()
    }

    /// Rows of a stored matrix, where there is one; read from its header.
    pub(crate) fn stored_rows(&self, name: &str) -> Option<usize> {
        self.checkpoint.tensor(name).ok().and_then(|tensor| tensor.shape().first().copied())
    }
}

/// Recognises the family of a checkpoint and reads its configuration.
pub(crate) fn configure(
    checkpoint: &Checkpoint,
) -> Result<(&'static Family, Box<dyn Blueprint>), ModelError> {
    let (family, fields) = match (checkpoint.source(), checkpoint.metadata()) {
        (Source::Gguf, Some(metadata)) => {
            let architecture = metadata.str("general.architecture")?;
            let family = FAMILIES.into_iter().find(|family| family.gguf.contains(&architecture));
            let family = family.ok_or_else(|| {
                let supported = list(|family| family.gguf);
                let found = format!("{architecture:?}");
                ModelError::unsupported(metadata.file(), "metadata general.architecture", found, supported)
            })?;
            (family, Fields::Gguf { metadata, architecture })
        }
        _ => {
            let section = checkpoint.required_config()?.root();
            let fields = Fields::Folder { section, path: String::new() };
            (recognise(&fields)?, fields)
        }
    };
    let blueprint = (family.configure)(&Description { fields, checkpoint })?;
    Ok((family, blueprint))
}

/// The family that `model_type` (else `architectures`) of a `config.json` names.
fn recognise(fields: &Fields<'_>) -> Result<&'static Family, ModelError> {
    let architectures = fields.texts("architectures")?;
    let family = match (fields.text("model_type")?, &architectures) {
        (Some(model_type), _) => {
            let family = FAMILIES.into_iter().find(|family| family.model_types.contains(&model_type));
            family.ok_or_else(|| {
                fields.unsupported("model_type", format!("{model_type:?}"), list(|family| family.model_types))
            })?
        }
        (None, Some(architectures)) => {
            let family = FAMILIES
                .into_iter()
                .find(|family| architectures.iter().any(|name| family.architectures.contains(name)));
            family.ok_or_else(|| {
                let supported = list(|family| family.architectures);
                fields.unsupported("architectures", format!("{architectures:?}"), supported)
            })?
        }
        (None, None) => {
            let expected = format!("one of {}", list(|family| family.model_types));
            return Err(fields.refuse("model_type", "nothing", expected));
        }
    };
    // A classifier or an encoder shares the model type, and has other weights on top.
    if let Some(architectures) = architectures
        && !architectures.iter().any(|name| family.architectures.contains(name))
    {
        let supported = family.architectures.join(", ");
        return Err(fields.unsupported("architectures", format!("{architectures:?}"), supported));
    }
    Ok(family)
}

fn list(names: impl Fn(&Family) -> &'static [&'static str]) -> String {
    FAMILIES.into_iter().flat_map(|family| names(family).iter().copied()).collect::<Vec<_>>().join(", ")
}
