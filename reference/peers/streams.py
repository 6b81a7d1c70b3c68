#!/usr/bin/env python3
"""Measures servers by concurrent streams: completion tokens a second of all streams together.

    python3 reference/peers/streams.py --streams 1,4,8 --rounds 5 samebit=http://127.0.0.1:8080 other=http://127.0.0.1:8081

The servers are asked in turns, round by round; each stream sends a prompt of its own, so that no cache helps, and reads
its answer as it comes. Prints the median of each server, and of the ratios within a round the median and the lowest,
first server over each other one.
"""
import argparse
import json
import random
import statistics
import threading
import time
import urllib.request

WORDS = "river stone cloud amber quiet market seven orange window copper letter garden silver winter engine paper".split()


def prompt(chooser, words):
    return " ".join(chooser.choice(WORDS) for _ in range(words))


def stream(url, text, tokens, counts, index):
    """Reads one answer and notes how many tokens it had."""
    body = {"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                usage = json.loads(line[6:]).get("usage")
                if usage:
                    counts[index] = usage["completion_tokens"]


def rate(url, streams, tokens, words, chooser):
    counts = [0] * streams
    texts = [prompt(chooser, words) for _ in range(streams)]
    threads = [threading.Thread(target=stream, args=(url, text, tokens, counts, index))
               for index, text in enumerate(texts)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - start
    if not all(count == tokens for count in counts):
        raise SystemExit(f"{url}: answers of {counts} tokens, expected {tokens} each")
    return sum(counts) / taken


def main():
    parser = argparse.ArgumentParser(description="Measures servers by concurrent streams.")
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--streams", default="1,4,8", help="streams at once, several numbers by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--words", type=int, default=24, help="words of each prompt")
    given = parser.parse_args()
    servers = [server.split("=", 1) for server in given.servers]
    chooser = random.Random(1)
    for streams in map(int, given.streams.split(",")):
        rates = {name: [] for name, _ in servers}
        for _ in range(given.rounds):
            for name, url in servers:
                rates[name].append(rate(url, streams, given.tokens, given.words, chooser))
        print(f"{streams} streams:", ", ".join(f"{name} {statistics.median(all):.0f} tok/s" for name, all in rates.items()))
        first, *others = rates
        for other in others:
            ratios = [a / b for a, b in zip(rates[first], rates[other])]
            print(f"  {first} / {other}: {statistics.median(ratios):.2f}, lowest {min(ratios):.2f}")


if __name__ == "__main__":
    main()
