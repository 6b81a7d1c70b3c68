//! Products: against exact products within the bounds of PLAN.md, and bit for bit between every way to compute them.

mod bounds;
mod paths;
mod samples;
mod tiles;

/// Equal bits, all NaNs being one value.
fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{what}, element {k}: {found:e}, expected {expected:e}");
    }
}
