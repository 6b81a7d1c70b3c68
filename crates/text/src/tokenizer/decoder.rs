//! What a `tokenizer.json` says about turning tokens back into bytes, reduced to what each single token stands for.

use super::byte_level::ByteAlphabet;
use crate::TokenizerError;
use serde_json::Value;

/// How the text of a token becomes its bytes.
pub(crate) struct TokenReader {
    /// Set if tokens are written in the byte-level alphabet.
    byte_level: Option<ByteAlphabet>,
    /// Whether `<0x0A>` stands for a byte.
    byte_fallback: bool,
    /// Characters that stand for other text, such as U+2581 for a space.
    replacements: Vec<(char, String)>,
    /// Whether tokens are words, written with a space between.
    words: bool,
    /// Whether a space at the very start of a text is dropped.
    pub(crate) drops_first_space: bool,
}

impl TokenReader {
    /// Reads the `decoder` field; `field` names it in messages.
    ///
    /// # Errors
    /// A decoder whose effect is not a matter of single tokens, or that is unknown.
    pub(crate) fn new(decoder: Option<&Value>, field: &str) -> Result<Self, TokenizerError> {
        let mut reader = Self {
            byte_level: None,
            byte_fallback: false,
            replacements: Vec::new(),
            words: false,
            drops_first_space: false,
        };
        match decoder {
            // Without a decoder the original joins tokens with spaces.
            None | Some(Value::Null) => {
                reader.words = true;
                reader.drops_first_space = true;
            }
            Some(step) => reader.add_step(step, field)?,
        }
        Ok(reader)
    }

    fn add_step(&mut self, step: &Value, field: &str) -> Result<(), TokenizerError> {
        let kind = step.get("type").and_then(Value::as_str).unwrap_or("(no type)");
        let unsupported = |found: String| TokenizerError::Unsupported {
            field: field.to_owned(),
            found,
            supported: "ByteLevel, ByteFallback, Fuse, Metaspace, Replace of one character, Sequence, \
                        Strip of one leading space"
                .to_owned(),
            hint: "This tokenizer does not belong to a language model that can be run here",
        };
        match kind {
            "ByteLevel" => self.byte_level = Some(ByteAlphabet::new()),
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "Sequence" => {
                let steps = step.get("decoders").and_then(Value::as_array);
                for inner in steps.ok_or_else(|| unsupported(step.to_string()))? {
                    // A sequence within a sequence occurs nowhere; refusing it bounds the recursion.
                    if inner.get("type").and_then(Value::as_str) == Some("Sequence") {
                        return Err(unsupported("Sequence within Sequence".to_owned()));
                    }
                    self.add_step(inner, field)?;
                }
            }
            "Replace" => {
                let pattern = step.pointer("/pattern/String").and_then(Value::as_str).and_then(single_char);
                let content = step.get("content").and_then(Value::as_str);
                let (Some(pattern), Some(content)) = (pattern, content) else {
                    return Err(unsupported(step.to_string()));
                };
                self.replacements.push((pattern, content.to_owned()));
            }
            "Strip" => {
                let whole = (step.get("content"), step.get("start"), step.get("stop"));
                if whole != (Some(&Value::from(" ")), Some(&Value::from(1)), Some(&Value::from(0))) {
                    return Err(unsupported(step.to_string()));
                }
                self.drops_first_space = true;
            }
            "Metaspace" => {
                let replacement = step.get("replacement").and_then(Value::as_str).and_then(single_char);
                self.replacements.push((replacement.unwrap_or('\u{2581}'), " ".to_owned()));
                let scheme = step.get("prepend_scheme").and_then(Value::as_str);
                let prefix = step.get("add_prefix_space").and_then(Value::as_bool);
                self.drops_first_space = scheme.map_or(prefix.unwrap_or(true), |scheme| scheme != "never");
            }
            other => return Err(unsupported(other.to_owned())),
        }
        Ok(())
    }

    /// The bytes of a token of the model.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        if let Some(alphabet) = &self.byte_level {
            // What is not written in the alphabet stands for itself.
            return alphabet.bytes(token).unwrap_or_else(|| token.as_bytes().to_vec());
        }
        if self.byte_fallback
            && let Some(byte) = super::parse_byte_token(token)
        {
            return vec![byte];
        }
        let text = self.replaced(token);
        if self.words { format!(" {text}").into_bytes() } else { text.into_bytes() }
    }

    /// The bytes of an added token. A special one stands for its text; others are read like text of the model,
    /// except that they are never written in the byte-level alphabet.
    pub(crate) fn added_bytes(&self, token: &str, special: bool) -> Vec<u8> {
        match (special || self.byte_level.is_some(), self.words) {
            (true, false) => token.as_bytes().to_vec(),
            (true, true) => format!(" {token}").into_bytes(),
            (false, _) => self.bytes(token),
        }
    }

    fn replaced(&self, token: &str) -> String {
        let mut text = token.to_owned();
        for (pattern, content) in &self.replacements {
            text = text.replace(*pattern, content);
        }
        text
    }
}

fn single_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}
