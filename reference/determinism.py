#!/usr/bin/env python3
"""What does an answer depend on? Every logit of a greedy answer, compared bit by bit, while one thing at a time changes.

    python3 reference/determinism.py --samebit target/release/samebit --out /tmp/determinism [MODEL]
    python3 reference/determinism.py --samebit target/release/samebit --out /tmp/determinism --peer DIR

The same two prompts, of 107 and 489 tokens with SmolLM2's tokenizer, are answered greedily with 64 tokens on one thread;
then again with more threads, in other chunks, behind a cached prefix, and so on. Compared are all logits of 65
positions: the end of the prompt and each token of the answer. A generated answer is compared by its chain as well, the
SHA-256 of its logits.

--peer DIR runs the same prompts through llama.cpp: DIR holds `llama_logits`, a program that is called as
`llama_logits MODEL PROMPT_FILE TOKENS OUT.jsonl` and writes one record for each thing that it changes. Without it the
table shows figures that were measured earlier.

Writes determinism.md and determinism.json to --out. Exit code: 0 same bits everywhere, 1 a difference, 2 could not run.
Needs nothing but Python's standard library.
"""
import argparse
import array
import dataclasses
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from determinism_rows import EARLIER, PROMPTS, ROWS, Row, Variant

NEW_TOKENS = 64
LATER = "with a later version"


class CouldNotRun(Exception):
    """Nothing was compared; the text says why."""


@dataclasses.dataclass
class Answer:
    """A prompt with its greedy answer on one thread, and the logits that every variant has to reproduce."""

    prompt: list
    ids: list
    chain: str
    rows: list  # of little-endian binary32, one `bytes` for each position

    @property
    def tokens(self):
        return self.prompt + self.ids


@dataclasses.dataclass
class Comparison:
    """What changed against the answer on one thread."""

    variant: str
    positions: int
    differing: int = 0
    first: int = None
    largest: float = 0.0
    flips: int = 0
    sha256: str = ""
    chain_equal: bool = True

    @property
    def same(self):
        return self.differing == 0 and self.chain_equal

    def add(self, position, expected, found):
        """Compares the logits of one position."""
        if expected == found:
            return
        self.differing += 1
        self.first = position if self.first is None else self.first
        expected, found = floats(expected), floats(found)
        self.largest = max(self.largest, max(abs(a - b) for a, b in zip(expected, found)))
        self.flips += best(expected) != best(found)

    def record(self):
        return {**dataclasses.asdict(self), "same": self.same}


def floats(data):
    """Little-endian binary32 numbers."""
    numbers = array.array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def best(logits):
    """The id with the highest logit, the lowest on ties."""
    return max(range(len(logits)), key=lambda index: (logits[index], -index))


