//! Output split among tasks.
//!
//! [`Pool::run`] calls each task once, so a part that belongs to one task number belongs to one call. That makes these
//! two helpers sound by construction, without a check per access.

use super::Pool;
use std::marker::PhantomData;

/// A pointer that tasks on several threads may carry. Each reaches its own elements only.
struct Start<T>(*mut T);

// SAFETY: a `Start` is only read to make disjoint `&mut [T]`, one per task; sending those is sending `&mut T`.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// The pointer. A method, so that closures capture the wrapper and not the bare field.
    fn get(&self) -> *mut T {
        self.0
    }
}

impl Pool {
    /// Cuts `all` into pieces of `piece` elements (the last may be shorter) and calls `task(index, piece)` for each.
    ///
    /// # Panics
    /// When `piece` is 0, or a task panics.
    pub(crate) fn run_pieces<T: Send>(
        &self,
        all: &mut [T],
        piece: usize,
        task: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        assert!(piece > 0, "pieces of no elements");
        let (start, length) = (Start(all.as_mut_ptr()), all.len());
        self.run(length.div_ceil(piece), &|index| {
            let first = index * piece;
            let count = piece.min(length - first);
            // SAFETY: `first + count <= length`; pieces of different indices do not overlap, `run` calls each index
            // once, and `all` stays borrowed until it returns.
            let part = unsafe { std::slice::from_raw_parts_mut(start.get().add(first), count) };
            task(index, part);
        });
    }

    /// Cuts row-major matrices of equally many rows into column ranges and calls `task(which matrix, columns)` for
    /// each, those of the first matrix first.
    ///
    /// # Panics
    /// When a piece is 0, a matrix is not whole rows, or a task panics.
    pub(crate) fn run_columns<T: Send, const N: usize>(
        &self,
        matrices: [ColumnPieces<'_, T>; N],
        task: &(dyn Fn(usize, Columns<'_, T>) + Sync),
    ) {
        let all = matrices.map(|ColumnPieces { all, width, piece }| {
            assert!(piece > 0, "column ranges of no columns");
            assert!(
                all.is_empty() || (width > 0 && all.len().is_multiple_of(width)),
                "{} elements in rows of {width}",
                all.len()
            );
            let (rows, pieces) =
                if all.is_empty() { (0, 0) } else { (all.len() / width, width.div_ceil(piece)) };
            (Start(all.as_mut_ptr()), rows, width, piece, pieces)
        });
        self.run(all.iter().map(|(.., pieces)| pieces).sum(), &|mut index| {
            for (which, (start, rows, width, piece, pieces)) in all.iter().enumerate() {
                if index < *pieces {
                    let first = index * piece;
                    let count = *piece.min(&(width - first));
                    let (start, rows, width) = (start.get(), *rows, *width);
                    return task(which, Columns { start, rows, width, first, count, all: PhantomData });
                }
                index -= pieces;
            }
        });
    }
}

/// A row-major matrix with rows of `width`, to be cut into ranges of `piece` columns (the last may be narrower).
pub(crate) struct ColumnPieces<'a, T> {
    pub(crate) all: &'a mut [T],
    pub(crate) width: usize,
    pub(crate) piece: usize,
}

/// The columns `first .. first + count` of every row of a row-major matrix, writable.
pub(crate) struct Columns<'a, T> {
    /// Of the matrix, not of these columns.
    start: *mut T,
    rows: usize,
    width: usize,
    first: usize,
    count: usize,
    all: PhantomData<&'a mut [T]>,
}

impl<T> Columns<'_, T> {
    /// Rows of the matrix.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The first of these columns.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// How many columns these are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// These columns of row `row`.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: `first + count <= width` and `row < rows`, so the range lies in the matrix; only this value reaches
        // these columns, and it is borrowed for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + self.first), self.count) }
    }
}
