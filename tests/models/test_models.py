#!/usr/bin/env python3
"""usage: test_models.py TFMC CASES [CASE ...]

Every case is a folder of transformers, written anew with weights from checkpoint.py: `tfmc import` makes its model, and what
`tfmc run` and `tfmc generate` compute is compared with what transformers computed (make_cases.py), outputs within 1e-5 of the
largest number, tokens exactly, greedily and with 3 beams, with two sets of weights and inputs. --strict holds for all of
them: no key of a config is left over. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from safetensors.numpy import load_file, save_file

import checkpoint
from case_outputs import arrays, compare_outputs, each

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])


def tfmc(*args):
    done = subprocess.run([TFMC, *map(str, args)], capture_output=True, text=True)
    if done.returncode or "warning" in done.stderr:
        raise AssertionError(f"tfmc {args[0]} ends with {done.returncode}: {done.stderr}")
    return done.stdout


def ended(row):
    """Without what fills a row after its end: transformers fill with the end token where there is no pad."""
    while len(row) > 1 and row[-1] in (0, 1, 2):
        row = row[:-1]
    return row


def compare_tokens(case, inputs, run, folder, model):
    save_file({k: v for k, v in inputs.items() if k != case["grows"] or not case["encoder"]}, folder / "start.safetensors")
    for beams, wanted in run["tokens"].items():
        tfmc("generate", *model, "--inputs", folder / "start.safetensors", "--num-beams", beams, "--max-new-tokens", 6,
             "-o", folder / "tokens.safetensors")
        made = load_file(folder / "tokens.safetensors")["sequences"].tolist()
        assert [ended(r) for r in made] == [ended(r) for r in wanted], f"{beams} beams: {made}, wanted {wanted}"


def run(name):
    case = json.loads((CASES / f"{name}.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        checkpoint.write(case, folder)
        text = folder / "model.tfm"
        tfmc("import", folder, "-o", text, "--strict")
        model = [text, "--weights", folder, "-q", "--threads", 1, *case.get("options", [])]
        inputs = arrays(case["inputs"])
        for seed, run in enumerate((case, case["second"])):
            if seed:
                checkpoint.write(case, folder, seed)
                assert tfmc("import", folder, "--strict") == text.read_text()
                inputs = {k: checkpoint.turned(v) for k, v in inputs.items()}
            compare_outputs(tfmc, case, inputs, run["outputs"], folder, model)
            if "tokens" in run:
                compare_tokens(case, inputs, run, folder, model)


def main():
    return each(sorted(p.stem for p in CASES.glob("*.json") if p.stem in sys.argv[3:] or not sys.argv[3:]), run)


sys.exit(main())
