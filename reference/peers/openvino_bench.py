#!/usr/bin/env python3
"""Measures OpenVINO GenAI, in the line that `samebit bench --compare` reads.

    pip install openvino-genai
    samebit bench MODEL.gguf -t 1,2 --compare \
        'python3 reference/peers/openvino_bench.py {model} -p {prompt} -n {generate} -d {depth} -t {threads}'

Prefill is the time to the first token. Decode is the mean time per token of the tokens after the first one, behind a
prompt of --depth tokens (of one token where that is 0, since there is no generation without a prompt).
"""
import argparse
import os
import sys


def positive(text):
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("expected a number of at least 0")
    return number


def arguments():
    parser = argparse.ArgumentParser(description="Measures OpenVINO GenAI on a GGUF file.")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("-p", "--prompt", type=positive, default=0, help="tokens to prefill; 0 measures decode")
    parser.add_argument("-n", "--generate", type=positive, default=0, help="tokens to decode")
    parser.add_argument("-d", "--depth", type=positive, default=0, help="tokens in the context before decode begins")
    parser.add_argument("-t", "--threads", type=positive, default=os.cpu_count(), help="threads to compute with")
    given = parser.parse_args()
    if (given.prompt > 0) == (given.generate > 0):
        parser.error("one of --prompt and --generate must be 0, and the other one not")
    return given


class Peer:
    """A loaded model."""

    def __init__(self, model, threads):
        import openvino  # first: it tells the loader where the libraries of openvino_genai lie
        import openvino_genai

        self.openvino, self.genai = openvino, openvino_genai
        self.runs = 0
        self.pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)

    def times(self, prompt, generate):
        """Milliseconds to the first token, and per token after it, of `generate` tokens behind `prompt` tokens."""
        import numpy

        # Arbitrary ids that any vocabulary of today has, others in every run: a known prefix would be reused.
        self.runs += 1
        ids = numpy.random.RandomState(self.runs).randint(1000, 30000, (1, prompt)).astype(numpy.int64)
        tensor = self.openvino.Tensor
        inputs = self.genai.TokenizedInputs(tensor(ids), tensor(numpy.ones_like(ids)))
        result = self.pipeline.generate(inputs, max_new_tokens=generate, do_sample=False, ignore_eos=True)
        return result.perf_metrics.get_ttft().mean, result.perf_metrics.get_tpot().mean


def main():
    given = arguments()
    try:
        peer = Peer(given.model, given.threads)
    except ImportError as error:
        sys.exit(f"{error}: pip install openvino-genai")
    # The first run of a shape also builds its kernels.
    if given.prompt > 0:
        peer.times(given.prompt, 1)
        test, rate = "prefill", 1000 * given.prompt / peer.times(given.prompt, 1)[0]
    else:
        behind = max(given.depth, 1)
        peer.times(behind, 4)
        test, rate = "decode", 1000 / peer.times(behind, given.generate + 1)[1]
    print(f"test={test} threads={given.threads} depth={given.depth} tok_s={rate:.3f}")


if __name__ == "__main__":
    main()
