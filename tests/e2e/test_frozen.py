#!/usr/bin/env python3
"""Weights that are not trained: kept in 16 bits they train as the numbers that those bits are, to the bit; checkpoints of a
model with adapters are without them, and of one base.

usage: test_frozen.py TFMC GOLDENS          The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import tally
from tensor_files import read_tensors, write_tensors
from test_adapt import ADAPTED, LINE

CASES = ["train-gpt2", "train-llama", "train-translator", "train-mha-cross", "train-tables", "train-shared-layer",
         "train-mixing-negatives", "train-delta"]


def bf16(number):
    """The bits of the nearest bf16, of two that are equally near the even one."""
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class Frozen(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *map(str, args)], cwd=self.work, capture_output=True, text=True, timeout=600,
                              env={**os.environ, "LC_ALL": "C"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def same(self, one, other, what=""):
        one, other = read_tensors(self.work / one), read_tensors(self.work / other)
        self.assertEqual(set(one), set(other))
        for name in one:
            self.assertEqual(one[name][2].tobytes(), other[name][2].tobytes(), (what, name))

    def write(self, name, tensors, dtype):
        """Matrices in the type, which has their numbers; else F32."""
        def kept(kind, shape, numbers):
            if len(shape) < 2 or dtype == "F32":
                return kind, shape, numbers
            if dtype == "BF16":
                return dtype, shape, [bf16(x) for x in numbers]
            return dtype, shape, struct.pack(f"<{len(numbers)}e", *numbers)
        write_tensors(self.work / name, {path: kept(*tensor) for path, tensor in tensors.items()})

    # ---- steps ----

    def test_goldens_train_as_their_rounded_weights_do(self):
        """Half of the matrices frozen: those of every other name."""
        for case in CASES:
            folder = GOLDENS / "train" / case
            train = json.loads((folder / "case.json").read_text())["train"]
            weights = read_tensors(folder / "weights.safetensors")
            frozen = [path for path, (_, shape, _) in weights.items() if len(shape) > 1][::2]
            rounded = {path: (kind, shape, [from_bf16(bf16(x)) for x in numbers] if path in frozen else numbers)
                       for path, (kind, shape, numbers) in weights.items()}
            write_tensors(self.work / "rounded.safetensors", rounded)
            write_tensors(self.work / "bf16.safetensors",
                          {path: ("BF16", shape, [bf16(x) for x in numbers]) if path in frozen else (kind, shape, numbers)
                           for path, (kind, shape, numbers) in rounded.items()})
            listed = ", ".join(json.dumps(path) for path in frozen)
            run = ["train", folder / "model.tfm", f"--batches={folder / 'inputs.safetensors'}", f"--steps={train['steps'] + 1}",
                   f"--accumulate={train['accumulate']}", f"--seed={train['seed']}", "--gradients", "-q", f"--set=freeze=[{listed}]"]
            self.tfmc(*run, "--weights=rounded.safetensors", "--set=frozen=f32", "-o", "expected.safetensors")
            for weights, more in ((folder / "weights.safetensors", ["--set=frozen=bf16"]), ("bf16.safetensors", []),
                                  ("bf16.safetensors", ["--threads=2"])):
                self.tfmc(*run, f"--weights={weights}", *more, "-o", "own.safetensors")
                self.same("own.safetensors", "expected.safetensors", (case, weights, more))
            text = re.sub(r"(train \w+ \{)", rf'\1 freeze = [{listed}]  frozen = "bf16" ', re.sub(r"freeze = \[[^\]]*\]", "", (folder / "model.tfm").read_text()))
            (self.work / "set.tfm").write_text(text)
            self.assertIn(" in bf16", self.tfmc("dump", "set.tfm", "--stage=gradients-plan"), case)
            self.tfmc(*run, "--weights=bf16.safetensors", "--engine=reference", "-o", "own.safetensors")
            own, expected = read_tensors(self.work / "own.safetensors"), read_tensors(self.work / "expected.safetensors")
            for name in (name for name in own if not name.startswith("after.")):  # adam makes a step of any rounding
                most = max([1, *map(abs, expected[name][2])])
                self.assertLess(max([0, *(abs(a - b) for a, b in zip(own[name][2], expected[name][2]))]), 1e-4 * most, (case, name))

    # ---- a model with adapters ----

    def begin(self):
        rng = random.Random(5)
        (self.work / "m.tfm").write_text(ADAPTED.replace("LINE", LINE).replace("P", "0.25"))
        (self.work / "n.tfm").write_text(ADAPTED.replace("LINE", "").replace("P", "0.25"))
        self.tfmc("train", "n.tfm", "--steps=0", "--seed=7", "-q", "-o", "n.safetensors")
        base = {path[6:]: tensor for path, tensor in read_tensors(self.work / "n.safetensors").items() if path.startswith("after.")}
        base = {path: (kind, shape, [struct.unpack("<e", struct.pack("<e", from_bf16(bf16(x))))[0] for x in numbers])
                for path, (kind, shape, numbers) in base.items()}  # both types of 16 bits have them, but for subnormal ones
        base = {path: (kind, shape, [x if abs(x) > 1e-4 else 0.0 for x in numbers]) for path, (kind, shape, numbers) in base.items()}
        for dtype in ("F32", "BF16", "F16"):
            self.write(f"{dtype}.safetensors", base, dtype)
        ids = [rng.randrange(1, 30) for _ in range(240)]
        lengths = ("I32", [40], [6] * 40)
        write_tensors(self.work / "d.safetensors", {"ids": ("I32", [240], ids), "ids.lengths": lengths, "labels.lengths": lengths,
                                                    "labels": ("I32", [240], [(3 * i) % 30 for i in ids])})
        self.base = base
        self.run = ["train", "m.tfm", "--data=d.safetensors", "--batch-items=8", "--seed=3", "-q", "--save-every=4"]

    def state(self, folder, step, name="state.tfmt"):
        return (self.work / folder / f"step-{step:08d}" / name).read_bytes()

    def test_files_of_16_bits_train_alike(self):
        self.begin()
        for dtype in ("F32", "BF16", "F16"):
            self.tfmc(*self.run, f"--weights={dtype}.safetensors", "--steps=8", "--valid=d.safetensors", f"--out={dtype}")
            self.same(f"{dtype}/weights.safetensors", "F32/weights.safetensors", dtype)
            log = [json.loads(line) for line in (self.work / dtype / "log.jsonl").read_text().splitlines()]
            self.assertEqual([(r["step"], r.get("loss")) for r in log],
                             [(r["step"], r.get("loss")) for r in map(json.loads, (self.work / "F32/log.jsonl").read_text().splitlines())])
        tenth = ["--set=frozen=bf16", "--weights=F32.safetensors"]
        self.tfmc(*self.run, *tenth, "--steps=8", "--out=set")
        self.same("set/step-00000008/weights.safetensors", "F32/step-00000008/weights.safetensors")

    def test_checkpoints_are_without_the_base(self):
        self.begin()
        weights = "--weights=BF16.safetensors"
        self.tfmc(*self.run, weights, "--steps=8", "--out=whole")
        self.tfmc(*self.run, weights, "--steps=4", "--out=cut")
        self.tfmc(*self.run, weights, "--steps=8", "--out=cut", "--resume")
        self.assertEqual(self.state("whole", 8), self.state("cut", 8))
        names = set(read_tensors(self.work / "whole/step-00000008/weights.safetensors"))
        self.assertEqual(names, {f"{m}.lora_{x}.weight" for m in ("up", "down") for x in "AB"} | {"head.weight", "head.bias"})
        trained = sum(len(t[2]) for t in read_tensors(self.work / "whole/step-00000008/weights.safetensors").values())
        self.assertLess(len(self.state("whole", 8)), 12 * trained + 2000)
        said = [self.tfmc("evaluate", "m.tfm", "--data=d.safetensors", f"--weights=BF16.safetensors+whole/{what}")
                for what in ("weights.safetensors", "step-00000008/weights.safetensors", "adapter")]
        self.assertEqual(len(set(said)), 1, said)
        # the same base in other types; none; another
        self.tfmc(*self.run, "--weights=F32.safetensors", "--steps=12", "--out=whole", "--resume")
        self.tfmc(*self.run, "--weights=F16.safetensors", "--steps=12", "--out=cut", "--resume")
        self.assertEqual(self.state("whole", 12, "weights.safetensors"), self.state("cut", 12, "weights.safetensors"))
        said = self.tfmc(*self.run, "--steps=16", "--out=cut", "--resume", code=1)
        self.assertIn("this checkpoint is of another base: its run began with another 'embed.weight'", said)
        self.base["down.weight"][2][5] += 0.5
        self.write("other.safetensors", self.base, "F32")
        said = self.tfmc(*self.run, "--weights=other.safetensors", "--steps=16", "--out=cut", "--resume", code=1)
        self.assertIn("its run began with another 'down.weight'", said)
        # a base that no file had is drawn again
        self.tfmc(*self.run, "--steps=4", "--out=drawn")
        self.tfmc(*self.run, "--steps=8", "--out=drawn", "--resume")
        self.tfmc(*self.run, "--steps=8", "--out=drawn-whole")
        self.assertEqual(self.state("drawn", 8), self.state("drawn-whole", 8))

    def test_other_frozen_weights_with_new_moments(self):
        """A state of which other weights are trained, and others frozen, is read all the same."""
        self.begin()
        run = [arg if arg != "m.tfm" else "n.tfm" for arg in self.run]
        freeze = ["--set=frozen=bf16", '--set=freeze=["embed.*", "up.*"]']
        self.tfmc(*run, "--weights=F32.safetensors", *freeze, "--steps=4", "--out=run")
        held = read_tensors(self.work / "run/step-00000004/weights.safetensors")
        self.assertEqual({path for path, tensor in held.items() if tensor[0] == "BF16"}, {"embed.weight", "up.weight"})
        said = self.tfmc(*run, '--set=freeze=["head.*"]', "--reset=schedule", "--steps=8", "--out=run", "--resume", code=1)
        self.assertIn("other frozen weights: --reset=optimizer begins with new moments", said)
        self.tfmc(*run, '--set=freeze=["head.*"]', "--reset=optimizer", "--steps=5", "--out=run", "--resume")
        now = read_tensors(self.work / "run/step-00000005/weights.safetensors")
        self.assertEqual(now["head.weight"], held["head.weight"])
        before = [from_bf16(bits) for bits in held["embed.weight"][2]]
        self.assertLess(max(abs(a - b) for a, b in zip(before, now["embed.weight"][2])), 0.1)
        self.assertNotEqual(before, list(now["embed.weight"][2]))
        self.assertIn("none of them are frozen",
                      self.tfmc(*run, "--weights=F32.safetensors", "--set=freeze=none", "--reset=optimizer", "--steps=8", "--out=run",
                                "--resume", code=2))

    def test_settings_that_are_refused(self):
        self.begin()
        said = self.tfmc(*self.run, "--weights=F32.safetensors", "--set=frozen=fp4", "--steps=1", "--out=run", code=1)
        self.assertIn('frozen has no value "fp4"', said)


if __name__ == "__main__":
    TFMC, GOLDENS = os.path.abspath(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1)).absolute()
    with tally.compiled_once():
        sys.exit(tally.run())
