//! The processor's tiles. The compiler has no names for these instructions yet, so they are written out.

use super::{CodeLine, Plane, TILE_ROWS, TileSums, Tiles};
use crate::format::BLOCK;
use crate::lanes::LINE;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Whether the processor has integer tiles and the system lets this process use them. Asks for that, once.
pub(super) fn is_permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(has_tiles)
}

fn has_tiles() -> bool {
    const HIGHEST_LEAF: u32 = 7;
    const TILES: u32 = 1 << 24;
    const INTEGER_TILES: u32 = 1 << 25;
    if __cpuid(0).eax < HIGHEST_LEAF {
        return false;
    }
    let features = __cpuid_count(HIGHEST_LEAF, 0).edx;
    features & TILES != 0 && features & INTEGER_TILES != 0 && ask_for_tiles()
}

/// Asks the system to let this process use tiles: their state is large, so it is saved only for those who ask.
fn ask_for_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let answer: i64;
    // SAFETY: this request takes two numbers and touches no memory of ours.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

/// Shapes of the tile registers, as `ldtilecfg` takes them.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tile registers that have shapes, until this is dropped: registers 0 to 3 and 7 sums, 4 and 5 rows, 6 codes.
pub(crate) struct HardwareTiles {
    lines: usize,
    /// Shapes belong to the thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for HardwareTiles {
    fn drop(&mut self) {
        // SAFETY: gives the registers up; nothing is left in them that anyone reads.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The products of a pair of planes into two sums, with product instruction `$product`.
macro_rules! start {
    ($product:literal, $high_sums:tt, $low_sums:tt, $high:expr, $low:expr, $lines:expr) => {
        // SAFETY: a `HardwareTiles` exists, so the processor has tiles and their shapes are set: 16 rows of at most
        // 32 bytes that start `first` bytes into a plane, and as many lines as were checked to be there. The compiler
        // uses no tile registers, so what these hold stays there until it is stored.
        unsafe {
            asm!(
                "tileloadd tmm6, [{lines} + {line}*1]",
                "tileloadd tmm4, [{high} + {row}*1]",
                concat!("tilezero ", $high_sums),
                concat!($product, " ", $high_sums, ", tmm4, tmm6"),
                "tileloadd tmm5, [{low} + {row}*1]",
                concat!("tilezero ", $low_sums),
                concat!($product, " ", $low_sums, ", tmm5, tmm6"),
                lines = in(reg) $lines,
                high = in(reg) $high,
                low = in(reg) $low,
                line = in(reg) LINE,
                row = in(reg) BLOCK,
                out($high_sums) _, out($low_sums) _, out("tmm4") _, out("tmm5") _, out("tmm6") _,
                options(nostack, preserves_flags, readonly),
            );
        }
    };
}

/// Stores two sums.
macro_rules! finish {
    ($high_sums:literal, $low_sums:literal, $sums:expr) => {
        // SAFETY: as above; the sums are two whole arrays of 16 rows of 64 bytes, which follow each other.
        unsafe {
            asm!(
                concat!("tilestored [{sums} + {line}*1], ", $high_sums),
                concat!("tilestored [{sums} + {line}*1 + 1024], ", $low_sums),
                sums = in(reg) $sums,
                line = in(reg) LINE,
                options(nostack, preserves_flags),
            );
        }
    };
}

/// The tile instructions of one plane, with product instruction `$product`.
macro_rules! single {
    ($product:literal, $plane:expr, $lines:expr, $sums:expr) => {
        // SAFETY: as above, for one plane and one array of sums.
        unsafe {
            asm!(
                "tileloadd tmm6, [{lines} + {line}*1]",
                "tileloadd tmm4, [{plane} + {row}*1]",
                "tilezero tmm7",
                concat!($product, " tmm7, tmm4, tmm6"),
                "tilestored [{sums} + {line}*1], tmm7",
                lines = in(reg) $lines,
                plane = in(reg) $plane,
                sums = in(reg) $sums,
                line = in(reg) LINE,
                row = in(reg) BLOCK,
                out("tmm7") _, out("tmm4") _, out("tmm6") _,
                options(nostack, preserves_flags),
            );
        }
    };
}

impl HardwareTiles {
    /// Where the columns of a step start in a plane.
    #[inline(always)]
    fn place(&self, plane: &Plane, first: usize, lines: &[CodeLine]) -> *const Plane {
        assert!(
            lines.len() == self.lines && first + 4 * self.lines <= BLOCK,
            "a step of {} lines",
            self.lines
        );
        std::ptr::from_ref(plane).wrapping_byte_add(first)
    }
}

impl Tiles for HardwareTiles {
    fn begin(columns: usize) -> Self {
        assert!(columns == BLOCK || columns == BLOCK / 2, "steps of {columns} columns");
        assert!(is_permitted(), "this process may not use tiles");
        let lines = columns / 4;
        let mut shapes =
            Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for (register, (row_bytes, rows)) in
            shapes.row_bytes.iter_mut().zip(&mut shapes.rows).take(8).enumerate()
        {
            (*row_bytes, *rows) = match register {
                4 | 5 => (columns as u16, TILE_ROWS as u8),
                6 => (LINE as u16, lines as u8),
                _ => (LINE as u16, TILE_ROWS as u8),
            };
        }
        // SAFETY: the process may use tiles, as just checked; the shapes are valid ones, in an aligned block.
        unsafe {
            asm!(
                "ldtilecfg [{shapes}]",
                shapes = in(reg) &raw const shapes,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        Self { lines, not_send: PhantomData }
    }

    #[inline(always)]
    fn start<const BANK: usize>(&self, planes: [&Plane; 2], first: usize, lines: &[CodeLine], signed: bool) {
        let high = self.place(planes[0], first, lines);
        let low = self.place(planes[1], first, lines);
        match (BANK, signed) {
            (0, false) => start!("tdpbsud", "tmm0", "tmm1", high, low, lines.as_ptr()),
            (0, true) => start!("tdpbssd", "tmm0", "tmm1", high, low, lines.as_ptr()),
            (_, false) => start!("tdpbsud", "tmm2", "tmm3", high, low, lines.as_ptr()),
            (_, true) => start!("tdpbssd", "tmm2", "tmm3", high, low, lines.as_ptr()),
        }
    }

    #[inline(always)]
    fn finish<const BANK: usize>(&self, sums: &mut [TileSums; 2]) {
        match BANK {
            0 => finish!("tmm0", "tmm1", sums.as_mut_ptr()),
            _ => finish!("tmm2", "tmm3", sums.as_mut_ptr()),
        }
    }

    #[inline(always)]
    fn single(&self, plane: &Plane, first: usize, lines: &[CodeLine], signed: bool, sums: &mut TileSums) {
        let plane = self.place(plane, first, lines);
        if signed {
            single!("tdpbssd", plane, lines.as_ptr(), std::ptr::from_mut(sums));
        } else {
            single!("tdpbsud", plane, lines.as_ptr(), std::ptr::from_mut(sums));
        }
    }
}
