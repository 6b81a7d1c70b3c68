//! What tiles compute, in plain Rust, and the check of the processor's against it.

use super::{CodeLine, Plane, TILE_ROWS, TileSums, Tiles};
use crate::format::BLOCK;
use crate::lanes::{LANES, LINE};
use std::cell::RefCell;

/// Tile products in plain Rust.
pub(crate) struct ModelTiles {
    lines: usize,
    banks: RefCell<[[TileSums; 2]; 2]>,
}

impl Tiles for ModelTiles {
    fn begin(columns: usize) -> Self {
        Self { lines: columns / 4, banks: RefCell::new([[TileSums::ZERO; 2]; 2]) }
    }

    fn start<const BANK: usize>(&self, planes: [&Plane; 2], first: usize, lines: &[CodeLine], signed: bool) {
        for (plane, sums) in planes.into_iter().zip(&mut self.banks.borrow_mut()[BANK]) {
            self.single(plane, first, lines, signed, sums);
        }
    }

    fn finish<const BANK: usize>(&self, sums: &mut [TileSums; 2]) {
        *sums = self.banks.borrow()[BANK];
    }

    fn single(&self, plane: &Plane, first: usize, lines: &[CodeLine], signed: bool, sums: &mut TileSums) {
        assert_eq!(lines.len(), self.lines, "lines of a step");
        *sums = TileSums::ZERO;
        for (row, sums) in plane.0.iter().zip(&mut sums.0) {
            let (fours, _) = row[first..first + 4 * lines.len()].as_chunks::<4>();
            for (four, line) in fours.iter().zip(lines) {
                let (codes, _) = line.0.as_chunks::<4>();
                for (sum, codes) in sums.iter_mut().zip(codes) {
                    for (&entry, &code) in four.iter().zip(codes) {
                        let code = if signed { i32::from(code as i8) } else { i32::from(code) };
                        *sum += i32::from(entry) * code;
                    }
                }
            }
        }
    }
}

/// Whether `T` computes what tiles should, over random entries and the extreme ones.
pub(super) fn agrees<T: Tiles>() -> bool {
    /// Of each kind: enough for every register and lane to have met every sign, little enough to take milliseconds.
    const CASES: u64 = 150;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut byte = |extreme: bool| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let byte = (state >> 56) as u8;
        if extreme { [0, 127, 128, 255][usize::from(byte >> 6)] } else { byte }
    };
    for columns in [BLOCK, BLOCK / 2] {
        let (tiles, model) = (T::begin(columns), ModelTiles::begin(columns));
        for case in 0..CASES {
            let extreme = case % 4 == 0;
            let mut planes = [Plane([[0; BLOCK]; TILE_ROWS]); 2];
            planes
                .iter_mut()
                .flat_map(|plane| plane.0.as_flattened_mut())
                .for_each(|x| *x = byte(extreme) as i8);
            let mut lines = [CodeLine([0; LINE]); BLOCK / 4];
            lines.iter_mut().flat_map(|line| &mut line.0).for_each(|x| *x = byte(extreme));
            let lines = &lines[..columns / 4];
            for signed in [false, true] {
                for first in (0..BLOCK).step_by(columns) {
                    let mut found = [TileSums::ZERO; 5];
                    products(&tiles, &planes, first, lines, signed, &mut found);
                    let mut exact = [TileSums::ZERO; 2];
                    for (plane, exact) in planes.iter().zip(&mut exact) {
                        model.single(plane, first, lines, signed, exact);
                    }
                    if found.iter().zip(PLANES).any(|(found, plane)| found.0 != exact[plane].0) {
                        return false;
                    }
                }
            }
        }
    }
    true
}

/// The plane that each of the sums of [`products`] is of.
const PLANES: [usize; 5] = [1, 0, 1, 1, 0];

/// The products that a kernel asks for, with both banks under way at once.
fn products<T: Tiles>(
    tiles: &T,
    planes: &[Plane; 2],
    first: usize,
    lines: &[CodeLine],
    signed: bool,
    sums: &mut [TileSums; 5],
) {
    let (single, banks) = sums.split_first_mut().expect("five sums");
    let (banks, _) = banks.as_chunks_mut::<2>();
    tiles.start::<0>([&planes[0], &planes[1]], first, lines, signed);
    tiles.start::<1>([&planes[1], &planes[0]], first, lines, signed);
    tiles.finish::<0>(&mut banks[0]);
    tiles.single(&planes[1], first, lines, signed, single);
    tiles.finish::<1>(&mut banks[1]);
}

const _: () = assert!(TILE_ROWS == LANES);

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles that are wrong in one way.
    struct Wrong<const UNSIGNED_ALWAYS: bool>(ModelTiles);

    impl<const UNSIGNED_ALWAYS: bool> Tiles for Wrong<UNSIGNED_ALWAYS> {
        fn begin(columns: usize) -> Self {
            Self(ModelTiles::begin(columns))
        }
        fn start<const BANK: usize>(
            &self,
            planes: [&Plane; 2],
            first: usize,
            lines: &[CodeLine],
            signed: bool,
        ) {
            self.0.start::<BANK>(planes, first, lines, signed && !UNSIGNED_ALWAYS);
        }
        fn finish<const BANK: usize>(&self, sums: &mut [TileSums; 2]) {
            self.0.finish::<BANK>(sums);
        }
        fn single(&self, plane: &Plane, first: usize, lines: &[CodeLine], signed: bool, sums: &mut TileSums) {
            self.0.single(plane, first, lines, signed, sums);
            if !UNSIGNED_ALWAYS {
                sums.0[15][15] = sums.0[15][15].clamp(-100_000, 100_000);
            }
        }
    }

    #[test]
    fn the_check_takes_what_is_right_and_nothing_else() {
        assert!(agrees::<ModelTiles>());
        assert!(!agrees::<Wrong<true>>(), "codes taken for unsigned");
        assert!(!agrees::<Wrong<false>>(), "one sum that saturates");
    }

    #[test]
    fn a_sum_by_hand() {
        let mut plane = Plane([[0; BLOCK]; TILE_ROWS]);
        (plane.0[3][17], plane.0[3][31]) = (-128, 127);
        let mut lines = [CodeLine([0; LINE]); 4];
        (lines[0].0[4 * 5 + 1], lines[3].0[4 * 5 + 3]) = (255, 1);
        let tiles = ModelTiles::begin(16);
        let mut sums = TileSums::ZERO;
        tiles.single(&plane, 16, &lines, false, &mut sums);
        assert_eq!(sums.0[3][5], -128 * 255 + 127);
        tiles.single(&plane, 16, &lines, true, &mut sums);
        assert_eq!(sums.0[3][5], 128 + 127);
        assert_eq!(sums.0.as_flattened().iter().filter(|&&sum| sum != 0).count(), 1);
    }
}
