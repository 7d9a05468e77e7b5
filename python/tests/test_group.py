"""Trainers of several processes: the same weights to the bit with 1, 2 and 4 ranks, over torch.distributed, mpi4py and an
exchange of one's own; results that mix items; runs of fit; what is refused."""
import functools
import hashlib
import importlib.util
import json
import multiprocessing
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import tfmc
from support import Case

PAIRS = """model Pairs(d = 8) {
  embed = Embedding(30, d)
  tower = Linear(d, d)
  weight scale: [] = 1
  forward(ids: i32[batch, time]) { return v = tower(dropout(mean(tanh(embed(ids)), axis = 1), 0.2)) }
  fn objective(ids: i32[batch, time], other: i32[batch, time]) {
    a = forward(ids)
    b = forward(other)
    s = exp(scale) * normalize(a, 1, 1e-6) @ transpose(normalize(b, 1, 1e-6), 0, 1)
    return loss = cross_entropy(s, positions(a, axis = 0)) + 0.01 * sum(sum(tower.weight * tower.weight)),
           hits = mean(f32(argmax(s) == positions(a, axis = 0))), spread = mean(mean((a - mean(a, axis = 0)) ** 2.0))
  }
  train objective { lr = 0.02  clip_norm = 1 }
}
"""
TAGS = """model Tags(d = 8) {
  embed = Embedding(30, d)
  head  = Linear(d, 5)
  forward(ids: i32[batch, time]) { return logits = head(dropout(embed(ids), 0.2)) }
  fn objective(ids: i32[batch, time], other: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), other % 5, ignore_index = 0)
  }
  train objective { lr = 0.02 }
}
"""


class Loader:
    """Batches of different sizes, the same each time."""

    def __init__(self, n=6, seed=3):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        for i in range(self.n):
            items = 9 + i % 3
            yield {name: rng.integers(1, 30, (items, 4), dtype=np.int32) for name in ("ids", "other")}


class Ours:
    """An exchange through pipes: [peer] -> connection."""

    def __init__(self, rank, pipes):
        self.rank, self.ranks, self.pipes, self.calls = rank, len(pipes), pipes, 0

    def exchange(self, peer, data):
        self.calls += 1
        self.pipes[peer].send_bytes(data)
        return self.pipes[peer].recv_bytes()


def digest(trainer):
    made = hashlib.sha256()
    for path, value in sorted(trainer.weights().items()):
        made.update(path.encode() + value.tobytes())
    return made.hexdigest()


@functools.cache
def compiled(text, folder=[]):
    """One file for all processes."""
    folder or folder.append(tempfile.TemporaryDirectory())
    return tfmc.Trainer(text).save_compiled(pathlib.Path(folder[0].name) / f"{len(text)}.tfmm")


def steps(source, group, shards=4):
    trainer = tfmc.Trainer(source, seed=5, shards=shards, group=group, threads=1)
    done = [trainer.step(batch) for batch in Loader()]
    results = trainer.evaluate(parts=list(Loader(5, 8)))
    return digest(trainer), done[-1].loss, results


def run_of_fit(group, source, out, stop=None, resume=False):
    trainer = tfmc.Trainer(source, seed=5, shards=4, group=group, threads=1)
    stops = [lambda record: record["kind"] == "step" and record["step"] >= stop and (group is None or group.rank == 1)] if stop else []
    fit = trainer.fit(Loader(), Loader(3, 8), out=out, resume=resume, epochs=3, patience=5, log_every=1, callbacks=stops)
    return digest(trainer), fit.stopped, fit.best["loss"]


def work(rank, pipes, answers, name, args):
    try:
        group = Ours(rank, pipes)
        if name == "steps":
            answers.send(steps(*args, group))
        elif name == "fit":
            answers.send(run_of_fit(group, *args))
        elif name == "first":
            trainer = tfmc.Trainer(args[0], seed=5, shards=4, group=group, threads=1)
            trainer.fit(Loader(6), epochs=1, out=args[1] if rank == 0 else None, keep=1, save_every=2)
            answers.send(digest(trainer))
        elif name == "seeds":
            tfmc.Trainer(args[0], seed=rank, shards=4, group=group)
        elif name == "batches":
            trainer = tfmc.Trainer(args[0], seed=1, shards=4, group=group)
            trainer.fit(Loader(6, rank), epochs=1)
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")


