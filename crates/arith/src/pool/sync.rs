//! The primitives that the signal is built from. The model test puts a model checker's in their place.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::yield_now;
