//! What may change a row of logits before a token is chosen from it: bias, penalties, masks.
//!
//! Every function is elementwise in `f32`: a logit becomes a function of itself, the parameters and its token's count,
//! by the operations written at the function, each rounded once. No order of tokens can show. Ids that the row does not
//! have are passed over. A NaN stays a NaN, for the sampler to refuse; minus infinity stays minus infinity.

/// Adds `bias` to the logit of each id. Ids must be distinct.
pub fn add_bias(logits: &mut [f32], bias: &[(u32, f32)]) {
    for (id, added) in bias {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit += added;
        }
    }
}

/// Divides positive logits by `penalty` and multiplies the others by it (Keskar et al. 2019, CTRL, as Hugging Face
/// computes it). Ids must be distinct; `penalty` must be finite and positive.
pub fn penalize_repetition(logits: &mut [f32], ids: impl IntoIterator<Item = u32>, penalty: f32) {
    for id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
}

/// Subtracts `frequency * count`, then `presence`, from the logit of each id with its count, which is at least 1
/// (OpenAI's penalties). Ids must be distinct.
pub fn penalize_counts(
    logits: &mut [f32],
    counts: impl IntoIterator<Item = (u32, u32)>,
    presence: f32,
    frequency: f32,
) {
    for (id, count) in counts {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit -= frequency * count as f32;
            *logit -= presence;
        }
    }
}

/// Makes the logits of `ids` minus infinity.
pub fn mask(logits: &mut [f32], ids: &[u32]) {
    for id in ids {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Makes the logits of all ids minus infinity that are not in `allowed`, a set of bits: id `i` is bit `i % 32` of word
/// `i / 32`. Ids beyond the last word are not in it.
pub fn keep_allowed(logits: &mut [f32], allowed: &[u32]) {
    let words = allowed.iter().copied().chain(std::iter::repeat(0));
    for (part, word) in logits.chunks_mut(32).zip(words) {
        match word {
            u32::MAX => {}
            0 => part.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, logit) in part.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// Whether no token is left to choose: every logit is minus infinity.
pub fn all_masked(logits: &[f32]) -> bool {
    logits.iter().all(|logit| *logit == f32::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MASKED: f32 = f32::NEG_INFINITY;

    #[test]
    fn known_rows() {
        let row = [2.0f32, -2.0, 0.0, 1.0, MASKED];
        let changed = |change: &dyn Fn(&mut [f32])| {
            let mut row = row;
            change(&mut row);
            row
        };
        assert_eq!(
            changed(&|row| add_bias(row, &[(1, 5.0), (4, 100.0), (9, 1.0)])),
            [2.0, 3.0, 0.0, 1.0, MASKED]
        );
        assert_eq!(
            changed(&|row| penalize_repetition(row, [0, 1, 2, 4, 9], 2.0)),
            [1.0, -4.0, 0.0, 1.0, MASKED]
        );
        let counts = [(0, 3), (3, 1), (9, 1)];
        assert_eq!(changed(&|row| penalize_counts(row, counts, 0.5, 0.25)), [0.75, -2.0, 0.0, 0.25, MASKED]);
        assert_eq!(changed(&|row| mask(row, &[1, 9])), [2.0, MASKED, 0.0, 1.0, MASKED]);
        assert_eq!(changed(&|row| keep_allowed(row, &[0b10110])), [MASKED, -2.0, 0.0, MASKED, MASKED]);
        assert!(all_masked(&changed(&|row| keep_allowed(row, &[]))));
        assert!(!all_masked(&row) && !all_masked(&[f32::NAN, MASKED]) && all_masked(&[]));
    }

    #[test]
    fn nothing_hides_a_nan() {
        let mut row = [f32::NAN];
        add_bias(&mut row, &[(0, 1.0)]);
        penalize_repetition(&mut row, [0], 1.5);
        penalize_counts(&mut row, [(0, 1)], 1.0, 1.0);
        assert!(row[0].is_nan());
    }

    proptest! {
        #[test]
        fn a_set_of_bits_is_read_bit_by_bit(
            logits in proptest::collection::vec(-9.0f32..9.0, 0..150),
            words in proptest::collection::vec(
                prop_oneof![Just(0), Just(u32::MAX), any::<u32>()], 0..6),
        ) {
            let mut row = logits.clone();
            keep_allowed(&mut row, &words);
            for (id, (after, before)) in row.iter().zip(&logits).enumerate() {
                let allowed = words.get(id / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
                prop_assert_eq!(*after, if allowed { *before } else { MASKED });
            }
        }
    }
}
