#!/usr/bin/env python3
"""The time that `tfmc bench` predicts for a run beside the time that runs take, for BERT-base and MiniLM.

usage: predicted.py TFMC [--threads N] [--march SET] [--iterations N] [--rounds N] [--real-time]

In: a build. Out: for each model and size the roofline's time ("time at best" of `tfmc explore`, with the machine's
figures as `bench` has measured them in the same minute), the best and the median time of runs, and how far the
prediction is from both. Each round measures machine and runs anew; that with the fastest run counts, since a
neighbour on the machine can only slow it down. --real-time: by `chrt -f 50`, on a loaded machine.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = [("BERT-base", "models/bert.tfm", ("input_ids", "attention_mask", "token_type_ids")),
          ("MiniLM", "examples/minilm/minilm.tfm", ("input_ids", "attention_mask"))]
SIZES = ("1x16", "1x128", "8x128")


def measured(args, model, inputs, size):
    """Of the round with the fastest run: what bench says."""
    command = (["chrt", "-f", "50"] if args.real_time else []) + [
        args.tfmc, "bench", ROOT / model, "--random-weights=1", "--json", f"--iterations={args.iterations}", "--warmup=2",
        f"--threads={args.threads}", f"-march={args.march}", *(f"--input={name}={size}" for name in inputs)]
    rounds = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
              for _ in range(args.rounds)]
    return min(rounds, key=lambda bench: bench["least_seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tfmc")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--march", default="native")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--real-time", action="store_true")
    args = parser.parse_args()
    print(f"threads {args.threads}, {args.march}{', real-time priority' if args.real_time else ''}; GFLOP/s and GB/s of "
          "the machine beside each")
    print(f"{'model':10} {'size':>6} {'predicted':>10} {'best':>10} {'median':>10} {'to best':>8} {'to median':>9} "
          f"{'GFLOP/s':>8} {'GB/s':>6}")
    for name, model, inputs in MODELS:
        for size in SIZES:
            bench = measured(args, model, inputs, size)
            predicted, best, median = (bench[key] for key in ("roofline_seconds", "least_seconds", "median_seconds"))
            print(f"{name:10} {size:>6} {predicted * 1e3:7.2f} ms {best * 1e3:7.2f} ms {median * 1e3:7.2f} ms "
                  f"{100 * (predicted / best - 1):+7.1f}% {100 * (predicted / median - 1):+8.1f}% "
                  f"{bench['machine_flop_per_second'] * 1e-9:8.1f} {bench['machine_bytes_per_second'] * 1e-9:6.1f}",
                  flush=True)


if __name__ == "__main__":
    sys.exit(main())
