//! Every operation of every instruction set against the scalar definition, bit for bit; and the definition itself at
//! points that are easy to get wrong.

use super::{Kernel, LANES, LINE, Lanes, RowBlock};
use crate::cpu::Isa;
use proptest::prelude::*;

/// Named results, as bits. Every NaN is one NaN.
type Results = Vec<(String, Vec<u64>)>;

fn float_bits(x: &[f32]) -> Vec<u64> {
    x.iter().map(|x| if x.is_nan() { u64::MAX } else { u64::from(x.to_bits()) }).collect()
}

fn double_bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
}

fn floats<L: Lanes>(lanes: L, x: L::Float) -> [f32; LANES] {
    let mut to = [0.0; LANES];
    lanes.store(x, &mut to);
    to
}

fn ints<L: Lanes>(lanes: L, x: L::Int) -> [i32; LANES] {
    let mut to = [0; LANES];
    lanes.store_int(x, &mut to);
    to
}

/// A register as the array it holds, or an array as the register.
fn reinterpret<A: Copy, B: Copy>(from: A) -> B {
    assert_eq!(size_of::<A>(), size_of::<B>());
    // SAFETY: both are plain numbers of equal total size, any bits of which are a value.
    unsafe { std::mem::transmute_copy(&from) }
}

/// Every instruction set here must give what the scalar one gives.
fn assert_equal_everywhere<K: Kernel<Output = Results> + Clone>(kernel: &K) -> Result<(), TestCaseError> {
    let expected = Isa::Scalar.run(kernel.clone());
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let found = isa.run(kernel.clone());
        for ((name, expected), (_, found)) in expected.iter().zip(&found) {
            prop_assert_eq!(expected, found, "{} on {}", name, isa);
        }
    }
    Ok(())
}

const SPECIAL: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    1.1e-38,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    8_388_608.0,
    8_388_607.5,
    65504.0,
    16_777_217.0,
];

fn any_float() -> impl Strategy<Value = f32> {
    prop_oneof![
        3 => any::<u32>().prop_map(f32::from_bits),
        3 => -1000.0f32..1000.0,
        2 => prop::sample::select(&SPECIAL[..]),
    ]
}

fn any_double() -> impl Strategy<Value = f64> {
    prop_oneof![
        2 => any::<u64>().prop_map(f64::from_bits),
        2 => any::<u32>().prop_map(|bits| f64::from(f32::from_bits(bits)) * (1.0 + f64::EPSILON)),
        2 => -1000.0f64..1000.0,
        2 => prop::sample::select(&SPECIAL[..]).prop_map(f64::from),
        1 => prop::sample::select(&[f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.4e-45, 7e-46, 3.5e38, 2.5][..]),
    ]
}

fn lanes_of<S: Strategy>(one: impl Fn() -> S) -> impl Strategy<Value = [S::Value; LANES]>
where
    S::Value: Copy,
{
    prop::collection::vec(one(), LANES).prop_map(|x| std::array::from_fn(|l| x[l]))
}

#[derive(Clone, Debug)]
struct Floats {
    a: [f32; LANES],
    b: [f32; LANES],
    c: [f32; LANES],
    d: [f32; LANES],
    from: usize,
    to: usize,
}

impl Kernel for Floats {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let [a, b, c, d] = [&self.a, &self.b, &self.c, &self.d].map(|x| lanes.load(x));
        let results = [
            ("splat", lanes.splat(self.a[0])),
            ("load", a),
            ("add", lanes.add(a, b)),
            ("sub", lanes.sub(a, b)),
            ("mul", lanes.mul(a, b)),
            ("div", lanes.div(a, b)),
            ("fma", lanes.fma(a, b, c)),
            ("max", lanes.max(a, b)),
            ("min", lanes.min(a, b)),
            ("abs", lanes.abs(a)),
            ("round", lanes.round(a)),
            ("select_less", lanes.select_less(a, b, c, d)),
            ("select_less of equals", lanes.select_less(a, a, c, d)),
            ("select_range", lanes.select_range(self.from, self.to, a, b)),
            ("narrow of widen", lanes.narrow(lanes.widen(a))),
        ];
        let mut results: Results =
            results.map(|(name, x)| (name.to_owned(), float_bits(&floats(lanes, x)))).to_vec();
        results.push(("sum_tree".to_owned(), float_bits(&[lanes.sum_tree(a)])));
        results.push(("max_tree".to_owned(), float_bits(&[lanes.max_tree(a)])));
        results.push(("widen".to_owned(), double_bits(&reinterpret::<_, [f64; LANES]>(lanes.widen(a)))));
        results
    }
}

