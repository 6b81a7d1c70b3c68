//! Reading a JSON object field by field, so that every field is known, bounded, or refused by name.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::ApiError;

/// The fields of an object that nobody has read yet. `null` counts as absent.
#[derive(Debug)]
pub(crate) struct Fields {
    rest: Map<String, Value>,
    /// Where the object stands in the request, such as `messages[2]`; empty for the request itself.
    place: String,
}

impl Fields {
    /// The fields of a request.
    pub(crate) fn new(object: Map<String, Value>) -> Self {
        Self { rest: object, place: String::new() }
    }

    /// The fields of `value`, which stands at `place`.
    pub(crate) fn of(value: Value, place: impl Into<String>) -> Result<Self, ApiError> {
        let place = place.into();
        match value {
            Value::Object(rest) => Ok(Self { rest, place }),
            other => Err(ApiError::field(place, format_args!("{}, expected an object", shown(&other)))),
        }
    }

    /// The whole name of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    /// A field as it is.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name).filter(|value| !value.is_null())
    }

    /// Fields that cannot change an answer.
    pub(crate) fn harmless(&mut self, names: &[&str]) {
        for name in names {
            self.rest.remove(*name);
        }
    }

    /// Fields that would change the answer and are not there. Values that ask for nothing pass: `false`, 0, and empty
    /// texts, lists and objects.
    pub(crate) fn unsupported(&mut self, names: &[&str]) -> Result<(), ApiError> {
        for name in names {
            if self.take(name).is_some_and(|value| !asks_for_nothing(&value)) {
                return Err(ApiError::unsupported(self.path(name), ""));
            }
        }
        Ok(())
    }

    /// A truth value.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, &other, "true or false")),
        }
    }

    /// A whole number within bounds.
    pub(crate) fn whole(&mut self, name: &str, bounds: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_u64().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
                Err(self.wrong(name, &value, expected))
            }
        }
    }

    /// A number within bounds.
    pub(crate) fn number(
        &mut self,
        name: &str,
        bounds: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let expected = format!("a number from {} to {}", bounds.start(), bounds.end());
                Err(self.wrong(name, &value, expected))
            }
        }
    }

    /// A text of at most `most` bytes.
    pub(crate) fn text(&mut self, name: &str, most: usize) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= most => Ok(Some(text)),
            Some(Value::String(text)) => {
                let problem = format!("a text of {} bytes, expected at most {most}", text.len());
                Err(ApiError::field(self.path(name), problem))
            }
            Some(other) => Err(self.wrong(name, &other, "a text")),
        }
    }

    /// A text that must be there.
    pub(crate) fn required_text(&mut self, name: &str, most: usize) -> Result<String, ApiError> {
        self.text(name, most)?.ok_or_else(|| self.missing(name))
    }

    /// A list of at most `most` values.
    pub(crate) fn list(&mut self, name: &str, most: usize) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(values)) if values.len() <= most => Ok(Some(values)),
            Some(Value::Array(values)) => {
                let problem = format!("a list of {}, expected at most {most}", values.len());
                Err(ApiError::field(self.path(name), problem))
            }
            Some(other) => Err(self.wrong(name, &other, "a list")),
        }
    }

    /// An object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, ApiError> {
        let place = self.path(name);
        self.take(name).map(|value| Self::of(value, place)).transpose()
    }

    /// Whether a field is there and not read yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.rest.contains_key(name)
    }

    /// A field as it is, which is still to be read.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.rest.get(name).filter(|value| !value.is_null())
    }

    /// Everything that is left.
    pub(crate) fn remaining(self) -> Map<String, Value> {
        self.rest
    }

    /// Refuses what nobody has read.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.rest.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => {
                let hint = ": leave it out. Fields that could change the answer are never ignored";
                Err(ApiError::unsupported(self.path(name), hint))
            }
        }
    }

    /// The error for a field that must be there.
    pub(crate) fn missing(&self, name: &str) -> ApiError {
        ApiError::field(self.path(name), "missing")
    }

    /// The error for a field with a wrong value.
    pub(crate) fn wrong(&self, name: &str, found: &Value, expected: impl Display) -> ApiError {
        ApiError::field(self.path(name), format_args!("{}, expected {expected}", shown(found)))
    }
}

fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// A value for a message: its text if that is short.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.len() > LONGEST => "a text".to_owned(),
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: &Value) -> Fields {
        Fields::of(value.clone(), "").unwrap()
    }

    fn message(error: &ApiError) -> String {
        error.body()["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let wrong = json!({ "a": true, "b": -1, "c": 1.5, "d": "x", "e": [] });
        for name in ["a", "b", "c", "d", "e"] {
            let error = fields(&wrong).whole(name, 0..=9).unwrap_err();
            assert!(message(&error).starts_with(&format!("{name}: ")), "{error:?}");
        }
        assert!(fields(&wrong).number("a", 0.0..=1.0).is_err());
        assert!(fields(&wrong).flag("b").is_err() && fields(&wrong).text("a", 9).is_err());
        assert!(fields(&json!({ "a": "long" })).text("a", 3).is_err());
        assert!(fields(&json!({ "a": [1, 2] })).list("a", 1).is_err());
    }

    #[test]
    fn null_is_absent_and_the_unknown_is_refused() {
        let mut read = fields(&json!({ "a": null, "b": 2, "user": "me", "zero": 0 }));
        assert_eq!(read.whole("a", 0..=9).unwrap(), None);
        assert_eq!(read.whole("b", 0..=9).unwrap(), Some(2));
        read.harmless(&["user"]);
        read.unsupported(&["zero"]).unwrap();
        read.finish().unwrap();
        let error = Fields::of(json!({ "x": 1 }), "messages[2]").unwrap().finish().unwrap_err();
        assert!(message(&error).starts_with("messages[2].x: not supported"), "{error:?}");
        assert!(fields(&json!({ "penalty": 0.5 })).unsupported(&["penalty"]).is_err());
    }
}
