//! The figures that benchmark programs print.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::measure::{Kind, Test};
use super::rates::median;

/// A speed that a program printed, and what it is the speed of as far as it says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    kind: Kind,
    threads: Option<usize>,
    batch: usize,
    depth: usize,
    /// Tokens of one sequence.
    tokens_each: Option<usize>,
    pub(super) tok_s: f64,
}

impl Figure {
    /// Whether this is a figure for `test`.
    pub(super) fn is_of(&self, test: &Test) -> bool {
        self.kind == test.kind
            && self.threads.is_none_or(|threads| threads == test.threads)
            && self.batch == test.batch
            && self.depth == test.depth
            && self.tokens_each.is_none_or(|tokens| tokens == test.tokens_each)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, batch, depth, tok_s, .. } = self;
        write!(f, "test={kind} batch={batch} depth={depth} tok_s={tok_s}")?;
        self.threads.map_or(Ok(()), |threads| write!(f, " threads={threads}"))?;
        self.tokens_each.map_or(Ok(()), |tokens| write!(f, " tokens={tokens}"))
    }
}

/// Every figure in what a program printed: JSON or a table of llama-bench, JSON of llama-batched-bench, or lines that
/// begin with `test=`.
pub(super) fn parse(printed: &str) -> Vec<Figure> {
    let mut figures: Vec<Figure> = match serde_json::from_str(printed.trim()) {
        Ok(Value::Array(records)) => records.into_iter().flat_map(from_record).collect(),
        _ => from_lines(printed),
    };
    figures.retain(|figure| figure.tok_s.is_finite() && figure.tok_s > 0.0);
    figures
}

fn from_lines(printed: &str) -> Vec<Figure> {
    let mut columns = None;
    let mut figures = Vec::new();
    for line in printed.lines().map(str::trim) {
        match line.as_bytes().first() {
            Some(b'{') => figures.extend(from_json_line(line)),
            Some(b'|') => figures.extend(from_table(&mut columns, line)),
            _ => figures.extend(from_words(line)),
        }
    }
    figures
}

/// The figures of one record in one line.
fn from_json_line(line: &str) -> Vec<Figure> {
    // llama-batched-bench writes the speed of nothing as C does, which is no JSON.
    let line = line.replace(": -nan", ": null").replace(": nan", ": null").replace(": inf", ": null");
    serde_json::from_str(&line).map_or_else(|_| Vec::new(), from_record)
}

fn from_record(record: Value) -> Vec<Figure> {
    if record.get("pl").is_some() {
        return serde_json::from_value(record).map_or_else(|_| Vec::new(), BatchedRecord::into_figures);
    }
    serde_json::from_value(record).ok().and_then(Record::into_figure).into_iter().collect()
}

/// What of a record of llama-bench's JSON is of interest.
#[derive(Deserialize)]
struct Record {
    n_prompt: usize,
    n_gen: usize,
    #[serde(default)]
    n_depth: usize,
    n_threads: usize,
    avg_ts: f64,
    #[serde(default)]
    samples_ts: Vec<f64>,
}

impl Record {
    fn into_figure(self) -> Option<Figure> {
        let (kind, tokens) = match (self.n_prompt, self.n_gen) {
            (prompt, 0) => (Kind::Prefill, prompt),
            (0, generate) => (Kind::Decode, generate),
            // Prefill and decode in one figure is neither.
            _ => return None,
        };
        let tok_s = if self.samples_ts.is_empty() { self.avg_ts } else { median(&self.samples_ts) };
        Some(Figure {
            kind,
            threads: Some(self.n_threads),
            batch: 1,
            depth: self.n_depth,
            tokens_each: Some(tokens),
            tok_s,
        })
    }
}

/// What of a record of llama-batched-bench's JSON is of interest: `pl` sequences are filled with `pp` tokens each, then
/// `tg` tokens are decoded behind them in all sequences at once.
#[derive(Deserialize)]
struct BatchedRecord {
    pp: usize,
    tg: usize,
    pl: usize,
    /// Whether one sequence was filled for all.
    #[serde(default)]
    is_pp_shared: u8,
    n_threads: Option<usize>,
    n_threads_batch: Option<usize>,
    /// Tokens per second of all sequences together; none where there were no tokens.
    speed_pp: Option<f64>,
    speed_tg: Option<f64>,
}

