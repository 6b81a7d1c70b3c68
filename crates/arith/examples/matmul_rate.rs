//! How fast products run: `cargo run --release -p samebit-arith --example matmul_rate [ISA] [THREADS]`.
//!
//! One row is bound by memory (GB/s of packed weights), many rows by arithmetic (GMAC/s).

use samebit_arith::{Activations, Cpu, Encoded, FloatType, Format, Isa, Matrix};
use std::error::Error;
use std::time::{Duration, Instant};

/// Outputs and inputs of the matrices of a small model.
const SHAPES: [(usize, usize); 4] = [(576, 576), (1536, 576), (576, 1536), (49152, 576)];
const FORMATS: [Format; 7] = [
    Format::Q4_1,
    Format::Q5_0,
    Format::Q8_0,
    Format::Q4K,
    Format::Q6K,
    Format::Float(FloatType::F16),
    Format::Float(FloatType::Bf16),
];
const ROWS: [usize; 4] = [1, 8, 64, 512];
const TIME_PER_CASE: Duration = Duration::from_millis(60);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let isa = arguments.next().map_or(Ok(Isa::detect()), |isa| isa.parse())?;
    let threads = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let only = arguments.next();
    let cpu = Cpu::new(isa, threads)?;
    println!("{isa}, {threads} threads");
    println!("{:>6} {:>14} {:>5} {:>10} {:>8} {:>8}", "format", "matrix", "rows", "us", "GB/s", "GMAC/s");
    for format in FORMATS {
        if only.as_ref().is_some_and(|only| *only != format.to_string()) {
            continue;
        }
        for (outputs, inputs) in SHAPES {
            // Super-blocks need whole multiples of 256 columns.
            let inputs = inputs.next_multiple_of(format.block().0);
            measure(&cpu, format, outputs, inputs)?;
        }
    }
    Ok(())
}

fn measure(cpu: &Cpu, format: Format, outputs: usize, inputs: usize) -> Result<(), Box<dyn Error>> {
    let (elements, bytes) = format.block();
    // Bytes below 0x3c are small, finite numbers in every type, so nothing overflows.
    let data: Vec<u8> = (0..outputs * inputs / elements * bytes).map(|i| (i * 31 % 59) as u8).collect();
    let start = Instant::now();
    let matrix = Matrix::pack(cpu, &Encoded::new(format, outputs, inputs, &data)?);
    let pack = start.elapsed();
    for rows in ROWS {
        let x: Vec<f32> = (0..rows * inputs).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
        let mut out = vec![0.0; rows * outputs];
        let best = best_time(|| cpu.matmul(&matrix, &Activations::new(&x, inputs), &mut out));
        let seconds = best.as_secs_f64();
        let macs = (rows * outputs * inputs) as f64;
        println!(
            "{:>6} {:>14} {rows:>5} {:>10.1} {:>8.1} {:>8.1}",
            format.to_string(),
            format!("{outputs}x{inputs}"),
            1e6 * seconds,
            matrix.bytes() as f64 / seconds / 1e9,
            macs / seconds / 1e9,
        );
    }
    println!(
        "{:>6} packed in {:.1} ms ({:.2} GB/s)",
        "",
        1e3 * pack.as_secs_f64(),
        data.len() as f64 / pack.as_secs_f64() / 1e9
    );
    Ok(())
}

fn best_time(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < TIME_PER_CASE {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best
}
