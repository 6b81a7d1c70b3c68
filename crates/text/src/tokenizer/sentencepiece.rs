//! SentencePiece's BPE: neighbours merge by the score of the piece they make, and what has no piece is spelled in bytes.
//!
//! Source: the SentencePiece algorithm (`bpe_model`). A published `tokenizer.json` of the same vocabulary lists merges
//! instead; they are every split of every piece, best score first, so both give the same ids. Scores need no merge
//! table, which makes a vocabulary of 262,144 pieces load in a fraction of a second.

use super::fragments::{Fragment, LiteralTokens};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// What SentencePiece writes for a space.
pub(crate) const SPACE: &str = "\u{2581}";

/// A vocabulary of scored pieces.
pub(crate) struct SentencePiece {
    /// Pieces that merging may produce.
    pub(crate) pieces: HashMap<Box<str>, ScoredPiece>,
    /// The byte tokens, by byte.
    pub(crate) byte_ids: Box<[Option<u32>; 256]>,
    /// Stands for a character that has neither a piece nor byte tokens; `None` drops it.
    pub(crate) unknown_id: Option<u32>,
    /// Control tokens, matched in the text as written.
    pub(crate) control: LiteralTokens,
    /// User-defined pieces, matched after spaces have become U+2581. They are always tokens.
    pub(crate) user_defined: LiteralTokens,
    /// Whether a text, and what follows a control token, is read as if a space stood before it.
    pub(crate) add_space_prefix: bool,
}

/// Id and score of a piece. Of two possible merges the higher score goes first.
#[derive(Clone, Copy)]
pub(crate) struct ScoredPiece {
    pub(crate) id: u32,
    pub(crate) score: f32,
}

impl SentencePiece {
    /// Ids of `text`; control tokens are recognized if `parse_control`.
    pub(crate) fn encode(&self, text: &str, parse_control: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        let fragments = if parse_control { self.control.split(text) } else { vec![Fragment::Text(text)] };
        for fragment in fragments {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(plain) => self.encode_plain(plain, &mut ids),
            }
        }
        ids
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) {
        let normalized = text.replace(' ', SPACE);
        for fragment in self.user_defined.split(&normalized) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(plain) if self.add_space_prefix => self.merge(&[SPACE, plain].concat(), ids),
                Fragment::Text(plain) => self.merge(plain, ids),
            }
        }
    }

    /// Merges the characters of `text` as far as pieces allow, and appends the ids.
    fn merge(&self, text: &str, ids: &mut Vec<u32>) {
        let mut symbols = Symbols::of(text);
        let mut candidates = BinaryHeap::new();
        for left in 0..symbols.spans.len() {
            candidates.extend(self.candidate(text, &symbols, left));
        }
        while let Some(best) = candidates.pop() {
            if !symbols.still_there(&best) {
                continue;
            }
            symbols.join(best.left, best.right);
            if let Some(before) = symbols.spans[best.left].before {
                candidates.extend(self.candidate(text, &symbols, before));
            }
            candidates.extend(self.candidate(text, &symbols, best.left));
        }
        for span in symbols.spans.iter().filter(|span| span.start < span.end) {
            self.push_ids(&text[span.start..span.end], ids);
        }
    }

    /// The merge of symbol `left` with the one after it, if that makes a piece.
    fn candidate(&self, text: &str, symbols: &Symbols, left: usize) -> Option<Candidate> {
        let right = symbols.spans[left].after?;
        let (start, end) = (symbols.spans[left].start, symbols.spans[right].end);
        let piece = self.pieces.get(&text[start..end])?;
        Some(Candidate { score: piece.score, left, right, length: end - start })
    }

    fn push_ids(&self, symbol: &str, ids: &mut Vec<u32>) {
        if let Some(piece) = self.pieces.get(symbol) {
            ids.push(piece.id);
            return;
        }
        let bytes: Option<Vec<u32>> = symbol.bytes().map(|byte| self.byte_ids[usize::from(byte)]).collect();
        match bytes {
            Some(spelled) => ids.extend(spelled),
            None => ids.extend(self.unknown_id),
        }
    }
}

