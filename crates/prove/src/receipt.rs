//! What a run of `samebit prove` writes down: `receipts.json`.
//!
//! The file is canonical JSON: keys sorted, no decimals. Numbers are counts, bytes or times; a float is given by its
//! bits in hexadecimal, with its shortest decimal beside it as text.

use serde::{Deserialize, Serialize};

/// Everything that one run of `samebit prove` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Version of samebit.
    pub samebit: String,
    /// Version of the arithmetic plan, such as `sb1`.
    pub plan: String,
    /// Id of the plan with the type of stored keys and values.
    pub plan_id: String,
    /// The model that was run.
    pub model: ModelRecord,
    /// What it ran on.
    pub machine: MachineRecord,
    /// What was asked for.
    pub options: OptionsRecord,
    /// The worst verdict of the checks.
    pub verdict: Verdict,
    /// Time of the whole run.
    pub milliseconds: u64,
    /// The checks, in the order they ran.
    pub checks: Vec<Check>,
}

/// A model, and the files that hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// What the command line called it.
    pub name: String,
    /// Its family, such as `llama`.
    pub family: String,
    /// Layers.
    pub layers: u64,
    /// Columns of a hidden state.
    pub hidden: u64,
    /// Ids of the vocabulary.
    pub vocabulary: u64,
    /// Longest context in tokens.
    pub context: u64,
    /// Number of weights.
    pub parameters: u64,
    /// Its files.
    pub files: Vec<FileRecord>,
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Name without folders.
    pub name: String,
    /// Length.
    pub bytes: u64,
    /// Digest of the content, 64 hexadecimal digits.
    pub sha256: String,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Name of the processor as it gives it, or its architecture.
    pub processor: String,
    /// Instruction sets that were compared, slowest first; the first one, `scalar`, is the definition.
    pub isas: Vec<String>,
    /// Threads asked for.
    pub threads: u64,
}

/// What a run was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionsRecord {
    /// Whether fewer cases were run.
    pub quick: bool,
    /// The checks asked for by name; none means all.
    pub only: Vec<String>,
    /// The type of stored keys and values.
    pub kv: String,
    /// Seed of all random choices.
    pub seed: u64,
}

/// What a check, or a run, says. From best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All cases were equal, and the paths that had to run did run.
    Pass,
    /// All cases were equal, but a path that had to run did not.
    Unchecked,
    /// Something kept the check from running.
    CouldNotRun,
    /// There was a difference, or there was no case at all.
    Fail,
}

impl Verdict {
    /// What it is called for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Unchecked => "UNCHECKED",
            Self::CouldNotRun => "COULD NOT RUN",
            Self::Fail => "FAIL",
        }
    }

    /// The exit code of the program: 0 pass, 1 a difference, 2 could not run, 3 unchecked.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::CouldNotRun => 2,
            Self::Unchecked => 3,
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name, such as `rows`.
    pub name: String,
    /// What it claims, in one sentence.
    pub claim: String,
    /// What it found.
    pub verdict: Verdict,
    /// Cases run.
    pub cases: u64,
    /// Cases that differed.
    pub failed: u64,
    /// Why it could not run, where it could not.
    pub reason: Option<String>,
    /// Evidence that what the check is about really happened.
    pub proof: Vec<Proof>,
    /// The first difference, where there is one.
    pub first_difference: Option<Difference>,
    /// Every case.
    pub rows: Vec<Case>,
    /// Times of the operations, for plots; they decide nothing.
    pub timings: Vec<Timing>,
    /// Time of the check.
    pub milliseconds: u64,
}

/// Evidence that a path was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// What was counted, as a phrase.
    pub what: String,
    /// How often it happened.
    pub found: u64,
    /// How often it has to happen at least.
    pub needed: u64,
}

impl Proof {
    /// Whether it happened often enough.
    pub fn holds(&self) -> bool {
        self.found >= self.needed
    }
}

/// Where two results differ first, and in what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Label of the case.
    pub case: String,
    /// Where in the case: operation, row, step, layer.
    pub place: String,
    /// Index of the element (or byte) there.
    pub index: u64,
    /// Bits that were expected, in hexadecimal.
    pub expected_bits: String,
    /// Bits that were found, in hexadecimal.
    pub found_bits: String,
    /// The expected number in the shortest decimals that give its bits.
    pub expected: String,
    /// The found number in the shortest decimals that give its bits.
    pub found: String,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The operation, such as `matmul`, `head_chunk`, `forward` or `exp`.
    pub op: String,
    /// Its shape, such as `4096 -> 1024`.
    pub shape: String,
    /// Format of the weights, or type of the stored keys and values; empty where there is none.
    pub format: String,
    /// Instruction set that was compared; empty where that is not the point.
    pub isa: String,
    /// Threads that it ran on.
    pub threads: u64,
    /// Rows of the pass.
    pub rows: u64,
    /// What it is, for people, and what it is equal to. Unique within a check.
    pub label: String,
    /// Whether all bits were equal.
    pub equal: bool,
    /// Numbers (or bytes, of states) that were compared.
    pub compared: u64,
    /// SHA-256 over the little-endian bits of what was expected, 64 hexadecimal digits.
    pub sha256: String,
}

/// How long an operation took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The operation, such as `matmul` or `attention`.
    pub op: String,
    /// Its shape.
    pub shape: String,
    /// Format of the weights, or type of the stored keys and values.
    pub format: String,
    /// Instruction set.
    pub isa: String,
    /// Rows of the pass.
    pub rows: u64,
    /// Shortest time of one pass over all rows.
    pub nanoseconds: u64,
}

impl Receipt {
    /// The canonical JSON text: sorted keys, two spaces of indentation, a final newline.
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a receipt is made of text, numbers and lists");
        value.sort_all_objects();
        format!("{value:#}\n")
    }

    /// Reads what [`Receipt::to_json`] wrote.
    ///
    /// # Errors
    /// When the text is no JSON, or not of a receipt.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The same receipt with all times zero and no timings: two runs of one program on one model agree in it.
    #[must_use]
    pub fn without_times(&self) -> Self {
        let mut receipt = self.clone();
        receipt.milliseconds = 0;
        for check in &mut receipt.checks {
            check.milliseconds = 0;
            check.timings.clear();
        }
        receipt
    }
}
