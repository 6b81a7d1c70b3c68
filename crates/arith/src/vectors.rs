//! Test vectors: tensors of the safetensors files under `fixtures/`, and reproducible random numbers.

use std::collections::BTreeMap;
use std::path::Path;

/// One safetensors file.
pub(crate) struct Vectors {
    tensors: BTreeMap<String, (usize, usize)>,
    shapes: BTreeMap<String, Vec<usize>>,
    bytes: Vec<u8>,
}

impl Vectors {
    /// Reads `fixtures/<name>` of the repository.
    pub(crate) fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
        let (mut tensors, mut shapes) = (BTreeMap::new(), BTreeMap::new());
        for (name, tensor) in header.as_object().unwrap() {
            if name != "__metadata__" {
                let offset =
                    |i: usize| tensor["data_offsets"][i].as_u64().unwrap() as usize + 8 + header_bytes;
                tensors.insert(name.clone(), (offset(0), offset(1)));
                let shape = tensor["shape"].as_array().unwrap();
                shapes.insert(name.clone(), shape.iter().map(|n| n.as_u64().unwrap() as usize).collect());
            }
        }
        Self { tensors, shapes, bytes }
    }

    /// Names of all tensors, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Bytes of a tensor.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        let (start, end) = self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}"));
        &self.bytes[*start..*end]
    }

    /// Shape of a tensor.
    pub(crate) fn shape(&self, name: &str) -> &[usize] {
        &self.shapes[name]
    }

    /// An F32 tensor.
    pub(crate) fn f32(&self, name: &str) -> Vec<f32> {
        self.bytes(name).as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    /// An F64 tensor.
    pub(crate) fn f64(&self, name: &str) -> Vec<f64> {
        self.bytes(name).as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
    }
}

/// Reproducible random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A whole number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// A number in `-1 .. 1`.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Roughly normal, with now and then a large one, as activations are.
    pub(crate) fn activation(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| self.signed()).sum();
        if self.below(64) == 0 { 20.0 * sum } else { sum }
    }

    /// `count` activations.
    pub(crate) fn activations(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.activation()).collect()
    }

    /// `count` random bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}