#[derive(Clone, Debug)]
struct Doubles {
    a: [f64; LANES],
    b: [f64; LANES],
    c: [f64; LANES],
    d: [f64; LANES],
}

impl Kernel for Doubles {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let [a, b, c, d] = [self.a, self.b, self.c, self.d].map(reinterpret::<_, L::Double>);
        let positive =
            self.a.map(|a| f64::from_bits(a.to_bits() & !(1 << 63)).clamp(f64::MIN_POSITIVE, f64::MAX));
        let positive = positive.map(|a| if a.is_nan() { 1.0 } else { a });
        let (exponent, mantissa) = lanes.split_double(reinterpret(positive));
        let results = [
            ("splat_double", lanes.splat_double(self.a[0])),
            ("add_double", lanes.add_double(a, b)),
            ("sub_double", lanes.sub_double(a, b)),
            ("mul_double", lanes.mul_double(a, b)),
            ("div_double", lanes.div_double(a, b)),
            ("fma_double", lanes.fma_double(a, b, c)),
            ("max_double", lanes.max_double(a, b)),
            ("min_double", lanes.min_double(a, b)),
            ("abs_double", lanes.abs_double(a)),
            ("round_double", lanes.round_double(a)),
            ("select_less_double", lanes.select_less_double(a, b, c, d)),
            ("select_less_double of equals", lanes.select_less_double(a, a, c, d)),
            ("exponent of split_double", exponent),
            ("mantissa of split_double", mantissa),
        ];
        let mut results: Results = results
            .map(|(name, x)| (name.to_owned(), double_bits(&reinterpret::<_, [f64; LANES]>(x))))
            .to_vec();
        results.push(("narrow".to_owned(), float_bits(&floats(lanes, lanes.narrow(a)))));
        results
    }
}

#[derive(Clone, Debug)]
struct Integers {
    a: [i32; LANES],
    /// Within i32.
    x: [f32; LANES],
    shift: u32,
    half: [u16; LANES],
    bytes: [i8; LANES],
}

impl Kernel for Integers {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let a = reinterpret::<_, L::Int>(self.a);
        let from_ints = [
            ("splat_int", lanes.splat_int(self.a[0])),
            ("shift_left_int", lanes.shift_left_int(a, self.shift)),
            ("to_int", lanes.to_int(lanes.load(&self.x))),
        ];
        let to_floats = [
            ("to_float", lanes.to_float(a)),
            ("load_f16", lanes.load_f16(&self.half)),
            ("load_bf16", lanes.load_bf16(&self.half)),
            ("load_i8", lanes.load_i8(&self.bytes)),
        ];
        let from_ints = from_ints.map(|(name, x)| {
            (name.to_owned(), ints(lanes, x).iter().map(|&x| u64::from(x as u32)).collect::<Vec<_>>())
        });
        let to_floats = to_floats.map(|(name, x)| (name.to_owned(), float_bits(&floats(lanes, x))));
        from_ints.into_iter().chain(to_floats).collect()
    }
}

#[derive(Clone, Debug)]
struct Codes {
    a: [u8; LINE],
    b: [u8; LINE],
    table: [u8; 16],
    bits: [u8; 8],
    value: u8,
}

impl Kernel for Codes {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let (a, b) = (lanes.load_codes(&self.a), lanes.load_codes(&self.b));
        let mut results = vec![
            ("load_codes".to_owned(), a),
            ("low_nibbles".to_owned(), lanes.low_nibbles(a)),
            ("high_nibbles".to_owned(), lanes.high_nibbles(a)),
            ("expand_bits".to_owned(), lanes.expand_bits(&self.bits, self.value)),
            ("or_codes".to_owned(), lanes.or_codes(a, b)),
            ("lookup".to_owned(), lanes.lookup(&self.table, lanes.low_nibbles(a))),
        ];
        for i in 0..4 {
            for up in 0..=4 {
                results.push((format!("crumbs {i} up {up}"), lanes.crumbs(a, i, up)));
            }
        }
        let bytes = |x| reinterpret::<L::Codes, [u8; LINE]>(x).map(u64::from).to_vec();
        results.into_iter().map(|(name, x)| (name, bytes(x))).collect()
    }
}

