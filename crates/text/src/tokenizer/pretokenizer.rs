//! How byte-level vocabularies in GGUF files cut a text before merging.
//!
//! A GGUF file names its rule (`tokenizer.ggml.pre`) without giving it. This table gives it, as the `tokenizer.json`
//! of the model that introduced the name has it. An unknown name is an error: another rule would give other ids,
//! often only for rare texts, and nobody would notice.

/// One rule: regular expressions applied one after the other, each to the pieces the one before left. Matches and the
/// text between them become pieces.
pub(crate) struct Rule {
    pub(crate) patterns: &'static [&'static str],
    /// Whether the original tokenizer composes characters (Unicode NFC) first.
    pub(crate) nfc: bool,
    /// Whether a piece that is a token as it stands is taken without merging.
    pub(crate) ignore_merges: bool,
    /// Whether BOS is added when the file does not say.
    pub(crate) add_bos: bool,
}

const GPT2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Cased letters as DeepSeek LLM lists them.
const DEEPSEEK_CASED: &str = concat!(
    r"\s?[",
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}",
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}",
    r"\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}",
    r"\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}",
    r"\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}",
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}",
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}",
    r"\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}",
    r"\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}",
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}",
    r"\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}",
    r"\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}",
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}",
    r"\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}",
    r"\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}",
    r"\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
    r"]+",
);
const DEEPSEEK_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";

const PLAIN: Rule = Rule { patterns: &[], nfc: false, ignore_merges: false, add_bos: false };

/// Every name, with its rule. Names that share a rule stand together.
const RULES: &[(&[&str], Rule)] = &[
    (
        &["default"],
        Rule { patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"], ..PLAIN },
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "granite-docling",
            "gigachat",
            "mellum",
        ],
        Rule { patterns: &[GPT2_WORDS], ..PLAIN },
    ),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        Rule { patterns: &[r"\p{N}", GPT2_WORDS], ..PLAIN },
    ),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        Rule { patterns: &[LLAMA3_WORDS], ignore_merges: true, add_bos: true, ..PLAIN },
    ),
    (&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], Rule { patterns: &[LLAMA3_WORDS], ..PLAIN }),
    (&["qwen2", "deepseek-r1-qwen"], Rule { patterns: &[QWEN2_WORDS], nfc: true, ..PLAIN }),
    (&["stablelm2", "hunyuan", "megrez", "grok-2"], Rule { patterns: &[QWEN2_WORDS], ..PLAIN }),
    (&["qwen35"], Rule { patterns: &[QWEN35_WORDS], nfc: true, ..PLAIN }),
    (&["gpt-4o", "llama4", "kanana2"], Rule { patterns: &[GPT4O_WORDS], ..PLAIN }),
    (&["tekken"], Rule { patterns: &[TEKKEN_WORDS], ignore_merges: true, add_bos: true, ..PLAIN }),
    (
        &["deepseek-llm"],
        Rule {
            patterns: &[
                r"[\r\n]",
                DEEPSEEK_CASED,
                r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
                r"\s+$",
                DEEPSEEK_CJK,
                r"\p{N}+",
            ],
            ..PLAIN
        },
    ),
    (
        &["deepseek-coder"],
        Rule { patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"], ..PLAIN },
    ),
    (
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        Rule {
            patterns: &[
                r"\p{N}{1,3}",
                r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
                DEEPSEEK3_WORDS,
            ],
            ..PLAIN
        },
    ),
    (&["falcon"], Rule { patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_WORDS, r"[0-9][0-9][0-9]"], ..PLAIN }),
    (
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        Rule {
            patterns: &[
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            ],
            ..PLAIN
        },
    ),
    (
        &["seed-coder"],
        Rule {
            patterns: &[
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
            ],
            ..PLAIN
        },
    ),
];

/// The rule of that name.
pub(crate) fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|(names, _)| names.contains(&name)).map(|(_, rule)| rule)
}

/// All names, in the order of the table.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().flat_map(|(names, _)| names.iter().copied())
}
