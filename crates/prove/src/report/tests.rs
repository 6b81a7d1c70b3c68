use super::{count, escaped, html};
use crate::receipt::{
    Case, Check, Difference, FileRecord, MachineRecord, ModelRecord, OptionsRecord, Proof, Receipt, Timing,
    Verdict,
};

const HOSTILE: &str = "</title><script>alert('1')</script>\"&\u{202e}\u{1b}[0m";

fn case(index: u64, equal: bool) -> Case {
    Case {
        op: "matmul".to_owned(),
        shape: "576 -> 1024".to_owned(),
        format: "Q8_0".to_owned(),
        isa: "avx2".to_owned(),
        threads: 2,
        rows: index,
        label: format!("matmul 576 -> 1024 Q8_0 avx2 threads=2 rows={index}"),
        equal,
        compared: 1024 * index,
        sha256: format!("{index:064x}"),
    }
}

fn timing(isa: &str, rows: u64, nanoseconds: u64) -> Timing {
    Timing {
        op: "matmul".to_owned(),
        shape: "576 -> 1024".to_owned(),
        format: "Q8_0".to_owned(),
        isa: isa.to_owned(),
        rows,
        nanoseconds,
    }
}

fn check(name: &str, verdict: Verdict) -> Check {
    Check {
        name: name.to_owned(),
        claim: format!("The claim of {name}."),
        verdict,
        cases: 2,
        failed: 0,
        reason: None,
        proof: vec![Proof { what: "passes of several rows".to_owned(), found: 3, needed: 1 }],
        first_difference: None,
        rows: vec![case(1, true), case(2, true)],
        timings: vec![timing("scalar", 1, 81_234), timing("scalar", 64, 5_000_000), timing("avx2", 64, 0)],
        milliseconds: 61_500,
    }
}

fn receipt(verdict: Verdict, checks: Vec<Check>) -> Receipt {
    Receipt {
        samebit: "0.1.0".to_owned(),
        plan: "sb1".to_owned(),
        plan_id: "sb1-43c51c4ee17a579a".to_owned(),
        model: ModelRecord {
            name: "smollm2-135m".to_owned(),
            family: "llama".to_owned(),
            layers: 30,
            hidden: 576,
            vocabulary: 49152,
            context: 8192,
            parameters: 134_515_008,
            files: vec![FileRecord { name: "a.gguf".to_owned(), bytes: 98_362_432, sha256: "b1".repeat(32) }],
        },
        machine: MachineRecord {
            processor: "A processor".to_owned(),
            isas: vec!["scalar".to_owned(), "avx2".to_owned()],
            threads: 2,
        },
        options: OptionsRecord { quick: false, only: Vec::new(), kv: "f16".to_owned(), seed: 1 },
        verdict,
        milliseconds: 162_109,
        checks,
    }
}

fn failing() -> Receipt {
    let mut fails = check("rows", Verdict::Fail);
    fails.rows = (1..=30).map(|index| case(index, index < 3)).collect();
    (fails.cases, fails.failed) = (30, 28);
    fails.first_difference = Some(Difference {
        case: fails.rows[2].label.clone(),
        place: "matmul, row 1".to_owned(),
        index: 17,
        expected_bits: "40800000".to_owned(),
        found_bits: "40800001".to_owned(),
        expected: "4.0".to_owned(),
        found: "4.0000005".to_owned(),
    });
    let mut stopped = check("chunks", Verdict::CouldNotRun);
    (stopped.cases, stopped.rows, stopped.timings) = (0, Vec::new(), Vec::new());
    stopped.reason = Some("the pass of 3 rows needs more memory".to_owned());
    let mut unchecked = check("mixed", Verdict::Unchecked);
    unchecked.proof[0].found = 0;
    receipt(Verdict::Fail, vec![check("ops", Verdict::Pass), fails, stopped, unchecked])
}

