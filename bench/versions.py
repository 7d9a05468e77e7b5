#!/usr/bin/env python3
"""Two builds of tfmc beside each other on the workloads W1 to W6 and on steps of training (W7), in short turns.

usage: versions.py BEFORE AFTER [--rounds N] [--march SET] [--threads N] [--only CASE ...]

In: two folders of builds, each with `tfmc` and `bench-compare` (bench/README.md), each inside its own checkout, whose
models it reads. Weights are random, the same for both. Out: for each case the best and the median time of both, the
ratio AFTER / BEFORE of the best and the median of the ratios of the rounds; above 1, AFTER is slower.
Each round starts with the other build, and each case has two processes of each: processes of the same library differ
by 2 to 4 %.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

from versus_torch import Worker

SMOL = ["vocab=49152", "d=960", "heads=15", "kv_heads=5", "ffn=2560", "eps=1e-5", "base=100000.0", "tied=true"]
SMALL = ["d=128", "heads=8", "ffn=512", "depth=2"]
WORKLOADS = {"W1": ("bench/models/encoder.tfm", [], "Encoder"), "W2": ("examples/minilm/minilm.tfm", [], None),
             "W3": ("bench/models/nmt.tfm", [], None), "W4": ("bench/models/encoder.tfm", SMALL, "Encoder"),
             "W5": ("examples/gpt2/gpt2.tfm", [], None), "W6": ("models/llama.tfm", SMOL, None)}
RAGGED = [5 + i * 59 // 31 for i in range(32)]
# Name, workload, lengths of the rows, number of beams and of new tokens (0: no tokens are written), runs in a turn.
CASES = [("bert16", "W1", [16], 0, 0, 8), ("bert128", "W1", [128], 0, 0, 3), ("bert384", "W1", [384], 0, 0, 1),
         ("minilm16", "W2", [16], 0, 0, 20), ("minilm128", "W2", [128], 0, 0, 10), ("minilmbatch", "W2", RAGGED, 0, 0, 2),
         ("nmt", "W3", [20, 12], 4, 12, 1), ("small16", "W4", [16], 0, 0, 200), ("small128", "W4", [128], 0, 0, 50),
         ("gpt2", "W5", [32], 1, 24, 1), ("smol", "W6", [32], 1, 12, 1)]
# Steps of training: the name, which stands before the weights too; the model; for each input its shape and how many ids
# there are; runs in a turn.
STEPS = [("nmt", "Translator", {"src": ((32, 32), 8000), "tgt": ((32, 32), 8000), "labels": ((32, 32), 8000)}, 1),
         ("gpt", "Language", {"ids": ((8, 128), 50257), "labels": ((8, 128), 50257)}, 1),
         ("cls", "Classifier", {"ids": ((16, 24), 1000), "labels": ((16,), 4)}, 50)]
WIDTH = {"W1": 768, "W4": 128}
PROCESSES = 2


def weights_of(build, file, config, model):
    """Random values near what initialization gives, by the names and shapes that `tfmc check -v` prints."""
    command = [build / "tfmc", "check", "-v", "--color=never", build.parent.parent / file, *[f"-D{c}" for c in config]]
    said = subprocess.run(command + ([f"--model={model}"] if model else []), check=True, capture_output=True, text=True)
    rng, weights = np.random.default_rng(1), {}
    for name, shape in re.findall(r"^  (\S+) +f32\[([\d, ]+)\]$", said.stdout.split("weights:")[1], re.MULTILINE):
        dims = [int(n) for n in shape.split(",")]
        value = rng.standard_normal(dims, np.float32) * np.float32(0.02 if len(dims) > 1 else 0.1)
        weights[name] = value + np.float32("norm" in name.lower() and name.endswith("weight"))
    return weights


def write_case(folder, name, workload, lengths, beams, new):
    rng, shape = np.random.default_rng(3), (len(lengths), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int32)
    if workload in WIDTH:
        rng.standard_normal((*shape, WIDTH[workload]), np.float32).tofile(f"{folder}/{name}.x.f32")
    else:
        (rng.integers(100, 30000, shape) * mask).astype(np.int32).tofile(f"{folder}/{name}.ids.i32")
    mask.tofile(f"{folder}/{name}.mask.i32")
    case = {"batch": shape[0], "length": shape[1]} | ({"beam": beams, "new": new} if new else {})
    pathlib.Path(f"{folder}/{name}.json").write_text(json.dumps(case))


def write_step(folder, name, inputs):
    rng = np.random.default_rng(3)
    for key, (shape, n) in inputs.items():
        rng.integers(0, n, shape, np.int32).tofile(f"{folder}/{name}.{key}.i32")
    batch, length = max((shape for shape, _ in inputs.values()), key=len)
    case = {"weights": f"{name}.", "batch": batch, "length": length, "dropout": 0}
    pathlib.Path(f"{folder}/{name}.json").write_text(json.dumps(case))


def worker(command, build, workload, folder, args):
    march = [f"--march={args.march}"] if args.march else []
    words = [*command, workload, folder, *march] if workload == "W7" else [*command, *march, workload, folder]
    return Worker(words, cwd=build.parent.parent, env=os.environ | {"PEERS_THREADS": str(args.threads)})


def measure(before, after, case, runs, rounds):
    """Times of both by turns: [before], [after], each a list of rounds of lists of seconds."""
    times = [], []
    for number in range(rounds):
        place = number // 2 % PROCESSES
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            asked = (before, after)[which][place]
            times[which].append([float(t) for t in asked.ask(f"go {case} 1 {runs}")[1:]])
    return times


def header(unit):
    print(f"{'':36} {'best ' + unit:>9} {'':9} {'ratio':>7} {'median ' + unit:>10} {'':9} {'ratio':>7}")


def report(case, before, after, scale=1e3):
    """A line of the table: lists of rounds of seconds of both; scale: of the unit."""
    best = [min(min(turn) for turn in times) * scale for times in (before, after)]
    middle = [statistics.median(statistics.median(turn) for turn in times) * scale for times in (before, after)]
    ratio = statistics.median(statistics.median(b) / statistics.median(a) for a, b in zip(before, after))
    print(f"{case:36} {best[0]:9.3f} {best[1]:9.3f} {best[1] / best[0]:7.3f} {middle[0]:10.3f} {middle[1]:9.3f} {ratio:7.3f}",
          flush=True)


def parser_of_sides(description, rounds):
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("before", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("after", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--march", help="the instruction set; without it the best of this CPU")
    return parser


def time_cases(args, folder, workload, command, cases):
    """`command`: the words that start a worker of a build; `cases`: names and runs in a turn."""
    builds = [[worker(command(build), build, workload, folder, args) for _ in range(PROCESSES)]
              for build in (args.before, args.after)]
    for name, shown, runs in cases:
        report(shown, *measure(*builds, name, runs, args.rounds))
    for one in builds[0] + builds[1]:
        one.process.kill()


def time_runs(args):
    for workload, model in WORKLOADS.items():
        cases = [case for case in CASES if case[1] == workload and case[0] in args.only]
        if not cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            save_file(weights_of(args.after, *model), f"{folder}/weights.safetensors")
            for name, of, lengths, beams, new, _ in cases:
                write_case(folder, name, of, lengths, beams, new)
            time_cases(args, folder, workload, lambda build: [str(build / "bench-compare")],
                       [(name, name, runs) for name, *_, runs in cases])


def time_steps(args):
    """Both builds' libraries are called by this checkout's worker."""
    steps = [step for step in STEPS if f"{step[0]}-step" in args.only]
    with tempfile.TemporaryDirectory() as folder:
        weights = {}
        for name, model, inputs, _ in steps:
            found = weights_of(args.after, "bench/models/training.tfm", [], model)
            weights |= {f"{name}.{key}": value for key, value in found.items()}
            write_step(folder, name, inputs)
        save_file(weights, f"{folder}/weights.safetensors")
        script = str(pathlib.Path(__file__).resolve().parent / "training_worker.py")
        time_cases(args, folder, "W7", lambda build: [sys.executable, script, str(build / "tfmc")],
                   [(name, f"{name}-step", runs) for name, *_, runs in steps])


def main():
    parser = parser_of_sides(__doc__, 12)
    names = [case[0] for case in CASES] + [f"{step[0]}-step" for step in STEPS]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    args = parser.parse_args()
    header("ms")
    time_runs(args)
    if any(f"{step[0]}-step" in args.only for step in STEPS):
        time_steps(args)


if __name__ == "__main__":
    main()
