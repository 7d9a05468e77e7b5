#!/usr/bin/env python3
"""usage: test_ages.py TFMC CASES [CASE ...]

Configs as older releases of transformers wrote them (ages.json, which make_ages.py makes): of each class three where there
are so many, with the weights of the case. `tfmc import` must take each, with no other warning than that a key is missing,
which then means what it means to transformers, and the model must be that of today's config, or compute what transformers
computes of the case. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

import checkpoint

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])


def tfmc(*args):
    done = subprocess.run([TFMC, *map(str, args)], capture_output=True, text=True)
    warnings = [line for line in done.stderr.split("\n") if "warning: " in line and not re.search(r'" is missing; ', line)]
    if done.returncode or warnings:
        raise AssertionError(f"tfmc {args[0]} ends with {done.returncode}: {done.stderr}")
    return done.stdout


def older(config, change):
    gone, other = change
    return {k: v for k, v in config.items() if k not in gone} | other


def compare_outputs(case, folder, text):
    (folder / "model.tfm").write_text(text)
    arrays = {k: np.array(v) for k, v in case["inputs"].items()}
    inputs = {k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in arrays.items()}
    save_file(inputs, folder / "in.safetensors")
    tfmc("run", folder / "model.tfm", "--weights", folder, "-q", "--threads", 1, "--inputs", folder / "in.safetensors", "-o",
         folder / "out.safetensors", *case.get("options", []))
    made = load_file(folder / "out.safetensors")
    assert sorted(made) == sorted(case["outputs"]), f"outputs {sorted(made)}"
    for name, wanted in case["outputs"].items():
        a, b = made[name], np.array(wanted)
        assert a.shape == b.shape, f"{name} is {a.shape}, wanted {b.shape}"
        if case["masked"]:
            a, b = (x[inputs[case["masked"]] != 0] for x in (a, b))
        worst = np.abs(a - b).max() / max(1, np.abs(b).max())
        assert worst < 1e-5, f"{name} differs by {worst:.2g}"


def run(name, ages):
    case = json.loads((CASES / f"{name}.json").read_text())
    config = case["files"]["config.json"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        checkpoint.write(case, folder)
        today = tfmc("import", folder, "--strict")
        generation = folder / "generation_config.json"
        for version, change in sorted(ages.items(), key=lambda row: [-int(n) for n in row[0].split(".")]):
            if tuple(map(int, version.split("."))) < (4, 26):  # which began to write it
                generation.unlink(missing_ok=True)
            (folder / "config.json").write_text(json.dumps(older(config, change)))
            try:
                text = tfmc("import", folder)
                if text != today:
                    compare_outputs(case, folder, text)
            except AssertionError as fault:
                raise AssertionError(f"{version}: {fault}") from None


def main():
    ages = json.loads((pathlib.Path(__file__).resolve().parent / "ages.json").read_text())
    failed, names = 0, [n for n in ages if n in sys.argv[3:] or not sys.argv[3:]]
    for name in names:
        try:
            run(name, ages[name])
            print(f"ok    {name} ({', '.join(ages[name])})")
        except AssertionError as fault:
            failed += 1
            print(f"FAIL  {name}: {str(fault)[:1500]}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return failed != 0 or not names


sys.exit(main())
