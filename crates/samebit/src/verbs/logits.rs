//! `samebit logits`: a teacher-forced pass, its logits written to a safetensors file.

use samebit_models::{LogitRows, Model, Outputs, Span, Taps, TokenId};
use serde_json::json;

use super::model::{Loaded, keep_from_overwriting, rows_per_pass};
use super::print_json;
use crate::cli::LogitsArguments;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::tensor_file::{ElementType, RowTensor, TensorFile};
use crate::terminal;

pub(super) fn run(arguments: &LogitsArguments) -> Result<(), Failure> {
    let ids = &arguments.ids.0;
    let pieces = pieces(arguments)?;
    let output = arguments.model.output;
    let loaded = Loaded::load(&arguments.model.model, &arguments.model.machine, output)?;
    keep_from_overwriting(&loaded.checkpoint, "--out", &arguments.out)?;
    let info = loaded.model.info();
    check_ids(ids, info.vocabulary, info.context)?;

    let taps = Taps { layers: arguments.layers, hidden: arguments.hidden };
    let out = &arguments.out;
    let mut file: Option<ResultFile> = None;
    let tokens: Vec<TokenId> = ids.iter().map(|id| TokenId(*id)).collect();
    let mut state = loaded.model.new_state(arguments.model.machine.kv.ty);
    let bar = Progress::new(output.quiet).counter("tokens", ids.len() as u64);
    let mut done = 0;
    for rows in passes(&pieces, arguments.prefill_chunk, info.vocabulary) {
        let span = Span { state: &mut state, tokens: &tokens[done..done + rows], logits: LogitRows::All };
        let outputs = loaded.model.forward(&loaded.cpu, &mut [span], taps)?;
        // The first pass tells which layers have routers.
        let file = match &mut file {
            Some(file) => file,
            None => file.insert(
                ResultFile::create(arguments, &loaded.model, &outputs)
                    .map_err(|error| Failure::io("write", out, &error))?,
            ),
        };
        file.append(&outputs).map_err(|error| Failure::io("write", out, &error))?;
        done += rows;
        bar.set(done as u64);
    }
    drop(bar);
    if let Some(file) = file {
        file.tensors.finish().map_err(|error| Failure::io("write", out, &error))?;
    }
    report(arguments, &loaded)
}

fn report(arguments: &LogitsArguments, loaded: &Loaded) -> Result<(), Failure> {
    let (tokens, vocabulary) = (arguments.ids.0.len(), loaded.model.info().vocabulary);
    if arguments.model.output.json {
        return print_json(&json!({
            "out": arguments.out.display().to_string(),
            "tokens": tokens,
            "vocabulary": vocabulary,
            "plan_id": samebit_models::plan_id(arguments.model.machine.kv.ty),
            "timings": { "load_s": loaded.load_s },
        }));
    }
    if arguments.model.output.quiet {
        return Ok(());
    }
    Ok(terminal::print(&format!("{}: logits [{tokens}, {vocabulary}]\n", arguments.out.display()))?)
}

/// The lengths to feed the tokens in, as `--split` says.
fn pieces(arguments: &LogitsArguments) -> Result<Vec<usize>, Failure> {
    let count = arguments.ids.0.len();
    let Some(split) = &arguments.split else { return Ok(vec![count]) };
    let sum = split.0.iter().try_fold(0usize, |sum, piece| sum.checked_add(*piece));
    match sum {
        Some(sum) if sum == count => Ok(split.0.clone()),
        _ => {
            let sum = sum.map_or_else(|| "more than any file".to_owned(), |sum| sum.to_string());
            Err(Failure::new(format!(
                "--split adds up to {sum} tokens, but --ids has {count}: expected equal numbers"
            )))
        }
    }
}

fn check_ids(ids: &[u32], vocabulary: usize, context: usize) -> Result<(), Failure> {
    if let Some(index) = ids.iter().position(|id| *id as usize >= vocabulary) {
        return Err(Failure::new(format!(
            "--ids: number {} is id {}, but the model's ids are 0 to {}",
            index + 1,
            ids[index],
            vocabulary.saturating_sub(1)
        )));
    }
    if ids.len() > context {
        return Err(Failure::new(format!(
            "--ids has {} tokens, but the model's context is {context}: nothing is cut off, give fewer",
            ids.len()
        )));
    }
    Ok(())
}

/// Rows of each pass.
fn passes(pieces: &[usize], chunk: usize, vocabulary: usize) -> Vec<usize> {
    let most = chunk.min(rows_per_pass(vocabulary));
    let mut passes = Vec::new();
    for &piece in pieces {
        passes.extend(std::iter::repeat_n(most, piece / most));
        if piece % most > 0 {
            passes.push(piece % most);
        }
    }
    passes
}

/// The output file and where each result goes in it.
struct ResultFile {
    tensors: TensorFile,
    hidden: Option<usize>,
    layers: Vec<usize>,
    routers: Vec<Option<usize>>,
}

impl ResultFile {
    fn create(arguments: &LogitsArguments, model: &Model, first: &Outputs) -> std::io::Result<Self> {
        let rows = arguments.ids.0.len();
        let (vocabulary, hidden_size) = (model.info().vocabulary, model.info().hidden);
        let mut tensors = Vec::new();
        let mut add = |name: String, element, columns| {
            tensors.push(RowTensor { name, element, rows, columns });
            tensors.len() - 1
        };
        add("logits".to_owned(), ElementType::F32, vocabulary);
        let hidden = first.hidden.is_some().then(|| add("hidden".to_owned(), ElementType::F32, hidden_size));
        let layers = (0..first.layers.len())
            .map(|layer| add(format!("layer.{layer}"), ElementType::F32, hidden_size))
            .collect();
        let routers = first
            .routers
            .iter()
            .enumerate()
            .map(|(layer, picks)| {
                picks.as_ref().map(|picks| add(format!("router.{layer}"), ElementType::I32, picks.picked))
            })
            .collect();
        Ok(Self { tensors: TensorFile::create(&arguments.out, tensors)?, hidden, layers, routers })
    }

    fn append(&mut self, outputs: &Outputs) -> std::io::Result<()> {
        self.tensors.append_f32(0, &outputs.logits)?;
        if let (Some(index), Some(hidden)) = (self.hidden, &outputs.hidden) {
            self.tensors.append_f32(index, hidden)?;
        }
        for (index, layer) in self.layers.iter().zip(&outputs.layers) {
            self.tensors.append_f32(*index, layer)?;
        }
        for (index, picks) in self.routers.iter().zip(&outputs.routers) {
            if let (Some(index), Some(picks)) = (index, picks) {
                self.tensors.append_i32(*index, &picks.ids)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn passes_keep_to_pieces_chunk_and_memory() {
        assert_eq!(passes(&[10, 1, 1], 4, 100), [4, 4, 2, 1, 1]);
        assert_eq!(passes(&[3], 512, 100), [3]);
        assert_eq!(passes(&[130], 512, 262_144), [64, 64, 2]);
        assert_eq!(passes(&[2], 1, usize::MAX), [1, 1]);
    }
}
