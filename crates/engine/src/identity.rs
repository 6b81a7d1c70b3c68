//! Digests of what was computed: the ids of a reply, and the logits behind them.

use std::fmt::Write as _;

use samebit_checkpoint::hex;
use sha2::{Digest, Sha256};

/// The first 12 hex digits of the SHA-256 over a reply's ids in decimal joined by `,`, the end token included.
pub fn token_sha(ids: &[u32]) -> String {
    let mut digest = hex(&Sha256::digest(joined(ids)));
    digest.truncate(12);
    digest
}

/// Ids in decimal, joined by `,`.
pub(crate) fn joined(ids: &[u32]) -> String {
    let mut text = String::new();
    for (index, id) in ids.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let _ = write!(text, "{separator}{id}");
    }
    text
}

/// A running SHA-256 over the raw logits of each step, as little-endian `f32` bits: equal chains mean that every step of
/// two replies had the same bits.
#[derive(Clone, Debug, Default)]
pub struct LogitsChain(Sha256);

impl LogitsChain {
    /// Adds the logits of the next step.
    pub fn add(&mut self, logits: &[f32]) {
        // Bytes are laid out in pieces: a whole row of a large vocabulary would be a megabyte on the heap per step.
        let mut bytes = [0; 4096];
        for piece in logits.chunks(bytes.len() / 4) {
            for (place, logit) in bytes.chunks_exact_mut(4).zip(piece) {
                place.copy_from_slice(&logit.to_le_bytes());
            }
            self.0.update(&bytes[..4 * piece.len()]);
        }
    }

    /// The first 8 hex digits of the digest so far: enough to find the first step at which two replies part.
    pub fn mark(&self) -> String {
        hex(&self.0.clone().finalize()[..4])
    }

    /// The digest so far, 64 hex digits.
    pub fn hex(&self) -> String {
        hex(&self.0.clone().finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_sha_is_the_digest_of_the_joined_ids() {
        assert_eq!(token_sha(&[1, 22, 333]), "891551674528");
        assert_eq!(token_sha(&[]), "e3b0c44298fc");
    }

    #[test]
    fn the_chain_is_the_digest_of_all_bits_so_far() {
        let logits: Vec<f32> = (0..3000u16).map(|n| f32::from(n) - 1000.5).collect();
        let mut chain = LogitsChain::default();
        assert_eq!(chain.hex(), hex(&Sha256::digest([])));
        chain.add(&logits[..1500]);
        let halfway = chain.hex();
        chain.add(&logits[1500..]);
        let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        assert_eq!(halfway, hex(&Sha256::digest(&bytes[..6000])));
        assert_eq!(chain.hex(), hex(&Sha256::digest(&bytes)));
    }
}
