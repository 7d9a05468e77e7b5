#!/usr/bin/env python3
"""Gradients of random models (gradient_models.py): compiled code, fused or not, for three instruction sets in turn, against the
reference interpreter; the same bits whatever is computed again, left out or shared among threads; and the interpreter against
central differences.

usage: gradients.py TFMC [--count N] [--seed S] [--first I] [--reference] [--keep FOLDER]

Gradients must agree within 1e-5 of the largest. Some models magnify rounding (powers of powers before a softmax): where a
difference is larger, the interpreter computes them again with weights and inputs rounded otherwise, by up to one part in 2^24, and
the difference may be ROUNDINGS times what that changes and NOISE, but in no case more than 1e-4 of the largest and TINY; models
whose only gradients are sums that are 0 by mathematics may differ by NOISE. Where an
element lies so near a kink that rounding gets it to the other side, the model is tried again with other numbers.

Slopes are taken along a random direction of all weights and along one of a single weight, by four points of which each has all its
elements on the same side of every kink and jump as the weights themselves (the metric `pattern`): then a kink cannot excuse a
difference. Steps become smaller until that is so; models for which it never is are counted, and so are models with dropout or
stop_gradient, which have no such slopes. With --reference nothing is compiled, which takes a third of the time.

The last line is 'N passed, N failed'; a model that fails is kept in --keep. Needs Python's own library alone.
"""
import argparse
import array
import collections
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import gradient_models

STEPS = 0.02, 0.004, 0.001  # of central differences
SAME, MOST, DIFFERENCE = 1e-5, 1e-4, 2e-3  # of the largest gradient, twice; of the gradient's length
ROUNDINGS = 4
NOISE = 2e-6  # of sums whose terms, up to 1 or so, cancel
TINY = 1e-7  # of the same beside gradients that are larger than NOISE
TYPES = {"f32": "f", "i32": "i", "bool": "B"}
SAFETENSORS = {"f32": "F32", "i32": "I32", "bool": "BOOL"}


