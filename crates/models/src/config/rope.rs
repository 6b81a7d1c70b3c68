//! Rotary embedding as configurations describe it.

use samebit_arith::double::RopeScaling;
use samebit_arith::{Llama3Scaling, RopeFrequencies, YarnScaling};

use super::{Fields, Geometry};
use crate::ModelError;

const SUPPORTED: &str = "default, linear, llama3, yarn";

/// How a rotary embedding turns positions into angles.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeConfig {
    /// Columns that are rotated: the whole head.
    pub(crate) head_dim: usize,
    /// Base of the frequencies.
    pub(crate) base: f64,
    /// What was done to reach longer contexts.
    pub(crate) scaling: RopeScaling,
}

impl RopeConfig {
    /// An unscaled embedding of the geometry's heads.
    pub(crate) fn plain(geometry: &Geometry, base: f64) -> Self {
        Self { head_dim: geometry.head_dim, base, scaling: RopeScaling::None }
    }

    /// Reads `rope_parameters`, or the older `rope_theta` and `rope_scaling`, or the `rope.*` keys of GGUF.
    pub(crate) fn read(
        fields: &Fields<'_>,
        geometry: &Geometry,
        default_base: f64,
    ) -> Result<Self, ModelError> {
        if fields.is_gguf() {
            return Self::read_gguf(fields, geometry, default_base);
        }
        fields.refuse_unless_neutral("partial_rotary_factor", 1.0)?;
        match fields.section("rope_parameters")? {
            Some(parameters) => {
                let base = match base(&parameters, "rope_theta")? {
                    Some(base) => Some(base),
                    None => base(fields, "rope_theta")?,
                };
                Self::read_parameters(&parameters, geometry, base.unwrap_or(default_base))
            }
            None => {
                let base = base(fields, "rope_theta")?.unwrap_or(default_base);
                match fields.section("rope_scaling")? {
                    Some(scaling) => Self::read_parameters(&scaling, geometry, base),
                    None => Ok(Self::plain(geometry, base)),
                }
            }
        }
    }

    /// Reads one object of rope parameters, whose base is known.
    pub(crate) fn read_parameters(
        fields: &Fields<'_>,
        geometry: &Geometry,
        base: f64,
    ) -> Result<Self, ModelError> {
        fields.refuse_unless_neutral("partial_rotary_factor", 1.0)?;
        let kind = match (fields.text("rope_type")?, fields.text("type")?) {
            (Some(kind), _) | (None, Some(kind)) => kind,
            (None, None) if fields.number("factor")?.is_some() => {
                return Err(fields.refuse(
                    "rope_type",
                    "nothing",
                    format!("one of {SUPPORTED}, since a factor is given"),
                ));
            }
            (None, None) => "default",
        };
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear(factor(fields)?),
            "llama3" => llama3(fields, geometry)?,
            "yarn" => yarn(fields, geometry)?,
            other => return Err(fields.unsupported("rope_type", format!("{other:?}"), SUPPORTED)),
        };
        Ok(Self { head_dim: geometry.head_dim, base, scaling })
    }

    fn read_gguf(fields: &Fields<'_>, geometry: &Geometry, default_base: f64) -> Result<Self, ModelError> {
        if let Some(rotated) = fields.integer("rope.dimension_count")?
            && rotated != geometry.head_dim
        {
            let supported = format!("the whole head of {} columns", geometry.head_dim);
            return Err(fields.unsupported("rope.dimension_count", rotated, supported));
        }
        let base = base(fields, "rope.freq_base")?.unwrap_or(default_base);
        let kind = fields.text("rope.scaling.type")?;
        let factor = match fields.positive("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            // The key that files had before scaling had types.
            None => fields.positive("rope.scale_linear")?,
        };
        let scaling = match (kind, factor) {
            (Some("none"), _) | (None | Some("linear"), None) => RopeScaling::None,
            (None | Some("linear"), Some(factor)) => RopeScaling::Linear(factor),
            (Some("yarn"), Some(factor)) => gguf_yarn(fields, geometry, factor)?,
            (Some("yarn"), None) => {
                return Err(fields.refuse("rope.scaling.factor", "nothing", "a number above 0"));
            }
            (Some(other), _) => {
                return Err(fields.unsupported(
                    "rope.scaling.type",
                    format!("{other:?}"),
                    "none, linear, yarn",
                ));
            }
        };
        Ok(Self { head_dim: geometry.head_dim, base, scaling })
    }

    /// The frequencies. `divisors` (one per pair) are GGUF's `rope_freqs.weight`.
    pub(crate) fn frequencies(&self, divisors: Option<&[f32]>) -> RopeFrequencies {
        let plain = || RopeFrequencies::plain(self.head_dim, self.base);
        let scaled = match self.scaling {
            RopeScaling::None => plain(),
            RopeScaling::Linear(factor) => plain().linear(factor),
            RopeScaling::Llama3(scaling) => plain().llama3(scaling),
            RopeScaling::Yarn(scaling) => RopeFrequencies::yarn(self.head_dim, self.base, scaling),
        };
        // A survey of headers hands out no values.
        match divisors.filter(|divisors| !divisors.is_empty()) {
            Some(divisors) => scaled.with_factors(divisors),
            None => scaled,
        }
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        let base = self.base;
        match self.scaling {
            RopeScaling::None => format!("base {base}"),
            RopeScaling::Linear(factor) => format!("base {base}, linear scaling by {factor}"),
            RopeScaling::Llama3(Llama3Scaling {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            }) => {
                format!(
                    "base {base}, llama3 scaling by {factor} ({low_freq_factor} to {high_freq_factor} turns over \
                     {original_context})"
                )
            }
            RopeScaling::Yarn(YarnScaling {
                factor,
                beta_fast,
                beta_slow,
                original_context,
                attention_factor,
                truncate,
            }) => format!(
                "base {base}, yarn scaling by {factor} ({beta_fast} to {beta_slow} turns over {original_context}{}), \
                 magnitude {attention_factor}",
                if truncate { "" } else { ", exact" },
            ),
        }
    }
}

