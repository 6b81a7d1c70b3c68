//! The tokenizer and the chat template of a checkpoint, wherever it keeps them.

use samebit_checkpoint::{Checkpoint, CheckpointError, Metadata, Source};
use samebit_text::{ChatTemplate, GgufVocabulary, TemplateSource, Tokenizer};

use crate::EngineError;

/// The tokenizer of a checkpoint: `tokenizer.json` of a folder, or the vocabulary in GGUF metadata.
///
/// # Errors
/// When there is none, or it is not one that samebit can use.
pub fn tokenizer(checkpoint: &Checkpoint) -> Result<Tokenizer, EngineError> {
    match (checkpoint.source(), checkpoint.metadata()) {
        (Source::Gguf, Some(metadata)) => Ok(Tokenizer::from_gguf(vocabulary(metadata)?)?),
        _ => {
            let tokenizer = Tokenizer::from_folder(checkpoint.folder())?;
            Ok(tokenizer.with_end_ids(&configured_end_ids(checkpoint)?))
        }
    }
}

/// The vocabulary as GGUF metadata holds it.
fn vocabulary(metadata: &Metadata) -> Result<GgufVocabulary, CheckpointError> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let text =
        |name: &str| Ok::<_, CheckpointError>(metadata.optional::<&str>(&key(name))?.map(str::to_owned));
    let id = |name: &str| metadata.optional::<u32>(&key(name));
    let flag = |name: &str| metadata.optional::<bool>(&key(name));
    let texts = |name: &str| {
        let strings = metadata.optional::<&samebit_checkpoint::Strings>(&key(name))?;
        Ok::<_, CheckpointError>(
            strings.map(|all| all.iter().map(str::to_owned).collect()).unwrap_or_default(),
        )
    };
    Ok(GgufVocabulary {
        file: metadata.file().display().to_string(),
        model: metadata.str(&key("model"))?.to_owned(),
        pre: text("pre")?,
        tokens: metadata.strings(&key("tokens"))?.iter().map(str::to_owned).collect(),
        scores: metadata.optional::<&[f32]>(&key("scores"))?.map(<[f32]>::to_vec),
        token_types: token_types(metadata, &key("token_type"))?,
        merges: texts("merges")?,
        add_space_prefix: flag("add_space_prefix")?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        bos_id: id("bos_token_id")?,
        eos_id: id("eos_token_id")?,
        unk_id: id("unknown_token_id")?,
        pad_id: id("padding_token_id")?,
        eot_id: id("eot_token_id")?,
        eom_id: id("eom_token_id")?,
        chat_template: metadata.optional::<&str>("tokenizer.chat_template")?.map(str::to_owned),
    })
}

/// Token types; one that no `i32` holds is as unknown as any other number, so 0 stands for it.
fn token_types(metadata: &Metadata, key: &str) -> Result<Vec<i32>, CheckpointError> {
    let types = metadata.optional::<Vec<i64>>(key)?.unwrap_or_default();
    Ok(types.into_iter().map(|kind| i32::try_from(kind).unwrap_or(0)).collect())
}

/// End tokens that `config.json` names: one id, or a list of them.
fn configured_end_ids(checkpoint: &Checkpoint) -> Result<Vec<u32>, CheckpointError> {
    const KEY: &str = "eos_token_id";
    let Some(config) = checkpoint.config() else { return Ok(Vec::new()) };
    let root = config.root();
    match root.get(KEY) {
        Some(value) if value.is_array() => root.required(KEY),
        _ => Ok(root.optional::<u32>(KEY)?.into_iter().collect()),
    }
}

/// The chat template of a checkpoint, with the special tokens of its tokenizer.
///
/// # Errors
/// When there is none, or it is malformed.
pub fn chat_template(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<ChatTemplate, EngineError> {
    let source = match (checkpoint.source(), checkpoint.metadata()) {
        (Source::Gguf, Some(metadata)) => {
            let template = metadata.optional::<&str>("tokenizer.chat_template")?;
            TemplateSource::from_gguf(&metadata.file().display().to_string(), template)?
        }
        _ => TemplateSource::from_folder(checkpoint.folder())?,
    };
    Ok(ChatTemplate::new(source, tokenizer.special_tokens().clone())?)
}
