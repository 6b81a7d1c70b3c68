//! Finding tokens that stand in a text literally, such as `<|im_end|>`.

use std::collections::HashMap;

/// A part of a text: plain, or one literal token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// A set of literal tokens; the leftmost match wins, and of those starting together the longest.
#[derive(Default)]
pub(crate) struct LiteralTokens {
    ids: HashMap<Box<str>, u32>,
    /// For each first byte, the lengths in bytes that occur, longest first.
    lengths: HashMap<u8, Vec<usize>>,
}

impl LiteralTokens {
    /// Empty texts are left out: they would match everywhere.
    pub(crate) fn new<'v>(tokens: impl IntoIterator<Item = (&'v str, u32)>) -> Self {
        let mut all = Self::default();
        for (text, id) in tokens {
            let Some(first) = text.as_bytes().first() else { continue };
            all.lengths.entry(*first).or_default().push(text.len());
            all.ids.insert(text.into(), id);
        }
        for lengths in all.lengths.values_mut() {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
        }
        all
    }

    /// Cuts `text` at every literal token. No fragment is empty.
    pub(crate) fn split<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let mut plain_from = 0;
        let mut at = 0;
        while at < text.len() {
            let Some((length, id)) = self.longest_at(text, at) else {
                at += 1;
                continue;
            };
            if plain_from < at {
                fragments.push(Fragment::Text(&text[plain_from..at]));
            }
            fragments.push(Fragment::Token(id));
            at += length;
            plain_from = at;
        }
        if plain_from < text.len() {
            fragments.push(Fragment::Text(&text[plain_from..]));
        }
        fragments
    }

    fn longest_at(&self, text: &str, at: usize) -> Option<(usize, u32)> {
        let lengths = self.lengths.get(&text.as_bytes()[at])?;
        lengths.iter().find_map(|&length| {
            let candidate = text.get(at..at.checked_add(length)?)?;
            self.ids.get(candidate).map(|id| (length, *id))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Fragment::{Text, Token};
    use super::*;

    #[test]
    fn leftmost_then_longest() {
        let set = LiteralTokens::new([("<a>", 1), ("<a>b", 2), ("b<a>bcd", 3), ("é", 4)]);
        assert_eq!(set.split(""), []);
        assert_eq!(set.split("x<a>y"), [Text("x"), Token(1), Text("y")]);
        assert_eq!(set.split("<a>b<a>"), [Token(2), Token(1)]);
        assert_eq!(set.split("b<a>bcd"), [Token(3)]);
        assert_eq!(set.split("zé\u{e8}"), [Text("z"), Token(4), Text("è")]);
    }

    #[test]
    fn an_empty_literal_is_ignored() {
        assert_eq!(LiteralTokens::new([("", 7)]).split("ab"), [Text("ab")]);
    }
}
