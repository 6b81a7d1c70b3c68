//! Pages against a plain copy of what was pushed.

use super::{KvDecodeError, KvPage, KvShape, KvType};
use half::{bf16, f16};
use proptest::prelude::*;

const SHAPE: KvShape = KvShape { kv_heads: 2, key_dim: 36, value_dim: 21 };

/// `count` positions of different numbers, from `first` on.
fn rows(first: usize, count: usize) -> (Vec<f32>, Vec<f32>) {
    let number = |i: usize| ((i * 7919) % 2003) as f32 / 501.0 - 2.0;
    let keys = first * SHAPE.key_width()..(first + count) * SHAPE.key_width();
    let values = first * SHAPE.value_width()..(first + count) * SHAPE.value_width();
    (keys.map(number).collect(), values.map(|i| number(i + 1_000_003)).collect())
}

fn page(ty: KvType, len: usize) -> KvPage {
    let mut page = KvPage::new(SHAPE, ty);
    let (keys, values) = rows(0, len);
    page.push(&keys, &values);
    page
}

fn bytes_of(page: &KvPage) -> Vec<u8> {
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    bytes
}

/// One row of a head rounded as section 9 of the plan says, with its scale by column where there is one.
fn rounded(row: &[f32], ty: KvType) -> Vec<(f32, Option<f32>)> {
    match ty {
        KvType::F32 => row.iter().map(|x| (*x, None)).collect(),
        KvType::F16 => row.iter().map(|x| (f16::from_f32(*x).to_f32(), None)).collect(),
        KvType::Bf16 => row.iter().map(|x| (bf16::from_f32(*x).to_f32(), None)).collect(),
        KvType::Int8 => row
            .chunks(32)
            .flat_map(|block| {
                let scale = block.iter().fold(0.0f32, |max, x| max.max(x.abs())) / 127.0;
                block.iter().map(move |x| ((x * (1.0 / scale)).round_ties_even(), Some(scale)))
            })
            .collect(),
    }
}

#[test]
fn stores_every_number_rounded_once() {
    for ty in KvType::ALL {
        let page = page(ty, 37);
        let (keys, values) = rows(0, 37);
        for (position, head) in (0..37).flat_map(|p| [(p, 0), (p, 1)]) {
            let key = &keys[position * 72 + head * 36..][..36];
            let value = &values[position * 42 + head * 21..][..21];
            for (pushed, (stored, scales)) in
                [(key, page.key(position, head)), (value, page.value(position, head))]
            {
                let by_column =
                    stored.iter().enumerate().map(|(c, x)| (*x, scales.as_ref().map(|s| s[c / 32])));
                assert_eq!(by_column.collect::<Vec<_>>(), rounded(pushed, ty), "{ty} at {position}");
            }
        }
    }
}

#[test]
fn int8_keeps_tiny_blocks_as_zeros_and_shows_poison() {
    let shape = KvShape::uniform(1, 32);
    let stored = |x: f32| {
        let mut page = KvPage::new(shape, KvType::Int8);
        let mut row = [0.0; 32];
        row[3] = x;
        page.push(&row, &row);
        let (key, scales) = page.key(0, 0);
        (key[3], scales.unwrap()[0])
    };
    let smallest = f32::from_bits(27 << 23);
    assert_eq!(stored(smallest), (127.0, smallest / 127.0));
    assert_eq!(stored(-f32::from_bits(smallest.to_bits() - 1)), (0.0, 0.0));
    assert_eq!(stored(f32::MIN), (-127.0, f32::MAX / 127.0));
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (key, scale) = stored(poison);
        assert!(key == 0.0 && scale.is_nan());
    }
}

#[test]
fn one_by_one_is_at_once() {
    for ty in KvType::ALL {
        let at_once = page(ty, 256);
        for piece in [1, 3, 16, 17, 100] {
            let mut grown = KvPage::new(SHAPE, ty);
            for first in (0..256).step_by(piece) {
                let (keys, values) = rows(first, piece.min(256 - first));
                grown.push(&keys, &values);
            }
            assert_eq!(grown, at_once);
        }
    }
}

#[test]
fn memory_grows_with_the_positions() {
    for ty in KvType::ALL {
        let full = KvPage::full_bytes(SHAPE, ty);
        assert_eq!(KvPage::new(SHAPE, ty).bytes(), 0);
        assert_eq!(page(ty, 1).bytes(), full / 16);
        assert_eq!(page(ty, 256).bytes(), full);
        let mut grown = page(ty, 1);
        for position in 1..256 {
            let (keys, values) = rows(position, 1);
            grown.push(&keys, &values);
            assert!(grown.bytes() <= full && grown.bytes() * 2 >= full * position / 256);
        }
        assert_eq!(grown.bytes(), full);
    }
    assert_eq!(KvPage::full_bytes(KvShape::uniform(usize::MAX, usize::MAX), KvType::Int8), usize::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn truncating_is_never_having_pushed(
        ty in prop::sample::select(KvType::ALL.to_vec()),
        steps in prop::collection::vec((0usize..60, 0usize..=256), 1..6),
    ) {
        let mut changed = KvPage::new(SHAPE, ty);
        for (count, keep) in steps {
            let copy = changed.clone();
            let before = changed.len();
            let (keys, values) = rows(before, count.min(changed.room()));
            changed.push(&keys, &values);
            changed.truncate(keep);
            prop_assert_eq!(&changed, &page(ty, changed.len()));
            prop_assert_eq!(bytes_of(&changed), bytes_of(&page(ty, changed.len())));
            prop_assert_eq!(copy, page(ty, before));
        }
    }

    #[test]
    fn bytes_come_back(ty in prop::sample::select(KvType::ALL.to_vec()), len in 0usize..=256) {
        let page = page(ty, len);
        let bytes = bytes_of(&page);
        let decoded = KvPage::decode(SHAPE, ty, &bytes).unwrap();
        prop_assert_eq!(&decoded, &page);
        prop_assert_eq!(bytes_of(&decoded), bytes);
    }

    #[test]
    fn any_bytes_are_a_page_or_an_error(
        ty in prop::sample::select(KvType::ALL.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        if let Ok(page) = KvPage::decode(SHAPE, ty, &bytes) {
            prop_assert_eq!(bytes_of(&page), bytes);
        }
    }
}

#[test]
fn bad_bytes_are_refused_with_the_reason() {
    let bytes = bytes_of(&page(KvType::F16, 20));
    let error = KvPage::decode(SHAPE, KvType::F16, &bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "4559 bytes are no page of f16 keys and values: each position takes 228 bytes (2 heads, keys of 36 and \
         values of 21 columns)"
    );
    let error = KvPage::decode(SHAPE, KvType::F16, &vec![0; 228 * 257]).unwrap_err();
    assert_eq!(error.to_string(), "257 positions are more than the 256 of a page");
    let empty = KvShape::uniform(0, 64);
    assert!(matches!(KvPage::decode(empty, KvType::F32, &[]), Err(KvDecodeError::EmptyShape { .. })));
    let absurd = KvShape::uniform(usize::MAX, usize::MAX);
    assert!(matches!(KvPage::decode(absurd, KvType::Int8, &[1]), Err(KvDecodeError::Length { .. })));
}

#[test]
fn types_have_names() {
    for ty in KvType::ALL {
        assert_eq!(ty.to_string().parse(), Ok(ty));
    }
    let error = "q8".parse::<KvType>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "no type of stored keys and values is called \"q8\": expected f16, bf16, f32 or int8"
    );
}
