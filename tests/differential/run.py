#!/usr/bin/env python3
"""Differential test: random programs, compiled code on every instruction set against the reference interpreter.

usage: run.py TFMC [--count N] [--first SEED] [--in-turn] [--keep DIR]

Each program runs with the same random weights and inputs by `tfmc run --engine=reference` and by the compiler for
x86-64, x86-64-v3 and x86-64-v4 (--in-turn: for one of them, program by program). Every output must agree within 1e-5 (1 + |want|). Some programs magnify rounding (norms of
nearly constant rows, sums that cancel): where a difference is larger, the interpreter runs again on the same weights and f32
inputs rounded otherwise, by up to one part in 2^24, and the difference may be ROUNDINGS times what that changes, but in no case more than
1e-5 (1 + |want| + the largest |want| of that output). Such programs are counted and printed. NaN equals NaN. An instruction set
that this machine lacks is printed and counted as not run. At least half of the programs must fuse something (seen in
`tfmc dump --stage=fused`). Every third program runs with `--quantize=int8` too: its outputs must have the same bits with
one thread, which takes some rows through many steps, with two, with so many that they share columns, and on x86-64-v3.
The last line is 'N passed, N failed'. Needs numpy, safetensors.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import load_file, save_file
from generate import program

TARGETS = ["x86-64", "x86-64-v3", "x86-64-v4"]
INT8 = [["--threads=1"], ["--threads=2"], ["--threads=9"], ["-march=x86-64-v3", "--threads=1"]]
ROUNDINGS = 4


def random_inputs(seed, inputs):
    rng, values = np.random.default_rng(seed), {}
    for name, (dtype, shape, limit) in inputs.items():
        if dtype == "i32":
            values[name] = rng.integers(0, limit, shape).astype(np.int32)
        elif dtype == "bool":
            values[name] = rng.random(shape) < limit
        else:
            values[name] = rng.standard_normal(shape).astype(np.float32)
    return values


def run(tfmc, folder, weights, out, options):
    command = [tfmc, "run", f"{folder}/model.tfm", *weights, "--output", out] + options
    if os.path.exists(f"{folder}/inputs.safetensors"):
        command += ["--inputs", f"{folder}/inputs.safetensors"]
    filled = dict(os.environ, MALLOC_PERTURB_="1")  # memory that nobody has written is no zeros
    proc = subprocess.run(command, env=filled, capture_output=True, text=True, timeout=300)
    return proc.returncode, proc.stderr


def differences(want, got, changes=None):
    """What is wrong, or None. changes: of each output, what rounding the weights otherwise changes at most."""
    for name, w in want.items():
        g = got.get(name)
        if g is None or g.shape != w.shape or g.dtype != w.dtype:
            return f"{name}: missing, or another shape or type"
        if w.dtype.kind != "f":
            if not np.array_equal(g, w):
                return f"{name}: integers differ"
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        limit = 1e-5 * (1 + np.abs(w))
        if changes:
            largest = np.max(np.abs(w[np.isfinite(w)]), initial=0)
            limit = np.clip(ROUNDINGS * changes[name], limit, limit + 1e-5 * largest)
        with np.errstate(invalid="ignore"):
            bad = ~((np.abs(g - w) <= limit) | (g == w) | (np.isnan(g) & np.isnan(w)))
        if bad.any():
            i = np.unravel_index(np.argmax(np.where(bad, np.nan_to_num(np.abs(g - w), nan=np.inf), 0)), bad.shape)
            return f"{name}: {bad.sum()} of {bad.size} differ, worst at {tuple(map(int, i))}: {g[i]} wanted {w[i]}"
    return None


def fuses(tfmc, folder):
    proc = subprocess.run([tfmc, "dump", f"{folder}/model.tfm", "--stage=fused"], capture_output=True, text=True, timeout=300)
    return any(op in proc.stdout for op in ("= attention ", "acc", "= norm "))


def random_weights(tfmc, folder, seed):
    """Matrices and kernels of convolutions are divided by the root of how many terms a result sums."""
    dump = subprocess.run([tfmc, "dump", f"{folder}/model.tfm"], capture_output=True, text=True, timeout=300).stdout
    rng, weights = np.random.default_rng(seed), {}
    for name, dims in re.findall(r'= weight "?([\w.]+)"?.*?: f32\[([^\]]*)\]', dump):
        shape = [int(dim) for dim in dims.split(",") if dim.strip()]
        values = rng.standard_normal(shape)
        if len(shape) > 1:
            values /= np.sqrt(np.prod(shape[1:]))
        elif name.endswith("weight"):
            values = 1 + values / 4
        elif name.endswith("running_var"):
            values = 0.5 + np.abs(values)
        weights[name] = values.astype(np.float32)
    return weights


def save_weights(folder, weights):
    """The arguments that name them."""
    if not weights:
        return []
    save_file(weights, f"{folder}/weights.safetensors")
    return ["--weights", f"{folder}/weights.safetensors"]


def rounded_otherwise(rng, tensors):
    return {name: v if v.dtype != np.float32 else (v.astype(np.float64) * (1 + rng.uniform(-1, 1, v.shape) * 2.0**-24)).astype(np.float32)
            for name, v in tensors.items()}


def changes_by_rounding(tfmc, folder, seed, weights, inputs, want):
    """Of each output, how much it changes at most when weights and inputs are rounded otherwise; None if it cannot be computed."""
    rng, changes = np.random.default_rng(seed), {name: 0.0 for name in want}
    for _ in range(4):
        if inputs:
            save_file(rounded_otherwise(rng, inputs), f"{folder}/inputs.safetensors")
        named = save_weights(folder, rounded_otherwise(rng, weights))
        code, _ = run(tfmc, folder, named, f"{folder}/other.safetensors", ["--engine=reference"])
        if code:
            return None
        other = load_file(f"{folder}/other.safetensors")
        for name, w in want.items():
            if w.dtype.kind == "f":
                difference = np.abs(other[name].astype(np.float64) - w.astype(np.float64))
                changes[name] = max(changes[name], float(np.max(difference[np.isfinite(difference)], initial=0)))
    save_weights(folder, weights)
    if inputs:
        save_file(inputs, f"{folder}/inputs.safetensors")
    return changes


def other_bits_of_int8(tfmc, folder, named):
    """The options with which int8 gives other bits than with one thread, or fails; None: there are none."""
    expected = None
    for options in INT8:
        code, err = run(tfmc, folder, named, f"{folder}/got.safetensors", ["--quantize=int8", *options])
        if code == 3 and "lacks" in err:
            continue
        if code:
            return f"int8 {options}: exit {code}: {err[:400]}"
        with open(f"{folder}/got.safetensors", "rb") as f:
            got = f.read()
        expected = expected or got
        if got != expected:
            return f"int8 {options}: other bits than {INT8[0]}"
    return None


def one(tfmc, seed, folder, counts, targets):
    source, inputs = program(seed)
    with open(f"{folder}/model.tfm", "w") as f:
        f.write(source)
    values = random_inputs(seed, inputs)
    if values:
        save_file(values, f"{folder}/inputs.safetensors")
    weights = random_weights(tfmc, folder, seed)
    named = save_weights(folder, weights)
    code, err = run(tfmc, folder, named, f"{folder}/want.safetensors", ["--engine=reference"])
    if code:
        return f"reference: exit {code}: {err[:400]}"
    want = load_file(f"{folder}/want.safetensors")
    counts["fused"] += fuses(tfmc, folder)
    for target in targets:
        code, err = run(tfmc, folder, named, f"{folder}/got.safetensors", [f"-march={target}"])
        if code == 3 and "lacks" in err:
            counts["not run"] += 1
            continue
        if code:
            return f"{target}: exit {code}: {err[:400]}"
        got = load_file(f"{folder}/got.safetensors")
        why = differences(want, got)
        if not why:
            continue
        changes = changes_by_rounding(tfmc, folder, seed, weights, values, want)
        if not changes or differences(want, got, changes):
            return f"{target}: {why}; rounding otherwise changes {changes}"
        counts["magnify"].add(seed)
        print(f"program {seed} magnifies rounding, {target}: {why}", flush=True)
    return other_bits_of_int8(tfmc, folder, named) if seed % 3 == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--in-turn", action="store_true", help="each program for one instruction set only")
    parser.add_argument("--keep", help="write failing programs into this folder")
    args = parser.parse_args()
    passed = failed = 0
    counts = {"fused": 0, "not run": 0, "magnify": set()}
    for seed in range(args.first, args.first + args.count):
        with tempfile.TemporaryDirectory() as folder:
            targets = [TARGETS[seed % len(TARGETS)]] if args.in_turn else TARGETS
            why = one(args.tfmc, seed, folder, counts, targets)
            if why:
                print(f"FAIL program {seed}: {why}", flush=True)
                if args.keep:
                    os.makedirs(args.keep, exist_ok=True)
                    with open(f"{args.keep}/{seed}.tfm", "w") as f:
                        f.write(program(seed)[0])
        passed, failed = passed + (why is None), failed + (why is not None)
    print(f"{len(counts['magnify'])} programs magnify rounding")
    print(f"{counts['fused']} of {args.count} programs fused something; {counts['not run']} runs not run (no such CPU)")
    if 2 * counts["fused"] < args.count:
        print("FAIL fewer than half of the programs fused something")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
