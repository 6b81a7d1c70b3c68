//! The element types of ggml: every id that was ever given out, by name.

use std::fmt;

use samebit_arith::Format;

use crate::DType;

/// One row of the table of types.
#[derive(Debug)]
struct Row {
    id: u32,
    name: &'static str,
    /// `(elements, bytes)` of a block.
    block: (usize, usize),
    format: Option<Format>,
}

const fn row(id: u32, name: &'static str, elements: usize, bytes: usize) -> Row {
    Row { id, name, block: (elements, bytes), format: None }
}

const fn usable(id: u32, name: &'static str, format: Format) -> Row {
    Row { id, name, block: format.block(), format: Some(format) }
}

static BLOCK_TYPES: [Row; 26] = [
    usable(2, "Q4_0", Format::Q4_0),
    usable(3, "Q4_1", Format::Q4_1),
    usable(6, "Q5_0", Format::Q5_0),
    usable(7, "Q5_1", Format::Q5_1),
    usable(8, "Q8_0", Format::Q8_0),
    row(9, "Q8_1", 32, 36),
    usable(10, "Q2_K", Format::Q2K),
    usable(11, "Q3_K", Format::Q3K),
    usable(12, "Q4_K", Format::Q4K),
    usable(13, "Q5_K", Format::Q5K),
    usable(14, "Q6_K", Format::Q6K),
    row(15, "Q8_K", 256, 292),
    row(16, "IQ2_XXS", 256, 66),
    row(17, "IQ2_XS", 256, 74),
    row(18, "IQ3_XXS", 256, 98),
    row(19, "IQ1_S", 256, 50),
    usable(20, "IQ4_NL", Format::Iq4Nl),
    row(21, "IQ3_S", 256, 110),
    row(22, "IQ2_S", 256, 82),
    usable(23, "IQ4_XS", Format::Iq4Xs),
    row(29, "IQ1_M", 256, 56),
    row(34, "TQ1_0", 256, 54),
    row(35, "TQ2_0", 256, 66),
    usable(39, "MXFP4", Format::Mxfp4),
    row(40, "NVFP4", 64, 36),
    row(41, "Q1_0", 128, 18),
];

/// Ids whose elements are plain numbers.
const PLAIN_TYPES: [(u32, DType); 8] = [
    (0, DType::F32),
    (1, DType::F16),
    (24, DType::I8),
    (25, DType::I16),
    (26, DType::I32),
    (27, DType::I64),
    (28, DType::F64),
    (30, DType::Bf16),
];

/// Types that were withdrawn, or whose layout is not known here.
const NAMES_ONLY: [(u32, &str); 9] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (42, "Q2_0"),
];

/// A block type of ggml whose layout is known.
#[derive(Clone, Copy)]
pub struct GgmlType {
    row: &'static Row,
}

impl GgmlType {
    /// ggml's name: `Q4_K`, `IQ2_XS`.
    pub fn name(self) -> &'static str {
        self.row.name
    }

    /// ggml's id.
    pub fn id(self) -> u32 {
        self.row.id
    }

    /// `(elements, bytes)` of a block.
    pub fn block(self) -> (usize, usize) {
        self.row.block
    }

    /// The format samebit computes with, where it does.
    pub fn format(self) -> Option<Format> {
        self.row.format
    }
}

impl PartialEq for GgmlType {
    fn eq(&self, other: &Self) -> bool {
        self.row.id == other.row.id
    }
}

impl Eq for GgmlType {}

impl fmt::Debug for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)
    }
}

/// What a type id of a file means.
pub(super) enum TypeId {
    /// A type whose size is known.
    Known(DType),
    /// A type with a name and nothing else: withdrawn, or newer than this table.
    NameOnly(&'static str),
    /// Never given out.
    Unknown,
}

/// Looks a type id up.
pub(super) fn lookup(id: u32) -> TypeId {
    if let Some((_, dtype)) = PLAIN_TYPES.iter().find(|(known, _)| *known == id) {
        return TypeId::Known(*dtype);
    }
    if let Some(row) = BLOCK_TYPES.iter().find(|row| row.id == id) {
        return TypeId::Known(DType::Ggml(GgmlType { row }));
    }
    match NAMES_ONLY.iter().find(|(known, _)| *known == id) {
        Some((_, name)) => TypeId::NameOnly(name),
        None => TypeId::Unknown,
    }
}

/// The ggml id of a type; `None` for types GGUF cannot hold.
pub(super) fn id_of(dtype: DType) -> Option<u32> {
    match dtype {
        DType::Ggml(kind) => Some(kind.id()),
        plain => PLAIN_TYPES.iter().find(|(_, known)| *known == plain).map(|(id, _)| *id),
    }
}

/// The type a matrix of this format has in a GGUF file; `None` for MLX's formats.
pub(crate) fn dtype_of(format: Format) -> Option<DType> {
    let plain = [DType::F32, DType::F16, DType::Bf16].into_iter();
    let blocks = BLOCK_TYPES.iter().map(|row| DType::Ggml(GgmlType { row }));
    plain.chain(blocks).find(|dtype| dtype.format() == Some(format))
}

/// Names of the types a matrix may have, for messages.
pub(crate) fn supported_names() -> String {
    let names = ["F32", "F16", "BF16"].into_iter();
    let blocks = BLOCK_TYPES.iter().filter(|row| row.format.is_some()).map(|row| row.name);
    names.chain(blocks).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_formats() {
        for row in &BLOCK_TYPES {
            if let Some(format) = row.format {
                assert_eq!(row.name, format.to_string());
            }
        }
    }

    #[test]
    fn ids_are_unique_and_found() {
        let mut seen = std::collections::HashSet::new();
        let ids = BLOCK_TYPES.iter().map(|row| row.id).chain(PLAIN_TYPES.iter().map(|(id, _)| *id));
        for id in ids {
            assert!(seen.insert(id), "id {id} twice");
            assert!(matches!(lookup(id), TypeId::Known(dtype) if id_of(dtype) == Some(id)), "id {id}");
        }
        for (id, name) in NAMES_ONLY {
            assert!(seen.insert(id), "id {id} twice");
            assert!(matches!(lookup(id), TypeId::NameOnly(found) if found == name), "id {id}");
        }
        // Every id up to the newest has a name.
        assert_eq!(seen.len(), 43);
        assert!(matches!(lookup(43), TypeId::Unknown));
    }
}
