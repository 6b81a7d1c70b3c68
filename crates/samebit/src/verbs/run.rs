//! `samebit run`: one answer, or a chat.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use samebit_engine::receipt::{self, Program};
use samebit_engine::{Reply, Request, Sequence, generate, token_sha};
use samebit_text::{Special, Tokenizer};
use serde_json::{Value, json};

use super::answer::{Answer, summary};
use super::chat::{self, Message, Role};
use super::interrupt;
use super::model::{Loaded, keep_from_overwriting, pins};
use super::print_json;
use crate::cli::RunArguments;
use crate::failure::{Failure, OrHint};
use crate::output_file;
use crate::pull::{DEFAULT_MODEL, HubReference, LISTED};
use crate::terminal;

/// Largest prompt read from standard input, in bytes.
const LARGEST_INPUT: u64 = 16 << 20;

pub(super) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    arguments.sampling.options().check()?;
    let (model, prompt) = model_and_prompt(arguments);
    let wants_chat = prompt.is_none() && arguments.ids.is_none() && io::stdin().is_terminal();
    if wants_chat && (arguments.output.json || arguments.raw || arguments.receipt.is_some()) {
        return Err(Failure::new("a chat has neither --json nor --raw nor --receipt: give a PROMPT"));
    }
    let prompt = match prompt {
        None if !wants_chat && arguments.ids.is_none() => Some(read_standard_input()?),
        prompt => prompt,
    };

    let loaded = Loaded::load(&model, &arguments.machine, arguments.output)?;
    if let Some(receipt) = &arguments.receipt {
        keep_from_overwriting(&loaded.checkpoint, "--receipt", receipt)?;
    }
    if wants_chat {
        return chat::run(arguments, &loaded);
    }
    let (prompt_ids, tokenizer) = match (&arguments.ids, prompt) {
        (Some(ids), _) => (ids.0.clone(), tokenizer_if_any(arguments, &loaded)),
        (None, prompt) => {
            let tokenizer = samebit_engine::tokenizer(&loaded.checkpoint)?;
            let ids = prompt_ids(arguments, &loaded, &tokenizer, prompt.unwrap_or_default())?;
            (ids, Some(tokenizer))
        }
    };
    answer_once(arguments, &loaded, &prompt_ids, tokenizer.as_ref())
}

/// Which positional argument is what: see the help of `run`.
fn model_and_prompt(arguments: &RunArguments) -> (String, Option<String>) {
    match (&arguments.model, &arguments.prompt) {
        (None, _) => (DEFAULT_MODEL.to_owned(), None),
        (Some(model), Some(prompt)) => (model.clone(), Some(prompt.clone())),
        (Some(only), None) if arguments.ids.is_some() || names_a_model(only) => (only.clone(), None),
        (Some(only), None) => (DEFAULT_MODEL.to_owned(), Some(only.clone())),
    }
}

/// Whether the text names a model, or was meant to.
fn names_a_model(text: &str) -> bool {
    let looks_like_a_path = !text.contains(char::is_whitespace)
        && (text.contains('/') || text.ends_with(".gguf") || text.ends_with(".safetensors"));
    text.starts_with(HubReference::PREFIX)
        || LISTED.iter().any(|model| model.name == text)
        || Path::new(text).exists()
        || looks_like_a_path
}

