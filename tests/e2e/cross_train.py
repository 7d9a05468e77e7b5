#!/usr/bin/env python3
"""Libraries that train for other machines: what they compute against what those for this machine do, to the bit.

usage: cross_train.py TFMC [--target=TRIPLE ...] [--threads=N ...] [--log=FILE] [--minutes=N] [--part=I/N] [CASE ...] [-v]

CASE is a golden case of training (all of tests/goldens/train), whose library is compiled for this machine (x86-64-v3) and
for the rows of cross.EVERYWHERE of every TRIPLE (all that tfmc holds a runtime for). host/training.c runs both, the other one under qemu:
results, gradients of the first step, weights and packed weights at the end must be equal; a NaN is a NaN. What is missing (a
runtime, TRIPLE-gcc, qemu) is said and not counted; --log, --minutes and --part are those of sweep.py. Needs numpy and
safetensors. The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import sys
import tempfile

import cross
import sweep
import test_train_library as trained


def made(folder, spec, work, machine, options):
    """The case's library and program for a machine."""
    class There(trained.Library):
        compiler = "cc" if machine.triple == cross.HOME else f"{machine.triple}-gcc"
        start = machine.start
    os.mkdir(work)
    inputs, weights = folder / "inputs.safetensors", folder / "weights.safetensors"
    defines = [w for name, value in spec.get("defines", {}).items() for w in ("-D", f"{name}={value}")]
    batches = trained.split_batches(trained.read_tensors(inputs)) if inputs.exists() else []
    library = There(work, folder / "model.tfm", [*defines, *options], batches)
    for name, (_, _, numbers) in (trained.read_tensors(weights) if weights.exists() else {}).items():
        (work / f"weight.{name}").write_bytes(numbers.tobytes())
    return library


class AtHome:
    """What this machine's library of a case computes, kept for the last case."""

    def __init__(self, machine):
        self.machine, self.case, self.kept = machine, None, None

    def of(self, folder, spec):
        if self.case != folder:
            with tempfile.TemporaryDirectory() as tmp:
                library = made(folder, spec, pathlib.Path(tmp, "home"), self.machine, [f"-march={cross.FUSED}"])
                self.kept = library.run(*call_of(spec)[0], 1, call_of(spec)[1])
            self.case = folder
        return self.kept


def call_of(spec):
    """Steps, pieces of a batch, the seed; and what is done."""
    train = spec.get("train", {})
    mode = train.get("mode", "train")
    return (0 if mode == "initial" else train.get("steps", 1), train.get("accumulate", 1), train.get("seed", 0)), mode


def try_case(folder, spec, machines, march, threads, tmp):
    """What is wrong with a case on a machine, or None."""
    home, there = machines
    want, (call, mode) = home.of(folder, spec), call_of(spec)
    library = made(folder, spec, pathlib.Path(tmp, "there"), there, [f"-march={march}"])
    for n in threads:
        got = library.run(*call, n, mode)
        if set(got) != set(want) or not want:
            return f"{sorted(got)}, wanted {sorted(want)}"
        for name, numbers in want.items():
            n_differ = cross.differ(numbers.tobytes(), got[name].tobytes())
            if n_differ:
                return f"{n} threads: {name}: {n_differ} of {len(numbers)} words differ"
    return None


def main(argv):
    def options(name):
        return [a.split("=", 1)[1] for a in argv if a.startswith(f"--{name}=")]
    roots = [a for a in argv[1:] if not a.startswith("-")] or sorted(map(str, trained.CASES.glob("train-*")))
    tally, threads, held = sweep.Tally(argv, cross.TFMC), options("threads") or ["2"], cross.triples(cross.MODULES)
    with tempfile.TemporaryDirectory() as folder:
        home = cross.Machine(cross.HOME, folder, [])
        others = {triple: cross.usable(triple, held, folder, home, []) for triple in options("target") or held}
        at_home = AtHome(home)
        for case, spec in tally.cases(roots, lambda spec: True):
            for triple, march, cpu in cross.EVERYWHERE:
                if others.get(triple):
                    tally.add(f"{case} {march} {cpu} threads={threads}", try_case, pathlib.Path(case), spec,
                              (at_home, others[triple].on(cpu)), march, threads)
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = trained.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
