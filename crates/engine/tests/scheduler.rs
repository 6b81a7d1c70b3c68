//! Many requests at once answer as each would alone, whatever arrives, leaves or is put aside meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_engine::{
    Bank, BankOptions, Client, EngineError, Finish, Flow, MemoryPlan, MissReason, Observer, Priority, Reply,
    Request, SamplingOptions, Scheduler, SchedulerOptions, Sequence, Service, Source, Submission, generate,
};
use samebit_models::Model;

const KV: KvType = KvType::F16;

fn folder(fixture: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture).join("model")
}

fn load(fixture: &str) -> Arc<Model> {
    load_from(&folder(fixture))
}

fn load_from(folder: &Path) -> Arc<Model> {
    let checkpoint = Arc::new(Checkpoint::open(folder).unwrap());
    Arc::new(Model::load(checkpoint, &cpu(1), &mut |_| {}).unwrap())
}

/// The llama fixture with another context length.
fn with_context(tokens: usize) -> Arc<Model> {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder("llama")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let config = copy.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let longer =
        text.replace("\"max_position_embeddings\": 256", &format!("\"max_position_embeddings\": {tokens}"));
    assert_ne!(text, longer);
    std::fs::write(&config, longer).unwrap();
    load_from(copy.path())
}

fn cpu(threads: usize) -> Cpu {
    Cpu::new(Isa::detect(), threads).unwrap()
}

/// A small generator (xorshift), so that every schedule can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn request(&mut self) -> Request {
        let longest = if self.below(4) == 0 { 220 } else { 40 };
        let length = 1 + self.below(longest);
        let temperature = if self.below(2) == 0 { 0.0 } else { 0.9 };
        Request {
            prompt: (0..length).map(|_| self.below(200) as u32).collect(),
            end_ids: vec![3, 4],
            sampling: SamplingOptions { temperature, ..SamplingOptions::default() },
            max_tokens: Some(1 + self.below(20)),
            prefill_chunk: 1 + self.below(64),
            ..Request::default()
        }
    }
}

type Result = std::result::Result<Reply, EngineError>;

/// Keeps what a client hears, and leaves after some tokens.
#[derive(Clone)]
struct Listener {
    ids: Arc<Mutex<Vec<u32>>>,
    result: Arc<Mutex<Option<Result>>>,
    leaves_after: usize,
    gone: Arc<AtomicBool>,
}

impl Listener {
    fn new(leaves_after: usize) -> Self {
        Self {
            ids: Arc::default(),
            result: Arc::default(),
            leaves_after,
            gone: Arc::new(AtomicBool::new(leaves_after == 0)),
        }
    }

    fn result(&self) -> Option<Result> {
        self.result.lock().unwrap().take()
    }
}

impl Observer for Listener {
    fn token(&mut self, id: u32) -> std::result::Result<Flow, EngineError> {
        let mut ids = self.ids.lock().unwrap();
        ids.push(id);
        if ids.len() >= self.leaves_after {
            self.gone.store(true, Ordering::Relaxed);
        }
        Ok(Flow::Continue)
    }

