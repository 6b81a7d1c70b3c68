//! What can be asked of a run.

use std::fmt;
use std::str::FromStr;

use samebit_arith::{Cpu, CpuError, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_models::Model;

/// The model to check, and what to run it on.
pub struct Subject<'a> {
    /// What to call the model in the receipt.
    pub name: &'a str,
    /// Its files.
    pub checkpoint: &'a Checkpoint,
    /// The model, loaded from them.
    pub model: &'a Model,
    /// Makes a machine with an instruction set and a number of threads. [`Cpu::new`], but for tests of the checks.
    pub make_cpu: &'a dyn Fn(Isa, usize) -> Result<Cpu, CpuError>,
}

/// How much to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Fewer cases: less than a minute for a small model.
    pub quick: bool,
    /// The checks to run; none means all.
    pub only: Vec<CheckName>,
    /// Threads, at least 1. Checks use other numbers too, up to one more than this.
    pub threads: usize,
    /// How keys and values are stored.
    pub kv: KvType,
    /// Seed of all random choices.
    pub seed: u64,
}

/// A check that this version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckName {
    /// Every operation against its scalar definition.
    Ops,
    /// A pass of several rows against passes of one row.
    Rows,
    /// A prompt in one pass against the prompt in pieces.
    Chunks,
    /// Numbers of threads against one thread.
    Threads,
    /// Instruction sets against the scalar one, on the whole model.
    Isa,
    /// Sequences in one batch against each alone.
    Concurrent,
    /// Functions on all values of a type, in every phase.
    Gates,
    /// Random combinations of all of these.
    Mixed,
}

impl CheckName {
    /// Every check, in the order they run.
    pub const ALL: [Self; 8] = [
        Self::Ops,
        Self::Rows,
        Self::Chunks,
        Self::Threads,
        Self::Isa,
        Self::Concurrent,
        Self::Gates,
        Self::Mixed,
    ];

    /// Its name in receipts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops",
            Self::Rows => "rows",
            Self::Chunks => "chunks",
            Self::Threads => "threads",
            Self::Isa => "isa",
            Self::Concurrent => "concurrent",
            Self::Gates => "gates",
            Self::Mixed => "mixed",
        }
    }

    /// What it claims.
    pub fn claim(self) -> &'static str {
        match self {
            Self::Ops => {
                "Every operation gives the bits of its scalar definition on every instruction set, with every number of \
                 rows and threads."
            }
            Self::Rows => "A pass of many rows gives the bits of as many passes of one row.",
            Self::Chunks => {
                "A prompt gives the same bits, and leaves the same state, however it is cut into passes."
            }
            Self::Threads => "The number of threads changes no bit.",
            Self::Isa => "Every instruction set gives the bits of the scalar definition on the whole model.",
            Self::Concurrent => {
                "A sequence that runs beside others, which join and leave at other depths, gives the bits it gives alone."
            }
            Self::Gates => {
                "Every function gives the same bits in prefill, decode and verification, on every instruction set, for all \
                 finite values of bfloat16 and binary16 and a grid of binary32."
            }
            Self::Mixed => {
                "Random combinations of instruction sets, threads, pieces, companions and rolled-back rows change no bit."
            }
        }
    }
}

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Checks that belong to what this version does not do yet.
const LATER: [&str; 4] = ["resumed", "reopened", "drafted", "stale"];

/// Why a name is no check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCheck {
    /// A check that comes with what it checks.
    #[error(
        "this version has no check {name:?}: it comes with the version that can do what it checks; expected {}",
        names()
    )]
    Later {
        /// The name given.
        name: String,
    },
    /// No check of that name.
    #[error("no check is called {name:?}: expected {}", names())]
    Unknown {
        /// The name given.
        name: String,
    },
}

fn names() -> String {
    CheckName::ALL.map(CheckName::name).join(", ")
}

impl FromStr for CheckName {
    type Err = UnknownCheck;

    fn from_str(name: &str) -> Result<Self, UnknownCheck> {
        let known = Self::ALL.into_iter().find(|check| check.name() == name);
        let name = name.to_owned();
        known.ok_or(if LATER.contains(&name.as_str()) {
            UnknownCheck::Later { name }
        } else {
            UnknownCheck::Unknown { name }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_go_by_their_names() {
        for check in CheckName::ALL {
            assert_eq!(check.name().parse(), Ok(check));
        }
        let later = "drafted".parse::<CheckName>().unwrap_err().to_string();
        assert!(later.contains("this version has no check \"drafted\""), "{later}");
        let unknown = "row".parse::<CheckName>().unwrap_err().to_string();
        assert!(unknown.contains("\"row\"") && unknown.contains("rows, chunks"), "{unknown}");
    }
}
