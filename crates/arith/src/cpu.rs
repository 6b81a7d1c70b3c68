//! The machine a forward pass runs on: an instruction set and a pool of threads. Neither can change a bit.

use std::fmt;
use std::str::FromStr;

/// An instruction set with an implementation of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: the definition.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

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
    #[error("no instruction set is called {name:?}: expected scalar, avx2 or avx512")]
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
}

/// An instruction set and a pool of threads.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
}

impl Cpu {
    /// The largest pool.
    pub const MAX_THREADS: usize = 512;

    /// A pool of `threads` (the caller's included) that computes with `isa`.
    ///
    /// # Errors
    /// When the processor lacks `isa`, or `threads` is out of range.
    pub fn new(isa: Isa, threads: usize) -> Result<Self, CpuError> {
        if !isa.is_available() {
            return Err(CpuError::IsaMissing { isa, best: Isa::detect() });
        }
        if !(1..=Self::MAX_THREADS).contains(&threads) {
            return Err(CpuError::Threads { threads, max: Self::MAX_THREADS });
        }
        Ok(Self { isa })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
