use super::*;
use crate::cpu::Isa;
use crate::testing::{assert_same_bits, every_cpu};

/// A function under test and its truth in binary64, which no code is shared with.
struct Case {
    name: &'static str,
    map: fn(&Cpu, &mut [f32]),
    truth: fn(f64) -> f64,
    /// Largest error in units in the last place.
    bound: f64,
}

const CASES: [Case; 7] = [
    Case { name: "exp", map: Cpu::exp, truth: libm::exp, bound: 1.0 },
    Case { name: "sigmoid", map: Cpu::sigmoid, truth: |x| 1.0 / (1.0 + libm::exp(-x)), bound: 0.51 },
    Case { name: "silu", map: Cpu::silu, truth: |x| x / (1.0 + libm::exp(-x)), bound: 0.51 },
    Case { name: "softplus", map: Cpu::softplus, truth: softplus, bound: 0.51 },
    Case { name: "gelu_tanh", map: Cpu::gelu_tanh, truth: gelu_tanh, bound: 0.51 },
    Case { name: "tanh", map: Cpu::tanh, truth: libm::tanh, bound: 0.51 },
    Case { name: "ln", map: Cpu::ln, truth: libm::log, bound: 0.51 },
];

fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

/// `x / 2 (1 + tanh z)` without the cancellation at negative `z`.
fn gelu_tanh(x: f64) -> f64 {
    let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    x / (1.0 + libm::exp(-2.0 * z))
}

