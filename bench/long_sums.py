#!/usr/bin/env python3
"""How many digits sums of long rows keep, forward and in gradients, beside PyTorch in f32.

usage: long_sums.py TFMC [--length N ...] [--only NAME ...] [--forward | --gradients] [--march SET]

In: the compiler. Out: for each operation, length and kind of numbers the greatest difference from PyTorch in double of
ours and of PyTorch's f32, and whether ours is at most three times PyTorch's or 1e-6, whichever is larger; the last line
is 'N entries, N above', the exit code 1 if any is. Differences are relative to the greatest number of the result, or to 1
for norms (as their results are) and to each number for means and losses of equal terms. Gradients are of the sum of the
results with random weights, by a step of plain SGD from 0 that is added to the row. Needs torch. Length 10,000,000 takes
2 GB of memory and minutes.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file


def images(function):
    """Of rows [4, n] as 4 channels of an image."""
    return lambda x: function(x[None])[0]


# name -> (text of x: [4, n], the same by torch)
NORMS = {
    "layer_norm": ("layer_norm(x, none, none, 1e-5)", lambda x: F.layer_norm(x, x.shape[-1:])),
    "rms_norm": ("rms_norm(x, none, 1e-5)", lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5)),
    "group_norm": ("group_norm(x[none], 2, none, none, 1e-5)[0]", images(lambda x: F.group_norm(x, 2))),
    "instance_norm": ("instance_norm(x[none], none, none, 1e-5)[0]", images(lambda x: F.instance_norm(x))),
    "normalize": ("normalize(x)", lambda x: F.normalize(x, dim=-1)),
    "norm of columns": ("transpose(layer_norm(transpose(x, 0, 1), none, none, 1e-5), 0, 1)",
                        lambda x: F.layer_norm(x.T, x.shape[:1]).T),
}
SUMS = {
    "mean": ("mean(x)", lambda x: x.mean(-1)),
    "mean of columns": ("mean(transpose(x, 0, 1), 0)", lambda x: x.T.mean(0)),
    "softmax": ("softmax(x)", lambda x: x.softmax(-1)),
    "log_softmax": ("log_softmax(x)", lambda x: x.log_softmax(-1)),
    "logsumexp": ("logsumexp(x)", lambda x: x.logsumexp(-1)),
    "softmax of columns": ("transpose(softmax(transpose(x, 0, 1), axis = 0), 0, 1)", lambda x: x.softmax(-1)),
    "cross_entropy of classes": ("cross_entropy(x, full_labels, reduction = \"none\")", lambda x: F.cross_entropy(
        x, torch.full((4,), 5), reduction="none")),
    "cross_entropy of rows": ("cross_entropy(transpose(x, 0, 1), rows_of_it)", lambda x: F.cross_entropy(
        x.T, torch.zeros(x.shape[1], dtype=torch.int64))),
    "cosine_similarity": ("cosine_similarity(x, x * x + 0.5)", lambda x: F.cosine_similarity(x, x * x + 0.5, dim=-1)),
    "mean_pooling": ("mean_pooling(transpose(x, 0, 1)[none])", lambda x: x.mean(-1)[None]),
}
LABELS = {"full_labels": "i32(full([4], 5))", "rows_of_it": "i32(full([n], 0))"}
KINDS = {
    "normal": lambda n, rng: rng.standard_normal((4, n), np.float32),
    "offset 30": lambda n, rng: rng.standard_normal((4, n), np.float32) + np.float32(30),
    "offset 1000": lambda n, rng: rng.standard_normal((4, n), np.float32) + np.float32(1000),
    "uniform + 200": lambda n, rng: rng.random((4, n), np.float32) + np.float32(200),
    "near equal": lambda n, rng: np.float32([[0.7], [0.9048], [3.3], [100.3]]) + rng.random((4, n), np.float32) * np.float32(1e-3),
    "equal": lambda n, rng: np.repeat(np.float32([[0.1], [0.9048], [3.3], [100.3]]), n, 1),
}


def run(tfmc, verb, text, tensors, march):
    with tempfile.TemporaryDirectory() as folder:
        path, given, out = (os.path.join(folder, name) for name in ("m.tfm", "in.safetensors", "out.safetensors"))
        with open(path, "w") as f:
            f.write(text)
        save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, given)
        options = ["--inputs", given, "--output", out] if verb == "run" else ["--batches", given, "--steps=1", "-o", out]
        done = subprocess.run([tfmc, verb, path, *options, *march], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{text}\n{done.stderr}")
        return load_file(out)


def labelled(text):
    for name, made in LABELS.items():
        text = text.replace(name, made)
    return text


def forward(tfmc, names, x, march):
    """name -> ours, torch's f32 and double."""
    results = ", ".join(f"y{i} = {labelled(text)}" for i, (text, _) in enumerate(names.values()))
    got = run(tfmc, "run", f"model M() {{ forward(x: f32[4, n]) {{ return {results} }} }}\n", {"x": x}, march)
    single = torch.from_numpy(x)
    for i, (name, (_, function)) in enumerate(names.items()):
        yield name, got[f"y{i}"], function(single).numpy(), function(single.double()).numpy()