/// The products of one row block with sixteen outputs.
#[derive(Clone, Debug)]
struct Dot {
    codes: [[u8; LINE]; 8],
    integer: [i16; 32],
    start: i32,
    bits: u32,
}

impl Kernel for Dot {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let row = row_block(self.integer);
        let starts = [("dot_zero", lanes.dot_zero()), ("dot_start", lanes.dot_start(self.start, self.bits))];
        let finish = |name: &str, dot| {
            let sums = ints(lanes, lanes.dot_finish(dot));
            (name.to_owned(), sums.map(|x| u64::from(x as u32)).to_vec())
        };
        let results = starts.map(|(name, mut dot)| {
            for (line, codes) in self.codes.iter().enumerate() {
                dot = lanes.dot_line(dot, lanes.load_codes(codes), &row, line);
            }
            finish(name, dot)
        });
        let mut bytes = lanes.dot_start(self.start, self.bits);
        for (line, codes) in self.codes.iter().enumerate() {
            bytes = lanes.dot_byte_line(bytes, lanes.load_codes(codes), &row.low, line);
        }
        results.into_iter().chain([finish("dot_byte_line", bytes)]).collect()
    }
}

fn row_block(integer: [i16; 32]) -> RowBlock {
    let high = integer.map(|x| (x + 128) >> 8);
    let low: [i8; 32] = std::array::from_fn(|k| (integer[k] - 256 * high[k]) as i8);
    RowBlock { high: high.map(|x| x as i8), low, integer }
}

impl Dot {
    /// The sums by the book, from zero and from the start, and those of the low plane from the start.
    fn exact(&self) -> [Vec<u64>; 3] {
        let sums = |start: i64, row: [i64; 32]| {
            let code = |o: usize, k: usize| i64::from(self.codes[k / 4][4 * o + k % 4]);
            let sums = (0..LANES).map(|o| start + (0..32).map(|k| code(o, k) * row[k]).sum::<i64>());
            sums.map(|sum| u64::from(i32::try_from(sum).unwrap() as u32)).collect()
        };
        let start = i64::from(self.start) << self.bits;
        let integer = self.integer.map(i64::from);
        [sums(0, integer), sums(start, integer), sums(start, row_block(self.integer).low.map(i64::from))]
    }
}

fn any_line() -> impl Strategy<Value = [u8; LINE]> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), LINE).prop_map(|x| x.try_into().unwrap()),
        1 => Just([255; LINE]),
        1 => Just([0; LINE]),
    ]
}

