//! Tokenizers out of `tokenizer.json` and the small files beside it.

use super::decoder::TokenReader;
use super::pieces::{PieceKind, Pieces};
use super::pipeline::Pipeline;
use super::{Encoder, Inner, SpecialTokens, Tokenizer};
use crate::TokenizerError;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::path::Path;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, Encoding, Model, PostProcessor, Token};

/// The largest `tokenizer.json` that is read, in bytes; published ones stay below 40 MB.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// Ids up to here are believed in any file; higher ones only if the file is long enough to list that many tokens.
const IDS_ALWAYS_ALLOWED: usize = 1 << 20;

/// The contents of the files that describe a tokenizer.
#[derive(Clone, Copy, Default)]
pub struct TokenizerFiles<'a> {
    /// Where the files come from, for messages.
    pub folder: &'a str,
    /// `tokenizer.json`.
    pub tokenizer: &'a [u8],
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<&'a [u8]>,
    /// `special_tokens_map.json`, asked for what `tokenizer_config.json` does not say.
    pub special_tokens_map: Option<&'a [u8]>,
    /// `generation_config.json`, which may name more end tokens.
    pub generation_config: Option<&'a [u8]>,
}

#[derive(Deserialize)]
struct TokenizerJson {
    #[serde(default)]
    added_tokens: Vec<AddedTokenRow>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<Value>,
    model: Box<RawValue>,
}

#[derive(Deserialize)]
struct AddedTokenRow {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct BpeJson {
    vocab: HashMap<String, u32>,
    merges: Vec<MergeJson>,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// Old files write a merge as one string with a space between, new ones as a pair.
#[derive(Deserialize)]
#[serde(untagged)]
enum MergeJson {
    Pair(String, String),
    Joined(String),
}

impl Tokenizer {
    /// Builds the tokenizer of a checkpoint folder: `tokenizer.json`, and where they exist `tokenizer_config.json`,
    /// `special_tokens_map.json` and `generation_config.json`.
    ///
    /// # Errors
    /// A missing or unreadable file, and those of [`from_json`](Self::from_json).
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let tokenizer = read(&folder.join("tokenizer.json"))?;
        let optional = |name: &str| {
            let path = folder.join(name);
            if path.exists() { read(&path).map(Some) } else { Ok(None) }
        };
        let tokenizer_config = optional("tokenizer_config.json")?;
        let special_tokens_map = optional("special_tokens_map.json")?;
        let generation_config = optional("generation_config.json")?;
        Self::from_json(&TokenizerFiles {
            folder: &folder.display().to_string(),
            tokenizer: &tokenizer,
            tokenizer_config: tokenizer_config.as_deref(),
            special_tokens_map: special_tokens_map.as_deref(),
            generation_config: generation_config.as_deref(),
        })
    }

