//! Rotary position embedding in `f64`: frequencies with the published scalings, and the rotation itself.
//!
//! The formulas follow the reference implementations of each scaling: `linear`, `llama3` and `yarn`.

use std::f64::consts::PI;

/// The long-context scaling `llama3`: low frequencies are slowed by `factor`, high ones kept, blended between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// How much slower the low frequencies turn.
    pub factor: f64,
    /// Wavelengths above `original_context / low_freq_factor` are slowed in full.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_context / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context length, in positions, that the model was first trained with.
    pub original_context: f64,
}

/// The long-context scaling `yarn`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// How much slower the low frequencies turn.
    pub factor: f64,
    /// Frequencies that turn more often than this over the original context are kept.
    pub beta_fast: f64,
    /// Frequencies that turn less often than this over the original context are slowed in full.
    pub beta_slow: f64,
    /// Context length, in positions, that the model was first trained with.
    pub original_context: f64,
    /// Factor on cosine and sine.
    pub attention_factor: f64,
    /// Whether the ends of the blend are rounded to whole dimensions (they are, unless a config says no).
    pub truncate: bool,
}

impl YarnScaling {
    /// `0.1 mscale ln(factor) + 1`, the attention factor of the YaRN paper; 1 for factors up to 1.
    pub fn default_attention_factor(factor: f64, mscale: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * mscale * libm::log(factor) + 1.0 }
    }
}

/// How the frequencies were stretched for longer contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// As trained.
    #[default]
    None,
    /// Every frequency divided by the factor.
    Linear(f64),
    /// `llama3`.
    Llama3(Llama3Scaling),
    /// `yarn`.
    Yarn(YarnScaling),
}

/// The rotation of one head: pair `i` turns by `position * frequency[i]`. Pairs are `(i, i + size/2)`, or neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: Vec<f64>,
    attention_factor: f64,
    neighbours: bool,
}

impl Rope {
    /// Rotation of heads of `head_size` elements with base `theta`.
    pub fn new(head_size: usize, theta: f64, scaling: RopeScaling) -> Self {
        let plain = |pair: usize| libm::pow(theta, -(2.0 * pair as f64) / head_size as f64);
        let frequencies = (0..head_size / 2).map(|pair| match scaling {
            RopeScaling::None => plain(pair),
            RopeScaling::Linear(factor) => plain(pair) / factor,
            RopeScaling::Llama3(llama3) => llama3_frequency(plain(pair), llama3),
            RopeScaling::Yarn(yarn) => yarn_frequency(pair, plain(pair), head_size, theta, yarn),
        });
        let attention_factor = match scaling {
            RopeScaling::Yarn(yarn) => yarn.attention_factor,
            _ => 1.0,
        };
        Self { frequencies: frequencies.collect(), attention_factor, neighbours: false }
    }

    /// The same rotation of pairs `(2i, 2i + 1)`, for weights whose rows were reordered so (GGUF files of llama).
    pub fn of_neighbours(mut self) -> Self {
        self.neighbours = true;
        self
    }

    /// The same rotation with every frequency divided by its own factor (the `rope_freqs` tensor of GGUF files); pairs
    /// without a factor stay.
    pub fn slowed(mut self, factors: &[f64]) -> Self {
        for (frequency, factor) in self.frequencies.iter_mut().zip(factors) {
            *frequency /= factor;
        }
        self
    }

    /// Turns one head in place. `head` has the size that this rotation was made for.
    pub fn rotate(&self, head: &mut [f64], position: usize) {
        let half = self.frequencies.len();
        for (pair, frequency) in self.frequencies.iter().enumerate() {
            let (first, second) =
                if self.neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
            let angle = position as f64 * frequency;
            let (sin, cos) =
                (libm::sin(angle) * self.attention_factor, libm::cos(angle) * self.attention_factor);
            let (x, y) = (head[first], head[second]);
            (head[first], head[second]) = (x * cos - y * sin, y * cos + x * sin);
        }
    }
}

