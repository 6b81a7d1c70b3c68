//! Files made to hurt: nothing panics, and no header takes much more memory than it has bytes.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use proptest::prelude::*;
use samebit_checkpoint::gguf::writer::GgufWriter;
use samebit_checkpoint::gguf::{self, GgufArray, GgufValue};
use samebit_checkpoint::{Checkpoint, CheckpointError, Config, DType, TensorEntry, safetensors};
use support::{fixture, raw_safetensors, small_gguf};

/// Bytes of memory that parsing may take at most, for each byte of the file.
const FACTOR: usize = 12;
/// And for messages, paths and other things that do not depend on the file.
const CONSTANT: usize = 16 << 10;

/// The system's allocator, with a count of bytes for each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // Not counted: what a thread frees or allocates while it ends.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        PEAK.try_with(|peak| peak.set(peak.get().max(live.get())))
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches only thread-local cells, which
// neither allocate nor have destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` and returns the most bytes it held at one time.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before) as usize)
}

/// Parses and checks what both parsers promise.
fn within_bounds<T>(
    bytes: &[u8],
    parse: impl FnOnce(&Path, &[u8]) -> Result<T, CheckpointError>,
    tensors: impl FnOnce(&T) -> &[TensorEntry],
) -> bool {
    let (result, peak) = peak_of(|| parse(Path::new("m"), bytes));
    assert!(peak <= FACTOR * bytes.len() + CONSTANT, "{peak} bytes for a file of {}", bytes.len());
    match result {
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("m: ") && message.len() < 2000, "{message}");
            false
        }
        Ok(header) => {
            let mut ranges: Vec<Range<usize>> =
                tensors(&header).iter().map(|tensor| tensor.start..tensor.start + tensor.bytes).collect();
            ranges.sort_by_key(|range| (range.start, range.end));
            assert!(ranges.iter().all(|range| range.end <= bytes.len()));
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            true
        }
    }
}

fn gguf_within_bounds(bytes: &[u8]) -> bool {
    within_bounds(bytes, gguf::parse, |header| &header.tensors)
}

fn safetensors_within_bounds(bytes: &[u8]) -> bool {
    within_bounds(bytes, safetensors::parse, |header| &header.tensors)
}

#[test]
fn the_allocator_counts() {
    let (kept, peak) = peak_of(|| {
        drop(vec![0u8; 100_000]);
        vec![0u8; 1000]
    });
    assert_eq!(kept.len(), 1000);
    assert!((100_000..101_000).contains(&peak), "{peak}");
}

