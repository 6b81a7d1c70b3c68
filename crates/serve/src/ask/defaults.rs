//! How tokens are chosen when a request does not say: as `generation_config.json` recommends, else greedily.

use samebit_checkpoint::Checkpoint;
use samebit_engine::{EngineError, Penalties, SamplingOptions};

/// What holds where a request says nothing.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    /// How tokens are drawn.
    pub(crate) sampling: SamplingOptions,
    /// The repetition penalty; 1 is none.
    pub(crate) repetition: f64,
}

impl Defaults {
    /// The defaults of a checkpoint.
    ///
    /// Where the file says `do_sample: true`, its `temperature` (1 if it names none), `top_k`, `top_p` and `min_p` are
    /// taken. Otherwise the temperature is 0. Its `repetition_penalty` holds either way. A request's own fields go before
    /// each of them.
    ///
    /// # Errors
    /// When the file's numbers are of wrong types or out of bounds.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Result<Self, EngineError> {
        let mut sampling = SamplingOptions::default();
        let mut penalties = Penalties::default();
        if let Some(config) = checkpoint.generation_config() {
            let root = config.root();
            let number = |key| root.optional::<f64>(key);
            if root.optional::<bool>("do_sample")?.unwrap_or(false) {
                sampling.temperature = number("temperature")?.unwrap_or(1.0);
                sampling.top_k = root.optional::<usize>("top_k")?.unwrap_or(0);
                sampling.top_p = number("top_p")?.unwrap_or(1.0);
                sampling.min_p = number("min_p")?.unwrap_or(0.0);
            }
            penalties.repetition = number("repetition_penalty")?.unwrap_or(1.0);
        }
        sampling.check()?;
        penalties.check()?;
        Ok(Self { sampling, repetition: penalties.repetition })
    }
}
