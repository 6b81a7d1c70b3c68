//! Models on the hub: which files of a repository make a model, and fetching them.

use std::fs;
use std::path::{Path, PathBuf};

use super::cache::{self, Expected, State};
use super::download::download;
use super::error::PullError;
use super::hub::{self, Hub, RemoteFile, Revision};
use super::reference::{HubReference, is_inside};
use super::settings::Settings;

/// What belongs to a safetensors checkpoint beside the weights.
const COMPANIONS: [&str; 4] =
    ["config.json", "generation_config.json", "model.safetensors.index.json", "chat_template.jinja"];

/// What a reference stands for in a repository.
struct Choice<'a> {
    files: Vec<&'a RemoteFile>,
    /// The file to open; `None` for the whole folder.
    open: Option<&'a str>,
}

/// Path of the model, fetched first where it is not there yet.
pub(super) fn fetch(reference: &HubReference, settings: &Settings) -> Result<PathBuf, PullError> {
    let home = settings.cache.join("hub").join(format!("{}--{}", reference.owner, reference.repository));
    cache::create_folder(&home)?;
    let revision = look_up(reference, &home, settings)?;
    let chosen = choose(reference, &revision)?;
    let folder = home.join(&revision.commit);
    for file in &chosen.files {
        ensure_file(reference, &revision.commit, file, &folder, settings)?;
    }
    Ok(chosen.open.map_or_else(|| folder.clone(), |open| folder.join(open)))
}

/// What the revision holds: as remembered, or as the hub says.
fn look_up(reference: &HubReference, home: &Path, settings: &Settings) -> Result<Revision, PullError> {
    let memory = home.join(format!("{}.json", hub::encoded(&reference.revision)));
    let remembered = fs::read(&memory).ok().and_then(|text| serde_json::from_slice::<Revision>(&text).ok());
    if let Some(remembered) = &remembered
        && !settings.refresh
    {
        return Ok(remembered.clone());
    }
    let asked = Hub::new(settings).and_then(|hub| hub.revision(&repository(reference), &reference.revision));
    match (asked, remembered) {
        (Ok(revision), _) => {
            let _lock = cache::lock(&memory, settings)?;
            let text = serde_json::to_vec(&revision).unwrap_or_default();
            cache::replace(&memory, &text)?;
            Ok(revision)
        }
        (Err(error @ (PullError::Offline | PullError::Unreachable { .. })), Some(remembered)) => {
            settings
                .say(&format!("{reference}: using commit {} as before, since {error}", remembered.commit));
            Ok(remembered)
        }
        (Err(error), _) => Err(error),
    }
}

fn repository(reference: &HubReference) -> String {
    format!("{}/{}", reference.owner, reference.repository)
}

/// The files that make the model.
fn choose<'a>(reference: &HubReference, revision: &'a Revision) -> Result<Choice<'a>, PullError> {
    let refuse = |reason: String| PullError::Choice { repository: reference.to_string(), reason };
    if let Some(file) = revision.files.iter().find(|file| !is_inside(&file.path)) {
        return Err(refuse(format!("the repository holds the path {:?}, which leads outside", file.path)));
    }
    let whole = |wanted: &str| {
        let parts = gguf_parts(wanted, revision);
        let expected = split_name(wanted).map_or(1, |(_, _, count)| count as usize);
        match parts.first() {
            Some(first) if parts.len() == expected => Ok(Choice { open: Some(&first.path), files: parts }),
            Some(_) => Err(refuse(format!("{} of {expected} parts of {wanted} are there", parts.len()))),
            None => Err(refuse(format!("there is no {wanted}; .gguf files: {}", gguf_names(revision)))),
        }
    };
    if let Some(wanted) = &reference.file {
        return whole(wanted);
    }
    let top = |file: &&RemoteFile| !file.path.contains('/');
    let weights = |file: &RemoteFile| file.path.ends_with(".safetensors");
    let companion = |file: &RemoteFile| {
        COMPANIONS.contains(&file.path.as_str())
            || (file.path.starts_with("tokenizer")
                && (file.path.ends_with(".json") || file.path.ends_with(".model")))
    };
    if revision.files.iter().filter(top).any(weights)
        && revision.files.iter().any(|file| file.path == "config.json")
    {
        let files =
            revision.files.iter().filter(top).filter(|file| weights(file) || companion(file)).collect();
        return Ok(Choice { files, open: None });
    }
    let models: Vec<_> = revision.files.iter().filter(|file| is_gguf_model(&file.path)).collect();
    match models.as_slice() {
        [one] => whole(&one.path),
        [] => Err(refuse("neither a .gguf file nor config.json with .safetensors files is in it".into())),
        _ => Err(refuse(format!("it holds several models; add :FILE with one of {}", gguf_names(revision)))),
    }
}

/// Whether this is a model of its own: not the vision part of one, and not a later part of a split file.
fn is_gguf_model(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".gguf")
        && !name.starts_with("mmproj")
        && split_name(path).is_none_or(|(_, part, _)| part == 1)
}

