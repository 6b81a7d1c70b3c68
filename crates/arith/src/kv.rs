//! Stored keys and values: pages of 256 positions, rounded once when written (plan, section 9).

pub(crate) mod line;
pub(crate) mod plane;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::lanes::{LANES, Lanes};
use line::{Bf16Line, F16Line, F32Line, Int8Line};
use plane::{AHEAD, PageVisitor, Plane};

/// The type that keys and values are rounded to when they are stored. Part of the plan id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// IEEE binary16, to nearest even.
    #[default]
    F16,
    /// bfloat16, to nearest even.
    Bf16,
    /// As they are.
    F32,
    /// Integers in `-127 ..= 127` with a binary32 scale per 32 columns of a head.
    Int8,
}

impl KvType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F32, Self::Int8];
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::Int8 => "int8",
        })
    }
}

/// A name that no [`KvType`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no type of stored keys and values is called {name:?}: expected f16, bf16, f32 or int8")]
pub struct UnknownKvType {
    /// The name given.
    pub name: String,
}

impl FromStr for KvType {
    type Err = UnknownKvType;

    fn from_str(name: &str) -> Result<Self, UnknownKvType> {
        Self::ALL
            .into_iter()
            .find(|ty| ty.to_string() == name)
            .ok_or_else(|| UnknownKvType { name: name.to_owned() })
    }
}

/// What one position stores: a key and a value for every key-value head. All three are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// Key-value heads.
    pub kv_heads: usize,
    /// Columns of a key of one head.
    pub key_dim: usize,
    /// Columns of a value of one head.
    pub value_dim: usize,
}

impl KvShape {
    /// Heads whose keys and values are equally wide.
    pub fn uniform(kv_heads: usize, head_dim: usize) -> Self {
        Self { kv_heads, key_dim: head_dim, value_dim: head_dim }
    }

    /// Columns of one position's keys.
    pub fn key_width(&self) -> usize {
        self.kv_heads * self.key_dim
    }

    /// Columns of one position's values.
    pub fn value_width(&self) -> usize {
        self.kv_heads * self.value_dim
    }
}

/// Up to [`KvPage::POSITIONS`] positions of stored keys and values of one sequence in one layer.
///
/// Page `i` of a sequence holds positions `256 i ..`. Memory grows with the positions: a page that holds one has
/// room for sixteen. Two pages are equal when they store the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct KvPage {
    shape: KvShape,
    len: usize,
    planes: Planes,
}

/// The numbers, by type.
#[derive(Clone, Debug, PartialEq)]
enum Planes {
    F16(Plane<F16Line>),
    Bf16(Plane<Bf16Line>),
    F32(Plane<F32Line>),
    Int8(Plane<Int8Line>),
}

/// Evaluates `$body` with `$plane` bound to the plane that a [`Planes`] holds.
macro_rules! with_plane {
    ($planes:expr, $plane:ident => $body:expr) => {
        match $planes {
            Planes::F16($plane) => $body,
            Planes::Bf16($plane) => $body,
            Planes::F32($plane) => $body,
            Planes::Int8($plane) => $body,
        }
    };
}

/// Evaluates `$body` with `$plane` naming the `Plane` type that stores a [`KvType`].
macro_rules! with_plane_type {
    ($ty:expr, $plane:ident => $body:expr) => {
        match $ty {
            KvType::F16 => {
                type $plane = Plane<F16Line>;
                $body
            }
            KvType::Bf16 => {
                type $plane = Plane<Bf16Line>;
                $body
            }
            KvType::F32 => {
                type $plane = Plane<F32Line>;
                $body
            }
            KvType::Int8 => {
                type $plane = Plane<Int8Line>;
                $body
            }
        }
    };
}

