#!/usr/bin/env python3
"""tfmc.text.Embedder beside others: usage: embed.py FOLDER [ROUNDS] [--openvino] [--onnx] [--fastembed FOLDER]

FOLDER: a sentence encoder (all-MiniLM-L6-v2). Others: sentence-transformers with PyTorch; with its backends OpenVINO and
ONNX, whose packages it names if they are missing; fastembed, with a folder of onnx/model.onnx, which gives
last_hidden_state, and tokenizer.json. 1,000 texts of 1 to 60 words, tokenising included, in one process, in
turns; all may use the same CPUs. Printed: the best and the median time of each, the median of the ratios to tfmc's in the same
round, and whether the ten nearest texts of each text come in the same order, up to rounding: texts that are equal, or as
near as the vectors' differences, may change places. Needs sentence-transformers; it measures, and is not a test.
"""
import argparse
import functools
import os
import pathlib
import random
import statistics
import time

import numpy as np

WORDS = "the model reads a row of tokens and writes one vector for each text that it was given in Rome by train".split()


EXACT = {"openvino": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}}  # else it computes in bf16 where a CPU can


def texts(count=1000):
    choose = random.Random(5)
    return [" ".join(choose.choices(WORDS, k=choose.randint(1, 60))) for _ in range(count)]


def same_order(ours, theirs, count=10):
    """Whether the texts that are nearest by `theirs` come in their order by `ours` too, but for what rounding of f32 may change: the
    distance of two vectors moves a product with a vector of length 1 by that much at most."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    likeness, places = ours @ ours.T, np.argsort(-(theirs @ theirs.T), axis=1)[:, :count]
    best = -np.sort(-likeness, axis=1)[:, :count]
    rounding = min(1e-5, 4 * np.linalg.norm(ours - theirs, axis=1).max())
    return (np.abs(np.take_along_axis(likeness, places, axis=1) - best) <= rounding).all()


def fastembed_of(folder):
    import fastembed
    from fastembed.common.model_description import ModelSource, PoolingType
    fastembed.TextEmbedding.add_custom_model(model="own/model", pooling=PoolingType.MEAN, normalization=True, dim=384,
                                             sources=ModelSource(hf="own/model"), model_file="onnx/model.onnx")
    model = fastembed.TextEmbedding("own/model", specific_model_path=folder, threads=len(os.sched_getaffinity(0)))
    return lambda texts: np.stack(list(model.embed(texts, batch_size=32)))


def main(given):
    import sentence_transformers
    import torch
    import tfmc.text
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    encoders = {"tfmc": tfmc.text.Embedder(given.folder).encode}
    for name, backend, wanted in (("PyTorch", "torch", True), ("OpenVINO", "openvino", given.openvino), ("ONNX", "onnx", given.onnx)):
        if wanted:
            encoders[f"sentence-transformers, {name}"] = sentence_transformers.SentenceTransformer(
                str(given.folder), device="cpu", backend=backend, model_kwargs=EXACT.get(backend)).encode
    if given.fastembed:
        encoders["fastembed"] = fastembed_of(given.fastembed)
    rows = texts()
    runs = {name: functools.partial(encode, rows) for name, encode in encoders.items()}
    times = {name: [] for name in runs}
    made = {name: run() for name, run in runs.items()}
    for _ in range(given.rounds):
        for name in random.sample(list(runs), len(runs)):
            start = time.perf_counter()
            runs[name]()
            times[name].append(time.perf_counter() - start)
    for name, seconds in times.items():
        ratio = statistics.median(own / other for own, other in zip(times["tfmc"], seconds))
        same = same_order(made["tfmc"], made[name])
        print(f"{name}: best {min(seconds) * 1e3:.0f} ms, median {statistics.median(seconds) * 1e3:.0f} ms; tfmc takes "
              f"{ratio:.2f} of it; largest difference {np.abs(made[name] - made['tfmc']).max():.1e}, "
              f"nearest {'in the same order' if same else 'NOT in the same order'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("rounds", type=int, nargs="?", default=7)
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--fastembed", metavar="FOLDER")
    main(parser.parse_args())
