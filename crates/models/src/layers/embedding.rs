//! Token embeddings.

use std::sync::Arc;

use samebit_arith::{Buffer, Cpu, Matrix};
use samebit_checkpoint::{Checkpoint, CheckpointError};

use crate::TokenId;

/// A table of one row per token id.
#[derive(Debug)]
pub(crate) struct Embedding {
    table: Table,
    vocabulary: usize,
    hidden: usize,
    scale: Option<f32>,
}

/// Where the rows are.
#[derive(Debug)]
pub(crate) enum Table {
    /// In the packed matrix of the head, which is the same tensor: reading the checkpoint's copy as well would bring it
    /// back into memory page by page.
    Head(Arc<Matrix>),
    /// Where they lie in the checkpoint, under this name.
    Stored(Arc<Checkpoint>, String),
}

impl Embedding {
    /// A table `[vocabulary, hidden]`, whose rows are multiplied by `scale`.
    pub(crate) fn new(table: Table, [vocabulary, hidden]: [usize; 2], scale: Option<f32>) -> Self {
        Self { table, vocabulary, hidden, scale }
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
        let mut out = cpu.buffer(tokens.len() * self.hidden);
        let rows = tokens.map(|token| token.0 as usize).zip(out.chunks_exact_mut(self.hidden));
        match &self.table {
            Table::Head(matrix) => rows.for_each(|(token, row)| matrix.dequantize_row(cpu, token, row)),
            Table::Stored(checkpoint, name) => {
                let table = checkpoint.matrix_of(name, self.vocabulary, self.hidden)?.encoded();
                rows.for_each(|(token, row)| table.dequantize_row(token, row));
            }
        }
        if let Some(scale) = self.scale {
            cpu.scale(&mut out, scale);
        }
        Ok(out)
    }
}
