//! Attention over stored keys and values of every type.

use samebit_arith::{AttentionShape, AttentionSpan, Cpu, Isa, KvPage, KvShape, KvType};

use super::{Setup, TIMED_ROWS, machines};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::random::Random;
use crate::sharing::RowsCase;

/// Keys already stored where attention is timed.
const TIMED_DEPTH: usize = 1024;

/// Random stored keys and values of `count` positions.
pub(super) fn stored(random: &mut Random, shape: KvShape, ty: KvType, count: usize) -> Vec<KvPage> {
    let mut pages = Vec::new();
    let mut left = count;
    while left > 0 {
        let rows = left.min(KvPage::POSITIONS);
        let mut page = KvPage::new(shape, ty);
        let (keys, values) = (rows * shape.key_width(), rows * shape.value_width());
        page.push(&random.activations(keys), &random.activations(values));
        pages.push(page);
        left -= rows;
    }
    pages
}

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("attention");
    for ty in KvType::ALL {
        for (heads, kv) in [
            (9, KvShape::uniform(3, 64)),
            (4, KvShape::uniform(1, 256)),
            (6, KvShape { kv_heads: 2, key_dim: 48, value_dim: 72 }),
            (5, KvShape { kv_heads: 5, key_dim: 24, value_dim: 20 }),
        ] {
            for (window, soft_cap) in [(None, None), (Some(100), None), (None, Some(20.0))] {
                let shape = AttentionShape { heads, kv, scale: 0.125, window, soft_cap };
                batch(setup, findings, &mut random, &shape, ty)?;
            }
        }
    }
    for (heads, kv) in [(9, KvShape::uniform(3, 64)), (24, KvShape::uniform(2, 128))] {
        time(setup, findings, &mut random, heads, kv)?;
    }
    Ok(())
}

/// Three sequences in one batch: a decoded row deep in its context, a prompt's first rows, rows across the end of a block.
fn batch(
    setup: &Setup<'_>,
    findings: &mut Findings,
    random: &mut Random,
    shape: &AttentionShape,
    ty: KvType,
) -> Result<(), ProveError> {
    const SPANS: [(usize, usize); 3] = [(530, 1), (0, 9), (250, 12)];
    let sequences: Vec<Vec<KvPage>> =
        SPANS.iter().map(|(first, rows)| stored(random, shape.kv, ty, first + rows)).collect();
    let spans: Vec<AttentionSpan<'_>> = SPANS
        .iter()
        .zip(&sequences)
        .map(|((first, rows), pages)| AttentionSpan {
            first_position: *first,
            rows: *rows,
            pages: pages.iter().collect(),
        })
        .collect();
    let rows: usize = SPANS.iter().map(|(_, rows)| rows).sum();
    let queries = random.activations(rows * shape.heads * shape.kv.key_dim);
    let width = shape.heads * shape.kv.value_dim;
    let attend = |cpu: &Cpu| {
        let mut out = vec![0.0; rows * width];
        cpu.attention(shape, &queries, &spans, &mut out);
        out
    };
    let expected = attend(&setup.definition()?);
    for cpu in &machines(setup)? {
        let id = CaseId {
            op: "attention",
            shape: describe(shape),
            format: ty.to_string(),
            isa: cpu.isa(),
            threads: cpu.threads(),
            rows,
            detail: "three sequences".to_owned(),
        };
        let case = RowsCase { place: "attention", width, expected: &expected, splits: splits(cpu, rows) };
        findings.compare_run(cpu, &id, &case, &mut || attend(cpu));
    }
    Ok(())
}

/// Whether attention of this many rows is more than one task: the definition has one a row, all else one a thread.
pub(super) fn splits(cpu: &Cpu, rows: usize) -> bool {
    cpu.isa() != Isa::Scalar || rows > 1
}

/// Heads, columns, and what is masked.
pub(super) fn describe(shape: &AttentionShape) -> String {
    let KvShape { kv_heads, key_dim, value_dim } = shape.kv;
    let mut text = format!("{}/{kv_heads} heads of {key_dim}", shape.heads);
    if value_dim != key_dim {
        text += &format!(" and {value_dim}");
    }
    if let Some(window) = shape.window {
        text += &format!(", window {window}");
    }
    if shape.soft_cap.is_some() {
        text += ", soft cap";
    }
    text
}

fn time(
    setup: &Setup<'_>,
    findings: &mut Findings,
    random: &mut Random,
    heads: usize,
    kv: KvShape,
) -> Result<(), ProveError> {
    let shape = AttentionShape { heads, kv, scale: 0.125, window: None, soft_cap: None };
    let most = TIMED_ROWS[TIMED_ROWS.len() - 1];
    let pages = stored(random, kv, setup.kv(), TIMED_DEPTH + most);
    for isa in setup.fast_isas() {
        let cpu = setup.cpu(isa, setup.threads())?;
        for rows in TIMED_ROWS {
            let queries = random.activations(rows * heads * kv.key_dim);
            let mut out = vec![0.0; rows * heads * kv.value_dim];
            let span = AttentionSpan { first_position: TIMED_DEPTH, rows, pages: pages.iter().collect() };
            let id = CaseId {
                op: "attention",
                shape: format!("{} behind {TIMED_DEPTH} keys", describe(&shape)),
                format: setup.kv().to_string(),
                isa,
                threads: cpu.threads(),
                rows,
                detail: String::new(),
            };
            findings
                .time(&id, &mut || cpu.attention(&shape, &queries, std::slice::from_ref(&span), &mut out));
        }
    }
    Ok(())
}
