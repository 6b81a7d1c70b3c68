//! A loaded model, and what is known of it before anything is loaded.

use std::fmt;
use std::sync::Arc;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::{Checkpoint, Quantization};

use crate::forward::Blocks;
use crate::layers::{Embedding, Head, RmsNorm, Table};
use crate::plan::{plan_id, short_digest};
use crate::registry::{self, Blueprint};
use crate::state::{LayerShape, StateIdentity};
use crate::weights::{TensorUse, Unused, Weights};
use crate::{ModelError, SequenceState, StateDecoder, StateError};

/// What a checkpoint says about its model, every tensor checked against it; no weight was read for it.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// The family that computes it.
    pub family: &'static str,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Largest number of positions.
    pub context: usize,
    /// State of each layer.
    pub layers: Vec<LayerShape>,
    /// Name and value of everything that enters the arithmetic, apart from weights.
    pub settings: Vec<(String, String)>,
    /// The tensors it uses.
    pub tensors: Vec<TensorUse>,
    /// The tensors it does not use.
    pub unused: Unused,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes of the used tensors in the checkpoint.
    pub weight_bytes: u64,
}

impl ModelInfo {
    /// Bytes that one more position takes in all layers, once its page is full.
    pub fn bytes_per_position(&self, kv: KvType) -> usize {
        self.layers.iter().map(|layer| layer.bytes_per_position(kv)).sum()
    }
}

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of the checkpoint that were read and packed.
    pub loaded: u64,
    /// Bytes that there are to load.
    pub total: u64,
}

/// A model that can run.
pub struct Model {
    info: ModelInfo,
    pub(crate) embedding: Embedding,
    pub(crate) blocks: Box<dyn Blocks>,
    pub(crate) norm: RmsNorm,
    pub(crate) head: Head,
    /// One per [`KvType::ALL`].
    identities: Vec<Arc<StateIdentity>>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Model({}, {} layers, {} weights)",
            self.info.family,
            self.info.layers.len(),
            self.info.parameters
        )
    }
}

/// What lies around the blocks, and the blocks.
struct Parts {
    blocks: Box<dyn Blocks>,
    norm: RmsNorm,
    head: Head,
}

impl Model {
    /// Reads the configuration and checks every tensor's name, type and shape. Reads no weights.
    ///
    /// # Errors
    /// When samebit does not know the architecture or something that the configuration asks for, or fields contradict
    /// each other, or tensors are missing or have other shapes.
    pub fn plan(checkpoint: &Checkpoint) -> Result<ModelInfo, ModelError> {
        let (family, blueprint) = registry::configure(checkpoint)?;
        survey(checkpoint, family.name, &*blueprint)
    }

