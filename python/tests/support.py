"""Models and helpers that several tests share."""
import functools
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import tfmc

PAIR = """model Pair(d = 4, vocab = 9) {
  embed = Embedding(vocab, d)
  product = Linear(d, 3)
  forward(x: f32[n, d], ids: i32[n], keep: bool[n]) {
    y = product(x + embed(ids))
    kept = where(keep, ids, -1)
    return y, kept
  }
}
"""
ONE = """model One(d = 4) {
  product = Linear(d, d, bias = false)
  forward(x: f32[n, d]) {
    y = product(x)
    return y
  }
}
"""

LONG = "TFM_LONG" in os.environ  # as make check-all asks for: more kills, more streams


def weights(shapes, seed=1):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


PAIR_WEIGHTS = weights({"embed.weight": (9, 4), "product.weight": (3, 4), "product.bias": (3,)})
ONE_WEIGHTS = weights({"product.weight": (4, 4)})
X = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
IDS = np.array([1, 0, 8, 3, 3], np.int32)
KEEP = np.array([True, False, True, True, False])


@functools.cache
def pair():
    return tfmc.compile(PAIR, weights=PAIR_WEIGHTS)


@functools.cache
def one():
    return tfmc.compile(ONE, weights=ONE_WEIGHTS)


def pair_expected(x=X, ids=IDS, keep=KEEP):
    y = (x + PAIR_WEIGHTS["embed.weight"][ids]) @ PAIR_WEIGHTS["product.weight"].T + PAIR_WEIGHTS["product.bias"]
    return y, np.where(keep, ids, -1)


def save_file(tensors, path):
    """A safetensors file, written without the package."""
    import json
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values()))


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def python(code, **named):
    """Runs a program in a Python of its own; its standard output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=900,
                          **named)
    if done.returncode:
        raise AssertionError(f"the program ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


class Case(unittest.TestCase):
    """Tests with a folder of their own and with checks of refusals."""

    def folder(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        return made.name

    def refused(self, kind, words, function, *args, **named):
        with self.assertRaises(kind) as caught:
            function(*args, **named)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, str(caught.exception))
        return caught.exception
