//! A safetensors file written row by row: results that may be larger than memory.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::output_file::PendingFile;

/// Element type of a [`RowTensor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementType {
    /// Little-endian binary32.
    F32,
    /// Little-endian signed 32-bit.
    I32,
}

impl ElementType {
    /// Bytes of an element.
    const BYTES: u64 = 4;

    fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::I32 => "I32",
        }
    }
}

/// A tensor of `[rows, columns]`, to be filled row by row.
#[derive(Clone, Debug)]
pub(crate) struct RowTensor {
    /// Name in the file.
    pub(crate) name: String,
    /// Element type.
    pub(crate) element: ElementType,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Elements of a row.
    pub(crate) columns: usize,
}

/// A file under way: it gets its name when all rows are written.
///
/// The header lists names, types and shapes and nothing else, and rows have fixed places, so the bytes of the finished
/// file depend on the values alone and not on the order in which they came.
pub(crate) struct TensorFile {
    file: PendingFile,
    tensors: Vec<Placed>,
}

struct Placed {
    tensor: RowTensor,
    /// Byte in the file where row 0 begins.
    start: u64,
    rows_written: usize,
}

impl TensorFile {
    /// Starts a file with these tensors, in this order.
    pub(crate) fn create(path: &Path, tensors: Vec<RowTensor>) -> io::Result<Self> {
        let too_large =
            || io::Error::new(io::ErrorKind::InvalidInput, "the tensors are larger than any file");
        let mut header = Map::new();
        let mut placed = Vec::with_capacity(tensors.len());
        let mut offset = 0u64;
        for tensor in tensors {
            let elements = (tensor.rows as u64).checked_mul(tensor.columns as u64);
            let bytes =
                elements.and_then(|count| count.checked_mul(ElementType::BYTES)).ok_or_else(too_large)?;
            let end = offset.checked_add(bytes).ok_or_else(too_large)?;
            let described = json!({
                "dtype": tensor.element.name(),
                "shape": [tensor.rows, tensor.columns],
                "data_offsets": [offset, end],
            });
            header.insert(tensor.name.clone(), described);
            placed.push(Placed { tensor, start: offset, rows_written: 0 });
            offset = end;
        }
        let mut text = Value::Object(header).to_string();
        // Spaces fill up to a multiple of 8, so that data are aligned in a mapping.
        text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));

        let mut file = PendingFile::create(path)?;
        file.file().write_all(&(text.len() as u64).to_le_bytes())?;
        file.file().write_all(text.as_bytes())?;
        let data_start = 8 + text.len() as u64;
        file.file().set_len(data_start.checked_add(offset).ok_or_else(too_large)?)?;
        for place in &mut placed {
            place.start += data_start;
        }
        Ok(Self { file, tensors: placed })
    }

    /// Appends rows of `f32` to the tensor at `index`.
    pub(crate) fn append_f32(&mut self, index: usize, values: &[f32]) -> io::Result<()> {
        self.append(index, ElementType::F32, values.len(), |out| {
            values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
        })
    }

    /// Appends rows of `i32` to the tensor at `index`.
    pub(crate) fn append_i32(&mut self, index: usize, values: &[i32]) -> io::Result<()> {
        self.append(index, ElementType::I32, values.len(), |out| {
            values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
        })
    }

    fn append(
        &mut self,
        index: usize,
        element: ElementType,
        count: usize,
        write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let invalid = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let place = self.tensors.get_mut(index).ok_or_else(|| invalid("there is no such tensor"))?;
        let columns = place.tensor.columns;
        if place.tensor.element != element || columns == 0 || !count.is_multiple_of(columns) {
            return Err(invalid("the values are no rows of the tensor"));
        }
        let rows = count / columns;
        if place.rows_written + rows > place.tensor.rows {
            return Err(invalid("the tensor has no room for more rows"));
        }
        let at = place.start + place.rows_written as u64 * columns as u64 * ElementType::BYTES;
        place.rows_written += rows;
        self.file.file().seek(SeekFrom::Start(at))?;
        let mut out = BufWriter::with_capacity(1 << 16, self.file.file());
        write(&mut out)?;
        out.flush()
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> io::Result<()> {
        if self.tensors.iter().any(|place| place.rows_written != place.tensor.rows) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a tensor lacks rows"));
        }
        self.file.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, element: ElementType, rows: usize, columns: usize) -> RowTensor {
        RowTensor { name: name.to_owned(), element, rows, columns }
    }

    #[test]
    fn the_bytes_do_not_depend_on_the_order_of_writing() {
        let folder = tempfile::tempdir().unwrap();
        let specs =
            || vec![tensor("logits", ElementType::F32, 3, 2), tensor("router.0", ElementType::I32, 3, 1)];
        let whole = folder.path().join("whole");
        let mut file = TensorFile::create(&whole, specs()).unwrap();
        file.append_f32(0, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        file.append_i32(1, &[7, 8, 9]).unwrap();
        file.finish().unwrap();

        let pieces = folder.path().join("pieces");
        let mut file = TensorFile::create(&pieces, specs()).unwrap();
        for row in 0..3u8 {
            file.append_i32(1, &[7 + i32::from(row)]).unwrap();
            let first = f32::from(2 * row + 1);
            file.append_f32(0, &[first, first + 1.0]).unwrap();
        }
        file.finish().unwrap();

        let bytes = std::fs::read(&whole).unwrap();
        assert_eq!(bytes, std::fs::read(&pieces).unwrap());
        let header = samebit_checkpoint::safetensors::parse(&whole, &bytes).unwrap();
        assert_eq!(header.tensors[1].name, "router.0");
        let start = header.tensors[1].start;
        assert_eq!(&bytes[start..start + 4], &7i32.to_le_bytes());
    }

    #[test]
    fn unfinished_files_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut file = TensorFile::create(&path, vec![tensor("logits", ElementType::F32, 2, 2)]).unwrap();
        file.append_f32(0, &[1.0, 2.0]).unwrap();
        assert!(file.append_f32(0, &[1.0]).is_err());
        assert!(file.append_i32(0, &[1, 2]).is_err());
        assert!(file.append_f32(0, &[0.0; 4]).is_err());
        assert!(file.finish().is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
