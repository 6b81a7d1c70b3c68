//! Running the model, and keeping everything that a pass gives.

use std::ops::Range;

use samebit_arith::{Cpu, KvType};
use samebit_models::{ForwardError, LogitRows, Model, Outputs, SequenceState, Span, Taps, TokenId};

use crate::findings::{Bits, Part};
use crate::random::Random;

/// Everything is kept: what each layer gives tells where a difference begins.
pub(crate) const ALL_TAPS: Taps = Taps { layers: true, hidden: true };

/// Random tokens of the model's vocabulary.
pub(crate) fn random_tokens(random: &mut Random, model: &Model, count: usize) -> Vec<TokenId> {
    // Vocabularies are counted by 32-bit ids.
    (0..count).map(|_| TokenId(random.below(model.info().vocabulary) as u32)).collect()
}

/// What a model gave for consecutive positions of one sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Position of the first row.
    first: usize,
    rows: usize,
    hidden_width: usize,
    vocabulary: usize,
    /// Residual stream after each layer.
    layers: Vec<Vec<f32>>,
    /// Picked experts of each layer with a router, and how many per row.
    routers: Vec<Option<(usize, Vec<u32>)>>,
    hidden: Vec<f32>,
    /// Positions with logits, ascending.
    logit_positions: Vec<usize>,
    logits: Vec<f32>,
}

impl Recorded {
    /// Nothing yet, of rows that begin at this position.
    pub(crate) fn from_position(first: usize) -> Self {
        Self { first, ..Self::default() }
    }

    /// Adds the rows `rows` of a batch: the next ones of this sequence.
    pub(crate) fn append(&mut self, model: &Model, outputs: &Outputs, rows: Range<usize>) {
        let width = model.info().hidden;
        (self.hidden_width, self.vocabulary) = (width, outputs.vocabulary);
        self.layers.resize(outputs.layers.len(), Vec::new());
        for (kept, layer) in self.layers.iter_mut().zip(&outputs.layers) {
            kept.extend_from_slice(&layer[rows.start * width..rows.end * width]);
        }
        self.routers.resize(outputs.routers.len(), None);
        for (kept, picks) in self.routers.iter_mut().zip(&outputs.routers) {
            if let Some(picks) = picks {
                let (_, ids) = kept.get_or_insert((picks.picked, Vec::new()));
                let picked = &picks.ids[rows.start * picks.picked..rows.end * picks.picked];
                ids.extend(picked.iter().map(|id| id.cast_unsigned()));
            }
        }
        if let Some(hidden) = &outputs.hidden {
            self.hidden.extend_from_slice(&hidden[rows.start * width..rows.end * width]);
        }
        for (index, row) in outputs.rows.iter().enumerate().filter(|(_, row)| rows.contains(row)) {
            self.logit_positions.push(self.first + self.rows + row - rows.start);
            self.logits.extend_from_slice(outputs.logits_row(index));
        }
        self.rows += rows.len();
    }

    /// Adds the next rows of the same sequence.
    pub(crate) fn join(&mut self, next: Self) {
        if self.rows == 0 {
            *self = next;
            return;
        }
        self.layers.iter_mut().zip(next.layers).for_each(|(layer, more)| layer.extend(more));
        for (router, more) in self.routers.iter_mut().zip(next.routers) {
            if let (Some((_, ids)), Some((_, more))) = (router, more) {
                ids.extend(more);
            }
        }
        self.hidden.extend(next.hidden);
        self.logit_positions.extend(next.logit_positions);
        self.logits.extend(next.logits);
        self.rows += next.rows;
    }

