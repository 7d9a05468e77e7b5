"""Trainer.fit on batches of a program: the steps that the program would make itself, whatever is refused, killed, resumed."""
import atexit
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

import tfmc
from support import LONG, Case
from test_trainer import TINY

TRAIN = 'train objective { lr = 0.02  schedule = "exponential"  gamma = 0.9 }'
KILLS = 20
# A run in a process of its own, for those that are killed.
PROGRAM = """
import sys; sys.path.insert(0, {folder!r})
from test_fit_batches import *
def slow(record):
    print(record["step"], flush=True)
    time.sleep(0.02)
print(trainer().fit(Loader(), Loader(7), out={out!r}, resume=True, callbacks=[slow], **RUN).stopped)
"""
RUN = {"epochs": 3, "save_every": 2, "log_every": 1}


def batch(seed, items=3, time=5):
    numbers = np.random.default_rng(seed)
    return {name: numbers.integers(1, 7, (items, time)).astype(np.int32) for name in ("ids", "labels")}


class Loader:
    """What fit sees of a DataLoader: it can be gone through again, in another order."""

    def __init__(self, seed=1, change=lambda number, one: one):
        self.seed, self.change, self.epoch = seed, change, 0

    def __iter__(self):
        for number in np.random.default_rng([self.seed, self.epoch]).permutation(8):
            yield self.change(int(number), batch(int(number)))
        self.epoch += 1


def changed(at, **values):
    return lambda number, one: {**one, **values} if number == at else one


@functools.cache
def compiled():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return tfmc.Trainer(TINY % TRAIN).save_compiled(os.path.join(folder, "tiny.tfmm"))


def trainer(seed=3, **named):
    return tfmc.Trainer(compiled(), seed=seed, **named)


def same(test, a, b):
    for path, weight in a.weights().items():
        np.testing.assert_array_equal(weight, b.weight(path), path)
    test.assertEqual(a.steps, b.steps)


