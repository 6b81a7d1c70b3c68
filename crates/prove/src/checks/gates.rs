//! `gates`: every function on all finite values of a type, in the three phases of serving.
//!
//! Phases are numbers of rows: a prompt runs many at once, decoding one, verification a few. A function that takes
//! another path for one of them gives other bits there for some values.

use half::{bf16, f16};
use samebit_arith::{Cpu, Isa};

use super::{Setup, available_isas};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings, Part};
use crate::random::Random;

/// A function, in place.
type Function = fn(&Cpu, &mut [f32]);

/// What models apply to single numbers.
const FUNCTIONS: [(&str, Function); 10] = [
    ("exp", Cpu::exp),
    ("sigmoid", Cpu::sigmoid),
    ("silu", Cpu::silu),
    ("softplus", Cpu::softplus),
    ("gelu_tanh", Cpu::gelu_tanh),
    ("tanh", Cpu::tanh),
    ("ln", Cpu::ln),
    ("soft_cap", |cpu, x| cpu.soft_cap(x, 30.0)),
    ("silu_mul", |cpu, x| cpu.silu_mul(x, &vec![1.0; x.len()])),
    ("gelu_tanh_mul", |cpu, x| cpu.gelu_tanh_mul(x, &vec![1.0; x.len()])),
];

/// Elements of a row.
const ROW: usize = 1024;

/// A phase, and the rows that are run at once in it, over and over.
const PHASES: [(&str, &[usize]); 3] =
    [("prefill", &[usize::MAX]), ("decode", &[1]), ("verify", &[2, 3, 4, 5, 6, 7, 8])];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let sets = [
        ("bf16", every_finite(|bits| bf16::from_bits(bits).to_f32())),
        ("f16", every_finite(|bits| f16::from_bits(bits).to_f32())),
        ("f32", grid(&mut setup.random("gates"))),
    ];
    let definition = setup.cpu(Isa::Scalar, 1)?;
    let isas = available_isas();
    let cpus =
        isas.iter().map(|isa| setup.cpu(*isa, setup.several_threads())).collect::<Result<Vec<_>, _>>()?;
    for (name, function) in FUNCTIONS {
        for (ty, values) in &sets {
            let mut expected = values.clone();
            function(&definition, &mut expected);
            for cpu in &cpus {
                for (phase, rows) in PHASES {
                    let mut found = values.clone();
                    run_phase(cpu, function, rows, &mut found);
                    let id = CaseId {
                        op: name,
                        shape: format!("{} values", values.len()),
                        format: (*ty).to_owned(),
                        isa: cpu.isa(),
                        threads: cpu.threads(),
                        rows: rows.last().map_or(0, |rows| (*rows).min(values.len().div_ceil(ROW))),
                        detail: phase.to_owned(),
                    };
                    let place = format!("{name} in {phase}");
                    findings.compare(&id, &[Part::rows(&place, ROW, &expected, &found)]);
                }
            }
        }
    }
    findings.prove("finite bfloat16 values", sets[0].1.len(), 65_280);
    findings.prove("finite binary16 values", sets[1].1.len(), 63_488);
    findings.prove(
        "binary32 values (every sign and exponent with 128 significands each, 256 more)",
        sets[2].1.len(),
        65_536,
    );
    let several = cpus.iter().filter(|cpu| cpu.threads() > 1 && cpu.isa() != Isa::Scalar).count();
    findings.prove("instruction sets compared with the scalar one", several, 1);
    Ok(())
}

/// Applies a function to runs of as many rows as the phase has at once.
fn run_phase(cpu: &Cpu, function: Function, rows: &[usize], values: &mut [f32]) {
    let mut rest = values;
    for rows in rows.iter().cycle() {
        if rest.is_empty() {
            return;
        }
        let (now, later) = rest.split_at_mut(rows.saturating_mul(ROW).min(rest.len()));
        function(cpu, now);
        rest = later;
    }
}

/// Every finite value of a type of 16 bits.
fn every_finite(value: fn(u16) -> f32) -> Vec<f32> {
    (0..=u16::MAX).map(value).filter(|x| x.is_finite()).collect()
}

/// 65,536 values of binary32: for both signs and each of the 255 exponents of finite numbers, 128 significands whose
/// upper seven bits are all there are and whose lower sixteen are random; and 256 more between -100 and 100.
fn grid(random: &mut Random) -> Vec<f32> {
    let mut values = Vec::with_capacity(1 << 16);
    for sign_and_exponent in (0..1 << 9).filter(|bits: &u32| bits & 0xff != 0xff) {
        for significand in 0..128 {
            let low = random.bits() as u32 & 0xffff;
            values.push(f32::from_bits(sign_and_exponent << 23 | significand << 16 | low));
        }
    }
    values.extend((0..256).map(|_| 100.0 * random.signed()));
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_complete() {
        assert_eq!(every_finite(|bits| bf16::from_bits(bits).to_f32()).len(), 65_280);
        assert_eq!(every_finite(|bits| f16::from_bits(bits).to_f32()).len(), 63_488);
        let grid = grid(&mut Random::new(1, "grid"));
        assert_eq!(grid.len(), 65_536);
        assert!(grid.iter().all(|x| x.is_finite()));
        assert_eq!(grid.iter().filter(|x| x.abs() < f32::MIN_POSITIVE).count(), 256);
    }
}