def read_rows(path, first):
    """The rows of the tensor `logits` of a safetensors file, from row `first` on, each as it lies in the file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensor = json.loads(file.read(length))["logits"]
        rows, columns = tensor["shape"]
        if tensor["dtype"] != "F32":
            raise CouldNotRun(f"{path}: logits are {tensor['dtype']}, expected F32")
        width = 4 * columns
        file.seek(8 + length + tensor["data_offsets"][0] + first * width)
        return [file.read(width) for _ in range(first, rows)]


class Samebit:
    """The program, and a model for it."""

    def __init__(self, program, model, folder):
        self.program, self.model, self.folder = program, model, pathlib.Path(folder)

    def call(self, *arguments):
        command = [self.program, *map(str, arguments)]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise CouldNotRun(f"{self.program}: {error}") from error

    def json(self, *arguments):
        done = self.call(*arguments, "--json", "--quiet")
        if done.returncode != 0:
            raise CouldNotRun(done.stderr.strip())
        return json.loads(done.stdout)

    def generate(self, prompt, options):
        """Answers `prompt`, ids or text, greedily with exactly NEW_TOKENS tokens."""
        given = ["--raw", prompt] if isinstance(prompt, str) else ["--ids", joined(prompt)]
        return self.json("run", self.model, *given, "--max-tokens", NEW_TOKENS, "--ignore-eos", *options)

    def logits(self, answer, split, options):
        """The logits of the end of the prompt and of every token of the answer, fed in pieces of `split` tokens."""
        path = self.folder / "logits.safetensors"
        given = ["--ids", joined(answer.tokens), "--split", joined(split), "--out", path]
        self.json("logits", self.model, *given, *options)
        rows = read_rows(path, len(answer.prompt) - 1)
        path.unlink()
        return rows

    def answer(self, text, tokens):
        """The answer that everything is compared with: one thread, the prompt at once, one token per step."""
        reply = self.generate(text, ["--threads", 1])
        answer = Answer(reply["prompt_ids"], reply["ids"], reply["chain"], [])
        if len(answer.prompt) != tokens:
            raise CouldNotRun(f"the prompt has {len(answer.prompt)} tokens with this model, expected {tokens}")
        answer.rows = self.logits(answer, one_by_one(len(answer.prompt)), ["--threads", 1])
        return answer

    def compare(self, answer, variant):
        """Runs one variant."""
        options = ["--threads", variant.threads, *variant.options]
        split = variant.split(len(answer.prompt)) if variant.split else one_by_one(len(answer.prompt))
        rows = self.logits(answer, split, options)
        result = Comparison(variant.name, len(rows), sha256=hashlib.sha256(b"".join(rows)).hexdigest())
        for position, (expected, found) in enumerate(zip(answer.rows, rows, strict=True)):
            result.add(position, expected, found)
        if variant.generates:
            reply = self.generate(answer.prompt, options)
            result.chain_equal = (reply["ids"], reply["chain"]) == (answer.ids, answer.chain)
        # The last row is of a token that was emitted and not continued: generating stops before it.
        if result.same and hashlib.sha256(b"".join(rows[:-1])).hexdigest() != answer.chain:
            result.chain_equal = False
        return result

    def has_isa(self, name):
        """Whether this program and processor have an instruction set."""
        return self.call("run", self.model, "--ids", "1", "--max-tokens", 1, "--isa", name, "-q").returncode == 0

    def concurrent(self):
        """What `prove` finds of sequences that share passes, or nothing where there is no such verb."""
        out = self.folder / "concurrent"
        done = self.call("prove", self.model, "--only", "concurrent", "--quick", "--out", out, "--quiet")
        receipts = out / "receipts.json"
        if not receipts.exists():
            if "unrecognized subcommand" in done.stderr:
                return None
            raise CouldNotRun(done.stderr.strip())
        return next(check for check in json.loads(receipts.read_text())["checks"] if check["name"] == "concurrent")


def joined(numbers):
    return ",".join(map(str, numbers))


def one_by_one(prompt):
    return [prompt] + [1] * NEW_TOKENS


def expand(row, samebit):
    """The variants of a row that this machine can run."""
    if not row.isas:
        return row.variants
    names = [name for name in row.isas if samebit.has_isa(name)]
    return [Variant(name, options=("--isa", name)) for name in names]


def peer_records(folder, model, text, tokens, scratch):
    """What the peer finds for a prompt, by the name of what it changed."""
    program = next((path for path in sorted(pathlib.Path(folder).rglob("llama_logits")) if path.is_file()), None)
    if program is None:
        raise CouldNotRun(f"{folder}: there is no program `llama_logits` in it")
    prompt, out = pathlib.Path(scratch) / "prompt.txt", pathlib.Path(scratch) / "peer.jsonl"
    prompt.write_text(text)
    done = subprocess.run([program, model, prompt, str(NEW_TOKENS), out], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CouldNotRun(f"{program}: {done.stderr.strip()[-400:]}")
    head, *records = [json.loads(line) for line in out.read_text().splitlines()]
    if head["prompt_tokens"] != tokens:
        raise CouldNotRun(f"{program}: the prompt has {head['prompt_tokens']} tokens there, expected {tokens}")
    return {record["scenario"]: record for record in records}


def our_cell(results):
    """What one cell of the table says about samebit."""
    bad = [result for result in results if not result.same]
    if not bad:
        return "same bits"
    worst = max(bad, key=lambda result: result.differing)
    return (f"**differs** ({worst.variant}): {worst.differing} of {worst.positions} positions, first {worst.first}, "
            f"up to {worst.largest:.3g}, {worst.flips} tokens flip")


def peer_cell(row, records):
    """What one cell of the table says about the peer."""
    found = [record for name, record in records.items() if row.peer and row.peer(name)]
    if not found:
        return "-"
    bad = [record for record in found if record["positions_differ"] > 0]
    if not bad:
        return "same bits"
    span = lambda key: sorted({min(r[key] for r in bad), max(r[key] for r in bad)})
    positions, flips = ("-".join(map(str, span(key))) for key in ("positions_differ", "argmax_flips"))
    some = "" if len(bad) == len(found) else f"{len(bad)} of {len(found)} cases: "
    return (f"{some}{positions} of {bad[0]['positions']} positions differ, "
            f"up to {max(r['max_abs'] for r in bad):.3g}, {flips} tokens flip")


def concurrent_cell(check):
    if check is None:
        return LATER
    if check["verdict"] == "pass":
        return f"same bits ({check['cases']} cases of `prove`)"
    return f"**{check['verdict']}**: {check['failed']} of {check['cases']} cases of `prove`"


def measure(given, scratch):
    """Every row of the table, as records."""
    samebit = Samebit(given.samebit, given.model, scratch)
    answers = {tokens: samebit.answer(text, tokens) for tokens, text in PROMPTS.items()}
    peers = {tokens: peer_records(given.peer, given.model, text, tokens, scratch)
             for tokens, text in PROMPTS.items()} if given.peer else {}
    rows = []
    for row in ROWS:
        record = {"change": row.label, "samebit": {}, "results": {}, "peer": {}}
        if row.prove:
            check = samebit.concurrent()
            record["samebit"] = dict.fromkeys(map(str, PROMPTS), concurrent_cell(check))
            record["same"] = None if check is None else check["verdict"] == "pass"
        elif row.variants or row.isas:
            results = {tokens: [samebit.compare(answer, variant) for variant in expand(row, samebit)]
                       for tokens, answer in answers.items()}
            record["results"] = {str(n): [result.record() for result in found] for n, found in results.items()}
            record["samebit"] = {str(n): our_cell(found) for n, found in results.items()}
            record["same"] = all(result.same for found in results.values() for result in found)
        else:
            record["samebit"] = dict.fromkeys(map(str, PROMPTS), LATER)
            record["same"] = None
        record["peer"] = ({str(n): peer_cell(row, found) for n, found in peers.items()} if peers
                          else {"earlier": EARLIER.get(row.label, "-")})
        print(f"{row.label}: {'; '.join(record['samebit'].values())}", file=sys.stderr, flush=True)
        rows.append(record)
    chains = {str(tokens): answer.chain for tokens, answer in answers.items()}
    return {"model": given.model, "new_tokens": NEW_TOKENS, "chains": chains, "rows": rows}


def markdown(report, peer):
    """The table."""
    sizes = list(map(str, PROMPTS))
    heads = [f"samebit, {size} tokens" for size in sizes]
    heads += [f"llama.cpp, {size} tokens" for size in sizes] if peer else ["llama.cpp (measured earlier)"]
    lines = ["| change only this | " + " | ".join(heads) + " |", "|" + " --- |" * (len(heads) + 1)]
    for row in report["rows"]:
        cells = [row["samebit"][size] for size in sizes] + list(row["peer"].values())
        lines.append("| " + " | ".join([row["change"], *cells]) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m", help="a model with SmolLM2's tokenizer")
    parser.add_argument("--samebit", default="samebit", help="the program")
    parser.add_argument("--peer", metavar="DIR", help="a folder with llama_logits; MODEL must then be a file")
    parser.add_argument("--out", required=True, help="the folder to write to")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            report = measure(given, scratch)
        out = pathlib.Path(given.out)
        out.mkdir(parents=True, exist_ok=True)
        table = markdown(report, given.peer)
        (out / "determinism.json").write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
        (out / "determinism.md").write_text(table)
    except (CouldNotRun, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table, end="")
    return 1 if any(row["same"] is False for row in report["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