    /// Loads a checkpoint: checks it as [`Model::plan`] does, then packs its matrices with all threads of `cpu`.
    /// `progress` is called every few megabytes.
    ///
    /// # Errors
    /// As [`Model::plan`].
    pub fn load(
        checkpoint: Arc<Checkpoint>,
        cpu: &Cpu,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, ModelError> {
        let (family, blueprint) = registry::configure(&checkpoint)?;
        let info = survey(&checkpoint, family.name, &*blueprint)?;
        let mut weights = Weights::load(&checkpoint, cpu, info.weight_bytes, progress);
        let Parts { blocks, norm, head } = read_parts(&*blueprint, &mut weights)?;
        let ends = blueprint.ends();
        let table = if ends.tied_head {
            Table::Head(Arc::clone(head.weight()))
        } else {
            Table::Stored(checkpoint, blueprint.names().embedding_weight())
        };
        let embedding = Embedding::new(table, [info.vocabulary, info.hidden], ends.embedding_scale);
        let identities = KvType::ALL.into_iter().map(|kv| Arc::new(identity_of(&info, kv))).collect();
        Ok(Self { info, embedding, blocks, norm, head, identities })
    }

    /// What is known of it.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Id of the arithmetic with keys and values stored as `kv`: see [`plan_id`].
    pub fn plan_id(&self, kv: KvType) -> String {
        plan_id(kv)
    }

    /// The state of a sequence of no tokens.
    pub fn new_state(&self, kv: KvType) -> SequenceState {
        SequenceState::new(Arc::clone(self.identity(kv)))
    }

    /// Reads what [`SequenceState::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes belong to another model, plan or cache type, or are damaged.
    pub fn decode_state(&self, kv: KvType, bytes: &[u8]) -> Result<SequenceState, StateError> {
        SequenceState::decode(Arc::clone(self.identity(kv)), self.info.context, bytes)
    }

    /// Puts together states of this model that were stored in blocks.
    pub fn state_decoder(&self, kv: KvType) -> StateDecoder {
        StateDecoder::new(Arc::clone(self.identity(kv)), self.info.context)
    }

    pub(crate) fn identity(&self, kv: KvType) -> &Arc<StateIdentity> {
        let at = KvType::ALL.into_iter().position(|each| each == kv).unwrap_or(0);
        &self.identities[at]
    }
}

/// Walks through all tensors that the blueprint asks for, by their headers.
fn survey(
    checkpoint: &Checkpoint,
    family: &'static str,
    blueprint: &dyn Blueprint,
) -> Result<ModelInfo, ModelError> {
    if let Quantization::Unsupported { method } = checkpoint.quantization() {
        let file = checkpoint.config().map_or(checkpoint.path(), |config| config.file());
        let supported = "the quantization of MLX, or plain F32, F16 and BF16";
        return Err(ModelError::unsupported(file, "quantization_config.quant_method", method, supported));
    }
    let cpu = Cpu::new(Isa::Scalar, 1)?;
    let mut weights = Weights::survey(checkpoint, &cpu);
    read_parts(blueprint, &mut weights)?;
    let tensors = weights.finish()?;
    let geometry = blueprint.geometry();
    let ends = blueprint.ends();
    let settings = geometry
        .describe()
        .into_iter()
        .chain(blueprint.settings())
        .chain([("tied_head", ends.tied_head.to_string())])
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Ok(ModelInfo {
        family,
        vocabulary: geometry.vocabulary,
        hidden: geometry.hidden,
        context: geometry.context,
        layers: blueprint.states(),
        settings,
        unused: Unused::of(checkpoint, &tensors, |name| blueprint.is_ignorable(name)),
        parameters: tensors
            .iter()
            .map(|tensor| tensor.shape.iter().map(|&size| size as u64).product::<u64>())
            .sum(),
        weight_bytes: tensors.iter().map(|tensor| tensor.bytes as u64).sum(),
        tensors,
    })
}

/// Asks for every tensor: those of the blocks, and those around them.
fn read_parts(blueprint: &dyn Blueprint, weights: &mut Weights<'_>) -> Result<Parts, ModelError> {
    let (geometry, names, ends) = (blueprint.geometry(), blueprint.names(), blueprint.ends());
    let (vocabulary, hidden) = (geometry.vocabulary, geometry.hidden);
    let head = if ends.tied_head {
        weights.matrix(&names.embedding_weight(), vocabulary, hidden)?
    } else {
        weights.table(&names.embedding_weight(), vocabulary, hidden)?;
        weights.matrix(&names.head_weight(), vocabulary, hidden)?
    };
    let blocks = blueprint.blocks(weights)?;
    let read = if ends.zero_centred_norm { RmsNorm::read_zero_centred } else { RmsNorm::read };
    let norm = read(weights, &names.norm, hidden, geometry.epsilon)?;
    Ok(Parts { blocks, norm, head: Head::new(Arc::new(head), ends.logit_soft_cap) })
}

/// States of models with equal settings, plan and shapes may meet; the weights are for the caller to compare.
fn identity_of(info: &ModelInfo, kv: KvType) -> StateIdentity {
    let settings: String = info.settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    StateIdentity {
        model: format!("{} {}", info.family, short_digest(settings.as_bytes())),
        plan: plan_id(kv),
        kv,
        layers: info.layers.clone(),
    }
}
