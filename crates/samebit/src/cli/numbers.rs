//! Lists of numbers on the command line, each with its bounds.

use std::str::FromStr;

/// Most numbers in one list. Longer ones belong into a file.
const LONGEST_LIST: usize = 1 << 20;

/// Token ids: `1,2,3`. Spaces around the numbers are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenIds(pub(crate) Vec<u32>);

impl FromStr for TokenIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        list(text, "token id", "a number from 0 to 4294967295").map(Self)
    }
}

/// Lengths of pieces, each at least 1: `10,1,1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces(pub(crate) Vec<usize>);

impl FromStr for Pieces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pieces: Vec<usize> = list(text, "piece", "a number of at least 1")?;
        match pieces.iter().position(|piece| *piece == 0) {
            Some(index) => Err(format!("piece {} is 0: expected a number of at least 1", index + 1)),
            None => Ok(Self(pieces)),
        }
    }
}

/// Counts to try one after the other, each from 1 to 4096: `1,2,4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts(pub(crate) Vec<usize>);

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "a number from 1 to 4096";
        let counts: Vec<usize> = list(text, "count", EXPECTED)?;
        match counts.iter().find(|count| !(1..=4096).contains(*count)) {
            Some(count) => Err(format!("count {count} is out of range: expected {EXPECTED}")),
            None => Ok(Self(counts)),
        }
    }
}

/// Numbers of tokens to try one after the other, zero included: `0,512,2048`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Depths(pub(crate) Vec<usize>);

impl FromStr for Depths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        list(text, "depth", "a number of at least 0").map(Self)
    }
}

fn list<T: FromStr>(text: &str, item: &str, expected: &str) -> Result<Vec<T>, String> {
    let length = text.split(',').count();
    if length > LONGEST_LIST {
        return Err(format!("{length} numbers: expected at most {LONGEST_LIST}"));
    }
    text.split(',')
        .enumerate()
        .map(|(index, number)| {
            let number = number.trim();
            number.parse().map_err(|_| format!("{item} {} is {number:?}: expected {expected}", index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ids() {
        assert_eq!("1,2, 33".parse(), Ok(TokenIds(vec![1, 2, 33])));
        assert_eq!("4294967295".parse(), Ok(TokenIds(vec![u32::MAX])));
        for wrong in ["", "1,", ",1", "1,,2", "-1", "4294967296", "1.5", "x"] {
            let error = wrong.parse::<TokenIds>().unwrap_err();
            assert!(error.contains("expected a number from 0"), "{wrong}: {error}");
        }
    }

    #[test]
    fn pieces_and_counts_have_bounds() {
        assert_eq!("10,1,1".parse(), Ok(Pieces(vec![10, 1, 1])));
        assert!("10,0,1".parse::<Pieces>().unwrap_err().contains("piece 2"));
        assert_eq!("1,4".parse(), Ok(Counts(vec![1, 4])));
        assert_eq!("0,512".parse(), Ok(Depths(vec![0, 512])));
        assert!("-1".parse::<Depths>().unwrap_err().contains("depth 1"));
        assert!("0".parse::<Counts>().is_err() && "4097".parse::<Counts>().is_err());
    }
}