/// Distance in spacings of binary32 at `truth`. Infinity counts as 2^128.
fn ulps(y: f32, truth: f64) -> f64 {
    if y.is_nan() || truth.is_nan() {
        return if y.is_nan() && truth.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let finite = |x: f64| x.clamp(-(2f64.powi(128)), 2f64.powi(128));
    let exponent = ((truth.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (finite(f64::from(y)) - finite(truth)).abs() / 2f64.powi(exponent - 23)
}

/// Every binary16 and every bfloat16 value: finite, infinite and NaN.
fn every_sixteen_bit_float() -> Vec<f32> {
    let half = (0..=u16::MAX).map(|bits| half::f16::from_bits(bits).to_f32());
    half.chain((0..=u16::MAX).map(|bits| half::bf16::from_bits(bits).to_f32())).collect()
}

fn mapped(case: &Case, cpu: &Cpu, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    (case.map)(cpu, &mut y);
    y
}

#[test]
fn every_sixteen_bit_input_is_near_the_truth() {
    let x = every_sixteen_bit_float();
    assert_eq!(x.iter().filter(|x| x.is_finite()).count(), 63_488 + 65_280);
    let cpu = Cpu::new(Isa::detect(), 1).unwrap();
    for case in &CASES {
        for (&x, y) in x.iter().zip(mapped(case, &cpu, &x)) {
            if x.is_finite() {
                let error = ulps(y, (case.truth)(f64::from(x)));
                assert!(error <= case.bound, "{}({x:e}) = {y:e} is {error} ulp off", case.name);
            }
        }
    }
}

#[test]
fn every_sixteen_bit_input_gives_the_same_bits_everywhere() {
    let x = every_sixteen_bit_float();
    let definition = Cpu::new(Isa::Scalar, 1).unwrap();
    for case in &CASES {
        let expected = mapped(case, &definition, &x);
        for cpu in every_cpu() {
            let what = format!("{} on {}, {} threads", case.name, cpu.isa(), cpu.threads());
            assert_same_bits(&mapped(case, &cpu, &x), &expected, &what);
        }
    }
}

#[test]
fn values_computed_with_400_digits() {
    let x = [-100.0, -87.5, -5.25, -1.1, -0.01, 1e-5, 0.003, 0.7, 3.3, 17.0];
    let expected: [(&str, [f64; 10]); 6] = [
        (
            "exp",
            [
                3.720075976020836e-44,
                9.982350930569248e-39,
                0.005247518399181385,
                0.33287107576181457,
                0.9900498339704614,
                1.0000100000497476,
                1.0030045045295324,
                2.0137526834646735,
                27.112637627826548,
                24154952.7535753,
            ],
        ),
        (
            "sigmoid",
            [
                3.720075976020836e-44,
                9.982350930569248e-39,
                0.005220125693558397,
                0.24973988993763638,
                0.49750002088900297,
                0.5000024999999368,
                0.5007499994440198,
                0.6681877695251427,
                0.964428809091532,
                0.9999999586006245,
            ],
        ),
        (
            "silu",
            [
                -3.720075976020836e-42,
                -8.734557064248092e-37,
                -0.027405659891181586,
                -0.274713884885663,
                -0.00497500009769011,
                5.000024873688112e-06,
                0.001502250011390133,
                0.46773143070218093,
                3.182615024014506,
                16.999999296210618,
            ],
        ),
        (
            "softplus",
            [
                3.720075976020836e-44,
                9.982350930569248e-39,
                0.005233798151743032,
                0.2873353191611678,
                0.6881596806190623,
                0.693152180572319,
                0.6946483055725815,
                1.103186040920039,
                3.33621921288311,
                17.000000041399375,
            ],
        ),
        (
            "gelu_tanh",
            [
                0.0,
                0.0,
                -3.958463821495829e-08,
                -0.14941895135405492,
                -0.00496010633016907,
                5.0000397679154e-06,
                0.001503590488212178,
                0.5305701230660318,
                3.2986887239714644,
                17.0,
            ],
        ),
        (
            "tanh",
            [
                -1.0,
                -1.0,
                -0.9999449286177708,
                -0.8004990303246563,
                -0.009999666456504392,
                9.999999747045419e-06,
                0.0029999910261091973,
                0.6043677695504779,
                0.997282959840377,
                0.9999999999999966,
            ],
        ),
    ];
    check_table(&x, &expected);
    let x = [1e-45, 1e-38, 0.001, 0.7, 0.999_999, 1.000_001, 1.5, 20.0, 3e38];
    let ln = [
        -103.27892990343184,
        -87.49823359872809,
        -6.907755231484687,
        -0.35667496096863105,
        -1.013279474549114e-06,
        9.536738616591883e-07,
        0.4054651081081644,
        2.995732273553991,
        88.59684582427442,
    ];
    check_table(&x, &[("ln", ln)]);
}

fn check_table<const N: usize>(x: &[f32; N], expected: &[(&str, [f64; N])]) {
    let cpu = Cpu::new(Isa::detect(), 1).unwrap();
    for (name, expected) in expected {
        let case = CASES.iter().find(|case| case.name == *name).unwrap();
        for ((x, y), truth) in x.iter().zip(mapped(case, &cpu, x)).zip(expected) {
            let error = ulps(y, *truth);
            assert!(error <= case.bound, "{name}({x:e}) = {y:e} is {error} ulp from {truth:e}");
        }
    }
}

#[test]
fn corners() {
    let infinity = f32::INFINITY;
    let expected: [(&str, [(f32, f32); 6]); 7] = [
        (
            "exp",
            [
                (0.0, 1.0),
                (-0.0, 1.0),
                (infinity, infinity),
                (-infinity, 0.0),
                (-104.0, 0.0),
                (88.73, infinity),
            ],
        ),
        ("sigmoid", [(0.0, 0.5), (-0.0, 0.5), (infinity, 1.0), (-infinity, 0.0), (-1e38, 0.0), (1e38, 1.0)]),
        (
            "silu",
            [(0.0, 0.0), (-0.0, -0.0), (infinity, infinity), (-infinity, -0.0), (-1e38, -0.0), (1e38, 1e38)],
        ),
        (
            "softplus",
            [
                (1e38, 1e38),
                (-1e38, 0.0),
                (infinity, infinity),
                (-infinity, 0.0),
                (20.0, 20.0),
                (0.0, std::f32::consts::LN_2),
            ],
        ),
        (
            "gelu_tanh",
            [(0.0, 0.0), (-0.0, -0.0), (infinity, infinity), (-infinity, -0.0), (-1e38, -0.0), (1e38, 1e38)],
        ),
        (
            "tanh",
            [(0.0, 0.0), (-0.0, -0.0), (infinity, 1.0), (-infinity, -1.0), (1e-45, 1e-45), (-1e38, -1.0)],
        ),
        (
            "ln",
            [
                (1.0, 0.0),
                (0.0, -infinity),
                (-0.0, -infinity),
                (infinity, infinity),
                (-1e-45, f32::NAN),
                (-infinity, f32::NAN),
            ],
        ),
    ];
    for cpu in every_cpu() {
        for (name, points) in &expected {
            let case = CASES.iter().find(|case| case.name == *name).unwrap();
            for &(x, y) in points {
                assert_same_bits(&mapped(case, &cpu, &[x]), &[y], &format!("{name}({x:e})"));
            }
            assert!(mapped(case, &cpu, &[f32::NAN])[0].is_nan(), "{name}(NaN)");
        }
    }
}

#[test]
fn soft_cap_is_cap_times_tanh() {
    let x: Vec<f32> = (-300..300).map(|k| k as f32 * 0.37).collect();
    for cpu in every_cpu() {
        let mut capped = x.clone();
        cpu.soft_cap(&mut capped, 30.0);
        let mut expected: Vec<f32> = x.iter().map(|x| x / 30.0).collect();
        cpu.tanh(&mut expected);
        cpu.scale(&mut expected, 30.0);
        assert_same_bits(&capped, &expected, "soft cap");
        assert!(capped.iter().all(|y| y.abs() <= 30.0));
    }
}

#[test]
fn an_element_does_not_know_its_place() {
    let cpu = Cpu::new(Isa::detect(), 2).unwrap();
    let x: Vec<f32> = (0..2 * PIECE + 5).map(|k| (k as f32 - 9000.0) * 0.0123).collect();
    let whole = mapped(&CASES[2], &cpu, &x);
    for length in (0..40).chain([PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 3]) {
        assert_same_bits(&mapped(&CASES[2], &cpu, &x[..length]), &whole[..length], "a beginning");
        assert_same_bits(
            &mapped(&CASES[2], &cpu, &x[x.len() - length..]),
            &whole[x.len() - length..],
            "an end",
        );
    }
}
