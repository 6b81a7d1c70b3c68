//! Sequence states as bytes.
//!
//! Layout, all integers little endian:
//! ```text
//! "samebit state\0\0\0"  16 bytes
//! version                u32
//! identity               u32 length, then that many bytes of UTF-8
//! tokens                 u64
//! layers                 u32
//! per layer              u8 kind (1 = attention)
//!   attention            u32 pages, then per page: u64 length, then the page as the arithmetic crate encodes it
//! ```
//! The bytes are a pure function of identity, weights and tokens: they hold nothing of how the state came about.

use std::sync::Arc;

use samebit_arith::{KvPage, KvShape, KvType};

use super::{LayerShape, LayerState, PagedKv, SequenceState, StateIdentity};
use crate::StateError;

const SIGNATURE: &[u8; 16] = b"samebit state\0\0\0";
const VERSION: u32 = 1;
/// Kinds of layer state.
const ATTENTION: u8 = 1;

impl SequenceState {
    /// The state as bytes, equal for equal tokens.
    pub fn encode(&self) -> Vec<u8> {
        let identity = self.identity.to_string();
        let mut out = Vec::with_capacity(self.bytes() + identity.len() + 1024);
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_u32(&mut out, identity.len());
        out.extend_from_slice(identity.as_bytes());
        out.extend_from_slice(&(self.length as u64).to_le_bytes());
        put_u32(&mut out, self.layers.len());
        for layer in &self.layers {
            match layer {
                LayerState::Attention(kv) => {
                    out.push(ATTENTION);
                    put_u32(&mut out, kv.pages().len());
                    for page in kv.pages() {
                        encode_page(page, &mut out);
                    }
                }
            }
        }
        out
    }

    /// Reads what [`SequenceState::encode`] wrote, for a model and cache type of the given identity. `context` bounds
    /// the number of tokens.
    pub(crate) fn decode(
        identity: Arc<StateIdentity>,
        context: usize,
        bytes: &[u8],
    ) -> Result<Self, StateError> {
        let mut reader = Reader { rest: bytes };
        if reader.take(SIGNATURE.len(), "signature").map_err(|_| StateError::NotAState)? != SIGNATURE {
            return Err(StateError::NotAState);
        }
        let version = reader.u32("version")?;
        if version != VERSION {
            return Err(StateError::Version { found: version, expected: VERSION });
        }
        let length = reader.u32("identity")? as usize;
        let found = reader.take(length, "identity")?;
        if found != identity.to_string().as_bytes() {
            let found = String::from_utf8_lossy(found).chars().take(400).collect();
            return Err(StateError::Identity { found, expected: identity.to_string() });
        }
        let length = reader.u64("tokens")?;
        let length = usize::try_from(length).ok().filter(|&length| length <= context);
        let length = length.ok_or_else(|| damaged("tokens", "more", format!("at most {context}")))?;
        let layers = reader.u32("layers")? as usize;
        if layers != identity.layers.len() {
            return Err(damaged("layers", layers, identity.layers.len()));
        }
        let layers = identity
            .layers
            .iter()
            .map(|&shape| reader.layer(shape, identity.kv, length))
            .collect::<Result<Vec<_>, _>>()?;
        if !reader.rest.is_empty() {
            return Err(damaged("end", format!("{} more bytes", reader.rest.len()), "none"));
        }
        Ok(Self { identity, layers, length })
    }
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: usize) {
    // Layers, pages and names are far fewer than 2^32: contexts end at 2^31 positions.
    out.extend_from_slice(&(value as u32).to_le_bytes());
}

pub(super) fn encode_page(page: &KvPage, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 8]);
    page.encode(out);
    let length = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&length.to_le_bytes());
}

#[expect(clippy::needless_pass_by_value, reason = "callers hand over texts and numbers, made on the spot")]
pub(super) fn damaged(place: &'static str, found: impl ToString, expected: impl ToString) -> StateError {
    StateError::Damaged { place, found: found.to_string(), expected: expected.to_string() }
}

/// The bytes that are not read yet. Nothing is allocated beyond what they hold.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize, place: &'static str) -> Result<&'a [u8], StateError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(damaged(place, format!("{} bytes left", self.rest.len()), format!("{count} bytes")));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, place: &'static str) -> Result<[u8; N], StateError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, place)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, place: &'static str) -> Result<u32, StateError> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    fn u64(&mut self, place: &'static str) -> Result<u64, StateError> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    fn layer(&mut self, shape: LayerShape, kv: KvType, length: usize) -> Result<LayerState, StateError> {
        let [kind] = self.array("kind of a layer")?;
        match (kind, shape) {
            (ATTENTION, LayerShape::Attention(shape)) => {
                self.paged_kv(shape, kv, length).map(LayerState::Attention)
            }
            _ => Err(damaged("kind of a layer", kind, shape)),
        }
    }

    fn paged_kv(&mut self, shape: KvShape, kv: KvType, length: usize) -> Result<PagedKv, StateError> {
        let count = self.u32("pages")? as usize;
        let needed = length.div_ceil(KvPage::POSITIONS);
        if count != needed {
            return Err(damaged("pages", count, needed));
        }
        // Grown page by page, so that a lying count costs nothing before its bytes are there.
        let mut pages = Vec::new();
        for index in 0..count {
            let page = self.page(shape, kv)?;
            let expected = (length - index * KvPage::POSITIONS).min(KvPage::POSITIONS);
            if page.len() != expected {
                return Err(damaged("positions of a page", page.len(), expected));
            }
            pages.push(Arc::new(page));
        }
        Ok(PagedKv::from_pages(shape, kv, pages))
    }

    /// What [`encode_page`] wrote.
    pub(super) fn page(&mut self, shape: KvShape, kv: KvType) -> Result<KvPage, StateError> {
        let bytes = self.u64("page")?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        KvPage::decode(shape, kv, self.take(bytes, "page")?)
            .map_err(|error| damaged("page", error, "a page of this shape and type"))
    }
}
