//! Token lists in order, and the longest common prefix by their order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tokens of a page: lists with a common prefix share its whole pages.
const PAGE: usize = 256;

/// A list of token ids. Clones share their memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    /// All but the last are full.
    pages: Vec<Arc<[u32]>>,
    len: usize,
}

impl Ids {
    pub(crate) fn new(ids: &[u32]) -> Self {
        Self { pages: ids.chunks(PAGE).map(Arc::from).collect(), len: ids.len() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().flat_map(|page| page.iter().copied())
    }

    /// The first `len` tokens.
    pub(crate) fn prefix(&self, len: usize) -> Self {
        Self::new(&self.iter().take(len).collect::<Vec<u32>>())
    }

    /// Tokens until the first difference.
    pub(crate) fn common(&self, other: &Self) -> usize {
        let mut common = 0;
        for (ours, theirs) in self.pages.iter().zip(&other.pages) {
            // Neighbours share most of their pages, so that two long lists are compared by addresses.
            let equal = match Arc::ptr_eq(ours, theirs) {
                true => ours.len(),
                false => ours.iter().zip(theirs.iter()).take_while(|(a, b)| a == b).count(),
            };
            common += equal;
            if equal < PAGE {
                break;
            }
        }
        common
    }

    /// Uses the memory of `other` for the whole pages that both begin with.
    fn share(&mut self, other: &Self) {
        let pages = self.common(other) / PAGE;
        self.pages[..pages].clone_from_slice(&other.pages[..pages]);
    }
}

impl PartialEq for Ids {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.common(other) == self.len
    }
}

impl Eq for Ids {}

impl PartialOrd for Ids {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ids {
    /// By the first difference; a prefix comes before what it begins.
    fn cmp(&self, other: &Self) -> Ordering {
        let at = self.common(other);
        let token = |ids: &Self| ids.pages.get(at / PAGE).and_then(|page| page.get(at % PAGE)).copied();
        token(self).cmp(&token(other))
    }
}

/// A map by token lists, in their order.
#[derive(Debug)]
pub(crate) struct PrefixMap<T>(BTreeMap<Ids, T>);

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> PrefixMap<T> {
    pub(crate) fn insert(&mut self, mut ids: Ids, value: T) -> Option<T> {
        let shared = self.neighbours(&ids).next().map(|(_, other, _)| other.clone());
        if let Some(other) = shared {
            ids.share(&other);
        }
        self.0.insert(ids, value)
    }

    pub(crate) fn get(&self, ids: &Ids) -> Option<&T> {
        self.0.get(ids)
    }

    pub(crate) fn remove(&mut self, ids: &Ids) -> Option<T> {
        self.0.remove(ids)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry before `ids` in order, if `ids` begins with all of it and goes on. Where no two entries extend each
    /// other, it is the only one of its kind.
    pub(crate) fn extended_by(&self, ids: &Ids) -> Option<(&Ids, &T)> {
        let (other, value) = self.0.range(..ids).next_back()?;
        (ids.common(other) == other.len()).then_some((other, value))
    }

    /// Entries by how many tokens they share with `ids`, most first. The more two lists share, the nearer they are in
    /// the order, so this walks from the place of `ids` to both sides.
    pub(crate) fn neighbours<'a>(&'a self, ids: &'a Ids) -> impl Iterator<Item = (usize, &'a Ids, &'a T)> {
        let with_common = |(other, value): (&'a Ids, &'a T)| (ids.common(other), other, value);
        let mut after = self.0.range(ids..).map(with_common).peekable();
        let mut before = self.0.range(..ids).rev().map(with_common).peekable();
        std::iter::from_fn(move || match (after.peek(), before.peek()) {
            (Some((a, ..)), Some((b, ..))) if b > a => before.next(),
            (None, _) => before.next(),
            _ => after.next(),
        })
    }
}

/// Where to resume an entry of which `matched` tokens are wanted: anywhere if its state can be cut, else at the largest
/// of its `points` that is not beyond them.
pub(crate) fn restore_point(
    matched: usize,
    can_cut: bool,
    points: impl Iterator<Item = usize>,
) -> Option<usize> {
    match can_cut {
        true => Some(matched),
        false => points.filter(|point| *point <= matched).max(),
    }
    .filter(|point| *point > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_cannot_be_cut_is_resumed_at_a_boundary_or_not_at_all() {
        let points = [256, 512, 700];
        assert_eq!(restore_point(600, true, points.into_iter()), Some(600));
        assert_eq!(restore_point(600, false, points.into_iter()), Some(512));
        assert_eq!(restore_point(700, false, points.into_iter()), Some(700));
        assert_eq!(restore_point(255, false, points.into_iter()), None);
        assert_eq!(restore_point(0, true, points.into_iter()), None);
    }

    #[test]
    fn lists_are_ordered_as_slices_are() {
        let long: Vec<u32> = (0..800).collect();
        let mut lists: Vec<Vec<u32>> = [0, 1, 255, 256, 257, 511, 512, 513, 800]
            .into_iter()
            .flat_map(|length| {
                [
                    long[..length].to_vec(),
                    [&long[..length], &[0]].concat(),
                    [&long[..length], &[9999, 1]].concat(),
                ]
            })
            .collect();
        lists.sort();
        for a in &lists {
            for b in &lists {
                let (ours, mut theirs) = (Ids::new(a), Ids::new(b));
                for _ in 0..2 {
                    assert_eq!(ours.cmp(&theirs), a.cmp(b));
                    assert_eq!(ours == theirs, a == b);
                    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                    assert_eq!(ours.common(&theirs), common);
                    theirs.share(&ours);
                    assert!(theirs.iter().eq(b.iter().copied()));
                }
            }
        }
    }

    #[test]
    fn neighbours_come_by_common_prefix() {
        let mut map = PrefixMap::default();
        let long: Vec<u32> = (0..1000).collect();
        let list = |common: usize, then: u32| Ids::new(&[&long[..common], &[then]].concat());
        for common in [0, 3, 255, 256, 257, 600, 999] {
            map.insert(list(common, 5000), common);
            map.insert(list(common, 0), common);
        }
        let prompt = Ids::new(&long);
        let found: Vec<usize> = map.neighbours(&prompt).map(|(common, ..)| common).collect();
        assert!(found.is_sorted_by(|a, b| a >= b), "{found:?}");
        assert_eq!(found.len(), 14);
        assert_eq!(found[0], 999);
        assert!(map.neighbours(&prompt).all(|(common, _, value)| common == (*value).max(common)));
    }
}
