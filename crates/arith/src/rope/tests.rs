use super::*;
use crate::double::{self, Llama3Scaling, YarnScaling};
use crate::testing::{any_rows, assert_same_bits, every_cpu};
use proptest::prelude::*;

#[track_caller]
fn assert_close(found: &RopeFrequencies, expected: &[f64]) {
    assert_eq!(found.inverse.len(), expected.len());
    for (found, expected) in found.inverse.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-14 * expected, "{found} is not {expected}");
    }
}

// The expected frequencies come from a NumPy rendering of transformers' formulas in binary64.

#[test]
fn plain_and_linear_frequencies() {
    let plain = RopeFrequencies::plain(8, 10000.0);
    assert_close(&plain, &[1.0, 0.1, 0.01, 0.001]);
    assert_eq!(plain.attention_factor, 1.0);
    assert_close(&plain.linear(4.0), &[0.25, 0.025, 0.0025, 0.00025]);
}

#[test]
fn llama3_frequencies() {
    let scaling =
        Llama3Scaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    assert_close(
        &RopeFrequencies::plain(16, 500_000.0).llama3(scaling),
        &[
            1.0,
            0.19392274474868576,
            0.03760603093086393,
            0.0072926647372171085,
            0.0005248461609929547,
            3.428102195952591e-05,
            6.647869871181236e-06,
            1.2891731721515574e-06,
        ],
    );
    let scaling = Llama3Scaling { factor: 4.0, original_context: 64.0, ..scaling };
    assert_close(
        &RopeFrequencies::plain(16, 10_000.0).llama3(scaling),
        &[
            1.0,
            0.25464790894703254,
            0.025464790894703257,
            0.007905694150420948,
            0.0025,
            0.0007905694150420947,
            0.00025,
            7.905694150420948e-05,
        ],
    );
}

#[test]
fn yarn_frequencies() {
    let scaling = YarnScaling {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 4096.0,
        attention_factor: YarnScaling::default_attention_factor(4.0, 1.0),
        truncate: true,
    };
    let yarn = RopeFrequencies::yarn(16, 10_000.0, scaling);
    assert!((yarn.attention_factor - 1.138629436111989).abs() < 1e-15);
    assert_close(
        &yarn,
        &[
            1.0,
            0.31622776601683794,
            0.1,
            0.02569350598886808,
            0.00625,
            0.0013834964763236662,
            0.00025,
            7.905694150420948e-05,
        ],
    );
    let scaling = YarnScaling { factor: 32.0, truncate: false, ..scaling };
    assert_close(
        &RopeFrequencies::yarn(16, 150_000.0, scaling),
        &[
            1.0,
            0.2254180002028708,
            0.050813274815461475,
            0.006794959489732219,
            0.00045648391922324086,
            1.818833668168956e-05,
            4.0999784818029795e-06,
            9.242089502428301e-07,
        ],
    );
}

#[test]
fn yarn_with_an_empty_ramp_is_a_step() {
    // Both ends of the ramp are pair 2.5, so that the ramp would divide by zero.
    let scaling = YarnScaling {
        factor: 2.0,
        beta_fast: 1.0,
        beta_slow: 1.0,
        original_context: 2.0 * std::f64::consts::PI * 10f64.powf(2.5),
        attention_factor: 1.0,
        truncate: false,
    };
    let yarn = RopeFrequencies::yarn(8, 10_000.0, scaling);
    assert!(yarn.inverse.iter().all(|inverse| inverse.is_finite()));
    assert_close(&yarn, &[1.0, 0.1, 0.01, 0.0005]);
}

#[test]
fn factors_divide_each_frequency() {
    let frequencies = RopeFrequencies::plain(8, 10000.0).with_factors(&[1.0, 2.0, 4.0, 8.0]);
    assert_close(&frequencies, &[1.0, 0.05, 0.0025, 0.000125]);
}

