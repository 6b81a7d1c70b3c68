//! Storage of packed matrices.
//!
//! A decode step reads every weight once, so a good part of its time goes into finding out where pages lie. Matrices
//! therefore share chunks that are large enough for the system to back them by huge pages, where it has those.

use crate::lanes::LINE;
use memmap2::{MmapMut, MmapRaw};
use std::alloc::{Layout, handle_alloc_error};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Panels of equal size, one after the other, each starting at a multiple of [`LINE`] bytes.
pub(super) struct Panels {
    chunk: Arc<Chunk>,
    /// Where the first panel starts in the chunk.
    start: usize,
    panel: usize,
    count: usize,
}

impl Panels {
    /// `count` panels of `panel` bytes, all zero.
    pub(super) fn new(panel: usize, count: usize) -> Self {
        let panel = panel.next_multiple_of(LINE);
        let (chunk, start) = take(panel.checked_mul(count).expect("the bytes of a matrix are a usize"));
        Self { chunk, start, panel, count }
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
        &self.all()[self.panel * index..][..self.panel]
    }

    /// Panels `first .. first + count`, as many of them as there are.
    pub(super) fn panels(&self, first: usize, count: usize) -> &[u8] {
        let (first, end) = (first.min(self.count), (first + count).min(self.count));
        &self.all()[self.panel * first..self.panel * end]
    }

    fn all(&self) -> &[u8] {
        // SAFETY: `take` gave these bytes, which lie in the chunk and are initialized, to these panels alone. They
        // change only through `all_mut`, which borrows the panels exclusively.
        unsafe { std::slice::from_raw_parts(self.chunk.map.as_ptr().add(self.start), self.bytes()) }
    }

    /// All panels, one after the other.
    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `all`; the panels are borrowed exclusively, and nobody else has these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.map.as_mut_ptr().add(self.start), self.bytes()) }
    }
}

/// Size, and alignment, of the huge pages of most systems.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a chunk that several matrices share. Only what is used of it takes memory.
const SHARED_BYTES: usize = 32 << 20;

/// Memory that the panels of some matrices lie in; it goes back to the system with the last of them.
struct Chunk {
    map: MmapRaw,
    /// Where its first huge page starts, and where usable bytes end.
    start: usize,
    end: usize,
}

impl Chunk {
    /// A chunk of at least `bytes` zeros.
    fn new(bytes: usize) -> Self {
        let refuse = || -> ! {
            handle_alloc_error(Layout::from_size_align(bytes, LINE).unwrap_or(Layout::new::<u8>()))
        };
        let Some(size) =
            bytes.checked_next_multiple_of(HUGE_PAGE).and_then(|size| size.checked_add(HUGE_PAGE))
        else {
            refuse()
        };
        let Ok(map) = MmapMut::map_anon(size) else { refuse() };
        // Without huge pages the chunk is only slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let start = map.as_ptr().addr().next_multiple_of(HUGE_PAGE) - map.as_ptr().addr();
        Self { map: MmapRaw::from(map), start, end: size }
    }
}

/// The chunk that the next small matrix goes into.
struct Shared {
    chunk: Weak<Chunk>,
    /// Its bytes from here on belong to nobody.
    free: usize,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { chunk: Weak::new(), free: 0 });

/// Zeros for one matrix: a chunk, and where in it they start, a multiple of [`LINE`]. Nobody else gets these bytes.
fn take(bytes: usize) -> (Arc<Chunk>, usize) {
    if bytes >= SHARED_BYTES {
        let chunk = Chunk::new(bytes);
        let start = chunk.start;
        return (Arc::new(chunk), start);
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let chunk = match shared.chunk.upgrade() {
        Some(chunk) if bytes <= chunk.end - shared.free => chunk,
        _ => {
            let chunk = Arc::new(Chunk::new(SHARED_BYTES));
            (shared.chunk, shared.free) = (Arc::downgrade(&chunk), chunk.start);
            chunk
        }
    };
    let start = shared.free;
    shared.free += bytes;
    (chunk, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_do_not_meet() {
        let sizes = [(64, 3), (100, 7), (0, 5), (1 << 20, 20), (3 << 20, 4), (1 << 20, 40), (65, 1)];
        let mut all: Vec<_> = sizes.iter().map(|&(panel, count)| Panels::new(panel, count)).collect();
        for (value, panels) in (1..).zip(&mut all) {
            assert!(panels.all().iter().all(|&byte| byte == 0), "new panels are zero");
            panels.all_mut().fill(value);
        }
        for ((value, panels), (panel, count)) in (1..).zip(&all).zip(sizes) {
            assert_eq!(panels.bytes(), panel.next_multiple_of(LINE) * count);
            assert!(panels.all().iter().all(|&byte| byte == value), "nobody else wrote");
            for index in 0..count {
                assert_eq!(panels.panel(index).as_ptr().addr() % LINE, 0);
                assert_eq!(panels.panel(index).len(), panels.panel_bytes());
            }
        }
    }

    #[test]
    fn chunks_go_with_their_last_matrix() {
        // Of a matrix with a chunk of its own: other tests may keep a shared one.
        let panels = Panels::new(SHARED_BYTES, 1);
        let chunk = Arc::downgrade(&panels.chunk);
        assert_eq!(chunk.strong_count(), 1);
        drop(panels);
        assert_eq!(chunk.strong_count(), 0);
    }

    #[test]
    fn panels_past_the_end_are_left_out() {
        let panels = Panels::new(64, 5);
        assert_eq!(panels.panels(1, 2).len(), 128);
        assert_eq!(panels.panels(4, 2).len(), 64);
        assert!(panels.panels(6, 2).is_empty());
    }
}
