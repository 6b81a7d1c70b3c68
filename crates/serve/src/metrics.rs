//! Counters and durations, and their text for Prometheus: under our own names, and under those of vLLM that routers read.
//!
//! What cannot be counted honestly is left out.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use samebit_engine::{EngineError, Finish, Load, Reply};

/// Upper bounds of the buckets, in milliseconds.
const BUCKETS: [u64; 18] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000, 300_000,
    600_000,
];

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    stopped: AtomicU64,
    full: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    /// From asking to the first token.
    pub(crate) first_token: Durations,
    /// From one token to the next.
    pub(crate) between_tokens: Durations,
    whole: Durations,
}

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Durations {
    /// Counts one.
    pub(crate) fn observe(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // Prometheus' buckets include their bound.
        if let Some(index) = BUCKETS.iter().position(|bound| nanoseconds <= bound * 1_000_000) {
            self.buckets[index].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts a request that has ended after `duration`.
    pub(crate) fn count(&self, result: &Result<Reply, EngineError>, duration: Duration) {
        let add = |counter: &AtomicU64, number: usize| counter.fetch_add(number as u64, Ordering::Relaxed);
        let Ok(reply) = result else {
            add(&self.failed, 1);
            return;
        };
        // What was cancelled has cost tokens all the same.
        add(&self.prompt_tokens, reply.timings.prefill_tokens + reply.cached_tokens);
        add(&self.cached_tokens, reply.cached_tokens);
        add(&self.generated_tokens, reply.ids.len());
        match reply.finish {
            Finish::Stop => add(&self.stopped, 1),
            Finish::Length => add(&self.full, 1),
            Finish::Cancelled => add(&self.cancelled, 1),
        };
        if reply.finish != Finish::Cancelled {
            self.whole.observe(duration);
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self, about: &About<'_>) -> String {
        let mut page = Page { text: String::new(), model: escaped(about.model) };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
        let load = about.load;
        let reserved = ratio(load.reserved_bytes, load.most_state_bytes);
        let gauges = [
            ("num_requests_running", load.running.to_string(), "Requests that have room."),
            ("num_requests_waiting", load.waiting.to_string(), "Requests that wait for room."),
            (
                "kv_cache_usage_perc",
                reserved.clone(),
                "Share of the memory for states that is set aside, 0 to 1.",
            ),
            ("gpu_cache_usage_perc", reserved, "The same, under its older name."),
        ];
        for (name, value, help) in gauges {
            page.both(name, "gauge", help, &value);
        }
        let counters = [
            ("prompt_tokens_total", &self.prompt_tokens, "Prompt tokens of ended requests."),
            ("generation_tokens_total", &self.generated_tokens, "Tokens of ended answers."),
            (
                "prefix_cache_queries_total",
                &self.prompt_tokens,
                "Prompt tokens that a stored prefix could have held.",
            ),
            ("prefix_cache_hits_total", &self.cached_tokens, "Prompt tokens that a stored prefix held."),
            ("gpu_prefix_cache_queries_total", &self.prompt_tokens, "The same, under its older name."),
            ("gpu_prefix_cache_hits_total", &self.cached_tokens, "The same, under its older name."),
        ];
        for (name, counter, help) in counters {
            page.both(name, "counter", help, &read(counter));
        }
        let ends = [
            ("stop", &self.stopped),
            ("length", &self.full),
            ("abort", &self.cancelled),
            ("error", &self.failed),
        ];
        for prefix in PREFIXES {
            page.head(prefix, "request_success_total", "counter", "Ended requests, by why they ended.");
            for (reason, counter) in ends {
                page.line(
                    prefix,
                    "request_success_total",
                    &format!(",finished_reason=\"{reason}\""),
                    &read(counter),
                );
            }
        }
        page.durations("time_to_first_token_seconds", "From asking to the first token.", &self.first_token);
        page.durations("inter_token_latency_seconds", "From one token to the next.", &self.between_tokens);
        page.durations(
            "time_per_output_token_seconds",
            "The same, under its older name.",
            &self.between_tokens,
        );
        page.durations("e2e_request_latency_seconds", "From asking to the end of the answer.", &self.whole);
        page.info(about);
        page.text
    }
}

/// What is told beside the counters.
pub(crate) struct About<'a> {
    /// Name of the served model.
    pub(crate) model: &'a str,
    /// What runs and waits.
    pub(crate) load: Load,
    /// Positions per page of stored keys and values.
    pub(crate) block_size: usize,
    /// Pages that fit.
    pub(crate) blocks: u64,
    /// Labels of the information metric: name and value.
    pub(crate) info: &'a [(&'static str, &'a str)],
}

/// Ours, then vLLM's.
const PREFIXES: [&str; 2] = ["samebit_", "vllm:"];

struct Page {
    text: String,
    model: String,
}

impl Page {
    fn head(&mut self, prefix: &str, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n");
    }

    fn line(&mut self, prefix: &str, name: &str, labels: &str, value: &str) {
        let model = &self.model;
        let _ = writeln!(self.text, "{prefix}{name}{{model_name=\"{model}\"{labels}}} {value}");
    }

    fn both(&mut self, name: &str, kind: &str, help: &str, value: &str) {
        for prefix in PREFIXES {
            self.head(prefix, name, kind, help);
            self.line(prefix, name, "", value);
        }
    }

    fn durations(&mut self, name: &str, help: &str, durations: &Durations) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read once, so that both names tell the same; the count last read is at least that of the buckets.
        let buckets: Vec<u64> = durations.buckets.iter().map(read).collect();
        let nanoseconds = read(&durations.nanoseconds);
        let count = read(&durations.count).max(buckets.iter().sum());
        for prefix in PREFIXES {
            self.head(prefix, name, "histogram", help);
            let mut below = 0;
            for (bound, bucket) in BUCKETS.iter().zip(&buckets) {
                below += bucket;
                let label = format!(",le=\"{}\"", *bound as f64 / 1_000.0);
                self.line(prefix, &format!("{name}_bucket"), &label, &below.to_string());
            }
            self.line(prefix, &format!("{name}_bucket"), ",le=\"+Inf\"", &count.to_string());
            self.line(prefix, &format!("{name}_sum"), "", &format!("{}", nanoseconds as f64 / 1e9));
            self.line(prefix, &format!("{name}_count"), "", &count.to_string());
        }
    }

    fn info(&mut self, about: &About<'_>) {
        let labels = format!(",block_size=\"{}\",num_gpu_blocks=\"{}\"", about.block_size, about.blocks);
        for prefix in PREFIXES {
            self.head(prefix, "cache_config_info", "gauge", "How memory for states is shared out.");
            self.line(prefix, "cache_config_info", &labels, "1");
        }
        let mut labels = String::new();
        for (name, value) in about.info {
            let _ = write!(labels, ",{name}=\"{}\"", escaped(value));
        }
        self.head(
            "samebit_",
            "info",
            "gauge",
            "What answers here. Replicas with equal labels give equal answers.",
        );
        self.line("samebit_", "info", &labels, "1");
    }
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "0".to_owned() } else { format!("{}", part as f64 / whole as f64) }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_add_up() {
        let metrics = Metrics::default();
        for milliseconds in [1, 3, 3, 700_000] {
            metrics.first_token.observe(Duration::from_millis(milliseconds));
        }
        let load = Load { running: 2, reserved_bytes: 1, most_state_bytes: 4, ..Load::default() };
        let about = About { model: "a\"b", load, block_size: 256, blocks: 3, info: &[("plan_id", "sb1")] };
        let text = metrics.text(&about);
        for line in [
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"0.001\"} 1",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"0.005\"} 3",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"600\"} 3",
            "samebit_time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"+Inf\"} 4",
            "samebit_time_to_first_token_seconds_sum{model_name=\"a\\\"b\"} 700.007",
            "vllm:num_requests_running{model_name=\"a\\\"b\"} 2",
            "vllm:gpu_cache_usage_perc{model_name=\"a\\\"b\"} 0.25",
            "samebit_info{model_name=\"a\\\"b\",plan_id=\"sb1\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
    }
}
