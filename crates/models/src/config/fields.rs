//! One way to read a configuration, whether it stands in `config.json` or in GGUF metadata.

use std::path::Path;

use samebit_checkpoint::Metadata;
use samebit_checkpoint::config::Section;

use crate::ModelError;

/// Largest value of any size that a configuration names. Products of two of them fit `usize`, so that shapes can be
/// computed before they are compared with the checkpoint.
pub(crate) const LARGEST_SIZE: usize = (1 << 31) - 1;

/// The fields that describe a model, by the keys of their source.
#[derive(Clone, Debug)]
pub(crate) enum Fields<'a> {
    /// `config.json`, or a section of it.
    Folder {
        /// The object.
        section: Section<'a>,
        /// Keys that lead to it, each followed by a dot.
        path: String,
    },
    /// GGUF metadata; keys are looked up behind the architecture's name and a dot.
    Gguf {
        /// All metadata.
        metadata: &'a Metadata,
        /// `general.architecture`.
        architecture: &'a str,
    },
}

impl<'a> Fields<'a> {
    /// The file they stand in.
    pub(crate) fn file(&self) -> &'a Path {
        match self {
            Self::Folder { section, .. } => section.file(),
            Self::Gguf { metadata, .. } => metadata.file(),
        }
    }

    /// Whether they come from GGUF metadata.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self, Self::Gguf { .. })
    }

    /// A non-negative integer, if the key is there.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<usize>, ModelError> {
        Ok(match self {
            Self::Folder { section, .. } => section.optional(key)?,
            Self::Gguf { metadata, architecture } => metadata.optional(&format!("{architecture}.{key}"))?,
        })
    }

    /// A finite number, if the key is there.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let number: Option<f64> = match self {
            Self::Folder { section, .. } => section.optional(key)?,
            Self::Gguf { metadata, architecture } => metadata.optional(&format!("{architecture}.{key}"))?,
        };
        match number {
            Some(number) if !number.is_finite() => Err(self.refuse(key, number, "a finite number")),
            number => Ok(number),
        }
    }

    /// A boolean, if the key is there.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        Ok(match self {
            Self::Folder { section, .. } => section.optional(key)?,
            Self::Gguf { metadata, architecture } => metadata.optional(&format!("{architecture}.{key}"))?,
        })
    }

    /// A text, if the key is there.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        Ok(match self {
            Self::Folder { section, .. } => section.optional(key)?,
            Self::Gguf { metadata, architecture } => metadata.optional(&format!("{architecture}.{key}"))?,
        })
    }

    /// A list of non-negative integers, if the key is there.
    pub(crate) fn integers(&self, key: &str) -> Result<Option<Vec<usize>>, ModelError> {
        match self {
            Self::Folder { section, .. } => Ok(section.optional(key)?),
            Self::Gguf { metadata, architecture } => {
                let list: Option<Vec<i64>> = metadata.optional(&format!("{architecture}.{key}"))?;
                list.map(|list| {
                    list.into_iter()
                        .map(|number| {
                            usize::try_from(number)
                                .map_err(|_| self.refuse(key, number, "integers of at least 0"))
                        })
                        .collect()
                })
                .transpose()
            }
        }
    }

    /// A list of texts, if the key is there. GGUF metadata of these families has none.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, ModelError> {
        match self {
            Self::Folder { section, .. } => Ok(section.optional(key)?),
            Self::Gguf { .. } => Ok(None),
        }
    }

    /// The object under a key, if the key is there. GGUF metadata has none.
    pub(crate) fn section(&self, key: &str) -> Result<Option<Self>, ModelError> {
        match self {
            Self::Folder { section, path } => Ok(section
                .section(key)?
                .map(|inner| Self::Folder { section: inner, path: format!("{path}{key}.") })),
            Self::Gguf { .. } => Ok(None),
        }
    }

    /// A size: at least 1 and at most [`LARGEST_SIZE`], if the key is there.
    pub(crate) fn size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.integer(key)? {
            Some(size) if !(1..=LARGEST_SIZE).contains(&size) => {
                Err(self.refuse(key, size, format!("an integer from 1 to {LARGEST_SIZE}")))
            }
            size => Ok(size),
        }
    }

    /// A size that has no default.
    pub(crate) fn required_size(&self, key: &str) -> Result<usize, ModelError> {
        self.size(key)?.ok_or_else(|| self.refuse(key, "nothing", "an integer of at least 1"))
    }

    /// A number above zero, if the key is there.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f64>, ModelError> {
        match self.number(key)? {
            Some(number) if number <= 0.0 => Err(self.refuse(key, number, "a number above 0")),
            number => Ok(number),
        }
    }

    /// A number above zero that arithmetic in binary32 can hold, if the key is there.
    pub(crate) fn positive_single(&self, key: &str) -> Result<Option<f32>, ModelError> {
        let Some(number) = self.positive(key)? else { return Ok(None) };
        let single = number as f32;
        if single.is_normal() {
            Ok(Some(single))
        } else {
            let expected = format!("a number from {:e} to {:e}", f32::MIN_POSITIVE, f32::MAX);
            Err(self.refuse(key, format!("{number:e}"), expected))
        }
    }

    /// The error that a key has a value which cannot be.
    pub(crate) fn refuse(&self, key: &str, found: impl ToString, expected: impl ToString) -> ModelError {
        ModelError::field(self.file(), &self.place(key), found, expected)
    }

    /// The error that a key asks for something samebit does not compute.
    pub(crate) fn unsupported(
        &self,
        key: &str,
        found: impl ToString,
        supported: impl ToString,
    ) -> ModelError {
        ModelError::unsupported(self.file(), &self.place(key), found, supported)
    }

    /// Refuses a key that would change the model's function, unless it is absent or has its neutral value.
    pub(crate) fn refuse_unless_neutral(&self, key: &str, neutral: f64) -> Result<(), ModelError> {
        match self.number(key)? {
            Some(number) if number != neutral => Err(self.unsupported(key, number, neutral)),
            _ => Ok(()),
        }
    }

    /// The key as a reader of the file would look for it.
    pub(crate) fn place(&self, key: &str) -> String {
        match self {
            Self::Folder { path, .. } => format!("{path}{key}"),
            Self::Gguf { architecture, .. } => format!("metadata {architecture}.{key}"),
        }
    }
}
