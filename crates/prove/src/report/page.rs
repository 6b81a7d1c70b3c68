//! The page: its head, the verdict, the facts, and the checks one after another.

use super::{badge, checks, class, count, counted, duration, escaped};
use crate::receipt::{Receipt, Verdict};

/// The receipt as one self-contained HTML page.
#[must_use]
pub fn html(receipt: &Receipt) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{}: {} - samebit prove</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        receipt.verdict.word(),
        escaped(&receipt.model.name),
        include_str!("style.css")
    );
    page += &verdict(receipt);
    page += &overview(receipt);
    page += &facts(receipt);
    for (index, check) in receipt.checks.iter().enumerate() {
        page += &checks::section(index + 1, check);
    }
    page += &format!(
        "<footer>Written by samebit {}. The same findings for programs are in <code>receipts.json</code>.</footer>\n",
        escaped(&receipt.samebit)
    );
    page + "</main>\n</body>\n</html>\n"
}

/// The verdict in one sentence, and the numbers behind it.
fn verdict(receipt: &Receipt) -> String {
    let cases: u64 = receipt.checks.iter().map(|check| check.cases).sum();
    let failed: u64 = receipt.checks.iter().map(|check| check.failed).sum();
    let compared: u64 = receipt.checks.iter().flat_map(|check| &check.rows).map(|case| case.compared).sum();
    let sentence = match receipt.verdict {
        Verdict::Pass if !receipt.options.only.is_empty() => {
            "In the checks that were asked for, this model gave the same result, bit for bit.".to_owned()
        }
        Verdict::Pass => "This model gave the same result, bit for bit, however it was computed.".to_owned(),
        Verdict::Fail if failed > 0 => format!(
            "This model did not always give the same result: {} of {} differ.",
            count(failed),
            counted(cases, "comparison", "comparisons")
        ),
        Verdict::Fail => "A check had nothing to compare, so nothing is shown about this model.".to_owned(),
        Verdict::CouldNotRun => "Not everything could be run, so this is no proof.".to_owned(),
        Verdict::Unchecked => {
            "Nothing differed, but a part that had to run did not, so this is no proof.".to_owned()
        }
    };
    let mut text = format!(
        "<header class=\"verdict {}\">\n<p class=\"kicker\">samebit prove</p>\n<h1>{}</h1>\n<p>{}</p>\n\
         <p class=\"sentence\">{sentence}</p>\n<ul class=\"numbers\">\n",
        class(receipt.verdict),
        escaped(&receipt.model.name),
        badge(receipt.verdict),
    );
    for (number, what) in [
        (count(receipt.checks.len() as u64), "checks"),
        (count(cases), "cases"),
        (count(failed), "cases that differ"),
        (count(compared), "numbers compared"),
        (duration(receipt.milliseconds), "in all"),
    ] {
        text += &format!("<li><b>{number}</b> {what}</li>\n");
    }
    text += "</ul>\n";
    if !receipt.options.only.is_empty() {
        let names: Vec<_> = receipt.options.only.iter().map(|name| escaped(name)).collect();
        text += &format!("<p class=\"note\">Only some checks were asked for: {}.</p>\n", names.join(", "));
    }
    if receipt.options.quick {
        text += "<p class=\"note\">This was a quick run, with fewer cases than a full one.</p>\n";
    }
    text + "</header>\n"
}

/// One line for every check.
fn overview(receipt: &Receipt) -> String {
    let mut text =
        "<section>\n<h2>Checks</h2>\n<table class=\"overview\">\n<thead><tr><th scope=\"col\">Check</th>\
                    <th scope=\"col\">Verdict</th><th scope=\"col\" class=\"number\">Cases</th>\
                    <th scope=\"col\" class=\"number\">Differ</th></tr></thead>\n<tbody>\n"
            .to_owned();
    for (index, check) in receipt.checks.iter().enumerate() {
        text += &format!(
            "<tr><th scope=\"row\"><a href=\"#check-{}\">{}</a></th><td>{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td></tr>\n",
            index + 1,
            escaped(&check.name),
            badge(check.verdict),
            count(check.cases),
            count(check.failed)
        );
    }
    text + "</tbody>\n</table>\n</section>\n"
}

/// What ran, by which arithmetic, on what.
fn facts(receipt: &Receipt) -> String {
    let (model, machine, options) = (&receipt.model, &receipt.machine, &receipt.options);
    let facts = [
        ("Plan", format!("{}<br/><code>{}</code>", escaped(&receipt.plan), escaped(&receipt.plan_id))),
        ("Family", escaped(&model.family)),
        ("Weights", count(model.parameters)),
        ("Layers", count(model.layers)),
        ("Hidden state", counted(model.hidden, "column", "columns")),
        ("Vocabulary", counted(model.vocabulary, "id", "ids")),
        ("Longest context", counted(model.context, "token", "tokens")),
        ("Keys and values", escaped(&options.kv)),
        ("Processor", escaped(&machine.processor)),
        ("Instruction sets", escaped(&machine.isas.join(", "))),
        ("Threads", count(machine.threads)),
        ("Seed", count(options.seed)),
        ("Run", if options.quick { "quick" } else { "full" }.to_owned()),
    ];
    let mut text = "<section>\n<h2>What was run</h2>\n<dl>\n".to_owned();
    for (name, value) in facts {
        text += &format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n");
    }
    text += "</dl>\n<h3>Files of the model</h3>\n<ul class=\"files\">\n";
    for file in &model.files {
        text += &format!(
            "<li><b>{}</b> {}<br/>SHA-256 <code>{}</code></li>\n",
            escaped(&file.name),
            counted(file.bytes, "byte", "bytes"),
            escaped(&file.sha256)
        );
    }
    text + "</ul>\n</section>\n"
}
