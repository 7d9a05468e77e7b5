#!/usr/bin/env python3
"""adapt: the low-rank changes of weights are those of the same text written out, in training to the bit; a run has one
weight for both; what is frozen stays; initial values, settings, checks.

usage: test_adapt.py TFMC          The last line is 'N passed, N failed'.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import tally
from tensor_files import read_tensors, write_tensors

HEAD = """layer Turned(d, out) {
  weight weight: [d, out] = normal(0, 0.1)
  forward(x) = x @ weight
}

"""
OBJECTIVE = """  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    logits = forward(ids)
    return loss = cross_entropy(logits, labels, ignore_index = 0), total = sum(sum(sum(logits * logits)))
  }
  train objective { optimizer = "adamw"  lr = 1e-2  FREEZE }
}
"""
ADAPTED = HEAD + """model M(v = 30, d = 24) {
  embed = Embedding(v, d)
  up    = Linear(d, 2 * d)
  down  = Turned(2 * d, d)
  head  = Linear(d, v)
  LINE

  forward(ids: i32[batch, time]) {
    x = embed(ids)
    x = x + (gelu(up(x)) -> down)
    return logits = head(x)
  }
""" + OBJECTIVE.replace("FREEZE", "")
LINE = 'adapt ["up", "down.weight"] { rank = 4  alpha = 6  dropout = P  also = ["head.*"] }'
WRITTEN = HEAD + """layer Adapter(d, r, out) {
  weight a: [r, d] as "lora_A.weight"
  weight b: [out, r] as "lora_B.weight"
  forward(x) = linear(linear(dropout(x, P), a), b) * 1.5
}

model M(v = 30, d = 24) {
  embed  = Embedding(v, d)
  up     = Linear(d, 2 * d)
  down   = Turned(2 * d, d)
  head   = Linear(d, v)
  change = [Adapter(d, 4, 2 * d) as "up", Adapter(2 * d, 4, d) as "down"] as ""

  forward(ids: i32[batch, time]) {
    x = embed(ids)
    y = gelu(linear(x, up.weight) + change[0](x) + up.bias)
    return logits = head(x + (down(y) + change[1](y)))
  }
""" + OBJECTIVE.replace("FREEZE", 'freeze = ["embed.*", "up.weight", "up.bias", "down.weight"]')


class Adapt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        rng = random.Random(5)
        ids = [rng.randrange(1, 30) for _ in range(48)]
        write_tensors(self.work / "b.safetensors", {"ids": ("I32", [8, 6], ids), "labels": ("I32", [8, 6], [(3 * i) % 30 for i in ids])})
        write_tensors(self.work / "x.safetensors", {"ids": ("I32", [8, 6], ids)})

    def model(self, name, text, p="0.0", line=LINE):
        (self.work / f"{name}.tfm").write_text(text.replace("LINE", line).replace("P", p) if text is ADAPTED else text.replace("P", p))

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *args], cwd=self.work, capture_output=True, text=True, timeout=600, env={**os.environ, "LC_ALL": "C"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def numbers(self, name):
        return {key: list(numbers) for key, (_, _, numbers) in read_tensors(self.work / name).items()}

    def begin(self):
        """Weights of which no B is zero."""
        self.model("m", ADAPTED)
        self.tfmc("train", "m.tfm", "--batches=b.safetensors", "--steps=3", "--seed=4", "-q", "-o", "w.safetensors")

    def test_training_is_that_of_the_text_written_out(self):
        for p in ("0.0", "0.25"):
            self.begin()
            self.model("m", ADAPTED, p)
            self.model("w", WRITTEN, p)
            for name in ("m", "w"):
                self.tfmc("train", f"{name}.tfm", "--weights=w.safetensors", "--batches=b.safetensors", "--steps=20", "--seed=4", "-q",
                          "--gradients", "-o", f"{name}.out.safetensors")
            own, other = self.numbers("m.out.safetensors"), self.numbers("w.out.safetensors")
            self.assertEqual(set(own), set(other))
            for key in own:
                self.assertEqual(own[key], other[key], (p, key))
            self.assertEqual({key for key in own if key.startswith("grad.")},
                             {f"grad.{m}.lora_{x}.weight" for m in ("up", "down") for x in "AB"} | {"grad.head.weight", "grad.head.bias"})
            begun = self.numbers("w.safetensors")
            for path in ("embed.weight", "up.weight", "up.bias", "down.weight"):
                self.assertEqual(begun["after." + path], own["after." + path])
            for path in ("up.lora_A.weight", "up.lora_B.weight", "down.lora_B.weight", "head.bias"):
                self.assertNotEqual(begun["after." + path], own["after." + path])

    def test_a_run_has_one_weight_for_both(self):
        self.begin()
        self.model("w", WRITTEN)
        self.tfmc("run", "w.tfm", "--weights=w.safetensors", "--inputs=x.safetensors", "--output=y.safetensors")
        expected = self.numbers("y.safetensors")["logits"]
        most = max(map(abs, expected))
        self.assertGreater(most, 0.5)
        self.tfmc("compile", "m.tfm", "--weights=w.safetensors", "-o", "libm.so")
        for args in (("m.tfm",), ("m.tfm", "-O0"), ("m.tfm", "--engine=reference"), ("libm.so",)):
            weights = [] if args[0] == "libm.so" else ["--weights=w.safetensors"]
            self.tfmc("run", *args, *weights, "--inputs=x.safetensors", "--output=z.safetensors")
            got = self.numbers("z.safetensors")["logits"]
            self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), 1e-5 * max(1, most), args)
        fused = self.tfmc("dump", "m.tfm", "--stage=fused")
        self.assertEqual(fused.count("linear"), 3, fused)       # products of a run: none more than without adapters
        self.assertIn("matmul", fused)                          # B A, of weights alone
        plan = self.tfmc("dump", "m.tfm", "--stage=plan")
        self.assertEqual(plan.count("gemm"), self.steps_without_adapters(), plan)
        self.tfmc("run", "m.tfm", "--weights=w.safetensors", "--inputs=x.safetensors", "--quantize=int8", "--output=q.safetensors")
        got = self.numbers("q.safetensors")["logits"]
        self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), 0.1 * most)

    def steps_without_adapters(self):
        self.model("n", ADAPTED, line="")
        return self.tfmc("dump", "n.tfm", "--stage=plan").count("gemm")

    def test_initial_values(self):
        self.model("m", ADAPTED)
        self.model("n", ADAPTED, line=LINE + "\n  weight * = 1")
        for name in "mn":
            self.tfmc("train", f"{name}.tfm", "--steps=0", "--seed=2", "-o", f"{name}.safetensors")
        own, ones = self.numbers("m.safetensors"), self.numbers("n.safetensors")
        self.assertEqual(set(own["after.up.lora_B.weight"]), {0.0})
        bound = 24 ** -0.5
        a = own["after.up.lora_A.weight"]
        self.assertTrue(0.8 * bound < max(map(abs, a)) <= bound, max(map(abs, a)))
        self.assertEqual(ones["after.up.lora_A.weight"], a)
        self.assertEqual(set(ones["after.up.lora_B.weight"]), {0.0})
        self.assertEqual(set(ones["after.up.weight"]), {1.0})

    def test_scale_is_alpha_over_the_root_with_rslora(self):
        for line, scale in (('adapt ["up"] { rank = 4  alpha = 6  rslora = true }', "3.0"), ('adapt ["up"] { rank = 4 }', "2.0")):
            self.model("m", ADAPTED, line=line)
            self.assertIn(f"full {scale} : f32[]", self.tfmc("dump", "m.tfm"))

    def test_check_and_freeze(self):
        self.model("m", ADAPTED)
        said = self.tfmc("check", "m.tfm")
        self.assertIn("trained: 6 of 10 tensors, 1326 numbers", said)
        self.assertIn("adapters: 2 of rank 4, times 1.5: up down\n", said)
        self.model("m", ADAPTED, line='adapt ["u*"] { rank = 2 }')
        self.assertIn("trained: 2 of 8 tensors, 144 numbers", self.tfmc("check", "m.tfm"))
        text = (self.work / "m.tfm").read_text()
        (self.work / "m.tfm").write_text(text.replace("lr = 1e-2", 'lr = 1e-2  freeze = ["*.lora_A.weight"]'))
        self.assertIn("trained: 1 of 8 tensors, 96 numbers", self.tfmc("check", "m.tfm"))

    def test_a_folder_that_cannot_be_written_is_said(self):
        """Names that peft has not: of a weight that is no MODULE.weight, of a bias of an adapted module."""
        lengths = ("I32", [8], [6] * 8)
        write_tensors(self.work / "d.safetensors", {"ids": ("I32", [48], list(range(1, 25)) * 2), "labels": ("I32", [48], [1] * 48),
                                                    "ids.lengths": lengths, "labels.lengths": lengths})
        run = ["--data=d.safetensors", "--steps=1", "--batch-items=4"]
        for i, (line, why) in enumerate([(LINE, ""), ('adapt ["up"] { rank = 2  also = ["up.bias"] }', "'up.bias' is trained whole")]):
            self.model("m", ADAPTED, line=line)
            said = self.tfmc("train", "m.tfm", *run, f"--out=run{i}")
            self.assertEqual((self.work / f"run{i}/adapter").is_dir(), not why, said)
            self.assertEqual("there will be no folder adapter" in said, bool(why), said)
            self.assertIn(why, said)
        (self.work / "m.tfm").write_text((self.work / "m.tfm").read_text().replace("weight weight: [d, out] = normal(0, 0.1)",
                                                                                   'weight weight: [d, out] = normal(0, 0.1) as "matrix"')
                                         .replace('adapt ["up"] { rank = 2  also = ["up.bias"] }', 'adapt ["down.matrix"] { rank = 2 }'))
        said = self.tfmc("train", "m.tfm", *run, "--out=run2")
        self.assertIn("run2: warning: there will be no folder adapter: the adapter of 'down.matrix' has no place in peft's files", said)
        self.assertFalse((self.work / "run2/adapter").exists())

    def test_formatting_is_stable(self):
        self.model("m", ADAPTED, line='adapt["up","down"]{rank=4 alpha=6}')
        self.tfmc("fmt", "m.tfm")
        self.assertIn('\n  adapt ["up", "down"] { rank = 4  alpha = 6 }\n', (self.work / "m.tfm").read_text())


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    with tally.compiled_once():
        sys.exit(tally.run())
