//! Log-probabilities in the shapes of OpenAI's APIs.

use samebit_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::answer::TokenProbability;

/// What stands for a probability of 0: JSON has no infinity.
const IMPOSSIBLE: f32 = -9999.0;

fn number(logarithm: f32) -> Value {
    json!(logarithm.max(IMPOSSIBLE))
}

fn text(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned()
}

/// As conversations have them: `{"content": [..]}`.
pub(super) fn chat(tokenizer: &Tokenizer, tokens: &[TokenProbability]) -> Value {
    let entry = |id: u32, logarithm: f32| {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        json!({ "token": text(tokenizer, id), "logprob": number(logarithm), "bytes": bytes })
    };
    let token = |token: &TokenProbability| {
        let (chosen, top) = token
            .probabilities
            .as_ref()
            .map_or((IMPOSSIBLE, &[][..]), |known| (known.chosen, &known.top[..]));
        let mut object = entry(token.id, chosen);
        object["top_logprobs"] = top.iter().map(|(id, logarithm)| entry(*id, *logarithm)).collect();
        object
    };
    json!({ "content": tokens.iter().map(token).collect::<Vec<_>>(), "refusal": null })
}

/// As text completions have them. `text_offset` counts characters of the tokens' texts.
pub(super) fn completion(tokenizer: &Tokenizer, tokens: &[TokenProbability]) -> Value {
    let (mut offsets, mut texts, mut chosen, mut tops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut offset = 0;
    for token in tokens {
        let spelled = text(tokenizer, token.id);
        offsets.push(offset);
        offset += spelled.chars().count();
        texts.push(spelled);
        chosen.push(token.probabilities.as_ref().map_or(Value::Null, |known| number(known.chosen)));
        let mut top = Map::new();
        for (id, logarithm) in token.probabilities.iter().flat_map(|known| &known.top) {
            top.insert(text(tokenizer, *id), number(*logarithm));
        }
        tops.push(top);
    }
    json!({ "text_offset": offsets, "tokens": texts, "token_logprobs": chosen, "top_logprobs": tops })
}
