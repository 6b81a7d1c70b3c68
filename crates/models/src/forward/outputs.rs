//! What a pass returns.

use samebit_arith::Buffer;

/// Logits, and what was recorded on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// Logits `[rows that wanted them, vocabulary]`, spans in order, rows in the order asked for.
    pub logits: Buffer,
    /// Number of token ids.
    pub vocabulary: usize,
    /// For each row of logits, which row of the whole batch it belongs to.
    pub rows: Vec<usize>,
    /// With [`crate::Taps::hidden`]: what the head reads (after the last norm), `[rows of the batch, hidden]`.
    pub hidden: Option<Buffer>,
    /// With [`crate::Taps::layers`]: the residual stream after each block, `[rows of the batch, hidden]`; else empty.
    pub layers: Vec<Vec<f32>>,
    /// With [`crate::Taps::layers`]: per block, what its router picked; `None` where there is no router; else empty.
    pub routers: Vec<Option<RouterPicks>>,
}

/// The experts that a router picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPicks {
    /// Experts per row.
    pub picked: usize,
    /// Expert ids `[rows of the batch, picked]`, in pick order.
    pub ids: Vec<i32>,
}

impl Outputs {
    /// One row of logits, in the order of [`Outputs::rows`].
    ///
    /// # Panics
    /// When there is no such row.
    pub fn logits_row(&self, index: usize) -> &[f32] {
        &self.logits[index * self.vocabulary..(index + 1) * self.vocabulary]
    }
}
