//! Progress bars, on a terminal only.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where progress goes: a terminal that wants it, or nowhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    visible: bool,
}

impl Progress {
    /// Shows bars when standard error is a terminal and `quiet` is off.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { visible: !quiet && stderr().is_terminal() }
    }

    /// A bar that counts `total` steps of something; it vanishes when dropped.
    pub(crate) fn counter(self, label: &str, total: u64) -> Bar {
        self.bar(label, total, "{msg} [{bar:30}] {pos}/{len} {eta}")
    }

    /// A bar that counts bytes; it vanishes when dropped.
    pub(crate) fn bytes(self, label: &str, total: u64) -> Bar {
        self.bar(label, total, "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}")
    }

    fn bar(self, label: &str, total: u64, template: &str) -> Bar {
        let target = if self.visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        // The templates above are constants; a style that did not parse would only look plainer.
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.set_message(label.to_owned());
        if self.visible {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Bar(bar)
    }
}

/// One bar; it vanishes when dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Shows that `done` of the total is done.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Shows that one more of the total is done.
    pub(crate) fn advance(&self) {
        self.0.inc(1);
    }

    /// Changes the total.
    pub(crate) fn set_total(&self, total: u64) {
        self.0.set_length(total);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
