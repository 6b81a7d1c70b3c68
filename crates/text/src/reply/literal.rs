//! Python-like literals and calls, rewritten as JSON.
//!
//! Gemma 3 writes calls as Python, `[f(a="b", n=[1, None])]`; Gemma 4 writes arguments like JSON with bare keys and
//! strings between `<|"|>`. Both are read by one recursive descent over a complete text.

use super::{ToolCall, tools::Tools};

/// Deepest nesting of a value.
const DEPTH_MAX: usize = 100;
/// What delimits Gemma 4's strings, which have no escapes.
const GEMMA_QUOTE: &str = "<|\"|>";

/// A value that fills `text`, as JSON.
pub(super) fn to_json(text: &str) -> Option<String> {
    let mut reader = Reader { rest: text };
    let mut json = String::new();
    reader.value(&mut json, 0)?;
    reader.is_at_end().then_some(json)
}

/// The calls that fill `text`: a list of them, or one after the other, each perhaps within `print(...)`.
pub(super) fn to_calls(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    let mut reader = Reader { rest: text };
    let listed = reader.take("[");
    let mut calls = Vec::new();
    loop {
        if listed && reader.take("]") {
            break;
        }
        calls.push(reader.print_or_call(tools)?);
        if reader.is_at_end() {
            break;
        }
        // Outside a list a new line is enough.
        if !reader.take(",") && !reader.take(";") && listed {
            reader.take("]").then_some(())?;
            break;
        }
    }
    (reader.is_at_end() && !calls.is_empty() && (!listed || text.trim_end().ends_with(']'))).then_some(calls)
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    /// Skips white space, then takes `text` if it comes next.
    fn take(&mut self, text: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    fn is_at_end(&self) -> bool {
        self.rest.trim_start().is_empty()
    }

    /// Takes characters while `belongs`; at least one.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> Option<&'t str> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn name(&mut self) -> Option<&'t str> {
        self.word(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
    }

    fn print_or_call(&mut self, tools: &Tools) -> Option<ToolCall> {
        let name = self.name()?;
        if name == "print" && tools.find(name).is_none() {
            self.expect("(")?;
            let inner = self.name()?;
            let call = self.call(inner, tools)?;
            self.expect(")")?;
            return Some(call);
        }
        self.call(name, tools)
    }

    /// What follows a name: its arguments, all of them named.
    fn call(&mut self, name: &str, tools: &Tools) -> Option<ToolCall> {
        let name = tools.find(name)?.name.clone();
        self.expect("(")?;
        let mut json = String::from("{");
        while !self.take(")") {
            if json.len() > 1 {
                json.push_str(", ");
            }
            write_text(&mut json, self.name()?);
            self.expect("=")?;
            json.push_str(": ");
            self.value(&mut json, 0)?;
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        json.push('}');
        Some(ToolCall { name, arguments: json })
    }

    fn value(&mut self, json: &mut String, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.take("[") {
            return self.sequence(json, depth, ["[", "]"], |reader, json| reader.value(json, depth + 1));
        }
        if self.take("{") {
            return self.sequence(json, depth, ["{", "}"], |reader, json| {
                match reader.text() {
                    Some(key) => write_text(json, &key),
                    None => write_text(json, reader.name()?),
                }
                reader.expect(":")?;
                json.push_str(": ");
                reader.value(json, depth + 1)
            });
        }
        if let Some(text) = self.text() {
            write_text(json, &text);
            return Some(());
        }
        let word = self.word(|c| c.is_alphanumeric() || matches!(c, '+' | '-' | '.'))?;
        json.push_str(match word {
            "true" | "True" => "true",
            "false" | "False" => "false",
            "null" | "None" => "null",
            number => is_number(number).then_some(number)?,
        });
        Some(())
    }

    /// Items between brackets, the first of which was taken.
    fn sequence(
        &mut self,
        json: &mut String,
        _depth: usize,
        [open, close]: [&str; 2],
        mut item: impl FnMut(&mut Self, &mut String) -> Option<()>,
    ) -> Option<()> {
        json.push_str(open);
        let mut first = true;
        while !self.take(close) {
            if !first {
                json.push_str(", ");
            }
            first = false;
            item(self, json)?;
            if !self.take(",") {
                self.expect(close)?;
                break;
            }
        }
        json.push_str(close);
        Some(())
    }

    /// A string, if one comes next and ends.
    fn text(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix(GEMMA_QUOTE) {
            let (text, rest) = rest.split_once(GEMMA_QUOTE)?;
            self.rest = rest;
            return Some(text.to_owned());
        }
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| self.rest.starts_with(quote))?;
        let mut text = String::new();
        let mut rest = &self.rest[quote.len()..];
        loop {
            if let Some(after) = rest.strip_prefix(quote) {
                self.rest = after;
                return Some(text);
            }
            let mut chars = rest.chars();
            match chars.next()? {
                '\\' => escape(&mut chars, &mut text)?,
                c => text.push(c),
            }
            rest = chars.as_str();
        }
    }
}

/// What stands after a backslash, as Python reads it.
fn escape(chars: &mut std::str::Chars<'_>, text: &mut String) -> Option<()> {
    let plain = match chars.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        '0' => '\0',
        '\n' => return Some(()),
        c @ ('\\' | '\'' | '"' | '/') => c,
        c @ ('x' | 'u' | 'U') => {
            let digits = match c {
                'x' => 2,
                'u' => 4,
                _ => 8,
            };
            let hex = chars.as_str().get(..digits)?;
            let is_hex = hex.bytes().all(|digit| digit.is_ascii_hexdigit());
            let code = is_hex.then(|| u32::from_str_radix(hex, 16).ok())??;
            chars.nth(digits - 1);
            char::from_u32(code)?
        }
        // Python keeps a backslash that escapes nothing.
        other => {
            text.push('\\');
            other
        }
    };
    text.push(plain);
    Some(())
}

/// Whether `text` is a number as JSON writes it.
pub(super) fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<serde_json::Number>(text).is_ok()
}

/// Appends `text` as a JSON string.
pub(super) fn write_text(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        for (text, json) in [
            ("1", Some("1")),
            ("-1.50e3", Some("-1.50e3")),
            ("True", Some("true")),
            ("'it\\'s'", Some("\"it's\"")),
            ("\"a\\x41\\u00e9\\n\"", Some("\"aAé\\n\"")),
            ("\"\"\"a\"b\"\"\"", Some("\"a\\\"b\"")),
            ("[1, None, ['x'],]", Some("[1, null, [\"x\"]]")),
            ("{'a': {\"b\": []}, c: false}", Some("{\"a\": {\"b\": []}, \"c\": false}")),
            ("<|\"|>say \"hi\" \\n<|\"|>", Some("\"say \\\"hi\\\" \\\\n\"")),
            ("", None),
            ("[1", None),
            ("[1 2]", None),
            ("x", None),
            ("1_000", None),
            ("'open", None),
            ("'\\x4'", None),
            ("1 2", None),
        ] {
            assert_eq!(to_json(text).as_deref(), json, "{text}");
        }
        assert_eq!(to_json(&"[".repeat(1_000_000)), None);
    }
}
