//! Products of rows with weight matrices, in every format and at the shapes of models.

use std::collections::BTreeSet;

use samebit_arith::{Activations, Cpu, Encoded, FloatType, Format, Isa, Matrix};

use super::weights::{Weights, column_unit, formats, name};
use super::{Setup, head};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings, Part};
use crate::random::Random;
use crate::sharing::RowsCase;

/// Numbers of rows of decoding, speculation and short prompts.
const ROWS: [usize; 4] = [1, 2, 9, 16];
/// More of them in a full run: whole tiles, one more, one less.
const FULL_ROWS: [usize; 8] = [1, 2, 5, 8, 9, 16, 17, 33];
/// Outputs of a large matrix that a quick run looks at.
const QUICK_OUTPUTS: usize = 1024;

/// A product to check.
pub(super) struct Product<'a> {
    pub(super) encoded: Encoded<'a>,
    /// What the shape is, for people.
    pub(super) shape: String,
    pub(super) detail: String,
}

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("products");
    every_format(setup, findings, &mut random)?;
    shared_rows(setup, findings, &mut random)?;
    mixture_shapes(setup, findings, &mut random)?;
    own_matrices(setup, findings, &mut random)
}

/// Every format, at a shape with a part of a panel and a part of a super-block row.
fn every_format(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    const OUTPUTS: usize = 83;
    let formats = formats(setup.quick());
    for &format in &formats {
        let columns = 320_usize.next_multiple_of(column_unit(format));
        let weights = Weights::random(random, format, OUTPUTS, columns);
        let product = Product {
            encoded: weights.encoded()?,
            shape: format!("{columns} -> {OUTPUTS}"),
            detail: String::new(),
        };
        check(setup, findings, random, &product, if setup.quick() { &ROWS } else { &FULL_ROWS })?;
    }
    let seen: BTreeSet<&str> = findings.cases.iter().map(|case| case.format.as_str()).collect();
    let seen = formats.iter().filter(|format| seen.contains(name(**format).as_str())).count();
    findings.prove("formats of weights", seen, formats.len().max(17));
    Ok(())
}

/// The same rows times three matrices of unequal formats and sizes at once, against each product alone.
fn shared_rows(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    const COLUMNS: usize = 512;
    const OUTPUTS: [usize; 3] = [96, 40, 17];
    let affine = Format::MlxAffine { bits: 4, group: 64, scale: FloatType::Bf16 };
    let bf16 = Format::Float(FloatType::Bf16);
    let definition = setup.definition()?;
    for formats in [[Format::Q4K, Format::Q4K, Format::Q6K], [affine; 3], [bf16, Format::Q8_0, affine]] {
        let mut matrices = Vec::new();
        for (format, outputs) in formats.into_iter().zip(OUTPUTS) {
            let weights = Weights::random(random, format, outputs, COLUMNS);
            matrices.push(Matrix::pack(&definition, &weights.encoded()?));
        }
        let input = random.rows(ROWS[ROWS.len() - 1], COLUMNS);
        let alone = |matrix: &Matrix| -> Vec<f32> {
            input.chunks_exact(COLUMNS).flat_map(|row| multiply(&definition, matrix, row)).collect()
        };
        let expected: Vec<Vec<f32>> = matrices.iter().map(alone).collect();
        for cpu in &super::machines(setup)? {
            for rows in ROWS {
                let mut found = OUTPUTS.map(|outputs| vec![0.0; rows * outputs]);
                let [a, b, c] = found.each_mut();
                let products =
                    [(&matrices[0], &mut a[..]), (&matrices[1], &mut b[..]), (&matrices[2], &mut c[..])];
                cpu.matmul_each(products, &Activations::new(&input[..rows * COLUMNS], COLUMNS));
                let id = CaseId {
                    op: "matmul_each",
                    shape: format!("{COLUMNS} -> {}, {} and {}", OUTPUTS[0], OUTPUTS[1], OUTPUTS[2]),
                    format: formats.map(name).join(", "),
                    isa: cpu.isa(),
                    threads: cpu.threads(),
                    rows,
                    detail: "against each alone".to_owned(),
                };
                let parts: Vec<Part<'_>> = (0..3)
                    .map(|which| {
                        let (outputs, place) = (OUTPUTS[which], format!("matmul_each, matrix {which}"));
                        Part::rows(&place, outputs, &expected[which][..rows * outputs], &found[which])
                    })
                    .collect();
                findings.compare(&id, &parts);
            }
        }
    }
    Ok(())
}

