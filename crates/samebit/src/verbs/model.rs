//! From what `MODEL` says to a model that can compute.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use samebit_arith::Cpu;
use samebit_checkpoint::{Checkpoint, Pin};
use samebit_models::Model;

use crate::cli::{MachineOptions, OutputOptions};
use crate::failure::{Failure, OrHint};
use crate::progress::Progress;
use crate::pull::{self, Settings};

/// A model with everything it runs on.
pub(super) struct Loaded {
    /// The files.
    pub(super) checkpoint: Arc<Checkpoint>,
    /// The model.
    pub(super) model: Model,
    /// What it runs on.
    pub(super) cpu: Cpu,
    /// Seconds from opening the files to a model that can compute.
    pub(super) load_s: f64,
}

impl Loaded {
    /// Opens and loads what `name` says.
    pub(super) fn load(name: &str, machine: &MachineOptions, output: OutputOptions) -> Result<Self, Failure> {
        let threads = machine.threads.unwrap_or_else(available_threads);
        let cpu = cpu(machine.isa.choice.isa(), threads)?;
        Self::load_on(name, cpu, output)
    }

    /// Opens what `name` says and loads it with the threads of `cpu`.
    pub(super) fn load_on(name: &str, cpu: Cpu, output: OutputOptions) -> Result<Self, Failure> {
        let checkpoint = open(name, output)?;
        let start = Instant::now();
        let bar = Progress::new(output.quiet).bytes("loading", 0);
        let model = Model::load(Arc::clone(&checkpoint), &cpu, &mut |progress| {
            bar.set_total(progress.total);
            bar.set(progress.loaded);
        })
        .or_hint(&format!("`samebit info {name}` shows what is in the model and what is not supported"))?;
        let load_s = start.elapsed().as_secs_f64();
        Ok(Self { checkpoint, model, cpu, load_s })
    }
}

/// Opens what `name` says, fetching it first where needed. Reads headers only.
pub(super) fn open(name: &str, output: OutputOptions) -> Result<Arc<Checkpoint>, Failure> {
    // What is on disk needs no folder to keep models in.
    if Path::new(name).exists() {
        return Ok(Arc::new(Checkpoint::open(name)?));
    }
    let mut settings = Settings::from_environment()?;
    settings.quiet = output.quiet;
    let path = pull::resolve(name, &settings).or_hint("`samebit list` shows the models that have a name")?;
    Ok(Arc::new(Checkpoint::open(&path)?))
}

/// SHA-256 of every file of a checkpoint. Files that have not changed since they were last hashed are not read again.
pub(super) fn pins(checkpoint: &Checkpoint, output: OutputOptions) -> Vec<Pin> {
    let cache = Settings::from_environment().ok().map(|settings| settings.cache.join("pins"));
    let bar = Progress::new(output.quiet).bytes("hashing", 0);
    checkpoint.pins(cache.as_deref(), |done, total| {
        bar.set_total(total);
        bar.set(done);
    })
}

/// Refuses to write results over a file of the model that they come from.
pub(super) fn keep_from_overwriting(checkpoint: &Checkpoint, flag: &str, out: &Path) -> Result<(), Failure> {
    // A file that is not there yet is none of the model's.
    let Ok(target) = out.canonicalize() else { return Ok(()) };
    let weights = checkpoint.files().iter().map(samebit_checkpoint::MappedFile::path);
    let mut files = weights.chain(checkpoint.config().map(samebit_checkpoint::Config::file));
    if files.any(|file| file.canonicalize().is_ok_and(|file| file == target)) {
        let problem =
            format!("{flag} {} is a file of the model itself, expected another file", out.display());
        return Err(Failure::new(problem).hint("choose another name; nothing was written"));
    }
    Ok(())
}

/// The machine to compute on.
pub(super) fn cpu(isa: samebit_arith::Isa, threads: usize) -> Result<Cpu, Failure> {
    Cpu::new(isa, threads).or_hint("the answer is the same with every instruction set and number of threads")
}

/// Threads that this process may run at once.
pub(super) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(Cpu::MAX_THREADS)
}

/// Logits that one pass may hold.
const LOGITS_PER_PASS: usize = 16 << 20;

/// Rows of which one pass may return logits, so that memory stays bounded with large vocabularies.
pub(super) fn rows_per_pass(vocabulary: usize) -> usize {
    (LOGITS_PER_PASS / vocabulary.max(1)).max(1)
}
