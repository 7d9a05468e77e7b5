"""Trainer.fit: which validation is the best, running means, the order of items, what callbacks are told, memory of a trainer."""
import json
import pathlib

import numpy as np

import tfmc
from support import Case
from test_fit import ITEMS, RUN, VALID, contents, run_of_command, trainer
from test_trainer import tensors

BATCHES = [{name: np.stack([item[name] for item in group]) for name in ("ids", "labels")} for n in range(2, 9)
           for group in [[item for item in ITEMS if len(item["ids"]) == n]] if group]
OF_ITEMS = "batch_items", "save_every"  # where there is no folder


class Best(Case):
    def test_the_best_by_a_result(self):
        for best, sign in (("right", 1), ("-right", -1), ("-loss", -1), ("loss", 1)):
            for data, valid in ((ITEMS, VALID), (BATCHES_AGAIN, BATCHES_AGAIN)):
                folder, run = pathlib.Path(self.folder()) / "run", trainer(lr=0.3)
                options = {**RUN, "epochs": 5, "valid_every": 3, "save_every": 3, "keep": 99}
                if data is BATCHES_AGAIN:
                    del options["batch_items"]
                fit = run.fit(data, valid, out=folder, best=best, **options)
                valid_lines = [line for line in fit.history if line["kind"] == "valid"]
                name = best.lstrip("-")
                wanted = max(sign * line[name] for line in valid_lines)
                self.assertEqual(sign * fit.best[name], wanted)
                first = next(line for line in valid_lines if sign * line[name] == wanted)
                kept = (folder / f"step-{first['step']:08d}/weights.safetensors").read_bytes()
                self.assertEqual(tensors(folder / "weights.safetensors")["head.bias"].tobytes(),
                                 tensors(folder / f"step-{first['step']:08d}/weights.safetensors")["head.bias"].tobytes(), kept[:8])

    def test_patience_follows_it(self):
        fit = trainer().fit(ITEMS, VALID, best="loss", patience=2, **{**RUN, "epochs": 40, "valid_every": 1})
        self.assertEqual(fit.stopped, "patience")  # the loss falls, so that the first is the best
        self.assertEqual(fit.best["step"], max((r for r in fit.history if r["kind"] == "valid"), key=lambda r: r["loss"])["step"])

    def test_numbers_of_a_metric(self):
        values = iter([{"bleu": 1.0, "chars": 5}, {"bleu": 3.0, "chars": 4}, {"bleu": 2.0, "chars": 9}] * 2)
        for data, valid in ((ITEMS, VALID), (BATCHES_AGAIN, BATCHES_AGAIN)):
            options = {name: value for name, value in RUN.items() if data is ITEMS or name not in OF_ITEMS}
            fit = trainer().fit(data, valid, metric=lambda run: next(values), best="bleu", **{**options, "epochs": 3})
            found = [(line["bleu"], line["chars"]) for line in fit.history if line["kind"] == "valid"]
            self.assertEqual(found, [(1.0, 5), (3.0, 4), (2.0, 9)])
            self.assertEqual((fit.best["bleu"], fit.best["epoch"]), (3.0, 2))
        fit = trainer().fit(ITEMS, VALID, metric=lambda run: {"size": -run.epoch}, best="-size", **RUN)
        self.assertIn("size", fit.best)

    def test_what_is_refused(self):
        run = trainer()
        batches = {name: value for name, value in RUN.items() if name not in OF_ITEMS}
        for data, valid, options in ((ITEMS, VALID, RUN), (BATCHES_AGAIN, BATCHES_AGAIN, batches)):
            self.refused(tfmc.UsageError, "best names 'bleu', and the results are loss, right", run.fit, data, valid, best="bleu", **options)
            self.refused(tfmc.UsageError, "valid=", run.fit, data, best="loss", **options)
            self.refused(tfmc.UsageError, "not the name", run.fit, data, valid, best=3, **options)
            self.refused(tfmc.UsageError, "Trainer(source, average=0.9)", run.fit, data, average=0.9, **options)
            wrong = [(lambda run: {"loss": 1}, {}, "the log has already"), (lambda run: {"a": 1, "b": 2}, {}, "best= says"),
                     (lambda run: {"a": 1}, {"best": "b"}, "best names 'b', and metric gave a"),
                     (lambda run: 1, {"best": "b"}, "one number"), (lambda run: {"a": float("nan")}, {"best": "a"}, "NaN")]
            for metric, more, words in wrong:
                self.refused(tfmc.InputError, words, trainer().fit, data, valid, metric=metric, **more, **options)