fn read_standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(LARGEST_INPUT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_INPUT {
        return Err(Failure::new(format!(
            "the prompt on standard input is longer than {LARGEST_INPUT} bytes"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        Failure::new(format!("the prompt on standard input is no UTF-8: {}", error.utf8_error()))
    })?;
    if text.is_empty() {
        return Err(Failure::new("there is no prompt: standard input is empty")
            .hint("samebit run MODEL \"PROMPT\", or run it on a terminal to chat"));
    }
    Ok(text)
}

/// Ids can be answered without a tokenizer; the answer then has no text.
fn tokenizer_if_any(arguments: &RunArguments, loaded: &Loaded) -> Option<Tokenizer> {
    match samebit_engine::tokenizer(&loaded.checkpoint) {
        Ok(tokenizer) => Some(tokenizer),
        Err(error) => {
            if !arguments.output.quiet {
                terminal::message(format_args!("there will be ids and no text: {error}"));
            }
            None
        }
    }
}

fn prompt_ids(
    arguments: &RunArguments,
    loaded: &Loaded,
    tokenizer: &Tokenizer,
    prompt: String,
) -> Result<Vec<u32>, Failure> {
    if arguments.raw {
        return Ok(tokenizer.encode_with_bos(&prompt, Special::Parse)?);
    }
    let template = samebit_engine::chat_template(&loaded.checkpoint, tokenizer)
        .or_hint("--raw gives the prompt to the model as it is, to be continued")?;
    let mut messages = Vec::new();
    if let Some(system) = &arguments.system {
        messages.push(Message { role: Role::System, content: system.clone() });
    }
    messages.push(Message { role: Role::User, content: prompt });
    chat::render(&template, tokenizer, &messages)
}

fn answer_once(
    arguments: &RunArguments,
    loaded: &Loaded,
    prompt_ids: &[u32],
    tokenizer: Option<&Tokenizer>,
) -> Result<(), Failure> {
    interrupt::watch()?;
    let mut sequence = Sequence::new(&loaded.model, arguments.machine.kv.ty);
    let end_ids = if arguments.ignore_eos { &[][..] } else { tokenizer.map_or(&[][..], Tokenizer::end_ids) };
    let request = Request {
        prompt: prompt_ids.to_vec(),
        end_ids: end_ids.to_vec(),
        sampling: arguments.sampling.options(),
        max_tokens: arguments.max_tokens,
        prefill_chunk: arguments.prefill_chunk,
        ..Request::default()
    };
    let mut answer = Answer::new(tokenizer, arguments.output);
    let reply = generate(&loaded.model, &loaded.cpu, &mut sequence, &request, &mut answer)?;
    let text = answer.finish()?;
    if let Some(path) = &arguments.receipt {
        let weights = pins(&loaded.checkpoint, arguments.output);
        let program = Program::new(&loaded.cpu, arguments.machine.kv.ty, weights, "");
        let receipt = receipt::canonical(&receipt::of(&program, &request, &reply, None));
        output_file::write(path, receipt.as_bytes()).map_err(|error| Failure::io("write", path, &error))?;
    }
    if arguments.output.json {
        return print_json(&as_json(arguments, loaded, prompt_ids, &reply, text.as_deref()));
    }
    if tokenizer.is_none() {
        terminal::print(&format!("{:?}\n", reply.ids))?;
    }
    if !arguments.output.quiet {
        terminal::message(summary(&reply));
    }
    Ok(())
}

fn as_json(
    arguments: &RunArguments,
    loaded: &Loaded,
    prompt_ids: &[u32],
    reply: &Reply,
    text: Option<&str>,
) -> Value {
    json!({
        "prompt_ids": prompt_ids,
        "ids": reply.ids,
        "text": text,
        "token_sha": token_sha(&reply.ids),
        "chain": reply.chain,
        "seed": reply.seed,
        "finish_reason": reply.finish.name(),
        "plan_id": samebit_models::plan_id(arguments.machine.kv.ty),
        "cached_tokens": reply.cached_tokens,
        "draft": { "rounds": 0, "drafted": 0, "accepted": 0 },
        "timings": {
            "load_s": loaded.load_s,
            "prefill_tok_s": reply.timings.prefill_rate(),
            "decode_tok_s": reply.timings.decode_rate(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn split(arguments: &[&str]) -> (String, Option<String>) {
        let cli = Cli::try_parse_from([&["samebit", "run"], arguments].concat()).unwrap();
        let Verb::Run(arguments) = cli.verb else { panic!("another verb") };
        model_and_prompt(&arguments)
    }

    fn owned(model: &str, prompt: Option<&str>) -> (String, Option<String>) {
        (model.to_owned(), prompt.map(str::to_owned))
    }

    #[test]
    fn one_argument_is_a_model_only_if_it_names_one() {
        assert_eq!(split(&[]), owned(DEFAULT_MODEL, None));
        assert_eq!(split(&["Why is the sky blue?"]), owned(DEFAULT_MODEL, Some("Why is the sky blue?")));
        assert_eq!(split(&["and/or what?"]), owned(DEFAULT_MODEL, Some("and/or what?")));
        assert_eq!(split(&["gemma-3-270m"]), owned("gemma-3-270m", None));
        assert_eq!(split(&["hf:owner/repo"]), owned("hf:owner/repo", None));
        assert_eq!(split(&["missing.gguf"]), owned("missing.gguf", None));
        assert_eq!(split(&["./missing"]), owned("./missing", None));
        assert_eq!(split(&["src"]), owned("src", None));
        assert_eq!(split(&["anything", "--ids", "1"]), owned("anything", None));
        assert_eq!(split(&["m", "Hello"]), owned("m", Some("Hello")));
    }
}
