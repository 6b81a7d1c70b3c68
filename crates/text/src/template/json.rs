//! JSON into values of a template, and back as Python's `json.dumps(..., ensure_ascii=False)` writes it.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// A JSON value as a template sees it; objects keep their order.
pub(crate) fn to_template(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(to_template).collect::<Vec<_>>()),
        serde_json::Value::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, item)| (key.as_str(), to_template(item))))
        }
    }
}

/// Deepest nesting that is written.
const DEPTH_MAX: usize = 128;

/// How to write: the keyword arguments of `tojson`.
pub(crate) struct Style {
    ensure_ascii: bool,
    /// What one level is indented by; without it everything stands on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

impl Style {
    /// Reads `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, which may also be given by
    /// position.
    pub(crate) fn from_arguments(positional: &[Value], named: &Kwargs) -> Result<Self, Error> {
        let argument = |position: usize, name: &str| -> Result<Option<Value>, Error> {
            let value = match positional.get(position) {
                Some(value) => Some(value.clone()),
                None => named.get::<Option<Value>>(name)?,
            };
            Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
        };
        if positional.len() > 4 {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        let indent = argument(1, "indent")?.map(|indent| indent_of(&indent)).transpose()?;
        // With an indent Python leaves out the space at the end of each line.
        let mut item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
        let mut key_separator = ": ".to_owned();
        if let Some(separators) = argument(2, "separators")? {
            let texts: Vec<Value> = separators.try_iter()?.collect();
            let [item, key] = texts.as_slice() else {
                return Err(invalid("separators must be two texts"));
            };
            item_separator = item.to_string();
            key_separator = key.to_string();
        }
        let style = Self {
            ensure_ascii: argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
            indent,
            item_separator,
            key_separator,
            sort_keys: argument(3, "sort_keys")?.is_some_and(|value| value.is_true()),
        };
        named.assert_all_used()?;
        Ok(style)
    }
}

/// A number of spaces, or the text itself.
fn indent_of(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    match indent.as_i64() {
        Some(count @ 0..=64) => Ok(" ".repeat(usize::try_from(count).unwrap_or(0))),
        _ => Err(invalid("indent must be a number from 0 to 64 or a text")),
    }
}

fn invalid(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {}", problem.into()))
}

/// Writes `value`. Each item takes a step of the template's budget, so that lists which contain one another many times
/// over end with an error.
pub(crate) fn dumps(state: &State<'_, '_>, value: &Value, style: &Style) -> Result<String, Error> {
    let mut writer = Writer { state, style, text: String::new() };
    writer.value(value, 0)?;
    Ok(writer.text)
}

struct Writer<'a, 's, 't> {
    state: &'a State<'s, 't>,
    style: &'a Style,
    text: String,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(invalid(format!("the value is nested more than {DEPTH_MAX} deep")));
        }
        let length = value.as_str().map_or(0, str::len) as u64;
        self.state.consume_fuel(1 + length / 64)?;
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth)?,
            other => return Err(invalid(format!("a value of type {other} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut first = true;
        for item in value.try_iter()? {
            self.text.push_str(if first { "[" } else { &self.style.item_separator });
            first = false;
            self.line(depth + 1);
            self.value(&item, depth + 1)?;
        }
        self.close(first, "[", "]", depth);
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            self.state.consume_fuel(1)?;
            entries.push((key_text(&key)?, value.get_item(&key)?));
        }
        if self.style.sort_keys {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        let mut first = true;
        for (key, item) in &entries {
            self.text.push_str(if first { "{" } else { &self.style.item_separator });
            first = false;
            self.line(depth + 1);
            self.string(key);
            self.text.push_str(&self.style.key_separator);
            self.value(item, depth + 1)?;
        }
        self.close(first, "{", "}", depth);
        Ok(())
    }

    fn close(&mut self, empty: bool, open: &str, close: &str, depth: usize) {
        if empty {
            self.text.push_str(open);
        } else {
            self.line(depth);
        }
        self.text.push_str(close);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.text.push('\n');
            for _ in 0..depth {
                self.text.push_str(indent);
            }
        }
    }

    fn string(&mut self, string: &str) {
        self.text.push('"');
        for letter in string.chars() {
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                control if control < ' ' => self.text.push_str(&format!("\\u{:04x}", u32::from(control))),
                wide if self.style.ensure_ascii && wide > '~' => {
                    for unit in wide.encode_utf16(&mut [0; 2]) {
                        self.text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                plain => self.text.push(plain),
            }
        }
        self.text.push('"');
    }
}

/// Python writes keys that are numbers, truth values or none as texts.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => number(key),
        other => Err(invalid(format!("a key of type {other} cannot be written as JSON"))),
    }
}

/// Integers in full; floats in as few digits as tell them apart, with an exponent outside 1e-4 to 1e16.
fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let float = f64::try_from(value.clone())?;
    if float.is_nan() {
        return Ok("NaN".to_owned());
    }
    if float.is_infinite() {
        return Ok(if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned());
    }
    let scientific = format!("{float:e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0);
    if (-4..16).contains(&exponent) || float == 0.0 {
        let plain = float.to_string();
        return Ok(if plain.contains('.') { plain } else { plain + ".0" });
    }
    let mantissa = scientific.split('e').next().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    Ok(format!("{mantissa}e{sign}{:02}", exponent.abs()))
}

/// Roughly the number of bytes of `value` as JSON.
pub(crate) fn size(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::String(text) => text.len() as u64 + 2,
        serde_json::Value::Array(items) => items.iter().map(size).sum::<u64>() + 2,
        serde_json::Value::Object(fields) => {
            fields.iter().map(|(key, item)| key.len() as u64 + 4 + size(item)).sum::<u64>() + 2
        }
        _ => 8,
    }
}
