//! One section of the page: a check.

use super::{badge, class, count, counted, duration, escaped, plot};
use crate::receipt::{Case, Check, Difference};

/// Cases that differ and are listed in the open; the others are in the table of all cases.
const LISTED: usize = 20;

/// The section of the check with this number.
pub(super) fn section(number: usize, check: &Check) -> String {
    let mut text = format!(
        "<section id=\"check-{number}\" class=\"check {}\" aria-labelledby=\"name-{number}\">\n\
         <h2 id=\"name-{number}\">{} {}</h2>\n<p class=\"claim\">{}</p>\n<p>{}, {} in {}.</p>\n",
        class(check.verdict),
        escaped(&check.name),
        badge(check.verdict),
        escaped(&check.claim),
        counted(check.cases, "case", "cases"),
        differing(check),
        duration(check.milliseconds)
    );
    if let Some(reason) = &check.reason {
        text += &format!("<p class=\"alert\"><b>Could not run:</b> {}</p>\n", escaped(reason));
    }
    if let Some(found) = &check.first_difference {
        text += &difference(found);
    }
    text += &failures(check);
    text += &proofs(check);
    text += &plot::figures(number, &check.timings);
    text += &cases(&check.rows);
    text + "</section>\n"
}

fn differing(check: &Check) -> String {
    match check.failed {
        0 if check.cases == 0 => "nothing compared".to_owned(),
        0 => "all equal".to_owned(),
        failed => format!("<b>{} not equal</b>", count(failed)),
    }
}

/// The first difference, both sides one below the other so that the digits that differ stand in one column.
fn difference(found: &Difference) -> String {
    format!(
        "<div class=\"alert\">\n<h3>First difference</h3>\n<p>{}</p>\n<p>At <b>{}</b>, element <b>{}</b>.</p>\n\
         <table class=\"bits\">\n<thead><tr><th></th><th scope=\"col\">Value</th><th scope=\"col\">Bits</th></tr></thead>\n\
         <tbody>\n<tr><th scope=\"row\">Expected</th><td><code>{}</code></td><td><code>{}</code></td></tr>\n\
         <tr><th scope=\"row\">Found</th><td><code>{}</code></td><td><code>{}</code></td></tr>\n</tbody>\n</table>\n</div>\n",
        escaped(&found.case),
        escaped(&found.place),
        found.index,
        escaped(&found.expected),
        escaped(&found.expected_bits),
        escaped(&found.found),
        escaped(&found.found_bits)
    )
}

fn failures(check: &Check) -> String {
    let failed: Vec<_> = check.rows.iter().filter(|case| !case.equal).collect();
    if failed.is_empty() {
        return String::new();
    }
    let mut text = "<h3>Cases that differ</h3>\n<ul class=\"failures\">\n".to_owned();
    for case in failed.iter().take(LISTED) {
        text += &format!("<li>{}</li>\n", escaped(&case.label));
    }
    text += "</ul>\n";
    if failed.len() > LISTED {
        let more = (failed.len() - LISTED) as u64;
        text += &format!("<p>{} more are marked in the table of all cases.</p>\n", count(more));
    }
    text
}

/// The evidence that what the check is about really happened.
fn proofs(check: &Check) -> String {
    if check.proof.is_empty() {
        return String::new();
    }
    let mut text = "<h3>What really ran</h3>\n<table class=\"proofs\">\n<thead><tr><th></th><th scope=\"col\">Counted</th>\
                    <th scope=\"col\" class=\"number\">Found</th><th scope=\"col\" class=\"number\">Needed</th></tr></thead>\n\
                    <tbody>\n"
        .to_owned();
    for proof in &check.proof {
        // The words stand with the others, for the column of signs is narrow.
        let (class, sign, few) = if proof.holds() {
            ("holds", "<span role=\"img\" aria-label=\"enough\">✓</span>", "")
        } else {
            ("missing", "<span aria-hidden=\"true\">✗</span>", ": <b>too few</b>")
        };
        text += &format!(
            "<tr class=\"{class}\"><td>{sign}</td><td>{}{few}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
            escaped(&proof.what),
            count(proof.found),
            count(proof.needed)
        );
    }
    text + "</tbody>\n</table>\n"
}

/// Every case, folded.
fn cases(rows: &[Case]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "<details>\n<summary>{}</summary>\n<p class=\"note\">The digest is the SHA-256 of the expected bits.</p>\n\
         <table class=\"cases\">\n<thead><tr><th scope=\"col\">Result</th><th scope=\"col\">Case</th>\
         <th scope=\"col\" class=\"number\">Numbers</th><th scope=\"col\">Digest</th></tr></thead>\n<tbody>\n",
        if rows.len() == 1 {
            "The case".to_owned()
        } else {
            format!("All {} cases", count(rows.len() as u64))
        }
    );
    for case in rows {
        let (class, word) =
            if case.equal { ("", "equal") } else { (" class=\"differs\"", "<b>✗ differs</b>") };
        text += &format!(
            "<tr{class}><td>{word}</td><td>{}</td><td class=\"number\">{}</td><td><code>{}</code></td></tr>\n",
            escaped(&case.label),
            count(case.compared),
            escaped(&case.sha256)
        );
    }
    text + "</tbody>\n</table>\n</details>\n"
}