    /// Builds a tokenizer from the contents of its files.
    ///
    /// BOS and EOS are added by [`encode_with_bos`](Self::encode_with_bos) as the `post_processor` says, unless
    /// `tokenizer_config.json` sets `add_bos_token` or `add_eos_token`, which then decide.
    ///
    /// # Errors
    /// Anything that is not a tokenizer as the Hugging Face library writes it: text that is no JSON, unknown kinds,
    /// merges of tokens that do not exist, ids that do not fit. `dropout` is refused, since it would make ids random.
    pub fn from_json(files: &TokenizerFiles<'_>) -> Result<Self, TokenizerError> {
        let file = format!("{}/tokenizer.json", files.folder);
        if files.tokenizer.iter().all(u8::is_ascii_whitespace) {
            return Err(TokenizerError::invalid(&file, "the file is empty; expected JSON"));
        }
        let json: TokenizerJson = parse(files.tokenizer, &file)?;
        let (model, tokens) = read_model(&json.model, &file)?;
        let reader = TokenReader::new(json.decoder.as_ref(), &format!("{file}, decoder"))?;
        let pieces = read_pieces(&tokens, &json.added_tokens, &reader, files.tokenizer.len(), &file)?;
        let id_of: HashMap<&str, u32> = {
            let model_tokens = tokens.iter().map(|(token, id)| (token.as_str(), *id));
            model_tokens
                .chain(json.added_tokens.iter().map(|row| (row.token.content.as_str(), row.id)))
                .collect()
        };
        let settings = Settings::read(files, &id_of)?;
        let (prefix, suffix) = settings.around(json.post_processor.as_ref(), &file)?;
        let added: Vec<_> = json.added_tokens.iter().map(|row| (row.id, row.token.clone())).collect();
        let field = format!("{file}, added_tokens");
        let pipeline = Pipeline::new(model, json.normalizer, json.pre_tokenizer, &added, &field)?;
        let inner = Inner {
            encoder: Encoder::Pipeline(Box::new(pipeline)),
            pieces,
            prefix,
            suffix,
            bos_id: settings.bos_id,
            special_tokens: settings.special_tokens,
            drops_first_space: reader.drops_first_space,
        };
        Ok(Self::new(inner, settings.end_ids))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let failed = |source| TokenizerError::Read { path: path.display().to_string(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        let problem = format!("the file has {length} bytes; at most {FILE_BYTES_MAX} are read");
        return Err(TokenizerError::invalid(path.display().to_string(), problem));
    }
    std::fs::read(path).map_err(failed)
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8], file: &str) -> Result<T, TokenizerError> {
    serde_json::from_slice(bytes).map_err(|error| TokenizerError::invalid(file, error.to_string()))
}

/// The model, and its tokens with their ids.
fn read_model(raw: &RawValue, file: &str) -> Result<(ModelWrapper, Vec<(String, u32)>), TokenizerError> {
    let field = format!("{file}, model");
    let kind: ModelKind = parse(raw.get().as_bytes(), &field)?;
    // Files from before models had a type are BPE.
    match kind.kind.as_deref().unwrap_or("BPE") {
        "BPE" => read_bpe(parse(raw.get().as_bytes(), &field)?, &field),
        "WordLevel" | "WordPiece" | "Unigram" => {
            let model: ModelWrapper = parse(raw.get().as_bytes(), &field)?;
            let tokens = model.get_vocab().into_iter().collect();
            Ok((model, tokens))
        }
        other => Err(TokenizerError::Unsupported {
            field: format!("{field}.type"),
            found: other.to_owned(),
            supported: "BPE, Unigram, WordLevel, WordPiece".to_owned(),
            hint: "The file may come from a newer version of the Hugging Face library",
        }),
    }
}

fn read_bpe(json: BpeJson, field: &str) -> Result<(ModelWrapper, Vec<(String, u32)>), TokenizerError> {
    if json.dropout.is_some_and(|dropout| dropout != 0.0) {
        let problem = "dropout makes the same text give other ids each time; set it to null";
        return Err(TokenizerError::invalid(format!("{field}.dropout"), problem));
    }
    if json.continuing_subword_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty()) {
        let problem = "a prefix for pieces inside a word is not supported; expected null";
        return Err(TokenizerError::invalid(format!("{field}.continuing_subword_prefix"), problem));
    }
    let tokens: Vec<(String, u32)> = json.vocab.iter().map(|(token, id)| (token.clone(), *id)).collect();
    let merges = read_merges(json.merges, &json.vocab, &format!("{field}.merges"))?;
    let mut builder = BPE::builder()
        .vocab_and_merges(json.vocab.into_iter().collect::<Vocab>(), merges)
        .fuse_unk(json.fuse_unk)
        .byte_fallback(json.byte_fallback)
        .ignore_merges(json.ignore_merges);
    if let Some(unknown) = json.unk_token {
        builder = builder.unk_token(unknown);
    }
    if let Some(suffix) = json.end_of_word_suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    let model = builder.build().map_err(|error| TokenizerError::invalid(field, error.to_string()))?;
    Ok((model.into(), tokens))
}

fn read_merges(
    merges: Vec<MergeJson>,
    vocab: &HashMap<String, u32>,
    field: &str,
) -> Result<Vec<(String, String)>, TokenizerError> {
    let mut pairs = Vec::with_capacity(merges.len());
    let mut joined = String::new();
    for (number, merge) in merges.into_iter().enumerate() {
        let (left, right) = match merge {
            MergeJson::Pair(left, right) => (left, right),
            MergeJson::Joined(both) => match both.split_once(' ') {
                Some((left, right)) => (left.to_owned(), right.to_owned()),
                None => {
                    let problem =
                        format!("merge {number}, {both:?}: expected two tokens with a space between");
                    return Err(TokenizerError::invalid(field, problem));
                }
            },
        };
        joined.clear();
        joined.push_str(&left);
        joined.push_str(&right);
        if let Some(unknown) = [&left, &right, &joined].into_iter().find(|token| !vocab.contains_key(*token))
        {
            let problem =
                format!("merge {number}, {left:?} and {right:?}: {unknown:?} is not in the vocabulary");
            return Err(TokenizerError::invalid(field, problem));
        }
        pairs.push((left, right));
    }
    Ok(pairs)
}

/// Bytes and kind of every id. Added tokens replace tokens of the model that have the same id.
fn read_pieces(
    tokens: &[(String, u32)],
    added: &[AddedTokenRow],
    reader: &TokenReader,
    file_bytes: usize,
    file: &str,
) -> Result<Pieces, TokenizerError> {
    let highest = tokens.iter().map(|(_, id)| *id).chain(added.iter().map(|row| row.id)).max();
    let size = highest.map_or(0, |id| id as usize + 1);
    if size > IDS_ALWAYS_ALLOWED.max(file_bytes) {
        let problem =
            format!("the highest id is {}, but the file is too short to list that many tokens", size - 1);
        return Err(TokenizerError::invalid(file, problem));
    }
    let mut pieces: Vec<(Vec<u8>, PieceKind)> = vec![(Vec::new(), PieceKind::Missing); size];
    let mut texts: Vec<Option<&str>> = vec![None; size];
    for (token, id) in tokens {
        let index = *id as usize;
        if let Some(other) = texts[index] {
            let problem = format!("tokens {other:?} and {token:?} both have id {id}");
            return Err(TokenizerError::invalid(format!("{file}, model.vocab"), problem));
        }
        texts[index] = Some(token);
        pieces[index] = (reader.bytes(token), PieceKind::Normal);
    }
    for row in added {
        let kind = if row.token.special { PieceKind::Special } else { PieceKind::Normal };
        pieces[row.id as usize] = (reader.added_bytes(&row.token.content, row.token.special), kind);
    }
    Pieces::new(pieces, file)
}

/// What the small files say.
struct Settings {
    bos_id: Option<u32>,
    eos_id: Option<u32>,
    end_ids: Vec<u32>,
    special_tokens: SpecialTokens,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    config_file: String,
}

impl Settings {
    fn read(files: &TokenizerFiles<'_>, id_of: &HashMap<&str, u32>) -> Result<Self, TokenizerError> {
        let json = |bytes: Option<&[u8]>, name: &str| match bytes {
            Some(bytes) => parse::<Value>(bytes, &format!("{}/{name}", files.folder)),
            None => Ok(Value::Null),
        };
        let config_file = format!("{}/tokenizer_config.json", files.folder);
        let config = json(files.tokenizer_config, "tokenizer_config.json")?;
        let map = json(files.special_tokens_map, "special_tokens_map.json")?;
        let generation = json(files.generation_config, "generation_config.json")?;
        let text = |key: &str| token_text(&config, key).or_else(|| token_text(&map, key));
        let special_tokens = SpecialTokens {
            bos: text("bos_token"),
            eos: text("eos_token"),
            unk: text("unk_token"),
            pad: text("pad_token"),
        };
        let id = |token: &Option<String>, key: &str| match token {
            None => Ok(None),
            Some(token) => id_of.get(token.as_str()).copied().map(Some).ok_or_else(|| {
                let problem = format!("{token:?} is not a token of tokenizer.json");
                TokenizerError::invalid(format!("{config_file}, {key}"), problem)
            }),
        };
        let eos_id = id(&special_tokens.eos, "eos_token")?;
        let generation_file = format!("{}/generation_config.json", files.folder);
        let generation_bos = token_ids(&generation, "bos_token_id", &generation_file)?.first().copied();
        let bos_id = id(&special_tokens.bos, "bos_token")?.or(generation_bos);
        let generation_ends = token_ids(&generation, "eos_token_id", &generation_file)?;
        Ok(Self {
            bos_id,
            eos_id,
            end_ids: super::distinct(eos_id.into_iter().chain(generation_ends)),
            special_tokens,
            add_bos: config.get("add_bos_token").and_then(Value::as_bool),
            add_eos: config.get("add_eos_token").and_then(Value::as_bool),
            config_file,
        })
    }

