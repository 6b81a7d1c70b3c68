//! What acts on logits between the forward pass and the sampler: bias, penalties, masks.
//!
//! Everything here is a pure function of the options, the prompt and the tokens of the answer so far. So it cannot
//! matter whether a row was computed alone or in a batch, drafted or not, in one go or after a resume: the same tokens
//! give the same changes to the same bits.
//!
//! A row is changed in this order, by the operations of [`samebit_arith::sampling::adjust`]:
//! 1. **bias** is added ([`LogitBias`]);
//! 2. **repetition penalty**, over the distinct tokens of prompt and answer ([`Penalties::repetition`]);
//! 3. **frequency**, then **presence penalty**, over the answer's tokens ([`Penalties`]);
//! 4. while the answer is shorter than `min_tokens`, **end tokens** become minus infinity;
//! 5. tokens that the **constraint** does not allow become minus infinity ([`Constraint`]).
//!
//! Masks come last so that no bias can lift what they forbid. Then the sampler filters and draws (temperature, top-k,
//! top-p, min-p). Log-probabilities and the chain of logits are of the row as the forward pass gave it.

mod compiler;
mod constraint;
mod options;
mod pipeline;
mod spec;

pub use compiler::ConstraintCompiler;
pub use constraint::Constraint;
pub use options::{LogitBias, LogitOptions, Penalties};
pub use pipeline::LogitsPipeline;
pub use spec::ConstraintSpec;

use crate::EngineError;

/// What an option is, and what it should have been.
fn refused(option: &'static str, found: impl Into<String>, expected: impl Into<String>) -> EngineError {
    EngineError::Option { option, found: found.into(), expected: expected.into() }
}
