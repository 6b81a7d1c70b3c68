//! What `config.json` says about quantized modules.
//!
//! MLX writes a map under `quantization` (mirrored as `quantization_config`): a default, and entries per module path.
//! Other writers put a `quant_method` under `quantization_config`.

use std::collections::HashMap;
use std::fmt;

use samebit_arith::Format;
use serde_json::Value;

use crate::config::{Config, Section};
use crate::{CheckpointError, DType};

/// Group sizes of the affine mode that arithmetic reads.
pub(crate) const AFFINE_GROUPS: [usize; 3] = [32, 64, 128];
/// Code widths of the affine mode that arithmetic reads.
pub(crate) const AFFINE_BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];

/// How the matrices of a folder are quantized, according to its `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantization {
    /// No quantization is declared.
    None,
    /// An MLX quantization map.
    Mlx(MlxQuantization),
    /// A method samebit does not read, by the name the file gives it.
    Unsupported {
        /// `quant_method`, such as `fp8`, `awq` or `compressed-tensors`.
        method: String,
    },
}

/// An MLX quantization map.
#[derive(Clone, Debug, PartialEq)]
pub struct MlxQuantization {
    pub(crate) default: Scheme,
    modules: HashMap<String, Rule>,
}

/// How codes and scales of a module are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Kind of element and scale.
    pub mode: Mode,
    /// Bits per element.
    pub bits: usize,
    /// Elements that share a scale.
    pub group: usize,
}

/// MLX's quantization modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Integer codes with a scale and a bias per group.
    Affine,
    /// E2M1 elements, E8M0 scales.
    Mxfp4,
    /// E4M3 elements, E8M0 scales.
    Mxfp8,
    /// E2M1 elements, E4M3 scales.
    Nvfp4,
}

/// Every mode with the name and the group size and bits it has unless told otherwise.
pub(crate) const MODES: [(&str, Scheme); 4] = [
    ("affine", Scheme { mode: Mode::Affine, bits: 4, group: 64 }),
    ("mxfp4", Scheme { mode: Mode::Mxfp4, bits: 4, group: 32 }),
    ("mxfp8", Scheme { mode: Mode::Mxfp8, bits: 8, group: 32 }),
    ("nvfp4", Scheme { mode: Mode::Nvfp4, bits: 4, group: 16 }),
];

/// What the map says about one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Not quantized.
    Plain,
    /// As the default of the map.
    Default,
    /// By an entry of its own.
    Own(Scheme),
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = MODES.iter().find(|(_, scheme)| scheme.mode == self.mode).map_or("", |(name, _)| name);
        write!(f, "{name} with {} bits in groups of {}", self.bits, self.group)
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Mlx(map) if map.modules.is_empty() => write!(f, "MLX {}", map.default),
            Self::Mlx(map) => {
                write!(f, "MLX {}, {} modules otherwise", map.default, map.modules.len())
            }
            Self::Unsupported { method } => write!(f, "{method} (not supported)"),
        }
    }
}

impl Quantization {
    /// Reads the declaration of a folder; `quantization` is preferred over `quantization_config`.
    pub(crate) fn of(config: &Config) -> Result<Self, CheckpointError> {
        let root = config.root();
        if let Some(section) = root.section("quantization")? {
            return Ok(Self::Mlx(MlxQuantization::of(&section)?));
        }
        let text = root.section("text_config")?;
        for level in std::iter::once(&root).chain(&text) {
            let Some(section) = level.section("quantization_config")? else { continue };
            if let Some(method) = section.optional::<&str>("quant_method")? {
                return Ok(Self::Unsupported { method: method.to_owned() });
            }
            if section.get("bits").is_none() && section.get("mode").is_none() {
                return Ok(Self::Unsupported {
                    method: "quantization_config without quant_method".to_owned(),
                });
            }
            return Ok(Self::Mlx(MlxQuantization::of(&section)?));
        }
        Ok(Self::None)
    }
}

impl MlxQuantization {
    /// What the map says about a module, by the path of its tensors without `.weight`.
    pub(crate) fn rule(&self, module: &str) -> Option<Rule> {
        self.modules.get(module).copied()
    }