fn llama3_frequency(plain: f64, scaling: Llama3Scaling) -> f64 {
    let wavelength = 2.0 * PI / plain;
    if wavelength > scaling.original_context / scaling.low_freq_factor {
        return plain / scaling.factor;
    }
    if wavelength < scaling.original_context / scaling.high_freq_factor {
        return plain;
    }
    let kept = (scaling.original_context / wavelength - scaling.low_freq_factor)
        / (scaling.high_freq_factor - scaling.low_freq_factor);
    (1.0 - kept) * plain / scaling.factor + kept * plain
}

fn yarn_frequency(pair: usize, plain: f64, head_size: usize, theta: f64, scaling: YarnScaling) -> f64 {
    let size = head_size as f64;
    // The (fractional) pair whose frequency makes `turns` full turns over the original context.
    let pair_of = |turns: f64| {
        size * libm::log(scaling.original_context / (turns * 2.0 * PI)) / (2.0 * libm::log(theta))
    };
    let (mut first, mut last) = (pair_of(scaling.beta_fast), pair_of(scaling.beta_slow));
    if scaling.truncate {
        (first, last) = (first.floor(), last.ceil());
    }
    (first, last) = (first.max(0.0), last.min(size - 1.0));
    if first == last {
        last += 0.001;
    }
    let slowed = ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
    plain / scaling.factor * slowed + plain * (1.0 - slowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_turns_by_its_position() {
        let rope = Rope::new(2, 10000.0, RopeScaling::None);
        let mut head = [1.0, 0.0];
        rope.rotate(&mut head, 3);
        assert!((head[0] - 3.0f64.cos()).abs() < 1e-15 && (head[1] - 3.0f64.sin()).abs() < 1e-15);
        rope.rotate(&mut head, 0);
        assert!((head[0] - 3.0f64.cos()).abs() < 1e-15, "position 0 leaves a head alone");
    }

    #[test]
    fn halves_are_paired_not_neighbours() {
        let mut head = [1.0, 0.0, 0.0, 0.0];
        Rope::new(4, 10000.0, RopeScaling::None).rotate(&mut head, 1);
        assert!(head[2] != 0.0 && head[1] == 0.0);
        let mut neighbours = [1.0, 0.0, 0.0, 0.0];
        Rope::new(4, 10000.0, RopeScaling::None).of_neighbours().rotate(&mut neighbours, 1);
        assert_eq!(neighbours, [head[0], head[2], 0.0, 0.0]);
    }

    #[test]
    fn factors_slow_their_own_pair() {
        let rope = Rope::new(4, 10000.0, RopeScaling::None);
        let slowed = rope.clone().slowed(&[1.0, 8.0]);
        assert_eq!(slowed.frequencies, [rope.frequencies[0], rope.frequencies[1] / 8.0]);
    }

    #[test]
    fn scalings_keep_fast_pairs_and_slow_the_others() {
        let plain = Rope::new(64, 10000.0, RopeScaling::None).frequencies;
        let linear = Rope::new(64, 10000.0, RopeScaling::Linear(4.0)).frequencies;
        assert!(plain.iter().zip(&linear).all(|(a, b)| a / 4.0 == *b));
        let llama3 = RopeScaling::Llama3(Llama3Scaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        });
        let yarn = RopeScaling::Yarn(YarnScaling {
            factor: 8.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 8192.0,
            attention_factor: YarnScaling::default_attention_factor(8.0, 1.0),
            truncate: true,
        });
        for scaling in [llama3, yarn] {
            let scaled = Rope::new(64, 10000.0, scaling).frequencies;
            assert_eq!(scaled[0], plain[0], "{scaling:?}");
            assert!((scaled[31] - plain[31] / 8.0).abs() < 1e-18, "{scaling:?}");
            assert!(
                scaled.iter().zip(&plain).all(|(s, p)| *s <= *p && *s >= p / 8.0 * 0.999_999),
                "{scaling:?}"
            );
        }
        assert!((YarnScaling::default_attention_factor(8.0, 1.0) - 1.207_944_154_167_983_6).abs() < 1e-15);
    }
}
