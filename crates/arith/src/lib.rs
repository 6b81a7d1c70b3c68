//! The arithmetic plan `sb1`: every floating-point sum that samebit ever makes, in one written order.
//!
//! Everything numeric lives here, so that one rule can hold everywhere else: no other crate adds floats across
//! elements, calls `exp`, or knows an instruction set. `PLAN.md` beside this crate is the definition in words; the
//! [`Isa::Scalar`] implementation is the definition in code; AVX2 and AVX-512 compute the same bits.

mod amx;
mod attention;
mod broken;
mod buffer;
mod cpu;
pub mod double;
mod elementwise;
mod format;
mod functions;
mod kv;
mod lanes;
pub mod likelihood;
mod matrix;
mod norm;
mod pool;
mod rope;
pub mod sampling;
mod softmax;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod vectors;

pub use attention::{AttentionShape, AttentionSpan};
#[doc(hidden)]
pub use broken::Breakage;
pub use buffer::Buffer;
pub use cpu::{Cpu, CpuError, Isa};
pub use double::{Llama3Scaling, YarnScaling};
pub use format::{Encoded, EncodedError, FloatType, Format};
pub use kv::{KvDecodeError, KvPage, KvShape, KvType, UnknownKvType};
pub use matrix::{Activations, Matrix};
pub use pool::Pool;
pub use rope::{RopeAngles, RopeFrequencies, RopeLayout};
pub use softmax::top_k;