class Averages(Case):
    def test_runs_judge_the_mean(self):
        """The run, the command, a trainer that goes on: the same bytes; validation is of the mean."""
        folder = run_of_command(self.folder(), "--set=average=0.9")
        files, lines = contents(folder / "run")
        self.assertIn("average.safetensors", files)
        self.assertIn("step-00000024/average.safetensors", files)
        run = trainer(average=0.9)
        fit = run.fit(ITEMS, VALID, out=folder / "again", **RUN)
        found, log = contents(folder / "again")
        self.assertEqual((found, log), (files, lines))
        last = [line for line in fit.history if line["kind"] == "valid"][-1]
        self.assertAlmostEqual(run.evaluate(VALID, average=True)["loss"], last["loss"], 5)
        self.assertNotAlmostEqual(run.evaluate(VALID)["loss"], last["loss"], 5)
        stops = trainer(average=0.9)
        stops.fit(ITEMS, VALID, out=folder / "stops", callbacks=[lambda record: record["step"] >= 8], **RUN)
        trainer(average=0.9).fit(ITEMS, VALID, out=folder / "stops", resume=True, **RUN)
        found, _ = contents(folder / "stops")
        for name in ("step-00000024/state.tfmt", "average.safetensors", "weights.safetensors"):
            self.assertEqual(found[name], files[name], name)
        self.refused(tfmc.InputError, "settings", trainer(average=0.8).fit, ITEMS, VALID, out=folder / "stops", resume=True, **RUN)

    def test_over_batches(self):
        folder, seen = pathlib.Path(self.folder()) / "run", []
        run = trainer(average=0.9)
        options = {name: value for name, value in RUN.items() if name != "batch_items"}
        fit = run.fit(BATCHES_AGAIN, BATCHES_AGAIN, out=folder, metric=lambda one: seen.append(one.weight("head.bias").copy()) or 1.0, **options)
        np.testing.assert_array_equal(seen[-1], run.weights(average=True)["head.bias"])
        last = [line for line in fit.history if line["kind"] == "valid"][-1]
        self.assertEqual(run.evaluate(iter(BATCHES), average=True)["loss"], last["loss"])
        self.assertTrue((folder / "average.safetensors").is_file())
        self.assertFalse(np.array_equal(run.weight("head.bias"), seen[-1]))


class Orders(Case):
    def test_items_in_their_order(self):
        """The steps of a loop over the items as they stand."""
        run, loop = trainer(), trainer()
        run.fit(ITEMS, epochs=2, batch_items=4, order="given")
        for _ in range(2):
            for at in range(0, 48, 4):
                group = ITEMS[at:at + 4]
                longest = max(len(item["ids"]) for item in group)
                loop.step({name: np.stack([np.pad(item[name], (0, longest - len(item[name]))) for item in group]) for name in group[0]})
        for path in run.weights():
            np.testing.assert_array_equal(run.weight(path), loop.weight(path))
        folder = pathlib.Path(self.folder()) / "run"
        trainer().fit(ITEMS, out=folder, steps=3, batch_items=4, order="given")
        self.refused(tfmc.InputError, "--order", trainer().fit, ITEMS, out=folder, steps=5, batch_items=4, resume=True)
        self.refused(tfmc.Error, "--order=given, which brings", trainer().fit, ITEMS, steps=3, batch_items=4, order="given", pool=3)
        self.refused(tfmc.Error, "order", trainer().fit, ITEMS, steps=3, batch_items=4, order="sorted")

    def test_events(self):
        told = []
        run = trainer()
        fit = run.fit(ITEMS, VALID, callbacks=[told.append], **RUN)
        self.assertEqual([dict(event) for event in told], fit.history)
        self.assertEqual({event.kind for event in told}, {"step", "valid", "checkpoint"})
        step = next(event for event in told if event.kind == "step")
        self.assertEqual((step.step, step.epoch, step.trainer), (4, 0, run))
        self.assertEqual(step.results, {"loss": step["loss"], "right": step["right"]})
        self.assertIs(tfmc.Event, type(step))

    def test_memory_of_the_trainer(self):
        """What the trainer was told, its run is told."""
        whole, run = trainer(), trainer(memory=trainer().state_bytes + 60000)
        for one in (whole, run):
            one.fit(ITEMS, epochs=1, batch_items=24)
        for path in run.weights():
            np.testing.assert_allclose(run.weight(path), whole.weight(path), atol=1e-5)
        small = trainer(memory=trainer().state_bytes + 100)
        self.refused(tfmc.Error, "bytes are needed", small.fit, ITEMS, epochs=1, batch_items=24)

    def test_a_run_that_diverges(self):
        text = """model Line { a = Linear(3, 1)  forward(x: f32[batch, 3]) { return y = a(x) }
          fn objective(x: f32[batch, 3]) { y = forward(x)  return loss = mean(sum(exp(y * 1e3))) }
          train objective { lr = 1000 } }"""
        folder = pathlib.Path(self.folder()) / "run"
        x = np.full((8, 3), 1e-4, np.float32)
        error = self.refused(tfmc.Diverged, "diverged", tfmc.Trainer(text, seed=1).fit, {"x": x}, steps=50, batch_items=2, out=folder, save_every=1)
        self.assertIn("not finite", error.first)
        self.assertTrue(error.checkpoint is None or error.checkpoint.is_dir())


class Again:
    """Batches that can be gone through in each epoch."""

    def __iter__(self):
        return iter(BATCHES)


BATCHES_AGAIN = Again()

if __name__ == "__main__":
    import unittest
    unittest.main()
