#!/usr/bin/env python3
"""Rows a second of a corpus, all ways in turns: usage: corpus.py FOLDER [--sentences N] [--rounds N] [--texts FILE]
[--realtime] [--ways WAY,...] [--python WAY=PYTHON]...

FOLDER: a sentence encoder (all-MiniLM-L6-v2). Ways: here (one process of two threads), processes and ray (two workers
of one thread), ray-data (two actors of tfmc.ray.Embedder in map_batches), peer (sentence-transformers' pool of two
processes of one thread), peer-ray-data (sentence-transformers in map_batches, two actors of one thread). --python: the
interpreter of a way whose packages are in another environment; a way whose packages are missing is left out, and says
so. A way whose workers do not begin within five minutes, or at all, is named, and the exit code is 1.

Sentences are the lines of FILE, N others in each round, or made of words, 3 and more, 20 in the mean. tfmc's own
engines read JSON lines and write JSON lines, the others leave their vectors in memory. Workers are made, and warm,
before the clock starts. --realtime: all processes of this one run before everything else while the clock runs, so
that a loaded machine measures them too (as root, for seconds only).
Printed: for each run a line of JSON with rows a second of clock and of CPU and the peak memory of a worker; at the end
medians and what the others are beside them. It measures, and is not a test.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

PATIENCE = float(os.environ.get("TFM_BENCH_PATIENCE", "300"))  # seconds until all workers are ready
WORDS = "the model reads a row of tokens and writes one vector for each text that it was given in Rome by train".split()


def texts(given):
    """The sentences of a round."""
    count = given.sentences
    if given.texts:
        with open(given.texts) as file:
            return file.read().splitlines()[given.round * count:(given.round + 1) * count]
    return made_up(count)


def made_up(count):
    choose = random.Random(2)
    return [" ".join(choose.choices(WORDS, k=max(3, int(choose.expovariate(1 / 20))))) for _ in range(count)]


def descendants(pid):
    found, seen = {pid}, True
    while seen:
        seen = False
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in found:
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if parent in found:
                    found.add(int(entry.name))
                    seen = True
    return found


def cpu_and_peak(pids):
    seconds, peaks = 0, []
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        peaks += [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return seconds, max(peaks, default=0)


def timed(rows, work, pids, realtime, way):
    first = descendants(os.getpid()) if realtime else ()
    for pid in first:
        subprocess.run(["chrt", "-a", "-p", "-f", "50", str(pid)], check=False)
    before, start = cpu_and_peak(pids)[0], time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    after, peak = cpu_and_peak(pids)
    for pid in first:
        subprocess.run(["chrt", "-a", "-p", "-o", "0", str(pid)], check=False)
    print(json.dumps({"way": way, "rows": rows, "rows_per_second": round(rows / seconds, 1),
                      "rows_per_cpu_second": round(rows / max(after - before, 1e-9), 1), "peak_mb": round(peak)}),
          flush=True)


def begun(engine, way, workers):
    """Waits until so many workers are ready."""
    ready, until = 0, time.monotonic() + PATIENCE
    while ready < workers:
        event = engine.wait(1)
        ready += event.kind == "ready"
        if event.kind == "refused":
            raise RuntimeError(f"{way}: a worker cannot begin: {event.value}")
        if time.monotonic() > until:
            raise RuntimeError(f"{way}: {ready} of {workers} workers began within {PATIENCE:g} s: {engine.waits_for()}")


def do(engine, way, parts):
    """All parts, by workers that are ready."""
    left, flying = list(reversed(parts)), 0
    while left or flying:
        while left and engine.free():
            engine.begin(left.pop())
            flying += 1
        event = engine.wait(5)
        if event.kind not in ("done", "nothing"):
            raise RuntimeError(f"{way}: a part {event.kind}: {event.value}")
        flying -= event.kind == "done"


def ours(folder, way, lines, realtime):
    from tfmc.corpus import Settings, _engines, parts
    with tempfile.TemporaryDirectory() as scratch:
        given, output = os.path.join(scratch, "a.jsonl"), pathlib.Path(scratch, "out")
        with open(given, "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in lines)
        size = max(16384, os.path.getsize(given) // 16)  # of a part: 8 for each worker, or so
        (output / "_job").mkdir(parents=True)
        threads, workers = (2, 1) if way == "here" else (1, 2)
        settings = Settings("embed", folder, None, "text", (), "jsonl", size, True, {}, None, threads)
        engine, todo = _engines.ENGINES[way](settings, output, workers), parts(given, part_bytes=size)
        with contextlib.closing(engine):
            begun(engine, way, workers)
            if way == "here":
                pids = {os.getpid()}
            elif way == "processes":
                pids = {child.process.pid for child in engine.children}
            else:
                names = {p: pathlib.Path(f"/proc/{p}/cmdline").read_bytes() for p in descendants(os.getpid())}
                pids = {p for p, name in names.items() if name.startswith(b"ray::_Actor")}
            timed(len(lines), lambda: do(engine, way, todo), pids, realtime, way)


def peer(folder, way, given, realtime):
    import sentence_transformers
    model, rows = sentence_transformers.SentenceTransformer(folder, device="cpu"), len(given)
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    model.encode(given[:200], pool=pool, chunk_size=100)
    pids = {process.pid for process in pool["processes"]}
    chunk = max(500, min(5000, rows // 20))
    timed(rows, lambda: model.encode(given, pool=pool, chunk_size=chunk, batch_size=32), pids, realtime, way)
    model.stop_multi_process_pool(pool)


class Actor:
    """What map_batches calls, with the times of each batch: Ray Data computes ahead of whoever reads."""

    def __init__(self, folder, is_peer):
        if is_peer:  # what is written for map_batches with sentence-transformers
            import sentence_transformers
            import torch
            torch.set_num_threads(1)
            model = sentence_transformers.SentenceTransformer(folder, device="cpu")
            self.made = lambda batch: {**batch, "embedding": model.encode(list(batch["text"]), batch_size=32)}
        else:
            import tfmc.ray
            self.made = tfmc.ray.Embedder(folder)

    def __call__(self, batch):
        import numpy
        begin, cpu = time.time(), time.process_time()
        made = self.made(batch)
        facts = [os.getpid(), begin, time.time(), time.process_time() - cpu, cpu_and_peak([os.getpid()])[1]]
        return {**made, "facts": numpy.tile(facts, (len(batch["text"]), 1))}


def ray_data(folder, way, lines, realtime):
    import ray
    import ray.data
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    if realtime:
        for pid in descendants(os.getpid()):  # what they start runs so too
            subprocess.run(["chrt", "-a", "-p", "-f", "50", str(pid)], check=False)
    size = max(250, min(1024, len(lines) // 20))
    given = [{"text": text} for text in lines]
    made = ray.data.from_items(given, override_num_blocks=-(-len(lines) // size)).map_batches(
        Actor, fn_constructor_args=(folder, way == "peer-ray-data"), batch_size=size, num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=2))
    batches = {}
    for row in made.iter_rows():
        batches.setdefault(tuple(row["facts"]), 0)
        batches[tuple(row["facts"])] += 1
    seen, counted = set(), []
    for facts, count in sorted(batches.items(), key=lambda item: item[0][1]):
        if facts[0] in seen:  # the first batch of an actor warms it
            counted.append((count, *facts))
        seen.add(facts[0])
    count, seconds = sum(row[0] for row in counted), max(row[3] for row in counted) - min(row[2] for row in counted)
    print(json.dumps({"way": way, "rows": count, "rows_per_second": round(count / seconds, 1),
                      "rows_per_cpu_second": round(count / sum(row[4] for row in counted), 1),
                      "peak_mb": round(max(row[5] for row in counted))}), flush=True)
    ray.shutdown()


WAYS = {"here": ours, "processes": ours, "ray": ours, "ray-data": ray_data, "peer": peer, "peer-ray-data": ray_data}
BESIDE = [("processes", "here"), ("ray", "here"), ("processes", "peer"), ("ray", "peer"), ("ray", "peer-ray-data"),
          ("ray-data", "peer-ray-data")]


def one(given):
    """A way, in this process."""
    try:
        __import__("sentence_transformers" if given.way.startswith("peer") else "tfmc.text")
        WAYS[given.way](given.folder, given.way, texts(given), given.realtime)
    except ImportError as error:
        print(f"not run: {given.way}: {error}", file=sys.stderr)
        return 77
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        print(f"corpus.py: error: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def main(given):
    pythons = dict(item.split("=", 1) for item in given.python)
    ways, made, failed = given.ways.split(","), {}, set()
    for n in range(given.rounds):
        for way in random.sample(ways, len(ways)):
            command = [pythons.get(way, sys.executable), __file__, given.folder, f"--way={way}",
                       f"--sentences={given.sentences}", f"--round={n}", *["--realtime"] * given.realtime]
            command += [f"--texts={given.texts}"] * bool(given.texts)
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith('{"way"')]
            if done.returncode == 77:
                ways.remove(way)
            elif done.returncode or not lines:
                print(f"{way} ended with {done.returncode}", file=sys.stderr)
                failed.add(way)
            else:
                print(lines[-1], flush=True)
                made.setdefault(way, []).append(json.loads(lines[-1]))
    middle = {way: {key: statistics.median(run[key] for run in runs) for key in runs[0] if key != "way"}
              for way, runs in made.items()}
    for way in filter(middle.get, WAYS):
        print(f"{way}: {middle[way]['rows_per_second']:.0f} rows/s, {middle[way]['rows_per_cpu_second']:.0f} rows a "
              f"second of CPU, {middle[way]['peak_mb']:.0f} MB")
    for way, other in BESIDE:
        if way in middle and other in middle:
            rows, peak = (middle[way][key] / middle[other][key] for key in ("rows_per_second", "peak_mb"))
            print(f"{way} beside {other}: {rows:.2f} of its rows a second, {peak:.2f} of its peak memory")
    return 1 if failed else 0


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("folder", type=os.path.abspath)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--texts", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--python", action="append", default=[], metavar="WAY=PYTHON")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--round", type=int, default=0, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    sys.exit(one(settings) if settings.way else main(settings))
