//! A complete answer, with what all APIs say about it.

use samebit_engine::{Finish, Reply, Request, receipt, token_sha};
use samebit_text::{ReplyPart, ToolCall};
use serde_json::{Value, json};

use super::client::{Ending, TokenProbability};

use crate::state::App;

/// What an answer says, taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// The answer itself, without the stop text.
    pub(crate) text: String,
    /// The reasoning before it.
    pub(crate) reasoning: String,
    /// Tools that it calls.
    pub(crate) calls: Vec<ToolCall>,
}

impl Said {
    /// Adds a part.
    pub(super) fn add(&mut self, part: &ReplyPart) {
        match part {
            ReplyPart::Reasoning(text) => self.reasoning.push_str(text),
            ReplyPart::Content(text) => self.text.push_str(text),
            ReplyPart::ToolCall(call) => self.calls.push(call.clone()),
        }
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// Which of the request's choices.
    pub(crate) choice: usize,
    /// What it says.
    pub(crate) said: Said,
    /// Probabilities of its tokens that were not told before.
    pub(crate) probabilities: Vec<TokenProbability>,
    /// The stop text that ended it.
    pub(crate) stop: Option<String>,
    /// Why it ended.
    pub(crate) finish: Finish,
    /// Tokens of its prompt.
    pub(crate) prompt_tokens: usize,
    /// Tokens of the prompt that did not have to be computed.
    pub(crate) cached_tokens: usize,
    /// Tokens of the answer, the end token included.
    pub(crate) tokens: usize,
    /// Those of them that are reasoning.
    pub(crate) reasoning_tokens: usize,
    /// The `samebit` block.
    pub(crate) samebit: Value,
}

impl Told {
    /// Completes an answer, and keeps its receipt.
    pub(super) fn new(app: &App, choice: usize, request: &Request, ending: Ending, said: Said) -> Self {
        let Ending { reply, stop, reasoning_tokens } = ending;
        let receipt = receipt::canonical(&receipt::of(&app.program, request, &reply, stop.as_deref()));
        let receipt_id = receipt::id(&receipt);
        let samebit = block(app, &reply, &receipt_id);
        let bytes = receipt.len();
        app.receipts.insert(receipt_id, receipt.into(), bytes);
        Self {
            choice,
            said,
            probabilities: Vec::new(),
            stop,
            finish: reply.finish,
            prompt_tokens: request.prompt.len(),
            cached_tokens: reply.cached_tokens,
            tokens: reply.ids.len(),
            reasoning_tokens,
            samebit,
        }
    }

    /// `finish_reason` of OpenAI's API.
    pub(crate) fn finish_reason(&self) -> &'static str {
        match self.finish {
            _ if !self.said.calls.is_empty() => "tool_calls",
            Finish::Length => "length",
            Finish::Stop | Finish::Cancelled => "stop",
        }
    }
}

fn block(app: &App, reply: &Reply, receipt_id: &str) -> Value {
    json!({
        "token_sha": token_sha(&reply.ids),
        "chain": reply.chain,
        "seed": reply.seed,
        "plan_id": app.program.plan_id,
        "receipt_id": receipt_id,
        "cached_tokens": reply.cached_tokens,
        "cache_source": reply.source.name(),
        "cache_miss_reason": reply.miss.map(|miss| miss.to_string()),
        "draft": { "rounds": 0, "drafted": 0, "accepted": 0 },
    })
}

/// OpenAI's `usage` of some choices, of which each `choices` in turn share a prompt.
pub(crate) fn usage_of(told: &[Told], choices: usize) -> Value {
    let prompts = || told.iter().step_by(choices.max(1));
    let prompt: usize = prompts().map(|told| told.prompt_tokens).sum();
    let cached: usize = prompts().map(|told| told.cached_tokens).sum();
    let reasoning: usize = told.iter().map(|told| told.reasoning_tokens).sum();
    let completion: usize = told.iter().map(|told| told.tokens).sum();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens_details": { "reasoning_tokens": reasoning },
    })
}
