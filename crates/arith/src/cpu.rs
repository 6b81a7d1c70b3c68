//! The machine a forward pass runs on: an instruction set and a pool of threads. Neither can change a bit.

use crate::amx::CodeLine;
use crate::broken::Breakage;
use crate::buffer::{Buffer, Shelf};
use crate::matrix::{FineBlock, FineTile, QuantizedBlock, RowTile};
use crate::pool::Pool;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// An instruction set with an implementation of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: the definition.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
    /// AVX-512 and AMX's integer tiles.
    Amx,
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Amx];

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Self::Amx => Self::Avx512.is_available() && crate::amx::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The fastest instruction set of this processor.
    pub fn detect() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Scalar)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        })
    }
}

impl FromStr for Isa {
    type Err = CpuError;

    fn from_str(name: &str) -> Result<Self, CpuError> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.to_string() == name)
            .ok_or_else(|| CpuError::UnknownIsa { name: name.to_owned() })
    }
}

/// Why a [`Cpu`] cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// No instruction set of that name.
    #[error("no instruction set is called {name:?}: expected scalar, avx2, avx512 or amx")]
    UnknownIsa {
        /// The name given.
        name: String,
    },
    /// This processor lacks the instruction set.
    #[error("this processor lacks what {isa} needs; the fastest it has is {best}")]
    IsaMissing {
        /// The instruction set asked for.
        isa: Isa,
        /// The best one there is.
        best: Isa,
    },
    /// Zero threads, or more than [`Cpu::MAX_THREADS`].
    #[error("{threads} threads asked for: expected 1 to {max}")]
    Threads {
        /// The number asked for.
        threads: usize,
        /// The largest number.
        max: usize,
    },
    /// The system would not start that many threads.
    #[error("the system refused to start {threads} threads: {reason}; ask for fewer")]
    Spawn {
        /// The number asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}

/// An instruction set and a pool of threads.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    pool: Pool,
    /// How the plan is broken: in tests of what must notice.
    pub(crate) breakage: Option<Breakage>,
    shelves: Shelves,
}

/// Where arrays of passes are kept between passes.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    pub(crate) floats: Arc<Shelf<f32>>,
    pub(crate) quantized: Arc<Shelf<QuantizedBlock>>,
    pub(crate) fine: Arc<Shelf<FineBlock>>,
    pub(crate) row_tiles: Arc<Shelf<RowTile>>,
    pub(crate) fine_tiles: Arc<Shelf<FineTile>>,
    pub(crate) lines: Arc<Shelf<CodeLine>>,
}

impl Cpu {
    /// The largest pool.
    pub const MAX_THREADS: usize = 512;

    /// A pool of `threads` (the caller's included) that computes with `isa`.
    ///
    /// # Errors
    /// When the processor lacks `isa`, `threads` is out of range, or the system refuses to start them.
    pub fn new(isa: Isa, threads: usize) -> Result<Self, CpuError> {
        if !isa.is_available() {
            return Err(CpuError::IsaMissing { isa, best: Isa::detect() });
        }
        if !(1..=Self::MAX_THREADS).contains(&threads) {
            return Err(CpuError::Threads { threads, max: Self::MAX_THREADS });
        }
        let pool =
            Pool::new(threads).map_err(|error| CpuError::Spawn { threads, reason: error.to_string() })?;
        Ok(Self { isa, pool, breakage: None, shelves: Shelves::default() })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that work, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// `len` floats to write to, without allocating where a dropped buffer is large enough. They hold whatever was in
    /// there before.
    pub fn buffer(&self, len: usize) -> Buffer {
        Buffer::take(&self.shelves.floats, len, 0.0)
    }

    /// Where arrays are kept.
    pub(crate) fn shelves(&self) -> &Shelves {
        &self.shelves
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_sets_go_by_their_names() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        let error = "sse9".parse::<Isa>().unwrap_err().to_string();
        assert!(error.contains("sse9") && error.contains("avx512"), "{error}");
    }

    #[test]
    fn thread_counts_are_bounded() {
        for threads in [0, Cpu::MAX_THREADS + 1, usize::MAX] {
            let error = Cpu::new(Isa::Scalar, threads).unwrap_err();
            assert_eq!(error, CpuError::Threads { threads, max: Cpu::MAX_THREADS });
        }
        assert_eq!(Cpu::new(Isa::Scalar, 3).unwrap().threads(), 3);
    }

    #[test]
    fn a_missing_instruction_set_is_refused() {
        for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
            assert_eq!(Cpu::new(isa, 1).unwrap_err(), CpuError::IsaMissing { isa, best: Isa::detect() });
        }
        assert!(Isa::detect().is_available());
    }
}
