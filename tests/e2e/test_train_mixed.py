#!/usr/bin/env python3
"""tfmc train and evaluate: results that mix the items of a batch, in 1, 2 and 5 parts, with and without dropout: the value
and the gradients of the whole batch; shards; runs over data whose items differ in length; what is refused.

usage: test_train_mixed.py TFMC          The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import tally
from tensor_files import read_tensors, write_tensors

MODEL = """model M(v = 20, d = 8, p = 0) {
  embed = Embedding(v, d)
  tower = Linear(d, d)
  head  = Linear(d, 5)
  weight scale: [] = 0.5
  forward(ids: i32[batch, time]) {
    mask = f32(ids != 0)[..., none]
    return vectors = tower(dropout(sum(tanh(embed(ids)) * mask, axis = 1), p))
  }
  fn objective(ids: i32[batch, time], other: i32[batch, time], labels: i32[batch]) {
    h      = forward(ids)
    z      = dropout(forward(other), p)
    logits = head(h)
    rows   = cross_entropy(logits, labels, reduction = "none")
    nll    = mean(rows)
    pairs  = normalize(h, 1, 1e-6) @ transpose(normalize(z, 1, 1e-6), 0, 1)
    return RESULTS
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""
# What mixes items: negatives, scores of all with all through a trained temperature and a dropout of its own, statistics,
# orders, neighbours, single items, divisors of weights, functions of several, terms of weights alone beside them.
KINDS = {
    "negatives": "multiple_negatives_ranking_loss(h, z)",
    "both ways": "cross_entropy(20.0 * pairs, positions(h, axis = 0)) + cross_entropy(20.0 * transpose(pairs, 0, 1), positions(h, axis = 0))",
    "temperature": "cross_entropy(exp(scale) * dropout(pairs, p), positions(h, axis = 0)) + nll",
    "masked": "mean(log(sum(exp(where(labels[:, none] == labels, -1e9, pairs)), axis = 1) + 1.0))",
    "centred": "mean(sum((h - mean(h, axis = 0)) ** 2.0))",
    "normed": "mean(sum(tanh((h - mean(h, axis = 0)) * rsqrt(mean((h - mean(h, axis = 0)) ** 2.0, axis = 0) + 1e-5)) * z))",
    "covariance": "sum(sum((transpose(h, 0, 1) @ z / f32(shape(h, 0)) - mean(h, axis = 0)[:, none] * mean(z, axis = 0)) ** 2.0))",
    "greatest": "max(rows)",
    "sorted": "sum(topk(rows, 2, axis = 0))",
    "softmax": "sum(softmax(rows) * rows)",
    "running": "mean(cumsum(rows) * rows)",
    "neighbours": "mean(sum((h[1:] - h[:-1]) ** 2.0))",
    "first": "rows[0]",
    "divisor": "sum(sum(h * h)) / sum(sum(abs(z)))",
    "function": "exp(nll) * max(rows) + 0.1 * sum(sum(tower.weight * tower.weight))",
    "stopped": "sum(rows * stop_gradient(softmax(rows))) + sum(stop_gradient(h)[0] * h[-1])",
    "unequal": "log(sum(exp(rows))) + mean(max(pairs, axis = 0))",
}
SIZES = {1: [10], 2: [7, 3], 5: [1, 4, 2, 2, 1]}


class Mixed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        rng = random.Random(7)
        self.items = [([rng.randrange(1, 20) for _ in range(4)], [rng.randrange(1, 20) for _ in range(4)], rng.randrange(5)) for _ in range(10)]
        for parts, sizes in SIZES.items():
            tensors, first = {}, 0
            for k, n in enumerate(sizes):
                of = self.items[first:first + n]
                first += n
                tensors[f"ids@{k}"] = "I32", [n, 4], [x for item in of for x in item[0]]
                tensors[f"other@{k}"] = "I32", [n, 4], [x for item in of for x in item[1]]
                tensors[f"labels@{k}"] = "I32", [n], [item[2] for item in of]
            write_tensors(self.work / f"b{parts}.safetensors", tensors)

    def model(self, results, text=MODEL):
        (self.work / "m.tfm").write_text(text.replace("RESULTS", results))

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *args], cwd=self.work, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def step(self, parts, *args):
        self.tfmc("train", "m.tfm", f"--batches=b{parts}.safetensors", f"--accumulate={parts}", "--gradients", "--seed=4", "--steps=2", "-q", *args, "-o", "o.safetensors")
        return {name: list(numbers) for name, (_, _, numbers) in read_tensors(self.work / "o.safetensors").items()}

    def close(self, got, want, what, tolerance=1e-6):
        """Within the tolerance of the largest number of its kind: gradients of one weight beside those of another."""
        self.assertEqual(set(got), set(want), what)
        most = max([abs(x) for name in want if name.startswith("grad.") for x in want[name]] + [1])
        for name in want:
            for a, b in zip(got[name], want[name]):
                self.assertLessEqual(abs(a - b), tolerance * max(most if name.startswith("grad.") else 1, abs(b)), f"{what}: {name} {a}, wanted {b}")

    # ---- steps ----

    def test_every_kind_in_parts_is_the_whole_batch(self):
        for name, text in KINDS.items():
            self.model(f"loss = {text}")
            for p in (0, 0.3):
                want = self.step(1, "-D", f"p={p}")
                for parts in (2, 5):
                    self.close(self.step(parts, "-D", f"p={p}"), want, f"{name}, p = {p}, {parts} parts")

    def test_dropout_is_drawn_alike_in_both_passes(self):
        self.model(f"loss = {KINDS['temperature']}")
        kept, dropped = self.step(5, "-D", "p=0"), self.step(5, "-D", "p=0.3")
        self.assertNotEqual(kept["loss"], dropped["loss"])

    def test_engines_and_options_agree(self):
        for name in ("temperature", "masked", "normed", "function"):
            self.model(f"loss = {KINDS[name]}")
            want = self.step(1, "-D", "p=0.3", "--engine=reference")
            for option in ("--engine=reference", "-O0", "--threads=2", "--recompute=none"):
                self.close(self.step(5, "-D", "p=0.3", option), want, f"{name} {option}", 3e-6)

    def test_bits_do_not_depend_on_threads(self):
        self.model(f"loss = {KINDS['both ways']}")
        self.assertEqual(self.step(5, "-D", "p=0.3", "--threads=1"), self.step(5, "-D", "p=0.3", "--threads=2"))

    def test_results_beside_the_loss(self):
        metrics = ", ".join(f"m{i} = {text}" for i, text in enumerate(KINDS.values()))
        self.model(f"loss = nll, {metrics}")
        want = self.step(1, "-D", "p=0.3")
        for parts in (2, 5):
            self.close(self.step(parts, "-D", "p=0.3"), want, f"{parts} parts")
        self.tfmc("train", "m.tfm", "--steps=0", "--seed=4", "-q", "-o", "w.safetensors")
        results = []
        for parts in SIZES:
            self.tfmc("evaluate", "m.tfm", "--weights=w.safetensors", f"--batches=b{parts}.safetensors", "-q", "-o", "e.safetensors")
            results.append({name: list(numbers) for name, (_, _, numbers) in read_tensors(self.work / "e.safetensors").items()})
        self.close(results[1], results[0], "evaluated in 2")
        self.close(results[2], results[0], "evaluated in 5")

    def test_weights_that_are_frozen_or_only_mix(self):
        frozen = MODEL.replace("lr = 0.1", 'lr = 0.1  freeze = ["embed.*", "tower.*"]')
        for text in (KINDS["temperature"], "cross_entropy(exp(scale) * pairs, positions(h, axis = 0))"):  # of the last, nothing flows back to parts
            self.model(f"loss = {text}", frozen)
            want = self.step(1)
            self.assertIn("grad.scale", want)
            self.assertNotIn("grad.tower.weight", want)
            for parts in (2, 5):
                self.close(self.step(parts), want, text)

    # ---- runs over data ----

    def data(self, name, n, longest=6, seed=1):
        rng = random.Random(seed)
        tensors = {"labels": ("I32", [n], [rng.randrange(5) for _ in range(n)])}
        lengths = [rng.randrange(1, longest) for _ in range(n)]
        for key in ("ids", "other"):
            tensors[key] = "I32", [sum(lengths)], [rng.randrange(1, 20) for _ in range(sum(lengths))]
            tensors[key + ".lengths"] = "I32", [n], lengths
        write_tensors(self.work / f"{name}.safetensors", tensors)

    def run_on_data(self, out, *args, code=0):
        return self.tfmc("train", "m.tfm", "--data=d.safetensors", f"--out={out}", "--threads=1", "--log-every=1", "-q", *args, code=code)

    def logged(self, out):
        return [json.loads(line) for line in (self.work / out / "log.jsonl").read_text().splitlines()]

    def same_log(self, out, want):
        got, want = self.logged(out), self.logged(want)
        self.assertEqual(len(got), len(want), out)
        for a, b in zip(got, want):
            for key in b:
                if key not in ("seconds", "padding"):
                    self.assertTrue(a[key] == b[key] or abs(a[key] - b[key]) <= 2e-5 * max(1, abs(b[key])), f"{out}: {key} {a[key]}, wanted {b[key]}")

    def test_runs_do_not_depend_on_the_cut(self):
        self.data("d", 24)
        self.data("v", 11, seed=2)
        with_time = "max(max(sum(embed(ids) * f32(ids != 0)[..., none], axis = 2), axis = 0)) + nll"  # parts of one length
        for number, text in enumerate([KINDS["negatives"], KINDS["normed"], KINDS["sorted"], with_time]):
            self.model(f"loss = {text}, worst = max(rows)")
            base = "--steps=4", "--batch-items=12", "--valid=v.safetensors", "--valid-every=2", "-D", "p=0.2"
            self.run_on_data(f"whole{number}", *base)
            for k, cut in enumerate((["--part-tokens=24"], ["--shards=4"], ["--part-tokens=12", "--shards=2"])):
                self.run_on_data(f"cut{number}{k}", *base, *cut)
                self.same_log(f"cut{number}{k}", f"whole{number}")

    def test_memory_cuts_what_does_not_fit(self):
        self.data("d", 24)
        self.model(f"loss = {KINDS['negatives']}")
        base = "--steps=2", "--batch-items=24"
        self.run_on_data("whole", *base)
        message = self.run_on_data("refused", *base, "--memory=1000", code=4)
        self.assertIn("weights, gradients and moments: at least ", message)
        cut = None
        for kib in range(24, 200, 4):  # the first that is enough
            done = subprocess.run([TFMC, "train", "m.tfm", "--data=d.safetensors", "--out=m", "--threads=1", *base, "--log-every=1", f"--memory={kib << 10}"], cwd=self.work, capture_output=True, text=True)
            if done.returncode == 0:
                cut = done.stdout
                break
        self.assertRegex(cut, r"an epoch: 1 batch in \d+ parts")
        self.same_log("m", "whole")

    # ---- what is refused ----

    def test_inputs_that_parts_may_have_others_of_are_refused(self):
        for shape, text in (("[time]", "max(rows) * sum(sum(h - mean(h, axis = 0))) + sum(more)"), ("[batch, batch]", "max(max(pairs + more))")):
            self.model(f"loss = {text}", MODEL.replace("labels: i32[batch])", f"labels: i32[batch], more: f32{shape})"))
            for parts, sizes in SIZES.items():
                tensors = {name: (kind, dims, list(numbers)) for name, (kind, dims, numbers) in read_tensors(self.work / f"b{parts}.safetensors").items()}
                for k, n in enumerate(sizes):
                    dims = [4] if shape == "[time]" else [n, n]
                    tensors[f"more@{k}"] = "F32", dims, [0.5] * (dims[0] * dims[-1] if len(dims) > 1 else 4)
                write_tensors(self.work / f"more{parts}.safetensors", tensors)
            run = lambda parts, code: self.tfmc("train", "m.tfm", f"--batches=more{parts}.safetensors", f"--accumulate={parts}", "--steps=1", "-q", "-o", "o.safetensors", code=code)
            run(1, 0)
            message = run(2, 1)
            for word in ("m.tfm:", "mixes the items", "'more'", "'loss'", "a step must be one part"):
                self.assertIn(word, message, text)
            self.assertIn("only of a whole batch", self.tfmc("check", "m.tfm"))

    def test_parts_of_other_sizes_are_refused(self):
        self.model("loss = max(max(sum(embed(ids), axis = 2), axis = 0)) + nll")
        for widths, code in (((4, 4), 0), ((4, 3), 1)):
            tensors = {}
            for k, width in enumerate(widths):
                for name in ("ids", "other"):
                    tensors[f"{name}@{k}"] = "I32", [2, width], [3] * (2 * width)
                tensors[f"labels@{k}"] = "I32", [2], [1, 2]
            write_tensors(self.work / "b.safetensors", tensors)
            message = self.tfmc("train", "m.tfm", "--batches=b.safetensors", "--accumulate=2", "--steps=1", "-q", "-o", "o.safetensors", code=code)
        for word in ("all its parts need the same size time", "it is 3, and 4 in the first part", "pad their inputs alike"):
            self.assertIn(word, message)


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    with tally.compiled_once():
        sys.exit(tally.run())
