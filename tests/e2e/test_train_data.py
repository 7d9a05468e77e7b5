#!/usr/bin/env python3
"""tfmc train --data: what data are refused, the order of batches (computed anew here from docs/training.md), checkpoints
and going on from them at every step, checkpoints that were damaged, kills and signals, validation, log and curve.

usage: test_train_data.py TFMC          The last line is 'N passed, N failed'.
"""
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

import tally
from tensor_files import read_tensors, write_tensors

MODEL = """model Pairs(vocab = 9, d = 4, p = 0.25, most = 8) {
  embed = Embedding(vocab, d)
  head  = Linear(d, vocab)

  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    require source <= most, "a source has at most {most} ids, not {source}"
    context = mean(embed(src), axis = 1, keepdim = true)
    return logits = embed(tgt) + context -> Dropout(p) -> head
  }
  fn objective(src: i32[batch, source], sentence: i32[batch, n]) {
    labels = sentence[:, 1:]
    logits = forward(src, sentence[:, :-1])
    return loss = cross_entropy(logits, labels, ignore_index = 0), nll = cross_entropy(logits, labels, ignore_index = 0)
  }
  train objective { SETTINGS }
}
"""


def items_of(pairs, dtype="I32"):
    """The tensors of a data file, from [(source, sentence)]."""
    tensors = {}
    for name, rows in (("src", [a for a, _ in pairs]), ("sentence", [b for _, b in pairs])):
        tensors[name] = dtype, [sum(map(len, rows))], [x for row in rows for x in row]
        tensors[name + ".lengths"] = dtype, [len(rows)], list(map(len, rows))
    return tensors


# ---- the order of batches, as the documents say it ----

def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def shuffle(items, seed, epoch, what):
    for i in range(len(items) - 1, 0, -1):
        w = philox([i & 0xFFFFFFFF, i >> 32, epoch, what], [seed & 0xFFFFFFFF, (seed >> 32) ^ 0xFFFFFFFF])
        j = (w[0] + (w[1] << 32)) * (i + 1) >> 64
        items[i], items[j] = items[j], items[i]


def order(lengths, seed, epoch, tokens=None, count=None, pool=100):
    """lengths: of each item, those of its inputs. The batches of an epoch as lists of items."""
    left = list(range(len(lengths)))
    shuffle(left, seed, epoch, 0)
    out, number = [], 0
    while left:
        n = pool * count if count else 1
        while tokens and n < len(left) and sum(sum(lengths[i]) for i in left[:n + 1]) <= pool * tokens:
            n += 1
        here, left = left[:n], left[n:]
        here = [i for _, i in sorted(enumerate(here), key=lambda e: (sorted(lengths[e[1]], reverse=True), e[0]))]
        batches = []
        while here:
            n = count or 1
            while tokens and n < len(here) and (n + 1) * sum(map(max, zip(*(lengths[i] for i in here[:n + 1])))) <= tokens:
                n += 1
            batches.append(here[:n])
            here = here[n:]
        number += 1
        shuffle(batches, seed, epoch, number)
        out += batches
    return out


