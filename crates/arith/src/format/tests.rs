//! Dequantized values against independent decoders, bit for bit.

use super::{Encoded, FloatType, Format};
use crate::vectors::Vectors;
use half::{bf16, f16};

/// Every format that GGUF files hold, with its name in the fixtures.
const GGUF: [(&str, Format); 16] = [
    ("F32", Format::Float(FloatType::F32)),
    ("F16", Format::Float(FloatType::F16)),
    ("BF16", Format::Float(FloatType::Bf16)),
    ("Q4_0", Format::Q4_0),
    ("Q4_1", Format::Q4_1),
    ("Q5_0", Format::Q5_0),
    ("Q5_1", Format::Q5_1),
    ("Q8_0", Format::Q8_0),
    ("Q2_K", Format::Q2K),
    ("Q3_K", Format::Q3K),
    ("Q4_K", Format::Q4K),
    ("Q5_K", Format::Q5K),
    ("Q6_K", Format::Q6K),
    ("IQ4_NL", Format::Iq4Nl),
    ("IQ4_XS", Format::Iq4Xs),
    ("MXFP4", Format::Mxfp4),
];

fn dequantize(encoded: &Encoded<'_>) -> Vec<f32> {
    let mut values = vec![f32::NAN; encoded.rows() * encoded.columns()];
    for (row, out) in values.chunks_exact_mut(encoded.columns()).enumerate() {
        encoded.dequantize_row(row, out);
    }
    values
}

fn assert_same_bits(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(
            found.to_bits(),
            expected.to_bits(),
            "{what}, value {k}: {found:e}, expected {expected:e}"
        );
    }
}

#[test]
fn gguf_values_equal_the_reference_decoder() {
    let vectors = Vectors::open("gguf-quant/expected.safetensors");
    let mut cases = 0;
    for (name, format) in GGUF {
        for kind in ["random", "quantized"] {
            let case = format!("{name}.{kind}");
            if kind == "quantized" && !vectors.has(&format!("{case}.bytes")) {
                continue;
            }
            let bytes = vectors.bytes(&format!("{case}.bytes"));
            let expected = vectors.f32(&format!("{case}.values"));
            // Two rows, so that row offsets are part of the test.
            let encoded = Encoded::new(format, 2, expected.len() / 2, bytes).unwrap();
            assert_same_bits(&dequantize(&encoded), &expected, &case);
            cases += 1;
        }
    }
    assert_eq!(cases, 16 + 9);
}

/// Format, rows and columns of a case of the `mlx-quant` fixture; `None` for the formats that are not in this crate.
pub(crate) fn mlx_case(vectors: &Vectors, case: &str) -> Option<(Format, usize, usize)> {
    let parts: Vec<&str> = case.split('.').collect();
    let &[.., rows, words] = vectors.shape(&format!("{case}.w_q")) else { panic!("{case}.w_q is no matrix") };
    let (format, columns) = match parts[..] {
        ["affine", scale, bits, group] => {
            let scale = match scale {
                "f32" => FloatType::F32,
                "f16" => FloatType::F16,
                "bf16" => FloatType::Bf16,
                other => panic!("scales of type {other}"),
            };
            let bits: u8 = bits.strip_prefix('b')?.parse().unwrap();
            let group = group.strip_prefix('g')?.parse().unwrap();
            if bits == 1 {
                return None;
            }
            (Format::MlxAffine { bits, group, scale }, words * 32 / usize::from(bits))
        }
        ["mxfp4", _] => (Format::MlxMxfp4, words * 8),
        _ => return None,
    };
    Some((format, rows, columns))
}

/// The matrix of a case.
pub(crate) fn mlx_matrix<'a>(vectors: &'a Vectors, case: &str) -> Option<Encoded<'a>> {
    let (format, rows, columns) = mlx_case(vectors, case)?;
    let biases = format!("{case}.biases");
    let biases: &[u8] = if vectors.has(&biases) { vectors.bytes(&biases) } else { &[] };
    let data = vectors.bytes(&format!("{case}.w_q"));
    let scales = vectors.bytes(&format!("{case}.scales"));
    Some(Encoded::with_scales(format, rows, columns, data, scales, biases).unwrap())
}

/// The cases of a file of the `mlx-quant` fixture.
pub(crate) fn mlx_cases(vectors: &Vectors) -> Vec<String> {
    vectors.names().filter_map(|name| name.strip_suffix(".w_q")).map(str::to_owned).collect()
}