    fn of(section: &Section) -> Result<Self, CheckpointError> {
        let default = Scheme::of(section)?;
        let mut modules = HashMap::new();
        for (path, value) in section.object() {
            let rule = match value {
                Value::Bool(true) => Rule::Default,
                Value::Bool(false) => Rule::Plain,
                Value::Object(_) => match section.section(path)? {
                    Some(own) => Rule::Own(Scheme::of(&own)?),
                    None => continue,
                },
                // Bits, group size and mode of the default, and texts that say nothing about a module.
                _ => continue,
            };
            modules.insert(path.clone(), rule);
        }
        Ok(Self { default, modules })
    }
}

impl Scheme {
    /// Reads bits, group size and mode; what is missing has the default of the mode.
    fn of(section: &Section) -> Result<Self, CheckpointError> {
        let name = section.optional::<&str>("mode")?.unwrap_or("affine");
        let Some(&(_, mut scheme)) = MODES.iter().find(|(known, _)| *known == name) else {
            return Err(section.error("mode", format!("{name:?}"), "affine, mxfp4, mxfp8 or nvfp4"));
        };
        for (key, field) in [("bits", &mut scheme.bits), ("group_size", &mut scheme.group)] {
            if let Some(value) = section.optional::<usize>(key)? {
                if !(1..=4096).contains(&value) {
                    return Err(section.error(key, value, "a number from 1 to 4096"));
                }
                *field = value;
            }
        }
        Ok(scheme)
    }

    /// The format arithmetic reads, if it does.
    pub(crate) fn format(self, scale: DType) -> Option<Format> {
        match self.mode {
            Mode::Affine if AFFINE_BITS.contains(&self.bits) && AFFINE_GROUPS.contains(&self.group) => {
                let (bits, group) = (u8::try_from(self.bits).ok()?, u16::try_from(self.group).ok()?);
                Some(Format::MlxAffine { bits, group, scale: scale.float()? })
            }
            Mode::Mxfp4 if self.bits == 4 && self.group == 32 => Some(Format::MlxMxfp4),
            _ => None,
        }
    }
}

/// Names of methods for the message that refuses one.
pub(crate) fn supported_methods() -> String {
    "plain F32, F16 and BF16, MLX affine and MLX mxfp4, and GGUF files".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn of(text: &str) -> Result<Quantization, CheckpointError> {
        Quantization::of(&Config::parse(Path::new("config.json"), text.as_bytes()).unwrap())
    }

    #[test]
    fn reads_the_map() {
        let Quantization::Mlx(map) =
            of(r#"{"quantization": {"group_size": 32, "bits": 3, "a": {"bits": 8}, "b": true, "c": false,
                "d": {"mode": "mxfp4"}}, "quantization_config": {"quant_method": "fp8"}}"#)
            .unwrap()
        else {
            panic!("not MLX")
        };
        assert_eq!(map.default, Scheme { mode: Mode::Affine, bits: 3, group: 32 });
        // What an entry leaves out has the default of its mode, not of the map.
        assert_eq!(map.modules["a"], Rule::Own(Scheme { mode: Mode::Affine, bits: 8, group: 64 }));
        assert_eq!(map.modules["b"], Rule::Default);
        assert_eq!(map.modules["c"], Rule::Plain);
        assert_eq!(map.modules["d"], Rule::Own(Scheme { mode: Mode::Mxfp4, bits: 4, group: 32 }));
        assert_eq!(map.modules.len(), 4);
    }

    #[test]
    fn names_other_methods() {
        for method in ["fp8", "awq", "gptq", "modelopt", "compressed-tensors", "mxfp4"] {
            let text =
                format!(r#"{{"text_config": {{"quantization_config": {{"quant_method": "{method}"}}}}}}"#);
            assert_eq!(of(&text).unwrap(), Quantization::Unsupported { method: method.to_owned() });
        }
        assert_eq!(of("{}").unwrap(), Quantization::None);
        assert_eq!(of(r#"{"quantization": null}"#).unwrap(), Quantization::None);
    }

    #[test]
    fn refuses_rubbish() {
        for (text, expected) in [
            (r#"{"quantization": {"mode": "q4"}}"#, "quantization.mode: found \"q4\""),
            (r#"{"quantization": {"bits": "4"}}"#, "quantization.bits: found \"4\""),
            (r#"{"quantization": {"m": {"bits": 0}}}"#, "quantization.m.bits: found 0"),
            (r#"{"quantization": 4}"#, "quantization: found 4"),
        ] {
            let message = of(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
