#!/usr/bin/env python3
"""Pictures of models as `dot` lays them out: of a size that somebody can read, every line within the frame of the model,
none through a module's name, and every box that computes is reached by a line.

usage: test_pictures.py TFMC

Needs Python's own library and the program `dot`. The models have what makes pictures hard: an encoder and a decoder, a
mask and a table that every layer reads, layers of two kinds, closed modules whose results come back to them. They are
drawn as written, fused and as plans, at several depths.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import tally

TFMC = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
SVG = "{http://www.w3.org/2000/svg}"

# Layers of two kinds read a mask, and angles that the first of them computes; a projection before the attention and
# behind it is one module.
LAYERS = """
layer Attention(d, heads) {
  project = Linear(d, 3 * d)
  out     = Linear(d, d)
}
layer Block(d, heads, near) {
  norm = LayerNorm(d)
  att  = Attention(d, heads)
  up   = Linear(d, 4 * d)
  down = Linear(4 * d, d)
  forward(x, hidden, places) {
    packed = att.project(norm(x))
    q = packed[..., :d] -> split_heads(heads) -> rotary(places)
    k = packed[..., d : 2 * d] -> split_heads(heads) -> rotary(places)
    v = packed[..., 2 * d:] -> split_heads(heads)
    place = positions(x, 1)
    seen = hidden
    if near { seen = hidden or abs(f32(place[:, none] - place)) > 5 }
    scores = q @ transpose(k, -1, -2) / sqrt(d // heads)
    x = x + att.out(merge_heads(softmax(where(seen, -inf, scores)) @ v))
    return x + down(gelu(up(x)))
  }
}
"""
ENCODER = LAYERS + """model Encoder(d = 16) {
  words  = Embedding(50, d)
  layers = [Block(d, 2, i % 3 == 0) for i in 12]
  last   = LayerNorm(d)
  forward(ids: i32[batch, time], mask: i32[batch, time], places: i32[batch, time]) {
    x = words(ids)
    hidden = (mask == 0)[:, none, none]
    for i in 12 { x = layers[i](x, hidden, places[:, none] + 1) }
    return y = last(x)
  }
}
"""
TRANSLATOR = """model Translator(d = 16) {
  words   = Embedding(50, d)
  encoder = Encoder(d)
  decoder = Decoder(d)
  forward(src: i32[batch, source], tgt: i32[batch, time], mask: i32[batch, source]) {
    padding = mask == 0
    return y = decoder(words(tgt), encoder(words(src), padding), padding)
  }
}
layer Encoder(d) {
  layers = [EncoderLayer(d, 2, 32) for i in 3]
  norm   = LayerNorm(d)
  forward(x, padding) {
    for i in 3 { x = layers[i](x, src_key_padding_mask = padding) }
    return norm(where(padding[..., none], 0.0, x))
  }
}
layer Decoder(d) {
  layers = [DecoderLayer(d, 2, 32) for i in 4]
  first  = Linear(d, d)
  norm   = LayerNorm(d)
  forward(x, memory, padding) {
    x = relu(first(x))
    for i in 4 { x = layers[i](x, memory, tgt_is_causal = true, memory_key_padding_mask = padding) }
    return norm(x)
  }
}
"""
MODELS = {"encoder": ENCODER, "translator": TRANSLATOR}
DRAWN = [(model, stage, depth) for model in MODELS for stage in ("primitive", "fused", "plan") for depth in (1, 2, 3, 4)]


def points(text):
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", text)]
    return list(zip(numbers[::2], numbers[1::2]))


def along(curve):
    """Places on a path of cubic curves."""
    for i in range(0, len(curve) - 3, 3):
        for step in range(17):
            t = step / 16
            weights = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t, t ** 3)
            yield tuple(sum(w * p[axis] for w, p in zip(weights, curve[i:i + 4])) for axis in (0, 1))


class Picture:
    def __init__(self, svg):
        root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", svg))
        self.size = [int(root.get(side).removesuffix("pt")) for side in ("width", "height")]
        groups = list(root.iter(SVG + "g"))
        frames = [g for g in groups if g.get("class") == "cluster"]
        corners = points(frames[0].find(SVG + "path").get("d"))
        self.frame = [f(p[axis] for p in corners) for f in (min, max) for axis in (0, 1)]
        self.names = [(t.text, float(t.get("x")), float(t.get("y")), float(t.get("font-size")))
                      for frame in frames[1:] for t in frame.findall(SVG + "text")]
        self.lines = {g.find(SVG + "title").text: [p for path in g.iter(SVG + "path") for p in along(points(path.get("d")))]
                      for g in groups if g.get("class") == "edge"}

    def outside(self):
        left, top, right, bottom = self.frame
        return [name for name, line in self.lines.items()
                if any(not (left <= x <= right and top <= y <= bottom) for x, y in line)]

    def over_names(self):
        """Names stand at the left; half of the size of the letters is less than they take."""
        return [(name, text) for name, line in self.lines.items() for text, x, y, size in self.names
                if any(x <= at[0] <= x + len(text) * size / 2 and y - size * 0.7 <= at[1] <= y for at in line)]


@unittest.skipUnless(shutil.which("dot"), "no program `dot`")
class Pictures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def graph(self, model, stage, depth, form):
        (self.folder / "m.tfm").write_text(MODELS[model])
        done = subprocess.run([TFMC, "graph", "m.tfm", f"--stage={stage}", f"--depth={depth}", f"--format={form}"],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_lines_and_names(self):
        for model, stage, depth in DRAWN:
            with self.subTest(model=model, stage=stage, depth=depth):
                picture = Picture(self.graph(model, stage, depth, "svg"))
                self.assertEqual(picture.outside(), [])
                self.assertEqual(picture.over_names(), [])
                if depth < 4:
                    self.assertLess(picture.size[0], 2000)
                    self.assertLess(picture.size[1], 2800)

    def test_every_box_is_reached(self):
        """By a line from a box, or a point at a frame; inputs are where lines begin."""
        for model, stage, depth in DRAWN:
            with self.subTest(model=model, stage=stage, depth=depth):
                text = self.graph(model, stage, depth, "dot")
                boxes = re.findall(r"^ *([nmp]\d+) \[(.*)\];$", text, re.M)
                reached = set(re.findall(r"-> ([nmp]\d+) \[", text))
                begin = [look for name, look in boxes if name not in reached]
                self.assertEqual([look for look in begin if "ellipse" not in look and '"positions"' not in look], [])
                self.assertEqual(len([look for look in begin if "ellipse" in look]), 3, begin)

    def test_what_every_layer_reads_is_a_flag(self):
        """The mask is a line to one layer, and a word in the boxes of the others."""
        text = self.graph("encoder", "fused", 3, "dot")
        self.assertIn("\u2190 hidden", text)
        self.assertEqual(len(re.findall(r'label="hidden bool\[', text)), 1)


if __name__ == "__main__":
    sys.argv.pop(1)
    sys.exit(tally.run())
