#!/usr/bin/env python3
"""How many digits sums of long rows keep, forward and in gradients, beside PyTorch in f32.

usage: long_sums.py TFMC [--length N ...] [--only NAME ...] [--forward | --gradients] [--kind KIND ...] [--march SET]

In: the compiler. Out: for each operation, length and kind of numbers the greatest difference from PyTorch in double of
ours and of PyTorch's f32, and whether ours is at most three times PyTorch's or 1e-6, whichever is larger; the last line
is 'N entries, N above', the exit code 1 if any is. Operations with an axis are taken along rows, columns and a middle
axis, and each operation alone and fused: of 0.5 x, its result taken off 3. Differences are relative to the greatest
number of the result, for norms to 1 if that is greater (their results are of that size). Gradients are of the sum of
the results with random factors, to the numbers of the row and to the weights of norms, as `tfmc train --gradients` writes
them. Needs torch. Length 10,000,000 takes 6 GB of memory and an hour.
"""
import argparse
import collections
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

Entry = collections.namedtuple("Entry", "text function weights norm", defaults=({}, False))

# Along an axis. name -> (text of X and AXIS, the same by torch of x and axis, whether results are about 1).
ALONG = {
    "sum": ("sum(X, AXIS)", lambda x, d: x.sum(d), False),
    "mean": ("mean(X, AXIS)", lambda x, d: x.mean(d), False),
    "mean of squares": ("mean(X * X, AXIS)", lambda x, d: (x * x).mean(d), False),
    "normalize": ("normalize(X, AXIS)", lambda x, d: F.normalize(x, dim=d), True),
    "cosine_similarity": ("cosine_similarity(X, X * X + 0.5, AXIS)", lambda x, d: F.cosine_similarity(x, x * x + 0.5, dim=d), False),
    "softmax": ("softmax(X, axis = AXIS)", lambda x, d: x.softmax(d), False),
    "log_softmax": ("log_softmax(X, axis = AXIS)", lambda x, d: x.log_softmax(d), False),
    "logsumexp": ("logsumexp(X, AXIS)", lambda x, d: x.logsumexp(d), False),
    "layer_norm": ("by_rows(layer_norm(by_rows(X), none, none, 1e-5))", lambda x, d: F.layer_norm(
        x.movedim(d, -1), [x.shape[d]]).movedim(-1, d), True),
    "rms_norm": ("by_rows(rms_norm(by_rows(X), none, 1e-5))", lambda x, d: F.rms_norm(
        x.movedim(d, -1), [x.shape[d]], eps=1e-5).movedim(-1, d), True),
}
# Where the row of four lies: its shape, the axis of the numbers, the way from [4, n], and what brings that axis behind.
PLACES = {
    "": ("4, n", 1, lambda x: x, "Y"),
    " of columns": ("n, 4", 0, lambda x: x.T, "transpose(Y, 0, 1)"),
    " of a middle axis": ("2, n, 2", 1, lambda x: x.reshape(2, 2, -1).swapaxes(1, 2), "transpose(Y, 1, 2)"),
}
LABELS = {"full_labels": "i32(full([4], 5))", "rows_of_it": "i32(full([n], 0))"}


def images(function):
    """Of rows [4, n] as 4 channels of an image."""
    return lambda x, *weights: function(x[None], *weights)[0]


def channels(x, w=None, b=None):
    """What a batch norm in training computes, of 2 items with 2 channels each."""
    return F.batch_norm(x.reshape(2, 2, -1), None, None, w, b, training=True).reshape(x.shape)