impl BatchedRecord {
    fn into_figures(self) -> Vec<Figure> {
        let prefill = self.speed_pp.map(|tok_s| Figure {
            kind: Kind::Prefill,
            threads: self.n_threads_batch.or(self.n_threads),
            batch: if self.is_pp_shared == 0 { self.pl } else { 1 },
            depth: 0,
            tokens_each: Some(self.pp),
            tok_s,
        });
        let decode = self.speed_tg.map(|tok_s| Figure {
            kind: Kind::Decode,
            threads: self.n_threads,
            batch: self.pl,
            depth: self.pp,
            tokens_each: Some(self.tg),
            tok_s,
        });
        prefill.into_iter().chain(decode).collect()
    }
}

/// Which column of a table holds what.
#[derive(Clone, Copy)]
struct Columns {
    test: usize,
    rate: usize,
    threads: Option<usize>,
}

/// One line of llama-bench's table; `columns` is what its header said.
fn from_table(columns: &mut Option<Columns>, line: &str) -> Option<Figure> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let column = |name: &str| cells.iter().position(|cell| *cell == name);
    if let (Some(test), Some(rate)) = (column("test"), column("t/s")) {
        *columns = Some(Columns { test, rate, threads: column("threads") });
        return None;
    }
    let columns = columns.as_ref()?;
    let (test, depth) = match cells.get(columns.test)?.split_once(" @ d") {
        Some((test, depth)) => (test, depth.parse().ok()?),
        None => (*cells.get(columns.test)?, 0),
    };
    let (kind, tokens) = match (test.strip_prefix("pp"), test.strip_prefix("tg")) {
        (Some(tokens), _) => (Kind::Prefill, tokens.parse().ok()?),
        (_, Some(tokens)) => (Kind::Decode, tokens.parse().ok()?),
        _ => return None,
    };
    Some(Figure {
        kind,
        threads: columns.threads.and_then(|at| cells.get(at)?.parse().ok()),
        batch: 1,
        depth,
        tokens_each: Some(tokens),
        tok_s: cells.get(columns.rate)?.split_whitespace().next()?.parse().ok()?,
    })
}

