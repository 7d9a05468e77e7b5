"""Trainer.fit: the files of `tfmc train`, whatever the data come as; runs that are stopped, killed and resumed."""
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest.mock

import numpy as np

import tfmc
from tfmc._find import compiler
from support import LONG, Case
from test_trainer import TINY, write

TRAIN = 'train objective { lr = 0.02  schedule = "linear"  warmup = 2  steps = 24 }'
RANDOM = np.random.default_rng(1)
ITEMS = [{"ids": RANDOM.integers(1, 7, n).astype(np.int32), "labels": RANDOM.integers(1, 7, n).astype(np.int32)}
         for n in RANDOM.integers(2, 9, 48)]
VALID = ITEMS[:8]
RUN = {"epochs": 2, "batch_items": 4, "save_every": 5, "log_every": 4}
# A run of half a second, whose weights change in each step.
LONGER = {**RUN, "epochs": 40, "save_every": 7}
STEADY = {"schedule": None, "warmup": None, "steps": None}
# A run in a process of its own, for those that are killed: it says that it goes on.
PROGRAM = """
import sys; sys.path.insert(0, {folder!r})
from test_fit import *
def slow(record):
    print(record["step"], flush=True)
    time.sleep(0.05)
print(trainer().fit(ITEMS, VALID, out={out!r}, resume=True, callbacks=[slow], **RUN).stopped)
"""
STEADY_PROGRAM = """
import sys; sys.path.insert(0, {folder!r})
from test_fit import *
made = trainer(**STEADY)
print("begun", flush=True)
made.fit(ITEMS, VALID, out={out!r}, resume=True, **LONGER)
"""


class Table:
    """What fit reads of a datasets.Dataset."""

    def __init__(self, columns):
        self.columns, self.column_names = columns, list(columns)

    def __getitem__(self, name):
        return self.columns[name]


def trainer(seed=3, **named):
    return tfmc.Trainer(TINY % TRAIN, seed=seed, **named)


def as_file(path, items):
    columns = {name: [item[name] for item in items] for name in items[0]}
    tensors = {name: np.concatenate(rows) for name, rows in columns.items()}
    return write(path, tensors | {f"{name}.lengths": np.array([len(r) for r in rows], np.int64) for name, rows in columns.items()})


