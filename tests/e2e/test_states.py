#!/usr/bin/env python3
"""The bits of linear_attention: the same on all instruction sets with fused multiply-adds, with any number of threads, of an
item alone and beside others, and of the first steps whatever follows them; and those of its gradient, whatever stands behind
the last step that gets something, and however the items of a step of training are cut. And what models with states write,
with weights of every form, greedily, with beams and drawn: compiled while the command runs and as libraries, with the same
numbers, and with the tokens that whole rows give.

usage: test_states.py TFMC

Widths fill no vector, one block of columns, and several; with and without factors, what the key reads taken out or not.
What is right is computed here, in double. The last line is 'N passed, N failed'.
"""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

import tally

TFMC = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
STEPS = 70
WIDTHS = [(1, 1), (5, 7), (16, 33), (64, 96)]
MODEL = """model States {
  forward(q: f32[batch, heads, time, N], k: f32[batch, 1, time, N], v: f32[batch, heads, time, D],
          a: f32[batch, heads, time, 1], rows: f32[batch, heads, time, N], b: f32[batch, heads, time, 1],
          each: f32[batch, heads, time, D]) {
    return sums = linear_attention(q, k, v), fades = linear_attention(q, k, v, a), delta = linear_attention(q, k, v, a, b),
           by_rows = linear_attention(q, k, v, rows, each), constant = linear_attention(q, k, v, a[:1, :, :1], b),
           turned = linear_attention(transpose(transpose(q, -1, -2), -1, -2), k, transpose(transpose(v, 0, 1), 0, 1), beta = each)
  }
}
"""


def sequential(q, k, v, a=None, b=None):
    lead, n, d = np.broadcast_shapes(q.shape[:2], k.shape[:2], v.shape[:2]), k.shape[-1], v.shape[-1]
    state, out = np.zeros((*lead, n, d)), []
    for t in range(q.shape[2]):
        if a is not None:
            state = state * a[:, :, min(t, a.shape[2] - 1), :, None]
        u = v[:, :, t, :]
        if b is not None:
            u = b[:, :, t, :] * (u - (k[:, :, t, :, None] * state).sum(-2))
        state = state + k[:, :, t, :, None] * u[..., None, :]
        out.append((q[:, :, t, :, None] * state).sum(-2))
    return np.stack(out, 2)


def operands(n, d):
    r = np.random.default_rng(n)
    unit = r.normal(size=(3, 1, STEPS, n))
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    return {name: np.ascontiguousarray(x, np.float32) for name, x in {
        "q": r.normal(size=(3, 2, STEPS, n)), "k": unit, "v": r.normal(size=(3, 2, STEPS, d)),
        "a": r.uniform(0.7, 1, (3, 2, STEPS, 1)), "rows": r.uniform(0.7, 1, (3, 2, STEPS, n)),
        "b": r.uniform(0, 1, (3, 2, STEPS, 1)), "each": r.uniform(0, 1, (3, 2, STEPS, d))}.items()}


def wanted(x):
    x = {name: value.astype(np.float64) for name, value in x.items()}
    q, k, v, a = x["q"], x["k"], x["v"], x["a"]
    return {"sums": sequential(q, k, v), "fades": sequential(q, k, v, a), "delta": sequential(q, k, v, a, x["b"]),
            "by_rows": sequential(q, k, v, x["rows"], x["each"]), "constant": sequential(q, k, v, a[:1, :, :1], x["b"]),
            "turned": sequential(q, k, v, None, x["each"])}