class Groups(Case):
    def ranks(self, n, name, *args, work=work):
        """What each of n processes answers."""
        context = multiprocessing.get_context("spawn")
        pipes = [[None] * n for _ in range(n)]
        for i in range(n):
            for k in range(i):
                pipes[i][k], pipes[k][i] = context.Pipe()
        answers = [context.Pipe(duplex=False) for _ in range(n)]
        processes = [context.Process(target=work, args=(i, pipes[i], answers[i][1], name, args)) for i in range(n)]
        for process in processes:
            process.start()
        for row in pipes:
            for pipe in row:
                if pipe is not None:
                    pipe.close()
        for _, sent in answers:
            sent.close()
        got = [received.recv() if received.poll(120) else None for received, _ in answers]
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
        for received, _ in answers:
            received.close()
        return got

    def test_ranks_have_the_same_bits(self):
        for text in (TAGS, PAIRS):
            alone = steps(compiled(text), None)
            for n in (2, 4):
                self.assertEqual(self.ranks(n, "steps", compiled(text)), [alone] * n, n)

    def test_mixed_results_of_shards_are_those_of_the_whole_batch(self):
        whole, cut = steps(compiled(PAIRS), None, 1), steps(compiled(PAIRS), None, 4)
        self.assertNotEqual(whole[0], cut[0])
        self.assertAlmostEqual(whole[1], cut[1], delta=2e-6 * abs(whole[1]))
        for name, value in whole[2].items():
            self.assertAlmostEqual(value, cut[2][name], delta=2e-6 * max(1, abs(value)))

    def test_runs_of_fit(self):
        folder = pathlib.Path(self.folder())
        alone = run_of_fit(None, compiled(PAIRS), folder / "alone")
        for n in (2, 4):
            self.assertEqual(self.ranks(n, "fit", compiled(PAIRS), folder / f"of{n}"), [alone] * n)
            for name in ("weights.safetensors", "latest", "step-00000018/state.tfmt"):
                self.assertEqual((folder / f"of{n}" / name).read_bytes(), (folder / "alone" / name).read_bytes(), name)
        self.assertEqual({answer[1] for answer in self.ranks(2, "fit", compiled(PAIRS), folder / "stopped", 7)}, {"callback"})
        self.assertEqual((folder / "stopped/latest").read_text().strip(), "step-00000007")
        self.assertEqual(self.ranks(4, "fit", compiled(PAIRS), folder / "stopped", None, True), [alone] * 4)
        self.assertEqual((folder / "stopped/step-00000018/state.tfmt").read_bytes(), (folder / "alone/step-00000018/state.tfmt").read_bytes())

    def test_a_folder_of_the_first_rank(self):
        """Who writes nothing needs no folder for options of checkpoints."""
        folder = pathlib.Path(self.folder())
        first, second = self.ranks(2, "first", compiled(TAGS), folder / "run")
        self.assertRegex(first, "^[0-9a-f]{64}$")
        self.assertEqual(first, second)
        self.assertEqual([path.name for path in (folder / "run").glob("step-*")], ["step-00000006"])

    def test_ranks_that_differ_are_found(self):
        for answer in self.ranks(4, "seeds", compiled(TAGS)):
            self.assertIn("begin with other weights", answer)
        for answer in self.ranks(2, "batches", compiled(TAGS)):
            self.assertIn("other batches", answer)

    def test_a_peer_that_is_lost(self):
        """An error whose cause is what the exchange raised; the weights are as before."""
        def exchange(peer, data):
            if len(data) != 33:  # of the weights that ranks begin with
                raise ConnectionError("the peer is gone")
            return data
        trainer = tfmc.Trainer(TAGS, seed=1, shards=4, group=type("Alone", (), {"rank": 0, "ranks": 2, "exchange": staticmethod(exchange)})())
        before = digest(trainer)
        with self.assertRaisesRegex(tfmc.EnvError, "exchange, the function of the caller, failed") as caught:
            trainer.step(next(iter(Loader())))
        self.assertIsInstance(caught.exception.__cause__, ConnectionError)
        self.assertEqual((digest(trainer), trainer.steps), (before, 0))

    def test_what_is_refused(self):
        group = lambda ranks, answer=None: type("G", (), {"rank": 0, "ranks": ranks, "exchange": staticmethod(answer or (lambda peer, data: data))})()
        self.refused(tfmc.UsageError, "a power of two", tfmc.Trainer, TAGS, group=group(3))
        self.refused(tfmc.UsageError, "group is of type int", tfmc.Trainer, TAGS, group=2)
        self.refused(tfmc.UsageError, "ranks divide shards", tfmc.Trainer, TAGS, group=group(4), shards=2)
        trainer = tfmc.Trainer(TAGS, group=group(2), shards=4)
        few = {name: rows[:3] for name, rows in next(iter(Loader())).items()}
        self.refused(tfmc.UsageError, "a step of 3 items cannot be cut into 4 shards", trainer.step, few)
        self.refused(tfmc.UsageError, "a run of one process", trainer.fit, [{"ids": [1], "other": [2]}], epochs=1)
        short = tfmc.Trainer(TAGS, group=group(2, lambda peer, data: data if len(data) == 33 else data[:-1]), shards=4)
        with self.assertRaises(tfmc.EnvError) as caught:
            short.step(next(iter(Loader())))
        self.assertIn("does something else", str(caught.exception.__cause__))
        self.assertEqual(tfmc.Trainer(TAGS, group=group(1)).step(next(iter(Loader()))).step, 1)


