#!/usr/bin/env python3
"""What compiled libraries do with unusual inputs, weights and callers: I11 to I18, W16 to W18, W23, H05, H10, H13, H16 of
the catalogue of bad inputs. Libraries are loaded into this process and called with NumPy arrays.

usage: test_library_inputs.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import numpy as np
from safetensors.numpy import save_file

import tally
from compiled import CANCELLED, ENV, INPUT, OK, USAGE, Library, compile_model

TFMC = None
SOURCE = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 24
ROWS = [1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 257, 509, 511, 512, 513, 1021]

BLOCK = """
model Block(d = 24) {
  block = EncoderLayer(d, 3, 20, gelu)
  forward(x: f32[batch, time, d], pad: bool[batch, time]) {
    return free = block(x, src_key_padding_mask = pad), causal = block(x, src_key_padding_mask = pad, is_causal = true)
  }
}
"""

TAILS = """
model Tails(h = 8) {
  forward(q: f32[t, h], k: f32[n, h], v: f32[n, h], x: f32[b, n]) {
    return a = softmax(q @ transpose(k, 0, 1)) @ v, s = softmax(x), l = log_softmax(x), m = mean(x), g = max(x), i = argmax(x),
           e = exp(x), p = x @ v
  }
}
"""

NORMS = """
model Norms(n = 40) {
  forward(x: f32[b, n], w: f32[n], c: f32[n]) { return y = layer_norm(x, w, c, 1e-5), r = rms_norm(x, w, 1e-5) }
}
"""


def block_weights(rng):
    d, hidden = WIDTH, 20
    shapes = {"self_attn.in_proj_weight": [3 * d, d], "self_attn.in_proj_bias": [3 * d], "self_attn.out_proj.weight": [d, d],
              "self_attn.out_proj.bias": [d], "linear1.weight": [hidden, d], "linear1.bias": [hidden],
              "linear2.weight": [d, hidden], "linear2.bias": [d], "norm1.weight": [d], "norm1.bias": [d], "norm2.weight": [d],
              "norm2.bias": [d]}
    return {f"block.{k}": (rng.standard_normal(s) / 4).astype(np.float32) for k, s in shapes.items()}


def softmax(x):
    """In double precision; a row of -inf gives zeros."""
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        top = np.max(x, -1, keepdims=True)
        e = np.where(np.isneginf(x), 0, np.exp(x - np.where(np.isneginf(top), 0, top)))
        return e / np.where(np.isneginf(top), 1, np.sum(e, -1, keepdims=True))


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.rng = np.random.default_rng(11)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def library(self, name, source, weights=None, options=(), threads=1):
        if weights:
            save_file(weights, self.path(f"{name}.safetensors"))
            options = [*options, "--weights", self.path(f"{name}.safetensors")]
        library = Library(TFMC, compile_model(TFMC, self.folder.name, name, source, *options), threads=threads)
        self.addCleanup(library.close)
        return library

    def block(self, threads=1):
        return self.library("block", BLOCK, block_weights(self.rng), threads=threads)

    def block_inputs(self, batch, length):
        x = self.rng.standard_normal((batch, length, WIDTH)).astype(np.float32)
        return {"x": x, "pad": np.arange(length) >= self.rng.integers(1, length + 1, (batch, 1))}

    def same(self, a, b, what=""):
        for name in a:
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), f"{what}: {name}")


class Rows(Case):
    def test_I11_rows_do_not_depend_on_the_batch(self):
        library = self.block()
        others = [library.new_context(threads) for threads in (2, 4)]
        inputs = self.block_inputs(33, 19)
        alone = [library.run({k: v[i:i + 1] for k, v in inputs.items()}) for i in range(33)]
        for size in (1, 8, 33):
            for shift in (0, 5):
                pick = [(shift + 3 * i) % 33 for i in range(size)]
                for context in (None, *others):
                    got = library.run({k: v[pick] for k, v in inputs.items()}, context)
                    for place, row in enumerate(pick):
                        self.same(alone[row], {k: v[place:place + 1] for k, v in got.items()}, f"row {row} at {place} of {size}")

    def test_I11_garbage_in_other_rows(self):
        library = self.block(threads=2)
        inputs = self.block_inputs(8, 17)
        clean = library.run(inputs)
        for garbage in (np.nan, np.inf, -np.inf, 3e38, 1e-42):
            dirty = inputs["x"].copy()
            dirty[[0, 2, 3, 7]] = garbage
            got = library.run(inputs | {"x": dirty})
            for row in (1, 4, 5, 6):
                self.same({k: v[row] for k, v in clean.items()}, {k: v[row] for k, v in got.items()}, f"{garbage}: row {row}")
        self.same(clean, library.run(inputs), "afterwards")


class Numbers(Case):
    def tails(self, n, x, t=3):
        return {"q": self.rng.standard_normal((t, 8)), "k": self.rng.standard_normal((n, 8)), "v": self.rng.standard_normal((n, 8)), "x": x}

    def test_I12_softmax_of_extreme_scores(self):
        library = self.library("tails", TAILS)
        n = 37
        rows = [np.full(n, value) for value in (0, 1, -1, 88, 89, -104, 1e4, -1e4, 1e20, 1e38, -1e38, 3.4e38, -3.4e38, 1e-42)]
        for high in (89, 1e4, 1e20, 1e38):
            rows += [np.linspace(-high, high, n), np.where(np.arange(n) == 20, high, 0), np.where(np.arange(n) % 5 == 1, -np.inf, high)]
        rows += [np.where(np.arange(n) == 36, -3e38, -np.inf)]
        x = np.array(rows, np.float32)
        got = library.run(self.tails(n, x))["s"]
        self.assertTrue(np.isfinite(got).all() and (got >= 0).all() and (got <= 1).all())
        self.assertLess(np.abs(got.sum(-1, dtype=np.float64) - 1).max(), 1e-6)
        self.assertLess(np.abs(got - softmax(x)).max(), 1e-6)
        nothing = library.run(self.tails(n, np.full((2, n), -np.inf)))["s"]
        self.assertFalse(nothing.any(), "a row of -inf gives zeros")

    def test_I12_attention_to_extreme_scores(self):
        library = self.library("tails", TAILS)
        for n in (5, 512, 700):
            for scale in (1e4, 1e20, 1e30, 3e37):
                q, k = np.zeros((4, 8), np.float32), np.zeros((n, 8), np.float32)
                q[:, 0], k[:, 0] = [1, -1, 0, 0.5], np.float32(scale) * self.rng.choice([-1, -0.5, 0, 1], n)
                inputs = self.tails(n, np.zeros((1, n)), 4) | {"q": q, "k": k}
                got = library.run(inputs)["a"]
                want = softmax(q.astype(np.float64) @ k.T.astype(np.float64)) @ inputs["v"]
                self.assertLess(np.abs(got - want).max(), 1e-5, f"{n} keys, scores of {scale}")

    def test_I12_exp_beyond_its_range(self):
        library = self.library("tails", TAILS)
        x = np.array([[88.7, 88.8, 89, 1e4, 3e38, np.inf], [-87, -103, -104, -1e4, -3e38, -np.inf]], np.float32)
        got = library.run(self.tails(6, x))["e"]
        self.assertTrue(np.isfinite(got[0, 0]) and np.isposinf(got[0, 1:]).all(), got)
        self.assertTrue((got[1, 1:] < 2e-38).all() and not got[1, 2:].any() and (got >= 0).all(), got)

    def test_I14_norms_of_rows_without_variance(self):
        library = self.library("norms", NORMS)
        values = [0, -0.0, 1, -3, 1e-30, 1e-42, 1e4, 1e10, 1e19, 1e20, -1e20]
        x = np.array([np.full(40, v) for v in values] + [np.where(np.arange(40) % 2, v, -v) for v in (1e-42, 1e-20, 1e18, 1e20)], np.float32)
        c = np.arange(40).astype(np.float32)
        got = library.run({"x": x, "w": np.ones(40), "c": c})
        self.assertTrue(np.isfinite(got["y"]).all() and np.isfinite(got["r"]).all())
        for row in (0, 1, 4, 5):
            self.assertLess(np.abs(got["y"][row] - c).max(), 1e-3, "a row without variance is the bias")
        for row in (0, 1):
            self.assertFalse(got["r"][row].any(), "the root mean square norm of zeros is zero")
        x64 = x[2:4].astype(np.float64)
        self.assertLess(np.abs(got["r"][2:4] - x64 / np.sqrt(np.mean(x64**2, -1, keepdims=True) + 1e-5)).max(), 1e-5)

    def test_I15_lengths(self):
        library = self.library("tails", TAILS, threads=2)
        for n in [*ROWS, 8192, 131072]:
            x = self.rng.standard_normal((3, n)).astype(np.float32)
            inputs = {k: v.astype(np.float32) for k, v in self.tails(n, x, min(n, 300) if n < 10000 else 3).items()}
            got = library.run(inputs)
            wide = {k: v.astype(np.float64) for k, v in inputs.items()}
            attended = softmax(wide["q"] @ wide["k"].T)
            want = {"a": attended @ wide["v"], "s": softmax(x), "l": np.log(softmax(x)), "m": wide["x"].mean(-1), "e": np.exp(wide["x"])}
            for name, value in want.items():
                self.assertTrue(np.allclose(got[name], value, 2e-5, 2e-6), f"length {n}: {name}")
            self.assertTrue(np.allclose(got["p"], wide["x"] @ wide["v"], 1e-4, 1e-6 * n + 1e-5), f"length {n}: p")
            self.assertTrue((got["g"] == x.max(-1)).all() and (got["i"] == x.argmax(-1)).all(), f"length {n}: max")

    def test_I15_lengths_of_a_block(self):
        """Positions of a causal model have the same bits at every length; 8192 positions."""
        library = self.block(threads=2)
        x = self.rng.standard_normal((1, 8192, WIDTH)).astype(np.float32)
        run = lambda n: library.run({"x": x[:, :n], "pad": np.zeros((1, n), bool)})["causal"]
        whole = run(8192)
        self.assertTrue(np.isfinite(whole).all())
        for n in [*ROWS, 4096, 8191]:
            self.assertEqual(run(n).tobytes(), whole[:, :n].tobytes(), f"length {n}")

    def test_I16_numbers_beyond_the_half(self):
        weights = {"up.weight": np.full((8, 16), 65504, np.float16), "up.bias": np.full(8, -65504, np.float16)}
        source = "model Half { up = Linear(16, 8)\n forward(x: f32[b, 16]) { return y = up(x), z = gelu(up(x)) } }"
        library = self.library("half", source, weights)
        for value in (1.0, 1000.0, 1e20, -1e20, 1e32):
            x = np.full((2, 16), value, np.float32)
            got = library.run({"x": x})
            want = x.astype(np.float64) @ np.full((16, 8), 65504.0) - 65504
            self.assertTrue(np.allclose(got["y"], want, 1e-6), f"{value}: {got['y']}")
            self.assertTrue(np.allclose(got["z"], np.maximum(want, 0), 1e-6), f"{value}: {got['z']}")
        self.assertTrue(np.isposinf(library.run({"x": np.full((1, 16), 1e38, np.float32)})["y"]).all(), "beyond f32: infinite, not NaN")


class Callers(Case):
    def helper(self):
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", SOURCE / "tests/e2e/host/call_with_mode.c", "-o",
                        self.path("helper.so")], check=True)
        return ctypes.CDLL(self.path("helper.so")).call_with_mode

    def place(self, library, inputs, shift=0):
        """Memory for a run, everything `shift` bytes off alignment: (arrays by name, pointers, sizes, capacities)."""
        sizes, arrays = library.sizes(inputs), {k: np.ascontiguousarray(v) for k, v in inputs.items()}
        for output in library.about["outputs"]:
            arrays[output["name"]] = np.full(library.shape_of(output, sizes), 77, np.float32)
        kept, pointers = {}, {}
        for name, array in arrays.items():
            kept[name] = np.zeros(array.nbytes + 128, np.uint8)
            at = -kept[name].ctypes.data % 64 + shift
            kept[name] = kept[name][at:at + array.nbytes]
            kept[name][:] = np.frombuffer(array.tobytes(), np.uint8)
            pointers[name] = kept[name].ctypes.data
        return kept, pointers, sizes, {o["name"]: arrays[o["name"]].size for o in library.about["outputs"]}

    def test_I13_the_callers_floating_point_mode(self):
        call, library = self.helper(), self.block()
        inputs = self.block_inputs(3, 21)
        inputs["x"][:, ::2] *= np.float32(1e-39)  # denormal
        want = library.run(inputs)
        tails = self.library("tails", TAILS)
        small = {"q": np.full((2, 8), 3e-20), "k": np.full((9, 8), 3e-20), "v": np.full((9, 8), 3e-39), "x": np.full((2, 9), 2e-39)}
        small = {k: v.astype(np.float32) for k, v in small.items()}
        denormal = tails.run(small)
        for name in "amg":
            self.assertTrue((denormal[name] != 0).all() and (np.abs(denormal[name]) < 1.2e-38).all(), "denormal results are kept")
        modes = [0x1f80, 0x9fc0, 0x3f80, 0x5f80, 0x7f80, 0xffc0, 0x0000, 0xe040]  # FTZ, DAZ, the roundings, traps
        for one, given, expected in (library, inputs, want), (tails, small, denormal):
            for threads in (1, 2, 3):
                context = one.new_context(threads)
                for mode in modes:
                    kept, pointers, sizes, capacities = self.place(one, given)
                    after = ctypes.c_uint()
                    status = call(getattr(one.library, one.prefix + "_forward"), context, one.arguments(pointers, sizes, capacities), None,
                                  mode, ctypes.byref(after))
                    self.assertEqual((status, after.value & ~0x3f), (OK, mode & ~0x3f), f"mode {mode:x}")
                    for name in expected:
                        self.assertEqual(kept[name].tobytes(), expected[name].tobytes(), f"mode {mode:x}, {threads} threads: {name}")

    def test_I17_any_alignment(self):
        library = self.block(threads=2)
        inputs = self.block_inputs(2, 33)
        want = library.run(inputs)
        for shift in (0, 1, 2, 3, 4, 7, 13, 31, 63):
            kept, *rest = self.place(library, inputs, shift)
            self.assertEqual(library.forward(library.context, library.arguments(*rest)), OK)
            for name in want:
                self.assertEqual(kept[name].tobytes(), want[name].tobytes(), f"{shift} bytes off: {name}")

    def test_I17_memory_that_will_not_do(self):
        library = self.block()
        inputs = self.block_inputs(2, 9)
        n = 2 * 9 * WIDTH
        kept, pointers, sizes, capacities = self.place(library, inputs)
        before = {k: v.tobytes() for k, v in kept.items()}
        x, free = pointers["x"], pointers["free"]
        wrong = {
            "no input": ({"x": 0}, {}, INPUT, "null pointer"), "no mask": ({"pad": 0}, {}, INPUT, "null pointer"),
            "too small": ({}, {"free": n - 1}, INPUT, "room for"), "much too small": ({}, {"causal": 1}, INPUT, "room for"),
            "negative room": ({}, {"causal": -1}, INPUT, "room for"),
            "the same memory": ({"free": x}, {}, INPUT, "overlaps"), "the last byte": ({"free": x + 4 * n - 1}, {}, INPUT, "overlaps"),
            "the first byte": ({"free": x - 4 * n + 1}, {}, INPUT, "overlaps"), "two outputs": ({"causal": free + 4}, {}, INPUT, "overlaps"),
        }
        for what, (others, rooms, status, says) in wrong.items():
            arguments = library.arguments(pointers | others, sizes, capacities | rooms)
            self.assertEqual(library.forward(library.context, arguments), status, what)
            self.assertIn(says, library.error.message.decode(), what)
            self.assertEqual(before, {k: v.tobytes() for k, v in kept.items()}, f"{what}: memory was touched")
        for sizes_given in ({"batch": -1, "time": 9}, {"batch": 2**62, "time": 2**62}, {"batch": 2**31, "time": 2**31}):
            self.assertEqual(library.forward(library.context, library.arguments(pointers, sizes_given, capacities)), INPUT)
        arguments = library.arguments(pointers, sizes, capacities)
        arguments[0] = 16
        self.assertEqual(library.forward(library.context, arguments), USAGE)
        self.assertEqual(library.forward(library.context, None), USAGE)
        self.assertEqual(library.forward(None, arguments), USAGE)
        want = library.run(inputs)
        self.assertEqual(library.forward(library.context, library.arguments(pointers, sizes, capacities)), OK)
        self.assertEqual({k: kept[k].tobytes() for k in want}, {k: v.tobytes() for k, v in want.items()})

    def test_I17_input_that_cannot_be_written(self):
        library = self.block(threads=2)
        inputs = self.block_inputs(1, 40)
        want = library.run(inputs)
        inputs["x"].tofile(self.path("x"))
        kept, pointers, sizes, capacities = self.place(library, inputs)
        readable = np.memmap(self.path("x"), np.float32, "r")
        pointers["x"] = readable.ctypes.data
        self.assertEqual(library.forward(library.context, library.arguments(pointers, sizes, capacities)), OK)
        self.assertEqual(kept["free"].tobytes(), want["free"].tobytes())

    def test_I18_inputs_of_another_type(self):
        library = self.block()
        inputs = self.block_inputs(2, 5)
        for name, array, words in [("x", inputs["x"].astype(np.float64), ("F64", "f32")), ("x", np.ones((2, 5, WIDTH), np.int32), ("I32", "f32")),
                                   ("pad", inputs["pad"].astype(np.float32), ("F32", "bool"))]:
            save_file(inputs | {name: array}, self.path("in"))
            proc = subprocess.run([TFMC, "run", self.path("libblock.so"), "--inputs", self.path("in")], capture_output=True, text=True)
            self.assertEqual(proc.returncode, 1, proc.stderr)
            for word in (f'"{name}"', *words):
                self.assertIn(word.lower(), proc.stderr.lower())
        ids = self.library("ids", "model Ids { e = Embedding(5, 4)\n forward(ids: i32[n]) { return y = e(ids) } }", {"e.weight": np.eye(5, 4, dtype=np.float32)})
        save_file({"ids": np.array([2**32 + 1, 1], np.int64)}, self.path("in"))
        proc = subprocess.run([TFMC, "run", self.path("libids.so"), "--inputs", self.path("in")], capture_output=True, text=True)
        self.assertEqual(proc.returncode, 1, "ids are not cut to 32 bits")
        self.assertIn('"ids"', proc.stderr)
        for bad in (5, -1, 2**31 - 1):
            status, outputs = ids.try_run({"ids": np.array([1, bad, 2])})
            self.assertEqual(status, INPUT)
            self.assertTrue((outputs["y"] == 77).all() and str(bad) in ids.error.message.decode())


class Weights(Case):
    def test_W16_one_tensor_under_several_names(self):
        source = """model Tied(tie = true) { e = Embedding(50, 16)
          forward(ids: i32[n]) { h = e(ids)  return h, logits = linear(h, e.weight) } }"""
        weights = {"e.weight": self.rng.standard_normal((50, 16)).astype(np.float32)}
        library = self.library("tied", source, weights)
        ids = np.array([0, 49, 7], np.int32)
        got = library.run({"ids": ids})
        self.assertEqual(got["h"].tobytes(), weights["e.weight"][ids].tobytes())
        self.assertTrue(np.allclose(got["logits"], weights["e.weight"][ids] @ weights["e.weight"].T, 1e-5, 1e-5))

    def test_W16_one_file_opened_many_times(self):
        library = self.block()
        file, inputs = self.path("block.tfmw"), self.block_inputs(2, 6)
        want = library.run(inputs)
        mapped = lambda: pathlib.Path("/proc/self/maps").read_text().count(file)
        before = mapped()
        more = [Library(TFMC, self.path("libblock.so")) for _ in range(8)]
        self.assertEqual(mapped(), before + 8)
        os.link(file, self.path("other.tfmw"))
        os.symlink("block.tfmw", self.path("link.tfmw"))
        more += [Library(TFMC, self.path("libblock.so"), self.path(name)) for name in ("other.tfmw", "link.tfmw")]
        for one in more[::-1]:  # closing one leaves the others as they are
            self.same(want, one.run(inputs))
            one.close()
        self.assertEqual(mapped(), before)
        self.same(want, library.run(inputs))

    def test_W17_a_file_that_is_replaced_or_removed(self):
        library = self.block()
        inputs = self.block_inputs(2, 6)
        want = library.run(inputs)
        pathlib.Path(self.path("new")).write_bytes(b"something else")
        os.rename(self.path("new"), self.path("block.tfmw"))
        self.same(want, library.run(inputs, library.new_context(2)))
        os.unlink(self.path("block.tfmw"))
        self.same(want, library.run(inputs))

    def test_W18_a_model_that_reads_its_weights_into_memory(self):
        """open_memory and --embed-weights do without a mapping: what happens to the file does no harm."""
        weights = block_weights(self.rng)
        library = self.library("block", BLOCK, weights)
        inputs = self.block_inputs(2, 6)
        want = library.run(inputs)
        raw = np.fromfile(self.path("block.tfmw"), np.uint8)
        memory = np.zeros(raw.size + 64, np.uint8)
        at = -memory.ctypes.data % 64
        memory[at:at + raw.size] = raw
        model, context = ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(library.call("open_memory", ctypes.c_void_p(memory.ctypes.data + at), ctypes.c_uint64(raw.size), ctypes.byref(model),
                                      ctypes.byref(library.error)), OK, library.error.message)
        self.assertEqual(library.call("context_new", model, None, ctypes.byref(context), None), OK)
        os.mkdir(self.path("sub"))
        embedded = compile_model(TFMC, self.path("sub"), "block", BLOCK, "--weights", self.path("block.safetensors"), "--embed-weights")
        inside = Library(TFMC, embedded)
        for name in ("block.tfmw", "block.safetensors"):
            os.truncate(self.path(name), 0)
        self.same(want, library.run(inputs, context), "from memory")
        self.same(want, inside.run(inputs), "embedded")
        for size in (0, 100, 4095, 4096, raw.size - 1, raw.size + 1, 2**63):
            out = ctypes.c_void_p()
            self.assertEqual(library.call("open_memory", ctypes.c_void_p(memory.ctypes.data + at), ctypes.c_uint64(size), ctypes.byref(out), None), ENV)
            self.assertIsNone(out.value)
        library.call("context_free", context)
        library.call("close", model)
        inside.close()

    def test_W23_a_table_of_more_than_2_31_elements(self):
        """Nine gigabytes of weights, a sparse file: the rows at its end are found."""
        rows, width = 2_200_000, 1024
        source = f"model Table {{ e = Embedding({rows}, {width})\n forward(ids: i32[n]) {{ return y = e(ids) }} }}"
        path = compile_model(TFMC, self.folder.name, "table", source)
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-I", SOURCE / "runtime/include",
                        "-I", pathlib.Path(TFMC).resolve().parent / "generated/include", SOURCE / "tests/e2e/host/sparse_weights.c", "-o",
                        self.path("sparse"), "-ldl"], check=True)
        last = np.arange(width, dtype=np.float32)
        try:
            subprocess.run([self.path("sparse"), path, "table_program", self.path("table.tfmw"), str((rows - 1) * width * 4), str(width)],
                           check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            if "File too large" in error.stderr or "No space" in error.stderr:
                self.skipTest("this file system has no room for sparse files: " + error.stderr)
            raise RuntimeError(error.stderr)
        library = Library(TFMC, path, self.path("table.tfmw"))
        self.addCleanup(library.close)
        for ids in ([rows - 1], [0, rows - 1, 5, 2**21], [rows - 1] * 40):
            got = library.run({"ids": np.array(ids, np.int32)})["y"]
            for i, row in enumerate(ids):
                self.assertTrue((got[i] == (last if row == rows - 1 else 0)).all(), row)
        self.assertEqual(library.try_run({"ids": np.array([rows], np.int32)})[0], INPUT)


class Hosts(Case):
    def test_H10_a_child_of_a_program_with_threads(self):
        library = self.block(threads=3)
        inputs = self.block_inputs(4, 50)
        want = library.run(inputs)

        def act():
            good = all(library.run(inputs)[k].tobytes() == want[k].tobytes() for k in want)
            fresh = library.run(inputs, library.new_context(2))
            library.close()
            return good and all(fresh[k].tobytes() == want[k].tobytes() for k in want)

        for _ in range(10):
            self.in_child(act)
        self.same(want, library.run(inputs))

    def in_child(self, act):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # one that hangs fails
            good = False
            try:
                good = act()
            finally:
                os._exit(0 if good else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_H05_no_new_code_is_needed(self):
        """A process that may not make memory executable (PR_SET_MDWE) opens and runs a library."""
        library = self.block()
        inputs = self.block_inputs(2, 9)
        want = library.run(inputs)
        shutil.copy(self.path("libblock.so"), self.path("copy.so"))

        def act():
            if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
                return True  # an older system
            other = Library(TFMC, self.path("copy.so"), threads=2)
            return all(other.run(inputs)[k].tobytes() == want[k].tobytes() for k in want)

        self.in_child(act)

    def test_H13_beside_other_libraries(self):
        try:
            import torch
        except ImportError:
            self.skipTest("there is no PyTorch: its threads and OpenMP are not tried")
        library = self.block(threads=2)
        inputs = self.block_inputs(2, 30)
        want = library.run(inputs)
        torch.set_num_threads(2)
        x = torch.from_numpy(inputs["x"])
        before = (x @ x.transpose(1, 2)).numpy().tobytes()
        for _ in range(20):
            self.same(want, library.run(inputs))
            self.assertEqual((x @ x.transpose(1, 2)).numpy().tobytes(), before)

    def test_H16_cancelled_from_another_thread(self):
        library = self.block()
        inputs = self.block_inputs(1, 6000)
        start = time.monotonic()
        want = library.run(inputs)
        whole, n_cancelled = time.monotonic() - start, 0
        for threads in (1, 2):
            context = library.new_context(threads)
            for delay in (0.1, 0.3, 0.5):
                timer = threading.Timer(delay * whole, lambda: library.call("cancel", context))
                timer.start()
                status, outputs = library.try_run(inputs, context)
                timer.join()
                self.assertIn(status, (OK, CANCELLED))
                n_cancelled += status == CANCELLED
                if status == CANCELLED:
                    self.assertTrue(all((v == 77).all() for v in outputs.values()), "outputs were touched")
                library.call("cancel", context)  # no run is under way: nothing happens
                self.same(want, library.run(inputs, context), "after it")
        self.assertGreater(n_cancelled, 0, "no run was cancelled")


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run())
