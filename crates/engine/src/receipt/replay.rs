//! A reply made again from its receipt: alone, from nothing, undrafted.

use samebit_arith::{Cpu, KvType};
use samebit_checkpoint::Pin;
use samebit_models::Model;
use serde_json::Value;

use super::{bits, digest_of_ids};
use crate::identity::token_sha;
use crate::{
    EngineError, Flow, LogitBias, LogitOptions, Observer, Penalties, Reply, Request, SamplingOptions,
    Sequence, derived_seed, generate,
};

/// Hexadecimal digits of one step in `steps`.
const MARK: usize = 8;

/// Why a receipt cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A field is missing or is not what a receipt has.
    #[error("this is no receipt that can be replayed: `{field}` is {found}, expected {expected}")]
    Field {
        /// Where it is.
        field: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// The reply was made under a structured output, of which a receipt has the digest only.
    #[error(
        "the answer was made under a structured output, of which the receipt holds only the digest ({0}): replaying \
         needs the output's description, which is not in it"
    )]
    Constraint(String),
    /// The engine refuses the request.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What came of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Everything that does not agree, in words; empty when the receipt holds.
    pub differences: Vec<String>,
    /// Steps whose logits were computed anew; none where the receipt was refused before.
    pub steps: usize,
}

/// Checks a receipt against itself and against the model, and makes its reply again.
///
/// # Errors
/// When the receipt lacks a field, was made under a structured output, or holds a request that the engine refuses.
pub fn verify(receipt: &Value, model: &Model, cpu: &Cpu, pins: &[Pin]) -> Result<Replayed, VerifyError> {
    let receipt = Field { path: String::new(), value: receipt };
    let (inputs, result) = (receipt.at("inputs")?, receipt.at("result")?);
    let kv = receipt.at("program")?.at("kv")?.text()?;
    let kv: KvType = KvType::ALL
        .into_iter()
        .find(|known| known.to_string() == kv)
        .ok_or_else(|| receipt.wrong("program.kv", kv, "a type of stored keys and values"))?;
    let (request, written) = (request(&inputs)?, result.at("ids")?.ids()?);

    let mut differences = against_model(&receipt, model, kv, pins)?;
    differences.extend(against_itself(&inputs, &result, &request, &written)?);
    if !differences.is_empty() {
        return Ok(Replayed { differences, steps: 0 });
    }
    let mut sequence = Sequence::new(model, kv);
    let mut length = Length { left: written.len() };
    let reply = generate(model, cpu, &mut sequence, &request, &mut length)?;
    Ok(Replayed { differences: compare(&result, &reply, &written)?, steps: reply.ids.len() })
}

/// Ends an answer after as many tokens as were written.
struct Length {
    left: usize,
}

impl Observer for Length {
    fn token(&mut self, _: u32) -> Result<Flow, EngineError> {
        self.left = self.left.saturating_sub(1);
        Ok(if self.left == 0 { Flow::Stop } else { Flow::Continue })
    }

    fn cancelled(&self) -> bool {
        self.left == 0
    }
}

/// Weights and plan.
fn against_model(
    receipt: &Field<'_>,
    model: &Model,
    kv: KvType,
    pins: &[Pin],
) -> Result<Vec<String>, VerifyError> {
    let mut differences = Vec::new();
    let weights = receipt.at("inputs")?.at("weights")?;
    let mut files = Vec::new();
    for file in weights.list()? {
        let (name, sha256) = (file.at("file")?.text()?, file.at("sha256")?.text()?);
        match pins.iter().find(|pin| pin.file == name) {
            None => {
                differences
                    .push(format!("weights: the receipt names {name}, which this model does not have"));
            }
            Some(pin) if pin.sha256 != sha256 => differences.push(format!(
                "weights: {name} has the SHA-256 {}, and the receipt says {sha256}: these are other weights",
                pin.sha256
            )),
            Some(_) => {}
        }
        files.push(name);
    }
    for pin in pins.iter().filter(|pin| !files.contains(&pin.file.as_str())) {
        differences.push(format!("weights: this model has {}, which the receipt does not name", pin.file));
    }
    let (found, expected) = (receipt.at("program")?.at("plan_id")?.text()?, model.plan_id(kv));
    if found != expected {
        differences.push(format!(
            "plan: the receipt says {found}, and this program computes by {expected}: another version of the \
             arithmetic answers with other bits"
        ));
    }
    Ok(differences)
}

/// Digests and seed against what they are of.
fn against_itself(
    inputs: &Field<'_>,
    result: &Field<'_>,
    request: &Request,
    written: &[u32],
) -> Result<Vec<String>, VerifyError> {
    let mut differences = Vec::new();
    let mut equal = |what: &str, found: &str, expected: &str| {
        if found != expected {
            differences.push(format!("{what}: the receipt says {found}, and what it holds gives {expected}"));
        }
    };
    let prompt = inputs.at("prompt_ids_sha256")?.text()?;
    equal("prompt ids", prompt, &digest_of_ids(&request.prompt));
    equal("token_sha of the answer's ids", result.at("token_sha")?.text()?, &token_sha(written));
    if !inputs.at("seed_given")?.flag()? {
        let seed = derived_seed(&request.prompt, inputs.at("seed_salt")?.text()?);
        equal("seed, derived from the prompt", &inputs.at("seed")?.number()?.to_string(), &seed.to_string());
    }
    Ok(differences)
}

