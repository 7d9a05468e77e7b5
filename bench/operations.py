#!/usr/bin/env python3
"""Single operations of the language beside PyTorch eager, interleaved, one thread each.

usage: operations.py BUILD [--rounds N] [--march SET] [--only WORD ...]

In: a folder of a build that has `tfmc`. Out: for each operation of operations_table.py the best and the median time of
PyTorch and of tfmc, and the ratio tfmc / PyTorch of the best and the median of the ratios of the rounds (below 1, tfmc
is faster); then how many are at most 1. Each operation is compiled to a library; the libraries run in this process, on
the same arrays, and results are compared first (1e-3 of the largest: angles of torch are f32). With `--march x86-64-v3` PyTorch and its
libraries are held to AVX2. Needs torch; without it prints 'not run' and ends with 77.
"""
import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
if any("x86-64-v3" in argument for argument in sys.argv) and "ATEN_CPU_CAPABILITY" not in os.environ:
    os.environ |= AVX2  # they are read when torch is loaded
try:
    import torch
except ImportError:
    print("not run: no torch")
    sys.exit(77)
import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from compiled import Library, compile_model
from operations_table import OPERATIONS
from versions import header, report

SECONDS = 0.03  # of a turn


def aligned(shape, dtype):
    """An array at the beginning of a page, as torch's large ones nearly are."""
    n = int(np.prod(shape))
    memory = np.empty(n + 1024, dtype)
    first = -(memory.ctypes.data // 4) % 1024
    return memory[first:first + n].reshape(shape)


def array(numbers, dtype, below, dims, sizes):
    shape = [int(eval(d, {}, sizes)) for d in dims.split(",")]
    value = aligned(shape, np.int32 if dtype == "i32" else np.float32)
    value[...] = numbers.integers(0, int(below), shape) if below else numbers.standard_normal(shape, np.float32)
    return value


class Case:
    def __init__(self, tfmc, folder, row, march):
        self.name, declared, expression, self.function, sizes = row
        inputs, _, weights = declared.partition(";")
        numbers = np.random.default_rng(1)
        arrays = [{name: array(numbers, *rest, sizes) for name, *rest in re.findall(r"(\w+): (f32|i32)(?:<(\d+))?\[([^]]*)\]", text)}
                  for text in (inputs, weights)]
        text = f"model M {{\n" + "".join(f"  weight {name}: {list(w.shape)}\n" for name, w in arrays[1].items())
        text += f"  forward({re.sub('<[0-9]+', '', inputs)}) {{ return result = {expression} }}\n}}\n"
        options = [f"-march={march}"] if march else ["-march=native"]
        if arrays[1]:
            save_file(arrays[1], f"{folder}/w.safetensors")
            options += ["--weights", f"{folder}/w.safetensors"]
        self.library = Library(tfmc, compile_model(tfmc, folder, "m", text, *options))
        self.arrays = arrays[0]
        dtype = np.float32 if self.library.about["outputs"][0]["type"].startswith("f32") else np.int32
        self.result = aligned(self.library.shape_of(self.library.about["outputs"][0], sizes), dtype)
        pointers = {name: a.ctypes.data for name, a in (self.arrays | {"result": self.result}).items()}
        self.arguments = self.library.arguments(pointers, sizes, {"result": self.result.size})
        ours = [torch.from_numpy(a) for a in (arrays[0] | arrays[1]).values()]
        self.operands = [a.long() if a.dtype == torch.int32 and "//" not in expression else a for a in ours]

    def ours(self):
        self.library.forward(self.library.context, self.arguments)

    def theirs(self):
        self.function(*self.operands)

    def check(self):
        self.library.must(self.library.forward(self.library.context, self.arguments))
        want = self.function(*self.operands).numpy()
        if want.shape != self.result.shape or not np.abs(want - self.result).max() <= 1e-3 * np.abs(want).max() + 1e-6:
            sys.exit(f"{self.name}: results differ")


def seconds(run, times):
    began = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - began) / times


def measure(case, rounds):
    case.check()
    runs = [max(1, int(SECONDS / seconds(run, 2))) for run in (case.theirs, case.ours)]
    times = [], []
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append([seconds((case.theirs, case.ours)[which], runs[which])])
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--march", help="the instruction set; without it the best of this CPU")
    parser.add_argument("--only", nargs="*", default=[""])
    args = parser.parse_args()
    torch.set_num_threads(1)
    header("ms")
    ratios = []
    for row in OPERATIONS:
        if any(word in row[0] for word in args.only):
            with tempfile.TemporaryDirectory() as folder, torch.no_grad():
                times = measure(Case(str(args.build / "tfmc"), folder, row, args.march), args.rounds)
            report(row[0], *times)
            ratios.append(statistics.median(b[0] / a[0] for a, b in zip(*times)))
    print(f"{sum(r <= 1 for r in ratios)} of {len(ratios)} take at most PyTorch's time")


if __name__ == "__main__":
    main()