    fn cancelled(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

impl Client for Listener {
    fn finished(self: Box<Self>, result: Result) {
        let before = self.result.lock().unwrap().replace(result);
        assert!(before.is_none(), "a client is told once");
    }
}

fn options(model: &Model, tokens: usize) -> SchedulerOptions {
    SchedulerOptions {
        kv: KV,
        step_rows: 32,
        max_running: 8,
        max_waiting: 1000,
        state_bytes: MemoryPlan::of(model, KV, 0).bytes_for(tokens),
        seed_salt: String::new(),
    }
}

/// A session bank in memory; with 0 bytes it keeps nothing.
fn bank(model: &Model, memory_bytes: usize) -> Bank {
    let options =
        BankOptions { memory_bytes: memory_bytes as u64, minimum_prefix: 1, ..BankOptions::default() };
    Bank::open(options, "weights", model.state_decoder(KV)).unwrap()
}

fn alone(model: &Model, request: &Request) -> Reply {
    generate(model, &cpu(1), &mut Sequence::new(model, KV), request, &mut ()).unwrap()
}

fn submission(request: &Request, priority: Priority, client: &Listener) -> Submission {
    Submission {
        request: request.clone(),
        priority,
        cache_salt: String::new(),
        client: Box::new(client.clone()),
    }
}

/// Runs random arrivals, departures and priorities, and compares every answer with the same request alone. Returns how
/// many prompt tokens came out of a session bank.
fn schedule(model: &Arc<Model>, seed: u64, threads: usize) -> usize {
    let mut random = Random(seed);
    let step_rows = 1 + random.below(40);
    // From room for about one request to room for all.
    let tokens = 512 * (1 + random.below(8));
    let options = SchedulerOptions { step_rows, max_running: 1 + random.below(6), ..options(model, tokens) };
    let bank = (random.below(3) > 0).then(|| bank(model, random.below(2) * 4_000_000));
    let has_bank = bank.is_some();
    let mut scheduler = Scheduler::new(Arc::clone(model), cpu(threads), options.clone(), bank).unwrap();
    let mut asked: Vec<(Request, Listener)> = Vec::new();
    let (mut widest, mut cached) = (0, 0);
    for _ in 0..40 {
        for _ in 0..random.below(3) {
            let mut request = random.request();
            // Half of them go on from what was said before, as conversations do.
            if let Some((earlier, listener)) = asked.get(random.below(2 * asked.len().max(1))) {
                let said = listener.ids.lock().unwrap();
                let kept = 1 + random.below(earlier.prompt.len());
                let beginning = earlier.prompt[..kept].iter().chain(&*said);
                request.prompt = beginning.chain(&request.prompt).copied().take(230).collect();
            }
            let leaves_after = if random.below(4) == 0 { random.below(6) } else { usize::MAX };
            let priority = if random.below(3) == 0 { Priority::Background } else { Priority::Normal };
            let listener = Listener::new(leaves_after);
            scheduler.submit(submission(&request, priority, &listener));
            asked.push((request, listener));
        }
        for _ in 0..random.below(6) {
            scheduler.step();
            let load = scheduler.load();
            assert!(load.reserved_bytes <= options.state_bytes && load.running <= options.max_running);
            assert!(load.state_bytes <= load.reserved_bytes, "states outgrew what was set aside");
        }
    }
    for _ in 0..100_000 {
        if scheduler.is_idle() {
            break;
        }
        scheduler.step();
    }
    assert!(scheduler.is_idle(), "seed {seed}: requests starve");
    for (index, (request, listener)) in asked.iter().enumerate() {
        let reply = listener.result().expect("every client hears the end").unwrap();
        assert_eq!(*listener.ids.lock().unwrap(), reply.ids);
        widest = widest.max(reply.widest_pass);
        cached += reply.cached_tokens;
        let whole = alone(model, request);
        if reply.finish == Finish::Cancelled {
            assert!(whole.ids.starts_with(&reply.ids), "seed {seed}, request {index}");
            let shorter = Request { max_tokens: Some(reply.ids.len().max(1)), ..request.clone() };
            if !reply.ids.is_empty() {
                assert_eq!(alone(model, &shorter).chain, reply.chain, "seed {seed}, request {index}");
            }
        } else {
            assert_eq!(
                (&reply.ids, &reply.chain, reply.finish, reply.seed),
                (&whole.ids, &whole.chain, whole.finish, whole.seed),
                "seed {seed}, request {index}"
            );
        }
    }
    assert!(step_rows == 1 || widest > 1, "seed {seed}: no pass was shared");
    assert!(has_bank || cached == 0, "seed {seed}: a prefix came from nowhere");
    cached
}

#[test]
fn random_schedules_change_no_bit() {
    for fixture in ["llama", "gemma3", "qwen3_moe"] {
        let model = load(fixture);
        let cached: usize =
            (1..=8).map(|seed| schedule(&model, 0x9E37_79B9 * seed, 1 + (seed % 2) as usize)).sum();
        assert!(cached > 0, "{fixture}: no prefix was reused");
    }
}

#[test]
fn background_yields_and_comes_back_with_the_same_bits() {
    let model = load("llama");
    let mut random = Random(77);
    let request = |random: &mut Random, tokens| Request {
        max_tokens: Some(tokens),
        end_ids: vec![],
        ..random.request()
    };
    let slow = request(&mut random, 40);
    let urgent = request(&mut random, 5);
    // Room for one of them at a time.
    let options = options(&model, slow.prompt.len().max(urgent.prompt.len()) + 40);
    let mut scheduler = Scheduler::new(Arc::clone(&model), cpu(1), options, None).unwrap();
    let (background, normal) = (Listener::new(usize::MAX), Listener::new(usize::MAX));
    scheduler.submit(submission(&slow, Priority::Background, &background));
    while background.ids.lock().unwrap().len() < 10 {
        scheduler.step();
    }
    scheduler.submit(submission(&urgent, Priority::Normal, &normal));
    let written = background.ids.lock().unwrap().len();
    let reply = loop {
        scheduler.step();
        if let Some(result) = normal.result() {
            break result.unwrap();
        }
        assert_eq!(background.ids.lock().unwrap().len(), written, "it wrote while someone else waited");
    };
    assert_eq!(reply.chain, alone(&model, &urgent).chain);
    while !scheduler.is_idle() {
        scheduler.step();
    }
    let reply = background.result().unwrap().unwrap();
    let whole = alone(&model, &slow);
    assert_eq!((reply.ids, reply.chain), (whole.ids, whole.chain));
}

#[test]
fn the_next_turn_finds_prompt_and_reply_whole() {
    let model = load("llama");
    let mut scheduler =
        Scheduler::new(Arc::clone(&model), cpu(1), options(&model, 4096), Some(bank(&model, 64 << 20)))
            .unwrap();
    let answer = |scheduler: &mut Scheduler, prompt: &[u32], salt: &str| {
        let prompt = prompt.to_vec();
        let request = Request { prompt, max_tokens: Some(12), prefill_chunk: 16, ..Request::default() };
        let listener = Listener::new(usize::MAX);
        let submission =
            Submission { cache_salt: salt.to_owned(), ..submission(&request, Priority::Normal, &listener) };
        scheduler.submit(submission);
        while !scheduler.is_idle() {
            scheduler.step();
        }
        let reply = listener.result().unwrap().unwrap();
        assert_eq!(reply.chain, alone(&model, &request).chain);
        reply
    };
    let prompt: Vec<u32> = (10..56).collect();
    let first = answer(&mut scheduler, &prompt, "");
    assert_eq!((first.cached_tokens, first.source), (0, Source::None));
    assert_eq!(first.miss.map(MissReason::name), Some("new_session"));
    let next = [&prompt[..], &first.ids, &[9, 8, 7]].concat();
    let second = answer(&mut scheduler, &next, "");
    assert_eq!((second.cached_tokens, second.source, second.miss), (46 + 12, Source::Memory, None));
    // Another tenant cannot tell that anybody said this before.
    let other = answer(&mut scheduler, &next, "other");
    assert_eq!((other.cached_tokens, other.miss.map(MissReason::name)), (0, Some("new_session")));
    // The same prompt again: all but its last token.
    let again = answer(&mut scheduler, &prompt, "");
    assert_eq!(again.cached_tokens, 45);
}

#[test]
fn what_cannot_be_served_is_refused_with_its_numbers() {
    let model = load("llama");
    let long = Request { max_tokens: Some(20), ..Random(5).request() };
    let refused = |scheduler: &mut Scheduler, request: &Request| {
        let listener = Listener::new(usize::MAX);
        scheduler.submit(submission(request, Priority::Normal, &listener));
        listener.result().map(|result| result.unwrap_err())
    };
    let patient = with_context(1024);
    let mut scheduler = Scheduler::new(Arc::clone(&patient), cpu(1), options(&patient, 512), None).unwrap();
    let over = Request { prompt: vec![1; 500], ..long.clone() };
    let error = refused(&mut scheduler, &over).unwrap();
    assert!(matches!(error, EngineError::Memory { tokens: 520, fits: 512, .. }), "{error}");
    assert!(matches!(
        refused(&mut scheduler, &Request { prompt: vec![], ..long.clone() }).unwrap(),
        EngineError::EmptyPrompt
    ));

    let few = SchedulerOptions { max_running: 1, max_waiting: 2, ..options(&model, 4096) };
    let mut scheduler = Scheduler::new(Arc::clone(&model), cpu(1), few, None).unwrap();
    assert!(refused(&mut scheduler, &long).is_none());
    scheduler.step();
    for _ in 0..2 {
        assert!(refused(&mut scheduler, &long).is_none());
    }
    let error = refused(&mut scheduler, &long).unwrap();
    assert!(matches!(error, EngineError::Busy { waiting: 2, running: 1 }), "{error}");

    for wrong in [
        SchedulerOptions { step_rows: 0, ..options(&model, 256) },
        SchedulerOptions { max_running: 0, ..options(&model, 256) },
        SchedulerOptions { state_bytes: 10, ..options(&model, 256) },
    ] {
        assert!(matches!(
            Scheduler::new(Arc::clone(&model), cpu(1), wrong, None),
            Err(EngineError::Option { .. })
        ));
    }
}

#[test]
fn a_service_answers_from_other_threads_and_drains() {
    let model = load("llama");
    let scheduler = Scheduler::new(Arc::clone(&model), cpu(2), options(&model, 4096), None).unwrap();
    let service = Service::start(scheduler).unwrap();
    let asked: Vec<(Request, Listener)> =
        (1..=12).map(|seed| (Random(seed * 31).request(), Listener::new(usize::MAX))).collect();
    std::thread::scope(|scope| {
        for (request, listener) in &asked {
            let service = &service;
            scope.spawn(move || service.submit(submission(request, Priority::Normal, listener)));
        }
    });
    service.drain();
    for (request, listener) in &asked {
        let reply = listener.result().unwrap().unwrap();
        assert_eq!(reply.chain, alone(&model, request).chain);
    }
    let late = Listener::new(usize::MAX);
    service.submit(submission(&asked[0].0, Priority::Normal, &late));
    assert!(matches!(late.result().unwrap(), Err(EngineError::ShutDown(_))));
}

/// A client whose own code fails.
struct Faulty;

impl Observer for Faulty {
    fn token(&mut self, _: u32) -> std::result::Result<Flow, EngineError> {
        panic!("the client is at fault")
    }
}

impl Client for Faulty {
    fn finished(self: Box<Self>, _: Result) {}
}

#[test]
fn a_panic_is_told_to_those_who_wait_and_to_those_who_come() {
    let model = load("llama");
    let scheduler = Scheduler::new(Arc::clone(&model), cpu(1), options(&model, 4096), None).unwrap();
    let service = Service::start(scheduler).unwrap();
    let request = Random(9).request();
    service.submit(Submission {
        request: request.clone(),
        priority: Priority::Normal,
        cache_salt: String::new(),
        client: Box::new(Faulty),
    });
    let waits = Listener::new(usize::MAX);
    service.submit(submission(&request, Priority::Normal, &waits));
    service.drain();
    assert!(waits.result().unwrap().unwrap_err().to_string().contains("the client is at fault"));
    assert!(matches!(service.health(), samebit_engine::Health::Dead(_)));
}
