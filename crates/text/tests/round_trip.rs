//! Any text survives encoding and decoding, and a stream is its whole in pieces.

mod support;

use proptest::prelude::*;
use samebit_text::{Special, StreamDecoder, Tokenizer};
use std::sync::LazyLock;
use support::fixture;

/// The three tokenizers, and whether they keep every text as it is (NFC composes characters).
static TOKENIZERS: LazyLock<[(Tokenizer, bool); 3]> = LazyLock::new(|| {
    [("byte-fallback", true), ("byte-level-digit1-bos", true), ("byte-level-nfc-digits3", false)].map(
        |(name, keeps_all)| {
            let folder = fixture("text/tokenizers").join(name);
            (Tokenizer::from_folder(&folder).expect(name), keeps_all)
        },
    )
});

/// Text as people, programs and attackers write it: any characters, and much of what tokenizers treat specially.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "\\PC{0,12}",
        any::<String>(),
        "[ \\t\\r\\n]{1,9}",
        "[0-9]{1,7}",
        Just("\u{e9}e\u{301}".to_owned()),
        Just("\u{1f468}\u{200d}\u{1f469}".to_owned()),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

fn streamed(mut stream: StreamDecoder, ids: &[u32]) -> String {
    let mut text = String::new();
    for id in ids {
        text += &stream.push(*id).unwrap();
    }
    text + &stream.flush()
}

proptest! {
    #[test]
    fn text_survives(text in any_text()) {
        for (tokenizer, keeps_all) in TOKENIZERS.iter() {
            let ids = tokenizer.encode(&text, Special::AsText).unwrap();
            let decoded = tokenizer.decode(&ids, false).unwrap();
            if *keeps_all {
                // U+2581 is how this kind of vocabulary writes a space; no such tokenizer gives it back.
                let spelled = if tokenizer.vocabulary_size() == 448 { text.replace('\u{2581}', " ") } else { text.clone() };
                prop_assert_eq!(&decoded, &spelled);
            } else {
                let again = tokenizer.encode(&decoded, Special::AsText).unwrap();
                prop_assert_eq!(&again, &ids, "composed text must be stable");
            }
        }
    }

    #[test]
    fn streams_join_to_the_whole(ids in prop::collection::vec(0u32..384, 0..40), skip_special: bool) {
        for (tokenizer, _) in TOKENIZERS.iter() {
            let whole = tokenizer.decode(&ids, skip_special).unwrap();
            prop_assert_eq!(streamed(StreamDecoder::new(tokenizer, skip_special), &ids), whole);
        }
    }

    #[test]
    fn chunks_of_a_text_are_never_half_characters(text in any_text()) {
        for (tokenizer, keeps_all) in TOKENIZERS.iter() {
            let ids = tokenizer.encode(&text, Special::AsText).unwrap();
            let mut stream = StreamDecoder::new(tokenizer, false);
            for id in &ids {
                let chunk = stream.push(*id).unwrap();
                let bad = chunk.contains(char::REPLACEMENT_CHARACTER) && !text.contains(char::REPLACEMENT_CHARACTER);
                prop_assert!(!(bad && *keeps_all), "half a character in {:?}", chunk);
            }
            prop_assert_eq!(stream.flush(), "");
        }
    }
}
