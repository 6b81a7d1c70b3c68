//! Plans that are broken on purpose: the negative controls of whatever claims to check the plan.
//!
//! A [`Cpu`] made by [`Cpu::broken`] forms one kind of sum in another order, in a way that depends on what must not
//! matter (rows beside a row, threads, instruction set, where a pass begins). It is for tests only: a check that passes
//! on it is no check. Nothing here is fast, and a sound [`Cpu`] pays one comparison per operation.

use crate::attention::{AttentionShape, AttentionSpan};
use crate::cpu::{Cpu, CpuError, Isa};
use crate::kv::line::SCALE_BLOCK;
use crate::kv::{KvPage, KvShape};
use crate::lanes::LANES;
use crate::matrix::{Activations, Matrix};
use half::bf16;

/// One way to break the plan.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breakage {
    /// Products with more than one row split the sum over columns in two.
    SplitByRows,
    /// Products split the sum over columns in as many parts as there are threads.
    FoldByThreads,
    /// The rows of a product are rounded with one scale for all of them.
    SharedScale,
    /// Norms add the last sixteen elements first, unless they are scalar.
    LastVectorFirst,
    /// `exp` of no more than [`Breakage::ONE_ROW`] elements, and the softmax of one row, use another polynomial.
    OtherExpForOneRow,
    /// With more than one thread, blocks of attention merge in descending order.
    MergeByThreads,
    /// Blocks of attention are aligned to where a pass begins.
    BlocksFromPass,
    /// Heads of more than one row are rounded to bfloat16 when they are turned.
    RoundByRows,
}

impl Breakage {
    /// Every way.
    pub const ALL: [Self; 8] = [
        Self::SplitByRows,
        Self::FoldByThreads,
        Self::SharedScale,
        Self::LastVectorFirst,
        Self::OtherExpForOneRow,
        Self::MergeByThreads,
        Self::BlocksFromPass,
        Self::RoundByRows,
    ];

    /// The most elements that count as one row where rows are not known.
    pub const ONE_ROW: usize = 1024;
}

impl Cpu {
    /// As [`Cpu::new`], but with a broken plan: for tests only.
    ///
    /// # Errors
    /// As [`Cpu::new`].
    #[doc(hidden)]
    pub fn broken(isa: Isa, threads: usize, breakage: Breakage) -> Result<Self, CpuError> {
        let mut cpu = Self::new(isa, threads)?;
        cpu.breakage = Some(breakage);
        Ok(cpu)
    }

    /// The same instruction set with the plan as it should be.
    fn sound(&self) -> Self {
        Self::new(self.isa(), 1).expect("one thread, and an instruction set that is in use")
    }

    /// Computes [`Cpu::matmul`] where that is broken; else returns false.
    pub(crate) fn broken_matmul(&self, weights: &Matrix, rows: &Activations<'_>, out: &mut [f32]) -> bool {
        let Some(breakage) = self.breakage else { return false };
        match breakage {
            Breakage::SplitByRows if rows.len() > 1 => split_product(&self.sound(), weights, rows, 2, out),
            Breakage::FoldByThreads if self.threads() > 1 => {
                split_product(&self.sound(), weights, rows, self.threads(), out);
            }
            Breakage::SharedScale => {
                let rounded = Activations::new(with_shared_scales(rows), rows.columns());
                self.sound().matmul(weights, &rounded, out);
            }
            _ => return false,
        }
        true
    }

    /// Computes [`Cpu::rms_norm_in_place`] where that is broken; else returns false.
    pub(crate) fn broken_rms_norm(&self, x: &mut [f32], weight: &[f32], eps: f32) -> bool {
        if self.breakage != Some(Breakage::LastVectorFirst) || self.isa() == Isa::Scalar {
            return false;
        }
        for row in x.chunks_exact_mut(weight.len()) {
            let last = (weight.len() - 1) / LANES * LANES;
            let mut sums = [0.0f32; LANES];
            for k in (last..row.len()).chain(0..last) {
                sums[k % LANES] = row[k].mul_add(row[k], sums[k % LANES]);
            }
            let factor = 1.0 / (tree(sums) / row.len() as f32 + eps).sqrt();
            row.iter_mut().zip(weight).for_each(|(x, weight)| *x = (*x * factor) * weight);
        }
        true
    }

    /// Computes [`Cpu::exp`] where that is broken; else returns false.
    pub(crate) fn broken_exp(&self, x: &mut [f32]) -> bool {
        let broken = self.breakage == Some(Breakage::OtherExpForOneRow) && x.len() <= Breakage::ONE_ROW;
        if broken {
            x.iter_mut().for_each(|x| *x = libm::expf(*x));
        }
        broken
    }

    /// Computes [`Cpu::softmax`] where that is broken; else returns false.
    pub(crate) fn broken_softmax(&self, x: &mut [f32], row: usize) -> bool {
        if self.breakage != Some(Breakage::OtherExpForOneRow) || x.len() != row {
            return false;
        }
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sums = [0.0f32; LANES];
        for (k, x) in x.iter_mut().enumerate() {
            *x = libm::expf(*x - max);
            sums[k % LANES] += *x;
        }
        let sum = tree(sums);
        x.iter_mut().for_each(|x| *x /= sum);
        true
    }

    /// Rounds what [`Cpu::rope`] is about to turn where that is broken.
    pub(crate) fn broken_rope(&self, x: &mut [f32], positions: usize) {
        if self.breakage == Some(Breakage::RoundByRows) && positions > 1 {
            x.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
        }
    }

