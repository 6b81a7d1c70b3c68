//! GGUF metadata as the trace reads it: the same architectures, under other keys, with some facts left to the reader.

use samebit_arith::double::{Rope, RopeScaling};
use samebit_checkpoint::{Checkpoint, Metadata};

use super::TraceError;
use super::architecture::{Architecture, BlockPlan, Family};
use super::names::{BlockModule, EMBEDDING, HEAD, K, Names, O};

/// Reads the metadata, and refuses what the trace does not compute.
pub(super) fn read(checkpoint: &Checkpoint, metadata: &Metadata) -> Result<Architecture, TraceError> {
    let name = metadata.str("general.architecture")?;
    let family = match name {
        "llama" => Family::Llama,
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        "gemma3" => Family::Gemma3,
        other => {
            let expected = "one that is traced from GGUF: llama, qwen2, qwen3, gemma3";
            return Err(refuse(metadata, "general.architecture", &format!("{other:?}"), expected));
        }
    };
    let reader = Reader { metadata, architecture: name };
    let gemma = family == Family::Gemma3;
    let (hidden, heads) = (reader.size("embedding_length")?, reader.size("attention.head_count")?);
    let head_size = reader.optional_size("attention.key_length")?.unwrap_or(hidden / heads);
    let kv_heads = reader.optional_size("attention.head_count_kv")?.unwrap_or(heads);
    if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
        return Err(reader.refuse(
            "attention.head_count_kv",
            &kv_heads,
            &format!("a divisor of {heads} heads"),
        ));
    }
    if head_size == 0 || !head_size.is_multiple_of(2) {
        return Err(reader.refuse(
            "attention.key_length",
            &head_size,
            "an even number, since rope turns pairs",
        ));
    }
    let layers = reader.size("block_count")?;
    let names = Names::Gguf;
    let has_bias =
        |module: &BlockModule| checkpoint.contains(&format!("{}.bias", names.block_module(0, module)));
    let mut architecture = Architecture {
        family,
        vocabulary: embedding_rows(checkpoint)?,
        hidden,
        inner: reader.size("feed_forward_length")?,
        heads,
        kv_heads,
        head_size,
        context: reader.size("context_length")?,
        eps: metadata.required(&reader.key("attention.layer_norm_rms_epsilon"))?,
        rope_theta: metadata.optional(&reader.key("rope.freq_base"))?.unwrap_or(10000.0),
        score_scale: 1.0 / (head_size as f64).sqrt(),
        embedding_scale: if gemma { (hidden as f64).sqrt() } else { 1.0 },
        // Converters add the 1 of zero-centred norms to the stored weights.
        norm_offset: 0.0,
        gelu: gemma,
        score_cap: None,
        logits_cap: None,
        qkv_bias: has_bias(&K),
        output_bias: has_bias(&O),
        feed_forward_bias: false,
        tied: !checkpoint.contains(&format!("{}.weight", names.module(&HEAD))),
        names,
        blocks: Vec::new(),
    };
    architecture.refuse_large(layers, 1, architecture.inner)?;
    architecture.blocks = reader.block_plans(checkpoint, &architecture, layers)?;
    Ok(architecture)
}

struct Reader<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Reader<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn size(&self, key: &str) -> Result<usize, TraceError> {
        let size = self.metadata.usize(&self.key(key))?;
        if (1..1 << 31).contains(&size) {
            Ok(size)
        } else {
            Err(self.refuse(key, &size, "a size from 1 to 2147483647"))
        }
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, TraceError> {
        if self.metadata.get(&self.key(key)).is_some() { self.size(key).map(Some) } else { Ok(None) }
    }

    fn refuse(&self, key: &str, found: &impl ToString, expected: &str) -> TraceError {
        refuse(self.metadata, &self.key(key), found, expected)
    }

    fn block_plans(
        &self,
        checkpoint: &Checkpoint,
        architecture: &Architecture,
        layers: usize,
    ) -> Result<Vec<BlockPlan>, TraceError> {
        let size = architecture.head_size;
        if let Some(turned) = self.optional_size("rope.dimension_count")?
            && turned != size
        {
            return Err(self.refuse(
                "rope.dimension_count",
                &turned,
                &format!("{size}: whole heads are turned here"),
            ));
        }
        let mut global = Rope::new(size, architecture.rope_theta, self.scaling()?);
        if checkpoint.contains("rope_freqs.weight") {
            global = global.slowed(&checkpoint.tensor("rope_freqs.weight")?.to_f64()?);
        }
        if architecture.family == Family::Llama {
            global = global.of_neighbours();
        }
        // Of gemma3 the file tells the window only: five of six layers have it, and their base is 10000.
        let local = Rope::new(size, 10000.0, RopeScaling::None);
        let window =
            self.optional_size("attention.sliding_window")?.filter(|_| architecture.family == Family::Gemma3);
        let plan = |layer: usize| match window.filter(|_| !(layer + 1).is_multiple_of(6)) {
            Some(window) => BlockPlan { window: Some(window), rope: local.clone(), routing: None },
            None => BlockPlan { window: None, rope: global.clone(), routing: None },
        };
        Ok((0..layers).map(plan).collect())
    }

    fn scaling(&self) -> Result<RopeScaling, TraceError> {
        const KEY: &str = "rope.scaling.type";
        match self.metadata.optional::<&str>(&self.key(KEY))? {
            None | Some("none") => Ok(RopeScaling::None),
            Some("linear") => {
                Ok(RopeScaling::Linear(self.metadata.required(&self.key("rope.scaling.factor"))?))
            }
            Some(other) => {
                Err(self.refuse(KEY, &format!("{other:?}"), "none or linear, as far as a trace of GGUF goes"))
            }
        }
    }
}

fn refuse(metadata: &Metadata, key: &str, found: &impl ToString, expected: &str) -> TraceError {
    TraceError::Metadata {
        file: metadata.file().to_path_buf(),
        key: key.to_owned(),
        found: found.to_string(),
        expected: expected.to_owned(),
    }
}

/// The vocabulary: GGUF files need not name its size, but the embedding has it.
fn embedding_rows(checkpoint: &Checkpoint) -> Result<usize, TraceError> {
    let name = format!("{}.weight", Names::Gguf.module(&EMBEDDING));
    let shape = checkpoint.tensor(&name)?.shape();
    match shape {
        [rows, _] => Ok(*rows),
        _ => Err(TraceError::Rank { name, found: shape.into() }),
    }
}
