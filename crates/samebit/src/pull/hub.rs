//! The hub's interface: addresses of files, and what a revision of a repository holds.

use serde::Deserialize;
use ureq::http::Response;
use ureq::{Agent, Body, Error};

use super::digest::Digest;
use super::download;
use super::error::PullError;
use super::settings::Settings;

/// A connection to the hub.
pub(super) struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// What a revision of a repository holds, as the hub tells it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Revision {
    /// The commit.
    pub(super) commit: String,
    /// Its files.
    pub(super) files: Vec<RemoteFile>,
}

/// A file of a repository.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct RemoteFile {
    /// Path inside the repository.
    pub(super) path: String,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Digest of its bytes.
    pub(super) digest: Digest,
}

impl Hub {
    /// The hub that the settings name, if it may be asked. Connects to nothing yet.
    pub(super) fn new(settings: &Settings) -> Result<Self, PullError> {
        if settings.hub_offline {
            return Err(PullError::Offline);
        }
        Ok(Self {
            agent: download::agent(settings.connect_timeout, settings.silence_timeout),
            endpoint: settings.hub_endpoint.clone(),
            token: settings.hub_token.clone(),
        })
    }

    /// Address of a file.
    pub(super) fn file_url(&self, repository: &str, revision: &str, path: &str) -> String {
        let path = path.split('/').map(encoded).collect::<Vec<_>>().join("/");
        format!("{}/{repository}/resolve/{}/{path}", self.endpoint, encoded(revision))
    }

    /// What `repository` holds at `revision`.
    pub(super) fn revision(&self, repository: &str, revision: &str) -> Result<Revision, PullError> {
        /// Far above any listing; keeps a wrong server from filling the memory.
        const LONGEST_LISTING: u64 = 32 << 20;
        let endpoint = &self.endpoint;
        let url = format!("{endpoint}/api/models/{repository}/revision/{}?blobs=true", encoded(revision));
        let mut answer = self.get(&url, None)?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Err(PullError::Status { url, status });
        }
        let text = answer.body_mut().with_config().limit(LONGEST_LISTING).read_to_vec();
        let text =
            text.map_err(|error| PullError::BadAnswer { url: url.clone(), reason: error.to_string() })?;
        let bad = |reason: String| PullError::BadAnswer { url: url.clone(), reason };
        let told: Told = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        told.check().map_err(bad)
    }

    /// One GET request; with `range`, for a part of the file.
    pub(super) fn get(&self, url: &str, range: Option<&str>) -> Result<Response<Body>, PullError> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(range) = range {
            request = request.header("range", range);
        }
        request.call().map_err(|error| match error {
            Error::BadUri(_) | Error::Http(_) => PullError::BadAnswer {
                url: url.to_owned(),
                reason: format!("{error}: check HF_ENDPOINT and HF_TOKEN"),
            },
            _ => PullError::Unreachable { endpoint: self.endpoint.clone(), reason: error.to_string() },
        })
    }
}

#[derive(Deserialize)]
struct Told {
    sha: String,
    siblings: Vec<ToldFile>,
}

#[derive(Deserialize)]
struct ToldFile {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<ToldLarge>,
}

#[derive(Deserialize)]
struct ToldLarge {
    #[serde(alias = "oid")]
    sha256: String,
    size: u64,
}

impl Told {
    /// Turns what the hub said into something that names of files may be made of.
    fn check(self) -> Result<Revision, String> {
        if !is_hex(&self.sha, 40) {
            return Err(format!("the commit is {:?}, expected 40 hexadecimal digits", self.sha));
        }
        let files = self.siblings.into_iter().map(ToldFile::check).collect::<Result<_, _>>()?;
        Ok(Revision { commit: self.sha, files })
    }
}

impl ToldFile {
    fn check(self) -> Result<RemoteFile, String> {
        let path = self.rfilename;
        let (bytes, digest) = match (self.lfs, self.size, self.blob_id) {
            (Some(large), _, _) if is_hex(&large.sha256, 64) => (large.size, Digest::Sha256(large.sha256)),
            (None, Some(size), Some(blob)) if is_hex(&blob, 40) => (size, Digest::GitBlob(blob)),
            _ => return Err(format!("size or digest of {path:?} is missing or malformed")),
        };
        Ok(RemoteFile { path, bytes, digest })
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// One segment of an address, with everything escaped that could mean something else.
pub(super) fn encoded(segment: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    segment.bytes().map(escape).collect()
}
