//! Generation on a small model: what a sequence keeps changes nothing, and limits are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_engine::{
    EngineError, Finish, Flow, Observer, Reply, Request, SamplingOptions, Sequence, generate,
};
use samebit_models::Model;

const KV: KvType = KvType::F16;

struct Engine {
    model: Model,
    cpu: Cpu,
}

impl Engine {
    fn load(fixture: &str) -> Self {
        let folder: PathBuf =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture).join("model");
        let cpu = Cpu::new(Isa::detect(), 2).unwrap();
        let checkpoint = Arc::new(Checkpoint::open(folder).unwrap());
        let model = Model::load(checkpoint, &cpu, &mut |_| {}).unwrap();
        Self { model, cpu }
    }

    fn answer(&self, sequence: &mut Sequence, request: &Request) -> Reply {
        generate(&self.model, &self.cpu, sequence, request, &mut ()).unwrap()
    }

    fn fresh(&self, request: &Request) -> Reply {
        self.answer(&mut Sequence::new(&self.model, KV), request)
    }
}

fn request(prompt: &[u32]) -> Request {
    Request {
        prompt: prompt.to_vec(),
        end_ids: Vec::new(),
        sampling: SamplingOptions::default(),
        max_tokens: Some(6),
        prefill_chunk: 4,
        ..Request::default()
    }
}

fn sampled(prompt: &[u32]) -> Request {
    let sampling =
        SamplingOptions { temperature: 1.2, top_p: 0.9, seed: Some(3), ..SamplingOptions::default() };
    Request { sampling, ..request(prompt) }
}

#[test]
fn a_second_turn_reuses_the_first_and_says_the_same() {
    for fixture in ["llama", "gemma3", "qwen3_moe"] {
        let engine = Engine::load(fixture);
        for ask in [request as fn(&[u32]) -> Request, sampled] {
            let mut sequence = Sequence::new(&engine.model, KV);
            let first = engine.answer(&mut sequence, &ask(&[5, 6, 7, 8, 9]));
            assert_eq!(first.cached_tokens, 0);
            let prompt = [&[5, 6, 7, 8, 9], &first.ids[..], &[10, 11, 12]].concat();
            let second = engine.answer(&mut sequence, &ask(&prompt));
            // The last token of the first answer had not been run.
            assert_eq!(second.cached_tokens, 5 + first.ids.len() - 1, "{fixture}");
            let fresh = engine.fresh(&ask(&prompt));
            assert_eq!(fresh.cached_tokens, 0);
            assert_eq!((&second.ids, &second.chain), (&fresh.ids, &fresh.chain), "{fixture}");
        }
    }
}

#[test]
fn a_conversation_that_departs_keeps_the_common_part() {
    let engine = Engine::load("llama");
    let mut sequence = Sequence::new(&engine.model, KV);
    engine.answer(&mut sequence, &request(&[5, 6, 7, 8, 9, 10]));
    for (prompt, cached) in [
        (vec![5, 6, 7, 99, 9, 10], 3),
        // The same prompt again: its last row has to give logits.
        (vec![5, 6, 7, 99, 9, 10], 5),
        (vec![5, 6], 1),
        (vec![300], 0),
    ] {
        let resumed = engine.answer(&mut sequence, &request(&prompt));
        let fresh = engine.fresh(&request(&prompt));
        assert_eq!(resumed.cached_tokens, cached, "{prompt:?}");
        assert_eq!((&resumed.ids, &resumed.chain), (&fresh.ids, &fresh.chain), "{prompt:?}");
        assert_eq!(sequence.ids(), &[&prompt[..], &resumed.ids[..resumed.ids.len() - 1]].concat());
    }
}

/// Ends an answer after some tokens.
struct StopAfter {
    tokens: usize,
    seen: Vec<u32>,
    prefilled: Vec<usize>,
}

impl Observer for StopAfter {
    fn prefilled(&mut self, done: usize, _total: usize) {
        self.prefilled.push(done);
    }

