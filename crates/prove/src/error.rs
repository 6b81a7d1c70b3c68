//! Why a check could not run.

use samebit_arith::CpuError;
use samebit_checkpoint::CheckpointError;
use samebit_models::ForwardError;

/// Why a check could not run. It says nothing about the model.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// A machine could not be had.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A pass was refused.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// A file of the model cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The check itself went wrong.
    #[error("the check itself went wrong: {reason}")]
    Internal {
        /// How.
        reason: String,
    },
}
