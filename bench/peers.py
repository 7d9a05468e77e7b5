#!/usr/bin/env python3
"""tfmc beside other engines, in one run, interleaved: the table of README.md.

usage: peers.py BENCH_COMPARE [--rounds N] [--only CASE ...] [--patience SECONDS]

Models in f32 with random weights: the encoder of BERT-base (hidden states to hidden states), MiniLM's shape (ids and a
mask to sentence vectors; one case is 32 sentences of 5 to 64 tokens), and GPT-2 small (64 tokens after 32, greedily).
Every engine is a process of its own with the same number of threads (PEERS_THREADS, else 2), and is stopped while it is
not its turn; in each round each has one, in random order. Printed for each case: the best and the median time, the
median of the ratios to tfmc's time in the same round, and how far the results are from PyTorch's (of tokens: how many
are others). Then the machine, the versions, and the table as Markdown. An engine whose packages are missing is `not
run`, and so is one that does not answer in time; PyTorch, NumPy and safetensors must be there, else the exit code
is 77. Measure on an idle machine: threads that wait for each other by spinning suffer most from other work.

How each is called, so that it is not put at a disadvantage: PyTorch eagerly, with its fused attention, in inference
mode; ONNX Runtime with its optimizer for Transformers; OpenVINO with static shapes, one stream and f32 asked for;
CTranslate2 with sentences without their padding; llama.cpp with an f32 cache and without sampling. They decode with
caches; PyTorch by transformers' generate.

usage of a worker: peers.py --worker ENGINE WORKLOAD FOLDER, with the protocol of bench-compare (README.md here).
"""
import argparse
import importlib.metadata
import importlib.util
import math
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

import peers_engines
from peers_models import CASES, MODELS, PROJECT, THREADS, write_folder

ENGINES = {"tfmc": "tfmc", "torch": "PyTorch", "ort": "ONNX Runtime", "openvino": "OpenVINO", "ct2": "CTranslate2",
           "llama": "llama.cpp"}
PACKAGES = {"torch": ["torch", "transformers"], "ort": ["onnxruntime", "onnx"], "openvino": ["openvino"],
            "ct2": ["ctranslate2"], "llama": ["llama-cpp-python"]}
ALONE = {"ort": ("W1", "W2"), "openvino": ("W1", "W2"), "llama": ("W5",)}  # others take all


# ---- the rounds ----

class Worker:
    """A process, stopped while it is not asked."""

    def __init__(self, engine, command, patience):
        environment = {**os.environ, "PEERS_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS)}
        self.engine, self.patience, self.log = engine, patience, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        cwd=PROJECT, env=environment)
        self.failure = None
        self.answer()

    def answer(self):
        """The words after the first; none after a failure."""
        late = threading.Timer(self.patience, self.process.kill)
        late.start()
        line = next((line for line in self.process.stdout if line.startswith("@")), None)
        late.cancel()
        if line and not line.startswith("@fail"):
            self.process.send_signal(signal.SIGSTOP)
            return line.split()[1:]
        self.log.seek(0)
        last = (self.log.read().strip().splitlines() or ["it ended"])[-1][:200]
        self.failure = line[5:].strip() if line else last if self.process.wait() != -signal.SIGKILL else "no answer in time"
        return []

    def ask(self, line):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.wait()


def start_workers(program, workload, folder, patience, workers):
    """Adds those that can run; returns why the others cannot."""
    reasons = {}
    for engine in ENGINES:
        if workload not in ALONE.get(engine, MODELS):
            continue
        own = [sys.executable, os.path.abspath(__file__), "--worker", engine]
        worker = Worker(engine, [*([program] if engine == "tfmc" else own), workload, folder], patience)
        if worker.failure:
            reasons[engine] = worker.failure
            worker.close()
        else:
            workers.append(worker)
    return reasons


def differences(np, workload, results):
    """Of each engine from PyTorch."""
    base = results.get("torch")
    if base is None:
        return {}
    if workload == "W5":
        return {engine: f"{int((result != base).sum())} of {base.size} tokens" for engine, result in results.items()}
    return {engine: f"{np.abs(result - base).max():.0e}" for engine, result in results.items()}