class TrainData(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        self.model('optimizer = "adam"  lr = 0.01')
        rng = random.Random(1)
        self.pairs = [([rng.randrange(9) for _ in range(rng.randint(1, 8))], [rng.randrange(1, 9) for _ in range(rng.randint(2, 6))])
                      for _ in range(23)]
        self.data("d", self.pairs)
        self.data("v", self.pairs[:7])

    def model(self, settings, text=MODEL):
        (self.work / "m.tfm").write_text(text.replace("SETTINGS", settings))

    def data(self, name, pairs, **more):
        write_tensors(self.work / f"{name}.safetensors", items_of(pairs, **more))

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *args], cwd=self.work, capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 4) if code is None else (code,), done.stdout + done.stderr)
        if code is None:
            return done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def train(self, *args, out="out", data="d", code=0):
        return self.tfmc("train", "m.tfm", f"--data={data}.safetensors", f"--out={out}", "--batch-tokens=30", "--threads=1", *args,
                         code=code)

    def refused(self, *words, args=(), code=1, tensors=None):
        if tensors:
            write_tensors(self.work / "bad.safetensors", tensors)
        message = self.train("--steps=1", *args, data="bad" if tensors else "d", out="refused", code=code)
        for word in words:
            self.assertIn(word, message)
        self.assertFalse((self.work / "refused" / "weights.safetensors").exists())

    def weights(self, folder):
        return (self.work / folder / "weights.safetensors").read_bytes()

    def log(self, folder, kind):
        lines = (self.work / folder / "log.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    # ---- data ----

    def test_data_that_do_not_fit(self):
        good = items_of(self.pairs)

        def but(**more):
            made = {name: entry for name, entry in good.items()}
            made.update({name.replace("_lengths", ".lengths"): entry for name, entry in more.items()})
            return {name: entry for name, entry in made.items() if entry}
        n = len(self.pairs)
        lengths = good["src.lengths"][2]
        self.refused('input "sentence"', "is not there", tensors=but(sentence=None))
        self.refused('"src.lengths"', "--window", tensors=but(src_lengths=None))
        self.refused("add up to", tensors=but(src_lengths=("I32", [n], [lengths[0] + 1, *lengths[1:]])))
        self.refused("item 2 has the length -1", tensors=but(src_lengths=("I32", [n], [*lengths[:2], -1, *lengths[3:]])))
        self.refused(f'"src" has {n} items, "sentence" has 1', tensors=but(sentence=("I32", [2], [1, 2]), sentence_lengths=("I32", [1], [2])))
        self.refused("type F32", tensors=but(src=("F32", good["src"][1], good["src"][2])))
        self.refused(f"shape [{good['src'][1][0]}, 1], the data must be i32[sum of the lengths]", tensors=but(src=("I32", [*good["src"][1], 1], good["src"][2])))
        ids = list(good["sentence"][2])
        at = sum(good["sentence.lengths"][2][:3]) + 1
        self.refused('"sentence": item 3 holds the id 9 at place 1; ids must be in 0..8',
                     tensors=but(sentence=("I32", good["sentence"][1], [*ids[:at], 9, *ids[at + 1:]])))
        self.refused("item 0 holds the id -1 at place 0", tensors=but(src=("I32", good["src"][1], [-1, *good["src"][2][1:]])))
        self.refused("no item", tensors=items_of([]))
        long = items_of([*self.pairs, ([1] * 9, [1, 2])])
        self.refused(f"item {n} cannot be trained on: a source has at most 8 ids, not 9", "--skip-long", tensors=long)
        self.refused("it has 31 tokens, --batch-tokens is 30", tensors=items_of([([1] * 8, [1] * 23)]))
        write_tensors(self.work / "long.safetensors", long)
        text = self.train("--steps=0", "--skip-long", data="long")
        self.assertIn(f"{n} items, 1 left out", text)
        self.refused("none.safetensors", args=("--data=none.safetensors",), code=3)

    def test_labels_that_are_ignored_may_be_anything(self):
        self.model("", MODEL.replace("ignore_index = 0", "ignore_index = -100").replace("[:, :-1]", "[:, :-1] * 0"))
        write_tensors(self.work / "d.safetensors", items_of([([1, 2], [3, -100, 4])]))
        self.train("--steps=1")
        write_tensors(self.work / "d.safetensors", items_of([([1, 2], [3, -99, 4])]))
        self.refused("holds the id -99")

    def test_options_that_do_not_fit(self):
        for words, args in [("not both", ["--epochs=1"]), ("not both", ["--batch-items=1"]), ("nothing to validate", ["--valid-every=1"]),
                            ("nothing to validate", ["--early-stopping=1"]), ("without --weights", ["--new=x"]),
                            ("does not go with --data", ["--gradients", "--output=g.safetensors"])]:
            self.refused(words, args=args, code=2)
        self.assertIn("--out", self.tfmc("train", "m.tfm", "--data=d.safetensors", "--steps=1", code=2))
        self.assertIn("not both", self.tfmc("evaluate", "m.tfm", "--data=d.safetensors", "--batches=d.safetensors", "--weights=w", code=2))
        self.assertIn("how long", self.tfmc("train", "m.tfm", "--data=d.safetensors", "--out=o", code=2))
        self.assertIn("needs --data", self.tfmc("train", "m.tfm", "--steps=1", "--out=o", code=2))

    def test_an_input_without_a_batch(self):
        self.model("", MODEL.replace("sentence: i32[batch, n])", "sentence: i32[batch, n], scale: f32[3])")
                   .replace("return loss = ", "return loss = sum(scale) * "))
        self.refused("'scale', f32[3], cannot be read", "first axis must be the batch")

    def test_several_files_and_kinds_of_numbers(self):
        self.data("a", self.pairs[:9], dtype="I64")
        self.data("b", self.pairs[9:])
        self.train("--steps=3", out="one")
        self.tfmc("train", "m.tfm", "--data=a.safetensors", "--data=b.safetensors", "--out=two", "--batch-tokens=30", "--steps=3")
        self.assertEqual(read_tensors(self.work / "one/weights.safetensors"), read_tensors(self.work / "two/weights.safetensors"))

    def test_windows(self):
        self.model("lr = 0.1", "model Text { embed = Embedding(5, 5)\n  forward(ids: i32[batch, time]) { return logits = embed(ids) }\n"
                   "  fn f(text: i32[batch, n]) { return loss = cross_entropy(forward(text[:, :-1]), text[:, 1:]) }\n  train f { SETTINGS }\n}\n")
        write_tensors(self.work / "t.safetensors", {"text": ("I32", [23], [i % 5 for i in range(23)])})
        self.assertIn("5 items, 25 tokens", self.tfmc("train", "m.tfm", "--data=t.safetensors", "--window=4", "--steps=0"))
        self.tfmc("train", "m.tfm", "--data=t.safetensors", "--window=4", "--epochs=30", "--out=w", "--batch-items=2", "--log-every=1")
        losses = [entry["loss"] for entry in self.log("w", "step")]
        self.assertEqual(len(losses), 90)
        self.assertLess(losses[-1], losses[0] / 2)

    # ---- the order ----

    def batches(self, n, seed, *args):
        """What the steps of a run took: a model whose metrics are sums over the items tells."""
        self.model('optimizer = "sgd"  lr = 1e-20', "model Sums {\n  weight w: [1] = 1\n  forward(x: f32[batch, time]) { return y = x * w }\n"
                   "  fn f(x: f32[batch, a], z: f32[batch, b]) { return loss = sum(sum(forward(x))), padded = sum(sum(x == 0 and true)),\n"
                   "    bits = sum(sum(x)) }\n  train f { SETTINGS }\n}\n".replace("padded = sum(sum(x == 0 and true)),\n    ", ""))
        self.tfmc("train", "m.tfm", "--data=s.safetensors", "--out=s", f"--steps={n}", f"--seed={seed}", "--log-every=1", "--keep=1", *args)
        return [entry["bits"] for entry in self.log("s", "step")]

    def test_the_order_of_batches(self):
        rng = random.Random(5)
        lengths = [(rng.randint(1, 6), rng.randint(1, 9)) for _ in range(24)]
        tensors = {"x": ("F32", [sum(a for a, _ in lengths)], [2.0 ** i if k == 0 else 0 for i, (a, _) in enumerate(lengths) for k in range(a)]),
                   "z": ("F32", [sum(b for _, b in lengths)], [0] * sum(b for _, b in lengths))}
        for name, which in (("x", 0), ("z", 1)):
            tensors[name + ".lengths"] = "I32", [24], [pair[which] for pair in lengths]
        write_tensors(self.work / "s.safetensors", tensors)
        for seed, args, law in [(3, ["--batch-tokens=30", "--pool=2"], {"tokens": 30, "pool": 2}), (3 << 33 | 1, ["--batch-tokens=40"], {"tokens": 40}),
                                (7, ["--batch-items=5", "--pool=2"], {"count": 5, "pool": 2})]:
            want = [batch for epoch in range(2) for batch in order(lengths, seed, epoch, **law)]
            got = self.batches(len(want), seed, *args)
            self.assertEqual(got, [float(sum(2 ** i for i in batch)) for batch in want])
            shutil.rmtree(self.work / "s")

    # ---- checkpoints ----

    def test_going_on_at_every_step_gives_the_same_bytes(self):
        n = 9
        self.train(f"--steps={n}", "--save-every=1", "--keep=0", "--log-every=1", "--seed=4", out="whole")
        for k in range(1, n):
            folder = self.work / "part"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            shutil.copytree(self.work / f"whole/step-{k:08}", folder / f"step-{k:08}")
            shutil.copy(self.work / "whole/log.jsonl", folder)
            self.train(f"--steps={n}", "--log-every=1", "--seed=4", "--resume", "--part-tokens=10000", out="part")
            for name in ("state.tfmt", "weights.safetensors"):
                self.assertEqual((folder / f"step-{n:08}" / name).read_bytes(), (self.work / f"whole/step-{n:08}" / name).read_bytes(), k)
            self.assertEqual([{**e, "seconds": 0} for e in self.log("part", "step")], [{**e, "seconds": 0} for e in self.log("whole", "step")])

    def test_the_weights_are_everybodys(self):
        self.train("--steps=2")
        self.assertEqual({name: shape for name, (_, shape, _) in read_tensors(self.work / "out/weights.safetensors").items()},
                         {"embed.weight": [9, 4], "head.weight": [9, 4], "head.bias": [9]})
        self.assertEqual(self.weights("out"), self.weights("out/step-00000002"))
        write_tensors(self.work / "in.safetensors", {"src": ("I32", [1, 2], [1, 2]), "tgt": ("I32", [1, 2], [3, 4])})
        self.tfmc("run", "m.tfm", "--weights=out/weights.safetensors", "--inputs=in.safetensors")
        loss = float(self.tfmc("evaluate", "m.tfm", "--weights=out/weights.safetensors", "--data=d.safetensors").split()[1])
        self.assertTrue(0 < loss < 5)
        self.tfmc("train", "m.tfm", "--steps=0", "--weights=out/weights.safetensors", "-o", "written.safetensors")
        self.train("--steps=1", "--weights=written.safetensors", out="again")
        self.train("--steps=1", "--weights=out/weights.safetensors", out="same")
        self.assertEqual(self.weights("again"), self.weights("same"))

    def test_weights_that_the_objective_does_not_reach(self):
        """They are written too, with their initial values or those of the file: the model needs them in a run."""
        self.model("lr = 0.1", "model M(v = 9, d = 4) { embed = Embedding(v, d)  head = Linear(d, v)  pool = Linear(d, d)\n"
                   "  fn logits(ids: i32[batch, time]) = ids -> embed -> head\n"
                   "  forward(ids: i32[batch, time]) { return y = logits(ids), pooled = embed(ids) -> pool }\n"
                   "  fn f(sentence: i32[batch, n]) { return loss = cross_entropy(logits(sentence[:, :-1]), sentence[:, 1:]) }\n"
                   "  train f { SETTINGS }\n}\n")
        self.train("--steps=1")
        self.tfmc("run", "m.tfm", "--weights=out/weights.safetensors", "--input=ids=2x3")
        first = read_tensors(self.work / "out/weights.safetensors")
        self.assertEqual(first["pool.weight"][1], [4, 4])
        self.train("--steps=1", "--seed=5", "--weights=out/weights.safetensors", out="more")
        self.assertEqual(read_tensors(self.work / "more/weights.safetensors")["pool.weight"], first["pool.weight"])
        self.train("--steps=1", "--seed=5", out="other")
        self.assertNotEqual(read_tensors(self.work / "other/weights.safetensors")["pool.weight"], first["pool.weight"])

    def test_some_weights_begin_anew(self):
        self.train("--steps=2")
        full = read_tensors(self.work / "out/weights.safetensors")
        write_tensors(self.work / "w.safetensors", {"embed.weight": ("F32", [9, 4], full["embed.weight"][2])})
        self.refused("head.bias", args=("--weights=w.safetensors",))
        self.refused("no weight of the objective", args=("--weights=w.safetensors", "--new=haed.*", "--new=head.*"), code=2)
        self.model('optimizer = "sgd"  lr = 1e-30')
        self.train("--steps=1", "--weights=w.safetensors", "--new=head.*", out="new")
        self.tfmc("train", "m.tfm", "--steps=0", "-o", "first.safetensors")
        first, made = read_tensors(self.work / "first.safetensors"), read_tensors(self.work / "new/weights.safetensors")
        self.assertEqual(made["embed.weight"], full["embed.weight"])
        self.assertEqual(made["head.weight"], first["after.head.weight"])

    def test_another_run_is_refused(self):
        self.train("--steps=2")
        before = self.weights("out")
        again = ("--steps=4", "--resume")
        self.assertIn("holds a run already", self.train("--steps=4", code=1))
        self.assertIn("no checkpoint", self.train(*again, out="empty", code=1))
        for word, args in [("another model", ["-D", "p=0.5"]), ("other settings", ["--set=lr=1"]), ("another --seed", ["--seed=9"]),
                           ("other data", ["--pool=2"]), ("has its weights", ["--weights=out/weights.safetensors"])]:
            self.assertIn(word, self.train(*again, *args, code=2 if "weights" in word else 1), args)
        self.data("other", self.pairs[1:])
        self.assertIn("other data", self.train(*again, data="other", code=1))
        self.assertEqual(self.weights("out"), before)
        self.train(*again)

    def test_settings_of_one_value_are_not_one_run(self):
        """Settings that are told apart by their place in a list: bf16 is the second of `frozen`, and there are two shards."""
        self.model('optimizer = "sgd"  lr = 0.1  freeze = ["embed.*"]')
        run = ("train", "m.tfm", "--data=d.safetensors", "--batch-items=8")
        for one, other in ("--set=frozen=bf16", "--shards=2"), ("--set=frozen=f32", "--set=saved=trained"), (
                "--set=saved=trained", "--set=frozen=f32"):
            out = "--out=" + one[-4:]
            self.tfmc(*run, out, "--steps=2", one)
            self.assertIn("other settings", self.tfmc(*run, out, "--steps=4", "--resume", other, code=1), (one, other))
            self.tfmc(*run, out, "--steps=4", "--resume", one)

    def test_checkpoints_that_are_kept(self):
        self.train("--steps=7", "--save-every=1", "--keep=2")
        self.assertEqual(sorted(path.name for path in (self.work / "out").iterdir()),
                         ["curve.svg", "latest", "log.jsonl", "step-00000006", "step-00000007", "weights.safetensors"])
        self.assertEqual((self.work / "out/latest").read_text(), "step-00000007\n")

    def test_a_run_that_begins_anew_in_part(self):
        """--reset=optimizer: moments and their corrections as in a first step; schedule: its first rates; data: other items from the
        first epoch on. What is not reset goes on, and a run that does so can be stopped and resumed to the same bytes."""
        self.model('optimizer = "adam"  lr = 0.01  schedule = "linear"  warmup = 4  steps = 100')
        rate = lambda out: {entry["step"]: entry["lr"] for entry in self.log(out, "step")}  # noqa: E731
        self.train("--steps=3", "--log-every=1", "-D", "p=0.0")
        shutil.copytree(self.work / "out", self.work / "schedule")
        again = ("--resume", "--log-every=1", "-D", "p=0.0")
        self.train("--steps=6", *again, "--reset=schedule", "--set=lr=0.02", out="schedule")
        self.assertEqual([rate("schedule")[k] for k in (4, 5, 6)], [2 * rate("schedule")[k] for k in (1, 2, 3)])
        self.assertIn("other settings", self.train("--steps=6", *again, "--set=lr=0.02", code=1))
        self.assertIn("another optimizer", self.train("--steps=6", *again, '--set=optimizer="sgd"', "--reset=schedule", code=1))
        shutil.copytree(self.work / "out", self.work / "sgd")
        self.train("--steps=6", *again, '--set=optimizer="sgd"', "--reset=optimizer", out="sgd")
        # the first step of Adam is the rate, whatever the gradient is
        before = read_tensors(self.work / "out/step-00000003/weights.safetensors")
        self.train("--steps=4", *again, "--reset=optimizer", "--save-every=1")
        after = read_tensors(self.work / "out/step-00000004/weights.safetensors")
        moved = [abs(a - b) for name in before for a, b in zip(before[name][2], after[name][2]) if a != b]
        self.assertTrue(moved and all(abs(x - rate("out")[4]) < 1e-3 * rate("out")[4] for x in moved), moved)
        # stopped after the fourth step: the corrections still count from the third
        shutil.copytree(self.work / "out", self.work / "two")
        self.train("--steps=7", *again)
        self.train("--steps=5", *again, out="two")
        self.train("--steps=7", *again, out="two")
        self.assertEqual(self.weights("two"), self.weights("out"))
        self.data("other", self.pairs[5:])
        self.train("--steps=8", *again, "--reset=data", data="other")
        self.assertEqual([entry["epoch"] for entry in self.log("out", "step")][-1], 0)
        self.assertIn("--resume", self.train("--steps=8", "--reset=data", out="fresh", code=2))
        self.assertIn("optimizer, schedule or data", self.train("--steps=8", "--resume", "--reset=all", code=2))

    def test_a_command_that_scores(self):
        """It sees the weights and the step; its score is logged and stops the run, whatever the loss does; faults are told."""
        (self.work / "score.sh").write_text('test -s "$TFM_WEIGHTS" || exit 9\ncp "$TFM_WEIGHTS" seen-$TFM_STEP\n'
                                            'echo noise\necho "BLEU = $((TFM_STEP == 4 ? 30 : 20)).5"\n')
        text = self.train("--steps=40", "--valid=v.safetensors", "--valid-every=2", "--valid-command=sh score.sh", "--early-stopping=3")
        valid = self.log("out", "valid")
        self.assertEqual([(entry["step"], entry["score"]) for entry in valid], [(2, 20.5), (4, 30.5), (6, 20.5), (8, 20.5), (10, 20.5)])
        self.assertIn("step 4  score 30.5", text)
        self.assertEqual(read_tensors(self.work / "seen-10"), read_tensors(self.work / "out/step-00000010/weights.safetensors"))
        self.assertFalse((self.work / "out/.valid.safetensors").exists())
        for command, words in (("exit 3", "failed with exit code 3"), ("echo none", "no number"), ("kill $$", "ended by signal 15")):
            text = self.train("--steps=3", "--valid=v.safetensors", "--valid-every=1", "--early-stopping=1", f"--valid-command={command}",
                              out=command.split()[0])
            self.assertEqual(text.count(words), 3)
        self.assertIn("--valid names", self.train("--steps=3", "--valid-command=true", out="x", code=2))

    def test_a_bound_of_memory(self):
        """Parts are cut to fit; what cannot be cut is refused with what it needs, and that much is enough."""
        needed = lambda text: int(re.search(r"at least (\d+) bytes are needed", text)[1])  # noqa: E731
        self.data("d", [(src, tgt * 40) for src, tgt in self.pairs])
        steps = ("--steps=2", "--batch-items=23", "--threads=1")
        run = lambda n, code=0, *more: self.tfmc("train", "m.tfm", "--data=d.safetensors", f"--out=o{n}", *steps, f"--memory={n}", *more,  # noqa: E731
                                                 code=code)
        text = run(1, 4)
        self.assertIn("weights, gradients and moments", text)
        state = needed(text)
        text = run(state, 4)
        self.assertRegex(text, r"item \d+ by itself")
        item = needed(text)
        self.assertGreater(item, state)
        least = item
        while "by itself" in (text := self.tfmc("train", "m.tfm", "--data=d.safetensors", "--steps=0", *steps[1:], f"--memory={least}", code=None)):
            self.assertGreater(needed(text), least)
            least = needed(text)
        parts = lambda text: int(re.search(r"1 batch in (\d+) parts?", text)[1])  # noqa: E731
        some, all_of = parts(run(least)), parts(run(10 ** 9))
        self.assertEqual(all_of, 1)
        self.assertGreater(some, 4)
        self.assertTrue(1 < parts(run(least * 3)) < some)
        self.assertIn("largest batch of --valid", run(least, 4, "--valid=d.safetensors"))
        self.assertFalse((self.work / "o1").exists())

    def test_half_of_the_machines_memory(self):
        """It is the bound if nothing is said; an item that exceeds it by itself is told of, and --part-tokens is an answer."""
        half, words = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 2, 200000
        describe = lambda *more: self.tfmc("train", "m.tfm", "--data=d.safetensors", "--steps=0", "-D", f"vocab={words}", *more)  # noqa: E731
        length = 2 * half // (4 * words)
        self.data("d", [([1], [2] * length)])
        text = describe("--batch-items=3")
        least, bound = re.search(r"item 0 by itself.*: at least (\d+) bytes are needed, half of this machine's memory is (\d+)", text).groups()
        self.assertEqual(int(bound), half)
        self.assertNotIn("by itself", describe("--batch-items=3", "--part-tokens=100000000"))
        self.data("d", [([1], [2] * int(length * half / int(least) / 3))] * 9)
        text = describe("--batch-items=9")
        self.assertNotIn("by itself", text)
        self.assertGreater(int(re.search(r"1 batch in (\d+) parts?", text)[1]), 1)
        self.assertIn("1 batch in 1 part,", describe("--batch-items=9", "--part-tokens=100000000"))

    def test_shards_are_those_of_ranks(self):
        """A chain of sums for each: other bits than one, the same however often the run is stopped; too few items are refused."""
        self.model('optimizer = "sgd"  lr = 0.1')
        self.data("d", [((src * 4)[:4], tgt) for src, tgt in self.pairs])  # sources are averaged with their padding
        for n, out in ((1, "one"), (4, "four")):
            self.tfmc("train", "m.tfm", "--data=d.safetensors", f"--out={out}", "--batch-items=8", "--steps=6", f"--shards={n}",
                      "--threads=1")
        close = read_tensors(self.work / "one/weights.safetensors"), read_tensors(self.work / "four/weights.safetensors")
        for name, (_, _, numbers) in close[0].items():
            for a, b in zip(numbers, close[1][name][2]):
                self.assertLess(abs(a - b), 1e-3)
        run = ("train", "m.tfm", "--data=d.safetensors", "--out=part", "--batch-items=8", "--shards=4", "--threads=2")
        self.tfmc(*run, "--steps=2")
        self.assertIn("other --shards", self.tfmc(*run[:-2], "--shards=2", "--resume", "--steps=6", code=1))
        self.tfmc(*run, "--steps=6", "--resume")
        self.assertEqual(self.weights("part"), self.weights("four"))
        self.assertIn("power of two", self.tfmc(*run[:3], "--out=x", "--steps=1", "--shards=3", code=2))
        self.assertIn("fewer than --shards=16", self.tfmc(*run[:3], "--out=x", "--batch-items=8", "--steps=1", "--shards=16", code=2))

    def test_a_damaged_checkpoint(self):
        self.train("--steps=1")
        path = self.work / "out/step-00000001/state.tfmt"
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:100], b"", whole + b"\0", whole[:700] + bytes([whole[700] ^ 1]) + whole[701:]):
            path.write_bytes(damaged)
            self.assertIn("E0410", self.train("--steps=2", "--resume", code=1))
        path.write_bytes(whole)
        self.train("--steps=2", "--resume")

    def test_kills_leave_a_whole_checkpoint(self):
        """In a run that does little but save, processes are killed at random moments. What `latest` names can always be gone on from."""
        command = [TFMC, "train", "m.tfm", "--data=d.safetensors", "--out=k", "--batch-items=2", "--threads=1", "--steps=1000000", "--save-every=1"]
        rng = random.Random(3)
        steps = []
        for i in range(KILLS):
            latest = self.work / "k/latest"
            process = subprocess.Popen(command + (["--resume"] if latest.exists() else []), cwd=self.work, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            before = latest.read_text() if latest.exists() else ""
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline and (latest.read_text() if latest.exists() else "") == before:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.02))
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            process.kill()
            process.communicate()
            steps.append(int(latest.read_text()[5:]))
            self.assertEqual((self.work / "k" / latest.read_text().strip() / "state.tfmt").exists(), True)
        self.assertEqual(steps, sorted(set(steps)))
        self.tfmc(*command[1:-2], f"--steps={steps[-1] + 1}", "--resume")
        self.assertFalse(list((self.work / "k").glob(".step-*")))

    @unittest.skipIf("thread" in os.environ.get("TFM_SANITIZE", ""), "the thread sanitizer needs files that grow")
    def test_a_disk_that_is_full(self):
        """A file cannot grow beyond 1,000 bytes, which no state fits into: what was there stays, and can be gone on from."""
        self.train("--steps=1", "--log-every=1000")
        before = self.weights("out")
        process = subprocess.run([TFMC, "train", "m.tfm", "--data=d.safetensors", "--out=out", "--batch-tokens=30", "--steps=2", "--resume"],
                                 cwd=self.work, capture_output=True, text=True, restore_signals=False, env={**os.environ, "TFM_CACHE_DIR": ""},
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertIn("state.tfmt: cannot write the file: File too large", process.stderr)
        self.assertEqual(sorted(path.name for path in (self.work / "out").glob("*step*")), ["step-00000001"])
        self.assertEqual(self.weights("out"), before)
        self.train("--steps=2", "--resume")

    def test_signals(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            shutil.rmtree(self.work / "g", ignore_errors=True)
            process = subprocess.Popen([TFMC, "train", "m.tfm", "--data=d.safetensors", "--out=g", "--batch-items=2", "--threads=1",
                                        "--steps=100000000", "--log-every=1", "--save-every=1000000000"], cwd=self.work, stdout=subprocess.PIPE, text=True)
            log = self.work / "g/log.jsonl"
            while process.poll() is None and not (log.exists() and log.read_text()):
                time.sleep(0.01)
            process.send_signal(number)
            text, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code)
            step = int((self.work / "g/latest").read_text()[5:])
            self.assertIn(f"stopped after step {step}: --resume goes on", text)
            self.assertEqual(self.log("g", "step")[-1]["step"], step)

    def test_a_folder_that_cannot_be_written(self):
        (self.work / "file").write_text("")
        self.assertIn("file", self.train("--steps=1", out="file", code=3))
        self.assertIn("no/such", self.train("--steps=1", out="no/such", code=3))

    # ---- what one sees ----

    def test_log_validation_and_curve(self):
        text = self.train("--steps=40", "--valid=v.safetensors", "--valid-every=10", "--log-every=4", "--save-every=20")
        steps, valid = self.log("out", "step"), self.log("out", "valid")
        self.assertEqual([entry["step"] for entry in steps], list(range(4, 41, 4)))
        self.assertEqual([entry["step"] for entry in valid], [10, 20, 30, 40])
        self.assertEqual([entry["step"] for entry in self.log("out", "checkpoint")], [20, 40])
        self.assertTrue(all({"epoch", "loss", "nll", "lr", "norm", "tokens", "items", "padding", "seconds"} <= set(entry) for entry in steps))
        self.assertEqual(text.count("validation  loss"), 4)
        self.assertIn("(ppl ", text)
        tree = xml.etree.ElementTree.parse(self.work / "out/curve.svg")
        lines = [node for node in tree.iter() if node.tag.endswith("polyline")]
        self.assertEqual([len(node.get("points").split()) for node in lines], [10, 4])
        said = self.tfmc("evaluate", "m.tfm", "--weights=out/weights.safetensors", "--data=v.safetensors", "--batch-tokens=30")
        self.assertAlmostEqual(float(said.split()[1]), min(entry["loss"] for entry in valid), places=5)

    def test_the_line_of_a_terminal(self):
        ours, theirs = os.openpty()
        process = subprocess.Popen([TFMC, "train", "m.tfm", "--data=d.safetensors", "--out=t", "--batch-tokens=30", "--steps=30"], cwd=self.work,
                                   stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
        self.assertEqual(process.wait(), 0)
        last = text.decode().split("\r")[-2]
        self.assertRegex(last, r"^step 30/30  epoch \d+  loss \S+  nll \S+ \(ppl \S+\)  lr 0\.01  norm \S+  \d+ tok/s  eta 00:00\x1b\[K$")

    def test_the_best_weights_and_early_stopping(self):
        self.model('optimizer = "sgd"  lr = 0.3')
        rng = random.Random(2)
        self.data("noise", [([rng.randrange(9)], [rng.randrange(1, 9) for _ in range(6)]) for _ in range(6)])
        self.train("--steps=4000", "--valid=noise.safetensors", "--valid-every=3", "--early-stopping=3", "-D", "p=0.0")
        valid = [entry["loss"] for entry in self.log("out", "valid")]
        self.assertLess(len(valid), 1000)
        self.assertEqual(valid.index(min(valid)), len(valid) - 4)
        text = self.tfmc("evaluate", "m.tfm", "--weights=out/weights.safetensors", "--data=noise.safetensors")
        self.assertAlmostEqual(float(text.split()[1]), min(valid), places=4)

    def test_a_loss_that_is_not_finite(self):
        self.model('optimizer = "sgd"  lr = 1e30')
        message = self.train("--steps=50", "--save-every=1", "-q", code=1)
        self.assertIn("diverged in step", message)
        self.assertRegex(message, r"the last checkpoint is out/step-0000000\d")
        self.assertRegex(message, r"m\.tfm:\d+:\d+: note: the first result that is not finite is that of '\w+'")

    def test_a_mask_of_infinities_is_not_to_blame(self):
        self.model("lr = 1e-3", "model M(v = 9, d = 4) { embed = Embedding(v, d)  head = Linear(d, v)\n"
                   "  forward(ids: i32[batch, time]) {\n    x = embed(ids)\n    masked = reshape(ids == 0, [batch, time, 1])\n"
                   "    share = softmax(where(masked, -inf, sum(x, axis = -1, keepdim = true)), axis = 1)\n"
                   "    return y = head(x * share) + log(0 * share)\n  }\n"
                   "  fn f(sentence: i32[batch, n]) { return loss = cross_entropy(forward(sentence[:, :-1]), sentence[:, 1:]) }\n"
                   "  train f { SETTINGS }\n}\n")
        self.data("d", [([1], [0, *sentence]) for _, sentence in self.pairs])
        self.assertIn("m.tfm:6:34: note: the first result that is not finite is that of 'log'", self.train("--steps=5", code=1))


if __name__ == "__main__":
    KILLS = int(os.environ.get("TFM_TRAIN_KILLS", 200))
    TFMC = os.path.abspath(sys.argv.pop(1))
    with tally.compiled_once():
        sys.exit(tally.run())
