//! Routed experts.

use samebit_arith::{Activations, Buffer, Cpu, Matrix, top_k};

use super::{Activation, Linear};
use crate::ModelError;
use crate::forward::Pass;
use crate::weights::{Bias, Weights};

/// How the experts of a block are stored, and under which module names below the block's own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpertNames {
    /// One tensor per projection, experts stacked: `[experts, outputs, inputs]`.
    Stacked { gate: &'static str, up: &'static str, down: &'static str },
    /// One tensor per expert and projection: `experts.<id>.<name>`.
    Separate { experts: &'static str, gate: &'static str, up: &'static str, down: &'static str },
}

/// Sizes and rules of a routed block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertsShape {
    /// Width of rows.
    pub(crate) hidden: usize,
    /// Width inside an expert.
    pub(crate) inner: usize,
    /// Number of experts.
    pub(crate) experts: usize,
    /// Experts picked per row.
    pub(crate) picked: usize,
    /// Whether the weights of the picked experts are scaled to sum 1.
    pub(crate) normalise: bool,
    /// The experts' non-linear function.
    pub(crate) activation: Activation,
}

/// One expert: `down(f(gate x) * up x)`.
#[derive(Debug)]
struct Expert {
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

/// A router and its experts: `y = sum over the picked e of weight_e * expert_e(x)`.
#[derive(Debug)]
pub(crate) struct Experts {
    router: Linear,
    experts: Vec<Expert>,
    shape: ExpertsShape,
}

/// What the router chose for some rows, `picked` entries per row in pick order.
struct Routing {
    ids: Vec<u32>,
    weights: Vec<f32>,
}

impl Experts {
    /// Reads the router `[experts, hidden]` and the experts of a block.
    pub(crate) fn read(
        weights: &mut Weights<'_>,
        block: &str,
        router: &str,
        names: ExpertNames,
        shape: ExpertsShape,
    ) -> Result<Self, ModelError> {
        let ExpertsShape { hidden, inner, experts: count, .. } = shape;
        let router = weights.linear(&format!("{block}.{router}"), count, hidden, Bias::Absent)?;
        let experts = match names {
            ExpertNames::Stacked { gate, up, down } => {
                let gates = weights.stack(&format!("{block}.{gate}.weight"), count, inner, hidden)?;
                let ups = weights.stack(&format!("{block}.{up}.weight"), count, inner, hidden)?;
                let downs = weights.stack(&format!("{block}.{down}.weight"), count, hidden, inner)?;
                let parts = gates.into_iter().zip(ups).zip(downs);
                parts.map(|((gate, up), down)| Expert { gate, up, down }).collect()
            }
            ExpertNames::Separate { experts, gate, up, down } => (0..count)
                .map(|id| {
                    let module = format!("{block}.{experts}.{id}");
                    Ok(Expert {
                        gate: weights.matrix(&format!("{module}.{gate}.weight"), inner, hidden)?,
                        up: weights.matrix(&format!("{module}.{up}.weight"), inner, hidden)?,
                        down: weights.matrix(&format!("{module}.{down}.weight"), hidden, inner)?,
                    })
                })
                .collect::<Result<_, ModelError>>()?,
        };
        Ok(Self { router, experts, shape })
    }

    /// Rows `[rows, hidden]` from rows `[rows, hidden]`.
    pub(crate) fn forward(&self, pass: &mut Pass<'_, '_>, layer: usize, x: &[f32]) -> Buffer {
        let cpu = pass.cpu();
        let ExpertsShape { hidden, picked, .. } = self.shape;
        let input = Activations::new(x, hidden);
        let routing = self.route(cpu, &input);
        pass.picked(layer, picked, &routing.ids);

        // Every expert reads its weights once, for all rows that picked it.
        let mut outputs = cpu.buffer(routing.ids.len() * hidden);
        for (id, expert) in self.experts.iter().enumerate() {
            let places: Vec<usize> =
                (0..routing.ids.len()).filter(|&at| routing.ids[at] as usize == id).collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<u32> = places.iter().map(|&at| (at / picked) as u32).collect();
            let result = expert.forward(cpu, &input.select(&rows), self.shape.activation);
            for (&at, row) in places.iter().zip(result.chunks_exact(hidden)) {
                outputs[at * hidden..(at + 1) * hidden].copy_from_slice(row);
            }
        }

        let mut mixed = cpu.buffer(x.len());
        mixed.fill(0.0);
        for (row, mixed) in mixed.chunks_exact_mut(hidden).enumerate() {
            for at in row * picked..(row + 1) * picked {
                cpu.add_scaled(mixed, routing.weights[at], &outputs[at * hidden..(at + 1) * hidden]);
            }
        }
        mixed
    }

    /// Scores are a softmax over all experts; picks go by score descending, then id ascending.
    fn route(&self, cpu: &Cpu, input: &Activations<'_>) -> Routing {
        let ExpertsShape { experts, picked, normalise, .. } = self.shape;
        let logits = self.router.forward(cpu, input);
        let mut scores = logits.clone();
        cpu.softmax(&mut scores, experts);
        let mut routing = Routing { ids: Vec::new(), weights: Vec::new() };
        for (scores, logits) in scores.chunks_exact(experts).zip(logits.chunks_exact(experts)) {
            for (id, score) in top_k(scores, picked) {
                routing.ids.push(id);
                // Scores divided by their sum over the picks are the softmax of the picks' logits.
                routing.weights.push(if normalise { logits[id as usize] } else { score });
            }
        }
        if normalise {
            cpu.softmax(&mut routing.weights, picked);
        }
        routing
    }
}

impl Expert {
    fn forward(&self, cpu: &Cpu, input: &Activations<'_>, activation: Activation) -> Buffer {
        let mut inner = cpu.buffer(input.len() * self.gate.rows());
        let mut up = cpu.buffer(inner.len());
        cpu.matmul_each([(&self.gate, &mut inner), (&self.up, &mut up)], input);
        activation.gate(cpu, &mut inner, &up);
        let mut out = cpu.buffer(input.len() * self.down.rows());
        cpu.matmul(&self.down, &Activations::new(&inner[..], self.down.columns()), &mut out);
        out
    }
}
