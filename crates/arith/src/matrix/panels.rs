//! Storage of a packed matrix.

use crate::lanes::LINE;

/// Panels of equal size in one allocation, each starting at a multiple of [`LINE`] bytes.
pub(super) struct Panels {
    storage: Vec<u8>,
    /// Where the first panel starts in `storage`, so that its address is aligned.
    start: usize,
    panel: usize,
    count: usize,
}

impl Panels {
    /// `count` panels of `panel` bytes, all zero.
    pub(super) fn new(panel: usize, count: usize) -> Self {
        let panel = panel.next_multiple_of(LINE);
        let storage = vec![0; panel * count + LINE];
        // `align_offset` may give up; then the panels are merely not aligned.
        let start = storage.as_ptr().align_offset(LINE).min(LINE);
        Self { storage, start, panel, count }
    }

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.panel * self.count
    }

    /// Bytes of one panel, padding included.
    pub(super) fn panel_bytes(&self) -> usize {
        self.panel
    }

    /// Panel `index`.
    pub(super) fn panel(&self, index: usize) -> &[u8] {
        &self.storage[self.start + self.panel * index..][..self.panel]
    }

    /// All panels, one after the other.
    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes();
        &mut self.storage[self.start..self.start + bytes]
    }
}
