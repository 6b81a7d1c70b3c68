"""The rows of the table of determinism.py: its prompts, what changes in each row, and what the peer calls it."""
import collections.abc
import dataclasses
import re

_HEAD = "<|im_start|>system\nYou are a careful assistant.<|im_end|>\n<|im_start|>user\n"
_TAIL = "<|im_end|>\n<|im_start|>assistant\n"
_ASK = (
    "Please tell a short tale of an old clockmaker in a mountain village whose oldest clock begins to run backwards every "
    "night at the same hour. Say what the workshop smells like, who else hears the ticking, and what she finds when she "
    "opens the case at last. End with two pieces of advice that the clock might give, if it could speak, and why each is "
    "worth having, in one plain sentence for each of them."
)
_PLACES = [
    "the bell tower", "the bakery", "the school", "the station", "the mill",
    "the inn", "the chapel", "the post office", "the town hall", "the ferry",
]
_NOTES = " ".join(
    f"Entry {n}: at {place} the clock was {2 * n + 1} minutes slow, the spring had {5 * n + 40} turns left, and the repair "
    f"took {n + 2} days of work."
    for n, place in enumerate(_PLACES, 1)
)
_USE = (
    " These notes come from her own book of repairs; please work as many of them into the tale as will fit without strain "
    "or needless repetition. "
)

# By their number of tokens with SmolLM2's tokenizer.
PROMPTS = {107: _HEAD + _ASK + _TAIL, 489: _HEAD + _NOTES + _USE + _ASK + _TAIL}


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to compute the same answer."""

    name: str
    threads: int = 1
    options: tuple = ()
    # From the length of the prompt to the pieces that prompt and answer (64 tokens) are fed in; the prompt at once and
    # then token by token where there is none.
    split: collections.abc.Callable = None

    @property
    def generates(self):
        """Whether an answer can be generated this way, not only scored."""
        return self.split is None


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. A row without variants is of something that samebit does not have yet."""

    label: str
    variants: tuple = ()
    # Instruction sets to try, each one a variant where the processor has it.
    isas: tuple = ()
    # Whether `samebit prove --only concurrent` is what answers it.
    prove: bool = False
    # Which of the peer's scenarios are this row.
    peer: collections.abc.Callable = None


def _prefix(kept):
    """The first `kept` tokens were computed before."""
    return lambda prompt: [kept(prompt), prompt - kept(prompt)] + [1] * 64


def _reused(name):
    match = re.fullmatch(r"prompt split at \d+ \(prefix reused, suffix (\d+)\)", name)
    return match is not None and int(match[1]) < 64


ROWS = [
    Row("repeat", (Variant("again"),), peer=lambda name: name.startswith("repeat, identical settings")),
    Row("2 threads instead of 1", (Variant("2 threads", threads=2),), peer=lambda name: name == "threads 2 vs 1"),
    Row(
        "prefill in chunks of 64, 32, 16, 8, 1 tokens",
        tuple(Variant(f"chunks of {size}", options=("--prefill-chunk", size)) for size in (64, 32, 16, 8, 1)),
        peer=lambda name: name in {f"ubatch {size} vs 512" for size in (64, 32, 16, 8, 1)},
    ),
    Row(
        "a reused prefix with fewer than 64 new rows",
        tuple(Variant(f"{new} new rows", split=_prefix(lambda prompt, new=new: prompt - new))
              for new in (63, 33, 17, 9, 8, 2, 1)),
        peer=_reused,
    ),
    Row(
        "a reused prefix with 64 or more new rows",
        (
            Variant("1 token reused", split=_prefix(lambda prompt: 1)),
            Variant("a quarter reused", split=_prefix(lambda prompt: prompt // 4)),
        ),
        peer=lambda name: name.startswith("prompt split at") and not _reused(name),
    ),
    Row(
        "scoring a text instead of generating it",
        (Variant("prompt and answer at once", split=lambda prompt: [prompt + 64]),),
        peer=lambda name: name.startswith("teacher-forced"),
    ),
    Row(
        "2, 3, 4, 8, 16 tokens of the answer per pass, as a verifier sees them",
        tuple(Variant(f"{rows} tokens per pass", split=lambda prompt, rows=rows: [prompt, *_pieces(rows)])
              for rows in (2, 3, 4, 8, 16)),
        peer=lambda name: name.startswith("speculative verify"),
    ),
    Row("every instruction set", isas=("scalar", "avx2", "avx512", "amx")),
    Row(
        "several of these at once",
        (
            Variant("2 threads, AVX2, chunks of 16", threads=2, options=("--isa", "avx2", "--prefill-chunk", 16)),
            Variant("2 threads, 9 new rows, chunks of 32", threads=2, options=("--prefill-chunk", 32),
                    split=_prefix(lambda prompt: prompt - 9)),
        ),
    ),
    Row(
        "prefilled in one batch with others",
        prove=True,
        peer=lambda name: name.startswith("prompt prefilled in one batch"),
    ),
    Row("speculation"),
    Row("server: copies of one request at once; other requests arrive; the same prompt again"),
]


def _pieces(rows):
    """64 tokens, `rows` at a time."""
    return [rows] * (64 // rows) + ([64 % rows] if 64 % rows else [])


# What llama.cpp (build 11434, SmolLM2-135M Q4_1, prompts of the same lengths) did when it was measured for README.md.
EARLIER = {
    "repeat": "same bits",
    "2 threads instead of 1": "differs once the cache spans 512 cells: 64 of 65 positions, up to 1.07, 2 tokens flip",
    "prefill in chunks of 64, 32, 16, 8, 1 tokens": "every position differs, up to 1.5, 3 tokens flip",
    "a reused prefix with fewer than 64 new rows": "every position differs, 1 to 3 tokens flip",
    "scoring a text instead of generating it": "64 of 65 positions differ",
    "prefilled in one batch with others": "every position differs, 1 to 4 tokens flip",
    "speculation": "tokens differ (2 threads, long prompt): greedy speculation is not lossless",
    "server: copies of one request at once; other requests arrive; the same prompt again":
        "answers of copies differ; tokens differ from the 8th or 23rd on; log-probabilities differ at 64 of 64",
}
