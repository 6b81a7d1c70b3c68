//! The bytes and the kind of every token: all that decoding needs.

use crate::TokenizerError;

/// What a token is, as far as decoding and the reading of special tokens are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    /// Text or bytes.
    Normal,
    /// A control token such as an end of turn: its text may be skipped when decoding.
    Special,
    /// The id has no token.
    Missing,
}

/// The bytes of every token, in one allocation.
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// End of each piece in `bytes`; a piece starts where the one before ends.
    ends: Vec<u32>,
    kinds: Vec<PieceKind>,
}

impl Pieces {
    /// Collects pieces given in order of their ids.
    pub(crate) fn new(
        pieces: impl IntoIterator<Item = (Vec<u8>, PieceKind)>,
        field: &str,
    ) -> Result<Self, TokenizerError> {
        let mut all = Self { bytes: Vec::new(), ends: Vec::new(), kinds: Vec::new() };
        for (piece, kind) in pieces {
            all.bytes.extend_from_slice(&piece);
            let end = u32::try_from(all.bytes.len())
                .map_err(|_| TokenizerError::invalid(field, "the tokens together are longer than 4 GiB"))?;
            all.ends.push(end);
            all.kinds.push(kind);
        }
        Ok(all)
    }

    /// How many ids there are, missing ones included.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Kind of `id`; ids beyond the vocabulary are missing.
    pub(crate) fn kind(&self, id: u32) -> PieceKind {
        usize::try_from(id)
            .ok()
            .and_then(|index| self.kinds.get(index))
            .copied()
            .unwrap_or(PieceKind::Missing)
    }

    /// Bytes of `id`.
    pub(crate) fn bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        let unknown = TokenizerError::UnknownId { id, size: self.len() };
        let Ok(index) = usize::try_from(id) else { return Err(unknown) };
        if self.kind(id) == PieceKind::Missing {
            return Err(unknown);
        }
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Ok(&self.bytes[start..self.ends[index] as usize])
    }
}
