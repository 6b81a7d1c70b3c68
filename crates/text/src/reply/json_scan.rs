//! JSON, one character at a time: where a value ends, and whether it still can be one.
//!
//! A call may arrive in a thousand pieces. Parsing what is there again and again would take quadratic time, so this
//! automaton of strict JSON (RFC 8259) keeps its place. It says at the first impossible character that a text is none.

/// Deepest nesting; what is deeper is no call. JSON parsers commonly stop at 128.
const DEPTH_MAX: usize = 100;

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The value goes on.
    More,
    /// The value goes on, and this character ended a key of the outermost object (or of an object that is an item of
    /// the outermost array): [`JsonScanner::key`] holds it.
    Key,
    /// This character ended the value.
    Done,
    /// No value goes on like this.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The outermost value, an object or an array, has yet to start.
    Start,
    /// After `{`.
    FirstKey,
    /// After a comma in an object.
    NextKey,
    Colon,
    /// After `[`.
    FirstItem,
    /// After a comma in an array, or after a colon.
    Value,
    AfterValue,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    /// So many hexadecimal digits of `\u` are missing.
    Hex {
        key: bool,
        missing: u8,
    },
    /// What is left of `true`, `false` or `null`.
    Word(&'static str),
    Number(Number),
}

/// Where in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// The state after one more character, if it belongs to the number.
    fn next(self, c: char) -> Option<Self> {
        use Number::{Exponent, ExponentDigits, ExponentSign, Fraction, Integer, Minus, Point, Zero};
        Some(match (self, c) {
            (Minus, '0') => Zero,
            (Minus, '1'..='9') | (Integer, '0'..='9') => Integer,
            (Zero | Integer, '.') => Point,
            (Point | Fraction, '0'..='9') => Fraction,
            (Zero | Integer | Fraction, 'e' | 'E') => Exponent,
            (Exponent, '+' | '-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, '0'..='9') => ExponentDigits,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits)
    }
}

/// An open object or array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

/// The automaton.
#[derive(Debug)]
pub(super) struct JsonScanner {
    state: State,
    open: Vec<Open>,
    key: String,
}

/// Whether JSON allows `c` between its tokens.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

impl JsonScanner {
    /// A scanner of one object or array; white space may come before it.
    pub(super) fn new() -> Self {
        Self { state: State::Start, open: Vec::new(), key: String::new() }
    }

    /// The last outer key as it is written, without its quotes.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Takes the next character.
    pub(super) fn push(&mut self, c: char) -> Scan {
        let in_key = matches!(self.state, State::Escape { key: true } | State::Hex { key: true, .. });
        match self.state {
            State::Text { key } => return self.text(c, key),
            State::Escape { key } => match c {
                '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => self.state = State::Text { key },
                'u' => self.state = State::Hex { key, missing: 4 },
                _ => return Scan::Fail,
            },
            State::Hex { key, missing } if c.is_ascii_hexdigit() => {
                self.state =
                    if missing == 1 { State::Text { key } } else { State::Hex { key, missing: missing - 1 } };
            }
            State::Word(rest) => match rest.strip_prefix(c) {
                Some("") => self.state = State::AfterValue,
                Some(rest) => self.state = State::Word(rest),
                None => return Scan::Fail,
            },
            State::Number(number) => match number.next(c) {
                Some(next) => self.state = State::Number(next),
                None if number.may_end() => {
                    self.state = State::AfterValue;
                    return self.push(c);
                }
                None => return Scan::Fail,
            },
            _ if is_space(c) => {}
            State::Start if matches!(c, '{' | '[') => return self.value(c),
            State::FirstKey | State::NextKey if c == '"' => {
                self.key.clear();
                self.state = State::Text { key: true };
            }
            State::FirstKey if c == '}' => return self.close(Open::Object),
            State::Colon if c == ':' => self.state = State::Value,
            State::FirstItem if c == ']' => return self.close(Open::Array),
            State::FirstItem | State::Value => return self.value(c),
            State::AfterValue => match (c, self.open.last()) {
                (',', Some(Open::Object)) => self.state = State::NextKey,
                (',', Some(Open::Array)) => self.state = State::Value,
                ('}', _) => return self.close(Open::Object),
                (']', _) => return self.close(Open::Array),
                _ => return Scan::Fail,
            },
            _ => return Scan::Fail,
        }
        if in_key && self.is_outer() {
            self.key.push(c);
        }
        Scan::More
    }

    /// Whether the open object is one whose keys are reported.
    fn is_outer(&self) -> bool {
        matches!(self.open[..], [Open::Object] | [Open::Array, Open::Object])
    }

    fn text(&mut self, c: char, key: bool) -> Scan {
        match c {
            '"' if key => {
                self.state = State::Colon;
                return if self.is_outer() { Scan::Key } else { Scan::More };
            }
            '"' => self.state = State::AfterValue,
            '\\' => self.state = State::Escape { key },
            '\0'..='\u{1f}' => return Scan::Fail,
            _ => {}
        }
        if key && self.is_outer() {
            self.key.push(c);
        }
        Scan::More
    }

    fn value(&mut self, c: char) -> Scan {
        let number = |state| State::Number(state);
        self.state = match c {
            '{' => return self.open(Open::Object, State::FirstKey),
            '[' => return self.open(Open::Array, State::FirstItem),
            '"' => State::Text { key: false },
            '-' => number(Number::Minus),
            '0' => number(Number::Zero),
            '1'..='9' => number(Number::Integer),
            't' => State::Word("rue"),
            'f' => State::Word("alse"),
            'n' => State::Word("ull"),
            _ => return Scan::Fail,
        };
        Scan::More
    }

    fn open(&mut self, open: Open, state: State) -> Scan {
        if self.open.len() == DEPTH_MAX {
            return Scan::Fail;
        }
        self.open.push(open);
        self.state = state;
        Scan::More
    }

    fn close(&mut self, expected: Open) -> Scan {
        if self.open.pop() != Some(expected) {
            return Scan::Fail;
        }
        self.state = State::AfterValue;
        if self.open.is_empty() { Scan::Done } else { Scan::More }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where the value ends, in characters, or `None` for none.
    fn end_of(text: &str) -> Option<usize> {
        let mut scanner = JsonScanner::new();
        for (at, c) in text.chars().enumerate() {
            match scanner.push(c) {
                Scan::Done => return Some(at + 1),
                Scan::Fail => return None,
                Scan::More | Scan::Key => {}
            }
        }
        None
    }

    #[test]
    fn values_end_where_they_end() {
        for (text, end) in [
            ("{}", Some(2)),
            (" [ ] x", Some(4)),
            (r#"{"a":"}\"","b":[1,-0.5e+10,true,false,null,"\u00e9"]} tail"#, Some(53)),
            ("[01]", None),
            ("[1.]", None),
            ("[-]", None),
            ("[1,]", None),
            (r#"{"a":1,}"#, None),
            ("{1:2}", None),
            ("[tru]", None),
            ("[\"\n\"]", None),
            (r#"["\x"]"#, None),
            ("{]", None),
            ("5", None),
            ("[1", None),
        ] {
            assert_eq!(end_of(text), end, "{text}");
        }
        assert_eq!(end_of(&"[".repeat(1_000_000)), None);
    }

    #[test]
    fn outer_keys_are_reported() {
        let keys = |text: &str| {
            let mut scanner = JsonScanner::new();
            let mut keys = Vec::new();
            for c in text.chars() {
                if scanner.push(c) == Scan::Key {
                    keys.push(scanner.key().to_owned());
                }
            }
            keys
        };
        assert_eq!(keys(r#"{"a" : {"b":1}, "c\"\u00e9":2}"#), ["a", r#"c\"\u00e9"#]);
        assert_eq!(keys(r#"[{"a":{"b":1}},{"c":2}]"#), ["a", "c"]);
    }

    proptest! {
        /// The scanner and serde agree on what is an object or array.
        #[test]
        fn agrees_with_serde(text in "[\\[{]([\\[\\]{}:, \"\\\\a1e.+-]|true|null|\"a\":|\"b\",){0,12}[\\]}]") {
            let serde = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(end_of(&text) == Some(text.chars().count()), serde, "{}", text);
        }
    }
}
