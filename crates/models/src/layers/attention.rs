//! Grouped-query attention over stored keys and values.

use samebit_arith::{Activations, AttentionShape, Buffer, KvShape, RopeAngles, RopeLayout};

use super::{Linear, RmsNorm};
use crate::ModelError;
use crate::config::Geometry;
use crate::forward::Pass;
use crate::weights::{Bias, Weights};

/// Module names of an attention block, below the block's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionNames {
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) output: &'static str,
    pub(crate) query_norm: &'static str,
    pub(crate) key_norm: &'static str,
}

/// What differs between layers and families.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionOptions {
    /// Bias of query, key and value projections.
    pub(crate) input_bias: Bias,
    /// Bias of the output projection.
    pub(crate) output_bias: Bias,
    /// Whether queries and keys are normed per head before they are rotated.
    pub(crate) head_norms: HeadNorms,
    /// Which columns of a head turn together.
    pub(crate) rope_layout: RopeLayout,
    /// What products of queries and keys are multiplied by.
    pub(crate) scale: f32,
    /// Positions that a row sees, itself included; `None` for all before it.
    pub(crate) window: Option<usize>,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    /// None.
    Absent,
    /// With the weight as stored.
    Plain,
    /// With the weight stored less 1.
    ZeroCentred,
}

/// Attention of one layer.
#[derive(Debug)]
pub(crate) struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// Norms of query and key heads.
    head_norms: Option<(RmsNorm, RmsNorm)>,
    rope_layout: RopeLayout,
    shape: AttentionShape,
}

impl Attention {
    /// Reads the projections of a block.
    pub(crate) fn read(
        weights: &mut Weights<'_>,
        block: &str,
        names: AttentionNames,
        geometry: &Geometry,
        options: AttentionOptions,
    ) -> Result<Self, ModelError> {
        let Geometry { hidden, head_dim, epsilon, .. } = *geometry;
        let (query_width, kv_width) = (geometry.query_width(), geometry.kv_width());
        let module = |name: &str| format!("{block}.{name}");
        let bias = options.input_bias;
        let read_norm = match options.head_norms {
            HeadNorms::Absent => None,
            HeadNorms::Plain => Some(RmsNorm::read as fn(&mut Weights<'_>, &str, usize, f32) -> _),
            HeadNorms::ZeroCentred => Some(RmsNorm::read_zero_centred as _),
        };
        let head_norms = match read_norm {
            Some(read) => Some((
                read(weights, &module(names.query_norm), head_dim, epsilon)?,
                read(weights, &module(names.key_norm), head_dim, epsilon)?,
            )),
            None => None,
        };
        Ok(Self {
            query: weights.linear(&module(names.query), query_width, hidden, bias)?,
            key: weights.linear(&module(names.key), kv_width, hidden, bias)?,
            value: weights.linear(&module(names.value), kv_width, hidden, bias)?,
            output: weights.linear(&module(names.output), hidden, query_width, options.output_bias)?,
            head_norms,
            rope_layout: options.rope_layout,
            shape: AttentionShape {
                heads: geometry.heads,
                kv: KvShape::uniform(geometry.kv_heads, head_dim),
                scale: options.scale,
                window: options.window,
                soft_cap: None,
            },
        })
    }

    /// Rows `[rows, hidden]` from rows `[rows, hidden]`; `angles` has one entry per row. Stores the rows' keys and
    /// values in the states of `layer`.
    pub(crate) fn forward(
        &self,
        pass: &mut Pass<'_, '_>,
        layer: usize,
        x: &[f32],
        angles: &RopeAngles,
    ) -> Buffer {
        let cpu = pass.cpu();
        let KvShape { kv_heads, key_dim, .. } = self.shape.kv;
        let input = Activations::new(x, self.query.inputs());
        let [mut queries, mut keys, values] =
            Linear::forward_each(cpu, [&self.query, &self.key, &self.value], &input);
        if let Some((query_norm, key_norm)) = &self.head_norms {
            query_norm.in_place(cpu, &mut queries);
            key_norm.in_place(cpu, &mut keys);
        }
        cpu.rope(&mut queries, self.shape.heads, key_dim, angles, self.rope_layout);
        cpu.rope(&mut keys, kv_heads, key_dim, angles, self.rope_layout);
        let mixed = pass.attend(layer, &self.shape, &queries, &keys, &values);
        self.output.forward(cpu, &Activations::new(&mixed[..], self.output.inputs()))
    }
}