class Runs(Case):
    def test_the_steps_of_a_loop(self):
        loop, runs, seen = trainer(threads=1), [trainer(threads=1), trainer()], []
        loader = Loader()
        for epoch in range(3):
            loop.epoch = epoch
            seen += [loop.step(one).loss for one in loader]
        as_tuple = Loader(change=lambda number, one: tuple(one.values()))
        for run, data in zip(runs, (Loader(), as_tuple)):
            folder = pathlib.Path(self.folder()) / "run"
            fit = run.fit(data, Loader(7), out=folder, **RUN)
            same(self, run, loop)
            self.assertEqual([r["loss"] for r in fit.history if r["kind"] == "step"], seen)
            self.assertEqual([r["step"] for r in fit.history if r["kind"] == "valid"], [8, 16, 24])
            self.assertEqual((fit.stopped, fit.skipped, fit.folder, run.epoch), ("end", 0, folder, 3))
            self.assertEqual(sorted(p.name for p in folder.glob("step-*")), [f"step-{n:08d}" for n in (20, 22, 24)])
            self.assertEqual([json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()], fit.history)
        other = tfmc.Trainer.resume(folder, compiled())
        same(self, other, loop)
        best = tfmc.compile(TINY % TRAIN, weights=str(folder / "weights.safetensors"))
        self.assertEqual(fit.best["loss"], min(r["loss"] for r in fit.history if r["kind"] == "valid"))
        self.assertEqual(best(batch(1)["ids"]).shape, (3, 5, 7))

    def test_validation_is_of_all_items(self):
        run = trainer()
        fit = run.fit(Loader(), Loader(7), steps=8)
        whole = {name: np.concatenate([batch(i)[name] for i in range(8)]) for name in ("ids", "labels")}
        self.assertEqual([r["step"] for r in fit.history if r["kind"] == "valid"], [8])
        self.assertAlmostEqual(fit.best["loss"], run.evaluate(whole)["loss"], 6)
        self.assertEqual(fit.best["right"], run.evaluate(whole)["right"])

    def test_stops_and_resuming(self):
        whole = pathlib.Path(self.folder()) / "run"
        trainer().fit(Loader(), Loader(7), out=whole, **RUN)
        for stop in (1, 8, 11, 16, 23):
            folder, run = pathlib.Path(self.folder()) / "run", trainer()

            def stops(record):
                if record["step"] == stop and record["kind"] == "step":
                    if stop % 2:
                        os.kill(os.getpid(), signal.SIGINT)
                    return not stop % 2
            fit = run.fit(Loader(), Loader(7), out=folder, callbacks=[stops], **RUN)
            self.assertEqual((fit.stopped, run.steps), ("signal" if stop % 2 else "callback", stop))
            again = trainer()
            self.assertEqual(again.fit(Loader(), Loader(7), out=folder, resume=True, **RUN).stopped, "end")
            self.equal(folder, whole)
        self.refused(tfmc.InputError, "other batches", trainer().fit, Loader(2), Loader(7), out=folder, resume=True, **{**RUN, "epochs": 4})
        self.refused(tfmc.InputError, "another seed", trainer(4).fit, Loader(), Loader(7), out=folder, resume=True, **RUN)
        self.refused(tfmc.InputError, "other settings", tfmc.Trainer(TINY % TRAIN, seed=3, lr=0.1).fit, Loader(), Loader(7), out=folder, resume=True, **RUN)
        self.refused(tfmc.EnvError, "resume=True", trainer().fit, Loader(), out=folder, **RUN)
        self.refused(tfmc.UsageError, "has done 24 steps", again.fit, Loader(), epochs=1)
        items = [{name: rows[0] for name, rows in batch(1).items()}] * 4
        made = functools.partial(tfmc.Trainer, TINY % TRAIN, seed=3)
        self.refused(tfmc.InputError, "this checkpoint is of a run with other", made().fit, items, out=folder, resume=True, epochs=9, batch_items=2)
        other = pathlib.Path(self.folder()) / "run"
        made().fit(items, out=other, epochs=1, batch_items=2)
        self.refused(tfmc.InputError, "a run over items", made().fit, Loader(), out=other, resume=True, epochs=9)

    def equal(self, folder, whole):
        for name in ("weights.safetensors", "latest", "step-00000024/weights.safetensors", "step-00000024/state.tfmt"):
            self.assertEqual((folder / name).read_bytes(), (whole / name).read_bytes(), name)
        logs = [[json.loads(line) for line in (f / "log.jsonl").read_text().splitlines()] for f in (folder, whole)]
        logs = [[{k: v for k, v in r.items() if k != "seconds"} for r in log if r["kind"] != "checkpoint"] for log in logs]
        self.assertEqual(*logs)

    def test_killed_at_any_moment(self):
        """SIGKILL, at times that no program chooses; the last run goes on to the same files."""
        whole, folder = (pathlib.Path(self.folder()) / "run" for _ in range(2))
        trainer().fit(Loader(), Loader(7), out=whole, **RUN)
        program = PROGRAM.format(folder=os.path.dirname(os.path.abspath(__file__)), out=str(folder))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                       "TMPDIR": self.folder()}  # what a killed program leaves is removed with it
        for _ in range(KILLS if LONG else 3):
            process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
            for line in iter(process.stdout.readline, ""):
                if line.strip().isdigit() and random.random() < 0.2:
                    time.sleep(random.random() * 0.03)
                    process.kill()
                    break
            process.wait()
            process.stdout.close()
        trainer().fit(Loader(), Loader(7), out=folder, resume=True, **RUN)
        self.equal(folder, whole)

    def test_killed_before_the_first_checkpoint(self):
        """The lines of its steps are gone with them."""
        whole, folder = (pathlib.Path(self.folder()) / "run" for _ in range(2))
        trainer().fit(Loader(), Loader(7), out=whole, **RUN)
        folder.mkdir()
        (folder / "log.jsonl").write_text('{"kind": "step", "step": 1, "epoch": 0, "loss": 9.0, "seconds": 0.1}\n{"kind": "st')
        trainer().fit(Loader(), Loader(7), out=folder, resume=True, **RUN)
        self.equal(folder, whole)

    def test_patience_and_metric(self):
        scores = iter([1, 3, 2, 2, 2])
        folder = pathlib.Path(self.folder()) / "run"
        run = trainer()
        fit = run.fit(Loader(), Loader(7), out=folder, metric=lambda one: next(scores), patience=2, epochs=9, valid_every=3)
        self.assertEqual((fit.stopped, run.steps, fit.best["step"]), ("patience", 12, 6))
        again = trainer()
        fit = again.fit(Loader(), Loader(7), out=folder, resume=True, metric=lambda one: 9, patience=2, epochs=9, valid_every=3)
        self.assertEqual((fit.stopped, again.steps), ("patience", 12))


