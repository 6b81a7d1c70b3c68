//! What may be shown on a terminal: text from a model or a file cannot move the cursor, change colours or set titles.

use std::borrow::Cow;
use std::io::{self, Write};

/// The text with every control character but newline and tab replaced by its visible symbol (U+2400 and following; the
/// C1 controls, which some terminals obey as well, by U+FFFD).
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_hidden(c) { visible(c) } else { c }).collect()
}

fn is_hidden(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

fn visible(c: char) -> char {
    match u32::from(c) {
        code @ 0..=0x1F => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7F => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Writes to standard output at once. A reader that went away ends the program quietly, as other filters do.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}

/// Prints a message on standard error. That nobody can read it there changes nothing.
pub(crate) fn message(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(shown("a\x1b[31mb\r\x07\x7f\u{9b}2J"), "a\u{241b}[31mb\u{240d}\u{2407}\u{2421}\u{fffd}2J");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        assert!(matches!(shown("two\nlines\tand ünïcödé 🦀"), Cow::Borrowed(_)));
    }
}
