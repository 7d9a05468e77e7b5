#!/usr/bin/env python3
"""Sums of long rows, columns and middle axes: as exact as sums in double up to 1e-6, alone and fused, and the same bits
whatever computes them.

usage: test_row_sums.py TFMC

Numbers are wanted that sums in f32 get wrong: equal ones, whose errors have one sign, and rows far from 0. Each model
has every reduction of the language, and the norms, poolings and losses that are made of them; the length of the axis is
a run's or the model's; it is less than a chain of sums, a chain, one more, and many. What is right is computed here, in
double. The gradients of a bias and of a norm, sums over all rows, are what a step of training changes.
The last line is 'N passed, N failed'.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

import tally

TFMC = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
STEADY = np.array([0.1, 0.3, 0.7, 0.9048, 1.1, 3.3, 5.7, 100.3], np.float32)
CHAIN = 768  # elements that are summed in f32: a line of no more is one sum

# x: [outer, n, inner], reduced along the axis in the middle, which becomes the last one, the first one, or stays:
# `placed` moves it.
REDUCED = """
model Reduced(SIZE) {
  forward(x: f32[SHAPE]) {
    top = max(x, AXIS, true)
    soft = softmax(x, axis = AXIS)
    logs = log_softmax(x - 0.5, axis = AXIS)
    return total = sum(x, AXIS), mean = mean(x, AXIS), squares = sum(x * x, AXIS), fused = 1.0 - mean(2 * x + 1, AXIS),
           logsumexp = logsumexp(x, AXIS), normal = normalize(x, AXIS), cosine = cosine_similarity(x, x + 0.25, AXIS),
           soft = soft, logs = logs, powers = sum(exp(x - top), AXIS)
  }
}
"""
SHAPES = {"rows": ("outer, inner, LENGTH", 2), "columns": ("LENGTH, lines", 0), "middle": ("outer, LENGTH, inner", 1)}


def run(model, inputs, *options):
    with tempfile.TemporaryDirectory() as folder:
        path, given, out = (os.path.join(folder, name) for name in ("m.tfm", "in.safetensors", "out.safetensors"))
        with open(path, "w") as f:
            f.write(model)
        save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, given)
        proc = subprocess.run([TFMC, "run", path, "--inputs", given, "--output", out, *options],
                              capture_output=True, text=True, timeout=300)
        if proc.returncode == 3 and "lacks" in proc.stderr:
            return None
        if proc.returncode:
            raise RuntimeError(proc.stderr[:500])
        return load_file(out)


def steady(outer, n, inner):
    """[outer, n, inner], equal numbers along n."""
    row = np.resize(STEADY, outer * inner).reshape(outer, 1, inner)
    return np.ascontiguousarray(np.broadcast_to(row, (outer, n, inner)))


def far(outer, n, inner, seed=1):
    offsets = np.resize(np.float32([0, 30, 1000, -200]), outer * inner).reshape(outer, 1, inner)
    return np.random.default_rng(seed).standard_normal((outer, n, inner), np.float32) + offsets


def placed(x, place):
    outer, n, inner = x.shape
    if place == "rows":
        return x.transpose(0, 2, 1)
    return x if place == "middle" else x.transpose(1, 0, 2).reshape(n, outer * inner)


def reduced(place, length):
    """The text; `length` None: a run says it."""
    shape, axis = SHAPES[place]
    size, name = ("n = %d" % length, "n") if length else ("", "n")
    return REDUCED.replace("SIZE", size).replace("SHAPE", shape.replace("LENGTH", name)).replace("AXIS", str(axis)), axis


def right_numbers(x, axis):
    x = x.astype(np.float64)
    top = x.max(axis, keepdims=True)
    total = np.exp(x - top).sum(axis, keepdims=True)
    y = x + 0.25
    length = np.sqrt((x * x).sum(axis, keepdims=True))
    return {"total": x.sum(axis), "mean": x.mean(axis), "squares": (x * x).sum(axis), "fused": 1 - (2 * x + 1).mean(axis),
            "logsumexp": np.squeeze(np.log(total) + top, axis), "normal": x / length,
            "cosine": (x * y).sum(axis) / (np.squeeze(length, axis) * np.sqrt((y * y).sum(axis))),
            "soft": np.exp(x - top) / total, "logs": x - top - np.log(total), "powers": np.squeeze(total, axis)}


class Precision(unittest.TestCase):
    def near(self, what, got, want, scale):
        """Within 1e-6 of `scale`, which is 1 or what the numbers are made of."""
        worst = np.max(np.abs(got.astype(np.float64) - want) / scale)
        self.assertLessEqual(worst, 1e-6, what)

    def check(self, place, x, length, *options):
        text, axis = reduced(place, length)
        x = placed(x, place)
        got, want = run(text, {"x": x}, *options), right_numbers(x, axis)
        size = np.abs(x.astype(np.float64))
        scales = {"total": size.sum(axis), "mean": size.mean(axis), "squares": want["squares"], "fused": 2 + 2 * size.mean(axis),
                  "logsumexp": 1 + np.abs(want["logsumexp"]), "normal": np.abs(want["normal"]) + 1e-30, "cosine": 1,
                  "soft": want["soft"] + 1e-30, "logs": 1 + np.abs(want["logs"]) + size, "powers": want["powers"]}
        scales["soft"] = scales["soft"] * (2 + np.abs(x.astype(np.float64) - x.max(axis, keepdims=True)))
        for name in want:
            self.near(f"{name} of {x.shape[axis]} along {place}, {options}", got[name], want[name], scales[name])

    def test_equal_numbers(self):
        for place in SHAPES:
            for n in (1, 17, CHAIN - 1, CHAIN, CHAIN + 1, 2 * CHAIN, 4096, 50000):
                with self.subTest(place=place, n=n):
                    self.check(place, steady(2, n, 4), None)
            for n in (CHAIN, CHAIN + 1, 16384):
                with self.subTest(place=place, known=n):
                    self.check(place, steady(2, n, 4), n)

    def test_rows_far_from_zero(self):
        for place in SHAPES:
            for n in (CHAIN + 1, 50000):
                with self.subTest(place=place, n=n):
                    self.check(place, far(2, n, 2), None)

    def test_a_million(self):
        """And ten: the mean alone, which is what the promise is about."""
        model = "model M() { forward(x: f32[rows, n]) { return m = mean(x), c = mean(transpose(x, 0, 1), 0), q = sum(x * x) } }"
        for n, numbers in ((10 ** 6, STEADY), (10 ** 7, STEADY[:2])):
            want = numbers.astype(np.float64)
            got = run(model, {"x": np.repeat(numbers[:, None], n, 1)})
            with self.subTest(n=n):
                self.near("mean", got["m"], want, want)
                self.near("mean of columns", got["c"], want, want)
                self.near("squares", got["q"], want * want * n, want * want * n)

    def test_nothing_fused(self):
        for place in SHAPES:
            with self.subTest(place=place):
                self.check(place, steady(2, 5000, 4), None, "-O0")

    def test_norms(self):
        model = """
          model Norms(SIZE) {
            forward(x: f32[rows, n], w: f32[n]) {
              return normal = layer_norm(x, none, none, 1e-5), fused = 1 - layer_norm(x + 0.5, w, none, 1e-5), rms = rms_norm(x, none, 1e-5)
            }
          }"""
        images = "model Images() { forward(x: f32[b, 4, h, w]) { return group = group_norm(x, 2), instance = instance_norm(x) } }"
        for n in (16, 100, 384, CHAIN, CHAIN + 1, 2 * CHAIN, 4096, 300000):
            x = far(4, n, 1)[..., 0]
            d = x.astype(np.float64)
            with self.subTest(n=n):
                got = run(model.replace("SIZE", "n = %d" % n), {"x": x, "w": np.ones(n, np.float32)})
                normal = (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5)
                self.near("layer_norm", got["normal"], normal, 1 + np.abs(normal))
                self.near("fused", got["fused"], 1 - normal, 2 + np.abs(normal))
                self.near("rms_norm", got["rms"], d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5), 1 + np.abs(normal))
        for height, width in ((300, 301), (16, 17), (3, 5)):
            x = np.random.default_rng(2).standard_normal((1, 4, height, width), np.float32) + np.float32(100)
            got = run(images, {"x": x})
            for name, groups in (("group", 2), ("instance", 4)):
                d = x.astype(np.float64).reshape(1, groups, -1)
                want = ((d - d.mean(2, keepdims=True)) / np.sqrt(d.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
                self.near(f"{name}, {height} x {width}", got[name], want, 1 + np.abs(want))

    def test_a_row_of_one_number_is_normal(self):
        """Nothing is left of it, however far from 0 it is: not what the mean lost, over the root of eps."""
        norms = "layer_norm(x, none, none, 1e-5)", "group_norm(x[:, none], 1)[:, 0]", "2 * layer_norm(x * 0.3, none, none, 1e-5)"
        results = ", ".join(f"y{i} = {norm}" for i, norm in enumerate(norms))
        for n in (2, 3, 16, 17, 48, 100, 384, 640, CHAIN - 1, CHAIN, CHAIN + 1, 70000):
            x = np.repeat(STEADY[:, None], n, 1)
            for size in "", f"n = {n}":
                got = run(f"model M({size}) {{ forward(x: f32[rows, n]) {{ return {results} }} }}", {"x": x})
                for name in got:
                    self.assertLessEqual(np.abs(got[name]).max(), 1e-6, f"{name} of {n}, {size}")

    def test_products(self):
        """Of terms that hardly differ: the least that PyTorch loses of 192 and more is 2.6e-6."""
        model = "model M() { forward(x: f32[rows, k], w: f32[columns, k]) { return l = linear(x, w), m = x @ transpose(w, 0, 1) } }"
        for k in (768, 4096, 16384):
            x = np.repeat(STEADY[:, None], k, 1)
            w = np.repeat(np.float32([[0.7], [-0.11], [0.3]]), k, 1)
            w[2, 1::2] = 0.7
            got, want = run(model, {"x": x, "w": w}), x.astype(np.float64) @ w.T.astype(np.float64)
            for name in got:
                self.assertLessEqual(np.max(np.abs(got[name] / want - 1)), 4e-6, f"{name}, {k}")

    def test_one_row_of_a_product_has_the_bits_of_many(self):
        """One row reads the other factor where it lies; many rows read it packed."""
        model = "model M() { forward(x: f32[rows, k], y: f32[k, n]) { return all = x @ y, one = x[:1] @ y } }"
        numbers = np.random.default_rng(5)
        for k in (0, 1, 127, 128, 129, 300, 17000):
            for n in (1, 15, 17, 128, 333):
                x, y = numbers.standard_normal((9, k), np.float32), numbers.standard_normal((k, n), np.float32)
                got = run(model, {"x": x, "y": y})
                self.assertEqual(got["one"].tobytes(), got["all"][:1].tobytes(), f"{k}, {n}")

    def test_pooling_and_losses(self):
        model = """
          model Losses() {
            forward(x: f32[batch, time, d], pad: bool[batch, time], y: i32[time]) {
              return pooled = mean_pooling(x, pad), plain = mean_pooling(x), mean = cross_entropy(x[0], y),
                     total = cross_entropy(x[0], y, reduction = "sum"), none_padded = mean_pooling(x, pad and not pad)
            }
          }"""
        x = steady(1, 40000, 8)
        pad = np.zeros((1, 40000), bool)
        pad[:, 30001:] = True
        got = run(model, {"x": x, "pad": pad, "y": np.full(40000, 6, np.int32)})
        row = x[0, 0].astype(np.float64)
        loss = np.log(np.exp(row - row.max()).sum()) + row.max() - row[6]
        for name in ("pooled", "plain", "none_padded"):
            self.near(name, got[name][0], row, row)
        self.near("mean of losses", got["mean"], loss, loss)
        self.near("sum of losses", got["total"], 40000 * loss, 40000 * loss)

    def test_a_reference_agrees(self):
        for place in SHAPES:
            text, _ = reduced(place, None)
            with tempfile.TemporaryDirectory() as folder:
                path, given = os.path.join(folder, "m.tfm"), os.path.join(folder, "in.safetensors")
                with open(path, "w") as f:
                    f.write(text)
                save_file({"x": np.ascontiguousarray(placed(steady(2, 30000, 4), place))}, given)
                proc = subprocess.run([TFMC, "verify", path, "--inputs", given], capture_output=True, text=True, timeout=300)
                self.assertEqual(proc.returncode, 0, f"{place}: {proc.stdout}{proc.stderr}")


class Bits(unittest.TestCase):
    def same(self, what, a, b):
        for name in a:
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), f"{what}: {name}")

    def test_threads_and_instruction_sets(self):
        for place in SHAPES:
            text, _ = reduced(place, None)
            inputs = {"x": placed(far(3, 3 * CHAIN + 5, 5), place)}
            base = run(text, inputs, "--threads=1", "-march=x86-64-v3")
            for options in (("--threads=2",), ("-march=x86-64-v4",), ("--threads=3", "-march=x86-64-v3"), ("-march=native",)):
                got = run(text, inputs, *options)
                if got is not None:
                    self.same(f"{place}, {options}", base, got)

    def test_rows_columns_and_middle_axes(self):
        x = far(2, 3 * CHAIN + 40, 6)
        base = run(reduced("rows", None)[0], {"x": placed(x, "rows")})
        columns = run(reduced("columns", None)[0], {"x": placed(x, "columns")})
        middle = run(reduced("middle", None)[0], {"x": placed(x, "middle")})
        for name in ("total", "mean", "squares", "fused", "powers"):
            self.assertEqual(base[name].tobytes(), columns[name].reshape(2, 6).tobytes(), name)
            self.assertEqual(base[name].tobytes(), middle[name].tobytes(), name)

    def test_a_length_that_is_known(self):
        for place in SHAPES:
            for n in (CHAIN - 3, CHAIN, CHAIN + 1, 5000):
                inputs = {"x": placed(far(2, n, 3), place)}
                self.same(f"{n} along {place}", run(reduced(place, None)[0], inputs), run(reduced(place, n)[0], inputs))

    def test_zeros_at_the_end(self):
        model = """model M() {{ forward(x: f32[{0}]) {{
          return total = sum(x, {1}), squares = sum(x * x, {1}), fused = 2 * sum(maximum(x, -x), {1}) }} }}"""
        for place, (shape, axis) in SHAPES.items():
            text = model.format(shape.replace("LENGTH", "n"), axis)
            for n, more in ((5, 2), (CHAIN - 1, 1), (CHAIN, 1), (CHAIN, CHAIN), (CHAIN + 3, 5000), (300, 900)):
                x = far(2, n, 3)
                longer = np.concatenate([x, np.zeros((2, more, 3), np.float32)], 1)
                self.same(f"{more} zeros behind {n} along {place}", run(text, {"x": placed(x, place)}),
                          run(text, {"x": placed(longer, place)}))

    def test_masked_numbers_at_the_end(self):
        model = """model M() { forward(x: f32[b, t, d], pad: bool[b, t]) {
          z = where(pad[..., none], -inf, x)
          return pooled = mean_pooling(x, pad), soft = logsumexp(z, axis = 1) } }"""
        for n, more in ((400, 800), (CHAIN, 1), (2000, 3000)):
            x = far(2, n, 3)
            longer = np.concatenate([x, np.full((2, more, 3), 7, np.float32)], 1)
            pad = np.arange(n + more)[None].repeat(2, 0) >= n
            self.same(f"{more} behind {n}", run(model, {"x": x, "pad": pad[:, :n]}), run(model, {"x": longer, "pad": pad}))


class Gradients(unittest.TestCase):
    """What long rows get through norms and softmax: a step of plain descent shows it."""

    TEXT = """model Rows(n = LENGTH) {
      weight a: [2, n] = 0
      weight b: [2, n] = 0
      weight c: [2, n] = 0
      fn objective(g: f32[batch, n]) {
        of_a = layer_norm(a, none, none, 1e-5)
        of_b = rms_norm(b, none, 1e-5)
        of_c = log_softmax(c)
        return loss = mean(sum(sum((of_a + of_b + of_c) * g[:, none], -1), -1))
      }
      forward(x: f32[batch, n]) { return y = x + a[0] }
      train objective { optimizer = "sgd"  lr = 1.0 }
    }
    """

    def test_norms_and_softmax(self):
        for n in (384, CHAIN + 1, 40000):
            rng = np.random.default_rng(3)
            row = rng.standard_normal((2, n), np.float32) + np.float32([[30], [1000]])
            g = (rng.random((1, n), np.float32) + np.float32(100))
            with tempfile.TemporaryDirectory() as folder:
                names = ("m.tfm", "in.safetensors", "w.safetensors", "out.safetensors")
                path, given, weights, out = (os.path.join(folder, name) for name in names)
                with open(path, "w") as f:
                    f.write(self.TEXT.replace("LENGTH", str(n)))
                save_file({"g": g}, given)
                save_file({name: row for name in "abc"}, weights)
                proc = subprocess.run([TFMC, "train", path, "--batches", given, "--weights", weights, "--gradients",
                                       "--output", out], capture_output=True, text=True, timeout=300)
                self.assertEqual(proc.returncode, 0, proc.stderr)
                got = load_file(out)
            d, q = row.astype(np.float64), g.astype(np.float64)
            centred = d - d.mean(1, keepdims=True)
            for name, x, mean in (("a", centred, q.mean(1, keepdims=True)), ("b", d, 0)):
                r = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
                want = r * (q - mean - x * r * (q * x * r).mean(1, keepdims=True))
                # the product h mean(q h) and q are f32, so digits of what is left of them are theirs
                scale = np.abs(r) * (np.abs(q) + np.abs(x * r * (q * x * r).mean(1, keepdims=True)))
                self.assertLessEqual(np.max(np.abs(got[f"grad.{name}"] - want) / scale), 1e-6, f"{name}, {n}")
            power = np.exp(d - d.max(1, keepdims=True))
            want = q - power / power.sum(1, keepdims=True) * q.sum(1, keepdims=True)
            self.assertLessEqual(np.max(np.abs(got["grad.c"] - want) / (np.abs(want) + np.abs(q))), 4e-6, f"c, {n}")


if __name__ == "__main__":
    sys.argv.pop(1)
    with tally.compiled_once():
        sys.exit(tally.run())
