#!/usr/bin/env python3
"""tfmc train --data: results that are no means over items, however the items are cut; what pads labels; numbers that are
not finite; batches in which no label counts; what a run leaves behind that an error ends; moments of trained weights
alone; looks, schedules, settings.

usage: test_train_parts.py TFMC          The last line is 'N passed, N failed'.
"""
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import tally
from tensor_files import write_tensors

MODEL = """model M(v = 20, d = 8) {
  embed = Embedding(v, d)
  head  = Linear(d, 5)
  forward(ids: i32[batch, time]) {
    return logits = embed(ids) -> head
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    logits = forward(ids)
    nll    = cross_entropy(logits, labels, ignore_index = IGNORED)
    rows   = cross_entropy(logits, labels, ignore_index = IGNORED, reduction = "none")
    return RESULTS
  }
  train objective { optimizer = "sgd"  lr = 0.1  SETTINGS }
}
"""
MIXED = ["exp(nll)", "nll + 0.5", "nll + 0.1 * sum(sum(head.weight * head.weight))", "sqrt(nll)", "log(nll)", "nll * nll", "abs(nll - 1.0) + 1.0",
         "maximum(nll, 0.5)", "mean(mean(rows)) * nll", "sum(sum(rows)) / maximum(sum(sum(f32(labels != IGNORED))), 1.0)"]


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        rng = random.Random(3)
        self.lengths = [4] * 24
        self.ids = [[rng.randrange(1, 20) for _ in range(n)] for n in self.lengths]
        self.labels = [[rng.randrange(1, 5) for _ in range(n)] for n in self.lengths]

    def model(self, results="loss = nll", settings="", ignored=0, text=MODEL):
        text = text.replace("RESULTS", results).replace("SETTINGS", settings).replace("IGNORED", str(ignored))
        (self.work / "m.tfm").write_text(text)

    def data(self, name="d", items=None, metadata=None):
        ids, labels = items or (self.ids, self.labels)
        tensors = {}
        for key, rows in (("ids", ids), ("labels", labels)):
            tensors[key] = "I32", [sum(map(len, rows))], [x for row in rows for x in row]
            tensors[key + ".lengths"] = "I32", [len(rows)], list(map(len, rows))
        write_tensors(self.work / f"{name}.safetensors", tensors, metadata)

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *args], cwd=self.work, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def train(self, *args, out="out", code=0, data="d"):
        return self.tfmc("train", "m.tfm", f"--data={data}.safetensors", f"--out={out}", "--threads=1", "--log-every=1", *args, code=code)

    def logged(self, out, kind="step"):
        lines = (self.work / out / "log.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    def close(self, got, want, what):
        self.assertEqual(len(got), len(want), what)
        for a, b in zip(got, want):
            for key in b:
                if key not in ("seconds", "padding"):
                    self.assertTrue(a[key] == b[key] or abs(a[key] - b[key]) <= 2e-5 * max(1, abs(b[key])), f"{what}: {key} {a[key]}, wanted {b[key]}")

    # ---- cuts ----

    def test_results_that_are_no_means_do_not_depend_on_the_cut(self):
        self.data()
        self.data("v", (self.ids[:10], self.labels[:10]))
        metrics = ", ".join(f"m{i} = {text}" for i, text in enumerate(MIXED))
        for i, text in enumerate(MIXED):
            self.model(f"loss = {text}" + (f", {metrics}" if i == 0 else ""))
            base = "--steps=3", "--batch-items=12", "--valid=v.safetensors", "--valid-every=3"
            self.train(*base, out=f"whole{i}")
            for number, cut in enumerate((["--part-tokens=24"], ["--shards=4"], ["--part-tokens=8", "--shards=2"])):
                self.train(*base, *cut, out=f"cut{i}{number}")
                self.close(self.logged(f"cut{i}{number}"), self.logged(f"whole{i}"), f"{text} {cut}")
                self.close(self.logged(f"cut{i}{number}", "valid"), self.logged(f"whole{i}", "valid"), f"{text} {cut}")

    def test_validation_in_batches_is_that_of_all_items(self):
        self.data()
        self.model("loss = nll, perplexity = exp(nll)")
        self.train("--steps=1", "--batch-items=24", "--valid=d.safetensors", out="one")
        self.train("--steps=1", "--batch-items=24", "-q", out="w")
        for items in (24, 7, 1):
            said = self.tfmc("evaluate", "m.tfm", "--weights=w/weights.safetensors", "--data=d.safetensors", f"--batch-items={items}")
            loss, perplexity = (float(word) for word in said.split()[1::2])
            self.assertAlmostEqual(math.exp(loss), perplexity, delta=1e-4 * perplexity)
            self.assertAlmostEqual(loss, self.logged("one", "valid")[0]["loss"], delta=1e-5)

    def test_check_says_what_results_are_made_of(self):
        self.model("loss = nll + 0.1 * sum(sum(head.weight * head.weight)), perplexity = exp(nll), worst = max(max(rows))")
        said = self.tfmc("check", "m.tfm")
        self.assertIn("once", said)
        self.assertRegex(said, r"perplexity +exp\(div\(sum at 9:14, sum at 9:14\)\)")
        self.assertRegex(said, r"worst .*: items are mixed at 11:\d+")
        self.assertRegex(said, r"parts give the mixture +max at 11:\d+ \[batch\], sum at 9:14, sum at 9:14\n")

    # ---- labels ----

    def test_labels_are_padded_with_what_is_ignored(self):
        rng = random.Random(5)
        lengths = [rng.randrange(1, 7) for _ in range(9)]
        items = [[rng.randrange(1, 20) for _ in range(n)] for n in lengths], [[rng.randrange(0, 5) for _ in range(n)] for n in lengths]
        self.data(items=items)
        losses = {}
        for ignored in (-100, -1):
            self.model(ignored=ignored)
            self.train("--steps=2", "--batch-items=9", "-q", out=f"padded{ignored}")
            losses[ignored] = [entry["loss"] for entry in self.logged(f"padded{ignored}")]
            self.train("--steps=2", "--batch-items=9", "--part-tokens=2", "-q", out=f"alone{ignored}")  # nothing is padded
            for a, b in zip(losses[ignored], [entry["loss"] for entry in self.logged(f"alone{ignored}")]):
                self.assertAlmostEqual(a, b, delta=1e-5)
        self.assertEqual(losses[-100], losses[-1])

    def test_padding_of_labels_that_is_not_known_is_refused(self):
        self.data(items=([[1, 2], [3]], [[1, 0], [2]]))
        other = 'cross_entropy(logits, labels, ignore_index = -1)'
        for results, word in ((f"loss = nll, other = {other}", "leaves out other numbers"), ("loss = nll, counted = sum(sum(f32(labels != 0)))", "would be a value here"),
                              ("loss = nll, embedded = sum(sum(sum(embed(labels))))", "would be a value here")):
            self.model(results, ignored=-100)
            message = self.train("--steps=1", out="refused", code=1)
            for part in (word, "labels.pad", "m.tfm:"):
                self.assertIn(part, message, results)
        self.data("said", ([[1, 2], [3]], [[1, 0], [2]]), {"labels.pad": "-100"})
        self.model("loss = nll, counted = sum(sum(f32(labels != 0)))", ignored=-100)
        self.train("--steps=1", out="said", data="said")
        self.data("even", ([[1, 2], [3, 4]], [[1, 0], [2, 1]]))
        self.train("--steps=1", out="even", data="even")  # nothing is padded
        self.model("loss = cross_entropy(logits, labels)")
        self.assertIn("[W0411]", self.train("--steps=1", out="counted"))

    def test_what_the_data_say_of_padding_is_checked(self):
        items = [[1, 2], [3]], [[1, 0], [2]]
        self.model()
        for key, text, words in (("labels.pad", "many", "it is no number"), ("labels.pad", "1.5", "it is no whole number of 32 bits"), ("labels.pad", "", "it is no number"),
                                 ("labels.pad", "7", "ids are in [0, 5)"), ("ids.pad", "20", "ids are in [0, 20)"), ("ids.pad", "-1", "ids are in [0, 20)"),
                                 ("ids.pad", "3000000000", "it is no whole number of 32 bits"), ("ids.pad", "inf", "it is no whole number of 32 bits"), ("ids.pad", "0x1", "it is no number"),
                                 ("label.pad", "0", "the objective has no such input")):
            self.data("d", items, {key: text})
            self.assertIn(f'd.safetensors: error: the metadata "{key}" is "{text}": {words}', self.train("--steps=1", out="refused", code=1))
            self.assertFalse((self.work / "refused").exists())
        for key, text in (("ids.pad", "19"), ("labels.pad", "0"), ("labels.pad", "4.0"), ("ids.lengths.pad", "what")):  # the last is of another tensor
            self.data("d", items, {key: text})
            self.train("--steps=1", "-q", out="good" + key + text)
        self.data("a", items, {"labels.pad": "1"})
        self.data("b", items, {"labels.pad": "2"})
        self.assertIn('"labels.pad" is "2": but 1 in a file before', self.train("--data=b.safetensors", "--steps=1", data="a", out="two", code=1))

    def test_padding_of_numbers_and_truths(self):
        text = """model M {
          weight w: [] = 1
          forward(x: f32[batch, time]) { return y = x * w }
          fn f(x: f32[batch, time], keep: bool[batch, time], bias: f32[batch, time], one: f32[batch, 2]) {
            return loss = sum(sum(softmax(x * w + bias) * where(keep, x, 0))) + sum(sum(one)), kept = sum(sum(f32(keep)))
          }
          train f { lr = 0.1 }
        }
        """
        self.model(text=text)
        def data(metadata):
            lengths = {f"{name}.lengths": ("I32", [2], [2, 1]) for name in ("x", "keep", "bias")}
            write_tensors(self.work / "d.safetensors", {"x": ("F32", [3], [1, 2, 3]), "keep": ("BOOL", [3], [1, 1, 1]), "bias": ("F32", [3], [0, 0, 0]),
                                                        "one": ("F32", [2, 2], [0] * 4), **lengths}, metadata)
        kept = []
        for text in ("False", "true", "1", "0"):
            data({"keep.pad": text, "bias.pad": "-inf", "x.pad": "0.5"})
            self.train("--steps=1", "--batch-items=2", "-q", out="k" + text)
            kept.append(self.logged("k" + text)[0]["kept"])
        self.assertEqual(kept, [3, 4, 4, 3])
        for key, text, words in (("keep.pad", "2", "true or false"), ("keep.pad", "yes", "true or false"), ("x.pad", "inf", "it is not finite"), ("x.pad", "nan", "it is no"),
                                 ("bias.pad", "nan", "it is no number"), ("x.pad", "1e", "it is no number"), ("one.pad", "0", "items do not differ in length")):
            data({key: text})
            self.assertIn(words, self.train("--steps=1", out="refused", code=1), (key, text))

    # ---- numbers that are not finite ----

    def test_numbers_that_are_not_finite_are_found_by_item(self):
        self.model(text="model M {\n  weight w: [3] = 1\n  forward(x: f32[batch, 3]) { return y = x * w }\n"
                        "  fn f(x: f32[batch, 3], mask: f32[batch, 3]) { return loss = sum(sum(softmax(x * w + mask) * x)) }\n  train f { lr = 0.1 }\n}\n")
        def data(x, mask):
            write_tensors(self.work / "d.safetensors", {"x": ("F32", [4, 3], x), "mask": ("F32", [4, 3], mask)})
        good = [float(i) for i in range(12)]
        data(good, [0.0, -math.inf, 0.0] * 4)
        self.train("--steps=1", "-q", out="mask")
        for bad, name in ((math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")):
            data(good[:7] + [bad] + good[8:], [0.0] * 12)
            message = self.train("--steps=1", out="refused", code=1)
            self.assertIn(f'd.safetensors: error: "x": item 2 holds {name} at place 0', message)
        data(good, [0.0] * 9 + [math.nan] + [0.0] * 2)
        self.assertIn('"mask": item 3 holds nan', self.train("--steps=1", out="refused", code=1))
        self.assertFalse((self.work / "refused").exists())

    # ---- the end of a run ----

    def test_an_error_that_ends_a_run_leaves_its_last_step(self):
        labels = [[1 if x == 4 else x for x in row] for row in self.labels]
        labels[0][0] = 4
        self.data("d", (self.ids, labels))
        self.model("loss = nll + exp(1000.0 * sum(sum(f32(labels == 4))))")  # too large where a label is 4
        for seed in range(20):
            message = self.train("--steps=12", "--batch-items=2", "--save-every=100", f"--seed={seed}", code=1, out=f"stopped{seed}")
            done = len(self.logged(f"stopped{seed}"))
            self.assertIn("training diverged", message)
            if done:
                self.assertIn(f"the last checkpoint is stopped{seed}/step-{done:08}", message)
                break
        self.assertTrue(done)

    # ---- batches in which no label counts ----

    def emptied(self, n=4):
        """The data, with n items whose labels are all left out."""
        self.data("d", (self.ids, [[0] * 4 if i % 6 == 3 and i // 6 < n else row for i, row in enumerate(self.labels)]))

    def test_a_batch_in_which_no_label_counts_is_refused_before_the_first_step(self):
        self.emptied()
        first = [[x, 0, 0, 0] for x, *_ in self.labels]
        count = "sum(sum(f32(labels != IGNORED)))"
        cases = ["nll", "exp(nll)", "sqrt(nll) + 1.0", f"sum(sum(rows)) / {count}", f"0.5 * nll + sum(sum(rows)) / (2.0 * {count})",
                 f"sum(sum(rows)) / minimum({count}, 3.0)", f"where({count} < 1.0, sum(sum(rows)) / {count}, nll)"]
        for number, text in enumerate(cases):
            self.model(f"loss = {text}")
            message = self.train("--epochs=1", "--batch-items=1", out=f"refused{number}", code=1)
            for word in ("d.safetensors: error: no label counts in a batch of 1 item in epoch 0", "'loss'", "--empty-batches=skip", "[E0506]"):
                self.assertIn(word, message, text)
            self.assertIn(int(message.split("whose first is item ")[1].split(":")[0]), (3, 9, 15, 21), text)
            self.assertFalse((self.work / f"refused{number}/log.jsonl").exists(), text)
        for number, text in enumerate((f"sum(sum(rows)) / maximum({count}, 1.0)", f"where({count} > 0.0, nll, 0.0)", "mean(mean(rows))")):
            self.model(f"loss = {text}, m = nll")  # these have a value, whatever a metric has
            self.train("--epochs=1", "--batch-items=1", "-q", out=f"guarded{number}")
        self.model("loss = cross_entropy(logits[:, :-1], labels[:, 1:], ignore_index = 0)")
        self.data("shifted", (self.ids, first[:7] + self.labels[7:]))
        self.assertIn("no label counts", self.train("--epochs=1", "--batch-items=1", out="shifted", data="shifted", code=1))

    def test_batches_of_all_epochs_of_a_run_are_looked_at_and_no_others(self):
        self.emptied()
        self.model()
        later = 0
        for seed in range(4):
            options = "--batch-items=2", f"--seed={seed}", "-q"
            message = self.train("--epochs=20", *options, out=f"all{seed}", code=1)
            epoch = int(message.split(" items in epoch ")[1].split(",")[0])
            if not epoch:
                continue
            later += 1
            self.train(f"--epochs={epoch}", *options, out=f"all{seed}")
            self.assertIn(f"in epoch {epoch},", self.train("--epochs=20", *options, "--resume", out=f"all{seed}", code=1))
            self.train(f"--epochs={epoch + 2}", *options, "--resume", "--empty-batches=skip", out=f"all{seed}")
            self.assertGreater(sum(entry.get("left_out", 0) for entry in self.logged(f"all{seed}")), 0)
            self.train(f"--epochs={epoch + 2}", *options, "--empty-batches=skip", out=f"skip{seed}")  # never stopped
            self.assertEqual((self.work / f"all{seed}/weights.safetensors").read_bytes(), (self.work / f"skip{seed}/weights.safetensors").read_bytes())
        self.assertGreater(later, 1)

    def test_empty_batches_that_are_left_out_change_nothing_of_the_others(self):
        self.emptied()
        count = "sum(sum(f32(labels != 0)))"
        self.model(f"loss = sum(sum(rows)) / maximum({count}, 1.0)")  # a batch without labels changes no weight
        base = "--epochs=3", "--batch-items=1", "--seed=4"
        self.train(*base, out="guarded")
        self.model(f"loss = sum(sum(rows)) / {count}")
        said = self.train(*base, "--empty-batches=skip", out="skipped")
        self.assertIn("in 4 of the batches no label counts: left out", said)
        kept = [entry["loss"] for entry in self.logged("guarded") if entry["loss"] != 0]
        self.assertEqual([entry["loss"] for entry in self.logged("skipped")], kept)
        self.assertEqual(len(kept), 3 * 20)
        self.assertEqual(sum(entry.get("left_out", 0) for entry in self.logged("skipped")), 12)
        self.assertEqual((self.work / "skipped/weights.safetensors").read_bytes(), (self.work / "guarded/weights.safetensors").read_bytes())
        for steps in (7, 20, 33, 60):  # within an epoch, and where one ends
            self.train(f"--steps={steps}", *base[1:], "--empty-batches=skip", "-q", out="parts", *(["--resume"] if steps > 7 else []))
        self.assertEqual((self.work / "parts/weights.safetensors").read_bytes(), (self.work / "skipped/weights.safetensors").read_bytes())

    def test_looks_steps_and_options_of_empty_batches(self):
        self.emptied()
        self.model()
        look = self.tfmc("train", "m.tfm", "--data=d.safetensors", "--steps=0", "--batch-items=1")
        self.assertIn("in 4 of the batches no label counts\n", look)
        self.train("--epochs=2", "--batch-items=24", "-q", out="large")  # with others a label counts
        self.data("none", (self.ids, [[0] * 4] * 24))
        self.assertIn("no label counts in any batch of epoch 0", self.train("--epochs=1", "--empty-batches=skip", data="none", out="n", code=1))
        self.assertIn("it needs --data", self.tfmc("train", "m.tfm", "--batches=d.safetensors", "--empty-batches=skip", code=2))

    def test_a_validation_in_which_no_label_counts_is_refused_before_the_first_step(self):
        self.data()
        self.model()
        self.data("v", (self.ids[:6], [[0] * 4] * 5 + self.labels[5:6]))
        self.train("--epochs=1", "--valid=v.safetensors", "--batch-items=1", "-q", out="one")  # its batches count together
        self.data("v", (self.ids[:5], [[0] * 4] * 5))
        for option in ([], ["--empty-batches=skip"]):
            message = self.train("--epochs=1", "--valid=v.safetensors", *option, out="v", code=1)
            self.assertIn("v.safetensors: error: no label of these data counts", message)
            self.assertFalse((self.work / "v/log.jsonl").exists())

    def test_a_run_that_is_not_there_leaves_no_folder(self):
        self.data()
        self.model()
        self.assertIn("no checkpoint to resume from", self.train("--steps=1", "--resume", code=1, out="none"))
        self.assertFalse((self.work / "none").exists())

    def test_frozen_weights_have_no_moments(self):
        self.data()
        sizes = []
        for number, frozen in enumerate(('', 'freeze = ["embed.*"]')):
            self.model(settings='momentum = 0.9 ' + frozen)
            self.train("--steps=2", "--batch-items=8", "-q", out=f"f{number}")
            sizes.append((self.work / f"f{number}/step-00000002/state.tfmt").stat().st_size)
            self.train("--steps=4", "--batch-items=8", "-q", "--resume", out=f"f{number}")
            self.train("--steps=4", "--batch-items=8", "-q", out=f"g{number}")
            self.assertEqual((self.work / f"f{number}/weights.safetensors").read_bytes(), (self.work / f"g{number}/weights.safetensors").read_bytes())
        self.assertEqual(sizes[0] - sizes[1], 20 * 8 * 4)
        message = self.train("--steps=6", "--batch-items=8", "--resume", "--reset=schedule", out="f0", code=1)
        self.assertIn("other frozen weights", message)
        self.train("--steps=6", "--batch-items=8", "--resume", "--reset=optimizer", "-q", out="f0")

    # ---- looks, schedules, settings ----

    def test_a_look_at_data_needs_no_weights(self):
        self.data()
        self.model(text=MODEL.replace("head  = Linear(d, 5)", "head  = Linear(d, 5)\n  weight own: [5]").replace("embed(ids) -> head", "(embed(ids) -> head) + own"))
        self.assertIn("data: 24 items", self.tfmc("train", "m.tfm", "--data=d.safetensors", "--steps=0"))
        self.assertIn("'own' has no initial value", self.train("--steps=1", code=1))

    def test_a_schedule_that_the_run_does_not_reach_is_said(self):
        self.data()
        for schedule in ("linear", "cosine"):
            self.model(settings=f'schedule = "{schedule}"  steps = 4000')
            self.assertIn("--set steps=6 ends both", self.train("--epochs=2", "--batch-items=8", out=schedule))
            self.assertNotIn("warning", self.train("--epochs=2", "--batch-items=8", "--set=steps=6", out=schedule + "2"))
            self.assertAlmostEqual(self.logged(schedule + "2")[-1]["lr"], 0, delta=1e-9)

    def test_words_of_settings_need_no_quotes(self):
        self.data()
        self.model()
        for number, words in enumerate((["--set=schedule=linear", "--set=optimizer=adam"], ['--set=schedule="linear"', '--set=optimizer="adam"'])):
            self.train("--steps=3", "--batch-items=8", "--set=steps=3", *words, "-q", out=f"s{number}")
        self.assertEqual((self.work / "s0/weights.safetensors").read_bytes(), (self.work / "s1/weights.safetensors").read_bytes())
        self.assertIn("did you mean", self.train("--steps=3", "--set=schedule=linaer", code=1, out="s2"))


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    with tally.compiled_once():
        sys.exit(tally.run())
