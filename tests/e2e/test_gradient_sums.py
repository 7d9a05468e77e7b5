#!/usr/bin/env python3
"""Gradients of weights over long batches: as exact as sums of the same length elsewhere, and the same bits however a step
is cut into batches, whatever padding it has, for any number of threads.

usage: test_gradient_sums.py TFMC

Rows are equal, so that errors of sums in f32 have one sign; what is right is then a product of few numbers. A gradient
of one row (a bias, a norm's weight, a layer of one output) is exact to 1e-6 over any number of rows; one of a matrix is a
sum of chains of 256 steps. Steps that are zero are in no chain: padding must not move where chains end.
The last line is 'N passed, N failed'.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

import tally

TFMC = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None

# What each of n equal rows x gives is 1 / n of the gradient, so that of every weight is the same for any n.
EQUAL = """model Equal() {
  weight w: [16, 24] = 0.0
  weight b: [16] = 0.0
  weight right: [24, 40] = 0.0
  weight one: [1, 24] = 0.0
  weight tall: [19, 1] = 0.0
  weight scale: [24] = 1.0
  weight shift: [24] = 0.0
  forward(x: f32[batch, 24]) {
    return y = linear(x, w, b)
  }
  fn objective(x: f32[batch, 24]) {
    return loss = mean(mean(forward(x) * 0.3)) + mean(mean(x @ right)) + mean(mean(linear(x, one))) +
                  mean(mean(linear(x[:, 0:1], tall))) + mean(mean(x * scale + shift))
  }
  train objective { optimizer = "sgd"  lr = 1.0 }
}
"""
TAGGER = """model Tagger(d = 24, vocab = 9) {
  embed = Embedding(vocab, d)
  norm  = LayerNorm(d)
  up    = Linear(d, 50)
  down  = Linear(50, vocab)
  weight right: [d, d]  = normal(std = 0.3)
  forward(ids: i32[batch, time]) {
    return logits = norm(embed(ids)) @ right -> up -> relu -> down
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""

# Products of several items, whose weights are stacked: a step counts if it is not zero in one of them. Each row goes to all
# experts, by the same weights, or to those that its number names.
STACKED = """model Stacked(n = 4) {
  weight w: [n, 24, 16] = 0.0
  weight b: [n, 1, 16] = 0.0
  forward(x: f32[batch, 24], of: f32[batch, n]) {
    return y = sum(transpose(of, 0, 1)[..., none] * (x[none] @ w + b), axis = 0)
  }
  fn objective(x: f32[batch, 24], of: f32[batch, n]) {
    return loss = mean(mean(forward(x, of) * 0.3))
  }
  train objective { optimizer = "sgd"  lr = 1.0 }
}
"""
# Experts as layers, of which each token takes two, and experts that are stacked: of both most rows are left out.
MIXTURE = """layer Expert(d, ffn) {
  up   = Linear(d, ffn)
  down = Linear(ffn, d)
  forward(x) = down(relu(up(x)))
}
model Mixture(d = 24, vocab = 9, n = 4) {
  embed   = Embedding(vocab, d)
  gate    = Linear(d, n, bias = false)
  experts = [Expert(d, 40) for e in n]
  head    = Linear(d, vocab)
  weight stacked: [n, d, d]  = normal(std = 0.3)
  forward(ids: i32[batch, time]) {
    x         = embed(ids)
    p, chosen = topk(softmax(gate(x)), 2)
    weights   = sum(p[..., none] * one_hot(chosen, n), axis = -2)
    y         = sum([weights[..., e, none] * experts[e](x) for e in n])
    each      = transpose(weights, -1, -2)[..., none] * (y[:, none] @ stacked)
    return logits = head(y + sum(each, axis = 1))
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""
# Operations along a row: the gradients of their results, weighed by c, each with respect to what is added to its row.
ALONG = """model Along(n = LENGTH) {
  WEIGHTS
  forward(x: f32[batch, 3, n]) {
    return y = x
  }
  fn objective(x: f32[batch, 3, n], c: f32[batch, 3, n]) {
    return loss = RESULTS
  }
  train objective { optimizer = "sgd"  lr = 1.0 }
}
"""


def along(x, c):
    """Text of a number -> its gradient with respect to X, in double."""
    x, c, n = x.astype(np.float64), c.astype(np.float64), x.shape[-1]
    powers = np.exp(x - x.max(-1, keepdims=True))
    p, one = powers / powers.sum(-1, keepdims=True), c[..., :1]
    low = x - x.mean(-1, keepdims=True)
    spread, square = (np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) for y in (low, x))
    length, first = np.sqrt((x * x).sum(-1, keepdims=True)), np.arange(n) == 1

    def normed(y, width, centre):
        return (c - centre * c.mean(-1, keepdims=True) - y / width * (c * y / width).mean(-1, keepdims=True)) / width
    return {"sum(sum(sum(softmax(X) * c)))": p * (c - (p * c).sum(-1, keepdims=True)),
            "sum(sum(sum(log_softmax(X) * c)))": c - p * c.sum(-1, keepdims=True),
            "sum(sum(logsumexp(X) * c[..., 0]))": p * one,
            "sum(sum(logsumexp(transpose(X, 1, 2), 1) * c[..., 0]))": p * one,
            "sum(cross_entropy(X[0], i32(full([3], 1)), reduction = \"none\") * c[0, :, 0])": (p - first) * one,
            "sum(sum(sum(layer_norm(X, none, none, 1e-5) * c)))": normed(low, spread, 1),
            "sum(sum(sum(instance_norm(X, none, none, 1e-5) * c)))": normed(low, spread, 1),
            "sum(sum(sum(rms_norm(X, none, 1e-5) * c)))": normed(x, square, 0),
            "sum(sum(mean(X * X) * c[..., 0]))": 2 * x / n * one,
            "sum(sum(sum(normalize(X) * c)))": (c - x / length * (c * x / length).sum(-1, keepdims=True)) / length}


class Gradients(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def gradients(self, text, parts, *options):
        """Of a step with these batches, by path."""
        (self.work / "m.tfm").write_text(text)
        named = {f"{name}@{i}" if len(parts) > 1 else name: array for i, part in enumerate(parts) for name, array in part.items()}
        save_file(named, self.work / "b.safetensors")
        done = subprocess.run([TFMC, "train", "m.tfm", "--batches=b.safetensors", f"--accumulate={len(parts)}", "--gradients", "--seed=4", "-o",
                               "w.safetensors", *options], cwd=self.work, capture_output=True, text=True)
        if done.returncode == 3 and "lacks" in done.stderr:
            return None
        self.assertEqual(done.returncode, 0, done.stderr)
        found = load_file(self.work / "w.safetensors")
        return {name.removeprefix("grad."): array for name, array in found.items() if name.startswith("grad.")}

    def test_equal_rows_lose_no_digits(self):
        x, c = float(np.float32(0.7)), float(np.float32(0.3))
        wanted = {"w": c * x / 16, "b": c / 16, "right": x / 40, "one": x, "tall": x / 19, "scale": x / 24, "shift": 1 / 24}
        for n in (255, 30_000, 300_000):
            for cuts in ([0, n], [0, 7, n // 3, n]):
                for march in (["-march=x86-64"], ["-march=x86-64-v3"], []) if n == 30_000 else ([],):
                    parts = [{"x": np.full((b - a, 24), 0.7, np.float32)} for a, b in zip(cuts, cuts[1:])]
                    found = self.gradients(EQUAL, parts, *march)
                    for name, number in wanted.items() if found else ():
                        error = np.abs(found[name].astype(np.float64) / number - 1).max()
                        limit = 1e-6 if name in ("b", "one", "scale", "shift") else 3e-6 if n < 300_000 else 1e-5
                        self.assertLessEqual(error, limit, f"{name} over {n} rows, cut at {cuts}, {march}")

    def test_along_a_row(self):
        random = np.random.default_rng(6)
        for n, what in ((4096, "near equal"), (4096, "normal"), (70_000, "near equal")):
            near = np.float32([[0.7], [3.3], [100.3]]) + random.random((3, n), np.float32) * np.float32(1e-3)
            x = (near if what == "near equal" else random.standard_normal((3, n), np.float32))[None]
            c = random.standard_normal((1, 3, n), np.float32)
            cases = along(x, c)
            weights = "\n  ".join(f"weight v{i}: [3, n] = 0.0" for i in range(len(cases)))
            results = " + ".join(text.replace("X", f"(x + v{i})") for i, text in enumerate(cases))
            model = ALONG.replace("LENGTH", str(n)).replace("WEIGHTS", weights).replace("RESULTS", results)
            found = self.gradients(model, [{"x": x, "c": c}])
            for i, (text, wanted) in enumerate(cases.items()):
                error = np.abs(found[f"v{i}"] - wanted[0]).max() / np.abs(wanted).max()
                # The spread of numbers that hardly differ is a difference of few bits.
                limit = 3e-5 if what == "near equal" and ("layer" in text or "instance" in text) else 1e-6
                self.assertLessEqual(error, limit, f"{text} of {n} numbers, {what}")

    def test_equal_rows_of_stacked_weights_lose_no_digits(self):
        x, c = float(np.float32(0.7)), float(np.float32(0.3))
        for n in (255, 30_000):
            for cuts in ([0, n], [0, 7, n // 3, n]):
                all_of, one_of = np.full((n, 4), 0.25, np.float32), np.eye(4, dtype=np.float32)[np.arange(n) % 4]
                for name, of in ("all", all_of), ("one", one_of):
                    parts = [{"x": np.full((b - a, 24), 0.7, np.float32), "of": of[a:b]} for a, b in zip(cuts, cuts[1:])]
                    found = self.gradients(STACKED, parts)
                    share = of.astype(np.float64).mean(0)
                    for weight, number in ("w", c * x / 16), ("b", c / 16):
                        error = np.abs(found[weight] / (share[:, None, None] * number) - 1).max()
                        self.assertLessEqual(error, 3e-6, f"{weight} over {n} rows of {name}, cut at {cuts}")

    def tagged(self, cuts, padding, lengths):
        rng = random.Random(2)
        rows = [[[rng.randrange(1, 9) for _ in range(n)], [rng.randrange(9) for _ in range(n)]] for n in lengths]
        width = max(lengths) + padding
        whole = [np.array([row[of] + [0] * (width - len(row[of])) for row in rows], np.int32) for of in (0, 1)]
        return [{"ids": whole[0][a:b], "labels": whole[1][a:b]} for a, b in zip(cuts, cuts[1:])]

    def test_bits_depend_neither_on_cuts_nor_on_padding_nor_on_threads(self):
        rng = random.Random(5)
        for lengths in ([rng.randrange(1, 400) for _ in range(9)], [256, 512, 1, 1, 254, 300]):
            self.check_bits(TAGGER, lengths, [0, 1, 2, len(lengths)], [0, 2, 5, len(lengths)], list(range(len(lengths) + 1)))

    def test_bits_of_experts(self):
        rng = random.Random(6)
        for lengths in ([rng.randrange(1, 400) for _ in range(6)], [256, 1, 600, 255]):
            self.check_bits(MIXTURE, lengths, [0, 1, len(lengths)], list(range(len(lengths) + 1)))

    def check_bits(self, text, lengths, *ways):
        """The same for each way to cut a step, however much padding it has, and on another instruction set."""
        items, wanted = len(lengths), None
        for cuts in ([0, items], *ways):
            for padding in 0, 90:
                for options in (["--threads=1"], ["--threads=3"], ["--disable=live-rows", "--threads=2"]):
                    found = self.gradients(text, self.tagged(cuts, padding, lengths), *options)
                    wanted = wanted or found
                    self.assertEqual([name for name in wanted if wanted[name].tobytes() != found[name].tobytes()], [],
                                     f"cut at {cuts}, padding {padding}, {options}")
        found = self.gradients(text, self.tagged([0, 2, items], 3, lengths), "-march=x86-64-v3")
        for name in wanted if found else ():
            if (a := wanted[name]).tobytes() != (b := found[name]).tobytes():
                self.fail(f"{name} with AVX2: {np.abs(a - b).max()}")

    def test_a_part_that_gives_nothing_changes_no_bit(self):
        whole = self.tagged([0, 2, 4], 0, [300, 200, 9, 270])
        nothing = {name: np.zeros((1, 31), np.int32) for name in ("ids", "labels")}
        wanted = self.gradients(TAGGER, whole)
        for parts in ([nothing, *whole], [whole[0], nothing, whole[1]], [*whole, nothing, nothing]):
            found = self.gradients(TAGGER, parts)
            self.assertEqual([name for name in wanted if wanted[name].tobytes() != found[name].tobytes()], [])


if __name__ == "__main__":
    sys.argv.pop(1)
    with tally.compiled_once():
        sys.exit(tally.run())
