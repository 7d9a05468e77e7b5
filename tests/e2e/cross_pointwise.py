#!/usr/bin/env python3
"""Functions of single numbers on other machines: every bit against a library for this one, over numbers of all magnitudes.

usage: cross_pointwise.py TFMC [--target=TRIPLE ...] [--count=N] [-v]

N bit patterns (1,048,576), evenly spread over all that 32 bits have, go through each of FUNCTIONS, by a library for this machine
(x86-64-v3) and by one for every TRIPLE (all that tfmc holds a runtime for; RISC-V with vectors of 128 and of 256 bits) under
qemu, or in wasmtime m.wasm (against x86-64) and m-relaxed.wasm. A NaN is a NaN. What is missing is said and not counted. The
last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import sys
import tempfile

import cross
import numpy as np
from safetensors.numpy import save_file

FUNCTIONS = ["exp(x)", "log(x)", "sqrt(x)", "rsqrt(x)", "abs(x)", "sin(x)", "cos(x)", "tanh(x)", "sigmoid(x)", "erf(x)", "relu(x)",
             "silu(x)", "gelu(x)", "gelu_tanh(x)", "quick_gelu(x)", "-x", "floor(x)", "ceil(x)", "round(x)", "f32(i32(x))", "x / y",
             "x ** y", "maximum(x, y)", "minimum(x, y)"]
PIECE = 1 << 15
# Options of qemu and instruction sets beside the usual ones.
MORE = {"riscv64-linux-gnu": [(["-cpu", f"{cross.RV64}256"], "rv64gcv-zvl256b")]}


def patterns(n, seed):
    rng, every = np.random.default_rng(seed), 2**32 // n
    return (np.arange(n, dtype=np.uint64) * every + rng.integers(0, every, n, dtype=np.uint64)).astype(np.uint32).view(np.float32)


def write_case(folder, n):
    outputs = ", ".join(f"f{i} = {function}" for i, function in enumerate(FUNCTIONS))
    (folder / "model.tfm").write_text(f"model Functions {{\n  forward(x: f32[n], y: f32[n]) {{\n    return {outputs}\n  }}\n}}\n")
    x, y = patterns(n, 1), np.random.default_rng(2).permutation(patterns(n, 3))
    save_file({"x": x, "y": y}, folder / "inputs.safetensors")
    save_file({"f0": np.zeros(1, np.float32)}, folder / "expected.safetensors")
    (folder / "case.json").write_text(json.dumps({"defines": {}}))


def count_differences(want, got, n, found):
    if len(want) != len(got) or len(want) != 4 * n * len(FUNCTIONS):
        raise cross.Failed(f"{len(want)} and {len(got)} bytes")
    for i, function in enumerate(FUNCTIONS):
        k = cross.differ(want[4 * i * n:4 * (i + 1) * n], got[4 * i * n:4 * (i + 1) * n])
        if k:
            found[function] = found.get(function, 0) + k


def try_machine(folder, n, home, there, march, tmp):
    """What differs, or None. The numbers go piece by piece: an emulator takes a minute or more for all."""
    case, found = cross.Case(str(folder), {}, tmp), {}
    given = case.inputs
    try:
        libraries = [case.compile("home", f"-march={cross.FUSED}"), case.compile("there", f"-march={march}" if march
                                                                                 else f"--target={there.triple}")]
        about = json.loads(cross.call(cross.TFMC, "info", libraries[0], "--json").stdout)
        for first in range(0, n, PIECE):
            case.inputs = {name: values[first:first + PIECE] for name, values in given.items()}
            case.prepare(about)
            count_differences(case.run(home, libraries[0], about, 1), case.run(there, libraries[1], about, 1), min(PIECE, n - first), found)
    except cross.Failed as failed:
        return str(failed)
    return ", ".join(f"{function}: {k} of {n} differ" for function, k in found.items()) or None


def main(argv):
    def options(name):
        return [a.split("=", 1)[1] for a in argv if a.startswith(f"--{name}=")]
    tally, n, held = cross.check.Tally("-v" in argv), int((options("count") or [2**20])[0]), cross.triples()
    with tempfile.TemporaryDirectory() as name:
        folder, home = pathlib.Path(name), cross.Machine(cross.HOME, name, [])
        write_case(folder, n)
        for triple in options("target") or held:
            if triple == cross.MODULES:
                import wasm
                if home.lacks or not wasm.wasmtime:
                    print(f"not run: functions in modules: {home.lacks or 'no wasmtime (pip install wasmtime)'}")
                else:
                    tally.add(f"{triple}, {n} numbers", wasm.try_case, str(folder), {}, home, wasm.USUAL)
                continue
            for option, march in [([], None), *MORE.get(triple, [])]:
                there = cross.Machine(triple, name, option)
                if there.lacks or home.lacks:
                    print(f"not run: functions on {triple}: {there.lacks or home.lacks}")
                    continue
                tally.add(f"{march or triple}, {n} numbers", try_machine, folder, n, home, there, march)
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv))
