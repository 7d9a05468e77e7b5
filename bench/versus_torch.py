#!/usr/bin/env python3
"""The encoder of BERT-base beside PyTorch (eager), in one run, interleaved.

usage: versus_torch.py BENCH_COMPARE [--rounds N] [--tokens N ...]

Prints the best and median time of each and the median of the ratios round by round. Ends with 0 if that ratio is at
most 1 for every length, and the largest difference of the outputs at most 2e-5. Needs torch and safetensors; without
torch it prints 'not run' and ends with 77. Threads: PEERS_THREADS, else 2.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import numpy as np

LAYERS, D, HEADS, FF, EPS = 12, 768, 12, 3072, 1e-12
LINEARS = {"attention.self.query": (D, D), "attention.self.key": (D, D), "attention.self.value": (D, D),
           "attention.output.dense": (D, D), "intermediate.dense": (FF, D), "output.dense": (D, FF)}
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
THREADS = int(os.environ.get("PEERS_THREADS", "2"))


def random_weights():
    rng, weights = np.random.default_rng(1), {}
    for i in range(LAYERS):
        for name, (n, k) in LINEARS.items():
            weights[f"encoder.layer.{i}.{name}.weight"] = rng.uniform(-(3 / k) ** 0.5, (3 / k) ** 0.5, (n, k)).astype(np.float32)
            weights[f"encoder.layer.{i}.{name}.bias"] = rng.uniform(-0.1, 0.1, n).astype(np.float32)
        for name in NORMS:
            weights[f"encoder.layer.{i}.{name}.weight"] = rng.uniform(0.9, 1.1, D).astype(np.float32)
            weights[f"encoder.layer.{i}.{name}.bias"] = rng.uniform(-0.1, 0.1, D).astype(np.float32)
    return weights


def torch_encoder(torch, weights):
    """hidden states -> hidden states, by torch's own operations."""
    F, w = torch.nn.functional, {k: torch.from_numpy(v) for k, v in weights.items()}

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, (D,), w[name + ".weight"], w[name + ".bias"], EPS)

    def forward(x):
        for i in range(LAYERS):
            p = f"encoder.layer.{i}."
            q, k, v = (linear(x, p + f"attention.self.{n}").unflatten(-1, (HEADS, -1)).transpose(1, 2) for n in ("query", "key", "value"))
            a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = norm(linear(a, p + "attention.output.dense") + x, p + NORMS[0])
            x = norm(linear(F.gelu(linear(x, p + "intermediate.dense")), p + "output.dense") + x, p + NORMS[1])
        return x
    return forward


class Worker:
    """bench-compare, asked line by line. Options are those of Popen."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("@fail"):
                raise RuntimeError(f"{self.process.args}: {line.strip()}")
            if line.startswith("@"):
                return line.split()
        raise RuntimeError(f"{self.process.args} ended")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()


def measure(torch, forward, worker, folder, tokens, rounds):
    x = np.random.default_rng(tokens).standard_normal((1, tokens, D)).astype(np.float32)
    case, given = f"s{tokens}", torch.from_numpy(x)
    x.tofile(f"{folder}/{case}.x.f32")
    with open(f"{folder}/{case}.json", "w") as f:
        json.dump({"batch": 1, "length": tokens}, f)
    worker.ask(f"out {case} {folder}/out.f32")
    difference = np.abs(np.fromfile(f"{folder}/out.f32", np.float32) - forward(given).numpy().ravel()).max()
    ours, theirs, ratios = [], [], []
    for _ in range(rounds):
        mine = [float(t) for t in worker.ask(f"go {case} 1 3")[1:]]
        forward(given)
        other = []
        for _ in range(3):
            start = time.perf_counter()
            forward(given)
            other.append(time.perf_counter() - start)
        ours += mine
        theirs += other
        ratios.append(statistics.median(mine) / statistics.median(other))
    ratio = statistics.median(ratios)
    print(f"{tokens} tokens: tfmc {min(ours) * 1e3:.1f} / {statistics.median(ours) * 1e3:.1f} ms (best / median), torch "
          f"{min(theirs) * 1e3:.1f} / {statistics.median(theirs) * 1e3:.1f} ms, ratio {ratio:.2f}, difference {difference:.1e}", flush=True)
    return ratio <= 1 and difference <= 2e-5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, nargs="*", default=[128])
    args = parser.parse_args()
    try:
        import torch
        from safetensors.numpy import save_file
    except ImportError as missing:
        print(f"not run: comparison with PyTorch ({missing})")
        return 77
    torch.set_num_threads(THREADS)
    weights = random_weights()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        save_file(weights, f"{folder}/weights.safetensors")
        forward, worker = torch_encoder(torch, weights), Worker([args.program, "W1", folder])
        ok = all([measure(torch, forward, worker, folder, n, args.rounds) for n in args.tokens])
        worker.process.kill()
    return not ok


if __name__ == "__main__":
    sys.exit(main())