/// Why bytes are not a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvDecodeError {
    /// The bytes are not a whole number of positions.
    #[error(
        "{found} bytes are no page of {ty} keys and values: each position takes {per_position} bytes \
         ({kv_heads} heads, keys of {key_dim} and values of {value_dim} columns)"
    )]
    Length {
        /// Bytes given.
        found: usize,
        /// Bytes of one position.
        per_position: usize,
        /// The type asked for.
        ty: KvType,
        /// Heads asked for.
        kv_heads: usize,
        /// Columns of a key asked for.
        key_dim: usize,
        /// Columns of a value asked for.
        value_dim: usize,
    },
    /// More positions than a page holds.
    #[error("{positions} positions are more than the {} of a page", KvPage::POSITIONS)]
    TooLong {
        /// Positions given.
        positions: usize,
    },
    /// A dimension of the shape is zero.
    #[error(
        "a page needs at least one head and one column, not {kv_heads} heads of {key_dim} and {value_dim} columns"
    )]
    EmptyShape {
        /// Heads asked for.
        kv_heads: usize,
        /// Columns of a key asked for.
        key_dim: usize,
        /// Columns of a value asked for.
        value_dim: usize,
    },
}

impl KvPage {
    /// Positions of a full page: the blocks of attention.
    pub const POSITIONS: usize = 256;

    /// An empty page, which holds no memory yet.
    ///
    /// # Panics
    /// When a dimension of `shape` is zero.
    pub fn new(shape: KvShape, ty: KvType) -> Self {
        assert!(
            shape.kv_heads > 0 && shape.key_dim > 0 && shape.value_dim > 0,
            "a page needs at least one head and one column: {shape:?}"
        );
        let planes = match ty {
            KvType::F16 => Planes::F16(Plane::new()),
            KvType::Bf16 => Planes::Bf16(Plane::new()),
            KvType::F32 => Planes::F32(Plane::new()),
            KvType::Int8 => Planes::Int8(Plane::new()),
        };
        Self { shape, len: 0, planes }
    }

    /// What each position stores.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// The type of the stored numbers.
    pub fn ty(&self) -> KvType {
        match self.planes {
            Planes::F16(_) => KvType::F16,
            Planes::Bf16(_) => KvType::Bf16,
            Planes::F32(_) => KvType::F32,
            Planes::Int8(_) => KvType::Int8,
        }
    }

    /// Positions stored.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it stores no position.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no position fits any more.
    pub fn is_full(&self) -> bool {
        self.len == Self::POSITIONS
    }

    /// Positions that still fit.
    pub fn room(&self) -> usize {
        Self::POSITIONS - self.len
    }

    /// Rounds and appends one position or several: `keys` is `[positions, key_width]`, `values` is
    /// `[positions, value_width]`.
    ///
    /// # Panics
    /// When the two are not equally many whole positions, or more than [`KvPage::room`].
    pub fn push(&mut self, keys: &[f32], values: &[f32]) {
        let rows = keys.len() / self.shape.key_width();
        assert_eq!(keys.len(), rows * self.shape.key_width(), "keys are not whole positions");
        assert_eq!(values.len(), rows * self.shape.value_width(), "values are not as many positions as keys");
        assert!(rows <= self.room(), "{rows} positions do not fit: there is room for {}", self.room());
        // Memory doubles, so that pushing one by one copies each position a few times at most.
        let groups = (self.len + rows).div_ceil(LANES).next_power_of_two();
        let (shape, len) = (self.shape, self.len);
        with_plane!(&mut self.planes, plane => plane.push(shape, len, keys, values, groups));
        self.len += rows;
    }