    fn token(&mut self, id: u32) -> Result<Flow, EngineError> {
        self.seen.push(id);
        Ok(Flow::Continue)
    }

    fn cancelled(&self) -> bool {
        self.seen.len() >= self.tokens
    }
}

#[test]
fn an_observer_sees_every_token_and_can_stop() {
    let engine = Engine::load("llama");
    let prompt = [5, 6, 7, 8, 9, 10];
    let whole = engine.fresh(&request(&prompt));
    assert_eq!(whole.finish, Finish::Length);
    let mut observer = StopAfter { tokens: 3, seen: Vec::new(), prefilled: Vec::new() };
    let mut sequence = Sequence::new(&engine.model, KV);
    let stopped =
        generate(&engine.model, &engine.cpu, &mut sequence, &request(&prompt), &mut observer).unwrap();
    assert_eq!(stopped.finish, Finish::Cancelled);
    assert_eq!(stopped.ids, whole.ids[..3]);
    assert_eq!(observer.seen, stopped.ids);
    assert_eq!(observer.prefilled, [4, 6]);
    // What was computed before the stop serves the next answer.
    assert_eq!(engine.answer(&mut sequence, &request(&prompt)).ids, whole.ids);

    let mut at_once = StopAfter { tokens: 0, seen: Vec::new(), prefilled: Vec::new() };
    let mut sequence = Sequence::new(&engine.model, KV);
    let nothing =
        generate(&engine.model, &engine.cpu, &mut sequence, &request(&prompt), &mut at_once).unwrap();
    assert!(nothing.ids.is_empty() && nothing.finish == Finish::Cancelled);
}

#[test]
fn an_end_token_ends_the_answer_and_is_part_of_it() {
    let engine = Engine::load("llama");
    let whole = engine.fresh(&request(&[5, 6, 7]));
    let end = [whole.ids[3]];
    let at = whole.ids.iter().position(|id| *id == end[0]).unwrap();
    let stopped = engine.fresh(&Request { end_ids: end.to_vec(), ..request(&[5, 6, 7]) });
    assert_eq!(stopped.ids, whole.ids[..=at]);
    assert_eq!(stopped.finish, Finish::Stop);
}

#[test]
fn requests_that_do_not_fit_are_refused_before_anything_is_computed() {
    let engine = Engine::load("llama");
    let context = engine.model.info().context;
    let long = vec![5; context];
    let refused = |request: &Request| {
        let mut sequence = Sequence::new(&engine.model, KV);
        let error = generate(&engine.model, &engine.cpu, &mut sequence, request, &mut ()).unwrap_err();
        assert!(sequence.ids().is_empty());
        error
    };
    assert!(matches!(refused(&request(&[])), EngineError::EmptyPrompt));
    assert!(matches!(
        refused(&request(&[1, 999_999])),
        EngineError::PromptToken { index: 1, id: 999_999, .. }
    ));
    assert!(matches!(refused(&Request { max_tokens: Some(0), ..request(&[1]) }), EngineError::Option { .. }));
    assert!(matches!(refused(&Request { prefill_chunk: 0, ..request(&[1]) }), EngineError::Option { .. }));
    assert!(matches!(refused(&request(&long)), EngineError::Context { answer: 6, .. }));
    assert!(matches!(
        refused(&Request { max_tokens: None, ..request(&long) }),
        EngineError::Context { answer: 1, .. }
    ));
    let fits = Request { max_tokens: Some(1), ..request(&long[1..]) };
    assert_eq!(engine.fresh(&fits).ids.len(), 1);
    let too_long = Request { max_tokens: Some(2), ..request(&long[1..]) };
    assert!(matches!(refused(&too_long), EngineError::Context { answer: 2, .. }));
    // Without a limit of its own an answer takes what the context leaves.
    let unlimited = Request { max_tokens: None, ..request(&long[3..]) };
    assert_eq!(engine.fresh(&unlimited).ids.len(), 3);
}
