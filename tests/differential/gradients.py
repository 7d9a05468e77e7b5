#!/usr/bin/env python3
"""Gradients of random models: compiled code, fused and not, for three instruction sets in turn, against the reference interpreter;
bits with and without the rows that nothing needs; and the interpreter against central differences along a random direction.

usage: gradients.py TFMC [--count N] [--seed S] [--keep FOLDER]

A model is a chain of random layers on [batch, time, 6] with a loss of one to three parts, all of them smooth. Every weight
w stands as w + h * dw, h and dw being inputs, and the loss is multiplied by the input c: batches of different h and c add
up to a central difference in one run of `tfmc evaluate`. Gradients must agree within 1e-5 of the largest. Some models magnify
rounding (powers of powers before a softmax): where a difference is larger, the interpreter computes them again with weights and
inputs rounded otherwise, by up to one part in 2^24, and the difference may be ROUNDINGS times what that changes, but in no case
more than 1e-4 of the largest. Such models are counted and printed, and central differences are not taken of them. The last line is 'N passed, N failed'; a model that fails is
kept in --keep. Needs Python's own library alone.
"""
import argparse
import array
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

D, HEADS, ROWS = 6, 2, 9
STEPS = 0.02, 0.004  # of central differences: rounding spoils the second less often than curvature the first
SAME, MOST, DIFFERENCE = 1e-5, 1e-4, 2e-3  # of the largest gradient, twice; of the gradient's length
ROUNDINGS = 4
TYPES = {"F32": "f", "I32": "i", "BOOL": "B"}


