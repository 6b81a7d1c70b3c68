//! Routing to experts, the sum of their outputs, and the choice of a token.

use samebit_arith::sampling::{Filter, argmax, candidates, perturbed_argmax};
use samebit_arith::{Cpu, top_k};

use super::{Setup, machines};
use crate::error::ProveError;
use crate::findings::{Bits, CaseId, Findings, Part};
use crate::random::Random;

/// Experts picked per row.
const PICKED: usize = 9;
/// Columns of an expert's output in the latent space.
const LATENT: usize = 1024;

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("experts");
    routing(setup, findings, &mut random)?;
    combination(setup, findings, &mut random)?;
    sampling(setup, findings, &mut random)
}

/// What router logits look like.
const PATTERNS: [&str; 6] =
    ["random", "planted ties", "all equal", "ties at the cut", "zeros of both signs", "ascending"];

fn router_logits(random: &mut Random, pattern: &str, experts: usize) -> Vec<f32> {
    let mut logits = random.activations(experts);
    match pattern {
        "planted ties" => logits.iter_mut().for_each(|x| *x = (*x * 4.0).round() / 4.0),
        "all equal" => logits.fill(0.25),
        "ties at the cut" => {
            logits.fill(1.0);
            (0..PICKED - 1).for_each(|rank| logits[random.below(experts)] = 2.0 + rank as f32);
        }
        "zeros of both signs" => logits.iter_mut().for_each(|x| *x = if *x < 0.0 { -0.0 } else { 0.0 }),
        "ascending" => logits.sort_by(f32::total_cmp),
        _ => {}
    }
    logits
}

/// Softmax or sigmoid of router logits, then the nine best. The definition sorts all experts.
fn routing(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    const ROWS: [usize; 4] = [1, 2, 9, 16];
    let definition = setup.definition()?;
    let machines = machines(setup)?;
    for experts in [240, 304, 368, 432, 496] {
        for (pattern, softmax) in PATTERNS.into_iter().zip([true, false].into_iter().cycle()) {
            let most = ROWS[ROWS.len() - 1];
            let logits: Vec<f32> = (0..most).flat_map(|_| router_logits(random, pattern, experts)).collect();
            let score = |cpu: &Cpu, scores: &mut [f32]| {
                if softmax { cpu.softmax(scores, experts) } else { cpu.sigmoid(scores) }
            };
            let (mut ids, mut weights) = (Vec::new(), Vec::new());
            for row in logits.chunks_exact(experts) {
                let mut scores = row.to_vec();
                score(&definition, &mut scores);
                let mut all: Vec<(u32, f32)> = (0..).zip(scores).collect();
                // A stable sort keeps ids ascending among equals.
                all.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
                ids.extend(all[..PICKED].iter().map(|(id, _)| *id));
                weights.extend(all[..PICKED].iter().map(|(_, weight)| *weight));
            }
            for cpu in &machines {
                for rows in ROWS {
                    let mut scores = logits[..rows * experts].to_vec();
                    score(cpu, &mut scores);
                    let picks = scores.chunks_exact(experts).flat_map(|row| top_k(row, PICKED));
                    let (found_ids, found_weights): (Vec<u32>, Vec<f32>) = picks.unzip();
                    let id = CaseId {
                        op: "top_k",
                        shape: format!("{PICKED} of {experts}"),
                        format: if softmax { "softmax" } else { "sigmoid" }.to_owned(),
                        isa: cpu.isa(),
                        threads: cpu.threads(),
                        rows,
                        detail: pattern.to_owned(),
                    };
                    let count = rows * PICKED;
                    let picked = Part {
                        expected: Bits::Ids(&ids[..count]),
                        found: Bits::Ids(&found_ids),
                        ..Part::rows("picked experts", PICKED, &[], &[])
                    };
                    let weights = Part::rows("their scores", PICKED, &weights[..count], &found_weights);
                    findings.compare(&id, &[picked, weights]);
                }
            }
        }
    }
    Ok(())
}

