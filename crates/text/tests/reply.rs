//! Replies taken apart: samples of each style, and what holds for any text and any cut.

mod support;

use proptest::prelude::*;
use samebit_text::{
    GrammarError, ReasoningStyle, ReplyFormat, ReplyParser, ReplyPart, ToolCall, ToolChoice, ToolDefinition,
    ToolStyle,
};
use serde_json::json;
use std::time::{Duration, Instant};

const STYLES: [ToolStyle; 8] = [
    ToolStyle::Hermes,
    ToolStyle::QwenXml,
    ToolStyle::LlamaJson,
    ToolStyle::Gemma,
    ToolStyle::Gemma4,
    ToolStyle::Mistral,
    ToolStyle::DeepSeek,
    ToolStyle::Glm,
];

fn tools() -> Vec<ToolDefinition> {
    let f = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "b": {"type": "boolean"}}}}});
    let g = json!({"name": "g.h", "input_schema": {"type": "object", "properties": {}}});
    [f, g].iter().map(|tool| ToolDefinition::from_json(tool).expect("a name")).collect()
}

fn content(text: &str) -> ReplyPart {
    ReplyPart::Content(text.to_owned())
}

fn reasoning(text: &str) -> ReplyPart {
    ReplyPart::Reasoning(text.to_owned())
}

