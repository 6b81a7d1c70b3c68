//! Who hears of an answer on the engine's thread: turns tokens into text and passes it on at once.

use std::sync::Arc;
use std::time::Instant;

use samebit_arith::likelihood::LogProbabilities;
use samebit_engine::{Client, EngineError, Flow, Observer, Reply};
use samebit_text::{
    ReplyFormat, ReplyParser, ReplyPart, StopStrings, StreamDecoder, Tokenizer, TokenizerError,
    ToolDefinition,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::error::ApiError;
use crate::metrics::Metrics;

/// How an answer is taken apart. The default leaves it whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// How the model marks reasoning and calls.
    pub(crate) format: ReplyFormat,
    /// Whether the prompt ends within reasoning.
    pub(crate) starts_in_reasoning: bool,
    /// The tools offered.
    pub(crate) tools: Vec<ToolDefinition>,
}

impl Reading {
    /// Whether there are marks to look for, which may be special tokens.
    fn has_marks(&self) -> bool {
        self.format.reasoning.is_some() || (self.format.tools.is_some() && !self.tools.is_empty())
    }
}

/// What becomes known of one of several choices.
#[derive(Debug)]
pub(crate) struct News {
    /// Which choice.
    pub(crate) choice: usize,
    /// What is new.
    pub(crate) what: What,
}

/// What is new.
#[derive(Debug)]
pub(crate) enum What {
    /// The request has room, and its prompt is being read.
    Begun,
    /// How probable the next token was. Its text may come later.
    Probability(Box<TokenProbability>),
    /// The next part of the answer.
    Part(ReplyPart),
    /// The end, or why there is no answer.
    Ended(Box<Result<Ending, EngineError>>),
}

/// How probable a token of the answer was.
#[derive(Clone, Debug)]
pub(crate) struct TokenProbability {
    /// The token.
    pub(crate) id: u32,
    /// What the model made of it; `None` where a row has no probabilities.
    pub(crate) probabilities: Option<LogProbabilities>,
}

/// How an answer ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// What the engine says.
    pub(crate) reply: Reply,
    /// The stop text that ended it.
    pub(crate) stop: Option<String>,
    /// Tokens of its reasoning.
    pub(crate) reasoning_tokens: usize,
}

/// The client of one choice. When nobody listens any more it is cancelled.
pub(crate) struct Listener {
    choice: usize,
    tokenizer: Tokenizer,
    /// Whether special tokens are text, since they may be marks.
    keeps_special: bool,
    decoder: StreamDecoder,
    stop_texts: Vec<String>,
    stops: StopStrings,
    parser: ReplyParser,
    stop: Option<String>,
    /// Whether what was read last is reasoning, and how many tokens were.
    reasons: bool,
    reasoning_tokens: usize,
    begun: bool,
    /// What the model made of the token that comes next, where that is wanted.
    probabilities: Option<Option<LogProbabilities>>,
    news: UnboundedSender<News>,
    metrics: Arc<Metrics>,
    asked: Instant,
    last_token: Option<Instant>,
}

impl Listener {
    pub(crate) fn new(
        choice: usize,
        tokenizer: &Tokenizer,
        stops: &[String],
        reading: &Reading,
        news: UnboundedSender<News>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ApiError> {
        let keeps_special = reading.has_marks();
        Ok(Self {
            choice,
            tokenizer: tokenizer.clone(),
            keeps_special,
            decoder: StreamDecoder::continuing(tokenizer, !keeps_special),
            stop_texts: stops.to_vec(),
            stops: StopStrings::new(stops).map_err(|error| ApiError::field("stop", error))?,
            parser: ReplyParser::new(&reading.format, reading.starts_in_reasoning, &reading.tools),
            stop: None,
            reasons: reading.starts_in_reasoning,
            reasoning_tokens: 0,
            begun: false,
            probabilities: None,
            news,
            metrics,
            asked: Instant::now(),
            last_token: None,
        })
    }

    fn tell(&self, what: What) {
        // Nobody listens any more: the engine asks `cancelled` before its next step.
        let _ = self.news.send(News { choice: self.choice, what });
    }

    fn measure_token(&mut self) {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => self.metrics.first_token.observe(now - self.asked),
            Some(before) => self.metrics.between_tokens.observe(now - before),
        }
    }

    /// Passes text on through stops and parser.
    fn read(&mut self, text: &str) {
        let (text, stop) = self.stops.push(text);
        self.stop = self.stop.take().or_else(|| stop.map(|index| self.stop_texts[index].clone()));
        for part in self.parser.push(&text) {
            self.reasons = matches!(part, ReplyPart::Reasoning(_));
            self.tell(What::Part(part));
        }
    }
}

impl Observer for Listener {
    fn prefilled(&mut self, _done: usize, _total: usize) {
        if !self.begun {
            self.begun = true;
            self.tell(What::Begun);
        }
    }

    fn log_probabilities(&mut self, probabilities: Option<LogProbabilities>) {
        self.probabilities = Some(probabilities);
    }

    fn token(&mut self, id: u32) -> Result<Flow, EngineError> {
        self.measure_token();
        if let Some(probabilities) = self.probabilities.take() {
            self.tell(What::Probability(Box::new(TokenProbability { id, probabilities })));
        }
        // The token that ends an answer is no part of its text.
        if self.keeps_special && self.tokenizer.end_ids().contains(&id) {
            return Ok(Flow::Continue);
        }
        let text = match self.decoder.push(id) {
            // A model may have more outputs than its vocabulary has tokens: such an id has no text.
            Err(TokenizerError::UnknownId { .. }) => return Ok(Flow::Continue),
            result => result?,
        };
        self.read(&text);
        self.reasoning_tokens += usize::from(self.reasons);
        Ok(if self.stop.is_some() { Flow::Stop } else { Flow::Continue })
    }

    fn cancelled(&self) -> bool {
        self.news.is_closed()
    }
}

impl Client for Listener {
    fn finished(mut self: Box<Self>, result: Result<Reply, EngineError>) {
        let unfinished = self.decoder.flush();
        self.read(&unfinished);
        let Self {
            choice,
            stops,
            mut parser,
            mut stop,
            stop_texts,
            reasoning_tokens,
            news,
            metrics,
            asked,
            ..
        } = *self;
        let tell = |what| {
            let _ = news.send(News { choice, what });
        };
        let (rest, last) = stops.finish();
        stop = stop.or_else(|| last.map(|index| stop_texts[index].clone()));
        let parts = parser.push(&rest);
        parts.into_iter().chain(parser.finish()).for_each(|part| tell(What::Part(part)));
        metrics.count(&result, asked.elapsed());
        tell(What::Ended(Box::new(result.map(|reply| Ending { reply, stop, reasoning_tokens }))));
    }
}