def write_tensors(path, tensors):
    """tensors: {name: (dtype, shape, numbers)}"""
    header, data = {}, b""
    for name, (dtype, shape, numbers) in sorted(tensors.items(), key=lambda item: item[1][0] == "BOOL"):
        packed = array.array(TYPES[dtype], numbers).tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return {name: array.array("f", data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
            for name, e in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


class Program:
    def __init__(self, rng):
        self.rng, self.weights, self.lines = rng, {}, []
        x = "x"
        for i in range(rng.randint(1, 4)):
            self.lines.append(f"h{i} = {self.layer(x)}")
            x = f"h{i}"
        parts = [self.part(x) for _ in range(rng.randint(1, 3))]
        self.loss = " + ".join(f"{rng.choice(['', '0.5 * ', '2 * '])}({p})" for p in parts)

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        self.weights[name] = list(shape)
        return f"({name} + h * d_{name})"

    def layer(self, x):
        w, rng = self.weight, self.rng
        unary = ["tanh(X)", "sigmoid(X)", "sin(X)", "cos(X)", "erf(X)", "gelu(X)", "gelu_tanh(X)", "silu(X)", "quick_gelu(X)",
                 "exp(X * 0.3)", "log(X * X + 1)", "sqrt(X * X + 1)", "rsqrt(X * X + 1)", "(X * X + 1) ** 1.5", "X ** 3 * 0.1",
                 "softmax(X) * 4", "softmax(X, axis = 1) * 4", "log_softmax(X)", "log_softmax(X, axis = 1) * 0.3", "X - mean(X, -1, true)",
                 "X - mean(X, 1, true)", "X / (sum(X * X, -1, true) + 1)", "cumsum(X) * 0.3", "cumsum(X, axis = 1) * 0.3", "flip(X)",
                 "roll(X, 2)", "concat(X[..., 3:], X[..., :3])", "concat(X[..., ::2], X[..., 1::2])",
                 "transpose(reshape(X, [shape(X, 0), shape(X, 1), 3, 2]), 2, 3) -> reshape([shape(X, 0), shape(X, 1), 6])",
                 "where(mask[..., none], X, -X * 0.5)", "stop_gradient(X) * 0.3 + X", "rotary(X, positions(X, 1))",
                 "rotary(X, positions(X, 1), layout = \"interleaved\")",
                 "layer_norm(X, none, none, 1e-2)", "rms_norm(X, none, 1e-2)", "stack(X, X * X, axis = 0)[1] * 0.3"]
        others = [
            lambda: f"linear(X, {w(D, D)}, {w(D)})", lambda: f"linear(tanh(linear(X, {w(10, D)})), {w(D, 10)})",
            lambda: f"X @ {w(D, D)}", lambda: f"X * {w(D)} + {w(1)}", lambda: f"X / ({w(D)} ** 2 + 1)", lambda: f"X - {w(ROWS, D)}[ids]",
            lambda: f"X + {w(ROWS, D)}[positions(X, 1)]", lambda: f"layer_norm(X, {w(D)}, {w(D)}, 1e-2)",
            lambda: f"rms_norm(X, {w(D)}, 1e-2)", lambda: f"gather(X, picks[..., none], axis = -1) * {w(D)}",
            lambda: f"softmax(X @ transpose(X * {w(D)}, -1, -2) * 0.4) @ X",
            lambda: (f"merge_heads(softmax(where(causal_mask(X, X), -inf, split_heads(X @ {w(D, D)}, {HEADS}) @ "
                     f"transpose(split_heads(X, {HEADS}), -1, -2) * 0.6)) @ split_heads(linear(X, {w(D, D)}), {HEADS}))"),
            lambda: (f"merge_heads(softmax(where(pad[:, none, none, :], -inf, split_heads(X @ {w(D, D)}, {HEADS}) @ "
                     f"transpose(split_heads(X, {HEADS}), -1, -2))) @ split_heads(X, {HEADS}))"),
            lambda: f"where(mask[..., none], X * {w(D)}, {w(D)})", lambda: f"where(pad[..., none], 0.0, linear(X, {w(D, D)}))",
            lambda: f"linear(where(mask[..., none], X, 0.0), {w(D, D)})",
            lambda: f"linear(X * f32(mask)[..., none], {w(D, D)}) * f32(mask)[..., none]",
            lambda: f"concat(X[:, :1], linear(X[:, 1:], {w(D, D)}), axis = 1)"]
        text = rng.choice(unary) if rng.random() < 0.4 else rng.choice(others)()
        text = text.replace("X", x)
        return f"{x} + ({text})" if rng.random() < 0.5 else text

    def part(self, x):
        return self.rng.choice([
            lambda: f"sum(sum(sum({x} * y))) * 0.1", lambda: f"mean(mean(mean({x} * {x})))", lambda: f"mean(sum(mean({x} * y)))",
            lambda: f"sum(sum(mean({x} * y) * f32(mask))) / (sum(sum(f32(mask))) + 1)",
            lambda: f"cross_entropy(linear({x}, {self.weight(ROWS, D)}), ids, ignore_index = 0)",
            lambda: f"cross_entropy({x}, ids % {D}, label_smoothing = 0.2)",
            lambda: f"cross_entropy({x}, ids % {D}, reduction = \"sum\") * 0.1",
            lambda: f"-mean(mean(sum(log_softmax({x}) * {self.weight(D)})))", lambda: f"sum(sum({x}[:, 0] * y[:, 1]))",
            lambda: f"sum(sum(sum(where(mask[..., none], {x} * y, 0.0)))) * 0.1",
            lambda: f"mean(sum(sum({x}[:, 1:] * {x}[:, :-1])))",
            lambda: f"sum(sum(where(mask and not pad, cross_entropy(linear({x}, {self.weight(ROWS, D)}), ids, reduction = "
                    f"\"none\"), 0.0)))"])()

    def text(self):
        inputs = [f"x: f32[batch, time, {D}]", f"y: f32[batch, time, {D}]", "ids: i32[batch, time]", "picks: i32[batch, time]",
                  "mask: bool[batch, time]", "pad: bool[batch, time]", "h: f32[1]", "c: f32[]"]
        inputs += [f"d_{n}: f32[{', '.join(map(str, s))}]" for n, s in self.weights.items()]
        weights = "\n".join(f"  weight {n}: [{', '.join(map(str, s))}]" for n, s in self.weights.items())
        lines = "\n".join("    " + line for line in self.lines)
        return (f"model M {{\n{weights}\n  forward(x: f32[n]) {{ return out = x }}\n  fn objective({', '.join(inputs)}) {{\n{lines}\n"
                f"    return loss = ({self.loss}) * c\n  }}\n  train objective {{ optimizer = \"sgd\"  lr = 1 }}\n}}\n")


def floats(rng, shape, scale=0.7):
    return "F32", list(shape), [struct.unpack("f", struct.pack("f", rng.uniform(-scale, scale)))[0] for _ in range(math.prod(shape))]


def rounded_otherwise(rng, dtype, shape, numbers):
    return dtype, shape, [x * (1 + rng.uniform(-1, 1) * 2**-24) for x in numbers] if dtype == "F32" else numbers


def run(tfmc, folder, *args):
    done = subprocess.run([tfmc, *args], cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr}")


def prepare(rng, folder):
    program = Program(rng)
    while not program.weights:
        program = Program(rng)
    batch, time = rng.randint(1, 4), rng.randint(3, 7)
    (folder / "model.tfm").write_text(program.text())
    weights = {n: floats(rng, s) for n, s in program.weights.items()}
    write_tensors(folder / "weights.safetensors", weights)
    directions = {f"d_{n}": floats(rng, s) for n, s in program.weights.items()}
    shape = [batch, time]
    pad = [int(t > 0 and rng.random() < 0.3) for _ in range(batch) for t in range(time)]
    common = directions | {"x": floats(rng, shape + [D], 1.5), "y": floats(rng, shape + [D]), "pad": ("BOOL", shape, pad),
                           "ids": ("I32", shape, [rng.randrange(ROWS) for _ in pad]),
                           "picks": ("I32", shape, [rng.randrange(D) for _ in pad]),
                           "mask": ("BOOL", shape, [rng.randrange(2) for _ in pad])}
    common["ids"][2][0] = 1  # a label that counts
    inputs = common | {"h": ("F32", [1], [0.0]), "c": ("F32", [], [1.0])}
    write_tensors(folder / "inputs.safetensors", inputs)
    for step in STEPS:
        cuts = {}
        for i, (k, c) in enumerate([(1, 8), (-1, -8), (2, -1), (-2, 1)]):
            batch_of = common | {"h": ("F32", [1], [k * step]), "c": ("F32", [], [c / (12 * step)])}
            cuts |= {f"{n}@{i}": t for n, t in batch_of.items()}
        write_tensors(folder / f"cuts-{step}.safetensors", cuts)
    return program, directions, {"weights": weights, "inputs": inputs}


def sets_of(tfmc):
    """The options for instruction sets that this machine has."""
    info = subprocess.run([tfmc, "info"], capture_output=True, text=True, check=True).stdout
    return [s for s in ("-march=native", "-march=x86-64-v3", "-march=x86-64") if f"{s} cannot run here" not in info]


def train(tfmc, folder, out, *options, weights="weights", inputs="inputs"):
    """The gradients, by weight."""
    run(tfmc, folder, "train", "model.tfm", f"--weights={weights}.safetensors", f"--batches={inputs}.safetensors", "--gradients",
        *options, "--threads=1", "--quiet", "-o", out)
    return {n: g for n, g in read_tensors(folder / out).items() if n.startswith("grad.")}


def largest_difference(a, b):
    return max(abs(x - y) for n, g in a.items() for x, y in zip(g, b[n]))


def change_by_rounding(tfmc, rng, folder, gradients, tensors):
    """How much gradients change at most when weights and inputs are rounded otherwise."""
    most = 0.0
    for _ in range(4):
        for name, of in tensors.items():
            write_tensors(folder / f"other-{name}.safetensors", {n: rounded_otherwise(rng, *t) for n, t in of.items()})
        other = train(tfmc, folder, "other", "--engine=reference", weights="other-weights", inputs="other-inputs")
        most = max(most, largest_difference(gradients, other))
    return most


def fault(tfmc, march, rng, folder, magnifies):
    """None, or what is wrong."""
    program, directions, tensors = prepare(rng, folder)
    engines = {"reference": ["--engine=reference"], "O0": ["-O0", march], "O2": ["-O2", march],
               "all rows": ["-O2", march, "--disable=live-rows"]}
    made = {name: train(tfmc, folder, name, *chosen) for name, chosen in engines.items()}
    gradients = made["reference"]
    largest = max(abs(x) for g in gradients.values() for x in g)
    for name in ("O0", "O2"):
        if set(made[name]) != set(gradients):
            return f"{name} has other gradients"
        worst = largest_difference(gradients, made[name])
        if worst <= SAME * largest:
            continue
        change = change_by_rounding(tfmc, rng, folder, gradients, tensors)
        said = f"{name} {march} is off by {worst:.3g}, the largest gradient is {largest:.3g}, rounding otherwise changes {change:.3g}"
        if not worst <= min(MOST * largest, ROUNDINGS * change):
            return said
        magnifies.append(said)
    different = [n for n in gradients if array.array("f", made["O2"][n]).tobytes() != array.array("f", made["all rows"][n]).tobytes()]
    if different:
        return f"{march}: rows that are left out change bits of {different}"
    if "stop_gradient" in program.text() or magnifies:  # steps of a central difference are large beside what magnifies rounding
        return None
    claimed = sum(a * b for n, g in gradients.items() for a, b in zip(g, directions["d_" + n[5:]][2]))
    length = math.sqrt(sum(x * x for g in gradients.values() for x in g))
    slopes = []
    for step in STEPS:
        run(tfmc, folder, "evaluate", "model.tfm", "--weights=weights.safetensors", f"--batches=cuts-{step}.safetensors", "--engine=reference",
            "-o", "slope")
        slopes.append(read_tensors(folder / "slope")["loss"][0])
        if abs(slopes[-1] - claimed) <= DIFFERENCE * (length + 0.1):
            return None
    return f"the slopes are {slopes}, the gradient says {claimed:.6g}, its length is {length:.3g}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    tfmc, bad, magnify = str(pathlib.Path(options.tfmc).resolve()), 0, 0
    sets = sets_of(tfmc)
    for i in range(options.count):
        with tempfile.TemporaryDirectory() as work:
            folder, magnifies = pathlib.Path(work), []
            try:
                why = fault(tfmc, sets[i % len(sets)], random.Random(f"{options.seed}.{i}"), folder, magnifies)
            except Exception as error:  # what stops the test is a failure, too
                why = repr(error)
            if magnifies:
                magnify += 1
                print(f"--seed {options.seed}, number {i} magnifies rounding: {magnifies[0]}", flush=True)
            if why:
                bad += 1
                print(f"FAIL --seed {options.seed}, number {i}: {why}\n{(folder / 'model.tfm').read_text()}", flush=True)
                if options.keep:
                    shutil.copytree(folder, options.keep / f"{options.seed}-{i}", dirs_exist_ok=True)
    print(f"{magnify} models magnify rounding")
    print(f"{options.count - bad} passed, {bad} failed")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