/// The reply, step by step.
fn compare(result: &Field<'_>, reply: &Reply, written: &[u32]) -> Result<Vec<String>, VerifyError> {
    let (chain, steps) = (result.at("chain")?.text()?, result.at("steps")?.text()?);
    let marks = |steps: &str| -> Vec<String> {
        steps.as_bytes().chunks(MARK).map(|mark| String::from_utf8_lossy(mark).into_owned()).collect()
    };
    let (told, found) = (marks(steps), marks(&reply.steps));
    let most = written.len().max(reply.ids.len());
    for step in 0..most {
        let (was, is) = (written.get(step), reply.ids.get(step));
        let token = |id: Option<&u32>| id.map_or("no token".to_owned(), |id| format!("token {id}"));
        if told.get(step) != found.get(step) && is.is_some() {
            let tokens = if was == is {
                "the same token".to_owned()
            } else {
                format!("{} and {}", token(was), token(is))
            };
            return Ok(vec![format!("step {step}: other logits ({tokens} in the receipt and the replay)")]);
        }
        if was != is {
            let (was, is) = (token(was), token(is));
            return Ok(vec![format!("step {step}: the receipt has {was}, and the replay {is}")]);
        }
    }
    if told.len() != found.len() {
        return Ok(vec![format!(
            "steps: the receipt has marks of {}, and the replay of {}",
            told.len(),
            found.len()
        )]);
    }
    if chain != reply.chain {
        let problem = format!(
            "chain: the receipt says {chain}, and the replay {}, though every step agrees",
            reply.chain
        );
        return Ok(vec![problem]);
    }
    Ok(Vec::new())
}

/// The request that a receipt's inputs describe.
fn request(inputs: &Field<'_>) -> Result<Request, VerifyError> {
    if let Some(digest) = inputs.at("constraint_sha256")?.value.as_str() {
        return Err(VerifyError::Constraint(digest.to_owned()));
    }
    let (sampling, logits) = (inputs.at("sampling")?, inputs.at("logits")?);
    let mut bias = Vec::new();
    for entry in logits.at("bias")?.list()? {
        bias.push((entry.at("0")?.id()?, f32::from_bits(entry.at("1")?.hexadecimal()? as u32)));
    }
    let max_tokens = inputs.at("max_tokens")?;
    Ok(Request {
        prompt: inputs.at("prompt_ids")?.ids()?,
        end_ids: inputs.at("end_ids")?.ids()?,
        sampling: SamplingOptions {
            temperature: sampling.at("temperature_bits")?.float()?,
            top_k: sampling.at("top_k")?.count()?,
            top_p: sampling.at("top_p_bits")?.float()?,
            min_p: sampling.at("min_p_bits")?.float()?,
            seed: Some(inputs.at("seed")?.number()?),
        },
        logits: LogitOptions {
            bias: LogitBias(bias),
            penalties: Penalties {
                repetition: logits.at("repetition_penalty_bits")?.float()?,
                presence: logits.at("presence_penalty_bits")?.float()?,
                frequency: logits.at("frequency_penalty_bits")?.float()?,
            },
            min_tokens: logits.at("min_tokens")?.count()?,
            ignore_eos: logits.at("ignore_eos")?.flag()?,
        },
        max_tokens: if max_tokens.value.is_null() { None } else { Some(max_tokens.count()?) },
        ..Request::default()
    })
}

/// A value of a receipt, and where it is.
struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    fn at(&self, name: &str) -> Result<Self, VerifyError> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let value = match self.value {
            Value::Array(values) => name.parse::<usize>().ok().and_then(|index| values.get(index)),
            other => other.get(name),
        };
        match value {
            Some(value) => Ok(Self { path, value }),
            None => Err(VerifyError::Field { field: path, found: "missing".to_owned(), expected: "a value" }),
        }
    }

    fn wrong(&self, field: &str, found: &str, expected: &'static str) -> VerifyError {
        let found = found.chars().take(80).collect();
        VerifyError::Field { field: field.to_owned(), found, expected }
    }

    fn expect<T>(&self, value: Option<T>, expected: &'static str) -> Result<T, VerifyError> {
        value.ok_or_else(|| self.wrong(&self.path, &self.value.to_string(), expected))
    }

    fn text(&self) -> Result<&'a str, VerifyError> {
        self.expect(self.value.as_str(), "a text")
    }

    fn flag(&self) -> Result<bool, VerifyError> {
        self.expect(self.value.as_bool(), "true or false")
    }

    fn number(&self) -> Result<u64, VerifyError> {
        self.expect(self.value.as_u64(), "a whole number")
    }

    fn count(&self) -> Result<usize, VerifyError> {
        self.expect(self.value.as_u64().and_then(|number| usize::try_from(number).ok()), "a count")
    }

    fn id(&self) -> Result<u32, VerifyError> {
        self.expect(self.value.as_u64().and_then(|number| u32::try_from(number).ok()), "a token id")
    }

    fn hexadecimal(&self) -> Result<u64, VerifyError> {
        self.expect(u64::from_str_radix(self.text()?, 16).ok(), "hexadecimal digits")
    }

    fn float(&self) -> Result<f64, VerifyError> {
        let float = f64::from_bits(self.hexadecimal()?);
        self.expect((bits(float) == self.text()?).then_some(float), "the 16 hexadecimal digits of a float")
    }

    fn list(&self) -> Result<Vec<Self>, VerifyError> {
        let values = self.expect(self.value.as_array(), "a list")?;
        (0..values.len()).map(|index| self.at(&index.to_string())).collect()
    }

    fn ids(&self) -> Result<Vec<u32>, VerifyError> {
        self.list()?.iter().map(Self::id).collect()
    }
}
