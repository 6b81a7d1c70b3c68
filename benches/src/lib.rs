//! What the benchmarks share: processors, sample data, and how much of it is worth the time.
//!
//! Everything runs on one thread: these are the rates of kernels. How threads share the work shows in `samebit bench`.
#![forbid(unsafe_code)]

use std::time::Duration;

use criterion::Criterion;
use samebit_arith::{Cpu, Encoded, Format, Isa, KvPage, KvShape, KvType, Matrix};

/// Short measurements: there are hundreds of cases, and what is compared differs by more than this leaves open. Flags
/// of the command line replace each of these.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
        .nresamples(2000)
}

/// Every instruction set of this machine, slowest first, on one thread.
///
/// # Panics
/// When the system refuses to start a pool.
pub fn cpus() -> Vec<Cpu> {
    Isa::ALL
        .into_iter()
        .filter(|isa| isa.is_available())
        .map(|isa| Cpu::new(isa, 1).unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

/// Whether this is `cargo bench` and not a test that the benchmarks still run.
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Whether a case of so many multiply-adds is run on this processor: the plain definition is a hundred times slower
/// than what it defines, and a test wants only to know that the case runs.
pub fn affords(cpu: &Cpu, multiply_adds: usize) -> bool {
    let most = match cpu.isa() {
        _ if !is_measuring() => 1 << 21,
        Isa::Scalar => 1 << 23,
        _ => 1 << 32,
    };
    multiply_adds <= most
}

/// A matrix of arbitrary weights, always the same.
///
/// # Panics
/// When `inputs` are not whole blocks of `format`.
pub fn matrix(format: Format, outputs: usize, inputs: usize) -> Matrix {
    // Bytes below 0x3c are small, finite numbers in every type, so nothing overflows.
    let filled = |(elements, bytes): (usize, usize)| -> Vec<u8> {
        (0..outputs * inputs / elements * bytes).map(|i| (i * 31 % 59) as u8).collect()
    };
    let data = filled(format.block());
    let scales = format.separate_scale().map_or_else(Vec::new, filled);
    let biases = if matches!(format, Format::MlxAffine { .. }) { &scales[..] } else { &[] };
    let encoded = Encoded::with_scales(format, outputs, inputs, &data, &scales, biases)
        .unwrap_or_else(|error| panic!("{error}"));
    // What is packed is the same for every instruction set.
    let cpu = Cpu::new(Isa::detect(), 1).unwrap_or_else(|error| panic!("{error}"));
    Matrix::pack(&cpu, &encoded)
}

/// Arbitrary numbers from -3 to 3, always the same.
pub fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7 % 13) as f32 * 0.5 - 3.0).collect()
}

/// The pages of a sequence of so many positions.
pub fn pages(shape: KvShape, ty: KvType, positions: usize) -> Vec<KvPage> {
    let (keys, values) =
        (numbers(KvPage::POSITIONS * shape.key_width()), numbers(KvPage::POSITIONS * shape.value_width()));
    (0..positions)
        .step_by(KvPage::POSITIONS)
        .map(|start| {
            let held = (positions - start).min(KvPage::POSITIONS);
            let mut page = KvPage::new(shape, ty);
            page.push(&keys[..held * shape.key_width()], &values[..held * shape.value_width()]);
            page
        })
        .collect()
}
