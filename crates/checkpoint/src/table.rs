//! All tensors of a checkpoint, over its files, by name.

use std::path::Path;

use crate::CheckpointError;
use crate::error::quoted;
use crate::mmap::MappedFile;
use crate::names::{self, NameIndex};
use crate::tensor::{Tensor, TensorEntry};

/// The weight files of a checkpoint and the tensors in them.
pub(crate) struct TensorTable {
    files: Vec<MappedFile>,
    /// Tensors with the position of their file in `files`. Their ranges were checked against that file.
    tensors: Vec<(usize, TensorEntry)>,
    by_name: NameIndex,
}

impl TensorTable {
    /// Files and their tensors, in order. A name in two files is an error.
    pub(crate) fn new(
        files: Vec<MappedFile>,
        tensors: Vec<(usize, TensorEntry)>,
    ) -> Result<Self, CheckpointError> {
        let index = NameIndex::build(tensors.len(), |at| &tensors[at].1.name);
        match index {
            Ok(by_name) => Ok(Self { files, tensors, by_name }),
            Err((first, second)) => {
                let ((one, tensor), (other, _)) = (&tensors[first], &tensors[second]);
                let found = format!("it in {} too", files[*other].path().display());
                let place = format!("tensor {}", quoted(&tensor.name));
                Err(CheckpointError::malformed(files[*one].path(), place, found, "every tensor in one file"))
            }
        }
    }

    pub(crate) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Position of the tensor with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.find(name, |at| &self.tensors[at].1.name)
    }

    /// The tensor at a position below [`TensorTable::len`].
    pub(crate) fn at(&self, position: usize) -> Tensor<'_> {
        let (file, entry) = &self.tensors[position];
        let file = &self.files[*file];
        Tensor { file: file.path(), entry, data: &file.bytes()[entry.range()] }
    }

    /// The file that holds the tensor at a position.
    pub(crate) fn file_of(&self, position: usize) -> (&MappedFile, &TensorEntry) {
        let (file, entry) = &self.tensors[position];
        (&self.files[*file], entry)
    }

    /// Names that resemble a wrong one.
    pub(crate) fn near(&self, name: &str) -> Vec<String> {
        names::near(name, self.tensors.iter().map(|(_, entry)| entry.name.as_str()))
    }

    pub(crate) fn path_of(&self, position: usize) -> &Path {
        self.file_of(position).0.path()
    }
}
