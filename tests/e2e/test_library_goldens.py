#!/usr/bin/env python3
"""The golden cases through compiled libraries.

usage: test_library_goldens.py TFMC CASE... [--march=NAME ...] [--in-turn] [--cc=NAME] [-v]

CASE is a case folder or a folder of them (tests/goldens/README.md). For every instruction set (x86-64-v3 and native unless
others are named; with --in-turn for one of those that run here, the next case for the next) each case is compiled to a
library with its weights beside it; what `tfmc run libmodel.so` gives (or `tfmc generate`) must agree with the expected
outputs and be the same file, byte for byte, as `model.tfm` gives. Bad cases that fail at a run must fail with the same
words, those that fail with their weights when they are packed. Needs numpy and safetensors. --cc is handed on to `tfmc compile` (none: libraries are written without a C compiler). The last line is
'N passed, N failed'; instruction sets that this machine lacks are named and not counted.
"""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "goldens"))
import check  # noqa: E402


def call(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", timeout=300)


def lacks(tfmc, march):
    """What this machine lacks for an instruction set, or an empty text."""
    for line in call(tfmc, "info").stdout.splitlines():
        if line.startswith(f"-march={march} cannot run here: "):
            return line
    return ""


class Case:
    linking = []

    def __init__(self, folder, spec, tmp):
        self.folder, self.spec, self.tmp = folder, spec, tmp
        weights = check.packaged_weights(spec) if "weights_from" in spec else os.path.join(folder, "weights.safetensors")
        self.weights = ["--weights", weights] if os.path.exists(weights) else []
        inputs = os.path.join(folder, "inputs.safetensors")
        self.inputs = ["--inputs", inputs] if os.path.exists(inputs) else []
        self.verb = "generate" if "generate" in spec else "run"
        self.generation = self.options_of_generation() if self.verb == "generate" else []
        self.defines = [f"-D{name}={value}" for name, value in spec.get("defines", {}).items()] + spec.get("options", [])

    def options_of_generation(self):
        config = os.path.join(self.tmp, "generation.json")
        with open(config, "w") as file:
            json.dump(self.spec["generate"], file)
        sampled = ["--first-step-probabilities"] if self.spec["generate"].get("do_sample") else []
        return ["--generation-config", config, *sampled]

    def compile(self, tfmc, march):
        return call(tfmc, "compile", f"{self.folder}/model.tfm", *self.defines, *self.weights, f"-march={march}", "-q",
                    *self.linking, "-o", f"{self.tmp}/libmodel.so")

    def run(self, tfmc, model, out, *options):
        return call(tfmc, self.verb, model, *self.inputs, *self.generation, "--output", out, *options)


def numeric(tfmc, case, march):
    """What is wrong with a case, or None."""
    made = case.compile(tfmc, march)
    if made.returncode:
        return f"compile: exit {made.returncode}: {made.stderr[:300]!r}"
    out, jit = f"{case.tmp}/library.safetensors", f"{case.tmp}/jit.safetensors"
    proc = case.run(tfmc, f"{case.tmp}/libmodel.so", out)
    why = check.judge(case.folder, case.spec, proc, out)
    if why:
        return why
    case.run(tfmc, f"{case.folder}/model.tfm", jit, f"-march={march}", *case.defines, *case.weights)
    same = pathlib.Path(out).read_bytes() == pathlib.Path(jit).read_bytes()
    return None if same else "not the bits of `tfmc run model.tfm`"


def bad(tfmc, case, march):
    made = case.compile(tfmc, march)
    out = f"{case.tmp}/out.safetensors"
    if case.spec["stage"] == "load":
        why = check.judge(case.folder, case.spec, made, out)
        left = os.listdir(case.tmp)
        return why or (f"left behind: {left}" if left else None)
    if made.returncode:
        return f"compile: exit {made.returncode}: {made.stderr[:300]!r}"
    return check.judge(case.folder, case.spec, case.run(tfmc, f"{case.tmp}/libmodel.so", out), out)


def try_case(tfmc, folder, spec, march, tmp):
    return (bad if "expect_error" in spec else numeric)(tfmc, Case(folder, spec, tmp), march)


def concerned(spec):
    """Whether a library can be made of the case at all: errors of the model are tested elsewhere."""
    return "expect_error" not in spec or spec["stage"] in ("load", "run")


def main(argv):
    marches = [a.split("=", 1)[1] for a in argv if a.startswith("--march=")] or ["x86-64-v3", "native"]
    Case.linking = [a for a in argv if a.startswith("--cc=")]
    tfmc, *roots = [a for a in argv if not a.startswith("-")]
    tally = check.Tally("-v" in argv)
    missing = {march: lacks(tfmc, march) for march in marches}
    for why in filter(None, missing.values()):
        print(f"not run: {why}")
    here = [march for march in marches if not missing[march]]
    if not here:
        return tally.end()
    for number, (folder, spec) in enumerate(tally.cases(roots, concerned)):
        for march in [here[number % len(here)]] if "--in-turn" in argv else here:
            tally.add(f"{folder} -march={march}", try_case, tfmc, folder, spec, march)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
