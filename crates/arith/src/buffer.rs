//! Arrays that go back on a shelf when they are dropped.
//!
//! A forward pass needs the same few dozen arrays again and again. Left to the allocator, large ones come as fresh
//! pages from the system each time, which is a good part of a prompt's time; a [`Buffer`] is taken from its
//! [`Cpu`](crate::Cpu)'s shelf, so that a pass like the one before it allocates nothing.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Idle arrays that are kept. A pass has fewer than this in hand at once.
const SHELF_PLACES: usize = 64;

/// Idle arrays of one element type.
pub(crate) struct Shelf<T> {
    idle: Mutex<Vec<Vec<T>>>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { idle: Mutex::new(Vec::with_capacity(SHELF_PLACES)) }
    }
}

impl<T> Shelf<T> {
    /// The smallest idle array of at least `len` elements.
    fn take(&self, len: usize) -> Option<Vec<T>> {
        let mut idle = self.lock();
        let fitting = idle.iter().enumerate().filter(|(_, array)| array.len() >= len);
        let (place, _) = fitting.min_by_key(|(_, array)| array.len())?;
        Some(idle.swap_remove(place))
    }

    /// Keeps `array`; where the shelf is full, lets the smallest one go.
    fn put(&self, array: Vec<T>) {
        let mut idle = self.lock();
        if idle.len() < SHELF_PLACES {
            idle.push(array);
        } else if let Some(smallest) = idle.iter_mut().min_by_key(|idle| idle.len())
            && smallest.len() < array.len()
        {
            *smallest = array;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<T>>> {
        // Nothing panics while holding the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Shelf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shelf({} idle)", self.lock().len())
    }
}

/// An array from a shelf, to which it returns. Its elements are whatever was there before, until they are written.
pub struct Buffer<T = f32> {
    /// At least `len` elements.
    array: Vec<T>,
    len: usize,
    /// Where it goes when it is dropped.
    shelf: Option<Arc<Shelf<T>>>,
}

impl<T: Copy> Buffer<T> {
    /// `len` elements from `shelf`, or new ones that are `filler`.
    pub(crate) fn take(shelf: &Arc<Shelf<T>>, len: usize, filler: T) -> Self {
        let array = shelf.take(len).unwrap_or_else(|| vec![filler; len]);
        Self { array, len, shelf: Some(Arc::clone(shelf)) }
    }
}

impl<T> Default for Buffer<T> {
    /// No elements.
    fn default() -> Self {
        Self { array: Vec::new(), len: 0, shelf: None }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.array[..self.len]
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.array[..self.len]
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.take().filter(|_| self.len > 0) {
            shelf.put(std::mem::take(&mut self.array));
        }
    }
}

impl<T: Copy> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        let idle = self.shelf.as_ref().and_then(|shelf| shelf.take(self.len));
        let array = match idle {
            Some(mut array) => {
                array[..self.len].copy_from_slice(self);
                array
            }
            None => self.to_vec(),
        };
        Self { array, len: self.len, shelf: self.shelf.clone() }
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_used_again() {
        let shelf = Arc::new(Shelf::default());
        let first = Buffer::take(&shelf, 100, 0);
        let place = first.as_ptr();
        drop(first);
        let mut again = Buffer::take(&shelf, 60, 0);
        assert_eq!((again.as_ptr(), again.len()), (place, 60), "a larger one will do");
        again.fill(7);
        let other = Buffer::take(&shelf, 60, 1);
        assert_ne!(other.as_ptr(), place, "nobody else has it meanwhile");
        assert!(other.iter().all(|&element| element == 1), "a new one holds the filler");
        let copy = again.clone();
        assert_eq!(copy, again);
        drop((again, other, copy));
        assert_eq!(Buffer::take(&shelf, 70, 0).as_ptr(), place, "the one that is large enough");
    }

    #[test]
    fn the_smallest_that_fits_is_taken() {
        let shelf = Arc::new(Shelf::default());
        drop([10, 1000, 100].map(|len| Buffer::take(&shelf, len, 0u8)));
        let taken = Buffer::take(&shelf, 50, 0);
        assert_eq!(taken.array.len(), 100);
    }

    #[test]
    fn a_full_shelf_keeps_the_largest() {
        let shelf = Arc::new(Shelf::default());
        drop((1..=SHELF_PLACES + 3).map(|len| Buffer::take(&shelf, len, 0u8)).collect::<Vec<_>>());
        assert_eq!(shelf.lock().len(), SHELF_PLACES);
        assert_eq!(shelf.lock().iter().map(Vec::len).max(), Some(SHELF_PLACES + 3));
    }

    #[test]
    fn buffers_outlive_their_cpu() {
        let buffer = Buffer::take(&Arc::new(Shelf::default()), 3, 5);
        assert_eq!(*buffer, [5, 5, 5]);
        assert!(Buffer::<f32>::default().is_empty());
    }
}