fn any_integers() -> impl Strategy<Value = [i16; 32]> {
    let one =
        prop_oneof![4 => -32639i16..=32639, 1 => Just(32639i16), 1 => Just(-32639i16), 1 => -129i16..=129];
    prop_oneof![
        5 => prop::collection::vec(one, 32).prop_map(|x| x.try_into().unwrap()),
        1 => Just([32639; 32]),
        1 => Just([-32639; 32]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn float_operations(
        a in lanes_of(any_float),
        b in lanes_of(any_float),
        c in lanes_of(any_float),
        d in lanes_of(any_float),
        from in 0..=LANES + 2,
        to in 0..=LANES + 2,
    ) {
        assert_equal_everywhere(&Floats { a, b, c, d, from, to })?;
    }

    #[test]
    fn double_operations(
        a in lanes_of(any_double),
        b in lanes_of(any_double),
        c in lanes_of(any_double),
        d in lanes_of(any_double),
    ) {
        assert_equal_everywhere(&Doubles { a, b, c, d })?;
    }

    #[test]
    fn integer_operations(
        a in lanes_of(any::<i32>),
        x in lanes_of(|| prop_oneof![
            -2_147_483_648.0f32..2_147_483_520.0,
            -1000.0f32..1000.0,
            (-40i16..40).prop_map(|halves| f32::from(halves) / 2.0),
        ]),
        shift in 0u32..32,
        half in lanes_of(any::<u16>),
        bytes in lanes_of(any::<i8>),
    ) {
        assert_equal_everywhere(&Integers { a, x, shift, half, bytes })?;
    }

    #[test]
    fn code_operations(
        a in any_line(),
        b in any_line(),
        table in any::<[u8; 16]>(),
        bits in any::<[u8; 8]>(),
        value in any::<u8>(),
    ) {
        assert_equal_everywhere(&Codes { a, b, table, bits, value })?;
    }

    #[test]
    fn dot_products(
        lines in prop::collection::vec(any_line(), 8),
        integer in any_integers(),
        // 32 integers of 16 bits.
        start in -(1i32 << 20)..=1 << 20,
        bits in 0u32..=8,
    ) {
        let dot = Dot { codes: lines.try_into().unwrap(), integer, start, bits };
        assert_equal_everywhere(&dot)?;
        let found: Vec<Vec<u64>> = Isa::Scalar.run(dot.clone()).into_iter().map(|(_, sums)| sums).collect();
        prop_assert_eq!(found, dot.exact());
    }
}

/// `2^n` for every exponent there is.
#[derive(Clone)]
struct Powers;

impl Kernel for Powers {
    type Output = Results;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Results {
        let single = (-126..=127).flat_map(|n| floats(lanes, lanes.pow2(lanes.splat(n as f32))));
        let double = (-1022..=1023).flat_map(|n| {
            reinterpret::<_, [f64; LANES]>(lanes.pow2_double(lanes.splat_double(f64::from(n))))
        });
        vec![
            ("pow2".to_owned(), float_bits(&single.collect::<Vec<_>>())),
            ("pow2_double".to_owned(), double_bits(&double.collect::<Vec<_>>())),
        ]
    }
}

#[test]
fn powers_of_two() {
    assert_equal_everywhere(&Powers).unwrap();
    let results = Isa::Scalar.run(Powers);
    let single: Vec<f32> = (-126..=127).flat_map(|n| [2f32.powi(n); LANES]).collect();
    let double: Vec<f64> = (-1022..=1023).flat_map(|n| [2f64.powi(n); LANES]).collect();
    assert_eq!(results[0].1, float_bits(&single));
    assert_eq!(results[1].1, double_bits(&double));
}

#[test]
fn every_sixteen_bit_float_widens_alike() {
    for first in (0..=u16::MAX).step_by(LANES) {
        let half = std::array::from_fn(|l| first + l as u16);
        let integers = Integers { a: [0; LANES], x: [0.0; LANES], shift: 0, half, bytes: [0; LANES] };
        assert_equal_everywhere(&integers).unwrap();
    }
}

#[test]
fn the_scalar_definition_at_its_corners() {
    let lanes = super::scalar::Scalar;
    let one = |x: f32| [x; LANES];
    let bits = |x: [f32; LANES]| x[0].to_bits();
    assert_eq!(bits(lanes.max(one(0.0), one(-0.0))), (-0.0f32).to_bits(), "equal zeros give the second");
    assert_eq!(bits(lanes.min(one(-0.0), one(0.0))), 0.0f32.to_bits(), "equal zeros give the second");
    assert_eq!(lanes.max(one(f32::NAN), one(1.0)), one(1.0));
    assert!(lanes.max(one(1.0), one(f32::NAN))[0].is_nan());
    assert_eq!(lanes.select_less(one(1.0), one(f32::NAN), one(2.0), one(3.0)), one(3.0));
    assert_eq!(lanes.round(one(2.5)), one(2.0));
    assert_eq!(bits(lanes.round(one(-0.5))), (-0.0f32).to_bits());
    let range = lanes.select_range(3, 5, one(1.0), one(0.0));
    assert_eq!(
        range.iter().enumerate().filter(|(_, x)| **x == 1.0).map(|(l, _)| l).collect::<Vec<_>>(),
        [3, 4]
    );
    assert_eq!(lanes.split_double([f64::MIN_POSITIVE; LANES]).0, [-1022.0; LANES]);
    assert_eq!(lanes.split_double([12.0; LANES]).1, [1.5; LANES]);
}

#[test]
fn sums_fold_lanes_in_the_written_tree() {
    // In single precision these sixteen values have different sums in most orders.
    let mut x = [0.0; LANES];
    (x[0], x[8], x[4], x[2], x[1]) = (1.0e8, 3.0, -1.0e8, 7.0, 0.25);
    let sum = ((x[0] + x[8]) + x[4] + x[2]) + x[1];
    assert_ne!(sum, x.iter().sum::<f32>(), "the example must tell orders apart");
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let floats = Floats { a: x, b: x, c: x, d: x, from: 0, to: 0 };
        let results = isa.run(floats);
        let tree = results.iter().find(|(name, _)| name == "sum_tree").unwrap();
        assert_eq!(tree.1, float_bits(&[sum]), "{isa}");
    }
}
