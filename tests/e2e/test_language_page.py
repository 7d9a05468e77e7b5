#!/usr/bin/env python3
"""Every example of docs/language.md is run, by the compiler and by the reference interpreter, which must agree.

usage: test_language_page.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.

Blocks are run as they stand, those that are no whole model with what BLOCKS adds. What the text shows between backquotes
must stand in one of PROGRAMS ("..." stands for anything there), be a signature of std.tfm, or be listed as no code.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import numpy as np
from safetensors.numpy import load_file

import tally

TFMC = None
PROJECT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "language.md").read_text()
STD = "".join((PROJECT / "compiler" / "elaborate" / "std" / f"{name}.tfm").read_text() for name in ("std", "functions", "losses"))
FENCED = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

# First words of a block: what makes a model of it (% is the block), then the options of a run.
BLOCKS = {
    "model Classifier(": ("%", "-D d_model=64 -D vocab=50 --input ids=2x5"),
    "layer FeedForward(": ("% model M { ff = FeedForward(8) forward(x: f32[n, 8]) { return y = ff(x), w = ff.down.weight } }",
                           "--input x=3x8"),
    "layer Block(d, local)": ("%", "--input x=2x3x16"),
    "model Steps(": ("%", "--input x=2x3x8"),
    "forward(x: f32[batch, time, 64]": ("model M { fn f(x) = relu(x) % }", "--input x=2x3x64 --input mask=2x3"),
    "layer Expert(d, ffn)": ("%", "-D d=16 -D ffn=24 --input x=2x3x16"),
    "layer Memory(d, heads)": ("% model M { memory = Memory(16, 2) forward(x: f32[n, t, 16]) { return y = memory(x) } }", "--input x=2x5x16"),
}

# Programs with the examples of the text: the options of a run, the files.
PROGRAMS = [
    ("--input x=2x8 --input ids=2x3", """
        model Given() {
          weight table: [5, 8]
          fn scaled(x: f32[n, d], by: f32[d] = 1) = x * by
          forward(x: f32[batch, 8], ids: i32[batch, time], kinds: i32[batch, time] = 0) {
            return y = scaled(x), z = table[ids] + table[kinds], digits = exp(x) - 1 + log(1 + x), same = expm1(x) + log1p(x)
          }
        }"""),
    ("--input x=3x8", """
        layer Inner(d) {
          q_proj = Linear(d, d)
          v_proj = Linear(d, d)
          forward(x) = q_proj(x) + v_proj(x)
        }
        model Adapted(d = 8) {
          inner = Inner(d)
          weight W: [d, d]
          adapt ["*.q_proj", "*.v_proj"] { rank = 8  alpha = 16  dropout = 0.1 }
          forward(x: f32[n, d]) { return y = inner(x), z = linear(x, W), u = x @ W }
        }"""),
    ("--input x=3x4 --input y=3x4 --input keep=3x4", """
        model Losses {
          forward(x: f32[m, n], y: f32[m, n], keep: f32[m, n]) {
            kept = sum(sum(mse_loss(x, y, "none") * keep)) / sum(sum(keep))
            return kept, mean = mse_loss(x, y, "mean"), total = l1_loss(x, y, "sum"), kl = kl_div(x, softmax(y), "batchmean")
          }
        }"""),
    ("--input x=2x5x3", """
        model Widths {
          forward(x: f32[batch, time, d]) { return y = pad(x, [0, 0, 0, -time - 4 * (-time // 4)]) }
        }"""),
    ("--input x=9x8", """
        model Experts(n = 4, k = 2) {
          gate = Linear(8, n)
          experts = [Linear(8, 8) for e in n]
          expert = Linear(8, 8)
          forward(x: f32[m, 8]) {
            p = softmax(gate(x))
            best, chosen = topk(p, k)
            smallest = best[:, -1, none]
            condition = sum(f32(p >= smallest), keepdim = true) == k
            weights = sum(p[..., none, :] * one_hot(chosen, n), axis = -2)
            y = sum([where(any(chosen == e, axis = -1, keepdim = true), experts[e](x), 0) for e in n])
            z = sum([weights[..., e, none] * experts[e](x) for e in n])
            return y = y + where(condition, expert(x), 0), z
          }
        }"""),
    ("-D depth=12 -D activation=gelu --input x=2x6x16 --input z=12x4", """
        model Sizes(depth = 2, activation = relu, h = 10) {
          places = EncoderLayer(16, 2, 8, activation = gelu)
          forward(x: f32[batch, time, 16], z: f32[batch * time, 4]) {
            require time % 2 == 0, "..."
            require time // 2 * 2 == time, "a run can check it"
            p = 3 * time + batch
            k = 4
            always = [p % k == p - k * (p // k), (2 * time + 1) // 2 == time, (time + 5) // 2 == (time + 1) // 2 + 2,
                      (4 * time + 3) // 6 == (2 * time + 1) // 3, (time // 2 + 1) // 2 == (time + 2) // 4,
                      batch * time // batch == time, i32(0.25 * h) == 2, depth == 12]
            for holds in always { x = if holds then x else none }   # decided when compiling
            return y = x -> activation -> places, n = full([2 * time + 1], 0), m = f32(i32(x)) + f32(x)
          }
        }"""),
    ("--input ids=2x3", """
        model Ranges {
          forward(ids: i32[batch, time]) {
            require ids >= 0 and ids < 100, "..."
            return y = ids
          }
        }"""),
    ("--input y=2x3", """
        model Words(kind = "b", word = "gelu", words = ["relu", "gelu"]) {
          require kind in ["a", "b"]
          list = words + [known(kind, ["b"])]
          x = "b"
          held = x in list
          forward(y: f32[batch, n]) {
            return z = if held then activation_named(word)(y) else y
          }
        }"""),
    ("--input x=2x35x6 --input w=31 --input y=2x5x6", """
        model Lists {
          forward(x: f32[m, t, d], w: f32[31], y: f32[m, n, d]) {
            same = x[:, 30:] + y[:, : shape(x, 1) - 30] * 0
            l = [expr for i in 3] + [a, b]
            for other in [l[i], l[a:b][0], l[::2][0], [l[len(l) - 1]][-1]] { same = same + other }
            return s = sum([x[:, k : k + n] * w[k] for k in 31]), same
          }
          expr = 2
          i = 1
          a = 0
          b = 2
        }"""),
    ("--input x=2x3x8", """
        layer Scaled(a, b, n) {
          require a % b == 0, "a ({a}) must be a multiple of {b}"
          weight w: [a, b]
          weight b1: [n] as "bias"
          lin = RMSNorm(a) as ""
          forward(x) {
            cond = a == 8
            if cond { y = lin(x) } else { y = x }
            return linear(transpose(linear(y, transpose(w, 0, 1)), -1, -2), full([n, 3], 1), b1)
          }
        }
        layer Named(heads, d) {
          require d % heads == 0, "d ({d}) must be a multiple of {heads}"
          n = d
          weight b: [n] as "bias"
          forward(x, mask = none) {
            if mask == none { mask = 0 }
            return x + b + mask
          }
        }
        model Modules(config = 8) {
          m = Name(config)
          n = 3
          layers = 6 * EncoderLayer(8, 2, 8)
          scaled = Scaled(8, 4, 2)
          named = Named(2, 8)
          fn f(a, b = none) = expr(if b == none then a else a + b)
          fn expr(x) = x * 2
          fn two(a, b) { return a, b }
          forward(x: f32[batch, time, d]) {
            l = layers[2](x) -> layers[:6] -> 3 * m
            for i in n { l = l + i }
            all = [expr for i in n]
            u, v = two(m(x), f(x))
            return y = all(l), w = m.weight, z = scaled(x), n = named(x), u, v
          }
        }
        layer Name(d) {
          weight weight: [d]
          forward(x) = x * weight
        }"""),
    ("--input x=2x3x512", """
        layer EncoderLayer(d, heads) {
          norm = RMSNorm(d)
          forward(x) = x + norm(x)
        }
        model Repeated {
          layers = 6 * EncoderLayer(512, 8)
          same = [EncoderLayer(512, 8) for i in 6]
          forward(x: f32[batch, time, 512]) { return y = layers(x), z = same(x) }
        }"""),
    ("--input x=3x4 --input a=3x4", """
        layer Layer(n) { forward(x, y) = x * y + n }
        model Pipes(config = 2) {
          fn f(x, a = none) = if a == none then tanh(x) else x - a
          forward(x: f32[n, 4], a: f32[n, 4]) {
            y = a
            b = x -> f
            c = x -> f(a)
            return same = b - f(x), too = c - f(x, a), z = x -> Layer(config)(y)
          }
        }"""),
    ("--input x=3x4", """
        model Chosen(a = 1) {
          fn f(a) = if a == 1 then relu else tanh
          forward(x: f32[n, 4]) { return y = x -> (f(a)) }
        }"""),
    ("--input ids=2x5", """
        model Inline {
          forward(ids: i32[batch, time]) {
            return y = ids -> Embedding(1000, 64) -> 2 * EncoderLayer(64, 4)
          }
        }"""),
    ("--input ids=2x5", """
        model Ragged {
          embed = Embedding(40, 8)
          forward(ids: i32[batch, ragged time]) { return y = EncoderOf(embed(ids)), w = embed(ids)[:, ::2] }
          block = EncoderLayer(8, 2, 8)
          fn EncoderOf(x) = block(x)
        }"""),
    ("--input tgt=2x5", """
        include "layers.tfm"
        model Generates(d = 16) {
          embed = Embedding(40, d)
          block = Causal(d)
          forward(tgt: i32[batch, time]) { return logits = linear(block(embed(tgt)), embed.weight) }
          generate tgt from logits { bos = 1  eos = 2  pad = 0  max_length = 128 }
        }"""),
    ("--input x=2x4", """
        model Trained(d = 4) {
          weight * = normal(0, 0.02)
          weight w: [d, d] = xavier_uniform()
          forward(x: f32[batch, d]) { return y = x @ w }
          fn objective(x: f32[batch, d]) { return loss = mean(mean(forward(x) * x)) }
          train objective { optimizer = "adam"  lr = 1e-3 }
        }"""),
    ("--input x=2x6x8x8", """
        model Convolutions {
          one = Conv1d(8, 4, 3, stride = 2, padding = 1)
          two = Conv2d(6, 6, [3, 2], padding = "valid", stride = [1, 2])
          forward(x: f32[batch, 6, height, 8]) {
            n = height
            padding = 1
            dilation = 1
            kernel_size = 3
            stride = 2
            y = conv1d(transpose(x[:, 0], 1, 2), full([3, 8, 3], 1), stride = 2, padding = 1)
            if (n + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 == shape(y, 2) { z = y }
            v = conv1d(x[:, 0], full([3, height, 3], 1), padding = "same")
            return z, u = one(transpose(x[:, 0], 1, 2)), w = two(x), v
          }
        }"""),
    ("--input x=2x5x12 --input ids=2x5 --input u=5x3 --input p=2x5x4 --input scores=2x3x5x5", """
        layer HeadNorm(h) {
          weight weight: [h]
          forward(x) { return x, weight }
        }
        layer Stored(inputs, outputs) {
          weight weight: [inputs, outputs]
          forward(x) = x @ weight
        }
        model Families(d = 12, heads = 3, cap = 30.0, k = 2) {
          h = d // heads
          qkv = Linear(d, 3 * d)
          stored = Stored(d, 7)
          table = Embedding(60, d) as "embed_positions"
          norms = heads * HeadNorm(h)
          weight weight: [d]
          fn embed_positions(ids) = table(ids)
          forward(x: f32[batch, time, 12], ids: i32[batch, time], u: f32[time, 3], p: f32[batch, time, 4],
                  scores: f32[batch, 3, time, time]) {
            a = u[:, : h // 2]
            v = u[:, 1:3]
            pos = positions(x, 1)
            q = transpose(reshape(qkv(x), [batch, time, heads, 3 * h]), 1, 2)
            first, seconds = norms(q[..., :h])
            return q, s = stored(x), e = embed_positions(positions(ids, 1) + 2), r = rotary(x, pos, layout = "interleaved"),
                   l = turned(u[:, :2], v, a), g = rms_norm(x, 1 + weight, 1e-6), c = cap * tanh(scores / cap), first, seconds,
                   m = where(sum(f32(p[..., none, :] > p[..., none])) < k, p, 0)
          }
          fn turned(u, v, a) = concat(u * cos(a) - v * sin(a), v * cos(a) + u * sin(a))
        }"""),
    ("--input ids=2x5", """
        model Distances(d = 8, heads = 2) {
          embed = Embedding(40, d)
          layers = [EncoderLayer(d, heads, 8) for i in 2]
          table = Embedding(9, heads) as "layers.0.attention.bias"
          weight slopes: [heads]
          forward(ids: i32[batch, time]) {
            x = embed(ids)
            k = x
            apart = positions(k, -2) - positions(x, -2)[:, none] + 4
            bias = transpose(transpose(table(apart), -1, -2), -2, -3)
            for i in 2 { x = layers[i](x, bias[none] + full([batch, 1, 1, 1], 0)) }
            return x, alibi = bias + slopes[:, none, none] * f32(positions(k, -2))
          }
        }"""),
]
LAYERS = """
layer Causal(d) {
  block = EncoderLayer(d, 2, 8)
  forward(x) = block(x, is_causal = true)
}
"""

# What `tfmc check` says of this one.
BOUND = """
model M(d = 8) {
  weight positions: [16, d]
  forward(x: f32[batch, time, 8], ids: i32[batch, ragged time]) { return y = x + positions }
}"""
PRINTED = ("time == 16", "time.lengths: i32[batch]")

# Shown, but no code of the language, or no more than a type, a sign or a shape that others talk about.
NO_CODE = {"%", "+", "tfmc check", "tfmc compile", "tfmc run", "-D name=value", "f32[batch, time, 512]", "i32[...]",
           "bool[...]", "[batch, channels, time]", "[batch, channels, height, width]", "[n]", "[..., n]", "[batch, time, d]",
           "[batch, d]", "[batch, channels, ...]", "[inputs, outputs]", "[time, h // 2]", "{name}", "[..., time, channels]",
           "[channels, 1, kernel]", "groups = channels",
           "weight * expert(x)", "--require-fusion=experts", "[..., windows, ..., size]", "[batch, in, n]", "[in, out, kernel]", "<=",
           'input "ids"[0,2] = 100, legal range is [0, 100): ...', "-D 'kind=\"c\"'", 'kind must be one of ["a", "b"], not "c"',
           "require x in [...]"}


def plain(text):
    return " ".join(text.split())


def texts():
    """What stands between backquotes, but in blocks and in the table that the compiler prints."""
    text = FENCED.sub("", PAGE)
    text = re.sub(r"<!-- tfmc document.*?<!-- end -->", "", text, flags=re.DOTALL)
    return sorted({plain(span) for span in re.findall(r"`([^`]+)`", text)})


def is_name(text):
    """A word, a number, a path, or a list of words such as the names of the layers."""
    return re.fullmatch(r"[\w./*-]+( [\w./*-]+)+|[\w./*-]+|\"\w*\"", text) is not None


def is_signature(text):
    """Whether std.tfm has the function or layer with these parameters: `f(x, axis = -1)`; `...` stands for any."""
    name, _, params = text.partition("(")
    found = re.search(rf"^(?:fn|layer) {re.escape(name)}\(([^()]*)\)", STD, re.MULTILINE)
    if not found or not params.endswith(")"):
        return False
    own = [re.sub(r"\[.*\]", "", p).strip() for p in re.sub(r"\[[^\]]*\]", "pads", params[:-1]).split(",")]
    theirs = [plain(p) for p in found[1].split(",")]
    return own == theirs or own == [p.split(" = ")[0] for p in theirs]


def stands_in(text, program):
    return re.search(re.escape(text).replace(re.escape("..."), ".*?"), plain(program)) is not None


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tfmc(self, *args):
        return subprocess.run([TFMC, *args], cwd=self.folder, capture_output=True, text=True, timeout=300)

    def agree(self, source, options):
        """The model is good, and both engines give the same."""
        (self.folder / "layers.tfm").write_text(LAYERS)
        (self.folder / "model.tfm").write_text(source)
        outputs = []
        for engine in ("native", "reference"):
            proc = self.tfmc("run", "model.tfm", *options.split(), "--random-weights=1", f"--engine={engine}",
                             "-o", "o.safetensors")
            self.assertEqual(proc.returncode, 0, source + proc.stderr)
            outputs.append(load_file(self.folder / "o.safetensors"))
        self.assertEqual(outputs[0].keys(), outputs[1].keys())
        for name, want in outputs[1].items():
            np.testing.assert_allclose(outputs[0][name], want, atol=1e-4, rtol=1e-4, err_msg=source)

    def test_blocks(self):
        blocks = [text for kind, text in FENCED.findall(PAGE)]
        self.assertEqual(len(blocks), len(BLOCKS), "each block has a row in BLOCKS")
        for text in blocks:
            (frame, options), = [row for begin, row in BLOCKS.items() if text.startswith(begin)]
            with self.subTest(text.splitlines()[0]):
                self.agree(frame.replace("%", text.replace("{ ... ", "{ z = mask ")), options)

    def test_programs(self):
        for options, source in PROGRAMS:
            with self.subTest(source.splitlines()[1]):
                self.agree(source, options)

    def test_every_example_is_in_a_program(self):
        programs = [source for _, source in PROGRAMS] + [options for options, _ in PROGRAMS] + [BOUND, *PRINTED]
        shown = [text for text in texts() if text not in NO_CODE and not is_name(text)]
        self.assertGreater(len(shown), 80)
        missing = [text for text in shown if not is_signature(text) and not any(stands_in(text, p) for p in programs)]
        self.assertEqual(missing, [], "shown by docs/language.md, but run by no program here")

    def test_what_the_text_calls_an_error(self):
        for text, message in (("if x { y = x }", "is a tensor"), ("y = full([time // batch], 0)", "time // batch is not a size"),
                              ("y = [1, 2][2]", "one integer below 2"), ("y = [Linear(16, 16)](x)", "needs a name")):
            source = f"model M {{ forward(x: f32[batch, time, 16]) {{ {text} return z = x }} }}"
            (self.folder / "model.tfm").write_text(source)
            proc = self.tfmc("check", "model.tfm")
            self.assertEqual(proc.returncode, 1, source)
            self.assertIn(message, proc.stderr)

    def test_what_the_text_says_of_check(self):
        (self.folder / "model.tfm").write_text(BOUND)
        proc = self.tfmc("check", "model.tfm")
        for text in PRINTED:
            self.assertIn(text, proc.stdout)
        self.assertIn(f"every run needs {PRINTED[0]}", proc.stderr)


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run(verbosity=1))
