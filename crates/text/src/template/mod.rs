//! Chat templates: a conversation becomes a prompt exactly as the model's own template says.
//!
//! Templates are Jinja2 programs written against the environment that the Hugging Face library gives them:
//! `trim_blocks`, `lstrip_blocks`, `break` and `continue`, Python's methods on strings and dictionaries, `tojson` as
//! Python's `json.dumps` writes it, `raise_exception` and `strftime_now`. Undefined values behave as Jinja2's default
//! ones: they print as nothing, and using one for anything else is an error.
//!
//! A template comes from whoever made the model, so it runs on a budget of steps, time and length: one that loops
//! forever, or builds ever longer texts, ends with an error. There is no default template.

mod bounded;
mod json;
mod message;
mod source;
mod time;

pub use source::TemplateSource;
pub use time::CivilTime;

use crate::{SpecialTokens, TemplateError};
use bounded::{BoundedText, LONGEST_TEMPLATE};
use message::Conversation;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, ErrorKind, State, Value};
use serde_json::Map;
use std::collections::BTreeMap;

/// Steps that every rendering may take. A step is about one instruction, or 64 bytes of text; published templates
/// take a few thousand.
const FUEL_BASE: u64 = 4_000_000;
/// Further steps for each byte of the conversation. Published templates take fewer than 20.
const FUEL_PER_BYTE: u64 = 64;
/// Bytes by which a prompt may be longer than its conversation.
const LONGEST_PROMPT: usize = 16 << 20;
/// Digits of the largest width in a format string: `'{:>1000000000}'` would take that many bytes.
const WIDTH_DIGITS: usize = 6;

/// The chat template of a model, compiled.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: TemplateSource,
    text: String,
    special_tokens: SpecialTokens,
}

/// What a template is rendered with.
#[derive(Clone, Copy)]
pub struct ChatRequest<'a> {
    /// The messages, objects with at least a `role`.
    pub messages: &'a [serde_json::Value],
    /// The tools offered; the template sees `none` without them.
    pub tools: Option<&'a serde_json::Value>,
    /// Documents to answer from; the template sees `none` without them.
    pub documents: Option<&'a serde_json::Value>,
    /// Whether the prompt ends where the model's answer starts.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`. They hide the variables above and the special tokens.
    pub variables: &'a Map<String, serde_json::Value>,
    /// What `strftime_now` takes for the present.
    pub now: CivilTime,
}

impl ChatTemplate {
    /// Compiles a template. `special_tokens` become `bos_token`, `eos_token` and so on; those that the model lacks
    /// are undefined.
    ///
    /// # Errors
    /// A template that is no valid Jinja, with the line.
    pub fn new(source: TemplateSource, special_tokens: SpecialTokens) -> Result<Self, TemplateError> {
        let malformed = |name: &str, error: &minijinja::Error| TemplateError::Invalid {
            origin: source.origin_of(name),
            problem: format!("the chat template is malformed{}: {}", line_of(error), words_of(error)),
        };
        let mut environment = environment().map_err(|error| malformed("", &error))?;
        for (name, text) in source.templates() {
            let invalid =
                |problem: String| TemplateError::Invalid { origin: source.origin_of(name), problem };
            if text.len() > LONGEST_TEMPLATE {
                let length = text.len();
                return Err(invalid(format!(
                    "the chat template has {length} bytes, expected at most {LONGEST_TEMPLATE}"
                )));
            }
            let (added, text) = (name.clone(), without_generation_tags(text));
            let (compiled, result) = bounded::run(move || {
                let result = environment.add_template_owned(added, text);
                (environment, result)
            })
            .map_err(|stopped| invalid(format!("the chat template cannot be compiled: {stopped}")))?;
            result.map_err(|error| malformed(name, &error))?;
            environment = compiled;
        }
        let texts: Vec<&str> = source.templates().iter().map(|(_, text)| text.as_str()).collect();
        Ok(Self { environment, text: texts.join("\n"), source, special_tokens })
    }

    /// The text of all its templates, which shows how the model marks calls and reasoning.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where the template came from, for messages.
    pub fn origin(&self) -> &str {
        self.source.origin()
    }

