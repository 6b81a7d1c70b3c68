//! Every function of the plan at every finite binary32 value, against binary64.
//!
//! `cargo run --release -p samebit-arith --example sweep_functions [ISA [THREADS [FUNCTION ..]]]` prints the largest
//! error of each function in units in the last place, and where it is. It exits with 1 where one exceeds 2 ulp, with 2
//! for arguments it does not understand. A sweep of one function takes about a minute on one thread.

use samebit_arith::{Cpu, Isa};
use std::process::ExitCode;
use std::sync::Mutex;

/// A function under test, and the same in binary64.
struct Function {
    name: &'static str,
    map: fn(&Cpu, &mut [f32]),
    truth: fn(f64) -> f64,
}

const FUNCTIONS: [Function; 7] = [
    Function { name: "exp", map: Cpu::exp, truth: f64::exp },
    Function { name: "sigmoid", map: Cpu::sigmoid, truth: |x| 1.0 / (1.0 + (-x).exp()) },
    Function { name: "silu", map: Cpu::silu, truth: |x| x / (1.0 + (-x).exp()) },
    Function { name: "softplus", map: Cpu::softplus, truth: |x| x.max(0.0) + (-x.abs()).exp().ln_1p() },
    Function { name: "gelu_tanh", map: Cpu::gelu_tanh, truth: gelu_tanh },
    Function { name: "tanh", map: Cpu::tanh, truth: f64::tanh },
    Function { name: "ln", map: Cpu::ln, truth: f64::ln },
];

/// `x / 2 (1 + tanh z)` without the cancellation at negative `z`.
fn gelu_tanh(x: f64) -> f64 {
    let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    x / (1.0 + (-2.0 * z).exp())
}

/// Distance of `y` from `truth` in spacings of binary32 at `truth`. Infinity counts as 2^128.
fn ulps(y: f32, truth: f64) -> f64 {
    if y.is_nan() || truth.is_nan() {
        return if y.is_nan() && truth.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let power = |n: i32| f64::from_bits(((n + 1023) as u64) << 52);
    let finite = |x: f64| x.clamp(-power(128), power(128));
    let exponent = ((truth.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (finite(f64::from(y)) - finite(truth)).abs() * power(23 - exponent)
}

/// The largest error over all finite inputs and the input where it is.
fn sweep(cpu: &Cpu, function: &Function) -> (f64, f32) {
    const PIECES: usize = 1 << 18;
    const PIECE: usize = (1 << 32) / PIECES;
    let worst = Mutex::new((0.0, 0.0));
    cpu.pool().run(PIECES, &|piece| {
        let inputs = (0..PIECE).map(|i| f32::from_bits((piece * PIECE + i) as u32));
        let inputs: Vec<f32> = inputs.filter(|x| x.is_finite()).collect();
        let mut outputs = inputs.clone();
        (function.map)(cpu, &mut outputs);
        let errors = inputs.iter().zip(&outputs).map(|(&x, &y)| (ulps(y, (function.truth)(f64::from(x))), x));
        let here = errors.fold((0.0, 0.0), |worst, error| if error.0 > worst.0 { error } else { worst });
        let mut worst = worst.lock().expect("no task panics while it holds the lock");
        if here.0 > worst.0 {
            *worst = here;
        }
    });
    worst.into_inner().expect("no task panics while it holds the lock")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let isa = arguments.first().map_or(Ok(Isa::detect()), |isa| isa.parse().map_err(|e| format!("{e}")));
    let threads =
        arguments.get(1).map_or(Ok(1), |threads| threads.parse().map_err(|_| format!("{threads:?} threads")));
    let wanted = arguments.get(2..).unwrap_or_default();
    if let Some(unknown) = wanted.iter().find(|name| FUNCTIONS.iter().all(|f| f.name != **name)) {
        eprintln!("no function is called {unknown:?}");
        return ExitCode::from(2);
    }
    let cpu =
        isa.and_then(|isa| threads.and_then(|threads| Cpu::new(isa, threads).map_err(|e| e.to_string())));
    let cpu = match cpu {
        Ok(cpu) => cpu,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let mut passed = true;
    for function in FUNCTIONS.iter().filter(|f| wanted.is_empty() || wanted.iter().any(|name| name == f.name))
    {
        let (error, at) = sweep(&cpu, function);
        println!("{:<10} {error:.6} ulp at {at:e} ({:#010x})", function.name, at.to_bits());
        passed &= error <= 2.0;
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
