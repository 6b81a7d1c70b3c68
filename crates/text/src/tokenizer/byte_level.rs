//! The reversible table between bytes and printable characters that byte-level vocabularies are written in.
//!
//! Source: the GPT-2 tokenizer. Printable Latin-1 bytes stand for themselves; the other 68 bytes, in ascending order,
//! are written as U+0100, U+0101 and so on.

/// The byte that `c` stands for, or `None` if no byte is written that way.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    if let Ok(byte) = u8::try_from(code) {
        return stands_for_itself(byte).then_some(byte);
    }
    let index = usize::try_from(code.checked_sub(256)?).ok()?;
    (0..=u8::MAX).filter(|byte| !stands_for_itself(*byte)).nth(index)
}

/// A table for the whole alphabet: entry `c` is the byte that character U+0000 + c stands for.
///
/// Looking bytes up one by one with [`byte_of`] scans; a vocabulary has a million characters.
pub(crate) struct ByteAlphabet([Option<u8>; 256 + 68]);

impl ByteAlphabet {
    pub(crate) fn new() -> Self {
        let mut table = [None; 256 + 68];
        for (entry, code) in table.iter_mut().zip(0u32..) {
            *entry = char::from_u32(code).and_then(byte_of);
        }
        Self(table)
    }

    /// The bytes of a token written in this alphabet, or `None` if it has a character that stands for no byte.
    pub(crate) fn bytes(&self, token: &str) -> Option<Vec<u8>> {
        token.chars().map(|c| self.0.get(usize::try_from(u32::from(c)).ok()?).copied().flatten()).collect()
    }
}

fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection() {
        let alphabet = ByteAlphabet::new();
        let mut seen: Vec<u8> = alphabet.0.iter().copied().flatten().collect();
        assert_eq!(seen.len(), 256);
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_letters() {
        let alphabet = ByteAlphabet::new();
        assert_eq!(alphabet.bytes("Ġa"), Some(b" a".to_vec()));
        assert_eq!(alphabet.bytes("Ċ"), Some(b"\n".to_vec()));
        assert_eq!(alphabet.bytes("Ã©"), Some("é".as_bytes().to_vec()));
        assert_eq!(alphabet.bytes("ſ"), None);
        assert_eq!(alphabet.bytes(" "), None);
    }
}
