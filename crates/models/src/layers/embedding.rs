//! Token embeddings.

use std::sync::Arc;

use samebit_arith::{Buffer, Cpu};
use samebit_checkpoint::{Checkpoint, CheckpointError};

use crate::TokenId;

/// A table of one row per token id, read where it lies in the checkpoint.
#[derive(Debug)]
pub(crate) struct Embedding {
    checkpoint: Arc<Checkpoint>,
    name: String,
    vocabulary: usize,
    hidden: usize,
    scale: Option<f32>,
}

impl Embedding {
    /// The tensor `name` `[vocabulary, hidden]`, whose rows are multiplied by `scale`.
    pub(crate) fn new(
        checkpoint: Arc<Checkpoint>,
        name: String,
        [vocabulary, hidden]: [usize; 2],
        scale: Option<f32>,
    ) -> Self {
        Self { checkpoint, name, vocabulary, hidden, scale }
    }

    /// Rows `[tokens, hidden]`. The ids were checked against the vocabulary.
    ///
    /// # Errors
    /// When the checkpoint no longer holds what it held when the model was loaded.
    pub(crate) fn forward<'t>(
        &self,
        cpu: &Cpu,
        tokens: impl ExactSizeIterator<Item = &'t TokenId>,
    ) -> Result<Buffer, CheckpointError> {
        let table = self.checkpoint.matrix_of(&self.name, self.vocabulary, self.hidden)?.encoded();
        let mut out = cpu.buffer(tokens.len() * self.hidden);
        for (token, row) in tokens.zip(out.chunks_exact_mut(self.hidden)) {
            table.dequantize_row(token.0 as usize, row);
        }
        if let Some(scale) = self.scale {
            cpu.scale(&mut out, scale);
        }
        Ok(out)
    }
}
