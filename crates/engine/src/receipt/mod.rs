//! What a reply was made from, by what, how and with which result, so that anyone can make it again.
//!
//! A receipt is canonical JSON: keys sorted, no white space, and no number with a fraction; numbers that are floats stand
//! as the hexadecimal digits of their bits. Its id is the first 32 hexadecimal digits of its SHA-256.

mod replay;

use std::fmt::Write as _;

use crate::identity::{joined, token_sha};
use crate::{Reply, Request};
use samebit_arith::{Cpu, KvType};
use samebit_checkpoint::{Pin, hex};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use replay::{Replayed, VerifyError, verify};

/// The program and the model that a reply came from.
#[derive(Clone, Debug)]
pub struct Program {
    /// Version of samebit.
    pub version: &'static str,
    /// The plan of the arithmetic.
    pub plan_id: String,
    /// How stored keys and values are rounded.
    pub kv: String,
    /// Instruction set in use. It must not matter.
    pub isa: String,
    /// Threads in use. They must not matter.
    pub threads: usize,
    /// Digests of the checkpoint's files.
    pub weights: Vec<Pin>,
    /// Digest of all of them.
    pub weights_digest: String,
    /// Enters the seeds of requests that name none.
    pub seed_salt: String,
}

impl Program {
    /// This program, on a processor, for files with these digests.
    pub fn new(cpu: &Cpu, kv: KvType, weights: Vec<Pin>, seed_salt: &str) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            plan_id: samebit_models::plan_id(kv),
            kv: kv.to_string(),
            isa: cpu.isa().to_string(),
            threads: cpu.threads(),
            weights_digest: weights_digest(&weights),
            weights,
            seed_salt: seed_salt.to_owned(),
        }
    }
}

/// One digest for all files of a checkpoint: SHA-256 over `sha256sum`'s lines for them, in order.
pub fn weights_digest(pins: &[Pin]) -> String {
    let mut lines = String::new();
    for pin in pins {
        let _ = writeln!(lines, "{}  {}", pin.sha256, pin.file);
    }
    hex(&Sha256::digest(lines))
}

/// The receipt of a reply.
pub fn of(program: &Program, request: &Request, reply: &Reply, stop: Option<&str>) -> Value {
    let (sampling, logits) = (&request.sampling, &request.logits);
    let bias: Vec<Value> =
        logits.bias.0.iter().map(|(id, bias)| json!([id, format!("{:08x}", bias.to_bits())])).collect();
    json!({
        "kind": "samebit reply",
        "version": 1,
        "inputs": {
            "weights": program.weights,
            "weights_digest": program.weights_digest,
            "prompt_ids": request.prompt,
            "prompt_ids_sha256": digest_of_ids(&request.prompt),
            "end_ids": request.end_ids,
            "max_tokens": request.max_tokens,
            "sampling": {
                "temperature_bits": bits(sampling.temperature),
                "top_k": sampling.top_k,
                "top_p_bits": bits(sampling.top_p),
                "min_p_bits": bits(sampling.min_p),
            },
            "logits": {
                "bias": bias,
                "repetition_penalty_bits": bits(logits.penalties.repetition),
                "presence_penalty_bits": bits(logits.penalties.presence),
                "frequency_penalty_bits": bits(logits.penalties.frequency),
                "min_tokens": logits.min_tokens,
                "ignore_eos": logits.ignore_eos,
            },
            "constraint_sha256": request.constraint.as_ref().map(crate::Constraint::digest),
            "seed": reply.seed,
            "seed_given": sampling.seed.is_some(),
            "seed_salt": program.seed_salt,
            "stop": stop,
        },
        "program": {
            "version": program.version,
            "plan_id": program.plan_id,
            "kv": program.kv,
            "isa": program.isa,
        },
        "path": {
            "threads": program.threads,
            "widest_pass": reply.widest_pass,
            "prefill_chunk": request.prefill_chunk,
            "cached_tokens": reply.cached_tokens,
            "cached_from": reply.source.name(),
            "draft": { "rounds": 0, "drafted": 0, "accepted": 0 },
        },
        "result": {
            "ids": reply.ids,
            "token_sha": token_sha(&reply.ids),
            "chain": reply.chain,
            "steps": reply.steps,
            "finish_reason": reply.finish.name(),
        },
    })
}

/// The bits of a float, in hexadecimal.
fn bits(number: f64) -> String {
    format!("{:016x}", number.to_bits())
}

/// SHA-256 over ids in decimal joined by `,`.
fn digest_of_ids(ids: &[u32]) -> String {
    hex(&Sha256::digest(joined(ids)))
}

/// A value as canonical JSON.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_unstable();
            text.push('{');
            for (index, name) in names.into_iter().enumerate() {
                separate(index, text);
                write(&Value::from(name.as_str()), text);
                text.push(':');
                write(&fields[name], text);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                separate(index, text);
                write(value, text);
            }
            text.push(']');
        }
        plain => {
            let _ = write!(text, "{plain}");
        }
    }
}

fn separate(index: usize, text: &mut String) {
    if index > 0 {
        text.push(',');
    }
}

/// The id of a receipt.
pub fn id(receipt: &str) -> String {
    let mut digest = hex(&Sha256::digest(receipt));
    digest.truncate(32);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_json_is_sorted_and_dense() {
        let value = json!({ "b": [1, null, "x\n"], "a": { "z": true, "y": {} } });
        assert_eq!(canonical(&value), r#"{"a":{"y":{},"z":true},"b":[1,null,"x\n"]}"#);
        assert_eq!(id(""), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_eq!(bits(1.0), "3ff0000000000000");
        assert_eq!(digest_of_ids(&[1, 22]), hex(&Sha256::digest("1,22")));
    }
}
