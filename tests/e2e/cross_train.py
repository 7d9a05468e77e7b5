#!/usr/bin/env python3
"""Libraries that train for other machines: what they compute against what those for this machine do, to the bit.

usage: cross_train.py TFMC [--target=TRIPLE ...] [--threads=N ...] [CASE ...] [-v]

CASE is a golden case of training (all of tests/goldens/train), whose library is compiled for this machine (x86-64-v3) and
with --target for every TRIPLE (all that tfmc holds a runtime for). host/training.c runs both, the other one under qemu:
results, gradients of the first step, weights and packed weights at the end must be equal; a NaN is a NaN. What is missing (a
runtime, TRIPLE-gcc, qemu) is said and not counted. Needs numpy and safetensors. The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import sys
import tempfile

import cross
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


def try_case(folder, spec, machines, threads, tmp):
    """What is wrong with a case on a machine, or None."""
    home, there = machines
    train = spec.get("train", {})
    mode = train.get("mode", "train")
    call = 0 if mode == "initial" else train.get("steps", 1), train.get("accumulate", 1), train.get("seed", 0)
    want = made(folder, spec, pathlib.Path(tmp, "home"), home, [f"-march={cross.FUSED}"]).run(*call, 1, mode)
    library = made(folder, spec, pathlib.Path(tmp, "there"), there, [f"--target={there.triple}"])
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
    roots = [pathlib.Path(a) for a in argv[1:] if not a.startswith("-")] or sorted(trained.CASES.glob("train-*"))
    tally, threads, held = cross.check.Tally("-v" in argv), options("threads") or ["2"], cross.triples(cross.MODULES)
    with tempfile.TemporaryDirectory() as folder:
        home = cross.Machine(cross.HOME, folder, [])
        for triple in options("target") or held:
            there = cross.Machine(triple, folder, [])
            lacks = there.lacks or home.lacks or ("" if triple in held else f"tfmc holds no runtime for {triple}")
            if lacks:
                print(f"not run: libraries that train for {triple}: {lacks}")
                continue
            for case in roots:
                spec = json.loads((case / "case.json").read_text())
                tally.add(f"{case} --target={triple}", try_case, case, spec, (home, there), threads)
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = trained.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