    /// The ids in front of and after each text.
    fn around(
        &self,
        processor: Option<&PostProcessorWrapper>,
        file: &str,
    ) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
        let (mut prefix, mut suffix) = match processor {
            Some(processor) => ids_around(processor, file)?,
            None => (Vec::new(), Vec::new()),
        };
        apply_flag(self.add_bos, self.bos_id, &mut prefix, |ids, bos| ids.insert(0, bos)).map_err(
            |problem| TokenizerError::invalid(format!("{}, add_bos_token", self.config_file), problem),
        )?;
        apply_flag(self.add_eos, self.eos_id, &mut suffix, Vec::push).map_err(|problem| {
            TokenizerError::invalid(format!("{}, add_eos_token", self.config_file), problem)
        })?;
        Ok((prefix, suffix))
    }
}

/// Makes `ids` contain `id` or not, as `flag` says.
fn apply_flag(
    flag: Option<bool>,
    id: Option<u32>,
    ids: &mut Vec<u32>,
    add: impl FnOnce(&mut Vec<u32>, u32),
) -> Result<(), &'static str> {
    match (flag, id) {
        (Some(true), Some(id)) if !ids.contains(&id) => add(ids, id),
        (Some(true), None) => return Err("true, but the token itself is not named"),
        (Some(false), Some(id)) => ids.retain(|other| *other != id),
        _ => {}
    }
    Ok(())
}

/// What a post-processor puts around a text, found by letting it process one token that no vocabulary has.
fn ids_around(processor: &PostProcessorWrapper, file: &str) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
    const PROBE: u32 = u32::MAX;
    let invalid = |problem: String| TokenizerError::invalid(format!("{file}, post_processor"), problem);
    let text = Encoding::from_tokens(vec![Token::new(PROBE, String::new(), (0, 0))], 0);
    let processed = processor.process(text, None, true).map_err(|error| invalid(error.to_string()))?;
    let ids = processed.get_ids();
    let Some(at) = ids.iter().position(|id| *id == PROBE) else {
        return Err(invalid("its template leaves the text out".to_owned()));
    };
    Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
}

/// A special token of a config file: a string, or an object with `content`.
fn token_text(config: &Value, key: &str) -> Option<String> {
    let token = config.get(key)?;
    token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_owned)
}

/// One id or a list of ids; absent and null are none.
fn token_ids(config: &Value, key: &str, file: &str) -> Result<Vec<u32>, TokenizerError> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            TokenizerError::invalid(format!("{file}, {key}"), format!("expected token ids, found {value}"))
        })
    };
    match config.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(id).collect(),
        Some(value) => Ok(vec![id(value)?]),
    }
}