    /// Everything of `found`, beside what these rows give for the same positions, in the order it is computed.
    pub(crate) fn parts<'a>(&'a self, found: &'a Self) -> Vec<Part<'a>> {
        let first = found.first.saturating_sub(self.first).min(self.rows);
        let rows = first..(first + found.rows).min(self.rows);
        let part = |place: String, width: usize, expected: Bits<'a>, found_bits: Bits<'a>| Part {
            place,
            unit: "position",
            first: found.first,
            width,
            expected,
            found: found_bits,
        };
        let hidden =
            |x: &'a [f32]| Bits::Floats(&x[rows.start * self.hidden_width..rows.end * self.hidden_width]);
        let mut parts = Vec::new();
        for (layer, (expected, given)) in self.layers.iter().zip(&found.layers).enumerate() {
            if let (Some((picked, expected)), Some((_, given))) =
                (&self.routers[layer], &found.routers[layer])
            {
                let expected = Bits::Ids(&expected[rows.start * picked..rows.end * picked]);
                parts.push(part(format!("experts of layer {layer}"), *picked, expected, Bits::Ids(given)));
            }
            let place = format!("layer {layer}");
            parts.push(part(place, self.hidden_width, hidden(expected), Bits::Floats(given)));
        }
        let given = Bits::Floats(&found.hidden);
        parts.push(part("hidden state".to_owned(), self.hidden_width, hidden(&self.hidden), given));
        for (index, position) in found.logit_positions.iter().enumerate() {
            let row = |of: &'a Self, index: usize| {
                Bits::Floats(&of.logits[index * of.vocabulary..(index + 1) * of.vocabulary])
            };
            let expected = match self.logit_positions.binary_search(position) {
                Ok(index) => row(self, index),
                Err(_) => Bits::Floats(&[]),
            };
            let logits = part("logits".to_owned(), self.vocabulary, expected, row(found, index));
            parts.push(Part { first: *position, ..logits });
        }
        parts
    }
}

/// Which positions want logits.
pub(crate) type Wanted<'a> = &'a dyn Fn(usize) -> bool;

/// Rows of the positions `first .. first + rows` that want logits.
pub(crate) fn logit_rows(first: usize, rows: usize, wanted: Wanted<'_>) -> LogitRows {
    LogitRows::Rows((0..rows).filter(|row| wanted(first + row)).collect())
}

/// Runs the tokens in passes of these lengths.
pub(crate) fn run_pieces(
    model: &Model,
    cpu: &Cpu,
    state: &mut SequenceState,
    tokens: &[TokenId],
    pieces: &[usize],
    wanted: Wanted<'_>,
) -> Result<Recorded, ForwardError> {
    let mut recorded = Recorded::from_position(state.length());
    let mut done = 0;
    for &piece in pieces {
        let logits = logit_rows(state.length(), piece, wanted);
        let span = Span { state: &mut *state, tokens: &tokens[done..done + piece], logits };
        let outputs = model.forward(cpu, &mut [span], ALL_TAPS)?;
        recorded.append(model, &outputs, 0..piece);
        done += piece;
    }
    Ok(recorded)
}

/// What a sequence gave, its stored state at the end included.
pub(crate) struct Finished {
    pub(crate) recorded: Recorded,
    pub(crate) state: Vec<u8>,
}

impl Finished {
    /// What `found` gave, beside what this gave.
    pub(crate) fn parts<'a>(&'a self, found: &'a Self) -> Vec<Part<'a>> {
        let mut parts = self.recorded.parts(&found.recorded);
        parts.push(state_part(&self.state, &found.state));
        parts
    }
}

/// The stored states that two runs left.
pub(crate) fn state_part<'a>(expected: &'a [u8], found: &'a [u8]) -> Part<'a> {
    Part::whole("stored state", Bits::Bytes(expected), Bits::Bytes(found))
}

/// Runs a sequence from its beginning.
pub(crate) fn run_fresh(
    model: &Model,
    cpu: &Cpu,
    kv: KvType,
    tokens: &[TokenId],
    pieces: &[usize],
    wanted: Wanted<'_>,
) -> Result<Finished, ForwardError> {
    let mut state = model.new_state(kv);
    let recorded = run_pieces(model, cpu, &mut state, tokens, pieces, wanted)?;
    Ok(Finished { recorded, state: state.encode() })
}
