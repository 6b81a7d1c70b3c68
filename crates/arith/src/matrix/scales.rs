//! The scales of a panel, as a product kernel reads them: as they are stored, or spread into binary32 beforehand.

use super::layout::{ScaleLayout, Steps};
use crate::cpu::Isa;
use crate::lanes::{Kernel, LANES, Lanes};
use std::marker::PhantomData;

/// Sixteen scales, and offsets where the format has them, of every group of a panel.
pub(super) trait PanelScales: Copy {
    /// Whether kernels for several rows at once are compiled for these.
    const FOR_MANY_ROWS: bool;

    /// The scales of group `group`.
    fn scale<L: Lanes>(self, lanes: L, group: usize) -> L::Float;

    /// The offsets of group `group`, of formats that have them.
    fn offset<L: Lanes>(self, lanes: L, group: usize) -> L::Float;
}

/// Scales as they are stored.
pub(super) struct StoredScales<'a, S> {
    stored: &'a [u8],
    layout: PhantomData<S>,
}

impl<'a, S> StoredScales<'a, S> {
    /// Those of one panel.
    pub(super) fn new(stored: &'a [u8]) -> Self {
        Self { stored, layout: PhantomData }
    }
}

impl<S> Clone for StoredScales<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for StoredScales<'_, S> {}

impl<S: ScaleLayout> PanelScales for StoredScales<'_, S> {
    const FOR_MANY_ROWS: bool = false;

    #[inline(always)]
    fn scale<L: Lanes>(self, lanes: L, group: usize) -> L::Float {
        S::scale(lanes, self.stored, group)
    }
    #[inline(always)]
    fn offset<L: Lanes>(self, lanes: L, group: usize) -> L::Float {
        S::offset(lanes, self.stored, group)
    }
}

/// Scales in binary32: for every group sixteen, then sixteen offsets if it has them.
pub(super) struct SpreadScales<'a, T> {
    spread: &'a [[f32; LANES]],
    steps: PhantomData<T>,
}

impl<'a, T> SpreadScales<'a, T> {
    /// What [`spread`] wrote.
    pub(super) fn new(spread: &'a [[f32; LANES]]) -> Self {
        Self { spread, steps: PhantomData }
    }
}

impl<T> Clone for SpreadScales<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SpreadScales<'_, T> {}

impl<T: Steps> PanelScales for SpreadScales<'_, T> {
    const FOR_MANY_ROWS: bool = true;

    #[inline(always)]
    fn scale<L: Lanes>(self, lanes: L, group: usize) -> L::Float {
        lanes.load(&self.spread[if T::OFFSETS { 2 * group } else { group }])
    }
    #[inline(always)]
    fn offset<L: Lanes>(self, lanes: L, group: usize) -> L::Float {
        lanes.load(&self.spread[2 * group + 1])
    }
}

/// Spreads the scales of the groups of a panel into `out`: sixteen a group, and sixteen offsets if it has them.
pub(super) fn spread<S: ScaleLayout, T: Steps>(isa: Isa, stored: &[u8], out: &mut [[f32; LANES]]) {
    isa.run(Spread::<S, T> { stored, out, layout: PhantomData });
}

struct Spread<'a, S, T> {
    stored: &'a [u8],
    out: &'a mut [[f32; LANES]],
    layout: PhantomData<(S, T)>,
}

impl<S: ScaleLayout, T: Steps> Kernel for Spread<'_, S, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        if T::OFFSETS {
            let (pairs, _) = self.out.as_chunks_mut::<2>();
            for (group, [scale, offset]) in pairs.iter_mut().enumerate() {
                lanes.store(S::scale(lanes, self.stored, group), scale);
                lanes.store(S::offset(lanes, self.stored, group), offset);
            }
        } else {
            for (group, scale) in self.out.iter_mut().enumerate() {
                lanes.store(S::scale(lanes, self.stored, group), scale);
            }
        }
    }
}
