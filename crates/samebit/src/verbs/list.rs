//! `samebit list`: the models that have a name.

use serde_json::json;

use super::{print_json, size};
use crate::cli::ListArguments;
use crate::failure::Failure;
use crate::pull::{self, DEFAULT_MODEL, Listing, Settings};
use crate::terminal;

pub(super) fn run(arguments: &ListArguments) -> Result<(), Failure> {
    let listings = pull::list(&Settings::from_environment()?);
    if arguments.output.json {
        let models: Vec<_> = listings.iter().map(as_json).collect();
        return print_json(&json!({ "models": models }));
    }
    let mut text = String::new();
    for Listing { model, path, present } in &listings {
        let default = if model.name == DEFAULT_MODEL { " (default)" } else { "" };
        let place =
            if *present { path.display().to_string() } else { format!("samebit pull {}", model.name) };
        text += &format!(
            "{}{default}\n  {}\n  {}, {}\n  {place}\n",
            model.name,
            model.about,
            size(model.bytes),
            model.license,
        );
    }
    Ok(terminal::print(&text)?)
}

fn as_json(listing: &Listing) -> serde_json::Value {
    let model = listing.model;
    json!({
        "name": model.name,
        "default": model.name == DEFAULT_MODEL,
        "file": model.file,
        "bytes": model.bytes,
        "sha256": model.sha256,
        "license": model.license,
        "about": model.about,
        "path": listing.path.display().to_string(),
        "present": listing.present,
    })
}
