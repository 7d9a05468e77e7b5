"""What tests of weights in 4 bits share: a model with whole groups and without, rows of 8 bits by their definition.

In: the command tfmc; how long rows are. Out: a test case with a folder of its own, weights and inputs at random.
"""
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file


def sets_of_host():
    """The instruction sets beyond the baseline that this CPU has."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return [name for name, flag in [("x86-64-v3", "avx2"), ("x86-64-v3-vnni", "avx_vnni"), ("x86-64-v4", "avx512f"),
                                    ("x86-64-v4-vnni", "avx512_vnni")] if flag in flags]


def whole_rows(part):
    """A group of 32 of each row as whole numbers, and what they are multiplied with and with 2: every operation one of f32."""
    a = np.abs(part).max(axis=1, keepdims=True)
    is_none, is_finite = ~(a >= np.float32(2.0 ** -100)), np.isfinite(part).all(axis=1, keepdims=True)
    a = np.where(is_none | ~is_finite, np.float32(1), a)
    q = np.rint(np.where(is_none | ~is_finite, np.float32(0), part) * (np.float32(127) / a))
    return q.astype(np.float64), np.where(is_finite, np.where(is_none, np.float32(0), a / np.float32(254)), np.float32(np.nan))


class FewBits(unittest.TestCase):
    """With `up` of [40, short], `long` of [61, long] and `odd` of [7, 40], which has no whole groups and has 8 bits."""
    tfmc, short, long = None, 0, 0

    @classmethod
    def setUpClass(cls):
        random = np.random.default_rng(3)
        cls.weights = {name: random.normal(size=shape) for name, shape in
                       [("up.weight", (40, cls.short)), ("up.bias", 40), ("long.weight", (61, cls.long)), ("long.bias", 61),
                        ("odd.weight", (7, 40)), ("odd.bias", 7)]}
        cls.weights["up.weight"] *= np.exp2(random.integers(-20, 20, size=(40, cls.short)) / 8.0)
        cls.put_edges(cls.weights["up.weight"])
        cls.weights = {name: value.astype(np.float32) for name, value in cls.weights.items()}
        cls.inputs = {"x": random.normal(size=(40, cls.short)).astype(np.float32),
                      "wide": random.normal(size=(40, cls.long)).astype(np.float32)}

    @classmethod
    def put_edges(cls, up):
        """Groups of zeroes and others that a form treats apart."""

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        (self.folder / "m.tfm").write_text(f"""model M {{
  up   = Linear({self.short}, 40)
  long = Linear({self.long}, 61)
  odd  = Linear(40, 7)
  forward(x: f32[n, {self.short}], wide: f32[n, {self.long}]) {{ return y = up(x), z = odd(up(x)), far = long(wide) }}
}}
""")
        save_file(self.weights, self.folder / "w.safetensors")
        self.write(self.inputs)

    def write(self, inputs):
        for rows in 40, 3, 1:
            save_file({name: value[:rows] for name, value in inputs.items()}, self.folder / f"x{rows}.safetensors")

    def hard_rows(self):
        """Rows whose groups are nothing, hardly anything, large, ties, infinite or NaN."""
        x = self.inputs["x"].copy()
        x[2, 32:64] = 0
        x[3] *= np.float32(2.0 ** -100)
        x[4, 64:96] *= np.float32(1e30)
        x[5, :] = np.where(np.arange(self.short) % 2, 127, 126.5)  # all of one sign, as large as they can be
        x[6, 40] = np.inf
        x[39, 95] = np.nan
        return x

    def tfm(self, *args, code=0):
        done = subprocess.run([self.tfmc, *args], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def outputs(self, what, rows, *options, form="f32", weights="w.safetensors"):
        given = [f"--weights={weights}", f"--quantize={form}"] if what.endswith(".tfm") else []
        self.tfm("run", what, *given, f"--inputs=x{rows}.safetensors", "-o", "out.safetensors", *options)
        return load_file(self.folder / "out.safetensors")
