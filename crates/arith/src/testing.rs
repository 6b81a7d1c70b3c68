//! What the tests of several operations need.

use crate::cpu::{Cpu, Isa};
use proptest::prelude::*;

/// Every instruction set of this processor with 1, 2 and 3 threads. The first is the scalar one on one thread.
pub(crate) fn every_cpu() -> impl Iterator<Item = Cpu> {
    let isas = Isa::ALL.into_iter().filter(|isa| isa.is_available());
    isas.flat_map(|isa| {
        (1..=3).map(move |threads| Cpu::new(isa, threads).expect("an available instruction set"))
    })
}

/// Fails unless both have equal bits, where any NaN equals any other.
#[track_caller]
pub(crate) fn assert_same_bits(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{what}, element {k}: {found:e} is not {expected:e}");
    }
}

/// Mostly what activations look like, at times anything: zeros of both signs, subnormals, huge, infinite, NaN.
pub(crate) fn any_activation() -> impl Strategy<Value = f32> {
    prop_oneof![
        40 => -8.0f32..8.0,
        4 => -1e-3f32..1e-3,
        2 => prop::sample::select(&[0.0, -0.0, 1e-45, -1e-40, 1e18, -3e38, f32::MIN_POSITIVE][..]),
        1 => any::<u32>().prop_map(f32::from_bits),
    ]
}

/// `rows` rows of `width`, in whole or without anything extreme, whichever the case draws.
pub(crate) fn any_rows(rows: usize, width: usize) -> impl Strategy<Value = Vec<f32>> {
    let length = rows * width;
    prop_oneof![prop::collection::vec(-4.0f32..4.0, length), prop::collection::vec(any_activation(), length),]
}