#[test]
fn mlx_values_equal_mlx() {
    let mut cases = 0;
    for file in ["affine-f32", "affine-f16", "affine-bf16", "float-modes"] {
        let vectors = Vectors::open(&format!("mlx-quant/{file}.safetensors"));
        for case in mlx_cases(&vectors) {
            let Some(encoded) = mlx_matrix(&vectors, &case) else { continue };
            let name = format!("{case}.dequant");
            cases += 1;
            match encoded.format() {
                Format::MlxAffine { scale: FloatType::F16, .. } => {
                    let expected: Vec<f32> =
                        halves(&vectors, &name).map(|bits| f16::from_bits(bits).to_f32()).collect();
                    let narrow = |x: f32| f16::from_f32(x).to_f32();
                    assert_same_bits(&rounded_twice(&encoded, narrow), &expected, &case);
                }
                Format::MlxAffine { scale: FloatType::Bf16, .. } => {
                    let expected: Vec<f32> =
                        halves(&vectors, &name).map(|bits| bf16::from_bits(bits).to_f32()).collect();
                    let narrow = |x: f32| bf16::from_f32(x).to_f32();
                    assert_same_bits(&rounded_twice(&encoded, narrow), &expected, &case);
                }
                _ => {
                    // MLX keeps the sign of a zero of E2M1, integers have none.
                    let expected: Vec<f32> = vectors.f32(&name).iter().map(|x| x + 0.0).collect();
                    assert_same_bits(&dequantize(&encoded), &expected, &case);
                }
            }
        }
    }
    assert!(cases >= 20, "only {cases} cases");
}

fn halves(vectors: &Vectors, name: &str) -> impl Iterator<Item = u16> {
    vectors.bytes(name).as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes))
}

/// What MLX's `dequantize` makes of narrow scales: product and sum each rounded to the narrow type.
fn rounded_twice(encoded: &Encoded<'_>, narrow: impl Fn(f32) -> f32) -> Vec<f32> {
    let group = encoded.format().separate_scale().unwrap().0;
    let mut values = Vec::new();
    for row in 0..encoded.rows() {
        let row = encoded.row(row);
        let read = |bytes: &[u8], index: usize| {
            let bits = u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
            match encoded.format() {
                Format::MlxAffine { scale: FloatType::F16, .. } => f16::from_bits(bits).to_f32(),
                _ => bf16::from_bits(bits).to_f32(),
            }
        };
        let bits = row.data.len() * 8 / encoded.columns();
        for k in 0..encoded.columns() {
            let code = (0..bits).fold(0, |code, b| {
                let at = bits * k + b;
                code | u32::from(row.data[at / 8] >> (at % 8) & 1) << b
            });
            let product = narrow(read(row.scales, k / group) * code as f32);
            values.push(narrow(product + read(row.biases, k / group)));
        }
    }
    values
}

#[test]
fn rows_of_part_of_a_matrix_are_the_same_rows() {
    let bytes: Vec<u8> = (0..5 * 2 * 18).map(|i| (i * 37 % 251) as u8 & 0x3f).collect();
    let all = Encoded::new(Format::Q4_0, 5, 64, &bytes).unwrap();
    let part = all.row_range(2, 2);
    assert_same_bits(&dequantize(&part), &dequantize(&all)[2 * 64..4 * 64], "rows 2 and 3");
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    let refuse = |format, rows, columns, bytes: usize| {
        Encoded::new(format, rows, columns, &vec![0; bytes]).unwrap_err().to_string()
    };
    assert_eq!(refuse(Format::Q4K, 1, 128, 72), "rows of 128 elements are not whole Q4_K blocks of 256");
    assert_eq!(
        refuse(Format::Q8_0, 2, 64, 135),
        "data of a 2 x 64 Q8_0 matrix holds 135 bytes, expected 136"
    );
    assert_eq!(
        refuse(Format::Float(FloatType::F32), usize::MAX / 2, 4, 0),
        format!("a {} x 4 F32 matrix does not fit in memory", usize::MAX / 2)
    );
    let odd = Format::MlxAffine { bits: 7, group: 64, scale: FloatType::F32 };
    assert!(matches!(Encoded::new(odd, 1, 64, &[0; 56]), Err(super::EncodedError::UnsupportedAffine { .. })));
}