fn call(name: &str, arguments: &str) -> ReplyPart {
    ReplyPart::ToolCall(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

/// The parts of a reply that comes in `pieces`, adjacent texts joined.
fn parse<'a>(
    format: &ReplyFormat,
    opened: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<ReplyPart> {
    let mut parser = ReplyParser::new(format, opened, &tools());
    let mut parts: Vec<ReplyPart> = Vec::new();
    let mut all: Vec<ReplyPart> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    all.extend(parser.finish());
    for part in all {
        match (parts.last_mut(), part) {
            (Some(ReplyPart::Content(last)), ReplyPart::Content(text))
            | (Some(ReplyPart::Reasoning(last)), ReplyPart::Reasoning(text)) => last.push_str(&text),
            (_, part) => parts.push(part),
        }
    }
    parts
}

/// Checks a reply, whole and character by character.
#[track_caller]
fn check_format(format: &ReplyFormat, opened: bool, text: &str, expected: &[ReplyPart]) {
    assert_eq!(parse(format, opened, [text]), expected, "{text}");
    let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(parse(format, opened, characters), expected, "{text}, character by character");
}

#[track_caller]
fn check(style: ToolStyle, text: &str, expected: &[ReplyPart]) {
    check_format(&ReplyFormat { tools: Some(style), reasoning: None }, false, text, expected);
}

#[track_caller]
fn stays(style: ToolStyle, text: &str) {
    check(style, text, &[content(text)]);
}

#[test]
fn hermes() {
    let style = ToolStyle::Hermes;
    check(
        style,
        "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1.50, \"a\":\"}</tool_call>\\\"é\"}}\n</tool_call>\n<tool_call>{\"arguments\":{},\"name\":\"g.h\"}</tool_call>\n",
        &[content("I look."), call("f", r#"{"n": 1.50, "a":"}</tool_call>\"é"}"#), call("g.h", "{}")],
    );
    check(
        style,
        "<tool_call>{\"name\":\"f\"}</tool_call> between <tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"n\\\":1}\"}</tool_call>\nafter",
        &[call("f", "{}"), content(" between"), call("f", "{\"n\":1}"), content("\nafter")],
    );
    for text in [
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>",
        "<tool_call>{'name': 'f'}</tool_call>",
        "a < b <tool_ <tool_calls> ",
        "  \n",
    ] {
        stays(style, text);
    }
    // A broken call does not take the next one with it.
    let broken = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x}\n</tool_call>";
    let text = format!("{broken}\n<tool_call>{{\"name\": \"f\"}}</tool_call>");
    check(style, &text, &[content(broken), call("f", "{}")]);
    check(
        style,
        "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>",
        &[content("<tool_call>"), call("f", "{}")],
    );
}

#[test]
fn qwen_xml() {
    let style = ToolStyle::QwenXml;
    check(
        style,
        "Yes.\n\n<tool_call>\n<function=f>\n<parameter=a>\n12\n\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=o>\n{\"k\": [1.0]}\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=x>\n<b>\n</parameter>\n</function>\n</tool_call>\n<tool_call><function=g.h></function></tool_call>",
        &[
            content("Yes."),
            call("f", r#"{"a": "12\n", "n": 12, "o": {"k": [1.0]}, "b": true, "x": "<b>"}"#),
            call("g.h", "{}"),
        ],
    );
    // Without the outer marker, with or without its end.
    check(style, "<function=g.h>\n</function>\n</tool_call>", &[call("g.h", "{}")]);
    check(
        style,
        "<function=g.h>\n</function> x </tool_call>",
        &[call("g.h", "{}"), content(" x </tool_call>")],
    );
    for text in [
        "<tool_call><function=unknown></function></tool_call>",
        "<function=unknown></function>",
        "<tool_call><function=f><parameter=a>x</parameter></function>",
        "<tool_call><function=f><parameter=a>x</function></tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
    ] {
        stays(style, text);
    }
    let open = "<tool_call><function=f><parameter=a>x</function></tool_call>";
    let text = format!("{open}<tool_call><function=f></function></tool_call>");
    check(style, &text, &[content(open), call("f", "{}")]);
}

#[test]
fn llama() {
    let style = ToolStyle::LlamaJson;
    let f = call("f", r#"{"n": 1}"#);
    check(style, r#"{"name": "f", "parameters": {"n": 1}}"#, std::slice::from_ref(&f));
    check(
        style,
        r#"<|python_tag|>{"type": "function", "name": "f", "parameters": {"n": 1}}; {"name": "g.h", "parameters": {}}"#,
        &[f, call("g.h", "{}")],
    );
    for text in [
        r#"{"name": "f", "parameters": {}} is a call"#,
        r#"It is {"name": "f", "parameters": {}}"#,
        r#"{"name": "f", "parameters": {}}; {"name": "unknown", "parameters": {}}"#,
        r#"{"answer": {"name": "f"}}"#,
        "<|python_tag|>print(1)",
    ] {
        stays(style, text);
    }
    // An object that is no call is not held back.
    let format = ReplyFormat { tools: Some(style), reasoning: None };
    let mut parser = ReplyParser::new(&format, false, &tools());
    assert_eq!(parser.push(r#"{"answer":"#), [content(r#"{"answer":"#)]);
}

#[test]
fn gemma() {
    let style = ToolStyle::Gemma;
    let f = call("f", r#"{"a": "x, \"]\"", "n": -2, "o": {"k": [true, null]}}"#);
    let python = r#"f(a='x, "]"', n=-2, o={"k": [True, None]})"#;
    check(style, &format!("[{python}, g.h()]"), &[f.clone(), call("g.h", "{}")]);
    check(
        style,
        &format!("Sure.\n```tool_code\nprint({python})\ng.h()\n```\n"),
        &[content("Sure."), f, call("g.h", "{}")],
    );
    check(style, "```json\n{\"name\": \"f\", \"parameters\": {\"n\": 1}}\n```", &[call("f", "{\"n\": 1}")]);
    for text in [
        "[1] says so",
        "[f",
        "[f(1)]",
        "[f(a=1]",
        "```tool_code\nx = 1\n```",
        "```json\n{\"a\": 1}\n```",
        "see [f(a=1)]",
    ] {
        stays(style, text);
    }
    let style = ToolStyle::Gemma4;
    check(
        style,
        "<|tool_call>call:f{a:<|\"|>say \"}\"<|\"|>,n:3,o:{k:[1,true]}}<tool_call|><|tool_call>call:g.h{}<tool_call|>",
        &[call("f", r#"{"a": "say \"}\"", "n": 3, "o": {"k": [1, true]}}"#), call("g.h", "{}")],
    );
    stays(style, "<|tool_call>call:f{a:}<tool_call|>");
    stays(style, "<|tool_call>call:nope{}<tool_call|>");
}

#[test]
fn mistral_deepseek_glm() {
    let style = ToolStyle::Mistral;
    check(
        style,
        r#"[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}}, {"name": "g.h", "arguments": {}, "id": "x"}]"#,
        &[call("f", r#"{"n": 1}"#), call("g.h", "{}")],
    );
    check(
        style,
        r#"Ok.[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]g.h[CALL_ID]abc[ARGS]{}"#,
        &[content("Ok."), call("f", r#"{"n": 1}"#), call("g.h", "{}")],
    );
    stays(style, "[TOOL_CALLS]nope[ARGS]{}");
    let style = ToolStyle::DeepSeek;
    check(
        style,
        "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g.h<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &[content("Ok."), call("f", r#"{"n": 1}"#), call("g.h", "{}")],
    );
    check(
        style,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": 1}\n```<｜tool▁call▁end｜>",
        &[call("f", r#"{"n": 1}"#)],
    );
    stays(style, "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>");
    let style = ToolStyle::Glm;
    check(
        style,
        "\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call><tool_call>f<arg_key>a</arg_key><arg_value> x\n</arg_value></tool_call>\n<tool_call>g.h</tool_call>",
        &[call("f", r#"{"a": "1", "n": 1}"#), call("f", r#"{"a": " x\n"}"#), call("g.h", "{}")],
    );
    stays(style, "<tool_call>nope</tool_call>");
    stays(style, "<tool_call>f\n<arg_key>a</arg_key>1</tool_call>");
}

#[test]
fn reasoning_is_split_off() {
    let format = ReplyFormat { tools: Some(ToolStyle::Hermes), reasoning: Some(ReasoningStyle::Think) };
    let check = |opened, text, expected: &[ReplyPart]| check_format(&format, opened, text, expected);
    check(false, "\n<think>\na\n\nb\n</think>\n\nc\n", &[reasoning("a\n\nb"), content("c\n")]);
    check(true, "a</think>c", &[reasoning("a"), content("c")]);
    check(true, "<think>\na</think>c", &[reasoning("a"), content("c")]);
    check(true, "\n\n</think>\n\nc", &[content("c")]);
    check(true, "a\n</thin", &[reasoning("a\n</thin")]);
    check(
        true,
        "say `</think>` and \"</think>\"!</think>x",
        &[reasoning("say `</think>` and \"</think>\"!"), content("x")],
    );
    check(true, "\"yes\"</think>\nx", &[reasoning("\"yes\""), content("x")]);
    check(true, "\"yes\"</think>", &[reasoning("\"yes\"")]);
    check(false, "a <think>b</think>", &[content("a <think>b</think>")]);
    // Calls in reasoning are thoughts; markers in arguments are text.
    let text = "<tool_call>{\"name\": \"f\"}</tool_call></think><tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"<think></think>\"}}</tool_call>";
    check(
        true,
        text,
        &[reasoning("<tool_call>{\"name\": \"f\"}</tool_call>"), call("f", r#"{"a": "<think></think>"}"#)],
    );
    let format = ReplyFormat { tools: None, reasoning: Some(ReasoningStyle::Channel) };
    check_format(&format, false, "<|channel>thought\na<channel|>b", &[reasoning("a"), content("b")]);
    let format = ReplyFormat { tools: None, reasoning: Some(ReasoningStyle::BracketThink) };
    check_format(&format, false, "[THINK]a[/THINK]b", &[reasoning("a"), content("b")]);
}

#[test]
fn text_is_held_back_only_while_it_may_be_a_marker() {
    let format = ReplyFormat { tools: Some(ToolStyle::Hermes), reasoning: Some(ReasoningStyle::Think) };
    let mut parser = ReplyParser::new(&format, false, &tools());
    assert_eq!(parser.push("<thin"), []);
    assert_eq!(parser.push("g> a <tool_"), [content("<thing> a")]);
    assert_eq!(parser.push("box>"), [content(" <tool_box>")]);
    assert_eq!(parser.push("\n"), []);
    assert_eq!(parser.finish(), [content("\n")]);
    // Without tools nothing is a call and nothing is held back for one.
    let mut parser = ReplyParser::new(&ReplyFormat { reasoning: None, ..format }, false, &[]);
    assert_eq!(parser.push("a \n<tool_call>"), [content("a \n<tool_call>")]);
}

#[test]
fn formats_are_read_off_templates() {
    use ReasoningStyle::{Channel, Think};
    for (file, tools, reasoning) in [
        ("qwen3", Some(ToolStyle::Hermes), Some(Think)),
        ("qwen3.5", Some(ToolStyle::QwenXml), Some(Think)),
        ("nemotron-3-nano", Some(ToolStyle::QwenXml), Some(Think)),
        ("glm-4.6", Some(ToolStyle::Glm), Some(Think)),
        ("deepseek-v3.1", Some(ToolStyle::DeepSeek), Some(Think)),
        ("gemma-4", Some(ToolStyle::Gemma4), Some(Channel)),
        ("smollm3", None, Some(Think)),
        ("gemma-2", None, None),
        ("smollm2-135m-q4_1", None, None),
    ] {
        let template = support::read(&format!("real/chat-templates/templates/{file}.jinja"));
        assert_eq!(ReplyFormat::detect(&template, |_| false), ReplyFormat { tools, reasoning }, "{file}");
    }
    let format = ReplyFormat::detect("no markers", |text| text == "[TOOL_CALLS]");
    assert_eq!(format.tools, Some(ToolStyle::Mistral));
    let format = ReplyFormat { tools: None, reasoning: Some(Think) };
    assert!(format.starts_in_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!format.starts_in_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
}

#[test]
fn long_garbage_takes_linear_time() {
    let openings = [
        (ToolStyle::Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "<tool_call>{\\\"a"),
        (ToolStyle::Hermes, "<tool_call>", "\n"),
        (ToolStyle::Hermes, "", "<tool_call>{"),
        (ToolStyle::Hermes, "", " \n"),
        (ToolStyle::QwenXml, "<tool_call><function=f><parameter=a>", "<tool_call><function=f><parameter=a>"),
        (ToolStyle::QwenXml, "<tool_call><function=f>", "<parameter=a></parameter>"),
        (ToolStyle::LlamaJson, "{\"name\": ", "["),
        (ToolStyle::LlamaJson, "{\"name\": \"f\", \"parameters\": {}};", " "),
        (ToolStyle::Gemma, "[f(a=", "["),
        (ToolStyle::Gemma4, "<|tool_call>call:f{a:", "[<|\"|>"),
        (ToolStyle::Mistral, "[TOOL_CALLS][", "{},"),
        (ToolStyle::DeepSeek, "<｜tool▁calls▁begin｜>", " "),
        (ToolStyle::Glm, "<tool_call>f", "<arg_key>"),
    ];
    for (style, start, again) in openings {
        let text = format!("{start}{}", again.repeat((1 << 20) / again.len()));
        let format = ReplyFormat { tools: Some(style), reasoning: Some(ReasoningStyle::Think) };
        for opened in [false, true] {
            let begin = Instant::now();
            let parts = parse(
                &format,
                opened,
                text.as_bytes().chunks(7).map(|chunk| std::str::from_utf8(chunk).unwrap_or("x")),
            );
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "{style:?} {start}{again}: {:?}",
                begin.elapsed()
            );
            // Only the call in front of endless white space is one.
            let calls = parts.iter().filter(|part| matches!(part, ReplyPart::ToolCall(_))).count();
            assert_eq!(calls, usize::from(again == " " && style == ToolStyle::LlamaJson && !opened));
        }
    }
}

#[test]
fn grammars_name_what_they_cannot_do() {
    let none = ToolStyle::Hermes.grammar(&[], ToolChoice::Required { parallel: true });
    assert_eq!(none, Err(GrammarError::NoTools));
    let unknown = ToolStyle::Hermes.grammar(&tools(), ToolChoice::Named("x"));
    assert_eq!(unknown, Err(GrammarError::UnknownTool("x".to_owned())));
    let style = ToolStyle::Glm.grammar(&tools(), ToolChoice::Named("f"));
    assert_eq!(style, Err(GrammarError::Unsupported(ToolStyle::Glm)));
    let lark = ToolStyle::Hermes.grammar(&tools(), ToolChoice::Named("g.h")).expect("a grammar");
    assert_eq!(
        lark,
        "start: call\ncall: call_0\ncall_0: \"<tool_call>\\n{\\\"name\\\": \\\"g.h\\\", \\\"arguments\\\": \" arguments_0 \"}\\n</tool_call>\"\narguments_0: %json {\"type\":\"object\",\"properties\":{}}\n"
    );
}

/// Pieces of markup and of everything else, in any order.
fn garbage() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "<tool_call>",
            "</tool_call>",
            "<function=f>",
            "</function>",
            "<parameter=a>",
            "</parameter>",
            "<think>",
            "</think>",
            "{\"name\": \"f\", \"arguments\": {\"n\": 1}}",
            "{\"name\": \"f\", \"parameters\": {}}",
            "{",
            "}",
            "\"",
            "\\",
            ";",
            "`",
            "<|python_tag|>",
            "[f(a='x')]",
            "[",
            "]",
            "(",
            ")",
            "```json",
            "```tool_code",
            "```",
            "f(n=1)",
            "[TOOL_CALLS]",
            "f",
            "[ARGS]",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            "<|tool_call>",
            "call:f{",
            "<tool_call|>",
            "<|\"|>",
            "\n",
            " ",
        ])
        .prop_map(str::to_owned),
        ".{0,3}",
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// The parts do not depend on the cuts.
    #[test]
    fn any_cut_gives_the_same_parts(
        text in garbage(),
        style in prop::sample::select(STYLES.to_vec()),
        thinks in any::<bool>(),
        opened in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let format = ReplyFormat { tools: Some(style), reasoning: thinks.then_some(ReasoningStyle::Think) };
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.retain(|&place| text.is_char_boundary(place));
        places.extend([0, text.len()]);
        places.sort_unstable();
        let pieces = places.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(parse(&format, opened, pieces), parse(&format, opened, [text.as_str()]));
    }

    /// Without a call everything comes out again; with one, what is around it does, but for white space.
    #[test]
    fn nothing_is_lost(text in garbage(), style in prop::sample::select(STYLES.to_vec())) {
        let parts = parse(&ReplyFormat { tools: Some(style), reasoning: None }, false, [text.as_str()]);
        if parts.iter().all(|part| matches!(part, ReplyPart::Content(_))) {
            // Only the end marker of a call that had none may be dropped, and that needs a call.
            let joined: String = parts.iter().map(|part| match part { ReplyPart::Content(text) => text.as_str(), _ => "" }).collect();
            prop_assert_eq!(joined, text);
        } else {
            let mut rest = text.as_str();
            for part in &parts {
                if let ReplyPart::Content(part) = part {
                    let at = rest.find(part.as_str());
                    prop_assert!(at.is_some(), "{:?} not in order in {:?}", part, text);
                    rest = &rest[at.unwrap_or(0) + part.len()..];
                }
            }
        }
    }

    /// Reasoning and the answer keep every character but the markers and the line breaks beside them.
    #[test]
    fn reasoning_keeps_its_text(text in garbage(), opened in any::<bool>()) {
        let format = ReplyFormat { tools: None, reasoning: Some(ReasoningStyle::Think) };
        let plain = |text: &str| text.replace(['\n', ' '], "").replace("<think>", "").replace("</think>", "");
        let joined: String = parse(&format, opened, [text.as_str()]).iter().map(|part| match part {
            ReplyPart::Content(text) | ReplyPart::Reasoning(text) => text.as_str(),
            ReplyPart::ToolCall(_) => "",
        }).collect();
        let is_space = |c: char| c.is_whitespace();
        prop_assert_eq!(plain(&joined).replace(is_space, ""), plain(&text).replace(is_space, ""));
    }
}