#[test]
fn angles_are_rounded_once() {
    let frequencies = RopeFrequencies { attention_factor: 1.25, ..RopeFrequencies::plain(8, 10000.0) };
    let positions = [0, 1, 7, 131_071, 10_000_000];
    let angles = RopeAngles::new(&frequencies, &positions);
    assert_eq!((angles.positions(), angles.rotary_dim()), (5, 8));
    for (row, &position) in positions.iter().enumerate() {
        let (cos, sin) = angles.row(row);
        for (i, inverse) in frequencies.inverse.iter().enumerate() {
            let angle = position as f64 * inverse;
            assert_eq!(cos[i], (1.25 * libm::cos(angle)) as f32);
            assert_eq!(sin[i], (1.25 * libm::sin(angle)) as f32);
        }
    }
}

/// Section 7 of the plan, word for word.
fn definition(x: &mut [f32], head_dim: usize, positions: &[usize], angles: &RopeAngles, layout: RopeLayout) {
    let width = x.len() / positions.len();
    for (position, row) in x.chunks_mut(width).enumerate() {
        let (cos, sin) = angles.row(position);
        for head in row.chunks_mut(head_dim) {
            for i in 0..cos.len() {
                let (first, second) = match layout {
                    RopeLayout::Adjacent => (2 * i, 2 * i + 1),
                    RopeLayout::Halves => (i, i + cos.len()),
                };
                let (a, b) = (head[first], head[second]);
                head[first] = a.mul_add(cos[i], -(b * sin[i]));
                head[second] = b.mul_add(cos[i], a * sin[i]);
            }
        }
    }
}

/// Rows, heads, head size and rotated size.
fn any_shape() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    (1usize..4, 1usize..4, 0usize..40, 0usize..5)
        .prop_map(|(rows, heads, pairs, rest)| (rows, heads, (2 * pairs + rest).max(1), 2 * pairs))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn heads_turn_as_the_plan_says(
        (shape, x) in any_shape().prop_flat_map(|shape| (Just(shape), any_rows(shape.0 * shape.1, shape.2))),
        positions in prop::collection::vec(0usize..200_000, 3),
    ) {
        let (rows, heads, head_dim, rotary_dim) = shape;
        let positions = &positions[..rows];
        let angles = RopeAngles::new(&RopeFrequencies::plain(rotary_dim, 10000.0), positions);
        for layout in [RopeLayout::Adjacent, RopeLayout::Halves] {
            let mut expected = x.clone();
            definition(&mut expected, head_dim, positions, &angles, layout);
            for cpu in every_cpu() {
                let mut found = x.clone();
                cpu.rope(&mut found, heads, head_dim, &angles, layout);
                assert_same_bits(&found, &expected, "rotated heads");
            }
        }
    }
}

#[test]
fn no_positions_and_no_rotation() {
    let plain = RopeFrequencies::plain(4, 10000.0);
    for cpu in every_cpu() {
        cpu.rope(&mut [], 2, 4, &RopeAngles::new(&plain, &[]), RopeLayout::Halves);
        let mut x = [1.0, 2.0, 3.0, 4.0];
        let none = RopeAngles::new(&RopeFrequencies::plain(0, 10000.0), &[5]);
        cpu.rope(&mut x, 1, 4, &none, RopeLayout::Halves);
        assert_eq!(x, [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn rotation_is_near_the_truth() {
    let scaling = YarnScaling {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 4096.0,
        attention_factor: 1.1,
        truncate: true,
    };
    let angles = RopeAngles::new(&RopeFrequencies::yarn(64, 10000.0, scaling), &[12345]);
    let x: Vec<f32> = (0..64).map(|k| (k as f32 - 31.5) / 16.0).collect();
    let mut truth: Vec<f64> = x.iter().copied().map(f64::from).collect();
    double::Rope::new(64, 10000.0, double::RopeScaling::Yarn(scaling)).rotate(&mut truth, 12345);
    for cpu in every_cpu() {
        let mut found = x.clone();
        cpu.rope(&mut found, 1, 64, &angles, RopeLayout::Halves);
        for (found, truth) in found.iter().zip(&truth) {
            assert!((f64::from(*found) - truth).abs() < 1e-6, "{found} for {truth}");
        }
    }
}

#[test]
#[should_panic(expected = "one row of 2 heads of 4 per position")]
fn shapes_must_agree() {
    let angles = RopeAngles::new(&RopeFrequencies::plain(4, 10000.0), &[0]);
    every_cpu().next().unwrap().rope(&mut [0.0; 9], 2, 4, &angles, RopeLayout::Halves);
}