    /// Computes [`Cpu::attention`] where that is broken; else returns false.
    pub(crate) fn broken_attention(
        &self,
        shape: &AttentionShape,
        queries: &[f32],
        spans: &[AttentionSpan<'_>],
        out: &mut [f32],
    ) -> bool {
        let blocks = match self.breakage {
            Some(Breakage::MergeByThreads) if self.threads() > 1 => Blocks::Descending,
            Some(Breakage::BlocksFromPass) => Blocks::FromPass,
            _ => return false,
        };
        let sound = self.sound();
        let rows = spans.iter().flat_map(|span| (0..span.rows).map(move |row| (span, row)));
        let queries = queries.chunks_exact(shape.heads * shape.kv.key_dim);
        let outs = out.chunks_exact_mut(shape.heads * shape.kv.value_dim);
        for (((span, row), query), out) in rows.zip(queries).zip(outs) {
            let position = span.first_position + row;
            let first = shape.window.map_or(0, |window| (position + 1).saturating_sub(window));
            let (padding, order) = blocks.layout(first, position, span.first_position);
            let pages = pages_in_order(shape.kv, span, padding, &order);
            let alone = AttentionSpan {
                first_position: padding + order.len() - 1,
                rows: 1,
                pages: pages.iter().collect(),
            };
            let visible = AttentionShape { window: Some(order.len()), ..*shape };
            sound.attention(&visible, query, &[alone], out);
        }
        true
    }
}

/// Adds lanes `l` and `l + 8`, then `l + 4`, `l + 2`, `l + 1`.
fn tree(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
    }
    lanes[0]
}

/// The product as a sum of products with parts of the columns, none of which ends at a whole block.
fn split_product(sound: &Cpu, weights: &Matrix, rows: &Activations<'_>, parts: usize, out: &mut [f32]) {
    let columns = rows.columns();
    let cut = |part: usize| match part {
        0 => 0,
        _ if part == parts => columns,
        _ => (columns * part / parts + 5).min(columns),
    };
    out.fill(0.0);
    for part in 0..parts {
        let kept = cut(part)..cut(part + 1);
        let mut some = vec![0.0; rows.rows().len()];
        for (some, row) in some.chunks_exact_mut(columns).zip(rows.rows().chunks_exact(columns)) {
            some[kept.clone()].copy_from_slice(&row[kept.clone()]);
        }
        let mut sums = vec![0.0; out.len()];
        sound.matmul(weights, &Activations::new(some, columns), &mut sums);
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
    }
}

/// The rows, rounded to 16-bit integers with one scale per 32 columns for all rows.
fn with_shared_scales(rows: &Activations<'_>) -> Vec<f32> {
    let (mut rounded, columns) = (rows.rows().to_vec(), rows.columns());
    for first in (0..columns).step_by(32) {
        let block = first..(first + 32).min(columns);
        let of_rows = rounded.chunks_exact(columns).flat_map(|row| &row[block.clone()]);
        let scale = of_rows.fold(0.0f32, |amax, x| amax.max(x.abs())) / 32639.0;
        if scale > 0.0 {
            for row in rounded.chunks_exact_mut(columns) {
                row[block.clone()].iter_mut().for_each(|x| *x = (*x / scale).round_ties_even() * scale);
            }
        }
    }
    rounded
}

/// Where broken attention puts keys.
#[derive(Clone, Copy)]
enum Blocks {
    /// The last block first.
    Descending,
    /// In order, with a block beginning where the pass begins.
    FromPass,
}

impl Blocks {
    /// How many positions to leave out in front, and the visible positions `first..=position` in order.
    fn layout(self, first: usize, position: usize, pass: usize) -> (usize, Vec<usize>) {
        const BLOCK: usize = KvPage::POSITIONS;
        match self {
            Self::Descending => {
                let blocks = (first / BLOCK..=position / BLOCK).rev();
                let order = blocks
                    .flat_map(|block| (block * BLOCK).max(first)..((block + 1) * BLOCK).min(position + 1))
                    .collect();
                let in_last = position + 1 - (position / BLOCK * BLOCK).max(first);
                ((BLOCK - in_last % BLOCK) % BLOCK, order)
            }
            Self::FromPass => ((first + BLOCK - pass % BLOCK) % BLOCK, (first..=position).collect()),
        }
    }
}

/// Pages with `padding` positions of zeros, then these positions of the span's pages.
fn pages_in_order(shape: KvShape, span: &AttentionSpan<'_>, padding: usize, order: &[usize]) -> Vec<KvPage> {
    let mut pages: Vec<KvPage> = Vec::new();
    let nothing = (vec![0.0; shape.key_width()], vec![0.0; shape.value_width()]);
    let stored = order.iter().map(|&position| {
        let (page, at) = (span.pages[position / KvPage::POSITIONS], position % KvPage::POSITIONS);
        let heads = 0..shape.kv_heads;
        let keys = heads.clone().flat_map(|head| unscaled(page.key(at, head))).collect();
        let values = heads.flat_map(|head| unscaled(page.value(at, head))).collect();
        (keys, values)
    });
    for (keys, values) in std::iter::repeat_n(nothing, padding).chain(stored) {
        if pages.last().is_none_or(KvPage::is_full) {
            let ty = span.pages[order[0] / KvPage::POSITIONS].ty();
            pages.push(KvPage::new(shape, ty));
        }
        pages.last_mut().expect("a page with room").push(&keys, &values);
    }
    pages
}

/// Stored numbers times their scales.
fn unscaled((mut numbers, scales): (Vec<f32>, Option<Vec<f32>>)) -> Vec<f32> {
    if let Some(scales) = scales {
        numbers.iter_mut().enumerate().for_each(|(column, x)| *x *= scales[column / SCALE_BLOCK]);
    }
    numbers
}
