//! Sequences that run in one batch: what `concurrent` and `mixed` share.

use samebit_arith::{Cpu, KvType};
use samebit_models::{Model, SequenceState, Span, TokenId};

use super::Setup;
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::passes::{ALL_TAPS, Finished, Recorded, logit_rows, random_tokens, run_fresh};
use crate::random::Random;

/// A sequence to run: a prompt, then tokens as if they had been decoded.
pub(super) struct Planned {
    tokens: Vec<TokenId>,
    /// How many of the tokens are the prompt.
    prompt: usize,
    /// The step at which it joins.
    joins: usize,
    /// Prompt tokens per step.
    chunk: usize,
}

/// How sequences are drawn.
pub(super) struct Sizes {
    pub(super) sequences: usize,
    /// Prompt of the first sequence, where the context has room.
    pub(super) longest_prompt: usize,
    /// Longest prompt of the others.
    pub(super) prompt: usize,
    /// Most tokens after a prompt.
    pub(super) decoded: usize,
}

/// Draws sequences. The first is there from the beginning, the others join at random steps.
pub(super) fn draw(random: &mut Random, model: &Model, sizes: &Sizes) -> Vec<Planned> {
    let context = model.info().context;
    (0..sizes.sequences)
        .map(|index| {
            let decoded = random.between(1, sizes.decoded).min(context - 1);
            let room = context - decoded;
            let prompt = match index {
                0 => sizes.longest_prompt.min(room),
                _ => random.between(1, sizes.prompt.min(room)),
            };
            let tokens = random_tokens(random, model, prompt + decoded);
            let joins = if index == 0 { 0 } else { random.between(1, 5) };
            Planned { tokens, prompt, joins, chunk: random.between(9, 64) }
        })
        .collect()
}

impl Planned {
    /// Whether the row at this position gives logits: from the end of the prompt on.
    fn wants_logits(&self, position: usize) -> bool {
        position + 1 >= self.prompt
    }

    /// What it is, for people.
    fn shape(&self) -> String {
        format!("{} prompt tokens, then {}", self.prompt, self.tokens.len() - self.prompt)
    }

    /// What it gives when it runs alone: the prompt in one pass, then row by row.
    fn alone(&self, setup: &Setup<'_>, cpu: &Cpu) -> Result<Finished, ProveError> {
        let mut pieces = vec![1; self.tokens.len() - self.prompt + 1];
        pieces[0] = self.prompt;
        let wanted = |position| self.wants_logits(position);
        Ok(run_fresh(setup.model(), cpu, setup.kv(), &self.tokens, &pieces, &wanted)?)
    }
}

/// What each sequence gives alone, by the best instruction set.
pub(super) fn run_alone(setup: &Setup<'_>, plans: &[Planned]) -> Result<Vec<Finished>, ProveError> {
    let cpu = setup.cpu(setup.best_isa(), setup.threads())?;
    plans.iter().map(|plan| plan.alone(setup, &cpu)).collect()
}

/// Runs the sequences together on `cpu` and compares each with what it gave `alone`. `name` names the batch.
pub(super) fn compare_together(
    setup: &Setup<'_>,
    findings: &mut Findings,
    cpu: &Cpu,
    random: &mut Random,
    (plans, alone): (&[Planned], &[Finished]),
    rejects: bool,
    counts: &mut Counts,
    name: &str,
) -> Result<(), ProveError> {
    counts.widest = 0;
    let together = run_together(setup, cpu, random, plans, rejects, counts)?;
    for (index, plan) in plans.iter().enumerate() {
        let id = CaseId {
            op: "forward",
            shape: plan.shape(),
            format: setup.kv().to_string(),
            isa: cpu.isa(),
            threads: cpu.threads(),
            rows: counts.widest,
            detail: format!("{name}, sequence {index} of {} against itself alone", plans.len()),
        };
        findings.compare(&id, &alone[index].parts(&together[index]));
    }
    Ok(())
}

/// What happened in the batches.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Steps with several sequences.
    pub(super) several: usize,
    /// Steps whose sequences stood at different depths.
    pub(super) unequal_depths: usize,
    /// Steps with rows of prompts and decoded rows.
    pub(super) prompts_and_decoded: usize,
    /// Sequences that joined when others had begun.
    pub(super) joined: usize,
    /// Sequences that left before others.
    pub(super) left: usize,
    /// Rows that were run and then rolled back.
    pub(super) rolled_back: usize,
    /// Rows of the widest batch.
    widest: usize,
}

