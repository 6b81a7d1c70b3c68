//! States in blocks of 256 positions, which can be kept and stored one by one.
//!
//! A block is what all layers keep of the same positions. Full blocks never change, so states with a common prefix share
//! them, in memory and on disk. Layout as bytes, all integers little endian:
//! ```text
//! "samebit block\0\0\0"  16 bytes
//! version                u32
//! layers                 u32
//! per layer              u64 length, then the page as the arithmetic crate encodes it
//! ```
//! The bytes are a pure function of identity, weights and tokens. They do not hold the identity: whoever stores them does.

use std::sync::Arc;

use samebit_arith::KvPage;

use super::encoding::{Reader, damaged, encode_page, put_u32};
use super::{LayerShape, LayerState, PagedKv, SequenceState, StateIdentity};
use crate::StateError;

const SIGNATURE: &[u8; 16] = b"samebit block\0\0\0";
const VERSION: u32 = 1;

/// What all layers keep of up to [`StateBlock::POSITIONS`] positions. Cloning it shares its memory.
#[derive(Clone, Debug)]
pub struct StateBlock {
    /// One per layer.
    pages: Vec<Arc<KvPage>>,
}

impl StateBlock {
    /// Positions of a full block. Block `i` of a sequence holds positions `256 i ..`.
    pub const POSITIONS: usize = KvPage::POSITIONS;

    /// Positions it holds.
    pub fn positions(&self) -> usize {
        self.pages.first().map_or(0, |page| page.len())
    }

    /// Address and bytes of every piece of memory it holds. Two blocks that are alive share a piece exactly when they
    /// give the same address.
    pub fn memory(&self) -> impl Iterator<Item = (usize, usize)> {
        self.pages.iter().map(|page| (Arc::as_ptr(page).addr(), page.bytes()))
    }

    /// The block as bytes, equal for equal tokens.
    pub fn encode(&self) -> Vec<u8> {
        let bytes: usize = self.pages.iter().map(|page| page.bytes() + 8).sum();
        let mut out = Vec::with_capacity(bytes + SIGNATURE.len() + 8);
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_u32(&mut out, self.pages.len());
        for page in &self.pages {
            encode_page(page, &mut out);
        }
        out
    }
}

impl SequenceState {
    /// Its blocks, first positions first: all but the last are full.
    pub fn blocks(&self) -> impl Iterator<Item = StateBlock> {
        (0..self.length.div_ceil(StateBlock::POSITIONS)).map(|index| StateBlock {
            pages: self
                .layers
                .iter()
                .map(|layer| match layer {
                    LayerState::Attention(kv) => Arc::clone(&kv.pages()[index]),
                })
                .collect(),
        })
    }
}

/// Makes states of blocks, for one model and one type of keys and values.
#[derive(Clone, Debug)]
pub struct StateDecoder {
    identity: Arc<StateIdentity>,
    context: usize,
}

impl StateDecoder {
    pub(crate) fn new(identity: Arc<StateIdentity>, context: usize) -> Self {
        Self { identity, context }
    }

    /// What its states depend on apart from tokens and weights.
    pub fn identity(&self) -> &StateIdentity {
        &self.identity
    }

    /// Whether its states can go back to any position. States that cannot are kept at boundaries too.
    pub fn can_rollback(&self) -> bool {
        self.identity.layers.iter().all(|layer| match layer {
            LayerShape::Attention(_) => true,
        })
    }

    /// Reads what [`StateBlock::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are damaged, or of another model's layers.
    pub fn block(&self, bytes: &[u8]) -> Result<StateBlock, StateError> {
        let mut reader = Reader { rest: bytes };
        if reader.take(SIGNATURE.len(), "signature").map_err(|_| StateError::NotAState)? != SIGNATURE {
            return Err(StateError::NotAState);
        }
        let version = reader.u32("version")?;
        if version != VERSION {
            return Err(StateError::Version { found: version, expected: VERSION });
        }
        let layers = reader.u32("layers")? as usize;
        if layers != self.identity.layers.len() {
            return Err(damaged("layers", layers, self.identity.layers.len()));
        }
        let mut pages = Vec::with_capacity(layers);
        for shape in &self.identity.layers {
            let page = match *shape {
                LayerShape::Attention(shape) => reader.page(shape, self.identity.kv)?,
            };
            let expected = pages.first().map_or(page.len(), |first: &Arc<KvPage>| first.len());
            if page.len() != expected {
                return Err(damaged("positions of a page", page.len(), expected));
            }
            pages.push(Arc::new(page));
        }
        if !reader.rest.is_empty() {
            return Err(damaged("end", format!("{} more bytes", reader.rest.len()), "none"));
        }
        Ok(StateBlock { pages })
    }

    /// The state that gave these blocks.
    ///
    /// # Errors
    /// When a block but the last is not full, the last is empty, their layers are not this model's, or there are more
    /// positions than its context has.
    pub fn assemble(&self, blocks: &[StateBlock]) -> Result<SequenceState, StateError> {
        let length: usize = blocks.iter().map(StateBlock::positions).sum();
        if length > self.context {
            return Err(damaged("tokens", length, format!("at most {}", self.context)));
        }
        for (index, block) in blocks.iter().enumerate() {
            let full = index + 1 < blocks.len();
            let positions = block.positions();
            if positions == 0 || (full && positions < StateBlock::POSITIONS) {
                return Err(damaged("positions of a block", positions, StateBlock::POSITIONS));
            }
            if block.pages.len() != self.identity.layers.len() {
                return Err(damaged("layers", block.pages.len(), self.identity.layers.len()));
            }
        }
        let layers = self.identity.layers.iter().enumerate().map(|(layer, shape)| match *shape {
            LayerShape::Attention(shape) => {
                let pages: Vec<_> = blocks.iter().map(|block| Arc::clone(&block.pages[layer])).collect();
                match pages.iter().all(|page| page.shape() == shape && page.ty() == self.identity.kv) {
                    true => Ok(LayerState::Attention(PagedKv::from_pages(shape, self.identity.kv, pages))),
                    false => Err(damaged("shape of a page", "another", LayerShape::Attention(shape))),
                }
            }
        });
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        Ok(SequenceState { identity: Arc::clone(&self.identity), layers, length })
    }
}
