//! Which rows the next forward pass has.

/// What a running request could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Tokens that its state does not cover, at least 1: exactly 1 while it decodes.
    pub(super) uncovered: usize,
    /// Most rows that it takes at once.
    pub(super) most: usize,
    /// Whether it stands still for now.
    pub(super) stands_still: bool,
}

/// How many rows each request gets, of `budget` in all; requests are given oldest first.
///
/// Those that decode get their row first, since a reader waits for each of their tokens. What is left goes to prompts,
/// oldest first, so that the oldest is always being read. Where there are more answers than rows, the oldest go on.
pub(super) fn share_out(needs: &[Need], budget: usize) -> Vec<usize> {
    let mut rows = vec![0; needs.len()];
    let mut left = budget;
    // With prompts waiting, decoding never takes the whole budget: a prompt of the oldest request must come to an end.
    let prompts = needs.iter().any(|need| !need.stands_still && need.uncovered > 1);
    let mut decoding = if prompts { budget.saturating_sub(1).max(1) } else { budget };
    for (rows, need) in rows.iter_mut().zip(needs) {
        if need.uncovered == 1 && !need.stands_still && decoding > 0 {
            *rows = 1;
            left -= 1;
            decoding -= 1;
        }
    }
    for (rows, need) in rows.iter_mut().zip(needs) {
        if need.uncovered > 1 && !need.stands_still {
            *rows = need.uncovered.min(need.most).min(left);
            left -= *rows;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(uncovered: usize) -> Need {
        Need { uncovered, most: 512, stands_still: false }
    }

    #[test]
    fn answers_go_first_and_prompts_fill_up() {
        assert_eq!(share_out(&[need(1), need(600), need(1), need(30)], 512), [1, 510, 1, 0]);
        assert_eq!(share_out(&[need(20), need(600), need(1)], 64), [20, 43, 1]);
        assert_eq!(share_out(&[], 64), [0; 0]);
    }

    #[test]
    fn a_prompt_is_read_even_behind_many_answers() {
        let rows = share_out(&[need(1), need(1), need(1), need(9)], 3);
        assert_eq!(rows, [1, 1, 0, 1]);
        // With one row in all the answer that is being written goes first.
        assert_eq!(share_out(&[need(9), need(1)], 1), [0, 1]);
    }

    #[test]
    fn who_stands_still_gets_nothing() {
        let still = Need { stands_still: true, ..need(40) };
        assert_eq!(share_out(&[still, need(5)], 16), [0, 5]);
        assert_eq!(share_out(&[Need { uncovered: 1, ..still }, need(5)], 16), [0, 5]);
    }

    #[test]
    fn chunks_are_bounded() {
        assert_eq!(share_out(&[Need { most: 4, ..need(10) }, need(10)], 16), [4, 10]);
    }
}
