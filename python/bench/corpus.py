#!/usr/bin/env python3
"""Rows a second of a corpus: usage: corpus.py FOLDER WAY [SENTENCES] [REALTIME]

FOLDER: a sentence encoder (all-MiniLM-L6-v2). WAY: here (one process, two threads), processes or ray (two workers of one
thread), peer (sentence-transformers' pool of two processes of one thread). Sentences have 3 words and more, 20 in the
mean, in parts of 16 KB of JSON lines. Workers are made, and warm, before the clock starts; tokenising, reading and
writing are counted. REALTIME: all processes of this one run before everything else, so that a loaded machine measures
them too (as root, for seconds only). Printed: rows a second of clock and of CPU, and the peak memory of a worker. It measures, and is
not a test.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

WORDS = "the model reads a row of tokens and writes one vector for each text that it was given in Rome by train".split()


def texts(count):
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
                      "rows_per_cpu_second": round(rows / max(after - before, 1e-9), 1), "peak_mb": round(peak)}))


def ours(folder, way, rows, realtime):
    from tfmc.corpus import Settings, _engines, parts
    with tempfile.TemporaryDirectory() as scratch:
        given, output = os.path.join(scratch, "a.jsonl"), pathlib.Path(scratch, "out")
        with open(given, "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts(rows))
        (output / "_job").mkdir(parents=True)
        threads, workers = (2, 1) if way == "here" else (1, 2)
        settings = Settings("embed", folder, None, "text", (), "jsonl", 16384, True, {}, None, threads)
        engine = _engines.ENGINES[way](settings, output, workers)
        ready, todo = 0, parts(given, part_bytes=16384)
        while ready < workers:
            ready += engine.wait(1).kind == "ready"
        if way == "here":
            pids = {os.getpid()}
        elif way == "processes":
            pids = {child.process.pid for child in engine.children}
        else:
            names = {p: pathlib.Path(f"/proc/{p}/cmdline").read_bytes() for p in descendants(os.getpid())}
            pids = {p for p, name in names.items() if name.startswith(b"ray::_Actor")}

        def work():
            left, flying = list(reversed(todo)), 0
            while left or flying:
                while left and engine.free():
                    engine.begin(left.pop())
                    flying += 1
                event = engine.wait(5)
                assert event.kind in ("done", "nothing"), event
                flying -= event.kind == "done"
        timed(rows, work, pids, realtime, way)
        engine.close()


def peer(folder, rows, realtime):
    import sentence_transformers
    model, given = sentence_transformers.SentenceTransformer(folder, device="cpu"), texts(rows)
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    model.encode(given[:200], pool=pool, chunk_size=100)
    pids = {process.pid for process in pool["processes"]}
    timed(rows, lambda: model.encode(given, pool=pool, chunk_size=500, batch_size=32), pids, realtime, "peer")
    model.stop_multi_process_pool(pool)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    path, kind, *more = sys.argv[1:]
    count, first = int(more[0]) if more else 2000, len(more) > 1
    if kind == "peer":
        peer(path, count, first)
    else:
        ours(path, kind, count, first)
