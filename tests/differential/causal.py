#!/usr/bin/env python3
"""Incremental decoding on random models: what earlier positions gave, kept, writes what whole rows computed anew write.

usage: causal.py TFMC [--count N] [--first SEED] [--engine reference|native|library] [--keep DIR] [--write-cases DIR]

Each model of causal_models.py writes twice with the same random weights and prompts, as it is compiled and with
--recompute (a compiled library beside the model with --recompute). Sequences must be equal; scores of beams within 1e-6 (a
beam search of the steps sums exponentials tile by tile), of the reference interpreter within 1e-5. A model in which a
position sees what comes after it must be refused (`tfmc dump --stage=step`), and of the others at least nine in ten must
not be. As many models of causal_soup.py are tried: those that are made incremental must write the same. The last line is
'N passed, N failed'. Needs numpy, safetensors.

With --write-cases nothing is tested: the models that are incremental are written with weights and inputs, as cases in
which test_decoding_bits looks for every bit (TFM_DECODING_CASES=DIR).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import load_file, save_file
from causal_models import causal_model
from causal_soup import soup_model


def random_inputs(seed, inputs):
    rng, values = np.random.default_rng(seed), {}
    for name, (dtype, shape, limit) in inputs.items():
        low = 1 if dtype == "lengths" else 0
        values[name] = rng.integers(low, limit + low, shape).astype(np.int32)
    return values


def call(command):
    proc = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return proc.returncode, proc.stderr


def generate(tfmc, seed, folder, model, options, file="model.tfm"):
    out = f"{folder}/out.safetensors"
    code, err = call([tfmc, "generate", f"{folder}/{file}", "--random-weights", str(seed), "--inputs",
                      f"{folder}/inputs.safetensors", "--output", out, "--quiet"] + model.options + options)
    return (None, f"exit {code}: {err[:400]}") if code else (load_file(out), None)


def differences(got, want, tolerance):
    if not np.array_equal(got["sequences"], want["sequences"]):
        return f"sequences {got['sequences'].tolist()} wanted {want['sequences'].tolist()}"
    if "scores" not in want:
        return None
    return None if np.allclose(got["scores"], want["scores"], rtol=tolerance, atol=tolerance) else f"scores {got['scores'].tolist()} wanted {want['scores'].tolist()}"


def compare(tfmc, seed, folder, model, engine):
    """None if both ways write the same; what differs; "" if its scores are not finite: it writes nothing."""
    save_file(random_inputs(seed, model.inputs), f"{folder}/inputs.safetensors")
    results, ways = [], [("model.tfm", [f"--engine={engine}", "--recompute"]), ("model.tfm", [f"--engine={engine}"])]
    if engine == "library":
        ways = [("model.tfm", ["--recompute"]), ("libmodel.so", [])]
        code, fault = call([tfmc, "compile", f"{folder}/model.tfm", "-o", f"{folder}/libmodel.so", "-q"])
        if code:
            return f"compile: exit {code}: {fault[:400]}"
    for file, more in ways:
        result, fault = generate(tfmc, seed, folder, model, more, file)
        if fault and not results and "not finite" in fault:
            return ""
        if fault:
            return f"{' '.join(more)} {fault}"
        results.append(result)
    return differences(results[1], results[0], tolerance=1e-5 if engine == "reference" else 1e-6)


def step_of(tfmc, folder, model):
    """Whether the model is made incremental, and why not; an error of the model itself is a fault."""
    with open(f"{folder}/model.tfm", "w") as f:
        f.write(model.source)
    code, why = call([tfmc, "dump", f"{folder}/model.tfm", "--stage=step"])
    if code and (code != 1 or "not incremental" not in why):
        raise RuntimeError(f"exit {code}: {why[:400]}")
    return code == 0, why


def planned(tfmc, seed, folder, engine, counts):
    model = causal_model(seed)
    is_incremental, why = step_of(tfmc, folder, model)
    if model.near_miss:
        counts["refused"] += not is_incremental
        return f"made incremental, though: {model.near_miss}" if is_incremental else None
    counts["sound"] += 1
    counts["incremental"] += is_incremental
    if not is_incremental:
        print(f"model {seed}: {why.strip().splitlines()[0]}")
    return compare(tfmc, seed, folder, model, engine)


def unplanned(tfmc, seed, folder, engine, counts):
    model = soup_model(seed)
    is_incremental, _ = step_of(tfmc, folder, model)
    counts["soups"] += is_incremental
    why = compare(tfmc, seed, folder, model, engine) if is_incremental else None
    counts["silent"] += why == ""
    return why or None


def random_weights(seed, graph):
    """As large as those of a model that was trained: activations stay near 1."""
    rng, weights = np.random.default_rng(seed), {}
    for name, shape in re.findall(r'= weight "([^"]+)" : f32\[([^\]]*)\]', graph):
        dims = [int(n) for n in shape.split(",")]
        spread = dims[-1] ** -0.5 if len(dims) > 1 else 0.1
        weights[name] = (rng.standard_normal(dims) * spread + (len(dims) == 1 and name.endswith("weight"))).astype(np.float32)
    return weights


def write_case(tfmc, seed, model, folder):
    os.makedirs(folder, exist_ok=True)
    is_incremental, _ = step_of(tfmc, folder, model)
    if not is_incremental or model.ragged:
        os.remove(f"{folder}/model.tfm")
        os.rmdir(folder)
        return False
    graph = subprocess.run([tfmc, "dump", f"{folder}/model.tfm"], capture_output=True, text=True).stdout
    save_file(random_weights(seed, graph), f"{folder}/weights.safetensors")
    save_file(random_inputs(seed, model.inputs), f"{folder}/inputs.safetensors")
    with open(f"{folder}/case.json", "w") as f:
        json.dump({}, f)
    return True


def write_cases(args):
    n = 0
    for seed in range(args.first, args.first + args.count):
        for make in (causal_model, soup_model):
            n += write_case(args.tfmc, seed, make(seed), f"{args.write_cases}/gen-{make.__name__}-{seed}")
    print(f"{n} cases written")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--engine", choices=["reference", "native", "library"], default="native")
    parser.add_argument("--keep", help="write failing models into this folder")
    parser.add_argument("--write-cases", metavar="DIR", help="write cases for test_decoding_bits")
    args = parser.parse_args()
    if args.write_cases:
        write_cases(args)
        return 0
    passed = failed = 0
    counts = dict.fromkeys(["incremental", "sound", "refused", "soups", "silent"], 0)
    for seed in range(args.first, args.first + args.count):
        for test, make in ((planned, causal_model), (unplanned, soup_model)):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    why = test(args.tfmc, seed, folder, args.engine, counts)
                except RuntimeError as fault:
                    why = str(fault)
            passed, failed = passed + (why is None), failed + (why is not None)
            if not why:
                continue
            print(f"FAIL {make.__name__} {seed}: {why}", flush=True)
            if args.keep:
                os.makedirs(args.keep, exist_ok=True)
                with open(f"{args.keep}/{make.__name__}-{seed}.tfm", "w") as f:
                    f.write(make(seed).source)
    print(f"{counts['incremental']} of {counts['sound']} sound models are incremental; {counts['refused']} near misses are refused")
    print(f"{counts['soups']} of {args.count} soups are incremental, {counts['silent']} of them write nothing")
    if 10 * counts["incremental"] < 9 * counts["sound"]:
        print("FAIL too many sound models are not incremental")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
