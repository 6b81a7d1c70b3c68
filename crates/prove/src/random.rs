//! Reproducible random choices: all of them follow from one seed.

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of a purpose. Purposes do not disturb each other.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mut random = Self(seed);
        for byte in purpose.bytes() {
            random.0 = random.bits() ^ u64::from(byte);
        }
        random
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A whole number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// A whole number in `least..=most`.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// One of a list that is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A number in `-1 .. 1`.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Random bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// Numbers as activations are: most of them small, now and then a large one.
    pub(crate) fn activations(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| {
                let x = 2.0 * self.signed() * self.signed();
                if self.below(64) == 0 { 20.0 * x } else { x }
            })
            .collect()
    }

    /// Rows of activations. The fourth row, and every eighth from there on, also holds what sums are sensitive to: zeros
    /// of both signs, subnormals, the very small and the very large.
    pub(crate) fn rows(&mut self, rows: usize, width: usize) -> Vec<f32> {
        const EXTREMES: [f32; 8] = [0.0, -0.0, 1e-45, -1e-40, f32::MIN_POSITIVE, -1e-20, 1e9, -3e8];
        let mut all = self.activations(rows * width);
        for row in all.chunks_exact_mut(width.max(1)).skip(3).step_by(8) {
            for x in row.iter_mut().step_by(3) {
                *x = self.pick(&EXTREMES);
            }
        }
        all
    }

    /// `total` as a sum of random pieces, each from 1 to `most`.
    pub(crate) fn pieces(&mut self, total: usize, most: usize) -> Vec<usize> {
        let mut pieces = Vec::new();
        let mut left = total;
        while left > 0 {
            // Half of the pieces are short, as decode and verify rows are.
            let most = if self.below(2) == 0 { most.min(4) } else { most };
            let piece = self.between(1, most.min(left));
            pieces.push(piece);
            left -= piece;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn streams_follow_from_seed_and_purpose() {
        let first = |seed, purpose| Random::new(seed, purpose).bits();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }

    #[test]
    fn pieces_add_up() {
        let mut random = Random::new(7, "pieces");
        for total in [1, 2, 77, 300] {
            let pieces = random.pieces(total, 40);
            assert_eq!(pieces.iter().sum::<usize>(), total);
            assert!(pieces.iter().all(|piece| (1..=40).contains(piece)));
        }
    }
}
