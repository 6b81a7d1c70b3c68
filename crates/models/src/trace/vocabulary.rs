//! Names of tokens, as the vocabulary of `tokenizer.json` spells them.

use serde_json::Value;

/// The text of every id below `size` out of `tokenizer.json`, before any decoding: `Ġthe` stays `Ġthe`. Ids without a
/// text are named `<id>`.
///
/// # Errors
/// When the text is not JSON.
pub fn vocabulary(tokenizer_json: &[u8], size: usize) -> Result<Vec<String>, serde_json::Error> {
    let tokenizer: Value = serde_json::from_slice(tokenizer_json)?;
    let mut names: Vec<String> = (0..size).map(|id| format!("<{id}>")).collect();
    let mut name = |id: Option<u64>, text: &str| {
        let slot = id.and_then(|id| usize::try_from(id).ok()).and_then(|id| names.get_mut(id));
        if let Some(slot) = slot {
            text.clone_into(slot);
        }
    };
    match tokenizer.pointer("/model/vocab") {
        // BPE and word-level models: text to id.
        Some(Value::Object(vocabulary)) => vocabulary.iter().for_each(|(text, id)| name(id.as_u64(), text)),
        // Unigram models: a list of text and score.
        Some(Value::Array(vocabulary)) => {
            for (id, entry) in vocabulary.iter().enumerate() {
                name(Some(id as u64), entry.get(0).and_then(Value::as_str).unwrap_or_default());
            }
        }
        _ => {}
    }
    for token in tokenizer.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
        if let Some(text) = token.get("content").and_then(Value::as_str) {
            name(token.get("id").and_then(Value::as_u64), text);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::vocabulary;

    #[test]
    fn both_kinds_of_lists_and_added_tokens() {
        let words = br#"{"model":{"vocab":{"a":0,"b":2,"far":9}},"added_tokens":[{"id":1,"content":"<s>"}]}"#;
        assert_eq!(vocabulary(words, 4).unwrap(), ["a", "<s>", "b", "<3>"]);
        let unigram = br#"{"model":{"vocab":[["a",-1.0],["b",-2.0]]}}"#;
        assert_eq!(vocabulary(unigram, 2).unwrap(), ["a", "b"]);
        assert!(vocabulary(b"{", 2).is_err());
    }
}
