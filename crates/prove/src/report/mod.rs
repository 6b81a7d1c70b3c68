//! A receipt for people: `report.html`.
//!
//! One file that needs nothing else: the style is in it, the plots are SVG, there is no script and nothing is fetched.
//! It is well-formed XML as well as HTML, and the same receipt always gives the same page.

mod checks;
mod page;
mod plot;
#[cfg(test)]
mod tests;

pub use page::html;

use crate::receipt::Verdict;

/// Text that may come from a file name or a checkpoint, safe as content and as a quoted attribute. Characters that
/// would change the text around them, control characters and marks of direction, are replaced.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            '\t' | '\n' => safe.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                safe.push(char::REPLACEMENT_CHARACTER);
            }
            '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            other if other.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            other => safe.push(other),
        }
    }
    safe
}

/// A count with its digits in groups of three, by narrow spaces that do not break.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 case`, `2 cases`.
fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A time in seconds or minutes.
fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..60_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1000),
    }
}

/// The class, in the style sheet, of what is about a verdict.
fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Unchecked => "unchecked",
        Verdict::CouldNotRun => "stopped",
        Verdict::Fail => "fail",
    }
}

/// A verdict as a badge. Its sign and its word say the same as its colour.
fn badge(verdict: Verdict) -> String {
    let sign = match verdict {
        Verdict::Pass => "✓",
        Verdict::Unchecked => "?",
        Verdict::CouldNotRun => "!",
        Verdict::Fail => "✗",
    };
    let (class, word) = (class(verdict), verdict.word());
    format!("<strong class=\"badge {class}\"><span aria-hidden=\"true\">{sign}</span> {word}</strong>")
}