/// Follows the tags of a page: each must be closed in order, attributes quoted, and every `&` an entity.
fn assert_well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let mut open: Vec<&str> = Vec::new();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>') || open.last() == Some(&"style"), "stray > in {text}");
        for part in text.split('&').skip(1) {
            let entity = part.split(';').next().unwrap();
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&entity), "&{entity}");
        }
        let end = start + rest[start..].find('>').expect("a tag that ends");
        let tag = &rest[start + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "quotes of <{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "at </{name}>");
        } else if !tag.ends_with('/') {
            open.push(tag.split([' ', '\n']).next().unwrap());
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn pages_are_well_formed_and_need_nothing_else() {
    let empty = receipt(
        Verdict::Fail,
        vec![Check { timings: vec![timing("", 0, u64::MAX)], ..check("a", Verdict::Pass) }],
    );
    for receipt in [failing(), receipt(Verdict::Pass, vec![check("ops", Verdict::Pass)]), empty] {
        let page = html(&receipt);
        assert_well_formed(&page);
        for word in ["http", "<script", "<link", "<img", "<iframe", "src=", "url(", "@import", "NaN", "inf\""]
        {
            assert!(!page.contains(word), "{word}");
        }
        for link in page.split("href=\"").skip(1) {
            let target = link.strip_prefix('#').expect("a link within the page").split('"').next().unwrap();
            assert_eq!(page.matches(&format!("id=\"{target}\"")).count(), 1, "{target}");
        }
        assert_eq!(page, html(&receipt));
    }
}

#[test]
#[should_panic(expected = "at </p>")]
fn tags_out_of_order_are_found() {
    assert_well_formed("<!DOCTYPE html><p><b></p></b>");
}

#[test]
fn everything_that_was_found_is_on_the_page() {
    let receipt = failing();
    let page = html(&receipt);
    for check in &receipt.checks {
        assert!(
            page.contains(&check.claim) && page.contains(&format!("\">{} <strong", check.name)),
            "{}",
            check.name
        );
        for case in &check.rows {
            let row = format!("<td>{}</td>", escaped(&case.label));
            assert!(page.contains(&row) && page.contains(&case.sha256), "{}", case.label);
        }
    }
    assert_eq!(page.matches("<tr class=\"differs\">").count(), 28);
    // Those listed in the open, and how many are not.
    assert_eq!(page.matches("<li>matmul 576 -&gt; 1024").count(), 20);
    assert!(page.contains("<p>8 more are marked"));
    for word in [
        "28 of 34 comparisons differ",
        "element <b>17</b>",
        "40800001",
        "4.0000005",
        "the pass of 3 rows needs more memory",
        "<b>too few</b>",
        "✗</span> FAIL",
        "!</span> COULD NOT RUN",
        "?</span> UNCHECKED",
        "sb1-43c51c4ee17a579a",
        &"b1".repeat(32),
        "81.2 µs",
    ] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn each_verdict_has_its_sentence() {
    for (verdict, words) in [
        (Verdict::Pass, "the same result, bit for bit"),
        (Verdict::Unchecked, "a part that had to run did not"),
        (Verdict::CouldNotRun, "Not everything could be run"),
        (Verdict::Fail, "nothing to compare"),
    ] {
        let page = html(&receipt(verdict, Vec::new()));
        assert!(page.contains(words), "{words}");
        assert_eq!(page.contains("no proof"), matches!(verdict, Verdict::Unchecked | Verdict::CouldNotRun));
    }
}

#[test]
fn a_part_of_a_run_says_so() {
    let mut receipt = receipt(Verdict::Pass, vec![check("rows", Verdict::Pass)]);
    assert!(!html(&receipt).contains("quick run") && !html(&receipt).contains("Only some checks"));
    receipt.options.quick = true;
    receipt.options.only = vec!["rows".to_owned()];
    let page = html(&receipt);
    assert!(page.contains("quick run") && page.contains("Only some checks were asked for: rows."));
}

#[test]
fn names_cannot_leave_their_place() {
    let mut receipt = failing();
    receipt.model.name = HOSTILE.to_owned();
    receipt.model.files[0].name = HOSTILE.to_owned();
    receipt.machine.processor = HOSTILE.to_owned();
    receipt.options.only = vec![HOSTILE.to_owned()];
    for check in &mut receipt.checks {
        for text in [&mut check.name, &mut check.claim, &mut check.proof[0].what] {
            HOSTILE.clone_into(text);
        }
        check.reason = Some(HOSTILE.to_owned());
        check.rows.iter_mut().for_each(|case| HOSTILE.clone_into(&mut case.label));
        for timing in &mut check.timings {
            HOSTILE.clone_into(&mut timing.isa);
            HOSTILE.clone_into(&mut timing.shape);
        }
        if let Some(difference) = &mut check.first_difference {
            HOSTILE.clone_into(&mut difference.place);
            HOSTILE.clone_into(&mut difference.found);
        }
    }
    let page = html(&receipt);
    assert_well_formed(&page);
    assert!(!page.contains("<script") && !page.contains(['\u{202e}', '\u{1b}']));
    assert!(page.contains("&lt;/title&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;"));
}

#[test]
fn digits_stand_in_groups() {
    for (number, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
        assert_eq!(count(number), text.replace(' ', "\u{202f}"));
    }
}