def measure(np, case, workload, workers, folder, rounds):
    """Times of each engine by rounds, and how far its result is from PyTorch's."""
    results, times = {}, {}
    for worker in list(workers):
        path = f"{folder}/{worker.engine}.out"
        worker.ask(f"out {case} {path}")
        if worker.failure:
            print(f"not run: {case} by {ENGINES[worker.engine]}: {worker.failure}")
            workers.remove(worker)
            worker.close()
            continue
        results[worker.engine] = np.fromfile(path, "i4" if workload == "W5" else "f4")
        times[worker.engine] = []
    for _ in range(rounds):
        for worker in random.sample(workers, len(workers)):
            burst = "0 1" if workload == "W5" else "1 3"  # 64 tokens are enough to be warm
            times[worker.engine].append([float(t) for t in worker.ask(f"go {case} {burst}")])
            if worker.failure:
                raise SystemExit(f"{case} by {ENGINES[worker.engine]}: {worker.failure}")
    return times, differences(np, workload, results)


def summarize(case, times, far):
    """Prints the case; returns the median time of tfmc and the ratios of the others."""
    median = {engine: [statistics.median(burst) for burst in bursts] for engine, bursts in times.items()}
    row = {}
    print(f"\n{case}")
    for engine, medians in median.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(medians, median["tfmc"])) if "tfmc" in median else math.nan
        row[engine] = statistics.median(medians) if engine == "tfmc" else ratio
        best = min(min(burst) for burst in times[engine])
        print(f"  {ENGINES[engine]:14} best {best * 1e3:8.2f} ms, median {statistics.median(medians) * 1e3:8.2f} ms, "
              f"{ratio:5.2f} of tfmc's, from PyTorch's: {far.get(engine, '-')}", flush=True)
    return row


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    flags = open("/proc/cpuinfo").read()
    width = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE"
    return f"{model}, {width}, {THREADS} threads, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}"


def versions():
    found = []
    for engine, packages in PACKAGES.items():
        for package in packages:
            try:
                found.append(f"{package} {importlib.metadata.version(package)}")
            except importlib.metadata.PackageNotFoundError:
                found.append(f"{package} is not installed")
    return ", ".join(found)


def print_table(rows, reasons):
    print("\n| | " + " | ".join(ENGINES.values()) + " |\n|---|" + "---|" * len(ENGINES))
    for _, workload, _, title in [case for case in CASES if case[0] in rows]:
        row, cells = rows[next(c[0] for c in CASES if c[3] == title)], []
        for engine in ENGINES:
            if engine in row:
                cells.append(f"{row[engine] * 1e3:.1f} ms" if engine == "tfmc" else f"{row[engine]:.2f}")
            else:
                cells.append("–" if workload not in ALONE.get(engine, MODELS) else "not run")
        print(f"| {title} | " + " | ".join(cells) + " |")
    for (workload, engine), reason in reasons.items():
        print(f"not run: {MODELS[workload].title} by {ENGINES[engine]}: {reason}")


def lacks_packages():
    missing = [name for name in ("numpy", "safetensors", "torch") if not importlib.util.find_spec(name)]
    if missing:
        print(f"not run: this Python lacks {', '.join(missing)}")
    return bool(missing)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return peers_engines.work(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--patience", type=float, default=600)
    parser.add_argument("--only", nargs="*", choices=[case[0] for case in CASES], default=[case[0] for case in CASES])
    args = parser.parse_args()
    if lacks_packages():
        return 77
    import numpy as np
    from safetensors.numpy import save_file
    rows, reasons, workers = {}, {}, []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # workers must not stay behind, least of all stopped
    for workload in MODELS:
        cases = [case for case in CASES if case[1] == workload and case[0] in args.only]
        if not cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write_folder(np, save_file, workload, folder)
            try:
                why = start_workers(os.path.abspath(args.program), workload, folder, args.patience, workers)
                reasons |= {(workload, engine): reason for engine, reason in why.items()}
                for case, _, _, title in cases:
                    rows[case] = summarize(title, *measure(np, case, workload, workers, folder, args.rounds))
            finally:
                while workers:
                    workers.pop().close()
    print(f"\n{machine()}\n{versions()}\n{args.rounds} rounds; tfmc: median time; others: time / tfmc's in the same round")
    print_table(rows, reasons)
    return 0


if __name__ == "__main__":
    sys.exit(main())
