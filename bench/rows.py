#!/usr/bin/env python3
"""Two builds of tfmc beside each other on operations along long rows, in short turns.

usage: rows.py BEFORE AFTER [--rounds N] [--march SET] [--only NAME ...]

In: two folders of builds that have `tfmc`. Out: for each operation and length of a row the best and the median time of
both of one run, in microseconds, the ratio AFTER / BEFORE of the best and the median of the ratios of the rounds; above
1, AFTER is slower. One thread. Each build compiles one library a case; the libraries run in this process, on the same
arrays, and each round starts with the other one.
"""
import pathlib
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from compiled import Library, compile_model
from versions import header, parser_of_sides, report

OPERATIONS = {"softmax": "softmax(x)", "log_softmax": "log_softmax(x)", "layer_norm": "layer_norm(x, g, b, 1e-5)",
              "rms_norm": "rms_norm(x, g, 1e-5)", "mean": "mean(x, axis=-1)", "sum": "sum(x, axis=-1)"}
ROWS = {768: 128, 4096: 64, 1_000_000: 1}
SECONDS = 0.02  # of a turn


def source(name, length):
    inputs = "".join(f", {g}: f32[{length}]" for g in "gb" if f", {g}," in OPERATIONS[name])
    return f"model R {{ forward(x: f32[rows, {length}]{inputs}) {{ return y = {OPERATIONS[name]} }} }}\n"


def aligned(shape):
    """An array at the beginning of a page: where it lies costs more than what two builds differ by."""
    n = int(np.prod(shape))
    memory = np.empty(n + 1024, np.float32)
    first = -(memory.ctypes.data // 4) % 1024
    return memory[first:first + n].reshape(shape)


class Case:
    def __init__(self, tfmc, folder, name, length, march):
        folder.mkdir()
        path = compile_model(str(tfmc), str(folder), "r", source(name, length), *march)
        self.library = Library(str(tfmc), path)
        rows, numbers = {"rows": ROWS[length]}, np.random.default_rng(1)
        shapes = {"x": (ROWS[length], length), "g": (length,), "b": (length,)}
        self.arrays = {name: aligned(shapes[name]) for name in (i["name"] for i in self.library.about["inputs"])}
        for array in self.arrays.values():
            array[:] = numbers.standard_normal(array.shape, np.float32)
        self.arrays["y"] = aligned(self.library.shape_of(self.library.about["outputs"][0], rows))
        about = self.library.about  # a build from before 2026-11 does not tell the members of args; this was their order
        inputs = [tensor["name"] for tensor in about["inputs"]]
        members = {"symbols": about["sizes"], "inputs": inputs, "outputs": ["y"], "capacities": ["y"]}
        about.setdefault("args", [[group, name] for group, names in members.items() for name in names])
        pointers = {name: array.ctypes.data for name, array in self.arrays.items()}
        self.arguments = self.library.arguments(pointers, rows, {"y": self.arrays["y"].size})

    def seconds(self, runs):
        began = time.perf_counter()
        for _ in range(runs):
            self.library.forward(self.library.context, self.arguments)
        return (time.perf_counter() - began) / runs


def compare(cases, rounds):
    for case in cases:
        case.library.must(case.library.forward(case.library.context, case.arguments))
        case.seconds(3)
    runs = max(1, int(SECONDS / cases[0].seconds(3)))
    times = [], []
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append([cases[which].seconds(runs)])
    return times


def main():
    parser = parser_of_sides(__doc__, 40)
    parser.add_argument("--only", nargs="*", choices=OPERATIONS, default=list(OPERATIONS))
    args = parser.parse_args()
    march = [f"-march={args.march}" if args.march else "-march=native"]
    header("us")
    for name in args.only:
        for length in ROWS:
            with tempfile.TemporaryDirectory() as folder:
                cases = [Case(build / "tfmc", pathlib.Path(folder) / word, name, length, march)
                         for word, build in (("before", args.before), ("after", args.after))]
                report(f"{name} {ROWS[length]} x {length}", *compare(cases, args.rounds), scale=1e6)
                for case in cases:
                    case.library.close()


if __name__ == "__main__":
    main()
