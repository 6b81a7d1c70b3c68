//! Ids that nobody can guess.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that the standard library took from the system's source of randomness.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A new id that begins with `prefix`.
pub(crate) fn new(prefix: &str) -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // A keyed hash of a counter; the second half hashes something else, in case both keys are related.
    let [high, low] = [KEYS[0].hash_one((0u8, number)), KEYS[1].hash_one((1u8, number))];
    format!("{prefix}_{high:016x}{low:016x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_differ() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| super::new("x")).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 34 && id.starts_with("x_")));
    }
}
