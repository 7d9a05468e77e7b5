#!/usr/bin/env python3
"""What loading weights takes: the packed weights and little besides, whatever the file's type and its largest tensor.
Weights of products that a file has in 16 bits are packed in 16 bits, unless a library was compiled without the file.

usage: test_weight_memory.py TFMC          The last line is 'N passed, N failed'.

Each command runs with a large model and with a small one of the same layers. What the large one's peak (the resident
set, mapped pages included) has above the small one's is due to the weights. A run with large weights has given the
pages of LLVM back before it packs them, so that it has less than its weights above the small one. The files are sparse: the zeros in them
take no room on the disk.
"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ELEMENT_BYTES = {"F32": 4, "BF16": 2}
SLACK = 0.10  # of the packed weights
GIVEN_BACK = 16 << 20  # bytes at least: of what the compiler took, before weights are packed


class Model:
    """A name, a source text, what makes it large or small, the shapes of its weights as functions of that, and whether
    products read nearly all of them."""

    def __init__(self, name, text, large, small, shapes, is_products=True):
        self.name, self.text, self.sizes, self.shapes = name, text, {"large": large, "small": small}, shapes
        self.is_products = is_products


MODELS = [
    Model("equal matrices", """model M(d = 1024) {
  up   = 4 * Linear(d, 4 * d)
  down = 4 * Linear(4 * d, d)
  forward(x: f32[batch, d]) {
    return y = x -> up[0] -> down[0]UP
  }
}
""".replace("UP", "".join(f" -> up[{i}] -> down[{i}]" for i in range(1, 4))), {"d": 1024}, {"d": 16},
          lambda d: {f"{name}.{i}.{part}": shape for i in range(4) for name, part, shape in (
              ("up", "weight", [4 * d, d]), ("up", "bias", [4 * d]), ("down", "weight", [d, 4 * d]),
              ("down", "bias", [d]))}),
    Model("a table that is most of the file", """model M(rows = 16, d = 256) {
  table = Embedding(rows, d)
  out   = Linear(d, d)
  forward(ids: i32[batch]) { return y = out(table(ids) * 16.0) }
}
""", {"rows": 150000}, {"rows": 16},
          lambda rows: {"table.weight": [rows, 256], "out.weight": [256, 256], "out.bias": [256]}, False),
    Model("a matrix of the file's other order, side by side with another", """model M(n = 16, d = 256) {
  weight a: [d, n]
  weight b: [d, n]
  forward(x: f32[batch, d]) { return y = argmax(x @ a), z = argmax(x @ b[:, 1:]) }
}
""", {"n": 75000}, {"n": 16}, lambda n: {"a": [256, n], "b": [256, n]}),
]


def write_weights(path, shapes, dtype):
    """A safetensors file of zeros; returns how many elements it has."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape) * ELEMENT_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return at // ELEMENT_BYTES[dtype]


class Tests:
    def __init__(self, tfmc, folder):
        self.tfmc, self.folder = tfmc, pathlib.Path(folder)
        self.passed = self.failed = 0

    def check(self, name, condition):
        self.passed, self.failed = self.passed + bool(condition), self.failed + (not condition)
        if not condition:
            print(f"FAIL {name}")

    def peak(self, *arguments):
        """The largest resident set of a command, in bytes; the command must succeed."""
        process = subprocess.Popen([self.tfmc, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.check(f"tfmc {' '.join(arguments)} works", process.returncode == 0)
        return usage.ru_maxrss * 1024

    def peaks(self, model, dtype, size):
        """The peaks of every command that packs weights, and the bytes that these take."""
        sizes = model.sizes[size]
        elements = write_weights(self.folder / "w.safetensors", model.shapes(**sizes), dtype)
        kept = elements * (ELEMENT_BYTES[dtype] if model.is_products else 4)
        packed = {"run": kept, "pack": kept, "run of a library": 4 * elements}
        define = [argument for name, value in sizes.items() for argument in ("-D", f"{name}={value}")]
        given = ["--weights=w.safetensors", "--input=" + ("ids=1" if "ids:" in model.text else
                                                          f"x=1x{sizes.get('d', 256)}"), "--threads=1"]
        peaks = {"run": self.peak("run", "m.tfm", *define, *given),
                 "pack": self.peak("pack", "m.tfm", *define, "--weights=w.safetensors", "-o", "m.tfmw")}
        file = (self.folder / "m.tfmw").stat().st_size
        self.check(f"size of the file, {model.name}, {dtype}, {size}",
                   size == "small" or abs(file / kept - 1) < SLACK)
        os.remove(self.folder / "m.tfmw")
        self.peak("compile", "m.tfm", *define, "-o", "libm.so")
        peaks["run of a library"] = self.peak("run", "./libm.so", *given)
        return peaks, packed

    def all(self):
        for model in MODELS:
            (self.folder / "m.tfm").write_text(model.text)
            for dtype in ELEMENT_BYTES:
                small, _ = self.peaks(model, dtype, "small")
                large, packed = self.peaks(model, dtype, "large")
                for command, peak in large.items():
                    share = (peak - small[command]) / packed[command]
                    self.check(f"{command}, {model.name}, {dtype}: {share:.2f} times the weights", share <= 1 + SLACK)
                more = large["run"] - small["run"]  # the small one keeps the compiler's memory
                self.check(f"run, {model.name}, {dtype}: {more >> 20} MiB more, {packed['run'] >> 20} of weights",
                           more <= packed["run"] - GIVEN_BACK)


def main():
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(os.path.abspath(sys.argv[1]), folder)
        tests.all()
    print(f"{tests.passed} passed, {tests.failed} failed")
    return tests.failed > 0


if __name__ == "__main__":
    sys.exit(main())
