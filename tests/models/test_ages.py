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

import checkpoint
from case_outputs import arrays, compare_outputs, each

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
                if text == today:
                    continue
                (folder / "model.tfm").write_text(text)
                model = [folder / "model.tfm", "--weights", folder, "-q", "--threads", 1, *case.get("options", [])]
                compare_outputs(tfmc, case, arrays(case["inputs"]), case["outputs"], folder, model)
            except AssertionError as fault:
                raise AssertionError(f"{version}: {fault}") from None


def main():
    ages = json.loads((pathlib.Path(__file__).resolve().parent / "ages.json").read_text())

    def one(name):
        run(name, ages[name])
        return f" ({', '.join(ages[name])})"
    return each([n for n in ages if n in sys.argv[3:] or not sys.argv[3:]], one)


sys.exit(main())