/// A sequence under way.
struct Running<'a> {
    plan: &'a Planned,
    state: SequenceState,
    recorded: Recorded,
    /// Tokens of the present step, and how many of them are to stay.
    step: Vec<TokenId>,
    kept: usize,
}

impl Running<'_> {
    fn is_done(&self) -> bool {
        self.state.length() == self.plan.tokens.len()
    }

    /// Draws the tokens of the next step. With `rejects`, decoded rows may be followed by others that are rolled back.
    fn draw_step(&mut self, random: &mut Random, model: &Model, rejects: bool) {
        let done = self.state.length();
        let left = self.plan.tokens.len() - done;
        let in_prompt = done < self.plan.prompt;
        self.kept = if in_prompt {
            self.plan.chunk.min(self.plan.prompt - done)
        } else {
            random.pick(&[1, 1, 1, 2, 4, 8]).min(left)
        };
        self.step = self.plan.tokens[done..done + self.kept].to_vec();
        if rejects && !in_prompt {
            let room = model.info().context - done - self.kept;
            let extra = random.below(5).min(room);
            self.step.extend(random_tokens(random, model, extra));
        }
    }
}

/// Runs the sequences together; each leaves when it is done.
fn run_together(
    setup: &Setup<'_>,
    cpu: &Cpu,
    random: &mut Random,
    plans: &[Planned],
    rejects: bool,
    counts: &mut Counts,
) -> Result<Vec<Finished>, ProveError> {
    let (model, kv): (&Model, KvType) = (setup.model(), setup.kv());
    let mut sequences: Vec<Running<'_>> = plans
        .iter()
        .map(|plan| Running {
            plan,
            state: model.new_state(kv),
            recorded: Recorded::from_position(0),
            step: Vec::new(),
            kept: 0,
        })
        .collect();
    let mut step = 0;
    while sequences.iter().any(|sequence| !sequence.is_done()) {
        let mut active: Vec<&mut Running<'_>> = sequences
            .iter_mut()
            .filter(|sequence| !sequence.is_done() && sequence.plan.joins <= step)
            .collect();
        active.iter_mut().for_each(|sequence| sequence.draw_step(random, model, rejects));
        counts.see(step, &active);
        if !active.is_empty() {
            run_step(model, cpu, &mut active)?;
        }
        let left = sequences.iter().filter(|sequence| sequence.is_done()).count();
        if left < plans.len() {
            counts.left = counts.left.max(left);
        }
        step += 1;
    }
    let finished = sequences.into_iter();
    Ok(finished.map(|done| Finished { recorded: done.recorded, state: done.state.encode() }).collect())
}

/// One pass over the next rows of these sequences.
fn run_step(model: &Model, cpu: &Cpu, active: &mut [&mut Running<'_>]) -> Result<(), ProveError> {
    let mut batch: Vec<Span<'_>> = Vec::with_capacity(active.len());
    for sequence in active.iter_mut() {
        let Running { plan, state, step, kept, .. } = &mut **sequence;
        let logits = logit_rows(state.length(), *kept, &|position| plan.wants_logits(position));
        batch.push(Span { state, tokens: step, logits });
    }
    let outputs = model.forward(cpu, &mut batch, ALL_TAPS)?;
    let mut first = 0;
    for sequence in active {
        sequence.recorded.append(model, &outputs, first..first + sequence.kept);
        let before = sequence.state.length() - sequence.step.len();
        let rollback = sequence.state.rollback(before + sequence.kept);
        rollback.map_err(|error| ProveError::Internal { reason: error.to_string() })?;
        first += sequence.step.len();
    }
    Ok(())
}

impl Counts {
    /// Takes note of what is about to run.
    fn see(&mut self, step: usize, active: &[&mut Running<'_>]) {
        let depth = |sequence: &&mut Running<'_>| sequence.state.length();
        let in_prompt = |sequence: &&mut Running<'_>| depth(sequence) < sequence.plan.prompt;
        let rows: usize = active.iter().map(|sequence| sequence.step.len()).sum();
        self.widest = self.widest.max(rows);
        self.several += usize::from(active.len() > 1);
        self.unequal_depths +=
            usize::from(active.iter().any(|sequence| depth(sequence) != depth(&active[0])));
        self.prompts_and_decoded +=
            usize::from(active.iter().any(in_prompt) && !active.iter().all(in_prompt));
        let begun = active.iter().any(|sequence| depth(sequence) > 0);
        let joining = active.iter().filter(|sequence| step > 0 && depth(sequence) == 0).count();
        self.joined += if begun { joining } else { 0 };
        self.rolled_back += active.iter().map(|sequence| sequence.step.len() - sequence.kept).sum::<usize>();
    }
}