/// The eight projections of a mixture of experts with 74 billion weights: five gates, two latent projections, a head.
fn mixture_shapes(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    let gates = [240, 304, 368, 432, 496].map(|experts| ("gate", 4096, experts));
    let floats = [FloatType::F32, FloatType::Bf16].map(Format::Float);
    let codes = [
        Format::Q4K,
        Format::Q8_0,
        Format::Q4_0,
        Format::MlxAffine { bits: 4, group: 64, scale: FloatType::Bf16 },
    ];
    let latent = [("fc1_latent", 4096, 1024), ("fc2_latent", 1024, 4096)];
    let mut shapes = Vec::new();
    for (projection, columns, outputs) in gates {
        shapes.extend(floats.map(|format| (projection, columns, outputs, format)));
    }
    for (projection, columns, outputs) in latent {
        shapes.extend(codes.map(|format| (projection, columns, outputs, format)));
    }
    // A full run has the whole head, in more formats.
    if setup.quick() {
        shapes.extend(codes.map(|format| ("lm_head", 4096, QUICK_OUTPUTS, format)));
    } else {
        head::run(setup, findings)?;
    }
    for (projection, columns, outputs, format) in shapes {
        let weights = Weights::random(random, format, outputs, columns);
        let some = if projection == "lm_head" { format!(" of {}", head::OUTPUTS) } else { String::new() };
        let product = Product {
            encoded: weights.encoded()?,
            shape: format!("{columns} -> {outputs}{some}"),
            detail: projection.to_owned(),
        };
        check(setup, findings, random, &product, &ROWS)?;
    }
    Ok(())
}

/// Each shape and format among the model's own matrices, with the weights of the first matrix that has them.
fn own_matrices(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    let mut seen = Vec::new();
    for tensor in &setup.model().info().tensors {
        if tensor.shape.len() < 2 {
            continue;
        }
        let (rows, columns) = (tensor.shape[tensor.shape.len() - 2], tensor.shape[tensor.shape.len() - 1]);
        let checkpoint = setup.checkpoint();
        let matrix = match tensor.shape[..] {
            [experts, rows, columns] => checkpoint.experts_of(&tensor.name, experts, rows, columns)?,
            _ => checkpoint.matrix_of(&tensor.name, rows, columns)?,
        };
        let key = (rows, columns, matrix.format());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let encoded = if matrix.is_stacked() { matrix.expert(0) } else { matrix.encoded() };
        let outputs = if setup.quick() { rows.min(QUICK_OUTPUTS) } else { rows };
        let some = if outputs < rows { format!(" of {rows}") } else { String::new() };
        let product = Product {
            encoded: encoded.row_range(0, outputs),
            shape: format!("{columns} -> {outputs}{some}"),
            detail: tensor.name.clone(),
        };
        check(setup, findings, random, &product, &ROWS)?;
        time(setup, findings, random, &product)?;
    }
    findings.prove("shapes of the model's own matrices", seen.len(), 1);
    Ok(())
}

/// Compares every machine and number of rows with the scalar definition of one row at a time.
fn check(
    setup: &Setup<'_>,
    findings: &mut Findings,
    random: &mut Random,
    product: &Product<'_>,
    rows: &[usize],
) -> Result<(), ProveError> {
    let (outputs, columns) = (product.encoded.rows(), product.encoded.columns());
    let most = rows.iter().copied().max().unwrap_or(0);
    let input = random.rows(most, columns);
    let definition = setup.definition()?;
    let matrix = Matrix::pack(&definition, &product.encoded);
    let expected: Vec<f32> =
        input.chunks_exact(columns).flat_map(|row| multiply(&definition, &matrix, row)).collect();
    for cpu in &super::machines(setup)? {
        // The scalar definition with more rows is as slow as it is row by row: small matrices are enough to show it.
        if cpu.isa() == Isa::Scalar && outputs * columns > 1 << 19 {
            continue;
        }
        for &rows in rows {
            let wanted = RowsCase {
                place: "matmul",
                width: outputs,
                expected: &expected[..rows * outputs],
                splits: splits(outputs),
            };
            let input = &input[..rows * columns];
            findings.compare_run(cpu, &product_case(product, cpu, rows), &wanted, &mut || {
                multiply(cpu, &matrix, input)
            });
        }
    }
    Ok(())
}

/// Whether a product with this many outputs is more than one task: a task is a pair of panels of sixteen at least.
fn splits(outputs: usize) -> bool {
    outputs > 32
}

pub(super) fn multiply(cpu: &Cpu, matrix: &Matrix, rows: &[f32]) -> Vec<f32> {
    let input = Activations::new(rows, matrix.columns());
    let mut out = vec![0.0; input.len() * matrix.rows()];
    cpu.matmul(matrix, &input, &mut out);
    out
}

pub(super) fn product_case(product: &Product<'_>, cpu: &Cpu, rows: usize) -> CaseId {
    CaseId {
        op: "matmul",
        shape: product.shape.clone(),
        format: name(product.encoded.format()),
        isa: cpu.isa(),
        threads: cpu.threads(),
        rows,
        detail: product.detail.clone(),
    }
}

/// Times products by rows.
fn time(
    setup: &Setup<'_>,
    findings: &mut Findings,
    random: &mut Random,
    product: &Product<'_>,
) -> Result<(), ProveError> {
    for isa in setup.fast_isas() {
        let cpu = setup.cpu(isa, setup.threads())?;
        let matrix = Matrix::pack(&cpu, &product.encoded);
        for rows in super::TIMED_ROWS {
            let input = random.activations(rows * matrix.columns());
            let mut out = vec![0.0; rows * matrix.rows()];
            findings.time(&product_case(product, &cpu, rows), &mut || {
                cpu.matmul(&matrix, &Activations::new(&input[..], matrix.columns()), &mut out);
            });
        }
    }
    Ok(())
}