class Refusals(Case):
    def test_batches_that_are_wrong(self):
        ids = batch(3)["ids"]
        nan = np.array([[1.0, np.nan]], np.float32)
        bad = [(changed(3, extra=ids), '"extra", which is no input'), (lambda n, one: {"ids": one["ids"]}, 'has no "labels"'),
               (changed(3, labels=None), '"labels" is None'), (changed(3, ids=ids + 90), "9"), (changed(3, ids=-ids), "-"),
               (changed(3, labels=ids + 6), "labels of cross_entropy"), (changed(3, ids=ids.astype(np.float32)), "float32"),
               (changed(3, ids=ids[:, :2]), "time"), (changed(3, ids=ids[0]), "ids"), (changed(3, labels=ids[:2]), "batch"),
               (changed(3, ids="abc"), "ids"), (lambda n, one: (ids,), "tuple of 1"), (lambda n, one: ids, "ndarray"),
               (changed(3, labels=ids * 0), "no label that counts")]
        for change, words in bad:
            with self.subTest(words=words):
                run = trainer()
                error = self.refused(tfmc.InputError, words, run.fit, Loader(change=change), epochs=1)
                self.assertRegex(str(error), r"batch \d of epoch 0")
                self.assertLess(run.steps, 8)
                self.refused(tfmc.InputError, "batch ", trainer().fit, Loader(), Loader(change=change), epochs=1) if words in (
                    'has no "labels"', '"labels" is None') else None
        text = """model Line { a = Linear(2, 1)  forward(x: f32[batch, 2]) { return y = a(x) }
          fn objective(x: f32[batch, 2]) { return loss = mean(sum(forward(x))) }
          train objective { lr = 0.1 } }"""
        self.refused(tfmc.InputError, 'batch 0 of epoch 0: input "x"[0, 1] is NaN', tfmc.Trainer(text).fit, iter([{"x": nan}]), epochs=1)

    def test_batches_without_labels_may_be_left_out(self):
        empty = changed(3, labels=np.zeros((3, 5), np.int32))
        run = trainer()
        fit = run.fit(Loader(change=empty), epochs=2, empty_batches="skip")
        self.assertEqual((fit.skipped, run.steps), (2, 14))
        self.refused(tfmc.InputError, "no label counts in any", trainer().fit,
                     Loader(change=lambda n, one: {**one, "labels": one["labels"] * 0}), epochs=1, empty_batches="skip")

    def test_calls_that_are_wrong(self):
        bad = [({"epoch": 1}, "epoch= is for items"), ({"batch_items": 4, "epochs": 1}, "batch_items= is for items"), ({}, "epochs= or steps="),
               ({"epochs": 0}, "epochs is 0"), ({"steps": 1.5}, "steps is 1.5"), ({"epochs": 1, "patience": 1}, "with valid="),
               ({"epochs": 1, "empty_batches": "no"}, "'no'"), ({"epochs": 1, "valid": iter(Loader())}, "each time"),
               ({"epochs": 1, "valid": [batch(1)]}, "valid= must give batches"), ({"epochs": 1, "pad": {"ids": 1}}, "pad and skip_long")]
        for named, words in bad:
            with self.subTest(words=words):
                self.refused(tfmc.UsageError, words, trainer().fit, Loader(), **named)
        self.refused(tfmc.UsageError, "once", trainer().fit, iter(Loader()), epochs=2)
        self.refused(tfmc.InputError, "no batch in epoch 0", trainer().fit, iter(()), epochs=2)
        items = [{name: rows[0] for name, rows in batch(1).items()}]
        self.refused(tfmc.UsageError, "batches for both", tfmc.Trainer(TINY % TRAIN).fit, items, Loader(), epochs=1)

    def test_adapters_that_no_file_of_peft_can_hold_are_said(self):
        text = """model Line { a = Linear(2, 1)  ADAPT  forward(x: f32[batch, 2]) { return y = a(x) }
          fn objective(x: f32[batch, 2]) { return loss = mean(sum(forward(x))) }
          train objective { lr = 0.1 } }"""
        weights = {"a.weight": np.ones((1, 2), np.float32), "a.bias": np.ones(1, np.float32)}
        for line, warned in (('adapt ["a"] { rank = 1 }', 0), ('adapt ["a"] { rank = 1  also = ["a.bias"] }', 1)):
            folder = self.folder()
            run = tfmc.Trainer(text.replace("ADAPT", line), weights=weights)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                run.fit(iter([{"x": np.ones((3, 2), np.float32)}]), epochs=1, out=folder + "/run")
            said = [str(w.message) for w in said if w.category is tfmc.CompileWarning]
            self.assertEqual(len(said), warned, said)
            self.assertEqual(os.path.isdir(folder + "/run/adapter"), not warned)
            if warned:
                self.assertRegex(said[0], "there will be no folder adapter: the weight 'a.bias' is trained whole")

    def test_faults_of_the_program_keep_the_steps(self):
        def fails(number, one):
            if number == 3:
                raise KeyError("mine")
            return one
        folder, run = pathlib.Path(self.folder()) / "run", trainer()
        self.refused(KeyError, "mine", run.fit, Loader(change=fails), out=folder, epochs=1)
        self.assertEqual((folder / "latest").read_text().strip(), f"step-{run.steps:08d}")
        trainer().fit(Loader(), out=folder, resume=True, **RUN)
        whole = trainer()
        whole.fit(Loader(), **{**RUN, "save_every": None})
        for path, weight in whole.weights().items():
            np.testing.assert_array_equal(tfmc.Trainer.resume(folder, compiled()).weight(path), weight)