class States(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.info = subprocess.run([TFMC, "info"], capture_output=True, text=True, check=True).stdout

    def run_model(self, n, d, inputs, *options):
        path = lambda name: os.path.join(self.folder, name)
        with open(path("m.tfm"), "w") as file:
            file.write(MODEL.replace("N]", f"{n}]").replace("D]", f"{d}]"))
        save_file({name: np.ascontiguousarray(x) for name, x in inputs.items()}, path("in.safetensors"))
        done = subprocess.run([TFMC, "run", path("m.tfm"), "--inputs", path("in.safetensors"), "-o", path("o.safetensors"),
                               *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return load_file(path("o.safetensors"))

    def same(self, got, want, what):
        for name, x in want.items():
            self.assertEqual(got[name].tobytes(), np.ascontiguousarray(x).tobytes(), f"{name}, {what}")

    def test_values_and_bits(self):
        for n, d in WIDTHS:
            with self.subTest(n=n, d=d):
                x = operands(n, d)
                first = self.run_model(n, d, x)
                for name, want in wanted(x).items():
                    np.testing.assert_allclose(first[name], want, rtol=1e-5, atol=1e-5 * np.abs(want).max(), err_msg=name)
                for option in ("-march=x86-64-v3", "-march=x86-64-v4", "--threads=1", "--threads=3", "-O0"):
                    if f"{option} cannot run here" not in self.info:
                        self.same(self.run_model(n, d, x, option), first, option)

    def test_items_alone_and_the_first_steps(self):
        for n, d in WIDTHS[1:]:
            with self.subTest(n=n, d=d):
                x = operands(n, d)
                whole = self.run_model(n, d, x)
                alone = self.run_model(n, d, {name: v[:1] for name, v in x.items()})
                self.same(alone, {name: v[:1] for name, v in whole.items()}, "alone")
                for steps in (1, 63, 64):
                    begun = self.run_model(n, d, {name: v[:, :, :steps] for name, v in x.items()})
                    self.same(begun, {name: v[:, :, :steps] for name, v in whole.items()}, f"{steps} steps")


TRAINED = """model Trained {
  weight q: [3, 2, T, N]
  weight k: [3, 1, T, N]
  weight v: [3, 2, T, D]
  weight a: [3, 2, T, 1]
  weight rows: [3, 2, T, N]
  weight b: [3, 2, T, 1]
  weight each: [3, 2, T, D]

  fn objective(c: f32[3, 2, T, D], counts: bool[T]) {
    y = [linear_attention(q, k, v), linear_attention(q, k, v, a), linear_attention(q, k, v, rows), linear_attention(q, k, v, beta = b),
         linear_attention(q, k, v, beta = each), linear_attention(q, k, v, a, b), linear_attention(q, k, v, rows, each),
         linear_attention(v[..., :1], k[..., :1], q, a[:1, :, :1], b[:, :1]), linear_attention(k, q, v, rows)]
    read = [where(counts[:, none], one, 0.0) for one in y]
    return loss = sum([sum(sum(sum(sum(one[..., :1] * c[..., :1] + where(counts[:, none], one * sin(one), 0.0)[..., -1:])))) for one in read])
  }
  train objective { optimizer = "sgd" }

  forward(x: f32[batch]) = x
}
"""

HYBRID = """model Hybrid(vocab = 30, d = 24, heads = 2, n = 5, m = 7) {
  embed = Embedding(vocab, d)
  norm = RMSNorm(d)
  q = Linear(d, heads * n)
  k = Linear(d, heads * n)
  v = Linear(d, heads * m)
  a = Linear(d, heads)
  b = Linear(d, heads)
  out = Linear(heads * m, d)
  attention = MultiheadAttention(d, heads)
  head = Linear(d, vocab)

  fn mixed(x) {
    decay = sigmoid(transpose(a(x), 1, 2) + 3)[..., none]
    gain = sigmoid(transpose(b(x), 1, 2))[..., none]
    keys = normalize(split_heads(k(x), heads))
    return out(merge_heads(linear_attention(split_heads(q(x), heads), keys, split_heads(v(x), heads), decay, gain)))
  }
  forward(ids: i32[batch, time]) {
    x = embed(ids)
    x = x + mixed(x + 0.5 * shift(norm(x), 1))
    return logits = head(x + attention(x, x, x, is_causal = true))
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""


class Gradients(unittest.TestCase):
    def setUp(self):
        States.setUp(self)

    same = States.same

    def gradients(self, text, batches, weights, *options):
        path = lambda name: os.path.join(self.folder, name)
        with open(path("m.tfm"), "w") as file:
            file.write(text)
        save_file(batches, path("b.safetensors"))
        args = ["--steps", "1", "--gradients", "--seed", "3", "-o", path("o.safetensors"), *options]
        if weights:
            save_file(weights, path("w.safetensors"))
            args += ["--weights", path("w.safetensors")]
        done = subprocess.run([TFMC, "train", path("m.tfm"), "--batches", path("b.safetensors"), *args], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {name: x for name, x in load_file(path("o.safetensors")).items() if name.startswith("grad.")}

    def of_operands(self, n, d, steps, live, *options):
        """What operands of `steps` steps get, of which the first `live` count; behind them they hold what overflows."""
        weights = {name: x[:, :, :live] for name, x in operands(n, d).items()}
        wide = {name: np.full((*x.shape[:2], steps, x.shape[3]), 1e30, np.float32) for name, x in weights.items()}
        for name, x in weights.items():
            wide[name][:, :, :live] = x
        r = np.random.default_rng(7)
        c = np.zeros((3, 2, steps, d), np.float32)
        c[:, :, :live] = r.normal(size=(3, 2, live, d))
        text = TRAINED.replace("T,", f"{steps},").replace("[T]", f"[{steps}]").replace("N]", f"{n}]").replace("D]", f"{d}]")
        got = self.gradients(text, {"c": c, "counts": np.arange(steps) < live}, wide, *options)
        for name, x in got.items():
            self.assertFalse(x[:, :, live:].any(), f"{name} behind the last step")
        return {name: x[:, :, :live] for name, x in got.items()}

    def test_operands(self):
        for n, d in WIDTHS:
            with self.subTest(n=n, d=d):
                first = self.of_operands(n, d, STEPS, STEPS)
                self.assertEqual(len(first), 7)
                exact = self.of_operands(n, d, STEPS, STEPS, "--engine=reference")
                for name, want in exact.items():
                    np.testing.assert_allclose(first[name], want, rtol=1e-5, atol=1e-5 * np.abs(want).max(), err_msg=name)
                    self.assertTrue(want.any(), name)
                for option in ("-march=x86-64-v3", "-march=x86-64-v4", "--threads=1", "--threads=3"):
                    if f"{option} cannot run here" not in self.info:
                        self.same(self.of_operands(n, d, STEPS, STEPS, option), first, option)

    def test_what_stands_behind_the_last_step(self):
        """The states that are kept are as far apart as the number of all steps says, and nothing is read behind the last one."""
        for n, d in WIDTHS[1:]:
            for live in (1, 17, STEPS):
                with self.subTest(n=n, d=d, live=live):
                    first = self.of_operands(n, d, live, live)
                    for more in (1, 40, 230):
                        self.same(self.of_operands(n, d, live + more, live), first, f"{more} steps more")

    def test_how_a_step_is_cut(self):
        r, lengths = np.random.default_rng(1), [150, 85, 20, 145, 7, 105]
        items = [r.integers(1, 30, n).astype(np.int32) for n in lengths]

        def gradients(parts, *options):
            batches = {}
            for number, (chosen, time) in enumerate(parts):
                ids, labels = np.zeros((2, len(chosen), time), np.int32)
                for row, item in enumerate(chosen):
                    ids[row, :lengths[item]] = items[item]
                    labels[row, :lengths[item] - 1] = items[item][1:]
                at = f"@{number}" if len(parts) > 1 else ""
                batches |= {f"ids{at}": ids, f"labels{at}": labels}
            return self.gradients(HYBRID, batches, None, "--accumulate", str(len(parts)), *options)

        first = gradients([(range(6), 150)])
        for name, x in first.items():
            self.assertTrue(x.any(), name)
        self.same(gradients([(range(6), 151)]), first, "more padding")
        self.same(gradients([(range(3), 150), (range(3, 6), 145)]), first, "two parts")
        self.same(gradients([([i], lengths[i]) for i in range(6)], "--threads=1"), first, "item by item")


MODELS = ["gen-qwen3-5-ragged", "gen-mamba2-ragged", "gen-falcon-h1-ragged", "gen-lfm2-ragged"]
GOLDENS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "goldens", "state")
SEARCHES = [("greedy", []), ("beams", ["--num-beams=3", "--num-return-sequences=2"]),
            ("drawn", ["--do-sample", "--seed=5", "--top-k=6", "--temperature=0.9"])]


LARGE = """model Large(n = 256, m = 1024) {
  word = Embedding(23, 64)
  k = Linear(64, 17 * n)
  v = Linear(64, 17 * m)
  b = Linear(64, 17)
  out = Linear(17 * m, 64)
  head = Linear(64, 23)

  forward(ids: i32[batch, time]) {
    x = word(ids)
    keys = normalize(split_heads(k(x), 17))
    gain = sigmoid(split_heads(b(x), 17))
    y = linear_attention(keys, keys, split_heads(v(x), 17), decay = sigmoid(gain + 3), beta = gain)
    return logits = head(x + out(merge_heads(y)))
  }
  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 40 }
}
"""


class Generation(unittest.TestCase):
    def setUp(self):
        States.setUp(self)

    def called(self, *arguments):
        done = subprocess.run([TFMC, *arguments], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def write(self, model, what, *options):
        """The bytes of what is written: rows, their scores, those of their tokens."""
        weights = [] if what.endswith(".so") else ["--weights", f"{model}/weights.safetensors"]
        self.called("generate", what, *weights, "--inputs", f"{model}/inputs.safetensors", "--max-new-tokens=6", "-q",
                    "--return-token-scores", "-o", "o.safetensors", *options)
        with open(os.path.join(self.folder, "o.safetensors"), "rb") as file:
            return file.read()

    def tokens(self):
        return load_file(os.path.join(self.folder, "o.safetensors"))["sequences"]

    def check(self, name, form):
        model, quantize = os.path.join(GOLDENS, name), [f"--quantize={form}"] if form else []
        first = {}
        for march in ("x86-64", "x86-64-v3", "x86-64-v4"):
            if f"-march={march} cannot run here" in self.info:
                continue
            self.called("compile", f"{model}/model.tfm", "--weights", f"{model}/weights.safetensors", "-o", "libm.so", "-q",
                        f"-march={march}", *quantize)
            for search, options in SEARCHES:
                got = self.write(model, f"{model}/model.tfm", *options, f"-march={march}", *quantize)
                rows = self.tokens()
                self.assertEqual(self.write(model, "libm.so", *options), got, f"{search}, {march}: a library gives other bytes")
                self.assertEqual(self.write(model, f"{model}/model.tfm", *options, f"-march={march}", "--threads=1", *quantize), got)
                self.write(model, f"{model}/model.tfm", *options, f"-march={march}", "--recompute", *quantize)
                np.testing.assert_array_equal(self.tokens(), rows, f"{search}, {march}: whole rows give other tokens")
                if march != "x86-64":
                    self.assertEqual(first.setdefault(search, got), got, f"{search}, {march}")

    def test_models_that_write(self):
        for name in MODELS:
            for form in ("", "bf16", "int8", "int4") if name == MODELS[0] else ("", "int4"):
                with self.subTest(model=name, form=form):
                    self.check(name, form)

    def test_states_that_no_cache_holds(self):
        """They are written past the caches, where rows begin at vectors: steps give what whole rows give, by any number of threads."""
        path = lambda name: os.path.join(self.folder, name)
        r = np.random.default_rng(2)
        save_file({"ids": r.integers(3, 23, (1, 5)).astype(np.int32)}, path("in.safetensors"))
        with open(path("m.tfm"), "w") as file:
            file.write(LARGE)
        for m in (1024, 1030):
            weights = {"word.weight": (23, 64), "head.weight": (23, 64), "head.bias": (23,), "out.weight": (64, 17 * m), "out.bias": (64,),
                       "v.weight": (17 * m, 64), "v.bias": (17 * m,), "k.weight": (17 * 256, 64), "k.bias": (17 * 256,),
                       "b.weight": (17, 64), "b.bias": (17,)}
            save_file({name: r.normal(size=shape, scale=0.2).astype(np.float32) for name, shape in weights.items()}, path("w.safetensors"))
            for search, options in SEARCHES:
                written = []
                for how in (["--recompute"], ["--threads=1"], ["--threads=3"], ["-march=x86-64-v3"]):
                    self.called("generate", "m.tfm", "-D", f"m={m}", "--weights", "w.safetensors", "--inputs", "in.safetensors",
                                "--max-new-tokens=6", "-q", "--return-token-scores", "-o", "o.safetensors", *options, *how)
                    with open(path("o.safetensors"), "rb") as file:
                        written.append(file.read())
                self.assertEqual(len(set(written)), 1, f"{search}, {m} columns")

    def test_what_is_no_weight_of_a_product_stays_f32(self):
        model = os.path.join(GOLDENS, MODELS[0])
        plain = self.write(model, f"{model}/model.tfm")
        rules = ",".join(f"*linear_attn.{name}={form}" for name in ("conv1d.weight", "A_log", "dt_bias") for form in ("bf16", "int4"))
        self.assertEqual(self.write(model, f"{model}/model.tfm", f"--quantize={rules}"), plain)
        self.assertNotEqual(self.write(model, f"{model}/model.tfm", "--quantize=*linear_attn.out_proj*=int4"), plain)


GRAPH = """graph X(sizes n) {
  %0 = input "x" : f32[n, 4]
  %1 = input "z" : f32[n, 3]
LINE
  output y = %2
}
"""


class Faults(unittest.TestCase):
    def test_gradients_that_are_none(self):
        grad = "linear_attention_grad"
        lines = {
            f"  %2 = {grad} %0, %0, %0, %0, decay=true : f32[n, 4]": "g is the last one",
            f"  %2 = {grad} %0, %0, %0, %1 : f32[n, 4]": "g must have the shape of the result",
            f"  %2 = {grad} %0, %0, %0, %1, %0, beta=true : f32[n, 4]": "beta 1 or d",
            f"  %2 = {grad} %0, %0, %0, %0 : f32[n, 3]": "the result should be f32[n, 4]",
            f"  %2 = {grad}_v %0 : f32[n, 4]": "its input must be a linear_attention_grad",
            f"  %3 = {grad} %0, %0, %0, %0 : f32[n, 4]\n  %2 = {grad}_decay %3 : f32[n, 4]": "its input has no such operand"}
        for line, words in lines.items():
            with self.subTest(line):
                done = subprocess.run([TFMC, "opt", "-"], input=GRAPH.replace("LINE", line), capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    sys.argv.pop(1)
    with tally.compiled_once():
        sys.exit(tally.run())