/// The weighted sum of nine experts' outputs, in pick order.
fn combination(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    const ROWS: [usize; 5] = [1, 2, 9, 16, 64];
    let most = ROWS[ROWS.len() - 1];
    let machines = machines(setup)?;
    let definition = setup.definition()?;
    for pattern in ["random", "cancelling", "zeros of both signs", "one weight"] {
        let mut outputs = random.activations(most * PICKED * LATENT);
        let mut weights: Vec<f32> = random.activations(most * PICKED);
        match pattern {
            "cancelling" => outputs.iter_mut().step_by(2).for_each(|x| *x = -1e4),
            "zeros of both signs" => outputs.iter_mut().for_each(|x| *x = if *x < 0.0 { -0.0 } else { 0.0 }),
            "one weight" => {
                weights.iter_mut().enumerate().for_each(|(at, x)| *x = f32::from(at % PICKED == 4));
            }
            _ => {}
        }
        let combine = |cpu: &Cpu, rows: usize| {
            let mut sums = vec![0.0; rows * LATENT];
            let (weights, outputs) = (weights.chunks_exact(PICKED), outputs.chunks_exact(PICKED * LATENT));
            for ((sum, weights), outputs) in sums.chunks_exact_mut(LATENT).zip(weights).zip(outputs) {
                for (weight, output) in weights.iter().zip(outputs.chunks_exact(LATENT)) {
                    cpu.add_scaled(sum, *weight, output);
                }
            }
            sums
        };
        let expected = combine(&definition, most);
        for cpu in &machines {
            for rows in ROWS {
                let found = combine(cpu, rows);
                let id = CaseId {
                    op: "combine",
                    shape: format!("{PICKED} of {LATENT}"),
                    format: String::new(),
                    isa: cpu.isa(),
                    threads: cpu.threads(),
                    rows,
                    detail: pattern.to_owned(),
                };
                findings.compare(&id, &[Part::rows("combine", LATENT, &expected[..rows * LATENT], &found)]);
            }
        }
    }
    Ok(())
}

/// Tokens kept and drawn from a row of logits.
fn sampling(setup: &Setup<'_>, findings: &mut Findings, random: &mut Random) -> Result<(), ProveError> {
    const POSITIONS: u64 = 8;
    let filters = [
        (None, 1.0, 0.0),
        (Some(40), 1.0, 0.0),
        (None, 0.9, 0.0),
        (None, 1.0, 0.05),
        (Some(100), 0.95, 0.02),
    ];
    let (definition, machines) = (setup.definition()?, machines(setup)?);
    for vocabulary in [1000, setup.model().info().vocabulary] {
        let logits: Vec<f32> = random.activations(vocabulary).iter().map(|x| 3.0 * x).collect();
        for (top_k, top_p, min_p) in filters {
            let filter = Filter { top_k, top_p, min_p };
            let choose = |cpu: &Cpu| {
                let kept = candidates(cpu, &logits, &filter);
                let draws = (0..POSITIONS)
                    .filter_map(|position| perturbed_argmax(&logits, kept.as_deref(), 0.8, 7, position));
                let chosen: Vec<u32> = argmax(&logits).into_iter().chain(draws).collect();
                (kept.unwrap_or_default(), chosen)
            };
            let (kept, chosen) = choose(&definition);
            for cpu in &machines {
                let (found_kept, found_chosen) = choose(cpu);
                let id = CaseId {
                    op: "sampling",
                    shape: vocabulary.to_string(),
                    format: String::new(),
                    isa: cpu.isa(),
                    threads: cpu.threads(),
                    rows: 1,
                    detail: format!("top_k {} top_p {top_p} min_p {min_p}", top_k.unwrap_or(vocabulary)),
                };
                let kept = Part::whole("kept tokens", Bits::Ids(&kept), Bits::Ids(&found_kept));
                let chosen = Part::whole("chosen tokens", Bits::Ids(&chosen), Bits::Ids(&found_chosen));
                findings.compare(&id, &[kept, chosen]);
            }
        }
    }
    Ok(())
}
