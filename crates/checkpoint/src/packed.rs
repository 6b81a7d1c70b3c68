//! How an MLX-quantized module is stored.
//!
//! The shapes of its tensors decide; the map of `config.json` settles what shapes leave open, and must not contradict
//! them.

use samebit_arith::Format;

use crate::config::Config;
use crate::quantization::{AFFINE_BITS, AFFINE_GROUPS, MODES, Mode, Quantization, Rule, Scheme};
use crate::tensor::Tensor;
use crate::{CheckpointError, DType};

/// What [`Scheme::format`] accepts, for messages.
const SUPPORTED: &str = "affine with 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128 and scales in F32, F16 or \
                         BF16; mxfp4 with 4 bits in groups of 32";

/// The tensors of a quantized module, as far as they decide how it is stored.
pub(crate) struct Packed<'a> {
    /// Path of the module: the name of its tensors without `.weight`.
    pub(crate) module: &'a str,
    pub(crate) weight: Tensor<'a>,
    pub(crate) scales: Tensor<'a>,
    /// Words of 32 bits per row, and scales per row.
    pub(crate) words: usize,
    pub(crate) scales_per_row: usize,
}

impl Packed<'_> {
    /// Format and columns of the module. `columns` is what the model needs, where the caller knows it: it settles what
    /// shapes alone leave open (4 bits in groups of 64 look like 8 bits in groups of 32).
    pub(crate) fn resolve(
        &self,
        config: Option<&Config>,
        quantization: &Quantization,
        columns: Option<usize>,
    ) -> Result<(Format, usize), CheckpointError> {
        let scheme = self.scheme(config, quantization, columns)?;
        let Some(format) = scheme.format(self.scales.dtype()) else {
            return Err(CheckpointError::Unsupported {
                file: self.weight.file().to_path_buf(),
                place: format!("module {}", self.module),
                found: format!("MLX {scheme}, scales {}", self.scales.dtype()),
                supported: SUPPORTED.to_owned(),
            });
        };
        Ok((format, self.scales_per_row * scheme.group))
    }

    fn scheme(
        &self,
        config: Option<&Config>,
        quantization: &Quantization,
        columns: Option<usize>,
    ) -> Result<Scheme, CheckpointError> {
        let map = match quantization {
            Quantization::Mlx(map) => Some(map),
            _ => None,
        };
        let listed = match map.and_then(|map| map.rule(self.module)) {
            None => None,
            Some(Rule::Default) => map.map(|map| map.default),
            Some(Rule::Own(scheme)) => Some(scheme),
            Some(Rule::Plain) => return Err(self.contradiction(config, "false, so no quantization")),
        };
        if let Some(listed) = listed {
            if self.fits(listed) {
                return Ok(listed);
            }
            return Err(self.contradiction(config, &listed.to_string()));
        }
        if let Some(measured) = columns.and_then(|columns| self.measured(columns)) {
            return Ok(measured);
        }
        if let Some(map) = map
            && self.fits(map.default)
        {
            return Ok(map.default);
        }
        self.only_candidate().ok_or_else(|| {
            let expected =
                "shapes that only one number of bits and group size explain, or an entry that lists them";
            self.contradiction(config, expected)
        })
    }

    /// Whether the shapes and the type of the scales are those of `scheme`.
    fn fits(&self, scheme: Scheme) -> bool {
        let row_bits = self.scales_per_row.checked_mul(scheme.group * scheme.bits);
        self.has_scales_of(scheme.mode) && row_bits.is_some() && row_bits == self.words.checked_mul(32)
    }

    /// The scheme that these shapes have in a matrix of `columns`, if one of the modes has such a scheme.
    fn measured(&self, columns: usize) -> Option<Scheme> {
        let row_bits = self.words.checked_mul(32)?;
        if columns == 0 || !columns.is_multiple_of(self.scales_per_row) || !row_bits.is_multiple_of(columns) {
            return None;
        }
        let (group, bits) = (columns / self.scales_per_row, row_bits / columns);
        self.candidates().find(|scheme| scheme.group == group && scheme.bits == bits)
    }

    /// The one scheme that explains the shapes, if there is exactly one.
    fn only_candidate(&self) -> Option<Scheme> {
        let mut fitting = self.candidates().filter(|scheme| self.fits(*scheme));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    /// Every scheme that the type of the scales allows.
    fn candidates(&self) -> impl Iterator<Item = Scheme> {
        let affine = AFFINE_GROUPS.into_iter().flat_map(|group| {
            AFFINE_BITS.into_iter().map(move |bits| Scheme { mode: Mode::Affine, bits, group })
        });
        let modes = MODES.into_iter().map(|(_, scheme)| scheme).filter(|scheme| scheme.mode != Mode::Affine);
        affine.chain(modes).filter(|scheme| self.has_scales_of(scheme.mode))
    }

    /// Whether the type of the scales is one of this mode: bytes for all modes but affine.
    fn has_scales_of(&self, mode: Mode) -> bool {
        (self.scales.dtype() == DType::U8) == (mode != Mode::Affine)
    }

    fn contradiction(&self, config: Option<&Config>, expected: &str) -> CheckpointError {
        let found = format!(
            "weight {:?} of {} with scales {:?} of {}",
            self.weight.shape(),
            self.weight.dtype(),
            self.scales.shape(),
            self.scales.dtype()
        );
        let file = config.map_or(self.weight.file(), Config::file);
        CheckpointError::malformed(file, format!("quantization of module {}", self.module), found, expected)
    }
}
