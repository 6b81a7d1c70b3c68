//! One face for both kinds of checkpoint: find the files, open them, look tensors up by name.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::error::quoted;
use crate::gguf::{self, Metadata};
use crate::mmap::{Advice, MappedFile};
use crate::quantization::Quantization;
use crate::safetensors::{self, INDEX_NAME, Index};
use crate::table::TensorTable;
use crate::tensor::Tensor;
use crate::{CheckpointError, DType};

/// What a checkpoint is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// GGUF files: configuration and vocabulary are in their metadata.
    Gguf,
    /// Safetensors files, with `config.json` beside them.
    Safetensors,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gguf => "GGUF",
            Self::Safetensors => "safetensors",
        })
    }
}

/// An open checkpoint. Headers are read and checked; weights stay on disk until they are touched.
pub struct Checkpoint {
    path: PathBuf,
    folder: PathBuf,
    source: Source,
    table: TensorTable,
    metadata: Option<Metadata>,
    index: Option<Index>,
    config: Option<Config>,
    generation_config: Option<Config>,
    quantization: Quantization,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({}, {})", self.path.display(), self.about())
    }
}

impl Checkpoint {
    /// Opens a `.gguf` file (any part of a split model), a model folder, or a `.safetensors` file (with the folder's
    /// `config.json`, and all shards where the folder's index lists it).
    ///
    /// Reads headers and JSON files, no weights.
    ///
    /// # Errors
    /// When there is nothing like that, or a header is damaged or contradicts itself: see [`CheckpointError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        if std::fs::metadata(path).map_err(CheckpointError::io("open", path))?.is_dir() {
            return Self::open_folder(path);
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gguf") => Self::open_gguf(path),
            Some("safetensors") => Self::open_safetensors_file(path),
            _ if MappedFile::open(path)?.bytes().starts_with(b"GGUF") => Self::open_gguf(path),
            _ => Err(CheckpointError::NotACheckpoint {
                path: path.to_path_buf(),
                reason: "it is neither a .gguf nor a .safetensors file; name one of them, or a folder with \
                         config.json and .safetensors files"
                    .to_owned(),
            }),
        }
    }

    /// The path it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that holds its files: `tokenizer.json` and chat templates are there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it is made of.
    pub fn source(&self) -> Source {
        self.source
    }

    /// GGUF metadata; `None` for safetensors.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// `config.json`, where there is one; `None` for GGUF.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// `generation_config.json`, where there is one; `None` for GGUF.
    pub fn generation_config(&self) -> Option<&Config> {
        self.generation_config.as_ref()
    }

    /// How `config.json` says that matrices are quantized. [`Checkpoint::matrix`] trusts the tensors more.
    pub fn quantization(&self) -> &Quantization {
        &self.quantization
    }

    /// Weight files, in order.
    pub fn files(&self) -> &[MappedFile] {
        self.table.files()
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors().map(|tensor| tensor.data().len() as u64).sum()
    }

    /// All tensors in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        (0..self.table.len()).map(|position| self.table.at(position))
    }

    /// The storage types of the tensors, how many there are of each and their bytes, most bytes first.
    pub fn type_totals(&self) -> Vec<(DType, usize, u64)> {
        let mut totals: Vec<(DType, usize, u64)> = Vec::new();
        for tensor in self.tensors() {
            let bytes = tensor.data().len() as u64;
            match totals.iter_mut().find(|(dtype, ..)| *dtype == tensor.dtype()) {
                Some((_, count, sum)) => {
                    *count += 1;
                    *sum += bytes;
                }
                None => totals.push((tensor.dtype(), 1, bytes)),
            }
        }
        totals.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        totals
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// When there is none; the message lists names that resemble it and says what the checkpoint is.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, CheckpointError> {
        self.find(name).ok_or_else(|| CheckpointError::MissingTensor {
            file: self.path.clone(),
            name: name.to_owned(),
            near: self.table.near(name),
            about: self.about(),
        })
    }

    /// What the checkpoint is, in a few words: `a GGUF checkpoint of architecture "llama" with 272 tensors in 1 file`.
    pub fn about(&self) -> String {
        let architecture = match (&self.metadata, &self.config) {
            (Some(metadata), _) => metadata.optional::<&str>("general.architecture").ok().flatten(),
            (_, Some(config)) => config.root().optional::<&str>("model_type").ok().flatten(),
            _ => None,
        };
        let architecture = architecture
            .map_or("unnamed architecture".to_owned(), |name| format!("architecture {}", quoted(name)));
        let files = match self.files().len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        format!("a {} checkpoint of {architecture} with {} tensors in {files}", self.source, self.table.len())
    }

    /// `config.json` of a safetensors checkpoint.
    ///
    /// # Errors
    /// When there is none.
    pub fn required_config(&self) -> Result<&Config, CheckpointError> {
        self.config.as_ref().ok_or_else(|| CheckpointError::NotACheckpoint {
            path: self.folder.clone(),
            reason: format!("there is no config.json, and this is {}", self.about()),
        })
    }

    pub(crate) fn find(&self, name: &str) -> Option<Tensor<'_>> {
        Some(self.table.at(self.table.position(name)?))
    }

    pub(crate) fn advise_tensor(&self, name: &str, advice: Advice) {
        if let Some(position) = self.table.position(name) {
            let (file, entry) = self.table.file_of(position);
            file.advise(entry.range(), advice);
        }
    }

    pub(crate) fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    fn open_gguf(path: &Path) -> Result<Self, CheckpointError> {
        let parts = gguf::open_parts(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            folder: parent(path),
            source: Source::Gguf,
            table: parts.table,
            metadata: Some(parts.metadata),
            index: None,
            config: None,
            generation_config: None,
            quantization: Quantization::None,
        })
    }

    fn open_folder(folder: &Path) -> Result<Self, CheckpointError> {
        let index_file = folder.join(INDEX_NAME);
        if index_file.is_file() {
            return Self::open_safetensors(folder, folder, Weights::Indexed(Index::read(&index_file)?));
        }
        let single = folder.join("model.safetensors");
        if single.is_file() {
            return Self::open_safetensors(folder, folder, Weights::Single(&single));
        }
        let (safetensors, gguf) = (list(folder, ".safetensors")?, list(folder, ".gguf")?);
        match (&safetensors[..], &gguf[..]) {
            ([only], _) => Self::open_safetensors(folder, folder, Weights::Single(only)),
            ([], [first, rest @ ..]) if rest.iter().all(|other| gguf::same_model(first, other)) => {
                Self::open_gguf(first)
            }
            _ => Err(CheckpointError::NotACheckpoint {
                path: folder.to_path_buf(),
                reason: match (safetensors.len(), gguf.len()) {
                    (0, 0) => "the folder holds neither .safetensors nor .gguf files".to_owned(),
                    (0, several) => format!("the folder holds {several} .gguf files; name one of them"),
                    (several, _) => format!(
                        "the folder holds {several} .safetensors files and no {INDEX_NAME} that says how they belong \
                         together; download it, or name one of them"
                    ),
                },
            }),
        }
    }

    fn open_safetensors_file(path: &Path) -> Result<Self, CheckpointError> {
        let folder = parent(path);
        let index_file = folder.join(INDEX_NAME);
        if index_file.is_file() {
            let index = Index::read(&index_file)?;
            if index.lists(path) {
                return Self::open_safetensors(path, &folder, Weights::Indexed(index));
            }
        }
        Self::open_safetensors(path, &folder, Weights::Single(path))
    }

    fn open_safetensors(path: &Path, folder: &Path, weights: Weights) -> Result<Self, CheckpointError> {
        let (table, index) = match weights {
            Weights::Single(file) => (safetensors::open_single(file)?, None),
            Weights::Indexed(index) => (index.open()?, Some(index)),
        };
        let read = |name: &str| {
            let file = folder.join(name);
            file.is_file().then(|| Config::read(&file)).transpose()
        };
        let config = read("config.json")?;
        let quantization = config.as_ref().map_or(Ok(Quantization::None), Quantization::of)?;
        Ok(Self {
            path: path.to_path_buf(),
            folder: folder.to_path_buf(),
            source: Source::Safetensors,
            table,
            metadata: None,
            index,
            config,
            generation_config: read("generation_config.json")?,
            quantization,
        })
    }
}

/// Where the weights of a safetensors checkpoint are.
enum Weights<'a> {
    Single(&'a Path),
    Indexed(Index),
}

/// Files of a folder with this ending, sorted by name.
fn list(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, CheckpointError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(CheckpointError::io("list", folder))? {
        let path = entry.map_err(CheckpointError::io("list", folder))?.path();
        let named = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending));
        if named && path.is_file() {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
