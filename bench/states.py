#!/usr/bin/env python3
"""Models and layers that keep states beside llama.cpp and torch, in one run, as ratios and as multiples of their floors.

usage: states.py BUILD [--part PART ...] [--model NAME ...] [--threads N] [--rounds N] [--llama PYTHON] [--folder FOLDER]
                 [--prepare] [--layers N] [--batch N]

In: a folder of a build that has `tfmc` and the Python package. Out: a line for each piece of work: our median time, how
many times its floor that is, and the median of the ratios of the rounds to the peer's time, each with its goal.

  steps     linear attention alone, 64 and 512 tokens; torch: the chunked function of transformers
  token     one token through the states of 18 layers, which are read and written
  models    Qwen3.5, Mamba 2 and LFM2 with random weights: a prompt of 512 and 64 tokens, f32, int8, int4; llama.cpp with
            the same weights: F32, Q8_0, Q4_0
  rows      a step with 8 rows beside a step with one
  training  gradients of linear attention and of a layer of Qwen3.5, 8 x 512 (--batch x 512); torch: autograd of the
            chunked function

A floor is arithmetic or bytes at the rates that `tfmc bench` measures in the same round: products; for states one
operation on a vector for each multiply-add and product of an element; weights, caches and states of a token. Every engine
is a process of its own, stopped while it is not its turn. --llama names a Python that has llama_cpp (this one, without);
--folder keeps the models, and --prepare makes them and measures nothing. Needs torch, transformers and gguf; without them
it prints 'not run' and ends with 77; an engine that cannot run is named.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

try:
    import gguf  # noqa: F401
    import numpy as np
    import torch
    import transformers  # noqa: F401
except ImportError as missing:
    print(f"not run: no {missing.name}")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import states_layers  # noqa: E402
from states_shapes import FAMILIES, drawn, write_folder, write_gguf  # noqa: E402

PROMPT, NEW = 512, 64
FORMS = {"f32": "F32", "int8": "Q8_0", "int4": "Q4_0"}
PROBE = """model P {
  a = Linear(4096, 8192, bias = false)
  b = Linear(8192, 4096, bias = false)
  forward(x: f32[rows, 4096]) { return y = b(a(x)) }
}
"""
# Of prompts and tokens: most times the floor; most of llama.cpp's time, by form.
GOALS = {"prompt": (1.3, {"f32": 0.6, "int8": 0.5}), "write": (1.35, {"f32": 0.95, "int8": 0.8, "int4": 0.9})}


class Probe:
    """What the machine does at most, as `tfmc bench` measures it: of the best round."""

    def __init__(self, args, folder):
        self.args, self.path, self.f32, self.int8, self.bytes = args, folder / "probe.tfm", 0, 0, 0
        self.path.write_text(PROBE)

    def measure(self):
        done = subprocess.run([self.args.tfmc, "bench", self.path, "--random-weights=1", "--input=x=1x4096", "--json", "--iterations=2",
                               "--warmup=1", f"--threads={self.args.threads}"], capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        self.f32 = max(self.f32, said["machine_flop_per_second"])
        self.int8 = max(self.int8, said["machine_int8_flop_per_second"])
        self.bytes = max(self.bytes, said["machine_bytes_per_second"])


class Worker:
    """A process of states_worker.py, stopped while it is not asked."""

    def __init__(self, args, engine, file):
        self.engine = engine
        python = args.llama if engine == "llama" else sys.executable
        words = [python, HERE / "states_worker.py", engine, file, args.threads, args.prompt, args.new]
        environment = {**os.environ, "PYTHONPATH": str(args.build / "python"), "OMP_NUM_THREADS": str(args.threads)}
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=environment)
        self.failure = None
        self.answer()

    def answer(self):
        line = next((line for line in self.process.stdout if line.startswith("@")), None)
        if line and not line.startswith("@fail"):
            self.process.send_signal(signal.SIGSTOP)
            return line.split()[1:]
        self.log.seek(0)
        self.failure = line[5:].strip() if line else (self.log.read().strip().splitlines() or ["it ended"])[-1][:200]
        return []

    def ask(self, command):
        """The words of the answer. An engine that ended in between ends the run, and is named."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        said = self.answer()
        if self.failure:
            sys.exit(f"{self.engine}: {command}: {self.failure}")
        return said

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def run(args, *words):
    subprocess.run([str(args.tfmc), *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def prepare(args, family, folder):
    """The files of a family; those that are there stay, but saved models that are older than tfmc."""
    files = {form: folder / f"{form}.tfmm" for form in FORMS} | {kind: folder / f"{kind}.gguf" for kind in FORMS.values()}
    checkpoint, text = folder / "checkpoint", folder / "model.tfm"
    if not all(f.exists() for f in [checkpoint / "model.safetensors", *(files[kind] for kind in FORMS.values())]):
        folder.mkdir(parents=True, exist_ok=True)
        weights = drawn(family)
        for kind in FORMS.values():
            write_gguf(family, weights, kind, files[kind])
        write_folder(family, weights, checkpoint)
    run(args, "import", checkpoint, "-o", text, "--strict")
    for form in FORMS:
        if not files[form].exists() or files[form].stat().st_mtime < args.tfmc.stat().st_mtime:
            run(args, "compile", text, "--weights", checkpoint, "-march=native", "-o", files[form], "-q",
                *([f"--quantize={form}"] if form != "f32" else []))
    return files


# ---- lines ----

def goal(value, most):
    return f"{value:5.2f}" + (f" (goal {most:g})" if most else "")


def line(work, seconds, floor, most=None, peer=None, ratio=None, most_ratio=None):
    beside = f"{peer} {goal(ratio, most_ratio)}" if peer else ""
    print(f"{work:48} {seconds * 1e3:10.3f} ms  of the floor {goal(seconds / floor, most):18} {beside}", flush=True)


def ratio_of(ours, theirs):
    return statistics.median(a / b for a, b in zip(ours, theirs))


# ---- layers alone ----

def alternate(args, probe, runs):
    """Times of each of `runs` by rounds."""
    times = [[] for _ in runs]
    for number in range(args.rounds):
        probe.measure()
        for which in range(len(runs)) if number % 2 == 0 else reversed(range(len(runs))):
            times[which].append(runs[which]())
    return times


def measure_layers(args, probe, cases):
    for case in cases:
        times = alternate(args, probe, [case.ours] + ([case.theirs] if case.theirs else []))
        peer = {"peer": "of torch's", "ratio": ratio_of(*times), "most_ratio": case.most_ratio} if case.theirs else {}
        line(case.name, statistics.median(times[0]), case.floor(probe), case.most, **peer)


# ---- whole models ----

def floors(args, family, form, probe, weight_bytes):
    """Seconds of a prompt and of a token."""
    products, head = family.products()
    elements, operations = family.states()
    rate = probe.f32 if form == "f32" else probe.int8
    prompt = 2 * (products * args.prompt + head) / rate + elements * operations * args.prompt / (probe.f32 / 2)
    behind = args.prompt + args.new // 2
    return prompt, (weight_bytes + 8 * elements + 4 * family.caches() * behind) / probe.bytes


def weight_bytes(args, file):
    """That a token reads: without those of a table."""
    done = subprocess.run([args.tfmc, "bench", file, "--input=input_ids=1x1", "--json", "--iterations=1", "--warmup=1"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["weight_bytes"]


def measure_models(args, probe, files):
    for name in args.model:
        family = FAMILIES[name].with_depth(args.layers)
        for form, kind in FORMS.items():
            of_weights = weight_bytes(args, files[name][form])
            workers = [Worker(args, "tfmc", files[name][form]), Worker(args, "llama", files[name][kind])]
            try:
                compare(args, probe, family, form, of_weights, workers)
            finally:
                for worker in workers:
                    worker.close()


def compare(args, probe, family, form, of_weights, workers):
    ours, theirs = workers
    if ours.failure:
        sys.exit(f"tfmc: {ours.failure}")
    turn = lambda worker: lambda: [float(x) for x in worker.ask("go")]
    times = alternate(args, probe, [turn(w) for w in workers if not w.failure])
    floor = floors(args, family, form, probe, of_weights)
    for i, (word, what) in enumerate((("prompt", f"prompt of {args.prompt}"), ("write", "a token"))):
        of = [[t[i] / (args.new if i else 1) for t in side] for side in times]
        most, least = GOALS[word]
        peer = {"peer": f"of llama.cpp's {FORMS[form]}", "ratio": ratio_of(*of), "most_ratio": least.get(form)} if len(of) > 1 else {}
        line(f"{family.title}, {form}, {what}", statistics.median(of[0]), floor[i], most, **peer)
    if theirs.failure:
        print(f"  not run: llama.cpp: {theirs.failure}")
    elif form == "f32":
        a, b = (w.ask("tokens") for w in workers)
        same = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))
        print(f"  the first {same} of {len(a)} tokens are llama.cpp's")


def measure_rows(args, probe, files):
    name = args.model[0]
    worker = Worker(args, "tfmc", files[name]["f32"])
    try:
        times = alternate(args, probe, [lambda n=n: float(worker.ask(f"rows {n}")[0]) for n in (8, 1)])
    finally:
        worker.close()
    print(f"{FAMILIES[name].title + ', f32, a step of 8 rows':48} {statistics.median(times[0]) * 1e3:10.3f} ms  of a step of one row "
          f"{goal(ratio_of(*times), 1.6)}", flush=True)


def versions(args):
    said = subprocess.run([args.llama, "-c", "import llama_cpp; print(llama_cpp.__version__)"], capture_output=True, text=True).stdout.strip()
    names = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("torch", "transformers"))
    print(f"{args.threads} threads, {args.rounds} rounds; {names}, llama-cpp-python {said or 'is not there'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["steps", "token", "models", "rows", "training"]
    parser.add_argument("build", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--part", nargs="*", choices=parts, default=parts)
    parser.add_argument("--model", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=0, help="of the models; those of their shapes without")
    parser.add_argument("--batch", type=int, default=8, help="items of 512 tokens of a step of training")
    parser.add_argument("--prompt", type=int, default=PROMPT)
    parser.add_argument("--new", type=int, default=NEW)
    parser.add_argument("--llama", default=sys.executable)
    parser.add_argument("--folder", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--prepare", action="store_true")
    args = parser.parse_args()
    args.tfmc = args.build / "tfmc"
    torch.set_num_threads(args.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # workers must not stay behind, least of all stopped
    with tempfile.TemporaryDirectory() as temporary:
        folder, scratch, files = args.folder or pathlib.Path(temporary), pathlib.Path(temporary), {}
        for name in args.model if {"models", "rows"} & set(args.part) else []:
            files[name] = prepare(args, FAMILIES[name].with_depth(args.layers), folder / name)
        if args.prepare:
            return
        versions(args)
        probe = Probe(args, scratch)
        for part in args.part:
            if part in ("models", "rows"):
                {"models": measure_models, "rows": measure_rows}[part](args, probe, files)
            else:
                measure_layers(args, probe, states_layers.cases_of(args, part, scratch))
        print(f"the machine at most: {probe.f32 * 1e-9:.0f} G operations/s in f32, {probe.int8 * 1e-9:.0f} of bytes, "
              f"{probe.bytes * 1e-9:.0f} GB/s")


if __name__ == "__main__":
    main()