fn gguf_names(revision: &Revision) -> String {
    const SHOWN: usize = 40;
    let names: Vec<_> =
        revision.files.iter().map(|file| file.path.as_str()).filter(|path| is_gguf_model(path)).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        _ => names.join(", "),
    }
}

/// The file itself, or all parts of the split file it begins.
fn gguf_parts<'a>(wanted: &str, revision: &'a Revision) -> Vec<&'a RemoteFile> {
    let Some((stem, _, count)) = split_name(wanted) else {
        return revision.files.iter().filter(|file| file.path == wanted).collect();
    };
    let mut parts: Vec<_> = revision
        .files
        .iter()
        .filter_map(|file| split_name(&file.path).map(|(of, part, parts)| (of, part, parts, file)))
        .filter(|(of, _, parts, _)| *of == stem && *parts == count)
        .map(|(_, part, _, file)| (part, file))
        .collect();
    parts.sort_by_key(|(part, _)| *part);
    parts.into_iter().map(|(_, file)| file).collect()
}

/// `stem-00002-of-00003.gguf` as stem, part and number of parts.
fn split_name(path: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| if text.len() == 5 { text.parse().ok() } else { None };
    Some((stem, number(part)?, number(count)?))
}

fn ensure_file(
    reference: &HubReference,
    commit: &str,
    file: &RemoteFile,
    folder: &Path,
    settings: &Settings,
) -> Result<(), PullError> {
    let path = folder.join(&file.path);
    let expected = Expected { bytes: file.bytes, digest: file.digest.clone() };
    if cache::is_verified(&path, &expected) {
        return Ok(());
    }
    cache::create_folder(path.parent().unwrap_or(folder))?;
    let _lock = cache::lock(&path, settings)?;
    match cache::verify(&path, &expected, settings)? {
        State::Right => return Ok(()),
        State::Wrong(_) => {
            settings.say(&format!("{} is damaged; fetching it again", path.display()));
            cache::remove(&path)?;
        }
        State::Absent => {}
    }
    let hub = Hub::new(settings)?;
    let url = hub.file_url(&repository(reference), commit, &file.path);
    let partial = cache::beside(&path, "partial");
    download(&hub, &url, &partial, file.bytes, &settings.byte_bar(&file.path, file.bytes))?;
    cache::install(&partial, &path, &expected, &url, settings)?;
    settings.say(&format!("{}: from {url}, digest verified", file.path));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pull::digest::Digest;

    fn revision(paths: &[&str]) -> Revision {
        let digest = Digest::GitBlob(String::new());
        let file = |path: &&str| RemoteFile { path: (*path).to_owned(), bytes: 1, digest: digest.clone() };
        Revision { commit: "0".repeat(40), files: paths.iter().map(file).collect() }
    }

    fn chosen(reference: &str, paths: &[&str]) -> Result<(Vec<String>, Option<String>), String> {
        let revision = revision(paths);
        let choice = choose(&reference.parse().unwrap(), &revision).map_err(|error| error.to_string())?;
        let files = choice.files.iter().map(|file| file.path.clone()).collect();
        Ok((files, choice.open.map(str::to_owned)))
    }

    #[test]
    fn a_folder_of_safetensors_with_what_belongs_to_it() {
        let paths = [
            "README.md",
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "pytorch_model.bin",
            "onnx/model.safetensors",
            "chat_template.jinja",
            "generation_config.json",
        ];
        let (files, open) = chosen("a/b", &paths).unwrap();
        assert_eq!(open, None);
        assert!(
            !files
                .iter()
                .any(|path| ["README.md", "pytorch_model.bin", "onnx/model.safetensors"].contains(&&**path))
        );
        assert_eq!(files.len(), 8);
    }

    #[test]
    fn one_gguf_file_or_a_question() {
        let (files, open) = chosen("a/b", &["x.gguf", "mmproj-x.gguf", "README.md"]).unwrap();
        assert_eq!((files, open.as_deref()), (vec!["x.gguf".to_owned()], Some("x.gguf")));
        let error = chosen("a/b", &["x-q4.gguf", "x-q8.gguf"]).unwrap_err();
        assert!(error.contains("x-q4.gguf, x-q8.gguf"), "{error}");
        assert!(chosen("a/b", &["README.md"]).unwrap_err().contains("neither"));
        assert!(chosen("a/b:y.gguf", &["x.gguf"]).unwrap_err().contains("x.gguf"));
    }

    #[test]
    fn split_files_come_whole_and_in_order() {
        let paths = ["x-00002-of-00002.gguf", "x-00001-of-00002.gguf", "y-00001-of-00002.gguf"];
        let (files, open) = chosen("a/b:x-00001-of-00002.gguf", &paths).unwrap();
        assert_eq!(files, ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"]);
        assert_eq!(open.as_deref(), Some("x-00001-of-00002.gguf"));
        assert!(chosen("a/b:y-00001-of-00002.gguf", &paths).unwrap_err().contains("1 of 2 parts"));
    }

    #[test]
    fn paths_that_lead_outside_are_refused() {
        assert!(chosen("a/b", &["../evil.gguf"]).unwrap_err().contains("outside"));
        assert!(chosen("a/b", &["/evil.gguf"]).unwrap_err().contains("outside"));
    }
}
