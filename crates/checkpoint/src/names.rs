//! Looking things up by name: a sorted index over names that live elsewhere, and names that resemble a wrong one.

/// Positions of a list, sorted by the name at each position. Four bytes per name, so that a file full of tiny names
/// cannot make the index much larger than itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameIndex {
    sorted: Vec<u32>,
}

impl NameIndex {
    /// Indexes the names `name(0) .. name(count - 1)`.
    ///
    /// Two positions with the same name are an error: the smaller and the larger position.
    pub(crate) fn build<'a>(count: usize, name: impl Fn(usize) -> &'a str) -> Result<Self, (usize, usize)> {
        // A file cannot hold 2^32 named things within limits checked before; if it could, the rest stays unindexed.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut sorted: Vec<u32> = (0..count).collect();
        sorted.sort_unstable_by(|&a, &b| name(a as usize).cmp(name(b as usize)).then(a.cmp(&b)));
        for pair in sorted.windows(2) {
            let (first, second) = (pair[0] as usize, pair[1] as usize);
            if name(first) == name(second) {
                return Err((first, second));
            }
        }
        Ok(Self { sorted })
    }

    /// Position of `wanted`.
    pub(crate) fn find<'a>(&self, wanted: &str, name: impl Fn(usize) -> &'a str) -> Option<usize> {
        let at = self.sorted.binary_search_by(|&position| name(position as usize).cmp(wanted)).ok()?;
        Some(self.sorted[at] as usize)
    }
}

/// Up to three of `names` that resemble `wanted`: those with the longest common beginning and end.
pub(crate) fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut best: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let common = wanted.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let rest = wanted.len().min(name.len()) - common;
        let ending =
            wanted.bytes().rev().zip(name.bytes().rev()).take(rest).take_while(|(a, b)| a == b).count();
        let score = common + ending;
        if 2 * score < wanted.len() {
            continue;
        }
        best.push((score, name));
        best.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        best.truncate(3);
    }
    best.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_and_duplicates() {
        let names = ["b", "a", "c"];
        let index = NameIndex::build(3, |i| names[i]).unwrap();
        assert_eq!(index.find("a", |i| names[i]), Some(1));
        assert_eq!(index.find("d", |i| names[i]), None);
        let names = ["b", "a", "b"];
        assert_eq!(NameIndex::build(3, |i| names[i]).unwrap_err(), (0, 2));
    }

    #[test]
    fn near_names_share_beginning_and_end() {
        let names = ["model.layers.0.q_proj.weight", "model.layers.10.q_proj.weight", "lm_head.weight"];
        let found = near("model.layers.00.q_proj.weight", names.into_iter());
        assert_eq!(found, [names[0], names[1]]);
        assert!(near("zzz", names.into_iter()).is_empty());
    }
}
