//! Stop sequences over streamed text.

use proptest::prelude::*;
use samebit_text::{StopError, StopStrings};

fn matcher(stops: &[&str]) -> StopStrings {
    StopStrings::new(&stops.iter().map(|stop| (*stop).to_owned()).collect::<Vec<_>>()).expect("usable")
}

/// The text that comes out of `pieces`, and the sequence that stopped it.
fn run<'a>(stops: &[&str], pieces: impl IntoIterator<Item = &'a str>) -> (String, Option<usize>) {
    let mut stop = matcher(stops);
    let mut text = String::new();
    for piece in pieces {
        let (emit, matched) = stop.push(piece);
        text.push_str(&emit);
        if matched.is_some() {
            assert_eq!(stop.push("more"), (String::new(), None), "nothing comes after a stop");
            return (text, matched);
        }
    }
    let (emit, matched) = stop.finish();
    (text + &emit, matched)
}

/// The same, by definition: earliest, then longest.
fn expected(stops: &[&str], text: &str) -> (String, Option<usize>) {
    let found = stops
        .iter()
        .enumerate()
        .filter_map(|(index, stop)| Some((text.find(stop)?, usize::MAX - stop.len(), index)));
    match found.min() {
        Some((at, _, index)) => (text[..at].to_owned(), Some(index)),
        None => (text.to_owned(), None),
    }
}

#[test]
fn the_earliest_wins_then_the_longest() {
    assert_eq!(run(&["b", "abc"], ["xxabcd"]), ("xx".to_owned(), Some(1)));
    assert_eq!(run(&["ab", "abc"], ["xab", "cd"]), ("x".to_owned(), Some(1)));
    assert_eq!(run(&["ab", "abc"], ["xab", "dd"]), ("x".to_owned(), Some(0)));
    assert_eq!(run(&["ab", "abc"], ["xab"]), ("x".to_owned(), Some(0)));
    assert_eq!(run(&["\n\n"], ["a\n", "b\n", "\nc"]), ("a\nb".to_owned(), Some(0)));
    assert_eq!(run(&["aab"], ["a", "a", "a", "b"]), ("a".to_owned(), Some(0)));
    assert_eq!(run(&["é"], ["è", "é"]), ("è".to_owned(), Some(0)));
    assert_eq!(run(&[], ["a", "b"]), ("ab".to_owned(), None));
}

#[test]
fn text_is_held_back_only_while_it_may_be_a_stop() {
    let mut stop = matcher(&["END"]);
    assert_eq!(stop.push("the E"), ("the ".to_owned(), None));
    assert_eq!(stop.push("N"), (String::new(), None));
    assert_eq!(stop.push("T"), ("ENT".to_owned(), None));
    assert_eq!(stop.push("EN"), (String::new(), None));
    assert_eq!(stop.finish(), ("EN".to_owned(), None));
}

#[test]
fn unusable_sequences_are_refused() {
    let new = |stops: Vec<String>| StopStrings::new(&stops).expect_err("refused");
    assert_eq!(new(vec!["a".into(); 17]), StopError::TooMany(17));
    assert_eq!(new(vec!["a".into(), String::new()]), StopError::Empty(1));
    assert_eq!(new(vec!["a".repeat(257)]), StopError::TooLong { index: 0, bytes: 257 });
}

proptest! {
    #[test]
    fn any_cut_gives_what_the_whole_text_gives(
        stops in prop::collection::vec("[abé]{1,4}", 0..4),
        text in "[abcéè]{0,24}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.retain(|&place| text.is_char_boundary(place));
        places.extend([0, text.len()]);
        places.sort_unstable();
        let pieces = places.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(run(&stops, pieces), expected(&stops, &text));
    }
}