def contents(folder):
    """The files of a run, without the seconds of its log."""
    folder, found = pathlib.Path(folder), {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    lines = [json.loads(line) for line in found.pop("log.jsonl").decode().splitlines()]
    for line in lines:
        del line["seconds"]
    return found, lines


def run_of_command(folder, *options):
    """What the command makes of the same items in a folder, which is returned."""
    folder = pathlib.Path(folder)
    (folder / "model.tfm").write_text(TINY % TRAIN)
    as_file(folder / "train.safetensors", ITEMS)
    as_file(folder / "valid.safetensors", VALID)
    subprocess.run([compiler(), "train", folder / "model.tfm", "--data", folder / "train.safetensors", "--valid",
                    folder / "valid.safetensors", "--out", folder / "run", "--seed=3", "--epochs=2", "--batch-items=4",
                    "--save-every=5", "--log-every=4", *options], check=True, capture_output=True)
    return folder


class Runs(Case):
    def command(self, *options):
        return run_of_command(self.folder(), *options)

    def test_the_files_are_those_of_the_command(self):
        """From rows, tuples, columns of lists and of i64, and files: to the byte. The trainer is as the run ended."""
        made = self.command()
        files, lines = contents(made / "run")
        self.assertEqual([line["step"] for line in lines if line["kind"] == "checkpoint"], [5, 10, 15, 20, 24])
        columns = {name: [item[name] for item in ITEMS] for name in ("ids", "labels")}
        whole = {name: [row.tolist() for row in rows] for name, rows in columns.items()}
        for data in (ITEMS, [tuple(item.values()) for item in ITEMS], columns, whole, Table(whole),
                     made / "train.safetensors"):
            folder, run = pathlib.Path(self.folder()), trainer(threads=1)
            result = run.fit(data, VALID, out=folder / "run", **RUN)
            found, log = contents(folder / "run")
            self.assertEqual(log, lines)
            self.assertEqual(set(found), set(files))
            for name in files:
                self.assertEqual(found[name], files[name], name)
            self.assertEqual((result.stopped, run.steps, run.epoch, result.best["loss"]),
                             ("end", 24, 2, min(line["loss"] for line in lines if line["kind"] == "valid")))
            other = tfmc.Trainer.resume(folder / "run", TINY % TRAIN)
            other.epoch = 2
            batch = {name: rows[None] for name, rows in ITEMS[0].items()}
            self.assertEqual(run.step(batch), other.step(batch))

    def test_columns_that_are_no_inputs(self):
        columns = {name: [item[name] for item in ITEMS] for name in ("ids", "labels")} | {"text": ["a"] * len(ITEMS)}
        self.refused(tfmc.InputError, '"text"', trainer().fit, columns, **RUN)
        self.refused(tfmc.InputError, ['"text"', "select_columns(['ids', 'labels'])"], trainer().fit, Table(columns), **RUN)

    def test_items_of_one_size(self):
        """An array whose items have no size of their own; f32; a folder is not needed."""
        text = """model Line { a = Linear(3, 1)  forward(x: f32[batch, 3]) { return y = a(x) }
          fn objective(x: f32[batch, 3], y: f32[batch, 1]) { e = forward(x) - y  return loss = mean(sum(e * e)) }
          train objective { lr = 0.1 } }"""
        x = RANDOM.normal(size=(64, 3)).astype(np.float32)
        run = tfmc.Trainer(text, seed=1)
        result = run.fit({"x": x, "y": x.sum(1, keepdims=True)}, steps=200, batch_items=16)
        self.assertLess(result.history[-2]["loss"], 1e-3)
        np.testing.assert_allclose(run.weight("a.weight"), np.ones((1, 3)), atol=0.05)
        self.assertEqual((result.folder, result.best), (None, None))

    def test_resuming(self):
        files, lines = contents(self.command() / "run")
        folder = pathlib.Path(self.folder()) / "run"
        stops = trainer().fit(ITEMS, VALID, out=folder, callbacks=[lambda record: record["step"] == 8], **RUN)
        self.assertIn(stops.stopped, ("callback", "end"))  # so short a run may end before its record is read
        again = trainer()
        self.assertEqual(again.fit(ITEMS, VALID, out=folder, resume=True, **RUN).stopped, "end")
        found, log = contents(folder)
        self.assertEqual([found[n] for n in ("step-00000024/state.tfmt", "weights.safetensors")],
                         [files[n] for n in ("step-00000024/state.tfmt", "weights.safetensors")])
        self.refused(tfmc.UsageError, "has done 24 steps", again.fit, ITEMS, **RUN)
        self.refused(tfmc.InputError, "seed", trainer(seed=4).fit, ITEMS, VALID, out=folder, resume=True, **RUN)
        self.refused(tfmc.InputError, "data", trainer().fit, ITEMS[1:], VALID, out=folder, resume=True, **{**RUN, "epochs": 3})
        self.refused(tfmc.Error, "resume", trainer().fit, ITEMS, VALID, out=folder, **RUN)

    def test_a_callback_that_stops(self):
        """The run ends after a step, with a checkpoint, long before its end."""
        folder = pathlib.Path(self.folder()) / "run"
        fit = trainer().fit(ITEMS, out=folder, callbacks=[lambda record: record["step"] >= 8], **{**RUN, "epochs": 1000000})
        self.assertEqual(fit.stopped, "callback")
        self.assertTrue((folder / "latest").exists())

    def test_killed_at_any_moment(self):
        """The process of the program is killed (its command stops after its step); resumed, the weights are the same."""
        files, _ = contents(self.command() / "run")
        folder = pathlib.Path(self.folder()) / "run"
        program = PROGRAM.format(folder=os.path.dirname(__file__), out=str(folder))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                       "TMPDIR": str(self.folder())}  # what is killed leaves its files
        for number in range(40 if LONG else 6):
            process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
            ended = any(line.strip() == "end" for line in iter(process.stdout.readline, "") if not self.kills(process, line))
            process.wait()
            process.stdout.close()
            if ended:
                break
        for name in ("step-00000024/state.tfmt", "weights.safetensors"):
            self.resume(folder)
            self.assertEqual((folder / name).read_bytes(), files[name], name)

    def resume(self, folder):
        """The command of a program that was killed may still be ending."""
        for _ in range(100):
            try:
                return trainer().fit(ITEMS, VALID, out=folder, resume=True, **RUN)
            except tfmc.EnvError:
                time.sleep(0.1)
        return self.fail("the folder stays in use")

    def kills(self, process, line):
        if line.strip().isdigit() and random.random() < 0.3:
            process.kill()
            return True
        return False

    def test_interrupted(self):
        """SIGINT to the program: the run ends with a checkpoint, and fit says so."""
        folder = pathlib.Path(self.folder()) / "run"

        def interrupt(record):
            if record["step"] == 8:
                os.kill(os.getpid(), signal.SIGINT)
        run = trainer()
        result = run.fit(ITEMS, out=folder, callbacks=[interrupt], steps=2_000_000, log_every=4, batch_items=4, save_every=1_000_000)
        self.assertEqual(result.stopped, "signal")
        self.assertGreaterEqual(run.steps, 8)
        self.assertEqual((folder / "latest").read_text().strip(), f"step-{run.steps:08d}")

    def test_killed_with_its_command(self):
        """SIGKILL to the program and its command at moments from before the first step to the end of the run; each run, resumed,
        has the files of one that nobody killed."""
        folder = pathlib.Path(self.folder())
        seconds = self.lived(folder / "whole")
        moments = 20 if LONG else 3
        for i in range(moments):
            at, tries = seconds * (i + random.random()) / moments, 0
            while self.lived(run := folder / f"run{i}.{tries}", at) is not None:
                at, tries = at / 2, tries + 1  # it had ended before
            for _ in range(100):  # the command that was killed may still hold the folder
                with contextlib.suppress(tfmc.EnvError):
                    trainer(**STEADY).fit(ITEMS, VALID, out=run, resume=True, **LONGER)
                    break
                time.sleep(0.1)
            for name in ("step-00000480/state.tfmt", "step-00000480/weights.safetensors", "weights.safetensors", "latest"):
                self.assertEqual((run / name).read_bytes(), (folder / "whole" / name).read_bytes(), f"{name}, killed after {at} s")

    def lived(self, folder, at=None):
        """How many seconds a run took, in a process of its own; None: it was killed so many seconds after it began."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(self.folder())}
        program = STEADY_PROGRAM.format(folder=os.path.dirname(os.path.abspath(__file__)), out=str(folder))
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        process.stdout.readline()
        process.stdout.close()
        begun = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.assertEqual(process.wait(at), 0)
            return time.monotonic() - begun
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for number in [*map(int, children), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()
        return None

    def test_interrupted_runs_go_on_to_the_same_bytes(self):
        files, _ = contents(self.command() / "run")
        for step in range(1, 24) if LONG else (4, 12, 20):
            folder = pathlib.Path(self.folder()) / "run"

            def interrupt(record):
                if record["step"] == step and record["kind"] == "step":
                    os.kill(os.getpid(), signal.SIGINT)
            run = trainer()
            first = run.fit(ITEMS, VALID, out=folder, callbacks=[interrupt], **{**RUN, "log_every": 1})
            self.assertIn(first.stopped, ("signal", "end"))  # the command may have been done before it was asked
            self.assertEqual(trainer().fit(ITEMS, VALID, out=folder, resume=True, **RUN).stopped, "end")
            for name in ("step-00000024/state.tfmt", "step-00000024/weights.safetensors", "weights.safetensors", "latest"):
                self.assertEqual((folder / name).read_bytes(), files[name], name)

    def test_metric_and_patience(self):
        seen = []

        def metric(run):
            seen.append(run.weight("head.bias").copy())
            return [1, 3, 2, 2, 2][len(seen) - 1]
        run = trainer()
        result = run.fit(ITEMS, VALID, metric=metric, patience=2, **{**RUN, "epochs": 9})
        self.assertEqual((result.stopped, len(seen)), ("patience", 4))
        self.assertEqual([r["score"] for r in result.history if r["kind"] == "valid"], [1, 3, 2, 2])
        self.assertFalse(np.array_equal(seen[0], seen[1]))
        np.testing.assert_array_equal(seen[-1], run.weight("head.bias"))

        def fails(run):
            raise KeyError("mine")
        self.refused(KeyError, "mine", trainer().fit, ITEMS, VALID, metric=fails, **RUN)
        self.refused(KeyError, "mine", trainer().fit, ITEMS, VALID, callbacks=[fails], **RUN)

    def test_a_metric_needs_no_program_of_the_path(self):
        with unittest.mock.patch.dict(os.environ, PATH="/nonexistent"):
            run = trainer().fit(ITEMS, VALID, metric=lambda one: 0.25, epochs=1, batch_items=8)
        self.assertEqual([record["score"] for record in run.history if record["kind"] == "valid"][-1], 0.25)

    def test_a_metric_of_weights_in_any_folder(self):
        folder = pathlib.Path(self.folder(), r"a\tb \\c")
        run = trainer().fit(ITEMS, VALID, out=folder, metric=lambda one: 0.25, epochs=1, batch_items=8)
        self.assertEqual([record["score"] for record in run.history if record["kind"] == "valid"][-1], 0.25)

    def test_a_command_that_does_not_start(self):
        """Nothing stays open."""
        with unittest.mock.patch("tfmc._fit.subprocess.Popen", side_effect=OSError("no process")):
            self.refused(OSError, "no process", trainer().fit, ITEMS, VALID, metric=lambda one: 0.25, epochs=1)
        paths = [os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir() if path.is_symlink()]
        self.assertEqual([path for path in paths if path.endswith(("/asked (deleted)", "/answers (deleted)"))], [])

    def test_the_weights_of_now_are_where_a_run_begins(self):
        first, second = trainer(seed=1), trainer(seed=1)
        for run in (first, second):
            run.weight("head.bias")[:] = 1
        second.weight("head.bias")[:] = 2
        results = [run.fit(ITEMS, **RUN).history[0]["loss"] for run in (first, second)]
        self.assertNotEqual(*results)


class Refusals(Case):
    def test_data_that_are_wrong(self):
        good = {name: [item[name] for item in ITEMS] for name in ("ids", "labels")}
        bad = [([], "no items"), ({"ids": good["ids"]}, 'no column "labels"'), ({**good, "more": good["ids"]}, 'no input "more"'),
               ({**good, "ids": good["ids"][1:]}, "47 of ids, 48 of labels"),
               ([{"ids": [1], "labels": [1]}, {"ids": [1]}], "item 1 has other names"), ([(1, 2, 3)], "item 0 is of type tuple"),
               ({**good, "ids": [np.ones(3, np.float32)] * 48}, "item 0: input \"ids\" is float32"),
               ({**good, "ids": [np.ones((2, 2), np.int32)] * 48}, 'item 0 of "ids" is [2, 2]'),
               ({**good, "ids": [[9, 1]] * 48, "labels": [[1, 1]] * 48}, "9"),
               ({**good, "labels": [*good["labels"][:47], [1, None]]}, "item 47"),
               ({**good, "labels": [*good["labels"][:47], [99] * len(good["ids"][47])]}, "99"),
               ({**good, "labels": [*good["labels"][:47], [1]]}, "length"),
               ({**good, "labels": [[0] * len(row) for row in good["ids"]]}, "no label counts")]
        for data, words in bad:
            with self.subTest(words=words):
                run = trainer()
                self.refused(tfmc.InputError, words, run.fit, data, epochs=1, batch_items=4)
                self.assertEqual(run.steps, 0)

    def test_calls_that_are_wrong(self):
        run = trainer()
        self.refused(tfmc.UsageError, "no option 'epoch'", run.fit, ITEMS, epoch=1)
        self.refused(tfmc.UsageError, "valid=", run.fit, ITEMS, patience=1)
        self.refused(tfmc.UsageError, "out=", run.fit, ITEMS, epochs=1, resume=True)
        for name, data in (("keep", ITEMS), ("keep", iter([ITEMS[0]])), ("save_every", iter([ITEMS[0]]))):
            self.refused(tfmc.UsageError, f"{name}= is for the checkpoints in out=", run.fit, data, epochs=1, **{name: 2})
        bound = trainer(memory=run.state_bytes + 10 ** 6)
        self.refused(tfmc.UsageError, f"the trainer's is {bound.memory}", bound.fit, ITEMS, epochs=1, memory=bound.memory + 1)
        self.refused(tfmc.UsageError, "'a' for \"ids\"", run.fit, ITEMS, epochs=1, pad={"ids": "a"})
        columns = {name: [item[name] for item in ITEMS] for name in ("ids", "labels")}
        self.refused(tfmc.UsageError, 'column "labels" is of type NoneType', run.fit, {**columns, "labels": None}, epochs=1)
        self.refused(tfmc.UsageError, "item 3: ", run.fit, {**columns, "labels": [*columns["labels"][:3], None, *columns["labels"][4:]]}, epochs=1)
        for value, words in ((None, "metric gave None"), ("a", "metric gave 'a'"), (float("nan"), "NaN")):
            self.refused(tfmc.InputError, words, trainer().fit, ITEMS, VALID, metric=lambda one, value=value: value, epochs=1, batch_items=8)
        self.refused(tfmc.Error, "batch-items", run.fit, ITEMS, batch_items=0)
        path = run.save_compiled(pathlib.Path(self.folder()) / "x.tfmm")
        self.refused(tfmc.UsageError, "is for texts", tfmc.Trainer(path).fit, ITEMS)

    def test_empty_batches(self):
        items = [*ITEMS[:8], {"ids": np.ones(30, np.int32), "labels": np.zeros(30, np.int32)}]
        self.refused(tfmc.InputError, "counts", trainer().fit, items, epochs=1, batch_items=1)
        result = trainer().fit(items, epochs=1, batch_items=1, empty_batches="skip")
        self.assertEqual((result.skipped, result.history[-1]["step"]), (1, 8))

    def test_a_run_that_diverges(self):
        text = """model Line { a = Linear(3, 1)  forward(x: f32[batch, 3]) { return y = a(x) }
          fn objective(x: f32[batch, 3]) { y = forward(x)  return loss = mean(sum(exp(y * 1e3))) }
          train objective { lr = 1000 } }"""
        run = tfmc.Trainer(text, seed=1)
        error = self.refused(tfmc.Diverged, "diverged", run.fit, {"x": np.full((8, 3), 1e3, np.float32)}, steps=5, batch_items=2)
        self.assertEqual(error.step, run.steps + 1)