# Of rows [4, n] as they are. `norm`: results are about 1.
OTHERS = {
    "group_norm": Entry("group_norm(X[none], 2, w, b, 1e-5)[0]", images(lambda x, w, b: F.group_norm(x, 2, w, b)), {"w": 4, "b": 4}, True),
    "instance_norm": Entry("instance_norm(X[none], w, b, 1e-5)[0]", images(lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
                           {"w": 4, "b": 4}, True),
    "batch_norm": Entry("batch_norm(X[none], full([4], 0.5), full([4], 4), w, b)[0]", images(lambda x, w, b: F.batch_norm(
        x, torch.full((4,), 0.5).to(x), torch.full((4,), 4.0).to(x), w, b)), {"w": 4, "b": 4}, True),
    "batch_norm of the batch": Entry(
        "reshape(transpose(layer_norm(reshape(transpose(reshape(X, [2, 2, n]), 0, 1), [2, 2 * n]), none, none, 1e-5) * "
        "w[:, none] + b[:, none] -> reshape([2, 2, n]), 0, 1), [4, n])", channels, {"w": 2, "b": 2}, True),
    "layer_norm, its weights": Entry("layer_norm(transpose(X, 0, 1), w, b, 1e-5)", lambda x, w, b: F.layer_norm(x.T, [4], w, b),
                                     {"w": 4, "b": 4}, True),
    "rms_norm, its weights": Entry("rms_norm(transpose(X, 0, 1), w, 1e-5)", lambda x, w: F.rms_norm(x.T, [4], w, 1e-5), {"w": 4}, True),
    "cross_entropy of classes": Entry("cross_entropy(X, full_labels, reduction = \"none\")", lambda x: F.cross_entropy(
        x, torch.full((4,), 5), reduction="none")),
    "cross_entropy of rows": Entry("cross_entropy(transpose(X, 0, 1), rows_of_it)", lambda x: F.cross_entropy(
        x.T, torch.zeros(x.shape[1], dtype=torch.int64))),
    "cross_entropy, sum": Entry("cross_entropy(transpose(X, 0, 1), rows_of_it, reduction = \"sum\")", lambda x: F.cross_entropy(
        x.T, torch.zeros(x.shape[1], dtype=torch.int64), reduction="sum")),
    "mean_pooling": Entry("mean_pooling(transpose(X, 0, 1)[none])", lambda x: x.mean(-1)[None]),
    "mean_pooling, padded": Entry("mean_pooling(transpose(X, 0, 1)[none], (arange(n) >= n - n // 3)[none])",
                                  lambda x: x[:, :x.shape[1] - x.shape[1] // 3].mean(-1)[None]),
}
KINDS = {
    "normal": lambda n, rng: rng.standard_normal((4, n), np.float32),
    "offset 30": lambda n, rng: rng.standard_normal((4, n), np.float32) + np.float32(30),
    "offset 1000": lambda n, rng: rng.standard_normal((4, n), np.float32) + np.float32(1000),
    "uniform + 200": lambda n, rng: rng.random((4, n), np.float32) + np.float32(200),
    "near equal": lambda n, rng: np.float32([[0.7], [0.9048], [3.3], [100.3]]) + rng.random((4, n), np.float32) * np.float32(1e-3),
    "equal": lambda n, rng: np.repeat(np.float32([[0.1], [0.9048], [3.3], [100.3]]), n, 1),
}


def entries():
    """name -> (Entry, its shape, the way of x to it)."""
    found = {}
    for name, (text, function, norm) in ALONG.items():
        for place, (shape, axis, way, behind) in PLACES.items():
            made = text.replace("AXIS", str(axis))
            while (at := made.find("by_rows(")) >= 0:
                end, depth = at + 8, 1
                while depth:
                    depth += {"(": 1, ")": -1}.get(made[end], 0)
                    end += 1
                made = made[:at] + behind.replace("Y", made[at + 8:end - 1]) + made[end:]
            found[name + place] = Entry(made, lambda x, function=function, axis=axis: function(x, axis), {}, norm), shape, way
    for name, entry in OTHERS.items():
        found[name] = entry, *PLACES[""][::2]
    for name, (entry, shape, way) in list(found.items()):
        fused = entry._replace(text=f"3 - {entry.text.replace('X', '(0.5 * X)')}", norm=entry.norm,
                               function=lambda x, *w, f=entry.function: 3 - f(0.5 * x, *w))
        found[f"{name}, fused"] = fused, shape, way
    return found


def labelled(text):
    for name, made in LABELS.items():
        text = text.replace(name, made)
    return text.replace("X", "x")


def run(tfmc, verb, text, tensors, march):
    with tempfile.TemporaryDirectory() as folder:
        path, given, out = (os.path.join(folder, name) for name in ("m.tfm", "in.safetensors", "out.safetensors"))
        with open(path, "w") as f:
            f.write(text)
        save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, given)
        options = ["--inputs", given, "--output", out] if verb == "run" else ["--batches", given, "--gradients", "-o", out]
        done = subprocess.run([tfmc, verb, path, *options, *march], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{text}\n{done.stderr}")
        return load_file(out)


def weights_of(entry, kind):
    return [torch.full((n,), float(name == "w"), dtype=kind, requires_grad=True) for name, n in entry.weights.items()]


def forward(tfmc, name, entry, shape, x, march):
    """(what, ours, torch's f32, double)"""
    made = " ".join(f"{one} = full([{n}], {float(one == 'w')})" for one, n in entry.weights.items())
    text = f"model M(n = {max(x.shape)}) {{ forward(x: f32[{shape}]) {{ {made} return y = {labelled(entry.text)} }} }}\n"
    got = run(tfmc, "run", text, {"x": x}, march)["y"]
    with torch.no_grad():
        single, exact = (entry.function(torch.from_numpy(x).to(k), *weights_of(entry, k)).numpy() for k in (torch.float32, torch.float64))
    yield name, got, single, exact


def gradients(tfmc, name, entry, shape, x, march):
    given = torch.from_numpy(x)
    with torch.no_grad():
        factor = np.random.default_rng(3).standard_normal(
            entry.function(given, *weights_of(entry, torch.float32)).shape).astype(np.float32)
    axes = ", ".join(map(str, factor.shape))
    total = f"({labelled(entry.text)}) * c[0]"
    for _ in factor.shape:
        total = f"sum({total})"
    weights = "".join(f"  weight {one}: [{n}] = {float(one == 'w')}\n" for one, n in entry.weights.items())
    model = (f"model M(n = {max(x.shape)}) {{\n  weight v: [{shape}] = 0.0\n{weights}  forward(x: f32[{shape}]) {{ return y = x + v }}\n"
             f"  fn objective(z: f32[batch, {shape}], c: f32[batch{', ' if axes else ''}{axes}]) {{\n    x = forward(z[0])\n"
             f"    return loss = {total}\n  }}\n  train objective {{ optimizer = \"sgd\"  lr = 1.0 }}\n}}\n")
    got = run(tfmc, "train", model, {"z": x[None], "c": factor[None]}, march)
    made = []
    for kind in (torch.float32, torch.float64):
        leaves = [given.detach().to(kind, copy=True).requires_grad_(), *weights_of(entry, kind)]
        (entry.function(*leaves) * torch.from_numpy(factor)).sum().backward()
        made.append([leaf.grad.numpy() for leaf in leaves])
    for one, single, exact in zip(("v", *entry.weights), *made):
        yield name if one == "v" else f"{name}, {one}", got[f"grad.{one}"], single, exact


def distance(got, want, least):
    return np.abs(got.astype(np.float64) - want).max() / max(np.abs(want).max(), least)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tfmc")
    parser.add_argument("--length", type=int, nargs="+", default=[4096, 65_536, 1_000_000])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="operations whose names begin so")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--march", help="an instruction set, as of -march")
    given = parser.parse_args()
    march = [f"-march={given.march}"] if given.march else []
    torch.set_num_threads(1)
    n_entries = n_above = 0
    ways = [w for w in (forward, gradients) if not (given.forward or given.gradients) or getattr(given, w.__name__)]
    for length in given.length:
        for kind in given.kind:
            rows = KINDS[kind](length, np.random.default_rng(1))
            for name, (entry, shape, way_to) in entries().items():
                if given.only and not name.startswith(tuple(given.only)):
                    continue
                x = np.ascontiguousarray(way_to(rows))
                for way in ways:
                    for what, ours, single, exact in way(given.tfmc, name, entry, shape, x, march):
                        least = 1 if entry.norm and way is forward else 1e-300
                        a, b = (distance(y, exact, least) for y in (ours, single))
                        above = not a <= max(3 * b, 1e-6)
                        n_entries, n_above = n_entries + 1, n_above + above
                        print(f"{length:9} {kind:14} {way.__name__:9} {what:42} {a:9.1e} {b:9.1e}{'  ABOVE' if above else ''}", flush=True)
    print(f"{n_entries} entries, {n_above} above")
    sys.exit(1 if n_above else 0)


if __name__ == "__main__":
    main()