def write_tensors(path, tensors):
    """tensors: {name: (type, shape, numbers)}"""
    header, data = {}, b""
    for name, (dtype, shape, numbers) in sorted(tensors.items(), key=lambda item: item[1][0] == "bool"):
        packed = array.array(TYPES[dtype], numbers).tobytes()
        header[name] = {"dtype": SAFETENSORS[dtype], "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    """{name: (shape, numbers)}, all f32"""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return {name: (e["shape"], array.array("f", data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]))
            for name, e in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


def rounded_otherwise(rng, dtype, shape, numbers):
    return dtype, shape, [x * (1 + rng.uniform(-1, 1) * 2**-24) for x in numbers] if dtype == "f32" else numbers


class Trial:
    """A model in a folder, with numbers for its weights and inputs."""

    def __init__(self, tfmc, rng, folder):
        self.tfmc, self.rng, self.folder = tfmc, rng, folder
        while True:
            self.model = gradient_models.Model(rng)
            (folder / "model.tfm").write_text(self.model.text(False))
            (folder / "pattern.tfm").write_text(self.model.text(True))
            done = self.run("train", "model.tfm", "--steps=0", f"--seed={rng.randrange(10**6)}", "-o", "start.safetensors", may_fail=True)
            if not done:
                break
            if "no trained weight reaches" not in done:
                raise RuntimeError(done)
        self.draw()

    def run(self, *args, may_fail=False):
        """What nobody has written is other numbers each time: the C library fills memory that it gives out."""
        filled = dict(os.environ, MALLOC_PERTURB_=random.Random(repr(args)).choice("1 85 170".split()))
        done = subprocess.run([self.tfmc, *args], cwd=self.folder, env=filled, capture_output=True, text=True, timeout=600)
        if done.returncode and not may_fail:
            raise RuntimeError(f"{' '.join(args)}: {done.stderr}")
        return done.stderr

    def draw(self):
        """Numbers for weights (near their initial values) and inputs."""
        r = self.rng
        start = read_tensors(self.folder / "start.safetensors")
        self.weights = {n.removeprefix("after."): ("f32", s, [x + r.uniform(-0.3, 0.3) for x in xs]) for n, (s, xs) in start.items()}
        sizes = {"batch": r.randint(1, 4), "time": r.randint(3, 7)}
        self.inputs = {}
        for name, (dtype, dims, limit) in self.model.inputs.items():
            shape = [eval(str(d), {}, sizes) for d in dims]
            n, share = math.prod(shape), r.choice([0.3, 0.5, 0.8])
            numbers = [r.uniform(-limit, limit) for _ in range(n)] if dtype == "f32" else \
                [r.randrange(limit) for _ in range(n)] if dtype == "i32" else [int(r.random() < share) for _ in range(n)]
            if dtype == "i32":
                numbers[0] = limit - 1  # a label that counts
            self.inputs[name] = dtype, shape, numbers
        write_tensors(self.folder / "weights.safetensors", self.weights)
        write_tensors(self.folder / "inputs.safetensors", self.inputs)

    def gradients(self, out, *options, weights="weights", inputs="inputs"):
        self.run("train", "model.tfm", f"--weights={weights}.safetensors", f"--batches={inputs}.safetensors", "--gradients", *options,
                 "--quiet", "-o", out)
        return {n[5:]: g for n, (_, g) in read_tensors(self.folder / out).items() if n.startswith("grad.")}

    def evaluated(self, weights="weights", inputs="inputs"):
        """The loss and the pattern."""
        self.run("evaluate", "pattern.tfm", f"--weights={weights}.safetensors", f"--batches={inputs}.safetensors", "--engine=reference", "-o", "at")
        at = read_tensors(self.folder / "at")
        return at["loss"][1][0], at["pattern"][1][0]

    def rounded(self):
        """Gradients and patterns with weights and inputs rounded otherwise: four times."""
        for _ in range(4):
            for name, tensors in ("weights", self.weights), ("inputs", self.inputs):
                write_tensors(self.folder / f"other-{name}.safetensors", {n: rounded_otherwise(self.rng, *t) for n, t in tensors.items()})
            names = {"weights": "other-weights", "inputs": "other-inputs"}
            yield self.gradients("other", "--engine=reference", **names), self.evaluated(**names)[1]

    # ---- compiled code ----

    def compiled(self, march, seen):
        """None, or what is wrong with compiled code; seen counts what cannot be judged."""
        r, gradients = self.rng, self.reference
        largest = max(abs(x) for g in gradients.values() for x in g)
        level = r.choice(["-O0", "-O2", "-O2"])
        made = self.gradients("made", level, march, "--threads=1")
        if set(made) != set(gradients):
            return f"{level} has other gradients"
        worst = largest_difference(gradients, made)
        if not worst <= SAME * largest:
            others = list(self.rounded())
            here = self.evaluated()[1]
            if any(not same_pattern(pattern, here) for _, pattern in others):
                seen["at a kink"] += 1
                return "a kink"
            change = max(largest_difference(gradients, g) for g, _ in others)
            said = f"{level} {march} is off by {worst:.3g}, the largest gradient is {largest:.3g}, rounding otherwise changes {change:.3g}"
            if not worst <= min(MOST * largest + (TINY if largest > NOISE else NOISE), ROUNDINGS * change + NOISE):
                return said
            seen["magnify rounding"] += 1
        if level == "-O2" and r.random() < 0.4:
            option = r.choice(["--recompute=none", "--recompute=layer", "--recompute=layer", "--disable=live-rows", "--threads=2"])
            again = self.gradients("again", level, march, option)
            different = [n for n in gradients if made[n].tobytes() != again[n].tobytes()]
            if "live-rows" in option:  # what is left out is 0, and would be -0 if it were computed where no sum follows
                different = [n for n in different if made[n] != again[n]]
            seen["bits compared"] += 1
            if different:
                return f"{march} {option} changes bits of {different}"
        return None

    # ---- central differences ----

    def slope(self, direction, step):
        """The central difference, and how large the loss is; None if something gets to the other side of a kink."""
        total, most = 0.0, 0.0
        for k, c in (1, 8), (-1, -8), (2, -1), (-2, 1):
            moved = {n: (t, s, [x + k * step * d for x, d in zip(xs, direction[n])]) for n, (t, s, xs) in self.weights.items()}
            write_tensors(self.folder / "moved.safetensors", moved)
            loss, pattern = self.evaluated("moved")
            if not same_pattern(pattern, self.pattern):
                return None
            total, most = total + c * loss / (12 * step), max(most, abs(loss))
        return total, most

    def slopes(self, seen):
        """None, or that slopes are others than the gradient says."""
        r, gradients = self.rng, self.reference
        self.pattern = self.evaluated()[1]
        whole = math.sqrt(sum(x * x for g in gradients.values() for x in g))
        for only in None, r.choice(sorted(gradients)):
            moves = {n for n in gradients if only in (None, n)}
            direction = {n: [r.uniform(-0.7, 0.7) if n in moves else 0 for _ in xs] for n, (_, _, xs) in self.weights.items()}
            claimed = sum(a * b for n in moves for a, b in zip(gradients[n], direction[n]))
            length = math.sqrt(sum(x * x for n in moves for x in gradients[n]))
            found = []
            for step in STEPS:
                slope = self.slope(direction, step)
                if slope:
                    found.append(slope[0])
                    if abs(slope[0] - claimed) <= DIFFERENCE * (length + 0.02 * whole + 0.02) + 4e-7 * slope[1] / step:
                        break
            else:
                if found:
                    return f"the slopes along {only or 'all'} are {found}, the gradient says {claimed:.6g}, its length is {length:.3g}"
                seen["too near a kink for slopes"] += 1
                continue
            seen["slopes"] += 1
        return None


def same_pattern(a, b):
    return abs(a - b) <= 1e-3 + 1e-6 * abs(b)


def largest_difference(a, b):
    return max((abs(x - y) for n, g in a.items() for x, y in zip(g, b[n])), default=0)


def fault(options, march, rng, folder, seen):
    """None, or what is wrong."""
    trial = Trial(options.tfmc, rng, folder)
    for _ in range(3):
        trial.reference = trial.gradients("reference", "--engine=reference")
        why = None if options.reference else trial.compiled(march, seen)
        if why != "a kink":
            break
        trial.draw()
    if not why and trial.model.is_random:
        seen["random"] += 1
    return why or (None if trial.model.is_random else trial.slopes(seen))


def sets_of(tfmc):
    """The options for instruction sets that this machine has."""
    info = subprocess.run([tfmc, "info"], capture_output=True, text=True, check=True).stdout
    return [s for s in ("-march=native", "-march=x86-64-v3", "-march=x86-64") if f"{s} cannot run here" not in info]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    bad, seen, sets = 0, collections.Counter(), sets_of(options.tfmc)
    for i in range(options.first, options.first + options.count):
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            try:
                why = fault(options, sets[i % len(sets)], random.Random(f"{options.seed}.{i}"), folder, seen)
            except Exception as error:  # what stops the test is a failure, too
                why = repr(error)
            if why:
                bad += 1
                print(f"FAIL --seed {options.seed} --first {i}: {why}\n{(folder / 'model.tfm').read_text()}", flush=True)
                if options.keep:
                    shutil.copytree(folder, options.keep / f"{options.seed}-{i}", dirs_exist_ok=True)
        if sys.stderr.isatty() and i % 10 == 9:
            print(f"{i + 1}: {bad} failed", end="\r", file=sys.stderr)
    print(", ".join(f"{what}: {n}" for what, n in sorted(seen.items())))
    print(f"{options.count - bad} passed, {bad} failed")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
