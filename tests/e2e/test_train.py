#!/usr/bin/env python3
"""tfmc train and tfmc evaluate beside the golden cases: what they print and write, that a step does not depend on how its
items are cut into batches, what is refused, and that nothing is written then.

usage: test_train.py TFMC          The last line is 'N passed, N failed'.
"""
import array
import itertools
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import tally
from tensor_files import read_tensors, write_tensors
from train_models import TINY

def numbers_of(path):
    return {name: numbers for name, (_, _, numbers) in read_tensors(path).items()}


TAGGER = """model Tagger(vocab = 9, d = 16) {
  embed   = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 24, gelu, dropout = 0.2)
  head    = Linear(d, vocab)

  forward(ids: i32[batch, time]) {
    logits = encoder(embed(ids), src_key_padding_mask = ids == 0) -> head
    return logits
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { SETTINGS }
}
"""


POOLED = """model Pooled(vocab = 9, d = 16, p = 0.2) {
  embed   = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 24, gelu, dropout = p)
  head    = Linear(d, 3)

  fn hidden(ids) = encoder(embed(ids), src_key_padding_mask = ids == 0)
  forward(ids: i32[batch, time]) { return logits = head(POOL) }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels[:, 0] % 3)
  }
  train objective { SETTINGS }
}
"""


LONG = """model Long(vocab = 9, d = 20) {
  weight * = uniform(-0.6, 0.6)
  embed     = Embedding(vocab, d)
  attention = MultiheadAttention(d, 2)
  head      = Linear(d, vocab)

  forward(ids: i32[batch, time]) {
    logits = attention(embed(ids), is_causal = true, key_padding_mask = ids == 0) -> head
    return logits
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { SETTINGS }
}
"""

