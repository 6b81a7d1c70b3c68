//! Keys and values in pages that sequences share.

use std::sync::Arc;

use samebit_arith::{KvPage, KvShape, KvType};

/// Keys and values of positions `0 .. length`, in pages of [`KvPage::POSITIONS`] aligned to absolute position.
///
/// A full page never changes again, so clones share it. A page that is still growing is copied before it is written to
/// while a clone holds it too.
#[derive(Clone, Debug)]
pub struct PagedKv {
    shape: KvShape,
    kv: KvType,
    pages: Vec<Arc<KvPage>>,
    length: usize,
}

impl PagedKv {
    pub(crate) fn new(shape: KvShape, kv: KvType) -> Self {
        Self { shape, kv, pages: Vec::new(), length: 0 }
    }

    /// Number of positions.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Sizes of a position.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// The pages, first positions first: all but the last are full.
    pub fn pages(&self) -> &[Arc<KvPage>] {
        &self.pages
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.bytes()).sum()
    }

    /// Appends positions: rows of `kv_heads * key_dim` keys, and as many of `kv_heads * value_dim` values.
    pub(crate) fn push(&mut self, keys: &[f32], values: &[f32]) {
        let (key_width, value_width) = (self.shape.key_width(), self.shape.value_width());
        let (mut keys, mut values) = (keys, values);
        while !keys.is_empty() {
            let filled = self.length % KvPage::POSITIONS;
            if filled == 0 {
                self.pages.push(Arc::new(KvPage::new(self.shape, self.kv)));
            }
            let rows = (keys.len() / key_width).min(KvPage::POSITIONS - filled);
            if let Some(page) = self.pages.last_mut() {
                Arc::make_mut(page).push(&keys[..rows * key_width], &values[..rows * value_width]);
            }
            (keys, values) = (&keys[rows * key_width..], &values[rows * value_width..]);
            self.length += rows;
        }
    }

    /// Forgets the positions from `length` on.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.pages.truncate(length.div_ceil(KvPage::POSITIONS));
        let last = length % KvPage::POSITIONS;
        if last > 0
            && let Some(page) = self.pages.last_mut()
            && page.len() > last
        {
            Arc::make_mut(page).truncate(last);
        }
        self.length = length;
    }

    /// The pages of an encoded state, already decoded.
    pub(crate) fn from_pages(shape: KvShape, kv: KvType, pages: Vec<Arc<KvPage>>) -> Self {
        let length = pages.iter().map(|page| page.len()).sum();
        Self { shape, kv, pages, length }
    }
}
