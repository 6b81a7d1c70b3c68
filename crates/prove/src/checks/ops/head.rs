//! The product of a language model's head: as many outputs as a large vocabulary has tokens.

use samebit_arith::{FloatType, Format, Isa, Matrix};

use super::Setup;
use super::products::{Product, multiply, product_case};
use super::weights::{Weights, name};
use crate::error::ProveError;
use crate::findings::Findings;
use crate::sharing::RowsCase;

/// Outputs of the head.
pub(super) const OUTPUTS: usize = 131_072;
/// Different outputs among them; they repeat. A prime number: no two panels less than so many panels apart are alike,
/// nor any whose distance is a power of two, so that one read in another's place shows. This way the definition
/// computes each of them once, where all would take it minutes.
const DISTINCT: usize = 1021;
/// Rows of a pass.
const ROWS: [usize; 4] = [1, 2, 9, 16];

/// Formats of the head's weights, each with as many columns as take about 300 MB: the head of the mixture of experts
/// has 4096, which floats would need a gigabyte for, and once more for the packed form. Products with 4096 columns of
/// those formats are among the other shapes.
const FORMATS: [(Format, usize); 6] = [
    (Format::Q4K, 4096),
    (Format::Q4_0, 4096),
    (Format::MlxAffine { bits: 4, group: 64, scale: FloatType::Bf16 }, 4096),
    (Format::Q8_0, 2048),
    (Format::Float(FloatType::F16), 1024),
    (Format::Float(FloatType::Bf16), 1024),
];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("head");
    let machines = super::machines(setup)?;
    let packing = setup.cpu(setup.best_isa(), setup.several_threads())?;
    for (format, columns) in FORMATS {
        let distinct = Weights::random(&mut random, format, DISTINCT, columns);
        let product = Product {
            encoded: distinct.encoded()?,
            shape: format!("{columns} -> {OUTPUTS}"),
            detail: "lm_head".to_owned(),
        };
        let input = random.rows(ROWS[ROWS.len() - 1], columns);
        let expected = expected_rows(setup, &product, &input)?;
        // The weights as they are encoded are let go before anything is multiplied.
        let matrix = Matrix::pack(&packing, &distinct.repeated(OUTPUTS).encoded()?);
        for cpu in machines.iter().filter(|cpu| cpu.isa() != Isa::Scalar) {
            for rows in ROWS {
                let wanted = RowsCase {
                    place: "matmul",
                    width: OUTPUTS,
                    expected: &expected[..rows * OUTPUTS],
                    splits: true,
                };
                let input = &input[..rows * columns];
                let id = product_case(&product, cpu, rows);
                findings.compare_run(cpu, &id, &wanted, &mut || multiply(cpu, &matrix, input));
            }
        }
    }
    let formats: Vec<String> = FORMATS.iter().map(|(format, _)| name(*format)).collect();
    let whole = |case: &&crate::Case| case.op == "matmul" && case.shape.ends_with(&format!("-> {OUTPUTS}"));
    let seen =
        formats.iter().filter(|name| findings.cases.iter().filter(whole).any(|case| case.format == **name));
    let seen = seen.count();
    findings.prove(format!("formats of a head of {OUTPUTS} outputs"), seen, FORMATS.len());
    Ok(())
}

/// What the definition gives for the distinct outputs, repeated as they are in the head.
fn expected_rows(setup: &Setup<'_>, product: &Product<'_>, input: &[f32]) -> Result<Vec<f32>, ProveError> {
    let definition = setup.definition()?;
    let matrix = Matrix::pack(&definition, &product.encoded);
    let rows = input.chunks_exact(matrix.columns()).map(|row| multiply(&definition, &matrix, row));
    Ok(rows.flat_map(|row| row.into_iter().cycle().take(OUTPUTS)).collect())
}
