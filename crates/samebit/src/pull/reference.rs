//! `hf:owner/repo[@revision][:file]`.

use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;

use super::error::PullError;

/// A model on the hub, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubReference {
    /// Owner of the repository.
    pub owner: String,
    /// Name of the repository.
    pub repository: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// One `.gguf` file of the repository (the first of its parts, where it is split).
    pub file: Option<String>,
}

impl HubReference {
    /// What a reference begins with on the command line.
    pub const PREFIX: &str = "hf:";
}

impl FromStr for HubReference {
    type Err = PullError;

    /// Reads `owner/repo[@revision][:file]`, without the `hf:`.
    fn from_str(text: &str) -> Result<Self, PullError> {
        let bad = |reason| PullError::BadReference { text: text.to_owned(), reason };
        let (head, file) = match text.split_once(':') {
            Some((head, file)) => (head, Some(file.to_owned())),
            None => (text, None),
        };
        let (name, revision) = head.split_once('@').unwrap_or((head, "main"));
        let (owner, repository) = name.split_once('/').ok_or(bad("there is no owner before a slash"))?;
        if !is_plain_name(owner) || !is_plain_name(repository) {
            return Err(bad("owner and repository consist of letters, digits, '-', '_' and '.'"));
        }
        if revision.is_empty() || !revision.split('/').all(is_plain_name) {
            return Err(bad("a revision is a branch, a tag or a commit"));
        }
        if let Some(file) = &file
            && !(is_inside(file) && file.ends_with(".gguf"))
        {
            return Err(bad("the file must be a .gguf file inside the repository"));
        }
        Ok(Self { owner: owner.into(), repository: repository.into(), revision: revision.into(), file })
    }
}

impl fmt::Display for HubReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.owner, self.repository, self.revision)?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, ":{file}"))
    }
}

/// Whether a path from outside stays below the folder it is joined to, on every operating system.
pub(super) fn is_inside(path: &str) -> bool {
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && !path.contains(['\\', ':', '\0']) && Path::new(path).components().all(normal)
}

fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && !name.contains("..") && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts() {
        let parsed: HubReference = "Qwen/Qwen3-0.6B-GGUF@refs/pr/1:sub/q8_0.gguf".parse().unwrap();
        assert_eq!((parsed.owner.as_str(), parsed.repository.as_str()), ("Qwen", "Qwen3-0.6B-GGUF"));
        assert_eq!((parsed.revision.as_str(), parsed.file.as_deref()), ("refs/pr/1", Some("sub/q8_0.gguf")));
        assert_eq!(parsed.to_string(), "Qwen/Qwen3-0.6B-GGUF@refs/pr/1:sub/q8_0.gguf");
        let parsed: HubReference = "a/b".parse().unwrap();
        assert_eq!((parsed.revision.as_str(), parsed.file), ("main", None));
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            "a",
            "/b",
            "a/",
            "a/b@",
            "a/b/c",
            "a/..",
            "../b",
            "a/b@../x",
            "a/b:",
            "a/b:x.txt",
            "a/b:../x.gguf",
            "a/b:/x.gguf",
            "a/b:C:\\x.gguf",
            "a b/c",
        ] {
            assert!(text.parse::<HubReference>().is_err(), "{text:?}");
        }
    }
}