    /// Keeps the first `len` positions: the page is then as if no more had been pushed. Does nothing when it holds no
    /// more than that.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        let shape = self.shape;
        with_plane!(&mut self.planes, plane => plane.truncate(shape, len));
        self.len = len;
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        with_plane!(&self.planes, plane => plane.bytes())
    }

    /// Bytes of memory that a full page holds (`usize::MAX` where the shape is beyond any memory).
    pub fn full_bytes(shape: KvShape, ty: KvType) -> usize {
        with_plane_type!(ty, P => P::group_bytes(shape)).saturating_mul(Self::POSITIONS / LANES)
    }

    /// Appends the content as little-endian bytes. They depend on nothing but the shape, the type and the stored
    /// numbers, and every position takes equally many.
    pub fn encode(&self, out: &mut Vec<u8>) {
        with_plane!(&self.planes, plane => plane.encode(self.shape, self.len, out));
    }

    /// The page that [`KvPage::encode`] made `bytes` of.
    ///
    /// # Errors
    /// When `bytes` is not a whole number of positions of that shape and type, or more than a page holds.
    pub fn decode(shape: KvShape, ty: KvType, bytes: &[u8]) -> Result<Self, KvDecodeError> {
        let KvShape { kv_heads, key_dim, value_dim } = shape;
        if kv_heads == 0 || key_dim == 0 || value_dim == 0 {
            return Err(KvDecodeError::EmptyShape { kv_heads, key_dim, value_dim });
        }
        let per_position = with_plane_type!(ty, P => P::encoded_bytes(shape));
        if !bytes.len().is_multiple_of(per_position) {
            let found = bytes.len();
            return Err(KvDecodeError::Length { found, per_position, ty, kv_heads, key_dim, value_dim });
        }
        let positions = bytes.len() / per_position;
        if positions > Self::POSITIONS {
            return Err(KvDecodeError::TooLong { positions });
        }
        let planes = match ty {
            KvType::F16 => Planes::F16(Plane::decode(shape, positions, bytes)),
            KvType::Bf16 => Planes::Bf16(Plane::decode(shape, positions, bytes)),
            KvType::F32 => Planes::F32(Plane::decode(shape, positions, bytes)),
            KvType::Int8 => Planes::Int8(Plane::decode(shape, positions, bytes)),
        };
        Ok(Self { shape, len: positions, planes })
    }

    /// The key of one position in one head as stored, and its scales where the type has them.
    pub(crate) fn key(&self, position: usize, head: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        with_plane!(&self.planes, plane => plane.key(self.shape, position, head))
    }

    /// The value of one position in one head as stored, and its scales where the type has them.
    pub(crate) fn value(&self, position: usize, head: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        with_plane!(&self.planes, plane => plane.value(self.shape, position, head))
    }

    /// Widens some columns, all in one block of 32, of the keys of sixteen positions in one head: a line per column,
    /// lanes are positions. Returns their scales where the type has them.
    #[inline(always)]
    pub(crate) fn widen_keys<L: Lanes>(
        &self,
        lanes: L,
        group: usize,
        head: usize,
        columns: Range<usize>,
        to: &mut [F32Line],
    ) -> Option<&F32Line> {
        with_plane!(&self.planes, plane => plane.widen_keys(lanes, self.shape, (group, head), columns, to))
    }

    /// Widens `N` lines of sixteen columns, all in one block of 32, of the values of sixteen positions in one head: a
    /// row per position; lines past the last of a value repeat it. Returns their scales, lanes being positions, where
    /// the type has them.
    #[inline(always)]
    pub(crate) fn widen_values<L: Lanes, const N: usize>(
        &self,
        lanes: L,
        group: usize,
        head: usize,
        first_line: usize,
        to: &mut [[F32Line; N]],
    ) -> Option<&F32Line> {
        with_plane!(&self.planes, plane => plane.widen_values(lanes, self.shape, (group, head), first_line, to))
    }

    /// Runs `visitor` on the numbers.
    #[inline(always)]
    pub(crate) fn visit(&self, visitor: impl PageVisitor) {
        with_plane!(&self.planes, plane => visitor.visit(plane));
    }

    /// Asks for the keys or the values of the first groups from `group` on in one head: a reader that comes soon then
    /// need not wait.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(&self, lanes: L, group: usize, head: usize, keys: bool) {
        with_plane!(&self.planes, plane => {
            (group..group + AHEAD).for_each(|group| plane.prefetch(lanes, self.shape, (group, head), keys));
        });
    }
}