/// The symbols of a text as a linked list; a symbol merged into the one before it is empty.
struct Symbols {
    spans: Vec<Span>,
}

/// Bytes `start..end` of the text, and the neighbouring symbols.
struct Span {
    start: usize,
    end: usize,
    before: Option<usize>,
    after: Option<usize>,
}

impl Symbols {
    /// One symbol per character.
    fn of(text: &str) -> Self {
        let mut spans: Vec<Span> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, c))| Span {
                start,
                end: start + c.len_utf8(),
                before: index.checked_sub(1),
                after: Some(index + 1),
            })
            .collect();
        if let Some(last) = spans.last_mut() {
            last.after = None;
        }
        Self { spans }
    }

    /// Whether neither side has been merged since the candidate was found.
    fn still_there(&self, candidate: &Candidate) -> bool {
        let (left, right) = (&self.spans[candidate.left], &self.spans[candidate.right]);
        left.start < left.end && right.start < right.end && right.end - left.start == candidate.length
    }

    fn join(&mut self, left: usize, right: usize) {
        let (end, after) = (self.spans[right].end, self.spans[right].after);
        self.spans[right].start = end;
        self.spans[left].end = end;
        self.spans[left].after = after;
        if let Some(after) = after {
            self.spans[after].before = Some(left);
        }
    }
}

/// Two neighbours that would make a piece; `length` in bytes tells whether they still are what they were.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    length: usize,
}

impl Ord for Candidate {
    /// Higher scores first, then further left.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(pieces: &[(&str, f32)]) -> SentencePiece {
        let scored =
            |(id, (text, score)): (u32, &(&str, f32))| ((*text).into(), ScoredPiece { id, score: *score });
        SentencePiece {
            pieces: (0..).zip(pieces).map(scored).collect(),
            byte_ids: Box::new([None; 256]),
            unknown_id: Some(99),
            control: LiteralTokens::new([("<s>", 50)]),
            user_defined: LiteralTokens::new([("\u{2581}\u{2581}", 60)]),
            add_space_prefix: false,
        }
    }

    #[test]
    fn the_best_score_merges_first() {
        let letters = [("a", -9.0), ("b", -9.0), ("c", -9.0), ("ab", -2.0), ("bc", -1.0), ("abc", -3.0)];
        assert_eq!(model(&letters).encode("abc", true), [5]);
        assert_eq!(model(&letters[..5]).encode("abc", true), [0, 4]);
    }

    #[test]
    fn equal_scores_merge_from_the_left() {
        assert_eq!(model(&[("a", -9.0), ("aa", -1.0)]).encode("aaaaa", true), [1, 1, 0]);
    }

    #[test]
    fn unknown_characters_use_bytes_only_if_all_bytes_exist() {
        let mut with_bytes = model(&[("a", -1.0)]);
        assert_eq!(with_bytes.encode("aé", true), [0, 99]);
        with_bytes.byte_ids[0xC3] = Some(20);
        assert_eq!(with_bytes.encode("é", true), [99]);
        with_bytes.byte_ids[0xA9] = Some(21);
        assert_eq!(with_bytes.encode("é", true), [20, 21]);
        with_bytes.unknown_id = None;
        assert_eq!(with_bytes.encode("aʘa", true), [0, 0]);
    }

    #[test]
    fn user_defined_pieces_do_not_merge_and_control_needs_parsing() {
        let m = model(&[("\u{2581}", -1.0), ("a", -9.0), ("\u{2581}a", 0.0)]);
        assert_eq!(m.encode("  a", true), [60, 1]);
        assert_eq!(m.encode("   a", true), [60, 2]);
        assert_eq!(m.encode("<s>a", true), [50, 1]);
        assert_eq!(m.encode("<s>a", false), [99, 99, 99, 1]);
    }

    #[test]
    fn the_space_prefix_starts_every_fragment() {
        let mut m = model(&[("\u{2581}", -1.0), ("a", -9.0), ("\u{2581}a", 0.0)]);
        m.add_space_prefix = true;
        assert_eq!(m.encode("a<s>a", true), [2, 50, 2]);
        assert!(m.encode("", true).is_empty());
    }
}
