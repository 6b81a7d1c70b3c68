//! `samebit pull`: fetches models and verifies them.

use serde_json::json;

use super::print_json;
use crate::cli::PullArguments;
use crate::failure::Failure;
use crate::pull::{self, Settings};
use crate::terminal;

pub(super) fn run(arguments: &PullArguments) -> Result<(), Failure> {
    let mut settings = Settings::from_environment()?;
    settings.quiet = arguments.output.quiet;
    settings.refresh = arguments.refresh;
    let mut pulled = Vec::with_capacity(arguments.models.len());
    for model in &arguments.models {
        let path = pull::resolve(model, &settings)?;
        if !arguments.output.json {
            terminal::print(&format!("{}\n", path.display()))?;
        }
        pulled.push(json!({ "model": model, "path": path.display().to_string() }));
    }
    if arguments.output.json {
        print_json(&json!({ "models": pulled }))?;
    }
    Ok(())
}