def gradients(tfmc, names, x, march):
    n, single = x.shape[1], torch.from_numpy(x)
    for name, (text, function) in names.items():
        factor = np.random.default_rng(3).standard_normal(function(single).shape).astype(np.float32)
        axes = ", ".join(map(str, factor.shape))
        total = f"{labelled(text)} * c[0]"
        for _ in factor.shape:
            total = f"sum({total})"
        model = (f"model M(n = {n}) {{\n  weight v: [4, n] = 0.0\n  forward(x: f32[4, n]) {{ return y = x + v }}\n"
                 f"  fn objective(z: f32[batch, 4, {n}], c: f32[batch{', ' if axes else ''}{axes}]) {{\n    x = forward(z[0])\n"
                 f"    return loss = {total}\n  }}\n  train objective {{ optimizer = \"sgd\"  lr = 1.0 }}\n}}\n")
        got = run(tfmc, "train", model, {"z": x[None], "c": factor[None]}, march)["after.v"]
        made = []
        for kind in (torch.float32, torch.float64):
            row = single.detach().to(kind, copy=True).requires_grad_()
            (function(row) * torch.from_numpy(factor)).sum().backward()
            made.append(row.grad.numpy())
        yield name, -got, *made


def distance(name, got, want):
    away = np.abs(got.astype(np.float64) - want)
    if name in NORMS:
        return away.max() / max(1, np.abs(want).max())
    return away.max() / max(np.abs(want).max(), 1e-300)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tfmc")
    parser.add_argument("--length", type=int, nargs="+", default=[4096, 65_536, 1_000_000])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--march", help="an instruction set, as of -march")
    given = parser.parse_args()
    names = {name: made for name, made in {**NORMS, **SUMS}.items() if not given.only or name in given.only}
    march = [f"-march={given.march}"] if given.march else []
    torch.set_num_threads(1)
    n_entries = n_above = 0
    for length in given.length:
        for kind, make in KINDS.items():
            x = make(length, np.random.default_rng(1))
            for way in [w for w in (forward, gradients) if not (given.forward or given.gradients) or getattr(given, w.__name__)]:
                for name, ours, single, exact in way(given.tfmc, names, x, march):
                    a, b = ((np.abs(y.astype(np.float64) - exact).max() if name in NORMS and way is forward else
                             distance("", y, exact)) for y in (ours, single))
                    above = a > max(3 * b, 1e-6)
                    n_entries, n_above = n_entries + 1, n_above + above
                    print(f"{length:9} {kind:14} {way.__name__:9} {name:25} {a:9.1e} {b:9.1e}{'  ABOVE' if above else ''}", flush=True)
    print(f"{n_entries} entries, {n_above} above")
    sys.exit(1 if n_above else 0)


if __name__ == "__main__":
    main()