    /// Renders a conversation. Special tokens stand in the result as text; BOS is there if the template writes it.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] when the template raises an exception, [`TemplateError::Failed`] when it uses what
    /// is not there, mixes types or does not end.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String, TemplateError> {
        let name = self.source.choose(request.tools.is_some())?;
        let conversation = Conversation::new(request.messages)?;
        let mut environment = self.environment.clone();
        let fuel = FUEL_BASE.saturating_add(FUEL_PER_BYTE.saturating_mul(bytes_of(request)));
        environment.set_fuel(Some(fuel));
        let now = request.now;
        environment.add_function("strftime_now", move |format: &str| now.strftime(format));
        let context = self.context(request, &conversation);
        let longest = usize::try_from(bytes_of(request)).unwrap_or(usize::MAX).saturating_add(LONGEST_PROMPT);
        let chosen = name.to_owned();
        let rendered = bounded::run(move || {
            let mut text = BoundedText::new(longest);
            environment.get_template(&chosen)?.render_captured_to(context, &mut text)?;
            Ok::<_, minijinja::Error>(text)
        });
        let failed = |problem: String| TemplateError::Failed {
            origin: self.source.origin_of(name),
            place: conversation.last_read(),
            problem,
        };
        let text = rendered
            .map_err(|stopped| failed(stopped.to_string()))?
            .map_err(|error| self.failure(name, &error, &conversation))?;
        text.into_string().map_err(|error| failed(error.to_string()))
    }

    fn context(&self, request: &ChatRequest<'_>, conversation: &Conversation) -> BTreeMap<String, Value> {
        let mut context = BTreeMap::new();
        let tokens = &self.special_tokens;
        let named = [
            ("bos_token", &tokens.bos),
            ("eos_token", &tokens.eos),
            ("unk_token", &tokens.unk),
            ("pad_token", &tokens.pad),
        ];
        for (name, token) in named {
            if let Some(token) = token {
                context.insert(name.to_owned(), Value::from(token.as_str()));
            }
        }
        context.insert("messages".to_owned(), conversation.value());
        context.insert("tools".to_owned(), request.tools.map_or(Value::from(()), json::to_template));
        context.insert("documents".to_owned(), request.documents.map_or(Value::from(()), json::to_template));
        context.insert("add_generation_prompt".to_owned(), Value::from(request.add_generation_prompt));
        for (name, value) in request.variables {
            context.insert(name.clone(), json::to_template(value));
        }
        context
    }

    fn failure(&self, name: &str, error: &minijinja::Error, conversation: &Conversation) -> TemplateError {
        let origin = self.source.origin_of(name);
        let place = format!("{}{}", line_of(error), conversation.last_read());
        if let Some(raised) = raised(error) {
            return TemplateError::Refused { origin, place, message: raised.0.clone() };
        }
        let problem = if error.kind() == ErrorKind::OutOfFuel {
            "it ran for too long; it may loop forever, or need far more steps than published templates do"
                .to_owned()
        } else {
            words_of(error)
        };
        TemplateError::Failed { origin, place, problem }
    }
}

/// Jinja as chat templates expect it, without templates or variables.
fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(python_method);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", tojson);
    // In Python none cannot be iterated over, while everything with a length and an index counts as a sequence.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| value.is_undefined() || value.len().is_some());
    Ok(environment)
}

/// Python's methods, without fields of absurd width.
fn python_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, minijinja::Error> {
    if method == "format" && value.as_str().is_some_and(has_absurd_width) {
        let problem = format!("format: a width of more than {WIDTH_DIGITS} digits");
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, problem));
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

fn has_absurd_width(format: &str) -> bool {
    format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > WIDTH_DIGITS)
}

/// What a template raised itself, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &Value) -> Result<Value, minijinja::Error> {
    let raised = Raised(message.to_string());
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, raised.0.clone()).with_source(raised))
}

fn raised(error: &minijinja::Error) -> Option<&Raised> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return Some(raised);
        }
        cause = inner.source();
    }
    None
}

#[expect(clippy::needless_pass_by_value, reason = "filters get their arguments by value")]
fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, minijinja::Error> {
    let style = json::Style::from_arguments(&positional, &named)?;
    json::dumps(state, value, &style).map(Value::from)
}

/// Makes `{% generation %}` and `{% endgeneration %}` blocks that do nothing. They mark the answer for training.
///
/// Whitespace control and line numbers stay as they are.
fn without_generation_tags(template: &str) -> String {
    let mut result = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{%") {
        let (before, tag_on) = rest.split_at(start + 2);
        result.push_str(before);
        let inner = tag_on.strip_prefix(['-', '+']).unwrap_or(tag_on).trim_start();
        let word_end = inner.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(inner.len());
        let replacement = match &inner[..word_end] {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => {
                rest = tag_on;
                continue;
            }
        };
        result.push_str(&tag_on[..tag_on.len() - inner.len()]);
        result.push_str(replacement);
        rest = &inner[word_end..];
    }
    result.push_str(rest);
    result
}

/// Roughly how much JSON a request holds.
fn bytes_of(request: &ChatRequest<'_>) -> u64 {
    let values = request.messages.iter().chain(request.tools).chain(request.documents);
    values.chain(request.variables.values()).fold(0, |sum: u64, value| sum.saturating_add(json::size(value)))
}

fn line_of(error: &minijinja::Error) -> String {
    error.line().map_or_else(String::new, |line| format!(", line {line}"))
}

/// The error's own words, without its kind where a detail says more.
fn words_of(error: &minijinja::Error) -> String {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    match (error.detail(), cause) {
        (_, Some(cause)) => cause.to_string(),
        (Some(detail), None) => format!("{}: {detail}", error.kind()),
        (None, None) => error.kind().to_string(),
    }
}