CROSS = """model Cross(vocab = 9, d = 16) {
  table     = Embedding(vocab, d)
  attention = MultiheadAttention(d, 2, dropout = 0.2)
  head      = Linear(d, vocab)

  forward(src: i32[batch, source], ids: i32[batch, time]) {
    x = table(ids)
    m = table(src)
    return y = head(x + attention(x, m, m))
  }
  fn objective(src: i32[batch, source], ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(src, ids), labels)
  }
  train objective { SETTINGS }
}
"""


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        self.model('optimizer = "sgd"  lr = 0.1')
        rng = random.Random(1)
        ids = [rng.randrange(7) for _ in range(24)]
        labels = [rng.randrange(7) for _ in range(24)]
        self.ids, self.labels = ids, labels
        self.batches("one", [(0, 6)])
        self.batches("cut", [(0, 1), (1, 4), (4, 6)])

    def model(self, settings, text=TINY):
        (self.work / "m.tfm").write_text(text.replace("SETTINGS", settings))

    def batches(self, name, cuts):
        tensors = {}
        for i, (a, b) in enumerate(cuts):
            at = f"@{i}" if len(cuts) > 1 else ""
            tensors["ids" + at] = "I32", [b - a, 4], self.ids[4 * a:4 * b]
            tensors["labels" + at] = "I32", [b - a, 4], self.labels[4 * a:4 * b]
        write_tensors(self.work / f"{name}.safetensors", tensors)

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *args], cwd=self.work, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else done.stdout

    def train(self, *args, **more):
        return self.tfmc("train", "m.tfm", *args, **more)

    def refused(self, *words, code=1, command="train", args=("--batches=one.safetensors",)):
        message = self.tfmc(command, "m.tfm", *args, "-o", "out.safetensors", code=code)
        for word in words:
            self.assertIn(word, message)
        self.assertFalse((self.work / "out.safetensors").exists())

    def close(self, a, b, tolerance=2e-6):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLessEqual(abs(x - y), tolerance * max(1, abs(y)))

    def engines_agree(self, tensors):
        """On gradients and all else of a step."""
        write_tensors(self.work / "x.safetensors", tensors)
        for engine in "reference", "native":
            self.train("--batches=x.safetensors", "--gradients", f"--engine={engine}", "-o", engine)
        expected, made = (numbers_of(self.work / engine) for engine in ("reference", "native"))
        self.assertEqual(expected.keys(), made.keys())
        for name, numbers in expected.items():
            self.close(made[name], numbers, 1e-6)

    def test_the_loss_falls_and_the_weights_can_be_run(self):
        text = self.train("--batches=one.safetensors", "--steps=40", "-o", "w.safetensors")
        lines = text.splitlines()
        self.assertEqual(len(lines), 40)
        losses = [float(line.split()[3]) for line in lines]
        self.assertLess(losses[-1], losses[0])
        self.assertIn("right ", lines[0])
        write_tensors(self.work / "in.safetensors", {"ids": ("I32", [1, 4], [1, 2, 3, 4])})
        self.tfmc("run", "m.tfm", "--weights=w.safetensors", "--weights-prefix=after.", "--inputs=in.safetensors")
        self.assertEqual(self.train("--batches=one.safetensors", "--quiet"), "")

    def test_a_step_does_not_depend_on_its_batches(self):
        for p in ("0.0", "0.5"):
            for engine in ("--engine=reference", "--engine=native"):
                made = []
                for name, n in (("one", 1), ("cut", 3)):
                    self.train("-D", f"p={p}", f"--batches={name}.safetensors", f"--accumulate={n}", "--steps=3", "--seed=5", engine,
                               "--gradients", "-o", f"{name}.out")
                    made.append(numbers_of(self.work / f"{name}.out"))
                self.assertEqual(made[0].keys(), made[1].keys())
                self.assertEqual(len(made[0]["losses"]), 3)
                for name in made[0]:
                    self.close(made[0][name], made[1][name])

    def test_evaluate_adds_batches_up_and_drops_nothing(self):
        self.train("--steps=0", "-o", "w.safetensors")
        weights = {n.removeprefix("after."): v for n, v in numbers_of(self.work / "w.safetensors").items()}
        shapes = {"embed.weight": [7, 4], "head.weight": [7, 4], "head.bias": [7]}
        write_tensors(self.work / "v.safetensors", {n: ("F32", shapes[n], v) for n, v in weights.items()})
        made = []
        for name in ("one", "cut"):
            self.tfmc("evaluate", "m.tfm", "-D", "p=0.9", "--weights=v.safetensors", f"--batches={name}.safetensors", "-o", "e")
            made.append(numbers_of(self.work / "e"))
        self.assertEqual(made[0]["right"], made[1]["right"])
        self.close(made[0]["loss"], made[1]["loss"])
        self.assertLess(abs(made[0]["loss"][0] - math.log(7)), 2)
        text = self.tfmc("evaluate", "m.tfm", "--weights=v.safetensors", "--batches=one.safetensors")
        self.assertRegex(text, r"^loss \d")
        same = self.tfmc("evaluate", "m.tfm", "--weights=w.safetensors", "--weights-prefix=after.", "--batches=one.safetensors")
        self.assertEqual(same, text)

    def test_initial_values_follow_the_seed(self):
        for seed in ("1", "1", "2"):
            self.train("--steps=0", f"--seed={seed}", "-o", f"s{seed}")
        first, other = numbers_of(self.work / "s1"), numbers_of(self.work / "s2")
        self.assertNotEqual(first["after.embed.weight"], other["after.embed.weight"])
        self.assertEqual(set(first), {"after.embed.weight", "after.head.weight", "after.head.bias"})

    def test_check_and_dump_show_the_objective(self):
        text = self.tfmc("check", "m.tfm")
        self.assertIn("objective objective", text)
        self.assertIn("trained: 3 of 3 tensors, 63 numbers", text)
        self.assertRegex(text, r"loss +sum at 11:\d+ / sum at 11:\d+\n")
        graph = self.tfmc("dump", "m.tfm", "--stage=gradients")
        self.assertIn("grad.head.weight", graph)
        (self.work / "g.graph").write_text(graph)
        self.assertIn("grad.embed.weight", self.tfmc("opt", "g.graph", "-O0"))
        self.tfmc("dump", "m.tfm", "--stage=gradients-plan")

    def test_a_model_without_train_is_what_it_was(self):
        self.model("", TINY[:TINY.index("  fn objective")] + "}\n")
        self.assertNotIn("objective", self.tfmc("check", "m.tfm"))
        self.refused("Tiny has no train block")
        self.refused("Tiny has no train block", command="evaluate")
        self.refused("Tiny has no train block", command="dump", args=("--stage=gradients",))

    def test_batches_that_do_not_fit(self):
        def given(**tensors):
            write_tensors(self.work / "bad.safetensors", {n.replace("_at_", "@"): t for n, t in tensors.items()})
            return ("--batches=bad.safetensors",)
        ids = "I32", [1, 4], [1, 2, 3, 4]
        self.refused('input "labels"', "is not given", args=given(ids=ids))
        self.refused('no input "labls"', 'did you mean "labels"', args=given(ids=ids, labls=ids))
        self.refused("type F32", args=given(ids=("F32", [1, 4], [1, 2, 3, 4]), labels=ids))
        self.refused("batch 1", args=given(ids_at_0=ids, labels_at_0=ids, ids_at_1=ids))
        self.refused("number of a batch", args=given(ids_at_x=ids, labels=ids))
        self.refused("id", args=given(ids=("I32", [1, 4], [1, 2, 3, 9]), labels=ids))
        self.refused("the labels of cross_entropy", "batch 0", args=given(ids=ids, labels=("I32", [1, 4], [1, 2, 3, 9])))
        self.refused("labels", args=given(ids=ids, labels=("I32", [1, 3], [1, 2, 3])))
        self.refused("--batches", code=2, args=())
        self.refused("none.safetensors", code=3, args=("--batches=none.safetensors",))

    def test_a_loss_that_is_not_finite(self):
        self.model('optimizer = "sgd"  lr = 1e30')
        self.refused("diverged in step", args=("--batches=one.safetensors", "--steps=50", "--quiet"))

    def test_weights_without_initial_values(self):
        self.model("lr = 1", "model M {\n  weight w: [3]\n  forward(x: f32[3]) { return y = x * w }\n"
                   "  fn f(x: f32[3]) { return loss = sum(forward(x)) }\n  train f { SETTINGS }\n}\n")
        self.refused("'w' has no initial value", args=("--steps=0",))

    def test_settings(self):
        for settings, *words in [('optimizer = "adm"', "adm", "adam"), ("schedule = 3", "schedule", "string"),
                                 ('schedule = "cosine"', "steps"), ('schedule = "linear"  steps = 3  warmup = 3', "warmup"),
                                 ('schedule = "exponential"', "gamma"), ("warmup = 1.5", "whole number"), ("betas = 0.9", "two numbers"),
                                 ('optimizer = "sgd"  nesterov = true', "momentum"),
                                 ("nesterov = true", '"adamw"', "'nesterov'", "for sgd"), ('optimizer = "sgd"  betas = [0.8, 0.9]', "betas", "for adam, adamw"),
                                 ("gamma = 0.5", '"constant"', "for exponential"), ('schedule = "cosin"', "did you mean", "cosine"),
                                 ('schedule = "noam"  warmup = 3  model_size = 4  final_lr = 0.1', "final_lr", "for linear, cosine"), ("freeze = 3", "list of strings"), ('freeze = ["*"]', "no trained weight"),
                                 ('no_decay = ["x"]', "no_decay", '"x"'), ("lr = 1  lr = 2", "twice"), ("clip_norm = -1", "clip_norm", "-1"),
                                 ("lr = lr", "unknown name"), ("rate = 0.5", "no setting 'rate'")]:
            self.model(settings)
            message = self.tfmc("check", "m.tfm", code=1)
            for word in words:
                self.assertIn(word, message, settings)

    def test_settings_of_the_command_line(self):
        steps = "--batches=one.safetensors", "--steps=2", "--gradients"
        self.model('optimizer = "adam"  lr = 0.25  clip_norm = 1')
        self.train(*steps, "-o", "block")
        self.model('optimizer = "sgd"  lr = 3')
        self.train(*steps, '--set=optimizer="adam"', "--set=lr=1 / 4", "--set", "clip_norm=1", "-o", "set")
        self.assertEqual(numbers_of(self.work / "block"), numbers_of(self.work / "set"))
        self.model('optimizer = "adam"  betas = [0.5, 0.5]  clip_norm = 1e-9  lr = 3')
        self.train(*steps, '--set=optimizer="sgd"', "--set=clip_norm=none", "-o", "other")
        self.model('optimizer = "sgd"  lr = 3')
        self.train(*steps, "-o", "plain")
        self.assertEqual(numbers_of(self.work / "other"), numbers_of(self.work / "plain"))
        self.refused("--set momentum", "'momentum'", "for sgd", args=("--steps=0", '--set=optimizer="adam"', "--set=momentum=0.5"))
        self.refused("--set rate", "no setting 'rate'", args=("--steps=0", "--set=rate=1"))
        self.refused("lr must be", "-1", args=("--steps=0", "--set=lr=-1"))
        self.refused("expected NAME=VALUE", code=2, args=("--steps=0", "--set=lr"))

    def test_threads_change_no_bits(self):
        made = []
        for n in (1, 2, 3):
            self.train("--batches=cut.safetensors", "--steps=4", "--accumulate=2", "-D", "p=0.5", f"--threads={n}", "--gradients", "-o", "t")
            made.append((self.work / "t").read_bytes())
        self.assertEqual(made[0], made[1])
        self.assertEqual(made[0], made[2])

    def test_what_is_computed_again_changes_no_bits(self):
        """Steps of the gradients that are there twice, where they write, and the same bytes."""
        self.model('optimizer = "sgd"  lr = 0.1', TAGGER)
        made, plans = [], []
        for word in "none", "cheap", "layer":
            self.train("--batches=one.safetensors", "--steps=2", "--seed=3", "--gradients", f"--recompute={word}", "-o", "t")
            made.append((self.work / "t").read_bytes())
            plans.append(self.tfmc("dump", "m.tfm", "--stage=gradients-plan", f"--recompute={word}"))
        self.assertEqual(made, made[:1] * 3)
        norms, products = ([plan.count(word) for plan in plans] for word in (": layer_norm ", ": matmul "))
        self.assertGreater(norms[1], norms[0])
        self.assertEqual(products[0], products[1])
        self.assertGreater(products[2], products[1])
        kept = []  # f32 for each token that are there when the backward half begins
        for plan in plans:
            middle = int(re.search(r"(\d+): log_softmax", plan)[1])
            buffers = re.findall(r"buffer \d+: f32\[(?:(\d+)\*)?batch\*time\] steps (\d+)-(\d+)", plan)
            kept.append(sum(int(many or 1) for many, begin, end in buffers if int(begin) < middle < int(end)))
        self.assertGreater(kept[0], kept[1])
        self.assertGreater(kept[1], 2 * kept[2])
        self.assertNotIn(": output ", plans[1])
        lines = plans[1].splitlines()  # log_softmax lies where the logits were
        at = next(i for i, line in enumerate(lines) if ": log_softmax" in line)
        result, logits = (line.split(": ")[1].split(" [")[0] for line in lines[at + 2:at + 4])
        self.assertEqual(result, logits)
        self.tfmc("train", "m.tfm", "--recompute=all", code=2)

    def planned(self, text, *options):
        """The most that lies in memory at once, in bytes, of 8 x 16 tokens."""
        (self.work / "m.tfm").write_text(text)
        plan, buffers = self.tfmc("dump", "m.tfm", "--stage=gradients-plan", *options), []
        for dims, begin, end in re.findall(r"buffer \d+: \w+\[([^\]]*)\] steps (\d+)-(\d+)", plan):
            sizes = [eval(dim, {"batch": 8, "time": 16}) for dim in dims.split(",")]
            buffers.append((4 * math.prod(sizes), int(begin), int(end)))
        last = max(end for *_, end in buffers)
        return max(sum(size for size, begin, end in buffers if begin <= step <= end) for step in range(last + 1))

    def test_a_layer_that_is_applied_several_times_is_kept_and_computed_again_call_by_call(self):
        """Two inputs through one tower take about what they take through a tower each, one layer four times what four do;
        in memory and in steps."""
        towers = """model Towers(d = 32) {
  words = Embedding(50, d)  one = Encoder(d, 4, 4, 64)  other = Encoder(d, 4, 4, 64)
  forward(a: i32[batch, time], b: i32[batch, time]) { return u = mean(one(words(a)), axis = 1), v = mean(OTHER(words(b)), axis = 1) }
  fn objective(a: i32[batch, time], b: i32[batch, time]) { u, v = forward(a, b)  return loss = mean(sum((u - v) * (u - v), axis = 1)) }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""
        depth = """model Deep(d = 32) {
  words = Embedding(50, d)  layers = 4 * EncoderLayer(d, 4, 64)
  forward(a: i32[batch, time]) { h = words(a)  for i in 4 { h = layers[LAYER](h) }  return u = mean(h, axis = 1) }
  fn objective(a: i32[batch, time]) { u = forward(a)  return loss = mean(sum(u * u, axis = 1)) }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""
        for text, word, apart, together in ((towers, "OTHER", "other", "one"), (depth, "LAYER", "i", "0")):
            for how, most in (("layer", 1.45), ("cheap", 1.05)):
                one, several = (self.planned(text.replace(word, given), f"--recompute={how}") for given in (apart, together))
                self.assertLess(several, most * one, (word, how))
            kept, again = (self.planned(text.replace(word, together), f"--recompute={how}") for how in ("cheap", "layer"))
            self.assertLess(again, 0.65 * kept, word)
        numbers = random.Random(5)
        ids = [numbers.randrange(50) for _ in range(2 * 3 * 7)]
        write_tensors(self.work / "ab.safetensors", {"a": ("I32", [3, 7], ids[:21]), "b": ("I32", [3, 7], ids[21:])})
        (self.work / "m.tfm").write_text(towers.replace("OTHER", "one"))
        made = []
        for word in "none", "cheap", "layer":
            self.train("--batches=ab.safetensors", "--steps=2", "--seed=3", "--gradients", f"--recompute={word}", "-o", "t")
            made.append((self.work / "t").read_bytes())
        self.assertEqual(made, made[:1] * 3)

    def test_relu_before_dropout_keeps_the_dropout_alone(self):
        """What dropout leaves has the sign of relu wherever it counts: the same bytes as by a formula that keeps relu, and
        by one where something else reads relu, and no step between the products."""
        made, plans = [], []
        for active in "dropout(relu(h), 0.4)", "dropout(where(h < 0.0, 0.0, h), 0.4)", "stay(relu(h))":
            self.model('optimizer = "sgd"  lr = 0.1', """model Gated(d = 12) {
  weight * = uniform(-0.6, 0.6)
  first = Linear(d, 24)  last = Linear(24, 1)
  fn stay(y) { both = dropout(y, 0.4) + 0.0 * y  return result = both }
  forward(x: f32[batch, d]) { h = first(x)  return y = last(ACTIVE) }
  fn objective(x: f32[batch, d]) { y = forward(x)  return loss = mean(mean(y * y)) }
  train objective { SETTINGS }
}
""".replace("ACTIVE", active))
            rng = random.Random(4)
            numbers = [rng.choice((0, rng.uniform(-2, 2), 1e-40)) for _ in range(9 * 12)]
            write_tensors(self.work / "x.safetensors", {"x": ("F32", [9, 12], numbers)})
            for engine in "native", "reference":
                self.train("--batches=x.safetensors", "--steps=3", "--seed=3", "--gradients", f"--engine={engine}", "-o", f"{engine}.t")
            self.close(*(sum(map(list, numbers_of(self.work / f"{e}.t").values()), []) for e in ("native", "reference")), 1e-5)
            made.append((self.work / "native.t").read_bytes())
            plans.append(self.tfmc("dump", "m.tfm", "--stage=gradients-plan"))
        self.assertEqual(made[0], made[1])
        self.assertEqual(made[0], made[2])
        self.assertNotRegex(plans[0], r"pointwise.* over \[batch, 24\]")
        self.assertRegex(plans[2], r"pointwise.* over \[batch, 24\]")

    def test_relu_that_a_mask_makes_larger(self):
        """What the mask leaves has another shape, so its sign is not the sign of relu."""
        self.model('optimizer = "sgd"  lr = 1', """model Row(d = 3) {
  weight w: [1, d] = 0.5
  forward(x: f32[batch, d]) = x * w
  fn objective(x: f32[batch, d], keep: bool[batch, d]) {
    return loss = sum(sum(x * where(keep, relu(w) * 2, 0)))
  }
  train objective { SETTINGS }
}
""")
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [2, 3], [1, 2, 3, 4, 5, 6]),
                                                    "keep": ("BOOL", [2, 3], [1, 0, 1, 1, 1, 0])})
        for engine in "native", "reference":
            self.train("--batches=x.safetensors", "--gradients", f"--engine={engine}", "-o", "t")
            self.assertEqual(numbers_of(self.work / "t")["grad.w"], array.array("f", [10, 10, 6]))

    def test_rows_that_are_zero_lie_column_by_column(self):
        """The softmax leaves out rows of an axis that is the last one in memory; new memory holds anything but zeros."""
        self.model('optimizer = "sgd"  lr = 1', """model M {
  weight w: [6, 6] = uniform(-0.7, 0.7)
  forward(x: f32[batch, time, 6]) { return y = linear(x, w) }
  fn objective(x: f32[batch, time, 6], left_out: i32[1, 1, 6]) {
    s = softmax(where(left_out == 2, -inf, relu(linear(x, w))), axis = 0)
    return loss = mean(mean(sum(tanh(x + s))))
  }
  train objective { SETTINGS }
}
""")
        rng = random.Random(3)
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [3, 7, 6], [rng.gauss(0, 1) for _ in range(126)]),
                                                    "left_out": ("I32", [1, 1, 6], [0, 2, 1, 2, 0, 2])})
        self.train("--batches=x.safetensors", "--engine=reference", "-o", "r")
        for filled in "1", "170":
            with unittest.mock.patch.dict(os.environ, MALLOC_PERTURB_=filled):
                self.train("--batches=x.safetensors", "--threads=1", "-o", "t")
            for name, numbers in numbers_of(self.work / "r").items():
                self.close(numbers_of(self.work / "t")[name], numbers, 1e-5)

    def test_heads_that_share_keys_of_padded_items(self):
        """A gradient leaves out what padding gives, of each item another part; its heads could be rows of one product."""
        self.model('optimizer = "sgd"  lr = 1', """model M {
  weight query: [6, 6] = uniform(-0.7, 0.7)
  weight key: [3, 6] = uniform(-0.7, 0.7)
  weight scale: [2, 1, 1] = uniform(1, 2)
  forward(x: f32[batch, time, 6]) { return y = linear(x, query) }
  fn objective(x: f32[batch, time, 6], padding: bool[batch, time]) {
    k = linear(x, key)[:, none]
    s = split_heads(linear(x, query), 2) @ transpose(k, -1, -2) * scale
    p = softmax(where(padding[:, none, none, :], -inf, s))
    return loss = mean(mean(mean(tanh(merge_heads(p @ k)))))
  }
  train objective { SETTINGS }
}
""")
        rng = random.Random(3)
        self.engines_agree({"x": ("F32", [3, 4, 6], [rng.gauss(0, 1) for _ in range(72)]),
                            "padding": ("BOOL", [3, 4], [0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0])})

    def test_rows_that_are_added_to_a_column_of_others(self):
        """A batch in reverse order is looked up, so its gradient is added row by row, here into one column of a matrix."""
        self.model('optimizer = "sgd"  lr = 1', """model M {
  weight w: [6, 6] = uniform(-0.7, 0.7)
  forward(x: f32[batch, time, 6]) { return y = linear(x, w) }
  fn objective(x: f32[batch, time, 6]) {
    h = tanh(linear(x, w))[:, :, -1]
    return loss = sum(mean(flip(h, axis = 0) ** 2)) + mean(mean(h)) * 0.4
  }
  train objective { SETTINGS }
}
""")
        rng = random.Random(3)
        self.engines_agree({"x": ("F32", [3, 4, 6], [rng.gauss(0, 1) for _ in range(72)])})

    def loss_after(self):
        """Of x.safetensors, with the weights that a step has left."""
        self.tfmc("evaluate", "m.tfm", "--weights=w.safetensors", "--weights-prefix=after.", "--batches=x.safetensors",
                  "-o", "e.safetensors")
        return numbers_of(self.work / "e.safetensors")["loss"][0]

    def test_subnormal_numbers_are_kept(self):
        """A step computes as every run does: CPUs that turn them into 0 do so by different rules."""
        self.model('optimizer = "sgd"  lr = 1', """model Line {
  weight w: [4] = 1
  forward(x: f32[batch, 4]) = x * w
  fn objective(x: f32[batch, 4]) { return loss = sum(sum(forward(x))) }
  train objective { SETTINGS }
}
""")
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [2, 4], [1e-40, 2, 0, 1e-30] * 2)})
        self.train("--batches=x.safetensors", "--gradients", "-o", "w.safetensors")
        gradient = numbers_of(self.work / "w.safetensors")["grad.w"]
        self.assertEqual(gradient, array.array("f", [2 * array.array("f", [1e-40])[0], 4, 0, 2e-30]))
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [1, 4], [1e-40, 0, 0, 0])})
        self.assertGreater(self.loss_after(), 0)

    def test_what_makes_many_subnormal_numbers_drops_them(self):
        """Powers of a softmax that are below 2^-100 are 0 in a step, and not where a loss is evaluated."""
        self.model('optimizer = "sgd"  lr = 1', """model Sure {
  weight w: [2] = 1
  forward(x: f32[batch, 2]) = softmax(x * w)
  fn objective(x: f32[batch, 2]) { return loss = sum(forward(x)[:, 1] * 1e30) }
  train objective { SETTINGS }
}
""")
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [1, 2], [0, -70])})
        self.train("--batches=x.safetensors", "--gradients", "-o", "w.safetensors")
        step = numbers_of(self.work / "w.safetensors")
        self.assertEqual((list(step["losses"]), list(step["grad.w"])), ([0], [0, 0]))
        self.assertAlmostEqual(self.loss_after(), 0.3975, 3)

    def test_moments_do_not_sink_below_the_normal_numbers(self):
        """The first one of a weight that gets nothing any more is 0 as soon as it is below 2^-100, here in the fourth step."""
        self.model('optimizer = "adam"  lr = 1  weight_decay = 0', """model Line {
  weight w: [1] = 0
  forward(x: f32[batch, 1]) = x * w
  fn objective(x: f32[batch, 1]) { return loss = sum(sum(forward(x))) }
  train objective { SETTINGS }
}
""")
        write_tensors(self.work / "x.safetensors", {f"x@{i}": ("F32", [1, 1], [0.0 if i else 1e-29]) for i in range(8)})
        self.train("--batches=x.safetensors", "--steps=8", "--gradients", "-o", "w.safetensors")
        wanted = -sum(0.1 * 0.9 ** t / (1 - 0.9 ** (t + 1)) for t in range(3)) * 1e-29 / 1e-8
        self.assertAlmostEqual(numbers_of(self.work / "w.safetensors")["after.w"][0] / wanted, 1, 4)

    def tagged(self, name, cuts, padding=0):
        """Eight items of up to 11 tokens, 0 where there is none, cut into batches."""
        rng, length, tensors = random.Random(2), 11 + padding, {}
        lengths = [rng.randrange(1, 12) for _ in range(8)]
        lines = {of: [[rng.randrange(1, 9) for _ in range(n)] + [0] * (length - n) for n in lengths]
                 for of in ("ids", "labels")}
        for i, (a, b) in enumerate(cuts):
            for of, rows in lines.items():
                at = f"{of}@{i}" if len(cuts) > 1 else of
                tensors[at] = "I32", [b - a, length], sum(rows[a:b], [])
        write_tensors(self.work / name, tensors)

    def same_bytes(self, cuts, padding, *args):
        self.tagged("b.safetensors", cuts, padding)
        self.train("--batches=b.safetensors", f"--accumulate={len(cuts)}", "--gradients", "--seed=4", *args, "-o",
                   "w.safetensors")
        found = {name: data for name, data in numbers_of(self.work / "w.safetensors").items() if "." in name}
        wanted = self.__dict__.setdefault("wanted", found)
        self.assertEqual(found.keys(), wanted.keys())
        self.assertEqual([name for name in wanted if wanted[name].tobytes() != found[name].tobytes()], [])

    def test_gradients_have_the_same_bytes(self):
        """Each is one chain of sums in the order of tokens, whatever padding follows, however the step is cut and threads
        share it."""
        self.model('optimizer = "adamw"', TAGGER)
        plan = self.tfmc("dump", "m.tfm", "--stage=gradients-plan")
        self.assertIn("row_grad", plan)
        self.assertRegex(plan, r"one row in f64 in order, some steps over \[1, 16\]")  # a bias reads cotangents where they lie
        whole = [(0, 8)]
        self.same_bytes(whole, 0)
        for cuts in whole, [(0, 1), (1, 2), (2, 8)], [(0, 3), (3, 8)]:
            for padding in 0, 5:
                for threads in 1, 2, 3:
                    self.same_bytes(cuts, padding, f"--threads={threads}")
        if " avx2 " in pathlib.Path("/proc/cpuinfo").read_text():
            self.same_bytes(whole, 2, "--march=x86-64-v3")

    def rows_left_out(self, text, *kinds):
        """The bits do not depend on the pass that leaves out rows; padding is behind the tokens, before and among them."""
        self.model('optimizer = "adamw"', text)
        rng, length = random.Random(6), 23
        ids = [[rng.randrange(1, 9) if rng.random() < 0.8 else 0 for _ in range(n)] + [0] * (length - n) for n in (23, 9, 0, 1, 14)]
        ids[3][0], ids[4][0] = 5, 0
        labels = [[rng.randrange(9) if i else 0 for i in row] for row in ids]
        write_tensors(self.work / "b.safetensors", {"ids": ("I32", [5, length], sum(ids, [])),
                                                    "labels": ("I32", [5, length], sum(labels, []))})
        made = []
        for options in ["--disable=live-rows"], [], ["--threads=3"]:
            self.train("--batches=b.safetensors", "--steps=3", "--gradients", "--seed=4", *options, "-o", "w.safetensors")
            made.append((self.work / "w.safetensors").read_bytes())
        self.assertEqual(made[0], made[1])
        self.assertEqual(made[0], made[2])
        report = self.tfmc("dump", "m.tfm", "--stage=gradients-fused", "--report")
        for kind in kinds:
            self.assertRegex(report, kind)
        self.assertNotRegex(self.tfmc("dump", "m.tfm", "--stage=gradients-fused", "--disable=live-rows"), "rows=|steps=")

    def test_rows_of_padding_are_left_out(self):
        everywhere = ("only terms of sums where the mask bool.batch.time. is", "attention_grad .*rows=", "row_grad .*rows=")
        self.rows_left_out(TAGGER, *everywhere)
        self.rows_left_out(TAGGER.replace("0.2", "0.0"), *everywhere)
        for pool in "hidden(ids)[:, 0]", "sum(where((ids != 0)[..., none], hidden(ids), 0.0), 1)", "sum(hidden(ids) * f32(ids != 0)[..., none], 1)":
            self.rows_left_out(POOLED.replace("POOL", pool), *everywhere)
        self.rows_left_out(POOLED.replace("POOL", "hidden(ids)[:, 0]"), r"or\(lt\(index0, 1\), ne\(\$0, 0\)\)")

    def test_numbers_that_get_nothing_may_be_infinite(self):
        """What a cotangent of 0 is multiplied by is not looked at, as an attention takes nothing of a value that is masked."""
        self.model('optimizer = "sgd"  lr = 1', """model M {
  weight w: [4, 4] = uniform(-1, 1)
  forward(x: f32[batch, time, 4], m: bool[batch, time]) { return y = linear(x, w) }
  fn objective(x: f32[batch, time, 4], m: bool[batch, time]) {
    return loss = sum(sum(sum(where(m[..., none], forward(x, m), 0.0))))
  }
  train objective { SETTINGS }
}
""")
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [1, 3, 4], [1.0] * 4 + [math.inf] * 4 + [2.0] * 4),
                                                    "m": ("BOOL", [1, 3], [1, 0, 1])})
        self.train("--batches=x.safetensors", "--gradients", "-o", "w.safetensors")
        self.assertEqual(numbers_of(self.work / "w.safetensors")["grad.w"], array.array("f", [3.0] * 16))

    def test_attention_is_differentiated_as_one_operation(self):
        self.long_attention(LONG)

    def test_attention_with_dropout_is_one_operation_in_both_halves(self):
        self.long_attention(LONG.replace("(d, 2)", "(d, 2, dropout = 0.2)"))

    def long_attention(self, text):
        """Beyond 512 keys its softmax has several blocks. -O0 differentiates the operations that it is made of. Nothing
        that has a number for each query and key is in memory."""
        self.model('optimizer = "sgd"', text)
        rng, lengths = random.Random(3), (1100, 570)
        rows = {name: [[rng.randrange(1, 9) for _ in range(n)] for n in lengths] for name in ("ids", "labels")}
        made = []
        for padding, *options in (0, "--threads=1"), (0, "--threads=3"), (37, "--threads=2"), (0, "-march=x86-64-v3"), (0, "-O0"):
            if "-march=x86-64-v3" in options and " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text():
                continue
            length = lengths[0] + padding
            tensors = {name: ("I32", [2, length], sum((row + [0] * (length - len(row)) for row in of), []))
                       for name, of in rows.items()}
            write_tensors(self.work / "long.safetensors", tensors)
            self.train("--batches=long.safetensors", "--gradients", "--seed=5", *options, "-o", "w.safetensors")
            made.append({k: v for k, v in numbers_of(self.work / "w.safetensors").items() if k.startswith("grad.")})
        for other in made[1:-1]:
            self.assertEqual([name for name in made[0] if made[0][name].tobytes() != other[name].tobytes()], [])
        for name, numbers in made[-1].items():
            size = max(map(abs, numbers))
            self.assertGreater(size, 0, name)
            self.assertLessEqual(max(abs(a - b) for a, b in zip(made[0][name], numbers)), 2e-5 * size, name)
        buffers = [line for line in self.tfmc("dump", "m.tfm", "--stage=gradients-plan").splitlines() if " buffer " in line]
        self.assertTrue(buffers)
        self.assertEqual([line for line in buffers if "time*time" in line], [])

    def test_attention_with_few_keys(self):
        """Rows of several tiles go through its row kernels together, more than a softmax takes at once. Up to 32 keys have
        tiles of their own."""
        for drop, length in itertools.product(("", ", dropout = 0.2"), (44, 32, 19)):
            self.model('optimizer = "sgd"', LONG.replace("(d, 2)", f"(d, 2{drop})"))
            rng, made = random.Random(6), []
            write_tensors(self.work / "b.safetensors",
                          {name: ("I32", [3, length], [rng.randrange(1, 9) for _ in range(3 * length)])
                           for name in ("ids", "labels")})
            for option in "-O2", "-O0":
                self.train("--batches=b.safetensors", "--gradients", "--seed=5", option, "-o", "w.safetensors")
                made.append({k: v for k, v in numbers_of(self.work / "w.safetensors").items() if k.startswith("grad.")})
            for name, numbers in made[1].items():
                size = max(map(abs, numbers))
                self.assertLessEqual(max(abs(a - b) for a, b in zip(made[0][name], numbers)), 2e-5 * size, (name, length))

    def test_attention_without_keys(self):
        """It gives zeros, with the tiles for few keys that some instruction sets have, and without."""
        self.model('optimizer = "sgd"', CROSS)
        rows = [[1, 2, 3], [4, 5, 6]]
        write_tensors(self.work / "b.safetensors", {"src": ("I32", [2, 0], []), "ids": ("I32", [2, 3], sum(rows, [])),
                                                    "labels": ("I32", [2, 3], sum(rows, []))})
        made = {}
        for option in "-O0", "-march=native", "-march=x86-64-v3", "-march=x86-64":
            self.train("--batches=b.safetensors", "--gradients", "--seed=5", option, "-o", "w.safetensors")
            made[option] = {k: v for k, v in numbers_of(self.work / "w.safetensors").items() if k.startswith("grad.")}
        self.assertFalse(any(made["-O0"]["grad.attention.in_proj_weight"]))
        for option, name in itertools.product(made, made["-O0"]):
            for a, b in zip(made[option][name], made["-O0"][name]):
                self.assertAlmostEqual(a, b, delta=1e-6, msg=(option, name))

    def test_queries_that_are_a_part_of_a_weight(self):
        """Its gradient is one tensor, of which a product that goes on from part to part writes the rest."""
        self.model('optimizer = "sgd"  lr = 1', """model Pool {
  weight w: [8, 4] = uniform(-1, 1)
  forward(x: f32[batch, time, 4]) {
    keys = x @ w[4:8]
    y = softmax(reshape(w[0:4], [1, 4, 4]) @ transpose(keys, 1, 2)) @ keys
    return y
  }
  fn objective(x: f32[batch, time, 4], c: f32[batch, 4, 4]) { return loss = sum(sum(sum(forward(x) * c))) }
  train objective { SETTINGS }
}
""")
        rng, tensors = random.Random(4), {}
        for i, (items, time) in enumerate(((1, 5), (2, 3))):
            tensors[f"x@{i}"] = "F32", [items, time, 4], [rng.uniform(-1, 1) for _ in range(items * time * 4)]
            tensors[f"c@{i}"] = "F32", [items, 4, 4], [rng.uniform(-1, 1) for _ in range(items * 16)]
        write_tensors(self.work / "x.safetensors", tensors)
        made = []
        for option in "-O2", "-O0":
            self.train("--batches=x.safetensors", "--accumulate=2", "--gradients", option, "-o", "w.safetensors")
            made.append(numbers_of(self.work / "w.safetensors")["grad.w"])
        self.close(*made)
        self.assertIn("attention_grad", self.tfmc("dump", "m.tfm", "--stage=gradients-plan"))

    def test_equal_extremes(self):
        """amax and amin share the gradient among them, max and a pooled window give it to the first."""
        shared, first = [0.5, 0.5, 0, 0, 1 / 3, 1 / 3, 0, 1 / 3], [1, 0, 0, 0, 1, 0, 0, 0]
        for loss, wanted in (("sum(amax(w))", shared), ("sum(-amin(-w, axis = 1))", shared), ("sum(amax(w, keepdim = true)[:, 0])", shared),
                             ("sum(norm(w + 2, p = inf))", shared), ("sum(max(w))", first), ("sum(-min(-w))", first),
                             ("sum(max_pool1d(w, 4)[:, 0])", first), ("sum(sum(max_pool1d(w, 2)))", [1, 0, 1, 0, 1, 0, 0, 1])):
            self.model('optimizer = "sgd"  lr = 1', f"""model M {{
  weight w: [2, 4] = uniform(-1, 1)
  forward(x: f32[2]) {{ return y = x }}
  fn f(x: f32[2]) {{ return loss = {loss} + sum(x) }}
  train f {{ SETTINGS }}
}}
""")
            write_tensors(self.work / "x.safetensors", {"x": ("F32", [2], [0, 0])})
            write_tensors(self.work / "w.safetensors", {"w": ("F32", [2, 4], [3, 3, 2, 1, 5, 5, -1, 5])})
            for option in "-O2", "-O0", "--engine=reference":
                self.train("--batches=x.safetensors", "--weights=w.safetensors", "--gradients", option, "-o", "o.safetensors")
                self.close(numbers_of(self.work / "o.safetensors")["grad.w"], wanted)

    def test_bounds_that_are_hit(self):
        """As in PyTorch nothing passes where a bound is hit exactly, all of it between."""
        self.model('optimizer = "sgd"  lr = 1', """model M {
  weight w: [2, 4] = uniform(-1, 1)
  forward(x: f32[2]) { return y = x }
  fn f(x: f32[2]) { return loss = sum(FUNCTION) + sum(x) }
  train f { SETTINGS }
}
""")
        text = (self.work / "m.tfm").read_text()
        write_tensors(self.work / "x.safetensors", {"x": ("F32", [2], [0, 0])})
        numbers = [0, 6, -1, 1, 3, -3, 0.5, 7]
        write_tensors(self.work / "w.safetensors", {"w": ("F32", [2, 4], numbers)})
        for function, least, most, slope in (("sum(relu6(w))", 0, 6, 1), ("sum(clamp(w, -1, 1))", -1, 1, 1), ("sum(hardsigmoid(w))", -3, 3, 1 / 6),
                                             ("sum(clamp(w, -3, 7))", -3, 7, 1)):
            (self.work / "m.tfm").write_text(text.replace("FUNCTION", function))
            for option in "-O2", "-O0", "--engine=reference":
                self.train("--batches=x.safetensors", "--weights=w.safetensors", "--gradients", option, "-o", "o.safetensors")
                self.close(numbers_of(self.work / "o.safetensors")["grad.w"], [slope if least < v < most else 0 for v in numbers])

    def test_operations_without_a_gradient(self):
        self.model("lr = 1", "model M {\n  weight w: [3]\n  forward(x: f32[3]) { return y = x * w }\n"
                   "  fn f(x: f32[3]) { return loss = sum(sum(sinusoid(w, 4))) }\n  train f { SETTINGS }\n}\n")
        self.assertIn("sinusoid cannot be differentiated", self.tfmc("check", "m.tfm", code=1))
        for loss, why in [("sum(sum(rotary(stack(w, w, axis = -1), w)))", "positions depend on a trained weight"),
                          ("sum(reshape(gather(reshape(w, [1, 1, 1, 1, 1, 1, 1, 3]), reshape(ids, [1, 1, 1, 1, 1, 1, 1, 2])), [2]))",
                           "as many axes as a tensor can have")]:
            self.model("lr = 1", "model M {\n  weight w: [3]\n  forward(x: f32[3]) { return y = x * w }\n"
                       f"  fn f(ids: i32[2]) {{ return loss = {loss} }}\n  train f {{ SETTINGS }}\n}}\n")
            self.assertIn(why, self.tfmc("check", "m.tfm", code=1))


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    with tally.compiled_once():
        sys.exit(tally.run())