PROGRAM = """
import json, os, sys
sys.path.insert(0, {tests!r})
from test_group import steps
{begin}
print("answer", json.dumps([steps(path, group) for path in {paths!r}]), flush=True)
{end}
"""


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Transports(Case):
    def said(self, text):
        return [json.loads(line.split("answer ", 1)[1]) for line in text.splitlines() if "answer " in line]

    def program(self, begin, end=""):
        path = pathlib.Path(self.folder()) / "program.py"
        path.write_text(PROGRAM.format(tests=os.path.dirname(os.path.abspath(__file__)), paths=[str(compiled(text)) for text in (TAGS, PAIRS)], begin=begin, end=end))
        return path, {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no torch")
    def test_gloo(self):
        alone = json.loads(json.dumps([steps(compiled(text), None) for text in (TAGS, PAIRS)]))
        path, environment = self.program('import torch.distributed as dist; dist.init_process_group("gloo"); group = dist.group.WORLD',
                                         "dist.destroy_process_group()")
        for n in (2, 4):
            at = str(port())
            ranks = [subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True,
                                      env={**environment, "RANK": str(i), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": at}) for i in range(n)]
            said = [process.communicate(timeout=300)[0] for process in ranks]
            self.assertEqual([answer for text in said for answer in self.said(text)], [alone] * n)

    @unittest.skipUnless(importlib.util.find_spec("mpi4py") and shutil.which("mpirun"), "there is no mpi4py with mpirun")
    def test_mpi(self):
        alone = json.loads(json.dumps([steps(compiled(text), None) for text in (TAGS, PAIRS)]))
        path, environment = self.program("from mpi4py import MPI; group = MPI.COMM_WORLD")
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
        more = ["--oversubscribe", "--allow-run-as-root"] if "Open MPI" in version else []
        for n in (2, 4):
            done = subprocess.run(["mpirun", *more, "-n", str(n), sys.executable, path], capture_output=True, text=True, env=environment, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.said(done.stdout), [alone] * n)
