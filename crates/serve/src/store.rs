//! What is kept for later requests, within bounds: the oldest goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Values by id, of bounded number and size.
#[derive(Debug)]
pub(crate) struct Store<T> {
    most: usize,
    most_bytes: usize,
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    values: HashMap<String, (T, usize)>,
    /// Ids, oldest first. Ids of removed values stay until they are the oldest.
    order: VecDeque<String>,
    bytes: usize,
}

impl<T: Clone> Store<T> {
    /// A store of at most `most` values that have at most `most_bytes` together.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        let kept = Kept { values: HashMap::new(), order: VecDeque::new(), bytes: 0 };
        Self { most, most_bytes, kept: Mutex::new(kept) }
    }

    /// Keeps a value of about `bytes` bytes. One that is larger than the store is not kept.
    pub(crate) fn insert(&self, id: String, value: T, bytes: usize) {
        if bytes > self.most_bytes {
            return;
        }
        let mut kept = self.lock();
        kept.remove(&id);
        kept.order.retain(|other| *other != id);
        kept.bytes += bytes;
        kept.order.push_back(id.clone());
        kept.values.insert(id, (value, bytes));
        while kept.values.len() > self.most || kept.bytes > self.most_bytes {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.remove(&oldest);
        }
    }

    /// The value, if it is still there.
    pub(crate) fn get(&self, id: &str) -> Option<T> {
        self.lock().values.get(id).map(|(value, _)| value.clone())
    }

    /// Forgets a value, and tells whether it was there.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let mut kept = self.lock();
        kept.order.retain(|other| other != id);
        kept.remove(id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Kept<T> {
    fn remove(&mut self, id: &str) -> bool {
        match self.values.remove(id) {
            None => false,
            Some((_, bytes)) => {
                self.bytes -= bytes;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let store = Store::new(2, 10);
        store.insert("a".to_owned(), 1, 4);
        store.insert("b".to_owned(), 2, 4);
        store.insert("a".to_owned(), 3, 4);
        store.insert("c".to_owned(), 4, 4);
        assert_eq!((store.get("a"), store.get("b"), store.get("c")), (Some(3), None, Some(4)));
        store.insert("d".to_owned(), 5, 10);
        assert_eq!((store.get("a"), store.get("c"), store.get("d")), (None, None, Some(5)));
        store.insert("e".to_owned(), 6, 11);
        assert_eq!((store.get("d"), store.get("e")), (Some(5), None));
        assert!(store.remove("d") && !store.remove("d"));
        store.insert("f".to_owned(), 7, 10);
        assert_eq!(store.get("f"), Some(7));
    }
}
