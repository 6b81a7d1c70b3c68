//! Operations on rows and elements: norms, softmax, rotations, gates, sums.

use samebit_arith::{Cpu, RopeAngles, RopeFrequencies, RopeLayout};

use super::{Setup, machines};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::random::Random;
use crate::sharing::RowsCase;

/// Rows of one operation, in place: the machine, the rows `x`, others like them, a vector of one row's width.
type Operation = fn(&Cpu, x: &mut [f32], y: &[f32], vector: &[f32]);

const OPERATIONS: [(&str, Operation); 9] = [
    ("rms_norm", |cpu, x, _, weight| cpu.rms_norm_in_place(x, weight, 1e-6)),
    ("softmax", |cpu, x, _, weight| cpu.softmax(x, weight.len())),
    ("soft_cap", |cpu, x, _, _| cpu.soft_cap(x, 30.0)),
    ("silu_mul", |cpu, x, up, _| cpu.silu_mul(x, up)),
    ("gelu_tanh_mul", |cpu, x, up, _| cpu.gelu_tanh_mul(x, up)),
    ("add", |cpu, x, y, _| cpu.add(x, y)),
    ("add_scaled", |cpu, x, y, _| cpu.add_scaled(x, 0.37, y)),
    ("add_bias", |cpu, x, _, bias| cpu.add_bias(x, bias)),
    ("scale", |cpu, x, _, _| cpu.scale(x, -1.7)),
];

/// Widths of rows: whole vectors, with tails, and shorter than one vector.
const WIDTHS: [usize; 9] = [1, 7, 16, 17, 64, 96, 576, 640, 4099];
const QUICK_WIDTHS: [usize; 4] = [7, 17, 576, 4099];
/// Numbers of rows: one, few, and enough for several threads.
const ROWS: [usize; 5] = [1, 2, 9, 16, 33];
/// Elements of one task: rows that hold more are several tasks.
const TASK: usize = 8192;

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("elements");
    let widths = if setup.quick() { &QUICK_WIDTHS[..] } else { &WIDTHS[..] };
    for &width in widths {
        for (op, operation) in OPERATIONS {
            rows_of(setup, findings, &mut random, width, op, operation)?;
        }
    }
    rope(setup, findings, &mut random)
}

fn rows_of(
    setup: &Setup<'_>,
    findings: &mut Findings,
    random: &mut Random,
    width: usize,
    op: &'static str,
    operation: Operation,
) -> Result<(), ProveError> {
    let most = ROWS[ROWS.len() - 1];
    let (input, other) = (random.rows(most, width), random.activations(most * width));
    let vector = random.activations(width);
    let definition = setup.definition()?;
    let mut expected = input.clone();
    for (x, y) in expected.chunks_exact_mut(width).zip(other.chunks_exact(width)) {
        operation(&definition, x, y, &vector);
    }
    for cpu in &machines(setup)? {
        for rows in ROWS {
            let id = CaseId {
                op,
                shape: width.to_string(),
                format: String::new(),
                isa: cpu.isa(),
                threads: cpu.threads(),
                rows,
                detail: String::new(),
            };
            let case = RowsCase {
                place: op,
                width,
                expected: &expected[..rows * width],
                splits: rows > 1 && rows * width > TASK,
            };
            findings.compare_run(cpu, &id, &case, &mut || {
                let mut found = input[..rows * width].to_vec();
                operation(cpu, &mut found, &other[..rows * width], &vector);
                found
            });
        }
    }
    Ok(())
}

/// Rotations of heads: both layouts, whole heads and parts of them, at near and far positions.
fn rope(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    let most = ROWS[ROWS.len() - 1];
    let shapes = [(24, 128, 128), (9, 64, 64), (4, 256, 64), (6, 80, 80), (3, 24, 24)];
    for (heads, head_dim, rotated) in if setup.quick() { &shapes[1..4] } else { &shapes[..] } {
        let width = heads * head_dim;
        let frequencies = RopeFrequencies::plain(*rotated, 10_000.0);
        for layout in [RopeLayout::Halves, RopeLayout::Adjacent] {
            let positions: Vec<usize> = (0..most).map(|row| row * row * 97 + row).collect();
            let input = random.activations(most * width);
            let definition = setup.definition()?;
            let mut expected = input.clone();
            for (row, position) in expected.chunks_exact_mut(width).zip(&positions) {
                let angles = RopeAngles::new(&frequencies, &[*position]);
                definition.rope(row, *heads, *head_dim, &angles, layout);
            }
            for cpu in &machines(setup)? {
                for rows in ROWS {
                    let angles = RopeAngles::new(&frequencies, &positions[..rows]);
                    let id = CaseId {
                        op: "rope",
                        shape: format!("{heads} heads of {head_dim}, {rotated} turned"),
                        format: String::new(),
                        isa: cpu.isa(),
                        threads: cpu.threads(),
                        rows,
                        detail: format!("{layout:?}").to_lowercase(),
                    };
                    // A task turns one row.
                    let expected = &expected[..rows * width];
                    let case = RowsCase { place: "rope", width, expected, splits: rows > 1 };
                    findings.compare_run(cpu, &id, &case, &mut || {
                        let mut found = input[..rows * width].to_vec();
                        cpu.rope(&mut found, *heads, *head_dim, &angles, layout);
                        found
                    });
                }
            }
        }
    }
    Ok(())
}