/// Repeats `piece` in a GGUF file with the given counts in its head.
fn gguf_of(tensors: usize, entries: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors as u64).to_le_bytes());
    bytes.extend((entries as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn gguf_files_of_many_small_things() {
    const COUNT: usize = 60_000;
    let array = |array| GgufValue::Array(Box::new(array));
    let one = |value| GgufWriter::default().value("a", value).to_bytes().unwrap();
    // Empty texts, empty arrays, flags: the smallest elements.
    assert!(gguf_within_bounds(&one(array(GgufArray::String(std::iter::repeat_n("", COUNT).collect())))));
    assert!(gguf_within_bounds(&one(array(GgufArray::Array(vec![GgufArray::U8(vec![]); COUNT])))));
    let texts = || GgufArray::String([""].into_iter().collect());
    assert!(gguf_within_bounds(&one(array(GgufArray::Array((0..COUNT).map(|_| texts()).collect())))));
    assert!(gguf_within_bounds(&one(array(GgufArray::Bool(vec![true; COUNT])))));

    let (mut entries, mut arrays, mut tensors) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..COUNT {
        // Names of three bytes, all different.
        let name = [b' ' + (index % 64) as u8, b' ' + (index / 64 % 64) as u8, b' ' + (index / 4096) as u8];
        let named = [&3u64.to_le_bytes()[..], &name].concat();
        entries.extend([&named[..], &0u32.to_le_bytes(), &[7]].concat());
        arrays.extend([&named[..], &9u32.to_le_bytes(), &0u32.to_le_bytes(), &0u64.to_le_bytes()].concat());
        let described = [&1u32.to_le_bytes()[..], &1u64.to_le_bytes(), &24u32.to_le_bytes()].concat();
        tensors.extend([&named[..], &described, &(32 * index as u64).to_le_bytes()].concat());
    }
    assert!(gguf_within_bounds(&gguf_of(0, COUNT, &entries)));
    assert!(gguf_within_bounds(&gguf_of(0, COUNT, &arrays)));
    // Without the data the tensors are out of the file; the memory is taken before that is known.
    assert!(!gguf_within_bounds(&gguf_of(COUNT, 0, &tensors)));
}

#[test]
fn safetensors_files_of_many_small_things() {
    const COUNT: usize = 30_000;
    let join = |piece: &dyn Fn(usize) -> String| (0..COUNT).map(piece).collect::<Vec<_>>().join(",");
    let tensor =
        |index| format!(r#""{index:x}":{{"dtype":"U8","shape":[],"data_offsets":[{index},{}]}}"#, index + 1);
    let bytes = raw_safetensors(&format!("{{{}}}", join(&tensor)), &[0; COUNT]);
    assert!(safetensors_within_bounds(&bytes));
    let pairs = join(&|index| format!(r#""{index:x}":"""#));
    assert!(safetensors_within_bounds(&raw_safetensors(&format!(r#"{{"__metadata__":{{{pairs}}}}}"#), &[])));
    let shape = vec!["1"; 200_000].join(",");
    let long = format!(r#"{{"a":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]}}}}"#);
    assert!(!safetensors_within_bounds(&raw_safetensors(&long, &[0])));
    let unknown = format!(r#"{{"a":{{"dtype":"{}"}}}}"#, "é".repeat(100_000));
    assert!(!safetensors_within_bounds(&raw_safetensors(&unknown, &[])));
    assert!(!safetensors_within_bounds(&raw_safetensors(
        &format!(r#"{{"a":"{}"}}"#, "x".repeat(100_000)),
        &[]
    )));
}

#[test]
fn indexes_of_many_small_things() {
    let folder = tempfile::tempdir().unwrap();
    let pairs: Vec<String> = (0..30_000).map(|index| format!(r#""{index:x}":"{index:x}""#)).collect();
    let text = format!(r#"{{"weight_map":{{{}}}}}"#, pairs.join(","));
    std::fs::write(folder.path().join("model.safetensors.index.json"), &text).unwrap();
    let (result, peak) = peak_of(|| Checkpoint::open(folder.path()));
    assert!(result.unwrap_err().to_string().contains("no such file"));
    assert!(peak <= FACTOR * text.len() + CONSTANT, "{peak} bytes for an index of {}", text.len());
}

/// A safetensors file with everything in it.
fn small_safetensors() -> Vec<u8> {
    use samebit_checkpoint::safetensors::writer::NewTensor;
    support::safetensors(&[
        NewTensor { name: "a.weight", dtype: DType::F32, shape: &[2, 2], data: &[0; 16] },
        NewTensor { name: "b", dtype: DType::U32, shape: &[], data: &[0; 4] },
    ])
}

/// Changes that files suffer.
#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Set(prop::sample::Index, u8),
    Word(prop::sample::Index, u64),
    Cut(prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at(), prop_oneof![any::<u64>(), 0..100u64, Just(u64::MAX), (0..64u32).prop_map(|bit| 1 << bit)])
            .prop_map(|(at, word)| Damage::Word(at, word)),
        at().prop_map(Damage::Cut),
        (at(), at()).prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        match damage {
            Damage::Flip(at, bit) => *at.get_mut(&mut bytes) ^= 1 << bit,
            Damage::Set(at, byte) => *at.get_mut(&mut bytes) = *byte,
            Damage::Word(at, word) => {
                let at = at.index(bytes.len());
                let length = (bytes.len() - at).min(8);
                bytes[at..at + length].copy_from_slice(&word.to_le_bytes()[..length]);
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Repeat(from, to) => {
                let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
                let piece = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(!gguf_within_bounds(&bytes));
        safetensors_within_bounds(&bytes);
        gguf_within_bounds(&gguf_of(1, 1, &bytes));
        let text: String = bytes.iter().map(|byte| char::from(byte % 128)).collect();
        safetensors_within_bounds(&raw_safetensors(&text, &bytes));
        let _ = Config::parse(Path::new("m"), &bytes);
    }

    #[test]
    fn damaged_small_gguf(damages in proptest::collection::vec(damage(), 1..4)) {
        gguf_within_bounds(&damaged(small_gguf().to_bytes().unwrap(), &damages));
    }

    #[test]
    fn damaged_safetensors(damages in proptest::collection::vec(damage(), 1..4)) {
        safetensors_within_bounds(&damaged(small_safetensors(), &damages));
    }

    #[test]
    fn damaged_json(damages in proptest::collection::vec(damage(), 1..4)) {
        let text = br#"{"quantization": {"bits": 4, "m": {"mode": "mxfp4"}, "n": true}, "a": [1.5, Infinity, -1e9]}"#;
        let _ = Config::parse(Path::new("m"), &damaged(text.to_vec(), &damages));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_fixture(damages in proptest::collection::vec(damage(), 1..4)) {
        // The head of the file, so that most damage hits the header.
        let bytes = std::fs::read(fixture("gguf-quant/all-types.gguf")).unwrap();
        let mut head = damaged(bytes[..1573].to_vec(), &damages);
        head.extend(&bytes[1573..]);
        gguf_within_bounds(&head);
    }
}
