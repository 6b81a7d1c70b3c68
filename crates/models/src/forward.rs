//! One pass over rows of several sequences.
//!
//! Dense layers see all rows of the batch at once; attention sees one sequence's rows and its state. Rows are
//! independent, so what runs beside a row, and how a prompt is cut into passes, cannot change a bit of it.

mod outputs;
mod pass;

use samebit_arith::{Buffer, Cpu};

pub use outputs::{Outputs, RouterPicks};
pub(crate) use pass::Pass;

use crate::{ForwardError, Model, SequenceState};

/// A token of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

impl From<u32> for TokenId {
    fn from(id: u32) -> Self {
        Self(id)
    }
}

/// Which rows of a span want logits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogitRows {
    /// None: the rows only advance the state.
    None,
    /// The last row: what comes next.
    #[default]
    Last,
    /// Every row.
    All,
    /// These rows of the span, in this order.
    Rows(Vec<usize>),
}

/// Consecutive tokens of one sequence, which follow what its state holds.
#[derive(Debug)]
pub struct Span<'a> {
    /// The sequence; the pass advances it by all tokens.
    pub state: &'a mut SequenceState,
    /// The tokens, at least one.
    pub tokens: &'a [TokenId],
    /// Which rows want logits.
    pub logits: LogitRows,
}

/// What to record beside logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// The residual stream after every block, and the router's picks.
    pub layers: bool,
    /// What the head reads, for every row.
    pub hidden: bool,
}

/// The blocks of a family, between embedding and final norm.
pub(crate) trait Blocks: std::fmt::Debug + Send + Sync {
    /// Turns embedded rows `[rows, hidden]` into the residual stream after the last block, and calls
    /// [`Pass::end_of_block`] after each.
    fn forward(&self, pass: &mut Pass<'_, '_>, x: &mut [f32]);
}

impl Model {
    /// Runs the tokens of every span, advances their states, and returns logits and what else was asked for.
    ///
    /// # Errors
    /// When a span is empty, a token id is not in the vocabulary, a sequence would outgrow the context, a state belongs
    /// to another model, or logits of a row are asked for that is not there. Then no state is touched.
    pub fn forward(&self, cpu: &Cpu, batch: &mut [Span<'_>], taps: Taps) -> Result<Outputs, ForwardError> {
        let wanted = self.check(batch)?;
        let hidden = self.info().hidden;
        let tokens: Vec<TokenId> = batch.iter().flat_map(|span| span.tokens).copied().collect();
        let mut x = self.embedding.forward(cpu, tokens.iter())?;

        let mut pass = Pass::new(cpu, batch, taps, self.info().layers.len());
        self.blocks.forward(&mut pass, &mut x);
        let (layers, routers) = pass.into_recorded();
        for span in batch.iter_mut() {
            span.state.advanced(span.tokens.len());
        }

        let all_hidden = taps.hidden.then(|| self.norm.forward(cpu, &x));
        let picked_rows = match &all_hidden {
            Some(all) => gather(cpu, all, hidden, &wanted),
            None => self.norm.forward(cpu, &gather(cpu, &x, hidden, &wanted)),
        };
        Ok(Outputs {
            logits: self.head.forward(cpu, &picked_rows),
            vocabulary: self.info().vocabulary,
            rows: wanted,
            hidden: all_hidden,
            layers,
            routers,
        })
    }

    /// Checks a batch, and lists the rows (of the whole batch) that want logits.
    fn check(&self, batch: &[Span<'_>]) -> Result<Vec<usize>, ForwardError> {
        let info = self.info();
        let mut wanted = Vec::new();
        let mut first_row = 0;
        for (index, span) in batch.iter().enumerate() {
            let rows = span.tokens.len();
            if rows == 0 {
                return Err(ForwardError::EmptySpan { span: index });
            }
            let expected = self.identity(span.state.kv_type());
            if span.state.identity() != &**expected {
                return Err(ForwardError::ForeignState {
                    span: index,
                    found: span.state.identity().to_string(),
                    expected: expected.to_string(),
                });
            }
            if let Some(at) = span.tokens.iter().position(|token| token.0 as usize >= info.vocabulary) {
                let (token, vocabulary) = (span.tokens[at].0, info.vocabulary);
                return Err(ForwardError::Token { span: index, index: at, token, vocabulary });
            }
            let stored = span.state.length();
            if rows > info.context - stored.min(info.context) {
                return Err(ForwardError::Context {
                    span: index,
                    stored,
                    added: rows,
                    wanted: stored.saturating_add(rows),
                    context: info.context,
                });
            }
            match &span.logits {
                LogitRows::None => {}
                LogitRows::Last => wanted.push(first_row + rows - 1),
                LogitRows::All => wanted.extend(first_row..first_row + rows),
                LogitRows::Rows(list) => {
                    for &row in list {
                        if row >= rows {
                            return Err(ForwardError::LogitsRow { span: index, row, rows });
                        }
                        wanted.push(first_row + row);
                    }
                }
            }
            first_row += rows;
        }
        Ok(wanted)
    }
}

/// The given rows below each other.
fn gather(cpu: &Cpu, x: &[f32], width: usize, rows: &[usize]) -> Buffer {
    let mut out = cpu.buffer(rows.len() * width);
    for (out, &row) in out.chunks_exact_mut(width).zip(rows) {
        out.copy_from_slice(&x[row * width..(row + 1) * width]);
    }
    out
}