/// The base of the frequencies: above 1, since its logarithm divides.
fn base(fields: &Fields<'_>, key: &str) -> Result<Option<f64>, ModelError> {
    match fields.number(key)? {
        Some(base) if base <= 1.0 => Err(fields.refuse(key, base, "a number above 1")),
        base => Ok(base),
    }
}

fn factor(fields: &Fields<'_>) -> Result<f64, ModelError> {
    fields.positive("factor")?.ok_or_else(|| fields.refuse("factor", "nothing", "a number above 0"))
}

/// Context of the original training; published files that leave it out mean the whole context.
fn original_context(fields: &Fields<'_>, key: &str, geometry: &Geometry) -> Result<f64, ModelError> {
    Ok(fields.positive(key)?.unwrap_or(geometry.context as f64))
}

fn llama3(fields: &Fields<'_>, geometry: &Geometry) -> Result<RopeScaling, ModelError> {
    let number =
        |key: &str| fields.positive(key)?.ok_or_else(|| fields.refuse(key, "nothing", "a number above 0"));
    let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
    if low >= high {
        return Err(fields.refuse("high_freq_factor", high, format!("more than low_freq_factor = {low}")));
    }
    Ok(RopeScaling::Llama3(Llama3Scaling {
        factor: factor(fields)?,
        low_freq_factor: low,
        high_freq_factor: high,
        original_context: original_context(fields, "original_max_position_embeddings", geometry)?,
    }))
}

fn yarn(fields: &Fields<'_>, geometry: &Geometry) -> Result<RopeScaling, ModelError> {
    let original_context = original_context(fields, "original_max_position_embeddings", geometry)?;
    let factor = fields.positive("factor")?.unwrap_or(geometry.context as f64 / original_context);
    let attention_factor = match (
        fields.positive("attention_factor")?,
        fields.number("mscale")?.filter(|&mscale| mscale != 0.0),
        fields.number("mscale_all_dim")?.filter(|&mscale| mscale != 0.0),
    ) {
        (Some(given), ..) => given,
        (None, Some(mscale), Some(all)) => {
            YarnScaling::default_attention_factor(factor, mscale)
                / YarnScaling::default_attention_factor(factor, all)
        }
        (None, ..) => YarnScaling::default_attention_factor(factor, 1.0),
    };
    Ok(RopeScaling::Yarn(YarnScaling {
        factor,
        beta_fast: fields.positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: fields.positive("beta_slow")?.unwrap_or(1.0),
        original_context,
        attention_factor,
        truncate: fields.flag("truncate")?.unwrap_or(true),
    }))
}

fn gguf_yarn(fields: &Fields<'_>, geometry: &Geometry, factor: f64) -> Result<RopeScaling, ModelError> {
    fields.refuse_unless_neutral("rope.scaling.yarn_ext_factor", 1.0)?;
    let original_context = original_context(fields, "rope.scaling.original_context_length", geometry)?;
    let given = match fields.positive("rope.scaling.attn_factor")? {
        Some(given) => Some(given),
        None => fields.positive("rope.scaling.yarn_attn_factor")?,
    };
    Ok(RopeScaling::Yarn(YarnScaling {
        factor,
        beta_fast: fields.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
        beta_slow: fields.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        original_context,
        attention_factor: given.unwrap_or(1.0) * YarnScaling::default_attention_factor(factor, 1.0),
        truncate: true,
    }))
}
