#!/usr/bin/env python3
"""The bits of linear_attention: the same on all instruction sets with fused multiply-adds, with any number of threads, of an
item alone and beside others, and of the first steps whatever follows them.

usage: test_states.py TFMC

Widths fill no vector, one block of columns, and several; with and without factors, what the key reads taken out or not.
What is right is computed here, in double. The last line is 'N passed, N failed'.
"""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

import tally

TFMC = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
STEPS = 70
WIDTHS = [(1, 1), (5, 7), (16, 33), (64, 96)]
MODEL = """model States {
  forward(q: f32[batch, heads, time, N], k: f32[batch, 1, time, N], v: f32[batch, heads, time, D],
          a: f32[batch, heads, time, 1], rows: f32[batch, heads, time, N], b: f32[batch, heads, time, 1],
          each: f32[batch, heads, time, D]) {
    return sums = linear_attention(q, k, v), fades = linear_attention(q, k, v, a), delta = linear_attention(q, k, v, a, b),
           by_rows = linear_attention(q, k, v, rows, each), constant = linear_attention(q, k, v, a[:1, :, :1], b),
           turned = linear_attention(transpose(transpose(q, -1, -2), -1, -2), k, transpose(transpose(v, 0, 1), 0, 1), beta = each)
  }
}
"""


def sequential(q, k, v, a=None, b=None):
    lead, n, d = np.broadcast_shapes(q.shape[:2], k.shape[:2], v.shape[:2]), k.shape[-1], v.shape[-1]
    state, out = np.zeros((*lead, n, d)), []
    for t in range(q.shape[2]):
        if a is not None:
            state = state * a[:, :, min(t, a.shape[2] - 1), :, None]
        u = v[:, :, t, :]
        if b is not None:
            u = b[:, :, t, :] * (u - (k[:, :, t, :, None] * state).sum(-2))
        state = state + k[:, :, t, :, None] * u[..., None, :]
        out.append((q[:, :, t, :, None] * state).sum(-2))
    return np.stack(out, 2)


def operands(n, d):
    r = np.random.default_rng(n)
    unit = r.normal(size=(3, 1, STEPS, n))
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    return {name: np.ascontiguousarray(x, np.float32) for name, x in {
        "q": r.normal(size=(3, 2, STEPS, n)), "k": unit, "v": r.normal(size=(3, 2, STEPS, d)),
        "a": r.uniform(0.7, 1, (3, 2, STEPS, 1)), "rows": r.uniform(0.7, 1, (3, 2, STEPS, n)),
        "b": r.uniform(0, 1, (3, 2, STEPS, 1)), "each": r.uniform(0, 1, (3, 2, STEPS, d))}.items()}


def wanted(x):
    x = {name: value.astype(np.float64) for name, value in x.items()}
    q, k, v, a = x["q"], x["k"], x["v"], x["a"]
    return {"sums": sequential(q, k, v), "fades": sequential(q, k, v, a), "delta": sequential(q, k, v, a, x["b"]),
            "by_rows": sequential(q, k, v, x["rows"], x["each"]), "constant": sequential(q, k, v, a[:1, :, :1], x["b"]),
            "turned": sequential(q, k, v, None, x["each"])}


class States(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.info = subprocess.run([TFMC, "info"], capture_output=True, text=True, check=True).stdout

    def run_model(self, n, d, inputs, *options):
        path = lambda name: os.path.join(self.folder, name)
        with open(path("m.tfm"), "w") as file:
            file.write(MODEL.replace("N]", f"{n}]").replace("D]", f"{d}]"))
        save_file({name: np.ascontiguousarray(x) for name, x in inputs.items()}, path("in.safetensors"))
        done = subprocess.run([TFMC, "run", path("m.tfm"), "--inputs", path("in.safetensors"), "-o", path("o.safetensors"),
                               *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return load_file(path("o.safetensors"))

    def same(self, got, want, what):
        for name, x in want.items():
            self.assertEqual(got[name].tobytes(), np.ascontiguousarray(x).tobytes(), f"{name}, {what}")

    def test_values_and_bits(self):
        for n, d in WIDTHS:
            with self.subTest(n=n, d=d):
                x = operands(n, d)
                first = self.run_model(n, d, x)
                for name, want in wanted(x).items():
                    np.testing.assert_allclose(first[name], want, rtol=1e-5, atol=1e-5 * np.abs(want).max(), err_msg=name)
                for option in ("-march=x86-64-v3", "-march=x86-64-v4", "--threads=1", "--threads=3", "-O0"):
                    if f"{option} cannot run here" not in self.info:
                        self.same(self.run_model(n, d, x, option), first, option)

    def test_items_alone_and_the_first_steps(self):
        for n, d in WIDTHS[1:]:
            with self.subTest(n=n, d=d):
                x = operands(n, d)
                whole = self.run_model(n, d, x)
                alone = self.run_model(n, d, {name: v[:1] for name, v in x.items()})
                self.same(alone, {name: v[:1] for name, v in whole.items()}, "alone")
                for steps in (1, 63, 64):
                    begun = self.run_model(n, d, {name: v[:, :, :steps] for name, v in x.items()})
                    self.same(begun, {name: v[:, :, :steps] for name, v in whole.items()}, f"{steps} steps")


if __name__ == "__main__":
    sys.argv.pop(1)
    with tally.compiled_once():
        sys.exit(tally.run())
