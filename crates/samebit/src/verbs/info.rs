//! `samebit info`: what a model is, what it needs, and what of it is not supported. Reads no weights.

use samebit_checkpoint::{Checkpoint, Pin};
use samebit_models::{Model, ModelInfo};
use serde_json::{Value, json};

use super::{model, print_json, size};
use crate::cli::InfoArguments;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::pull::Settings;
use crate::terminal;

pub(super) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let checkpoint = model::open(&arguments.model, arguments.output)?;
    let plan = Model::plan(&checkpoint);
    let pins = if arguments.hash { Some(pins(arguments, &checkpoint)?) } else { None };
    let report =
        Report { arguments, checkpoint: &checkpoint, plan: plan.as_ref().ok(), pins: pins.as_deref() };
    let refusal = plan.as_ref().err().map(ToString::to_string);
    if arguments.output.json {
        print_json(&report.as_json(refusal.as_deref()))?;
    } else {
        terminal::print(&terminal::shown(&report.as_text()))?;
    }
    // What the checkpoint holds is worth seeing even when it is refused; the exit code still says so.
    Ok(plan.map(|_| ())?)
}

fn pins(arguments: &InfoArguments, checkpoint: &Checkpoint) -> Result<Vec<Pin>, Failure> {
    let cache = Settings::from_environment().ok().map(|settings| settings.cache.join("pins"));
    let bar = Progress::new(arguments.output.quiet).bytes("hashing", 0);
    Ok(checkpoint.pins(cache.as_deref(), |done, total| {
        bar.set_total(total);
        bar.set(done);
    }))
}

/// Everything that is shown.
struct Report<'a> {
    arguments: &'a InfoArguments,
    checkpoint: &'a Checkpoint,
    plan: Option<&'a ModelInfo>,
    pins: Option<&'a [Pin]>,
}

/// Memory for one sequence.
struct Memory {
    context: usize,
    kv_bytes: u64,
    weight_bytes: u64,
}

impl Report<'_> {
    fn memory(&self, plan: &ModelInfo) -> Memory {
        let context = self.arguments.context.unwrap_or(plan.context);
        let per_position = plan.bytes_per_position(self.arguments.kv.ty) as u64;
        Memory {
            context,
            kv_bytes: per_position.saturating_mul(context as u64),
            weight_bytes: plan.weight_bytes,
        }
    }

    /// Tensors and bytes by format, most bytes first: the model's formats, or those of the files where the model is
    /// refused.
    fn formats(&self) -> Vec<(String, usize, u64)> {
        let Some(plan) = self.plan else {
            let totals = self.checkpoint.type_totals();
            return totals
                .into_iter()
                .map(|(dtype, count, bytes)| (dtype.to_string(), count, bytes))
                .collect();
        };
        let mut totals: Vec<(String, usize, u64)> = Vec::new();
        for tensor in &plan.tensors {
            match totals.iter_mut().find(|(format, ..)| *format == tensor.format) {
                Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + tensor.bytes as u64),
                None => totals.push((tensor.format.clone(), 1, tensor.bytes as u64)),
            }
        }
        totals.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        totals
    }

    fn as_json(&self, refusal: Option<&str>) -> Value {
        let formats: Vec<Value> = self
            .formats()
            .into_iter()
            .map(|(format, tensors, bytes)| json!({ "format": format, "tensors": tensors, "bytes": bytes }))
            .collect();
        let files: Vec<Value> = self
            .checkpoint
            .files()
            .iter()
            .map(|file| json!({ "path": file.path().display().to_string(), "bytes": file.bytes().len() }))
            .collect();
        json!({
            "path": self.checkpoint.path().display().to_string(),
            "source": self.checkpoint.source().to_string(),
            "supported": refusal.is_none(),
            "refusal": refusal,
            "files": files,
            "tensor_bytes": self.checkpoint.tensor_bytes(),
            "formats": formats,
            "model": self.plan.map(|plan| self.model_as_json(plan)),
            "tensors": self.tensors_as_json(),
            "sha256": self.pins,
        })
    }

    fn model_as_json(&self, plan: &ModelInfo) -> Value {
        let memory = self.memory(plan);
        let settings: serde_json::Map<String, Value> =
            plan.settings.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        json!({
            "family": plan.family,
            "parameters": plan.parameters,
            "vocabulary": plan.vocabulary,
            "hidden": plan.hidden,
            "layers": plan.layers.len(),
            "context": plan.context,
            "settings": settings,
            "plan_id": samebit_models::plan_id(self.arguments.kv.ty),
            "memory": {
                "context": memory.context,
                "kv": self.arguments.kv.ty.to_string(),
                "kv_bytes": memory.kv_bytes,
                "weight_bytes": memory.weight_bytes,
                "total_bytes": memory.kv_bytes.saturating_add(memory.weight_bytes),
            },
            "unused_ignorable": plan.unused.ignorable,
            "unused_unknown": plan.unused.unknown,
        })
    }

    /// The tensors that the model uses, as it reads them; all of them, as stored, where it is refused.
    fn tensors_as_json(&self) -> Vec<Value> {
        let tensor = |name: &str, format: &str, shape: &[usize], bytes: usize| json!({ "name": name, "format": format, "shape": shape, "bytes": bytes });
        match self.plan {
            Some(plan) => plan
                .tensors
                .iter()
                .map(|used| tensor(&used.name, &used.format, &used.shape, used.bytes))
                .collect(),
            None => self
                .checkpoint
                .tensors()
                .map(|stored| {
                    tensor(stored.name(), &stored.dtype().to_string(), stored.shape(), stored.data().len())
                })
                .collect(),
        }
    }

    fn as_text(&self) -> String {
        let mut text = format!("{}: {}\n", self.checkpoint.path().display(), self.checkpoint.about());
        if let Some(plan) = self.plan {
            text += &self.model_as_text(plan);
        }
        text += "stored as\n";
        for (format, count, bytes) in self.formats() {
            text += &format!("  {format:20} {count:5} tensors  {:>10}\n", size(bytes));
        }
        for pin in self.pins.unwrap_or_default() {
            text += &format!("sha256 {}  {}  {} bytes\n", pin.sha256, pin.file, pin.bytes);
        }
        text
    }

    fn model_as_text(&self, plan: &ModelInfo) -> String {
        let memory = self.memory(plan);
        let mut text = format!(
            "family {}, {} parameters, {} layers, vocabulary {}, context {}\n",
            plan.family,
            plan.parameters,
            plan.layers.len(),
            plan.vocabulary,
            plan.context,
        );
        for (name, value) in &plan.settings {
            text += &format!("  {name} {value}\n");
        }
        text += &format!(
            "memory for {} tokens: {} weights + {} keys and values ({}) = {}\n",
            memory.context,
            size(memory.weight_bytes),
            size(memory.kv_bytes),
            self.arguments.kv.ty,
            size(memory.weight_bytes.saturating_add(memory.kv_bytes)),
        );
        let unused = |label: &str, names: &[String]| match names {
            [] => String::new(),
            [first, ..] => format!("{label}: {} tensors, such as {first}\n", names.len()),
        };
        text += &unused("not needed", &plan.unused.ignorable);
        text +=
            &unused("NOT USED, although nothing is known that makes them superfluous", &plan.unused.unknown);
        text
    }
}
