#!/usr/bin/env python3
"""Fine-tuning from Python beside what people use for it: time of a step and peak memory, interleaved.

usage: finetuning.py [ROW ...] [--rounds 5] [--threads 1] [--limit 300] [--losses]

| row | ours | beside |
|---|---|---|
| pairs32, pairs256 | Trainer.step over pairs of texts, MiniLM's shape; 256 in parts that memory= decides | the trainer of sentence-transformers with MultipleNegativesRankingLoss; for 256 its cached loss in parts of 32 |
| classifier, compiled | Trainer.step, BERT-base with a head, 16 texts | Trainer of transformers; with torch_compile |
| tutorial | fit over items, an encoder and decoder as tutorials have them, 32 x 32 | a loop of torch, fused AdamW |
| lora | Trainer.step, GPT-2 small in bf16, rank 8 at c_attn, 4 x 128 | a loop of torch over a module of peft |

Weights are random, dropout is on in both, data are the same. A step begins with texts (ids in the last two rows) and ends with
new weights: tokenizing, padding, forward, backward, clipping, AdamW. Each engine is a process; in each round each takes its
turn of some steps, in random order, while the others wait. Printed are the best and the median time of a step, the median of
the ratios of ours to the peer round by round, and the peak of the resident memory. An engine that is not ready, or does not
end a turn, within --limit seconds is ended, and the table says so. --losses: dropout is off, and the losses of the first steps
are compared instead, of models of 2 layers and few items (engines.LAYERS, engines.items). TFM_COMPILER names tfmc, PYTHONPATH the package. Needs torch, transformers,
sentence-transformers, peft, accelerate, datasets; without them it ends with 77.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import random
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

from finetuning_engines import PREPARE, ROWS, WARM, engine_of

LOSSES = 3  # steps that --losses compares
NEEDED = "torch", "transformers", "sentence_transformers", "peft", "accelerate", "datasets", "tokenizers", "tfmc"


# ---- an engine, in a process of its own ----

def say(seconds, losses):
    peak = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
    print(json.dumps({"seconds": seconds / len(losses), "losses": losses, "peak": peak / 1024}), flush=True)


def asked():
    """How many steps the next turn has; the process ends with the standard input."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return int(line)


class Answers:
    """For trainers with a loop of their own: called as training begins, and with the loss of each step."""

    def __init__(self):
        self.losses, self.left = [], 0

    def __call__(self, loss):
        if loss is not None:
            self.losses.append(loss)
            self.left -= 1
        if not self.left:
            if self.losses:
                say(time.monotonic() - self.begin, self.losses)
            self.losses, self.left, self.begin = [], asked(), time.monotonic()


def work_as(name, row, folder, threads, drop):
    function, kind = engine_of(name, row)
    if name != "ours":
        import torch
        torch.set_num_threads(threads)
    if kind == "loop":
        function(row, folder, threads, drop, Answers())
        return
    engine = function(row, folder, threads, drop)
    while True:
        n, begin = asked(), time.monotonic()
        if kind == "turn":
            ends, losses = engine(n)
            say((ends[-1] - ends[0]) * n / max(n - 1, 1), losses)
        else:
            losses = [engine() for _ in range(n)]
            say(time.monotonic() - begin, losses)


# ---- the table ----

class TooSlow(Exception):
    pass


class Worker:
    def __init__(self, name, row, folder, threads, drop, limit):
        words = [sys.executable, "-W", "ignore", __file__, "worker", name, row, folder, threads, drop]
        self.name, self.times, self.said, self.limit, self.is_slow, self.heard = name, [], {}, limit, False, b""
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        env={**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"})

    def line(self, end):
        """The next line of what it says, or "" at its end; it is ended if there is none until then."""
        while b"\n" not in self.heard:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                self.process.kill()
                self.is_slow = True
                raise TooSlow(self.name)
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return ""
            self.heard += more
        line, _, self.heard = self.heard.partition(b"\n")
        return line.decode(errors="replace") + "\n"

    def turn(self, n):
        end = time.monotonic() + self.limit
        self.process.stdin.write(f"{n}\n".encode())
        while (line := self.line(end)) and not line.startswith('{"seconds"'):
            continue
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        self.said = json.loads(line)
        self.times.append(self.said["seconds"])
        return self.said["losses"]

    def try_turn(self, n):
        """The losses; None: it did not end."""
        try:
            return None if self.is_slow else self.turn(n)
        except TooSlow:
            return None

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


def workers_of(row, folder, options, drop):
    """The weights and texts are made in a process of its own: none of the engines has its memory."""
    subprocess.run([sys.executable, "-W", "ignore", __file__, "prepare", row, folder, str(drop)], check=True, stdout=subprocess.DEVNULL)
    return [Worker(name, row, folder, options.threads, drop, options.limit) for name in ("ours", *ROWS[row][0])]


def compare_losses(row, options):
    with tempfile.TemporaryDirectory() as folder:
        workers = workers_of(row, folder, options, 0.0)
        losses = {worker.name: worker.try_turn(LOSSES) for worker in workers}
        for worker in workers:
            worker.end()
    for name, values in losses.items():
        if values is None or losses["ours"] is None:
            print(f"| {row} | {name} | {'did not end' if values is None else ' '.join(f'{v:.6f}' for v in values)} | |", flush=True)
            continue
        off = max(abs(a / b - 1) for a, b in zip(losses["ours"], values))
        print(f"| {row} | {name} | {' '.join(f'{v:.6f}' for v in values)} | {off:.1e} |", flush=True)


def measure(row, options):
    order, n = random.Random(0), ROWS[row][2]
    with tempfile.TemporaryDirectory() as folder:
        workers = workers_of(row, folder, options, 0.1)
        for worker in workers:
            for _ in range(WARM.get(worker.name, 1)):
                worker.try_turn(n)  # memory is taken and caches are warm
            worker.times.clear()
        for _ in range(options.rounds):
            for worker in order.sample(workers, len(workers)):
                worker.try_turn(n)
        for worker in workers:
            worker.end()
    for worker in workers:
        if worker.is_slow or workers[0].is_slow or not worker.times:
            said = f"did not end in {options.limit:g} s" if worker.is_slow else f"{min(worker.times, default=0) * 1e3:.4g}"
            print(f"| {row} | {worker.name} | {said} | | | | |", flush=True)
            continue
        ratio = statistics.median(a / b for a, b in zip(workers[0].times, worker.times))
        print(f"| {row} | {worker.name} | {min(worker.times) * 1e3:.4g} | {statistics.median(worker.times) * 1e3:.4g} | {ratio:.2f} | "
              f"{worker.said['peak']:.0f} | {workers[0].said['peak'] / worker.said['peak']:.2f} |", flush=True)


def main():
    if sys.argv[1:2] == ["worker"]:
        name, row, folder, threads, drop = sys.argv[2:]
        return work_as(name, row, pathlib.Path(folder), int(threads), float(drop))
    if sys.argv[1:2] == ["prepare"]:
        return PREPARE[sys.argv[2]](pathlib.Path(sys.argv[3]), float(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", metavar="ROW", help=" ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--losses", action="store_true")
    options = parser.parse_args()
    unknown = [row for row in options.rows if row not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(ROWS)}")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not run: there is no {missing[0]}")
        return 77
    print("| row | engine | losses | ours is off by |\n|---|---|---|---|" if options.losses else
          "| row | engine | best ms | median ms | ours / it | peak MiB | ours / it |\n|---|---|---|---|---|---|---|")
    for row in options.rows or ROWS:
        (compare_losses if options.losses else measure)(row, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
