//! JSON as model folders hold it: strict about duplicate keys and depth, tolerant of the bare words `Infinity` and `NaN`.
//!
//! A bare word becomes `{"__float__": "Infinity"}`, the form that other writers use for the same number, since JSON has
//! no number for it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::Strings;

/// The key under which a number that JSON cannot write is kept.
const FLOAT_KEY: &str = "__float__";

/// Parses a text. Errors name line and column; nesting beyond 128 is one.
pub(crate) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let text = spell_out_floats(text);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A number, bare words and `{"__float__": ..}` included.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Object(object) if object.len() == 1 => match object.get(FLOAT_KEY)?.as_str()? {
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            "NaN" => Some(f64::NAN),
            _ => None,
        },
        _ => None,
    }
}

/// Replaces bare words outside of strings.
fn spell_out_floats(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'I' | b'N' => {
                let word = ["Infinity", "-Infinity", "NaN"].into_iter().find(|w| text[at..].starts_with(w));
                match word {
                    Some(word) => {
                        out.push_str(&text[copied..at]);
                        out.push_str(&format!("{{\"{FLOAT_KEY}\":\"{word}\"}}"));
                        at += word.len();
                        copied = at;
                    }
                    None => at += 1,
                }
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Position after the string that starts at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// Builds a [`Value`] and refuses keys that occur twice.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Self)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} occurs twice")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// An object whose values are texts, in file order. Keys that occur twice are kept for the caller to refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextPairs {
    pub(crate) keys: Strings,
    pub(crate) values: Strings,
}

impl<'de> Deserialize<'de> for TextPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = TextPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextPairs, A::Error> {
                let mut pairs = TextPairs::default();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    pairs.keys.push(&key);
                    pairs.values.push(&value);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_are_numbers_outside_of_strings() {
        let value =
            parse(r#"{"a": [0.0, Infinity, -Infinity, NaN, -1], "b \"Infinity": "NaN, Infinity"}"#).unwrap();
        let numbers: Vec<f64> = value["a"].as_array().unwrap().iter().map(|v| float(v).unwrap()).collect();
        assert_eq!(numbers[1..3], [f64::INFINITY, f64::NEG_INFINITY]);
        assert!(numbers[3].is_nan());
        assert_eq!(numbers[4], -1.0);
        assert_eq!(value["b \"Infinity"], "NaN, Infinity");
        assert_eq!(float(&parse(r#"{"__float__": "Infinity"}"#).unwrap()), Some(f64::INFINITY));
    }

    #[test]
    fn duplicates_depth_and_rubbish_are_errors() {
        for (text, part) in [
            (r#"{"a": {"b": 1, "b": 2}}"#, "\"b\" occurs twice"),
            (&"[".repeat(100_000), "recursion limit"),
            ("{\"a\": 1} x", "trailing"),
            ("\"\\", "EOF"),
            ("{Infinity: 1}", "key"),
            ("", "EOF"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:.20}: {message}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[\\[\\]{}\",:\\\\a-zINé0-9 -]*") {
            let _ = parse(&text);
        }

        #[test]
        fn agrees_with_the_plain_parser(keys in proptest::collection::btree_map(".*", ".*", 0..5)) {
            let text = serde_json::to_string(&keys).unwrap();
            let plain: Value = serde_json::from_str(&text).unwrap();
            proptest::prop_assert_eq!(parse(&text).unwrap(), plain);
        }
    }
}
