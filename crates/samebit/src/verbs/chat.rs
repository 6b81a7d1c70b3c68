//! A chat on a terminal. The state of the conversation is kept, so that each turn computes only what is new.

use std::time::{SystemTime, UNIX_EPOCH};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use samebit_engine::{Request, Sequence, generate};
use samebit_text::{ChatRequest, ChatTemplate, CivilTime, Special, Tokenizer};
use serde_json::{Map, Value, json};

use super::answer::{Answer, summary};
use super::interrupt;
use super::model::Loaded;
use crate::cli::RunArguments;
use crate::failure::{Failure, OrHint};
use crate::terminal;

const WELCOME: &str = "Ctrl-C stops an answer; Ctrl-D, or Ctrl-C at the prompt, leaves; /new starts over.";

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) role: Role,
    pub(super) content: String,
}

impl Message {
    fn as_json(&self) -> Value {
        let role = match self.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        json!({ "role": role, "content": self.content })
    }
}

/// The ids of a conversation, up to where the assistant's next message begins.
pub(super) fn render(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    messages: &[Message],
) -> Result<Vec<u32>, Failure> {
    let messages: Vec<Value> = messages.iter().map(Message::as_json).collect();
    let request = ChatRequest {
        messages: &messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        variables: &Map::new(),
        now: now(),
    };
    let text = template.render(&request)?;
    Ok(tokenizer.encode(&text, Special::Parse)?)
}

/// The present in UTC, for templates that name the date.
fn now() -> CivilTime {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    CivilTime::from_unix_seconds(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX))
}

/// Chats until the user leaves.
pub(super) fn run(arguments: &RunArguments, loaded: &Loaded) -> Result<(), Failure> {
    let tokenizer = samebit_engine::tokenizer(&loaded.checkpoint)?;
    let template = samebit_engine::chat_template(&loaded.checkpoint, &tokenizer)
        .or_hint("this is no chat model; --raw with a PROMPT lets it continue a text")?;
    interrupt::watch()?;
    if !arguments.output.quiet {
        terminal::message(WELCOME);
    }
    let mut editor = DefaultEditor::new()?;
    let mut conversation = Conversation::new(arguments, loaded, &tokenizer, &template);
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let _ = editor.add_history_entry(&line);
        match line.trim() {
            "" => {}
            "/new" => conversation.start_over(),
            _ => {
                // A refused turn ends neither the chat nor what was said before.
                if let Err(failure) = conversation.turn(line) {
                    terminal::message(failure);
                }
            }
        }
    }
}

/// A conversation and the state that it left in the model.
struct Conversation<'a> {
    arguments: &'a RunArguments,
    loaded: &'a Loaded,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    sequence: Sequence,
    messages: Vec<Message>,
}

impl<'a> Conversation<'a> {
    fn new(
        arguments: &'a RunArguments,
        loaded: &'a Loaded,
        tokenizer: &'a Tokenizer,
        template: &'a ChatTemplate,
    ) -> Self {
        let sequence = Sequence::new(&loaded.model, arguments.machine.kv.ty);
        let mut conversation =
            Self { arguments, loaded, tokenizer, template, sequence, messages: Vec::new() };
        conversation.start_over();
        conversation
    }

    /// Forgets what was said. The state stays: what the next conversation shares with it is reused.
    fn start_over(&mut self) {
        let system = self.arguments.system.clone();
        self.messages = system.map(|content| Message { role: Role::System, content }).into_iter().collect();
    }

    /// Says a message and shows the answer. When it fails, the message was not said.
    fn turn(&mut self, content: String) -> Result<(), Failure> {
        self.messages.push(Message { role: Role::User, content });
        match self.answer() {
            Ok(content) => {
                self.messages.push(Message { role: Role::Assistant, content });
                Ok(())
            }
            Err(failure) => {
                self.messages.pop();
                Err(failure)
            }
        }
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let prompt = render(self.template, self.tokenizer, &self.messages)?;
        let end_ids = if self.arguments.ignore_eos { &[][..] } else { self.tokenizer.end_ids() };
        let request = Request {
            prompt: prompt.clone(),
            end_ids: end_ids.to_vec(),
            sampling: self.arguments.sampling.options(),
            max_tokens: self.arguments.max_tokens,
            prefill_chunk: self.arguments.prefill_chunk,
            ..Request::default()
        };
        interrupt::forget();
        let mut answer = Answer::new(Some(self.tokenizer), self.arguments.output);
        let loaded = self.loaded;
        let reply = generate(&loaded.model, &loaded.cpu, &mut self.sequence, &request, &mut answer)?;
        interrupt::forget();
        let text = answer.finish()?.unwrap_or_default();
        if !self.arguments.output.quiet {
            terminal::message(format_args!(
                "{} ({} of {} prompt tokens reused)",
                summary(&reply),
                reply.cached_tokens,
                prompt.len()
            ));
        }
        Ok(text)
    }
}
