//! Sampling options and the sampler: which token follows a row of logits.

use samebit_arith::Cpu;
use samebit_arith::sampling::{self, Filter};
use sha2::{Digest, Sha256};

use crate::EngineError;

/// How tokens are chosen. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingOptions {
    /// 0 is greedy: always the highest logit. Above 0, tokens are drawn from the softmax at this temperature. At most
    /// [`Self::MAX_TEMPERATURE`].
    pub temperature: f64,
    /// Draw among this many of the highest logits only; 0 is no limit.
    pub top_k: usize,
    /// Draw among the smallest set with at least this share of the probability, in `(0, 1]`; 1 is no limit.
    pub top_p: f64,
    /// Never draw a token less probable than this share of the best one's probability, in `[0, 1]`; 0 is no limit.
    pub min_p: f64,
    /// Where the noise comes from; `None` derives it from the prompt ([`derived_seed`]).
    pub seed: Option<u64>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: None }
    }
}

impl SamplingOptions {
    /// The highest temperature that is accepted. Far below it every model already talks noise.
    pub const MAX_TEMPERATURE: f64 = 100.0;
    /// The lowest temperature above 0: logits divided by it stay finite.
    pub const MIN_TEMPERATURE: f64 = 1e-6;

    /// Checks every number against its bounds.
    ///
    /// # Errors
    /// [`EngineError::Option`] names the first one out of range.
    pub fn check(&self) -> Result<(), EngineError> {
        let temperature_fits = self.temperature == 0.0
            || (Self::MIN_TEMPERATURE..=Self::MAX_TEMPERATURE).contains(&self.temperature);
        let checks = [
            (
                temperature_fits,
                "temperature",
                self.temperature,
                "0 (greedy) or a number from 0.000001 to 100",
            ),
            (self.top_p > 0.0 && self.top_p <= 1.0, "top-p", self.top_p, "a number above 0 and at most 1"),
            ((0.0..=1.0).contains(&self.min_p), "min-p", self.min_p, "a number from 0 to 1"),
        ];
        match checks.into_iter().find(|(fits, ..)| !fits) {
            None => Ok(()),
            Some((_, option, found, expected)) => {
                Err(EngineError::Option { option, found: found.to_string(), expected: expected.to_owned() })
            }
        }
    }
}

/// The seed of a request that names none: the first 8 bytes, little endian, of SHA-256 over the prompt ids in decimal
/// joined by `,`, then `|`, then `salt`; 63 bits of it. The same prompt so gets the same answer, and a salt gives an
/// independent one.
pub fn derived_seed(prompt_ids: &[u32], salt: &str) -> u64 {
    let digest = Sha256::digest(format!("{}|{salt}", crate::identity::joined(prompt_ids)));
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first) & (u64::MAX >> 1)
}

/// Chooses tokens: a pure function of logits, position and what it was made with.
#[derive(Clone, Debug)]
pub struct Sampler {
    temperature: f64,
    filter: Filter,
    seed: u64,
}

impl Sampler {
    /// A sampler for an answer to `prompt_ids`; `salt` only matters where no seed is given.
    ///
    /// # Errors
    /// As [`SamplingOptions::check`].
    pub fn new(options: &SamplingOptions, prompt_ids: &[u32], salt: &str) -> Result<Self, EngineError> {
        options.check()?;
        Ok(Self {
            temperature: options.temperature,
            filter: Filter {
                top_k: (options.top_k > 0).then_some(options.top_k),
                top_p: options.top_p,
                min_p: options.min_p,
            },
            seed: options.seed.unwrap_or_else(|| derived_seed(prompt_ids, salt)),
        })
    }

    /// The seed in use, given or derived.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The token for absolute `position` (the index that it will have in the sequence), from the logits of the row
    /// before it.
    ///
    /// # Errors
    /// [`EngineError::NotANumber`] if the row holds a NaN.
    pub fn choose(&self, cpu: &Cpu, logits: &[f32], position: usize) -> Result<u32, EngineError> {
        let highest = sampling::argmax(logits).ok_or(EngineError::NotANumber { position })?;
        if self.temperature == 0.0 {
            return Ok(highest);
        }
        let kept = sampling::candidates(cpu, logits, &self.filter);
        let drawn =
            sampling::perturbed_argmax(logits, kept.as_deref(), self.temperature, self.seed, position as u64);
        Ok(drawn.unwrap_or(highest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samebit_arith::Isa;

    fn options(temperature: f64) -> SamplingOptions {
        SamplingOptions { temperature, seed: Some(5), ..SamplingOptions::default() }
    }

    #[test]
    fn derived_seeds_follow_the_written_rule() {
        // First 8 bytes, little endian, of the SHA-256 of "1,2,3|" and "1,2,3|salt", without the highest bit.
        assert_eq!(derived_seed(&[1, 2, 3], ""), 7_429_073_718_786_099_854);
        assert_eq!(derived_seed(&[1, 2, 3], "salt"), 1_405_887_293_726_546_535);
        assert_eq!(
            Sampler::new(&SamplingOptions::default(), &[1, 2, 3], "").unwrap().seed(),
            7_429_073_718_786_099_854
        );
        assert_eq!(Sampler::new(&options(0.0), &[1, 2, 3], "").unwrap().seed(), 5);
    }

    #[test]
    fn every_bound_is_checked_by_name() {
        let wrong = [
            ("temperature", SamplingOptions { temperature: -0.5, ..options(0.0) }),
            ("temperature", SamplingOptions { temperature: 1e-9, ..options(0.0) }),
            ("temperature", SamplingOptions { temperature: f64::NAN, ..options(0.0) }),
            ("temperature", SamplingOptions { temperature: f64::INFINITY, ..options(0.0) }),
            ("top-p", SamplingOptions { top_p: 0.0, ..options(1.0) }),
            ("top-p", SamplingOptions { top_p: 1.5, ..options(1.0) }),
            ("top-p", SamplingOptions { top_p: f64::NAN, ..options(1.0) }),
            ("min-p", SamplingOptions { min_p: -0.1, ..options(1.0) }),
            ("min-p", SamplingOptions { min_p: 1.1, ..options(1.0) }),
        ];
        for (name, options) in wrong {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn greedy_ignores_the_seed_and_refuses_nan() {
        let cpu = Cpu::new(Isa::Scalar, 1).unwrap();
        let sampler = Sampler::new(&options(0.0), &[1], "").unwrap();
        assert_eq!(sampler.choose(&cpu, &[0.0, 2.0, 2.0], 9).unwrap(), 1);
        let error = sampler.choose(&cpu, &[0.0, f32::NAN], 9).unwrap_err().to_string();
        assert!(error.contains("position 9"), "{error}");
    }

    #[test]
    fn a_draw_depends_on_seed_and_position_only() {
        let cpu = Cpu::new(Isa::Scalar, 1).unwrap();
        let logits: Vec<f32> = (0..50u8).map(|id| f32::from(id % 7)).collect();
        let draws = |seed| -> Vec<u32> {
            let options = SamplingOptions { seed: Some(seed), ..options(1.0) };
            let sampler = Sampler::new(&options, &[1], "").unwrap();
            (0..64).map(|position| sampler.choose(&cpu, &logits, position).unwrap()).collect()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        let only_best = SamplingOptions { top_k: 1, ..options(1.0) };
        let sampler = Sampler::new(&only_best, &[1], "").unwrap();
        assert!((0..64).all(|position| sampler.choose(&cpu, &logits, position).unwrap() == 6));
    }
}