/// One line of words `name=value`.
fn from_words(line: &str) -> Option<Figure> {
    let word = |name: &str| {
        line.split_whitespace()
            .find_map(|word| word.split_once('=').filter(|pair| pair.0 == name))
            .map(|p| p.1)
    };
    if !line.starts_with("test=") {
        return None;
    }
    let kind = match word("test")? {
        "prefill" => Kind::Prefill,
        "decode" => Kind::Decode,
        _ => return None,
    };
    Some(Figure {
        kind,
        threads: Some(word("threads")?.parse().ok()?),
        batch: word("batch").unwrap_or("1").parse().ok()?,
        depth: word("depth")?.parse().ok()?,
        tokens_each: None,
        tok_s: word("tok_s")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(threads: Option<usize>, depth: usize, tokens_each: Option<usize>, tok_s: f64) -> Figure {
        Figure { kind: Kind::Decode, threads, batch: 1, depth, tokens_each, tok_s }
    }

    #[test]
    fn records_of_llama_bench() {
        let record = r#"{"n_threads": 2, "n_prompt": 0, "n_gen": 16, "n_depth": 64, "avg_ts": 3.0,
            "samples_ts": [1.0, 2.0, 6.0], "model_type": "x"}"#;
        let expected = decode(Some(2), 64, Some(16), 2.0);
        assert_eq!(parse(&format!("[{record}]\n")), std::slice::from_ref(&expected));
        assert_eq!(parse(&record.replace('\n', " ")), std::slice::from_ref(&expected));
        let mixed = record.replace("\"n_prompt\": 0", "\"n_prompt\": 8");
        assert_eq!(parse(&format!("[{record}, {mixed}]")), [expected]);
        let prefill = r#"[{"n_threads": 1, "n_prompt": 512, "n_gen": 0, "avg_ts": 100.5}]"#;
        let found = parse(prefill);
        assert_eq!((found[0].kind, found[0].tokens_each, found[0].tok_s), (Kind::Prefill, Some(512), 100.5));
    }

    #[test]
    fn tables_of_llama_bench() {
        let table = "\
| model          |       size | threads |            test |                  t/s |
| -------------- | ---------: | ------: | --------------: | -------------------: |
| llama 256M     |  92.10 MiB |       1 |           pp512 |        170.25 ± 1.50 |
| llama 256M     |  92.10 MiB |       1 |      tg16 @ d64 |         68.10 ± 0.00 |

build: unknown (11434)
";
        let found = parse(table);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].kind, found[0].tok_s), (Kind::Prefill, 170.25));
        assert_eq!(found[1], decode(Some(1), 64, Some(16), 68.1));
        let without_threads =
            table.replace("| threads ", "").replace("|       1 ", "").replace(" ------: |", "");
        assert_eq!(parse(&without_threads)[1], decode(None, 64, Some(16), 68.1));
    }

    #[test]
    fn records_of_llama_batched_bench() {
        let record = r#"{"n_kv_max": 4096, "n_batch": 2048, "n_ubatch": 512, "flash_attn": -1, "is_pp_shared": 0,
            "n_gpu_layers": -1, "n_threads": 2, "n_threads_batch": 1, "pp": 32, "tg": 16, "pl": 4, "n_kv": 192,
            "t_pp": 3.1, "speed_pp": 41.5, "t_tg": 26.9, "speed_tg": 4.5, "t": 30.0, "speed": 8.5}"#
            .replace('\n', "");
        let prefill = Figure {
            kind: Kind::Prefill,
            threads: Some(1),
            batch: 4,
            depth: 0,
            tokens_each: Some(32),
            tok_s: 41.5,
        };
        let decode = Figure { batch: 4, ..decode(Some(2), 32, Some(16), 4.5) };
        assert_eq!(parse(&format!("\n{record}\n\n")), [prefill.clone(), decode.clone()]);
        assert_eq!(parse(&format!("{record}\n{record}\n")).len(), 4);

        let shared = record.replace(r#""is_pp_shared": 0"#, r#""is_pp_shared": 1"#);
        assert_eq!(parse(&shared), [Figure { batch: 1, ..prefill.clone() }, decode.clone()]);
        let only_prefill = record.replace("4.5", "-nan").replace(r#""tg": 16"#, r#""tg": 0"#);
        assert_eq!(parse(&only_prefill), [prefill]);
        let only_decode = record.replace("41.5", "0.000000").replace(r#""pp": 32"#, r#""pp": 0"#);
        assert_eq!(parse(&only_decode), [Figure { depth: 0, ..decode }]);
    }

    #[test]
    fn lines_of_words() {
        let text = "loading\ntest=decode threads=2 depth=512 tok_s=47.25 load_s=6.1\n";
        assert_eq!(parse(text), [decode(Some(2), 512, None, 47.25)]);
        let batched = parse("test=decode threads=2 depth=0 batch=4 tok_s=100");
        assert_eq!(batched[0].batch, 4);
    }

    #[test]
    fn what_is_no_figure_is_left_alone() {
        for text in [
            "",
            "[]",
            "{",
            "[1, {}]",
            r#"{"pl": 4}"#,
            r#"{"pl": "4", "pp": 1, "tg": 1, "speed_pp": 1.0, "speed_tg": 1.0}"#,
            r#"[{"n_threads": 1, "n_prompt": 8, "n_gen": 0, "avg_ts": 0.0}]"#,
            "test=decode threads=2 depth=512",
            "test=decode threads=2 depth=512 tok_s=fast",
            "test=decode threads=2 depth=512 tok_s=nan",
            "test=decode threads=2 depth=512 tok_s=0",
            "test=decode threads=-2 depth=512 tok_s=1",
            "a test=decode threads=2 depth=512 tok_s=1",
            "test=other threads=2 depth=512 tok_s=1",
            "| test | t/s |\n| pp |",
            "| a | tg16 | 3.0 |",
        ] {
            assert_eq!(parse(text), [], "{text}");
        }
    }

    #[test]
    fn a_figure_has_to_be_for_the_test() {
        let test = Test { kind: Kind::Decode, threads: 2, batch: 1, depth: 64, tokens_each: 16 };
        assert!(decode(Some(2), 64, Some(16), 1.0).is_of(&test));
        assert!(decode(None, 64, None, 1.0).is_of(&test));
        assert!(!decode(Some(1), 64, None, 1.0).is_of(&test));
        assert!(!decode(None, 0, None, 1.0).is_of(&test));
        assert!(!decode(None, 64, Some(8), 1.0).is_of(&test));
        assert!(!Figure { batch: 2, ..decode(None, 64, None, 1.0) }.is_of(&test));
        assert!(!Figure { kind: Kind::Prefill, ..decode(None, 64, None, 1.0) }.is_of(&test));
    }
}
