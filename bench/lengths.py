#!/usr/bin/env python3
"""tfmc beside other engines on encoders of a few to many tokens, in f32 and int8, and as multiples of the floor.

usage: lengths.py BUILD [--march SET] [--rounds N] [--only CASE ...] [--patience SECONDS]

BUILD has `tfmc` and `bench-compare`. Engines, workloads and turns are those of peers.py; int8 is ONNX Runtime's dynamic
quantization beside `--quantize=int8`. With --march of another instruction set than this CPU's best, what other engines use
is limited to it where they can be told (MKL, oneDNN, ATen, CTranslate2: AVX2); ONNX Runtime cannot, nor OpenVINO, whose times
lie under what AVX2 allows, and neither is run then.

Printed for each case: of the median times of a round, tfmc's over the best f32 peer's, and int8's over ONNX Runtime's; the
least time over the floor, which is what `tfmc bench` says is possible on this machine, measured before and after; and how far
medians are from the least, of tfmc and of that peer. Sentences of different lengths have no floor: it would count their padding.
It measures, and is no part of the tests; on an idle machine.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import peers
import peers_engines
import peers_models

CASES = [(f"bert{n}", "W1", [n], f"BERT-base, {n} tokens") for n in (16, 32, 128, 384)] + \
        [(f"minilm{n}", "W2", [n], f"MiniLM, {n} tokens") for n in (8, 16, 32, 128)] + \
        [("minilmbatch", "W2", peers_models.RAGGED, "MiniLM, 32 sentences")]
OURS = {"tfmc": [], "tfmc8": ["--quantize=int8"]}
F32 = ("torch", "ort", "openvino", "ct2")
NAMES = peers.ENGINES | {"tfmc8": "tfmc int8", "ort8": "ONNX Runtime int8"}
UNTOLD = ("ort", "ort8", "openvino")
LIMITS = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
          "ATEN_CPU_CAPABILITY": "avx2", "CT2_FORCE_CPU_ISA": "AVX2"}
MODELS = {"W1": ("bench/models/encoder.tfm", "Encoder", lambda n: [f"x=1x{n}x768"]),
          "W2": ("examples/minilm/minilm.tfm", "MiniLM", lambda n: [f"input_ids=1x{n}", f"attention_mask=1x{n}"])}
peers_models.CASES, peers.ENGINES = CASES, NAMES


def engine_ort8(given):
    """The optimized graph of engine_ort, its products with weights in 8 bits."""
    import onnxruntime.quantization as quantization
    peers_engines.engine_ort(given)
    path = f"{given.folder}/model.onnx"
    quantization.quantize_dynamic(path, path, weight_type=quantization.QuantType.QInt8,
                                  extra_options={"MatMulConstBOnly": True, "DefaultTensorType": 1})
    return peers_engines.ort_session(given, path)


peers_engines.engine_ort8 = engine_ort8


def is_narrow(march):
    return march in ("x86-64", "x86-64-v3", "x86-64-v3-vnni")


def start(given, workload, folder, workers):
    """Workers of the engines that can run; prints why the others cannot."""
    for engine in [*OURS, *F32, "ort8"]:
        if is_narrow(given.march) and engine in UNTOLD:
            print(f"not run: {NAMES[engine]}: it cannot be told to use {given.march} alone")
            continue
        program = [str(given.build / "bench-compare"), *([f"--march={given.march}"] if given.march else []), *OURS.get(engine, [])]
        own = [sys.executable, os.path.abspath(__file__), "--worker", engine]
        place = pathlib.Path(folder, engine)  # engines write files of one name
        place.mkdir()
        for file in pathlib.Path(folder).iterdir():
            if file.is_file():
                (place / file.name).symlink_to(file)
        worker = peers.Worker(engine, [*(program if engine in OURS else own), workload, str(place)], given.patience)
        if worker.failure:
            print(f"not run: {peers_models.MODELS[workload].title} by {NAMES[engine]}: {worker.failure}")
            worker.close()
        else:
            workers.append(worker)


def floor(given, workload, lengths, quantize):
    """Seconds of a run, each step bound by the machine's arithmetic or its memory; None for different lengths."""
    file, model, inputs = MODELS[workload]
    if len(lengths) > 1:
        return None
    command = [given.build / "tfmc", "bench", file, f"--model={model}", "--random-weights=1", "--iterations=1", "--warmup=0", "--json",
               f"--threads={peers_models.THREADS}", *[f"--input={text}" for text in inputs(lengths[0])], *quantize]
    done = subprocess.run(command + ([f"-march={given.march}"] if given.march else []), cwd=peers_models.PROJECT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["roofline_seconds"]


def cells(times, floors):
    """Of a case: tfmc over the best peer, least over floor, int8's the same two, median over least of tfmc and that peer."""
    median = {engine: [statistics.median(burst) for burst in bursts] for engine, bursts in times.items()}
    least = {engine: min(min(burst) for burst in bursts) for engine, bursts in times.items()}
    ratio = lambda a, b: f"{statistics.median(x / y for x, y in zip(median[a], median[b])):.2f}" if b in median else "not run"
    spread = lambda engine: f"{statistics.median(median[engine]) / least[engine]:.2f}"
    of_floor = lambda engine: f"{least[engine] / floors[engine]:.2f}" if floors[engine] else "–"
    known = [engine for engine in F32 if engine in median]
    best = min(known, key=lambda engine: statistics.median(median[engine]), default=None)
    return [f"{ratio('tfmc', best)} ({NAMES[best]})" if best else "not run", of_floor("tfmc"), ratio("tfmc8", "ort8"), of_floor("tfmc8"),
            f"{spread('tfmc')}; {spread(best) if best else '–'}"]


def measure(np, given, workload, cases, rows):
    from safetensors.numpy import save_file
    workers = []
    with tempfile.TemporaryDirectory() as folder:
        peers_models.write_folder(np, save_file, workload, folder)
        try:
            start(given, workload, folder, workers)
            for case, _, lengths, title in cases:
                probe = lambda: {engine: floor(given, workload, lengths, quantize) for engine, quantize in OURS.items()}
                before = probe()
                times, far = peers.measure(np, case, workload, workers, folder, given.rounds)
                after = probe()
                peers.summarize(title, times, far)
                rows[title] = cells(times, {e: before[e] and min(before[e], after[e]) for e in OURS})
        finally:
            for worker in workers:
                worker.close()


def main():
    if sys.argv[1:2] == ["--worker"]:
        return peers_engines.work(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--march")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--patience", type=float, default=600)
    parser.add_argument("--only", nargs="*", choices=[case[0] for case in CASES], default=[case[0] for case in CASES])
    given = parser.parse_args()
    if peers.lacks_packages():
        return 77
    import numpy as np
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # workers must not stay behind, least of all stopped
    if is_narrow(given.march):
        os.environ.update(LIMITS)
    rows = {}
    for workload in MODELS:
        cases = [case for case in CASES if case[1] == workload and case[0] in given.only]
        if cases:
            measure(np, given, workload, cases, rows)
    print(f"\n{peers.machine()}, {given.march or 'the best instruction set'}\n{peers.versions()}\n{given.rounds} rounds")
    print("\n| | f32 / best f32 peer | least / floor | int8 / ONNX Runtime int8 | int8: least / floor | median / least, tfmc; peer |")
    print("|---|---|---|---|---|---|")
    for title, row in rows.items():
        print(f"| {title} | " + " | ".join(row) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
